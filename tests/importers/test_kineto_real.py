"""Public traces: counts and bytes against figures computed independently, kernel time against the files themselves."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.errors import FormatError, MergeError
from commcanary_lab.importers import kineto
from commcanary_lab.importers._text import peek
from commcanary_lab.trace.ops import DTYPE_BYTES, canonical_dtype, canonical_op

DATA = Path(__file__).parents[3] / "shared" / "data" / "real"
KINETO = DATA / "kineto"

pytestmark = pytest.mark.skipif(not KINETO.is_dir(), reason="public traces (../shared/data/real/kineto) are not here")

EXPECTED: dict[str, dict[str, Any]] = json.loads((KINETO / "EXPECTED.json").read_text()) if KINETO.is_dir() else {}
NCCL = re.compile("nccl", re.IGNORECASE)


def document(name: str) -> Any:
    return json.loads(gzip.decompress((KINETO / name).read_bytes()), parse_float=str)


def ns(value: Any) -> int:
    whole, _, digits = str(value).partition(".")
    return int(whole) * 1000 + int(digits.ljust(3, "0"))


def expected_records(cpu: dict[str, int]) -> tuple[Counter[tuple[str, str | None, int, int]], int]:
    """(op, dtype, B, group size) -> count, and the number of waits, from "name|dtype|in=|out=|group=" -> count."""
    out: Counter[tuple[str, str | None, int, int]] = Counter()
    waits = 0
    for key, count in cpu.items():
        name, dtype, sent, received, size = key.split("|")
        if name == "wait":
            waits += count
            continue
        width = DTYPE_BYTES[canonical_dtype(dtype) or ""]
        elements = max(int(sent[3:]), int(received[4:]))
        out[(canonical_op(name) or name, canonical_dtype(dtype), elements * width, int(size[6:]))] += count
    return out, waits


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_matches_the_independent_answer(name: str) -> None:
    expected = EXPECTED[name]
    if expected["rank"] is None:
        with pytest.raises(FormatError, match=r"distributedInfo\.rank is missing"):
            kineto.read_rank(KINETO / name)
    assert kineto.recognise(peek(KINETO / name))
    capture = kineto.read_rank(KINETO / name, rank=0 if expected["rank"] is None else None)
    wanted, waits = expected_records(expected["cpu_collectives"])
    assert Counter((r.op, r.dtype, r.size_bytes, len(r.members)) for r in capture.records) == wanted
    sent = sum(r.size_bytes // (len(r.members) if r.op == "all_gather" else 1) for r in capture.records)
    assert sent == expected["in_bytes_cpu_excluding_wait"]
    assert capture.rank == (expected["rank"] or 0)
    assert capture.world_size == expected["world_size"]
    assert capture.clock == "unix"
    assert capture.warnings == ()
    coverage = capture.coverage
    assert coverage.used == len(capture.records)
    assert coverage.read == coverage.used + sum(coverage.skipped.values())
    assert sum(n for reason, n in coverage.skipped.items() if not reason.startswith("wait")) == len(capture.unsized)
    if waits:
        assert next(n for reason, n in coverage.skipped.items() if reason.startswith("wait")) == waits
    if not wanted:
        assert any("metadata" in n for n in capture.notes)
        assert all(u.reason for u in capture.unsized)


@pytest.mark.parametrize("name", sorted(n for n, e in EXPECTED.items() if e["nccl_kernels"]))
def test_kernel_time_is_counted_once(name: str) -> None:
    """The time of NCCL kernels in the file is exactly the time of the events plus that of the unsized rows."""
    expected = EXPECTED[name]
    durations = [ns(e["dur"]) for e in document(name)["traceEvents"] if e.get("cat") == "kernel" and NCCL.search(e["name"])]
    assert len(durations) == expected["nccl_kernels"]
    capture = kineto.read_rank(KINETO / name)
    measured = [r.duration_ns for r in capture.records if r.duration_ns is not None]
    unsized = [u for u in capture.unsized if "outside NCCL" not in u.reason]
    assert sum(measured) + sum(u.time_ns for u in unsized) == sum(durations)
    # a collective whose kernel lies outside the file has a row without time; no kernel is counted twice or lost
    assert len(measured) + sum(u.time_ns > 0 for u in unsized) == len(durations)


def test_starts_and_durations_are_exact() -> None:
    name = "hta_ddp2_rank0_v100_nccl2.17.json.gz"
    doc = document(name)
    kernels = sorted(
        (ns(e["ts"]) + doc["baseTimeNanoseconds"], ns(e["dur"]))
        for e in doc["traceEvents"]
        if e.get("cat") == "kernel" and NCCL.search(e["name"])
    )
    records = kineto.read_rank(KINETO / name).records
    assert sorted((r.start_ns, r.duration_ns) for r in records) == kernels


def test_overlap_against_a_slow_reference() -> None:
    """Every nanosecond of compute on other streams inside each NCCL kernel, by plain interval merging."""
    name = "tracelens_mi300_world8_rank0_ddp.json.gz"
    doc = document(name)
    base = doc["baseTimeNanoseconds"]
    kernels = [
        (base + ns(e["ts"]), ns(e["dur"]), e["args"]["device"], e["args"]["stream"], NCCL.search(e["name"]) is not None)
        for e in doc["traceEvents"]
        if e.get("cat") == "kernel"
    ]
    wanted = {}
    for start, length, device, stream, is_comm in kernels:
        if not is_comm:
            continue
        covered, reach = 0, start
        for s, d, dev, st, other_comm in sorted(kernels):
            if other_comm or dev != device or st == stream or s + d <= reach or s >= start + length:
                continue
            low, high = max(s, reach), min(s + d, start + length)
            covered, reach = covered + max(0, high - low), max(reach, high)
        wanted[start] = covered
    records = kineto.read_rank(KINETO / name).records
    assert len(records) == 12
    assert any(r.overlap_ns for r in records)
    assert all(r.overlap_ns == wanted[r.start_ns or 0] for r in records)


def test_world_of_one_has_real_sizes() -> None:
    trace = kineto.read([KINETO / "hta_ns_ts_world1_rank0.json.gz"])
    assert len(trace) == 35
    assert int(trace.size_bytes.sum()) == 512205160
    assert {g.members for g in trace.groups} == {(0,)}
    assert trace.duration_max_ns.none_known  # NCCL launched nothing


def test_kernels_outside_nccl_are_named_not_sized() -> None:
    trace = kineto.read([KINETO / "dsv3_train_ep64_rank0_deepep.json.gz"])
    assert len(trace) == 0
    assert any("no NCCL metadata" in n for n in trace.notes)
    names = {re.search(r"(\w+)[<(]", u.name).group(1) for u in trace.unsized if re.search(r"(\w+)[<(]", u.name)}  # type: ignore[union-attr]
    assert {"dispatch", "combine", "cached_notify", "notify_dispatch"} <= names
    assert all(u.time_ns > 0 and "no metadata" in u.reason for u in trace.unsized)
    kernels = [
        e
        for e in document("dsv3_train_ep64_rank0_deepep.json.gz")["traceEvents"]
        if e.get("cat") == "kernel" and "::internode::" in e["name"]
    ]
    assert sum(u.time_ns for u in trace.unsized) == sum(ns(e["dur"]) for e in kernels)


def test_multicast_all_reduces_beside_nccl() -> None:
    capture = kineto.read_rank(KINETO / "tracelens_b200_world8_rank0_71pgs.json.gz")
    assert Counter(u.name.split("<")[0].rsplit("::", 1)[-1] for u in capture.unsized) == {"multimem_all_reduce_kernel": 73}
    assert [(r.op, r.size_bytes, r.members, r.group) for r in capture.records] == [("all_gather", 402176, tuple(range(8)), "3")]


def test_no_metadata_rows_name_their_operation() -> None:
    capture = kineto.read_rank(KINETO / "hta_world16_rank0_reduce_scatter_alltoall_no_meta.json.gz")
    names = Counter(u.name for u in capture.unsized if u.name.startswith("nccl:"))
    assert names == {"nccl:all_to_all": 55, "nccl:_reduce_scatter_base": 10, "nccl:all_reduce": 10, "nccl:_all_gather_base": 10}


def test_eight_ranks_without_metadata() -> None:
    files = sorted((KINETO / "param_dlrm_world8").glob("*.gz"))
    trace = kineto.read(files)
    assert len(files) == 8
    assert len(trace) == 0
    assert trace.ranks == tuple(range(8))
    assert trace.system == {"world_size": 8}
    assert Counter(u.rank for u in trace.unsized) == dict.fromkeys(range(8), 8)
    assert Counter(u.name for u in trace.unsized) == {"nccl:all_to_all": 40, "nccl:all_reduce": 24}
    assert any("no NCCL metadata" in n for n in trace.notes)
    assert not any("single rank" in n for n in trace.notes)


def test_two_files_of_one_rank() -> None:
    with pytest.raises(MergeError, match="both claim rank 0"):
        kineto.read([KINETO / "hta_world128_alltoall_rank0.json.gz", KINETO / "hta_rank_non_gpu.json.gz"])


def test_other_formats_are_not_claimed() -> None:
    claimed = [
        str(p.relative_to(DATA))
        for folder in DATA.iterdir()
        if folder.name != "kineto"
        for p in folder.rglob("*")
        if p.is_file() and kineto.recognise(peek(p))
    ]
    assert claimed == []


def test_large_file_is_fast() -> None:
    """54 MB, 216 092 events: about half a second on one idle core; the bound leaves room for a busy machine."""
    path = KINETO / "hta_world2_rank1_2020_allreduces_no_meta.json.gz"
    best = 1e9
    for _ in range(3):
        start = time.perf_counter()
        trace = kineto.read([path])
        best = min(best, time.perf_counter() - start)
    assert len(trace.unsized) == 2020
    assert best < 3.0
