"""Compile: exact round trips, sizes, bounded budgets, commitments and what a canary states."""

from __future__ import annotations

import hashlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.canary.commit import COLUMNS, Committer
from commcanary_lab.canary.compile import BUDGET_FIELDS, compile_trace
from commcanary_lab.canary.model import Canary
from commcanary_lab.canary.read import read_canary, read_canary_bytes, write_canary
from commcanary_lab.canary.streams import BoundedStream
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.errors import BudgetError, FormatError, UnknownValueError, UsageError
from commcanary_lab.trace import Coded, Column, Ragged, Trace
from commcanary_lab.trace.json_v1 import read_json_bytes
from commcanary_lab.trace.timing import gaps_ns
from tests.bench.gen_traces import build
from tests.golden_traces import NAMES, golden_trace
from tests.strategies import traces

#: What a canary does not carry: measurements of the source run, ids, and what its document says elsewhere.
NOT_CARRIED = ("ids", "workload", "system", "extra", "coverage", "warnings", "unsized", "source_format", "duration_ns", "rank_start_ns")


def generated(shape: str, count: int) -> Trace:
    return read_json_bytes(canonical_bytes(build(shape, count)))


def again(canary: Canary) -> Canary:
    return read_canary_bytes(canary.canonical)


@given(traces())
def test_lossless_expands_to_the_exact_columns(trace: Trace) -> None:
    canary = compile_trace(trace)
    assert canary.timing == "lossless"
    assert canary.trace.first_difference(trace, ignore=NOT_CARRIED) is None
    read = again(canary)
    assert read.canonical == canary.canonical
    assert read.trace.first_difference(trace, ignore=NOT_CARRIED) is None


@given(traces(min_events=1, max_events=5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6))
def test_lossless_finds_repeats_and_stays_exact(trace: Trace, times: int, inner: int, more: int) -> None:
    body = np.concatenate([np.arange(len(trace))] * inner + [[0]])
    index = np.concatenate([np.tile(body, times * more), np.arange(len(trace))])
    # one timeline of the repeated rows: own gaps govern, so that no start contradicts another
    rows = trace.rows(index)
    repeated = Trace.build(
        len(index),
        **{
            n: getattr(rows, n)
            for n in (
                "op",
                "phase",
                "dtype",
                "reduction",
                "tag",
                "channel",
                "group",
                "groups",
                "size_bytes",
                "custom_op",
                "root",
                "sender",
                "receiver",
                "message_sequence",
                "compute_before_ns",
                "overlap_ns",
                "pressure",
                "concurrent_groups",
                "arrival_ns",
                "arrival_known",
                "splits",
                "observers",
                "rank_sets",
            )
        },
        gap_ns=Column(gaps_ns(trace)[index]),
    )
    canary = again(compile_trace(repeated))
    assert canary.trace.first_difference(repeated, ignore=NOT_CARRIED) is None


@pytest.mark.parametrize("name", NAMES)
def test_golden_canaries_are_smaller_than_their_source(name: str) -> None:
    trace = golden_trace(name)
    canary = again(compile_trace(trace))
    assert canary.size_bytes < canary.source.size_bytes
    assert canary.trace.first_difference(trace, ignore=NOT_CARRIED) is None


@pytest.mark.parametrize(("shape", "limit"), [("regular", 3_500), ("layered", 6_000), ("irregular", 80_000)])
def test_sizes_of_a_thousand_events(shape: str, limit: int) -> None:
    canary = compile_trace(generated(shape, 1000))
    assert canary.timing == "lossless"
    assert canary.size_bytes < limit


def test_size_of_a_hundred_thousand_irregular_events() -> None:
    canary = compile_trace(generated("irregular", 100_000))
    assert canary.size_bytes < 0.15 * canary.source.size_bytes


def test_interleaved_operations_compress() -> None:
    trace = generated("irregular", 1000)
    canary = again(compile_trace(trace, records=2))
    assert len(canary.signatures) == 70
    assert canary.size_bytes < 45_000
    assert all(len(s.lengths) <= 2 for s in canary.streams if isinstance(s, BoundedStream))


def true_errors(trace: Trace, canary: Canary) -> dict[str, float]:
    """Errors of the expanded canary against its source, field by field, in a plain way."""
    ours = canary.trace
    arrivals = np.array_equal(ours.arrival_ns.lengths, trace.arrival_ns.lengths)
    assert arrivals
    out = {
        "gap_ns": np.abs(gaps_ns(ours) - gaps_ns(trace)),
        "clock_ns": np.abs(np.cumsum(gaps_ns(ours)) - np.cumsum(gaps_ns(trace))),
        "arrival_ns": np.abs(ours.arrival_ns.values - trace.arrival_ns.values),
        "skew_ns": np.abs(ours.skew_ns.values - trace.skew_ns.values)[np.asarray(trace.arrival_known)],
        "compute_before_ns": np.abs(ours.compute_before_ns.filled(0) - trace.compute_before_ns.filled(0)),
        "overlap_ns": np.abs(ours.overlap_ns.filled(0) - trace.overlap_ns.filled(0)),
        "observed_exposed_ns": np.abs(ours.observed_exposed_ns.filled(0) - trace.observed_exposed_ns.filled(0)),
        "pressure": np.abs(ours.pressure.filled(0.0) - trace.pressure.filled(0.0)),
    }
    return {name: float(values.max(initial=0)) for name, values in out.items()}


