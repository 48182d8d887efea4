"""The one theme: colours that colour-blind readers tell apart, one map for amounts, one for differences, and Material settings."""

from __future__ import annotations

from typing import Any

from commcanary_lab.views.extra import material

__all__ = ["ACCENT", "AMOUNT", "DIFFERENCE", "NEUTRAL", "OP_COLORS", "THEME_CONFIG", "fill", "op_color", "paper", "plain", "smooth"]

#: Perceptually uniform, monotone in lightness: more is brighter. The darkest end is cut so that it stands out on a dark page.
AMOUNT = (
    "#3b2a72", "#3c3b80", "#394c87", "#335c8a", "#2c6b8b", "#267a8b", "#21898a", "#1f9886", "#26a77f", "#3cb574",
    "#5cc163", "#82cc4f", "#abd53c", "#d4dc35", "#f5e342",
)  # fmt: skip

#: Differences: one colour less, the other more, nothing in the middle.
DIFFERENCE = ("#2a6fad", "#6b9cc9", "#abc6e0", "#e3e5e8", "#e4c7a3", "#cf9c59", "#b3731a")

#: One colour per operation (after Paul Tol's bright scheme, without its red: red is for failed checks only).
OP_COLORS = {
    "all_reduce": "#4477aa",
    "all_gather": "#56b9d6",
    "reduce_scatter": "#2f9e62",
    "all_to_all": "#d3ae2c",
    "all_to_all_v": "#dd8a2b",
    "broadcast": "#b0478f",
    "reduce": "#8d63b3",
    "send": "#2a9d8f",
    "recv": "#7fb8ad",
    "point_to_point": "#2a9d8f",
}
_OTHER = ("#8a94a3", "#a58b76", "#7d8c5c", "#95729c")

ACCENT = "#0f7285"
ACCENT_DARK = "#58b9cc"
#: Lines, ticks and marks that must be seen on light and on dark.
NEUTRAL = "#8793a3"
FAIL = "#c93a32"

FONT = "Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO = "'JetBrains Mono', 'SF Mono', Menlo, Consolas, 'Liberation Mono', monospace"


def smooth(colors: tuple[str, ...], steps: int = 256) -> list[str]:
    """Return a colour map interpolated between its stops.

    Examples
    --------
    >>> smooth(("#000000", "#ffffff"), 3)
    ['#000000', '#808080', '#ffffff']
    """
    stops = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colors]
    out = []
    for k in range(steps):
        place = k * (len(stops) - 1) / (steps - 1)
        i = min(int(place), len(stops) - 2)
        mixed = [round(a + (b - a) * (place - i)) for a, b in zip(stops[i], stops[i + 1], strict=True)]
        out.append("#" + "".join(f"{v:02x}" for v in mixed))
    return out


def op_color(name: str) -> str:
    """Return the colour of an operation; the same name always has the same colour.

    Examples
    --------
    >>> op_color("all_reduce"), op_color("my_op") == op_color("my_op")
    ('#4477aa', True)
    """
    return OP_COLORS.get(name) or _OTHER[sum(name.encode("utf-8")) % len(_OTHER)]


def _palette(dark: bool) -> dict[str, Any]:
    if dark:
        return {
            "primary": {"main": ACCENT_DARK, "contrastText": "#06222a"},
            "error": {"main": "#ef7a72"},
            "background": {"default": "#10151c", "paper": "#171d26"},
            "text": {"primary": "#e6eaf0", "secondary": "#9aa5b4"},
            "divider": "#2a3340",
        }
    return {
        "primary": {"main": ACCENT, "contrastText": "#ffffff"},
        "error": {"main": FAIL},
        "background": {"default": "#f4f6f8", "paper": "#ffffff"},
        "text": {"primary": "#18212d", "secondary": "#56616f"},
        "divider": "#e1e6ec",
    }


def _config(dark: bool) -> dict[str, Any]:
    return {
        "palette": _palette(dark),
        "shape": {"borderRadius": 8},
        "typography": {"fontFamily": FONT, "fontSize": 13, "button": {"textTransform": "none", "fontWeight": 500}},
        "components": {
            "MuiPaper": {"styleOverrides": {"root": {"backgroundImage": "none"}}},
            "MuiTab": {"styleOverrides": {"root": {"textTransform": "none", "fontWeight": 500, "minHeight": 48, "fontSize": 14}}},
            "MuiToggleButton": {"styleOverrides": {"root": {"textTransform": "none"}}},
        },
    }


#: Material settings of both modes, for every pmui object of a figure or page.
THEME_CONFIG = {"light": _config(False), "dark": _config(True)}


def plain(plot: Any, element: Any) -> None:
    """HoloViews hook: no outline around the frame, no logo, and the canvas that also works without a graphics card."""
    plot.state.output_backend = "canvas"
    plot.state.outline_line_color = None
    plot.state.toolbar.logo = None


def fill(card: Any, **styles: str) -> Any:
    """Let a card take the height of its row or column."""
    card.styles = {**card.styles, "align-self": "stretch", "height": "auto", **styles}
    card.stylesheets = [*card.stylesheets, ".paper { height: 100%; }"]
    return card


def paper(*objects: Any, **params: Any) -> Any:
    """Return a card of the theme."""
    sx = {"padding": "16px 20px", "gap": "8px", "borderRadius": "10px", **params.pop("sx", {})}
    options = {"elevation": 0, "variant": "outlined", "sizing_mode": "stretch_width", "margin": 0, "theme_config": THEME_CONFIG, **params}
    return material().Paper(*objects, sx=sx, **options)
