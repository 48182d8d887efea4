"""Replays on GPUs: NCCL, and probes of captured execution. One rank per device; a single device makes groups of one rank."""

from __future__ import annotations

from pathlib import Path

import pytest

import commcanary_lab as lab
from commcanary_lab.errors import RefusedError
from commcanary_lab.replay.cuda_modes import IdentityGuard
from commcanary_lab.replay.spec import PROBE_MODES, Fault, ProbeAsked
from tests.replay.programs import everything, gathers

torch = pytest.importorskip("torch")
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
gpu = [pytest.mark.gpu, pytest.mark.skipif(not GPUS, reason="no CUDA device here")]


def on_gpus(function: object) -> object:
    for mark in gpu:
        function = mark(function)
    return function


@on_gpus
@pytest.mark.parametrize("mode", PROBE_MODES)
def test_every_byte_is_right_in_every_mode(place: Path, mode: str) -> None:
    asked = ProbeAsked(2, 4, mode)  # type: ignore[arg-type]
    result = lab.replay(gathers(GPUS, gathers=97), backend="nccl", out=place, iterations=3, probe=asked)
    assert result.probe.status == "pass", result.probe.text
    assert result.ran_on.startswith("nccl")
    assert result.count_differences == ()
    print(result.ran_on, mode, result.probe.text, result.metrics)


@on_gpus
@pytest.mark.parametrize("mode", PROBE_MODES)
def test_a_stale_buffer_is_found_in_every_mode(place: Path, mode: str) -> None:
    asked = ProbeAsked(1, 4, mode, Fault("stale", 5, 2))  # type: ignore[arg-type]
    result = lab.replay(gathers(GPUS, gathers=5, elements=64), backend="nccl", out=place, iterations=1, probe=asked)
    assert (result.probe.status, result.probe.boundary, result.probe.sample) == ("fail", "all_reduce #6", 2)
    assert result.probe.ranks == tuple(range(GPUS))


@on_gpus
@pytest.mark.skipif(GPUS < 2, reason="needs two CUDA devices")
def test_every_operation_and_type_on_nccl(place: Path) -> None:
    result = lab.replay(everything(GPUS), backend="nccl", out=place, iterations=1, probe=ProbeAsked(1, 2))
    assert result.probe.status == "pass", result.probe.text


def test_a_buffer_that_moved_is_refused() -> None:
    kept = [torch.zeros(4), torch.zeros(2, 2)]
    guard = IdentityGuard(kept)
    guard.check(kept)
    kept[0].add_(1)  # other values in the same place
    guard.check(kept)
    for changed in ([kept[0].clone(), kept[1]], [kept[0], kept[1].view(4)], [kept[0].view(torch.int32), kept[1]]):
        with pytest.raises(RefusedError, match="is not the one that was captured"):
            guard.check(changed)
