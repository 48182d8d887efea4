"""The result of a verification: separate statuses, every check, and the strongest claim they allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from commcanary_lab._shown import Shown
from commcanary_lab.errors import UsageError

__all__ = ["CLAIMS", "Check", "Tolerances", "Verification", "claim_of"]

#: Claims from the weakest to the strongest.
CLAIMS = ("refused", "unverified", "partial", "verified")


@dataclass(frozen=True)
class Tolerances:
    """How close behaviour has to be.

    Parameters
    ----------
    relative : float
        Relative tolerance of a latency.
    absolute_us : float
        Absolute tolerance of a latency; a value passes when it meets either of the two.
    hidden_points : float
        Tolerance of the hidden share, percentage points.
    tail_recall : float
        Smallest share of tail events that must be tail events of the canary too.
    tie_us : float
        Rankings tie within this difference.
    traffic_relative : float
        Relative tolerance of a cell of M.
    """

    relative: float = 0.10
    absolute_us: float = 1.0
    hidden_points: float = 5.0
    tail_recall: float = 0.80
    tie_us: float = 0.001
    traffic_relative: float = 1e-12

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value < float("inf"):
                raise UsageError(f"the tolerance {name} is {value}", remedy="give a finite number >= 0")


@dataclass(frozen=True)
class Check:
    """One comparison.

    Parameters
    ----------
    status : str
        The status it belongs to: ``coverage``, ``commitments``, ``bounds``, ``traffic``, ``ranking`` or ``behavior``.
    name : str
        What was compared.
    passed : bool
        Its outcome.
    source, canary : float, int or str
        Both values.
    backend : str, optional
        The backend, or the pair of backends.
    """

    status: str
    name: str
    passed: bool
    source: float | int | str | None
    canary: float | int | str | None
    backend: str | None = None

    def __str__(self) -> str:
        where = f" on {self.backend}" if self.backend else ""
        return f"{self.status}: {self.name}{where}: source {self.source}, canary {self.canary}"


@dataclass(frozen=True)
class Verification(Shown):
    """Separate statuses, never one blended verdict.

    Attributes
    ----------
    timing : str
        ``lossless`` or ``bounded_approximate``.
    coverage : str
        ``full_source`` or ``partial_source``.
    commitments, bounds : str
        ``recomputed`` or ``mismatch``.
    traffic, ranking : str
        ``pass`` or ``fail``.
    behavior : str
        ``pass``, ``fail`` or ``unverified`` (something was assumed).
    claim : str
        The strongest claim that the statuses allow, one of `CLAIMS`.
    claim_reason : str
        What stops it from being stronger.
    checks : tuple of Check
        Every comparison with both values.
    decisions_kept, decisions_total : int
        Ranking decisions that agree, of all.
    assumptions : mapping
        What was assumed for unknown fields, microseconds.
    """

    timing: str
    coverage: str
    commitments: str
    bounds: str
    traffic: str
    ranking: str
    behavior: str
    claim: str
    claim_reason: str
    checks: tuple[Check, ...]
    decisions_kept: int = 0
    decisions_total: int = 0
    backends: tuple[str, ...] = ()
    model: str = "commcanary-v4"
    tolerances: Tolerances = field(default_factory=Tolerances)
    assumptions: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    canary_sha256: str = ""

    @property
    def passed(self) -> bool:
        """True when no status failed and nothing is unverified."""
        return self.claim in ("verified", "partial")

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(c for c in self.checks if not c.passed)

    @property
    def statuses(self) -> dict[str, str]:
        """Name and value of each status, in the order of work."""
        return {n: getattr(self, n) for n in ("timing", "coverage", "commitments", "bounds", "traffic", "ranking", "behavior")}

    def to_json(self) -> dict[str, Any]:
        """Return the verification as a JSON object."""
        return {
            "format": "commcanary_lab.verification.v1",
            **self.statuses,
            "claim": self.claim,
            "claim_reason": self.claim_reason,
            "decisions": {"kept": self.decisions_kept, "total": self.decisions_total},
            "backends": list(self.backends),
            "model": self.model,
            "tolerances": asdict(self.tolerances),
            "assumptions": dict(self.assumptions),
            "notes": list(self.notes),
            "canary_sha256": self.canary_sha256,
            "checks": [asdict(c) for c in self.checks],
        }

    def __repr__(self) -> str:
        return f"Verification({', '.join(f'{k}={v}' for k, v in self.statuses.items())}; claim: {self.claim})"

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        statuses = [(name, value.replace("_", " ")) for name, value in self.statuses.items()]
        statuses.append(("ranking decisions kept", f"{self.decisions_kept} of {self.decisions_total}"))
        assumed = [f"assumed: {name} = {value:g}" for name, value in self.assumptions.items()]
        out = table_html(f"claim: {self.claim} - {self.claim_reason}", ["status", "value"], statuses, len(statuses), assumed)
        failed = [(c.status, c.name, c.backend, c.source, c.canary) for c in self.failures]
        if failed:
            title = f"{len(failed):,} of {len(self.checks):,} checks failed ({self.model})"
            out += table_html(title, ["status", "check", "on", "source", "canary"], failed, len(failed))
        notes = [(note,) for note in self.notes]
        return out + (table_html("notes", ["note"], notes, len(notes)) if notes else "")


def claim_of(statuses: Mapping[str, str], checks: tuple[Check, ...], assumptions: Mapping[str, float], scope: str) -> tuple[str, str]:
    """Return the strongest claim that the statuses allow, and what stops it from being stronger.

    Parameters
    ----------
    statuses : mapping of str to str
        The statuses by name.
    checks : tuple of Check
        For the reason.
    assumptions : mapping
        What was assumed.
    scope : str
        How much of the source the canary stands for, in words.

    Examples
    --------
    >>> good = dict(coverage="full_source", commitments="recomputed", bounds="recomputed", traffic="pass", ranking="pass", behavior="pass")
    >>> claim_of(good, (), {}, "100 of 100 events")
    ('verified', 'all statuses pass for 100 of 100 events')
    >>> claim_of({**good, "coverage": "partial_source"}, (), {}, "1 of 100 events")[0]
    'partial'
    """
    for name in ("commitments", "bounds", "traffic", "ranking", "behavior"):
        if statuses[name] in ("mismatch", "fail"):
            failed = [c for c in checks if c.status == name and not c.passed]
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            return "refused", f"{failed[0]}{more}" if failed else f"{name} is {statuses[name]}"
    if statuses["behavior"] == "unverified":
        assumed = ", ".join(f"{k} = {v:g}" for k, v in assumptions.items())
        return "unverified", f"behaviour rests on assumed values: {assumed}"
    if statuses["coverage"] == "partial_source":
        return "partial", f"the canary stands for {scope}"
    return "verified", f"all statuses pass for {scope}"
