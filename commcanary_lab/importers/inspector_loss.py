"""What an Inspector source lacks: gaps in sequence numbers, records that the plugin dropped, sources that are samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.importers.inspector_table import Table
from commcanary_lab.importers.membership import Communicator
from commcanary_lab.trace.numbering import first_rows, number_rows

__all__ = ["Dropped", "Loss", "dropped_of", "is_sample", "losses_of"]

_SHOWN = 6


@dataclass(frozen=True)
class Loss:
    """Gaps in the sequence numbers of one collective type of a communicator, over all its ranks that the source shows.

    Parameters
    ----------
    communicator : str
        Its id or name.
    op : str
        The collective, as the records write it.
    expected : int
        Numbers from the first to the last one of each rank.
    lost : int
        Those without a record.
    missing : str
        Numbers that the first rank with a gap lacks.
    """

    communicator: str
    op: str
    expected: int
    lost: int
    missing: str

    @property
    def percent(self) -> float:
        """Share that is lost.

        Examples
        --------
        >>> Loss("0xc0ffee", "AllReduce", 5, 2, "12-13").percent
        40.0
        """
        return 100.0 * self.lost / self.expected

    @property
    def text(self) -> str:
        """For a warning."""
        return (
            f"communicator {self.communicator}: {self.percent:.3g} % of {self.op} lost: {self.lost:,} of {self.expected:,} sequence "
            f"numbers are missing ({self.missing}): overwritten, below the plugin's minimum size or not dumped; not zero traffic"
        )


def losses_of(table: Table, communicators: Sequence[Communicator], of_header: npt.NDArray[np.int64]) -> list[Loss]:
    """Return the gaps, by communicator and collective type, which each count for themselves.

    Parameters
    ----------
    table : Table
        The records.
    communicators : sequence of Communicator
        All of them.
    of_header : ndarray of int64, shape (headers,)
        Communicator of each header.
    """
    collective = np.flatnonzero(~table.of_kind([k.message for k in table.kinds], np.bool_))
    if not len(collective):
        return []
    names = tuple(dict.fromkeys(k.name for k in table.kinds))
    op = table.of_kind([names.index(k.name) for k in table.kinds], np.int64)[collective]
    header, sequence = table.columns["header"][collective], table.columns["sequence"][collective]
    stream, _ = number_rows(header, op)
    order = np.lexsort((sequence, stream))
    stream, sequence = stream[order], sequence[order]
    new = np.ones(len(stream), np.bool_)
    new[1:] = stream[1:] != stream[:-1]
    fresh = new.copy()
    fresh[1:] |= sequence[1:] != sequence[:-1]
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(stream)) - 1
    expected = sequence[ends] - sequence[starts] + 1
    lost = expected - np.add.reduceat(fresh, starts, dtype=np.int64)
    one = order[starts]
    kind, kinds = number_rows(of_header[header[one]], op[one])
    total, gone = (np.bincount(kind, v.astype(np.float64), kinds).astype(np.int64) for v in (expected, lost))
    first = first_rows(kind, kinds)
    out: list[Loss] = []
    for i in np.flatnonzero(gone).tolist():
        c = communicators[of_header[header[one[first[i]]]]]
        s = int(np.flatnonzero((kind == i) & (lost > 0))[0]) if len(out) < 64 else int(first[i])
        missing = _missing(sequence[starts[s] : ends[s] + 1])
        name = c.name or c.id or "without id"
        out.append(Loss(name, names[op[one[first[i]]]], int(total[i]), int(gone[i]), missing))
    return out


def _missing(sequence: npt.NDArray[np.int64]) -> str:
    """Gaps between ascending numbers, in few characters.

    Examples
    --------
    >>> _missing(np.array([1, 4, 6]))
    '2-3, 5'
    """
    at = np.flatnonzero(np.diff(sequence) > 1)
    gaps = [(int(sequence[i]) + 1, int(sequence[i + 1]) - 1) for i in at[:_SHOWN].tolist()]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in gaps) + (", ..." if len(at) > _SHOWN else "")


@dataclass(frozen=True)
class Dropped:
    """Records that the plugin overwrote before it wrote them, as it says itself.

    Parameters
    ----------
    collectives, messages : int
        Over all communicators and ranks.
    communicators : tuple of str
        Where.
    """

    collectives: int
    messages: int
    communicators: tuple[str, ...] = ()

    @property
    def text(self) -> str | None:
        """For a warning."""
        if not self.collectives and not self.messages:
            return None
        what = " and ".join(f"{n:,} {name}" for n, name in ((self.collectives, "collectives"), (self.messages, "messages")) if n)
        where = ", ".join(self.communicators[:_SHOWN]) + (", ..." if len(self.communicators) > _SHOWN else "")
        return f"the plugin dropped {what} before it wrote them (dump_stats; communicator {where}): the records are a sample"


def dropped_of(table: Table) -> Dropped:
    """Return what the plugin says that it dropped; its totals grow from dump to dump."""
    totals: dict[tuple[int, int], list[int]] = {}
    for header, process, dump in table.dumps:
        t = totals.setdefault((header, process), [0, 0, 0, 0])
        t[0], t[1] = max(t[0], dump.coll_dropped_total), max(t[1], dump.p2p_dropped_total)
        t[2], t[3] = t[2] + dump.coll_dropped_since_last_dump, t[3] + dump.p2p_dropped_since_last_dump
    rows = {key: (max(t[0], t[2]), max(t[1], t[3])) for key, t in totals.items()}
    where = dict.fromkeys(table.headers[h].comm_name or table.headers[h].id or "without id" for (h, _), row in rows.items() if any(row))
    return Dropped(sum(c for c, _ in rows.values()), sum(m for _, m in rows.values()), tuple(where))


def is_sample(table: Table) -> bool:
    """Whether every dump has only one collective per communicator: older plugins write the latest one, and no other."""
    collective = ~table.of_kind([k.message for k in table.kinds], np.bool_) & (table.columns["dump_us"] >= 0)
    rows = np.flatnonzero(collective)
    if len(rows) < 2:
        return False
    header, process, dump = (table.columns[name][rows] for name in ("header", "process", "dump_us"))
    streams = number_rows(header, process)[1]
    return number_rows(header, process, dump)[1] == len(rows) > streams
