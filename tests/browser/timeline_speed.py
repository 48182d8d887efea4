"""How long the timeline of a million events takes from a change of its view to the frame that shows the events there, in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commcanary_lab.trace.parquet import write_parquet
from tests.bench.gen_large import large_trace
from tests.browser.pointer import frame_of
from tests.browser.speed import Speed

EVENTS = 1_000_000
TARGET_MS = 400

#: The server sends other data for each view; the frame that is painted after they have arrived counts.
_WATCH = """() => {
  for (const doc of Bokeh.documents) for (const m of doc._all_models.values()) {
    if (m.type !== 'Figure' || !m.toolbar.tools.some((t) => t.type === 'PanTool') || m.renderers.length < 4) continue;
    const view = Bokeh.index.find_one_by_id(m.id);
    const pan = m.toolbar.tools.find((t) => t.type === 'PanTool'), wheel = m.toolbar.tools.find((t) => t.type === 'WheelZoomTool');
    pan.active = true; wheel.active = true;
    const w = window.speed = {start: null, fresh: false, done: 0};
    for (const r of m.renderers) r.data_source.properties.data.change.connect(() => { if (w.start !== null) w.fresh = true });
    m.x_range.change.connect(() => { if (w.done === null) { w.start = performance.now(); w.fresh = false } });
    const paint = view._actual_paint.bind(view);
    view._actual_paint = () => { paint();
      if (w.start === null || w.done !== null || !w.fresh) return;
      w.done = -1;
      requestAnimationFrame(() => { const c = new MessageChannel();  // after this frame is on the screen
        c.port1.onmessage = () => { w.done = performance.now() - w.start }; c.port2.postMessage(0) }) };
    return true }
  return false }"""

_NEXT = "() => { const w = window.speed; w.start = null; w.fresh = false; w.done = null }"
_DONE = "() => window.speed.done !== null && window.speed.done >= 0"


def write_trace(path: Path, events: int = EVENTS) -> None:
    """Write the generated trace."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(large_trace(events), path)


def measure(page: Any, url: str, name: str, *, changes: int = 24) -> Speed:
    """Pan and zoom the timeline of a trace, and time each change.

    Parameters
    ----------
    page : playwright page
        At least 1440 x 900.
    url : str
        Of the workbench.
    name : str
        The trace in its workspace.
    changes : int
        How many changes are timed, after two that are not.
    """
    page.goto(f"{url}?page=timeline&trace={name}")
    page.get_by_role("button", name="Whole trace").click(timeout=120_000)
    page.get_by_text("drawn as density").wait_for()
    page.wait_for_timeout(500)
    box = frame_of(page, "PanTool")
    assert page.evaluate(_WATCH)
    x, y = box["x"] + 0.45 * box["width"], box["y"] + 0.5 * box["height"]
    page.mouse.move(x, y)
    for _ in range(3):
        page.mouse.wheel(0, -240)
        page.wait_for_timeout(700)
    times = []
    for step in range(changes + 2):
        page.evaluate(_NEXT)
        turn = step % 8
        if turn < 6:
            by = 120 if turn % 2 else -120
            page.mouse.down()
            page.mouse.move(x + by, y)
            page.mouse.up()
            page.mouse.move(x, y)
        else:
            page.mouse.wheel(0, -160 if turn == 6 else 160)
        page.wait_for_function(_DONE, timeout=20_000)
        times.append(page.evaluate("() => window.speed.done"))
        page.wait_for_timeout(350)
    return Speed(tuple(times[2:]), TARGET_MS)
