"""What a report is about: SHA-256 of everything that a simulation reads from a trace, and of every sample that it writes."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.simulate.engine import Samples
from commcanary_lab.simulate.prepare import Prepared
from commcanary_lab.trace.numbering import first_rows, number_rows
from commcanary_lab.trace.signatures import default_group_names

__all__ = ["hashed_beside", "samples_sha256", "workload_sha256"]

#: The largest float64 that is an int64.
_LARGEST_NS = float((1 << 63) - 1024)


def workload_sha256(prepared: Prepared) -> str:
    """Return the SHA-256 of a prepared workload.

    A trace and an exact canary of it have the same one, because every simulation of the two gives the same numbers. Ids, notes and
    the numbering of groups do not count.

    Parameters
    ----------
    prepared : Prepared
        With its assumptions in place of unknown values.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> workload_sha256(lab.simulate.prepare(trace)) == workload_sha256(lab.simulate.prepare(lab.compile(trace).trace))
    True
    """
    t = prepared.trace
    observed = t.observed_exposed_ns
    digest = hashlib.sha256(b"commcanary_lab.workload.v1\0")
    groups: Sequence[Hashable] = list(zip(default_group_names(t), (g.members for g in t.groups), strict=True))
    for codes, names in (
        (t.op.codes, (*t.op.names, "")),
        (t.phase.codes, (*t.phase.names, "unknown")),
        (t.group, groups),
        (prepared.resource, ()),
    ):
        _texts(digest, np.asarray(codes, np.int64), names)
    for column in (
        prepared.size_bytes,
        prepared.group_size,
        prepared.concurrent_groups,
        prepared.gap_us,
        prepared.skew_us,
        prepared.overlap_us,
        prepared.wait_us,
        prepared.pressure,
        prepared.canonical_order,
        prepared.identity,
        observed.mask,
        observed.filled(0),
    ):
        _column(digest, column)
    return digest.hexdigest()


@contextmanager
def hashed_beside(prepared: Prepared) -> Iterator[None]:
    """Have `Prepared.workload_sha256` computed in a second thread while the block simulates: most of both is outside the interpreter."""
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(lambda: prepared.workload_sha256)
        yield
        asked.result()


def samples_sha256(samples: Samples) -> str:
    """Return the SHA-256 of all samples of a simulation, in whole nanoseconds (3 decimals of a microsecond).

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> samples_sha256(lab.simulate(trace).samples) == samples_sha256(lab.simulate(trace, "seed=8").samples)
    False
    """
    digest = hashlib.sha256(b"commcanary_lab.samples.v1\0")
    _column(digest, samples.event)
    names = ("first_us", "start_us", "service_us", "completion_us", "wait_us", "total_us", "hidden_us", "exposed_us", "skew_us")
    with ThreadPoolExecutor(1) as other:  # the next column is rounded while one is hashed
        following = other.submit(_whole_ns, getattr(samples, names[0]))
        for name in (*names[1:], None):
            column = following.result()
            if name is not None:
                following = other.submit(_whole_ns, getattr(samples, name))
            _column(digest, column)
    return digest.hexdigest()


def _whole_ns(times_us: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Round to nanoseconds. Times beyond 292 years saturate: what a cast makes of them differs between machines."""
    whole_ns = times_us * 1000.0
    np.rint(whole_ns, out=whole_ns)
    np.clip(whole_ns, -_LARGEST_NS, _LARGEST_NS, out=whole_ns)
    return whole_ns.astype(np.int64)


def _column(digest: hashlib._Hash, values: npt.NDArray[np.generic]) -> None:
    """Add an array: its type, its length, its values in little-endian order."""
    plain = np.ascontiguousarray(values)
    plain = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
    digest.update(f"{plain.dtype.kind}{plain.dtype.itemsize}:{plain.size};".encode())
    digest.update(plain.data)


def _texts(digest: hashlib._Hash, codes: npt.NDArray[np.int64], names: Sequence[Hashable]) -> None:
    """Add a coded column with its codes renumbered by first occurrence, so that the order of the table does not count."""
    numbers, count = number_rows(codes)
    first = first_rows(numbers, count)
    meanings = [names[c] if names else c for c in codes[first].tolist()]
    merged: dict[Hashable, int] = {}
    for i in np.argsort(first).tolist():
        merged.setdefault(meanings[i], len(merged))
    _column(digest, np.array([merged[m] for m in meanings] or [0], np.int64)[numbers])
    if names:
        digest.update(canonical_bytes([list(m) if isinstance(m, tuple) else m for m in merged]))
