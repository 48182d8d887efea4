"""Reports as files: read strictly into a typed object, in one canonical form, and recompute from what they state."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from commcanary_lab.canonical import canonical_bytes, read_document, sha256_hex
from commcanary_lab.errors import FormatError, LabError, Problem
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.simulate.backend import Backend, parse_ablations
from commcanary_lab.simulate.models import get_model
from commcanary_lab.simulate.prepare import ASSUMABLE, prepare
from commcanary_lab.simulate.report import Calibration, LatencySummary, Report, Sample, simulate_prepared
from commcanary_lab.trace.model import Trace

__all__ = ["FORMAT", "METRICS", "ReportFile", "SampleParts", "parse_report", "read_report", "recompute_report"]

FORMAT = "commcanary_lab.report.v1"

#: Every metric of a report, in the order in which it states them.
METRICS = (
    *("count", "median_us", "p95_us", "p99_us", "max_us", "mean_us"),
    *("arrival_skew_median_us", "arrival_skew_p95_us", "arrival_skew_max_us", "avg_rank_wait_median_us", "communication_hidden_pct"),
)

_REQUIRED = {"format", "metrics", "by_phase", "by_op", "backend", "protocol", "assumptions", "notes", "workload", "samples_sha256"}
_OPTIONAL = {"calibration", "samples", "source"}
_REMEDY = "simulate again with -o"

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class SampleParts:
    """To which phase and operation each sample belongs.

    Parameters
    ----------
    names : tuple of (str, str)
        Phase and operation of each part, ascending.
    codes : ndarray of int64
        Index into `names` of each sample.
    """

    names: tuple[tuple[str, str], ...]
    codes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]]) -> SampleParts:
        """Number the parts of samples.

        Examples
        --------
        >>> SampleParts.of([("decode", "reduce"), ("decode", "all_reduce"), ("decode", "reduce")]).codes.tolist()
        [1, 0, 1]
        """
        names = tuple(sorted(set(pairs)))
        number = {name: i for i, name in enumerate(names)}
        return cls(names, np.array([number[p] for p in pairs], np.int64))


@dataclass(frozen=True, eq=False)
class ReportFile:
    """What a report file states.

    Attributes
    ----------
    backend : Backend
        The configuration.
    model : str
        The cost model.
    ablations : tuple of str
        Mechanisms removed.
    metrics : mapping of str to float
        All of `METRICS`.
    by_phase, by_op : mapping of str to LatencySummary
        Breakdowns of the exposed latency.
    calibration : Calibration or None
    assumptions : mapping of str to float
        Values assumed for unknown fields, microseconds.
    notes : tuple of str
    workload_sha256, samples_sha256 : str
        Identity of what was simulated, and of every sample.
    events : int
        Events of the workload.
    source : mapping of str to str
        Where the workload came from: ``canary`` (SHA-256) or ``trace`` (a file name).
    exposed_us : ndarray of float64 or None
        Exposed latency of each sample, where the report has samples.
    canonical : bytes
        The report as canonical JSON.
    parts : SampleParts or None
        Phase and operation of each sample, where the report has samples.
    """

    backend: Backend
    model: str
    ablations: tuple[str, ...]
    metrics: Mapping[str, float]
    by_phase: Mapping[str, LatencySummary]
    by_op: Mapping[str, LatencySummary]
    calibration: Calibration | None
    assumptions: Mapping[str, float]
    notes: tuple[str, ...]
    workload_sha256: str
    samples_sha256: str
    events: int
    source: Mapping[str, str]
    exposed_us: npt.NDArray[np.float64] | None
    canonical: bytes = field(repr=False)
    parts: SampleParts | None = None

    @classmethod
    def of(cls, report: Report | ReportFile) -> ReportFile:
        """Return the file form of a report that was just simulated; its samples are known.

        Examples
        --------
        >>> import commcanary_lab as lab
        >>> ReportFile.of(lab.simulate(lab.samples.adversarial())).metrics["p99_us"]
        263.601
        """
        if isinstance(report, ReportFile):
            return report
        from dataclasses import replace

        return replace(parse_report(report.to_json()), exposed_us=report.samples.exposed_us, parts=_parts_of(report))

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical form."""
        return sha256_hex(self.canonical)

    def __repr__(self) -> str:
        return f"ReportFile({self.backend.label}, {self.events:,} events, p99 {self.metrics['p99_us']} us)"


