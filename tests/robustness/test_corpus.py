"""Every reader against every kind of damage: what cannot be read ends in a typed error that names the file, in bounded time."""

from __future__ import annotations

import os
import re
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.errors import LabError
from tests.robustness.damage import KINDS, MARKER, PLACES, Kind, Variant, variants
from tests.robustness.readers import READERS, Reader, same

#: Seconds that reading one damaged file may take on a slow, busy machine.
SECONDS = 10.0


@pytest.fixture
def target(reader: Reader, tmp_path: Path) -> Iterator[Path]:
    """Where damaged files are put; evidence is mended afterwards."""
    path = reader.target(tmp_path)
    whole = reader.sample if reader.file is not None else None
    yield path
    if whole is not None:
        if path.is_symlink() or path.exists():
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        path.write_bytes(whole)


def attempt(reader: Reader, path: Path) -> Any:
    """What reading gives: a result or a typed error; anything else is raised, and so is a reader that does not come back."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"not done after {SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return reader.read(path)
    except LabError as e:
        return e
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_refusal(error: LabError, path: Path) -> None:
    """The message says what, where and what to do."""
    assert error.exit_code in (1, 3), error.exit_code
    assert error.problems
    for p in error.problems:
        assert p.what.strip(), p
        assert p.file is not None and (path.name in p.file or path.parent.name in p.file), f"no file: {p}"
        assert p.remedy, f"no remedy: {p}"
    text = str(error)
    assert "Traceback" not in text
    assert len(text) < 30_000, f"a message of {len(text)} characters: {text[:200]}"
    text.encode("utf-8")  # printable: no half characters
    assert not re.search(r"[\0\x1b\x07\x08\u202e]", text), f"control characters: {text[:300]!r}"


def check_placed(error: LabError, variant: Variant) -> None:
    """A changed field is named, or its record or line is."""
    for p in error.problems:
        if "nested" in p.what or "truncated" in p.what:  # there is no place: the parser gave up
            continue
        named = variant.key and variant.key in str(p)
        counted = re.search(
            r"(?i)\b(line|byte|event|entry|node|record|row|step|position|key|index|char|name|note)s?\b|\$|\[\d+\]|\d", p.what
        )
        assert p.field or p.line is not None or p.record is not None or named or counted, f"no place: {p} ({variant.what})"


CASES = [pytest.param(r, k, id=f"{r}-{k}") for r in READERS for k in KINDS if r.family in k.families]


@pytest.mark.parametrize("reader", READERS, ids=str)
def test_at_least_forty_kinds(reader: Reader) -> None:
    assert sum(r is reader for r, _ in (c.values for c in CASES)) + len(PLACES) >= 40


@pytest.mark.parametrize(("reader", "kind"), CASES)
def test_damaged_content(reader: Reader, kind: Kind, target: Path) -> None:
    cases = variants(reader, kind)
    whole = None
    for variant in cases:
        target.write_bytes(variant.data)
        try:
            out = attempt(reader, target)
            if isinstance(out, LabError):
                check_refusal(out, target)
                if variant.key:
                    check_placed(out, variant)
                assert kind.expect != "same", f"refused: {out}"
            elif kind.expect == "same" or (kind.expect == "refused" and reader.family != "opaque"):
                if kind.expect == "same":
                    if whole is None:
                        target.write_bytes(reader.sample)
                        whole = attempt(reader, target)
                    assert same(whole, out), "reads as something else"
                elif not (reader.blank and not variant.data.strip()):
                    assert reader.repairs and getattr(out, "warnings", ()), f"read in silence: {out!r:.300}"
        except Exception as e:
            raise AssertionError(f"{reader}: {kind}: {variant.what}: {type(e).__name__}: {e}") from e
    assert not os.path.exists(MARKER)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("reader", READERS, ids=str)
def test_no_file(reader: Reader, place: str, target: Path) -> None:
    make, says = PLACES[place]
    target.unlink(missing_ok=True)
    make(target)
    out = attempt(reader, target)
    if reader.file is not None and not target.exists() and not isinstance(out, LabError):
        return  # a part of evidence that is not there yet: the run has not ended
    assert isinstance(out, LabError), f"read: {out!r:.200}"
    check_refusal(out, target)
    assert re.search(says, str(out)) or (reader.file is not None and "has no" in str(out)), out
