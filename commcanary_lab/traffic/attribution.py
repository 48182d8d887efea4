"""Attribution algorithms: which links carry the bytes of a collective.

An algorithm is one function in one file. It declares itself with `register` and is loaded from `_FILES`:

>>> {"chain", "pairwise", "ring", "send_recv"} <= set(algorithms())
True

It maps calls to links for many process groups of one size at once. The contributions of a group are linear in B, so `build` sums B over
the events of a group first and attributes once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import LimitError, UsageError

__all__ = ["Algorithm", "Calls", "Links", "algorithms", "check_links", "choose", "register"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Modules of this package that hold an algorithm each.
_FILES = ("ring", "chain", "pairwise", "send_recv")
#: Contributions that one operation may make; each takes 32 bytes, and sorting them some more.
MAX_LINKS = 1 << 25


@dataclass(frozen=True, eq=False)
class Calls:
    """Calls of one operation over g process groups of the same size k.

    Parameters
    ----------
    op : str
        The operation.
    members : ndarray of int64, shape (g, k)
        Global ranks of each group in ring order; for a message, sender and receiver.
    size_bytes : ndarray of float64, shape (g,)
        B, summed over the events of the call.
    reporting : ndarray of bool, shape (g, k)
        Members whose source reports the call: only their sends may be contributed. Messages ignore it, for either end tells all.
    root : ndarray of int64, shape (g,)
        Position of the root in `members`; -1 where the operation has none.
    """

    op: str
    members: IntArray
    size_bytes: FloatArray
    reporting: BoolArray
    root: IntArray

    @property
    def group_size(self) -> int:
        """k."""
        return int(self.members.shape[1])


@dataclass(frozen=True, eq=False)
class Links:
    """Contributions to M.

    Parameters
    ----------
    call : ndarray of int64, shape (n,)
        Row of `Calls` that a contribution belongs to.
    src, dst : ndarray of int64, shape (n,)
        Global ranks, never equal.
    size_bytes : ndarray of float64, shape (n,)
        Bytes that `src` sends to `dst`.
    """

    call: IntArray
    src: IntArray
    dst: IntArray
    size_bytes: FloatArray

    @classmethod
    def where(cls, mask: BoolArray, src: IntArray, dst: IntArray, size_bytes: FloatArray) -> Links:
        """Select from arrays of shape (g, ...): the first axis numbers the calls."""
        picked = np.nonzero(mask)
        return cls(picked[0].astype(np.int64, copy=False), src[picked], dst[picked], size_bytes[picked])

    @classmethod
    def none(cls) -> Links:
        """No contribution."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty, np.zeros(0))


Attribution = Callable[[Calls], Links]


@dataclass(frozen=True)
class Algorithm:
    """A registered attribution algorithm.

    Parameters
    ----------
    name : str
        As users write it.
    attribute : callable
        ``attribute(calls: Calls) -> Links``.
    ops : frozenset of str
        Operations that it can attribute.
    default_for : frozenset of str
        Operations that it attributes unless another algorithm is chosen.
    uses_order : bool
        True if the result depends on the order of the members.
    rooted : frozenset of str
        Operations that cannot be attributed without a root.
    """

    name: str
    attribute: Attribution
    ops: frozenset[str]
    default_for: frozenset[str]
    uses_order: bool
    rooted: frozenset[str]


_ALGORITHMS: dict[str, Algorithm] = {}


def register(name: str, *, ops: tuple[str, ...], default_for: tuple[str, ...] = (), uses_order: bool = False,
             rooted: tuple[str, ...] = ()) -> Callable[[Attribution], Attribution]:
    """Declare an attribution algorithm (a decorator); the parameters are those of `Algorithm`.

    Raises
    ------
    UsageError
        If the name is taken.
    """

    def decorate(function: Attribution) -> Attribution:
        if name in _ALGORITHMS:
            raise UsageError(f"an algorithm named {name!r} exists", remedy="choose another name")
        _ALGORITHMS[name] = Algorithm(name, function, frozenset(ops), frozenset(default_for), uses_order, frozenset(rooted))
        return function

    return decorate


def algorithms() -> Mapping[str, Algorithm]:
    """Return every registered algorithm by name."""
    for file in _FILES:
        importlib.import_module(f"commcanary_lab.traffic.{file}")
    return dict(_ALGORITHMS)


def choose(wanted: str | Mapping[str, str] | None = None) -> dict[str, Algorithm]:
    """Choose an algorithm for every operation that has defined traffic.

    Parameters
    ----------
    wanted : str or mapping of str to str, optional
        One algorithm for every operation that it can attribute, or one per operation; the others keep their default.

    Returns
    -------
    dict of str to Algorithm
        By operation.

    Raises
    ------
    UsageError
        On an unknown name, or an algorithm that cannot attribute the operation it is given.

    Examples
    --------
    >>> choose("ring")["all_reduce"].name, choose()["all_to_all"].name
    ('ring', 'pairwise')
    """
    known = algorithms()
    chosen = {op: a for a in known.values() for op in a.default_for}
    if wanted is None:
        return chosen
    pairs = [(op, wanted) for op in sorted(_named(known, wanted).ops)] if isinstance(wanted, str) else list(wanted.items())
    for op, name in pairs:
        algorithm = _named(known, name)
        if op not in algorithm.ops:
            raise UsageError(f"the algorithm {name!r} cannot attribute {op!r}", remedy=f"it attributes: {', '.join(sorted(algorithm.ops))}")
        chosen[op] = algorithm
    return chosen


def _named(known: Mapping[str, Algorithm], name: str) -> Algorithm:
    if name not in known:
        raise UsageError(f"there is no attribution algorithm {name!r}", remedy=f"choose one of: {', '.join(sorted(known))}")
    return known[name]


def check_links(op: str, count: int) -> None:
    """Refuse an attribution that would not fit into memory.

    Raises
    ------
    LimitError
        If `count` contributions exceed `MAX_LINKS`.
    """
    if count > MAX_LINKS:
        raise LimitError(f"{op} connects {count:,} pairs of ranks, more than {MAX_LINKS:,}",
                         remedy="filter the trace by group, or open the captures of fewer ranks")
