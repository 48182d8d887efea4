"""The chart of a history as inline SVG: three quantiles over the entries, what the policy allows, and each entry's verdict as a sign."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from commcanary_lab.review.charts import nice_ticks
from commcanary_lab.review.history_entry import Entry
from commcanary_lab.review.html_parts import RESULT_SIGNS, VERDICTS
from commcanary_lab.units import format_us

__all__ = ["TREND_LEGEND", "trend_svg"]

_WIDTH, _HEIGHT = 760, 250
_LEFT, _RIGHT, _TOP, _FOOT = 74, 18, 12, 92

#: Metrics with the name of their figure, the class of line and mark, and the form of the mark.
_LINES = (("p99", "p99_us", "99"), ("p95", "p95_us", "95"), ("median", "p50_us", "50"))

TREND_LEGEND = (
    '<p class="legend">p99: line with triangles, p95: dashes with squares, p50: dots with circles; dotted: the most that the policy '
    f"allows; {', '.join(f'{sign} {VERDICTS[v].lower()}' for v, sign in RESULT_SIGNS.items())}</p>"
)


def trend_svg(entries: Sequence[Entry], unit: str, title: str) -> str:
    """Draw the history.

    Parameters
    ----------
    entries : sequence of Entry
        In order.
    unit : str
        What the vertical axis shows.
    title : str
        For readers that see no picture.
    """
    values = [v for e in entries for _, name, _ in _LINES if (v := e.figure(name)) is not None]
    limits = [v for e in entries for m, _, _ in _LINES if (v := e.limit_us(m)) is not None]
    ticks = nice_ticks(0.0, max([*values, *limits, 1e-6]))
    bottom, step = _TOP + _HEIGHT, (_WIDTH - _LEFT - _RIGHT) / max(1, len(entries))
    xs = [round(_LEFT + (i + 0.5) * step, 1) for i in range(len(entries))]

    def y(value: float) -> float:
        return round(bottom - value / ticks[-1] * _HEIGHT, 1)

    out = [
        f'<svg viewBox="0 0 {_WIDTH} {bottom + _FOOT}" role="img" aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(title)}</title>",
    ]
    for t in ticks:
        out.append(f'<line class="{"axis" if t == 0 else "grid"}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(t)}" y2="{y(t)}"/>')
        out.append(f'<text class="tick" x="{_LEFT - 8}" y="{y(t) + 4}" text-anchor="end">{escape(format_us(t))}</text>')
    out.append(f'<text class="unit" x="{_LEFT}" y="{bottom + _FOOT - 4}">{escape(unit)}</text>')
    for metric, name, kind in _LINES:
        out.append(_limits(entries, metric, xs, step, y))
        out.append(_line([(x, y(v)) for x, e in zip(xs, entries, strict=True) if e.comparable and (v := e.figure(name)) is not None], kind))
        out += [_mark(x, y(v), kind, e, metric) for x, e in zip(xs, entries, strict=True) if (v := e.figure(name)) is not None]
    out += [_sign(x, bottom + 20, e) for x, e in zip(xs, entries, strict=True)]
    every = max(1, -(-len(entries) // 12))
    out += [_label(x, bottom + 34, e) for i, (x, e) in enumerate(zip(xs, entries, strict=True)) if (len(entries) - 1 - i) % every == 0]
    return "".join([*out, "</svg>"])


def _line(points: list[tuple[float, float]], kind: str) -> str:
    return f'<polyline class="l{kind}" points="{" ".join(f"{x},{y}" for x, y in points)}"/>'


def _limits(entries: Sequence[Entry], metric: str, xs: Sequence[float], step: float, y: object) -> str:
    half = round(step / 2, 1)
    at = [(x, e.limit_us(metric)) for x, e in zip(xs, entries, strict=True)]
    return "".join(
        f'<line class="allow" x1="{x - half:.1f}" x2="{x + half:.1f}" y1="{y(v)}" y2="{y(v)}"/>'  # type: ignore[operator]
        for x, v in at
        if v is not None
    )


def _mark(x: float, y: float, kind: str, e: Entry, metric: str) -> str:
    words = escape(f"{e.name}: {'p50' if metric == 'median' else metric} {y_text(e, metric)}")
    shape = {
        "99": f'<path d="M{x - 5} {y + 4}h10l-5 -9z"',
        "95": f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8"',
        "50": f'<circle cx="{x}" cy="{y}" r="4"',
    }[kind]
    faded = "" if e.comparable else ' opacity=".35"'
    return f'{shape} class="m{kind}"{faded}><title>{words}</title></{shape[1 : shape.index(" ")]}>'


def y_text(e: Entry, metric: str) -> str:
    """Return a figure in words."""
    value = e.figure("p50_us" if metric == "median" else f"{metric}_us")
    return "not known" if value is None else format_us(value)


def _sign(x: float, y: float, e: Entry) -> str:
    words = escape(f"{e.name}: {VERDICTS[e.verdict]}")
    return f'<text class="sign {e.verdict}" x="{x}" y="{y}" text-anchor="middle">{RESULT_SIGNS[e.verdict]}<title>{words}</title></text>'


def _label(x: float, y: float, e: Entry) -> str:
    text = e.date or e.name
    short = text if len(text) <= 16 else f"{text[:7]}\u2026{text[-8:]}"
    return f'<text class="tick" transform="translate({x + 4},{y}) rotate(-35)" text-anchor="end">{escape(short)}</text>'
