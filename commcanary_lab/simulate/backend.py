"""Backends: one simulated configuration each."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.files import read_toml

__all__ = ["ABLATIONS", "DEFAULT_BACKENDS", "Backend", "load_backends", "parse_ablations", "parse_backend"]

#: Mechanisms that an ablation removes, exactly one each.
ABLATIONS = (
    "arrival_skew",
    "compute_overlap",
    "operation_ordering",
    "rare_tail_windows",
    "queue_reset_gaps",
    "pressure",
    "observed_exposed_us",
)


@dataclass(frozen=True)
class Backend:
    """One simulated configuration.

    Parameters
    ----------
    label : str
        Its name.
    bandwidth_gbps : float
        Link bandwidth, Gbit/s.
    latency_floor_us : float
        Fixed start-up time of a collective, microseconds.
    compute_pressure : float
        How strongly concurrent compute slows communication, 0 - 1.
    overlap_efficiency : float
        Share of the overlapping compute that really hides communication, 0 - 1.
    iterations : int
        How often the trace runs; clock and queues restart each time.
    seed : int
        Seed of the counter-based noise.

    Examples
    --------
    >>> Backend().bandwidth_gbps, parse_backend("congested").bandwidth_gbps, parse_backend("seed=11,iterations=3").seed
    (55.0, 28.0, 11)
    """

    label: str = "simulated-nccl"
    bandwidth_gbps: float = 55.0
    latency_floor_us: float = 7.5
    compute_pressure: float = 0.55
    overlap_efficiency: float = 0.72
    iterations: int = 1
    seed: int = 7

    def __post_init__(self) -> None:
        bounds = {
            "bandwidth_gbps": (1e-6, 1e9),
            "latency_floor_us": (0, 1e9),
            "compute_pressure": (0, 10),
            "overlap_efficiency": (0, 1),
            "iterations": (1, 1_000_000),
            "seed": (0, (1 << 64) - 1),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not low <= value <= high:
                raise UsageError(f"{name} of backend {self.label!r} is {value!r}", remedy=f"expected a number from {low:g} to {high:g}")
        for name in ("iterations", "seed"):
            if not isinstance(getattr(self, name), int):
                raise UsageError(f"{name} of backend {self.label!r} is {getattr(self, name)!r}", remedy="expected a whole number")


DEFAULT_BACKENDS: tuple[Backend, ...] = (
    Backend("baseline"),
    Backend("low_latency", latency_floor_us=3.5),
    Backend("high_bandwidth", bandwidth_gbps=110.0, latency_floor_us=10.0),
    Backend("overlap_friendly", latency_floor_us=9.0, overlap_efficiency=0.95),
    Backend("congested", bandwidth_gbps=28.0, compute_pressure=0.95),
)

_NUMBERS = {f.name for f in fields(Backend)} - {"label"}


def _from_mapping(label: str, values: Mapping[str, object], base: Backend | None = None) -> Backend:
    unknown = sorted(set(values) - _NUMBERS)
    if unknown:
        raise UsageError(f"unknown backend setting {unknown[0]!r}", remedy=f"known: {', '.join(sorted(_NUMBERS))}")
    converted = {
        k: float(v) if k not in ("iterations", "seed") and isinstance(v, int) and not isinstance(v, bool) else v for k, v in values.items()
    }
    return replace(base or Backend(), label=label, **converted)  # type: ignore[arg-type]


def parse_backend(text: str, known: Iterable[Backend] = DEFAULT_BACKENDS) -> Backend:
    """Return a backend from its name, or from ``key=value`` pairs over the defaults, or from a name followed by pairs.

    Raises
    ------
    UsageError
        If the name or a key is unknown, or a value is not a number in range.
    """
    by_name = {b.label: b for b in known}
    parts = [p.strip() for p in text.split(",") if p.strip()]
    if not parts:
        raise UsageError("the backend is empty", remedy=f"name one of {', '.join(by_name)} or give key=value pairs")
    base: Backend | None = None
    if "=" not in parts[0]:
        if parts[0] not in by_name:
            raise UsageError(
                f"unknown backend {parts[0]!r}", remedy=f"known: {', '.join(by_name)}; or give key=value pairs such as latency_floor_us=12"
            )
        base = by_name[parts[0]]
        parts = parts[1:]
        if not parts:
            return base
    values: dict[str, object] = {}
    for part in parts:
        key, _, number = part.partition("=")
        try:
            values[key.strip()] = int(number) if key.strip() in ("iterations", "seed") else float(number)
        except ValueError:
            raise UsageError(f"{part!r} is not key=number", remedy="write for example latency_floor_us=12") from None
    return _from_mapping(text if base is None else f"{base.label},{','.join(parts)}", values, base)


_BACKENDS = "write tables such as [backends.fast] with bandwidth_gbps = 400"


def load_backends(path: str | os.PathLike[str]) -> tuple[Backend, ...]:
    """Read backends from a TOML file: one table per backend under ``[backends.NAME]`` (or at the top level).

    Raises
    ------
    InputError
        If the file is not TOML or a backend is invalid.
    """
    document = read_toml(path, _BACKENDS)
    tables = document.get("backends", document)
    if not isinstance(tables, dict) or not tables or not all(isinstance(t, dict) for t in tables.values()):
        raise InputError("names no backend", file=str(path), remedy=_BACKENDS)
    try:
        return tuple(_from_mapping(label, values) for label, values in tables.items())
    except UsageError as e:
        raise InputError(e.problems[0].what, file=str(path), remedy=e.problems[0].remedy or _BACKENDS) from None


def parse_ablations(names: Iterable[str]) -> frozenset[str]:
    """Check the names of ablations.

    Raises
    ------
    UsageError
        If a name is not an ablation.
    """
    chosen = frozenset(names)
    for name in sorted(chosen):
        if name not in ABLATIONS:
            raise UsageError(f"unknown ablation {name!r}", remedy=f"known: {', '.join(ABLATIONS)}")
    return chosen
