"""What a campaign is going to ask, written down before the first run: the structures of a preregistration."""

from __future__ import annotations

from typing import Literal

import msgspec

from commcanary_lab.replay.spec import Fault, ProbeAsked

__all__ = [
    "FORMAT", "STATISTICS", "Agreement", "Audit", "Configuration", "Criterion", "Decision", "Prediction", "Preregistration", "ProbeTable",
    "Rate", "aggregates",
]  # fmt: skip

FORMAT = "commcanary.campaign.v1"

#: Parameters of a fabric: what the module that builds it understands.
FabricTable = dict[str, str | int | float | bool | list[str | int | float]]

_QUANTILES = tuple(f"p{q}" for q in (1, 5, 10, 25, 50, 75, 90, 95, 99))


def aggregates() -> tuple[str, ...]:
    """Return the ways in which the figures of the ranks become one.

    Examples
    --------
    >>> aggregates()[:3]
    ('every_rank', 'fleet_median', 'fleet_mean')
    """
    return ("every_rank", "fleet_median", "fleet_mean", "sum", "count", *STATISTICS)


#: What becomes of many figures.
STATISTICS = ("min", "max", "mean", *_QUANTILES)


class ProbeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How data are checked; as `ProbeAsked`."""

    epochs: int = 1
    replays: int = 2
    mode: Literal["eager", "graph", "segmented"] = "eager"
    fault: Fault | None = None

    def asked(self) -> ProbeAsked:
        """Return it as the replay takes it."""
        return ProbeAsked(self.epochs, self.replays, self.mode, self.fault)


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One way to run a program.

    Parameters
    ----------
    name : str
        Also part of the names of its runs' directories.
    program : str
        One of the programs of the preregistration; not needed where there is only one.
    kind : str
        ``measured``: its times count. ``probe``: only its data do; its program is measured once, and criteria cannot ask for its times.
    ranks : int, optional
        Processes; all ranks of the program by default.
    backend : str
        ``auto``, ``gloo`` or ``nccl``. What ``auto`` means on this machine is frozen in the manifest.
    timing, barrier, overlap, warmup, iterations, skip_unsupported
        As in a replay.
    timeout_s : float, optional
        For a run of this configuration instead of the campaign's.
    probe : ProbeTable, optional
        Check data after the measurement.
    fabric : mapping, optional
        Parameters of a fabric that is built for the run.
    ranking, setting : str
        For the agreement: this configuration is the place `setting` in the ranking `ranking`.
    """

    name: str
    program: str = ""
    kind: Literal["measured", "probe"] = "measured"
    ranks: int | None = None
    backend: Literal["auto", "gloo", "nccl"] = "auto"
    timing: Literal["back_to_back", "preserve"] = "back_to_back"
    barrier: bool = True
    overlap: bool = False
    warmup: int = 1
    iterations: int = 5
    skip_unsupported: bool = False
    timeout_s: float | None = None
    probe: ProbeTable | None = None
    fabric: FabricTable | None = None
    ranking: str = ""
    setting: str = ""


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Counts that must be what they are said to be, on every rank that takes part; another count ends the campaign as incomparable.

    Parameters
    ----------
    counts : dict of str to int
        Events of one cycle on a rank, by operation; every operation of the program is named.
    total : int, optional
        Their sum, said again on purpose.
    configurations : tuple of str
        Where; everywhere by default.
    """

    counts: dict[str, int]
    total: int | None = None
    configurations: tuple[str, ...] = ()


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A rate that is so much per cycle over the cycle time: tokens per second.

    Parameters
    ----------
    name : str
        What the rate is called.
    per_cycle : dict of str to float
        What a cycle of each configuration yields; stated, for a replay does not know it.
    """

    name: str
    per_cycle: dict[str, float]


