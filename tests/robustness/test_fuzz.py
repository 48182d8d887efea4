"""A small budget of random damage for every reader; ``make fuzz`` has a larger one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.robustness.fuzz import fuzz
from tests.robustness.mutate import mutated
from tests.robustness.readers import READERS, Reader

INPUTS = 300
#: Readers whose results are compiled, written and read again take longer for each input.
FEWER = {
    "trace_v1": 40, "kineto": 40, "nccl_log": 30, "rccl_log": 30, "pytorch_et": 40, "param_basic": 40, "flight_recorder": 40,
    "chakra_json": 50, "inspector": 60, "mpi_text": 50, "shard": 60, "nsys_sqlite": 100, "chakra_et": 100, "campaign_decision": 100,
    "campaign_manifest": 100,
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS, ids=str)
def test_random_damage(reader: Reader, tmp_path: Path) -> None:
    out = fuzz(reader, FEWER.get(reader.name, INPUTS), 1, tmp_path)
    assert out.crashes == []
    assert out.refused + out.accepted == out.inputs
    # a log is any text with some lines of NCCL in it, so that nearly everything can be read
    assert out.refused or reader.name.endswith("_log")
    assert out.accepted or reader.family == "binary"


def test_the_same_seed_makes_the_same_files() -> None:
    for reader in READERS[:6]:
        first, again = (mutated(reader, random.Random(f"{reader.name}:1:{i}")) for i in (5, 5))
        assert first == again
    made = {mutated(READERS[0], random.Random(f"x:{i}")) for i in range(50)}
    assert len(made) > 40
