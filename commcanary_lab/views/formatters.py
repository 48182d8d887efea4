"""Numbers as people say them, in the browser: the same rules as `commcanary_lab.units`, for ticks, hover and table cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = [
    "BYTES_JS",
    "TIME_JS",
    "byte_tick_values",
    "bytes_cell",
    "bytes_hover",
    "bytes_ticks",
    "long_text_cell",
    "number_cell",
    "rank_hover",
    "rank_ticks",
    "share_cell",
    "status_cell",
    "time_cell",
    "time_ticks",
]

_DIGITS = """const minus = (text) => text.replace('-', '\u2212');
const digits = (x) => { if (x === 0) return '0';
  const d = Math.min(9, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(x)) + 1e-12)));
  return minus(x.toLocaleString('en-US', {minimumFractionDigits: d, maximumFractionDigits: d})) };"""

#: Defines ``bytes(x)``.
BYTES_JS = (
    _DIGITS
    + """
const bytes = (x) => { if (x == null || !isFinite(x)) return ''; if (x === 0) return '0 B';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']; let i = 0; while (Math.abs(x) >= 1024 && i < 5) { x /= 1024; i++ }
  return (i === 0 ? minus(Math.round(x).toLocaleString('en-US')) : digits(x)) + ' ' + units[i] };
"""
)

#: Defines ``time(x)`` for microseconds.
TIME_JS = (
    _DIGITS
    + """
const time = (x) => { if (x == null || !isFinite(x)) return ''; if (x === 0) return '0 us'; const a = Math.abs(x);
  return a < 1 ? digits(x * 1e3) + ' ns' : a < 1e3 ? digits(x) + ' us' : a < 1e6 ? digits(x / 1e3) + ' ms' : digits(x / 1e6) + ' s' };
"""
)

#: Ticks need no padding zeros: 2 MiB, not 2.00 MiB.
_SHORT = "const short = (t) => t.replace(/(\\.\\d*?)0+ /, '$1 ').replace('. ', ' ');"


def byte_tick_values(low: float, high: float, *, log: bool = False, count: int = 6) -> list[float]:
    """Return ticks at round binary sizes inside [low, high].

    Examples
    --------
    >>> byte_tick_values(0, 150 * 2**20)[:3] == [0, 32 * 2**20, 64 * 2**20], byte_tick_values(3000, 70000, log=True)
    (True, [4096.0, 8192.0, 16384.0, 32768.0, 65536.0])
    """
    if high <= 0:
        return [0.0]
    if log:
        first, last = math.ceil(math.log2(max(low, 1))), math.floor(math.log2(high))
        step = max(1, math.ceil((last - first + 1) / count))
        ticks = [2.0**k for k in range(first, last + 1, step)]
        return ticks if len(ticks) > 1 else [low, high]
    step_bytes = 2.0 ** math.ceil(math.log2(high / count))
    return [k * step_bytes for k in range(int(high / step_bytes) + 1)]


def bytes_ticks() -> Any:
    """Return a tick formatter for bytes."""
    from bokeh.models import CustomJSTickFormatter

    return CustomJSTickFormatter(code=BYTES_JS + _SHORT + "return short(bytes(tick))")


def time_ticks() -> Any:
    """Return a tick formatter for microseconds; all ticks of an axis share the unit of the largest."""
    from bokeh.models import CustomJSTickFormatter

    return CustomJSTickFormatter(
        code="""
