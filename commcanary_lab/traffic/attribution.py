"""Attribution algorithms: which links carry the bytes of a collective.

An algorithm is one function in one file. It declares itself with `register` and is loaded from `_FILES`:

>>> sorted(algorithms())  # doctest: +ELLIPSIS
['chain', 'double_ring', 'double_tree', 'hierarchical', 'nccl_tree', 'nvls', ...'pairwise', 'ring', 'send_recv', 'tree']

It maps calls to links for many process groups of one size at once. The contributions of a group are linear in B, so `build` sums B over
the events of a group first and attributes once. An end of a link is a global rank or a switch: switches reduce and multicast inside the
network and are numbered below 0 (`switch_of`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import LimitError, UsageError

__all__ = ["Algorithm", "Calls", "Links", "algorithms", "asked_ops", "check_links", "choose", "register", "switch_name", "switch_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Modules of this package that hold an algorithm each.
_FILES = (
    "ring", "double_ring", "tree", "double_tree", "nccl_tree", "hierarchical", "nvls", "nvls_tree", "chain", "pairwise", "send_recv",
)  # fmt: skip
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
    nodes, rails : ndarray of int64, shape (g, k), optional
        Node of each member, and index of its GPU there; None where the layout is unknown.
    """

    op: str
    members: IntArray
    size_bytes: FloatArray
    reporting: BoolArray
    root: IntArray
    nodes: IntArray | None = None
    rails: IntArray | None = None

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
        Global ranks, or switches (below 0); never equal.
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

    @classmethod
    def joined(cls, links: Iterable[Links]) -> Links:
        """Put contributions one after the other.

        Examples
        --------
        >>> len(Links.joined([Links.none(), Links.none()]).src)
        0
        """
        several = [cls.none(), *links]
        call, src, dst, size = (np.concatenate([getattr(x, name) for x in several]) for name in ("call", "src", "dst", "size_bytes"))
        return cls(call, src, dst, size)


def switch_of(node: IntArray) -> IntArray:
    """Return the number under which the switch of a node (of its NVSwitch domain) stands as an end of a link: ``-1 - node``.

    Examples
    --------
    >>> switch_of(np.array([0, 3])).tolist()
    [-1, -4]
    """
    return -1 - node


def switch_name(number: int) -> str:
    """Return the name of a switch for people.

    Examples
    --------
    >>> switch_name(-4)
    'switch of node 3'
    """
    return f"switch of node {-1 - number}"


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
    needs_nodes : bool
        True if the result depends on which ranks share a node.
    """

    name: str
    attribute: Attribution
    ops: frozenset[str]
    default_for: frozenset[str]
    uses_order: bool
    rooted: frozenset[str]
    needs_nodes: bool = False


_ALGORITHMS: dict[str, Algorithm] = {}


def register(
    name: str,
    *,
    ops: tuple[str, ...],
    default_for: tuple[str, ...] = (),
    uses_order: bool = False,
    rooted: tuple[str, ...] = (),
    needs_nodes: bool = False,
) -> Callable[[Attribution], Attribution]:
    """Declare an attribution algorithm (a decorator); the parameters are those of `Algorithm`.

    Raises
    ------
    UsageError
        If the name is taken.
    """

    def decorate(function: Attribution) -> Attribution:
        if name in _ALGORITHMS:
            raise UsageError(f"an algorithm named {name!r} exists", remedy="choose another name")
        _ALGORITHMS[name] = Algorithm(name, function, frozenset(ops), frozenset(default_for), uses_order, frozenset(rooted), needs_nodes)
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


def asked_ops(wanted: str | Mapping[str, str] | None) -> frozenset[str]:
    """Return the operations that a choice of algorithms, as `choose` takes it, says something about.

    Examples
    --------
    >>> sorted(asked_ops("tree")), sorted(asked_ops({"reduce": "chain"})), sorted(asked_ops(None))
    (['all_reduce'], ['reduce'], [])
    """
    if wanted is None:
        return frozenset()
    return _named(algorithms(), wanted).ops if isinstance(wanted, str) else frozenset(wanted)


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
        raise LimitError(
            f"{op} connects {count:,} pairs of ranks, more than {MAX_LINKS:,}",
            remedy="filter the trace by group, or open the captures of fewer ranks",
        )
