"""The program of a canary as an indented tree of loops."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.model import Canary
from commcanary_lab.canary.streams import BoundedStream, StepStream
from commcanary_lab.units import format_bytes, format_ns
from commcanary_lab.views.group_labels import group_labels
from commcanary_lab.views.markup import html, title_html
from commcanary_lab.views.theme import op_color, paper

__all__ = ["program", "program_html", "stream_text"]

#: Items of one loop body, and lines of the whole tree, that are written out.
MAX_ITEMS = 60
MAX_LINES = 500

_CSS = """
.cl .tree { font-family: 'SF Mono', Menlo, Consolas, 'Liberation Mono', monospace; font-size: 12.5px; line-height: 1.75;
  overflow: auto; max-height: 460px; }
.cl .tree details { border-left: 2px solid var(--d); margin-left: 7px; padding-left: 16px; }
.cl .tree summary { cursor: pointer; list-style: none; margin-left: -24px; border-radius: 5px; padding: 0 6px; width: fit-content; }
.cl .tree summary::-webkit-details-marker { display: none; }
.cl .tree summary::before { content: '\\25be'; color: var(--m); margin-right: 7px; display: inline-block; }
.cl .tree details:not([open]) > summary::before { content: '\\25b8'; }
.cl .tree summary:hover { background: var(--s); } .cl .tree summary:focus-visible { outline: 2px solid var(--a); }
.cl .tree .s { display: flex; align-items: baseline; gap: 0 9px; flex-wrap: wrap; padding-left: 2px; }
.cl .tree .s i { width: 9px; height: 9px; border-radius: 2px; display: inline-block; flex: none; }
.cl .tree .tm { margin-left: auto; padding-left: 24px; font-size: 12px; } .cl .tree .s:hover { background: var(--s); border-radius: 4px; }
.cl .tree .x { color: var(--a); font-weight: 700; } .cl .tree .g { color: var(--m); } .cl .tree .more { color: var(--m);
  padding-left: 2px; }
"""


def program(canary: Canary) -> Any:
    """Show the program of a canary.

    Parameters
    ----------
    canary : Canary
        Its loop nests, each step with its timing in words.

    Returns
    -------
    panel.viewable.Viewable
    """
    steps, loops = len(canary.streams), int(np.count_nonzero(canary.program.counts > 1))
    title = title_html(
        "Program",
        f"{steps:,} step{'s' * (steps != 1)}, {loops:,} loop{'s' * (loops != 1)}, runs {canary.event_count:,} events. At the right: the "
        "gap before each run of a step, and its arrival skew.",
        None,
        canary.timing.replace("_", " "),
    )
    return paper(html(f'{title}<div style="height:8px"></div>{program_html(canary)}', stylesheets=[_CSS]))


def program_html(canary: Canary) -> str:
    """Return the tree as HTML; every name in it is escaped."""
    return f'<div class="tree" tabindex="0" aria-label="Program">{_Writer(canary).body(0, 0)}</div>'


class _Writer:
    def __init__(self, canary: Canary) -> None:
        self.canary = canary
        self.left = MAX_LINES
        self.groups = group_labels(canary.signatures.groups)

    def body(self, rule: int, depth: int) -> str:
        items = self.canary.program.rule(rule).items
        out = []
        for i, (value, count) in enumerate(items):
            if self.left <= 0 or i >= MAX_ITEMS or depth > 30:
                out.append(f'<div class="more">{len(items) - i:,} more item{"s" * (len(items) - i != 1)}</div>')
                break
            self.left -= 1
            if value >= 0:
                out.append(self.step(value, count))
            elif count == 1:
                out.append(self.body(-value, depth + 1))
            else:
                inner = self.body(-value, depth + 1)
                opened = " open" if depth < 3 else ""
                out.append(f'<details{opened}><summary><span class="x">{count:,} ×</span></summary>{inner}</details>')
        return "".join(out)

    def step(self, step: int, count: int) -> str:
        c = self.canary
        row = int(c.step_signature[step])
        s = c.signatures
        op = s.op.text(row) or ""
        group = s.groups[s.group[row]]
        where = self.groups[group]
        phase = s.phase.text(row)
        more = "".join(f' <span class="g">{escape(t)}</span>' for t in (phase, _ends(c, row)) if t)
        timing = f'<span class="g tm">{escape(stream_text(c.streams[step]))}</span>'
        times = f'<span class="x">{count:,} ×</span>' if count > 1 else ""
        return (
            f'<div class="s"><i style="background:{op_color(op)}"></i>{times}<b>{escape(op)}</b>'
            f"<span>{escape(format_bytes(int(s.size_bytes[row])))}</span>"
            f"<span>{escape(where)}</span>{more}{timing}</div>"
        )


def _ends(c: Canary, row: int) -> str:
    s = c.signatures
    if s.sender.mask[row] and s.receiver.mask[row]:
        return f"{s.sender.values[row]} to {s.receiver.values[row]}"
    return f"root {s.root.values[row]}" if s.root.mask[row] else ""


def stream_text(stream: StepStream) -> str:
    """Return the timing of a step in a few words: range of gaps, range of skews, records."""
    if not stream.rows:
        return ""
    out = [f"gap {_range(np.concatenate([stream.gap_ns, stream.last_gap_ns]) if isinstance(stream, BoundedStream) else stream.gap_ns)}"]
    arrival = stream.arrival_ns
    if arrival.shape[1]:
        skew = arrival[:, 0] if arrival.shape[1] == 1 else arrival.max(axis=1) - arrival.min(axis=1)
        out.append(f"skew {_range(skew)}")
    if isinstance(stream, BoundedStream):
        worst = max(
            (float(stream.errors[n].max()) for n in ("gap_ns", "prefix_gap_ns") if n in stream.errors and len(stream.errors[n])),
            default=0.0,
        )
        out.append(f"{len(stream.lengths):,} interval{'s' * (len(stream.lengths) != 1)}, gaps within {format_ns(worst)}")
    return " · ".join(out)


def _range(values: npt.NDArray[np.int64]) -> str:
    low, high = int(values.min()), int(values.max())
    return format_ns(low) if low == high else f"{format_ns(low)} – {format_ns(high)}"