const top = Math.max(...ticks.map(Math.abs));
const [scale, unit] = top < 1 ? [1e3, 'ns'] : top < 1e3 ? [1, 'us'] : top < 1e6 ? [1e-3, 'ms'] : [1e-6, 's'];
const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) * scale : 1;
const d = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
return (tick * scale).toLocaleString('en-US', {minimumFractionDigits: d, maximumFractionDigits: d}) + ' ' + unit
"""
    )


def rank_ticks(labels: Sequence[int]) -> Any:
    """Return a tick formatter that names the rank at a position; other positions get no label."""
    from bokeh.models import CustomJSTickFormatter

    return CustomJSTickFormatter(
        args={"labels": [str(x) for x in labels]}, code="return Number.isInteger(tick) ? (labels[tick] ?? '') : ''"
    )


def rank_hover(labels: Sequence[int]) -> Any:
    """Return a hover formatter that names the rank under a coordinate."""
    from bokeh.models import CustomJSHover

    return CustomJSHover(
        args={"labels": [str(x) for x in labels]}, code="return labels[Math.max(0, Math.min(labels.length - 1, Math.round(value)))]"
    )


def bytes_hover(nothing: str = "nothing", *, signed: bool = False) -> Any:
    """Return a hover formatter for bytes, with words where there are none; a negative number means none, unless it is signed."""
    from bokeh.models import CustomJSHover

    none = "value === 0" if signed else "value <= 0"
    return CustomJSHover(code=BYTES_JS + f"return value == null || !isFinite(value) || {none} ? '{nothing}' : bytes(value)")


def bytes_cell() -> Any:
    """Return a table cell formatter for bytes."""
    return _cell(BYTES_JS, "bytes(value)")


def time_cell() -> Any:
    """Return a table cell formatter for microseconds."""
    return _cell(TIME_JS, "time(value)")


def share_cell() -> Any:
    """Return a table cell formatter for a fraction, as percent."""
    return _cell("", "value == null || !isFinite(value) ? '' : (value * 100).toFixed(value < 0.0995 ? 2 : 1) + ' %'")


def rate_cell() -> Any:
    """Return a table cell formatter for rates that are given in GB/s (1e9); small ones are shown in smaller units."""
    below = "value >= 1e-3 ? digits(1e3 * value) + ' MB/s' : digits(1e6 * value) + ' kB/s'"
    scaled = f"value >= 1 || value <= 0 ? digits(value) + ' GB/s' : {below}"
    return _cell(_DIGITS, f"value == null || !isFinite(value) ? '' : {scaled}")


def count_cell() -> Any:
    """Return a table cell formatter for counts."""
    return _cell("", "value == null || !isFinite(value) ? '' : value.toLocaleString('en-US')")


def number_cell() -> Any:
    """Return a table cell formatter for plain numbers, with three significant digits."""
    return _cell(_DIGITS, "value == null || isNaN(value) ? '' : !isFinite(value) ? 'infinite' : digits(value)")


_LONG_TEXT = (
    '<span title="<%- value %>" style="display:block;overflow:hidden;text-overflow:ellipsis;white-space:nowrap"><%- value %></span>'
)


def long_text_cell() -> Any:
    """Return a table cell formatter for text that may be cut off: the whole of it is shown under the pointer."""
    from bokeh.models import HTMLTemplateFormatter

    return HTMLTemplateFormatter(template=_LONG_TEXT)


def status_cell() -> Any:
    """Return a table cell formatter for a status in words: what holds has a tick, what failed a cross and the colour of failures."""
    from bokeh.models import HTMLTemplateFormatter

    return HTMLTemplateFormatter(
        template="""<% const word = String(value ?? '').split(',')[0];
const good = ['lossless', 'full', 'full source', 'recomputed', 'pass', 'verified'].includes(word);
const bad = ['mismatch', 'fail', 'refused'].includes(word);
const color = bad ? 'var(--mui-palette-error-main, #c93a32)' : good ? 'inherit' : 'var(--mui-palette-text-secondary, #56616f)';
const mark = bad ? '\u2715 ' : good ? '\u2713 ' : '' %>
<span style="color:<%= color %>;font-weight:<%= bad ? 700 : 400 %>"><%- mark + value %></span>"""
    )


def _cell(functions: str, expression: str) -> Any:
    from bokeh.models import HTMLTemplateFormatter

    return HTMLTemplateFormatter(template=f"<% {functions} %><%- {expression} %>")
