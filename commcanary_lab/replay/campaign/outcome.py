"""What came of a campaign: one finding per criterion, one decision. Everything here is recomputed by `verify`."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Decided", "FactorsLine", "Finding", "Outcome", "RankingLine", "RunLine", "Stop", "Verdict"]

Verdict = Literal["pass", "fail", "inconclusive", "incomparable"]


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a criterion says.

    Parameters
    ----------
    name, metric, unit, boundary : str
        The criterion, its boundary in words.
    verdict : str
        ``pass``, ``fail``, ``inconclusive`` or ``incomparable``.
    reason : str
        Why, where it is neither pass nor fail, or where the value does not say it.
    value : float, optional
        What is compared with the boundary; with `every_rank` that of the rank closest to failing.
    low, high : float, optional
        Its interval, where it is measured.
    total : int, optional
        Of how many it is a count.
    per_rank : tuple of float
        Value of each rank, with `every_rank`.
    spread : float, optional
        The largest coefficient of variation of the repetitions of a configuration.
    repetitions : int
        Complete ones.
    required : bool
        Whether it takes part in the decision.
    """

    name: str
    metric: str
    unit: str
    boundary: str
    verdict: Verdict
    reason: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    total: int | None = None
    per_rank: tuple[float, ...] = ()
    spread: float | None = None
    repetitions: int = 0
    required: bool = True


class RunLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run that took place.

    Parameters
    ----------
    run, round, configuration
        As planned.
    status, reason
        How it ended.
    ran_on : str
        Backend, ranks, devices, hosts and versions.
    probe : str
        ``pass``, ``fail``, ``incomplete`` or ``not run``.
    iterations : int
        Measured cycles that all ranks completed.
    metrics : dict of str to float
        Figures of the replay.
    """

    run: int
    round: int
    configuration: str
    status: str
    reason: str
    ran_on: str
    probe: str
    iterations: int
    metrics: dict[str, float]


class FactorsLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rate, taken apart.

    Parameters
    ----------
    rate : str
        Its name.
    control_per_cycle, candidate_per_cycle : float
        What a cycle yields; stated.
    control_cycle_us, candidate_cycle_us : float
        Its time; the median of the repetitions' medians.
    control_rate, candidate_rate : float
        Per second.
    change_pct : float
        Of the rate.
    per_cycle_pct, cycle_pct : float
        What either part would have changed alone.
    cycle_share : float, optional
        Share of the change, as logarithms, that is the cycle time; None where nothing changed.
    low, high : float, optional
        Interval of `cycle_pct`, from pairs of repetitions.
    """

    rate: str
    control_per_cycle: float
    candidate_per_cycle: float
    control_cycle_us: float
    candidate_cycle_us: float
    control_rate: float
    candidate_rate: float
    change_pct: float
    per_cycle_pct: float
    cycle_pct: float
    cycle_share: float | None
    low: float | None = None
    high: float | None = None


class RankingLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A ranking against the reference.

    Parameters
    ----------
    ranking, reference, source : str
        What is compared, and where the ranking comes from.
    settings, values, reference_values : tuple
        Figure of each setting.
    pairs, agreeing : int
        Pairs of settings, and those on which both say the same.
    pair_agreement : float
        Their share.
    tau_b : float, optional
        Kendall's.
    agreement_low, agreement_high, tau_low, tau_high : float, optional
        Intervals.
    false_positives, false_negatives, inversions : tuple of str
        Pairs: told apart by the ranking only, by the reference only, and by both the other way round.
    run_seconds, program_bytes : float, optional
        Time that the ranking's runs took, and the size of its programs; None for a prediction.
    reference_run_seconds, reference_program_bytes : float
        The same of the reference.
    """

    ranking: str
    reference: str
    source: str
    settings: tuple[str, ...]
    values: tuple[float, ...]
    reference_values: tuple[float, ...]
    pairs: int
    agreeing: int
    pair_agreement: float
    tau_b: float | None
    agreement_low: float | None
    agreement_high: float | None
    tau_low: float | None
    tau_high: float | None
    false_positives: tuple[str, ...]
    false_negatives: tuple[str, ...]
    inversions: tuple[str, ...]
    run_seconds: float | None
    program_bytes: int | None
    reference_run_seconds: float
    reference_program_bytes: int


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Why a campaign ended before its last run, written when it did.

    Parameters
    ----------
    kind : str
        ``launch``: a run failed or ran out of time. ``probe``: data were wrong. ``audit``: counts are not those that are pinned.
        ``identity``: the code changed. ``cancelled``: somebody ended it. ``error``: something else went wrong.
    reason : str
        In words.
    after_run : int
        The last run that was begun; 0 before the first.
    """

    kind: Literal["launch", "probe", "audit", "identity", "cancelled", "error"]
    reason: str
    after_run: int
    format: Literal["commcanary.stop.v1"] = "commcanary.stop.v1"


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The decision and everything it rests on.

    Parameters
    ----------
    campaign : str
        The identity: SHA-256 of the manifest.
    name, question : str
        As preregistered.
    decision : str
        ``pass``, ``fail``, ``inconclusive`` or ``incomparable``.
    reason : str
        Why.
    failure_boundary : str, optional
        The first boundary with wrong bytes: ``all_reduce #98``.
    failure_sample, failure_run : int, optional
        Where.
    failure_ranks : tuple of int
        Ranks that had them.
    stopped : Stop, optional
        Why it ended early.
    planned : int
        Runs.
    runs, criteria, factors, agreement
        One line each.
    audits : tuple of str
        Counts that are not those that are pinned, and counts that are not the program's.
    """

    campaign: str
    name: str
    question: str
    decision: Verdict
    reason: str
    failure_boundary: str | None
    failure_sample: int | None
    failure_run: int | None
    failure_ranks: tuple[int, ...]
    stopped: Stop | None
    planned: int
    runs: tuple[RunLine, ...]
    criteria: tuple[Finding, ...]
    audits: tuple[str, ...]
    factors: tuple[FactorsLine, ...]
    agreement: tuple[RankingLine, ...]
    format: Literal["commcanary.decision.v1"] = "commcanary.decision.v1"

    @property
    def failed_by_probe(self) -> bool:
        """Data were wrong."""
        return self.decision == "fail" and self.failure_boundary is not None

    @property
    def exit_code(self) -> int:
        """0 for pass, 4 where a run did not end well, otherwise 1."""
        if self.stopped is not None and self.stopped.kind == "launch":
            return 4
        return 0 if self.decision == "pass" else 1


class Decided(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A decision without its grounds."""

    decision: Verdict
    reason: str
