"""Lab fabrics: ranks of one Linux host in network namespaces, joined by links whose rate `tc tbf` shapes."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from threading import Event
from types import TracebackType

from commcanary_lab.capture.processes import terminable
from commcanary_lab.errors import InputError, LaunchError, RefusedError
from commcanary_lab.replay.fabric_spec import FABRIC_FILE, FabricSpec, fabric_from, read_fabric
from commcanary_lab.replay.launch import run_ranks, worker_command
from commcanary_lab.replay.spec import ReplaySpec, RunState, write_document

__all__ = ["LabFabric", "available", "clean_stale", "fabric_start"]

#: Namespaces are called like this, then the process that made them and when it started, a random part, and the rank or ``hub``.
_PREFIX = "cclab"
_NAME = re.compile(rf"{_PREFIX}-(\d+)-([0-9a-f]+)-[0-9a-f]+-(?:r\d+|hub)")

#: Inside each namespace; they are new, so nothing else has this network or this port.
_DEVICE, _NETWORK, _PORT = "eth0", "10.77", 29_500

#: The bucket lets this much through at once. It must be small against a message, and hold at least one packet.
_BURST_BYTES = 16 * 1024
#: What may wait at a link: more than TCP keeps in flight, so that nothing is dropped and no time-out is waited for.
_QUEUE_BYTES = 64 * 1024 * 1024
#: Fewer ranks have addresses than this.
_MAX_RANKS = 250
_COMMAND_S = 30.0


def _run(*command: str) -> str:
    """Run a command of iproute2 and return its output."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{' '.join(command)}: {error}", remedy="the fabric was not set up") from None
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise LaunchError(f"{' '.join(command)}: {why[0]}", remedy="the kernel or its permissions do not allow this fabric")
    return done.stdout


def _ip(namespace: str, *words: str) -> str:
    return _run("ip", "-n", namespace, *words)


@cache
def available() -> str | None:
    """Return why there can be no lab fabric here; None where there can. A namespace with a shaped link is made and removed to find out.

    Examples
    --------
    >>> reason = available()
    >>> reason is None or len(reason) > 10
    True
    """
    if not sys.platform.startswith("linux"):
        return f"network namespaces are of Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no {tool!r} command: install iproute2"
    clean_stale()
    try:
        with LabFabric(FabricSpec("trial", 100, ranks_per_node=1, across_mbit=50), 2):
            return None
    except LaunchError as error:
        return f"the kernel refuses: {error.problems[0].what}"


def _started_at(pid: int) -> str | None:
    """Tick at which a process started, in hexadecimal; None where there is none. Numbers of processes come again, this does not."""
    try:
        return f"{int(Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]):x}"
    except (OSError, ValueError, IndexError):
        return None


def clean_stale() -> tuple[str, ...]:
    """Remove what processes left that were killed before they could; return the namespaces. Those of living processes stay."""
    found = []
    if shutil.which("ip") is not None and os.geteuid() == 0:
        for name in _namespaces():
            of = _NAME.fullmatch(name)
            if of is not None and _started_at(int(of[1])) != of[2]:
                _remove(name)
                found.append(name)
    return tuple(found)


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip()]


