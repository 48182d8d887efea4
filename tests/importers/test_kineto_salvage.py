"""Damaged and odd files: a typed error that says where, or a result with a visible warning; never anything else."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.errors import FormatError, InputError, LabError, LimitError
from commcanary_lab.importers import kineto
from commcanary_lab.importers._text import peek, read_source
from commcanary_lab.limits import Limits
from commcanary_lab.trace.model import Trace

CASES = Path(__file__).parent.parent / "data" / "cases"

META: dict[str, Any] = {
    "Collective name": "allreduce",
    "dtype": "Float",
    "In msg nelems": 8,
    "Out msg nelems": 8,
    "Group size": 2,
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1]",
}
INFO = {"backend": "nccl", "rank": 0, "world_size": 2}


def record(ts: object = 1.0, dur: object = 2.0, **meta: object) -> dict[str, Any]:
    args = {**META, **{k.replace("_", " "): v for k, v in meta.items()}}
    return {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def text(*events: object, info: object = INFO, **top: object) -> str:
    return json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": list(events), **top}, indent=1)


GOOD = text(record(1.0), record(4.0), record(7.0))


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str | bytes], Trace]:
    def load(content: str | bytes, name: str = "t.json", **options: Any) -> Trace:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return kineto.read([path], **options)

    return load


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "empty file": (b"", "the file is empty"),
    "only white space": (b"  \n ", "line 2"),
    "not JSON": ("hello\nworld", "line 1"),
    "a log": ("NCCL INFO AllReduce: opCount 0\n", "line 1"),
    "a number": ("17", "neither an object nor a list"),
    "a string": ('"traceEvents"', "neither an object nor a list"),
    "no events": ('{"schemaVersion": 1}', "no traceEvents"),
    "events are an object": ('{\n"traceEvents": {"a": 1}}', "line 2: traceEvents is not a list"),
    "events are null": ('{"traceEvents": null}', "no traceEvents"),
    "two event lists": ('{"traceEvents": [],\n "traceEvents": [{}]}', "line 2: traceEvents occurs 2 times"),
    "an unquoted word": (GOOD.replace('"Float"', "Float", 1), "line 19"),
    "Python literals": (GOOD.replace('"rank": 0', '"rank": None'), "line 5"),
    "single quotes": (GOOD.replace('"cat"', "'cat'", 1), "line 11"),
    "text after the end": (GOOD + "\nextra", "line"),
    "NUL bytes in the middle": (GOOD[:200].encode() + b"\0" * 64 + GOOD[200:].encode(), "line"),
    "nested too deeply": ('{"traceEvents": [{"args": ' + "[" * 100_000 + "]" * 100_000 + "}]}", "nested too deeply"),
    "a leading zero": (GOOD.replace('"ts": 4.0', '"ts": 04.0'), "line"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(40), "zstd"),
    "a zip file": (b"PK\x03\x04" + bytes(40), "zip"),
    "gzip header only": (gzip.compress(GOOD.encode())[:12], "gzip data ends early"),
    "gzip of nothing": (gzip.compress(b""), "empty inside its gzip"),
}


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_refused_with_file_and_place(kind: str, load: Callable[[str | bytes], Trace]) -> None:
    content, where = REFUSED[kind]
    with pytest.raises(FormatError) as e:
        load(content)
    assert "t.json" in str(e.value)
    assert where in str(e.value)
    assert len(str(e.value)) < 400


SALVAGED: dict[str, tuple[str | bytes, str, int]] = {
    "byte order mark": (b"\xef\xbb\xbf" + GOOD.encode(), "byte order mark", 3),
    "UTF-16": (GOOD.encode("utf-16"), "UTF-16", 3),
    "Latin-1": (GOOD.replace("record_param_comms", "caf\xe9", 1).encode("latin-1"), "line 12: bytes that are not UTF-8", 2),
    "NaN": (GOOD.replace('"Float"', "NaN", 1), "bare NaN read as null", 2),
    "minus infinity": (GOOD.replace('"dur": 2.0', '"dur": -inf', 1), "bare -inf read as null", 3),
    "Windows not-a-number": (GOOD.replace('"dur": 2.0', '"dur": -1.#IND', 1), "bare -1.#IND read as null", 3),
    "control character": (GOOD.replace('"nccl"', '"nc\x02cl"'), "control character", 3),
    "raw newline in a string": (GOOD.replace('"nccl"', '"nc\ncl"'), "raw newline in a string", 3),
    "bad backslash": (GOOD.replace('"nccl"', '"C:\\_x"'), "backslashes that start no escape", 3),
    "half a surrogate pair": (GOOD.replace('"nccl"', '"\\ud800"'), "half a surrogate pair", 3),
    "comma before the end of the list": (GOOD.replace("}\n ]\n}", "},\n ]\n}"), "comma before a closing bracket", 3),
    "cut inside an event": (GOOD[: GOOD.rindex('"dtype"')], "the file ends early; the 2 complete events", 2),
    "cut inside a string": (GOOD[: GOOD.rindex("oat")], "the file ends early; the 2 complete events", 2),
    "cut between events": (GOOD[: GOOD.rindex('{\n   "ph"')], "the file ends early; the 2 complete events", 2),
    "cut before the last bracket": (GOOD[:-1].rstrip(), "the file ends early; the 3 complete events", 3),
    "gzip checksum": (gzip.compress(GOOD.encode())[:-8] + b"\1" * 8, "gzip data is damaged", 3),
    "garbage after gzip": (gzip.compress(GOOD.encode()) + b"junk", "after the end of the gzip data", 3),
    "entries that are no events": (text(None, 5, record(), [], "x"), "entries of traceEvents that are not events are left out", 1),
    "an event with a number beyond float": (GOOD.replace('"tid": 1', '"tid": 1e999', 1), "entries of traceEvents", 2),
    "distributedInfo is a list": (text(record(), info=[1]), "distributedInfo is not an object", 1),
    "rank is text": (text(record(), info={"rank": "zero"}), "taken as rank 0", 1),
    "base is no time": (text(record(), baseTimeNanoseconds="soon"), "baseTimeNanoseconds is soon", 1),
    "base beyond int64": (text(record(), baseTimeNanoseconds=10**30), "baseTimeNanoseconds is 1000", 1),
    "rank outside the world": (
        text(record(), info={"rank": 0, "world_size": 0, "pg_config": [{"pg_name": "9", "ranks": "all"}]}),
        "the entry of group 9 has no usable rank list",
        1,
    ),
    "ts is missing": (text({**record(), "ts": None}, record()), "ts: null is not a time", 1),
    "ts is text": (text(record(ts="later"), record()), 'ts: "later" is not a time', 1),
    "ts is beyond time": (text(record(ts=10**40), record()), "beyond the range of times", 1),
    "dur is missing": (text(record(dur=None), record()), "dur: missing", 2),
    "dur is negative": (text(record(dur=-3), record()), "negative", 2),
    "dur is a list": (text(record(dur=[1]), record()), "dur: [ 1 ] is not a time", 2),
    "sizes are text": (text(record(In_msg_nelems="many"), record()), "In msg nelems is 'many'", 1),
    "sizes are negative": (text(record(In_msg_nelems=-4), record()), "In msg nelems is -4", 1),
    "sizes are lists": (text(record(Out_msg_nelems=[8]), record()), "Out msg nelems is [8]", 1),
    "sizes are fractions": (text(record(In_msg_nelems=8.5), record()), "In msg nelems is 8.5", 1),
    "sizes are absurd": (text(record(In_msg_nelems=10**25), record()), "In msg nelems is 1000", 1),
    "the name is a number": (text(record(Collective_name=7), record()), "Collective name is 7", 1),
    "the group is a list": (text(record(Process_Group_Name=[1]), record()), "Process Group Name is [1]", 1),
    "ranks are words": (text(record(Process_Group_Ranks="[a, b]"), record()), "Process Group Ranks is '[a, b]'", 1),
    "args is a list": (text({**record(), "args": []}, record()), "args is not an object", 1),
    "a key with two values": (
        GOOD.replace('"In msg nelems": 8,', '"In msg nelems": 8, "In msg nelems": 9,', 1),
        "In msg nelems occurs twice",
        2,
    ),
}


@pytest.mark.parametrize("kind", sorted(SALVAGED))
def test_salvaged_with_a_warning(kind: str, load: Callable[[str | bytes], Trace]) -> None:
    content, warning, events = SALVAGED[kind]
    trace = load(content)
    assert any(warning in w and "t.json" in w for w in trace.warnings), trace.warnings
    assert len(trace) == events
    assert set(trace.size_bytes.tolist()) == {32}
    coverage = trace.coverage
    assert coverage.read == coverage.used + sum(coverage.skipped.values())


REASONS: dict[str, tuple[dict[str, object], str, int | None]] = {
    "cut list without anything else": ({"Process_Group_Ranks": "[0, ...]", "Group_size": 64}, "members unknown", 32),
    "group size contradicts the list": ({"Group_size": 3}, "members unknown: the group size is 3", 32),
    "own rank is not a member": ({"Process_Group_Ranks": "[1, 2]"}, "members unknown: rank", 32),
    "a rank twice": ({"Process_Group_Ranks": "[0, 0]"}, "members unknown", 32),
    "dtype nobody knows": ({"dtype": "Undefined"}, "dtype unknown: Undefined", None),
    "no element count": ({"In_msg_nelems": None}, "size missing: In msg nelems", None),
    "all_gather that does not add up": ({"Collective_name": "_allgather_base"}, "sizes contradict", 32),
    "reduce_scatter that does not add up": ({"Collective_name": "reduce_scatter"}, "sizes contradict", 32),
    "a send to nobody": ({"Collective_name": "send"}, "peer unknown: the event has no Dst Rank", 32),
    "a send to a stranger": ({"Collective_name": "send", "Dst_Rank": 9}, "peer unknown: rank 9", 32),
    "a send of another rank": ({"Collective_name": "send", "Dst_Rank": 1, "Src_Rank": 1}, "peer unknown: send of rank 1", 32),
}


@pytest.mark.parametrize("kind", sorted(REASONS))
def test_kept_as_an_unsized_row_with_its_reason(kind: str, load: Callable[[str | bytes], Trace]) -> None:
    meta, reason, size = REASONS[kind]
    trace = load(text(record(1.0, 2.5, **meta), record(4.0)))
    assert len(trace) == 1
    (row,) = trace.unsized
    assert row.reason.startswith(reason)
    assert row.size_bytes == size
    assert row.time_ns == 2500
    assert row.start_ns == 1000
    assert row.rank == 0
    assert (trace.coverage.read, trace.coverage.used) == (2, 1)


def test_salvage_can_be_forbidden(tmp_path: Path) -> None:
    for content in (SALVAGED["NaN"][0], SALVAGED["byte order mark"][0], gzip.compress(GOOD.encode())[:-60], SALVAGED["Latin-1"][0]):
        path = tmp_path / "t.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(FormatError, match=r"t\.json"):
            kineto.read_rank(path, salvage=False)


def test_gzip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 20_000_000 + b"]}"))
    assert path.stat().st_size < 50_000
    with pytest.raises(LimitError, match="COMMCANARY_LAB_MAX_FILE_BYTES"):
        kineto.read([path], limits=Limits(max_file_bytes=1_000_000))


def test_too_many_collectives_are_refused(load: Callable[..., Trace]) -> None:
    with pytest.raises(LimitError, match="COMMCANARY_LAB_MAX_EVENTS"):
        load(GOOD, limits=Limits(max_events=2))


def test_missing_file_and_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match=r"cannot be read|is a directory, not a file"):
            kineto.read([path])
    with pytest.raises(InputError, match="cannot be read"):
        peek(tmp_path / "none.json")


def test_cut_gzip_keeps_the_complete_events(load: Callable[[str | bytes], Trace]) -> None:
    whole = text(*(record(3.0 * i, 1.0 + i % 7) for i in range(400)))
    trace = load(gzip.compress(whole.encode())[:-600])
    assert 0 < len(trace) < 400
    assert any("gzip data ends early" in w for w in trace.warnings)
    assert any(f"the {len(trace)} complete events" in w for w in trace.warnings)


def test_gzip_members_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(GOOD[:100].encode()) + gzip.compress(GOOD[100:].encode()) + b"\0\0")
    assert read_source(path).data == GOOD.encode()
    assert read_source(path).warnings == ()
    assert len(kineto.read([path])) == 3
    assert peek(path, 10) == GOOD.encode()[:10]


def test_bytes_in_a_long_file_keep_their_lines(load: Callable[[str | bytes], Trace]) -> None:
    filler = "\n".join('{"ph": "X", "cat": "x", "name": "n", "ts": 1, "dur": 1, "args": {}},' for _ in range(5000))
    head, _, tail = GOOD.partition('"traceEvents": [')
    content = head + '"traceEvents": [\n' + filler + "\n" + '{"ph": "X", "cat": "y", "name": "a", "bw": inf},' + tail
    line = content[: content.index("inf}")].count("\n") + 1
    assert any(f"line {line}: bare inf" in w for w in load(content).warnings)


@pytest.mark.parametrize("seed", range(6))
def test_random_damage_never_ends_in_another_exception(seed: int, tmp_path: Path) -> None:
    """Flip, cut, double and insert bytes anywhere: the outcome is a trace or a typed error."""
    rng = random.Random(seed)
    sources = [p.read_bytes() for p in sorted(CASES.glob("P*.json"))] + [GOOD.encode()]
    outcomes = set()
    for _ in range(250):
        data = bytearray(rng.choice(sources))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1) if data else 0
            kind = rng.randrange(5)
            if kind == 0 and at < len(data):
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at : at + rng.randint(1, 40)]
            elif kind == 2:
                data[at:at] = data[at : at + rng.randint(1, 60)]
            elif kind == 3:
                data[at:at] = rng.choice(
                    [b"NaN", b"-inf", b"\\", b'"', b"\0", b"\xff", b"null", b"1e999", b"-1", b"{}", b"[]", b",", b"9" * 30]
                )
            else:
                del data[at:]
        path = tmp_path / "t.json"
        path.write_bytes(data)
        try:
            trace = kineto.read([path])
        except LabError as e:
            outcomes.add(type(e).__name__ if "t.json" in str(e) else f"error without its file: {e}")
        else:
            coverage = trace.coverage
            outcomes.add("trace" if coverage.read == coverage.used + sum(coverage.skipped.values()) else "coverage that does not add up")
    assert outcomes == {"trace", "FormatError"}
