"""nsys exports: kernels without bytes, payloads with them, hostile databases, damage, and the public report."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.errors import FormatError
from commcanary_lab.importers import nsys_sqlite
from commcanary_lab.importers.nsys_sqlite import summary
from commcanary_lab.importers.open import open_trace, recognise_file
from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic import build_matrix
from tests.importers.damage import attempt, byte_damage, known, refused

REAL = Path(__file__).parents[3] / "shared" / "data" / "real" / "nsys"

#: Two processes of one host, as nsys numbers them.
P0, P1 = 0x1000001000000, 0x1000002000000
COMM = 0xABCDEF0123456789

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
  nameId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER,
  domainId INTEGER, binaryData TEXT);
CREATE TABLE NVTX_PAYLOAD_SCHEMAS (domainId INTEGER, schemaId INTEGER, name TEXT, type INTEGER, payloadSize INTEGER);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL, idx INTEGER NOT NULL, type INTEGER,
  name TEXT, offset INTEGER);
"""

INIT, REDUCE, PLAIN, PEER, ROOT = 16777218, 16777223, 16777220, 16777225, 16777222
ENTRIES = {
    INIT: (24, [(18, "NCCL communicator ID", None), (5, "No. of ranks", 8), (5, "Rank", 12), (5, "CUDA device", 16)]),
    REDUCE: (24, [(18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8), (16777232, "Reduction operation", 16)]),
    PLAIN: (16, [(18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8)]),
    PEER: (24, [(18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8), (5, "Peer rank", 16)]),
    ROOT: (24, [(18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8), (5, "Root", 16)]),
}


def payload(schema: int, *values: int, header: bool = True) -> bytes:
    size = ENTRIES[schema][0]
    body = struct.pack({INIT: "<Qiii4x", REDUCE: "<QQi4x", PLAIN: "<QQ", PEER: "<QQi4x", ROOT: "<QQi4x"}[schema], *values)
    return (struct.pack("<IIIIQQ", 1, 0, schema, 0, size, 32 + size) if header else b"") + body


