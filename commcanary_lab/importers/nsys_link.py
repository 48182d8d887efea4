"""Which kernels ran which NCCL calls: a call ran the kernels that its thread launched inside it, or inside the end of its group.

Calls between ``ncclGroupStart`` and the ``ncclGroupEnd`` that closes it start nothing of their own; the kernels launched inside that end
ran all of them together, and their time is kept on the first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from commcanary_lab.importers.nsys_payload import Payload

__all__ = ["Kernel", "Range", "Timing", "link"]

GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"


@dataclass(frozen=True)
class Range:
    """One NVTX range of NCCL, on one thread."""

    name: str
    start_ns: int
    end_ns: int
    thread: int
    payload: Payload | None = None

    @property
    def process(self) -> int:
        """The process: a global thread id without its thread."""
        return self.thread & ~0xFFFFFF


@dataclass(frozen=True)
class Kernel:
    """One kernel, with when and where the host launched it, if that was exported."""

    name: str
    start_ns: int
    end_ns: int
    device: int
    process: int | None
    launch_ns: int | None = None
    thread: int | None = None


@dataclass(frozen=True)
class Timing:
    """Kernels of a call; `shared` where another call of the batch keeps their time."""

    kernels: tuple[int, ...] = ()
    shared: bool = False


def link(ranges: Sequence[Range], kernels: Sequence[Kernel]) -> list[Timing]:
    """Return the kernels of each range, as indices; empty for those that are no calls or ran none.

    Examples
    --------
    >>> r = [Range(n, a, b, 1) for n, a, b in (("ncclGroupStart", 0, 1), ("ncclSend", 2, 3), ("ncclRecv", 4, 5), ("ncclGroupEnd", 6, 9))]
    >>> [(t.kernels, t.shared) for t in link(r, [Kernel("k", 20, 30, 0, 0, 7, 1)])]
    [((), False), ((0,), False), ((0,), True), ((), False)]
    """
    out = [Timing()] * len(ranges)
    launched: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for i, k in enumerate(kernels):
        if k.launch_ns is not None and k.thread is not None:
            launched[k.thread].append((k.launch_ns, i))
    by_thread: dict[int, list[int]] = defaultdict(list)
    for i, r in enumerate(ranges):
        by_thread[r.thread].append(i)
    for thread, indices in by_thread.items():
        launches = sorted(launched[thread])
        indices.sort(key=lambda i: (ranges[i].start_ns, -ranges[i].end_ns))
        depth, batch = 0, list[int]()
        for i in indices:
            r = ranges[i]
            if r.name == GROUP_START:
                depth += 1
            elif r.name == GROUP_END:
                depth = max(0, depth - 1)
                if depth == 0:
                    _share(batch, _inside(launches, r), out)
                    batch = []
            elif depth:
                batch.append(i)
            else:
                out[i] = Timing(_inside(launches, r))
    return out


def _inside(launches: Sequence[tuple[int, int]], r: Range) -> tuple[int, ...]:
    first, last = bisect_left(launches, (r.start_ns, -1)), bisect_left(launches, (r.end_ns + 1, -1))
    return tuple(i for _, i in launches[first:last])


def _share(batch: Sequence[int], kernels: tuple[int, ...], out: list[Timing]) -> None:
    for position, i in enumerate(batch):
        out[i] = replace(out[i], kernels=kernels, shared=position > 0)
