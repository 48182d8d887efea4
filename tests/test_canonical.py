"""Canonical JSON is one byte sequence per value; strict loading; atomic writing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from commcanary_lab.canonical import atomic_file, canonical_bytes, loads_strict, sha256_hex, write_atomic
from commcanary_lab.errors import InputError
from tests.strategies import json_objects


@given(json_objects())
def test_round_trip_and_independence_of_key_order(value: dict[str, Any]) -> None:
    data = canonical_bytes(value)
    assert loads_strict(data) == value
    assert canonical_bytes(dict(reversed(list(value.items())))) == data
    assert data.isascii()
    assert b"\n" not in data


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [-float("inf")], {"a": object()}, {1, 2}])
def test_what_json_cannot_say(value: Any) -> None:
    with pytest.raises(InputError, match="not representable as canonical JSON"):
        canonical_bytes(value)


def test_digest() -> None:
    assert sha256_hex(b"abc") == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' occurs twice"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b"[Infinity]", "Infinity is not a JSON number"),
        (b'{"a": 1,\n\n}', "line 3: not JSON"),
        (b'"\xff"', "not UTF-8 text (byte 1)"),
        ("[1]".encode("utf-16"), "not UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "not readable as JSON"),
        (b'"\x01"', "not JSON"),
        (b"", "not JSON"),
    ],
    ids=range(10),
)
def test_strict_loading(text: bytes, message: str) -> None:
    with pytest.raises(InputError) as e:
        loads_strict(text, "f.json")
    assert message in str(e.value)
    assert e.value.problems[0].file == "f.json"


def test_write_atomic(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert write_atomic(path, b"one") == 3
    assert write_atomic(path, iter([b"tw", b"o"])) == 3
    assert path.read_bytes() == b"two"
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_failure_while_writing_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def chunks() -> Iterator[bytes]:
        yield b"new"
        assert path.read_bytes() == b"old"
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write_atomic(path, chunks())
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_readers_see_old_or_new_only(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with atomic_file(path) as f:
        f.write(b"new")
        f.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "f", tmp_path):
        with pytest.raises(InputError, match=r"cannot be written: .*; choose a writable place"):
            write_atomic(path, b"x")
    assert list(tmp_path.iterdir()) == []


def test_equal_text_for_equal_numbers() -> None:
    assert canonical_bytes({"b": 1.0, "a": 1e16, "c": "ü\u2028"}) == b'{"a":1e+16,"b":1.0,"c":"\\u00fc\\u2028"}'
    assert json.loads(canonical_bytes([0.1 + 0.2])) == [0.1 + 0.2]
