"""Shared fixtures and the property-test profile."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]

# machines that run the tests differ in speed by a factor of ten: examples are bounded in number, not in time
# the default profile draws the same examples every time, so that a green run stays green; `thorough` draws new ones
settings.register_profile("default", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the checks against programs that are no dependency."""
    parser.addoption("--param-dir", default=None, help="a checkout of facebookresearch/param, to replay exports with its programs")
    parser.addoption("--param-python", default=None, help="the Python that runs PARAM: torch, this package's modules, intervaltree")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The reference data beside the repository; the test is skipped where they are absent."""
    path = ROOT / ".." / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the reference data are in ../shared/data, which is absent here")
    return path.resolve()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a verb in this process: exit code, standard output, standard error."""
    from commcanary_lab.cli import run

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(a) for a in arguments])
        out = capsys.readouterr()
        assert "Traceback" not in out.out + out.err
        return code, out.out, out.err

    return call


@pytest.fixture
def document(cli: Any) -> Any:
    """Run a verb with --json and decode its one document."""

    def call(*arguments: object, expect: int = 0) -> dict[str, Any]:
        code, out, err = cli(*arguments, "--json")
        assert code == expect, err
        found: dict[str, Any] = json.loads(out)
        return found

    return call
