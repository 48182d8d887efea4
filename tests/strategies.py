"""Hypothesis strategies for traces with every feature of the data model: ``from tests.strategies import traces``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from commcanary_lab.trace import Coded, Column, ImportCoverage, ProcessGroup, Ragged, Trace, UnsizedRow
from commcanary_lab.trace.ops import DTYPE_BYTES, OPS, REDUCTION_OPS, REDUCTIONS

__all__ = ["TIMINGS", "json_objects", "process_groups", "texts", "traces"]

TIMINGS = ("start", "start and gap", "gap", "compute_before", "mixed", "none")

_MAX_SIZE = 1 << 62
_CUSTOM = ("barrier", "all_to_all_v", "gather", "reduce", "fused step")


def texts(max_size: int = 6) -> st.SearchStrategy[str]:
    """Text that JSON, UTF-8 and HTML find hard: quotes, control characters, markup, characters outside the BMP."""
    hard = st.sampled_from(["decode", "prefill", 'a"b\\c', "<b>&", "\u2028", "\U0001f600", "\x00", "\x7f", "tp0"])
    return hard | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=max_size)


def json_objects() -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects such as workload and system hold."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts()
    values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts(), inner, max_size=2), max_leaves=4)
    names = texts().filter(lambda name: name not in ("commcanary_lab", "world_size"))
    return st.just({}) | st.dictionaries(names, values, max_size=3)


@st.composite
def process_groups(draw: st.DrawFn, max_ranks: int = 16, max_size: int = 5) -> tuple[ProcessGroup, ...]:
    """One to four distinct groups, named or not."""
    members = st.sets(st.integers(0, max_ranks - 1), min_size=1, max_size=max_size).map(lambda s: tuple(sorted(s)))
    pairs = draw(st.lists(st.tuples(st.none() | texts(), members), min_size=1, max_size=4, unique=True))
    return tuple(ProcessGroup(name, ranks) for name, ranks in pairs)


def _rows(draw: st.DrawFn, n: int, values: st.SearchStrategy[Any]) -> list[Any]:
    return draw(st.lists(values, min_size=n, max_size=n))


def _ns(largest: int) -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, 500, 1000, 78296]) | st.integers(0, largest)


def _optional(draw: st.DrawFn, n: int, values: st.SearchStrategy[Any]) -> list[Any]:
    """A column that is absent, complete, or has holes."""
    kind = draw(st.sampled_from(["absent", "complete", "holes"]))
    if kind == "absent":
        return [None] * n
    return _rows(draw, n, values if kind == "complete" else st.none() | values)


def _timing(draw: st.DrawFn, n: int, mode: str) -> dict[str, Column]:
    gaps = _rows(draw, n, _ns(10**9))
    out: dict[str, Sequence[int | None]] = {"compute_before_ns": _optional(draw, n, _ns(10**12))}
    if mode in ("start", "start and gap", "mixed"):
        starts = (np.cumsum(np.array(gaps, np.int64)) + draw(_ns(10**14))).tolist()
        out["start_ns"] = starts
        if mode == "start and gap":  # gaps may be missing, and differ by the tolerated nanosecond
            slack = _rows(draw, n, st.sampled_from([0, 0, 1, -1, None]))
            out["gap_ns"] = [None if s is None else max(0, g + s) for g, s in zip(gaps, slack, strict=True)]
        elif mode == "mixed":
            out["start_ns"] = [s if keep else None for s, keep in zip(starts, _rows(draw, n, st.booleans()), strict=True)]
            out["gap_ns"] = gaps
    elif mode == "gap":
        out["gap_ns"] = _rows(draw, n, st.none() | _ns(10**12)) if draw(st.booleans()) else gaps
    elif mode == "none":
        out["compute_before_ns"] = [None] * n
    return {name: Column.from_optional(items) for name, items in out.items()}


def _identity(draw: st.DrawFn, members: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Operation, reduction, root and ends of each event."""
    n = len(members)
    ops = _rows(draw, n, st.sampled_from(sorted(OPS)) | st.sampled_from(_CUSTOM) | texts())
    ends = [draw(st.tuples(st.sampled_from(m), st.sampled_from(m))) for m in members]
    rooted = _rows(draw, n, st.booleans())
    ended = [op == "point_to_point" or (op in ("send", "recv") and keep) for op, keep in zip(ops, rooted, strict=True)]
    reductions: list[str | None] = []
    for op in ops:
        usual = st.sampled_from(sorted(REDUCTIONS)) if op in REDUCTION_OPS else st.none()
        reductions.append(draw(st.none() | usual | st.sampled_from(["sum", "premul_sum"])))
    return {
        "op": Coded.from_optional(ops),
        "custom_op": np.array([op not in OPS for op in ops], np.bool_),
        "reduction": Coded.from_optional(reductions),
        "root": Column.from_optional([e[0] if op == "broadcast" and keep else None for op, e, keep in zip(ops, ends, rooted, strict=True)]),
        "sender": Column.from_optional([e[0] if keep else None for e, keep in zip(ends, ended, strict=True)]),
        "receiver": Column.from_optional([e[1] if keep else None for e, keep in zip(ends, ended, strict=True)]),
    }


