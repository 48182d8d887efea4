"""How long the heatmap takes from a change of its ranges to the new image on the screen, in Chromium, at 512 to 16,384 ranks."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from commcanary_lab.trace import Coded, ProcessGroup, Trace
from commcanary_lab.trace.parquet import write_parquet
from tests.browser.pointer import frame_of

#: Ranks, and the milliseconds that a change of the view may take.
TARGETS_MS = {512: 250, 2048: 400, 16_384: 300}

#: Records of each job, at least.
RECORDS = 1_000_000

#: Times from the last change of the heatmap's ranges to the frame that shows them. Above 512 ranks the server sends another image, and
#: its frame counts; below, the image that is there is drawn anew.
_WATCH = """(server) => {
  for (const doc of Bokeh.documents) for (const m of doc._all_models.values()) {
    if (m.type !== 'Figure' || !m.toolbar.tools.some((t) => t.type === 'BoxSelectTool')) continue;
    const view = Bokeh.index.find_one_by_id(m.id);
    const glyph = m.renderers.find((r) => r.glyph.type === 'Image');
    const wheel = m.toolbar.tools.find((t) => t.type === 'WheelZoomTool'), pan = m.toolbar.tools.find((t) => t.type === 'PanTool');
    wheel.active = true; pan.active = true;
    const w = window.speed = {start: null, image: null, done: 0};
    const shown = () => glyph.data_source.data.image;
    const changed = () => { if (w.done !== null) return; if (w.start === null) w.image = shown(); w.start = performance.now() };
    m.x_range.change.connect(changed); m.y_range.change.connect(changed);
    const paint = view._actual_paint.bind(view);
    view._actual_paint = () => { paint();
      if (w.start === null || w.done !== null || (server && shown() === w.image)) return;
      w.done = -1;
      requestAnimationFrame(() => { const c = new MessageChannel();  // after this frame is on the screen
        c.port1.onmessage = () => { w.done = performance.now() - w.start }; c.port2.postMessage(0) }) };
    return true }
  return false }"""

_NEXT = "() => { const w = window.speed; w.start = null; w.done = null }"
_DONE = "() => window.speed.done !== null && window.speed.done >= 0"


@dataclass(frozen=True)
class Speed:
    """Milliseconds of each change, and what was drawn."""

    ranks: int
    links: int
    times_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        """The median."""
        return statistics.median(self.times_ms)

    @property
    def p95_ms(self) -> float:
        """The 95th percentile."""
        return float(np.percentile(self.times_ms, 95))

    def __str__(self) -> str:
        return (
            f"{self.ranks:,} ranks, {self.links:,} links: median {self.median_ms:.0f} ms, "
            f"p95 {self.p95_ms:.0f} ms of {len(self.times_ms)} changes (target {TARGETS_MS[self.ranks]} ms)"
        )


def job(ranks: int, records: int = RECORDS) -> Trace:
    """Return a job of so many ranks: tensor parallelism of 8, experts of 64, data parallelism of the rest, about `records` records."""
    kinds = {
        "TP": ("all_reduce", np.arange(ranks).reshape(-1, 8)),
        "EP": ("all_to_all", np.arange(ranks).reshape(-1, 64)),
        "DP": ("all_reduce", np.arange(ranks).reshape(-1, 64).T),
    }
    rounds = -(-records // (ranks * len(kinds)))
    groups, op, group, size = [], [], [], []
    for kind, (name, members) in kinds.items():
        at = len(groups)
        groups += [ProcessGroup(f"{kind} Group {i}", tuple(row)) for i, row in enumerate(members.tolist())]
        count = rounds * len(members)
        op += [name] * count
        group += list(range(at, len(groups))) * rounds
        size.append((1 + np.arange(count) % 7) << (20 if name == "all_reduce" else 16))
    n = len(op)
    return Trace.build(
        n, op=Coded.from_optional(op), groups=tuple(groups), group=np.array(group, np.int32), size_bytes=np.concatenate(size)
    )


def write_jobs(folder: Path) -> dict[int, str]:
    """Write a trace per number of ranks into a workspace; returns the names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {ranks: f"job-{ranks}.parquet" for ranks in TARGETS_MS}
    for ranks, name in names.items():
        write_parquet(job(ranks), folder / name)
    return names


def measure(page: Any, url: str, name: str, ranks: int, *, changes: int = 16) -> Speed:
    """Zoom and pan the heatmap of a trace, and time each change.

    Parameters
    ----------
    page : playwright page
        At least 1440 x 900.
    url : str
        Of the workbench.
    name : str
        The trace in its workspace.
    ranks : int
        How many it has.
    changes : int
        How many changes are timed, after two that are not.
    """
    page.goto(f"{url}?page=traffic&trace={name}")
    page.get_by_test_id("answer").wait_for(timeout=120_000)
    page.wait_for_function("() => Bokeh.documents.length > 0")
    box = frame_of(page)
    assert page.evaluate(_WATCH, ranks > 512)
    x, y = box["x"] + 0.42 * box["width"], box["y"] + 0.4 * box["height"]
    page.mouse.move(x, y)
    for _ in range(2):  # so that a pan moves what is in view
        page.mouse.wheel(0, -160)
        page.wait_for_timeout(700)
    times = []
    for step in range(changes + 2):
        page.evaluate(_NEXT)
        turn = step % 8
        if turn < 6:  # in and out by the same steps: below a single cell the image would stay as it is
            page.mouse.wheel(0, -160 if turn < 3 else 160)
        else:
            by = 40 if turn == 6 else -40
            page.mouse.down()
            page.mouse.move(x + by, y + by)
            page.mouse.up()
            page.mouse.move(x, y)
        page.wait_for_function(_DONE, timeout=20_000)
        times.append(page.evaluate("() => window.speed.done"))
        page.wait_for_timeout(350)
    words = page.get_by_test_id("answer").inner_text()
    links = int(words.split(" over ")[1].split(" links")[0].replace(",", ""))
    return Speed(ranks, links, tuple(times[2:]))
