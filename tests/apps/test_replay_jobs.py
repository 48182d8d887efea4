"""Replays in the background: one per device set, a queue that is written down, and nothing left behind. Real processes, no browser."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("panel")

from apps.page import Selection
from apps.replay_jobs import MOST_QUEUED, MOST_QUEUED_EACH, Job, ReplayJobs, may_operate
from apps.replay_process import born, leftovers
from apps.replay_queue import log_html
from apps.replay_settings import Settings, settings
from commcanary_lab.errors import LimitError
from commcanary_lab.replay.spec import read_document, write_document

_SLEEP = "import time; time.sleep(60)"
#: A launcher that starts a rank in a session of its own, as torchrun does, and waits for it.
_LAUNCH = f"""
import subprocess, sys
rank = subprocess.Popen([sys.executable, "-c", "{_SLEEP}"], start_new_session=True)
print("rank", rank.pid, flush=True)
rank.wait()
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[ReplayJobs]:
    made = ReplayJobs(tmp_path)
    yield made
    for job in made.active():
        made.cancel(job.name)
    until(lambda: not made.active())


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.02)


def python(code: str) -> Callable[[Path], list[str]]:
    return lambda place: [sys.executable, "-c", code]


def submit(jobs: ReplayJobs, code: str, device: str = "CPU", owner: str = "a") -> Job:
    return jobs.submit("job", "a job", device, owner, python(code))


def state(jobs: ReplayJobs, job: Job) -> str:
    found = jobs.job(job.name)
    assert found is not None
    return found.state


def test_one_runs_per_device_set_and_the_rest_wait_in_order(jobs: ReplayJobs) -> None:
    first, second, third = (submit(jobs, _SLEEP) for _ in range(3))
    other = submit(jobs, _SLEEP, device="GPU")
    assert [state(jobs, j) for j in (first, second, third, other)] == ["running", "queued", "queued", "running"]
    assert [jobs.place(j) for j in (second, third)] == [1, 2]
    assert [j.name for j in jobs.active()] == [first.name, other.name, second.name, third.name]
    jobs.cancel(second.name)
    assert state(jobs, second) == "ended"
    assert jobs.place(third) == 1
    jobs.cancel(first.name)
    until(lambda: state(jobs, third) == "running")
    assert [state(jobs, j) for j in (first, second)] == ["ended", "ended"]
    cancelled = jobs.job(second.name)
    assert cancelled is not None
    assert cancelled.pid is None
    assert "cancelled before it was started" in jobs.log(second.name)


def test_the_queue_is_bounded(jobs: ReplayJobs) -> None:
    submit(jobs, _SLEEP)
    for _ in range(MOST_QUEUED_EACH):
        submit(jobs, _SLEEP)
    with pytest.raises(LimitError, match=f"{MOST_QUEUED_EACH} of your replays wait"):
        submit(jobs, _SLEEP)
    owners = 0
    while sum(j.state == "queued" for j in jobs.active()) < MOST_QUEUED:
        owners += 1
        submit(jobs, _SLEEP, owner=f"b{owners}")
    with pytest.raises(LimitError, match="cancel one"):
        submit(jobs, _SLEEP, owner="c")


def test_the_output_is_the_log_and_the_exit_status_is_kept(jobs: ReplayJobs) -> None:
    job = submit(jobs, "import sys; print('said', flush=True); print('error: no', file=sys.stderr); sys.exit(3)")
    until(lambda: state(jobs, job) == "ended")
    found = jobs.job(job.name)
    assert found is not None
    assert found.exit_status == 3
    lines = [line.partition("  ")[2] or line for line in jobs.log(job.name).splitlines()]
    assert lines == ["asked for: a job", "started", "said", "error: no", "ended with exit status 3"]


def test_a_cancel_leaves_no_process(jobs: ReplayJobs) -> None:
    job = submit(jobs, _LAUNCH)
    until(lambda: "rank" in jobs.log(job.name))
    assert len(leftovers(job.mark)) == 2
    jobs.cancel(job.name)
    until(lambda: state(jobs, job) == "ended")
    assert leftovers(job.mark) == []


