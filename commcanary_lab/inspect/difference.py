"""Two traces side by side: op x size x group with counts, bytes and latency of both."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from commcanary_lab.inspect.html import table_html
from commcanary_lab.inspect.table import OperationRow, ops
from commcanary_lab.trace import ImportCoverage, Trace
from commcanary_lab.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DifferenceRow", "TraceDifference", "diff"]

_Key = tuple[str, int | None, str | None, tuple[int, ...], bool]


@dataclass(frozen=True)
class DifferenceRow:
    """One operation at one size on one group in both traces; deltas are b minus a, NaN where one side was not measured.

    Parameters
    ----------
    only_in : {"a", "b"} or None
        The trace that alone has it.
    sized : bool
        False for collectives of unknown size or members, compared by name.
    """

    op: str
    group: str | None
    members: tuple[int, ...]
    size_bytes: int | None
    count_a: int
    count_b: int
    count_delta: int
    bytes_a: int
    bytes_b: int
    bytes_delta: int
    p50_a_us: float
    p50_b_us: float
    p50_delta_us: float
    p95_a_us: float
    p95_b_us: float
    p95_delta_us: float
    time_a_us: float
    time_b_us: float
    time_delta_us: float
    only_in: str | None
    sized: bool = True


@dataclass(frozen=True)
class TraceDifference:
    """Rows of both traces, largest change of measured time first, then largest change of bytes.

    Parameters
    ----------
    rows : tuple of DifferenceRow
        Every op x size x group of either trace.
    coverage_a, coverage_b : ImportCoverage
        What was imported of each.
    """

    rows: tuple[DifferenceRow, ...]
    coverage_a: ImportCoverage
    coverage_b: ImportCoverage
    notes: tuple[str, ...] = ()
    origin: str = "measured"

    def __repr__(self) -> str:
        return f"TraceDifference({len(self.rows)} rows, {len(self.only_in_a)} only in a, {len(self.only_in_b)} only in b)"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def only_in_a(self) -> tuple[DifferenceRow, ...]:
        """Rows that b lacks."""
        return tuple(r for r in self.rows if r.only_in == "a")

    @property
    def only_in_b(self) -> tuple[DifferenceRow, ...]:
        """Rows that a lacks."""
        return tuple(r for r in self.rows if r.only_in == "b")

    @property
    def same_operations(self) -> bool:
        """True when both have the same operations, sizes and groups equally often."""
        return all(r.count_delta == 0 for r in self.rows)

    @cached_property
    def df(self) -> pd.DataFrame:
        """The rows as a pandas table."""
        import pandas as pd

        frame = pd.DataFrame([asdict(r) for r in self.rows], columns=list(DifferenceRow.__dataclass_fields__))
        return frame.astype({"size_bytes": "Int64"})

    def _repr_html_(self) -> str:
        title = (f"{len(self.rows):,} rows ({self.origin}): {len(self.only_in_a):,} only in a, {len(self.only_in_b):,} only in b"
                 + ("; same operations" if self.same_operations else ""))
        headers = ["op", "group", "ranks", "size", "count a", "count b", "p50 a (us)", "p50 b (us)", "delta (us)",
                   "p95 a (us)", "p95 b (us)", "delta (us)", "only in"]
        rows = ((r.op, r.group, len(r.members) or None, None if r.size_bytes is None else format_bytes(r.size_bytes), r.count_a, r.count_b,
                 r.p50_a_us, r.p50_b_us, r.p50_delta_us, r.p95_a_us, r.p95_b_us, r.p95_delta_us, r.only_in) for r in self.rows)
        return table_html(title, headers, rows, len(self.rows), self.notes)


def diff(a: Trace, b: Trace) -> TraceDifference:
    """Compare two traces row by row of their operation tables.

    Groups are matched by members and name; where a set of members has one name in each trace, by members alone, because communicator
    names may be addresses that differ from run to run.

    Parameters
    ----------
    a, b : Trace
        The base and the other one.

    Examples
    --------
    >>> import numpy as np
    >>> from commcanary_lab.trace import Coded, ProcessGroup, Ragged
    >>> def one(name, ns):
    ...     return Trace.build(1, op=Coded.constant(1, "all_reduce"), groups=(ProcessGroup(name, (0, 1)),), group=np.zeros(1, np.int32),
    ...                        size_bytes=np.array([8]), duration_ns=Ragged.from_rows([[ns]]))
    >>> row = diff(one("0xa0", 10_000), one("0xb7", 12_000)).rows[0]
    >>> row.count_a, row.count_b, row.p50_delta_us, row.only_in
    (1, 1, 2.0, None)
    """
    table_a, table_b = ops(a), ops(b)
    by_members = _unambiguous(table_a.rows) & _unambiguous(table_b.rows)
    rows_a = {_key(r, by_members): r for r in table_a.rows}
    rows_b = {_key(r, by_members): r for r in table_b.rows}
    rows = [_row(rows_a.get(key), rows_b.get(key)) for key in dict.fromkeys([*rows_a, *rows_b])]
    rows.sort(key=_order)
    notes = (*(f"a: {n}" for n in a.notes), *(f"b: {n}" for n in b.notes))
    origin = "measured" if a.origin == b.origin == "measured" else "synthetic"
    return TraceDifference(tuple(rows), a.coverage, b.coverage, notes, origin)


def _order(r: DifferenceRow) -> tuple[object, ...]:
    change = 1.0 if math.isnan(r.time_delta_us) else -abs(r.time_delta_us)
    return (change, -abs(r.bytes_delta), r.op, r.size_bytes or 0, r.group or "", r.members)


def _unambiguous(rows: Iterable[OperationRow]) -> set[tuple[int, ...]]:
    names: dict[tuple[int, ...], set[str | None]] = defaultdict(set)
    for r in rows:
        names[r.members].add(r.group)
    return {members for members, used in names.items() if len(used) == 1}


def _key(row: OperationRow, by_members: set[tuple[int, ...]]) -> _Key:
    return (row.op, row.size_bytes, None if row.members in by_members else row.group, row.members, row.sized)


def _row(a: OperationRow | None, b: OperationRow | None) -> DifferenceRow:
    one = a or b
    assert one is not None
    count_a, count_b = (a.count if a else 0), (b.count if b else 0)
    bytes_a, bytes_b = (a.total_bytes if a else 0), (b.total_bytes if b else 0)
    p50_a, p50_b = (a.p50_us if a else math.nan), (b.p50_us if b else math.nan)
    p95_a, p95_b = (a.p95_us if a else math.nan), (b.p95_us if b else math.nan)
    time_a, time_b = (a.time_us if a else math.nan), (b.time_us if b else math.nan)
    return DifferenceRow(one.op, one.group, one.members, one.size_bytes, count_a, count_b, count_b - count_a, bytes_a, bytes_b,
                         bytes_b - bytes_a, p50_a, p50_b, p50_b - p50_a, p95_a, p95_b, p95_b - p95_a, time_a, time_b, time_b - time_a,
                         "b" if a is None else "a" if b is None else None, one.sized)
