"""Latencies of one collective over message sizes: from a table of nccl-tests, or measured on a group of one's own."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import InputError, RefusedError, UsageError
from commcanary_lab.importers.nccl_tests import read_table
from commcanary_lab.limits import DEFAULT, Limits

__all__ = ["STATISTICS", "SizeSamples", "Spread", "from_table", "geometric_sizes", "reduced"]

FloatArray = npt.NDArray[np.float64]

#: What can stand for the repetitions of a size.
STATISTICS = ("min", "p10", "median")

#: From this many repetitions on, the 10 % quantile is steadier than the minimum, and resampling tells how steady.
_ENOUGH_FOR_P10 = 20


#: No clock measures less than a picosecond, and nobody waits for eleven days.
_MIN_US, _MAX_US = 1e-6, 1e12


@dataclass(frozen=True)
class Spread:
    """How the repetitions of one size scatter, microseconds.

    Parameters
    ----------
    size_bytes : int
        B.
    count : int
        Repetitions.
    min_us, p10_us, median_us, p90_us : float
        Of the latencies; quantiles at position (n + 1/3) q + 1/3 (see `reduced`).
    """

    size_bytes: int
    count: int
    min_us: float
    p10_us: float
    median_us: float
    p90_us: float

    @property
    def relative(self) -> float:
        """Distance of the 10 % and 90 % quantiles over the median."""
        return (self.p90_us - self.p10_us) / self.median_us


@dataclass(frozen=True, eq=False)
class SizeSamples:
    """Latencies of one operation over sizes.

    Parameters
    ----------
    op : str
        Canonical name.
    ranks : int
        k.
    dtype : str or None
        Element type, where known.
    size_bytes : tuple of int
        B per size, ascending.
    latencies_us : tuple of ndarray of float64
        Per size its repetitions in the order in which they were measured. Where all sizes have equally many, repetition i of every
        size belongs to round i.
    ran_on : str
        What ran, in words.
    origin : str
        Where the numbers come from.
    notes : tuple of str
        What a reader must know.

    Raises
    ------
    InputError
        If a latency is not a finite number above 0, a size occurs twice or not in order, or a size has no repetition.

    Examples
    --------
    >>> s = SizeSamples("all_reduce", 4, "float32", (1024, 4096), (np.array([9.0, 7.0, 8.0]), np.array([11.0, 12.0, 30.0])), "a test")
    >>> s.statistic("median").tolist(), s.repetitions, s.spreads[1].min_us
    ([8.0, 12.0], 3, 11.0)
    """

    op: str
    ranks: int
    dtype: str | None
    size_bytes: tuple[int, ...]
    latencies_us: tuple[FloatArray, ...]
    ran_on: str
    origin: str = "measured"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.size_bytes) != len(self.latencies_us):
            raise InputError(f"{len(self.size_bytes)} sizes and latencies of {len(self.latencies_us)}", remedy="give one list per size")
        if any(b <= a for a, b in zip(self.size_bytes, self.size_bytes[1:], strict=False)) or any(s < 0 for s in self.size_bytes):
            raise InputError("the sizes are not ascending numbers >= 0", field="size_bytes", remedy="give each size once, in order")
        for size, values in zip(self.size_bytes, self.latencies_us, strict=True):
            if not len(values):
                raise InputError(f"no latency of {size} bytes", field="latencies_us", remedy="leave the size out")
            bad = values[~((values >= _MIN_US) & (values <= _MAX_US))]
            if len(bad):
                raise InputError(f"a latency of {size} bytes is {bad[0]:g} us", field="latencies_us",
                                 remedy="a collective takes time: leave out what was not measured")  # fmt: skip

    @property
    def repetitions(self) -> int:
        """The fewest repetitions of any size."""
        return min(map(len, self.latencies_us), default=0)

    @property
    def in_rounds(self) -> bool:
        """Whether all sizes have equally many repetitions, so that repetition i of each was measured in round i."""
        return len({len(v) for v in self.latencies_us}) == 1

    @property
    def rounds_us(self) -> FloatArray:
        """Latencies as a table, shape (rounds, sizes); only where `in_rounds`."""
        return np.column_stack(self.latencies_us)

    @property
    def spreads(self) -> tuple[Spread, ...]:
        """Minimum, quantiles and median per size."""
        out = []
        for size, values in zip(self.size_bytes, self.latencies_us, strict=True):
            p10, median, p90 = np.quantile(values, [0.1, 0.5, 0.9], method="median_unbiased")
            out.append(Spread(size, len(values), float(values.min()), float(p10), float(median), float(p90)))
        return tuple(out)

    def choose(self, statistic: str = "auto") -> str:
        """Return the statistic that stands for a size: p10 from twenty repetitions on, below that the minimum.

        Where more threads run than there are cores, latencies cluster on the ticks of the scheduler, and mean and median say how
        busy the machine was. The fast end of the distribution is what the network needs.

        Raises
        ------
        UsageError
            If the statistic is not known.
        """
        if statistic == "auto":
            return "p10" if self.repetitions >= _ENOUGH_FOR_P10 else "min"
        if statistic not in STATISTICS:
            raise UsageError(f"unknown statistic {statistic!r}", remedy=f"known: auto, {', '.join(STATISTICS)}")
        return statistic

    def statistic(self, name: str) -> FloatArray:
        """Return min, p10 or median per size, microseconds, shape (sizes,)."""
        return np.array([reduced(v, name) for v in self.latencies_us])


def reduced(values: FloatArray, statistic: str, axis: int = 0) -> FloatArray:
    """Return the statistic of repetitions along an axis.

    Quantiles are at position (n + 1/3) q + 1/3 of the sorted values: whatever the number of repetitions, half of such estimates lie
    above the quantile. (Position (n - 1) q + 1 puts the 10 % quantile of few repetitions too high, at all sizes alike.)

    Examples
    --------
    >>> reduced(np.arange(1.0, 21.0), "p10").round(3).tolist(), reduced(np.arange(1.0, 21.0), "median").tolist()
    (2.367, 10.5)
    """
    if statistic == "min":
        return np.asarray(values.min(axis=axis))
    n = values.shape[axis]
    q = 0.1 if statistic == "p10" else 0.5
    position = min(max((n + 1 / 3) * q + 1 / 3 - 1, 0.0), n - 1.0)
    low = int(position)
    high = min(low + 1, n - 1)
    part = np.partition(values, (low, high), axis=axis)
    a, b = np.take(part, low, axis=axis), np.take(part, high, axis=axis)
    return np.asarray(a + (b - a) * (position - low))


def from_table(path: str | os.PathLike[str], *, in_place: bool = False, op: str | None = None, ranks: int | None = None,
               limits: Limits = DEFAULT) -> SizeSamples:  # fmt: skip
    """Read latencies from a table of nccl-tests; each is the mean over the iterations of the benchmark.

    Parameters
    ----------
    path : path-like
        Output of a test.
    in_place : bool
        Take the in-place half of the rows, not the out-of-place one.
    op, ranks : optional
        What the table does not say.
    limits : Limits
        Resource limits.

    Returns
    -------
    SizeSamples
        Rows of one size are its repetitions; sizes without a time are left out with a note.

    Raises
    ------
    FormatError
        If there is no table.
    RefusedError
        If the test found wrong results, has no row with a time, or does not say operation or number of ranks.
    UsageError
        If `op` or `ranks` contradicts the table.
    """
    table = read_table(path, limits=limits)
    name, file = f"table {table.file}", table.file
    if table.failed:
        raise RefusedError("the test found wrong results: its times mean nothing", file=file, remedy="repair the machine and run it again")
    stated = None if table.op is None else _NCCL_TESTS.get(table.op, table.op)
    chosen, k = _agreed(stated, op, "operation", "--op", file), _agreed(table.ranks, ranks, "number of ranks", "--ranks", file)
    found: dict[int, list[float]] = {}
    without = 0
    for row in table.rows:
        half = row.in_place if in_place else row.out_of_place
        if half is None or not half.time_us:
            without += 1
        else:
            found.setdefault(row.size_bytes, []).append(half.time_us)
    if not found:
        raise RefusedError("no row has a time", file=file, remedy="give a table of a test that ran to its end")
    sizes = tuple(sorted(found))
    notes = (*table.notes, "each latency is the mean over the iterations of the benchmark, back to back")
    if without:
        notes += (f"{without} rows have no {'in-place' if in_place else 'out-of-place'} time and were left out",)
    dtypes = {r.dtype for r in table.rows if r.dtype is not None}
    version = f", nccl-tests {table.version}" if table.version else ""
    return SizeSamples(chosen, k, dtypes.pop() if len(dtypes) == 1 else None, sizes, tuple(np.array(found[s]) for s in sizes),
                       f"{name}{version}", "measured", notes)  # fmt: skip


#: Names of nccl-tests that are not those of other sources.
_NCCL_TESTS = {"sendrecv": "point_to_point", "alltoall": "all_to_all"}


_T = TypeVar("_T")


def _agreed(stated: _T | None, given: _T | None, what: str, option: str, file: str) -> _T:
    if stated is None and given is None:
        raise RefusedError(f"the table does not say its {what}", file=file, remedy=f"give it with {option}")
    if stated is not None and given is not None and stated != given:
        raise UsageError(f"{file}: the {what} is {stated}, not {given}", remedy=f"leave {option} out")
    value = stated if stated is not None else given
    assert value is not None
    return value


def geometric_sizes(low_bytes: int, high_bytes: int, *, points: int = 12, multiple: int = 1) -> tuple[int, ...]:
    """Return sizes from low to high in equal ratios, rounded up to a multiple.

    Doubling, or coarser where doubling gives more than `points` sizes.

    Raises
    ------
    UsageError
        If the range is empty or gives fewer than three sizes.

    Examples
    --------
    >>> geometric_sizes(1024, 8192), geometric_sizes(100, 10_000, points=3, multiple=16)
    ((1024, 2048, 4096, 8192), (112, 1008, 10000))
    """
    if not 1 <= low_bytes < high_bytes or points < 3:
        raise UsageError(f"sizes from {low_bytes} to {high_bytes}", remedy="write --sizes LO:HI with 1 <= LO < HI, for example 1KiB:16MiB")
    octaves = math.log2(high_bytes / low_bytes)
    count = min(points, math.floor(octaves + 1e-9) + 1)
    ratio = 2.0 if math.floor(octaves + 1e-9) + 1 <= points else (high_bytes / low_bytes) ** (1 / (count - 1))
    raw = [low_bytes * ratio**i for i in range(count)]
    sizes = tuple(sorted({max(multiple, -(-round(s) // multiple) * multiple) for s in raw}))
    if len(sizes) < 3:
        raise UsageError(
            f"the range from {low_bytes} to {high_bytes} bytes gives {len(sizes)} sizes", remedy="make it wider: a fit needs three"
        )
    return sizes
