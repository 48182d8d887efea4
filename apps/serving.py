"""Serve the workbench: on this machine, or to others who log in."""

from __future__ import annotations

import importlib
import logging
import os
import secrets
import sys
import warnings
from pathlib import Path
from typing import Any

from commcanary_lab.errors import InputError, UsageError

from .serve_options import OAuth, ServeOptions, read_secret

__all__ = ["serve"]

#: Of answers and requests that are no websocket: a request is a few headers, or a login.
_MAX_BODY_BYTES = 64 << 10
_MAX_LOGGED = 2000


def serve(workspace: Path, port: int = 5006, show: bool = False, address: str = "127.0.0.1", **more: Any) -> None:
    """Serve the workbench until Ctrl-C.

    Parameters
    ----------
    workspace : Path
        The folder with traces and canaries; made if it does not exist.
    port : int
        TCP port; 0 picks a free one.
    show : bool
        Open a browser window.
    address : str
        Where it listens; others than loopback addresses need a login.
    **more
        The rest of `ServeOptions`.

    Raises
    ------
    LabError
        If the options are unsafe together, a file that they name is unusable, or the port is taken.
    """
    options = ServeOptions(workspace=Path(workspace), port=port, show=show, address=address, **more)
    options.check()
    os.environ["COMMCANARY_LAB_WORKSPACE"] = str(options.workspace.resolve())
    from commcanary_lab.views.extra import panel

    panel()
    from tornado.ioloop import IOLoop

    from .access import Rules, operate_with
    from .shell import create, shared_workspace
    from .users import Users

    users = Users(options.users) if options.users is not None else None
    operate_with(Rules(users, options.read_only, options.unsafe_no_login))
    folder = shared_workspace()
    _quiet()
    _warm()
    server, port = _make(options, users, create)
    server.start()
    for line in _warnings(options, users):
        print(f"WARNING: {line}", file=sys.stderr, flush=True)
    scheme = "https" if options.ssl_certfile is not None else "http"
    print(f"Workbench of {folder.path}: {scheme}://{options.address}:{port}/workbench (Ctrl-C stops it)", flush=True)
    try:
        IOLoop.current().start()
    except KeyboardInterrupt:
        print(flush=True)
    finally:
        server.stop()


def _make(options: ServeOptions, users: Any, create: Any) -> tuple[Any, int]:
    """Make the server, with the gate before it."""
    import panel as pn

    from .gate import MAX_MESSAGE_BYTES, Gate, guard
    from .headers import SecurityHeaders
    from .replay_jobs import bound_ranks

    bound_ranks(options.max_ranks)
    sockets, port = _bind(options.address, options.port)
    for s in sockets:
        s.close()
    hosts = [f"{_literal(h)}:{port}" for h in sorted({options.address, "127.0.0.1", *options.names})]
    try:
        server = pn.serve(
            {"workbench": create},
            address=options.address,
            port=port,
            websocket_origin=[*(h for h in hosts if "[" not in h), *options.public],
            show=options.show,
            start=False,
            title="CommCanary Lab",
            redirect_root=True,
            verbose=False,
            index=None,
            websocket_max_message_size=MAX_MESSAGE_BYTES,
            transforms=[SecurityHeaders],
            sign_sessions=True,
            secret_key=secrets.token_bytes(32),
            exclude_cookies=["user", "id_token", "access_token", "refresh_token", "oauth_expiry", "_xsrf"],
            exclude_headers=["Cookie", "Authorization"],
            http_server_kwargs={"max_body_size": _MAX_BODY_BYTES, "max_header_size": _MAX_BODY_BYTES, "idle_connection_timeout": 75,
                                "body_timeout": 30},
            cookie_secret=options.cookie_secret(),
            **_login(options, users),
        )  # fmt: skip
    except OSError as e:  # what is wrong with a certificate
        where = str(options.ssl_certfile) if options.ssl_certfile is not None else None
        raise InputError(f"the server cannot start: {e}", file=where, remedy="check certificate, key and port") from None
    public = frozenset(n.lower() for n in options.public)
    guard(server._tornado, Gate(options.names, public, options.max_sessions))
    return server, port


def _login(options: ServeOptions, users: Any) -> dict[str, Any]:
    """Return what the server needs for a login."""
    made: dict[str, Any] = {}
    if options.ssl_certfile is not None:
        made |= {"ssl_certfile": str(options.ssl_certfile), "ssl_keyfile": str(options.ssl_keyfile) if options.ssl_keyfile else None}
    made |= {"use_xheaders": True} if options.behind_tls_proxy else {}
    if users is None:
        return made
    from .login import ListedOAuth, PasswordLogin

    if options.oauth is None:
        return {**made, "auth_provider": PasswordLogin(users, secure=options.is_encrypted)}
    asked = options.oauth
    _set_up(asked)
    return {**made, "auth_provider": ListedOAuth(users)}


