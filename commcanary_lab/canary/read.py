"""Read and validate a canary file. Everything is checked before anything is expanded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.codec import decode
from commcanary_lab.canary.commit import Locator
from commcanary_lab.canary.document import FORMAT, SIGNATURE_NUMBERS, SIGNATURE_TEXTS
from commcanary_lab.canary.fields import SCALAR_FIELDS, Clock
from commcanary_lab.canary.grammar import Grammar, expand, expanded_length
from commcanary_lab.canary.model import Canary, SourceStatement
from commcanary_lab.canary.streams import APPROXIMATED, ERROR_FIELDS, BoundedStream, ExactStream, StepStream
from commcanary_lab.canonical import canonical_bytes, loads_strict, write_atomic
from commcanary_lab.errors import FormatError, LabError, Problem
from commcanary_lab.files import read_file
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.groups import ProcessGroup
from commcanary_lab.trace.model import Trace

__all__ = ["read_canary", "read_canary_bytes", "write_canary"]

_T = TypeVar("_T")

_TOP = {
    "format",
    "clock",
    "groups",
    "signatures",
    "patterns",
    "steps",
    "program",
    "source",
    "timing",
    "records",
    "errors",
    "disclosure",
    "notes",
    "rank_sets",
    "splits",
    "exact",
    "bounded",
}


def write_canary(canary: Canary, path: str | os.PathLike[str]) -> int:
    """Write a canary as canonical JSON, atomically; returns the number of bytes."""
    return write_atomic(path, canary.canonical)


def read_canary(path: str | os.PathLike[str], *, limits: Limits = DEFAULT) -> Canary:
    """Read a canary from a file.

    Raises
    ------
    InputError
        If the file cannot be read or is no valid canary; the message names the place.
    """
    return read_canary_bytes(read_file(path, limits=limits), file=str(path), limits=limits)


def read_canary_bytes(data: bytes, *, file: str = "<memory>", limits: Limits = DEFAULT) -> Canary:
    """Read a canary from bytes; see `read_canary`."""
    try:
        document = loads_strict(data, file)
        return _Reader(limits).canary(document)
    except LabError as e:
        raise FormatError(
            [
                Problem(p.what, file=file, line=p.line, field=p.field, remedy=p.remedy or "the canary is damaged; compile it again")
                for p in e.problems
            ]
        ) from None
    except _WRONG as e:
        raise FormatError(f"not a valid canary: {type(e).__name__}: {e}", file=file, remedy="compile it again") from None


#: What content of the wrong shape raises.
_WRONG = (AttributeError, IndexError, KeyError, OverflowError, StopIteration, TypeError, ValueError)


@contextmanager
def _inside(field: str) -> Iterator[None]:
    """Name the part of the file in which something is wrong, where it is not named already."""
    try:
        yield
    except LabError as e:
        raise FormatError([replace(p, field=p.field or field) for p in e.problems]) from None
    except StopIteration:
        raise FormatError("has values for fewer steps than the program has", field=field) from None
    except KeyError as e:
        raise FormatError(f"has no {e}", field=field) from None
    except _WRONG as e:
        raise FormatError(f"not what a canary has there: {e}", field=field) from None


def _get(value: dict[str, Any], key: str, kind: type[_T]) -> _T:
    if key not in value:
        raise FormatError("is missing", field=key)
    found = value[key]
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise FormatError(f"is {type(found).__name__}, expected {kind.__name__}", field=key)
    return found


class _Reader:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def canary(self, document: Any) -> Canary:
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise FormatError(
                f"format is {document.get('format')!r}" if isinstance(document, dict) else "is not an object",
                field="format",
                remedy=f"expected {FORMAT}",
            )
        unknown = sorted(set(document) - _TOP)
        if unknown:
            raise FormatError(f"unknown field {unknown[0]!r}", field=unknown[0])
        with _inside("source"):
            source = self._source(_get(document, "source", dict))
        with _inside("signatures"):
            signatures = self._signatures(document)
        with _inside("patterns"):
            patterns = tuple(frozenset(p) for p in _get(document, "patterns", list))
            self._check_patterns(patterns)
        steps = _get(document, "steps", dict)
        count = _get(steps, "count", int)
        self.limits.check_events(count, "the steps")
        with _inside("program"):
            program = self._program(_get(document, "program", list), count, source.stop - source.start)
        with _inside("steps"):
            signature, pattern = decode(steps["signature"], count), decode(steps["pattern"], count)
        _all_used("steps.signature", signature, len(signatures))
        _all_used("steps.pattern", pattern, len(patterns))
        rows = np.bincount(expand(program, max_events=self.limits.max_events), minlength=count)
        if (rows == 0).any():
            raise FormatError(f"the program never runs step {int(np.argmin(rows))}", field="steps")
        shape = _Shape(rows, [patterns[p] for p in pattern.tolist()], signatures.group_sizes[signature])
        streams = self._streams(document, shape)
        with _inside("splits"):
            splits = self._splits(document, streams)
        canary = Canary(
            signatures,
            patterns,
            program,
            signature,
            pattern,
            streams,
            splits,
            self._clock(_get(document, "clock", dict)),
            source,
            _numbers(_get(document, "errors", dict)),
            tuple(map(str, document.get("notes", []))),
        )
        self._check_statements(document, canary)
        return canary

    @staticmethod
    def _clock(value: dict[str, Any]) -> Clock:
        clock = Clock(_get(value, "governs", str), _get(value, "first_start_ns", int))
        if clock.governs not in ("start", "gap", "compute_before", "none"):
            raise FormatError(f"governs is {clock.governs!r}", field="clock")
        if clock.governs != "start" and clock.first_start_ns:
            raise FormatError(f"first_start_ns is {clock.first_start_ns}, but starts do not govern", field="clock")
        return clock

    @staticmethod
    def _splits(document: dict[str, Any], streams: tuple[StepStream, ...]) -> Ragged:
        table = document.get("splits", [])
        having = [s.exact if isinstance(s, BoundedStream) else s.scalars for s in streams]
        _all_used("splits", np.concatenate([np.zeros(0, np.int64), *(h["split"] for h in having if "split" in h)]), len(table))
        return Ragged.from_rows(table) if table else Ragged.empty(0)

    def _source(self, value: dict[str, Any]) -> SourceStatement:
        events, (start, stop) = _get(value, "events", int), _get(value, "range", list)
        if not (0 <= start <= stop <= events):
            raise FormatError(f"the range {start}:{stop} does not fit {events} events", field="source.range")
        self.limits.check_events(stop - start, "the canary")
        root = _get(value, "root", str)
        if len(root) != 64 or not set(root) <= set("0123456789abcdef"):
            raise FormatError("the root commitment is not 64 hexadecimal digits", field="source.root")
        records = _get(value, "records", dict)
        locator = _get(value, "locator", list)
        if len(locator) != 1 + max(1, (stop - start - 1).bit_length()):
            raise FormatError(f"the locator has {len(locator)} sums", field="source.locator")
        return SourceStatement(
            events,
            start,
            stop,
            _get(value, "bytes", int),
            root,
            Locator.from_json(locator),
            _get(value, "salted", bool),
            _get(value, "format", str),
            _get(records, "read", int),
            _get(records, "used", int),
            value.get("derived_from"),
        )

    def _signatures(self, document: dict[str, Any]) -> Trace:
        groups = []
        for name, ranges in _get(document, "groups", list):
            total = sum(last - first + 1 for first, last in ranges)
            if total > self.limits.max_ranks or any(last < first or first < 0 for first, last in ranges):
                raise FormatError("a group has impossible ranks", field="groups")
            members = tuple(r for first, last in ranges for r in range(first, last + 1))
            if sorted(set(members)) != list(members) or not members or not (name is None or isinstance(name, str)):
                raise FormatError("a group is not a name and ascending ranks", field="groups")
            groups.append(ProcessGroup(name, members))
        table = _get(document, "signatures", dict)
        n = _get(table, "count", int)
        self.limits.check_events(n, "the signatures")
        names = tuple(_get(table, "names", list))
        if not all(isinstance(name, str) for name in names):
            raise FormatError("holds something else than text", field="signatures.names")
        columns: dict[str, Any] = {}
        for key in SIGNATURE_TEXTS:
            if key in table:
                codes = decode(table[key], n)
                _in_range(f"signatures.{key}", codes, len(names), low=-1)
                columns[key] = Coded.from_optional([None if c < 0 else names[c] for c in codes.tolist()])
        for key in SIGNATURE_NUMBERS:
            if key in table:
                values = decode(table[key], n)
                columns[key] = Column(np.maximum(values, 0), values >= 0)
        if n and "op" not in columns:
            raise FormatError("signatures name no operation", field="signatures.op")
        columns.setdefault("op", Coded.constant(n, None))
        group = decode(table["group"], n)
        _all_used("signatures.group", group, len(groups))
        rank_sets = tuple(tuple(s) for s in document.get("rank_sets", []))
        if "observers" in table:
            columns["observers"] = decode(table["observers"], n).astype(np.int32)
        observers = columns.get("observers", np.zeros(0, np.int32))
        _in_range("signatures.observers", observers, len(rank_sets), low=-1)
        _all_used("signatures.observers", observers[observers >= 0], len(rank_sets))
        if "custom_op" in table:
            columns["custom_op"] = decode(table["custom_op"], n).astype(np.bool_)
        size = decode(table["bytes"], n)
        if (size < 0).any():
            raise FormatError("a size is negative", field="signatures.bytes")
        return Trace.build(n, group=group.astype(np.int32), groups=tuple(groups), size_bytes=size, rank_sets=rank_sets, **columns)

    @staticmethod
    def _check_patterns(patterns: tuple[frozenset[str], ...]) -> None:
        known = {*SCALAR_FIELDS, "gap", "arrival_each", "arrival_skew", "arrival_unknown"}
        for p in patterns:
            if not p <= known:
                raise FormatError(f"unknown field {sorted(p - known)[0]!r} in a pattern", field="patterns")

    def _program(self, value: list[Any], steps: int, events: int) -> Grammar:
        rules = [[(item, 1) if isinstance(item, int) else (item[0], item[1]) for item in rule] for rule in value]
        program = Grammar.from_rules(rules)
        if program.item_count and program.values.max() >= steps:
            raise FormatError(f"the program runs step {program.values.max()} of {steps}", field="program")
        length = expanded_length(program)
        if length != events:
            raise FormatError(f"the program runs {length} events, the source range has {events}", field="program")
        return program

    def _streams(self, document: dict[str, Any], shape: _Shape) -> tuple[StepStream, ...]:
        with _inside("bounded"):
            bounded = self._bounded(document["bounded"], shape) if "bounded" in document else {}
        exact_steps = [i for i in range(len(shape.rows)) if i not in bounded]
        with _inside("exact"):
            exact = self._exact(document.get("exact", {}), exact_steps, shape)
        return tuple(bounded[i] if i in bounded else exact[i] for i in range(len(shape.rows)))

    def _exact(self, value: dict[str, Any], steps: list[int], shape: _Shape) -> dict[int, ExactStream]:
        columns = {"pressure" if k == "pressure_milli" else k: (k, iter(v)) for k, v in value.items()}
        out = {}
        for i in steps:
            rows = int(shape.rows[i])
            scalars: dict[str, npt.NDArray[Any]] = {}
            for name in SCALAR_FIELDS:
                if name in shape.patterns[i]:
                    key, parts = columns[name]
                    scalars[name] = _decoded(key, next(parts), rows)
            width = shape.width(i)
            arrival = np.zeros((rows, width), np.int64)
            if width:
                encoded = next(columns["arrival_ns"][1])
                if len(encoded) != width:
                    raise FormatError(f"step {i} has {len(encoded)} arrivals, expected {width}", field="exact.arrival_ns")
                arrival = np.stack([decode(e, rows) for e in encoded], axis=1)
            out[i] = ExactStream(decode(next(columns["gap_ns"][1]), rows), scalars, arrival, shape.is_skew(i))
        for name, (_, parts) in columns.items():
            if next(parts, None) is not None:
                raise FormatError("has values for more steps than the program has", field=f"exact.{name}")
        return out

    def _bounded(self, value: dict[str, Any], shape: _Shape) -> dict[int, BoundedStream]:
        hashes = _get(value, "sha256", list)
        steps = np.array(_get(value, "step", list), np.int64)
        _in_range("bounded.step", steps, len(shape.rows))
        intervals = decode(_get(value, "intervals", list), len(steps))
        if (intervals < 1).any() or intervals.sum() != len(hashes) or len(np.unique(steps)) != len(steps):
            raise FormatError("the intervals do not fit the commitments", field="bounded.intervals")
        total = len(hashes)
        base = {name: decode(value[name], total) for name in ("rows", "gap_ns", "last_gap_ns", "gap_sum_ns")}
        cuts = np.concatenate([[0], np.cumsum(intervals)])
        plain = _Dense(value, shape, steps, intervals)
        out = {}
        for position, step in enumerate(steps.tolist()):
            a, b = int(cuts[position]), int(cuts[position + 1])
            lengths = base["rows"][a:b]
            if (lengths < 1).any() or lengths.sum() != shape.rows[step]:
                raise FormatError(f"the intervals of step {step} do not cover its {shape.rows[step]} executions", field="bounded.rows")
            if (base["gap_ns"][a:b] != base["last_gap_ns"][a:b])[lengths == 1].any():
                raise FormatError(f"an interval of one execution of step {step} has two gaps", field="bounded.gap_ns")
            out[step] = BoundedStream(
                lengths,
                base["gap_ns"][a:b],
                base["last_gap_ns"][a:b],
                base["gap_sum_ns"][a:b],
                plain.scalars(step),
                plain.exact(step),
                plain.arrivals(step),
                plain.errors(step),
                tuple(hashes[a:b]),
                shape.is_skew(step),
            )
        return out

    @staticmethod
    def _check_statements(document: dict[str, Any], canary: Canary) -> None:
        """What the file states about itself must be what its content says."""
        from commcanary_lab.canary.document import to_document

        again = to_document(canary)
        canary.__dict__["canonical"] = canonical_bytes(again)  # already made: no need to encode again
        for key in sorted(set(document) | set(again)):
            if document.get(key) != again.get(key):
                raise FormatError("does not follow from the rest of the file", field=key)


class _Shape:
    """Executions, pattern and group size of each step."""

    def __init__(self, rows: npt.NDArray[np.int64], patterns: list[frozenset[str]], sizes: npt.NDArray[np.int64]) -> None:
        self.rows, self.patterns, self.sizes = rows, patterns, sizes

    def width(self, step: int) -> int:
        """Arrivals per execution."""
        p = self.patterns[step]
        return int(self.sizes[step]) if "arrival_each" in p else int("arrival_skew" in p)

    def is_skew(self, step: int) -> bool:
        """Whether the one arrival is the skew."""
        return "arrival_skew" in self.patterns[step]


class _Dense:
    """Columns over intervals, dense over the steps that have the field, handed out step by step."""

    def __init__(self, value: dict[str, Any], shape: _Shape, steps: npt.NDArray[np.int64], intervals: npt.NDArray[np.int64]) -> None:
        self._shape = shape
        self._count = dict(zip(steps.tolist(), intervals.tolist(), strict=True))
        order = steps.tolist()
        self._scalars: dict[str, Iterator[npt.NDArray[Any]]] = {}
        self._errors: dict[str, Iterator[npt.NDArray[Any]]] = {}
        self._exact: dict[str, Iterator[npt.NDArray[Any]]] = {}
        stated = _get(value, "errors", dict)
        for name in APPROXIMATED:
            sizes = [self._count[s] for s in order if name in shape.patterns[s]]
            if sizes:
                key = "pressure_milli" if name == "pressure" and "pressure_milli" in value else name
                self._scalars[name] = iter(np.split(_decoded(key, value[key], sum(sizes)), np.cumsum(sizes)[:-1]))
        for name in ("message_sequence", "split"):
            sizes = [int(shape.rows[s]) for s in order if name in shape.patterns[s]]
            if sizes:
                self._exact[name] = iter(np.split(decode(value[name], sum(sizes)), np.cumsum(sizes)[:-1]))
        for name in ERROR_FIELDS:
            sizes = [self._count[s] for s in order if self._has_error(name, s)]
            if sizes:
                dtype = np.float64 if name == "pressure" else np.int64
                self._errors[name] = iter(np.split(decode(stated[name], sum(sizes), dtype), np.cumsum(sizes)[:-1]))
        widths = [self._count[s] * shape.width(s) for s in order]
        flat = decode(value["arrival_ns"], sum(widths)) if sum(widths) else np.zeros(0, np.int64)
        self._arrivals = iter(np.split(flat, np.cumsum(widths)[:-1]))

    def _has_error(self, name: str, step: int) -> bool:
        if name in ("gap_ns", "prefix_gap_ns"):
            return True
        if name == "skew_ns":
            return self._shape.is_skew(step) or self._shape.width(step) > 1
        return self._shape.width(step) > 0 if name == "arrival_ns" else name in self._shape.patterns[step]

    def scalars(self, step: int) -> dict[str, npt.NDArray[Any]]:
        return {n: next(parts) for n, parts in self._scalars.items() if n in self._shape.patterns[step]}

    def exact(self, step: int) -> dict[str, npt.NDArray[Any]]:
        return {n: next(parts) for n, parts in self._exact.items() if n in self._shape.patterns[step]}

    def errors(self, step: int) -> dict[str, npt.NDArray[Any]]:
        return {n: next(parts) for n, parts in self._errors.items() if self._has_error(n, step)}

    def arrivals(self, step: int) -> npt.NDArray[np.int64]:
        return next(self._arrivals).reshape(self._count[step], self._shape.width(step))


def _decoded(key: str, value: Any, rows: int) -> npt.NDArray[Any]:
    if key == "pressure_milli":
        return decode(value, rows) / 1000
    return decode(value, rows, np.float64 if key == "pressure" else np.int64)


def _all_used(field: str, codes: npt.NDArray[np.integer], size: int) -> None:
    """Refuse a code outside its table, and table entries that nothing uses: they would be content that no check reads."""
    _in_range(field, codes, size)
    if len(np.unique(codes)) != size:
        raise FormatError(f"uses only some of the {size} entries of its table", field=field)


def _in_range(field: str, values: npt.NDArray[np.integer], stop: int, low: int = 0) -> None:
    if len(values) and (values.min() < low or values.max() >= stop):
        raise FormatError(f"holds a number outside {low}..{stop - 1}", field=field)


def _numbers(value: dict[str, Any]) -> dict[str, float]:
    for name, number in value.items():
        if type(number) not in (int, float):
            raise FormatError(f"is {number!r}, expected a number", field=f"errors.{name}")
    return value
