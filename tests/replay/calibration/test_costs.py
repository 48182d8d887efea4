"""Costs: those of the simulator's model and of nccl-tests' bus bandwidth, and the half-performance sizes of the design."""

from __future__ import annotations

import math

import numpy as np
import pytest

from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.inspect.rates import bus_factor
from commcanary_lab.replay.calibration.costs import OPS, cost_of, default_algorithm
from commcanary_lab.simulate.alpha_beta import AlphaBeta
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.trace import Trace
from tests.replay.programs import event, make_trace


@pytest.mark.parametrize("op", [o for o in OPS if o not in ("all_to_all_v", "reduce")])
@pytest.mark.parametrize("k", [2, 3, 8])
def test_default_costs_are_those_of_the_simulated_model(op: str, k: int) -> None:
    if op in ("send", "recv", "point_to_point") and k != 2:
        pytest.skip("messages have two ends")
    cost = cost_of(op, k)
    trace = _trace(op, k, 1_000_003)
    assert trace.group_sizes.tolist() == [k]
    model = AlphaBeta(11.0, 40.0)
    service = model.service_us(prepare(trace, {"skew_us": 0, "overlap_us": 0}), Backend(), 0, frozenset())
    assert service[0] == pytest.approx(cost.steps * 11.0 + cost.wire_bytes(1_000_003) / 5e3, rel=1e-12)


def _trace(op: str, k: int, size: int) -> Trace:
    ends = {"sender": 0, "receiver": 1} if op in ("send", "recv", "point_to_point") else {}
    return make_trace([event(op, tuple(range(k)), size, root=0 if op == "broadcast" else None, **ends)])


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "point_to_point"])
@pytest.mark.parametrize("k", [2, 5, 16])
def test_bandwidth_is_the_bus_bandwidth(op: str, k: int) -> None:
    assert cost_of(op, k).share == pytest.approx(bus_factor(op, k))


@pytest.mark.parametrize("k", [2, 4, 6, 64])
@pytest.mark.parametrize(
    ("op", "algorithm", "steps"),
    [
        ("all_reduce", "ring", lambda k: k),
        ("all_gather", "ring", lambda k: k),
        ("reduce_scatter", "ring", lambda k: k),
        ("all_to_all", "pairwise", lambda k: k),
        ("all_reduce", "tree", math.log2),
        ("broadcast", "tree", math.log2),
        ("point_to_point", "point_to_point", lambda k: 1),
    ],
)
def test_half_performance_sizes(op: str, algorithm: str, steps: object, k: int) -> None:
    alpha_us, bandwidth = 12.5, 20.0
    cost = cost_of(op, k, algorithm)
    half = cost.half_size_bytes(alpha_us, bandwidth)
    assert half == pytest.approx(steps(k) * alpha_us * bandwidth * 1e3)  # type: ignore[operator]
    assert cost.steps * alpha_us == pytest.approx(cost.wire_bytes(half) / bandwidth / 1e3)


def test_what_has_no_cost_is_refused() -> None:
    with pytest.raises(RefusedError, match="'barrier' has no latency-bandwidth cost"):
        default_algorithm("barrier")
    with pytest.raises(RefusedError, match="'gather' has no"):
        cost_of("gather", 4, "ring")
    with pytest.raises(RefusedError, match="a group of 1 communicates nothing"):
        cost_of("all_reduce", 1)
    with pytest.raises(UsageError, match="all_gather is not done by 'tree'; it comes as: ring"):
        cost_of("all_gather", 4, "tree")
    assert np.isfinite(cost_of("reduce", 3, "tree").steps)
