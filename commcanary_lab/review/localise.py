"""Where a change comes from: the exposed time that each phase or operation added or saved."""

from __future__ import annotations

from dataclasses import dataclass

from commcanary_lab.review.comparison import Comparison

__all__ = ["PartChange", "localise"]


@dataclass(frozen=True)
class PartChange:
    """One phase or operation of two reports.

    Parameters
    ----------
    name : str
        The phase or operation.
    baseline_us, candidate_us : float
        Exposed time of all its events, microseconds: events x mean; 0 where a report lacks the part.
    share : float
        Of the time that all growing parts added, the share that this one has; 0 where it did not grow.
    """

    name: str
    baseline_us: float
    candidate_us: float
    share: float

    @property
    def delta_us(self) -> float:
        """Exposed time added; negative where some was saved."""
        return self.candidate_us - self.baseline_us


def localise(comparison: Comparison, scope: str) -> tuple[PartChange, ...]:
    """Return how the exposed time of each phase or operation changed, what added most first.

    Parameters
    ----------
    comparison : Comparison
        Of two reports.
    scope : {"phase", "operation"}
        Which parts.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.tp8_decode()
    >>> found = localise(lab.compare(lab.simulate(trace), lab.simulate(trace, "congested")), "phase")
    >>> [(p.name, round(p.share, 2)) for p in found]
    [('decode', 0.56), ('prefill', 0.44)]
    """
    sides = [r.by_phase if scope == "phase" else r.by_op for r in (comparison.base, comparison.candidate)]
    totals = {
        name: tuple(round(s[name].count * s[name].mean_us, 3) if name in s else 0.0 for s in sides)
        for name in sorted({*sides[0], *sides[1]})
    }
    added = sum(max(0.0, b - a) for a, b in totals.values())
    parts = [PartChange(name, a, b, max(0.0, b - a) / added if added else 0.0) for name, (a, b) in totals.items()]
    return tuple(sorted(parts, key=lambda p: (-p.delta_us, p.name)))
