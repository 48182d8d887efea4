"""Noise identities of the ``commcanary-v4`` model: the text of each event and its SHA-256.

The identity of an event holds its operation, its arrivals and its occurrence number, and does not depend on the backend. Everything
but the occurrence is the same in every subset of a trace: the text pieces are laid out once, and a trace or a subset costs one compiled
pass.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from commcanary_lab.simulate import plain
from commcanary_lab.trace.columns import Ragged
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.numbering import positions
from commcanary_lab.trace.signatures import default_group_names

__all__ = ["IdentityTable", "identity_hashes"]

_THREADS = 2
#: Below this many events a second thread does not pay.
_PARALLEL_FROM = 4_000


class IdentityTable:
    """Shared parts of the identities of a trace's events.

    Parameters
    ----------
    trace : Trace
        Events in time order.
    codes, first : ndarray of int64
        Occurrence keys (`signatures.occurrence_codes`).

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.simulate import prepare
    >>> whole = prepare(lab.samples.adversarial())
    >>> rows = np.array([0, 7, 9])
    >>> part = prepare(whole.trace.take(rows))
    >>> bool((IdentityTable(whole.trace, *whole.keys).of(part.trace.arrival_ns, rows) == part.identity).all())
    True
    """

    def __init__(self, trace: Trace, codes: npt.NDArray[np.int64], first: npt.NDArray[np.int64]) -> None:
        self._codes, self._kinds = codes, len(first)
        self._pieces = pieces = [part for row in first.tolist() for part in _pieces(trace, row)]
        self._bounds = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([len(p) for p in pieces], out=self._bounds[1:])
        self._text = np.frombuffer(b"".join(pieces) or b"\0", np.uint8)
        self._sizes = trace.group_sizes
        self._sequence = trace.message_sequence.filled(-1)
        longest = int(np.diff(self._bounds[::5]).max(initial=0))
        self._room = longest + (int(self._sizes.max(initial=0)) + 2) * 24 + 192

    def of(
        self, arrival_ns: Ragged, rows: npt.NDArray[np.int64] | slice = slice(None), *, zero_offsets: bool = False
    ) -> npt.NDArray[np.uint64]:
        """Return the identities of the events at `rows` when they are all there is.

        Parameters
        ----------
        arrival_ns : Ragged
            Their arrivals. Unknown ones count as offsets of zero: the caller has had them assumed.
        rows : ndarray of int64 or slice
            Events of the whole trace, ascending; by default all.
        zero_offsets : bool
            Ablate the arrival skew.

        Returns
        -------
        ndarray of uint64, shape (k,)
            First 8 bytes (big endian) of the SHA-256 of each identity.
        """
        codes = np.ascontiguousarray(self._codes[rows])
        return self._hashed(rows, codes, _occurrences(codes, self._kinds), arrival_ns, zero_offsets)

    def changed(self, identity: npt.NDArray[np.uint64], before_ns: Ragged, after_ns: Ragged) -> npt.NDArray[np.uint64]:
        """Return the identities of all events after some arrivals changed; only those events are hashed again.

        Parameters
        ----------
        identity : ndarray of uint64, shape (n,)
            The identities with the arrivals `before_ns`.
        before_ns, after_ns : Ragged
            Arrivals of all events.
        """
        if not np.array_equal(before_ns.pointers, after_ns.pointers):
            return self.of(after_ns)
        rows = np.unique(np.repeat(np.arange(len(identity)), after_ns.lengths)[before_ns.values != after_ns.values])
        out = identity.copy()
        if len(rows):
            out[rows] = self._hashed(rows, self._codes[rows], _occurrences(self._codes, self._kinds)[rows], after_ns.take(rows), False)
        return out

    def _hashed(
        self,
        rows: npt.NDArray[np.int64] | slice,
        codes: npt.NDArray[np.int64],
        occurrence: npt.NDArray[np.int64],
        arrival_ns: Ragged,
        zero_offsets: bool,
    ) -> npt.NDArray[np.uint64]:
        n = len(codes)
        out = np.zeros(n, np.uint64)
        if plain.preferred(n):
            plain.identities(
                arrival_ns.values,
                arrival_ns.pointers,
                self._sizes[rows],
                zero_offsets,
                codes,
                self._pieces,
                self._sequence[rows],
                occurrence,
                out,
            )
            return out
        from commcanary_lab.simulate.identity_kernels import hash_range

        arguments = (
            np.ascontiguousarray(arrival_ns.values),
            np.ascontiguousarray(arrival_ns.pointers),
            np.ascontiguousarray(self._sizes[rows]),
            zero_offsets,
            codes,
            self._text,
            self._bounds,
            np.ascontiguousarray(self._sequence[rows]),
            occurrence,
            self._room,
            out,
        )
        if n < _PARALLEL_FROM:
            hash_range(0, n, *arguments)
        else:
            cuts = np.linspace(0, n, 4 * _THREADS + 1).astype(int).tolist()
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(lambda a, b: hash_range(a, b, *arguments), cuts[:-1], cuts[1:]))
        return out


def _occurrences(codes: npt.NDArray[np.int64], kinds: int) -> npt.NDArray[np.int64]:
    if plain.preferred(len(codes)):
        return positions(codes)
    from commcanary_lab.simulate.identity_kernels import occurrences

    return occurrences(codes, kinds)


def identity_hashes(
    trace: Trace, codes: npt.NDArray[np.int64], first: npt.NDArray[np.int64], *, zero_offsets: bool = False
) -> npt.NDArray[np.uint64]:
    """Return the first 8 bytes of the SHA-256 of each event's noise identity.

    Parameters
    ----------
    trace, codes, first
        As for `IdentityTable`.
    zero_offsets : bool
        Ablate the arrival skew.

    Returns
    -------
    ndarray of uint64, shape (n,)
    """
    return IdentityTable(trace, codes, first).of(trace.arrival_ns, zero_offsets=zero_offsets)


def _pieces(trace: Trace, row: int) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """The constant pieces of the canonical JSON of one key, between which offsets, sequence and occurrence are written."""
    group = trace.groups[trace.group[row]]
    before: dict[str, object] = {}
    if (channel := trace.channel.text(row)) is not None:
        before["channel"] = channel
    before["group"] = default_group_names(trace)[trace.group[row]]
    after: dict[str, object] = {"op": trace.op.text(row), "phase": trace.phase.text(row) or "unknown", "ranks": list(group.members)}
    for name, column in (("receiver_rank", trace.receiver), ("root_rank", trace.root), ("sender_rank", trace.sender)):
        if column.mask[row]:
            after[name] = int(column.values[row])
    for name, text in (("reduction_op", trace.reduction), ("tag", trace.tag)):
        if (value := text.text(row)) is not None:
            after[name] = value
    return (b'{"arrival_offsets_us":[', b"]," + _inner(before), b',"message_sequence":', b',"occurrence":', b"," + _inner(after) + b"}")


def _inner(value: dict[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")[1:-1]
