"""Rankings of a campaign's settings, measured and predicted, against the one that is the reference."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from commcanary_lab.replay.calibration.resample import Interval
from commcanary_lab.replay.campaign.agreement import PairDecision, RankingAgreement, agree
from commcanary_lab.replay.campaign.criteria import Runs, boundary_text, bounds_of, environment, verdict_of
from commcanary_lab.replay.campaign.metrics import run_values
from commcanary_lab.replay.campaign.outcome import Finding, RankingLine
from commcanary_lab.replay.campaign.preregistration import Criterion
from commcanary_lab.replay.campaign.record import Record

__all__ = ["find_ranking", "ranking_lines"]

FloatArray = npt.NDArray[np.float64]


def ranking_lines(record: Record, runs: Runs) -> tuple[RankingLine, ...]:
    """Return every ranking against the reference; nothing where no repetition of all of them is complete."""
    asked, wanted = record.asked, record.asked.agreement
    assert wanted is not None
    measured = asked.rankings()
    rounds = runs.rounds([name for settings in measured.values() for name in settings.values()])
    if not rounds:
        return ()
    ask = Criterion(name="", metric=wanted.metric)
    values: dict[str, dict[str, FloatArray]] = {
        ranking: {s: np.array([run_values(r, ask)[0] for r in runs.of(name, rounds)]) for s, name in settings.items()}
        for ranking, settings in measured.items()
    }
    if not all(np.isfinite(v).all() for of in values.values() for v in of.values()):
        return ()
    reference = values[wanted.reference]
    sources = dict.fromkeys(measured, "measured")
    for p in wanted.predictions:
        values[p.name], sources[p.name] = {s: np.array([p.values[s]]) for s in reference}, p.source
    out = []
    costs = {name: _costs(record, runs, list(settings.values()), rounds) for name, settings in measured.items()}
    for name in values:
        if name == wanted.reference:
            continue
        found = agree(
            name, {s: values[name][s] for s in reference}, reference, against=wanted.reference, source=sources[name],
            tie_fraction=wanted.tie_fraction, confidence=asked.confidence, resamples=asked.resamples, seed=f"{runs.seed}:ranking",
        )  # fmt: skip
        out.append(_line(found, costs.get(name), costs[wanted.reference]))
    return tuple(out)


def _costs(record: Record, runs: Runs, names: Sequence[str], rounds: Sequence[int]) -> tuple[float, int]:
    """Seconds that the runs of a ranking took, and bytes of its programs."""
    seconds = sum(r.state.seconds for name in names for r in runs.of(name, rounds))
    programs = sorted({record.asked.program_of(record.asked.configuration(n)) for n in names})
    sizes = [(record.directory / record.manifest.programs[p].file).stat().st_size for p in programs]
    return seconds, sum(sizes)


def _line(found: RankingAgreement, cost: tuple[float, int] | None, reference: tuple[float, int]) -> RankingLine:
    def told(pairs: tuple[PairDecision, ...]) -> tuple[str, ...]:
        return tuple(f"{p.left} / {p.right}: {p.reference}, {found.name} says {p.other}" for p in pairs)

    a, t = found.agreement_interval, found.tau_interval
    return RankingLine(
        ranking=found.name, reference=found.reference, source=found.source, settings=found.settings, values=found.values,
        reference_values=found.reference_values, pairs=len(found.pairs), agreeing=found.agreeing, pair_agreement=found.pair_agreement,
        tau_b=found.tau_b, agreement_low=a.low if a else None, agreement_high=a.high if a else None, tau_low=t.low if t else None,
        tau_high=t.high if t else None, false_positives=told(found.false_positives), false_negatives=told(found.false_negatives),
        inversions=told(found.inversions), run_seconds=cost[0] if cost else None, program_bytes=cost[1] if cost else None,
        reference_run_seconds=reference[0], reference_program_bytes=reference[1],
    )  # fmt: skip


def find_ranking(criterion: Criterion, runs: Runs, lines: Sequence[RankingLine]) -> Finding:
    """Return the finding of a criterion on a ranking."""
    asked = runs.asked
    sides = [name for settings in asked.rankings().values() for name in settings.values()]
    rounds = runs.rounds(sides)
    blank = Finding(
        name=criterion.name, metric=f"{criterion.metric}, {criterion.ranking}", unit="", boundary=boundary_text(criterion),
        verdict="inconclusive", repetitions=len(rounds), required=criterion.required,
    )  # fmt: skip
    against = next((runs.disputed[s] for s in sides if s in runs.disputed), "")
    if not against and len({environment(r) for s in sides for r in runs.of(s, rounds)}) > 1:
        against = "runs took place on different machines or versions"
    if against:
        return msgspec.structs.replace(blank, verdict="incomparable", reason=against)
    line = next((x for x in lines if x.ranking == criterion.ranking), None)
    if line is None:
        return msgspec.structs.replace(blank, reason="no repetition is complete")
    value, interval = _of_line(line, criterion.metric)
    if value is None:
        return msgspec.structs.replace(blank, reason="one of the rankings is all ties")
    blank = msgspec.structs.replace(
        blank, value=value, total=None if criterion.metric in ("pair_agreement", "kendall_tau_b") else line.pairs,
        low=interval.low if interval else None, high=interval.high if interval else None,
    )  # fmt: skip
    if len(rounds) < asked.repetitions:
        return msgspec.structs.replace(blank, reason=f"{len(rounds)} of {asked.repetitions} repetitions are complete")
    if interval is None and criterion.metric in ("pair_agreement", "kendall_tau_b"):
        return msgspec.structs.replace(blank, reason="there is no interval")
    verdict = verdict_of(interval or Interval(value, value), bounds_of(criterion))
    reason = "the interval crosses the boundary" if verdict == "inconclusive" else ""
    return msgspec.structs.replace(blank, verdict=verdict, reason=reason)


def _of_line(line: RankingLine, metric: str) -> tuple[float | None, Interval | None]:
    if metric == "pair_agreement":
        return line.pair_agreement, None if line.agreement_low is None else Interval(line.agreement_low, line.agreement_high or 0.0)
    if metric == "kendall_tau_b":
        return line.tau_b, None if line.tau_low is None else Interval(line.tau_low, line.tau_high or 0.0)
    return float(len(getattr(line, metric))), None
