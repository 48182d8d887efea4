"""The handle that an intercepted call returns: torch's own Work, plus a look at the clock when it is waited for."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from commcanary_lab.capture.groups import Group
from commcanary_lab.capture.journal import Journal
from commcanary_lab.capture.rows import OpRow

__all__ = ["RecordedWork"]


class RecordedWork:
    """Forward everything to a torch Work and take the finish of its rows when the wait returns.

    ``isinstance(handle, torch.distributed.Work)`` holds. The finish is taken once, by what comes first: ``wait`` or
    ``synchronize`` returning, ``is_completed`` saying so, or the handle's future completing.
    """

    __slots__ = ("_cell", "_group", "_inner", "_journal")

    def __init__(self, inner: Any, rows: list[OpRow], group: Group, journal: Journal) -> None:
        self._inner = inner
        self._cell = [rows]  # emptied by whoever sees the finish first; list.pop is atomic
        self._group = group
        self._journal = journal

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # isinstance sees the torch type
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Wait as torch does."""
        return self._waited(self._inner.wait, args, kwargs)

    def synchronize(self, *args: Any, **kwargs: Any) -> Any:
        """Wait as torch does."""
        return self._waited(self._inner.synchronize, args, kwargs)

    def is_completed(self) -> bool:
        """Ask torch whether the operation has finished."""
        completed: bool = self._inner.is_completed()
        if completed and self._cell:
            now = monotonic_ns()
            self._finish(now, now)
        return completed

    def get_future(self, *args: Any, **kwargs: Any) -> Any:
        """Return torch's future; its completion is the finish for jobs that never wait on the handle."""
        future = self._inner.get_future(*args, **kwargs)
        if self._cell:
            future.add_done_callback(self._future_done)
        return future

    def _future_done(self, _: Any) -> None:
        now = monotonic_ns()
        self._finish(now, now)

    def _waited(self, wait: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._cell:
            return wait(*args, **kwargs)
        start = monotonic_ns()
        try:
            result = wait(*args, **kwargs)
        except BaseException as error:
            self._finish(start, monotonic_ns(), type(error).__name__)
            raise
        self._finish(start, monotonic_ns())
        return result

    def _finish(self, wait_ns: int, finish_ns: int, error: str | None = None) -> None:
        try:
            rows = self._cell.pop()
        except IndexError:
            return
        for row in rows:
            row.wait_ns, row.finish_ns, row.error = wait_ns, finish_ns, error
            if row.sender is None and row.receiver is not None and error is None:
                self._name_sender(row)
            self._journal.finish(row)

    def _name_sender(self, row: OpRow) -> None:
        """A receive from any source says afterwards whose message it was."""
        try:
            row.sender = self._group.row.ranks[self._inner._source_rank()]
            row.seq = self._group.message_number(row.sender, row.receiver or 0, row.tag or 0)
        except Exception as error:
            self._journal.problem(f"sender of a receive from any source: {type(error).__name__}")
