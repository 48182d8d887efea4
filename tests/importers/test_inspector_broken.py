"""Damaged and impossible Inspector output ends in a typed error with file and line, or in a warning; never in silence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.cli import run
from commcanary_lab.errors import InputError, LabError, MergeError, RefusedError
from commcanary_lab.importers import inspector, inspector_prom
from commcanary_lab.importers.open import open_trace
from commcanary_lab.limits import Limits
from tests.importers.inspector_lines import HEADER, METADATA, collective, header, line, message, write

GOOD = line(collective(sn=7))


def changed(where: str, key: str, value: Any) -> dict[str, Any]:
    """A sound record with one value that is not."""
    record = json.loads(json.dumps(GOOD))
    record[where][key] = value
    return record


def without(where: str, key: str | None = None) -> dict[str, Any]:
    record = json.loads(json.dumps(GOOD))
    if key is None:
        del record[where]
    else:
        del record[where][key]
    return record


#: name -> a record, and what the message about it says.
RECORDS: dict[str, tuple[dict[str, Any], str]] = {
    "no header": (without("header"), "header"),
    "header is a list": ({**GOOD, "header": []}, "expected object"),
    "header is null": ({**GOOD, "header": None}, "expected object"),
    "no rank": (without("header", "rank"), "rank"),
    "rank is text": (changed("header", "rank", "0"), "header.rank"),
    "rank is a fraction": (changed("header", "rank", 0.5), "header.rank"),
    "rank is null": (changed("header", "rank", None), "header.rank"),
    "rank is true": (changed("header", "rank", True), "header.rank"),
    "rank below 0": (changed("header", "rank", -1), "rank -1 of 2"),
    "rank beyond the communicator": (changed("header", "rank", 2), "rank 2 of 2"),
    "no n_ranks": (without("header", "n_ranks"), "n_ranks"),
    "no ranks": (changed("header", "n_ranks", 0), "0 ranks"),
    "ranks below 0": (changed("header", "n_ranks", -2), "-2 ranks"),
    "too many ranks": (changed("header", "n_ranks", 1 << 40), "exceeds the limit"),
    "more nodes than ranks": (changed("header", "nnodes", 3), "2 ranks on 3 nodes"),
    "nodes below 0": (changed("header", "nnodes", -1), "2 ranks on -1 nodes"),
    "id is a number": (changed("header", "id", 7), "header.id"),
    "a name of a megabyte": (changed("header", "comm_name", "x" * (1 << 20)), "too long"),
    "metadata is text": ({**GOOD, "metadata": "n1"}, "metadata"),
    "pid is text": (changed("metadata", "pid", "77"), "metadata.pid"),
    "pid out of range": (changed("metadata", "pid", 1 << 70), "are both rank 0"),
    "dump time out of range": (changed("metadata", "dump_timestamp_us", 1 << 64), "out of range"),
    "host is a number": (changed("metadata", "hostname", 1), "metadata.hostname"),
    "payload is a list": ({**GOOD, "coll_perf": []}, "coll_perf"),
    "no operation": (without("coll_perf", "coll"), "coll"),
    "operation is a number": (changed("coll_perf", "coll", 3), "coll_perf.coll"),
    "operation without a name": (changed("coll_perf", "coll", " "), "without a name"),
    "no sequence number": (without("coll_perf", "coll_sn"), "coll_sn"),
    "sequence number below 0": (changed("coll_perf", "coll_sn", -1), "coll_sn"),
    "sequence number out of range": (changed("coll_perf", "coll_sn", 1 << 63), "out of range"),
    "no size": (without("coll_perf", "coll_msg_size_bytes"), "coll_msg_size_bytes"),
    "size is text": (changed("coll_perf", "coll_msg_size_bytes", "16384"), "coll_msg_size_bytes"),
    "size is a fraction": (changed("coll_perf", "coll_msg_size_bytes", 0.5), "coll_msg_size_bytes"),
    "time is a word": (changed("coll_perf", "coll_exec_time_us", "soon"), "'soon' is not a number"),
    "time is a list": (changed("coll_perf", "coll_exec_time_us", [20]), "coll_exec_time_us"),
    "bandwidth is a word": (changed("coll_perf", "coll_busbw_gbs", "fast"), "'fast' is not a number"),
    "event times are a list": (changed("coll_perf", "event_trace_ts", [1]), "event_trace_ts"),
    "kernel events are an object": (changed("coll_perf", "event_trace_ts", {"kernel_events": {}}), "kernel_events"),
    "a kernel start is text": (changed("coll_perf", "event_trace_ts", {"kernel_events": [{"kernel_start_ts": "x"}]}), "kernel_start_ts"),
    "peer is missing": (line({"p2p": "Send", "p2p_msg_size_bytes": 8}), "p2p_peer"),
    "peer beyond the communicator": (line(message(peer=2)), "p2p_peer"),
    "peer below 0": (line(message(peer=-1)), "p2p_peer"),
    "two payloads": ({**GOOD, "p2p_perf": message()}, "more than one payload"),
    "drops below 0": ({"header": HEADER, "metadata": METADATA, "dump_stats": {"coll_dropped_total": -1}}, "below 0"),
    "drops are text": ({"header": HEADER, "metadata": METADATA, "dump_stats": {"coll_dropped_total": "4"}}, "coll_dropped_total"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_impossible_records_are_refused_with_their_line(tmp_path: Path, name: str) -> None:
    record, says = RECORDS[name]
    path = write(tmp_path / "n1.log", line(collective(sn=1)), record, line(collective(sn=9)))
    with pytest.raises(LabError) as e:
        open_trace(path)
    assert e.value.exit_code == 3
    assert str(path) in str(e.value)
    assert says in str(e.value)
    if "limit" not in says:
        assert all(p.line == 2 for p in e.value.problems)
        assert all(p.remedy for p in e.value.problems)


ONE = (json.dumps(GOOD) + "\n").encode()
TWO = (json.dumps(line(collective(sn=8))) + "\n").encode()

#: name -> bytes, and what the message says.
DAMAGE: dict[str, tuple[bytes, str]] = {
    "torn in the middle": (ONE + TWO[:90] + b"\n" + TWO, "line 2: not a line of JSON"),
    "two records on a line": (ONE + TWO.strip() + TWO, "line 2: not a line of JSON"),
    "text between": (ONE + b"slurmstepd: error\n" + TWO, "line 2: not a line of JSON"),
    "zeros between": (ONE + b"\0" * 64 + b"\n" + TWO, "line 2"),
    "not UTF-8": (ONE + TWO.replace(b"n1", b"\xff1") + TWO, "line 2"),
    "a number as a line": (ONE + b"7\n" + TWO, "line 2: expected object"),
    "a list of numbers": (b"[" + ONE + b", 7]", "expected object"),
    "only a torn record": (ONE[:-30], "no record in it is complete"),
    "a document that ends early": (json.dumps(GOOD, indent=1).encode()[:-9], "not JSON"),
    "a document with a comma too many": (json.dumps(GOOD, indent=1).encode().replace(b"77", b"77,,"), "not JSON"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused(tmp_path: Path, name: str) -> None:
    data, says = DAMAGE[name]
    path = tmp_path / "n1.log"
    path.write_bytes(data)
    with pytest.raises(InputError) as e:
        open_trace(path)
    assert says in str(e.value)
    assert "n1.log" in str(e.value)


def test_many_bad_lines_are_listed_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "n1.log"
    path.write_bytes(ONE + b"x\n" * 500)
    with pytest.raises(InputError) as e:
        open_trace(path)
    assert 20 <= len(e.value.problems) < 30
    assert "more" in str(e.value)


#: name -> lines, and the error.
CONTRADICTIONS: dict[str, tuple[list[dict[str, Any]], type[LabError], str]] = {
    "one rank twice": ([GOOD, GOOD], MergeError, "rank 0 contributes twice"),
    "two processes are one rank": ([GOOD, line(collective(sn=8), pid=78)], MergeError, "n1 pid 77 and n1 pid 78 are both rank 0"),
    "sizes differ": ([GOOD, line(collective(sn=7, size=8), header(rank=1), pid=78)], MergeError, "rank 0 says size_bytes 16384"),
    "a process is two ranks": (
        [line(collective(), header(comm_name="TP Group 0")), line(collective(), header(id="0xb", comm_name="TP Group 1"))],
        InputError, "would be both rank 0 and rank 2",
    ),
    "two processes are one global rank": (
        [line(collective(), header(comm_name="TP Group 0")), line(collective(), header(id="0xb", comm_name="TP Group 0"), pid=78)],
        InputError, "n1 pid 77 and n1 pid 78 would both be rank 0",
    ),
    "nobody says who is in it": ([GOOD, line(collective(), header(id="0xb", n_ranks=4, nnodes=2), pid=78)], RefusedError, "--layout FILE"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_refused(tmp_path: Path, name: str) -> None:
    lines, kind, says = CONTRADICTIONS[name]
    with pytest.raises(kind) as e:
        open_trace(write(tmp_path / "n1.log", *lines))
    assert says in str(e.value)
    assert e.value.exit_code == 3


def test_the_command_exits_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "n1.log", RECORDS["rank below 0"][0])
    assert run(["traffic", str(path), "--json"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "rank -1 of 2" in err


def test_limits(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.log", *[line(collective(sn=i)) for i in range(9)])
    for limits in (Limits(max_events=8), Limits(max_file_bytes=100), Limits(max_groups=0), Limits(max_members=1), Limits(max_files=0)):
        with pytest.raises(LabError, match="limit"):
            inspector.read([path], limits=limits)


# -- what is passed over with a warning -------------------------------------------------------------------------------


def cut_gzip(path: Path) -> None:
    path.write_bytes(
        gzip.compress(ONE + TWO * 1 + b"".join(ONE.replace(b'"coll_sn": 7', b'"coll_sn": %d' % i) for i in range(20, 90)))[:-60]
    )


#: name -> writer, used records, and what a warning says.
WARNED: dict[str, tuple[Callable[[Path], object], int | None, str]] = {
    "torn last line": (lambda p: p.write_bytes(ONE + TWO[:-9]), 1, "line 2: the last record is cut short"),
    "torn last line and zeros": (lambda p: p.write_bytes(ONE + TWO[:-9] + b"\0" * 512), 1, "line 2: the last record is cut short"),
    "torn last line with a newline": (lambda p: p.write_bytes(ONE + TWO[:-9] + b"\n"), 1, "line 2: the last record is cut short"),
    "cut gzip": (cut_gzip, None, "cut short"),
    "bare nan": (lambda p: p.write_bytes(ONE.replace(b": 20,", b": nan,")), 1, "bare nan"),
    "bare -inf": (lambda p: p.write_bytes(ONE.replace(b": 20,", b": -inf,")), 1, "bare nan or inf"),
    "wrapped size": (lambda p: write(p, GOOD, line(collective(sn=8, size=(1 << 64) - 4096))), 1, "wrapped around 2^64"),
    "size that overflows as a whole": (lambda p: write(p, GOOD, line(collective("AllGather", size=1 << 61))), 1, "wrapped around 2^64"),
    "time below 0": (lambda p: write(p, line(collective(us=-3))), 1, "below 0"),
    "wrapped time": (lambda p: write(p, line(collective(us=(1 << 64) - 20))), 1, "below 0 or beyond a year"),
    "documents that end early": (
        lambda p: p.write_bytes(json.dumps(GOOD, indent=1).encode() + b"\n" + json.dumps(GOOD, indent=1).encode()[:-20]), 1, "cut short",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WARNED)
def test_what_can_be_passed_over_is_said(tmp_path: Path, name: str) -> None:
    make, used, says = WARNED[name]
    path = tmp_path / "n1.log"
    make(path)
    trace = inspector.read([path])
    assert any(says in w for w in trace.warnings), trace.warnings
    assert used is None or trace.coverage.used == used == len(trace)
    assert trace.coverage.read == trace.coverage.used + sum(trace.coverage.skipped.values())
    assert trace.size_bytes.tolist() == [16384] * len(trace)


def test_wrapped_sizes_stay_out_of_totals(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "n1.log", GOOD, line(collective(sn=8, size=(1 << 64) - 4096))))
    (row,) = trace.unsized
    assert (row.name, row.time_ns, row.size_bytes, row.rank) == ("AllReduce", 20_000, None, 0)
    assert int(trace.size_bytes.sum()) == 16384


@pytest.mark.parametrize(
    "text", ["nccl_bus_bandwidth_gbs{nranks=8} 1", 'nccl_bus_bandwidth_gbs{nranks="8"} fast', 'nccl_bus_bandwidth_gbs{nranks="8"', "\0"]
)
def test_broken_prometheus_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.prom"
    path.write_text('nccl_bus_bandwidth_gbs{nranks="8"} 1\n' + text + "\n")
    with pytest.raises(InputError, match="line 2"):
        inspector_prom.read_latency_table(path)
