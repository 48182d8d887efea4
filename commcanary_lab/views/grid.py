"""Small matrices as HTML tables whose cells say more under the pointer or with the keyboard."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["GRID_CSS", "breakable", "opening", "tip"]

#: Styles of a matrix; beside those of `markup.CSS`.
GRID_CSS = """
.cl .sides { display: flex; gap: 12px 32px; flex-wrap: wrap; } .cl .side { flex: 1 1 400px; min-width: 0; }
.cl .cap { font-size: 12.5px; font-weight: 700; margin: 6px 0 2px; }
.cl table.grid { border-collapse: separate; border-spacing: 3px; width: 100%; table-layout: fixed; font-size: 12.5px; }
.cl table.grid th { border: 0; font-size: 12px; font-weight: 400; color: var(--m); white-space: normal; overflow-wrap: normal;
  line-height: 1.25; padding: 2px; }
.cl table.grid thead th { text-align: center; vertical-align: bottom; }
.cl table.grid tbody th { text-align: right; padding-right: 8px; }
.cl table.grid td { border: 0; padding: 0 2px; height: 34px; text-align: center; vertical-align: middle; border-radius: 5px;
  position: relative; white-space: nowrap; outline-offset: 0; }
.cl table.grid td:not(:empty) { cursor: default; }
.cl table.grid td:focus-visible { outline: 2px solid var(--a); }
.cl table.grid td.differs { box-shadow: inset 0 0 0 2px var(--e); font-weight: 700; }
.cl table.grid .mark { color: var(--e); margin-left: 4px; font-weight: 700; }
.cl .sw { box-sizing: border-box; } .cl .sw.tie { background: color-mix(in srgb, var(--m) 18%, transparent); }
.cl .sw.differs { border: 2px solid var(--e); }
.cl .none, .cl .sw.none { --h: color-mix(in srgb, var(--m) 26%, transparent);
  background: repeating-linear-gradient(135deg, transparent 0 3px, var(--h) 3px 4px); }
.cl table.grid td.pass { background: color-mix(in srgb, #2f9e62 17%, transparent); color: color-mix(in srgb, #2f9e62 72%, var(--t)); }
.cl table.grid td.fail { background: color-mix(in srgb, var(--e) 14%, transparent); color: var(--e); font-weight: 700; }
.cl .sw.pass { background: color-mix(in srgb, #2f9e62 45%, transparent); } .cl .sw.fail { background: var(--e); }
.cl .tip { display: none; position: absolute; z-index: 20; left: 50%; top: calc(100% + 4px); transform: translateX(-50%);
  background: var(--p); color: var(--t); border: 1px solid var(--d); border-radius: 8px; padding: 8px 12px; text-align: left;
  box-shadow: 0 4px 18px rgba(0, 0, 0, .18); font-weight: 400; font-size: 12.5px; line-height: 1.5; pointer-events: none;
  width: max-content; max-width: 460px; white-space: normal; }
.cl td:hover > .tip, .cl td:focus-visible > .tip { display: block; }
.cl td.left > .tip { left: 0; transform: none; } .cl td.right > .tip { left: auto; right: 0; transform: none; }
.cl .tip .th { font-weight: 700; display: block; margin-bottom: 2px; }
.cl .tip .tr { display: flex; justify-content: space-between; gap: 18px; } .cl .tip .tr > span:first-child { color: var(--m); }
.cl .tip .tr > span:last-child { text-align: right; font-variant-numeric: tabular-nums; }
"""


def tip(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return what a cell says under the pointer: a title, and pairs of name and value.

    Examples
    --------
    >>> tip("a < b", [("source", "1 us")])
    '<span class="tip" role="tooltip"><span class="th">a &lt; b</span><span class="tr"><span>source</span><span>1 us</span></span></span>'
    """
    lines = "".join(f'<span class="tr"><span>{escape(k)}</span><span>{escape(v)}</span></span>' for k, v in rows)
    return f'<span class="tip" role="tooltip"><span class="th">{escape(title)}</span>{lines}</span>'


def breakable(name: str) -> str:
    """Return an escaped name that may break after its underscores.

    Examples
    --------
    >>> breakable("low_latency")
    'low_<wbr>latency'
    """
    return escape(name).replace("_", "_<wbr>")


def opening(column: int, columns: int) -> str:
    """Return to which side the tip of a cell opens, so that it stays in the card; empty where it is centred.

    Examples
    --------
    >>> [opening(c, 5) for c in range(5)]
    ['left', '', '', 'right', 'right']
    """
    return "right" if column >= max(1, columns - 2) else "left" if column == 0 else ""
