"""The engine against an independent slow reference, on arbitrary traces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.errors import UnknownValueError, UsageError
from commcanary_lab.simulate import ABLATIONS, Backend, parse_backend, prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace import Trace
from tests.simulate.reference import exposed
from tests.strategies import traces

backends = st.builds(
    Backend,
    bandwidth_gbps=st.sampled_from([28.0, 55.0, 400.0]),
    latency_floor_us=st.sampled_from([0.0, 3.5, 7.5]),
    compute_pressure=st.sampled_from([0.0, 0.55, 3.0]),
    overlap_efficiency=st.sampled_from([0.0, 0.72, 1.0]),
    iterations=st.integers(1, 3),
    seed=st.integers(0, (1 << 64) - 1),
)


@settings(max_examples=150)
@given(traces(unknown=False), backends, st.sampled_from([None, *ABLATIONS]))
def test_engine_equals_reference(trace: Trace, backend: Backend, ablation: str | None) -> None:
    ablations = frozenset([ablation] if ablation else [])
    ours = simulate_prepared(prepare(trace), backend, ablations=ablations).samples.exposed_us
    np.testing.assert_allclose(ours, exposed(trace, backend, ablations), rtol=1e-12, atol=1e-6)


@given(traces(min_events=1))
def test_unknown_fields_are_refused_until_assumed(trace: Trace) -> None:
    if not trace.unknown_fields:
        prepare(trace)
        return
    with pytest.raises(UnknownValueError, match="--assume"):
        prepare(trace)
    prepared = prepare(trace, {"skew_us": 0.0, "overlap_us": 0.0})
    assert set(prepared.assumptions) == set(trace.unknown_fields)
    report = simulate_prepared(prepared, Backend())
    assert {a["field"] for a in report.to_json()["assumptions"]} == set(trace.unknown_fields)


def test_assumed_skew_is_simulated_like_a_known_one() -> None:
    from tests.golden_traces import golden_trace

    trace = golden_trace("irr100")
    blind = Trace.build(
        len(trace),
        **{
            n: getattr(trace, n)
            for n in (
                "op",
                "phase",
                "dtype",
                "reduction",
                "group",
                "groups",
                "size_bytes",
                "gap_ns",
                "pressure",
                "concurrent_groups",
                "overlap_ns",
            )
        },
        arrival_known=np.zeros(len(trace), np.bool_),
    )
    without_skew = simulate_prepared(prepare(trace), Backend(), ablations=frozenset(["arrival_skew"]))
    assumed = simulate_prepared(prepare(blind, {"skew_us": 0.0}), Backend())
    assert assumed.metrics["p99_us"] == without_skew.metrics["p99_us"]
    longer = simulate_prepared(prepare(blind, {"skew_us": 5.0}), Backend())
    assert longer.metrics["arrival_skew_median_us"] == 5.0


@pytest.mark.parametrize(
    "text", ["nope", "bandwidth_gbps=x", "bandwidth=3", "seed=1.5", "", "bandwidth_gbps=-1", "iterations=0", "bandwidth_gbps=nan"]
)
def test_wrong_backends_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_backend(text)


def test_backend_from_name_and_pairs() -> None:
    assert parse_backend("congested,seed=9") == Backend("congested,seed=9", bandwidth_gbps=28.0, compute_pressure=0.95, seed=9)