@pytest.mark.parametrize("records", [1, 2, 5])
@pytest.mark.parametrize("name", ["adv100", "irr100", "single"])
def test_stated_errors_are_the_true_ones(name: str, records: int) -> None:
    trace = generated("single", 400) if name == "single" else golden_trace(name)
    canary = again(compile_trace(trace, records=records))
    found = true_errors(trace, canary)
    assert {n: canary.errors[n] for n in found} == pytest.approx(found)
    assert gaps_ns(canary.trace).sum() == gaps_ns(trace).sum()


@settings(max_examples=40)
@given(traces(min_events=1, max_events=8), st.integers(1, 3))
def test_bounded_canaries_state_true_errors(trace: Trace, records: int) -> None:
    index = np.sort(np.tile(np.arange(len(trace)), 12))
    rows = trace.rows(index)
    jitter = np.arange(len(index)) * 997 % 5000
    columns = {
        n: getattr(rows, n)
        for n in ("op", "phase", "group", "groups", "size_bytes", "custom_op", "arrival_known", "observers", "rank_sets", "pressure")
    }
    arrival = Ragged(rows.arrival_ns.values + np.repeat(jitter, rows.arrival_ns.lengths) % 7, rows.arrival_ns.pointers)
    source = Trace.build(len(index), **columns, gap_ns=Column(jitter), overlap_ns=Column(jitter * 3 + 1), arrival_ns=arrival)
    canary = again(compile_trace(source, records=records))
    found = true_errors(source, canary)
    assert {n: canary.errors[n] for n in found} == pytest.approx(found)


def test_budgets_hold_or_fail_closed() -> None:
    trace = generated("single", 500)
    canary = compile_trace(
        trace,
        budgets={
            "skew": 60.0,
            "gap": 900.0,
            "prefix_gap": 900.0,
            "arrival": 40.0,
            "overlap": 40.0,
            "compute_before": 900.0,
            "pressure": 0.3,
        },
    )
    assert canary.timing == "bounded_approximate"
    assert canary.errors["skew_ns"] <= 60_000
    assert canary.errors["gap_ns"] <= 900_000
    assert canary.errors["pressure"] <= 0.3
    with pytest.raises(BudgetError, match=r"skew.*step 0"):
        compile_trace(trace, records=2, budgets={"skew": 2.0})


@pytest.mark.parametrize(
    "options",
    [
        {"records": 0},
        {"budgets": {"nope": 1.0}},
        {"budgets": {"gap": -1.0}},
        {"budgets": {"gap": float("nan")}},
        {"events": (5, 5)},
        {"events": (0, 101)},
        {"events": (-1, 3)},
    ],
)
def test_wrong_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        compile_trace(golden_trace("adv100"), **options)  # type: ignore[arg-type]


def test_strict_refuses_unknown_fields_and_plain_compile_keeps_them() -> None:
    trace = golden_trace("adv100")
    blind = Trace.build(
        len(trace),
        op=trace.op,
        group=trace.group,
        groups=trace.groups,
        size_bytes=trace.size_bytes,
        gap_ns=trace.gap_ns,
        arrival_known=np.zeros(len(trace), np.bool_),
    )
    with pytest.raises(UnknownValueError, match="skew_us"):
        compile_trace(blind, strict=True)
    assert again(compile_trace(blind)).trace.unknown_fields == {"skew_us": 100, "overlap_us": 100}


