"""Compare two reports, or two measured traces, under a policy."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import overload

from commcanary_lab.errors import Problem, RefusedError, UsageError
from commcanary_lab.review.comparison import Comparison, Incompatibility, percent, worst
from commcanary_lab.review.evaluate import Evaluation, evaluate
from commcanary_lab.review.measured import MeasuredComparison, compare_measured
from commcanary_lab.review.policy import Policy, load_policy
from commcanary_lab.simulate.report import Report
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.trace.model import Trace

__all__ = ["compare"]

_Policy = Policy | str | os.PathLike[str] | None


@overload
def compare(
    base: Report | ReportFile, candidate: Report | ReportFile, policy: _Policy = None, *, allow_incompatible: bool = False
) -> Comparison: ...


@overload
def compare(base: Trace, candidate: Trace, policy: _Policy = None) -> MeasuredComparison: ...


def compare(
    base: Report | ReportFile | Trace,
    candidate: Report | ReportFile | Trace,
    policy: _Policy = None,
    *,
    allow_incompatible: bool = False,
) -> Comparison | MeasuredComparison:
    """Compare two reports, or two measured traces: what changed, where, and whether the policy allows it.

    The backends of two reports may differ in everything that describes hardware and software (bandwidth, latency floor, compute
    pressure, overlap efficiency). Workload, cost model, ablations, assumptions, iterations and seed must be the same.

    Parameters
    ----------
    base, candidate : Report, ReportFile or Trace
        Before and after; two measured traces are compared by `compare_measured`.
    policy : Policy or path, optional
        The thresholds, or a TOML file with them.
    allow_incompatible : bool
        Compare reports of different workloads or protocols; recorded, and the verdict is at least ``warn``.

    Returns
    -------
    Comparison or MeasuredComparison

    Raises
    ------
    RefusedError
        If the reports are incompatible, or a trace has no measured latency.
    UsageError
        If one is a report and the other a trace.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> compare(lab.simulate(trace), lab.simulate(trace, "high_bandwidth"))
    Comparison(fail: p99 +18.3 %, p95 +19.9 %, median +19.6 %, decode p99 +18.3 %)
    >>> compare(lab.samples.gloo4(), lab.samples.gloo4())
    MeasuredComparison(pass: median 18 unchanged; p95 18 unchanged)
    """
    thresholds = Policy() if policy is None else policy if isinstance(policy, Policy) else load_policy(policy)
    if isinstance(base, Trace) and isinstance(candidate, Trace):
        return compare_measured(base, candidate, thresholds)
    if isinstance(base, Trace) or isinstance(candidate, Trace):
        raise UsageError("one is a report and the other a trace", remedy="give two reports, or two measured traces")
    return _compare_reports(ReportFile.of(base), ReportFile.of(candidate), thresholds, allow_incompatible)


def _compare_reports(a: ReportFile, b: ReportFile, policy: Policy, allow_incompatible: bool) -> Comparison:
    differences = _incompatibilities(a, b)
    if differences and not allow_incompatible:
        remedy = "allow it with --allow-incompatible, or simulate both alike"
        raise RefusedError([Problem(f"the reports are incompatible in {d}", remedy=remedy) for d in differences])
    evaluations = evaluate(a, b, policy)
    verdict = worst((*(e.threshold_result for e in evaluations), *(["warn"] if differences else [])))
    reasons = _reasons(evaluations, differences, policy.warn_fraction)
    return Comparison(verdict, reasons, evaluations, policy, differences, bool(differences), a, b)


def _incompatibilities(a: ReportFile, b: ReportFile) -> tuple[Incompatibility, ...]:
    pairs = {
        "events": (a.events, b.events),
        "workload": (a.workload_sha256[:16], b.workload_sha256[:16]) if a.workload_sha256 != b.workload_sha256 else ("", ""),
        "cost model": (a.model, b.model),
        "ablations": (_listed(a.ablations), _listed(b.ablations)),
        "assumptions": (_assumed(a), _assumed(b)),
        "iterations": (a.backend.iterations, b.backend.iterations),
        "seed": (a.backend.seed, b.backend.seed),
    }
    return tuple(Incompatibility(what, str(x), str(y)) for what, (x, y) in pairs.items() if x != y)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _assumed(report: ReportFile) -> str:
    return _listed([f"{k} = {v:g}" for k, v in sorted(report.assumptions.items())])


def _reasons(evaluations: tuple[Evaluation, ...], differences: tuple[Incompatibility, ...], warn: float) -> tuple[str, ...]:
    """Plain sentences: what fails, then what warns, the whole workload first, then one sentence for each phase and operation."""
    out = [f"The reports are incompatible in {d}; they were compared because that was allowed." for d in differences]
    for result in ("fail", "warn"):
        chosen = [e for e in evaluations if e.threshold_result == result]
        overall = [e for e in chosen if e.scope == "overall" and not e.is_hidden_share]
        verb = "the policy allows" if result == "fail" else f"more than {'half' if warn == 0.5 else f'{100 * warn:g} %'} of the allowed"
        out += [_sentence(e, verb) for e in reversed(overall)]  # p99 first
        out += [_hidden_sentence(e, verb) for e in chosen if e.is_hidden_share]
        parts: dict[tuple[str, str], list[Evaluation]] = defaultdict(list)
        for e in chosen:
            if e.name is not None:
                parts[e.scope, e.name].append(e)
        out += [_part_sentence(scope, name, found, verb) for (scope, name), found in parts.items()]
    zero = [e.label for e in evaluations if e.relative_status == "zero_baseline"]
    if zero:
        out.append(f"The baseline is 0 us for {', '.join(zero)}: no relative change is defined, only the absolute one counts.")
    return tuple(out) or ("Every value is within the policy.",)


def _change(e: Evaluation) -> str:
    rise = "from 0" if e.change is None else f"by {e.change:.1f} %"
    return f"rose {rise}, {e.baseline:,.3f} us to {e.candidate:,.3f} us"


def _limit(e: Evaluation, verb: str) -> str:
    return f"{verb} {e.threshold:g} % and {e.absolute_threshold_us:g} us"


def _sentence(e: Evaluation, verb: str) -> str:
    return f"{e.label} {_change(e)}; {_limit(e, verb)}."


def _hidden_sentence(e: Evaluation, verb: str) -> str:
    return f"The hidden share dropped by {e.absolute_delta:.2f} points, {e.baseline:.2f} % to {e.candidate:.2f} %; {verb} {e.threshold:g}."


def _part_sentence(scope: str, name: str, found: list[Evaluation], verb: str) -> str:
    if found[0].relative_status == "absent":
        side = "the baseline" if found[0].baseline is None else "the candidate"
        return f"{scope.capitalize()} {name} is absent from {side} and was not compared."
    changes = ", ".join(
        f"{e.metric} {percent(e.change) if e.change is not None else f'+{e.absolute_delta:.3f} us'}" for e in reversed(found)
    )
    return f"{scope.capitalize()} {name}: {changes}; {_limit(found[0], verb)}."
