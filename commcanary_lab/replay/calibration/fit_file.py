"""Fits as JSON: the samples travel with the figures, so that a reader can fit again, and does."""

from __future__ import annotations

import json
import math
import os
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from commcanary_lab.canonical import read_document, write_atomic
from commcanary_lab.errors import FormatError, LabError
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.replay.calibration.fit import Fit, fit
from commcanary_lab.replay.calibration.resample import Interval
from commcanary_lab.replay.calibration.samples import SizeSamples

__all__ = ["FORMAT", "fit_document", "fit_json", "read_fit", "write_fit"]

FORMAT = "commcanary_lab.fit.v1"

#: Two machines may differ in the last digits of a fit.
_TOLERANCE = 1e-6


class _Samples(msgspec.Struct, forbid_unknown_fields=True):
    op: str
    ranks: int
    dtype: str | None
    size_bytes: tuple[int, ...]
    latencies_us: tuple[tuple[float, ...], ...]
    ran_on: str
    origin: Literal["measured", "synthetic"]
    notes: tuple[str, ...]


class _Method(msgspec.Struct, forbid_unknown_fields=True):
    algorithm: str
    statistic: Literal["min", "p10", "median"]
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    replicates: Annotated[int, msgspec.Meta(ge=100, le=100_000)]
    seed: Annotated[int, msgspec.Meta(ge=0)]


class _Figures(msgspec.Struct):
    alpha_us: float
    bandwidth_gb_s: float | None
    verdict: str


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal["commcanary_lab.fit.v1"]
    samples: _Samples
    method: _Method
    figures: dict[str, Any]


def fit_json(found: Fit) -> dict[str, Any]:
    """Return the figures of a fit; what is infinite is None."""
    g = found.goodness
    return {
        "op": found.cost.op,
        "ranks": found.cost.ranks,
        "algorithm": found.cost.algorithm,
        "alpha_us": found.alpha_us,
        "alpha_interval_us": _pair(found.alpha_interval_us),
        "bandwidth_gb_s": _finite(found.bandwidth_gb_s),
        "bandwidth_interval_gb_s": _pair(found.bandwidth_interval_gb_s),
        "half_size_bytes": _finite(found.half_size_bytes),
        "half_size_interval_bytes": _pair(found.half_size_interval_bytes),
        "confidence": found.terms.confidence,
        "uncertainty": found.uncertainty,
        "statistic": found.statistic,
        "verdict": g.verdict,
        "reasons": list(g.reasons),
        "rms_relative_residual": g.rms_relative,
        "worst_relative_residual": g.worst_relative,
        "pieces": [
            {"low_bytes": p.low_bytes, "high_bytes": p.high_bytes, "alpha_us": p.alpha_us, "bandwidth_gb_s": _finite(p.bandwidth_gb_s)}
            for p in g.pieces
        ],
        "residuals": [
            {
                "size_bytes": r.size_bytes,
                "count": s.count,
                "min_us": s.min_us,
                "p10_us": s.p10_us,
                "median_us": s.median_us,
                "p90_us": s.p90_us,
                "time_us": r.time_us,
                "time_interval_us": None if r.interval_us is None else _pair(r.interval_us),
                "predicted_us": r.predicted_us,
                "residual_us": r.residual_us,
                "relative": r.relative,
            }
            for r, s in zip(found.residuals, found.samples.spreads, strict=True)
        ],
        "ran_on": found.samples.ran_on,
        "origin": found.samples.origin,
        "notes": list(found.samples.notes),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _pair(interval: Interval) -> list[float | None]:
    return [_finite(interval.low), _finite(interval.high)]


def fit_document(found: Fit) -> dict[str, Any]:
    """Return samples, method and figures: what `write_fit` writes."""
    s = found.samples
    return {
        "format": FORMAT,
        "samples": {
            "op": s.op,
            "ranks": s.ranks,
            "dtype": s.dtype,
            "size_bytes": list(s.size_bytes),
            "latencies_us": [v.tolist() for v in s.latencies_us],
            "ran_on": s.ran_on,
            "origin": s.origin,
            "notes": list(s.notes),
        },
        "method": {
            "algorithm": found.cost.algorithm,
            "statistic": found.statistic,
            "confidence": found.terms.confidence,
            "replicates": len(found.terms.draws),
            "seed": found.seed,
        },
        "figures": fit_json(found),
    }


def write_fit(found: Fit, path: str | os.PathLike[str]) -> int:
    """Write a fit with its samples, atomically; return the bytes written."""
    text = json.dumps(fit_document(found), sort_keys=True, indent=1, allow_nan=False)
    return write_atomic(path, text.encode("ascii") + b"\n")


def read_fit(path: str | os.PathLike[str], *, limits: Limits = DEFAULT) -> Fit:
    """Read a fit: its samples are fitted again, and the figures must be those of the file.

    Raises
    ------
    InputError
        If the file cannot be read or is no JSON, or its samples are invalid.
    FormatError
        If it is no fit, or its figures are not those of its samples.
    """
    remedy = "give a file that sweep -o wrote"
    raw = read_document(path, remedy, limits=limits)
    try:
        document = msgspec.convert(raw, _Document, strict=True)
        stated = msgspec.convert(document.figures, _Figures)
    except msgspec.ValidationError as e:
        what, _, where = str(e).partition(" - at `$.")
        raise FormatError(f"not a fit: {what}", file=str(path), field=where.rstrip("`") or "figures", remedy=remedy) from None
    s, m = document.samples, document.method
    columns = tuple(np.array(v, np.float64) for v in s.latencies_us)
    try:
        samples = SizeSamples(s.op, s.ranks, s.dtype, s.size_bytes, columns, s.ran_on, s.origin, s.notes)
        found = fit(samples, algorithm=m.algorithm, statistic=m.statistic, confidence=m.confidence, replicates=m.replicates, seed=m.seed)
    except LabError as e:
        raise FormatError(f"its samples cannot be fitted: {e}", file=str(path), field="samples, method", remedy=remedy) from None
    for name, ours, theirs in (
        ("alpha_us", found.alpha_us, stated.alpha_us),
        ("bandwidth_gb_s", _finite(found.bandwidth_gb_s), stated.bandwidth_gb_s),
        ("verdict", found.verdict, stated.verdict),
    ):
        if not _same(ours, theirs):
            raise FormatError(f"states {theirs}, but its samples give {ours}", file=str(path), field=f"figures.{name}",
                              remedy="sweep again: the file was changed")  # fmt: skip
    return found


def _same(ours: float | str | None, theirs: float | str | None) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=_TOLERANCE, abs_tol=1e-9)
    return ours == theirs
