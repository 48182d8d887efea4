"""The traces whose published figures are bundled, and the one that is only in the shared data."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.trace import Trace
from commcanary_lab.trace.json_v1 import read_json, read_json_bytes
from tests.bench.gen_traces import build

GOLDEN = Path(__file__).parent / "data" / "golden"
SHARED = Path(__file__).parents[1] / ".." / "shared" / "data" / "golden"

#: Name of each golden trace, and how it is generated (None: read from a file).
NAMES = {"adv100": None, "irr100": ("irregular", 100), "lay100": ("layered", 100), "reg1000": ("regular", 1000), "llama10": None}


@cache
def golden_trace(name: str) -> Trace:
    """The trace; `llama10` is read from the shared data, and the test is skipped where that is absent."""
    recipe = NAMES[name]
    if recipe is not None:
        return read_json_bytes(canonical_bytes(build(*recipe)))
    path = GOLDEN / name / "trace.json"
    return read_json(path if path.exists() else _shared(name) / "trace.json")


@cache
def golden_figures(name: str, file: str = "reports.json") -> Any:
    path = GOLDEN / name / file
    return json.loads((path if path.exists() else _shared(name) / file).read_text())


def _shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"the figures of {name} are in ../shared/data/golden, which is absent here")
    return SHARED / name
