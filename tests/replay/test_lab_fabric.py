"""Lab fabrics: rates hold, asymmetry holds, and nothing is left behind, however a run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from commcanary_lab.errors import InputError, LaunchError, RefusedError
from commcanary_lab.replay import lab_fabric
from commcanary_lab.replay.fabric_spec import FabricSpec, fabric_from, read_fabric
from commcanary_lab.replay.lab_fabric import LabFabric, available, clean_stale, fabric_start
from commcanary_lab.replay.result import Replay, read_replay
from commcanary_lab.replay.run import execute, prepare
from commcanary_lab.trace.model import Trace
from tests.replay.programs import event, make_trace

REASON = available()
needs_fabric = pytest.mark.skipif(REASON is not None, reason=f"no lab fabric here: {REASON}")
MIB = 1 << 20


def namespaces() -> set[str]:
    """Namespaces of fabrics of this process and of its children."""
    found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    return {name for name in found if name.startswith("cclab-")}


@pytest.fixture
def clean() -> Iterator[None]:
    """Whatever the test does, no namespace is left; fabrics of other processes on this machine do not count."""
    before = namespaces()
    yield
    deadline = time.monotonic() + 5
    while (left := {n for n in namespaces() - before if ours(n)}) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == set()


_CHILDREN: set[int] = {os.getpid()}


def ours(name: str) -> bool:
    return int(name.split("-")[1]) in _CHILDREN


def all_reduces(size: int, count: int, ranks: tuple[int, ...] = (0, 1)) -> Trace:
    return make_trace([event("all_reduce", ranks, size)] * count)


def run(place: Path, source: Trace, fabric: FabricSpec, **options: object) -> Replay:
    spec = prepare(source, place, backend="gloo", **options)
    execute(place, spec, start=fabric_start(fabric))
    return read_replay(place)


# -- what a fabric is -------------------------------------------------------------------------------------------------


def test_a_file_says_what_a_fabric_is(tmp_path: Path) -> None:
    path = tmp_path / "pairs.toml"
    path.write_text("rate_mbit = 400\nranks_per_node = 2\nacross_mbit = 12.5\nmtu = 9000\n")
    assert read_fabric(path) == FabricSpec("pairs", 400, ranks_per_node=2, across_mbit=12.5, mtu=9000)
    path.write_text('format = "commcanary.fabric.v1"\nname = "flat"\nrate_mbit = 100\n')
    assert read_fabric(path) == FabricSpec("flat", 100)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rate_mbit = 0", "rate_mbit is 0"),
        ("rate_mbit = -3.5", "rate_mbit is -3.5"),
        ("rate_mbit = nan", "rate_mbit is nan"),
        ('rate_mbit = "fast"', "Expected `float`"),
        ("", "missing required field `rate_mbit`"),
        ("rate_mbit = 100\nranks_per_node = 2", "belong together"),
        ("rate_mbit = 100\nacross_mbit = 10", "belong together"),
        ("rate_mbit = 100\nranks_per_node = 0\nacross_mbit = 10", "ranks_per_node is 0"),
        ("rate_mbit = 100\nmtu = 60", "mtu is 60"),
        ("rate_mbit = 100\nrate = 3", "unknown field `rate`"),
        ("rate_mbit = 100\nlatency_us = 3", "latency cannot be set"),
        ("rate_mbit = ", "not TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "f.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_fabric(path)
    assert told in str(caught.value) and str(path) in str(caught.value)
    assert all(p.remedy for p in caught.value.problems)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_fabric(tmp_path / "nothing.toml")


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(InputError) as caught:
        fabric_from({"rate_mbit": 0, "mtu": 1, "across_mbit": 5})
    assert [p.field for p in caught.value.problems] == ["rate_mbit", "mtu", "across_mbit"]


def test_nodes_of_unequal_size() -> None:
    assert FabricSpec("f", 10, ranks_per_node=2, across_mbit=5).nodes(5) == ((0, 1), (2, 3), (4,))


# -- where there is none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["ip", "tc"])
def test_without_the_tools_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(lab_fabric.os, "geteuid", lambda: 0)
    monkeypatch.setattr(lab_fabric.shutil, "which", lambda tool: None if tool == missing else f"/sbin/{tool}")
    assert available.__wrapped__() == f"there is no {missing!r} command: install iproute2"


def test_without_root_there_is_a_reason_and_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_fabric.os, "geteuid", lambda: 1000)
    assert available.__wrapped__() == "network namespaces need root"
    monkeypatch.setattr(lab_fabric, "available", available.__wrapped__)
    with pytest.raises(RefusedError, match="need root"):
        fabric_start(FabricSpec("f", 100))


SERVER = """
import socket
server = socket.create_server(("", 7))
server.settimeout(9)
connection, address = server.accept()
print(address[0], connection.recv(2))
"""
CLIENT = """
import socket, sys, time
for _ in range(90):
    try:
        socket.create_connection((sys.argv[1], 7), 1).send(b"hi")
        break
    except OSError:
        time.sleep(0.1)
