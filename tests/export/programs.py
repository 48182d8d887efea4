"""Random programs that every export of operations can say, and the comparison of what was read back."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import strategies as st

from commcanary_lab.trace import Coded, Column, ProcessGroup, Ragged, Trace

__all__ = ["operations", "programs"]

WIDTHS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int8": 1, "uint8": 1, "int32": 4, "int64": 8, "bool": 1}
_OPS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "barrier",
    "point_to_point",
    "send",
    "all_to_all_v",
)
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


@st.composite
def programs(draw: st.DrawFn, uneven: bool = True, max_events: int = 14) -> Trace:
    """Traces of events whose sizes are whole elements: subgroups, messages, roots, barriers, uneven all-to-alls, empty messages."""
    members = st.sets(st.integers(0, 6), min_size=1, max_size=5).map(lambda s: tuple(sorted(s)))
    names = st.none() | st.sampled_from(["tp", "dp", "default_pg", 'a"b'])
    groups = tuple(ProcessGroup(n, m) for n, m in draw(st.lists(st.tuples(names, members), min_size=1, max_size=4, unique=True)))
    rows: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, max_events))):
        code = draw(st.integers(0, len(groups) - 1))
        m = groups[code].members
        op = draw(st.sampled_from(_OPS if uneven else _OPS[:-1]))
        if len(m) == 1 and op in ("point_to_point", "send"):
            op = "all_reduce"
        dtype = draw(st.sampled_from(sorted(WIDTHS)))
        row: dict[str, Any] = {"group": code, "op": op, "dtype": None if op == "barrier" else dtype, "splits": []}
        row["size"] = 0 if op == "barrier" else draw(st.integers(0, 3)) * len(m) * WIDTHS[dtype]
        if op in ("point_to_point", "send"):
            row["sender"], row["receiver"] = draw(st.permutations(m))[:2]
        if op in _ROOTED:
            row["root"] = draw(st.sampled_from(m))
        if op == "all_to_all_v":
            cells = np.array(draw(st.lists(st.integers(0, 3), min_size=len(m) ** 2, max_size=len(m) ** 2)), np.int64)
            cells = cells.reshape(len(m), len(m)) * WIDTHS[dtype]
            row["size"] = int(max(cells.sum(0).max(), cells.sum(1).max()))
            row["splits"] = [int(v) for i in range(len(m)) for v in (cells[i].sum(), cells[:, i].sum(), *cells[i], *cells[:, i])]
        row["gap"] = draw(st.integers(1000, 5_000_000))  # distinct in microseconds: importers do not keep the order of equal times
        rows.append(row)
    n = len(rows)
    return Trace.build(
        n, op=Coded.from_optional([r["op"] for r in rows]), groups=groups, group=np.array([r["group"] for r in rows], np.int32),
        custom_op=np.array([r["op"] in ("reduce", "barrier", "all_to_all_v") for r in rows]),
        size_bytes=np.array([r["size"] for r in rows], np.int64), dtype=Coded.from_optional([r["dtype"] for r in rows]),
        root=Column.from_optional([r.get("root") for r in rows]), sender=Column.from_optional([r.get("sender") for r in rows]),
        receiver=Column.from_optional([r.get("receiver") for r in rows]), gap_ns=Column(np.array([r["gap"] for r in rows], np.int64)),
        splits=Ragged.from_rows([r["splits"] for r in rows]),
    )  # fmt: skip


def operations(trace: Trace, *, dtypes: bool = True) -> dict[int, list[tuple[Any, ...]]]:
    """What each rank does, in its order: operation, dtype, ranks, B, root or ends, own split lists. Messages are among their two ends."""
    out: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for i in range(len(trace)):
        op, group = trace.op.text(i) or "", trace.groups[trace.group[i]].members
        ends = (int(trace.sender.values[i]), int(trace.receiver.values[i])) if trace.sender.mask[i] else None
        root = int(trace.root.values[i]) if trace.root.mask[i] else None
        observers = trace.observers_of(i)
        lists = trace.splits.row(i).reshape(len(observers), -1) if len(trace.splits.row(i)) else None
        for rank in ends or group:
            own = None if lists is None else tuple(lists[observers.index(rank)].tolist())
            name = "point_to_point" if ends else op
            size = 0 if op == "all_to_all_v" else int(trace.size_bytes[i])  # B of an uneven exchange is in its splits
            dtype = trace.dtype.text(i) if dtypes else None
            out[rank].append((name, dtype, tuple(sorted(ends)) if ends else group, size, root, ends, own))
    return dict(out)
