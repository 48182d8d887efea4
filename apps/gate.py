"""What reaches the workbench: requests from other sites, for other names, or above the bounds are answered before a page is made."""

from __future__ import annotations

import ipaddress
import logging
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tornado.web
from bokeh.protocol.receiver import Receiver
from bokeh.server.session import ServerSession
from bokeh.server.tornado import BokehTornado
from bokeh.util.token import get_session_id
from panel.io.server import AutoloadJsHandler, ComponentResourceHandler, WSHandler
from tornado.escape import xhtml_escape
from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule

__all__ = ["MAX_MESSAGE_BYTES", "Gate", "guard", "host_of"]

#: One frame of a websocket. The largest that a page sends is a part of an upload: 1 MiB, in base64.
MAX_MESSAGE_BYTES = 4 << 20
#: All frames of one message of Bokeh's protocol, which may come with any number of buffers.
_MAX_ASSEMBLED_BYTES = 16 << 20

_HTML = Path(__file__).with_name("assets") / "refused.html"
log = logging.getLogger("commcanary_lab.workbench")


def host_of(netloc: str) -> str:
    """Return the name in a Host header or in an address, without its port.

    Examples
    --------
    >>> host_of("Localhost:5006"), host_of("[::1]:5006"), host_of("127.0.0.1"), host_of("a@b:x")
    ('localhost', '::1', '127.0.0.1', '')
    """
    try:
        parts = urlsplit(f"//{netloc}")
        _ = parts.port
    except ValueError:
        return ""
    return "" if "@" in netloc or parts.path else (parts.hostname or "")


@dataclass(frozen=True)
class Gate:
    """Which requests are answered.

    Parameters
    ----------
    names : frozenset of str
        Names of this server, lower case. IP addresses need not be listed: a page of another site cannot take one over.
    public : frozenset of str
        Names, with port where it is not the usual one, under which a proxy shows it.
    max_sessions : int
        Open pages; one more is told to come back.
    """

    names: frozenset[str]
    public: frozenset[str] = frozenset()
    max_sessions: int = 64

    def knows(self, host: str) -> bool:
        """Say whether a Host header is one of this server; a name that somebody points here is not."""
        name = host_of(host)
        if name in self.names or host.lower() in self.public:
            return True
        try:
            return bool(name) and bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def is_own(self, origin: str, host: str) -> bool:
        """Say whether a page of this server sent a request: its origin is the host that it asks, or a public name."""
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and bool(parts.netloc) and parts.netloc.lower() in {host.lower(), *self.public}

    def refusal(self, request: HTTPServerRequest) -> tuple[int, str, str] | None:
        """Return status, title and text for a request that is refused; None for one that goes on."""
        if not self.knows(request.host):
            return 421, "This is another server", f"{request.host} is no name of this workbench. Its owner can add it with --public-name."
        origin = request.headers.get("Origin")
        if origin is not None and not self.is_own(origin, request.host):
            return 403, "Refused", "A page of another site asked for this."
        if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site") and request.headers.get("Sec-Fetch-Dest") != "document":
            return 403, "Refused", "A page of another site asked for this."
        return None


class _Closed(Matcher):
    """Matches what is not let in, so that Tornado routes it to the refusal."""

    def __init__(self, gate: Gate, application: BokehTornado) -> None:
        self._gate, self._application = gate, application
        self._pages = set(application.app_paths)

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        found = self._gate.refusal(request)
        if found is None and request.path.rstrip("/") in self._pages and open_sessions(self._application) >= self._gate.max_sessions:
            found = (503, "The workbench is full", f"{self._gate.max_sessions:,} pages are open, and no more are kept. Close one that you "
                     "do not need; its place is free half a minute later. This page tries again by itself.")  # fmt: skip
        return None if found is None else {"target_kwargs": {"refused": found}}


def open_sessions(application: BokehTornado) -> int:
    """Return how many sessions are open, or being made."""
    return sum(len(c._sessions) + len(c._pending_sessions) for c in application.applications.values())


