"""Sort the events of a file into what matters: CPU records, annotations, communication kernels, compute kernels, launches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from commcanary_lab.importers.kineto_args import CommArgs, RawArgs, Unreadable, parse_args, read_args
from commcanary_lab.importers.kineto_kinds import ANNOTATION, CPU, RECORD, RUNTIME, Event, kind_of
from commcanary_lab.importers.kineto_read import Document
from commcanary_lab.importers.kineto_time import BadTimeError, TimeReader

__all__ = ["Kernel", "Mark", "Scan", "compute_intervals", "kernel_operation", "launches", "scan"]

#: Libraries that communicate outside NCCL's own kernels. Triton names list the operations around a fused kernel, so they do not count.
_OTHER_COMM = re.compile(
    r"deep_?ep\b|::(?:internode|intranode)(?:_ll)?::|nvshmem|rocshmem|mscclpp|oneccl|multimem_(?:all_|one_|reduce)"
    r"|(?:one|two)_?shot_?all_?reduce|cross_device_reduce|(?<![a-z])all_?to_?all|all2all|(?<![a-z])all_?reduce|(?<![a-z])all_?gather"
    r"|(?<![a-z])reduce_?scatter",
    re.IGNORECASE,
)
_NCCL = re.compile(r"nccl|rccl|msccl", re.IGNORECASE)
_NCCL_OPERATION = re.compile(r"allreduce|allgather|reducescatter|sendrecv|broadcast|alltoall|reduce|scatter|gather", re.IGNORECASE)


@dataclass(slots=True)
class Kernel:
    """A communication kernel on the device.

    Parameters
    ----------
    index : int
        Position in ``traceEvents``.
    duration_ns : int, optional
        None where the file gives none that can be used.
    device, stream : str
        Where it ran.
    raw : RawArgs
        Its arguments.
    text : msgspec.Raw
        Their text.
    """

    index: int
    name: str
    start_ns: int
    duration_ns: int | None
    device: str
    stream: str
    external_id: int | None
    correlation: int | None
    raw: RawArgs | Unreadable
    text: msgspec.Raw

    @property
    def args(self) -> CommArgs | Unreadable | None:
        """The kernel's own metadata; read when asked for, because mostly its CPU record has said it all."""
        return self.raw if isinstance(self.raw, Unreadable) else parse_args(self.raw, self.text)


@dataclass(slots=True)
class Mark:
    """A span on a CPU thread that stands for a collective: a record, or a backend's annotation.

    Parameters
    ----------
    kernels : list of Kernel
        The kernels that it launched (filled while linking).
    annotation : str, optional
        For a record: the name of the annotation inside it.
    """

    index: int
    name: str
    thread: str
    start_ns: int
    end_ns: int
    duration_ns: int | None
    external_id: int | None
    args: CommArgs | Unreadable | None
    is_record: bool
    kernels: list[Kernel] = field(default_factory=list)
    annotation: str | None = None
    shares_kernel: Kernel | None = None

    @property
    def is_collective(self) -> bool:
        """False for waits and set-up records, which are no communication."""
        name = self.args.name.strip().lower() if isinstance(self.args, CommArgs) else ""
        return name not in ("wait", "init")


@dataclass(frozen=True)
class Scan:
    """What a file holds.

    Parameters
    ----------
    records, annotations : list of Mark
        By CPU start.
    kernels : list of Kernel
        Communication kernels by start.
    compute, runtime : list of Event
        Compute kernels and launches, not yet converted.
    problems : list of str
        What is wrong with single events, each with the file, the event and the field.
    """

    records: list[Mark]
    annotations: list[Mark]
    kernels: list[Kernel]
    compute: list[Event]
    runtime: list[Event]
    problems: list[str]


def is_communication(kernel_name: str) -> bool:
    """Tell whether a kernel communicates, by its name.

    Examples
    --------
    >>> [is_communication(n) for n in ("ncclDevKernel_Generic", "void dpsk::ep::internode::dispatch<false>()", "void gemm<float>()",
    ...                                "triton_poi_fused_all_reduce_0", "void multimem_all_reduce_kernel<bf16>()")]
    [True, True, False, False, True]
    """
    if _NCCL.search(kernel_name):
        return True
    return not kernel_name.startswith("triton_") and _OTHER_COMM.search(kernel_name) is not None


