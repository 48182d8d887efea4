"""Parts of the Overview page without a browser: the receiving end of uploads, addresses, the tour."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

pytest.importorskip("panel")

import commcanary_lab as lab
from apps.drop_zone import Receiver
from apps.pages import PAGES
from apps.session import Session
from apps.tour import STEPS, TourBar
from commcanary_lab.workspace import INDEX_FILE, Outcome, Staging, Workspace
from commcanary_lab.workspace.provenance_search import find_provenance


class Browser:
    """What a browser would do, and what it was told."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace(folder)
        self.told: list[dict[str, Any]] = []
        self.arrived: list[tuple[Staging | None, list[Outcome]]] = []
        self.receiver = Receiver(self.workspace, self.told.append, lambda s, r: self.arrived.append((s, r)))

    def begin(self, *files: tuple[str, int]) -> None:
        self.receiver.received({"id": "u", "begin": [{"name": n, "size": s} for n, s in files]})

    def part(self, file: int, offset: int, data: bytes) -> None:
        self.receiver.received({"id": "u", "file": file, "offset": offset, "data": base64.b64encode(data).decode()})

    @property
    def left(self) -> list[str]:
        return [n for n in os.listdir(self.workspace.path) if not n.startswith(INDEX_FILE)]


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path / "w")


def test_parts_in_order_make_a_file(browser: Browser) -> None:
    data = json.dumps({"format": "commcanary.trace.v1", "events": [{"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1}]}).encode()
    browser.begin(("a.json", len(data)), ("empty.json", 0))
    browser.part(0, 0, data[:10])
    browser.part(0, 10, data[10:])
    assert [m.get("want") for m in browser.told] == [[0, 0], [0, 10], None]
    ((staging, refused),) = browser.arrived
    assert staging is not None and refused == []
    assert [o.name for o in staging.commit()] == ["a.json", ""]
    assert browser.left == ["a.json"]


@pytest.mark.parametrize(
    "message",
    [
        {"id": "u", "file": 0, "offset": 5, "data": "AAAA"},
        {"id": "u", "file": 1, "offset": 0, "data": "AAAA"},
        {"id": "u", "file": -1, "offset": 0, "data": "AAAA"},
        {"id": "u", "file": 0, "offset": 0, "data": 7},
        {"id": "u", "cancel": True},
        {"id": "u"},
    ],
)
def test_a_message_that_makes_no_sense_ends_the_upload(browser: Browser, message: dict[str, Any]) -> None:
    browser.begin(("a.json", 100))
    browser.receiver.received(message)
    assert browser.left == []
    browser.part(0, 0, b"x" * 100)
    assert browser.arrived == []


@pytest.mark.parametrize("message", [None, 7, "x", [], {}, {"id": "other", "cancel": True}, {"id": 5, "begin": []}, {"begin": []}])
def test_messages_of_nobody_change_nothing(browser: Browser, message: Any) -> None:
    browser.begin(("a.json", 4))
    browser.receiver.received(message)
    browser.part(0, 0, b"abcd")
    assert len(browser.arrived) == 1
    staging = browser.arrived[0][0]
    assert staging is not None
    staging.abandon()


@pytest.mark.parametrize("data", [b"x" * 101, b""])
def test_more_than_was_said_is_refused(browser: Browser, data: bytes) -> None:
    browser.begin(("a.json", 100))
    browser.part(0, 0, data)
    ((staging, refused),) = browser.arrived
    assert staging is None
    assert "upload it again" in refused[0].problem
    assert browser.left == []


def test_what_is_refused_is_never_asked_for(browser: Browser) -> None:
    browser.begin(("../up.json", 5), ("huge.json", 600 << 20), (".x", 1), ("con", 1))
    ((staging, refused),) = browser.arrived
    assert staging is None
    assert [o.files[0] for o in refused] == ["../up.json", "huge.json", ".x", "con"]
    assert not any("want" in m for m in browser.told)
    assert browser.left == []


def test_a_new_upload_ends_the_last_one(browser: Browser) -> None:
    browser.begin(("a.json", 100))
    browser.begin(("b.json", 100))
    assert len(browser.left) == 1
    browser.receiver.close()
    assert browser.left == []


def test_addresses_open_what_they_name(tmp_path: Path) -> None:
    session = Session(Workspace(tmp_path))

    def query(*args: Any) -> dict[str, list[str]]:
        return parse_qs(session.address(*args).removeprefix("?"))

    assert query("a&b.json", "trace") == {"page": ["overview"], "trace": ["a&b.json"]}
    assert query("c.json", "canary", ["t.json"]) == {"page": ["canary"], "trace": ["t.json"], "canary": ["c.json"]}
    assert query("r.json", "report") == {"page": ["review"], "candidate": ["r.json"]}
    assert query("x.json", "comparison") == {"page": ["review"], "comparison": ["x.json"]}
    assert query("l.json", "ledger") == {"page": ["minimise"], "ledger": ["l.json"]}
    assert query("replays/one", "replay") == {"page": ["replay"], "replay": ["one"]}
    assert query("campaigns/two", "campaign") == {"page": ["replay"], "campaign": ["two"]}


def test_a_trace_brings_the_canary_that_was_compiled_from_it(tmp_path: Path) -> None:
    """Whatever they are called, once the index knows."""
    w = Workspace(tmp_path)
    lab.write(lab.samples.adversarial(), tmp_path / "gloo4.json")
    lab.write(lab.compile(lab.samples.adversarial()), tmp_path / "zebra.json")
    lab.write(lab.compile(lab.samples.gloo4()), tmp_path / "gloo4.canary.json")
    session = Session(w)
    session.open("gloo4.json")
    assert session.canary == "gloo4.canary.json"  # nothing is known yet: by name
    find_provenance(w)
    session.open("gloo4.json")
    assert session.canary == "zebra.json"
    session.open("zebra.json", show=True)
    assert (session.trace, session.page) == ("gloo4.json", "canary")


def test_the_tour_has_a_step_for_every_page_and_its_own_state(tmp_path: Path) -> None:
    assert [s.page for s in STEPS] == [p.name for p in PAGES]
    assert [s.title for s in STEPS] == [p.title for p in PAGES]
    mine, other = (Session(Workspace(tmp_path)) for _ in range(2))
    bars = [TourBar(s, tuple(p.name for p in PAGES)) for s in (mine, other)]
    bars[0].start()
    assert (mine.tour, other.tour) == (0, -1)
    assert bars[0].view.visible and not bars[1].view.visible
    for step in range(1, len(STEPS)):
        bars[0]._go(mine.tour + 1)
        assert mine.page == STEPS[step].page
    bars[0]._go(mine.tour + 1)
    assert mine.tour == -1
    assert not bars[0].view.visible