def _set_up(asked: OAuth) -> None:
    """Tell Panel about the provider; what is not given here it reads from its environment variables."""
    from panel.auth import AUTH_PROVIDERS
    from panel.config import config

    if asked.provider not in AUTH_PROVIDERS or asked.provider == "basic":
        known = ", ".join(sorted(p for p in AUTH_PROVIDERS if p not in ("basic", "pam")))
        raise UsageError(f"unknown OAuth provider {asked.provider!r}", remedy=f"known: {known}")
    config.oauth_provider = asked.provider
    secret = read_secret(asked.secret_file) if asked.secret_file is not None else ""
    given = {"oauth_key": asked.key, "oauth_secret": secret, "oauth_redirect_uri": asked.redirect_uri, "oauth_jwt_user": asked.user_field}
    for name, value in given.items():
        if value:
            setattr(config, name, value)
    for name, variable in (("oauth_key", "PANEL_OAUTH_KEY"), ("oauth_secret", "PANEL_OAUTH_SECRET")):
        if not getattr(config, name):
            raise UsageError(f"OAuth needs {variable}", remedy=f"set {variable}, or give the option of that name")


def _warnings(options: ServeOptions, users: Any) -> list[str]:
    """What whoever serves it should know."""
    found = []
    if options.exposed and options.unsafe_no_login:
        does = "look at everything" if options.read_only else "look at, upload, delete and run everything"
        found.append(f"--unsafe-no-login: EVERYBODY who reaches {options.address} can {does}, without a login.")
    if users is not None and options.oauth is None and not users.have_passwords:
        found.append("nobody in the file of users has a password: nobody can log in.")
    return found


def _literal(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _quiet() -> None:
    """What a visitor can cause at will is not an event of the log, and what is logged has a length."""
    logging.getLogger("asyncio").addFilter(_left)
    logging.getLogger("bokeh.server.views.ws").addFilter(lambda r: "connection was closed" not in r.getMessage())
    for name in ("bokeh.server.protocol_handler", "tornado.application"):
        logging.getLogger(name).addFilter(_late)
    for name in ("bokeh.server.protocol_handler", "bokeh.server.views.ws", "tornado.application", "tornado.general", "tornado.access"):
        logging.getLogger(name).addFilter(_short)
    warnings.filterwarnings("ignore", message="reference already known")  # the range that two charts share is sent twice


def _short(record: logging.LogRecord) -> bool:
    """Bokeh logs whole messages of a browser that it does not understand."""
    text = record.getMessage()
    if len(text) > _MAX_LOGGED:
        record.msg, record.args = f"{text[:_MAX_LOGGED]} ... ({len(text):,} characters)", ()
    return True


def _left(record: logging.LogRecord) -> bool:
    """A browser that closes while something is sent to it is nothing to report."""
    from tornado.websocket import WebSocketClosedError

    return not (record.exc_info and isinstance(record.exc_info[1], WebSocketClosedError))


def _late(record: logging.LogRecord) -> bool:
    """Neither is what a browser still sent, or that it closed twice: Bokeh has no session for it any more, and asserts that it has."""
    error = record.exc_info[1] if record.exc_info else None
    frame = error.__traceback__ if error is not None else None
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return not (isinstance(error, AssertionError) and frame is not None and frame.tb_frame.f_code.co_qualname == "ServerConnection.session")


def _warm() -> None:
    """Import what the first page needs, so that the first visitor does not wait for it."""
    for name in ("pandas", "holoviews.plotting.bokeh", "datashader", "commcanary_lab.verify.run"):
        importlib.import_module(name)
    import datashader as ds
    import pandas as pd

    tiny = pd.DataFrame({"x": [0.0, 1.0], "y": [0, 0], "n": [1.0, 1.0], "op": pd.Categorical(["a", "b"])})
    for counted in (ds.by("op", ds.count()), ds.sum("n")):  # compiled at the first call
        ds.Canvas(plot_width=2, plot_height=1, x_range=(0, 1), y_range=(0, 1)).points(tiny, "x", "y", agg=counted)


def _bind(address: str, port: int) -> tuple[list[object], int]:
    from tornado.netutil import bind_sockets

    try:
        sockets = bind_sockets(port, address)
    except OSError as e:
        raise UsageError(f"port {port} of {address} cannot be used: {e.strerror}", remedy="choose another one with --port") from None
    return list(sockets), sockets[0].getsockname()[1]


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="Serve the workbench.")
    parser.add_argument("--workspace", type=Path, default=Path(os.environ.get("COMMCANARY_LAB_WORKSPACE") or "workspace"))
    parser.add_argument("--port", type=int, default=5006)
    parser.add_argument("--show", action="store_true")
    a = parser.parse_args()
    serve(a.workspace, a.port, a.show)