def is_nccl(kernel_name: str) -> bool:
    """Tell whether a communication kernel is one of NCCL's or RCCL's."""
    return _NCCL.search(kernel_name) is not None


def kernel_operation(kernel_name: str) -> str | None:
    """Return the operation in an NCCL kernel's name, lower case, or None (RCCL's kernels are all "Generic").

    Examples
    --------
    >>> kernel_operation("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"), kernel_operation("ncclDevKernel_Generic")
    ('sendrecv', None)
    """
    found = _NCCL_OPERATION.search(kernel_name.partition("(")[0])
    return None if found is None else found.group().lower()


_Indexed = list[tuple[int, Event]]


def _sorted_by_kind(events: list[Event]) -> tuple[_Indexed, _Indexed, _Indexed, list[Event], list[Event]]:
    """Records, annotations, communication kernels (with their index), compute kernels, launches."""
    records: _Indexed = []
    annotations: _Indexed = []
    comm: _Indexed = []
    compute: list[Event] = []
    runtime: list[Event] = []
    cpu_names: dict[str, _Indexed | None] = {RECORD: records}
    kernel_names: dict[str, bool] = {}
    for index, event in enumerate(events):
        kind = kind_of(event)
        if kind is None:
            continue
        name = str(event.name)
        if kind == RUNTIME:
            runtime.append(event)
        elif kind == CPU:
            if name not in cpu_names:
                cpu_names[name] = annotations if ANNOTATION.match(name) else None
            into = cpu_names[name]
            if into is not None:
                into.append((index, event))
        else:
            if name not in kernel_names:
                kernel_names[name] = is_communication(name)
            if kernel_names[name]:
                comm.append((index, event))
            else:
                compute.append(event)
    return records, annotations, comm, compute, runtime


def scan(document: Document, times: TimeReader) -> Scan:
    """Find the communication of a file; times of what is found are converted.

    Parameters
    ----------
    document : Document
        The decoded file.
    times : TimeReader
        Converter of this file's times.
    """
    records, annotations, comm, compute, runtime = _sorted_by_kind(document.events)
    times.detect_grid(bytes(e.ts) for found in (records, annotations, comm) for _, e in found)
    problems: list[str] = []
    kernels = [_kernel(i, e, times, problems, document.name) for i, e in comm]
    marks = [_mark(i, e, times, problems, document.name, True) for i, e in records]
    notes = [_mark(i, e, times, problems, document.name, False) for i, e in annotations]
    return Scan(
        sorted((m for m in marks if m), key=_cpu_order),
        sorted((m for m in notes if m), key=_cpu_order),
        sorted((k for k in kernels if k), key=lambda k: (k.start_ns, k.index)),
        compute,
        runtime,
        problems,
    )


def _cpu_order(mark: Mark) -> tuple[int, int]:
    return (mark.start_ns, mark.index)


def _where(name: str, index: int, what: str) -> str:
    return f"{name}: event {index}: {what}"


def _times(
    index: int, event: Event, args: RawArgs, parsed: CommArgs | Unreadable | None, times: TimeReader, problems: list[str], name: str
) -> tuple[int | None, int | None]:
    """Start and duration; None for what is missing or impossible, which is reported."""
    try:
        start = times.start_ns(bytes(event.ts))
    except BadTimeError as e:
        problems.append(_where(name, index, f"{_label(event, args, parsed)}: ts: {e}; the event is left out"))
        return None, None
    text = bytes(event.dur)
    try:
        duration = times.span_ns(text)
        if duration >= 0:
            return start, duration
        what = f"{text.decode()} us is negative"
    except BadTimeError as e:
        what = str(e) if text and text != b"null" else "missing"
    problems.append(_where(name, index, f"{_label(event, args, parsed)}: dur: {what}; its bytes count, its time does not"))
    return start, None


def _read(index: int, event: Event, problems: list[str], name: str) -> tuple[RawArgs, CommArgs | Unreadable | None]:
    raw = read_args(event.args)
    parsed: CommArgs | Unreadable | None
    if isinstance(raw, Unreadable):
        args, parsed = RawArgs(), raw
    else:
        args, parsed = raw, parse_args(raw, event.args)
    if isinstance(parsed, Unreadable):
        problems.append(_where(name, index, f"{event.name[:80]}: metadata not readable: {parsed.why}; its size is unknown"))
    return args, parsed


