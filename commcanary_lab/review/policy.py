"""What a change may cost: thresholds of a comparison, with documented defaults, readable from TOML."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from commcanary_lab.canonical import canonical_bytes, sha256_hex
from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.files import MAX_CONFIG_BYTES, parse_toml, read_file

__all__ = ["Policy", "load_policy", "parse_policy"]


@dataclass(frozen=True)
class Policy:
    """Thresholds. A latency exceeds its threshold where it grows by more than the share *and* by more than the absolute time.

    Parameters
    ----------
    p99_threshold_pct, p95_threshold_pct, median_threshold_pct : float
        Allowed growth of the whole workload's exposed latency, percent.
    p99_absolute_threshold_us, p95_absolute_threshold_us, median_absolute_threshold_us : float
        Growth up to this many microseconds never counts.
    hidden_drop_threshold_points : float
        Allowed drop of the hidden share, percentage points.
    breakdown_threshold_pct, breakdown_absolute_threshold_us : float
        The same for median, p95 and p99 of each phase and of each operation.
    warn_fraction : float
        A value that exceeds this share of its thresholds warns; 1 turns warnings off.
    measured_confidence : float
        Confidence of the intervals between two measured traces.
    measured_resamples : int
        Bootstrap resamples; fewer where an operation has more than 10,000 measurements.
    measured_seed : int
        Seed of the bootstrap.
    measured_inconclusive_pct : float
        Share of the measured time whose operations may stay inconclusive before the whole comparison is.

    Examples
    --------
    >>> Policy().p99_threshold_pct, Policy.from_mapping({"p99_threshold_pct": 5}).p99_threshold_pct
    (15.0, 5.0)
    """

    p99_threshold_pct: float = 15.0
    p99_absolute_threshold_us: float = 1.0
    p95_threshold_pct: float = 10.0
    p95_absolute_threshold_us: float = 1.0
    median_threshold_pct: float = 8.0
    median_absolute_threshold_us: float = 1.0
    hidden_drop_threshold_points: float = 5.0
    breakdown_threshold_pct: float = 15.0
    breakdown_absolute_threshold_us: float = 1.0
    warn_fraction: float = 0.5
    measured_confidence: float = 0.95
    measured_resamples: int = 2000
    measured_seed: int = 7
    measured_inconclusive_pct: float = 10.0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            low, high = _BOUNDS.get(f.name, (0, 1e9))
            whole = f.name in _WHOLE
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not math.isfinite(value):
                raise UsageError(f"{f.name} is {value!r}", remedy=f"expected a {'whole ' if whole else ''}number")
            if not low <= value <= high:
                raise UsageError(f"{f.name} is {value!r}", remedy=f"expected a number from {low:g} to {high:g}")
            if not whole:
                object.__setattr__(self, f.name, float(value))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Policy:
        """Return the defaults with some values replaced.

        Raises
        ------
        UsageError
            If a name is unknown or a value is not a number in range.
        """
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                raise UsageError(f"unknown threshold {name!r}", remedy=f"known: {', '.join(known)}")
        return cls(**values)

    def latency_limits(self, scope: str, metric: str) -> tuple[float, float]:
        """Return the allowed growth of a latency: percent, and microseconds.

        Examples
        --------
        >>> Policy().latency_limits("overall", "median"), Policy().latency_limits("phase", "median")
        ((8.0, 1.0), (15.0, 1.0))
        """
        if scope != "overall":
            return self.breakdown_threshold_pct, self.breakdown_absolute_threshold_us
        return getattr(self, f"{metric}_threshold_pct"), getattr(self, f"{metric}_absolute_threshold_us")

    def changed(self) -> dict[str, float | int]:
        """Return the thresholds that differ from the defaults.

        Examples
        --------
        >>> Policy(p99_threshold_pct=5).changed(), Policy().changed()
        ({'p99_threshold_pct': 5.0}, {})
        """
        default = Policy()
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != getattr(default, f.name)}

    def to_toml(self, kind: str | None = None) -> str:
        """Return the policy as the TOML file that `load_policy` reads.

        Examples
        --------
        >>> Policy().to_toml("measured").splitlines()[0]
        'p95_threshold_pct = 10.0'
        """
        return "".join(f"{name} = {value!r}\n" for name, value in self.to_json(kind).items())

    def to_json(self, kind: str | None = None) -> dict[str, Any]:
        """Return every threshold by name; with `kind` (``reports`` or ``measured``) only those that such a comparison uses.

        Examples
        --------
        >>> "warn_fraction" in Policy().to_json("measured"), "measured_seed" in Policy().to_json("reports")
        (False, False)
        """
        names = _USED.get(kind or "", ())
        return {k: v for k, v in asdict(self).items() if not names or k.startswith(names)}

    def sha256(self, kind: str) -> str:
        """Return the SHA-256 of the thresholds that a kind of comparison uses; a comparison states it."""
        return sha256_hex(canonical_bytes(self.to_json(kind)))


#: Beginnings of the names that a kind of comparison uses.
_USED = {"reports": ("p99_", "p95_", "median_", "hidden_", "breakdown_", "warn_"), "measured": ("p95_", "median_", "measured_")}
_WHOLE = {"measured_resamples", "measured_seed"}
_BOUNDS: dict[str, tuple[float, float]] = {
    "warn_fraction": (0, 1),
    "measured_confidence": (0.5, 0.9999),
    "measured_resamples": (100, 1_000_000),
    "measured_seed": (0, (1 << 63) - 1),
    "measured_inconclusive_pct": (0, 100),
}


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """Read a policy from a TOML file: names of `Policy` at the top level or in a table ``[policy]``.

    Raises
    ------
    InputError
        If the file is not TOML, a name is unknown, or a value is not a number in range.
    """
    data = read_file(path, max_bytes=MAX_CONFIG_BYTES)
    if not data.strip():
        remedy = "write lines such as p99_threshold_pct = 15, or give no policy for the defaults"
        raise InputError("is empty", file=str(path), remedy=remedy)
    return parse_policy(data, file=str(path))


def parse_policy(data: bytes, *, file: str) -> Policy:
    """Read a policy from the bytes of a TOML file; `file` is its name in messages. Raises like `load_policy`.

    Examples
    --------
    >>> parse_policy(b"[policy]\\np99_threshold_pct = 5", file="strict.toml").p99_threshold_pct
    5.0
    """
    document = parse_toml(data, file, "write lines such as p99_threshold_pct = 15")
    table = document.get("policy", document)
    if not isinstance(table, dict) or ("policy" in document and len(document) > 1):
        others = sorted(set(document) - {"policy"})
        raise InputError(f"has {others[0]!r} beside the table [policy]" if others else "policy is no table", file=file,
                         remedy="put every threshold into one place")  # fmt: skip
    try:
        return Policy.from_mapping(table)
    except UsageError as e:
        problem = e.problems[0]
        raise InputError(problem.what, file=file, remedy=problem.remedy) from None
