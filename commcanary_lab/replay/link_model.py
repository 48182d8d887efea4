"""Links of a two-level fabric, calibrated from a measured sweep or taken from its nominal rates, and what they predict of a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import msgspec
import numpy as np

from commcanary_lab.errors import RefusedError
from commcanary_lab.replay.calibration.fit import Fit, fit
from commcanary_lab.replay.calibration.samples import SizeSamples
from commcanary_lab.replay.fabric_spec import FabricSpec
from commcanary_lab.replay.result import Replay
from commcanary_lab.simulate.alpha_beta import AlphaBeta
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace.model import Trace

__all__ = [
    "Inversion", "LinkTerms", "calibrate", "cycle_us", "exposed_us", "link_terms", "nominal_terms", "predictions",
    "search_inversions",
]  # fmt: skip


class LinkTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Latency of a step and bandwidth, inside a node and across.

    Parameters
    ----------
    ranks_per_node : int
        Which ranks share a node.
    alpha_us, across_alpha_us : float
        Latency of one step.
    rate_gbps, across_rate_gbps : float
        Bandwidth of the busiest link, Gbit/s.
    """

    ranks_per_node: int
    alpha_us: float
    rate_gbps: float
    across_alpha_us: float
    across_rate_gbps: float

    def model(self) -> AlphaBeta:
        """Return the simulator's cost model with these terms."""
        return AlphaBeta(self.alpha_us, self.rate_gbps, self.ranks_per_node, self.across_alpha_us, self.across_rate_gbps)


