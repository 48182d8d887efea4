"""On what, and how closely, a source and what stands for it are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.simulate.prepare import Prepared
from commcanary_lab.simulate.report import Report, simulate_prepared
from commcanary_lab.verify.model import Tolerances

__all__ = ["Setting"]


@dataclass(frozen=True)
class Setting:
    """What a verification is asked with.

    Parameters
    ----------
    backends : tuple of Backend
        At least two, each with its own name, so that there is something to rank.
    tolerances : Tolerances
        How close behaviour has to be.
    assume : mapping of str to float
        Values for unknown fields.
    model : str or CostModel
        The cost model.
    salt : bytes
        The owner's salt, where the canary was compiled with one.

    Raises
    ------
    UsageError
        If the backends are fewer than two or share a name.

    Examples
    --------
    >>> Setting(DEFAULT_BACKENDS[:1])
    Traceback (most recent call last):
    commcanary_lab.errors.UsageError: the backends are baseline; give at least two, each with its own name
    """

    backends: tuple[Backend, ...] = DEFAULT_BACKENDS
    tolerances: Tolerances = field(default_factory=Tolerances)
    assume: Mapping[str, float] = field(default_factory=dict)
    model: str | CostModel = "commcanary-v4"
    salt: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise UsageError(f"the backends are {', '.join(self.labels) or 'none'}", remedy="give at least two, each with its own name")

    @classmethod
    def of(
        cls,
        backends: Sequence[Backend],
        tolerances: Tolerances | None,
        assume: Mapping[str, float] | None,
        model: str | CostModel,
        salt: bytes,
    ) -> Setting:
        """Fill in the defaults."""
        return cls(tuple(backends), tolerances or Tolerances(), dict(assume or {}), model, salt)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the backends."""
        return tuple(b.label for b in self.backends)

    def reports(self, prepared: Prepared) -> list[Report]:
        """Simulate a prepared trace on every backend."""
        return [simulate_prepared(prepared, b, model=self.model) for b in self.backends]

    def check_salt(self, canary: Canary) -> None:
        """Refuse a salt that is missing, or that the canary was not made with."""
        if canary.source.salted and not self.salt:
            raise RefusedError("the canary's commitments are salted", remedy="give the owner's salt with --salt-file")
        if self.salt and not canary.source.salted:
            raise RefusedError("the canary's commitments are unsalted: it was not made with a salt", remedy="leave the salt out")
