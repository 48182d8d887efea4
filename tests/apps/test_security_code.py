"""What the source may not contain, what guards what changes the workspace, and the bounds on work; without a server."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("panel")

from apps import access
from apps.access import NotAllowedError, Rules, Visitor, operate_with
from apps.guarded import GuardedWorkspace
from apps.jobs import MOST_JOBS, MOST_JOBS_EACH, Jobs
from apps.replay_jobs import ReplayJobs, bound_ranks
from apps.replay_settings import Settings
from commcanary_lab.errors import LimitError
from commcanary_lab.workspace import Workspace

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "commcanary_lab").rglob("*.py"), *(ROOT / "apps").rglob("*.py")])
#: Names that run a shell, or code out of data.
FORBIDDEN = {
    "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell", "pty.spawn",
    "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.loads", "shelve.open", "dill.loads", "joblib.load", "eval", "exec",
    "yaml.load", "torch.load", "pandas.read_pickle", "pd.read_pickle",
}  # fmt: skip


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def test_nothing_runs_a_shell_or_code_out_of_data() -> None:
    assert len(SOURCES) > 200
    found = []
    for path in SOURCES:
        for node, name in calls(path):
            shell = next((k for k in node.keywords if k.arg == "shell"), None)
            pickled = next((k for k in node.keywords if k.arg == "allow_pickle"), None)
            wrong = (shell is not None and ast.unparse(shell.value) != "False") or name in FORBIDDEN
            if wrong or (pickled is not None and ast.unparse(pickled.value) != "False"):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:80]}")
    assert found == []


def test_every_process_is_started_from_a_list_of_arguments() -> None:
    """A text as the command would be split, or given to a shell."""
    found = []
    for path in SOURCES:
        for node, name in calls(path):
            starts = name.startswith("subprocess.") and name.endswith((".run", ".Popen", ".call", ".check_call", ".check_output"))
            if starts and isinstance(node.args[0], (ast.Constant, ast.JoinedStr)):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_a_name_like_a_command_is_an_argument(tmp_path: Path) -> None:
    """What the page starts, with a name that a shell would take apart; the process sees it in one piece."""
    name = "a; touch pwned $(touch pwned) `touch pwned` | touch pwned & \n touch pwned.json"
    line = Settings(ranks=2).for_program(2).command(tmp_path / name, tmp_path / "replays" / "x", 0)
    assert line.count(str(tmp_path / name)) == 1
    jobs = ReplayJobs(tmp_path)
    show = [sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *line[3:]]
    job = jobs.submit(name, name, "CPU", "a", lambda place: show)
    deadline = time.monotonic() + 30
    while (found := jobs.job(job.name)) is not None and found.state != "ended":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert ascii(line[3:]) in jobs.log(job.name)
    assert "pwned" not in [*os.listdir(tmp_path), *os.listdir()]
    assert job.name.replace("-", "").replace(".", "").isalnum()


def test_the_examples_of_these_modules_run() -> None:
    for name in ("access", "gate", "headers", "login", "serve_options", "users"):
        result = doctest.testmod(importlib.import_module(f"apps.{name}"), optionflags=doctest.NORMALIZE_WHITESPACE)
        assert result.attempted
        assert not result.failed


# -- roles ------------------------------------------------------------------------------------------------------------

#: What only looks.
READS = {"list", "get", "place", "fact", "known_fact", "trace", "canary", "report", "comparison", "signoff", "ledger", "replay", "derived",
         "trashed"}  # fmt: skip
CHANGES: dict[str, tuple[Any, ...]] = {"add": ("x.json", b"{}"), "stage": (), "trash": ("x.json",), "restore": ("e",), "purge": ("e",)}


@pytest.fixture
def read_only() -> Iterator[None]:
    operate_with(Rules(read_only=True))
    yield
    operate_with(Rules())


def test_whatever_changes_a_workspace_is_guarded() -> None:
    """A method that is added later belongs to one of the two."""
    public = {n for n, f in inspect.getmembers(Workspace, inspect.isfunction) if not n.startswith("_")}
    assert public == READS | set(CHANGES)
    assert {n for n in vars(GuardedWorkspace) if not n.startswith("_")} == set(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_a_viewer_changes_nothing(tmp_path: Path, read_only: None, name: str) -> None:
    guarded = GuardedWorkspace(Workspace(tmp_path), Visitor())
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(NotAllowedError, match="needs the role operator: this workbench is served read-only; ask who serves"):
        getattr(guarded, name)(*CHANGES[name])
    assert sorted(os.listdir(tmp_path)) == before


def test_a_viewer_starts_no_replay_and_adds_no_samples(tmp_path: Path, read_only: None) -> None:
    with pytest.raises(NotAllowedError, match="a replay"):
        ReplayJobs(tmp_path).submit("x", "x", "CPU", "a", lambda place: [sys.executable, "-c", ""])
    from apps.samples_offer import SamplesOffer
    from apps.session import Session

    session = Session(Workspace(tmp_path))
    offer = SamplesOffer(session)
    offer._begin()
    assert "adding the samples needs the role operator" in offer._told.object
    assert session.jobs.working == 0


def test_apps_write_only_through_the_workspace() -> None:
    """No page writes a file by itself; these modules do, and ask for the role or keep the server's own notes."""
    writers = {"users.py", "replay_jobs.py", "replay_process.py"}
    found = set()
    for path in (ROOT / "apps").rglob("*.py"):
        for node, name in calls(path):
            last = name.rpartition(".")[2]
            mode = ast.unparse(node.args[1]) if last == "open" and len(node.args) > 1 else ""
            names = {"write_bytes", "write_text", "write_atomic", "write_document", "unlink", "rmtree", "rename", "symlink_to"}
            if last in names or any(m in mode for m in ("'w", "'a", "'x", "+")):
                found.add(path.name)
    assert found == writers


