"""Noise identities of many subsets of one trace.

The identity of an event holds its operation, its arrivals and its occurrence number. Everything but the occurrence is the same in every
subset: the text pieces are laid out once, and a subset costs one compiled pass.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from commcanary_lab.simulate.identity import _hash_range, _pieces, occurrences
from commcanary_lab.simulate.prepare import Prepared
from commcanary_lab.trace.columns import Ragged

__all__ = ["IdentityTable"]

#: Below this many events a second thread does not pay.
_PARALLEL_FROM = 4_000
_THREADS = 2


class IdentityTable:
    """Shared parts of the identities of a trace's events.

    Parameters
    ----------
    prepared : Prepared
        The whole trace.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.simulate import prepare
    >>> whole = prepare(lab.samples.adversarial())
    >>> rows = np.array([0, 7, 9])
    >>> part = prepare(whole.trace.take(rows))
    >>> bool((IdentityTable(whole).of(rows, part.trace.arrival_ns) == part.identity).all())
    True
    """

    def __init__(self, prepared: Prepared) -> None:
        trace = prepared.trace
        self._codes, first = prepared.keys
        self._kinds = len(first)
        pieces = [part for row in first.tolist() for part in _pieces(trace, row)]
        self._bounds = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([len(p) for p in pieces], out=self._bounds[1:])
        self._text = np.frombuffer(b"".join(pieces) or b"\0", np.uint8)
        self._sizes = prepared.group_size
        self._sequence = trace.message_sequence.filled(-1)
        longest = max((sum(map(len, pieces[i : i + 5])) for i in range(0, len(pieces), 5)), default=0)
        self._room = int(longest + (int(self._sizes.max(initial=0)) + 2) * 24 + 192)

    def of(self, rows: npt.NDArray[np.int64] | slice, arrival_ns: Ragged) -> npt.NDArray[np.uint64]:
        """Return the identities of the events at `rows` when they are all there is.

        Parameters
        ----------
        rows : ndarray of int64 or slice
            Events of the whole trace, ascending.
        arrival_ns : Ragged
            Their arrivals.

        Returns
        -------
        ndarray of uint64, shape (k,)
        """
        codes = np.ascontiguousarray(self._codes[rows])
        n = len(codes)
        out = np.zeros(n, np.uint64)
        arguments = (
            np.ascontiguousarray(arrival_ns.values),
            np.ascontiguousarray(arrival_ns.pointers),
            np.ascontiguousarray(self._sizes[rows]),
            False,
            codes,
            self._text,
            self._bounds,
            np.ascontiguousarray(self._sequence[rows]),
            occurrences(codes, self._kinds),
            self._room,
            out,
        )
        if n < _PARALLEL_FROM:
            _hash_range(0, n, *arguments)
        else:
            cuts = np.linspace(0, n, 4 * _THREADS + 1).astype(int).tolist()
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(lambda a, b: _hash_range(a, b, *arguments), cuts[:-1], cuts[1:]))
        return out
