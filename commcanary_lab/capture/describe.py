"""What one call on a torch ProcessGroup means: operation, size by the convention of `trace.records`, ranks and splits.

torch.distributed's functions all end in one method of the process group, so these methods are where a collective is seen
exactly once, whatever entry point the job used. Each function here reads the arguments of one method and returns the rows
it stands for: one, or one per tensor of a coalesced call. Every overload of the methods is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from commcanary_lab.capture.groups import Group
from commcanary_lab.capture.rows import OpRow

__all__ = ["METHODS", "Describe"]

Describe: TypeAlias = Callable[[Group, tuple[Any, ...], dict[str, Any]], list[OpRow]]

_dtype_names: dict[Any, str] = {}
_reduction_names: dict[int, str] = {}


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, *names: str) -> Any:
    if len(args) > position:
        return args[position]
    for name in names:
        if name in kwargs:
            return kwargs[name]
    return None


def _flat(tensors: Any) -> Sequence[Any]:
    """A tensor, a list of tensors or a list of lists of tensors, as one list."""
    if isinstance(tensors, (list, tuple)):
        if tensors and not isinstance(tensors[0], (list, tuple)):
            return tensors
        return [t for item in tensors for t in _flat(item)]
    return [] if tensors is None else [tensors]


def _nbytes(tensors: Iterable[Any]) -> int:
    return sum([t.nbytes for t in tensors])


def _row(group: Group, op: str, size_bytes: int, tensor: Any, options: Any, reduction: str | None = None, root: int | None = None) -> OpRow:
    """A row of a collective; number and arrival are filled in by the caller."""
    row = OpRow(-1, group.row.id, op, 0, next(group.sequence), size_bytes, None, reduction, None, root)
    if tensor is not None:
        _tensor_facts(row, tensor)
    row.is_async = getattr(options, "asyncOp", None)
    return row


def _tensor_facts(row: OpRow, tensor: Any) -> None:
    dtype = tensor.dtype
    name = _dtype_names.get(dtype)
    if name is None:
        name = _dtype_names[dtype] = str(dtype).removeprefix("torch.")
    row.dtype = name
    if not tensor.is_cpu:
        row.device = tensor.device.type


def _reduction(options: Any) -> str | None:
    """Name of the reduction in options or of the operator itself, lower case (``premul_sum`` stays what it is)."""
    operator = getattr(options, "reduceOp", options)
    kind = getattr(operator, "op", operator)
    name = _reduction_names.get(kind.value)  # the enumeration's own hash and name are slow
    if name is None:
        name = _reduction_names[kind.value] = kind.name.lower()
    return name


def _root(group: Group, options: Any) -> int | None:
    root = getattr(options, "rootRank", options)
    return group.row.ranks[root] if isinstance(root, int) else None


# -- collectives ------------------------------------------------------------------------------------------------------


def _allreduce(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    tensors, options = _flat(_argument(args, kwargs, 0, "tensors", "tensor")), _argument(args, kwargs, 1, "opts", "op")
    return [_row(group, "all_reduce", _nbytes(tensors), tensors[0], options, _reduction(options) if options is not None else "sum")]


def _allreduce_coalesced(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    tensors, options = _flat(_argument(args, kwargs, 0, "tensors")), _argument(args, kwargs, 1, "opts")
    return [_row(group, "all_reduce", t.nbytes, t, options, _reduction(options)) for t in tensors]


def _broadcast(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    tensors, options = _flat(_argument(args, kwargs, 0, "tensors", "tensor")), _argument(args, kwargs, 1, "opts", "root")
    return [_row(group, "broadcast", _nbytes(tensors), tensors[0], options, root=_root(group, options))]


def _reduce(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    tensors, options = _flat(_argument(args, kwargs, 0, "tensors", "tensor")), _argument(args, kwargs, 1, "opts", "root")
    operator = options if hasattr(options, "reduceOp") else _argument(args, kwargs, 2, "op")
    return [_row(group, "reduce", _nbytes(tensors), tensors[0], options, "sum" if operator is None else _reduction(operator),
                 _root(group, options))]


def _allgather(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    outputs = _flat(_argument(args, kwargs, 0, "output_tensors", "output_tensor"))
    return [_row(group, "all_gather", _nbytes(outputs), outputs[0], _argument(args, kwargs, 2, "opts"))]


def _allgather_coalesced(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    inputs, options = _flat(_argument(args, kwargs, 1, "input_list")), _argument(args, kwargs, 2, "opts")
    return [_row(group, "all_gather", t.nbytes * len(group.row.ranks), t, options) for t in inputs]


def _all_gather_single(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    """Also the coalesced form, which has lists where the plain one has tensors."""
    outputs, options = _flat(_argument(args, kwargs, 0, "output", "outputs")), _argument(args, kwargs, 2, "opts")
    return [_row(group, "all_gather", t.nbytes, t, options) for t in outputs]


def _reduce_scatter(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    inputs = _flat(_argument(args, kwargs, 1, "input_tensors", "input"))
    options = _argument(args, kwargs, 2, "opts", "op")
    return [_row(group, "reduce_scatter", _nbytes(inputs), inputs[0], options, "sum" if options is None else _reduction(options))]


def _reduce_scatter_single(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    """Also the coalesced form."""
    inputs = _flat(_argument(args, kwargs, 1, "inputs", "inputTensor"))
    options = _argument(args, kwargs, 2, "opts")
    reduction = "sum" if options is None else _reduction(options)
    return [_row(group, "reduce_scatter", t.nbytes, t, options, reduction) for t in inputs]


def _exchange(group: Group, sent: Sequence[int], received: Sequence[int], tensor: Any, options: Any) -> list[OpRow]:
    """A row for an all-to-all with the bytes per rank in each direction."""
    if len({*sent, *received}) == 1:
        return [_row(group, "all_to_all", sum(sent), tensor, options)]
    row = _row(group, "all_to_all_v", max(sum(sent), sum(received)), tensor, options)
    row.sent_splits, row.received_splits = list(sent), list(received)
    return [row]


def _alltoall(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    outputs, inputs = _flat(_argument(args, kwargs, 0, "output_tensors")), _flat(_argument(args, kwargs, 1, "input_tensors"))
    return _exchange(group, [t.nbytes for t in inputs], [t.nbytes for t in outputs], inputs[0], _argument(args, kwargs, 2, "opts"))


def _alltoall_single(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    output, given = _argument(args, kwargs, 0, "output"), _argument(args, kwargs, 1, "input")
    received = _split_bytes(group, output, _argument(args, kwargs, 2, "output_split_sizes"))
    sent = _split_bytes(group, given, _argument(args, kwargs, 3, "input_split_sizes"))
    return _exchange(group, sent, received, given, _argument(args, kwargs, 4, "opts"))


def _split_bytes(group: Group, tensor: Any, splits: Sequence[int] | None) -> list[int]:
    """Bytes per rank of a tensor that is split along its first dimension; evenly where no splits are given."""
    if not splits:
        k = len(group.row.ranks)
        return [tensor.nbytes // k] * k
    line_bytes = tensor.element_size()
    for extent in tensor.shape[1:]:
        line_bytes *= extent
    return [int(n) * line_bytes for n in splits]


def _gather(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    """B is the root's whole buffer, k times what one rank sends, as for all_gather."""
    inputs = _flat(_argument(args, kwargs, 1, "input_tensors", "input_tensor"))
    options = _argument(args, kwargs, 2, "opts", "root")
    return [_row(group, "gather", _nbytes(inputs) * len(group.row.ranks), inputs[0], options, root=_root(group, options))]