def test_ranks_of_a_killed_launcher_are_ended(jobs: ReplayJobs) -> None:
    job = submit(jobs, _LAUNCH)
    until(lambda: "rank" in jobs.log(job.name))
    assert job.pid is not None
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: state(jobs, job) == "ended")
    until(lambda: leftovers(job.mark) == [])
    assert "the launcher is gone; its processes are ended" in jobs.log(job.name)


def test_a_launcher_that_does_not_listen_is_killed(jobs: ReplayJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.replay_jobs._PATIENCE_S", 0.3)
    job = submit(jobs, "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)")
    until(lambda: "deaf" in jobs.log(job.name))
    jobs.cancel(job.name)
    assert state(jobs, job) == "ending"
    until(lambda: state(jobs, job) == "ended")
    assert "killed: it did not end" in jobs.log(job.name)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="without /proc a restarted server cannot recognise processes")
def test_another_server_recognises_what_runs_and_goes_on(jobs: ReplayJobs, tmp_path: Path) -> None:
    first, second = submit(jobs, _SLEEP), submit(jobs, _SLEEP)
    again = ReplayJobs(tmp_path)
    assert [(j.name, j.state) for j in again.active()] == [(first.name, "running"), (second.name, "queued")]
    again.cancel(first.name)
    until(lambda: state(again, second) == "running")
    assert state(jobs, first) == "ended"
    again.cancel(second.name)
    until(lambda: not again.active())


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="without /proc a restarted server cannot recognise processes")
def test_a_process_with_the_same_number_is_another_one(jobs: ReplayJobs, tmp_path: Path) -> None:
    job = submit(jobs, "pass")
    until(lambda: state(jobs, job) == "ended")
    path = tmp_path / "replays" / ".jobs" / f"{job.name}.json"
    ended = read_document(path, Job)
    assert born(os.getpid())
    write_document(path, msgspec.structs.replace(ended, ended_s=None, pid=os.getpid(), born=ended.born))
    again = ReplayJobs(tmp_path)  # this very process lives, but is not the one that was started
    until(lambda: state(again, job) == "ended")


def test_logs_are_shown_from_their_end_and_escaped(jobs: ReplayJobs) -> None:
    job = submit(jobs, "for i in range(40000): print('line', i)")
    until(lambda: state(jobs, job) == "ended")
    text = jobs.log(job.name)
    assert len(text) < 30_000
    assert "line 39999" in text
    assert "line 100\n" not in text
    assert "<b>" not in log_html("<b>x</b>")


def test_nobody_but_the_caller_is_there_without_a_server() -> None:
    assert may_operate()


# -- settings ---------------------------------------------------------------------------------------------------------


def test_the_command_is_a_list_of_arguments() -> None:
    chosen = Settings(ranks=2, timing="preserve", probe=True, overlap=True, epochs=3).for_program(4)
    line = chosen.command(Path("/w/a b; rm -rf.json"), Path("/w/replays/x"), 0)
    assert line[:5] == [sys.executable, "-m", "commcanary_lab.cli", "replay", "/w/a b; rm -rf.json"]
    assert " ".join(line[5:]) == (
        "-o /w/replays/x --backend gloo --timing preserve --ranks 2 --iterations 5 --warmup 1 --timeout 600 --overlap --probe --epochs 3 "
        "--replays 2"
    )
    assert Settings(ranks=2).ran_by(2) == "nccl"
    assert Settings(ranks=4).ran_by(2) == "gloo"


def test_the_address_is_not_believed() -> None:
    given = {
        "run_ranks": ("3",),
        "run_iterations": ("-5",),
        "run_warmup": ("x",),
        "run_backend": ("mpi",),
        "run_probe": ("1",),
        "run_of": ("?",),
    }
    found = settings(Selection("t.json", "c.json", given))
    assert found == Settings(ranks=3, probe=True)
    assert settings(Selection("t.json", None, {})).of == "trace"
    assert found.for_program(2).ranks == 2
