"""Buffers, inputs and references of the probe, without processes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.replay.buffers import REDUCING, buffers
from commcanary_lab.replay.pattern import expected, inputs, rank_order_sum
from commcanary_lab.replay.program import MESSAGES, Program, Step
from commcanary_lab.trace.ops import DTYPE_BYTES
from tests.replay.programs import everything

PROGRAM = Program.of(everything(4))
STEPS = [s for s in PROGRAM.steps if s is not None]


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_buffers_hold_the_size_or_say_so(backend: str) -> None:
    for step in STEPS:
        b = buffers(step, backend)
        if step.splits is not None:
            assert [w * b.width for row in b.splits for w in row] == [w for row in step.splits for w in row]
            continue
        whole = max(max(b.sent), max(b.received)) * b.width
        assert whole >= step.size_bytes
        assert whole == step.size_bytes or any("grow to" in c for c in b.changes), step
        assert (b.dtype == step.dtype and not b.changes) or b.changes or step.op == "barrier", step


def test_what_changes_is_named() -> None:
    def changes(op: str, size: int, dtype: str | None, reduction: str | None = None) -> tuple[str, ...]:
        return buffers(Step(op, (0, 1), size, dtype, reduction), "gloo").changes

    assert changes("all_gather", 14, "bfloat16") == ("runs as bytes: 14 B is no whole number of bfloat16 elements per rank",)
    assert changes("all_reduce", 10, "float32", "sum") == ("10 B grow to 12 B, a whole number of float32 elements per rank",)
    assert changes("all_reduce", 8, None) == ("runs as float32: the source does not say the dtype",)
    assert changes("all_gather", 8, None) == ("runs as uint8: the source does not say the dtype",)
    assert changes("all_reduce", 8, "int32", "avg") == ("the average of int32 runs as sum",)
    assert changes("all_reduce", 8, "float8_e5m2", "sum") == ("float8_e5m2 runs as uint8: gloo does not carry it",)
    assert changes("all_reduce", 8, "quint4", "sum") == ("quint4 runs as float32: no such dtype here",)
    assert changes("all_reduce", 8, "float32", "premul") == ("reduction 'premul' runs as sum",)
    assert changes("all_reduce", 8, "float32", "sum") == ()


def test_every_sample_event_and_rank_has_other_inputs() -> None:
    step = Step("all_gather", (0, 1), 128, "bfloat16")
    b = buffers(step, "gloo")
    seen = {inputs(step, b, rank, event, sample).tobytes() for rank in (0, 1) for event in range(20) for sample in range(20)}
    assert len(seen) == 2 * 20 * 20


@given(st.sampled_from(["float16", "bfloat16", "float32", "float64", "complex64"]), st.integers(0, 10**6), st.integers(0, 1000))
def test_moved_floats_are_finite(dtype: str, event: int, sample: int) -> None:
    step = Step("broadcast", (0, 1), 256, dtype, root=0)
    data = inputs(step, buffers(step, "gloo"), 0, event, sample)
    if dtype == "bfloat16":
        values = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = data.view(dtype)
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > len(values) // 3


@given(
    st.sampled_from(["bfloat16", "float16", "float32", "float64", "int8", "int32", "uint8"]),
    st.sampled_from(["sum", "avg", "min", "max", "product"]), st.integers(2, 64), st.randoms(use_true_random=False),
)  # fmt: skip
def test_reductions_are_exact_in_any_order(dtype: str, reduction: str, k: int, random: object) -> None:
    """Sum in float64 of shuffled partial sums that are rounded to the type after each addition: nothing may be lost."""
    step = Step("all_reduce", tuple(range(k)), 32 * DTYPE_BYTES[dtype], dtype, reduction)
    b = buffers(step, "gloo")
    rows = [_values(inputs(step, b, r, 7, 3), b.dtype) for r in range(k)]
    random.shuffle(rows)  # type: ignore[attr-defined]
    if b.reduction in ("sum", "avg") and b.dtype not in ("int8", "uint8"):
        total = rows[0].copy()
        for row in rows[1:]:
            total = total + row
            assert np.array_equal(_values(_bytes(total, b.dtype), b.dtype), total)
    wanted = expected(step, b, 0, 7, 3)
    assert wanted is not None and len(wanted) == step.size_bytes


def _values(data: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return data.view(dtype).astype(np.float64)


def _bytes(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return np.ascontiguousarray(values.astype(np.float32).view(np.uint16)[1::2]).view(np.uint8)
    return values.astype(dtype).view(np.uint8)


def test_references_against_torch() -> None:
    """The reductions as torch computes them on one process, and the sum of gathered parts in its own types."""
    torch = pytest.importorskip("torch")
    functions = {"sum": lambda t: t.sum(0), "min": lambda t: t.amin(0), "max": lambda t: t.amax(0), "product": lambda t: t.prod(0)}
    checked = 0
    for step in STEPS:
        b = buffers(step, "gloo")
        if step.op in REDUCING and b.dtype in ("float32", "float64", "int32", "int64") and b.reduction in functions and b.sent[0]:
            kind = getattr(torch, b.dtype)
            rows = torch.stack([torch.from_numpy(inputs(step, b, r, 3, 1).copy()).view(kind) for r in step.members])
            whole = functions[b.reduction](rows).to(kind)
            at = step.members.index(step.root) if step.root is not None else 0
            reference = expected(step, b, step.members[at], 3, 1)
            assert reference is not None
            n = len(reference) // b.width
            assert np.array_equal(reference, whole[:n].contiguous().view(torch.uint8).numpy()), step
            checked += 1
        if (own := rank_order_sum(step, b, 3, 1)) is not None:
            kind = getattr(torch, b.dtype)
            parts = [torch.from_numpy(inputs(step, b, r, 3, 1).copy()).view(kind) for r in step.members]
            total = parts[0].clone()
            for p in parts[1:]:
                total += p
            assert np.array_equal(own, total.view(torch.uint8).numpy()), step
            checked += 1
    assert checked >= 15


def test_the_order_of_a_sum_shows() -> None:
    """Adding gathered parts in another order gives other bytes: so the check sees who added what when."""
    step = Step("all_gather", (0, 1, 2, 3), 4096, "bfloat16")
    b = buffers(step, "gloo")
    forward = rank_order_sum(step, b, 1, 1)
    turned = Step("all_gather", (3, 2, 1, 0), 4096, "bfloat16")
    backward = rank_order_sum(turned, b, 1, 1)
    assert forward is not None and backward is not None
    assert (forward != backward).any()


def test_references_move_each_byte_to_its_place() -> None:
    for step in STEPS:
        b = buffers(step, "gloo")
        if step.op in REDUCING:
            continue
        given_all = {r: inputs(step, b, r, 9, 2) for r in step.members if b.sent[step.members.index(r)]}
        for at, rank in enumerate(step.members):
            got = expected(step, b, rank, 9, 2)
            if got is None:
                assert b.received[at] == 0
                continue
            assert len(got) == b.received[at] * b.width
            if step.op in MESSAGES:
                assert np.array_equal(got, given_all[step.sender])
            elif step.op == "all_to_all":
                size = len(got) // len(step.members)
                for i, r in enumerate(step.members):
                    assert np.array_equal(got[i * size : (i + 1) * size], given_all[r][at * size : (at + 1) * size])
