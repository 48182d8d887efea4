"""The rankings of a campaign in rows: what each says of every setting and of every pair, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from commcanary_lab.errors import RefusedError
from commcanary_lab.replay.calibration.resample import Interval, resampled_rounds
from commcanary_lab.replay.campaign.metrics import run_values
from commcanary_lab.replay.campaign.outcome import RankingLine
from commcanary_lab.replay.campaign.preregistration import Agreement, Criterion
from commcanary_lab.replay.campaign.result import Campaign
from commcanary_lab.replay.result import Replay

__all__ = ["MethodRow", "PairRow", "decide", "method_rows", "pair_rows", "ranked_replays", "wanted"]


@dataclass(frozen=True)
class MethodRow:
    """One way to rank the settings of a campaign.

    Parameters
    ----------
    name : str
        The ranking.
    origin : str
        ``measured``, or where the figures come from.
    values_us : dict of str to float
        Per setting; the median of the repetitions where it is measured.
    intervals_us : dict of str to Interval
        Of that median; empty where it is no measurement.
    repetitions_us : dict of str to tuple of float
        What the repetitions said; empty where it is no measurement.
    line : RankingLine, optional
        Agreement with the reference; None for the reference itself.
    cycle_seconds : float, optional
        Time of one cycle on every setting, summed: what replaying it once costs after the ranks have started.
    run_seconds : float, optional
        Wall time of all runs, start of the ranks included.
    program_bytes : int, optional
        Size of the program's file.
    """

    name: str
    origin: str
    values_us: Mapping[str, float]
    intervals_us: Mapping[str, Interval]
    repetitions_us: Mapping[str, tuple[float, ...]]
    line: RankingLine | None = None
    cycle_seconds: float | None = None
    run_seconds: float | None = None
    program_bytes: int | None = None

    @property
    def measured(self) -> bool:
        """Whether the figures come from runs of the campaign."""
        return bool(self.repetitions_us)

    @property
    def spread(self) -> float | None:
        """Largest coefficient of variation of the repetitions of a setting; None with fewer than two."""
        of = [np.array(v) for v in self.repetitions_us.values() if len(v) > 1]
        return max((float(v.std(ddof=1) / v.mean()) for v in of), default=None)


@dataclass(frozen=True)
class PairRow:
    """What every ranking says of one pair of settings.

    Parameters
    ----------
    left, right : str
        The settings.
    reference : str
        Name of the ranking that the others are compared with.
    decisions : dict of str to str
        ``left``, ``right`` (the better one) or ``tie``, by ranking.
    sure : bool
        The reference's intervals decide the pair as its medians do: whichever ends of the two are compared.
    """

    left: str
    right: str
    reference: str
    decisions: Mapping[str, str]
    sure: bool

    def outcome(self, method: str) -> str:
        """Return how a ranking stands to the reference: ``agree``, ``inverted``, ``false positive`` or ``false negative``.

        Examples
        --------
        >>> row = PairRow("a", "b", "job", {"job": "left", "canary": "left", "isolated": "right", "model": "tie"}, True)
        >>> [row.outcome(m) for m in ("canary", "isolated", "model")]
        ['agree', 'inverted', 'false negative']
        """
        job, own = self.decisions[self.reference], self.decisions[method]
        if job == own:
            return "agree"
        if job == "tie":
            return "false positive"
        return "false negative" if own == "tie" else "inverted"


def decide(left: float, right: float, tie_fraction: float) -> str:
    """Return which of two times is better: ``left``, ``right``, or ``tie`` within a share of the smaller.

    Examples
    --------
    >>> decide(1.0, 1.04, 0.05), decide(1.0, 1.06, 0.05), decide(2.0, 1.0, 0.05)
    ('tie', 'left', 'right')
    """
    if abs(left - right) <= tie_fraction * min(left, right):
        return "tie"
    return "left" if left < right else "right"


def wanted(campaign: Campaign) -> Agreement:
    """Return what a campaign asks of its rankings.

    Raises
    ------
    RefusedError
        If it asks nothing of rankings.
    """
    if campaign.asked.agreement is None:
        raise RefusedError(f"the campaign {campaign.asked.name!r} ranks nothing", remedy="open one with an [agreement]")
    return campaign.asked.agreement


def ranked_replays(campaign: Campaign) -> dict[str, dict[str, list[Replay]]]:
    """Return the runs of each measured ranking and setting, by repetition, where all of them took place."""
    out: dict[str, dict[str, list[Replay]]] = {}
    where = {name: (m, s) for m, of in campaign.asked.rankings().items() for s, name in of.items()}
    for planned in campaign.manifest.order:
        if planned.configuration in where and planned.run in campaign.replays:
            method, setting = where[planned.configuration]
            out.setdefault(method, {}).setdefault(setting, []).append(campaign.replays[planned.run])
    return out


def method_rows(campaign: Campaign) -> tuple[MethodRow, ...]:
    """Return the rankings of a campaign, the reference first, then the measured ones, then the predictions.

    Raises
    ------
    RefusedError
        If it ranks nothing, or has not run far enough to rank.
    """
    asked, agreement = campaign.asked, wanted(campaign)
    lines = {line.ranking: line for line in campaign.agreement}
    if not lines:
        raise RefusedError(f"no repetition of {asked.name!r} is complete", remedy="run the campaign to its end")
    replays = ranked_replays(campaign)
    settings = tuple(asked.rankings()[agreement.reference])
    names = [agreement.reference, *(n for n in replays if n != agreement.reference)]
    rows = [_measured(campaign, name, settings, replays[name], lines.get(name)) for name in names]
    rows += [MethodRow(x.ranking, x.source, dict(zip(x.settings, x.values, strict=True)), {}, {}, x)
             for x in lines.values() if x.run_seconds is None]  # fmt: skip
    return tuple(rows)


def _measured(
    campaign: Campaign, name: str, settings: Sequence[str], replays: Mapping[str, list[Replay]], line: RankingLine | None
) -> MethodRow:
    asked, ask = campaign.asked, Criterion(name="", metric=wanted(campaign).metric)
    complete = min(len(replays[s]) for s in settings)
    repetitions = {s: tuple(float(run_values(r, ask)[0]) for r in replays[s][:complete]) for s in settings}
    drawn = resampled_rounds(complete, asked.resamples, f"cycles:{name}")
    intervals = {s: Interval.of(np.median(np.array(v)[drawn], axis=1), asked.confidence) for s, v in repetitions.items()}
    program = campaign.manifest.programs[asked.program_of(asked.configuration(asked.rankings()[name][settings[0]]))]
    cycles = sum(float(np.median([np.median(r.cycle_ns) for r in replays[s]])) for s in settings) / 1e9
    wall = sum(r.state.seconds for s in settings for r in replays[s])
    size = (campaign.directory / program.file).stat().st_size
    medians = {s: float(np.median(v)) for s, v in repetitions.items()}
    return MethodRow(name, "measured", medians, intervals, repetitions, line, cycles, wall, size)


def pair_rows(rows: Sequence[MethodRow], tie_fraction: float) -> tuple[PairRow, ...]:
    """Return what every ranking says of every pair.

    Parameters
    ----------
    rows : sequence of MethodRow
        The reference first.
    tie_fraction : float
        Settings tie where they differ by no more than this share of the smaller.
    """
    reference = rows[0]
    out = []
    for a, b in combinations(reference.values_us, 2):
        decisions = {m.name: decide(m.values_us[a], m.values_us[b], tie_fraction) for m in rows}
        x, y = reference.intervals_us[a], reference.intervals_us[b]
        ends = {decide(p, q, tie_fraction) for p, q in ((x.low, y.high), (x.high, y.low))}
        out.append(PairRow(a, b, reference.name, decisions, ends == {decisions[reference.name]}))
    return tuple(out)
