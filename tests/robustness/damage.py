"""Kinds of damage: from the bytes of a valid file to bytes that are not, or to something in its place that is no file."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import re
import socket
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.robustness.readers import Reader

__all__ = ["BYTES", "KINDS", "PLACES", "Kind", "Variant", "variants"]

MIB = 1 << 20


@dataclass(frozen=True)
class Variant:
    """One damaged file.

    Parameters
    ----------
    data : bytes
        Its content.
    what : str
        What was done, for messages.
    key : str
        The field that was changed; empty where the damage is no change of a field.
    """

    data: bytes
    what: str = ""
    key: str = ""


@dataclass(frozen=True)
class Kind:
    """A kind of damage.

    Parameters
    ----------
    name : str
    make : callable
        From a reader and its sample to damaged files.
    expect : {"same", "refused", "any"}
        ``same``: it must be read and mean the same. ``refused``: a typed error, or, from readers that repair, a warning. ``any``: the
        damaged file may be another valid one.
    families : tuple of str
        Readers that it applies to.
    """

    name: str
    make: Callable[[Reader, bytes], Iterator[Variant]]
    expect: str = "any"
    families: tuple[str, ...] = ("json", "jsonl", "text", "toml", "binary", "opaque")

    def __str__(self) -> str:
        return self.name


TEXT = ("json", "jsonl", "text", "toml")
TREES = ("json", "jsonl")

Change = Callable[[bytes], bytes]


def _one(change: Change) -> Callable[[Reader, bytes], Iterator[Variant]]:
    def make(reader: Reader, data: bytes) -> Iterator[Variant]:
        yield Variant(change(data))

    return make


def _at(share: float, insert: bytes) -> Change:
    return lambda data: data[: int(len(data) * share)] + insert + data[int(len(data) * share) :]


def _noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def _bomb(data: bytes) -> bytes:
    """A gibibyte of blanks after the first bytes, in a megabyte."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9, mtime=0) as f:
        f.write(data[: len(data) // 2])
        for _ in range(64):
            f.write(b" " * (16 * MIB))
    return out.getvalue()


class _Payload:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {MARKER}",))


#: What the hostile pickle would make.
MARKER = "/tmp/commcanary-lab-hostile-pickle"


def _zip(names: tuple[str, ...] = ("../../evil.json",)) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name in names:
            z.writestr(name, "x")
    return out.getvalue()


def _tar(mode: str, *entries: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    return out.getvalue()


def _member(name: str, size: int = 1, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size if kind == tarfile.REGTYPE else 0, kind, link
    return info


def _slips(reader: Reader, data: bytes) -> Iterator[Variant]:
    for entry in (
        _member("../evil"), _member("/tmp/evil"), _member("a/../../evil"), _member("link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        _member("link", kind=tarfile.LNKTYPE, link="../../x"), _member("pipe", kind=tarfile.FIFOTYPE), _member("dev", kind=tarfile.CHRTYPE),
    ):  # fmt: skip
        for mode in ("w", "w:gz", "w:xz"):
            yield Variant(_tar(mode, entry), f"{entry.name} {mode}")


def _wide(data: bytes, encoding: str) -> bytes:
    return data.decode("utf-8", "replace").encode(encoding)


def _crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\6\0\0\0\x1f\x15\xc4\x89" + _noise(512)
ELF = b"\x7fELF\2\1\1" + b"\0" * 57 + _noise(512)
_ALIEN = b'{"format": "some.other.v7", "items": [1, 2, 3]}\n'

#: Damage of bytes, whatever they mean.
_BYTES: dict[str, tuple[Change, str, tuple[str, ...]]] = {
    "empty": (lambda d: b"", "refused", ()),
    "blank": (lambda d: b" \n\t \n" * 20, "refused", ()),
    "first byte": (lambda d: d[:1], "any", ()),
    "first quarter": (lambda d: d[: len(d) // 4], "any", ()),
    "first half": (lambda d: d[: len(d) // 2], "any", ()),
    "first 9 tenths": (lambda d: d[: len(d) * 9 // 10], "any", ()),
    "without the last bytes": (lambda d: d[:-3], "any", ()),
    "second half": (lambda d: d[len(d) // 2 :], "any", ()),
    "NUL inside": (_at(0.5, b"\0"), "any", ()),
    "NUL first": (_at(0.0, b"\0"), "any", ()),
    "NUL only": (lambda d: b"\0" * 4096, "refused", ()),
    "byte order mark": (lambda d: b"\xef\xbb\xbf" + d, "same", TEXT),
    "Windows line ends": (_crlf, "same", TEXT),
    "blanks at the end": (lambda d: d + b"\n \n\n", "same", ("json", "jsonl", "toml")),
    "Latin-1 inside": (_at(0.5, "caf\xe9".encode("latin-1")), "any", ()),
    "invalid UTF-8": (_at(0.3, b"\xff\xfe\xc0\x80"), "any", ()),
    "UTF-16 with mark": (lambda d: _wide(d, "utf-16"), "any", TEXT),
    "UTF-16 without mark": (lambda d: _wide(d, "utf-16-be"), "any", TEXT),
    "UTF-32": (lambda d: _wide(d, "utf-32"), "any", TEXT),
    "mixed encodings": (lambda d: d[: len(d) // 2] + _wide(d[len(d) // 2 :], "utf-16-le"), "any", TEXT),
    "control characters": (_at(0.6, b"\x1b[2J\x07\x08\x7f"), "any", ()),
    "random bytes": (lambda d: _noise(4096), "refused", ()),
    "PNG": (lambda d: PNG, "refused", ()),
    "ELF": (lambda d: ELF, "refused", ()),
    "HTML page": (lambda d: b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n", "refused", ()),
    "script": (lambda d: b"#!/bin/sh\nexit 0\n", "refused", ()),
    "another document": (lambda d: _ALIEN, "refused", ()),
    "twice": (lambda d: d + d, "any", ()),
    "zstd": (lambda d: b"\x28\xb5\x2f\xfd" + d, "refused", ()),
    "hostile pickle": (lambda d: pickle.dumps(_Payload(), 2), "refused", ()),
    "hostile pickle of protocol 0": (lambda d: pickle.dumps({"entries": _Payload()}, 0), "refused", ()),
    "zip with a name that leaves": (lambda d: _zip(), "refused", ()),
    "cut gzip": (lambda d: gzip.compress(d)[: len(gzip.compress(d)) // 2], "any", ()),
    "gzip header": (lambda d: gzip.compress(d)[:10], "refused", ()),
    "gzip of nothing": (lambda d: gzip.compress(b""), "refused", ()),
    "gzip with a wrong sum": (lambda d: gzip.compress(d)[:-8] + b"\1\2\3\4" + gzip.compress(d)[-4:], "any", ()),
    "gzip in gzip": (lambda d: gzip.compress(gzip.compress(d)), "refused", ()),
    "gzip with more after it": (lambda d: gzip.compress(d, mtime=0) + b"garbage", "any", ()),
}


def _broken_gzip(reader: Reader, data: bytes) -> Iterator[Variant]:
    yield Variant(gzip.compress(data, mtime=0))


#: Readers that get the whole line; the others share their parsers with one of these.
_LONG_LINES = ("trace_v1", "inspector", "kineto", "mpi_text", "nccl_log", "nccl_tests", "prometheus", "canary_lossless", "offsets")


def _line(reader: Reader, data: bytes) -> Iterator[Variant]:
    """A line of 50 MB, where a record would stand."""
    long = b"x" * ((50 if reader.name in _LONG_LINES else 4) * MIB)
    if reader.family in TREES:
        yield Variant(b'{"' + long + b'": 1}\n')
    elif reader.family == "toml":
        yield Variant(b"a = '" + b"x" * (20 * MIB if reader.name == "layout" else MIB) + b"'\n" + data)
    elif reader.family == "text":
        yield Variant(data + b"\n" + long + b"\n")
    else:
        yield Variant(data + b"\n" + long[: MIB // 4] + b"\n")


def _flips(reader: Reader, data: bytes) -> Iterator[Variant]:
    """Single bits, spread over the file."""
    rng = random.Random(reader.name)
    for at in sorted(rng.sample(range(len(data)), min(40, len(data)))):
        yield Variant(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :], f"byte {at}")


def _overwritten(fill: bytes) -> Callable[[Reader, bytes], Iterator[Variant]]:
    def make(reader: Reader, data: bytes) -> Iterator[Variant]:
        for i in range(24):
            at = len(data) * i // 24
            yield Variant(data[:at] + fill + data[at + len(fill) :], f"bytes {at} to {at + len(fill)}")

    return make


# -- trees ------------------------------------------------------------------------------------------------------------

_MARK = "@@here@@"


def _tree(reader: Reader, data: bytes) -> Any:
    return [json.loads(x) for x in data.splitlines() if x.strip()] if reader.family == "jsonl" else json.loads(data)


def _text(reader: Reader, tree: Any) -> str:
    if reader.family == "jsonl":
        # compact, as the writers of such lines are
        return "".join(json.dumps(x, separators=(",", ":")) + "\n" for x in tree)
    return json.dumps(tree)


def _pattern(path: str) -> str:
    return re.sub(r"\[\d+\]", "[]", path)


def _nodes(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield keys, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _nodes(inner, (*keys, key))


def _places(tree: Any, wanted: Callable[[Any], bool], most: int) -> list[tuple[Any, ...]]:
    """Paths of nodes, one per pattern (all records look alike), at most so many."""
    seen: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for keys, value in _nodes(tree):
        if keys and wanted(value):
            seen[tuple("*" if isinstance(k, int) else k for k in keys)] = keys  # the last of its pattern
    found = list(seen.values())
    step = max(1, -(-len(found) // most))
    return found[::step]


def _replaced(tree: Any, keys: tuple[Any, ...], value: Any) -> Any:
    """A copy along the path."""
    if not keys:
        return value
    copy: Any = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[keys[0]] = _replaced(copy[keys[0]], keys[1:], value)
    return copy


def _name(keys: tuple[Any, ...]) -> str:
    return next((str(k) for k in reversed(keys) if isinstance(k, str)), "")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _literal(raw: str, wanted: Callable[[Any], bool], most: int = 24) -> Callable[[Reader, bytes], Iterator[Variant]]:
    """Replace values by raw text."""

    def make(reader: Reader, data: bytes) -> Iterator[Variant]:
        tree = _tree(reader, data)
        for keys in _places(tree, wanted, most):
            text = _text(reader, _replaced(tree, keys, _MARK)).replace(f'"{_MARK}"', raw)
            yield Variant(text.encode("utf-8", "surrogatepass"), f"{'.'.join(map(str, keys))} = {raw[:40]}", _name(keys))

    return make


def _without(reader: Reader, data: bytes) -> Iterator[Variant]:
    tree = _tree(reader, data)
    for keys in _places(tree, lambda v: True, 60):
        if isinstance(keys[-1], str):
            parent = tree
            for k in keys[:-1]:
                parent = parent[k]
            shorter = {k: v for k, v in parent.items() if k != keys[-1]}
            yield Variant(_text(reader, _replaced(tree, keys[:-1], shorter)).encode(), f"without {'.'.join(map(str, keys))}", _name(keys))


def _more(name: str) -> Callable[[Reader, bytes], Iterator[Variant]]:
    def make(reader: Reader, data: bytes) -> Iterator[Variant]:
        tree = _tree(reader, data)
        for keys in [(), *_places(tree, lambda v: isinstance(v, dict), 20)]:
            node = tree
            for k in keys:
                node = node[k]
            if isinstance(node, dict):
                yield Variant(_text(reader, _replaced(tree, keys, {**node, name: 0})).encode(), ".".join(map(str, keys)), name)

    return make


def _doubled(reader: Reader, data: bytes) -> Iterator[Variant]:
    """The first key of an object twice."""
    tree = _tree(reader, data)
    for keys in _places([tree], lambda v: isinstance(v, dict) and bool(v), 20):
        node: Any = [tree]
        for k in keys:
            node = node[k]
        key, value = next(iter(node.items()))
        renamed = _replaced([tree], keys, {_MARK: value, **node})[0]
        yield Variant(_text(reader, renamed).replace(_MARK, key).encode(), f"{key} twice", key)


def _lists(change: Callable[[list[Any]], list[Any]]) -> Callable[[Reader, bytes], Iterator[Variant]]:
    def make(reader: Reader, data: bytes) -> Iterator[Variant]:
        tree = _tree(reader, data)
        for keys in _places([tree], lambda v: isinstance(v, list), 24):
            node: Any = [tree]
            for k in keys:
                node = node[k]
            yield Variant(_text(reader, _replaced([tree], keys, change(node))[0]).encode(), ".".join(map(str, keys)), _name(keys))

    return make


def _top(*values: Any) -> Callable[[Reader, bytes], Iterator[Variant]]:
    def make(reader: Reader, data: bytes) -> Iterator[Variant]:
        for value in values:
            yield Variant(json.dumps(value).encode() + b"\n", f"the document is {value!r}")

    return make


def _nested(opening: bytes, closing: bytes) -> Callable[[Reader, bytes], Iterator[Variant]]:
    def make(reader: Reader, data: bytes) -> Iterator[Variant]:
        depth = 100_000
        yield Variant(opening * depth + b"1" + closing * depth)
        if reader.family in TREES:
            yield Variant(opening * depth)

    return make


def _versions(reader: Reader, data: bytes) -> Iterator[Variant]:
    """Formats and versions that nobody knows."""
    tree = _tree(reader, data)
    for keys in _places(tree, lambda v: isinstance(v, str) and re.search(r"\.v\d|^\d+\.\d+", v) is not None, 4):
        for value in ("commcanary.unheard_of.v99", "99.0", ""):
            yield Variant(_text(reader, _replaced(tree, keys, value)).encode(), f"{'.'.join(map(str, keys))} = {value!r}", _name(keys))


def _cycles(reader: Reader, data: bytes) -> Iterator[Variant]:
    """References to themselves: a node that depends on itself, a group that holds itself, and pickles that contain themselves."""
    if reader.family in TREES:
        tree = _tree(reader, data)
        for keys in _places(tree, lambda v: _is_number(v) and isinstance(v, int), 24):
            if _name(keys) in ("ctrl_deps", "id", "tid", "data_deps", "group", "pg_id", "program", "correlation", "External id"):
                yield Variant(_text(reader, _replaced(tree, keys, 0)).encode(), ".".join(map(str, keys)))
    loop: list[Any] = []
    loop.append(loop)
    table: dict[str, Any] = {"version": "2.5", "entries": loop}
    table["pg_config"] = table
    for protocol in (0, 2, 4):
        yield Variant(pickle.dumps(loop, protocol))
        yield Variant(pickle.dumps(table, protocol))


_ANY = ("1e308", "1e999", "-1", "0.5", "2147483648", "9223372036854775808", "18446744073709551616", "1e17")
_DIGITS = "9" * 100_000

_TREES: tuple[Kind, ...] = (
    *(Kind(f"number {raw}", _literal(raw, _is_number), "any", TREES) for raw in _ANY),
    *(Kind(f"number {raw}", _literal(raw, _is_number), "any", TREES) for raw in ("NaN", "Infinity", "-Infinity")),
    Kind("number of 100,000 digits", _literal(_DIGITS, _is_number, 4), "any", TREES),
    Kind("fraction of 100,000 digits", _literal("0." + _DIGITS, _is_number, 4), "any", TREES),
    *(
        Kind(f"{name} for everything", _literal(raw, lambda v: True, 40), "any", TREES)
        for name, raw in (("null", "null"), ("text", '"x"'), ("list", "[]"), ("object", "{}"), ("true", "true"), ("[[null]]", "[[null]]"))
    ),
    Kind("huge texts", _literal('"' + "x" * MIB + '"', lambda v: isinstance(v, str), 6), "any", TREES),
    Kind("lone surrogates", _literal('"\\ud800"', lambda v: isinstance(v, str)), "any", TREES),
    Kind("NUL in texts", _literal('"a\\u0000b"', lambda v: isinstance(v, str)), "any", TREES),
    Kind("markup in texts", _literal('"<script>alert(1)</script>\\u202e\\u001b[2J"', lambda v: isinstance(v, str)), "any", TREES),
    Kind("empty texts", _literal('""', lambda v: isinstance(v, str)), "any", TREES),
    Kind("missing fields", _without, "any", TREES),
    Kind("unknown fields", _more("unheard_of"), "any", TREES),
    Kind("field named __class__", _more("__class__"), "any", TREES),
    Kind("duplicate keys", _doubled, "any", TREES),
    Kind("shorter lists", _lists(lambda v: v[:-1]), "any", TREES),
    Kind("longer lists", _lists(lambda v: [*v, v[-1]] if v else [0]), "any", TREES),
    Kind("reversed lists", _lists(lambda v: v[::-1]), "any", TREES),
    Kind("lists of 2,000", _lists(lambda v: (v or [0]) * (2_000 // max(1, len(v)))), "any", ("json",)),
    Kind("other documents", _top(None, 1, "x", True, [], {}, [[]], [None], {"a": 1}, -0.0), "any", TREES),
    Kind("lists nested 100,000 deep", _nested(b"[", b"]"), "refused", TREES),
    Kind("objects nested 100,000 deep", _nested(b'{"a":', b"}"), "refused", TREES),
    Kind("values nested 100,000 deep", _literal("[" * 100_000 + "]" * 100_000, lambda v: True, 4), "any", TREES),
    Kind("unknown versions", _versions, "any", TREES),
)

# -- lines ------------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?")


def _tokens(raw: bytes, most: int = 24) -> Callable[[Reader, bytes], Iterator[Variant]]:
    """Replace numbers of a text by something else."""

    def make(reader: Reader, data: bytes) -> Iterator[Variant]:
        found = list(_NUMBER.finditer(data))
        for m in found[:: max(1, -(-len(found) // most))]:
            yield Variant(data[: m.start()] + raw + data[m.end() :], f"byte {m.start()} = {raw[:40]!r}")

    return make


def _words(change: Callable[[bytes], bytes], most: int = 24) -> Callable[[Reader, bytes], Iterator[Variant]]:
    def make(reader: Reader, data: bytes) -> Iterator[Variant]:
        found = list(re.finditer(rb"[A-Za-z_][\w-]*", data))
        for m in found[:: max(1, -(-len(found) // most))]:
            yield Variant(data[: m.start()] + change(m.group()) + data[m.end() :], f"byte {m.start()}")

    return make


def _reordered(change: Callable[[list[bytes], int], list[bytes]]) -> Callable[[Reader, bytes], Iterator[Variant]]:
    def make(reader: Reader, data: bytes) -> Iterator[Variant]:
        lines = data.splitlines(keepends=True)
        for i in range(0, len(lines), max(1, len(lines) // 12)):
            yield Variant(b"".join(change(list(lines), i)), f"line {i + 1}")

    return make


_LINES = (
    *(
        Kind(f"number {raw.decode()[:24]} in a line", _tokens(raw), "any", ("text", "toml"))
        for raw in (
            b"-1",
            b"2147483648",
            b"9223372036854775808",
            b"18446744073709551616",
            b"1e308",
            b"1e999",
            b"nan",
            b"inf",
            b"0x",
            b"",
            b"0",
        )
    ),
    Kind("number of 100,000 digits in a line", _tokens(b"9" * 100_000, 4), "any", ("text", "toml")),
    Kind("missing words", _words(lambda w: b""), "any", ("text", "toml")),
    Kind("huge words", _words(lambda w: w * (MIB // len(w)), 4), "any", ("text", "toml")),
    Kind("words with NUL", _words(lambda w: w[:1] + b"\0" + w[1:]), "any", ("text", "toml")),
    Kind("missing lines", _reordered(lambda x, i: x[:i] + x[i + 1 :]), "any", ("text", "jsonl", "toml")),
    Kind("double lines", _reordered(lambda x, i: x[: i + 1] + x[i:]), "any", ("text", "jsonl", "toml")),
    Kind("torn lines", _reordered(lambda x, i: [*x[:i], x[i][: len(x[i]) // 2] + b"\n", *x[i + 1 :]]), "any", ("text", "jsonl", "toml")),
    Kind("swapped lines", _reordered(lambda x, i: [*x[i:], *x[:i]]), "any", ("text", "jsonl", "toml")),
    Kind("no line ends", lambda r, d: iter([Variant(d.replace(b"\n", b" "))]), "any", ("text", "jsonl", "toml")),
    Kind("old line ends", lambda r, d: iter([Variant(d.replace(b"\n", b"\r"))]), "any", ("text", "jsonl", "toml")),
    Kind("a key of 100,000 parts", lambda r, d: iter([Variant(b"a" + b".a" * 100_000 + b" = 1\n")]), "refused", ("toml",)),
    Kind("a list nested 100,000 deep", lambda r, d: iter([Variant(b"a = " + b"[" * 100_000)]), "refused", ("toml",)),
    Kind("tables nested 100,000 deep", lambda r, d: iter([Variant(b"[" + b"a." * 100_000 + b"a]\n")]), "refused", ("toml",)),
    Kind("the same key twice", lambda r, d: iter([Variant(d + b"\nzz = 1\nzz = 2\n")]), "refused", ("toml",)),
    Kind("a date", _tokens(b"1979-05-27T07:32:00Z"), "any", ("toml",)),
    Kind("a table", _tokens(b"{ a = 1 }"), "any", ("toml",)),
    Kind("a text", _tokens(b'"x"'), "any", ("toml",)),
    Kind("a truth", _tokens(b"true"), "any", ("toml",)),
)

#: Every kind of damage to the content of a file.
KINDS: tuple[Kind, ...] = (
    *(Kind(name, _one(change), expect, families or Kind.families) for name, (change, expect, families) in _BYTES.items()),
    Kind("tar with names that leave", _slips, "any"),
    Kind("gzip", _broken_gzip),
    Kind("a line of 50 MB", _line),
    Kind("references to themselves", _cycles),
    Kind("flipped bits", _flips),
    Kind("overwritten with ones", _overwritten(b"\xff" * 8)),
    Kind("overwritten with zeros", _overwritten(b"\0" * 8)),
    Kind("overwritten with 2^31", _overwritten(b"\0\0\0\x80\0\0\0\0"), "any", ("binary",)),
    Kind("overwritten with 2^62", _overwritten(b"\0\0\0\0\0\0\0\x40"), "any", ("binary",)),
    *_TREES,
    *_LINES,
)

#: Names of kinds, for selections.
BYTES = {k.name: k for k in KINDS}


def variants(reader: Reader, kind: Kind) -> list[Variant]:
    """Damaged files of a kind; none where the kind does not apply."""
    data = reader.sample
    return [v for v in kind.make(reader, data) if v.data != data or kind.expect == "same"] if reader.family in kind.families else []


# -- no files ---------------------------------------------------------------------------------------------------------


def _directory(path: Path) -> None:
    path.mkdir()


def _dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def _itself(path: Path) -> None:
    path.symlink_to(path)


def _socket(path: Path) -> None:
    s = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        s.bind(path.name)
    finally:
        os.chdir(here)
        s.close()


#: What stands in place of the file, and a part of the message about it.
PLACES: dict[str, tuple[Callable[[Path], None], str]] = {
    "nothing": (lambda p: None, "does not exist|No such file"),
    "a directory": (_directory, "directory"),
    "a link to nothing": (_dangling, "does not exist|No such file"),
    "a link to itself": (_itself, "does not exist|symbolic links"),
    "a named pipe": (lambda p: os.mkfifo(p), "neither a file|named pipe"),
    "a socket": (_socket, "neither a file|socket|No such device"),
    "a link to /dev/zero": (lambda p: p.symlink_to("/dev/zero"), "neither a file|device"),
    "a link to /dev/tty": (lambda p: p.symlink_to("/dev/tty"), "neither a file|device|No such"),
}