def _scatter(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    """B is the root's whole buffer, k times what one rank receives."""
    outputs = _flat(_argument(args, kwargs, 0, "output_tensors", "output_tensor"))
    options = _argument(args, kwargs, 2, "opts", "root")
    return [_row(group, "scatter", _nbytes(outputs) * len(group.row.ranks), outputs[0], options, root=_root(group, options))]


def _barrier(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    return [_row(group, "barrier", 0, None, _argument(args, kwargs, 0, "opts"))]


def _monitored_barrier(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    return [_row(group, "monitored_barrier", 0, None, None)]


# -- messages ---------------------------------------------------------------------------------------------------------


def _send(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    return [_message(group, args, kwargs, True)]


def _recv(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    return [_message(group, args, kwargs, False)]


def _message(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any], sends: bool) -> OpRow:
    tensors = _flat(_argument(args, kwargs, 0, "tensors", "tensor"))
    me, peer = group.own_rank, group.row.ranks[_argument(args, kwargs, 1, "dstRank", "srcRank")]
    tag = _argument(args, kwargs, 2, "tag") or 0
    sender, receiver = (me, peer) if sends else (peer, me)
    row = OpRow(-1, group.row.id, "send" if sends else "recv", 0, group.message_number(sender, receiver, tag), _nbytes(tensors))
    _tensor_facts(row, tensors[0])
    row.sender, row.receiver, row.tag = sender, receiver, tag
    return row


def _recv_anysource(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpRow]:
    """The sender, and with it the message's number, is known only when it has come."""
    tensors = _flat(_argument(args, kwargs, 0, "tensors"))
    row = OpRow(-1, group.row.id, "recv", 0, None, _nbytes(tensors))
    _tensor_facts(row, tensors[0])
    row.receiver = group.own_rank
    row.tag = _argument(args, kwargs, 1, "tag") or 0
    return [row]


#: Methods of torch's ProcessGroup by every name they have had since torch 2.6; those that a version lacks are not touched.
METHODS: dict[str, Describe] = {
    "allreduce": _allreduce,
    "allreduce_coalesced": _allreduce_coalesced,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "allgather": _allgather,
    "allgather_coalesced": _allgather_coalesced,
    "_allgather_base": _all_gather_single,
    "all_gather_single": _all_gather_single,
    "allgather_into_tensor_coalesced": _all_gather_single,
    "all_gather_single_coalesced": _all_gather_single,
    "reduce_scatter": _reduce_scatter,
    "_reduce_scatter_base": _reduce_scatter_single,
    "reduce_scatter_single": _reduce_scatter_single,
    "reduce_scatter_tensor_coalesced": _reduce_scatter_single,
    "reduce_scatter_single_coalesced": _reduce_scatter_single,
    "alltoall": _alltoall,
    "alltoall_base": _alltoall_single,
    "all_to_all_single": _alltoall_single,
    "gather": _gather,
    "scatter": _scatter,
    "barrier": _barrier,
    "monitored_barrier": _monitored_barrier,
    "send": _send,
    "recv": _recv,
    "recv_anysource": _recv_anysource,
}
