"""Operation, dtype and reduction vocabularies, with the aliases that sources use."""

from __future__ import annotations

__all__ = ["ALL_TO_ALL_V", "DTYPE_BYTES", "OPS", "REDUCTIONS", "REDUCTION_OPS", "canonical_dtype", "canonical_op", "canonical_reduction"]

#: Operations of the interchange format; anything else is a custom operation.
OPS = frozenset({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send", "recv", "point_to_point"})

#: The name under which an uneven all-to-all travels (a custom operation of the interchange format).
ALL_TO_ALL_V = "all_to_all_v"

REDUCTIONS = frozenset({"sum", "avg", "min", "max", "product"})

#: Operations that may carry a reduction operator.
REDUCTION_OPS = frozenset({"all_reduce", "reduce_scatter"})

DTYPE_BYTES = {
    "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8, "bool": 1,
    "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip

_DTYPE_ALIASES = {
    "half": "float16", "fp16": "float16", "float": "float32", "fp32": "float32", "double": "float64", "fp64": "float64",
    "bf16": "bfloat16", "char": "int8", "byte": "uint8", "short": "int16", "int": "int32", "long": "int64",
    "complexhalf": "complex32", "complexfloat": "complex64", "complexdouble": "complex128", "boolean": "bool",
    "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2",
}  # fmt: skip

_OP_ALIASES = {
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce", "all_reduce_coalesced": "all_reduce",
    "allreduce_sparse": "all_reduce",
    "allgather": "all_gather", "_allgather_base": "all_gather", "allgather_base": "all_gather", "_all_gather_base": "all_gather",
    "all_gather_base": "all_gather", "allgather_into_tensor_coalesced": "all_gather", "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather", "all_gather_single": "all_gather", "allgather_coalesced": "all_gather",
    "reducescatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter", "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_coalesced": "reduce_scatter", "_reduce_scatter_single": "reduce_scatter", "reduce_scatter_single": "reduce_scatter",
    "alltoall": "all_to_all", "alltoall_base": "all_to_all", "all_to_all_single": "all_to_all", "all_to_all_base": "all_to_all",
    "alltoallv": ALL_TO_ALL_V, "all_to_allv": ALL_TO_ALL_V, "all_to_all_v": ALL_TO_ALL_V,
    "bcast": "broadcast", "broadcast_coalesced": "broadcast", "_broadcast_oop": "broadcast", "isend": "send", "irecv": "recv",
    "sendrecv": "point_to_point",
}  # fmt: skip

_REDUCTION_ALIASES = {"prod": "product", "average": "avg", "mean": "avg", "premulsum": "sum"}


def canonical_dtype(name: str) -> str | None:
    """Return the canonical name of a dtype, or None if no alias is known.

    Examples
    --------
    >>> canonical_dtype("c10::BFloat16"), canonical_dtype("torch.half"), canonical_dtype("Float8_e5m2"), canonical_dtype("quint4")
    ('bfloat16', 'float16', 'float8_e5m2', None)
    """
    key = name.strip().lower().removeprefix("c10::").removeprefix("torch.").removeprefix("at::")
    key = _DTYPE_ALIASES.get(key, key)
    return key if key in DTYPE_BYTES else None


def canonical_op(name: str) -> str | None:
    """Return the canonical name of an operation, or None if it is not in the vocabulary.

    Examples
    --------
    >>> canonical_op("_allgather_base"), canonical_op("nccl:all_reduce"), canonical_op("ALLTOALLV"), canonical_op("gather")
    ('all_gather', 'all_reduce', 'all_to_all_v', None)
    """
    key = name.strip().lower()
    key = key.rsplit(":", 1)[-1]
    key = _OP_ALIASES.get(key, key)
    return key if key in OPS or key == ALL_TO_ALL_V else None


def canonical_reduction(name: str) -> str | None:
    """Return the canonical name of a reduction operator, or None.

    Examples
    --------
    >>> canonical_reduction("ReduceOp.PROD"), canonical_reduction("xor")
    ('product', None)
    """
    key = name.strip().lower().rsplit(".", 1)[-1]
    key = _REDUCTION_ALIASES.get(key, key)
    return key if key in REDUCTIONS else None