"""


# -- building and removing --------------------------------------------------------------------------------------------


@needs_fabric
@pytest.mark.parametrize("spec", [FabricSpec("flat", 50, mtu=9000), FabricSpec("pairs", 400, ranks_per_node=2, across_mbit=25)])
def test_it_is_built_as_it_says_and_removed(clean: None, spec: FabricSpec) -> None:
    def tc(name: str) -> str:
        return subprocess.run(["tc", "-n", name, "qdisc", "show"], capture_output=True, text=True, check=True).stdout

    with LabFabric(spec, 4) as fabric:
        names = {fabric.hub, *(fabric.namespace(r) for r in range(4))}
        assert names <= namespaces()
        across = 4 if spec.ranks_per_node else 0
        assert tc(fabric.hub).count(f"rate {spec.rate_mbit:g}Mbit") == 4
        assert tc(fabric.namespace(3)).count(f"rate {spec.rate_mbit:g}Mbit") == 1
        if across:
            assert tc(fabric.hub).count(f"rate {spec.across_mbit:g}Mbit") == across
        server = subprocess.Popen(fabric.command(3, [sys.executable, "-c", SERVER]), stdout=subprocess.PIPE, text=True)
        subprocess.run(fabric.command(0, [sys.executable, "-c", CLIENT, fabric.address(3)]), check=True, timeout=20)
        assert server.communicate(timeout=10)[0] == f"{fabric.address(0)} b'hi'\n"
    assert not names & namespaces()


@needs_fabric
def test_an_exception_and_a_part_that_the_kernel_refuses_leave_nothing(clean: None) -> None:
    with pytest.raises(ZeroDivisionError), LabFabric(FabricSpec("f", 50), 2):
        1 / 0  # noqa: B018

    class Broken(LabFabric):
        def _shape(self, namespace: str, device: str, rate_mbit: float) -> None:
            lab_fabric._run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "no-such-discipline")

    fabric = Broken(FabricSpec("f", 50), 2)
    with pytest.raises(LaunchError, match="no-such-discipline"), fabric:
        raise AssertionError("it was built")
    assert not any(n.startswith(fabric._name) for n in namespaces())


def child(code: str) -> subprocess.Popen[str]:
    """A process that builds a fabric, says so and sleeps in it."""
    text = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # what is started in the background ignores it
from commcanary_lab.replay.fabric_spec import FabricSpec
from commcanary_lab.replay.lab_fabric import LabFabric
fabric = LabFabric(FabricSpec("f", 50), 2)
{code}
"""
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    _CHILDREN.add(process.pid)
    return process


INSIDE = """
with fabric:
    inside = subprocess.Popen(fabric.command(1, ["sleep", "300"]), start_new_session=True)
    print(fabric.hub, inside.pid, flush=True)
    time.sleep(300)
"""


@needs_fabric
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_asked_to_end_removes_its_fabric(clean: None, sign: signal.Signals) -> None:
    with child(INSIDE) as process:
        assert process.stdout is not None
        hub = process.stdout.readline().split()[0]
        assert hub in namespaces()
        process.send_signal(sign)
        assert process.wait(20) != 0
    assert hub not in namespaces()


@needs_fabric
def test_a_fabric_that_is_entered_and_never_left_goes_with_its_process(clean: None) -> None:
    process = child("fabric.__enter__(); print(fabric.hub, flush=True)")
    out, _ = process.communicate(timeout=30)
    assert out.strip() and out.strip() not in namespaces() and process.returncode == 0