def calibrate(replay: Replay, ranks_per_node: int) -> tuple[Fit, Fit]:
    """Fit the links inside a node and across from the replay of a sweep: all-reduces of several sizes on groups of two.

    Groups of one kind that run at once are measured at once, so what they share is in the fit, as it is in the job.

    Parameters
    ----------
    replay : Replay
        Of the sweep.
    ranks_per_node : int
        Which ranks share a node.

    Returns
    -------
    inside, across : Fit

    Raises
    ------
    RefusedError
        If the program has no such groups of one kind.
    """
    fits = []
    for spans in (False, True):
        values: dict[int, list[np.ndarray]] = {}
        for number, step in enumerate(replay.program.steps):
            if step is not None and len(step.members) == 2 and (len({r // ranks_per_node for r in step.members}) > 1) == spans:
                values.setdefault(step.size_bytes, []).append(replay.latency_ns[:, replay.steps == number].ravel() / 1000)
        if not values:
            raise RefusedError(
                f"no group {'across nodes' if spans else 'inside a node'}", remedy="replay a sweep with groups of both kinds"
            )
        sizes = tuple(sorted(values))
        columns = tuple(np.concatenate(values[s]) for s in sizes)
        fits.append(fit(SizeSamples("all_reduce", 2, "float32", sizes, columns, replay.ran_on)))
    return fits[0], fits[1]


def link_terms(inside: Fit, across: Fit, ranks_per_node: int) -> LinkTerms:
    """Return the terms of two fits, rounded to six digits so that they can be written down.

    Raises
    ------
    RefusedError
        If a fit has no bandwidth.
    """
    a, b = inside.backend("inside"), across.backend("across")
    values = (a.latency_floor_us, a.bandwidth_gbps, b.latency_floor_us, b.bandwidth_gbps)
    return LinkTerms(ranks_per_node, *(float(f"{v:.6g}") for v in values))


def nominal_terms(fabric: FabricSpec, *, sharing: int, alpha_us: float = 600.0, ranks_per_node: int = 2) -> LinkTerms:
    """Return terms from the rates of a fabric.

    Parameters
    ----------
    fabric : FabricSpec
        The links.
    sharing : int
        How many groups use an uplink at once.
    alpha_us : float
        Latency of a step; that of two processes on one machine by default.
    ranks_per_node : int
        Which ranks count as one node where the fabric has one switch.
    """
    across = fabric.rate_mbit if fabric.across_mbit is None else min(fabric.rate_mbit, fabric.across_mbit / sharing)
    return LinkTerms(fabric.ranks_per_node or ranks_per_node, alpha_us, fabric.rate_mbit / 1000, alpha_us, across / 1000)


def cycle_us(trace: Trace, terms: LinkTerms) -> float:
    """Predict the time of a program back to back: the service times of a rank's events, summed, on the rank that has most.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> slow, fast = LinkTerms(2, 10, 0.1, 10, 0.1), LinkTerms(2, 10, 0.2, 10, 0.2)
    >>> cycle_us(lab.samples.gloo4(), slow) > 1.5 * cycle_us(lab.samples.gloo4(), fast)
    True
    """
    service = terms.model().service_us(prepare(trace, {"skew_us": 0.0, "overlap_us": 0.0}), Backend(), 0, frozenset())
    own = np.zeros(1 + max(r for g in trace.groups for r in g.members))
    for number, group in enumerate(trace.groups):
        own[list(group.members)] += service[trace.group == number].sum()
    return float(own.max())


def exposed_us(trace: Trace, terms: LinkTerms) -> float:
    """Return the mean exposed latency that the simulator's queue engine reports: open-loop, with the gaps of the trace."""
    prepared = prepare(trace, {"skew_us": 0.0, "overlap_us": 0.0})
    return float(simulate_prepared(prepared, Backend("links"), model=terms.model()).metrics["mean_us"])


@dataclass(frozen=True)
class Inversion:
    """Two fabrics that a job and an isolated benchmark order the other way round.

    Parameters
    ----------
    left, right : str
        The fabrics.
    job_ratio, isolated_ratio : float
        Time on the left one over time on the right one; one is above 1, the other below.
    """

    left: str
    right: str
    job_ratio: float
    isolated_ratio: float

    @property
    def strength(self) -> float:
        """How far the weaker of the two ratios is from 1."""
        return min(max(r, 1 / r) for r in (self.job_ratio, self.isolated_ratio)) - 1


def search_inversions(
    job: Trace, isolated: Trace, fabrics: Sequence[FabricSpec], *, margin: float = 0.05
) -> tuple[int, tuple[Inversion, ...]]:
    """Look for pairs of fabrics that a job and an isolated benchmark order the other way round, by their nominal rates.

    Parameters
    ----------
    job : Trace
        Its groups of one kind run at once and share an uplink.
    isolated : Trace
        One collective over all ranks, which has each uplink to itself.
    fabrics : sequence of FabricSpec
        Candidates.
    margin : float
        Both have to tell the two fabrics apart by this share.

    Returns
    -------
    pairs : int
        How many pairs were looked at.
    found : tuple of Inversion
        The strongest first.
    """
    of_job = {f.name: cycle_us(job, nominal_terms(f, sharing=f.ranks_per_node or 1)) for f in fabrics}
    alone = {f.name: cycle_us(isolated, nominal_terms(f, sharing=1)) for f in fabrics}
    pairs = list(combinations(of_job, 2))
    found = (Inversion(a, b, of_job[a] / of_job[b], alone[a] / alone[b]) for a, b in pairs)
    inverted = [i for i in found if (i.job_ratio - 1) * (i.isolated_ratio - 1) < 0 and i.strength >= margin]
    return len(pairs), tuple(sorted(inverted, key=lambda i: (-i.strength, i.left, i.right)))


def predictions(trace: Trace, terms: Iterable[tuple[str, LinkTerms]]) -> dict[str, dict[str, float]]:
    """Return what calibrated links predict per setting: ``alpha-beta`` (time of a cycle) and ``simulator`` (mean exposed latency)."""
    out: dict[str, dict[str, float]] = {"alpha-beta": {}, "simulator": {}}
    for name, links in terms:
        out["alpha-beta"][name] = round(cycle_us(trace, links), 3)
        out["simulator"][name] = round(exposed_us(trace, links), 3)
    return out
