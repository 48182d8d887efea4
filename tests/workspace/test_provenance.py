"""Provenance: found by content whatever the names are; what is missing is named; nothing is computed twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import commcanary_lab as lab
from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.minimize import reduce
from commcanary_lab.review import compare
from commcanary_lab.workspace import Workspace, openers
from commcanary_lab.workspace.provenance import Edge, Provenance
from commcanary_lab.workspace.provenance_search import find_provenance, known_sources


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "w")


def links(graph: Provenance) -> set[tuple[str, str, str]]:
    """Child, role and parent; missing parents without their name."""
    missing = {n.name: n.kind for n in graph.nodes if n.missing}
    return {(e.child, e.role, f"missing {missing[e.parent]}" if e.parent in missing else e.parent) for e in graph.edges}


def test_the_bundled_samples(tmp_path: Path) -> None:
    lab.samples.fill(tmp_path)
    found = links(find_provenance(Workspace(tmp_path)))
    made = {("adversarial.lossless.canary.json", "compiled from", "adversarial.json")}
    made |= {(f"gloo4.{c}.canary.json", "compiled from", t) for c in ("lossless", "records-2") for t in ("gloo4.json", "gloo4_shards")}
    made |= {(f"tp8_decode.{c}.canary.json", "compiled from", "tp8_decode.json") for c in ("lossless", "records-4")}
    made |= {(f"tp8_decode.{b}.report.json", "simulated from", "tp8_decode.json") for b in ("baseline", "slower_links")}
    made |= {
        ("campaigns/fidelity", f"runs as {p}", f"missing {k}") for p, k in (("canary", "canary"), ("isolated", "trace"), ("job", "trace"))
    }
    assert found == made | {("campaigns/calibration", "runs as sweep", "missing trace")}


def test_names_do_not_count(workspace: Workspace) -> None:
    """Every name says something else than what is in the file."""
    a, b = lab.samples.adversarial(), lab.samples.gloo4()
    lab.write(a, workspace.path / "gloo4.json")
    lab.write(b, workspace.path / "adversarial.json")
    lab.write(lab.compile(a), workspace.path / "adversarial.canary.json")
    lab.write(lab.compile(b), workspace.path / "gloo4.canary.json")
    found = links(find_provenance(workspace))
    assert found == {
        ("adversarial.canary.json", "compiled from", "gloo4.json"),
        ("gloo4.canary.json", "compiled from", "adversarial.json"),
    }
    assert known_sources(workspace, "gloo4.canary.json") == ["adversarial.json"]


def test_reports_of_traces_and_of_canaries(workspace: Workspace) -> None:
    trace = lab.samples.adversarial()
    canary = lab.compile(trace, records=4)
    lab.write(trace, workspace.path / "t.json")
    lab.write(canary, workspace.path / "c.json")
    for name, source, stated in (
        ("r1", trace, {"trace": "renamed.json"}),
        ("r2", canary, {"canary": canary.identity}),
        ("r3", trace, None),
    ):
        document = lab.simulate(source).to_json()
        workspace.add(name, canonical_bytes(document | ({"source": stated} if stated else {})))
    found = links(find_provenance(workspace))
    assert {f for f in found if f[0] == "r1"} == {("r1", "simulated from", "t.json")}
    assert ("r2", "simulated from", "c.json") in found
    assert ("r3", "simulated from", "t.json") in found
    (workspace.path / "c.json").unlink()
    assert ("r2", "simulated from", "missing canary") in links(find_provenance(workspace))


def test_a_report_under_an_assumption(workspace: Workspace) -> None:
    from commcanary_lab.importers.open import open_trace

    trace = open_trace(lab.samples.directory() / "fabric_job" / "kineto")
    lab.write(trace, workspace.path / "t.json")
    report = lab.simulate(trace, assume={"skew_us": 0, "overlap_us": 0})
    workspace.add("r.json", canonical_bytes(report.to_json()))
    (edge,) = find_provenance(workspace).edges
    assert (edge.child, edge.parent) == ("r.json", "t.json")
    assert "skew_us=0.0" in edge.known
    other = lab.simulate(trace, assume={"skew_us": 5, "overlap_us": 0})
    workspace.add("s.json", canonical_bytes(other.to_json()))
    assert ("s.json", "simulated from", "t.json") in links(find_provenance(workspace))


def test_a_canary_of_a_range_and_a_salted_one(workspace: Workspace) -> None:
    trace = lab.samples.adversarial()
    lab.write(trace, workspace.path / "t.json")
    lab.write(compile_trace(trace, events=(10, 60)), workspace.path / "part.json")
    lab.write(compile_trace(trace, salt=b"0123456789abcdef"), workspace.path / "salted.json")
    graph = find_provenance(workspace)
    assert links(graph) == {("part.json", "compiled from", "t.json"), ("salted.json", "compiled from", "missing trace")}
    (salted,) = [e for e in graph.edges if e.child == "salted.json"]
    assert salted.known == "salted: only who has the salt can tell"


def test_ledgers_and_what_ddmin_kept(workspace: Workspace) -> None:
    trace = lab.samples.adversarial()
    lab.write(trace, workspace.path / "t.json")
    found = lab.search(trace, range(2, 4))
    assert found.canary is not None
    workspace.add("search.json", canonical_bytes(found.ledger()))
    lab.write(found.canary, workspace.path / "selected.json")
    reduction = reduce(trace)
    workspace.add("ddmin.json", canonical_bytes(reduction.ledger()))
    lab.write(reduction.trace, workspace.path / "kept.json")
    assert links(find_provenance(workspace)) >= {
        ("search.json", "searched", "t.json"),
        ("search.json", "selected", "selected.json"),
        ("selected.json", "compiled from", "t.json"),
        ("ddmin.json", "reduces", "t.json"),
        ("ddmin.json", "kept these events:", "kept.json"),
        ("kept.json", "kept by ddmin from", "t.json"),
    }


def test_comparisons(workspace: Workspace) -> None:
    trace, gloo = lab.samples.adversarial(), lab.samples.gloo4()
    half = gloo.filter(op="all_reduce")
    lab.write(trace, workspace.path / "t.json")
    a, b = (lab.simulate(trace, name) for name in ("baseline", "congested"))
    for name, report in (("a", a), ("b", b)):
        workspace.add(name, canonical_bytes(report.to_json()))
    workspace.add("ab", canonical_bytes(compare(a, b).to_json()))
    lab.write(gloo, workspace.path / "whole.json")
    lab.write(half, workspace.path / "half.json")
    workspace.add("measured", canonical_bytes(compare(half, gloo).to_json()))
    found = links(find_provenance(workspace))
    assert found >= {
        ("ab", "baseline", "a"),
        ("ab", "candidate", "b"),
        ("measured", "baseline", "half.json"),
        ("measured", "candidate", "whole.json"),
    }
    (workspace.path / "half.json").unlink()
    found = links(find_provenance(workspace))
    assert ("measured", "baseline", "missing trace") in found


def test_nothing_is_opened_twice(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = lab.samples.adversarial()
    lab.write(trace, workspace.path / "t.json")
    lab.write(lab.compile(trace), workspace.path / "c.json")
    workspace.add("r.json", canonical_bytes(lab.simulate(trace).to_json()))
    opened: list[str] = []
    for kind, real in list(openers.OPENERS.items()):
        monkeypatch.setitem(openers.OPENERS, kind, lambda path, real=real: opened.append(path.name) or real(path))
    first = find_provenance(workspace)
    assert set(opened) == {"t.json", "c.json", "r.json"}
    opened.clear()
    workspace.index.close()
    assert find_provenance(Workspace(workspace.path)) == first
    assert opened == []
    lab.write(lab.samples.gloo4(), workspace.path / "t.json")
    again = find_provenance(Workspace(workspace.path))
    assert set(opened) == {"t.json"}
    assert ("c.json", "compiled from", "missing trace") in links(again)


def test_damaged_and_large_artifacts_are_named(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.write(lab.samples.adversarial(), workspace.path / "t.json")
    lab.write(lab.compile(lab.samples.adversarial()), workspace.path / "c.json")
    (workspace.path / "bad.json").write_text('{"format": "commcanary_lab.canary.v1"}')
    monkeypatch.setattr("commcanary_lab.workspace.provenance_search.MAX_LOOKED_BYTES", 5000)
    graph = find_provenance(workspace)
    assert dict(graph.unread).keys() == {"bad.json", "t.json"}
    assert "large" in dict(graph.unread)["t.json"]
    assert links(graph) == {("c.json", "compiled from", "missing trace")}
    assert links(find_provenance(workspace, large=True)) == {("c.json", "compiled from", "t.json")}


def test_cancelling_returns_what_is_known(workspace: Workspace) -> None:
    for i in range(3):
        lab.write(lab.samples.adversarial().take(slice(0, 10 + i)), workspace.path / f"t{i}.json")
    asked: list[None] = []
    graph = find_provenance(workspace, cancelled=lambda: asked.append(None) or len(asked) > 1)
    assert [why for _, why in graph.unread] == ["not looked at yet"] * 2


@pytest.mark.parametrize("file", ["../../t.json", "/etc/passwd", "programs/../../../t.json"])
def test_evidence_cannot_name_files_elsewhere(workspace: Workspace, file: str) -> None:
    lab.write(lab.samples.adversarial(), workspace.path / "t.json")
    place = workspace.path / "campaigns" / "forged"
    place.mkdir(parents=True)
    program = {"file": file, "sha256": "", "replayed": "trace.parquet", "replayed_sha256": "0" * 64, "events": 1}
    (place / "manifest.json").write_text(json.dumps({"format": "commcanary.manifest.v1", "name": "x", "programs": {"p": program}}))
    graph = find_provenance(workspace)
    assert graph.edges == ()
    assert "leads out of the evidence" in dict(graph.unread)["campaigns/forged"]


def test_a_replay_of_a_canary(workspace: Workspace) -> None:
    from commcanary_lab.replay.source import write_source

    canary = lab.compile(lab.samples.adversarial())
    lab.write(canary, workspace.path / "c.json")
    for name, source in (("one", canary), ("two", lab.samples.adversarial())):
        place = workspace.path / "replays" / name
        place.mkdir(parents=True)
        program, sha256 = write_source(source, place)
        run = {
            "format": "commcanary.replay.v1",
            "program": program,
            "program_sha256": sha256,
            "ranks": 2,
            "source_ranks": 2,
            "backend": "gloo",
        }
        (place / "run.json").write_text(json.dumps(run))
    lab.write(lab.samples.adversarial(), workspace.path / "t.json")
    assert links(find_provenance(workspace)) >= {("replays/one", "replays", "c.json"), ("replays/two", "replays", "t.json")}


def test_families() -> None:
    edges = [Edge(a, b, "", "") for a, b in (("t", "c"), ("c", "r"), ("r", "x"), ("q", "x"), ("u", "q"), ("u", "d"))]
    from commcanary_lab.workspace.provenance import Node

    graph = Provenance(tuple(Node(n, "trace", "") for n in "tcrxqud"), tuple(edges))
    assert {n.name for n in graph.family("t").nodes} == {"t", "c", "r", "x", "q"}
    assert {n.name for n in graph.family("d").nodes} == {"u", "d"}
    assert graph.family("nobody").nodes == ()
