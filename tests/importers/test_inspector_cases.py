"""The inspector rows of cases.tsv, one test each, and the public files: what users met, and what a correct tool does with it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commcanary_lab.errors import RefusedError
from commcanary_lab.importers import inspector, inspector_prom
from commcanary_lab.importers.open import open_trace, recognise_file
from commcanary_lab.inspect import ops
from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic import build_matrix

CASES = Path(__file__).parent.parent / "data" / "cases"
REAL = Path(__file__).parents[3] / "shared" / "data" / "real" / "nccl_inspector"

here = pytest.mark.skipif(not REAL.is_dir(), reason="public files (../shared/data/real/nccl_inspector) are not here")


def read(name: str) -> Trace:
    return open_trace(CASES / name)


def only(trace: Trace) -> tuple[str, int, tuple[int, ...]]:
    assert len(trace) == 1
    return trace.op.text(0), int(trace.size_bytes[0]), trace.groups[trace.group[0]].members


def bandwidths(trace: Trace) -> list[float]:
    """Recomputed algbw of each event."""
    return (trace.size_bytes / trace.duration_max_ns.values).tolist()


# -- cases ------------------------------------------------------------------------------------------------------------


def test_P23_sizes_are_those_of_a_part() -> None:
    trace = read("P23__n1-pid77.log")
    assert trace.coverage.ranks == (1,)
    seen = {trace.op.text(i): int(trace.size_bytes[i]) for i in range(len(trace))}
    assert seen == {"all_reduce": 2360832, "reduce_scatter": 196608, "all_gather": 196608}
    assert {trace.groups[g].members for g in trace.group.tolist()} == {(0, 1, 2)}
    recorded = [json.loads(line)["coll_perf"]["coll_algobw_gbs"] for line in (CASES / "P23__n1-pid77.log").read_text().splitlines()]
    assert sorted(bandwidths(trace)) == pytest.approx(sorted(recorded), rel=1e-5)
    assert trace.warnings == ()  # the recorded bandwidths agree
    assert not any("order" in w for w in trace.warnings)


def test_P24_gaps_are_losses_of_one_collective_type() -> None:
    trace = read("P24__n1-pid77.log")
    assert len(trace) == 5
    assert trace.extra["inspector"]["loss"] == [{"communicator": "0xc0ffee", "op": "AllReduce", "expected": 5, "lost": 2}]
    (warning,) = trace.warnings
    assert "40 % of AllReduce lost" in warning
    assert "2 of 5 sequence numbers are missing (12-13)" in warning
    assert "AllGather" not in warning


def test_P25_drops_and_messages() -> None:
    trace = read("P25__n1-pid77.log")
    assert len(trace) == 2
    assert any("4,096 collectives" in w and "dump_stats" in w for w in trace.warnings)
    assert trace.coverage.skipped == {"collective dropped by the plugin (dump_stats)": 4096}
    assert (trace.coverage.read, trace.coverage.used) == (4098, 2)
    m = build_matrix(trace)
    assert {(x.src, x.dst): x.size_bytes for x in m.where(op="point_to_point").links()} == {(0, 1): 1048576.0}
    row = next(r for r in ops(trace).rows if r.op == "point_to_point")
    assert row.busbw_gb_s == row.algbw_gb_s == pytest.approx(262.144)


def test_P26_unknown_times_and_a_torn_line() -> None:
    trace = read("P26__n1-pid77.log")
    assert len(trace) == 2
    assert trace.duration_max_ns.mask.tolist() == [False, True]
    row = next(r for r in ops(trace).rows if r.op == "all_reduce")
    assert row.count == 2
    assert row.algbw_gb_s == pytest.approx(0.4096)  # of the one that was measured
    assert [w for w in trace.warnings if "line 3" in w and "cut short" in w]
    assert trace.coverage.skipped == {"cut short": 1}


# -- public files -----------------------------------------------------------------------------------------------------


def answers() -> dict[str, str]:
    with (REAL / "PROVENANCE.tsv").open() as f:
        return {row["file"]: row["answer"] for row in csv.DictReader(f, delimiter="\t")}


@here
def test_every_public_file_is_known_here() -> None:
    names = {p.name for p in REAL.iterdir()} - {"PROVENANCE.tsv"}
    assert names == set(answers())
    formats = {name: recognise_file(REAL / name).name for name in sorted(names)}
    assert {f for n, f in formats.items() if n.endswith(".prom")} == {"nccl_inspector_prometheus"}
    assert {f for n, f in formats.items() if not n.endswith(".prom")} == {"nccl_inspector"}


@here
@pytest.mark.parametrize(
    ("name", "event", "rank", "gb_s", "factor"),
    [
        ("readme_nonverbose_v4.0.jsonl", ("all_reduce", 17179869184, 8), 2, (277.210913, 485.119097), 14 / 8),
        ("readme_verbose_v4.0.jsonl", ("reduce_scatter", 2147483648 * 8, 8), 4, (418.439, 366.134533), 7 / 8),
        ("exporter_readme_v4.0.jsonl", ("reduce_scatter", 65536 * 32, 32), 31, (19.0650, 18.4692), 31 / 32),
        ("datadog_nanogpt_v4.0.jsonl", ("all_reduce", 2360832, 3), 1, (0.416887, 0.555850), 4 / 3),
        ("v4.2_coll_algo_proto.jsonl", ("all_reduce", 17179869184, 8), 2, (277.210914, 485.119099), 14 / 8),
        ("v4.1_events_tree_proxy_variant.json", ("reduce_scatter", 2147483648 * 8, 8), 4, (418.439467, 366.134533), 7 / 8),
    ],
)
def test_public_collectives(name: str, event: tuple[str, int, int], rank: int, gb_s: tuple[float, float], factor: float) -> None:
    trace = open_trace(REAL / name)
    op, size, members = only(trace)
    assert (op, size, members) == (*event[:2], tuple(range(event[2])))
    assert trace.coverage.ranks == (rank,)
    assert trace.warnings == ()
    (row,) = ops(trace).rows
    assert row.algbw_gb_s == pytest.approx(gb_s[0], rel=2e-6)
    assert row.busbw_gb_s == pytest.approx(gb_s[1], rel=2e-6)
    assert row.busbw_gb_s / row.algbw_gb_s == pytest.approx(factor)


@here
def test_public_verbose_record_has_a_start_and_others_have_none() -> None:
    start = open_trace(REAL / "readme_verbose_v4.0.jsonl")
    assert start.start_ns.values.tolist() == [0]
    assert start.duration_max_ns.values.tolist() == [41_057_000]
    assert any("first kernel channel" in n for n in start.notes)
    assert open_trace(REAL / "readme_nonverbose_v4.0.jsonl").start_ns.none_known


@here
def test_public_drops_and_receive() -> None:
    trace = open_trace(REAL / "v4.1_dump_stats_and_p2p_rccl.jsonl")
    assert [(x.src, x.dst, x.size_bytes) for x in build_matrix(trace).links()] == [(10, 2, 1048576.0)]
    assert any("4,096 collectives" in w for w in trace.warnings)
    (row,) = ops(trace).rows
    assert row.busbw_gb_s == row.algbw_gb_s == pytest.approx(262.144)


@here
def test_public_tree_of_events_names_a_wire() -> None:
    trace = open_trace(REAL / "v4.1_events_tree_proxy_variant.json")
    assert trace.extra["inspector"]["wires"] == [[4, 5, 2147483648]]


@here
def test_public_accl_bandwidth_is_recomputed() -> None:
    trace = open_trace(REAL / "accl_profiler_rccl_variant.jsonl")
    assert only(trace) == ("all_reduce", 4194304, tuple(range(8)))
    assert bandwidths(trace) == pytest.approx([4194304 / 150.30 / 1e3])
    assert any("says 0.027907 GB/s, it is 27.9062 GB/s" in w for w in trace.warnings)
    assert trace.start_ns.none_known  # its event times are of another clock
    assert any("not of the host's clock" in n for n in trace.notes)


@here
@pytest.mark.parametrize("name", ["prometheus_readme_v5.1.prom", "prometheus_rccl_help_type_cluster.prom"])
def test_public_prometheus_text_is_refused(name: str) -> None:
    with pytest.raises(RefusedError, match="no counts, no peers"):
        open_trace(REAL / name)


@here
def test_public_prometheus_latencies() -> None:
    table = inspector_prom.read_latency_table([REAL / "prometheus_readme_v5.1.prom", REAL / "prometheus_rccl_help_type_cluster.prom"])
    rows: list[Any] = table[["op", "nranks", "message_size", "time_us", "busbw_gb_s", "comm_name"]].values.tolist()
    assert rows == [
        ["AllReduce", 4, "4-5GB", 9498.47, 678.263, "DP Group 0"],
        ["Send", 4, "512-513MB", 1154.87, 464.9, "DP Group 0"],
        ["AllReduce", 8, "8-9MB", 1772.12, 144.832, "unknown"],
    ]
    assert table["min_size_bytes"].tolist() == [4_000_000_000, 512_000_000, 8_000_000]
    assert np.isnan(table["time_us"]).sum() == 0


def test_format_is_named() -> None:
    assert inspector.FORMAT == "nccl_inspector"