def read_report(path: str | os.PathLike[str], *, limits: Limits = DEFAULT) -> ReportFile:
    """Read a report file.

    Raises
    ------
    InputError
        If the file cannot be read or is no valid report; the message names file and field.
    """
    return parse_report(read_document(path, _REMEDY, limits=limits), file=str(path))


def parse_report(document: Any, *, file: str | None = None) -> ReportFile:
    """Check a decoded report strictly and return it typed.

    Raises
    ------
    FormatError
        If a field is missing, unknown, or of the wrong type.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> parse_report({"format": "commcanary.trace.v1"})
    Traceback (most recent call last):
    commcanary_lab.errors.FormatError: format: is 'commcanary.trace.v1', expected commcanary_lab.report.v1; simulate again with -o
    """
    try:
        return _parse(document)
    except LabError as e:
        problems = [Problem(p.what, file=file, field=p.field, remedy=p.remedy or _REMEDY) for p in e.problems]
        raise FormatError(problems) from None


def _parse(document: Any) -> ReportFile:
    if not isinstance(document, dict):
        raise FormatError("is not an object")
    if document.get("format") != FORMAT:
        raise FormatError(f"is {document.get('format')!r}, expected {FORMAT}", field="format")
    _keys(document, _REQUIRED, _OPTIONAL, "")
    protocol = _protocol(document["protocol"])
    workload = _object(document["workload"], {"events", "sha256"}, "workload")
    metrics = _object(document["metrics"], set(METRICS), "metrics")
    samples = document.get("samples")
    return ReportFile(
        _backend(document["backend"]),
        get_model(_typed(protocol["model"], str, "protocol.model")).name,
        tuple(protocol["ablations"]),
        {name: _number(metrics[name], f"metrics.{name}") for name in METRICS},
        _breakdown(document["by_phase"], "by_phase"),
        _breakdown(document["by_op"], "by_op"),
        _calibration(document["calibration"]) if "calibration" in document else None,
        _assumptions(document["assumptions"]),
        tuple(_typed(n, str, f"notes[{i}]") for i, n in enumerate(_typed(document["notes"], list, "notes"))),
        _sha(workload["sha256"], "workload.sha256"),
        _sha(document["samples_sha256"], "samples_sha256"),
        _typed(workload["events"], int, "workload.events"),
        _source(document.get("source", {})),
        None if samples is None else _exposed(samples),
        canonical_bytes(document),
        None if samples is None else SampleParts.of([(row["phase"], row["op"]) for row in samples]),
    )


def recompute_report(stated: ReportFile, trace: Trace, *, source: Mapping[str, str], samples: bool) -> dict[str, Any]:
    """Simulate a trace by the protocol that a report states, and return the report that it should be.

    Parameters
    ----------
    stated : ReportFile
        Gives backend, model, ablations and assumptions.
    trace : Trace
        The workload.
    source : mapping of str to str
        What the recomputed report states as its source; empty for none.
    samples : bool
        Include one sample per event and iteration.

    Raises
    ------
    UnknownValueError
        If the workload has unknown values that the report does not say it assumed.
    """
    prepared = prepare(trace, stated.assumptions)
    report = simulate_prepared(prepared, stated.backend, ablations=frozenset(stated.ablations), model=stated.model)
    document = report.to_json(samples=samples)
    if source:
        document["source"] = dict(source)
    return document


def _typed(value: Any, kind: type[_T], where: str) -> _T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise FormatError(f"is {type(value).__name__}, expected {kind.__name__}", field=where)
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FormatError(f"is {type(value).__name__}, expected a number", field=where)
    return value


def _sha(value: Any, where: str) -> str:
    text = _typed(value, str, where)
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise FormatError("is not 64 hexadecimal digits", field=where)
    return text