@needs_fabric
def test_what_a_killed_process_left_is_removed_and_nothing_else(clean: None) -> None:
    with child(INSIDE) as process, LabFabric(FabricSpec("mine", 50), 2) as mine:
        assert process.stdout is not None
        hub, inside = process.stdout.readline().split()
        assert hub not in clean_stale()  # its process lives
        process.kill()
        process.wait()
        assert hub in namespaces() and Path(f"/proc/{inside}").exists()
        removed = clean_stale()
        assert hub in removed and mine.hub not in removed
        assert {mine.hub, mine.namespace(0)} <= namespaces()
        assert hub not in namespaces()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{inside}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{inside}").exists()


# -- replays on it ----------------------------------------------------------------------------------------------------


@needs_fabric
@pytest.mark.gloo
@pytest.mark.slow
def test_times_follow_rates(clean: None, tmp_path: Path) -> None:
    """Measured on an idle machine: 8.6 ms for 1 MiB at 1 Gbit/s, 43 ms at 200 Mbit/s. Other work on it only adds time."""
    fastest = {}
    for rate in (1000, 200, 50):
        replay = run(tmp_path / str(rate), all_reduces(MIB, 6), FabricSpec(f"{rate}", rate), warmup=1, iterations=4)
        replay.raise_if_failed()
        fastest[rate] = float(replay.latency_ns.min() / 1e6)
        assert fastest[rate] > 8 * MIB / rate / 1e3 * 0.97  # no faster than the link
    assert 2.0 < fastest[200] / fastest[1000] < 6.0
    assert 2.5 < fastest[50] / fastest[200] < 4.6
    assert fastest[50] < 1.6 * 8 * MIB / 50 / 1e3


@needs_fabric
@pytest.mark.gloo
@pytest.mark.slow
def test_it_is_fast_inside_a_node_and_slow_across(clean: None, tmp_path: Path) -> None:
    size = MIB // 4
    pairs = [(0, 1), (2, 3), (0, 2)]
    events = [event("all_reduce", p, size) for p in pairs] * 3
    fabric = FabricSpec("pairs", 400, ranks_per_node=2, across_mbit=25)
    replay = run(tmp_path / "replay", make_trace(events), fabric, warmup=1, iterations=3)
    replay.raise_if_failed()
    fastest = replay.latency_ns.reshape(-1, 3).min(axis=0) / 1e6
    ideal = 8 * size / 25 / 1e3
    assert 0.9 * ideal < fastest[2] < 1.6 * ideal
    assert (fastest[:2] < fastest[2] / 3).all()


@needs_fabric
@pytest.mark.gloo
def test_a_killed_rank_ends_the_run_with_its_number(clean: None, place: Path) -> None:
    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            started = place / "rank-00001.started"
            if started.exists() and (place / "rank-00000.arrows").exists() and (pid := started.read_text().strip()):
                os.kill(int(pid), signal.SIGKILL)
                return
            time.sleep(0.05)

    killer = Thread(target=kill)
    killer.start()
    replay = run(place, all_reduces(MIB, 200), FabricSpec("slow", 20), timeout_s=90)
    killer.join()
    assert replay.status == "failed" and replay.state.failed_rank == 1
    assert "killed" in replay.state.reason
    assert replay.verify() == []


@needs_fabric
@pytest.mark.gloo
def test_a_run_out_of_time_leaves_its_evidence_and_nothing_else(clean: None, place: Path) -> None:
    replay = run(place, all_reduces(MIB, 500), FabricSpec("slow", 5), timeout_s=12)
    assert replay.status == "timeout"
    assert replay.verify() == []


@needs_fabric
def test_a_fabric_is_for_gloo_and_for_its_ranks(place: Path) -> None:
    from msgspec.structs import replace

    spec = prepare(all_reduces(1024, 1), place, backend="gloo")
    with pytest.raises(RefusedError, match="sockets"):
        fabric_start(FabricSpec("f", 50))(place, replace(spec, backend="nccl"))
    with pytest.raises(RefusedError, match="the fabric has 3 ranks"):
        LabFabric(FabricSpec("f", 50), 3).start(place, spec)
