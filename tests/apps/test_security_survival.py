"""A real server, and clients that upload garbage, leave in the middle, send nonsense or open a hundred pages; then a visitor comes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

pytest.importorskip("panel")

import psutil
from tornado.websocket import WebSocketClosedError

from tests.apps.served import ROOT, Served, ask, connection, document, event, patch, receive, token_of

#: What the server may hold at the end, above what it held before; most of it is what each of the open pages takes.
MAX_GROWTH_BYTES = 900e6
SESSIONS = 24


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("survival")
    shutil.copy(ROOT / "data" / "samples" / "gloo4.json", folder)
    running = Served(folder, "--max-sessions", str(SESSIONS))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def before(server: Served) -> float:
    server.ask()
    return float(psutil.Process(server.process.pid).memory_info().rss)


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 300))


async def page(server: Served) -> tuple[Any, str]:
    got = await asyncio.to_thread(server.ask)
    assert got.status == 200, got.text
    return connection(server, token_of(got.text), Origin=f"http://{server.host}"), got.text


def listing(server: Served) -> list[str]:
    return sorted(n for n in os.listdir(server.folder) if not n.startswith("."))


async def zone(link: Any) -> str:
    """The id of the place for files."""
    found: list[str] = []

    def walk(x: Any) -> None:
        if isinstance(x, dict):
            if "Drop files here" in str(x.get("attributes", {}).get("esm", "")):
                found.append(x["id"])
            for v in x.values():
                walk(v)
        elif isinstance(x, list):
            for v in x:
                walk(v)

    walk(await document(link))
    assert found
    return found[0]


def send(model: str, message: Any) -> dict[str, Any]:
    return event("data_event", model={"id": model}, data=message)


def still_serves(server: Served) -> None:
    async def go() -> None:
        opened, _ = await page(server)
        async with opened as link:
            await receive(link)
            await ask(link, "PATCH-DOC", event("document_ready"))
            assert "gloo4.json" in json.dumps(await document(link))

    run(go())
    assert server.process.poll() is None


# -- uploads ----------------------------------------------------------------------------------------------------------

_EVENT = {"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1}
_TRACE = json.dumps({"format": "commcanary.trace.v1", "events": [_EVENT]}).encode()


def mapped(value: Any) -> Any:
    """A value as BokehJS writes it: dictionaries are maps."""
    if isinstance(value, dict):
        return {"type": "map", "entries": [[k, mapped(v)] for k, v in value.items()]}
    return [mapped(v) for v in value] if isinstance(value, list) else value


class Uploads:
    """One page, and uploads on it whose messages are sent as they are."""

    def __init__(self, link: Any, model: str) -> None:
        self.link, self.model = link, model
        self.number = 0

    async def send(self, files: Any, messages: list[Any]) -> None:
        self.number += 1
        name = f"u{self.number}"
        for message in [{"id": name, "begin": files}, *messages]:
            told = {**message, "id": name} if isinstance(message, dict) and message.get("id") == "u" else message
            await ask(self.link, "PATCH-DOC", send(self.model, mapped(told)))

    async def shown(self, *words: str) -> str:
        text = ""
        for _ in range(60):
            text = json.dumps(await document(self.link))
            if any(w in text for w in words):
                return text
            await asyncio.sleep(0.2)
        raise AssertionError(f"none of {words}: {text[-2000:]}")


@contextlib.asynccontextmanager
async def uploads(server: Served) -> AsyncIterator[Uploads]:
    opened, _ = await page(server)
    async with opened as link:
        await receive(link)
        await ask(link, "PATCH-DOC", event("document_ready"))
        yield Uploads(link, await zone(link))


def part(data: bytes, offset: int = 0, file: int = 0) -> dict[str, Any]:
    return {"id": "u", "file": file, "offset": offset, "data": base64.b64encode(data).decode()}


NAMES = {
    "sent.json": "was added",
    "../outside.json": "not a plain file name",
    "/etc/cron.d/x": "not a plain file name",
    "..\\x.json": "not a plain file name",
    ".hidden.json": "not a plain file name",
    "a\0b.json": "not a plain file name",
    "CON.json": "not a file name on every system",
    "<img src=x onerror=alert(1)>.json": "not a file name on every system",
    "$(touch pwned).json": "was added",
    "a; touch pwned.json": "was added",
}


def test_names_of_uploads(server: Served, before: float) -> None:
    async def go() -> None:
        async with uploads(server) as u:
            for name, words in NAMES.items():
                await u.send([{"name": name, "size": len(_TRACE)}], [part(_TRACE)])
                shown = name if words == "was added" else words
                assert "<img" not in await u.shown(f"{shown} was added" if words == "was added" else words)

    run(go())
    assert listing(server) == ["$(touch pwned).json", "a; touch pwned.json", "gloo4.json", "sent.json"]
    assert "pwned" not in os.listdir(ROOT)
    assert not (server.folder.parent / "outside.json").exists()


GARBAGE: dict[str, tuple[Any, list[Any]]] = {
    "huge": ([{"name": "big.json", "size": 1 << 50}], []),
    "negative": ([{"name": "neg.json", "size": -1}], []),
    "lies": ([{"name": "lies.json", "size": 4}], [part(b"x" * 1000)]),
    "garbage": ([{"name": "garbage.json", "size": 64}], [part(bytes(range(64)))]),
    "pickle": ([{"name": "pickle.pkl", "size": 46}], [part(b"cos\nsystem\n(S'touch pwned; touch ../pwned'\ntR.   ")]),
    "base64": ([{"name": "b.json", "size": 10}], [{"id": "u", "file": 0, "offset": 0, "data": "%%%not base64%%%"}]),
    "offsets": ([{"name": "c.json", "size": 10}], [{"id": "u", "file": 7, "offset": -3, "data": "AAAA"}]),
    "messages": ([{"name": "d.json", "size": 10}], [{"id": "u"}, {"begin": 1}, {"id": 3}, [1, 2], "text", None, {"id": "u", "lost": "x"}]),
    "types": ([{"name": 3, "size": "x"}, 4, None], []),
    "many": ([{"name": f"{i}.json", "size": 1} for i in range(5000)], []),
    "no list": ("files", []),
}


def test_garbage_is_refused_and_leaves_nothing(server: Served, before: float) -> None:
    known = listing(server)

    async def go() -> None:
        async with uploads(server) as u:
            for files, messages in GARBAGE.values():
                await u.send(files, messages)
            await u.send([{"name": "last.json", "size": len(_TRACE)}], [part(_TRACE)])  # and this page still works
            await u.shown("last.json was added")

    run(go())
    assert listing(server) == sorted([*known, "last.json"])
    assert not any("pwned" in os.listdir(place) for place in (ROOT, ROOT.parent, server.folder, server.folder.parent))


def test_who_leaves_in_the_middle_leaves_nothing(server: Served, before: float) -> None:
    known = listing(server)

    async def go() -> None:
        async with uploads(server) as u:
            await u.send([{"name": "half.json", "size": 8 << 20}], [part(b" " * (1 << 20))])

    run(go())
    assert any(n.startswith(".upload-") for n in os.listdir(server.folder))
    deadline = time.monotonic() + 90  # Bokeh discards the session half a minute later
    while any(n.startswith(".upload-") for n in os.listdir(server.folder)):
        assert time.monotonic() < deadline, os.listdir(server.folder)
        time.sleep(1)
    assert listing(server) == known


# -- websockets -------------------------------------------------------------------------------------------------------

_FRAMES: dict[str, list[str | bytes]] = {
    "no json": ["{", "{", "{"],
    "binary": [b"\x00" * 1000] * 3,
    "unknown kind": [json.dumps({"msgid": "1", "msgtype": "DROP-TABLE"}), "{}", "{}"],
    "no kind": ["{}", "{}", "{}"],
    "wrong types": ['{"msgid": [], "msgtype": {}}', "[]", "[]"],
    "deep": [json.dumps({"msgid": "1", "msgtype": "PATCH-DOC"}), "{}", "[" * 100_000],
    "unknown model": [json.dumps({"msgid": "1", "msgtype": "PATCH-DOC"}), "{}", json.dumps(patch("p999999", label="x"))],
    "unknown property": [json.dumps({"msgid": "1", "msgtype": "PATCH-DOC"}), "{}", json.dumps(patch("p1", nothing="x"))],
    "another document": [json.dumps({"msgid": "1", "msgtype": "PUSH-DOC"}), "{}", json.dumps({"doc": {"title": "x", "roots": []}})],
    "buffers without end": [json.dumps({"msgid": "1", "msgtype": "PATCH-DOC", "num_buffers": 10**9}), "{}", '{"events": []}',
                            *[f for i in range(8) for f in (json.dumps({"id": f"b{i}"}), b"\x00" * (3 << 20))]],
    "a frame too large": ["x" * (20 << 20)],
}  # fmt: skip


def test_nonsense_on_a_websocket_ends_only_that_connection(server: Served, before: float) -> None:
    token = token_of(server.ask().text)

    async def go(frames: list[str | bytes]) -> None:
        async with connection(server, token, Origin=f"http://{server.host}") as link:
            await receive(link)
            with contextlib.suppress(TimeoutError, WebSocketClosedError):
                for frame in frames:
                    await link.write_message(frame, binary=isinstance(frame, bytes))
                async with asyncio.timeout(1):
                    while await link.read_message() is not None:
                        pass

    for frames in _FRAMES.values():
        run(go(frames))
        assert server.process.poll() is None
    still_serves(server)
    assert max((len(line) for line in server.output), default=0) < 10_000  # nobody fills the log with a message


def test_bytes_that_are_no_websocket(server: Served, before: float) -> None:
    for data in (
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00" * 4096,
        b"GET /workbench HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 100_000,
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
            raw.sendall(data)
    still_serves(server)


# -- many pages -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_pages(server: Served, before: float) -> None:
    """A hundred are asked for; as many as are allowed are made, and the others are told to come back."""

    async def go() -> list[int]:
        status, links = [], []
        for _ in range(100):
            got = await asyncio.to_thread(server.ask)
            status.append(got.status)
            if got.status == 200:
                opened = connection(server, token_of(got.text), Origin=f"http://{server.host}")
                link = await opened.__aenter__()
                await receive(link)
                links.append(opened)
        for opened in links:
            await opened.__aexit__(None, None, None)
        return status

    status = run(go())
    assert set(status) == {200, 503}
    assert status.count(200) <= SESSIONS
    deadline = time.monotonic() + 120
    while server.ask().status != 200:  # their places are free again
        assert time.monotonic() < deadline
        time.sleep(2)
    time.sleep(20)
    still_serves(server)


def test_and_then_a_normal_visitor_is_served(server: Served, before: float) -> None:
    """The last test of this module."""
    deadline = time.monotonic() + 90
    while server.ask("/workbench").status != 200:
        assert time.monotonic() < deadline
        time.sleep(2)
    still_serves(server)
    grown = psutil.Process(server.process.pid).memory_info().rss - before
    print(f"grown by {grown / 1e6:.0f} MB")
    assert grown < MAX_GROWTH_BYTES


@pytest.mark.slow
def test_visitors_who_have_gone_take_their_memory_with_them(server: Served) -> None:
    """Every page is opened and closed, three times after a first time; nothing of a session stays."""
    pages = ("overview", "traffic", "timeline", "canary", "ablation", "ranking", "minimise", "replay", "review")
    process = psutil.Process(server.process.pid)

    async def visit(name: str) -> None:
        got = await asyncio.to_thread(server.ask, f"/workbench?page={name}&trace=gloo4.json")
        async with connection(server, token_of(got.text), Origin=f"http://{server.host}") as link:
            await receive(link)
            await ask(link, "PATCH-DOC", event("document_ready"))
            for _ in range(60):
                if "data-testid" in json.dumps(await document(link)):
                    return
                await asyncio.sleep(0.2)

    held = []
    for _ in range(4):
        for name in pages:
            run(visit(name))
        time.sleep(36)  # Bokeh looks every 17 s for sessions unused for 15 s
        held.append(process.memory_info().rss)
    print([f"{h / 1e6:.0f} MB" for h in held])
    assert held[-1] - held[0] < 25e6  # a session takes 3 MB