def _keys(value: Mapping[str, Any], required: set[str], optional: set[str], where: str) -> None:
    prefix = f"{where}." if where else ""
    for name in sorted(required - set(value)):
        raise FormatError("is missing", field=f"{prefix}{name}")
    for name in sorted(set(value) - required - optional):
        raise FormatError("is unknown", field=f"{prefix}{name}")


def _object(value: Any, required: set[str], where: str, optional: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    found = _typed(value, dict, where)
    _keys(found, required, optional, where)
    return found


def _backend(value: Any) -> Backend:
    found = _object(value, {f.name for f in fields(Backend)}, "backend")
    _typed(found["label"], str, "backend.label")
    try:
        return Backend(**found)
    except LabError as e:
        raise FormatError(e.problems[0].what, field="backend") from None


def _protocol(value: Any) -> dict[str, Any]:
    found = _object(value, {"model", "ablations", "origin", "ablation_label"}, "protocol")
    names = [_typed(a, str, "protocol.ablations") for a in _typed(found["ablations"], list, "protocol.ablations")]
    if names != sorted(parse_ablations(names)):
        raise FormatError("is not sorted, or names an ablation twice", field="protocol.ablations")
    return found


def _breakdown(value: Any, where: str) -> dict[str, LatencySummary]:
    out: dict[str, LatencySummary] = {}
    for i, row in enumerate(_typed(value, list, where)):
        place = f"{where}[{i}]"
        found = _object(row, {"name", *(f.name for f in fields(LatencySummary))}, place)
        name = _typed(found["name"], str, f"{place}.name")
        if name in out:
            raise FormatError(f"{name!r} occurs twice", field=place)
        numbers = {f.name: _number(found[f.name], f"{place}.{f.name}") for f in fields(LatencySummary)}
        out[name] = LatencySummary(**numbers)  # type: ignore[arg-type]
    return out


def _calibration(value: Any) -> Calibration:
    found = _object(value, {f.name for f in fields(Calibration)}, "calibration")
    numbers = {n: None if v is None and n == "mape_pct" else _number(v, f"calibration.{n}") for n, v in found.items()}
    return Calibration(**numbers)  # type: ignore[arg-type]


def _assumptions(value: Any) -> dict[str, float]:
    out = {}
    for i, row in enumerate(_typed(value, list, "assumptions")):
        found = _object(row, {"field", "value"}, f"assumptions[{i}]")
        if found["field"] not in ASSUMABLE or found["field"] in out:
            raise FormatError(f"{found['field']!r} cannot be assumed, or is assumed twice", field=f"assumptions[{i}].field")
        out[found["field"]] = _number(found["value"], f"assumptions[{i}].value")
        if not 0 <= out[found["field"]] < 1e12:
            raise FormatError("is not a time", field=f"assumptions[{i}].value")
    return out


def _source(value: Any) -> dict[str, str]:
    found = _object(value, set(), "source", {"canary", "trace"})
    return {k: _sha(v, "source.canary") if k == "canary" else _typed(v, str, f"source.{k}") for k, v in found.items()}


def _exposed(value: Any) -> npt.NDArray[np.float64]:
    names = {f.name for f in fields(Sample)}
    rows = [_object(row, names, f"samples[{i}]") for i, row in enumerate(_typed(value, list, "samples"))]
    for i, row in enumerate(rows):
        for name in ("phase", "op"):
            _typed(row[name], str, f"samples[{i}].{name}")
    return np.array([_number(row["exposed_us"], f"samples[{i}].exposed_us") for i, row in enumerate(rows)], np.float64)


def _parts_of(report: Report) -> SampleParts:
    """Phase and operation of the samples of a report that was just simulated, named as its samples would name them."""
    trace, event = report.prepared.trace, report.samples.event
    pairs = [(phase or "unknown", op or "") for phase, op in zip(trace.phase.to_list(), trace.op.to_list(), strict=True)]
    found = SampleParts.of(pairs)
    return SampleParts(found.names, found.codes[event])
