"""The mouse on a canvas: a page that is still being drawn misses single moves, so they are repeated until what they bring is there."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["drag_until", "frame_of", "hover_until"]

#: Where the frame of the first chart with a tool is in the window.
_FRAME = """(tool) => {
  for (const doc of Bokeh.documents) for (const m of doc._all_models.values()) {
    if (m.type !== 'Figure' || !m.toolbar.tools.some((t) => t.type === tool)) continue;
    const view = Bokeh.index.find_one_by_id(m.id); if (!view) continue;
    const box = view.frame.bbox, at = view.canvas_view.el.getBoundingClientRect();
    return {x: at.left + box.left, y: at.top + box.top, width: box.width, height: box.height};
  } return null }"""

Point = tuple[float, float]


def frame_of(page: Any, tool: str = "BoxSelectTool") -> dict[str, float]:
    """The frame of the chart that has a tool, the heatmap's unless told otherwise, once the layout has come to rest."""
    before = None
    for _ in range(80):
        now = page.evaluate(_FRAME, tool)
        if now is not None and now == before:
            return now
        before = now
        page.wait_for_timeout(250)
    raise AssertionError("the chart does not come to rest")


def hover_until(page: Any, at: Point, shown: Any, *, deadline_s: float = 30) -> None:
    """Move the mouse to a point, to and fro, until a locator is visible."""
    end, (x, y) = time.monotonic() + deadline_s, at
    while not shown.is_visible():
        if time.monotonic() > end:
            raise AssertionError(f"nothing appeared under the pointer within {deadline_s:.0f} s")
        page.mouse.move(x - 6, y - 4)
        page.mouse.move(x, y, steps=3)
        page.wait_for_timeout(150)


def drag_until(page: Any, start: Point, end: Point, shown: Any, *, deadline_s: float = 30) -> None:
    """Draw a box with the mouse, and again, until a locator is visible."""
    stop = time.monotonic() + deadline_s
    while True:
        page.mouse.move(*start)
        page.mouse.down()
        page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        page.mouse.move(*end)
        page.mouse.up()
        for _ in range(15):  # the answer takes a round trip
            if shown.is_visible():
                return
            page.wait_for_timeout(100)
        if time.monotonic() > stop:
            raise AssertionError(f"the box brought nothing within {deadline_s:.0f} s")
