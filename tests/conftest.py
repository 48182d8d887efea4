"""Shared fixtures and the property-test profile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]

# machines that run the tests differ in speed by a factor of ten: examples are bounded in number, not in time
# the default profile draws the same examples every time, so that a green run stays green; `thorough` draws new ones
settings.register_profile("default", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


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
