"""The canary file: canonical JSON, columnar inside, readable. Format: `docs/formats/canary.md`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.codec import encode, thousandths
from commcanary_lab.canary.disclosure import disclosure
from commcanary_lab.canary.fields import SCALAR_FIELDS
from commcanary_lab.canary.grammar import Grammar
from commcanary_lab.canary.model import Canary
from commcanary_lab.canary.streams import APPROXIMATED, ERROR_FIELDS, BoundedStream, ExactStream
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.trace.columns import Coded
from commcanary_lab.trace.model import Trace

__all__ = ["FORMAT", "SIGNATURE_NUMBERS", "SIGNATURE_TEXTS", "to_bytes", "to_document"]

FORMAT = "commcanary_lab.canary.v1"

SIGNATURE_TEXTS = ("op", "phase", "dtype", "reduction", "tag", "channel")
SIGNATURE_NUMBERS = ("root", "sender", "receiver", "concurrent_groups")


def to_bytes(canary: Canary) -> bytes:
    """Return the canonical JSON of a canary."""
    return canonical_bytes(_document(canary, arrays=True))


def to_document(canary: Canary) -> dict[str, Any]:
    """Return a canary as a JSON value."""
    return _document(canary, arrays=False)


def _document(canary: Canary, arrays: bool) -> dict[str, Any]:
    """The JSON value; long lists of whole numbers are left as arrays if asked: they are most of a canary of irregular timing."""
    source = canary.source
    out: dict[str, Any] = {
        "format": FORMAT,
        "clock": {"governs": canary.clock.governs, "first_start_ns": canary.clock.first_start_ns},
        "groups": [[g.name, _ranges(g.members)] for g in canary.signatures.groups],
        "signatures": _signatures(canary.signatures),
        "patterns": [sorted(p) for p in canary.patterns],
        "steps": {"count": len(canary.streams), "signature": encode(canary.step_signature), "pattern": encode(canary.step_pattern)},
        "program": _program(canary.program, arrays),
        "source": {
            "events": source.events,
            "range": [source.start, source.stop],
            "bytes": source.size_bytes,
            "root": source.root,
            "locator": source.locator.to_json(),
            "salted": source.salted,
            "format": source.format,
            "records": {"read": source.records_read, "used": source.records_used},
        },
        "timing": canary.timing,
        "records": canary.records,
        "errors": dict(canary.errors),
        "disclosure": disclosure(canary),
    }
    if source.derived_from is not None:
        out["source"]["derived_from"] = dict(source.derived_from)
    if canary.notes:
        out["notes"] = list(canary.notes)
    if canary.signatures.rank_sets:
        out["rank_sets"] = [list(s) for s in canary.signatures.rank_sets]
    if len(canary.splits):
        out["splits"] = [canary.splits.row(i).tolist() for i in range(len(canary.splits))]
    exact = [(i, s) for i, s in enumerate(canary.streams) if isinstance(s, ExactStream)]
    bounded = [(i, s) for i, s in enumerate(canary.streams) if isinstance(s, BoundedStream)]
    if exact:
        out["exact"] = _exact([s for _, s in exact], arrays)
    if bounded:
        out["bounded"] = _bounded([i for i, _ in bounded], [s for _, s in bounded])
    return out


def _ranges(members: tuple[int, ...]) -> list[list[int]]:
    """Ascending ranks as [first, last] pairs."""
    ranks = np.array(members)
    cuts = np.flatnonzero(np.diff(ranks) != 1)
    return [[int(a), int(b)] for a, b in zip(ranks[np.append(0, cuts + 1)], ranks[np.append(cuts, len(ranks) - 1)], strict=True)]


def _signatures(table: Trace) -> dict[str, Any]:
    names: dict[str, int] = {}

    def codes(column: Coded) -> npt.NDArray[np.int64]:
        return np.array([-1 if t is None else names.setdefault(t, len(names)) for t in column.to_list()], np.int64)

    columns: dict[str, npt.NDArray[Any]] = {name: codes(getattr(table, name)) for name in SIGNATURE_TEXTS}
    columns = {name: values for name, values in columns.items() if (values >= 0).any()}
    columns["bytes"] = table.size_bytes
    columns["group"] = table.group.astype(np.int64)
    if table.custom_op.any():
        columns["custom_op"] = table.custom_op.astype(np.int64)
    for name in SIGNATURE_NUMBERS:
        column = getattr(table, name)
        if column.known_count:
            columns[name] = column.filled(-1)
    if (table.observers >= 0).any():
        columns["observers"] = table.observers.astype(np.int64)
    return {"count": len(table), "names": list(names), **{name: encode(values) for name, values in columns.items()}}


def _program(program: Grammar, arrays: bool) -> list[Any]:
    bodies: list[Any] = []
    for a, b in pairwise(program.row_ptr.tolist()):
        values, counts = program.values[a:b], program.counts[a:b]
        if (counts == 1).all():
            bodies.append(values.astype(np.int64) if arrays else values.tolist())
        else:
            bodies.append([v if c == 1 else [v, c] for v, c in zip(values.tolist(), counts.tolist(), strict=True)])
    return bodies


def _column(name: str, values: npt.NDArray[Any]) -> tuple[str, npt.NDArray[Any]]:
    """Pressures with at most 3 decimals are written as whole thousandths."""
    if name == "pressure" and (milli := thousandths(values)) is not None:
        return "pressure_milli", milli
    return name, values


def _exact(streams: list[ExactStream], arrays: bool) -> dict[str, Any]:
    def coded(values: npt.NDArray[Any]) -> Any:
        return encode(values, arrays=arrays)

    out: dict[str, Any] = {"gap_ns": [coded(s.gap_ns) for s in streams]}
    for name in SCALAR_FIELDS:
        having = [s.scalars[name] for s in streams if name in s.scalars]
        if not having:
            continue
        key, flat = _column(name, np.concatenate(having))
        cuts = np.cumsum([len(h) for h in having])[:-1]
        out[key] = [coded(part) for part in np.split(flat, cuts)]
    arrivals = [[coded(c) for c in s.arrival_ns.T] for s in streams if s.arrival_ns.shape[1]]
    if arrivals:
        out["arrival_ns"] = arrivals
    return out


def _bounded(steps: list[int], streams: list[BoundedStream]) -> dict[str, Any]:
    """Columns over all intervals of all bounded steps; a field that only some steps have is dense over those."""

    def joined(parts: list[npt.NDArray[Any]]) -> Any:
        return encode(np.concatenate(parts))

    out: dict[str, Any] = {
        "step": steps,
        "intervals": [len(s.lengths) for s in streams],
        "rows": joined([s.lengths for s in streams]),
        "gap_ns": joined([s.gap_ns for s in streams]),
        "last_gap_ns": joined([s.last_gap_ns for s in streams]),
        "gap_sum_ns": joined([s.gap_sum_ns for s in streams]),
        "sha256": [c for s in streams for c in s.commitments],
    }
    for name in APPROXIMATED:
        having = [s.scalars[name] for s in streams if name in s.scalars]
        if having:
            key, flat = _column(name, np.concatenate(having))
            out[key] = encode(flat)
    for name in ("message_sequence", "split"):
        having = [s.exact[name] for s in streams if name in s.exact]
        if having:
            out[name] = joined(having)
    if any(s.arrival_ns.size for s in streams):
        out["arrival_ns"] = joined([s.arrival_ns.reshape(-1) for s in streams])
    errors = {}
    for name in ERROR_FIELDS:
        having = [s.errors[name] for s in streams if name in s.errors]
        if having:
            errors[name] = joined(having)
    out["errors"] = errors
    return out
