"""NCCL Inspector output: shapes, sizes, times, messages, order, files."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab.errors import UsageError
from commcanary_lab.importers import inspector, inspector_files, inspector_prom
from commcanary_lab.importers.inspector_pack import COLUMNS, pack
from commcanary_lab.importers.inspector_table import Table
from commcanary_lab.importers.open import open_trace
from commcanary_lab.inspect import ops
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.records import RankCapture, Record
from commcanary_lab.traffic import build_matrix
from tests.importers.inspector_lines import collective, header, line, message, rank_line, starts, write

MIB = 1 << 20
JOB = Layout(tp=4, dp=2, gpus_per_node=4)
GENERATOR = Path(__file__).parents[1] / "bench" / "gen_inspector.py"


def job_of_eight(folder: Path, *, named: bool = True) -> Path:
    """Two nodes of four; per rank 24 all-reduces of 64 MiB in its node and one of 512 MiB with its twin."""
    folder.mkdir()
    for rank in range(8):
        tp = header(id=f"0xa{rank // 4}", rank=rank % 4, n_ranks=4, nnodes=1, **({"comm_name": f"TP Group {rank // 4}"} if named else {}))
        dp = header(id=f"0xb{rank % 4}", rank=rank // 4, n_ranks=2, nnodes=2, **({"comm_name": f"DP Group {rank % 4}"} if named else {}))
        about: dict[str, Any] = {"hostname": f"n{rank // 4}", "pid": 100 + rank}
        lines = [line(collective(sn=i, size=64 * MIB, us=2000 + rank), tp, **about) for i in range(24)]
        write(folder / f"n{rank // 4}-pid{100 + rank}.log", *lines, line(collective(sn=0, size=512 * MIB, us=9000), dp, **about))
    return folder


def events(trace: Trace) -> list[tuple[str | None, int, tuple[int, ...]]]:
    return [(trace.op.text(i), int(trace.size_bytes[i]), trace.observers_of(i)) for i in range(len(trace))]


@pytest.mark.parametrize("named", [True, False])
def test_job_of_eight(tmp_path: Path, named: bool) -> None:
    m = build_matrix(open_trace(job_of_eight(tmp_path / "job", named=named), layout=JOB))
    assert (m.records, m.payload_bytes, m.sum_bytes) == (200, 16384 * MIB, 22528 * MIB)
    links = {(x.src, x.dst): x.size_bytes / MIB for x in m.links()}
    ring = {(4 * node + i, 4 * node + (i + 1) % 4) for node in (0, 1) for i in range(4)}
    across = {(i, i + 4) for i in range(4)} | {(i + 4, i) for i in range(4)}
    assert links == {**dict.fromkeys(ring, 2304.0), **dict.fromkeys(across, 512.0)}
    assert m.source == "nccl_inspector"


def test_names_alone_give_the_same_matrix(tmp_path: Path) -> None:
    folder = job_of_eight(tmp_path / "job")
    assert build_matrix(open_trace(folder)).equals(build_matrix(open_trace(folder, layout=JOB)))


# -- sizes and names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coll", "op", "factor"),
    [("AllReduce", "all_reduce", 1), ("Broadcast", "broadcast", 1), ("Reduce", "reduce", 1), ("AllGather", "all_gather", 4),
     ("ReduceScatter", "reduce_scatter", 4), ("AlltoAll", "all_to_all", 4), ("Whatever", "Whatever", 1)],
)  # fmt: skip
def test_sizes(tmp_path: Path, coll: str, op: str, factor: int) -> None:
    trace = open_trace(write(tmp_path / "a.log", line(collective(coll, size=1000), header(n_ranks=4))))
    assert events(trace) == [(op, 1000 * factor, (0,))]
    assert bool(trace.custom_op[0]) == (op in ("reduce", "Whatever"))


def test_roots_are_unknown_and_their_traffic_unattributed(tmp_path: Path) -> None:
    m = build_matrix(open_trace(write(tmp_path / "a.log", line(collective("Broadcast", size=1000), header(n_ranks=4)))))
    assert m.sum_bytes == 0
    assert m.unattributed_bytes == 1000
    assert any("do not name roots" in n for n in m.notes)


def test_stated_algorithms_and_fractions_of_a_nanosecond_are_notes(tmp_path: Path) -> None:
    rows = [line(collective(sn=1, us=20.0004, coll_algo="Ring")), line(collective(sn=2, coll_algo="TREE"))]
    trace = open_trace(write(tmp_path / "a.log", *rows))
    assert "algorithms that the records state: AllReduce RING 1, AllReduce TREE 1" in trace.notes
    assert trace.duration_max_ns.values.tolist() == [20000, 20000]
    assert any("the largest change is 0.4 ns" in n for n in trace.notes)


def test_recorded_bandwidths_are_checked(tmp_path: Path) -> None:
    good = collective(sn=1, size=16384, us=20, coll_algobw_gbs=0.8192, coll_busbw_gbs=0.8192)
    trace = open_trace(write(tmp_path / "a.log", line(good), line({**good, "coll_sn": 2, "coll_busbw_gbs": 1.6384})))
    (warning,) = trace.warnings
    assert "1 record states another busbw" in warning
    assert "line 2 says 1.6384 GB/s, it is 0.8192 GB/s" in warning


# -- events of several ranks ------------------------------------------------------------------------------------------


def test_ranks_join_by_number_and_type(tmp_path: Path) -> None:
    rows = [rank_line(collective(op, sn, us=10 + rank), rank) for rank in (0, 1) for op, sn in (("AllReduce", 4), ("AllGather", 4))]
    trace = open_trace(write(tmp_path / "a.log", *rows))
    assert events(trace) == [("all_reduce", 16384, (0, 1)), ("all_gather", 32768, (0, 1))]
    assert trace.duration_ns.row(0).tolist() == [10_000, 11_000]
    assert not trace.arrival_known.any()


def test_a_time_that_one_rank_lacks_is_the_events_unknown_time(tmp_path: Path) -> None:
    rows = [rank_line(collective(sn=sn, us=0 if (rank, sn) == (1, 1) else 20), rank) for rank in (0, 1) for sn in (1, 2)]
    trace = open_trace(write(tmp_path / "a.log", *rows))
    assert trace.duration_max_ns.mask.tolist() == [False, True]
    assert any("1 of 2 events are measured on a part of their ranks" in n for n in trace.notes)


def test_messages_count_once(tmp_path: Path) -> None:
    rows = [rank_line(message("Send", 1, size), 0) for size in (8, 16, 8)] + [rank_line(message("Recv", 0, size), 1) for size in (8, 16, 8)]
    rows += [rank_line(message("Recv", 1, 32), 0), rank_line(message("Send", 0, 32), 1)]
    trace = open_trace(write(tmp_path / "a.log", *rows))
    assert {op for op, *_ in events(trace)} == {"point_to_point"}
    m = build_matrix(trace)
    assert {(x.src, x.dst): x.size_bytes for x in m.links()} == {(0, 1): 32.0, (1, 0): 32.0}
    assert m.records == 8


def test_lost_messages_are_those_of_one_end(tmp_path: Path) -> None:
    rows = [rank_line(message("Send", 1, size), 0) for size in (8, 16)] + [rank_line(message("Recv", 0, size), 1) for size in (16, 32)]
    trace = open_trace(write(tmp_path / "a.log", *rows))
    assert sorted(events(trace)) == [("point_to_point", 8, (0,)), ("point_to_point", 16, (0, 1)), ("point_to_point", 32, (1,))]


def test_messages_to_oneself_are_no_traffic(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "a.log", line(message(peer=0)), line(message(peer=1))))
    assert len(trace) == 1
    assert trace.coverage.skipped == {"message of a rank to itself": 1}


def test_the_merge_is_that_of_records(tmp_path: Path) -> None:
    """The same records through `merge_captures`, where each collective type has numbers of its own."""
    rng = random.Random(3)
    rows: dict[int, list[tuple[str, int]]] = {rank: [] for rank in range(4)}
    for sn in range(12):
        for op in rng.sample(["AllReduce", "AllGather"], 2):
            for rank in range(4):
                rows[rank].append((op, sn))
    lines = [rank_line(collective(op, sn, us=5 + sn), rank, 4) for rank in rows for op, sn in rows[rank]]
    found = open_trace(write(tmp_path / "a.log", *lines))
    captures = [
        RankCapture(rank, [Record(rank, "all_reduce" if op == "AllReduce" else "all_gather", 16384 * (4 if op == "AllGather" else 1),
                                  (0, 1, 2, 3), "0xc0ffee", sequence=2 * sn + (op == "AllGather"), duration_ns=5000 + 1000 * sn)
                           for op, sn in rows[rank]], "a.log", "unix")
        for rank in rows
    ]  # fmt: skip
    expected = merge_captures(captures, source_format="nccl_inspector")
    assert found.first_difference(expected, ignore=("notes", "coverage")) is None


# -- times ------------------------------------------------------------------------------------------------------------

T0 = 1_752_867_229_000_000


def verbose(rank: int, sn: int, us: int, *kernels: int, issued: int | None = None) -> dict[str, Any]:
    times = starts(T0 + (kernels or (0,))[0] - 50 if issued is None else issued, *[k and T0 + k for k in kernels])
    return rank_line(collective(sn=sn, us=us, **times), rank)


def test_verbose_starts(tmp_path: Path) -> None:
    """The first channel that ran; channels that did not are zeros."""
    rows = [verbose(0, 1, 20, 0, 130, 120), verbose(0, 2, 20, 500), verbose(1, 1, 25, 119), verbose(1, 2, 25, 501)]
    trace = open_trace(write(tmp_path / "a.log", *rows))
    assert (trace.start_ns.values - trace.start_ns.values[0]).tolist() == [0, 380_000]
    assert trace.rank_start_ns.row(0).tolist() == [1000, 0]
    assert not trace.arrival_known.any()
    assert any("not calibrated" in n for n in trace.notes)
    aligned = open_trace(tmp_path / "a.log", align_ends=True)
    assert aligned.arrival_known.all()
    assert aligned.arrival_ns.row(0).tolist() == [7000, 0]  # the ends differ by 4 and 6 us, the lower median counts
    given = open_trace(tmp_path / "a.log", clock_offsets_ns={0: 0, 1: 2000})
    assert given.arrival_ns.row(0).tolist() == [0, 1000]


def test_without_kernel_events_the_issue_is_the_start(tmp_path: Path) -> None:
    rows = [verbose(0, 1, 20, issued=T0), verbose(0, 2, 20, issued=T0 + 70)]
    assert np.diff(open_trace(write(tmp_path / "a.log", *rows)).start_ns.values).tolist() == [70_000]


def test_starts_of_a_part_of_the_events_are_left_out(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "a.log", verbose(0, 1, 20, 100), rank_line(collective(sn=2), 0)))
    assert trace.start_ns.none_known
    assert any("1 of 2 events have no start" in n for n in trace.notes)


# -- what is missing --------------------------------------------------------------------------------------------------


def test_older_plugins_write_a_sample(tmp_path: Path) -> None:
    rows = [line(collective(sn=sn), dump_timestamp_us=T0 + sn) for sn in (5, 60, 90)]
    trace = open_trace(write(tmp_path / "a.log", *rows))
    assert any("a sample, not a log" in n for n in trace.notes)
    assert any("96.5 % of AllReduce lost: 83 of 86" in w for w in trace.warnings)
    log = open_trace(write(tmp_path / "a.log", *[line(collective(sn=sn)) for sn in (5, 60, 90)]))
    assert not any("a sample, not a log" in n for n in log.notes)


def test_losses_add_up_over_ranks(tmp_path: Path) -> None:
    rows = [rank_line(collective(sn=sn), rank) for rank, numbers in ((0, (1, 2, 3, 4)), (1, (1, 4))) for sn in numbers]
    trace = open_trace(write(tmp_path / "a.log", *rows))
    assert trace.extra["inspector"]["loss"] == [{"communicator": "0xc0ffee", "op": "AllReduce", "expected": 8, "lost": 2}]
    assert "25 % of AllReduce lost: 2 of 8 sequence numbers are missing (2-3)" in trace.warnings[0]


def test_drops_grow_from_dump_to_dump(tmp_path: Path) -> None:
    def dump(total: int, since: int, messages: int) -> dict[str, Any]:
        return line({"coll_dropped_total": total, "coll_dropped_since_last_dump": since, "p2p_dropped_total": messages})

    trace = open_trace(write(tmp_path / "a.log", dump(5, 5, 0), line(collective()), dump(12, 7, 3)))
    assert trace.extra["inspector"]["dropped"] == {"collectives": 12, "messages": 3}
    assert trace.coverage.read == 1 + 12 + 3
    assert any("dropped 12 collectives and 3 messages" in w for w in trace.warnings)


def test_only_drops_make_an_empty_trace(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "a.log", line({"coll_dropped_total": 7})))
    assert len(trace) == 0
    assert trace.coverage.read == 7
    assert any("dropped 7 collectives" in w for w in trace.warnings)


def test_new_payloads_are_counted(tmp_path: Path) -> None:
    row = line(collective())
    trace = open_trace(write(tmp_path / "a.log", row, {**{k: v for k, v in row.items() if k != "coll_perf"}, "graph_perf": {"n": 1}}))
    assert trace.coverage.skipped == {"no payload that is known": 1}


def test_what_is_said_survives_a_round_trip(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "a.log", line(collective(sn=1)), line(collective(sn=4)), line(message())))
    lab.write(trace, tmp_path / "t.json")
    assert read_json(tmp_path / "t.json").equals(trace)


# -- files ------------------------------------------------------------------------------------------------------------


def test_plain_packed_pretty_and_listed_files_are_the_same(tmp_path: Path) -> None:
    rows = [line(collective(sn=sn)) for sn in (1, 2, 3)]
    plain = open_trace(write(tmp_path / "a.log", *rows))
    texts = {
        "gz": gzip.compress((tmp_path / "a.log").read_bytes()),
        "bom": b"\xef\xbb\xbf" + (tmp_path / "a.log").read_bytes(),
        "crlf": (tmp_path / "a.log").read_bytes().replace(b"\n", b"\r\n"),
        "blank": (tmp_path / "a.log").read_bytes().replace(b"\n", b"\n\n"),
        "unended": (tmp_path / "a.log").read_bytes()[:-1],
        "pretty": b"\n".join(json.dumps(r, indent=2).encode() for r in rows),
        "list": json.dumps(rows, indent=1).encode(),
        "reordered": b"".join(json.dumps(r, sort_keys=True).encode() + b"\n" for r in rows),
    }
    for name, data in texts.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(data)
        assert open_trace(path).first_difference(plain, ignore=("coverage",)) is None, name


def test_a_directory_of_ranks_and_rotated_files(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "node"
    folder.mkdir(parents=True)
    for rank in (0, 1):
        for part, numbers in (("b", (1, 2)), ("a", (3, 4))):  # the first file was written first, whatever it is called
            rows = [line(collective(sn=sn), header(rank=rank), pid=100 + rank, dump_timestamp_us=T0 + sn) for sn in numbers]
            write(folder / f"{part}-pid{100 + rank}.log", *rows)
    trace = open_trace(tmp_path / "out")
    assert [o for *_, o in events(trace)] == [(0, 1)] * 4
    assert trace.warnings == ()
    assert len(trace.coverage.files) == 4
    assert sorted(trace.coverage.files) == ["a-pid100.log", "a-pid101.log", "b-pid100.log", "b-pid101.log"]


def test_records_without_ids_and_processes(tmp_path: Path) -> None:
    """The header has rank and n_ranks only; files stand for processes."""
    for rank in (0, 1):
        write(tmp_path / f"r{rank}.jsonl", {"header": {"rank": rank, "n_ranks": 2}, "coll_perf": collective(sn=3)})
    assert events(open_trace(tmp_path)) == [("all_reduce", 16384, (0, 1))]


def test_ranks_of_files(tmp_path: Path) -> None:
    for rank, name in ((1, "a"), (0, "b")):
        write(tmp_path / f"{name}.log", line(collective(), header(rank=rank, nnodes=1), pid=100 + rank))
    given = {"a.log": 7, "b.log": 4}
    trace = open_trace(tmp_path, ranks=given)
    assert trace.groups[0].members == (4, 7)
    with pytest.raises(UsageError, match="holds 2 processes"):
        open_trace(write(tmp_path / "c.log", *[rank_line(collective(), r) for r in (0, 1)]), ranks={"c.log": 1})


def test_two_processes_read_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, str(GENERATOR), str(tmp_path / "g"), "--records", "4000"], check=True)
    files = sorted((tmp_path / "g").iterdir())
    alone = [pack(f, DEFAULT) for f in files]
    monkeypatch.setattr(inspector_files, "_MANY_BYTES", 0)
    monkeypatch.setattr(inspector_files, "_workers", lambda _: 2)
    both = inspector_files.read_parts(files, DEFAULT)
    for a, b in zip(sorted(alone, key=lambda p: p.file), sorted(both, key=lambda p: p.file), strict=True):
        assert (a.file, a.headers, a.processes, a.kinds) == (b.file, b.headers, b.processes, b.kinds)
        for name in COLUMNS:
            np.testing.assert_array_equal(a.columns[name], b.columns[name])
    found = inspector.trace_of(Table.of(both), layout=JOB)
    assert len(found) == 4000 * (24 / 25 / 4 + 1 / 25 / 2)
    # dumps come at different moments on each rank: that is no contradiction
    assert not any("contradict" in n for n in found.notes)


def test_damage_is_reported_from_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector_files, "_workers", lambda _: 2)
    good = write(tmp_path / "a.log", line(collective()))
    bad = write(tmp_path / "b.log", line(collective(), header(rank=9)))
    with pytest.raises(Exception, match=r"b\.log: line 1: header\.rank: rank 9 of 2"):
        inspector.read([good, bad])


def test_bandwidths_of_the_table(tmp_path: Path) -> None:
    rows = {r.op: r for r in ops(open_trace(write(tmp_path / "a.log", line(collective("AllGather", us=10), header(n_ranks=4))))).rows}
    assert rows["all_gather"].algbw_gb_s == pytest.approx(4 * 16384 / 10e3)
    assert rows["all_gather"].busbw_gb_s == pytest.approx(3 * 16384 / 10e3)


def test_prometheus_text_is_not_mistaken(tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    path.write_text("node_load1 0.5\n")
    assert not inspector_prom.recognise(path.read_bytes())
    assert not inspector.recognise(b'{"header": {}, "n_ranks": 3}')
