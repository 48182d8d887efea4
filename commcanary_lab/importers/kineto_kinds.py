"""Which events of a profiler trace an import needs: CPU records and annotations of communication, launches, kernels."""

from __future__ import annotations

import re
from typing import Any

import msgspec

__all__ = ["ABSENT", "ANNOTATION", "CPU", "KERNEL", "RECORD", "RUNTIME", "Event", "Needed", "kind_of"]

CPU, RUNTIME, KERNEL = 1, 2, 3
_CATEGORIES = {
    "cpu_op": CPU, "user_annotation": CPU, "Operator": CPU, "operator": CPU,
    "cuda_runtime": RUNTIME, "cuda_driver": RUNTIME, "Runtime": RUNTIME, "runtime": RUNTIME, "hip_runtime": RUNTIME,
    "hip_driver": RUNTIME, "xpu_runtime": RUNTIME, "mtia_runtime": RUNTIME, "privateuse1_runtime": RUNTIME,
    "kernel": KERNEL, "Kernel": KERNEL, "concurrent_kernel": KERNEL,
}  # fmt: skip

RECORD = "record_param_comms"
ANNOTATION = re.compile(r"(?:nccl|rccl|gloo|ucc|mpi|xccl|hccl|oneccl|msccl):", re.IGNORECASE)


class Event(msgspec.Struct, gc=False):  # type: ignore[call-arg]
    """One trace event; what is not needed is skipped while decoding, and times stay text so that nanoseconds stay exact."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


#: In the place of an event that is not needed.
ABSENT = Event()


def kind_of(event: Event) -> int | None:
    """Return `CPU`, `RUNTIME` or `KERNEL` for a complete event with a name; None for all others.

    Examples
    --------
    >>> kind_of(Event("X", "kernel", "gemm")) == KERNEL, kind_of(Event("s", "ac2g", "ac2g")), kind_of(Event("X", ["kernel"], "gemm"))
    (True, None, None)
    """
    try:
        kind = _CATEGORIES.get(event.cat)
    except TypeError:  # a category that is a list or an object
        return None
    return None if kind is None or event.ph != "X" or type(event.name) is not str else kind


class Needed:
    """Decides event by event; what is kept has its own copy of the text that it needs.

    Examples
    --------
    >>> needed = Needed()
    >>> needed(Event("X", "cpu_op", "aten::mm")) is None, needed(Event("X", "cpu_op", "nccl:all_reduce")) is None
    (True, False)
    """

    def __init__(self) -> None:
        self._names: dict[object, bool] = {RECORD: True}

    def __call__(self, event: Event) -> Event | None:
        """Return the event, or None."""
        kind = kind_of(event)
        if kind is None or (kind == CPU and not self._speaks(event.name)):
            return None
        event.ts, event.dur, event.args = event.ts.copy(), event.dur.copy(), event.args.copy()
        return event

    def _speaks(self, name: object) -> bool:
        """Tell whether a name of the CPU side is that of communication."""
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = ANNOTATION.match(str(name)) is not None
        return known
