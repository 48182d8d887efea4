"""Large matrices pan and zoom while somebody looks at them; ``docs/measure_browser.py`` writes the same figures into the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.conftest import Server
from tests.browser.heatmap_speed import TARGETS_MS, measure, write_jobs


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, browser_type_launch_args: dict[str, Any]) -> Iterator[tuple[Server, dict[int, str]]]:
    folder = tmp_path_factory.mktemp("jobs")
    names = write_jobs(folder)
    server = Server(folder)
    yield server, names
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", TARGETS_MS)
def test_a_view_of_a_million_records_pans_and_zooms(watched: Any, jobs: tuple[Server, dict[int, str]], ranks: int) -> None:
    server, names = jobs
    speed = measure(watched, server.url, names[ranks], ranks)
    print(speed)
    assert speed.median_ms < 3 * TARGETS_MS[ranks]  # loose: the machine may be busy
