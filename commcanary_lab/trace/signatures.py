"""Signatures: the identity that repeats (phase, op, dtype, reduction, size, group, root / peers, ...)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.numbering import first_rows, number_rows

__all__ = ["default_group_names", "factorize", "occurrence_codes", "signature_codes"]

IntArray = npt.NDArray[np.int64]


def factorize(columns: Sequence[npt.NDArray[np.integer]]) -> tuple[IntArray, IntArray]:
    """Number the distinct rows of integer columns by first appearance.

    Parameters
    ----------
    columns : sequence of ndarray of int, each of shape (n,)
        The columns, compared exactly.

    Returns
    -------
    codes : ndarray of int64, shape (n,)
        Number of each row's distinct value, 0 for the first row.
    first : ndarray of int64, shape (distinct,)
        Row where each distinct value appears first.

    Examples
    --------
    >>> codes, first = factorize([np.array([7, 7, 3, 7]), np.array([0, 1, 0, 0])])
    >>> codes.tolist(), first.tolist()
    ([0, 1, 2, 0], [0, 1, 2])
    """
    codes, count = number_rows(*columns)
    first = first_rows(codes, count)
    order = np.argsort(first, kind="stable")
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    return rank[codes], first[order]


def signature_codes(trace: Trace) -> tuple[IntArray, IntArray]:
    """Number the distinct signatures of a trace, exactly: what is absent differs from what is given.

    Returns
    -------
    codes, first : see `factorize`
    """
    return factorize(
        [
            trace.phase.codes,
            trace.op.codes,
            trace.dtype.codes,
            trace.reduction.codes,
            trace.size_bytes,
            trace.group,
            trace.root.filled(-1),
            trace.sender.filled(-1),
            trace.receiver.filled(-1),
            trace.tag.codes,
            trace.channel.codes,
            trace.concurrent_groups.filled(-1),
            trace.custom_op.astype(np.int8),
            trace.observers,
        ]
    )


def default_group_names(trace: Trace) -> tuple[str, ...]:
    """Name of each group, ``default`` where the source names none."""
    return tuple(g.name or "default" for g in trace.groups)


def occurrence_codes(trace: Trace) -> tuple[IntArray, IntArray]:
    """Number the keys by which the ``commcanary-v4`` model counts occurrences: like signatures, but with the defaults filled in.

    Returns
    -------
    codes, first : see `factorize`
    """
    keys = {k: i for i, k in enumerate(dict.fromkeys(zip(default_group_names(trace), (g.members for g in trace.groups), strict=True)))}
    group = np.array([keys[name, g.members] for name, g in zip(default_group_names(trace), trace.groups, strict=True)] or [0], np.int64)
    phase = trace.phase.codes
    if "unknown" in trace.phase.names:
        phase = np.where(phase < 0, trace.phase.names.index("unknown"), phase)
    return factorize(
        [
            phase,
            trace.op.codes,
            trace.dtype.codes,
            trace.reduction.codes,
            trace.size_bytes,
            group[trace.group] if len(trace) else trace.group,
            trace.root.filled(-1),
            trace.sender.filled(-1),
            trace.receiver.filled(-1),
            trace.tag.codes,
            trace.channel.codes,
            trace.message_sequence.filled(-1),
            trace.concurrent_groups.filled(1),
            trace.custom_op.astype(np.int8),
        ]
    )
