"""Bokeh figures in the look of the theme, and the axis on which errors and their tolerance are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from commcanary_lab.views.extra import panel
from commcanary_lab.views.saving import savable
from commcanary_lab.views.theme import NEUTRAL

__all__ = ["error_height", "error_text", "error_ticks", "frame", "guide", "pane", "redraw"]

_ERROR_TICKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000)


def frame(height: int, *, tools: str = "", **params: Any) -> Any:
    """Return an empty figure.

    Parameters
    ----------
    height : int
        Pixels.
    tools : str
        Bokeh's names of tools; the toolbar hides until it is needed.
    **params
        Of `bokeh.plotting.figure`.
    """
    panel()
    from bokeh.plotting import figure

    options: dict[str, Any] = {"sizing_mode": "stretch_width", "output_backend": "canvas", **params}
    options["toolbar_location"] = "above" if tools else None
    f = figure(height=height, tools=tools, **options)
    f.outline_line_color = None
    f.toolbar.logo = None
    f.toolbar.autohide = True
    f.toolbar_inner = True
    return f


def guide(f: Any, dimension: str, location: float, text: str = "", **params: Any) -> None:
    """Draw a dashed line across a figure, with its name at the end."""
    from bokeh.models import Label, Span

    style = {"line_color": NEUTRAL, "line_dash": "dashed", "line_width": 1, **params}
    f.add_layout(Span(location=location, dimension=dimension, **style))
    if text and dimension == "width":
        f.add_layout(
            Label(x=6, y=location, x_units="screen", y_units="data", text=text, text_color=NEUTRAL, text_font_size="11px", y_offset=2)
        )


def pane(*figures: Any, csv: Callable[[], str] | None = None) -> Any:
    """Return figures below each other as one chart that can be saved; `csv` as in `savable`."""
    from bokeh.layouts import column

    content = figures[0] if len(figures) == 1 else column(*figures, sizing_mode="stretch_width", spacing=2)
    return savable(panel().pane.Bokeh(content, sizing_mode="stretch_width", margin=0), csv)


def redraw(source: Any, data: dict[str, Any]) -> None:
    """Exchange the data of a source, from any callback.

    Panel runs the clicks that arrive while it writes to the browser without the lock of the document, where Bokeh refuses changes.
    """
    with panel().io.unlocked():
        source.data = data


def error_height(error: float) -> float:
    """Return where an error is drawn: ``log10(1 + error)``, so that 0, the tolerance 1 and 1000 are all seen.

    Examples
    --------
    >>> error_height(0.0), error_height(9.0), error_height(float("inf")) == error_height(1e5)
    (0.0, 1.0, True)
    """
    return math.log10(1 + min(error, 1e5))


def error_ticks(top: float) -> dict[float, str]:
    """Return positions and labels of the ticks up to an error.

    Examples
    --------
    >>> list(error_ticks(3.0).values())
    ['0', '0.5', '1', '2', '5']
    """
    last = next((t for t in _ERROR_TICKS if t >= top), _ERROR_TICKS[-1])
    return {error_height(t): f"{t:,g}" for t in _ERROR_TICKS if t <= last}


def error_text(error: float | None) -> str:
    r"""Return an error over its tolerance in words.

    Examples
    --------
    >>> error_text(10.9), error_text(0.0), error_text(None), error_text(float("inf"))
    ('10.9\xa0× tolerance', 'none', 'not simulated', 'beyond any tolerance')
    """
    if error is None:
        return "not simulated"
    if not math.isfinite(error):
        return "beyond any tolerance"
    return "none" if error == 0 else f"{error:,.3g}\u00a0× tolerance"
