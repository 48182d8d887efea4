"""The format pages name everything that the formats have."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab.canary.commit import COLUMNS
from commcanary_lab.capture.rows import EndRow, GroupRow, HeaderRow, OpRow
from commcanary_lab.minimize import reduce, search
from commcanary_lab.review import compare
from commcanary_lab.simulate import ABLATIONS, DEFAULT_BACKENDS
from commcanary_lab.trace import Coded, Column, ProcessGroup, Ragged, Trace
from commcanary_lab.trace.lab_v1 import _Section
from commcanary_lab.trace.schema_v1 import EVENT_FIELDS, IGNORED_FIELDS

DOCS = Path(__file__).parents[2] / "docs"


def words(page: str) -> set[str]:
    """Everything that a page sets as code."""
    text = (DOCS / page).read_text("utf-8")
    return {w for code in re.findall(r"`([^`\n]+)`", text) for w in re.findall(r"[A-Za-z_][A-Za-z_0-9.]*", code)}


def odd_trace() -> Trace:
    """A trace with what the samples lack: unknown arrivals, partial reports, splits, an unnamed group, roots, tags."""
    n = 24
    return Trace.build(
        n,
        op=Coded.from_optional(["broadcast", "all_to_all_v", "all_reduce"] * 8),
        custom_op=np.array([False, True, False] * 8),
        phase=Coded.constant(n, "p"),
        tag=Coded.constant(n, "t"),
        channel=Coded.constant(n, "c"),
        dtype=Coded.constant(n, "float32"),
        reduction=Coded.from_optional([None, None, "sum"] * 8),
        groups=(ProcessGroup(None, (0, 1)),),
        group=np.zeros(n, np.int32),
        size_bytes=np.full(n, 64),
        root=Column.from_optional([0, None, None] * 8),
        concurrent_groups=Column.from_optional([2] * n),
        message_sequence=Column(np.arange(n)),
        gap_ns=Column(np.arange(n) * 7919 % 1000),
        compute_before_ns=Column(np.arange(n)),
        overlap_ns=Column(np.arange(n)),
        observed_exposed_ns=Column(np.arange(n) * 3),
        pressure=Column(np.arange(n) / 7, np.ones(n, bool)),
        arrival_ns=Ragged.from_rows([[0, 5] if i % 2 else [] for i in range(n)]),
        arrival_known=np.arange(n) % 2 == 1,
        splits=Ragged.from_rows([[64, 64, 32, 32, 32, 32, 64, 64, 32, 32, 32, 32] if i % 3 == 1 else [] for i in range(n)]),
        observers=np.where(np.arange(n) % 3 == 1, -1, 0).astype(np.int32),
        rank_sets=((1,),),
        notes=("a note",),
    )


def documents() -> list[dict[str, Any]]:
    traces = [lab.samples.adversarial(), lab.samples.tp8_decode(), lab.samples.gloo4(), odd_trace()]
    started = replace(traces[0], start_ns=Column(np.cumsum(traces[0].gap_ns.values)))
    canaries = [lab.compile(t) for t in [*traces, started]] + [lab.compile(t, records=1) for t in traces]
    return [json.loads(c.canonical) for c in canaries]


def test_every_key_of_a_canary_is_explained() -> None:
    known = words("formats/canary.md")
    for document in documents():
        keys = set(document)
        for section in ("clock", "signatures", "steps", "exact", "bounded", "source", "errors"):
            keys |= set(document.get(section, {}))
        keys |= set(document.get("bounded", {}).get("errors", {})) | set(document["source"]["records"])
        keys |= {name for pattern in document["patterns"] for name in pattern}
        assert keys <= known, sorted(keys - known)


def test_every_field_of_a_trace_is_explained() -> None:
    known = words("formats/trace.md")
    fields = set(EVENT_FIELDS) - set(IGNORED_FIELDS) - {"partial_rank_arrival"}
    assert fields <= known, sorted(fields - known)
    assert set(_Section.__struct_fields__) <= known


def keys_of(value: Any, named: tuple[str, ...] = ()) -> set[str]:
    """Every key of a document, except where a key is a name of the trace or of the policy."""
    if isinstance(value, dict):
        return {k for k in value if k not in named} | {k for n, v in value.items() if n not in named for k in keys_of(v, named)}
    return {k for v in value for k in keys_of(v, named)} if isinstance(value, list) else set()


def _of_minimisers() -> dict[str, list[dict[str, Any]]]:
    trace = lab.samples.tp8_decode().take(slice(0, 120))
    blind = replace(trace, overlap_ns=Column.absent(len(trace)))
    observed = replace(trace, observed_exposed_ns=Column(np.arange(120) * 1000))
    reports = [lab.simulate(t, assume=a).to_json(samples=True) for t, a in ((trace, {}), (blind, {"overlap_us": 1.0}), (observed, {}))]
    reports[0]["source"] = {"canary": "0" * 64, "trace": "t.json"}
    a, b = lab.simulate(trace), lab.simulate(trace, "congested,seed=8")
    other = replace(lab.simulate(trace), by_phase={})
    return {
        "report": reports,
        "search_ledger": [search(trace, range(1, 3), refine=1).ledger()],
        "ddmin": [reduce(trace, budget=20).ledger()],
        "comparison": [
            compare(a, b, allow_incompatible=True).to_json(),
            compare(a, other).to_json(),
            compare(lab.samples.gloo4(), lab.samples.gloo4()).to_json(),
        ],
    }


@pytest.mark.parametrize("name", ["report", "search_ledger", "ddmin", "comparison"])
def test_every_key_of_a_document_is_explained(name: str) -> None:
    known = words(f"formats/{name}.md") | (words("formats/report.md") if name != "report" else set())
    for document in _of_minimisers()[name]:
        keys = keys_of(document, ("deltas", "thresholds"))
        assert keys <= known, sorted(keys - known)


@pytest.mark.parametrize("row", [HeaderRow, GroupRow, OpRow, EndRow])
def test_every_field_of_a_shard_is_explained(row: Any) -> None:
    missing = set(row.__struct_fields__) - words("formats/shards.md")
    assert not missing, sorted(missing)


def test_committed_columns_stand_in_their_order() -> None:
    text = (DOCS / "formats/commitment.md").read_text("utf-8")
    table = text[text.index("| column | type |") : text.index("Events are in time order")]
    named = [name for line in table.strip().splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert named == [name for name, _ in COLUMNS]


def test_models_page_names_ablations_and_backends() -> None:
    text = (DOCS / "models.md").read_text("utf-8")
    assert set(ABLATIONS) <= words("models.md")
    assert all(b.label in text for b in DEFAULT_BACKENDS)


def test_reference_of_the_command_line_has_every_verb_and_option() -> None:
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        from cli_reference import MARKER, render  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    assert MARKER in (DOCS / "cli.md").read_text("utf-8")
    text = render()
    for verb in ("open", "ops", "stragglers", "diff", "traffic", "capture", "compile", "simulate", "verify", "serve",
                 "fabric", "diagnose", "layout infer", "export"):  # fmt: skip
        assert f"### `{verb}`" in text
    assert "--max-prefix-gap-error-us" in text
    assert "--clock-offsets" in text


def test_decisions_are_listed() -> None:
    listed = (DOCS / "decisions/index.md").read_text("utf-8")
    for page in sorted((DOCS / "decisions").glob("0*.md")):
        assert page.stem in listed
