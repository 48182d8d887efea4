"""Predicted traffic against formulas, and against the job of eight."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.layout import Layout
from commcanary_lab.traffic import ModelShape, build_matrix, compare_sources, parse_shape, predict, predicted_trace
from tests.traffic.jobs import MIB, eight_ranks

EIGHT = "hidden_size=4096,layers=6,sequence_length=8192,parameters=1073741824,gradient_dtype=bfloat16"


def test_the_job_of_eight_as_predicted() -> None:
    layout = Layout(tp=4, dp=2, gpus_per_node=4)
    predicted, observed = predict(layout, parse_shape(EIGHT)), build_matrix(eight_ranks())
    assert predicted.equals(observed, rtol=0)
    assert (predicted.records, predicted.payload_bytes) == (200, 16384 * MIB)
    assert predicted.origin == "model" and "nothing of it was measured" in predicted.notes[0]
    assert predicted.by("phase")["tp"].sum_bytes == 18432 * MIB
    found = compare_sources({"observed": observed, "predicted": predicted})
    assert found.agree and found.reference.name == "observed"
    other = compare_sources({"observed": observed, "predicted": predict(layout, parse_shape(EIGHT + ",micro_batches=2"))})
    assert not other.agree
    assert str(other.rows[1].first_difference) == "0 -> 1: 2415919104 bytes against 4831838208 bytes"
    assert other.rows[1].difference.removed_bytes == 18432 * MIB
    assert "differ" in other._repr_html_()


@st.composite
def cases(draw: st.DrawFn) -> tuple[Layout, ModelShape]:
    tp, pp, cp, dp = (draw(st.sampled_from([1, 2, 4])) for _ in range(4))
    ep = draw(st.sampled_from([e for e in (1, 2, 4) if cp * dp % e == 0]))
    order = tuple(draw(st.permutations(("tp", "cp", "ep", "dp", "pp"))))
    shape = ModelShape(
        hidden_size=64, layers=4 * draw(st.integers(1, 2)), sequence_length=64, micro_batch_size=draw(st.integers(1, 2)),
        micro_batches=draw(st.integers(1, 4)), experts=4 if ep > 1 or draw(st.booleans()) else 0, top_k=draw(st.integers(1, 2)),
        sequence_parallel=draw(st.booleans()), sharded_gradients=draw(st.booleans()), steps=draw(st.integers(1, 2)),
        vocabulary=draw(st.sampled_from([0, 256])),
    )  # fmt: skip
    return Layout(tp=tp, pp=pp, cp=cp, dp=dp, ep=ep, order=order), shape


@settings(max_examples=60, deadline=None)
@given(cases())
def test_sums_follow_the_formulas(case: tuple[Layout, ModelShape]) -> None:
    x, s = case
    m = predict(x, s)
    world, a = x.world_size, s.activation_bytes // x.cp
    times = s.micro_batches * s.steps
    layers = s.layers // x.pp
    part = a // x.tp if s.sequence_parallel else a
    expected = {
        "tp": world / x.tp * layers * times * 4 * 2 * (x.tp - 1) * a,
        "cp": world / x.cp * layers * times * 3 * (x.cp - 1) * 2 * a * x.cp / x.tp,
        "ep": world / x.ep * s.moe_layers / x.pp * times * 4 * (x.ep - 1) * s.top_k * part,
        "pp": world / x.pp * (x.pp - 1) * 2 * times * part,
    }
    replicas = x.dp * x.cp
    dense = s.dense_parameters * 4 // (x.tp * x.pp)
    own = s.expert_parameters * 4 // (x.tp * x.pp * x.ep)
    expected["dp"] = s.steps * (x.tp * x.pp * 2 * (replicas - 1) * dense + x.tp * x.pp * x.ep * 2 * (replicas / x.ep - 1) * own)
    found = {phase: part_.sum_bytes for phase, part_ in m.by("phase").items()}
    for phase, value in expected.items():
        assert found.get(phase, 0) == pytest.approx(value, rel=1e-12), phase
    assert m.unattributed_bytes == 0


def test_groups_of_gradients() -> None:
    """Parameters are replicated over dp x cp, experts over what is left of it."""
    t = predicted_trace(Layout(dp=4, cp=2, ep=4), ModelShape(hidden_size=8, layers=2, sequence_length=8, experts=4))
    groups = {g.name: g.members for g in t.groups}
    assert groups["DP-CP Group 0"] == tuple(range(8))
    assert [groups[f"Expert DP Group {i}"] for i in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert len(predicted_trace(Layout(), ModelShape(hidden_size=8, layers=2, sequence_length=8))) == 0


@pytest.mark.parametrize(("layout", "text", "message"), [
    (Layout(pp=4), EIGHT, "layers: 6 do not divide among 4 pipeline stages"),
    (Layout(dp=2, ep=2), EIGHT, "the layout has ep = 2, the model no experts"),
    (Layout(dp=4, ep=4), EIGHT + ",experts=6", "experts: 6 do not divide among 4"),
    (Layout(explicit={"a": (0, 1)}), EIGHT, "the layout lists its groups"),
])  # fmt: skip
def test_what_does_not_fit(layout: Layout, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        predict(layout, parse_shape(text))


@pytest.mark.parametrize(("text", "error", "message"), [
    ("hidden_size=1", UsageError, "lacks layers, sequence_length"),
    (EIGHT + ",hiden=3", UsageError, "has no 'hiden'"),
    (EIGHT + ",micro_batch=3", UsageError, "did you mean micro_batch"),
    (EIGHT + ",steps=x", UsageError, "steps = 'x' is no int"),
    (EIGHT + ",sequence_parallel=maybe", UsageError, "is no bool"),
    (EIGHT + ",steps=0,dtype=bfloat15,top_k=0", InputError, "bfloat15"),
    (EIGHT + ",experts=2,top_k=3", InputError, "3 experts per token of 2"),
    (EIGHT + ",expert_layers=9", InputError, "9 layers with experts of 6"),
    (EIGHT + ",kv_share=2", InputError, r"2.0 is not in \(0, 1\]"),
    (EIGHT + ",vocabulary=-1", InputError, "-1 is negative"),
])  # fmt: skip
def test_wrong_shapes(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_shape(text)
