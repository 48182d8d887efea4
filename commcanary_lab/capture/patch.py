"""Put recording methods in place of torch's process-group methods, and put the originals back.

Every function of torch.distributed (and every alias of it that a job imported, every object or batch helper, FSDP and
pipeline schedules) ends in exactly one method call on a `ProcessGroup`, so replacing these methods records each
collective once and leaves all function identities as they are: code that compares ``op is dist.isend`` and compilers that
recognise functions behave as before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

from commcanary_lab.capture.describe import METHODS, Describe
from commcanary_lab.capture.groups import Group, GroupRegistry
from commcanary_lab.capture.journal import Journal
from commcanary_lab.capture.rows import OpRow
from commcanary_lab.capture.work import RecordedWork

__all__ = ["Patches", "Session", "recording"]

#: Every how many operations the bookkeeping is timed.
_SAMPLE_EVERY = 8


@dataclass
class Session:
    """What a recording method needs: the journal, the groups, and whether recording is on in this process."""

    journal: Journal
    registry: GroupRegistry
    opened: Callable[[], None] = lambda: None
    live: bool = True
    windows: dict[int, list[tuple[Group, list[OpRow]]]] = field(default_factory=dict)


def recording(name: str, original: Callable[..., Any], describe: Describe, session: Session, owner: type) -> Callable[..., Any]:
    """Return a method that runs `original` and records the call.

    Nothing that goes wrong in the bookkeeping reaches the job; it is counted as a problem in the shard's last line.
    Instances of Python subclasses of `owner` pass through, because C++ calls their methods and needs torch's own handles.
    """
    journal, registry = session.journal, session.registry

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not session.live or type(self) is not owner:
            return original(self, *args, **kwargs)
        arrival = monotonic_ns()
        try:
            session.opened()
            group = registry.find(self)
            rows = _rows(group, describe, name, args, kwargs, journal)
            for row in rows:
                row.n, row.arrival_ns, row.phase = next(journal.numbers), arrival, journal.phase
                journal.begin(row)
            before = None if name in group.steps else registry.count(self)
        except Exception as error:
            journal.problem(f"{name}: {type(error).__name__}: {error}"[:200])
            return original(self, *args, **kwargs)
        called = monotonic_ns()
        try:
            inner = original(self, *args, **kwargs)
        except BaseException as error:
            _failed(rows, error, journal)
            raise
        issued = monotonic_ns()
        work = _issued(inner, rows, group, session, self, issued)
        _count_call(group, name, before, registry, self)
        if rows and rows[0].n % _SAMPLE_EVERY == _SAMPLE_EVERY - 1:
            journal.samples.append(called - arrival + monotonic_ns() - issued)
        return work

    # pybind11 recognises "an override that calls its base" by this name; without it a Python subclass would recurse
    method.__code__ = method.__code__.replace(co_name=name)
    method.__name__, method.__qualname__, method.__doc__ = name, f"ProcessGroup.{name}", original.__doc__
    method.__wrapped__ = original  # type: ignore[attr-defined]
    return method


def _rows(group: Group, describe: Describe, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], journal: Journal) -> list[OpRow]:
    try:
        return describe(group, args, kwargs)
    except Exception as error:  # say that it ran, without a size, and keep the numbers in step with the other ranks
        journal.problem(f"{name}: size not readable: {type(error).__name__}")
        return [OpRow(-1, group.row.id, name, 0, None if name in ("send", "recv", "recv_anysource") else next(group.sequence))]


def _failed(rows: list[OpRow], error: BaseException, journal: Journal) -> None:
    now = monotonic_ns()
    for row in rows:
        row.issued_ns = row.finish_ns = now
        row.error = type(error).__name__
        journal.finish(row)


def _issued(inner: Any, rows: list[OpRow], group: Group, session: Session, owner: Any, now: int) -> Any:
    """Wrap the handle, or finish the rows where the backend gives none because it has already synchronised."""
    for row in rows:
        row.issued_ns = now
    window = session.windows.get(id(owner)) if session.windows else None
    if window is not None:  # inside a coalescing window the operations run when it ends
        window.append((group, rows))
        return inner
    return _handle(inner, rows, group, session, now)


def _handle(inner: Any, rows: list[OpRow], group: Group, session: Session, now: int) -> Any:
    if inner is None:
        for row in rows:
            row.finish_ns = now
            session.journal.finish(row)
        return None
    return RecordedWork(inner, rows, group, session.journal)


def _count_call(group: Group, name: str, before: int | None, registry: GroupRegistry, owner: Any) -> None:
    group.calls[name] = group.calls.get(name, 0) + 1
    if name not in group.steps:
        after = None if before is None else registry.count(owner)
        group.steps[name] = 1 if after is None or before is None else after - before


class Patches:
    """All replacements of one recorder; `restore` undoes them.

    Examples
    --------
    >>> class Target: pass
    >>> patches = Patches()
    >>> patches.replace(Target, "size", 3); Target.size
    3
    >>> patches.restore(); hasattr(Target, "size")
    False
    """

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, bool, Any, Any]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute, remembering what `owner` itself had there."""
        had = name in vars(owner)
        self._undo.append((owner, name, had, vars(owner).get(name), value))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Put everything back, newest first; what somebody else replaced in the meantime stays theirs."""
        while self._undo:
            owner, name, had, before, ours = self._undo.pop()
            if vars(owner).get(name) is not ours:
                continue
            if had:
                setattr(owner, name, before)
            else:
                delattr(owner, name)

    def install(self, session: Session) -> None:
        """Replace the methods of torch's ProcessGroup, and watch groups being destroyed."""
        import torch.distributed as dist
        from torch.distributed import distributed_c10d as c10d

        owner = dist.ProcessGroup
        try:
            for name, describe in METHODS.items():
                original = vars(owner).get(name)
                if original is not None:
                    self.replace(owner, name, recording(name, original, describe, session, owner))
            self._install_windows(session, owner)
            destroy = _accounting(c10d.destroy_process_group, session)
            for module in (c10d, dist):
                self.replace(module, "destroy_process_group", destroy)
        except BaseException:
            self.restore()
            raise

    def _install_windows(self, session: Session, owner: type) -> None:
        """Coalescing windows of device backends: their operations finish with the handle that ends the window."""
        begin, end = vars(owner).get("_start_coalescing"), vars(owner).get("_end_coalescing")
        if begin is None or end is None:
            return

        def _start_coalescing(self: Any, *args: Any, **kwargs: Any) -> Any:
            if session.live and type(self) is owner:
                session.windows[id(self)] = []
            return begin(self, *args, **kwargs)

        def _end_coalescing(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls = session.windows.pop(id(self), [])
            rows = [row for _, part in calls for row in part]
            try:
                inner = end(self, *args, **kwargs)
            except BaseException as error:
                _failed(rows, error, session.journal)
                raise
            return _handle(inner, rows, calls[0][0], session, monotonic_ns()) if rows else inner

        self.replace(owner, "_start_coalescing", _start_coalescing)
        self.replace(owner, "_end_coalescing", _end_coalescing)


def _accounting(destroy: Callable[..., Any], session: Session) -> Callable[..., Any]:
    """Read the counts of the groups before they go."""

    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        if session.live:
            try:
                session.registry.account()
            except Exception as error:
                session.journal.problem(f"accounting: {type(error).__name__}")
        return destroy(*args, **kwargs)

    destroy_process_group.__doc__ = destroy.__doc__
    destroy_process_group.__wrapped__ = destroy  # type: ignore[attr-defined]
    return destroy_process_group
