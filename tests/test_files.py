"""Regular files only; TOML bounded; what a decoded text may hold; messages that can be printed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from commcanary_lab.canonical import loads_strict
from commcanary_lab.errors import FormatError, InputError, LimitError, Problem, naming
from commcanary_lab.files import open_regular, parse_toml, read_file, read_toml
from commcanary_lab.limits import Limits


def test_a_pipe_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    started = time.monotonic()
    with pytest.raises(InputError, match="is a named pipe, not a file"):
        read_file(tmp_path / "p")
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("name", "says"), [("/dev/zero", "is a device"), ("/", "is a directory"), ("/none/such", "No such file"), ("a\0b", "is no path")]
)
def test_what_is_no_file(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as e, open_regular(name):
        pass
    assert e.value.problems[0].remedy


def test_sizes_are_looked_at_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as f:
        f.truncate(1 << 40)  # a hole: reading it would take a terabyte
    with pytest.raises(LimitError, match="COMMCANARY_LAB_MAX_FILE_BYTES"):
        read_file(path)
    with pytest.raises(LimitError, match="for this kind of file"):
        read_file(path, limits=Limits(max_file_bytes=1 << 50), max_bytes=100)
    with pytest.raises(LimitError):
        read_toml(path, "write it again")


def test_toml_with_a_mark_and_windows_line_ends() -> None:
    assert parse_toml(b"\xef\xbb\xbf[a]\r\nb = 1\r\n", "x.toml", "") == {"a": {"b": 1}}


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 100_000 + " = 1",
        "[" + "a." * 100_000 + "a]",
        "x = {" + "a." * 100_000 + "a = 1}",
        '"a".' * 100_000 + "a = 1",
        "a = " + "[" * 100_000,
        "a = " + "9" * 5000,
        "a = {b = " * 5000,
        "a = 1\na = 2",
        "[[a]]\n[a]",
    ],
)
def test_toml_that_is_refused_quickly(text: str) -> None:
    started = time.monotonic()
    with pytest.raises(InputError, match=r"^x\.toml: "):
        parse_toml(text.encode(), "x.toml", "write it again")
    assert time.monotonic() - started < 5


def test_dotted_keys_of_ordinary_length_are_read() -> None:
    assert parse_toml(b"a.b.c.d = 1", "x.toml", "")["a"]["b"]["c"]["d"] == 1
    assert parse_toml(b'question = "a.b.c: ' + b"why. " * 200 + b'"', "x.toml", "")["question"].startswith("a.b.c")


def test_numbers_beyond_the_largest_are_no_infinity() -> None:
    for text in ("[1e999]", "[-1e400]", "[" + "9" * 400 + ".5]"):
        with pytest.raises(InputError, match="too large"):
            loads_strict(text)
    assert loads_strict("[1e300, 1e-999]") == [1e300, 0.0]


def test_places_of_what_json_does_not_have() -> None:
    with pytest.raises(InputError, match=r"^x: line 3: NaN"):
        loads_strict('{"a": "NaN",\n"b": 1,\n"c": NaN}', "x")
    with pytest.raises(InputError, match=r"^x: line 2: a text holds half of a character"):
        loads_strict('{"a": "\\ud83d\\ude00",\n"b": "\\ud800"}', "x")
    assert loads_strict('"\\ud83d\\ude00"') == "😀"
    assert loads_strict(b"\xef\xbb\xbf[1]") == [1]


def test_messages_can_be_printed() -> None:
    text = str(Problem("a\0b\x1b[2J\u202e" + "x" * 10_000 + "end", file="f\n", field="\ud800"))
    assert len(text) < 3000
    assert "end" in text
    assert all(c.isprintable() or c == "\n" for c in text)
    assert str(Problem("two\nlines – and dashes é")) == "two\nlines – and dashes é"


def test_a_file_is_named_once() -> None:
    with pytest.raises(FormatError) as e, naming("b.json"):
        raise FormatError([Problem("one", file="a.json"), Problem("two")])
    assert str(e.value) == "a.json: one\nb.json: two"
