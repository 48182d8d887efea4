"""The decision of a campaign, from its raw samples and the rule that was written down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commcanary_lab.replay.calibration.resample import Interval
from commcanary_lab.replay.calibration.worked_example import RateParts, factor_rate
from commcanary_lab.replay.campaign.criteria import Runs, find
from commcanary_lab.replay.campaign.freeze import audit_of_program, audit_text, open_program_file, program_of
from commcanary_lab.replay.campaign.metrics import AGREEMENT_METRICS
from commcanary_lab.replay.campaign.outcome import Decided, FactorsLine, Finding, Outcome, RunLine
from commcanary_lab.replay.campaign.preregistration import Configuration, Criterion, Decision, Preregistration, Rate
from commcanary_lab.replay.campaign.rankings import find_ranking, ranking_lines
from commcanary_lab.replay.campaign.record import Record
from commcanary_lab.replay.result import Replay

__all__ = ["audit_of_run", "decide", "evaluate", "run_line"]


def evaluate(record: Record) -> Outcome:
    """Return what came of a campaign; nothing is taken from an earlier evaluation."""
    asked, manifest = record.asked, record.manifest
    order = {p.run: p for p in manifest.order}
    audits, disputed = _audits(record)
    done: dict[str, dict[int, Replay]] = {}
    for number, replay in record.replays.items():
        if replay.status == "done":
            done.setdefault(order[number].configuration, {})[order[number].round] = replay
    runs = Runs(asked, manifest.sha256, done, disputed)
    lines = ranking_lines(record, runs) if asked.agreement is not None else ()
    findings = [_find(c, runs, lines) for c in asked.criteria]
    probes = [_probe_finding(c, record, disputed) for c in asked.configurations if c.probe is not None]
    wrong = next(((n, r.probe) for n, r in record.replays.items() if r.probe.status == "fail"), None)
    decided = _decision(record, findings, probes, audits)
    return Outcome(
        campaign=manifest.sha256, name=asked.name, question=asked.question, decision=decided.decision, reason=decided.reason,
        failure_boundary=wrong[1].boundary if wrong else None, failure_sample=wrong[1].sample if wrong else None,
        failure_run=wrong[0] if wrong else None, failure_ranks=wrong[1].ranks if wrong else (), stopped=record.stop,
        planned=len(manifest.order), runs=tuple(run_line(record, n) for n in record.replays), criteria=(*probes, *findings),
        audits=tuple(audits), factors=tuple(f for rate in asked.rates for f in _factors(rate, runs)), agreement=lines,
    )  # fmt: skip


def run_line(record: Record, number: int) -> RunLine:
    """Return what a run says in short."""
    replay = record.replays[number]
    planned = next(p for p in record.manifest.order if p.run == number)
    return RunLine(
        run=number, round=planned.round, configuration=planned.configuration, status=replay.status, reason=replay.state.reason,
        ran_on=replay.ran_on, probe=replay.probe.status, iterations=replay.iterations, metrics=dict(replay.metrics),
    )  # fmt: skip


def audit_of_run(asked: Preregistration, configuration: Configuration, replay: Replay) -> list[str]:
    """Return where the counts of a run are not the pinned ones, or not those of its program."""
    out = [f"{configuration.name}, {text}" for text in replay.count_differences]
    for audit in asked.audits:
        if audit.configurations and configuration.name not in audit.configurations:
            continue
        for marker in replay.markers:
            if marker is None or marker.status != "pass":
                continue
            if text := audit_text(configuration.name, marker.rank, marker.counts, audit.counts):
                out.append(text)
    return out


def _audits(record: Record) -> tuple[list[str], dict[str, str]]:
    """All differences of counts, and the first of each configuration: of the programs, then of the runs."""
    found: list[tuple[str, str]] = []
    if record.asked.audits:
        sources = {name: open_program_file(record.directory / p.file) for name, p in record.manifest.programs.items()}
        for c in record.asked.configurations:
            program = program_of(record.asked, sources, c)
            found += [(c.name, text) for text in audit_of_program(record.asked, c, program)]
    order = {p.run: p for p in record.manifest.order}
    for number, replay in record.replays.items():
        c = record.configuration(order[number])
        found += [(c.name, text) for text in audit_of_run(record.asked, c, replay)]
    disputed: dict[str, str] = {}
    for name, text in found:
        disputed.setdefault(name, f"counts differ: {text}")
    return list(dict.fromkeys(text for _, text in found)), disputed


def _find(criterion: Criterion, runs: Runs, lines: Sequence[object]) -> Finding:
    if criterion.metric in AGREEMENT_METRICS:
        return find_ranking(criterion, runs, lines)  # type: ignore[arg-type]
    return find(criterion, runs)


def _probe_finding(c: Configuration, record: Record, disputed: dict[str, str]) -> Finding:
    """The criterion that every probe has without being asked: all data are right, in every run."""
    order = {p.run: p for p in record.manifest.order}
    probes = [(n, r.probe) for n, r in record.replays.items() if order[n].configuration == c.name]
    compared, mismatches = sum(p.boundaries for _, p in probes), sum(p.mismatches for _, p in probes)
    passed = sum(p.status == "pass" for _, p in probes)
    wrong = next(((n, p) for n, p in probes if p.status == "fail"), None)
    if wrong is not None:
        verdict, reason = "fail", f"run {wrong[0]}: {wrong[1].text}"
    elif c.name in disputed:
        verdict, reason = "incomparable", disputed[c.name]
    elif passed == record.asked.repetitions:
        verdict, reason = "pass", ""
    else:
        verdict, reason = "inconclusive", f"{passed} of {record.asked.repetitions} probes are complete"
    return Finding(
        name=f"probe: {c.name}", metric=f"outputs_equal, count, {c.name}", unit="outputs", boundary="all", verdict=verdict, reason=reason,  # type: ignore[arg-type]
        value=float(compared - mismatches) if probes else None, total=compared if probes else None, repetitions=passed,
    )  # fmt: skip


def _factors(rate: Rate, runs: Runs) -> list[FactorsLine]:
    sides = (runs.asked.control, runs.asked.candidate)
    rounds = runs.rounds(sides)
    cycles = [np.array([r.metrics.get("cycle_p50_us", np.nan) for r in runs.of(s, rounds)]) for s in sides]
    if not rounds or not all(np.isfinite(c).all() and (c > 0).all() for c in cycles):
        return []
    a, b = (float(np.median(c)) for c in cycles)
    yields = [rate.per_cycle[s] for s in sides]
    change = factor_rate(RateParts(yields[0], a / 1000), RateParts(yields[1], b / 1000))
    interval = None
    if len(rounds) > 1:
        drawn = runs.drawn(f"rate {rate.name}", len(rounds))
        draws = np.log(np.median(cycles[0][drawn], axis=1) / np.median(cycles[1][drawn], axis=1))
        interval = Interval.of(100 * np.expm1(draws), runs.asked.confidence)
    return [FactorsLine(
        rate=rate.name, control_per_cycle=yields[0], candidate_per_cycle=yields[1], control_cycle_us=a, candidate_cycle_us=b,
        control_rate=change.before.per_second, candidate_rate=change.after.per_second, change_pct=100 * change.change,
        per_cycle_pct=float(100 * np.expm1(change.log_emitted)), cycle_pct=float(100 * np.expm1(change.log_cycle)),
        cycle_share=change.cycle_share,
        low=interval.low if interval else None, high=interval.high if interval else None,
    )]  # fmt: skip


def _decision(record: Record, findings: Sequence[Finding], probes: Sequence[Finding], audits: Sequence[str]) -> Decided:
    """Put everything together; what makes the question moot comes before the answer."""
    stop, order = record.stop, record.manifest.order
    if audits:
        return Decided(decision="incomparable", reason=f"counts differ: {audits[0]}")
    if stop is not None and stop.kind == "identity":
        return Decided(decision="incomparable", reason=stop.reason)
    wrong = next((p for p in probes if p.verdict == "fail"), None)
    if wrong is not None:
        return Decided(decision="fail", reason=f"{wrong.name.removeprefix('probe: ')}, {wrong.reason}")
    if stop is not None:
        return Decided(decision="inconclusive", reason=stop.reason)
    if len(record.replays) < len(order) or any(r.status != "done" for r in record.replays.values()):
        ended = sum(r.status == "done" for r in record.replays.values())
        return Decided(decision="inconclusive", reason=f"{ended} of {len(order)} runs ended well")
    return decide(record.asked.decision, findings, probes)


def decide(rule: Decision, findings: Sequence[Finding], probes: Sequence[Finding] = ()) -> Decided:
    """Return the decision on findings by the preregistered rule; every probe has to pass besides.

    Something incomparable makes the whole incomparable. With p passes and f failures of n criteria, of which k have to pass, it is a pass
    when p >= k, a fail when n - f < k, and otherwise inconclusive.

    Examples
    --------
    >>> def verdicts(*words):
    ...     return [Finding(name=w, metric="", unit="", boundary="", verdict=w) for w in words]
    >>> decide(Decision(rule="all"), verdicts("pass", "inconclusive")).decision
    'inconclusive'
    >>> decide(Decision(rule="any"), verdicts("pass", "fail")).decision
    'pass'
    """
    counted = [f for f in findings if f.required]
    for p in (*probes, *counted):
        if p.verdict == "incomparable":
            return Decided(decision="incomparable", reason=f"{p.name}: {p.reason}")
    n = len(counted)
    needed = {"all": n, "any": min(1, n), "at_least": rule.minimum or 0}[rule.rule]
    passed, failed = (sum(f.verdict == word for f in counted) for word in ("pass", "fail"))
    unsure = next((p for p in (*probes, *counted) if p.verdict == "inconclusive"), None)
    lost = next((f for f in (*probes, *counted) if f.verdict == "fail"), None)
    if any(p.verdict == "fail" for p in probes) or n - failed < needed:
        assert lost is not None
        return Decided(decision="fail", reason=_said(lost))
    if passed >= needed and all(p.verdict == "pass" for p in probes):
        told = f"{passed} of {n} criteria pass" if n else "every byte right"
        return Decided(decision="pass", reason=f"{told}, {needed} have to" if n else told)
    assert unsure is not None
    return Decided(decision="inconclusive", reason=_said(unsure))


def _said(finding: Finding) -> str:
    value = "" if finding.value is None else f"{finding.value:,.6g} {finding.unit}".rstrip()
    told = f"{value} against {finding.boundary}".strip() if value else ""
    return f"{finding.name}: " + "; ".join(filter(None, (told, finding.reason)))
