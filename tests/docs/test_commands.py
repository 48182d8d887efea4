"""Every command and every piece of Python that the documentation shows runs, and prints what the page says it prints."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def _examples() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_examples", ROOT / "docs" / "examples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_examples"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


examples = _examples()


@pytest.mark.parametrize("document", examples.pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
@pytest.mark.filterwarnings("default")
def test_examples_of_page(document: Path) -> None:
    session = examples.Session(document).run()
    assert session.ran + session.skipped > 0
    told = "\n".join(map(str, session.failures))
    assert not session.failures, f"{told}\n\nif the new output is right: python docs/examples.py --refresh {session.name}"


def test_what_is_not_run_says_why() -> None:
    """A command is only left out with a visible reason."""
    for page in examples.pages():
        for line in page.read_text("utf-8").splitlines():
            if line.startswith(examples.NOT_RUN):
                assert len(line.removeprefix(examples.NOT_RUN).split()) >= 3, f"{page}: {line!r} gives no reason"


class TestRunner:
    """The runner itself notices what is wrong: a check that cannot fail would prove nothing."""

    @staticmethod
    def _session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str):  # type: ignore[no-untyped-def]
        monkeypatch.setattr(examples, "ROOT", tmp_path)
        (tmp_path / "data" / "samples").mkdir(parents=True)
        page = tmp_path / "page.md"
        page.write_text(text, "utf-8")
        return examples.Session(page).run()

    def test_wrong_output_is_found_and_refreshed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        session = self._session(tmp_path, monkeypatch, "```console\n$ commcanary-lab --version\n0.0.0\n```\n")
        assert [f.line for f in session.failures] == [1]
        assert session.refresh()
        from commcanary_lab import __version__

        assert (tmp_path / "page.md").read_text("utf-8") == f"```console\n$ commcanary-lab --version\n{__version__}\n```\n"

    def test_exit_code_counts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "```console\n# exits 2: no such verb\n$ commcanary-lab nonsense\n...\n$ commcanary-lab nonsense\n...\n```\n"
        session = self._session(tmp_path, monkeypatch, text)
        assert [f.line for f in session.failures] == [4]

    def test_python_is_run_and_compared(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "```python\nx = 2\n```\n\n```python\n>>> x + 1\n4\n```\n\n```python\nraise ValueError(x)\n```\n"
        session = self._session(tmp_path, monkeypatch, text)
        assert [f.line for f in session.failures] == [5, 10]

    def test_commands_not_run_are_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "```bash\n# not run by the tests: it serves until stopped\ncommcanary-lab serve\n```\n"
        session = self._session(tmp_path, monkeypatch, text)
        assert (session.ran, session.skipped, session.failures) == (0, 1, [])
