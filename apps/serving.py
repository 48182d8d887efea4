"""Serve the workbench on this machine."""

from __future__ import annotations

import importlib
import ipaddress
import logging
import os
import warnings
from pathlib import Path

from commcanary_lab.errors import UsageError

__all__ = ["serve"]


def serve(workspace: Path, port: int = 5006, show: bool = False, address: str = "127.0.0.1") -> None:
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
        A loopback address: there is no login, so nothing else is served.

    Raises
    ------
    UsageError
        If the address is not loopback, or the port is taken.
    """
    _check_loopback(address)
    os.environ["COMMCANARY_LAB_WORKSPACE"] = str(Path(workspace).resolve())
    from commcanary_lab.views.extra import panel

    pn = panel()
    from tornado.ioloop import IOLoop

    from .shell import create, shared_workspace

    folder = shared_workspace()
    logging.getLogger("asyncio").addFilter(_left)
    logging.getLogger("bokeh.server.views.ws").addFilter(lambda r: "connection was closed" not in r.getMessage())
    for name in ("bokeh.server.protocol_handler", "tornado.application"):
        logging.getLogger(name).addFilter(_late)
    warnings.filterwarnings("ignore", message="reference already known")  # the range that two charts share is sent twice
    _warm()
    sockets, port = _bind(address, port)
    for s in sockets:
        s.close()
    hosts = [f"{h}:{port}" for h in dict.fromkeys([address, "127.0.0.1", "localhost"])]
    server = pn.serve(
        {"workbench": create},
        address=address,
        port=port,
        websocket_origin=hosts,
        show=show,
        start=False,
        title="CommCanary Lab",
        redirect_root=True,
        verbose=False,
        index=None,
        websocket_max_message_size=1 << 30,
    )
    server.start()
    print(f"Workbench of {folder.path}: http://{address}:{port}/workbench (Ctrl-C stops it)", flush=True)
    try:
        IOLoop.current().start()
    except KeyboardInterrupt:
        print(flush=True)
    finally:
        server.stop()


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


def _check_loopback(address: str) -> None:
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loopback = address == "localhost"
    if not loopback:
        raise UsageError(f"{address!r} is not a loopback address", remedy="use 127.0.0.1 and an SSH tunnel: the workbench has no login")


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
