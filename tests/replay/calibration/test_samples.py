"""Samples from tables of nccl-tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.replay.calibration import cost_of, fit, from_table, geometric_sizes
from commcanary_lab.replay.calibration.samples import reduced

HEAD = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"


def table(tmp_path: Path, rows: list[tuple[int, float, float]], name: str = "all_reduce.txt", wrong: int = 0) -> Path:
    """A table of 8 ranks."""
    lines = [
        f"# Collective test starting: {name.removesuffix('.txt')}_perf\n",
        *(f"#  Rank  {i} Group 0 Pid 1 on h device  {i}\n" for i in range(8)),
    ]
    lines.append(HEAD)
    for size, out, own in rows:
        halves = "  ".join(f"{t:.2f}  {size / t / 1e3:.2f}  {1.75 * size / t / 1e3:.2f}  {wrong}" for t in (out, own))
        lines.append(f"  {size}  {size // 4}  float  sum  -1  {halves}\n")
    path = tmp_path / name
    path.write_text("".join(lines))
    return path


def test_a_table_gives_back_the_terms_that_made_it(tmp_path: Path) -> None:
    cost = cost_of("all_reduce", 8)
    sizes = [1 << i for i in range(10, 30, 2)]
    path = table(tmp_path, [(b, cost.steps * 2.5 + cost.wire_bytes(b) / 150e3, cost.steps * 2 + cost.wire_bytes(b) / 100e3) for b in sizes])
    made = from_table(path)
    assert (made.op, made.ranks, made.dtype, made.origin, made.size_bytes) == ("all_reduce", 8, "float", "measured", tuple(sizes))
    out, own = fit(made), fit(from_table(path, in_place=True))
    assert (out.alpha_us, out.bandwidth_gb_s) == (pytest.approx(2.5, rel=1e-3), pytest.approx(150.0, rel=1e-3))
    assert (own.alpha_us, own.bandwidth_gb_s) == (pytest.approx(2.0, rel=1e-3), pytest.approx(100.0, rel=1e-3))
    assert (out.statistic, out.uncertainty, out.verdict) == ("min", "residuals", "fits")


def test_rows_of_one_size_are_repetitions(tmp_path: Path) -> None:
    made = from_table(table(tmp_path, [(64, 9.0, 1.0), (128, 10.0, 1.0), (64, 7.0, 1.0)]))
    assert [v.tolist() for v in made.latencies_us] == [[9.0, 7.0], [10.0]]
    assert not made.in_rounds


def test_what_the_table_does_not_say_is_asked_for(tmp_path: Path) -> None:
    path = table(tmp_path, [(64, 9.0, 1.0)])
    with pytest.raises(UsageError, match="the number of ranks is 8, not 4"):
        from_table(path, ranks=4)
    with pytest.raises(UsageError, match="the operation is all_reduce, not all_gather"):
        from_table(path, op="all_gather")
    nameless = tmp_path / "x.txt"
    nameless.write_text(HEAD + "  64  16  float  sum  -1  9.00  0.01  0.01  0  9.00  0.01  0.01  0\n")
    with pytest.raises(RefusedError, match="does not say its operation; give it with --op"):
        from_table(nameless)
    with pytest.raises(RefusedError, match="does not say its number of ranks; give it with --ranks"):
        from_table(nameless, op="all_reduce")
    assert from_table(nameless, op="all_reduce", ranks=2).ranks == 2


def test_a_test_that_failed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="found wrong results"):
        from_table(table(tmp_path, [(64, 9.0, 1.0)], wrong=3))


def test_published_tables(shared_data: Path) -> None:
    folder = shared_data / "real" / "nccl_tests"
    found = fit(from_table(folder / "all_reduce_perf_2.8_12col_error_na.txt"))
    assert found.cost.ranks == 256
    assert found.bandwidth_gb_s == pytest.approx(71.2, abs=0.1)
    # it is close to the bus bandwidth that the table prints for its largest size
    last = found.samples.latencies_us[-1][0]
    assert found.bandwidth_gb_s == pytest.approx(found.cost.wire_bytes(1 << 30) / last / 1e3, rel=0.05)
    assert found.verdict == "fits"
    with pytest.raises(RefusedError, match="2 sizes say nothing"):
        fit(from_table(folder / "alltoall_perf_structured_pr318.json"))
    with pytest.raises(RefusedError, match="no row has a time"):
        from_table(folder / "alltoall_perf_2.17.8_h100_4gpu.txt")
    few = fit(from_table(folder / "all_reduce_perf_2.20_gb10_2node.txt"))
    assert few.verdict == "inconclusive"


@given(values=st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40))
def test_statistics_lie_inside(values: list[float]) -> None:
    data = np.array(values)
    low, p10, median = (float(reduced(data, s)) for s in ("min", "p10", "median"))
    assert low == min(values)
    assert low <= p10 * (1 + 1e-12) and p10 <= median * (1 + 1e-12) and median <= max(values) * (1 + 1e-12)
    assert median == pytest.approx(np.median(data))
    assert p10 == pytest.approx(np.quantile(data, 0.1, method="median_unbiased"))


def test_sizes() -> None:
    assert geometric_sizes(1024, 1 << 22) == tuple(1 << i for i in range(10, 22 + 1)) or len(geometric_sizes(1024, 1 << 22)) == 12
    found = geometric_sizes(1000, 10**7, points=8, multiple=24)
    assert all(s % 24 == 0 for s in found)
    assert (found[0], len(found)) == (1008, 8)
    ratios = np.diff(np.log(found))
    assert ratios.max() - ratios.min() < 0.05
    for low, high in ((0, 8), (8, 8), (64, 100)):
        with pytest.raises(UsageError):
            geometric_sizes(low, high)
