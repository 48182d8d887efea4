"""The ``system.commcanary_lab`` section: what the interchange format itself cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from commcanary_lab.errors import InputError
from commcanary_lab.trace.model import ImportCoverage, Trace, UnsizedRow

__all__ = ["LabSection", "default_notes", "lab_section", "read_lab_section"]


class _Coverage(msgspec.Struct, omit_defaults=True):
    read: int = 0
    used: int = 0
    skipped: dict[str, int] = {}
    ranks: list[int] = []
    files: list[str] = []


class _Unsized(msgspec.Struct, omit_defaults=True):
    name: str
    time_ns: int
    reason: str
    rank: int | None = None
    start_ns: int | None = None
    size_bytes: int | None = None


class _Section(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=False):
    source_format: str | None = None
    coverage: _Coverage | None = None
    notes: list[str] = []
    warnings: list[str] = []
    unsized: list[_Unsized] = []
    extra: dict[str, Any] = {}
    defaults_noted: bool = False


class LabSection(msgspec.Struct, frozen=True):
    """The section, decoded.

    ``defaults_noted`` says that the writer knew where the format's defaults apply, so that reading need not note it again.
    """

    source_format: str | None = None
    coverage: ImportCoverage | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unsized: tuple[UnsizedRow, ...] = ()
    extra: Mapping[str, Any] = {}
    defaults_noted: bool = False


def read_lab_section(value: Any, file: str) -> LabSection:
    """Decode the section; an absent one is empty.

    Raises
    ------
    InputError
        If the section does not have the shape that this package writes.
    """
    if value is None:
        return LabSection()
    try:
        s = msgspec.convert(value, _Section)
    except msgspec.ValidationError as e:
        raise InputError(
            f"is damaged: {e}", file=file, field="system.commcanary_lab", remedy="remove the section or re-export the trace"
        ) from None
    coverage = (
        None
        if s.coverage is None
        else ImportCoverage(s.coverage.read, s.coverage.used, s.coverage.skipped, tuple(s.coverage.ranks), tuple(s.coverage.files))
    )
    return LabSection(
        s.source_format,
        coverage,
        tuple(s.notes),
        tuple(s.warnings),
        tuple(UnsizedRow(u.name, u.time_ns, u.reason, u.rank, u.start_ns, u.size_bytes) for u in s.unsized),
        s.extra,
        s.defaults_noted,
    )


def lab_section(trace: Trace) -> dict[str, Any]:
    """Encode what the interchange format cannot say; empty for a plain trace.

    Examples
    --------
    >>> lab_section(Trace.build(0, op=__import__("commcanary_lab.trace").trace.Coded.constant(0, None),
    ...             group=__import__("numpy").zeros(0, "int32"), groups=(), size_bytes=__import__("numpy").zeros(0, "int64")))
    {}
    """
    plain = ImportCoverage(read=len(trace), used=len(trace))
    c = trace.coverage
    section = _Section(
        source_format=None if trace.source_format == "commcanary.trace.v1" else trace.source_format,
        coverage=None if c == plain else _Coverage(c.read, c.used, dict(c.skipped), list(c.ranks), list(c.files)),
        notes=list(trace.notes),
        warnings=list(trace.warnings),
        unsized=[_Unsized(u.name, u.time_ns, u.reason, u.rank, u.start_ns, u.size_bytes) for u in trace.unsized],
        extra=dict(trace.extra),
        defaults_noted=bool(default_notes(trace)),
    )
    out: dict[str, Any] = msgspec.to_builtins(section)
    return out


def default_notes(trace: Trace, default_overlaps: int = 0) -> list[str]:
    """Say where the format's defaults stand in for what a file leaves out.

    Parameters
    ----------
    trace : Trace
        The trace as read.
    default_overlaps : int
        How many events neither give nor disclaim ``compute_overlap_us``.
    """
    n, notes = len(trace), []
    silent = int(np.count_nonzero(trace.arrival_known & (trace.arrival_ns.lengths == 0)))
    if silent:
        notes.append(f"{silent} of {n} events give no arrivals; the format's default of 0 us skew applies")
    if default_overlaps:
        notes.append(f"{default_overlaps} of {n} events give no compute_overlap_us; the format's default of 0 us applies")
    broadcasts = [i for i, name in enumerate(trace.op.names) if name == "broadcast"]
    rootless = int(np.count_nonzero(np.isin(trace.op.codes, broadcasts) & ~trace.root.mask)) if broadcasts else 0
    if rootless:
        notes.append(f"{rootless} broadcast{'s' if rootless > 1 else ''} without root_rank: replay and export refuse them")
    return notes
