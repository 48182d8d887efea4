"""Searches on real Dask workers and on processes find what a search in this process finds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import commcanary_lab as lab
from commcanary_lab.cli import run
from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.minimize.executors import DaskExecutor, open_executor

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as running:
        yield running


def test_a_search_on_a_cluster_finds_the_same_canary(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = lab.samples.gloo4()
    lab.write(trace, tmp_path / "gloo4.json")
    ledgers = []
    for name, options in (("here", []), ("dask", ["--executor", f"dask:{cluster.scheduler_address}"])):
        command = ["search", str(tmp_path / "gloo4.json"), "--records", "2:4", "--ledger", str(tmp_path / f"{name}.json"), *options]
        assert run([*command, "-o", str(tmp_path / f"{name}.canary.json")]) == 0, capsys.readouterr().err
        ledgers.append((tmp_path / f"{name}.json").read_bytes())
    assert ledgers[0] == ledgers[1]
    assert (tmp_path / "here.canary.json").read_bytes() == (tmp_path / "dask.canary.json").read_bytes()
    assert len(json.loads(ledgers[1])["candidates"]) > 2


def test_the_source_is_sent_once(cluster: Any) -> None:
    with distributed.Client(cluster, set_as_default=False) as client:
        pool = DaskExecutor(client)
        found = lab.search(lab.samples.gloo4(), range(2, 4), executor=pool)
        assert found.passed
        assert len(pool._sent) == 1
        pool.shutdown()
        assert client.submit(int, 1).result() == 1  # the client is not ours to close


def test_two_processes_find_the_same_canary() -> None:
    trace = lab.samples.adversarial()
    with open_executor("", 2) as pool:
        two = lab.search(trace, range(2, 4), executor=pool)
    assert two.ledger() == lab.search(trace, range(2, 4)).ledger()


@pytest.mark.parametrize("text", ["dask", "dask:", "ray:auto", "processes:2"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="dask:ADDRESS"), open_executor(text):
        pass


def test_no_scheduler_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commcanary_lab.minimize.executors._CONNECT_S", 0.5)
    with (
        pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9.*dask scheduler"),
        open_executor("dask:tcp://127.0.0.1:9"),
    ):
        pass


def test_a_cluster_without_workers_is_refused() -> None:
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        pytest.raises(InputError, match="has no workers"),
        open_executor(f"dask:{empty.scheduler_address}"),
    ):
        pass


def test_the_package_does_not_import_dask() -> None:
    import subprocess

    code = "import sys, commcanary_lab.minimize, commcanary_lab.minimize.executors; print('distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
