"""A canary in a notebook: its figures, its program and what it reveals, as plain HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from commcanary_lab.canary.disclosure import disclosure_sentences
from commcanary_lab.units import format_bytes, format_us

if TYPE_CHECKING:
    from commcanary_lab.canary.model import Canary

__all__ = ["program_lines", "step_text", "summary_html"]

_MAX_LINES = 200


def step_text(canary: Canary, step: int) -> str:
    """Return a step in words: operation, size, group, phase."""
    s, row = canary.signatures, int(canary.step_signature[step])
    group = s.groups[s.group[row]]
    phase = s.phase.text(row)
    size = format_bytes(int(s.size_bytes[row]))
    return f"{s.op.text(row)} {size} {group.name or 'unnamed'}[{group.size}]" + (f" ({phase})" if phase else "")


def program_lines(canary: Canary, limit: int = _MAX_LINES) -> list[str]:
    """Return the program as indented lines; loops of more than one item open a block.

    Parameters
    ----------
    canary : Canary
    limit : int
        Longest listing; the rest is counted.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> program_lines(lab.compile(lab.samples.adversarial()))
    ['100 x all_reduce 1.00 KiB tp[2] (decode)']
    """
    lines: list[str] = []
    program = canary.program
    # an explicit stack, so that deep nests do not exhaust Python's: (rule, position, depth)
    stack = [(0, 0, 0)]
    hidden = 0
    while stack:
        rule, position, depth = stack.pop()
        start, stop = int(program.row_ptr[rule]), int(program.row_ptr[rule + 1])
        if start + position >= stop:
            if depth:
                lines.append("  " * (depth - 1) + "}")
            continue
        stack.append((rule, position + 1, depth))
        value, count = int(program.values[start + position]), int(program.counts[start + position])
        if len(lines) >= limit:
            hidden += 1
            continue
        times = f"{count} x " if count > 1 else ""
        if value < 0:
            lines.append("  " * depth + times + "{")
            stack.append((-value, 0, depth + 1))
        else:
            lines.append("  " * depth + times + step_text(canary, value))
    return [*lines[:limit], f"... and {hidden} more items"] if hidden else lines


def summary_html(canary: Canary) -> str:
    """Return figures, program and disclosure as HTML; every text from the source is escaped."""
    s = canary.source
    rows = [
        ("events", f"{canary.event_count:,} of {s.events:,} source events"),
        ("records", f"{canary.records:,} (event ratio {canary.event_ratio:.3g})"),
        ("bytes", f"{canary.size_bytes:,} of {s.size_bytes:,} (byte ratio {canary.byte_ratio:.3g})"),
        ("timing", canary.timing),
        *(
            (f"largest error of {name.removesuffix('_ns')}", f"{value:g}" if name == "pressure" else format_us(value / 1000))
            for name, value in canary.errors.items()
            if value
        ),
        ("root", s.root[:16] + "..."),
    ]
    table = "".join(f"<tr><th style='text-align:left'>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows)
    program = escape("\n".join(program_lines(canary, 40)))
    reveals = "".join(f"<li>{escape(line)}</li>" for line in disclosure_sentences(canary))
    notes = "".join(f"<li>{escape(n)}</li>" for n in canary.notes)
    return f"<table>{table}</table><pre>{program}</pre><details><summary>what it reveals</summary><ul>{reveals}</ul></details>" + (
        f"<ul>{notes}</ul>" if notes else ""
    )
