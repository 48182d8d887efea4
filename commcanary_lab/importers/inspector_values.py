"""What Inspector records mean: operation, B, time, and whether their bandwidths agree with these."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.importers.inspector_table import Table

__all__ = ["SELF", "WRAPPED", "Values", "values_of"]

WRAPPED = "size out of range (wrapped around 2^64)"
SELF = "message of a rank to itself"

#: Name in the records, lower case -> canonical name, and whether the size is that of one rank's part.
_OPS = {
    "allreduce": ("all_reduce", False), "broadcast": ("broadcast", False), "reduce": ("reduce", False), "allgather": ("all_gather", True),
    "reducescatter": ("reduce_scatter", True), "alltoall": ("all_to_all", True), "gather": ("gather", True), "scatter": ("scatter", True),
}  # fmt: skip
_STANDARD = frozenset({"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "point_to_point"})
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_MESSAGES = {"send": True, "recv": False}
#: Sizes from here on are counts below 0 in disguise.
_MAX_BYTES = 1 << 62
#: Longest time that is believed, in us: a year.
_MAX_US = 365.0 * 86_400e6
#: Bandwidths are written with six decimals.
_ROUNDING, _TOLERANCE = 1e-6, 1e-3


@dataclass(frozen=True, eq=False)
class Values:
    """Meaning of each record.

    Parameters
    ----------
    op : ndarray of int64, shape (n,)
        Index into `ops`.
    ops : tuple of str
        Canonical names.
    custom : frozenset of str
        Those outside of the vocabulary.
    size_bytes : ndarray of int64, shape (n,)
        B; 0 where the record is not kept.
    time_ns : ndarray of int64, shape (n,)
        Measured time, -1 where unknown.
    message, sends : ndarray of bool, shape (n,)
        A message; one written by its sender.
    kept, wrapped : ndarray of bool, shape (n,)
        Records that become events; records whose size is none.
    skipped : mapping of str to int
        The others, by reason.
    """

    op: npt.NDArray[np.int64]
    ops: tuple[str, ...]
    custom: frozenset[str]
    size_bytes: npt.NDArray[np.int64]
    time_ns: npt.NDArray[np.int64]
    message: npt.NDArray[np.bool_]
    sends: npt.NDArray[np.bool_]
    kept: npt.NDArray[np.bool_]
    wrapped: npt.NDArray[np.bool_]
    skipped: Counter[str]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def values_of(table: Table) -> Values:
    """Return what the records mean."""
    names = [_op(k.name, k.message) for k in table.kinds]
    ops = tuple(dict.fromkeys(op for op, _ in names))
    op = table.of_kind([ops.index(name) for name, _ in names], np.int64)
    per_rank = table.of_kind([part for _, part in names], np.bool_)
    message = table.of_kind([k.message for k in table.kinds], np.bool_)
    sends = table.of_kind([_MESSAGES.get(k.name.lower(), True) for k in table.kinds], np.bool_)
    ranks, part = table.of_header("n_ranks"), table.columns["size_bytes"]
    factor = np.where(per_rank, ranks, 1)
    wrapped = (part < 0) | (part >= _MAX_BYTES // factor)
    itself = message & (table.columns["peer"] == table.of_header("rank")) & ~wrapped
    size = np.where(wrapped, 0, part) * factor
    time_us, bad_time = _times(table.columns["time_us"])
    time_ns = np.where(np.isnan(time_us), -1, np.rint(np.nan_to_num(time_us) * 1000.0)).astype(np.int64)
    skipped = Counter({reason: n for reason, mask in ((WRAPPED, wrapped), (SELF, itself)) if (n := int(np.count_nonzero(mask)))})
    notes = _notes(time_us, time_ns, names, table)
    warnings = [*_bandwidth(table, size, time_us, message & ~wrapped, ~wrapped)]
    if bad_time:
        warnings.append(f"times below 0 or beyond a year in {bad_time:,} of {len(table):,} records: taken as unknown")
    if wrapped.any():
        file, line = table.place(int(np.flatnonzero(wrapped)[0]))
        first = f"(the first: {file}: line {line})"
        warnings.append(f"sizes that wrapped around 2^64 in {int(wrapped.sum()):,} of {len(table):,} records {first}: kept out of totals")
    custom = frozenset(ops) - _STANDARD
    return Values(op, ops, custom, size, time_ns, message, sends, ~(wrapped | itself), wrapped, skipped, tuple(notes), tuple(warnings))


def _op(name: str, message: bool) -> tuple[str, bool]:
    if message and name.lower() in _MESSAGES:
        return "point_to_point", False
    return _OPS.get(name.lower().removeprefix("nccl"), (name, False))


def _times(time_us: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], int]:
    """Times with NaN where unknown: 0 says that nothing was measured."""
    bad = (time_us < 0) | (time_us > _MAX_US)
    return np.where(bad | (time_us == 0), np.nan, time_us), int(np.count_nonzero(bad))


def _notes(time_us: npt.NDArray[np.float64], time_ns: npt.NDArray[np.int64], names: list[tuple[str, bool]], table: Table) -> list[str]:
    out = []
    unknown = int(np.count_nonzero(time_ns < 0))
    if unknown:
        out.append(f"{unknown:,} of {len(time_ns):,} records have no time (0 or nan): their bandwidth is unknown, not 0")
    change = np.abs(np.nan_to_num(time_us) * 1000.0 - np.maximum(time_ns, 0))
    if (largest := float(change.max(initial=0.0))) > 1e-3:
        out.append(f"times are rounded to whole nanoseconds: the largest change is {largest:.3g} ns")
    rooted = sorted({op for op, _ in names if op in _ROOTED})
    if rooted:
        out.append(f"the records do not name roots: the traffic of {', '.join(rooted)} is unattributed")
    custom = sorted({op for op, _ in names if op not in _STANDARD and op not in _ROOTED})
    if custom:
        out.append(f"operations outside of the vocabulary, their sizes as written: {', '.join(custom)}")
    stated = Counter[str]()
    counts = np.bincount(table.columns["kind"], minlength=len(table.kinds)).tolist()
    for kind, count in zip(table.kinds, counts, strict=True):
        if kind.algorithm:
            stated[f"{kind.name} {kind.algorithm.upper()}"] += count
    if stated:
        listed = ", ".join(f"{name} {count:,}" for name, count in sorted(stated.items()))
        out.append(f"algorithms that the records state: {listed}")
    return out


def _bandwidth(
    table: Table,
    size: npt.NDArray[np.int64],
    time_us: npt.NDArray[np.float64],
    message: npt.NDArray[np.bool_],
    valid: npt.NDArray[np.bool_],
) -> list[str]:
    """Recompute the bandwidths; size / time counts, and a record that says otherwise is named."""
    names = [_op(k.name, k.message)[0] for k in table.kinds]
    n = table.of_header("n_ranks").astype(np.float64)
    algbw = size / (time_us * 1e3)
    factors = {"all_reduce": 2 * (n - 1) / n, "all_gather": (n - 1) / n, "reduce_scatter": (n - 1) / n}
    factor = np.ones(len(table))
    for op, values in factors.items():
        at = table.of_kind([name == op for name in names], np.bool_)
        factor[at] = values[at]
    checked = table.of_kind([name in (*factors, "broadcast", "reduce", "point_to_point") for name in names], np.bool_)
    out = []
    for key, expected, of in (("algbw_gb_s", algbw, "size / time"), ("busbw_gb_s", algbw * factor, "size / time times its factor")):
        said = table.columns[key]
        with np.errstate(invalid="ignore"):
            off = np.abs(said - expected) > _TOLERANCE * expected + _ROUNDING
        rows = np.flatnonzero(off & checked & valid)
        if len(rows):
            i = int(rows[0])
            file, line = table.place(i)
            out.append(
                f"{_many(len(rows))} another {key.split('_')[0]} than {of} (the first: {file}: line {line} says {said[i]:.6g} GB/s, "
                f"it is {expected[i]:.6g} GB/s): the recomputed one counts"
            )
    return out


def _many(count: int) -> str:
    return "1 record states" if count == 1 else f"{count:,} records state"
