"""Draw again when the ranges of a figure change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["follow"]

#: Moves that arrive within this time are answered together.
_COALESCE_MS = 15


def follow(spans: Sequence[Any], draw: Callable[[], None]) -> None:
    """Call `draw` soon after one of the ranges has changed.

    Bokeh's own event for changed ranges comes half a second after a wheel has stopped; the ranges themselves say it at once.

    Parameters
    ----------
    spans : sequence of bokeh Range1d
        The ranges.
    draw : callable
        Draws what is in view.

    Examples
    --------
    >>> from bokeh.models import Range1d
    >>> span = Range1d(0, 1)
    >>> follow([span], lambda: print(span.start, span.end))
    >>> span.end = 2
    0 2
    """
    waiting = False

    def now() -> None:
        nonlocal waiting
        waiting = False
        draw()

    def moved(attr: str, old: Any, new: Any) -> None:
        from bokeh.io import curdoc

        nonlocal waiting
        if waiting:
            return
        doc = curdoc()
        if doc.session_context is None:
            draw()
        else:
            waiting = True
            doc.add_timeout_callback(now, _COALESCE_MS)

    for span in spans:
        span.on_change("start", moved)
        span.on_change("end", moved)
