"""The algorithms that Inspector records state, as a trace keeps them: per operation, group and size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from commcanary_lab.importers.inspector_table import Table
from commcanary_lab.importers.inspector_values import Values
from commcanary_lab.trace.groups import ProcessGroup
from commcanary_lab.trace.numbering import first_rows, number_rows

__all__ = ["algorithms_of"]

Row = list[str | int | None]


def algorithms_of(
    table: Table, values: Values, communicator: npt.NDArray[np.int64], groups: Sequence[ProcessGroup]
) -> tuple[list[Row], list[str]]:
    """Return what the records state, and where they disagree.

    NCCL chooses by operation, communicator and size. Where all records of an operation and group state one algorithm, one row without a
    size says so.

    Parameters
    ----------
    table : Table
        The records.
    values : Values
        What they mean.
    communicator : ndarray of int64, shape (n,)
        Index into `groups` of each record.
    groups : sequence of ProcessGroup
        Groups.

    Returns
    -------
    rows : list of [operation, group name, size B or None, algorithm]
        For ``extra["algorithms"]``.
    warnings : list of str
        Where ranks state different algorithms for one operation, group and size: none of them is taken.
    """
    words = sorted({k.algorithm for k in table.kinds if k.algorithm and not k.message})
    if not words or not len(table):
        return [], []
    word = table.of_kind([words.index(k.algorithm) if k.algorithm and not k.message else -1 for k in table.kinds], np.int64)
    used = np.flatnonzero(values.kept & ~values.message)
    code, count = number_rows(values.op[used], communicator[used], values.size_bytes[used], word[used])
    found: dict[tuple[str, str | None], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for row in used[first_rows(code, count)].tolist():
        key = (values.ops[values.op[row]], groups[communicator[row]].name)
        found[key][int(values.size_bytes[row])].add(int(word[row]))
    rows: list[Row] = []
    warnings = []
    for (op, group), by_size in sorted(found.items(), key=lambda x: (x[0][0], x[0][1] or "")):
        if len(said := set().union(*by_size.values())) == 1:
            rows += [[op, group, None, words[w]] for w in said if w >= 0]
            continue
        for size, own in sorted(by_size.items()):
            stated = sorted(own - {-1})
            if len(stated) == 1:  # a record without it does not contradict
                rows.append([op, group, size, words[stated[0]]])
            elif stated:
                names = " and ".join(words[w] for w in stated)
                warnings.append(f"{op} of {size:,} bytes in {group or 'an unnamed group'}: records state {names}; neither is taken")
    return rows, warnings
