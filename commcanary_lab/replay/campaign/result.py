"""A finished campaign: its decision, its criteria and its runs, for a notebook or a page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from commcanary_lab._shown import Shown
from commcanary_lab.errors import FormatError
from commcanary_lab.replay.campaign.manifest import DECISION, Manifest
from commcanary_lab.replay.campaign.outcome import Finding, Outcome, RankingLine, RunLine
from commcanary_lab.replay.campaign.preregistration import Preregistration
from commcanary_lab.replay.campaign.record import Record, read_record
from commcanary_lab.replay.campaign.verify import CampaignCheck, verify_campaign
from commcanary_lab.replay.result import Replay
from commcanary_lab.replay.spec import read_document

__all__ = ["Campaign", "CriterionRow", "read_campaign"]


@dataclass(frozen=True)
class CriterionRow:
    """A criterion as a table shows it; figures are text with their units.

    Parameters
    ----------
    name, metric, boundary : str
        What was asked.
    value, interval, spread : str
        What came of it; empty where there is none.
    verdict, reason : str
        The answer.
    required : bool
        Whether it takes part in the decision.
    """

    name: str
    metric: str
    boundary: str
    value: str
    interval: str
    spread: str
    verdict: str
    reason: str
    required: bool

    @classmethod
    def of(cls, f: Finding) -> CriterionRow:
        """Return the row of a finding.

        Examples
        --------
        >>> f = Finding(name="saves", metric="cycle_us", unit="us", boundary=">= 1,000", verdict="pass", value=1530.25, low=1490, high=1601)
        >>> CriterionRow.of(f).value, CriterionRow.of(f).interval
        ('1,530 us', '1,490 to 1,601')
        """
        value = "" if f.value is None else f"{f.value:,.4g}" if abs(f.value) < 1000 else f"{f.value:,.0f}"
        if value and f.total is not None:
            value += f" of {f.total:,}"
        interval = "" if f.low is None or f.high is None else f"{_figure(f.low)} to {_figure(f.high)}"
        spread = "" if f.spread is None else f"{f.spread:.1%}"
        told = f"{value} {f.unit}".strip() if value else ""
        return cls(f.name, f.metric, f.boundary, told, interval, spread, f.verdict, f.reason, f.required)


def _figure(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


@dataclass(frozen=True, eq=False)
class Campaign(Shown):
    """A campaign with its decision.

    Attributes
    ----------
    record : Record
        What its directory says.
    outcome : Outcome
        What was decided when it ended.
    """

    record: Record
    outcome: Outcome

    @property
    def directory(self) -> Path:
        """The evidence."""
        return self.record.directory

    @property
    def manifest(self) -> Manifest:
        """The identity."""
        return self.record.manifest

    @property
    def asked(self) -> Preregistration:
        """What was asked."""
        return self.record.asked

    @property
    def decision(self) -> str:
        """``pass``, ``fail``, ``inconclusive`` or ``incomparable``."""
        return self.outcome.decision

    @property
    def exit_code(self) -> int:
        """What the command line exits with."""
        return self.outcome.exit_code

    @property
    def runs(self) -> tuple[RunLine, ...]:
        """Runs that took place."""
        return self.outcome.runs

    @property
    def replays(self) -> Mapping[int, Replay]:
        """The same with their raw samples, by number; read when asked for."""
        return self.record.replays

    @property
    def agreement(self) -> tuple[RankingLine, ...]:
        """Rankings against the reference."""
        return self.outcome.agreement

    @cached_property
    def criteria(self) -> tuple[CriterionRow, ...]:
        """The criteria table."""
        return tuple(CriterionRow.of(f) for f in self.outcome.criteria)

    def verify(self) -> CampaignCheck:
        """Recompute everything from the raw samples."""
        return verify_campaign(self.directory)

    def __repr__(self) -> str:
        o = self.outcome
        return f"Campaign({o.name!r}: {o.decision}, {o.reason}; {len(o.runs)} of {o.planned} runs)"

    def _repr_html_(self) -> str:
        o = self.outcome
        head = ("criterion", "what", "boundary", "value", "interval", "spread", "verdict", "reason")
        rows = [(r.name, r.metric, r.boundary, r.value, r.interval, r.spread, r.verdict, r.reason) for r in self.criteria]
        text = f"<p><b>Campaign</b> {escape(o.name)}: <b>{escape(o.decision)}</b>, {escape(o.reason)}</p>"
        text += f"<p>{escape(o.question)}</p>" + _table(head, rows)
        for f in o.factors:
            text += (
                f"<p>{escape(f.rate)}: {f.control_rate:,.2f} to {f.candidate_rate:,.2f} per second ({f.change_pct:+.2f} %); "
                f"yield per cycle {f.per_cycle_pct:+.2f} %, cycle time {f.cycle_pct:+.2f} %</p>"
            )
        if o.agreement:
            lines = [
                (a.ranking, a.source, f"{a.agreeing} of {a.pairs}", "" if a.tau_b is None else f"{a.tau_b:.3f}",
                 *(str(len(pairs)) for pairs in (a.false_positives, a.false_negatives, a.inversions)))
                for a in o.agreement
            ]  # fmt: skip
            named = f"against {o.agreement[0].reference}"
            text += _table((named, "source", "pairs agree", "tau-b", "false positives", "false negatives", "inversions"), lines)
        ran = "; ".join(dict.fromkeys(r.ran_on for r in o.runs))
        return f"{text}<p>{len(o.runs)} of {o.planned} runs, measured; {escape(ran)}. Evidence: {escape(str(self.directory))}</p>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return "<table><tr>" + "".join(f"<th>{escape(h)}</th>" for h in head) + f"</tr>{cells}</table>"


def read_campaign(directory: str | os.PathLike[str]) -> Campaign:
    """Read the evidence of a campaign; `Campaign.verify` recomputes it.

    Raises
    ------
    FormatError
        If it is not the directory of a campaign, or has no decision.
    """
    record = read_record(directory)
    if not (record.directory / DECISION).exists():
        what = "has no decision: the campaign is running, or its process was killed"
        raise FormatError(what, file=str(record.directory), remedy="wait for it, or run it again into a new directory")
    return Campaign(record, read_document(record.directory / DECISION, Outcome))
