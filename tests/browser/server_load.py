"""What a workbench server holds while visitors come and go: memory, files, threads, processes, sessions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

__all__ = ["Usage", "cycle", "ready_ms", "sessions", "settle", "usage"]


#: A chart, a table, or what stands in their place.
_DRAWN = ", ".join(f"{s}:visible" for s in ("canvas", ".tabulator-row", ".cl table", ".cl .box", ".cl .empty"))


@dataclass(frozen=True)
class Usage:
    """What the server and its child processes hold.

    Parameters
    ----------
    rss_bytes : int
        Resident memory, summed; shared pages count in each process.
    files, threads, processes : int
        Open file descriptors, threads, processes.
    """

    rss_bytes: int
    files: int
    threads: int
    processes: int

    def __str__(self) -> str:
        return f"{self.rss_bytes / 1e6:,.0f} MB, {self.files} files, {self.threads} threads, {self.processes} processes"


def usage(pid: int) -> Usage:
    """Return what a process and its descendants hold now."""
    main = psutil.Process(pid)
    found = []
    for p in (main, *main.children(recursive=True)):
        try:
            found.append((p.memory_info().rss, p.num_fds(), p.num_threads()))
        except psutil.NoSuchProcess:
            continue
    return Usage(sum(f[0] for f in found), sum(f[1] for f in found), sum(f[2] for f in found), len(found))


def ready_ms(page: Any, address: str) -> float:
    """Open a page; return the milliseconds until its sentence and its first chart or table are there."""
    begin = time.perf_counter()
    page.goto(address)
    page.get_by_test_id("answer").wait_for()
    page.locator(_DRAWN).first.wait_for()
    return 1000 * (time.perf_counter() - begin)


def sessions(context: Any, addresses: Sequence[str]) -> list[Any]:
    """Open a page per address and leave them open."""
    pages = []
    for address in addresses:
        page = context.new_page()
        ready_ms(page, address)
        pages.append(page)
    return pages


def cycle(context: Any, address: str) -> None:
    """Open a page, wait until it is drawn, close it."""
    page = context.new_page()
    try:
        ready_ms(page, address)
    finally:
        page.close()


def settle(seconds: float = 40.0) -> None:
    """Wait until the server has discarded the sessions of pages that were closed: it looks every 17 s for those unused for 15 s."""
    time.sleep(seconds)
