"""A real sweep on Gloo: short, checked, raw readings kept, nothing left when it fails."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event, Timer

import numpy as np
import pytest

from commcanary_lab.errors import FormatError, LaunchError, UsageError
from commcanary_lab.replay.calibration import measure
from commcanary_lab.replay.calibration.measure import read_sweep, size_multiple
from commcanary_lab.replay.calibration.sweep_spec import SweepSpec, raw_path, read_raw, round_order, steps_of, write_raw
from commcanary_lab.replay.evidence import verify_seal
from tests.capture.test_launcher import processes_with

pytest.importorskip("torch")


def test_rounds_hold_every_size_once_in_changing_order() -> None:
    spec = SweepSpec("all_reduce", 4, "gloo", tuple(range(16, 160, 16)), 50)
    orders = [round_order(spec, n) for n in range(50)]
    assert all(sorted(o) == list(range(9)) for o in orders)
    assert len({tuple(o) for o in orders}) > 45
    first = np.bincount([o[0] for o in orders], minlength=9)
    assert first.max() < 20  # no size is always first


def test_steps_have_roots_and_peers_where_they_need_them() -> None:
    assert steps_of(SweepSpec("broadcast", 3, "gloo", (12,), 1))[0].root == 0
    message = steps_of(SweepSpec("point_to_point", 2, "gloo", (12,), 1))[0]
    assert (message.sender, message.receiver) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("barrier", 2, [64, 128]), "'barrier' cannot be swept"),
        (("all_to_all_v", 2, [64, 128]), "cannot be swept"),
        (("point_to_point", 4, [64, 128]), "measure messages on 2 ranks"),
        (("all_reduce", 2, [64, 130]), "give multiples of 8"),
        (("all_reduce", 2, []), "a size of nothing"),
    ],
)
def test_wrong_sweeps_start_nothing(arguments: tuple[str, int, list[int]], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        measure(*arguments)
    with pytest.raises(UsageError):
        measure("all_reduce", 2, [64], repeat=0)


def test_readings_come_back_or_are_refused(tmp_path: Path) -> None:
    spec = SweepSpec("all_reduce", 2, "gloo", (8, 16, 24), 2)
    arrival = np.arange(6).reshape(2, 3)
    write_raw(raw_path(tmp_path, 0), arrival, arrival + 5)
    found = read_raw(raw_path(tmp_path, 0), spec)
    assert (found[0] == arrival).all() and (found[1] == arrival + 5).all()
    with pytest.raises(FormatError, match="no readings"):
        read_raw(raw_path(tmp_path, 1), spec)
    with pytest.raises(FormatError, match="shape"):
        read_raw(raw_path(tmp_path, 0), SweepSpec("all_reduce", 2, "gloo", (8, 16), 2))
    raw_path(tmp_path, 1).write_bytes(b"PK\x03\x04nonsense")
    with pytest.raises(FormatError):
        read_raw(raw_path(tmp_path, 1), spec)


@pytest.mark.gloo
@pytest.mark.parametrize(
    "op",
    [
        "all_reduce",
        "point_to_point",
        *(pytest.param(op, marks=pytest.mark.slow) for op in ("all_gather", "all_to_all", "reduce_scatter", "broadcast", "reduce")),
    ],
)
def test_every_operation_is_measured_and_its_results_are_right(op: str, tmp_path: Path) -> None:
    sizes = [64, 4096, 65536]
    made = measure(op, 2, sizes, backend="gloo", repeat=4, timeout_s=60, keep=tmp_path / "raw")
    assert (made.op, made.ranks, made.size_bytes, made.repetitions, made.origin) == (op, 2, tuple(sizes), 4, "measured")
    assert made.ran_on.startswith("gloo on ")
    assert all(1 < v < 5e6 for column in made.latencies_us for v in column)
    assert verify_seal(tmp_path / "raw") == []
    again = read_sweep(tmp_path / "raw")
    assert all((a == b).all() for a, b in zip(made.latencies_us, again.latencies_us, strict=True))
    # the definition, from the raw readings of both ranks
    spec = SweepSpec(op, 2, "gloo", tuple(sizes), 4)
    raw = [read_raw(raw_path(tmp_path / "raw", r), spec) for r in (0, 1)]
    by_hand = max(raw[0][1][2, 1], raw[1][1][2, 1]) - max(raw[0][0][2, 1], raw[1][0][2, 1])
    assert made.rounds_us[2, 1] == pytest.approx(by_hand / 1e3)


@pytest.mark.gloo
def test_large_messages_take_longer() -> None:
    made = measure("all_reduce", 2, [1024, 65536, 8 << 20], backend="gloo", repeat=10, timeout_s=60)
    fastest = made.statistic("min")
    assert fastest[2] > 3 * fastest[0]


@pytest.mark.gloo
def test_a_sweep_that_is_cancelled_or_late_leaves_no_process(tmp_path: Path) -> None:
    stop = Event()
    Timer(3.0, stop.set).start()
    begin = time.monotonic()
    with pytest.raises(LaunchError, match="cancelled"):
        measure("all_reduce", 2, [64, 128, 1 << 24], backend="gloo", repeat=100_000, timeout_s=120, cancelled=stop, keep=tmp_path / "a")
    with pytest.raises(LaunchError, match="not done after 3 s"):
        measure("all_reduce", 2, [64, 128, 1 << 24], backend="gloo", repeat=100_000, timeout_s=3, keep=tmp_path / "b")
    assert time.monotonic() - begin < 40
    assert processes_with(str(tmp_path)) == []


def test_multiples() -> None:
    assert size_multiple(4) == 16 and size_multiple(3, "bfloat16") == 6
