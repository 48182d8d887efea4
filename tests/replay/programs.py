"""Programs for tests of the replay: every operation, many types, on a few ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from commcanary_lab.trace import Coded, Column, ProcessGroup, Ragged, Trace
from commcanary_lab.trace.ops import ALL_TO_ALL_V, OPS

__all__ = ["event", "everything", "gathers", "make_trace"]


def event(op: str, members: tuple[int, ...], size_bytes: int, dtype: str | None = "float32", **more: Any) -> dict[str, Any]:
    return {"op": op, "members": members, "size_bytes": size_bytes, "dtype": dtype, **more}


def make_trace(events: list[dict[str, Any]], gap_us: int = 100) -> Trace:
    """A trace of events as `event` makes them; `splits` is the matrix of bytes from member to member."""
    groups = tuple(ProcessGroup(None, m) for m in dict.fromkeys(e["members"] for e in events))
    code = {g.members: i for i, g in enumerate(groups)}
    n = len(events)

    def text(name: str) -> Coded:
        return Coded.from_optional([e.get(name) for e in events])

    def number(name: str) -> Column:
        return Column.from_optional([e.get(name) for e in events])

    return Trace.build(
        n, op=text("op"), dtype=text("dtype"), reduction=text("reduction"), groups=groups,
        group=np.array([code[e["members"]] for e in events], np.int32), size_bytes=np.array([e["size_bytes"] for e in events], np.int64),
        custom_op=np.array([e["op"] not in OPS for e in events]), root=number("root"), sender=number("sender"), receiver=number("receiver"),
        gap_ns=Column(np.full(n, 1000 * gap_us, np.int64)), overlap_ns=Column(np.array([e.get("overlap_ns", 0) for e in events], np.int64)),
        splits=Ragged.from_rows([_split_row(e.get("splits")) for e in events]),
    )  # fmt: skip


def _split_row(matrix: list[list[int]] | None) -> list[int]:
    """Per rank: bytes sent in total, received in total, sent to each, received from each."""
    if matrix is None:
        return []
    m = np.array(matrix)
    return [int(v) for i in range(len(m)) for v in (m[i].sum(), m[:, i].sum(), *m[i], *m[:, i])]


def everything(ranks: int) -> Trace:
    """Every operation, sub-groups, uneven splits, types that Gloo carries and such that it does not."""
    world = tuple(range(ranks))
    half = (0, 1)
    splits = [[8 * (1 + (i + 2 * j) % 3) for j in world] for i in world]
    splits[0][-1] = 0
    most = max(max(map(sum, splits)), max(map(sum, zip(*splits, strict=True))))
    out = [
        event("broadcast", world, 96, root=ranks - 1),
        event("barrier", world, 0, None),
        event("reduce", world, 64, "int32", root=1),
        event("gather", world, 32 * ranks, "float64", root=0),
        event("scatter", world, 16 * ranks, "int64", root=1),
        event("point_to_point", half, 40, sender=1, receiver=0),
        event("send", (0, ranks - 1), 12, "uint8", sender=0, receiver=ranks - 1),
        event(ALL_TO_ALL_V, world, most, "float32", splits=splits),
        event("all_to_all", world, 16 * ranks, "bfloat16"),
        event("all_gather", half, 48, "float16"),
        event("all_reduce", world, 0),
        event("all_gather", world, 7 * ranks, "bfloat16"),  # no whole number of elements
        event("all_reduce", world, 10, "float32", reduction="sum"),  # grows to 12 bytes
        event("all_reduce", half, 64, None),
        event("all_gather", world, 8 * ranks, "complex64"),
        event("all_reduce", world, 32, "complex128", reduction="sum"),
    ]
    for dtype in ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool", "float8_e4m3fn", "int16"):
        out.append(event("all_gather", world, 16 * ranks, dtype))
        out.append(event("reduce_scatter", world, 16 * ranks, dtype, reduction="sum"))
        out += [event("all_reduce", world, 48, dtype, reduction=r) for r in ("sum", "avg", "min", "max", "product")]
    return make_trace(out)


def gathers(ranks: int, gathers: int = 97, elements: int = 24576) -> Trace:
    """Logits gathered again and again, and one all-reduce at the end: 1 x 8 x 3072 bfloat16 per rank by default."""
    world = tuple(range(ranks))
    return make_trace(
        [event("all_gather", world, 2 * elements * ranks, "bfloat16") for _ in range(gathers)]
        + [event("all_reduce", world, 2 * elements, "bfloat16", reduction="sum")]
    )
