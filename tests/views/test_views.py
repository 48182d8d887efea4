"""Figures: what they say, what they draw, and that text from files cannot become markup."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import commcanary_lab.views as views
from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.inspect import ops
from commcanary_lab.trace import Coded, Column, ProcessGroup, Ragged, Trace
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.traffic import build_matrix
from commcanary_lab.verify.run import verify_canary
from commcanary_lab.views import extra
from commcanary_lab.views.commitments import commitments_frame
from commcanary_lab.views.error_bounds import field_bounds, steps_frame
from commcanary_lab.views.heatmap import RAW_RANKS, TrafficView, brush_of
from commcanary_lab.views.heatmap_blocks import MOST_BLOCKS, Blocks, Follower
from commcanary_lab.views.import_coverage import coverage_html, notes_html
from commcanary_lab.views.lane_data import lane_data
from commcanary_lab.views.lanes import DETAIL_EVENTS, Lanes
from commcanary_lab.views.links import links_csv, links_frame
from commcanary_lab.views.loop_nest import program_html
from commcanary_lab.views.status_chips import chips_html
from commcanary_lab.views.theme import OP_COLORS

pytest.importorskip("panel")

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
NASTY = "<img src=x onerror=alert(1)>\"'&"


@pytest.fixture(scope="module")
def gloo() -> Trace:
    return read_json(SAMPLES / "gloo4.json")


def ring(ranks: int, group: str = "g", events: int = 1) -> Trace:
    return Trace.build(
        events,
        op=Coded.constant(events, "all_reduce"),
        groups=(ProcessGroup(group, tuple(range(ranks))),),
        group=np.zeros(events, np.int32),
        size_bytes=np.full(events, 1 << 20),
        gap_ns=Column(np.full(events, 1000)),
    )


def text_of(view: object) -> str:
    """All markup of a figure."""
    import panel as pn

    return " ".join(str(p.object) for p in view.select(pn.pane.HTML))  # type: ignore[attr-defined]


def test_every_public_figure_renders_with_its_badges(gloo: Trace) -> None:
    canary = compile_trace(gloo, records=2)
    shown = [views.traffic(gloo), views.traffic(build_matrix(gloo)), views.timeline(gloo), views.program(canary), views.errors(canary),
             views.errors(compile_trace(gloo)), views.ops(ops(gloo)), views.statuses(verify_canary(gloo, canary))]  # fmt: skip
    for view in shown:
        assert view.get_root() is not None
        assert 'class="tt"' in text_of(view)
    for view in (shown[0], shown[2], shown[6]):
        assert "all 528 source records" in text_of(view)
        assert re.search(r'class="b (measured|model)"', text_of(view))
    assert "every field of every event is exact" in text_of(shown[5]).lower()


def test_text_from_files_is_escaped() -> None:
    trace = Trace.build(
        2,
        op=Coded.constant(2, NASTY),
        custom_op=np.ones(2, np.bool_),
        phase=Coded.constant(2, NASTY),
        groups=(ProcessGroup(NASTY, (0, 1)),),
        group=np.zeros(2, np.int32),
        size_bytes=np.array([8, 8]),
        gap_ns=Column(np.array([0, 5])),
        notes=(NASTY,),
        warnings=(NASTY,),
        source_format=NASTY,
    )
    canary = compile_trace(trace)
    check = verify_canary(trace, canary, assume={"skew_us": 0, "overlap_us": 0})
    pieces = [coverage_html(trace), notes_html(trace.notes, trace.warnings), program_html(canary), chips_html(check),
              text_of(views.timeline(trace)), text_of(views.ops(ops(trace))), text_of(views.program(canary))]  # fmt: skip
    for piece in pieces:
        assert "<img" not in piece
    assert "&lt;img" in "".join(pieces)


def test_the_link_table_is_the_matrix(gloo: Trace) -> None:
    m = build_matrix(gloo)
    frame = links_frame(m, None)
    assert [(r.src, r.dst, r.bytes) for r in frame.itertuples()] == [(x.src, x.dst, x.size_bytes) for x in m.links()]
    assert frame["share"].sum() == pytest.approx(1)
    brush = ((0, 0), (1, 3))
    inside = links_frame(m, brush)
    assert set(inside["src"]) == {0}
    assert set(inside["dst"]) == {1, 2, 3}
    assert links_csv(m, brush).splitlines()[0] == "src,dst,bytes"
    assert len(links_csv(m, brush).splitlines()) == len(inside) + 1


def test_a_brush_selects_the_ranks_whose_cells_it_touches() -> None:
    assert brush_of((0.6, 0.6, 1.4, 1.4), 4) == ((1, 1), (1, 1))
    assert brush_of((-9, -9, 9, 9), 4) == ((0, 3), (0, 3))
    assert brush_of(None, 4) is None


def test_the_brush_fills_the_table(gloo: Trace) -> None:
    view = TrafficView(build_matrix(gloo))
    everything = len(view._table.value)
    view.select(((0, 0), (1, 1)))
    assert len(view._table.value) == 1
    assert "Ranks 0 to 1" in str(view._caption.object)
    view.select(None)
    assert len(view._table.value) == everything


def test_blocks_of_a_large_matrix_keep_the_sum() -> None:
    m = build_matrix(ring(2 * RAW_RANKS + 3))
    blocks = Blocks(m)
    whole = blocks.view(None, None)
    assert whole.size_bytes.clip(0).sum() == pytest.approx(m.sum_bytes, rel=1e-6)
    assert max(whole.size_bytes.shape) <= MOST_BLOCKS
    near = blocks.view((-0.5, 3.4), (-0.5, 3.4))
    assert near.width == 1
    assert near.size_bytes.shape == (4, 4)
    assert near.size_bytes.clip(0).sum() == pytest.approx(3 * m.value(0, 1), rel=1e-6)
    assert near.size_bytes[2, 3] == m.value(2, 3)


def test_the_image_follows_the_view_and_stays_where_the_view_stays() -> None:
    from bokeh.models import ColumnDataSource
    from bokeh.plotting import figure

    widths: list[int] = []
    follower = Follower(Blocks(build_matrix(ring(2 * RAW_RANKS))), widths.append)
    source = ColumnDataSource(follower.image.data)
    follower.attach(figure(), source)
    follower.show((99.6, 199.4), (99.6, 199.4))
    drawn = source.data["image"][0]
    assert (source.data["x"], source.data["y"], drawn.shape) == ([99.5], [99.5], (100, 100))
    assert drawn.clip(0).sum() == 99 * follower.blocks.view(None, None, most=2 * RAW_RANKS).size_bytes[0, 1]
    follower.show((99.7, 199.3), (99.7, 199.3))
    assert source.data["image"][0] is drawn
    assert widths == [1]
    assert list(follower.step.data["width"]) == [1]


def test_lanes_are_process_groups_and_unknown_stays_unknown(gloo: Trace) -> None:
    d = lane_data(gloo)
    assert len(d.lanes) == 7
    assert len(set(d.lanes)) == 7
    assert np.all(np.diff(d.start_us) >= 0)
    bare = lane_data(ring(2, events=3))
    assert np.isnan(bare.duration_us).all()
    assert not np.isnan(bare.start_us).any()
    assert lane_data(
        Trace.build(
            1, op=Coded.constant(1, "send"), groups=(ProcessGroup("g", (0, 1)),), group=np.zeros(1, np.int32), size_bytes=np.array([1])
        )
    ).ordered_only


def test_a_timeline_draws_bars_where_durations_are_known_and_ticks_elsewhere() -> None:
    trace = Trace.build(
        2,
        op=Coded.constant(2, "all_reduce"),
        groups=(ProcessGroup("g", (0, 1)),),
        group=np.zeros(2, np.int32),
        size_bytes=np.array([8, 8]),
        start_ns=Column(np.array([0, 10_000])),
        duration_ns=Ragged.from_rows([[4_000, 3_000], []]),
        arrival_ns=Ragged.from_rows([[0, 2_000], [0, 0]]),
        overlap_ns=Column(np.array([1_000, 0])),
    )
    lanes = Lanes(lane_data(trace))
    bars, starts, skew, overlap = (lanes._sources[n].data for n in ("bars", "starts", "skew", "overlap"))
    assert (bars["left"].tolist(), bars["right"].tolist()) == ([0.0], [4.0])
    assert starts["left"].tolist() == [10.0]
    assert (skew["left"].tolist(), skew["right"].tolist()) == ([0.0], [2.0])
    assert (overlap["left"].tolist(), overlap["right"].tolist()) == ([0.0], [1.0])


def test_a_long_timeline_opens_small_and_is_rasterised_when_all_of_it_is_in_view() -> None:
    n = 3 * DETAIL_EVENTS
    lanes = Lanes(lane_data(ring(4, events=n)))
    assert 0 < len(lanes._sources["starts"].data["left"]) <= DETAIL_EVENTS
    lanes.show(0.0, lanes.data.end_us)
    assert len(lanes._sources["starts"].data["left"]) == 0
    image = lanes._sources["density"].data["image"][0]
    assert image.shape[0] == 9
    assert (image > 0).any()
    assert "density" in str(lanes.status.object)


def test_bounds_and_commitments_cover_the_canary(gloo: Trace) -> None:
    canary = compile_trace(gloo, records=2)
    for bound in field_bounds(canary):
        scale = 1 if bound.field == "pressure" else 1000
        assert bound.largest * scale == pytest.approx(canary.errors[bound.field])
    assert steps_frame(canary)["runs"].sum() == len(gloo)
    frame = commitments_frame(canary)
    assert (frame["covers"][0], frame["first"][0], frame["last"][0]) == ("root", 0, len(gloo) - 1)
    assert len(frame) > 1
    assert (frame["first"] <= frame["last"]).all()
    assert frame["sha256"].str.fullmatch("[0-9a-f]{64}").all()
    exact = field_bounds(compile_trace(gloo))
    assert all(b.text == "exact" for b in exact)


def test_a_huge_program_is_cut_and_counted() -> None:
    sizes = np.arange(1, 2001) * 8
    rng = np.random.default_rng(5)
    trace = Trace.build(
        2000,
        op=Coded.constant(2000, "all_reduce"),
        groups=(ProcessGroup("g", (0, 1)),),
        group=np.zeros(2000, np.int32),
        size_bytes=rng.permutation(sizes),
        gap_ns=Column(np.full(2000, 1000)),
        overlap_ns=Column(np.zeros(2000, np.int64)),
    )
    text = program_html(compile_trace(trace))
    assert "more items" in text
    assert len(text) < 200_000


def test_statuses_are_separate_chips_and_red_is_for_failures(gloo: Trace) -> None:
    good = chips_html(verify_canary(gloo, compile_trace(gloo)))
    assert good.count('class="chip ok"') == 7
    assert "bad" not in good
    bad = chips_html(verify_canary(gloo, compile_trace(gloo, records=1)))
    assert 'class="chip bad"' in bad


def test_colours_are_distinct_and_none_is_red() -> None:
    distinct = {k: v for k, v in OP_COLORS.items() if k not in ("point_to_point", "recv")}
    assert len(set(distinct.values())) == len(distinct)
    for color in OP_COLORS.values():
        r, g, b = (int(color[i : i + 2], 16) for i in (1, 3, 5))
        assert not (r > 180 and g < 90 and b < 90)


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        raise ImportError(name=name)

    monkeypatch.setattr(extra.importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"pip install 'commcanary-lab\[workbench\]'"):
        extra._need("panel")


def test_unknown_figure() -> None:
    with pytest.raises(AttributeError):
        _ = views.nothing
    assert set(dir(views)) == set(views.__all__)