class Report:
    """Writes an export row by row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = sqlite3.connect(path)
        self.db.executescript(SCHEMA)
        self.names: dict[str, int] = {}
        self.calls = 0
        self.db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_NAME', 'NVIDIA Nsight Systems')")
        for schema, (size, entries) in ENTRIES.items():
            self.db.execute("INSERT INTO NVTX_PAYLOAD_SCHEMAS VALUES (1, ?, NULL, 1, ?)", (schema, size))
            rows = [(1, schema, i, kind, name, offset) for i, (kind, name, offset) in enumerate(entries)]
            self.db.executemany("INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (?, ?, ?, ?, ?, ?)", rows)

    def name(self, text: str) -> int:
        if text not in self.names:
            self.names[text] = len(self.names) + 100
            self.db.execute("INSERT INTO StringIds VALUES (?, ?)", (self.names[text], text))
        return self.names[text]

    def range(self, name: str, start: int, end: int, process: int = P0, blob: Any = None) -> None:
        self.db.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, ?, ?, 1, ?)", (start, end, self.name(name), process + 7, blob))

    def kernel(
        self, launch: int | None, start: int, end: int, process: int = P0, name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    ) -> None:
        self.calls += 1
        short = self.name(name)
        self.db.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, ?, ?, ?, ?)", (start, end, self.calls, process, short, short)
        )
        if launch is not None:
            self.db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 1)", (launch, launch + 1, process + 7, self.calls))

    def call(self, name: str, at: int, process: int = P0, blob: Any = None, kernel: bool = True) -> None:
        """A call of 10 ns whose kernel starts 100 ns later and takes 50."""
        self.range(name, at, at + 10, process, blob)
        if kernel:
            self.kernel(at + 5, at + 100, at + 150, process)

    def done(self) -> Path:
        self.db.commit()
        self.db.close()
        return self.path


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report(tmp_path / "job.sqlite")


def both(report: Report, name: str, at: int, *blobs: bytes) -> None:
    for process, blob in zip((P0, P1), blobs * 2 if len(blobs) == 1 else blobs or (None, None), strict=True):
        report.call(name, at, process, blob)


def made(report: Report) -> None:
    for rank, process in enumerate((P0, P1)):
        report.call("ncclCommInitRank", 0, process, payload(INIT, COMM, 2, rank, rank), kernel=False)


def ops(trace: Trace) -> list[tuple[str | None, int]]:
    return [(trace.op.text(i), int(trace.size_bytes[i])) for i in range(len(trace))]


def test_payloads_give_sizes_and_kernels_give_times(report: Report) -> None:
    made(report)
    both(report, "ncclAllReduce", 1000, payload(REDUCE, COMM, 64, 4))
    both(report, "ncclAllGather", 2000, payload(PLAIN, COMM, 64))
    both(report, "ncclReduceScatter", 3000, payload(REDUCE, COMM, 64, 0))
    both(report, "ncclBroadcast", 4000, payload(ROOT, COMM, 64, 1))
    trace = open_trace(report.done())
    assert trace.source_format == "nsys_sqlite"
    assert ops(trace) == [("all_reduce", 64), ("all_gather", 128), ("reduce_scatter", 128), ("broadcast", 64)]
    assert [trace.reduction.text(i) for i in range(4)] == ["avg", None, "sum", None]
    assert known(trace.root, 3) == 1
    assert trace.groups[0].members == (0, 1)
    assert trace.groups[0].name == f"{COMM:#x}"
    assert trace.coverage.ranks == (0, 1)
    assert trace.duration_max_ns.values.tolist() == [50] * 4
    assert trace.start_ns.values.tolist() == [0, 1000, 2000, 3000]
    assert not trace.arrival_known.any()
    assert not trace.unsized
    assert trace.coverage.read == trace.coverage.used + sum(trace.coverage.skipped.values())


def test_a_group_shares_its_kernel(report: Report) -> None:
    made(report)
    for process, peer in ((P0, 1), (P1, 0)):
        report.range("ncclGroupStart", 1000, 1001, process)
        report.range("ncclSend", 1010, 1011, process, payload(PEER, COMM, 64, peer))
        report.range("ncclRecv", 1020, 1021, process, payload(PEER, COMM, 64, peer))
        report.range("ncclGroupEnd", 1030, 1040, process)
        report.kernel(1035, 1100, 1180, process, "ncclDevKernel_SendRecv")
    trace = open_trace(report.done())
    assert ops(trace) == [("point_to_point", 64)] * 2
    assert build_matrix(trace).dense().tolist() == [[0, 64], [64, 0]]
    assert not trace.unsized
    assert trace.duration_max_ns.none_known  # kept on the sends, and the receives of the same messages have none


def test_messages_to_oneself_are_no_events(report: Report) -> None:
    made(report)
    both(report, "ncclSend", 1000, payload(PEER, COMM, 64, 0), payload(PEER, COMM, 64, 1))
    trace = open_trace(report.done())
    assert len(trace) == 0
    assert [u.reason for u in trace.unsized] == ["message of a rank to itself"] * 2


@pytest.mark.parametrize("form", [bytes, lambda b: b.hex(), lambda b: "0x" + b.hex().upper()])
@pytest.mark.parametrize("header", [True, False])
def test_forms_of_payloads(report: Report, form: Callable[[bytes], Any], header: bool) -> None:
    for rank, process in enumerate((P0, P1)):
        report.call("ncclCommInitRank", 0, process, form(payload(INIT, COMM, 2, rank, rank)), kernel=False)
        report.call("ncclAllGather", 1000, process, form(payload(PLAIN, COMM, 64, header=header)))
    assert ops(open_trace(report.done())) == [("all_gather", 128)]


def test_sub_communicators_of_processes_that_are_seen(report: Report, tmp_path: Path) -> None:
    other = Report(tmp_path / "other.sqlite")
    for rank, (r, process) in enumerate(((report, P0), (report, P1), (other, P0), (other, P1))):
        r.call("ncclCommInitRank", 0, process, payload(INIT, COMM, 4, rank, 0), kernel=False)
        r.call("ncclCommSplit", 10, process, payload(INIT, 7 + rank % 2, 2, rank // 2, 0), kernel=False)
        r.call("ncclAllReduce", 1000, process, payload(REDUCE, 7 + rank % 2, 64, 0))
    trace = open_trace([report.done(), other.done()])
    assert sorted(g.members for g in trace.groups) == [(0, 2), (1, 3)]
    assert trace.coverage.files == ("job.sqlite", "other.sqlite")
    alone = open_trace(report.path)
    assert {u.reason for u in alone.unsized} == {
        f"members unknown: 1 of the 2 processes of communicator {c} are in the reports" for c in ("0x7", "0x8")
    }
    assert sum(u.size_bytes or 0 for u in alone.unsized) == 128


def test_communicators_made_before_the_capture(report: Report) -> None:
    both(report, "ncclAllReduce", 1000, payload(REDUCE, COMM, 64, 0))
    trace = open_trace(report.done())
    assert len(trace) == 0
    assert all("was it before the capture began" in u.reason and u.size_bytes == 64 and u.time_ns == 50 for u in trace.unsized)


def test_contradicting_communicators_are_not_used(report: Report) -> None:
    for process in (P0, P1):
        report.call("ncclCommInitRank", 0, process, payload(INIT, COMM, 2, 0, 0), kernel=False)
    both(report, "ncclAllReduce", 1000, payload(REDUCE, COMM, 64, 0))
    trace = open_trace(report.done())
    assert all("contradict each other" in u.reason for u in trace.unsized)
    assert any("contradict each other" in w for w in trace.warnings)


def test_no_payloads_say_what_to_export(report: Report) -> None:
    both(report, "ncclAllReduce", 1000)
    trace = open_trace(report.done())
    assert len(trace) == 0
    assert [u.time_ns for u in trace.unsized] == [50, 50]
    assert all(u.size_bytes is None for u in trace.unsized)
    assert any("--include-blobs=true" in w for w in trace.warnings)


def test_kernels_without_ranges(report: Report) -> None:
    report.kernel(5, 100, 150)
    report.kernel(5, 200, 250, name="sm90_gemm_kernel")
    report.db.execute("DROP TABLE NVTX_EVENTS")
    trace = open_trace(report.done())
    assert [u.reason for u in trace.unsized] == ["size unknown: NCCL's NVTX ranges were not traced"]
    assert any("trace with `-t cuda,nvtx`" in w for w in trace.warnings)


def test_calls_without_kernels_start_on_the_host(report: Report) -> None:
    made(report)
    for process in (P0, P1):
        report.call("ncclAllReduce", 1000, process, payload(REDUCE, COMM, 64, 0), kernel=False)
    report.db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    trace = open_trace(report.done())
    assert ops(trace) == [("all_reduce", 64)]
    assert trace.duration_max_ns.none_known


def test_other_kernels_are_listed_beside_calls(report: Report) -> None:
    made(report)
    both(report, "ncclAllReduce", 1000, payload(REDUCE, COMM, 64, 0))
    report.kernel(None, 5000, 5009)
    trace = open_trace(report.done())
    assert len(trace) == 1
    assert [(u.reason, u.rank, u.time_ns) for u in trace.unsized] == [("kernel without a call: nothing says what it moved", 0, 9)]


def test_nothing_is_written_beside_the_file(report: Report, tmp_path: Path) -> None:
    both(report, "ncclAllReduce", 1000)
    path = report.done()
    before = path.read_bytes()
    path.chmod(0o444)
    open_trace(path)
    assert os.listdir(tmp_path) == ["job.sqlite"]
    assert path.read_bytes() == before


def test_names_with_marks_of_addresses(tmp_path: Path) -> None:
    odd = Report(tmp_path / "a?mode=rwc&x=#100%.sqlite")
    both(odd, "ncclAllReduce", 1000)
    assert len(open_trace(odd.done()).unsized) == 2


# -- damage -----------------------------------------------------------------------------------------------------------

Sql = str

#: What is done to a good report, and how many events stay (None: refused).
CHANGES: dict[str, tuple[Sql, int | None]] = {
    "no strings": ("DROP TABLE StringIds", None),
    "strings without values": ("ALTER TABLE StringIds RENAME COLUMN value TO text", None),
    "strings as a view": ("ALTER TABLE StringIds RENAME TO s; CREATE VIEW StringIds AS SELECT * FROM s", None),
    "neither kernels nor ranges": ("DROP TABLE NVTX_EVENTS; DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", None),
    "kernels as a view": (
        "DROP TABLE NVTX_EVENTS; DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS"
        " WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start, x AS end, 1 AS shortName FROM n",
        None,
    ),
    "ranges as an endless view": (
        "DROP TABLE NVTX_EVENTS; CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        " SELECT x AS start, x AS end, 'ncclAllReduce' AS text FROM n",
        0,
    ),
    "no kernels": ("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", 1),
    "no launches": ("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME", 1),
    "no schemas": ("DROP TABLE NVTX_PAYLOAD_SCHEMAS", 0),
    "no schema entries": ("DROP TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES", 0),
    "no ranges": ("DROP TABLE NVTX_EVENTS", 0),
    "ranges without payloads": ("ALTER TABLE NVTX_EVENTS DROP COLUMN binaryData", 0),
    "ranges without domains": ("ALTER TABLE NVTX_EVENTS DROP COLUMN domainId", 0),
    "ranges without threads": ("ALTER TABLE NVTX_EVENTS DROP COLUMN globalTid", 0),
    "ranges without text": ("ALTER TABLE NVTX_EVENTS RENAME COLUMN text TO note", 0),
    "kernels without processes": ("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid", 1),
    "kernels without ends": ("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN end TO stop", 1),
    "kernels that end before they start": ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1", 1),
    "kernels of text": ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon'", 1),
    "kernels of fractions": ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 1.5", 1),
    "kernels before time": ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = -5", 1),
    "kernels at the end of time": ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 9223372036854775807", 1),
    "kernel names that are not there": ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = 7, demangledName = 8", 1),
    "kernel names of text": ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = 'x', demangledName = 'y'", 1),
    "ranges without ends": ("UPDATE NVTX_EVENTS SET end = NULL", 0),
    "ranges that end before they start": ("UPDATE NVTX_EVENTS SET end = start - 1", 0),
    "ranges of text": ("UPDATE NVTX_EVENTS SET start = 'x'", 0),
    "ranges of unknown threads": ("UPDATE NVTX_EVENTS SET globalTid = NULL", 0),
    "range names of blobs": ("UPDATE NVTX_EVENTS SET textId = x'00'", 0),
    "launches of text": ("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = 'x'", 1),
    "launches of other processes": ("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = 5", 1),
    "payloads of text": ("UPDATE NVTX_EVENTS SET binaryData = 'hello'", 0),
    "payloads of numbers": ("UPDATE NVTX_EVENTS SET binaryData = 5", 0),
    "empty payloads": ("UPDATE NVTX_EVENTS SET binaryData = x''", 0),
    "cut payloads": ("UPDATE NVTX_EVENTS SET binaryData = substr(binaryData, 1, 40)", 0),
    "payloads of a megabyte": ("UPDATE NVTX_EVENTS SET binaryData = zeroblob(1048576)", 0),
    "payloads of another schema": ("UPDATE NVTX_PAYLOAD_SCHEMAS SET schemaId = schemaId + 1", 0),
    "payloads of another domain": ("UPDATE NVTX_PAYLOAD_SCHEMAS SET domainId = 2", 0),
    "schemas of negative size": ("UPDATE NVTX_PAYLOAD_SCHEMAS SET payloadSize = -24", 0),
    "schemas of huge size": ("UPDATE NVTX_PAYLOAD_SCHEMAS SET payloadSize = 1 << 40", 0),
    "fields beyond the payload": ("UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET offset = 1000000", 0),
    "fields before the payload": ("UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET offset = -8", 0),
    "fields of unknown type": ("UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET type = 99", 0),
    "fields without names": ("UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET name = NULL", 0),
    "fields with other names": ("UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET name = 'x' || name", 0),
}


def good(path: Path) -> Report:
    report = Report(path)
    made(report)
    both(report, "ncclAllReduce", 1000, payload(REDUCE, COMM, 64, 0))
    return report


@pytest.mark.parametrize("kind", CHANGES)
def test_changed_reports_end_well(kind: str, tmp_path: Path) -> None:
    sql, events = CHANGES[kind]
    report = good(tmp_path / "made.sqlite")
    report.db.executescript(sql)
    data = report.done().read_bytes()
    if events is None:
        refused(nsys_sqlite.read, tmp_path / "job.sqlite", data)
        return
    out = attempt(nsys_sqlite.read, tmp_path / "job.sqlite", data)
    assert isinstance(out, Trace), out
    assert len(out) == events
    assert out.coverage.read == out.coverage.used + sum(out.coverage.skipped.values())
    if not events:
        assert out.warnings


PAYLOADS: dict[str, tuple[str, bytes, str]] = {
    "size out of range": ("ncclAllReduce", payload(REDUCE, COMM, 1 << 63, 0), "size out of range"),
    "gather out of range": ("ncclAllGather", payload(PLAIN, COMM, 1 << 61), "size out of range"),
    "unknown communicator": ("ncclAllReduce", payload(REDUCE, 5, 64, 0), "members unknown"),
    "peer outside": ("ncclSend", payload(PEER, COMM, 64, 7), "peer unknown: 7 in a group of 2"),
    "negative peer": ("ncclSend", payload(PEER, COMM, 64, -1), "peer unknown: -1 in a group of 2"),
}


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_bad_payload_is_refused_and_the_rest_is_read(kind: str, tmp_path: Path) -> None:
    name, blob, reason = PAYLOADS[kind]
    report = good(tmp_path / "job.sqlite")
    report.call(name, 2000, P0, blob)
    trace = open_trace(report.done())
    assert len(trace) == 1
    assert reason in trace.unsized[0].reason
    assert any(trace.unsized[0].reason in w for w in trace.warnings)


def test_a_root_or_reduction_that_cannot_be_is_not_used(tmp_path: Path) -> None:
    report = good(tmp_path / "job.sqlite")
    both(report, "ncclBroadcast", 2000, payload(ROOT, COMM, 64, 9))
    both(report, "ncclAllReduce", 3000, payload(REDUCE, COMM, 64, 77))
    trace = open_trace(report.done())
    assert known(trace.root, 1) is None
    assert trace.reduction.text(2) is None


@pytest.mark.parametrize("kind", byte_damage(b"x" * 40))
def test_a_file_that_is_no_report_is_refused(kind: str, tmp_path: Path) -> None:
    data = byte_damage(good(tmp_path / "made.sqlite").done().read_bytes())[kind]
    out = attempt(nsys_sqlite.read, tmp_path / "job.sqlite", data)
    if kind == "all but the last byte" and isinstance(out, Trace):  # the last byte of the last page is not in use
        return
    refused(nsys_sqlite.read, tmp_path / "job.sqlite", data)


@pytest.mark.parametrize("position", range(0, 8192, 128))
def test_any_overwritten_part_ends_well(position: int, tmp_path: Path) -> None:
    data = bytearray(good(tmp_path / "made.sqlite").done().read_bytes())
    data[position : position + 16] = b"\xff\x00\x7f\x80" * 4
    attempt(nsys_sqlite.read, tmp_path / "job.sqlite", bytes(data))


def test_other_databases_are_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "other.sqlite")
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()
    with pytest.raises(FormatError, match="an SQLite database, but not an export of nsys"):
        open_trace(tmp_path / "other.sqlite")
    (tmp_path / "job.sqlite.gz").write_bytes(gzip.compress((tmp_path / "other.sqlite").read_bytes()))
    with pytest.raises(FormatError, match=r"the file is packed with gzip; give the \.sqlite file"):
        open_trace(tmp_path / "job.sqlite.gz")


# -- public report ----------------------------------------------------------------------------------------------------

real = pytest.mark.skipif(not REAL.is_dir(), reason="public reports (../shared/data/real/nsys) are not here")


@real
def test_public_report_has_times_and_no_bytes() -> None:
    (name, want), *_ = json.loads((REAL / "EXPECTED.json").read_text()).items()
    found = summary(REAL / name)
    assert [list(r) for r in found.ranges] == want["nvtx_nccl_ranges[name,count,total_ns,rows_with_payload_blob]"]
    assert [list(k) for k in found.kernels] == want["nccl_kernels[name,count,total_ns,devices]"]
    assert recognise_file(REAL / name).name == "nsys_sqlite"
    trace = open_trace(REAL / name)
    assert len(trace) == 0
    assert len(trace.unsized) == 62
    assert sum(u.time_ns for u in trace.unsized) == 33742101
    assert all(u.size_bytes is None for u in trace.unsized)
    assert any("--include-blobs=true" in w for w in trace.warnings)
