"""A workbench process, as the command line starts it, and small clients: HTTP, a websocket, Bokeh's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

__all__ = ["ROOT", "Answer", "Served", "ask", "click", "connection", "document", "event", "models", "patch", "receive", "token_of"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Answer:
    """Status, headers in lower case (the last of each name), all cookies, text."""

    status: int
    headers: dict[str, str]
    cookies: tuple[str, ...]
    text: str


class Served:
    """A workbench on a free port."""

    def __init__(self, folder: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "commcanary_lab.cli", "serve", "--workspace", str(folder), "--port", "0", *options]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})}
        )
        self.output: list[str] = []
        self._ready = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(90) or not self.url:
            self.stop()
            raise RuntimeError("the workbench did not start:\n" + "".join(self.output))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if found := re.search(r"https?://\S+:\d+/workbench", line):
                self.url = found.group(0)
                self._ready.set()
        self._ready.set()

    @property
    def port(self) -> int:
        return int(urlsplit(self.url).port or 0)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> int:
        self.process.send_signal(2)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return self.process.returncode

    def ask(self, path: str = "/workbench", method: str = "GET", form: dict[str, str] | None = None, **headers: str) -> Answer:
        """Send one request exactly as it is given; the path is not tidied."""
        if self.url.startswith("https"):
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            link: http.client.HTTPConnection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=context)
        else:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(link):
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            body = urlencode(form) if form is not None else None
            link.putrequest(method, path, skip_host="Host" in given)
            for name, value in given.items():
                link.putheader(name, value)
            if body is not None:
                link.putheader("Content-Type", "application/x-www-form-urlencoded")
                link.putheader("Content-Length", str(len(body)))
            link.endheaders(body.encode() if body is not None else None)
            got = link.getresponse()
            cookies = tuple(v for n, v in got.getheaders() if n.lower() == "set-cookie")
            return Answer(got.status, {n.lower(): v for n, v in got.getheaders()}, cookies, got.read().decode("utf-8", "replace"))

    def log_in(self, name: str, password: str) -> str:
        """Return the Cookie header of a user."""
        got = self.ask("/login", "POST", {"username": name, "password": password})
        assert got.status == 302, got.text
        return "; ".join(c.partition(";")[0] for c in got.cookies)


def token_of(page: str) -> str:
    """The session token that a page carries."""
    found = re.search(r'"token":\s*"([^"]+)"', page)
    assert found is not None, page[:2000]
    return found.group(1)


@contextlib.asynccontextmanager
async def connection(served: Served, token: str, **headers: str) -> AsyncIterator[WebSocketClientConnection]:
    """A websocket with a token, as BokehJS opens it; headers may be wrong on purpose."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    scheme = "wss" if served.url.startswith("https") else "ws"
    request = HTTPRequest(f"{scheme}://{served.host}/workbench/ws", headers=given, validate_cert=False, request_timeout=60)
    link = await websocket_connect(request, subprotocols=["bokeh", token], max_message_size=1 << 30)
    try:
        yield link
    finally:
        link.close()
        with contextlib.suppress(TimeoutError):  # until the other end has closed, too
            async with asyncio.timeout(1):
                while await link.read_message() is not None:
                    pass
        await asyncio.sleep(0.05)
        if link.stream is not None:
            link.stream.close()


def message(kind: str, content: Any, **header: Any) -> list[str]:
    """The frames of a message of Bokeh's protocol."""
    return [json.dumps({"msgid": uuid.uuid4().hex, "msgtype": kind, **header}), "{}", json.dumps(content)]


async def ask(link: WebSocketClientConnection, kind: str, content: Any = None) -> tuple[str, Any, list[bytes]]:
    """Send a message, and return kind, content and buffers of the answer to it; what comes in between is dropped."""
    frames = message(kind, content if content is not None else {})
    number = json.loads(frames[0])["msgid"]
    for frame in frames:
        await link.write_message(frame)
    while True:
        header, content, buffers = await receive(link)
        if header.get("reqid") == number:
            return header["msgtype"], content, buffers


async def receive(link: WebSocketClientConnection) -> tuple[dict[str, Any], Any, list[bytes]]:
    """The next message of the server."""
    parts = []
    for _ in range(3):
        frame = await asyncio.wait_for(link.read_message(), 60)
        if frame is None:
            raise ConnectionError("closed")
        parts.append(json.loads(frame))
    header, _, content = parts
    buffers = []
    for _ in range(header.get("num_buffers", 0)):
        await link.read_message()
        buffers.append(await link.read_message())
    return header, content, buffers  # type: ignore[return-value]


async def document(link: WebSocketClientConnection) -> dict[str, Any]:
    """Everything that the page shows, as the browser gets it."""
    kind, content, _ = await ask(link, "PULL-DOC-REQ")
    assert kind == "PULL-DOC-REPLY", (kind, content)
    return content["doc"]


def event(name: str, **values: Any) -> dict[str, Any]:
    """An event, as the browser sends it."""
    entries = [[k, v] for k, v in values.items()]
    told = {"type": "event", "name": name, "values": {"type": "map", "entries": entries}}
    return {"events": [{"kind": "MessageSent", "msg_type": "bokeh_event", "msg_data": told}]}


def click(model: str) -> dict[str, Any]:
    """A click on a button, whether or not the page lets one click it."""
    return event("dom_event", model={"id": model}, node="click", data=None)


def models(found: Any, label: str) -> list[str]:
    """The ids of the controls with a label in a document."""
    out = []
    if isinstance(found, dict):
        inside = found.get("attributes", {}).get("data", {}) if found.get("type") == "object" else {}
        shown = inside.get("attributes", {}).get("label") if isinstance(inside, dict) else None
        out += [found["id"]] if shown == label else []
        for value in found.values():
            out += models(value, label)
    elif isinstance(found, list):
        for value in found:
            out += models(value, label)
    return out


def patch(model: str, **changes: Any) -> dict[str, Any]:
    """A change of properties of one model, as the browser sends it."""
    return {"events": [{"kind": "ModelChanged", "model": {"id": model}, "attr": k, "new": v} for k, v in changes.items()]}
