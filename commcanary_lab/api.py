"""The verbs of the Python API: open, compile, simulate, verify, write."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from commcanary_lab.canary.compile import BUDGET_FIELDS, compile_trace
from commcanary_lab.canary.model import Canary
from commcanary_lab.canary.read import read_canary, write_canary
from commcanary_lab.errors import UsageError
from commcanary_lab.importers.open import open_trace
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend, load_backends, parse_ablations, parse_backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.simulate.prepare import parse_assumptions, prepare
from commcanary_lab.simulate.report import Report, simulate_prepared
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.model import Tolerances, Verification
from commcanary_lab.verify.run import verify_canary

__all__ = ["compile", "open", "read_canary", "simulate", "verify", "write"]

Path_ = str | os.PathLike[str]


def open(paths: Path_ | Sequence[Path_], **options: Any) -> Trace:
    """Open a trace: any known format, one file, several, or a directory with one file per rank.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        What to open; the format is recognised by content.
    **options
        As for `importers.open.open_trace`: ``format``, ``ranks``, ``clock_offsets_ns``, ``align_ends``, ``round_ns``, ``check``,
        ``limits``.

    Returns
    -------
    Trace

    Raises
    ------
    FormatError, InputError
        If the input is not recognised or invalid.
    """
    return open_trace(paths, **options)


def compile(
    trace: Trace,
    *,
    lossless: bool | None = None,
    records: int | None = None,
    events: tuple[int, int] | None = None,
    salt: bytes = b"",
    strict: bool = False,
    **max_errors: float,
) -> Canary:
    """Compile a trace into a canary.

    Parameters
    ----------
    trace : Trace
        The source.
    lossless : bool, optional
        Exact timing; the default when neither `records` nor an error budget is given.
    records : int, optional
        At most this many intervals per step stream.
    events : (int, int), optional
        Half-open range of source events.
    salt : bytes
        Mixed into the commitments; keep it, verification needs it.
    strict : bool
        Refuse unknown fields.
    **max_errors : float
        Error budgets such as ``max_skew_error_us=2`` (``max_pressure_error=0.05``).

    Returns
    -------
    Canary

    Raises
    ------
    BudgetError
        If a budget cannot be met.
    UsageError
        If `lossless` is combined with `records` or a budget, or an option is unknown.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> lab.compile(lab.samples.adversarial()).timing
    'lossless'
    """
    budgets = {}
    for option, value in max_errors.items():
        name = option.removeprefix("max_").removesuffix("_us").removesuffix("_error")
        if option != _budget_option(name) or name not in BUDGET_FIELDS:
            raise UsageError(f"unknown option {option!r}", remedy=f"known: {', '.join(map(_budget_option, BUDGET_FIELDS))}")
        budgets[name] = value
    if lossless and (records is not None or budgets):
        raise UsageError("lossless excludes records and error budgets", remedy="give one of them")
    if lossless is False and records is None and not budgets:
        raise UsageError("nothing says how far timing may differ", remedy="give records or an error budget")
    return compile_trace(trace, records=records, budgets=budgets, events=events, salt=salt, strict=strict)


def _budget_option(name: str) -> str:
    return f"max_{name}_error" if name == "pressure" else f"max_{name}_error_us"


def _assumptions(assume: str | Mapping[str, float] | None) -> Mapping[str, float]:
    return parse_assumptions(assume) if isinstance(assume, str) else dict(assume or {})


def _backends(backends: Path_ | Sequence[Backend | str] | None) -> tuple[Backend, ...]:
    if backends is None:
        return DEFAULT_BACKENDS
    if isinstance(backends, (str, os.PathLike)):
        return load_backends(backends)
    return tuple(b if isinstance(b, Backend) else parse_backend(b) for b in backends)


def simulate(
    source: Canary | Trace,
    backend: str | Backend = "baseline",
    *,
    ablate: Iterable[str] = (),
    assume: str | Mapping[str, float] | None = None,
    model: str | CostModel = "commcanary-v4",
    backends: Path_ | Sequence[Backend | str] | None = None,
) -> Report:
    """Simulate a canary or a trace on one backend.

    Parameters
    ----------
    source : Canary or Trace
    backend : str or Backend
        A name, or ``key=value`` pairs such as ``"latency_floor_us=12"``.
    ablate : iterable of str
        Mechanisms to remove.
    assume : str or mapping, optional
        Values for unknown fields, e.g. ``"skew_us=0,overlap_us=0"``; stamped into the report.
    model : str or CostModel
        The cost model.
    backends : path or sequence, optional
        Where names are looked up besides the five defaults.

    Returns
    -------
    Report

    Raises
    ------
    UnknownValueError
        If a field is unknown and not assumed.
    UsageError
        If a name is unknown.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> lab.simulate(lab.samples.adversarial(), "congested").metrics["p99_us"]
    274.811
    """
    trace = source.trace if isinstance(source, Canary) else source
    known = (*DEFAULT_BACKENDS, *_backends(backends)) if backends is not None else DEFAULT_BACKENDS
    chosen = backend if isinstance(backend, Backend) else parse_backend(backend, known)
    names = [ablate] if isinstance(ablate, str) else ablate
    return simulate_prepared(prepare(trace, _assumptions(assume)), chosen, ablations=parse_ablations(names), model=model)


def verify(
    trace: Trace,
    canary: Canary,
    *,
    backends: Path_ | Sequence[Backend | str] | None = None,
    tolerances: Tolerances | None = None,
    salt: bytes = b"",
    assume: str | Mapping[str, float] | None = None,
    model: str | CostModel = "commcanary-v4",
) -> Verification:
    """Verify a canary against its source; see `verify.run.verify_canary`.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> check = lab.verify(trace, lab.compile(trace, events=(0, 50)))
    >>> check.coverage, check.claim
    ('partial_source', 'partial')
    """
    return verify_canary(
        trace, canary, backends=_backends(backends), tolerances=tolerances, salt=salt, assume=_assumptions(assume), model=model
    )


def write(artifact: Trace | Canary, path: Path_) -> int:
    """Write a trace (``.json`` or ``.parquet``) or a canary (``.json``), atomically.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    UsageError
        If the suffix names no format.
    """
    suffix = Path(path).suffix.lower()
    if isinstance(artifact, Canary):
        if suffix != ".json":
            raise UsageError(f"{path}: canaries are written as .json", remedy="choose a name that ends in .canary.json")
        return write_canary(artifact, path)
    if suffix == ".parquet":
        from commcanary_lab.trace.parquet import write_parquet

        return write_parquet(artifact, path)
    if suffix == ".json":
        from commcanary_lab.trace.write_v1 import write_json

        return write_json(artifact, path)
    raise UsageError(f"{path}: no trace format has the suffix {suffix!r}", remedy="choose .json or .parquet")