class Refused(tornado.web.RequestHandler):
    """Says what is refused and why. It needs no file of the server: the page may have come under a wrong name."""

    def initialize(self, refused: tuple[int, str, str]) -> None:
        """Take status, title and text."""
        self._refused = refused

    def prepare(self) -> None:
        """Answer whatever the method is."""
        status, title, text = self._refused
        self.set_status(status)
        if status == 503:
            self.set_header("Retry-After", "20")
        again = '<meta http-equiv="refresh" content="20">' if status == 503 else ""
        parts = {"{again}": again, "{title}": xhtml_escape(title), "{text}": xhtml_escape(text)}
        made = re.sub(r"\{(again|title|text)\}", lambda found: parts[found.group()], _HTML.read_text("utf-8"))
        self.set_header("Cache-Control", "no-store")
        self.finish(made)

    def log_exception(self, *_: Any) -> None:
        """A refusal is no error of the server."""


class BoundedWebSocket(WSHandler):
    """Bokeh's connection, with bounds: sessions, bytes of a message, and nothing that a browser never sends."""

    gate: Gate
    receiver: Receiver | None
    _assembled = 0

    def check_origin(self, origin: str) -> bool:
        """Only pages of this server connect."""
        return self.gate.is_own(origin, self.request.host)

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Begin; a token that is not this server's ends it, with one line in the log."""
        try:
            super().open(*args, **kwargs)
        except Exception as error:
            log.warning("a connection from %s was refused: %s", self.request.remote_ip, str(error)[:200])
            self.close(1008, "refused")

    async def _async_open(self, token: str) -> None:
        known = self.application_context._sessions.get(get_session_id(token))  # its signature was checked
        if known is None and open_sessions(self.application) >= self.gate.max_sessions:
            self.close(1013, "the workbench is full")
            return
        if known is not None and not self._is_of_this_visitor(known):
            self.close(1008, "this page was opened by somebody else")
            return
        try:
            await super()._async_open(token)
        except Exception as error:
            log.warning("a connection from %s was refused: %s", self.request.remote_ip, str(error)[:200])
            self.close(1008, "refused")
            return
        if self.handler is not None:
            self.handler._handlers.pop("PUSH-DOC", None)  # replaces the whole document: no browser sends it

    def _is_of_this_visitor(self, session: ServerSession) -> bool:
        """Whoever holds the page of another visitor still needs that visitor's cookie."""
        context = session.document.session_context
        opened = getattr(context.request, "lab_user", None) if context is not None else None
        return opened == getattr(self.request, "lab_user", None)

    async def on_message(self, fragment: str | bytes) -> None:
        """Take one frame; a message that grows beyond the bound ends the connection."""
        if self.receiver is None or self.connection is None:  # nothing is expected before the session is open
            self.close(1008, "not open yet")
            return
        self._assembled += len(fragment)
        if self._assembled > _MAX_ASSEMBLED_BYTES:
            self.receiver = None
            self.close(1009, "message too large")
            return
        await super().on_message(fragment)
        if self.receiver is not None and self.receiver._current_consumer == self.receiver._HEADER:
            self._assembled = 0  # the message is complete


class KnownComponents(ComponentResourceHandler):
    """Files of components whose modules are in use. Panel imports whatever module a request names."""

    def parse_url_path(self, path: str) -> str:
        """Refuse other modules."""
        if path.partition("/")[0] not in sys.modules:
            raise tornado.web.HTTPError(404)
        return super().parse_url_path(path)


def guard(application: BokehTornado, gate: Gate) -> None:
    """Put the gate before everything that a server answers, and bounds on its connections.

    Parameters
    ----------
    application : BokehTornado
        A server's, before it is started.
    gate : Gate
    """
    handler = type("GatedWebSocket", (BoundedWebSocket,), {"gate": gate})
    kept = []
    for rule in _rules(application.wildcard_router.rules):
        if rule.target is AutoloadJsHandler:  # for pages of other sites; nobody here needs it
            continue
        rule.target = {WSHandler: handler, ComponentResourceHandler: KnownComponents}.get(rule.target, rule.target)
        kept.append(rule)
    application.wildcard_router.rules = [Rule(_Closed(gate, application), Refused), *kept]


def _rules(rules: Iterable[Rule]) -> list[Rule]:
    found = list(rules)
    if WSHandler not in [r.target for r in found]:
        raise RuntimeError("this version of Panel serves its websocket in another way; the gate would not hold")
    return found
