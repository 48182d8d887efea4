"""`launch`: a job that knows nothing of the recorder is recorded; a failing one is reported and leaves no process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commcanary_lab.capture import environment, launch
from commcanary_lab.errors import LaunchError, UsageError

JOB = str(Path(__file__).parent / "jobs" / "plain.py")
SILENT = subprocess.DEVNULL


def torchrun(*args: str) -> list[str]:
    pytest.importorskip("torch")
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", JOB, *args]


def environment_of_test(**extra: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **extra}


def processes_with(text: str) -> list[str]:
    """Command lines of living processes that contain a text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if text in line and state != "Z":
            found.append(line)
    return found


@pytest.mark.gloo
def test_an_unchanged_torchrun_job_is_recorded_and_merged(tmp_path: Path) -> None:
    hidden = tmp_path / "site"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import os\nos.environ['CHAINED'] = 'yes'\n")
    log = tmp_path / "log"
    with log.open("w") as f:
        env = environment_of_test(PYTHONPATH=str(hidden))
        result = launch(torchrun(), tmp_path / "out", timeout=60, env=env, stdout=f, stderr=f, host="host-a")
    text = log.read_text()
    assert (text.count("hello from rank"), text.count("chained")) == (2, 2), text
    assert [p.name for p in result.shards] == ["rank-0.jsonl", "rank-1.jsonl"]
    assert result.trace.op.to_list() == ["all_reduce"] * 10 + ["barrier"]
    assert result.trace.size_bytes.tolist() == [256] * 10 + [0]
    assert result.trace.arrival_known.all()
    assert result.trace.warnings == ()
    assert 0 < result.seconds < 60
    with pytest.raises(UsageError, match="holds shards already"):
        launch(torchrun(), tmp_path / "out")


@pytest.mark.gloo
def test_a_failing_rank_is_an_error_that_keeps_the_shards(tmp_path: Path) -> None:
    mark = f"fail-{os.getpid()}"
    with pytest.raises(LaunchError, match=r"failed with exit status 1; 2 shards with 22 operations are kept") as caught:
        launch(torchrun("fail", mark), tmp_path / "out", timeout=60, env=environment_of_test(), stdout=SILENT, stderr=SILENT)
    assert caught.value.exit_code == 4
    assert len(list((tmp_path / "out").glob("rank-*.jsonl"))) == 2
    assert processes_with(mark) == []


def test_a_stubborn_process_tree_is_killed(tmp_path: Path) -> None:
    mark = f"stubborn-{os.getpid()}"
    child = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)  # {mark}"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True); sys.exit(3)"
    start = time.monotonic()
    with pytest.raises(LaunchError, match="failed with exit status 3; no rank had recorded anything"):
        launch([sys.executable, "-c", parent], tmp_path)
    assert processes_with(mark) == []
    assert time.monotonic() - start < 15


@pytest.mark.gloo
def test_a_cancelled_launcher_ends_workers_in_sessions_of_their_own(tmp_path: Path) -> None:
    mark, out = f"hang-{os.getpid()}", tmp_path / "out"
    code = f"import sys; from commcanary_lab.capture import launch; launch({torchrun('hang', mark)!r}, {str(out)!r})  # {mark}"
    launcher = subprocess.Popen([sys.executable, "-c", code], env=environment_of_test(), stdout=SILENT, stderr=SILENT)
    deadline = time.monotonic() + 60
    while len(list(out.glob("rank-*.jsonl"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(processes_with(mark)) == 4  # this launcher, torchrun, two workers
    launcher.terminate()
    assert launcher.wait(20) == 143
    assert processes_with(mark) == []
    assert len(list(out.glob("rank-*.jsonl"))) == 2


def test_a_timeout_ends_the_command(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(LaunchError, match=r"was ended after 0\.5 s; no rank had recorded anything"):
        launch([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path, timeout=0.5)
    assert time.monotonic() - start < 6


def test_a_signal_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="was killed by SIGABRT"):
        launch([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGABRT)"], tmp_path)


def test_a_job_without_collectives_says_so(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no process recorded anything"):
        launch([sys.executable, "-c", "pass"], tmp_path / "out")


@pytest.mark.parametrize(("cmd", "text"), [([], "no command"), (["commcanary-no-such-command"], "not a command here")])
def test_wrong_commands_are_refused(tmp_path: Path, cmd: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        launch(cmd, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_hook_imports_nothing_until_it_is_needed(tmp_path: Path) -> None:
    code = "import sys; print([m for m in ('commcanary_lab', 'torch', 'numpy', 'msgspec') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_recorder_that_cannot_start_leaves_the_job_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "file").write_text("in the way")
    code = ("import torch, torch.distributed as d; d.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1);"
            "d.all_reduce(torch.ones(1)); d.all_reduce(torch.ones(1)); d.destroy_process_group(); print('done')")
    out = subprocess.run([sys.executable, "-c", code], env=environment(tmp_path / "file"), capture_output=True, text=True, check=False)
    assert (out.returncode, out.stdout.strip()) == (0, "done"), out.stderr
    assert "commcanary_lab" in out.stderr
