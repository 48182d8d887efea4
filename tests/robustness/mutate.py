"""Random damage for fuzzing: edits of bytes, of JSON trees and of cells, drawn from a seed."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from tests.robustness.readers import READERS, Reader

__all__ = ["mutated"]

_NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 127, 255, 256, 65535, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 53, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, 10**30,
    0.5, -0.0, 1e-300, 1e300, 1e15, 123456.789,
)  # fmt: skip
_TEXTS = (
    "",
    "x",
    "0",
    "-1",
    "nan",
    "all_reduce",
    "allreduce",
    "float32",
    "sum",
    "\0",
    "\u202e",
    "é",
    "😀",
    "a" * 5000,
    "[0, 1]",
    "0x0",
    "{}",
)
_VALUES: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": None}, *_NUMBERS, *_TEXTS)
_SPLICES = (
    b"", b"\0", b"\n", b"\r\n", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"=", b"-", b"1e999", b"NaN", b"99999999999", b"\xff",
    b"\xef\xbb\xbf", b"\xed\xa0\x80", b" ", b"\t", b"#", b"'''", b"0x", b"(nil)",
)  # fmt: skip


def mutated(reader: Reader, rng: random.Random) -> bytes:
    """Return a valid file with one to six random changes.

    Parameters
    ----------
    reader : Reader
        Whose sample is changed.
    rng : random.Random
        Draws the changes.
    """
    data = reader.sample
    if reader.family in ("json", "jsonl") and rng.random() < 0.75:
        data = _tree(reader, data, rng)
        if rng.random() < 0.85:
            return data
    edits = 1 + min(5, int(rng.expovariate(0.7)))
    for _ in range(edits):
        data = (_cell if reader.family in ("text", "toml") and rng.random() < 0.6 else _bytes)(data, rng)
    return data


def _bytes(data: bytes, rng: random.Random) -> bytes:
    """One change of bytes."""
    if not data:
        return rng.randbytes(rng.randrange(64))
    at, other = rng.randrange(len(data)), rng.randrange(len(data))
    low, high = min(at, other), max(at, other)
    match rng.randrange(9):
        case 0:
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        case 1:
            return data[:at] + rng.randbytes(1 + rng.randrange(8)) + data[at + rng.randrange(9) :]
        case 2:
            return data[:at]
        case 3:
            return data[:low] + data[high:]
        case 4:
            return data[:low] + data[low:high] * 2 + data[high:]
        case 5:
            return data[:at] + rng.choice(_SPLICES) + data[at:]
        case 6:
            width = rng.choice((1, 2, 4, 8))
            return data[:at] + rng.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * width + data[at + width :]
        case 7:
            alien = rng.choice(READERS).sample
            start = rng.randrange(len(alien)) if alien else 0
            return data[:at] + alien[start : start + rng.randrange(200)] + data[at:]
        case _:
            return data[high:] + data[low:high] + data[:low]


_TOKEN = re.compile(rb"-?\d+(?:\.\d+)?|[A-Za-z_][\w.]*")


def _cell(data: bytes, rng: random.Random) -> bytes:
    """One change of a number, a word or a line of a text."""
    if rng.random() < 0.3:
        lines = data.splitlines(keepends=True)
        if lines:
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            match rng.randrange(3):
                case 0:
                    del lines[i]
                case 1:
                    lines.insert(j, lines[i])
                case _:
                    lines[i], lines[j] = lines[j], lines[i]
        return b"".join(lines)
    found = list(_TOKEN.finditer(data))
    if not found:
        return _bytes(data, rng)
    m = rng.choice(found)
    new = rng.choice((*map(str, _NUMBERS), *_TEXTS, rng.choice(found).group().decode("ascii", "replace"))).encode("utf-8", "replace")
    return data[: m.start()] + new + data[m.end() :]


def _tree(reader: Reader, data: bytes, rng: random.Random) -> bytes:
    """Changes of a JSON document, or of lines of JSON."""
    tree: Any = [json.loads(x) for x in data.splitlines() if x.strip()] if reader.family == "jsonl" else json.loads(data)
    for _ in range(1 + min(4, int(rng.expovariate(0.8)))):
        tree = _change(tree, rng)
    separators = (",", ":") if reader.family == "jsonl" or rng.random() < 0.5 else None
    if reader.family == "jsonl":
        lines = tree if isinstance(tree, list) else [tree]
        return "".join(json.dumps(x, separators=separators) + "\n" for x in lines).encode()
    return json.dumps(tree, separators=separators).encode()


def _change(tree: Any, rng: random.Random) -> Any:
    path: list[tuple[Any, Any]] = []
    node = tree
    while isinstance(node, (dict, list)) and node and (not path or rng.random() < 0.85):
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        path.append((node, key))
        node = node[key]
    if not path:
        return rng.choice(_VALUES)
    parent, key = path[-1]
    match rng.randrange(6):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, list):
            parent.insert(key, json.loads(json.dumps(node)))
        case 2 if isinstance(parent, dict):
            parent[rng.choice(_TEXTS)] = parent.pop(key)
        case 3 if isinstance(node, (int, float)) and not isinstance(node, bool):
            parent[key] = node + rng.choice((-1, 1, 0.5, 1 << 40)) if rng.random() < 0.5 else -node
        case 4:
            other, at = rng.choice(path)
            parent[key] = json.loads(json.dumps(other[at])) if len(path) < 4 else rng.choice(_VALUES)
        case _:
            parent[key] = rng.choice(_VALUES)
    return tree
