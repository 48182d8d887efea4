"""The vocabularies are closed under their aliases."""

from __future__ import annotations

import pytest

from commcanary_lab.trace import ops


@pytest.mark.parametrize("name", sorted(ops.OPS | {ops.ALL_TO_ALL_V}))
def test_operations_name_themselves(name: str) -> None:
    assert ops.canonical_op(name) == ops.canonical_op(f" nccl:{name.upper()} ") == name


@pytest.mark.parametrize(
    ("source", "name"),
    [("_allgather_base", "all_gather"), ("allreduce_coalesced", "all_reduce"), ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
     ("all_gather_single", "all_gather"), ("alltoall_base", "all_to_all"), ("all_to_allv", "all_to_all_v"), ("gather", None),
     ("wait", None)],
)  # fmt: skip
def test_spellings_of_sources(source: str, name: str | None) -> None:
    assert ops.canonical_op(source) == name


@pytest.mark.parametrize(
    ("source", "name"),
    [("c10::BFloat16", "bfloat16"), ("Half", "float16"), ("Long", "int64"), ("torch.float8_e4m3fn", "float8_e4m3fn"), ("Byte", "uint8"),
     ("ComplexHalf", "complex32"), ("QInt8", None)],
)  # fmt: skip
def test_dtypes(source: str, name: str | None) -> None:
    assert ops.canonical_dtype(source) == name


def test_every_alias_leads_into_the_vocabulary() -> None:
    assert set(ops._OP_ALIASES.values()) <= ops.OPS | {ops.ALL_TO_ALL_V}
    assert set(ops._DTYPE_ALIASES.values()) <= set(ops.DTYPE_BYTES)
    assert set(ops._REDUCTION_ALIASES.values()) <= ops.REDUCTIONS
    assert ops.canonical_reduction("ReduceOp.AVG") == "avg"
    assert ops.canonical_reduction("band") is None
    assert ops.REDUCTION_OPS <= ops.OPS
