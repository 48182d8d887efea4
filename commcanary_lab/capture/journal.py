"""The recorder's bounded memory: finished rows on their way to the shard, and operations still open."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from commcanary_lab.capture.rows import EndRow, GroupRow, HeaderRow, OpRow, PendingRow, pending

__all__ = ["Journal", "Row"]

Row: TypeAlias = HeaderRow | GroupRow | OpRow | PendingRow | EndRow

#: Sampled bookkeeping times that are kept for the median.
_MAX_SAMPLES = 4096


class Journal:
    """Collect rows and hand them to a sink in batches.

    Appending is one atomic deque operation, so the job's threads never wait for the flusher; only a buffer that has
    reached `max_rows` is flushed by the thread that filled it.

    Parameters
    ----------
    sink : callable
        Takes a list of rows; called under a lock, never twice at a time.
    max_rows : int
        Rows kept in memory before the recording thread flushes them itself.

    Examples
    --------
    >>> out = []
    >>> journal = Journal(out.extend, max_rows=8)
    >>> row = OpRow(n=next(journal.numbers), group=0, op="barrier", arrival_ns=5)
    >>> journal.begin(row); journal.flush()     # visible while it is still running
    >>> row.finish_ns = 9; journal.finish(row); journal.flush()
    >>> [type(r).__name__ for r in out]
    ['PendingRow', 'OpRow']
    """

    def __init__(self, sink: Callable[[list[Row]], None], max_rows: int) -> None:
        self._sink = sink
        self._max_rows = max_rows
        self._done: deque[GroupRow | OpRow] = deque()
        self._late: deque[OpRow] = deque()  # finished after their pending line was written
        self._open: dict[int, OpRow] = {}
        self._lock = threading.Lock()
        self.numbers = itertools.count()
        self.phase: str | None = None
        self.operations = 0
        self._marked = 0
        self.problems: dict[str, int] = {}
        self.samples: deque[int] = deque(maxlen=_MAX_SAMPLES)

    def begin(self, row: OpRow) -> None:
        """Note an operation that has arrived, before it runs."""
        self._open[row.n] = row
        if len(self._open) > self._max_rows:
            self.flush()

    def finish(self, row: OpRow) -> None:
        """Queue an operation that has finished or failed."""
        (self._late if self._open.pop(row.n, None) is None else self._done).append(row)
        if len(self._done) >= self._max_rows:
            self.flush()

    def add(self, row: GroupRow) -> None:
        """Queue a row that is not an operation."""
        self._done.append(row)

    def problem(self, what: str) -> None:
        """Count something that could not be recorded; the shard's last line lists it."""
        if len(self.problems) < 64 or what in self.problems:
            self.problems[what] = self.problems.get(what, 0) + 1

    @property
    def unfinished(self) -> int:
        """Operations that have arrived and not finished."""
        return len(self._open) + self._marked

    @property
    def buffered(self) -> int:
        """Rows in memory now."""
        return len(self._done) + len(self._late) + len(self._open)

    def flush(self) -> None:
        """Write what has finished, and a pending line once for each operation that is still open."""
        with self._lock:
            rows: list[Row] = []
            for _ in range(len(self._done)):
                rows.append(self._done.popleft())
            for _ in range(late := len(self._late)):
                rows.append(self._late.popleft())
            self._marked -= late
            self.operations += sum(isinstance(row, OpRow) for row in rows)
            for row in list(self._open.values()):
                if self._open.pop(row.n, None) is not None:  # else it finished just now
                    self._marked += 1
                    rows.append(pending(row))
            if rows:
                self._sink(rows)
