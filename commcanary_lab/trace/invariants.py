"""What holds for every valid trace beyond the types of its columns, checked in a few passes over whole columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import FormatError, Problem, TimingError
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.numbering import first_rows, number_rows
from commcanary_lab.trace.ops import OPS
from commcanary_lab.trace.timing import check_timing

__all__ = ["check_imported", "check_times", "check_trace", "fits_members", "fits_widths"]

#: As the JSON format says it: 10^12 microseconds.
_MAX_TIME_NS = 10**15
_RAGGED_TIMES = ("arrival_ns", "duration_ns", "rank_start_ns")

_TEXTS = ("op", "phase", "dtype", "reduction", "tag", "channel")
#: As the JSON format says it.
_MAX_TEXT = 4096

_TIMES = ("start_ns", "gap_ns", "compute_before_ns", "overlap_ns", "observed_exposed_ns")


def fits_members(trace: Trace) -> bool:
    """Return True where roots, senders and receivers are members of their groups and every ``point_to_point`` names both ends."""
    members = [frozenset(g.members) for g in trace.groups]
    for column in (trace.root, trace.sender, trace.receiver):
        if column.known_count:
            group, rank = trace.group[column.mask].astype(np.int64), column.values[column.mask]
            if rank.min() < 0 or rank.max() >= 1 << 31:
                return False
            pairs = np.unique(group << 31 | rank).tolist()
            if any(pair & ((1 << 31) - 1) not in members[pair >> 31] for pair in pairs):
                return False
    p2p = [i for i, name in enumerate(trace.op.names) if name == "point_to_point"]
    return not p2p or bool((trace.sender.mask & trace.receiver.mask)[np.isin(trace.op.codes, p2p)].all())


def fits_widths(trace: Trace) -> bool:
    """Return True where ragged rows are empty or as long as the number of members or reporting ranks says."""
    counts, k = trace.observer_counts, trace.group_sizes
    rows: tuple[tuple[Ragged, npt.NDArray[np.int64]], ...] = (
        (trace.duration_ns, counts),
        (trace.rank_start_ns, counts),
        (trace.splits, counts * (2 * k + 2)),
    )
    if not all(((r.lengths == 0) | (r.lengths == width)).all() for r, width in rows):
        return False
    arrivals = trace.arrival_ns.lengths
    return bool(((arrivals <= 1) | (arrivals == k)).all() and not ((arrivals > 0) & ~trace.arrival_known).any())


def check_trace(trace: Trace, file: str | None = None) -> None:
    """Refuse a trace whose columns do not fit together; for files that are not checked field by field.

    Raises
    ------
    FormatError
        Naming the first thing that does not fit.
    TimingError
        Where the timing fields contradict each other.

    Examples
    --------
    >>> from commcanary_lab.trace import Coded, ProcessGroup
    >>> check_trace(Trace.build(1, op=Coded.constant(1, "broadcast"), group=np.array([1], np.int32), size_bytes=np.array([8]),
    ...                         groups=(ProcessGroup("tp", (0, 1)),)))
    Traceback (most recent call last):
    commcanary_lab.errors.FormatError: group: names a process group outside the table; the file is damaged: write it again
    """
    found = _misfit(trace)
    if found:
        raise FormatError(Problem(found[1], file=file, field=found[0], remedy="the file is damaged: write it again"))
    check_timing(trace, file)


def check_imported(trace: Trace) -> None:
    """Refuse what an importer made of contradicting records, so that whatever is opened can be written and read again.

    Raises
    ------
    FormatError, TimingError
        Naming the first field, and the event where it is a time.
    """
    check_times(trace)
    for name in _TEXTS:
        column: Coded = getattr(trace, name)
        for text in column.names:
            _check_text(name, text)
    for group in trace.groups:
        if group.name is not None:
            _check_text("group", group.name)
    found = _misfit(trace)
    if found:
        raise FormatError(Problem(f"{found[1]}, says the source", field=found[0], remedy="repair the record, or record again"))


def _check_text(field: str, text: str) -> None:
    if not 0 < len(text) <= _MAX_TEXT:
        what = f"is a text of {len(text)} characters, beginning {text[:40]!r}" if text else "is an empty text"
        raise FormatError(Problem(what, field=field, remedy=f"1 to {_MAX_TEXT} characters name something"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise FormatError(Problem(f"holds half of a character: {text[:40]!r}", field=field, remedy="repair the record")) from None


def check_times(trace: Trace, file: str | None = None) -> None:
    """Refuse times that no file format of this package can say: negative ones, and more than 10^12 microseconds.

    Raises
    ------
    TimingError
        Naming the first event and its field.

    Examples
    --------
    >>> from commcanary_lab.trace import Coded, ProcessGroup
    >>> check_times(Trace.build(1, op=Coded.constant(1, "barrier"), group=np.zeros(1, np.int32), size_bytes=np.zeros(1, np.int64),
    ...                         groups=(ProcessGroup("tp", (0, 1)),), gap_ns=Column(np.array([10**16]))))
    Traceback (most recent call last):
    commcanary_lab.errors.TimingError: event 0: gap_ns: is 10000000000000000, more than 11 days; check the clock and the unit of the source
    """
    remedy = "check the clock and the unit of the source"
    for name in (*_TIMES, *_RAGGED_TIMES):
        column: Column | Ragged = getattr(trace, name)
        values = column.filled(0) if isinstance(column, Column) else column.values
        low = -1 if name in _RAGGED_TIMES else 0  # -1 stands for unknown
        if not values.size or (values.min() >= low and values.max() <= _MAX_TIME_NS):
            continue
        at = int(np.argmax((values < low) | (values > _MAX_TIME_NS)))
        event = at if isinstance(column, Column) else int(np.searchsorted(column.pointers, at, "right")) - 1
        what = f"is {values[at]}, " + ("more than 11 days" if values[at] > 0 else "before its beginning")
        raise TimingError(Problem(what, file=file, record=event, field=name, remedy=remedy))


def _misfit(trace: Trace) -> tuple[str, str] | None:
    if len(trace) == 0:
        return None
    if not _within(trace.group, 0, len(trace.groups)):
        return "group", "names a process group outside the table"
    if not _within(trace.observers, -1, len(trace.rank_sets)):
        return "observers", "names a rank set outside the table"
    for code, group in _observed(trace) if trace.rank_sets else ():
        if code >= 0 and not set(trace.rank_sets[code]) <= set(trace.groups[group].members):
            return "observers", "names a reporting rank that is not a member"
    known = np.array([name in OPS for name in trace.op.names] or [False], np.bool_)
    if (trace.op.codes < 0).any() or not (known[trace.op.codes] | trace.custom_op).all():
        return "op", "is missing or outside the vocabulary without custom_op"
    if trace.size_bytes.min() < 0:
        return "size_bytes", f"is {trace.size_bytes.min()}"
    for name in _TIMES:
        column: Column = getattr(trace, name)
        if column.known_count and column.filled(0).min() < 0:
            return name, "holds a negative time"
    if trace.arrival_ns.values.size and trace.arrival_ns.values.min() < 0:
        return "arrival_ns", "holds a negative time"
    pressure = trace.pressure.filled(0.0)
    if not (np.isfinite(pressure) & (pressure >= 0)).all():
        return "pressure", "holds a value that is not a number >= 0"
    if not fits_widths(trace):
        return "arrival_ns, duration_ns, rank_start_ns or splits", "has rows of the wrong length"
    if not fits_members(trace):
        return "root, sender or receiver", "is not a member of the group, or a point_to_point lacks one of its ends"
    return None


def _observed(trace: Trace) -> list[tuple[int, int]]:
    """Return which rank sets report which groups."""
    pairs = first_rows(*number_rows(trace.observers, trace.group))
    return list(zip(trace.observers[pairs].tolist(), trace.group[pairs].tolist(), strict=True))


def _within(codes: npt.NDArray[np.int32], low: int, stop: int) -> bool:
    return int(codes.min()) >= low and int(codes.max()) < stop