def test_no_server_and_no_rules_is_the_caller() -> None:
    assert access.visitor() == Visitor()
    assert Visitor().operates
    assert Visitor(is_local=False).role == "viewer"


# -- bounds -----------------------------------------------------------------------------------------------------------


class _Timer:
    def stop(self) -> None: ...


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Jobs that run until the event is set. There is no session here, so there is nothing that polls."""
    monkeypatch.setattr("apps.jobs.every", lambda *a: _Timer())
    event = threading.Event()
    yield event
    event.set()


def until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_visitor_has_so_many_jobs_and_no_more(held: threading.Event) -> None:
    jobs, done, failed = Jobs(), [], []
    started = [jobs.start(held.wait, done.append, failed.append, long=True) for _ in range(MOST_JOBS_EACH + 3)]
    assert jobs.working == MOST_JOBS_EACH
    jobs._drain()
    assert len(failed) == 3
    assert failed[0] == f"{MOST_JOBS_EACH} computations of yours run or wait: no more than {MOST_JOBS_EACH}; " + (
        "wait until something is done, or cancel it"
    )
    started[5].cancel()  # it waits: its place is free at once
    assert jobs.working == MOST_JOBS_EACH - 1
    jobs.start(held.wait, done.append, failed.append, long=True)
    held.set()
    until(lambda: jobs.working == 0)
    jobs._drain()
    assert len(done) == MOST_JOBS_EACH
    assert len(failed) == 3


def test_all_visitors_together_have_a_bound(held: threading.Event) -> None:
    many = [Jobs() for _ in range(2 + MOST_JOBS // MOST_JOBS_EACH)]
    failed: list[str] = []
    for jobs in many:
        for _ in range(MOST_JOBS_EACH):
            jobs.start(held.wait, print, failed.append, long=True)
    assert sum(j.working for j in many) == MOST_JOBS
    for jobs in many:
        jobs._drain()
    assert len(failed) == 2 * MOST_JOBS_EACH
    assert failed[0].startswith(f"{MOST_JOBS} computations of this server run or wait")
    for jobs in many:
        jobs.close()  # the visitors leave: what waits is dropped
    assert sum(j.working for j in many) <= 1  # the one that runs
    held.set()
    until(lambda: sum(j.working for j in many) == 0)


def test_a_replay_has_a_bound_of_ranks(tmp_path: Path) -> None:
    bound_ranks(3)
    try:
        with pytest.raises(LimitError, match="4 ranks are more than the 3 that this workbench starts"):
            ReplayJobs(tmp_path).submit("x", "x", "CPU", "a", lambda place: [sys.executable, "-c", ""], 4)
    finally:
        bound_ranks(64)


# -- links ------------------------------------------------------------------------------------------------------------

TRACE = b'{"format": "commcanary.trace.v1", "events": [{"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1}]}'


def test_links_inside_are_followed_and_links_out_are_named(tmp_path: Path) -> None:
    from commcanary_lab.errors import LabError

    w = Workspace(tmp_path / "w")
    (w.path / "job").mkdir()
    (w.path / "job" / "rank0.json").write_bytes(TRACE)
    (w.path / "same").mkdir()
    (w.path / "same" / "rank0.json").symlink_to(w.path / "job" / "rank0.json")
    (tmp_path / "outside.json").write_bytes(TRACE)
    assert len(w.trace("same")) == 1
    (w.path / "job" / "sub").mkdir()
    (w.path / "job" / "sub" / "rank1.json").symlink_to(tmp_path / "outside.json")
    artifact = w.get("job")
    assert (artifact.kind, artifact.summary) == ("other", "holds a link that leads out of the workspace: sub/rank1.json")
    for ask in (w.trace, w.place):
        with pytest.raises(LabError):
            ask("job")
    assert w.trash("job").name == "job"  # it can be thrown away, and what it leads to stays
    assert (tmp_path / "outside.json").exists()


def test_what_is_exchanged_for_a_link_while_it_is_opened_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The race: a file is what the listing says, a link out when it is opened, and itself again afterwards."""
    from commcanary_lab.errors import InputError
    from commcanary_lab.workspace import folder as module

    w = Workspace(tmp_path / "w")
    inside, aside, outside = w.path / "t.json", tmp_path / "aside.json", tmp_path / "outside.json"
    inside.write_bytes(TRACE)
    outside.write_bytes(TRACE.replace(b"all_reduce", b"all_gather"))
    opener = module.OPENERS["trace"]

    def swapped(path: Path) -> object:
        os.rename(inside, aside)
        inside.symlink_to(outside)
        try:
            return opener(path)
        finally:
            inside.unlink()
            os.rename(aside, inside)

    monkeypatch.setitem(module.OPENERS, "trace", swapped)
    with pytest.raises(InputError, match="is being changed"):
        w.trace("t.json")
    monkeypatch.setitem(module.OPENERS, "trace", opener)
    assert len(w.trace("t.json")) == 1
