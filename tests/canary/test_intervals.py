"""Bounded intervals: optimal against brute force, exact errors, bounded searches that stay close, refusals."""

from __future__ import annotations

import time
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.canary import interval_search
from commcanary_lab.canary.intervals import (
    encode,
    partition,
    partition_by_budget,
    partition_streams,
    partition_streams_by_budget,
)
from commcanary_lab.errors import BudgetError, InputError, UsageError

INF = float("inf")


# -- an independent reference, in plain Python ----------------------------------------------------------------------------------


class Stream:
    """A small stream and its errors by definition."""

    def __init__(self, gaps, fields, valid, whole, scales, rule="midrange", skew=None):
        self.gaps, self.fields, self.valid, self.whole, self.scales, self.rule, self.skew = gaps, fields, valid, whole, scales, rule, skew
        self.m = len(gaps)

    @property
    def arguments(self) -> tuple:
        shape = (len(self.fields), self.m)
        return (
            np.array(self.gaps, np.int64),
            np.array(self.fields, np.float64).reshape(shape),
            np.array(self.valid, np.bool_).reshape(shape),
        )

    @property
    def options(self) -> dict:
        return {"whole": np.array(self.whole, np.bool_), "gap_rule": self.rule, "skew": self.skew}

    def gap_errors(self, c: int, i: int, j: int) -> list[float]:
        gaps = self.gaps[i:j]
        encoded = [c] * (len(gaps) - 1) + [sum(gaps) - c * (len(gaps) - 1)]
        running = [abs(sum(encoded[:k]) - sum(gaps[:k])) for k in range(1, len(gaps) + 1)]
        return [float(max(abs(a - b) for a, b in zip(encoded, gaps, strict=True))), float(max(running))]

    def ratios(self, errors: list[float], scales: list[float]) -> float:
        return max((0.0 if e == 0 else INF if s == 0 else e / s for e, s in zip(errors, scales, strict=True)), default=0.0)

    def gap(self, i: int, j: int) -> int:
        gaps = self.gaps[i:j]
        if len(gaps) == 1:
            return gaps[0]
        c = min((min(gaps) + max(gaps)) // 2, sum(gaps) // (len(gaps) - 1))
        if self.rule == "midrange_or_mean":
            mean = sum(gaps[:-1]) // (len(gaps) - 1)
            if self.ratios(self.gap_errors(mean, i, j), self.scales[-2:]) < self.ratios(self.gap_errors(c, i, j), self.scales[-2:]):
                return mean
        return c

    def middles(self, i: int, j: int) -> list[float]:
        out = []
        for values, valid, whole in zip(self.fields, self.valid, self.whole, strict=True):
            known = [v for v, ok in zip(values[i:j], valid[i:j], strict=True) if ok]
            low, high = (min(known), max(known)) if known else (0, 0)
            out.append((low + high) // 2 if whole else (low + high) / 2)
        if self.skew is not None:
            arrivals = out[self.skew + 1 :]
            out[self.skew] = arrivals[0] if len(arrivals) == 1 else max(arrivals) - min(arrivals)
        return out

    def errors(self, i: int, j: int) -> list[float]:
        out = []
        for values, valid, middle in zip(self.fields, self.valid, self.middles(i, j), strict=True):
            out.append(float(max((abs(v - middle) for v, ok in zip(values[i:j], valid[i:j], strict=True) if ok), default=0.0)))
        return out + self.gap_errors(self.gap(i, j), i, j)

    def cost(self, cuts: tuple[int, ...]) -> float:
        return max(self.ratios(self.errors(i, j), self.scales) for i, j in pairwise(cuts))

    def partitions(self, at_most: int):
        for n in range(1, min(at_most, self.m) + 1):
            for inner in combinations(range(1, self.m), n - 1):
                yield (0, *inner, self.m)

    def best(self, at_most: int) -> tuple[float, int, tuple[int, ...]]:
        return min((self.cost(cuts), len(cuts) - 1, cuts) for cuts in self.partitions(at_most))

    def fewest(self) -> tuple[int, ...]:
        return min((len(cuts), cuts) for cuts in self.partitions(self.m) if self.cost(cuts) <= 1.0)[1]


@st.composite
def streams(draw: st.DrawFn, scales: st.SearchStrategy[float]) -> Stream:
    m = draw(st.integers(1, 9))
    top = draw(st.sampled_from([2, 10, 1000]))
    numbers = st.lists(st.integers(0, top), min_size=m, max_size=m)
    arrivals = draw(st.lists(numbers, max_size=3))
    whole = [True] * draw(st.integers(0, 2)) + [False] * draw(st.integers(0, 1))
    fields = [draw(numbers if w else st.lists(st.sampled_from([0.1, 0.25, 0.62, 0.7, 0.9]), min_size=m, max_size=m)) for w in whole]
    valid = [draw(st.lists(st.booleans(), min_size=m, max_size=m)) for _ in whole]
    skew = None
    if arrivals:
        skew = len(fields)
        fields += [[max(a) - min(a) if len(a) > 1 else a[0] for a in zip(*arrivals, strict=True)], *arrivals]
        valid += [[True] * m] * (len(arrivals) + 1)
        whole = whole + [True] * (len(arrivals) + 1)
    return Stream(
        draw(numbers),
        fields,
        valid,
        whole,
        [draw(scales) for _ in range(len(fields) + 2)],
        draw(st.sampled_from(["midrange", "midrange_or_mean"])),
        skew,
    )


@settings(max_examples=400, deadline=None)
@given(streams(st.sampled_from([1.0, 3.0, 0.01, INF])), st.integers(1, 4))
def test_no_partition_is_better(stream: Stream, at_most: int) -> None:
    found = partition(*stream.arguments, np.array(stream.scales), at_most, **stream.options)
    cost, _, cuts = stream.best(at_most)
    assert found.exact
    assert tuple(found.boundaries.tolist()) == cuts  # also: fewest intervals, then earliest boundaries
    encoded = encode(*stream.arguments, found.boundaries, np.array(stream.scales), **stream.options)
    assert encoded.cost(np.array(stream.scales)) == cost


@settings(max_examples=300, deadline=None)
@given(streams(st.sampled_from([0.0, 0.3, 1.0, 5.0, 200.0, INF])))
def test_no_partition_within_the_budgets_has_fewer_intervals(stream: Stream) -> None:
    found = partition_by_budget(*stream.arguments, np.array(stream.scales), **stream.options)
    assert found.exact
    assert tuple(found.boundaries.tolist()) == stream.fewest()


@settings(max_examples=200, deadline=None)
@given(streams(st.just(1.0)), st.data())
def test_encoding_by_definition(stream: Stream, data: st.DataObject) -> None:
    inner = data.draw(st.sets(st.integers(1, stream.m - 1))) if stream.m > 1 else set()
    cuts = [0, *sorted(inner), stream.m]
    found = encode(*stream.arguments, np.array(cuts), **stream.options)
    for r, (i, j) in enumerate(pairwise(cuts)):
        assert found.rows[r] == j - i
        assert found.gap_ns[r] == stream.gap(i, j)
        assert found.gap_sum_ns[r] == sum(stream.gaps[i:j])
        assert found.gap_ns[r] * (j - i) + found.residual_ns[r] == found.gap_sum_ns[r]
        assert found.gap_ns[r] + found.residual_ns[r] >= 0
        assert found.middles[:, r].tolist() == stream.middles(i, j)
        assert found.errors[:, r].tolist() == stream.errors(i, j)


# -- streams of realistic size ---------------------------------------------------------------------------------------------------


def lognormal(m: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaps and (skew, compute before, overlap, pressure) with rare tails."""
    rng = np.random.default_rng(seed)
    gap = np.round(rng.lognormal(np.log(120e3), 0.8, m)).astype(np.int64)
    skew = np.round(rng.lognormal(np.log(6e3), 0.7, m))
    tail = rng.random(m) < 0.01
    skew[tail] = skew[tail] * 12 + 40_000
    gap[tail] *= 4
    overlap = np.round(np.maximum(0, rng.normal(18e3, 9e3, m)))
    return gap, np.array([skew, np.round(gap * 0.7), overlap, np.round(0.4 + 0.5 * rng.random(m), 3)])


def regimes(m: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Nine levels that last for different times, with little noise."""
    rng = np.random.default_rng(seed)
    level = np.searchsorted(np.sort(rng.integers(0, m, 8)), np.arange(m), side="right")
    base = rng.integers(10_000, 500_000, 9)[level]
    return base + rng.integers(0, 200, m), np.array([base // 10 + rng.integers(0, 100, m), base // 3, np.full(m, 7), np.full(m, 0.5)])


WHOLE = np.array([True, True, True, False])
SCALES = np.array([1000.0, 1000.0, 1000.0, 0.01, 1000.0, 1000.0])


def cost(gap: np.ndarray, fields: np.ndarray, cuts: np.ndarray) -> float:
    return encode(gap, fields, None, cuts, whole=WHOLE).cost(SCALES)


def even(m: int, n: int) -> np.ndarray:
    return np.unique(np.arange(n + 1) * m // n)


@pytest.mark.parametrize("make", [lognormal, regimes])
@pytest.mark.parametrize("m", [600, 3000, 30_000])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 50])
def test_never_worse_than_an_even_split(make, m: int, n: int) -> None:
    gap, fields = make(m, 1)
    found = partition(gap, fields, None, SCALES, n, whole=WHOLE)
    assert 1 <= found.count <= n
    assert cost(gap, fields, found.boundaries) <= cost(gap, fields, even(m, n))
    assert np.array_equal(found.boundaries, partition(gap, fields, None, SCALES, n, whole=WHOLE).boundaries)


@pytest.mark.parametrize("make", [lognormal, regimes])
@pytest.mark.parametrize("n", [3, 8, 32])
def test_bounded_search_comes_close_to_the_optimum(make, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    excess = []
    for seed in range(3):
        gap, fields = make(1200, seed)
        with monkeypatch.context() as patch:
            patch.setattr(interval_search, "EXACT_ROWS", 4096)
            patch.setattr(interval_search, "MAX_TRIES", 1 << 22)
            exact = partition(gap, fields, None, SCALES, n, whole=WHOLE)
        with monkeypatch.context() as patch:
            patch.setattr(interval_search, "_feasible", lambda *_: False)
            bounded = partition(gap, fields, None, SCALES, n, whole=WHOLE)
        assert exact.exact
        assert not bounded.exact
        best = cost(gap, fields, exact.boundaries)
        excess.append(cost(gap, fields, bounded.boundaries) / best - 1)
    assert min(excess) >= 0
    assert max(excess) <= 0.08
    assert np.mean(excess) <= 0.03


def test_two_intervals_are_optimal_at_any_length() -> None:
    gap, fields = lognormal(700, 4)
    found = partition(gap, fields, None, SCALES, 2, whole=WHOLE)
    each = [cost(gap, fields, np.array([0, k, 700])) for k in range(1, 700)]
    assert found.exact
    assert found.boundaries.tolist() == [0, int(np.argmin(each)) + 1, 700]


def test_levels_are_found_to_the_row() -> None:
    gap, fields = regimes(40_000, 2)
    limited = SCALES.copy()
    limited[4:] = INF  # gaps aside, only the true borders keep the other errors small
    found = partition(gap, fields, None, limited, 9, whole=WHOLE)
    borders = np.flatnonzero(np.diff(fields[1])) + 1
    assert found.boundaries[1:-1].tolist() == borders.tolist()


@pytest.mark.parametrize("budget", [3e5, 1e6, 4e6])
def test_bounded_budget_search_needs_few_intervals_more(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    gap, fields = lognormal(1400, 7)
    budgets = np.array([budget, budget, budget, 1.0, budget, budget])
    monkeypatch.setattr(interval_search, "EXACT_ROWS", 4096)
    monkeypatch.setattr(interval_search, "MAX_TRIES", 1 << 22)
    exact = partition_by_budget(gap, fields, None, budgets, whole=WHOLE)
    monkeypatch.setattr(interval_search, "EXACT_ROWS", 8)
    monkeypatch.setattr(interval_search, "_feasible", lambda *_: False)
    bounded = partition_by_budget(gap, fields, None, budgets, whole=WHOLE)
    errors = encode(gap, fields, None, bounded.boundaries, whole=WHOLE).errors
    assert (errors.max(axis=1) <= budgets).all()
    assert exact.exact
    assert not bounded.exact
    assert exact.count <= bounded.count <= 1.05 * exact.count + 1


def test_longest_intervals_where_gaps_are_unlimited() -> None:
    gap, fields = lognormal(5000, 3)
    budgets = np.array([20e3, 80e3, 20e3, 0.3, INF, INF])
    found = partition_by_budget(gap, fields, None, budgets, whole=WHOLE)
    assert found.exact
    begin, expected = 0, [0]
    for k in range(1, 5000):
        part = fields[:, begin : k + 1]
        if (part.max(axis=1) - part.min(axis=1) > 2 * budgets[:4] + 1e-12).any():
            expected.append(k)
            begin = k
    expected.append(5000)
    assert found.boundaries.tolist() == expected


def test_no_budget_at_all_and_no_error_at_all() -> None:
    gap, fields = lognormal(3000, 5)
    assert partition_by_budget(gap, fields, None, np.full(6, INF), whole=WHOLE).boundaries.tolist() == [0, 3000]
    exact = partition_by_budget(gap, fields, None, np.zeros(6), whole=WHOLE)
    assert encode(gap, fields, None, exact.boundaries, whole=WHOLE).errors.max() == 0.0
    constant = np.full(5000, 9)
    assert partition_by_budget(constant, np.zeros((0, 5000)), None, np.zeros(2)).count == 1
    assert partition(constant, np.zeros((0, 5000)), None, np.ones(2), 8).count == 1


def test_the_mean_stops_the_drift_of_a_short_gap() -> None:
    gap = np.full(1000, 96_000)
    gap[0] = 0
    none = np.zeros((0, 1000))
    cuts = np.array([0, 1000])
    assert encode(gap, none, None, cuts).errors[1, 0] > 40e6
    assert encode(gap, none, None, cuts, gap_rule="midrange_or_mean").errors[1, 0] < 100e3


@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_many_streams_at_once(n: int) -> None:
    gap, fields = lognormal(2000, 9)
    ptr = np.array([0, 0, 1, 40, 700, 1999, 2000])
    together = partition_streams(gap, fields, None, SCALES, n, ptr, whole=WHOLE)
    budgets = np.array([50e3, 200e3, 50e3, 1.0, 1e6, 2e6])
    covers = partition_streams_by_budget(gap, fields, None, budgets, ptr, whole=WHOLE)
    for a, b, part, cover in zip(ptr[:-1], ptr[1:], together, covers, strict=True):
        alone = partition(gap[a:b], fields[:, a:b], None, SCALES, n, whole=WHOLE)
        assert part.boundaries.tolist() == alone.boundaries.tolist()
        assert part.exact == alone.exact
        assert cover.boundaries.tolist() == partition_by_budget(gap[a:b], fields[:, a:b], None, budgets, whole=WHOLE).boundaries.tolist()
    assert together[0].boundaries.tolist() == [0]


def test_unknown_values_do_not_count() -> None:
    fields = np.array([[5.0, np.nan, 5.0, np.nan, 9.0, np.nan]])
    valid = ~np.isnan(fields)
    gap = np.full(6, 3)
    found = partition(gap, fields, valid, np.ones(3), 2, whole=np.array([True]))
    assert found.boundaries.tolist() == [0, 3, 6]
    assert encode(gap, fields, valid, found.boundaries, whole=np.array([True])).middles.tolist() == [[5.0, 9.0]]
    assert encode(gap[:1], fields[:, 1:2], valid[:, 1:2], np.array([0, 1])).errors.max() == 0.0


def test_refusals() -> None:
    gap, none, ones = np.array([1, 2]), np.zeros((0, 2)), np.ones(2)
    with pytest.raises(UsageError, match="at least 1"):
        partition(gap, none, None, ones, 0)
    with pytest.raises(BudgetError, match="positive"):
        partition(gap, none, None, np.array([0.0, 1.0]), 1)
    with pytest.raises(BudgetError, match=">= 0"):
        partition_by_budget(gap, none, None, np.array([-1.0, 1.0]))
    with pytest.raises(InputError, match="gaps must be >= 0"):
        partition(np.array([-1, 2]), none, None, ones, 1)
    with pytest.raises(InputError, match="36 years"):
        partition(np.array([1 << 60, 1 << 60]), none, None, ones, 1)
    with pytest.raises(InputError, match="do not fit"):
        partition(gap, np.zeros((1, 3)), None, np.ones(3), 1)
    with pytest.raises(InputError, match="two more scales"):
        partition(gap, none, None, np.ones(3), 1)
    with pytest.raises(InputError, match="whole where declared so"):
        partition(gap, np.array([[0.5, 1.0]]), None, np.ones(3), 1, whole=np.array([True]))
    with pytest.raises(InputError, match="finite"):
        partition(gap, np.array([[np.inf, 1.0]]), None, np.ones(3), 1)
    with pytest.raises(InputError, match="rise strictly"):
        encode(gap, none, None, np.array([0, 2, 2]))
    with pytest.raises(InputError, match="row pointers"):
        partition_streams(gap, none, None, ones, 1, np.array([0, 3]))
    with pytest.raises(UsageError, match="gap rule"):
        partition(gap, none, None, ones, 1, gap_rule="median")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the arrivals come after it"):
        partition(gap, np.zeros((1, 2)), None, np.ones(3), 1, skew=0)
    with pytest.raises(InputError, match="does not follow from its arrivals"):
        partition(gap, np.array([[3, 3], [0, 0], [3, 2]]), None, np.ones(5), 1, skew=0)


@pytest.mark.parametrize("n", [2, 8])
def test_time_of_a_long_stream(n: int) -> None:
    gap, fields = lognormal(100_000, 6)
    partition(gap[:2000], fields[:, :2000], None, SCALES, n, whole=WHOLE)
    began = time.process_time()
    partition(gap, fields, None, SCALES, n, whole=WHOLE)
    assert time.process_time() - began < 1.5  # measured: 0.03 s and 0.06 s
