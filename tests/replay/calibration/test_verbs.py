"""The verbs sweep and levers, and the view of a fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import commcanary_lab as lab
from commcanary_lab.replay.calibration import cost_of, fit, write_fit
from tests.replay.calibration.synthetic import samples
from tests.replay.calibration.test_samples import table

SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "tp8_decode.json"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    cost = cost_of("all_reduce", 8)
    return table(tmp_path, [(1 << i, cost.steps * 2.5 + cost.wire_bytes(1 << i) / 150e3, 1.0) for i in range(10, 28, 2)])


def test_sweep_of_a_table(good: Path, document: Any, cli: Any, tmp_path: Path) -> None:
    found = document("sweep", "--from", good)
    assert {"alpha_us", "bandwidth_gb_s", "half_size_bytes", "residuals"} <= set(found)
    assert found["alpha_us"] == pytest.approx(2.5, rel=1e-3)
    assert found["half_size_bytes"] == pytest.approx(8 * 2.5 * 150e3, rel=1e-2)
    code, out, _ = cli("sweep", "--from", good, "-o", tmp_path / "fit.json")
    assert (code, "verdict: fits" in out) == (0, True)
    code, out, _ = cli("sweep", "--from", good, "-o", "-")
    assert json.loads(out)["figures"]["alpha_us"] == found["alpha_us"]
    rows = document("levers", SAMPLE, "--fit", tmp_path / "fit.json")["rows"]
    assert {"op", "size_bytes", "bound", "save_bytes_us", "fuse_us", "remove_us"} <= set(rows[0])
    assert rows[0]["fuse_interval_us"][0] <= rows[0]["fuse_us"] <= rows[0]["fuse_interval_us"][1]


def test_a_bad_fit_exits_1(tmp_path: Path, cli: Any, document: Any) -> None:
    path = table(tmp_path, [(64, 9.0, 1.0), (128, 20.0, 1.0), (256, 8.0, 1.0), (512, 31.0, 1.0)])
    assert document("sweep", "--from", path, expect=1)["verdict"] != "fits"


def test_levers_of_given_terms_and_of_a_canary(document: Any, tmp_path: Path) -> None:
    trace = document("levers", SAMPLE, "--alpha-us", 5, "--bandwidth-gb-s", 50)
    lab.write(lab.compile(lab.open(SAMPLE)), tmp_path / "c.canary.json")
    canary = document("levers", tmp_path / "c.canary.json", "--alpha-us", 5, "--bandwidth-gb-s", 50)
    assert trace["rows"] == canary["rows"]
    assert trace["terms"]["origin"] == "assumed"
    assert trace["rows"][0]["fuse_interval_us"] is None
    assert trace["import_coverage"]["read"] == trace["import_coverage"]["used"] > 0
    assert len(trace["limits"]) >= 4


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("levers", SAMPLE), 2, "give --fit FILE"),
        (("levers", SAMPLE, "--alpha-us", 5), 2, "nobody says"),
        (("levers", SAMPLE, "--alpha-us", 5, "--bandwidth-gb-s", 5, "--fit", "x"), 2, "has alpha and bandwidth already"),
        (("levers", SAMPLE, "--alpha-us", 5, "--bandwidth-gb-s", 5, "--keep-share", 2), 2, "share"),
        (("levers", SAMPLE, "--fit", SAMPLE), 3, "not a fit"),
        (("sweep", "--sizes", "1k:2"), 2, "is not a size"),
        (("sweep", "--sizes", "64"), 2, "is not a size"),
        (("sweep", "--op", "barrier"), 2, "cannot be swept"),
        (("sweep", "--from", SAMPLE), 3, ""),
        (("sweep", "--json", "-o", "-"), 2, "both want standard output"),
    ],
)
def test_wrong_calls(arguments: tuple[object, ...], code: int, told: str, cli: Any) -> None:
    found, out, err = cli(*arguments)
    assert (found, out) == (code, "")
    assert told in err


@pytest.mark.gloo
def test_sweep_of_real_ranks(cli: Any, tmp_path: Path) -> None:
    code, out, err = cli("sweep", "--ranks", 2, "--backend", "gloo", "--op", "broadcast", "--sizes", "1KiB:1MiB", "--points", 4,
                         "--repeat", 5, "--json", "-o", tmp_path / "f.json", "--timeout", 60)  # fmt: skip
    assert code in (0, 1), err  # a busy machine is inconclusive, and says so
    found = json.loads(out)
    assert (found["op"], found["ranks"], len(found["residuals"])) == ("broadcast", 2, 4)
    assert (found["verdict"] == "fits") == (code == 0)
    assert found["reasons"] or code == 0
    assert (tmp_path / "f.json").exists()


class TestView:
    def test_a_fit_is_drawn_with_origin_and_coverage(self) -> None:
        pytest.importorskip("panel_material_ui")
        from commcanary_lab.views.fit_chart import fit_figures, fit_frame

        found = fit(samples(cost_of("all_reduce", 4), 20.0, 3.0, rounds=25, noise=0.05), statistic="median")
        view = lab.views.fit(found)
        text = "".join(str(p.object) for p in view.select(lambda o: type(o).__name__ == "HTML"))
        assert "Below 2" in text and "a call is bound by latency" in text
        assert "synthetic" in text and "14 sizes, 350 latencies" in text
        assert len(fit_frame(found)) == 14
        assert fit_figures(found)[0].origin == f"{found.alpha_interval_us.low:.1f} us to {found.alpha_interval_us.high:.1f} us"

    def test_a_bad_fit_says_so_before_its_figures(self) -> None:
        pytest.importorskip("panel_material_ui")
        found = fit(samples(cost_of("all_reduce", 4), 20.0, 3.0, rounds=20, noise=1.5))
        text = "".join(str(p.object) for p in lab.views.fit(found).select(lambda o: type(o).__name__ == "HTML"))
        assert "Inconclusive" in text and "scatter too much" in text

    def test_the_chart_shows_every_size_and_the_interval(self) -> None:
        pytest.importorskip("bokeh")
        from commcanary_lab.views.fit_chart import residual_figure, time_figure

        found = fit(samples(cost_of("all_reduce", 4), 20.0, 3.0, rounds=25, noise=0.05))
        names = [type(r.glyph).__name__ for r in time_figure(found).renderers]
        assert names == ["VArea", "Line", "Segment", "Segment", "Scatter"]
        dots = time_figure(found).renderers[-1].data_source.data
        assert dots["x"] == list(found.samples.size_bytes)
        assert residual_figure(found).renderers[-1].data_source.data["y"] == [100 * r.relative for r in found.residuals]


def test_a_written_fit_can_be_read_by_the_verb(tmp_path: Path, document: Any) -> None:
    write_fit(fit(samples(cost_of("all_reduce", 8), 4.0, 25.0)), tmp_path / "f.json")
    found = document("levers", SAMPLE, "--fit", tmp_path / "f.json")
    assert found["terms"]["alpha_us"] == pytest.approx(4.0, rel=1e-6)
