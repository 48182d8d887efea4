"""Timers of a session that wait for the browser: one of Panel that is started before the page is loaded asks in every turn of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn

__all__ = ["Timer", "after", "every"]


class Timer:
    """Calls `callback` every `period_ms` in the session, from when its page is loaded; `count` times, or until it is stopped."""

    def __init__(self, callback: Callable[[], Any], period_ms: int, count: int | None = None) -> None:
        self._callback, self._period_ms, self._count = callback, period_ms, count
        self._stopped = False
        self._running: Any = None
        pn.state.onload(self._begin)

    def _begin(self) -> None:
        if not self._stopped:
            self._running = pn.state.add_periodic_callback(self._callback, period=self._period_ms, count=self._count)

    def stop(self) -> None:
        """Stop; no harm when it is stopped already."""
        self._stopped = True
        if self._running is not None and self._running.running:
            self._running.stop()


def every(period_ms: int, callback: Callable[[], Any]) -> Timer:
    """Call again and again."""
    return Timer(callback, period_ms)


def after(delay_ms: int, callback: Callable[[], Any]) -> Timer:
    """Call once."""
    return Timer(callback, max(1, delay_ms), 1)
