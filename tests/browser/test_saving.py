"""A chart is saved as it is on screen, with what its card says above it; its data is saved in full."""

from __future__ import annotations

import csv
import io
import struct
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest


def saved(page: Any, kind: str, n: int = 0) -> tuple[str, bytes]:
    """Press a link below a chart; return the name of the file and what is in it."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=f"Save this chart as {kind}").nth(n).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_png_has_the_size_of_the_chart_and_its_title(open_page: Any) -> None:
    page = open_page("page=traffic&trace=fabric_job.kineto")
    page.locator("canvas").first.wait_for()
    name, data = saved(page, "PNG")
    assert name == "bytes-between-ranks.png"
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width > 500
    assert height > 500


@pytest.mark.parametrize("query", ["page=traffic&trace=fabric_job.kineto", "page=timeline&trace=gloo4.json"])
def test_svg_holds_text_and_shapes_with_title_and_badges(open_page: Any, query: str) -> None:
    page = open_page(query)
    page.locator("canvas").first.wait_for()
    name, data = saved(page, "SVG")
    root = ET.fromstring(data)
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    title = {"bytes-between-ranks.svg": "Bytes between ranks", "collectives-in-time.svg": "Collectives in time"}[name]
    assert title in texts
    assert any("source records" in (t or "") for t in texts)
    assert (
        sum(1 for _ in root.iter("{http://www.w3.org/2000/svg}path")) + sum(1 for _ in root.iter("{http://www.w3.org/2000/svg}rect")) > 10
    )


def test_csv_holds_the_data_of_the_chart(open_page: Any) -> None:
    page = open_page("page=traffic&trace=fabric_job.kineto")
    page.locator("canvas").first.wait_for()
    links = list(csv.DictReader(io.StringIO(saved(page, "CSV")[1].decode())))
    assert len(links) == 16
    assert sum(float(r["bytes"]) for r in links) == 22_528 * 2**20
    ranks = list(csv.DictReader(io.StringIO(saved(page, "CSV", 1)[1].decode())))
    assert [int(r["rank"]) for r in ranks] == list(range(8))
    assert sum(float(r["sent_bytes"]) for r in ranks) == 22_528 * 2**20