def _number(value: object) -> int | None:
    return value if type(value) is int else None


def _label(event: Event, args: RawArgs, parsed: CommArgs | Unreadable | None) -> str:
    what = f" {parsed.name}" if isinstance(parsed, CommArgs) else ""
    number = args.external_id if args.external_id is not None else args.external_id_old
    return f"{event.name[:80]}{what}" + (f" (External id {number})" if type(number) is int else "")


def _mark(index: int, event: Event, times: TimeReader, problems: list[str], name: str, is_record: bool) -> Mark | None:
    args, parsed = _read(index, event, problems, name) if is_record else (read_args(event.args), None)
    if isinstance(args, Unreadable):
        args = RawArgs()
    start, duration = _times(index, event, args, parsed, times, problems, name)
    if start is None:
        return None
    external = args.external_id if args.external_id is not None else args.external_id_old
    thread = f"{event.pid}/{event.tid}"
    return Mark(index, event.name, thread, start, start + (duration or 0), duration, _number(external), parsed, is_record)


def _kernel(index: int, event: Event, times: TimeReader, problems: list[str], name: str) -> Kernel | None:
    raw = read_args(event.args)
    args = RawArgs() if isinstance(raw, Unreadable) else raw
    start, duration = _times(index, event, args, None, times, problems, name)
    if start is None:
        return None
    device, stream = _place(event, args.device, args.stream)
    external = args.external_id if args.external_id is not None else args.external_id_old
    return Kernel(index, event.name, start, duration, device, stream, _number(external), _number(args.correlation), raw, event.args)


def _place(event: Event, device: object, stream: object) -> tuple[str, str]:
    return str(event.pid if device is None else device), str(event.tid if stream is None else stream)


class _Correlation(msgspec.Struct, gc=False):  # type: ignore[call-arg]
    correlation: int | None = None


class _Place(msgspec.Struct, gc=False):  # type: ignore[call-arg]
    device: int | str | None = None
    stream: int | str | None = None


_CORRELATION = msgspec.json.Decoder(_Correlation)
_PLACE = msgspec.json.Decoder(_Place)


def launches(scan: Scan, times: TimeReader) -> Mapping[int, tuple[str, int]] | None:
    """Return correlation -> (thread, time) of the launches that communication kernels refer to, None if the file has no launches.

    Launches of whole CUDA graphs are left out: what they run was recorded when the graph was captured, if at all.
    """
    if not scan.runtime:
        return None
    wanted = {k.correlation for k in scan.kernels}
    found: dict[int, tuple[str, int]] = {}
    for event in scan.runtime:
        if type(event.name) is str and "GraphLaunch" in event.name:
            continue
        try:
            correlation = _CORRELATION.decode(event.args).correlation
            if correlation is not None and correlation in wanted:
                found[correlation] = (f"{event.pid}/{event.tid}", times.start_ns(bytes(event.ts)))
        except (msgspec.DecodeError, BadTimeError, RecursionError):
            continue  # a launch that cannot be read links nothing; its kernel stays without a link and is reported as such
    return found


def compute_intervals(scan: Scan, times: TimeReader) -> tuple[dict[str, dict[str, list[tuple[int, int]]]], int]:
    """Return device -> stream -> [start, end) of compute kernels in nanoseconds, and how many have no usable time.

    Copies and memory sets are no compute: they run on copy engines beside the kernels.
    """
    out: dict[str, dict[str, list[tuple[int, int]]]] = {}
    lists: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    broken = 0
    decode, start_of, span_of = _PLACE.decode, times.start_ns, times.span_ns
    for event in scan.compute:  # there are many: one plain loop
        try:
            place = decode(event.args) if event.args else _Place()
            start, length = start_of(bytes(event.ts)), span_of(bytes(event.dur))
        except (msgspec.DecodeError, BadTimeError, RecursionError):
            broken += 1
            continue
        if length < 0:
            broken += 1
            continue
        key: tuple[object, ...] = (place.device, place.stream)
        if None in key:
            key = (*key, str(event.pid), str(event.tid))
        if key not in lists:
            device, stream = _place(event, place.device, place.stream)
            lists[key] = out.setdefault(device, {}).setdefault(stream, [])
        lists[key].append((start, start + length))
    return out, broken
