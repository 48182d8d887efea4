"""The fit recovers what made the samples, is as sure as it says, and says when it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.errors import FormatError, InputError, RefusedError, UsageError
from commcanary_lab.replay.calibration import SizeSamples, cost_of, fit, read_fit, write_fit
from commcanary_lab.replay.calibration.fit_file import fit_document
from commcanary_lab.replay.calibration.solve import relative_loss, solve
from tests.replay.calibration.synthetic import SIZES, samples

KINDS = [("all_reduce", "ring"), ("all_reduce", "tree"), ("all_gather", "ring"), ("all_to_all", "pairwise"),
         ("broadcast", "ring"), ("point_to_point", "point_to_point")]  # fmt: skip


@given(kind=st.sampled_from(KINDS), k=st.integers(2, 64), alpha=st.floats(0.5, 500), rate=st.floats(0.5, 400))
def test_exact_times_give_the_exact_terms(kind: tuple[str, str], k: int, alpha: float, rate: float) -> None:
    cost = cost_of(kind[0], k, kind[1])
    half = cost.half_size_bytes(alpha, rate)
    sizes = tuple(sorted({max(1, round(half * 2.0**i)) for i in range(-5, 6)}))
    found = fit(samples(cost, alpha, rate, sizes=sizes), algorithm=kind[1], replicates=100)
    assert found.alpha_us == pytest.approx(alpha, rel=1e-6)
    assert found.bandwidth_gb_s == pytest.approx(rate, rel=1e-6)
    assert found.half_size_bytes == pytest.approx(half, rel=1e-6)
    assert found.verdict == "fits"
    assert max(abs(r.relative) for r in found.residuals) < 1e-6


@given(seed=st.integers(0, 10**6), op=st.sampled_from(["all_reduce", "all_gather", "all_to_all"]), k=st.sampled_from([2, 4, 16]))
def test_noisy_times_give_nearly_the_terms(seed: int, op: str, k: int) -> None:
    found = fit(samples(cost_of(op, k), 15.0, 10.0, rounds=30, noise=0.08, seed=seed), statistic="median", replicates=200)
    assert found.alpha_us == pytest.approx(15.0, rel=0.1)
    assert found.bandwidth_gb_s == pytest.approx(10.0, rel=0.15)


@pytest.mark.parametrize(
    ("statistic", "rounds", "noise", "common", "least"),
    [("median", 40, 0.08, 0.05, 0.88), ("p10", 40, 0.08, 0.05, 0.86), ("p10", 20, 0.08, 0.0, 0.82), ("median", 1, 0.08, 0.0, 0.84)],
)
def test_intervals_cover_about_as_often_as_they_say(statistic: str, rounds: int, noise: float, common: float, least: float) -> None:
    """95 % intervals over 100 seeds: well above 80 %, and not always."""
    cost, hits, trials, widths = cost_of("all_reduce", 4), np.zeros(2), 100, []
    # the 10 % quantile of log-normal noise is a known factor below its median
    factor = np.exp(-1.2815515655 * np.hypot(noise, common)) if statistic == "p10" else 1.0
    for seed in range(trials):
        made = samples(cost, 20.0, 3.0, rounds=rounds, noise=noise, common=common, seed=seed)
        found = fit(made, statistic=statistic, seed=seed, replicates=300)
        hits += [20.0 * factor in found.alpha_interval_us, 3.0 / factor in found.bandwidth_interval_gb_s]
        widths.append(found.alpha_interval_us.half_width / found.alpha_us)
    assert (hits / trials >= least).all(), hits / trials
    assert 0.005 < np.median(widths) < 0.2  # an interval that holds everything would cover, too


def test_one_disturbed_size_does_not_decide() -> None:
    made = samples(cost_of("all_reduce", 4), 20.0, 3.0)
    times = list(made.latencies_us)
    times[4] = times[4] * 8
    found = fit(replace(made, latencies_us=tuple(times)))
    assert found.alpha_us == pytest.approx(20.0, rel=0.03)
    assert found.bandwidth_gb_s == pytest.approx(3.0, rel=0.03)
    assert found.residuals[4].relative == pytest.approx(0.87, abs=0.02)
    assert found.verdict != "fits"


def test_the_solver_finds_the_minimum_of_its_loss() -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(5)
    steps, wire = np.full(10, 6.0), np.geomspace(1e3, 1e7, 10)
    times = (6 * 9.0 + wire / 4e3) * np.exp(0.2 * rng.standard_normal((5, 10)))
    for row, (alpha, beta) in zip(times, solve(steps, wire, times), strict=True):

        def loss(x: np.ndarray, row: np.ndarray = row) -> float:
            return float(relative_loss(steps * x[0] + wire * x[1] * 1e-4, row).sum())

        best = minimize(loss, [5.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000})
        assert loss(np.array([alpha, beta * 1e4])) <= best.fun + 1e-8
        assert (alpha, beta * 1e4) == pytest.approx(tuple(best.x), rel=1e-4)


def test_terms_are_never_negative() -> None:
    steps, wire = np.full(4, 2.0), np.array([1e3, 1e4, 1e5, 1e6])
    falling, proportional = np.array([[40.0, 39, 38, 37]]), wire[None] ** 1.1 / 1e4
    assert solve(steps, wire, falling)[0, 1] == 0
    assert solve(steps, wire, proportional)[0, 0] >= 0


class TestDegenerate:
    def test_one_or_two_sizes(self) -> None:
        made = samples(cost_of("all_reduce", 4), 20.0, 3.0, sizes=(1024, 4096))
        with pytest.raises(RefusedError, match=r"2 sizes say nothing .* give at least 3 sizes"):
            fit(made)

    @pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
    def test_times_that_are_none(self, bad: float) -> None:
        with pytest.raises(InputError, match="a latency of 2048 bytes is"):
            SizeSamples("all_reduce", 2, None, (1024, 2048), (np.array([1.0]), np.array([5.0, bad])), "x")

    def test_sizes_out_of_order_twice_or_without_times(self) -> None:
        one = np.array([1.0])
        for sizes in ((2048, 1024), (1024, 1024), (-8, 8)):
            with pytest.raises(InputError, match="not ascending"):
                SizeSamples("all_reduce", 2, None, sizes, (one, one), "x")
        with pytest.raises(InputError, match="no latency of 8 bytes"):
            SizeSamples("all_reduce", 2, None, (8,), (np.zeros(0),), "x")
        with pytest.raises(InputError, match="1 sizes and latencies of 2"):
            SizeSamples("all_reduce", 2, None, (8,), (one, one), "x")

    def test_options(self) -> None:
        made = samples(cost_of("all_reduce", 4), 20.0, 3.0)
        with pytest.raises(UsageError, match="unknown statistic 'mean'"):
            fit(made, statistic="mean")
        with pytest.raises(UsageError, match="a confidence of 1"):
            fit(made, confidence=1.0)
        with pytest.raises(UsageError, match="5 resamples"):
            fit(made, replicates=5)

    def test_an_empty_message_has_only_latency(self) -> None:
        found = fit(samples(cost_of("all_reduce", 4), 20.0, 3.0, sizes=(0, *SIZES)))
        assert found.residuals[0].predicted_us == pytest.approx(120.0)


class TestGoodness:
    def test_a_change_of_protocol_is_said(self) -> None:
        cost = cost_of("all_gather", 8)
        small, large = samples(cost, 3.0, 2.0, rounds=30, noise=0.03), samples(cost, 9.0, 40.0, rounds=30, noise=0.03, seed=1)
        mixed = small.latencies_us[:6] + large.latencies_us[6:]
        found = fit(replace(small, latencies_us=mixed))
        assert found.verdict == "misfit"
        assert "two lines describe the times much better" in found.reasons[0]
        first, second = found.goodness.pieces
        assert (first.high_bytes, second.low_bytes) == (SIZES[5], SIZES[6])
        assert second.bandwidth_gb_s == pytest.approx(40.0, rel=0.2)

    def test_a_straight_line_is_not_split(self) -> None:
        for seed in range(20):
            found = fit(samples(cost_of("all_gather", 8), 3.0, 20.0, rounds=30, noise=0.1, seed=seed), statistic="median", replicates=100)
            assert found.verdict == "fits", found.reasons
            assert found.goodness.pieces == ()

    def test_too_small_sizes_do_not_determine_the_bandwidth(self) -> None:
        found = fit(samples(cost_of("all_reduce", 4), 100.0, 50.0, rounds=30, noise=0.1, sizes=(64, 128, 256, 512, 1024)))
        assert found.verdict == "inconclusive"
        assert any("larger sizes" in r for r in found.reasons)

    def test_too_large_sizes_do_not_determine_the_latency(self) -> None:
        found = fit(samples(cost_of("all_reduce", 4), 1.0, 1.0, rounds=30, noise=0.1, sizes=tuple(1 << i for i in range(24, 30))))
        assert found.verdict == "inconclusive"
        assert any("smaller sizes" in r for r in found.reasons)

    def test_scatter_is_inconclusive(self) -> None:
        found = fit(samples(cost_of("all_reduce", 2), 60.0, 3.0, rounds=20, noise=1.5))
        assert found.verdict == "inconclusive"
        assert any("scatter too much" in r for r in found.reasons)
        few = fit(samples(cost_of("all_reduce", 2), 60.0, 3.0, rounds=3, noise=1.5))
        assert few.statistic == "min"
        assert any("second fastest" in r for r in few.reasons)

    def test_a_machine_that_slows_down_is_inconclusive(self) -> None:
        made = samples(cost_of("all_reduce", 2), 60.0, 3.0, rounds=40, noise=0.02)
        slower = tuple(v * np.repeat([1.0, 1.6], 20) for v in made.latencies_us)
        found = fit(replace(made, latencies_us=slower), statistic="median")
        assert found.verdict == "inconclusive"
        assert any("second half of the rounds is +60%" in r for r in found.reasons)


def test_the_same_samples_give_the_same_draws() -> None:
    made = samples(cost_of("all_reduce", 4), 20.0, 3.0, rounds=25, noise=0.1)
    a, b, c = fit(made), fit(made), fit(made, seed=8)
    assert (a.terms.draws == b.terms.draws).all()
    assert not (a.terms.draws == c.terms.draws).all()
    assert a.statistic == "p10"


def test_sizes_with_different_repetitions_are_resampled_each(tmp_path: Path) -> None:
    made = samples(cost_of("all_reduce", 4), 20.0, 3.0, rounds=30, noise=0.1)
    uneven = replace(made, latencies_us=(*made.latencies_us[:-1], made.latencies_us[-1][:25]))
    found = fit(uneven, statistic="median")
    assert found.uncertainty == "repetitions"
    assert 20.0 in found.alpha_interval_us and 3.0 in found.bandwidth_interval_gb_s


def test_many_repetitions_do_not_need_much_memory() -> None:
    import tracemalloc

    made = samples(cost_of("all_reduce", 4), 20.0, 3.0, rounds=50_000, noise=0.1, sizes=SIZES[::4])
    tracemalloc.start()
    try:
        found = fit(made, statistic="median", replicates=100)
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
    assert found.alpha_us == pytest.approx(20.0, rel=0.01)


def test_the_simulator_repeats_the_fit() -> None:
    found = fit(samples(cost_of("all_reduce", 8), 4.0, 25.0))
    backend = found.backend("fabric")
    assert (backend.label, backend.bandwidth_gbps, backend.latency_floor_us) == (
        "fabric", pytest.approx(200.0, rel=1e-6), pytest.approx(4.0, rel=1e-6))  # fmt: skip
    assert found.backend().label == "synthetic: all_reduce on 8 ranks, a generator"
    trace = lab.samples.tp8_decode().filter(op="all_reduce", phase="decode")
    a = lab.simulate(trace, backend, model="alpha-beta").metrics
    b = lab.simulate(trace, model=found.model()).metrics
    assert a == b
    size = int(np.median(trace.size_bytes))
    alone = lab.simulate(trace.take(slice(0, 1)), backend, model="alpha-beta", ablate=["compute_overlap", "arrival_skew"])
    assert alone.metrics["max_us"] == pytest.approx(found.time_us(size), abs=0.001)


def test_what_cannot_be_simulated_is_refused() -> None:
    cost = cost_of("all_reduce", 8, "tree")
    with pytest.raises(RefusedError, match="alpha of a tree"):
        fit(samples(cost, 4.0, 25.0), algorithm="tree").backend()
    flat = SizeSamples("all_reduce", 8, None, (8, 16, 32), tuple(np.array([t]) for t in (9.0, 8.9, 8.8)), "x")
    assert fit(flat).bandwidth_gb_s == float("inf")
    with pytest.raises(RefusedError, match="no cost per byte"):
        fit(flat).model()


class TestFile:
    def test_a_fit_comes_back(self, tmp_path: Path) -> None:
        found = fit(samples(cost_of("all_reduce", 4), 20.0, 3.0, rounds=25, noise=0.1), seed=3)
        write_fit(found, tmp_path / "f.json")
        again = read_fit(tmp_path / "f.json")
        assert fit_document(again) == fit_document(found)
        assert (again.terms.draws == found.terms.draws).all()

    @pytest.mark.parametrize(("path", "value"), [
        (("figures", "alpha_us"), 1.0), (("figures", "verdict"), "misfit"), (("figures", "bandwidth_gb_s"), None),
        (("samples", "ranks"), 5), (("format",), "x"), (("method", "more"), 1), (("samples", "origin"), "guessed"),
        (("method", "replicates"), 10**9),
        (("method", "algorithm"), "star"),
        (("samples", "size_bytes"), [1, 2, 3]),
    ])  # fmt: skip
    def test_a_changed_file_is_refused(self, path: tuple[str, ...], value: object, tmp_path: Path) -> None:
        import json

        document = fit_document(fit(samples(cost_of("all_reduce", 4), 20.0, 3.0)))
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        (tmp_path / "f.json").write_text(json.dumps(document))
        with pytest.raises(FormatError, match=r"f\.json"):
            read_fit(tmp_path / "f.json")