def reference_commitment(trace: Trace, salt: bytes = b"") -> str:
    """The commitment of a whole trace, written out value by value from the format's description."""
    out = [b"cclab.commit.v1\0", salt]
    n = len(trace)

    def text(value: str) -> bytes:
        raw = value.encode()
        return struct.pack("<Q", len(raw)) + raw

    for name, _ in COLUMNS:
        values, code = reference_column(trace, name)
        out += [text(name), text(code), struct.pack("<Q", n)]
        nulls = [v is None for v in values]
        mask = bytearray((n + 7) // 8)
        for i, null in enumerate(nulls):
            mask[i // 8] |= null << (i % 8)
        out.append(bytes(mask))
        if code == "text":
            raw = [(v or "").encode() for v in values]
            out += [struct.pack("<Q", len(r)) for r in raw] + raw
        elif code == "ragged int64":
            rows = [v or [] for v in values]
            out += [struct.pack("<Q", len(r)) for r in rows] + [struct.pack("<q", x) for r in rows for x in r]
        else:
            out += [struct.pack({"int64": "<q", "bool": "<B", "float64": "<d"}[code], v or 0) for v in values]
    return hashlib.sha256(b"".join(out)).hexdigest()


def reference_column(trace: Trace, name: str) -> tuple[list[object], str]:
    n = len(trace)
    masked = {
        "root_rank": trace.root,
        "sender_rank": trace.sender,
        "receiver_rank": trace.receiver,
        "message_sequence": trace.message_sequence,
        "start_ns": trace.start_ns,
        "gap_ns": trace.gap_ns,
        "compute_before_ns": trace.compute_before_ns,
        "compute_overlap_ns": trace.overlap_ns,
        "observed_exposed_ns": trace.observed_exposed_ns,
        "compute_pressure": trace.pressure,
        "concurrent_groups": trace.concurrent_groups,
    }
    texts: dict[str, Coded] = {
        "phase": trace.phase,
        "op": trace.op,
        "dtype": trace.dtype,
        "reduction_op": trace.reduction,
        "tag": trace.tag,
        "channel": trace.channel,
    }
    if name in masked:
        c = masked[name]
        return [
            v if k else None for v, k in zip(c.values.tolist(), c.mask.tolist(), strict=True)
        ], "float64" if name == "compute_pressure" else "int64"
    if name in texts:
        return list(texts[name].to_list()), "text"
    if name == "id":
        return [None if trace.ids is None else trace.id(i) for i in range(n)], "text"
    if name == "custom_op":
        return trace.custom_op.tolist(), "bool"
    if name == "bytes":
        return trace.size_bytes.tolist(), "int64"
    if name == "group":
        return [trace.groups[g].name for g in trace.group.tolist()], "text"
    if name == "members":
        return [list(trace.groups[g].members) for g in trace.group.tolist()], "ragged int64"
    if name == "arrival_ns":
        rows = [trace.arrival_ns.row(i).tolist() for i in range(n)]
        return [r if k else None for r, k in zip(rows, np.asarray(trace.arrival_known).tolist(), strict=True)], "ragged int64"
    assert name == "splits"
    return [trace.splits.row(i).tolist() for i in range(n)], "ragged int64"


@given(traces(), st.binary(max_size=20))
def test_commitments_follow_the_format(trace: Trace, salt: bytes) -> None:
    assert Committer(trace, salt).digest(0, len(trace)) == reference_commitment(trace, salt)


def test_commitment_bytes_are_pinned() -> None:
    assert Committer(golden_trace("adv100")).digest(0, 100) == "8e1619ea3ce89320fab811e508359b43d14d0f53ff0c7f094546e0aeb1802e62"


def test_files_are_canonical_and_damage_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("canary") / "a.canary.json"
    canary = compile_trace(golden_trace("irr100"), records=1)
    assert write_canary(canary, path) == canary.size_bytes
    assert read_canary(path).canonical == canary.canonical
    document = json.loads(canary.canonical)
    for key in document:
        for damage in (lambda d, k=key: d.pop(k), lambda d, k=key: d.__setitem__(k, "x"), lambda d, k=key: d.__setitem__(k, None)):
            broken = json.loads(canary.canonical)
            damage(broken)
            with pytest.raises(FormatError):
                read_canary_bytes(canonical_bytes(broken))
    path.write_bytes(canary.canonical[: len(canary.canonical) // 2])
    with pytest.raises(FormatError, match=str(path)):
        read_canary(path)


def test_hostile_programs_are_refused_before_they_run() -> None:
    document = json.loads(compile_trace(golden_trace("adv100")).canonical)
    document["program"] = [[[-1, 10**9]], [[-2, 10**9]], [[0, 10**9]]]
    document["source"]["events"] = document["source"]["range"][1] = 10**27
    with pytest.raises(FormatError):
        read_canary_bytes(canonical_bytes(document))


def test_disclosure_names_what_a_canary_reveals() -> None:
    document = json.loads(compile_trace(generated("regular", 100)).canonical)
    assert document["disclosure"] == {
        "group_sizes": [8],
        "group_names": ["tp0"],
        "message_bytes": [65536, 131072],
        "loop_counts": [25],
        "phases": ["decode"],
        "timing": "exact",
        "commitments": "unsalted",
    }


def test_every_budget_field_has_a_command_line_option() -> None:
    from typer.testing import CliRunner

    from commcanary_lab.cli import app

    text = CliRunner().invoke(app, ["compile", "--help"], env={"COLUMNS": "200"}).output
    for name in BUDGET_FIELDS:
        assert f"--max-{name.replace('_', '-')}-error" in text


def test_small_canaries_are_exact_rather_than_bounded_and_larger() -> None:
    trace = golden_trace("adv100")
    for records in (1, 2, 8, 32):
        canary = compile_trace(trace, records=records)
        assert canary.size_bytes <= compile_trace(trace).size_bytes < 2000


def test_alternating_timing_gets_one_step_per_phase() -> None:
    import commcanary_lab as lab

    trace = lab.samples.tp8_decode()
    canary = compile_trace(trace, records=1)
    assert canary.timing == "bounded_approximate"
    # attention and MLP end in the same all-reduce, with and without overlapping compute: no step mixes the two
    overlap = canary.trace.overlap_ns.values
    decode = np.flatnonzero(np.array(trace.phase.to_list(), object) == "decode")
    without = decode[trace.overlap_ns.values[decode] == 0]
    assert not overlap[without].any()
