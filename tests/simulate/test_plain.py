"""Short traces are simulated without the compiler: to the last bit as with it, and without loading it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.simulate import ABLATIONS, Backend, plain, prepare
from commcanary_lab.simulate.engine import Samples
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace import Trace
from tests.golden_traces import golden_trace
from tests.simulate.test_reference import backends
from tests.strategies import traces


def simulated(trace: Trace, backend: Backend, ablation: str | None, few: bool) -> tuple[Samples, np.ndarray]:
    with patch.object(plain, "preferred", lambda events: few):
        prepared = prepare(trace)
        report = simulate_prepared(prepared, backend, ablations=frozenset([ablation] if ablation else []))
        return report.samples, prepared.identity


def assert_equal_bits(trace: Trace, backend: Backend, ablation: str | None) -> None:
    (a, one), (b, other) = (simulated(trace, backend, ablation, few) for few in (True, False))
    assert np.array_equal(one, other)
    for name in ("first_us", "start_us", "service_us", "completion_us", "wait_us", "total_us", "hidden_us", "exposed_us"):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), name


@settings(max_examples=100)
@given(traces(unknown=False), backends, st.sampled_from([None, *ABLATIONS]))
def test_equal_to_the_last_bit(trace: Trace, backend: Backend, ablation: str | None) -> None:
    assert_equal_bits(trace, backend, ablation)


@pytest.mark.parametrize("name", ["irr100", "lay100"])
def test_equal_on_the_golden_traces(name: str) -> None:
    assert_equal_bits(golden_trace(name), Backend(seed=(1 << 64) - 1, iterations=3), None)


def test_a_short_trace_does_not_load_the_compiler(tmp_path: Path) -> None:
    lab.write(lab.samples.adversarial(), tmp_path / "t.json")
    code = ("import sys; from commcanary_lab.cli import run; code = run(['simulate', sys.argv[1]]);"
            "print(code, [m for m in ('numba', 'pandas', 'scipy', 'pyarrow', 'panel') if m in sys.modules])")
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t.json")], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "0 []"


def test_many_events_or_a_loaded_compiler_use_it() -> None:
    import numba

    assert numba is not None and not plain.preferred(1)
    with patch.dict(sys.modules):
        del sys.modules["numba"]
        assert plain.preferred(100) and not plain.preferred(100_000)