class Criterion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One question with a boundary.

    Parameters
    ----------
    name : str
        In words; also seeds the resampling.
    metric : str
        What is looked at, see `metrics.METRICS`.
    op, size_bytes : optional
        Only events of this operation and size.
    statistic : str
        What becomes of the samples within one run: ``min``, ``mean``, ``max`` or a quantile, ``p50`` by default.
    aggregate : str, optional
        What becomes of the ranks: ``every_rank`` (each for itself), ``fleet_median``, ``count``, ...; see `aggregates`.
    repetitions : str
        What becomes of the repetitions: their ``median`` by default, or ``mean``. Counts have to hold in every repetition.
    configuration : str
        What is looked at, where nothing is compared.
    compare : str
        ``difference`` (control - candidate), ``reduction_pct`` (the same in percent of the control) or ``ratio`` (candidate / control),
        of each pair of repetitions.
    control, candidate : str
        Instead of those of the preregistration.
    at_least, at_most, equals : float, optional
        The boundary.
    all : bool
        With ``aggregate = "count"``: of everything that is counted.
    each_at_least, each_at_most : float, optional
        With ``aggregate = "count"``: count values within these.
    rate : str
        With ``metric = "rate"``: which.
    ranking : str
        With a metric of agreement: which ranking is compared with the reference.
    stability_limit : float, optional
        Instead of the preregistration's.
    required : bool
        False: reported, and without influence on the decision.
    """

    name: str
    metric: str
    op: str = ""
    size_bytes: int | None = None
    statistic: str = "p50"
    aggregate: str = ""
    repetitions: Literal["median", "mean"] = "median"
    configuration: str = ""
    compare: Literal["", "difference", "reduction_pct", "ratio"] = ""
    control: str = ""
    candidate: str = ""
    at_least: float | None = None
    at_most: float | None = None
    equals: float | None = None
    all: bool = False
    each_at_least: float | None = None
    each_at_most: float | None = None
    rate: str = ""
    ranking: str = ""
    stability_limit: float | None = None
    required: bool = True


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A ranking that is not measured here.

    Parameters
    ----------
    name : str
        What it is called.
    source : str
        Where the values come from, in words.
    values : dict of str to float
        Per setting.
    """

    name: str
    source: str
    values: dict[str, float]


class Agreement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Do other rankings of the settings say what the reference says?

    Parameters
    ----------
    reference : str
        A ranking that is measured here.
    metric : str
        Figure of a run that is ranked; smaller is better.
    tie_fraction : float
        Two settings tie where they differ by no more than this share of the smaller.
    predictions : tuple of Prediction
        Rankings from elsewhere, such as a simulator's.
    """

    reference: str
    metric: str = "cycle_p50_us"
    tie_fraction: float = 0.02
    predictions: tuple[Prediction, ...] = ()


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How the verdicts of the required criteria become one.

    Parameters
    ----------
    rule : str
        ``all`` of them pass, ``any`` of them does, or ``at_least`` so many.
    minimum : int, optional
        With ``at_least``.
    """

    rule: Literal["all", "any", "at_least"] = "all"
    minimum: int | None = None


class Preregistration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A whole preregistration.

    Parameters
    ----------
    name, question : str
        What it is called, and what it is to answer.
    programs : dict of str to str
        Files of canaries and traces, relative to the preregistration, by name.
    configurations : tuple of Configuration
        What is run.
    repetitions : int
        How often each configuration is run.
    order : str
        ``ABBA``: control, candidate, candidate, control, and again. ``rotation``: each repetition runs every configuration, beginning
        with another one.
    control, candidate : str
        Configurations of a paired design.
    stability_limit : float
        The largest coefficient of variation of a configuration's repetitions with which a criterion can be decided.
    timeout_s : float
        For each run.
    confidence : float
        Of the intervals.
    resamples : int
        Of the bootstrap.
    inputs : tuple of str
        Further files whose content belongs to the identity; they are kept with the evidence.
    criteria, audits, rates, agreement, decision
        What is asked of the runs.
    """

    format: Literal["commcanary.campaign.v1"]
    name: str
    question: str
    programs: dict[str, str]
    configurations: tuple[Configuration, ...]
    repetitions: int
    order: Literal["ABBA", "rotation"] = "rotation"
    control: str = ""
    candidate: str = ""
    stability_limit: float = 0.1
    timeout_s: float = 300.0
    confidence: float = 0.95
    resamples: int = 2000
    inputs: tuple[str, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    audits: tuple[Audit, ...] = ()
    rates: tuple[Rate, ...] = ()
    agreement: Agreement | None = None
    decision: Decision = Decision()

    def configuration(self, name: str) -> Configuration:
        """Return a configuration by name."""
        return next(c for c in self.configurations if c.name == name)

    def program_of(self, configuration: Configuration) -> str:
        """Return the name of the program that a configuration runs."""
        return configuration.program or next(iter(self.programs))

    def sides(self, criterion: Criterion) -> tuple[str, ...]:
        """Return the configurations that a criterion looks at: one, or control and candidate; none where it looks at rankings."""
        if criterion.ranking:
            return ()
        if criterion.compare:
            return criterion.control or self.control, criterion.candidate or self.candidate
        if criterion.configuration:
            return (criterion.configuration,)
        return (self.configurations[0].name,) if len(self.configurations) == 1 else ("",)

    def rankings(self) -> dict[str, dict[str, str]]:
        """Return the measured rankings: configuration by setting, by ranking."""
        out: dict[str, dict[str, str]] = {}
        for c in self.configurations:
            if c.ranking:
                out.setdefault(c.ranking, {})[c.setting] = c.name
        return out
