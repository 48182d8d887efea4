"""How a change adds up over phases and operations: always to the whole, and to the part that changed where only one did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.review import compare
from commcanary_lab.review.comparison import Comparison
from commcanary_lab.review.contributions import MAX_PARTS, contributions
from commcanary_lab.simulate.report_file import ReportFile, SampleParts, parse_report


def constructed(before: list[float], after: list[float], pairs: list[tuple[str, str]]) -> Comparison:
    """A comparison whose reports hold these samples."""
    report = ReportFile.of(lab.simulate(lab.samples.adversarial()))
    parts = SampleParts.of(pairs)
    a, b = (replace(report, exposed_us=np.array(v, np.float64), parts=parts) for v in (before, after))
    return replace(compare(report, report), base=a, candidate=b)


rows = st.lists(
    st.tuples(st.floats(0, 1e4), st.floats(0, 1e4), st.sampled_from("pqr"), st.sampled_from(["a", "b", "c", "d"])), min_size=1, max_size=60
)


@given(rows=rows, metric=st.sampled_from(["median", "p95", "p99", "mean"]))
def test_contributions_sum_up_to_the_change(rows: list[tuple[float, float, str, str]], metric: str) -> None:
    before, after = [r[0] for r in rows], [r[1] for r in rows]
    found = contributions(constructed(before, after, [(r[2], r[3]) for r in rows]), metric)
    assert found is not None
    q = {"median": 0.5, "p95": 0.95, "p99": 0.99}.get(metric)
    ends = [float(np.mean(v)) if q is None else float(np.quantile(v, q)) for v in (before, after)]
    assert [found.before_us, found.after_us] == pytest.approx(ends)
    assert sum(p.delta_us for p in found.parts) == pytest.approx(found.delta_us, abs=1e-6)
    assert sum(p.exposed_us for p in found.parts) == pytest.approx(sum(after) - sum(before), abs=1e-6)
    assert sum(p.samples for p in found.parts) == len(rows)
    assert len(found.parts) <= MAX_PARTS
    assert [p.delta_us for p in found.parts] == sorted((p.delta_us for p in found.parts), reverse=True)


@given(rows=rows)
def test_a_part_that_did_not_change_contributes_nothing(rows: list[tuple[float, float, str, str]]) -> None:
    before = [r[0] for r in rows]
    after = [r[1] if r[3] == "a" else r[0] for r in rows]
    found = contributions(constructed(before, after, [(r[2], r[3]) for r in rows]))
    assert found is not None
    assert all(p.delta_us == 0 for p in found.parts if p.operation not in ("a", ""))


def test_the_mean_is_split_by_plain_arithmetic() -> None:
    found = contributions(constructed([1, 1, 4, 4], [3, 3, 4, 5], [("x", "a"), ("x", "a"), ("y", "a"), ("y", "b")]), "mean")
    assert found is not None
    assert [(p.label, p.delta_us) for p in found.parts] == [("x a", 1.0), ("y b", 0.25), ("y a", 0.0)]


def test_many_parts_become_a_rest() -> None:
    pairs = [("p", f"op{i:02}") for i in range(20)]
    found = contributions(constructed([1.0] * 20, [1.0 + i for i in range(20)], pairs), "mean")
    assert found is not None
    assert len(found.parts) == MAX_PARTS
    rest = next(p for p in found.parts if not p.operation)
    assert (rest.label, rest.samples) == ("everything else", 13)


def test_a_file_with_samples_says_the_same_as_what_was_just_simulated() -> None:
    trace = lab.samples.tp8_decode()
    a, b = lab.simulate(trace), lab.simulate(trace, "congested")
    direct = contributions(compare(a, b))
    files = contributions(compare(*(parse_report(r.to_json(samples=True)) for r in (a, b))))
    assert direct is not None
    assert files is not None
    assert [p.label for p in direct.parts] == [p.label for p in files.parts]
    assert [p.delta_us for p in direct.parts] == pytest.approx([p.delta_us for p in files.parts], abs=0.002)
    assert contributions(compare(*(parse_report(r.to_json()) for r in (a, b)))) is None  # no samples


def test_different_work_is_not_attributed() -> None:
    a, b = lab.simulate(lab.samples.tp8_decode()), lab.simulate(lab.samples.adversarial())
    assert contributions(compare(a, b, allow_incompatible=True)) is None
