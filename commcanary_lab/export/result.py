"""What an export says: what it wrote, what it left out and why, what it assumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from commcanary_lab.errors import Problem, RefusedError, UsageError
from commcanary_lab.export.program import Call, Program

__all__ = ["Export", "Skipped", "check_assumptions", "supported", "usual_notes"]


@dataclass(frozen=True)
class Skipped:
    """Calls that the format cannot say.

    Parameters
    ----------
    reason : str
        Why.
    op : str
        Their operation.
    events : int
        How many events.
    first_event : int
        Number of the first of them in the source.
    size_bytes : int
        Sum of their B.
    """

    reason: str
    op: str
    events: int
    first_event: int
    size_bytes: int


@dataclass(frozen=True)
class Export:
    """A finished export.

    Parameters
    ----------
    kind : str
        Kind of the export.
    files : tuple of Path
        What was written; empty where it went to a stream.
    entries : int
        Operations, rows or slices in all files together.
    events : int
        Events of the source that they stand for.
    ranks : int
        Ranks of the job.
    skipped : tuple of Skipped
        What was left out.
    assumptions : mapping of str to str
        What was assumed where the source does not say it.
    notes : tuple of str
        What a reader of the files must know.
    """

    kind: str
    files: tuple[Path, ...]
    entries: int
    events: int
    ranks: int
    skipped: tuple[Skipped, ...] = ()
    assumptions: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the figures of the command line."""
        return {
            "entries": self.entries,
            "skipped": [
                {"reason": s.reason, "op": s.op, "events": s.events, "first_event": s.first_event, "bytes": s.size_bytes}
                for s in self.skipped
            ],
            "kind": self.kind,
            "events": self.events,
            "ranks": self.ranks,
            "assumptions": dict(self.assumptions or {}),
            "files": [str(f) for f in self.files],
            "notes": list(self.notes),
        }


def check_assumptions(given: Mapping[str, str] | None, allowed: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return assumptions after checking names and values.

    Raises
    ------
    UsageError
        On a field that this export does not assume, or a value that it cannot have.

    Examples
    --------
    >>> check_assumptions({"dtype": "uint8"}, {"dtype": ("uint8",)})
    {'dtype': 'uint8'}
    """
    out = {}
    for name, value in (given or {}).items():
        if name not in allowed:
            raise UsageError(f"this export cannot assume {name!r}", remedy=f"it can assume: {', '.join(allowed) or 'nothing'}")
        if value not in allowed[name]:
            raise UsageError(f"{name} cannot be assumed as {value!r}", remedy=f"one of: {', '.join(allowed[name])}")
        out[name] = value
    return out


def supported(program: Program, why_not: Callable[[Call], str | None], *, what: str, skip: bool) -> tuple[Program, tuple[Skipped, ...]]:
    """Check every distinct call before anything is written.

    Parameters
    ----------
    program : Program
        The program.
    why_not : callable
        Why the format cannot say a call; None where it can.
    what : str
        The format, for messages.
    skip : bool
        Leave such calls out and list them.

    Returns
    -------
    program : Program
        Without the calls that are left out.
    skipped : tuple of Skipped
        Those, per reason and operation, in order of their first event.

    Raises
    ------
    RefusedError
        Naming the first event of each call that cannot be said, unless they are skipped; or if nothing is left.
    """
    counts = np.bincount(program.code[program.code >= 0], minlength=len(program.first))
    problems: list[Problem] = []
    bad: list[int] = []
    rows: dict[tuple[str, str], Skipped] = {}
    for code, call in program.calls():
        reason = why_not(call)
        if reason is None:
            continue
        bad.append(code)
        event = program.source_event(int(program.first[code]))
        problems.append(
            Problem(f"{what} cannot say this {call.op}: {reason}", record=event, remedy="leave such events out with --skip-unsupported")
        )
        events = int(counts[code])
        kind = reason.partition(":")[0]
        old = rows.get((kind, call.op), Skipped(kind, call.op, 0, event, 0))
        rows[kind, call.op] = Skipped(
            kind, call.op, old.events + events, min(old.first_event, event), old.size_bytes + events * call.size_bytes
        )
    if problems and not skip:
        raise RefusedError(sorted(problems, key=lambda p: p.record or 0))
    if len(bad) == np.count_nonzero(counts):
        raise RefusedError(f"nothing is left to export: {what} can say none of the calls", remedy="choose another kind of export")
    skipped = tuple(sorted(rows.values(), key=lambda s: (s.first_event, s.op, s.reason)))
    return (program.without(bad) if bad else program), skipped


def usual_notes(program: Program, skipped: Sequence[Skipped], assumptions: Mapping[str, str]) -> list[str]:
    """Return what readers of any exported program must know."""
    notes = list(program.about.notes)
    if program.about.timing == "bounded_approximate":
        notes.append("times are those of a bounded canary: approximate within its stated errors")
    if program.about.timing == "none":
        notes.append("the source has no times: only the order is exported")
    if program.partly_reported:
        notes.append(
            f"{program.partly_reported} of {len(program)} events were reported by some of their members only; here every member takes part"
        )
    if skipped:
        notes.append(f"{sum(s.events for s in skipped)} of {len(program)} events are left out; their gaps are kept")
    notes += [f"assumed where unknown: {name} = {value}" for name, value in assumptions.items()]
    return list(dict.fromkeys(notes))