def _arrivals(draw: st.DrawFn, members: Sequence[tuple[int, ...]], unknown: bool) -> dict[str, Any]:
    kinds = _rows(draw, len(members), st.sampled_from(["none", "scalar", "map", "unknown"] if unknown else ["none", "scalar", "map"]))
    rows = []
    for kind, m in zip(kinds, members, strict=True):
        k = {"map": len(m), "scalar": 1}.get(kind, 0)
        rows.append(_rows(draw, k, _ns(10**9)))
    return {"arrival_ns": Ragged.from_rows(rows), "arrival_known": np.array([kind != "unknown" for kind in kinds], np.bool_)}


def _reports(draw: st.DrawFn, members: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Which ranks reported, what they measured, and the splits of uneven exchanges."""
    sets: dict[tuple[int, ...], int] = {}
    codes, durations, starts, splits = [], [], [], []
    for m in members:
        reporting = draw(st.none() | st.sets(st.sampled_from(m)).map(lambda s: tuple(sorted(s))))
        codes.append(-1 if reporting is None else sets.setdefault(reporting, len(sets)))
        width = len(m if reporting is None else reporting)
        durations.append(_rows(draw, width, st.just(-1) | _ns(10**10)) if draw(st.booleans()) else [])
        starts.append(_rows(draw, width, st.just(-1) | _ns(10**15)) if draw(st.booleans()) else [])
        cells = width * (2 * len(m) + 2)
        splits.append(_rows(draw, cells, st.integers(-1, 1 << 40)) if cells <= 12 and draw(st.booleans()) else [])
    return {
        "observers": np.array(codes, np.int32),
        "rank_sets": tuple(sets),
        "duration_ns": Ragged.from_rows(durations),
        "rank_start_ns": Ragged.from_rows(starts),
        "splits": Ragged.from_rows(splits),
    }


def _about(draw: st.DrawFn, n: int) -> dict[str, Any]:
    counts = st.integers(0, 10**6)
    plain = ImportCoverage(read=n, used=n)
    ranks = st.sets(st.integers(0, 40), max_size=3).map(lambda s: tuple(sorted(s)))
    coverage = st.builds(ImportCoverage, read=counts, used=counts, skipped=st.dictionaries(texts(), counts, max_size=2), ranks=ranks,
                         files=st.lists(texts(), max_size=2).map(tuple))  # fmt: skip
    unsized = st.builds(UnsizedRow, name=texts(), time_ns=_ns(10**12), reason=texts(), rank=st.none() | st.integers(0, 9),
                        start_ns=st.none() | _ns(10**15), size_bytes=st.none() | counts)  # fmt: skip
    system = draw(json_objects())
    if draw(st.booleans()):
        system = {**system, "world_size": draw(st.integers(16, 64))}
    unique_texts = st.lists(texts(), max_size=2, unique=True).map(tuple)
    return {
        "workload": draw(json_objects()), "system": system, "extra": draw(json_objects()),
        "notes": draw(unique_texts), "warnings": draw(unique_texts),
        "coverage": draw(st.just(plain) | st.just(ImportCoverage()) | coverage),
        "unsized": draw(st.lists(unsized, max_size=2).map(tuple)),
        "source_format": draw(st.sampled_from(["commcanary.trace.v1", "kineto"]) | texts()),
    }  # fmt: skip


def _ids(draw: st.DrawFn, n: int) -> Ragged | None:
    if not draw(st.booleans()):
        return None
    names = draw(st.lists(texts(), min_size=n, max_size=n, unique=True))
    kept = _rows(draw, n, st.booleans())
    return Ragged.from_rows([name.encode() if keep else b"" for name, keep in zip(names, kept, strict=True)], np.uint8)


@st.composite
def traces(
    draw: st.DrawFn,
    *,
    min_events: int = 0,
    max_events: int = 8,
    timing: str | Sequence[str] = TIMINGS,
    unknown: bool = True,
    plain: bool = False,
) -> Trace:
    """Valid traces in time order.

    Parameters
    ----------
    min_events, max_events : int
        Number of events.
    timing : str or sequence of str
        Which of `TIMINGS` may govern.
    unknown : bool
        Whether overlap and arrival skew may be unknown; without, a trace can be simulated without assumptions.
    plain : bool
        Only what the interchange format itself can say: all members report, nothing is measured, no zero sizes, no notes.
    """
    n = draw(st.integers(min_events, max_events))
    groups = draw(process_groups())
    group = np.array(_rows(draw, n, st.integers(0, len(groups) - 1)), np.int32)
    members = [groups[g].members for g in group.tolist()]
    dtypes = st.sampled_from(sorted(DTYPE_BYTES)) if plain else st.sampled_from([*sorted(DTYPE_BYTES), "uint16", "quint4"])
    overlaps = _optional(draw, n, _ns(10**9)) if unknown else _rows(draw, n, _ns(10**9))
    sizes = st.sampled_from([1, 8, 65536] if plain else [0, 1, 8, 65536]) | st.integers(1, _MAX_SIZE)
    columns: dict[str, Any] = {
        **_identity(draw, members),
        **_timing(draw, n, draw(st.sampled_from([timing] if isinstance(timing, str) else timing))),
        **_arrivals(draw, members, unknown),
        "group": group, "groups": groups,
        "size_bytes": np.array(_rows(draw, n, sizes), np.int64),
        "phase": Coded.from_optional(_optional(draw, n, texts())),
        "dtype": Coded.from_optional(_optional(draw, n, dtypes)),
        "tag": Coded.from_optional(_optional(draw, n, texts())),
        "channel": Coded.from_optional(_optional(draw, n, texts())),
        "message_sequence": Column.from_optional(_optional(draw, n, st.integers(0, 1 << 62))),
        "concurrent_groups": Column.from_optional(_optional(draw, n, st.integers(1, 1 << 20))),
        "overlap_ns": Column.from_optional(overlaps),
        "observed_exposed_ns": Column.from_optional(_rows(draw, n, _ns(10**10))) if draw(st.booleans()) else Column.absent(n),
        "pressure": Column.from_optional(_optional(draw, n, st.just(0.62) | st.floats(0, 1e6)), np.float64),
        "ids": _ids(draw, n),
    }  # fmt: skip
    if plain:
        columns["reduction"] = Coded.from_optional(
            [r if op in REDUCTION_OPS and r in REDUCTIONS else None
             for op, r in zip(columns["op"].to_list(), columns["reduction"].to_list(), strict=True)])  # fmt: skip
    else:
        columns |= {**_reports(draw, members), **_about(draw, n)}
    return Trace.build(n, **columns)
