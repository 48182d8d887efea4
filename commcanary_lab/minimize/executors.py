"""Executors for candidates: processes of this machine, or the workers of a Dask cluster that runs already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from commcanary_lab.errors import InputError, MissingExtraError, UsageError
from commcanary_lab.minimize.candidates import Problem

__all__ = ["DaskExecutor", "open_executor"]

_CONNECT_S = 10.0


class DaskExecutor(Executor):
    """Submits to a Dask cluster. The source is sent to the workers once, not with every candidate.

    Parameters
    ----------
    client : distributed.Client
        Connected; it stays open.

    Examples
    --------
    >>> from distributed import Client
    >>> with Client("tcp://scheduler:8786") as client:  # doctest: +SKIP
    ...     found = lab.search(trace, executor=DaskExecutor(client))
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._inner = client.get_executor(pure=False)
        self._sent: dict[int, tuple[Problem, Any]] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule a call on the cluster."""
        return self._inner.submit(fn, *(self._handle(a) if isinstance(a, Problem) else a for a in args), **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let go of what was sent; the client stays open."""
        self._sent.clear()
        self._inner.shutdown(wait=wait)

    def _handle(self, problem: Problem) -> Any:
        """Return what stands for a problem on the workers; `problem` is kept, so that its id stays its own."""
        known = self._sent.get(id(problem))
        if known is None:
            known = self._sent[id(problem)] = problem, self._client.scatter(problem, broadcast=True, hash=False)
        return known[1]


@contextmanager
def open_executor(text: str, jobs: int = 1) -> Iterator[Executor | None]:
    """Return the executor that a text names.

    Parameters
    ----------
    text : str
        Empty: `jobs` processes of this machine, None for one job. ``dask:ADDRESS``: the workers of the cluster whose scheduler is at
        ADDRESS, such as ``dask:tcp://127.0.0.1:8786``.
    jobs : int
        Processes where nothing else is named.

    Raises
    ------
    UsageError
        If the text names no executor, or there are fewer than one job.
    InputError
        If the cluster cannot be reached, has no workers, or workers without this package.
    MissingExtraError
        If Dask is not installed.

    Examples
    --------
    >>> with open_executor("", 1) as executor:
    ...     print(executor)
    None
    >>> with open_executor("ray:auto") as executor:
    ...     pass
    Traceback (most recent call last):
    commcanary_lab.errors.UsageError: 'ray:auto' names no executor; write dask:ADDRESS with the address of a scheduler
    """
    if jobs < 1:
        raise UsageError(f"--jobs {jobs} is too few", remedy="give a whole number >= 1")
    kind, _, address = text.partition(":")
    if text and (kind != "dask" or not address):
        raise UsageError(f"{text!r} names no executor", remedy="write dask:ADDRESS with the address of a scheduler")
    if text:
        with _dask(address) as pool:
            yield pool
    elif jobs == 1:
        yield None
    else:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as processes:
            yield processes


@contextmanager
def _dask(address: str) -> Iterator[DaskExecutor]:
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtraError(
            "a Dask cluster needs distributed, which is not installed", remedy="pip install 'commcanary-lab[cluster]'"
        ) from None
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as e:
        first = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise InputError(
            f"no Dask scheduler answers at {address}: {first}", remedy="start one with 'dask scheduler', or check the address"
        ) from None
    with client:
        _check(client, address)
        pool = DaskExecutor(client)
        try:
            yield pool
        finally:
            pool.shutdown()


def _check(client: Any, address: str) -> None:
    """Ask every worker for the version of this package: candidates are only equal where the code is."""
    from importlib.metadata import version

    own = version("commcanary-lab")
    found: dict[str, str | None] = client.run(_version)
    if not found:
        raise InputError(f"the Dask cluster at {address} has no workers", remedy=f"start some with 'dask worker {address}'")
    other = {worker: v for worker, v in found.items() if v != own}
    if other:
        worker, theirs = sorted(other.items(), key=str)[0]
        what = f"commcanary-lab {theirs}" if theirs else "no commcanary-lab"
        raise InputError(
            f"the worker at {worker} has {what}, this process has {own}", remedy=f"install commcanary-lab {own} on every worker"
        )


def _version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("commcanary-lab")
    except PackageNotFoundError:
        return None
