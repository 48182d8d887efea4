"""The job of eight in four formats: the bundled copies are what the script writes, and give the same matrix and the same verdicts."""

from __future__ import annotations

import filecmp
import runpy
from pathlib import Path

import pytest

import commcanary_lab as lab
from commcanary_lab.layout import read_layout
from commcanary_lab.trace import Trace
from commcanary_lab.traffic import TrafficMatrix, build_matrix, compare_sources, fabric, infer_layout
from tests.traffic.jobs import MIB, eight_ranks

ROOT = Path(__file__).parents[2]
JOB = ROOT / "data" / "samples" / "fabric_job"
SOURCES = ("inspector", "rccl", "kineto")


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    return {name: lab.open(JOB / name) for name in (*SOURCES, "mpi")}


@pytest.fixture(scope="module")
def matrices(traces: dict[str, Trace]) -> dict[str, TrafficMatrix]:
    return {name: build_matrix(trace) for name, trace in traces.items()}


def test_bundled_copies_are_what_the_script_writes(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "data" / "make_fabric_job.py"))["main"](tmp_path)
    written = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    assert written == sorted(p.relative_to(JOB) for p in JOB.rglob("*") if p.is_file())
    assert filecmp.cmpfiles(tmp_path, JOB, [str(p) for p in written], shallow=False)[1:] == ([], [])
    assert len(written) == 8 + 1 + 8 + 8 + 1


@pytest.mark.parametrize("name", SOURCES)
def test_figures_of_each_source(name: str, matrices: dict[str, TrafficMatrix]) -> None:
    m = matrices[name]
    assert (m.n, m.records, m.events) == (8, 200, 52)
    assert m.payload_bytes == 16384 * MIB
    assert m.sum_bytes == 22528 * MIB
    assert (m.unattributed_bytes, m.coverage.read, m.coverage.used) == (0, 200, 200)
    links = m.links()
    assert [x.size_bytes for x in links] == [2304 * MIB] * 8 + [512 * MIB] * 8
    tensor = {(4 * node + i, 4 * node + (i + 1) % 4) for node in (0, 1) for i in range(4)}
    assert {(x.src, x.dst) for x in links[:8]} == tensor
    assert {(x.src, x.dst) for x in links[8:]} == {pair for r in range(4) for pair in ((r, r + 4), (r + 4, r))}


def test_mpi_has_one_barrier(matrices: dict[str, TrafficMatrix]) -> None:
    m = matrices["mpi"]
    assert (m.n, m.records, m.events, m.payload_bytes, m.sum_bytes, m.links(), m.unattributed_bytes) == (8, 8, 1, 0, 0.0, [], 0)
    assert fabric(m, gpus_per_node=4).verdict == "viable"


def test_matrices_are_equal_cell_by_cell(matrices: dict[str, TrafficMatrix]) -> None:
    found = compare_sources({"by hand": build_matrix(eight_ranks()), **{name: matrices[name] for name in SOURCES}}, rtol=0)
    assert [(row.name, row.agrees) for row in found.rows] == [("by hand", True), *((name, True) for name in SOURCES)]
    assert {row.matrix.source for row in found.rows} == {"commcanary.trace.v1", "nccl_inspector", "nccl_log", "kineto"}


@pytest.mark.parametrize("name", SOURCES)
def test_fabric(name: str, matrices: dict[str, TrafficMatrix]) -> None:
    layout = read_layout(JOB / "layout.toml")
    found = fabric(matrices[name], layout=layout, spine=0.1)
    assert (found.inter_node_bytes, found.on_rail_bytes) == (4096 * MIB, 4096 * MIB)
    assert (found.cross_rail_fraction, found.rail_congestion, found.verdict) == (0.0, 0.0, "viable")
    assert found.moe is not None
    assert (found.moe.inter_node_bytes, found.moe.cross_rail_fraction, found.moe_fat_tree_congestion) == (4096 * MIB, 0.75, 0.75)
    assert found.moe_rail_congestion == pytest.approx(7.5, rel=1e-12)
    assert found.moe_verdict == "saturates"


@pytest.mark.parametrize("name", SOURCES)
def test_inferred_layout(name: str, traces: dict[str, Trace]) -> None:
    found = infer_layout(traces[name], gpus_per_node=4)
    assert found.layout == read_layout(JOB / "layout.toml")
    # the log has no names of communicators
    assert {row.confidence for row in found.rows} == ({"likely"} if name == "rccl" else {"stated"})


def test_the_layout_says_the_same_as_the_names(matrices: dict[str, TrafficMatrix]) -> None:
    with_layout = build_matrix(lab.open(JOB / "inspector", layout=read_layout(JOB / "layout.toml")))
    assert with_layout.equals(matrices["inspector"], rtol=0)
