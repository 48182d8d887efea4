"""Algorithms that a source states for its collectives, and what attributes them here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from commcanary_lab.trace import ProcessGroup, Trace
from commcanary_lab.traffic.attribution import Algorithm, IntArray, algorithms

__all__ = ["How", "how", "stated_codes"]

_NODES = "give gpus_per_node, or a layout that has it"
#: Names of NCCL, in upper case without separators, and what attributes them where nodes are known; RING is the default of every operation.
_MODELS = {"TREE": "nccl_tree", "NVLS": "nvls", "NVLSTREE": "nvls_tree"}


@dataclass(frozen=True)
class How:
    """How the events of one operation and stated algorithm are attributed.

    Parameters
    ----------
    op : str
        The operation.
    stated : str or None
        What the source states, in its own words; None where it states nothing or the caller asked for an algorithm.
    algorithm : Algorithm or None
        What attributes them; None where nothing does.
    why : str or None
        Why nothing does, although the operation has defined traffic.
    instead : str or None
        Why it is another algorithm than the stated one.
    """

    op: str
    stated: str | None
    algorithm: Algorithm | None
    why: str | None = None
    instead: str | None = None


def how(op: str, stated: str | None, default: Algorithm | None, *, nodes_known: bool) -> How:
    """Find what attributes an operation whose source states an algorithm.

    Algorithms that reduce in switches have no peer: where there is no model of them, or nobody says which ranks share a node, they stay
    unattributed and are not taken for a ring.

    Parameters
    ----------
    op : str
        The operation.
    stated : str or None
        The source's name of the algorithm.
    default : Algorithm or None
        What attributes the operation otherwise.
    nodes_known : bool
        Whether it is known which ranks share a node.

    Examples
    --------
    >>> from commcanary_lab.traffic.attribution import choose
    >>> ring = choose()["all_reduce"]
    >>> [how("all_reduce", x, ring, nodes_known=True).algorithm.name for x in ("RING", "TREE", "NVLS_TREE")]
    ['ring', 'nccl_tree', 'nvls_tree']
    >>> how("all_reduce", "COLLNET_DIRECT", ring, nodes_known=True).why
    'the source states COLLNET_DIRECT: switches of the network reduce, no rank is the peer of another, and there is no model of it'
    """
    if stated is None or default is None:
        return How(op, stated, default)
    word = stated.upper().replace("_", "").replace("-", "")
    model = algorithms()[_MODELS[word]] if word in _MODELS else None
    if word == "RING":
        return How(op, stated, default)
    if word.startswith("COLLNET"):
        why = f"the source states {stated}: switches of the network reduce, no rank is the peer of another, and there is no model of it"
        return How(op, stated, None, why)
    if model is None or op not in model.ops:
        return How(op, stated, default, instead=f"there is no model of it for {op}")
    if nodes_known:
        return How(op, stated, model)
    if word == "TREE":
        instead = f"nobody says which ranks share a node ({_NODES})"
        return How(op, stated, algorithms()["double_tree"], instead=instead)
    return How(
        op, stated, None, f"the source states {stated}: the peer of a rank is the switch of its node, and nobody says which; {_NODES}"
    )


def stated_codes(trace: Trace, names: Sequence[str], op: IntArray, groups: Sequence[ProcessGroup], group: IntArray) -> tuple[
    IntArray, tuple[str, ...]
]:  # fmt: skip
    """Return which algorithm the source states for each event.

    Sources state it in ``trace.extra["algorithms"]``: rows of operation, name of the group, size B (None: every size) and algorithm.

    Parameters
    ----------
    trace : Trace
        The trace.
    names : sequence of str
        Operation by code.
    op, group : ndarray of int64, shape (n,)
        Codes of each event.
    groups : sequence of ProcessGroup
        Group by code.

    Returns
    -------
    codes : ndarray of int64, shape (n,)
        Index into the algorithms, -1 where none is stated.
    stated : tuple of str
        The algorithms, as the source writes them.
    """
    codes = np.full(len(trace), -1, np.int64)
    table = _table(trace.extra.get("algorithms"))
    if not table or not len(trace):
        return codes, ()
    words = tuple(sorted({word for by_size in table.values() for word in by_size.values()}))
    span = len(groups)
    pairs, of_pair = np.unique(op * span + group, return_inverse=True)
    for i, pair in enumerate(pairs.tolist()):
        by_size = table.get((names[pair // span], groups[pair % span].name))
        if by_size is None:
            continue
        rows = np.flatnonzero(of_pair == i)
        everywhere = words.index(by_size[None]) if None in by_size else -1
        sizes, of_size = np.unique(trace.size_bytes[rows], return_inverse=True)
        found = np.array([words.index(by_size[s]) if s in by_size else everywhere for s in sizes.tolist()], np.int64)
        codes[rows] = found[of_size]
    return codes, words


def _table(stated: object) -> Mapping[tuple[str, str | None], Mapping[int | None, str]]:
    """The usable rows; a trace may come from anywhere."""
    out: dict[tuple[str, str | None], dict[int | None, str]] = {}
    for row in stated if isinstance(stated, list | tuple) else ():
        if not isinstance(row, list | tuple) or len(row) != 4:
            continue
        op, group, size, word = row
        if (
            isinstance(op, str)
            and (group is None or isinstance(group, str))
            and (size is None or type(size) is int)
            and isinstance(word, str)
        ):
            out.setdefault((op, group), {})[size] = word
    return out