def _remove(namespace: str) -> None:
    """End what runs in a namespace and remove it with its devices; nothing where it is gone."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            inside = [int(p) for p in _run("ip", "netns", "pids", namespace).split()]
        except LaunchError:
            return
        if not inside:
            break
        for pid in inside:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    with contextlib.suppress(LaunchError):
        _run("ip", "netns", "delete", namespace)


class LabFabric:
    """A fabric that exists while the context is open, and is removed whatever happens in it.

    Every rank has a namespace of its own. The switches are bridges in one more namespace, so nothing appears in the host's own network.

    Parameters
    ----------
    spec : FabricSpec
        The links.
    ranks : int
        How many ranks it has.

    Raises
    ------
    RefusedError
        On entry, where there can be none; see `available`.
    LaunchError
        On entry, where the kernel refuses a part; what was made by then is removed.
    """

    def __init__(self, spec: FabricSpec, ranks: int) -> None:
        if not 1 <= ranks <= _MAX_RANKS:
            raise InputError(f"{ranks} ranks", remedy=f"a lab fabric has 1 to {_MAX_RANKS}")
        self.spec, self.ranks = spec, ranks
        self._made: list[str] = []
        self._stack = ExitStack()
        self._name = f"{_PREFIX}-{os.getpid()}-{_started_at(os.getpid())}-{secrets.token_hex(3)}"

    def namespace(self, rank: int) -> str:
        """Return the namespace of a rank."""
        return f"{self._name}-r{rank}"

    @staticmethod
    def address(rank: int) -> str:
        """Return the address of a rank.

        Examples
        --------
        >>> LabFabric.address(0)
        '10.77.0.1'
        """
        return f"{_NETWORK}.0.{rank + 1}"

    @property
    def hub(self) -> str:
        """The namespace of the switches."""
        return f"{self._name}-hub"

    def __enter__(self) -> LabFabric:
        self._stack.enter_context(terminable())
        self._stack.callback(self.close)
        atexit.register(self.close)
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def close(self) -> None:
        """Remove everything; may be called again."""
        atexit.unregister(self.close)
        while self._made:
            _remove(self._made[-1])
            self._made.pop()

    def command(self, rank: int, command: Sequence[str]) -> list[str]:
        """Return a command line that runs a command in the namespace of a rank."""
        return ["ip", "netns", "exec", self.namespace(rank), *command]

    def environment(self, rank: int) -> dict[str, str]:
        """Return what a rank needs to know to join the others."""
        return {
            "RANK": str(rank), "WORLD_SIZE": str(self.ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(self.ranks),
            "MASTER_ADDR": self.address(0), "MASTER_PORT": str(_PORT), "GLOO_SOCKET_IFNAME": _DEVICE,
        }  # fmt: skip

    def start(self, directory: Path, spec: ReplaySpec, cancelled: Event | None = None) -> RunState:
        """Start the ranks of a prepared replay, each in its namespace, and return how they ended.

        Raises
        ------
        RefusedError
            If the replay has other ranks, or does not run on sockets.
        """
        if spec.ranks != self.ranks:
            raise RefusedError(f"the fabric has {self.ranks} ranks, the replay {spec.ranks}", remedy="make a fabric for these ranks")
        _needs_gloo(spec)
        # The ranks find each other by RANK and MASTER_ADDR. torchrun in each namespace would be twice as many processes, and its
        # agents would talk over the shaped links while the ranks are measured.
        worker = [sys.executable, *worker_command(directory)]
        commands = [self.command(r, worker) for r in range(self.ranks)]
        environments = [self.environment(r) for r in range(self.ranks)]
        return run_ranks(commands, directory, self.ranks, timeout_s=spec.timeout_s, cancelled=cancelled, environments=environments)

    # -- building -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        nodes = self.spec.nodes(self.ranks)
        self._namespace(self.hub)
        for node, members in enumerate(nodes):
            self._switch(f"node{node}")
            for rank in members:
                self._rank(rank, f"node{node}")
        if len(nodes) > 1:
            assert self.spec.across_mbit is not None
            self._switch("core")
            for node in range(len(nodes)):
                self._link(f"up{node}", f"down{node}", f"node{node}", "core", self.spec.across_mbit)

    def _namespace(self, name: str) -> None:
        self._made.append(name)  # before it exists: an interrupt in between must not lose it
        _run("ip", "netns", "add", name)
        _ip(name, "link", "set", "lo", "up")

    def _switch(self, name: str) -> None:
        _ip(self.hub, "link", "add", name, "mtu", str(self.spec.mtu), "type", "bridge", "stp_state", "0", "forward_delay", "0")
        _ip(self.hub, "link", "set", name, "up")

    def _rank(self, rank: int, switch: str) -> None:
        own, port, mtu = self.namespace(rank), f"port{rank}", str(self.spec.mtu)
        self._namespace(own)
        # BBR, where it is the host's default, drains its window every ten seconds on purpose; that is no property of the link.
        _run("ip", "netns", "exec", own, sys.executable, "-c", _TUNE)
        _ip(self.hub, "link", "add", port, "mtu", mtu, "type", "veth", "peer", "name", _DEVICE, "mtu", mtu, "netns", own)
        _ip(own, "address", "add", f"{self.address(rank)}/24", "dev", _DEVICE)
        _ip(self.hub, "link", "set", port, "master", switch)
        for namespace, device in ((own, _DEVICE), (self.hub, port)):
            self._shape(namespace, device, self.spec.rate_mbit)

    def _link(self, one: str, other: str, here: str, there: str, rate_mbit: float) -> None:
        """Join two switches."""
        mtu = str(self.spec.mtu)
        _ip(self.hub, "link", "add", one, "mtu", mtu, "type", "veth", "peer", "name", other, "mtu", mtu)
        for device, switch in ((one, here), (other, there)):
            _ip(self.hub, "link", "set", device, "master", switch)
            self._shape(self.hub, device, rate_mbit)

    def _shape(self, namespace: str, device: str, rate_mbit: float) -> None:
        """Limit what leaves through a device, and switch it on."""
        bucket = ["rate", f"{round(rate_mbit * 1e6)}bit", "burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES)]
        _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *bucket)
        _ip(namespace, "link", "set", device, "up")


#: Run inside a namespace; these are settings of the namespace, not of the host.
_TUNE = """
for name, value in (("congestion_control", "reno"), ("slow_start_after_idle", "0")):
    try:
        with open(f"/proc/sys/net/ipv4/tcp_{name}", "w") as file:
            file.write(value)
    except OSError:
        pass
"""


def _needs_gloo(spec: ReplaySpec) -> None:
    if spec.backend != "gloo":
        raise RefusedError(f"{spec.backend} does not run over the sockets of a lab fabric", remedy="choose the backend gloo")


def fabric_start(
    fabric: FabricSpec | Mapping[str, object] | str | os.PathLike[str], *, cancelled: Event | None = None
) -> Callable[[Path, ReplaySpec], RunState]:
    """Return what starts the ranks of a replay on a fabric, for `run.execute(..., start=)`.

    The fabric is made for the run and removed after it; what it was stays in the run's directory.

    Parameters
    ----------
    fabric : FabricSpec, mapping or path-like
        The links, a table that says them, or a TOML file that does.
    cancelled : threading.Event, optional
        Ends the run when it is set.

    Raises
    ------
    InputError
        If the table or file is wrong.
    RefusedError
        If there can be no fabric here.
    """
    if isinstance(fabric, FabricSpec):
        spec = fabric
    else:
        spec = fabric_from(fabric) if isinstance(fabric, Mapping) else read_fabric(fabric)
    if (reason := available()) is not None:
        raise RefusedError(f"no lab fabric here: {reason}", remedy="run as root on Linux with iproute2")

    def start(directory: Path, replay: ReplaySpec) -> RunState:
        _needs_gloo(replay)
        clean_stale()
        write_document(directory / FABRIC_FILE, spec)
        with LabFabric(spec, replay.ranks) as made:
            return made.start(directory, replay, cancelled)

    return start
