"""Exports are read back by our own importers with the same operations, groups, sizes, order per rank, and M."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

import commcanary_lab as lab
from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.export import Export, export_chakra, export_param, export_param_et
from commcanary_lab.trace import Coded, Column, ProcessGroup, Trace
from tests.export.programs import operations, programs

EXPORTS: dict[str, Callable[..., Export]] = {"param": export_param, "param-et": export_param_et}


def _back(export: Callable[..., Export], source: Any, **options: Any) -> tuple[Export, Trace]:
    with tempfile.TemporaryDirectory() as folder:
        done = export(source, folder, **options)
        return done, lab.open(folder)


def _links(trace: Trace) -> list[tuple[int, int, float]]:
    return [(x.src, x.dst, x.size_bytes) for x in lab.traffic(trace).links()]


@pytest.mark.parametrize("kind", EXPORTS)
@given(trace=programs())
def test_operations_groups_sizes_and_m_come_back(kind: str, trace: Trace) -> None:
    canary = lab.compile(trace)
    done, back = _back(EXPORTS[kind], canary)
    want = operations(canary.trace)
    assert operations(back) == want
    assert done.entries == sum(map(len, want.values()))
    assert done.events == len(trace)
    assert not done.skipped
    assert not back.unsized
    assert _links(back) == _links(trace)


@given(trace=programs())
def test_a_trace_exports_like_its_canary(trace: Trace) -> None:
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        files = [p.read_bytes() for p in export_param(trace, a).files]
        assert files == [p.read_bytes() for p in export_param(lab.compile(trace), b).files]


@given(trace=programs())
def test_starts_are_the_gaps_added_up(trace: Trace) -> None:
    """Every entry of every rank carries the time of its event, from the start of a replay."""
    with tempfile.TemporaryDirectory() as folder:
        export_param(lab.compile(trace), folder)
        clock = np.cumsum(trace.gap_ns.values)
        want: dict[int, list[int]] = {}
        for i in range(len(trace)):
            ends = (int(trace.sender.values[i]), int(trace.receiver.values[i])) if trace.sender.mask[i] else None
            for rank in ends or trace.groups[trace.group[i]].members:
                want.setdefault(rank, []).append(int(clock[i]))
        for rank, times in want.items():
            entries = json.loads((Path(folder) / f"{rank}.json").read_text())
            assert [e["startTime_ns"] for e in entries if e["comms"] != "init" and "sets_group" not in e] == times


@given(trace=programs(uneven=False))
def test_chakra_comes_back(trace: Trace) -> None:
    canary = lab.compile(trace)
    done, back = _back(export_chakra, canary)
    # the schema has no element types, and a lone file cannot say how many NPUs there are
    assume(done.ranks > 1 or all(len(g.members) == 1 for g in back.groups))
    assert operations(back, dtypes=False) == operations(canary.trace, dtypes=False)
    assert _links(back) == _links(trace)
    starts = (np.cumsum(trace.gap_ns.values) + 500) // 1000 * 1000
    assert back.start_ns.values.tolist() == (starts - starts[0]).tolist()


@pytest.mark.parametrize("kind", EXPORTS)
def test_bundled_samples(kind: str) -> None:
    for trace in (lab.samples.gloo4(), lab.samples.tp8_decode()):
        _, back = _back(EXPORTS[kind], lab.compile(trace, records=8))
        assert operations(back) == operations(trace)
        assert lab.traffic(trace).first_difference(lab.traffic(back)) is None


def test_every_file_declares_every_group_in_the_same_order(tmp_path: Path) -> None:
    export_param(lab.compile(lab.samples.gloo4()), tmp_path)
    inits = [[e for e in json.loads((tmp_path / f"{r}.json").read_text()) if e["comms"] == "init"] for r in range(4)]
    assert len(inits[0]) == 7
    assert all(i == inits[0] for i in inits)


def _one(op: str, size: int, dtype: str | None, members: tuple[int, ...] = (0, 1), **columns: Any) -> Trace:
    custom = np.array([op not in ("all_reduce", "all_gather", "broadcast", "send", "recv", "all_to_all")])
    return Trace.build(
        1, op=Coded.from_optional([op]), groups=(ProcessGroup("g", members),), group=np.zeros(1, np.int32), custom_op=custom,
        size_bytes=np.array([size]), dtype=Coded.from_optional([dtype]), **columns,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (_one("all_reduce", 10, "float32"), "not a whole number of elements: 10 bytes of float32"),
        (_one("all_gather", 12, "float32"), "12 bytes of float32 in 2 equal parts"),
        (_one("all_reduce", 8, "float8_e4m3fn"), "dtype without equivalent: float8_e4m3fn"),
        (_one("all_reduce", 8, "complex64"), "dtype without equivalent"),
        (_one("fused step", 8, "float32"), "operation without equivalent: fused step"),
        (_one("all_reduce", 8, None), "dtype unknown: --assume dtype=uint8"),
        (_one("broadcast", 8, "float32"), "root unknown: --assume root=first"),
        (_one("all_to_all_v", 8, "float32"), "splits unknown"),
        (_one("send", 8, "float32"), "peer unknown"),
        (_one("barrier", 8, None), "barrier with bytes"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
@pytest.mark.parametrize("kind", EXPORTS)
def test_what_cannot_be_said_is_refused_and_names_the_event(kind: str, trace: Trace, why: str, tmp_path: Path) -> None:
    good = lab.samples.tp8_decode()
    with pytest.raises(RefusedError, match="event 0") as refused:
        EXPORTS[kind](trace, tmp_path / "a")
    assert why in str(refused.value)
    assert not (tmp_path / "a").exists()
    with pytest.raises(RefusedError, match="nothing is left"):
        EXPORTS[kind](trace, tmp_path / "a", skip_unsupported=True)
    assert EXPORTS[kind](good, tmp_path / "a").entries == 8 * len(good)


def test_skipped_calls_are_listed_and_the_rest_is_whole(tmp_path: Path) -> None:
    trace = lab.samples.gloo4()
    sizes = trace.size_bytes.copy()
    sizes[trace.op.codes == trace.op.names.index("all_reduce")] += 1
    from dataclasses import replace

    odd = replace(trace, size_bytes=sizes)
    done, back = _back(export_param, odd, skip_unsupported=True)
    kept = [i for i in range(len(trace)) if trace.op.text(i) != "all_reduce"]
    assert [(s.op, s.events, s.first_event) for s in done.skipped] == [("all_reduce", 200, 2)]
    assert operations(back) == operations(trace.take(np.array(kept)))
    assert any("200 of 252 events are left out" in n for n in done.notes)


def test_assumptions_are_asked_for_and_recorded(tmp_path: Path) -> None:
    trace = lab.samples.adversarial()  # says no dtype
    done, back = _back(export_param, trace, assume={"dtype": "uint8"})
    assert done.assumptions == {"dtype": "uint8"}
    assert "assumed where unknown: dtype = uint8" in done.notes
    assert back.size_bytes.tolist() == trace.size_bytes.tolist()
    with pytest.raises(UsageError, match="cannot be assumed"):
        export_param(trace, tmp_path, assume={"dtype": "float32"})
    with pytest.raises(UsageError, match="cannot assume 'skew_us'"):
        export_param(trace, tmp_path, assume={"skew_us": "0"})
    rooted = _one("broadcast", 8, "float32", (2, 5))
    _, back = _back(export_param, rooted, assume={"root": "first"})
    assert back.root.values.tolist() == [2]


def test_both_sides_of_one_message_become_one_pair() -> None:
    ends = {"sender": Column(np.array([0, 0, 0])), "receiver": Column(np.array([1, 1, 1]))}
    trace = Trace.build(
        3, op=Coded.from_optional(["send", "recv", "recv"]), groups=(ProcessGroup("pp", (0, 1, 2)),), group=np.zeros(3, np.int32),
        size_bytes=np.array([8, 8, 8]), dtype=Coded.constant(3, "float32"), **ends,
    )  # fmt: skip
    done, back = _back(export_param, trace)
    assert (done.events, done.entries, len(back)) == (2, 4, 2)
    assert _links(back) == _links(trace) == [(0, 1, 16.0)]


def test_uneven_exchange_of_silent_ranks_is_taken_from_the_others() -> None:
    """What a rank sent is known from its receivers where it did not report itself; what stays unknown is refused."""
    from commcanary_lab.trace import Ragged

    #        sent, received, to 0, to 1, from 0, from 1
    row0 = [12, 8, 4, 8, 4, 4]
    options: dict[str, Any] = {"splits": Ragged.from_rows([row0]), "observers": np.zeros(1, np.int32), "rank_sets": ((0,),)}
    with pytest.raises(RefusedError, match="splits unknown"):
        _back(export_param, _one("all_to_all_v", 12, "float32", **options))
    both = [*row0, 4, 8, 4, -1, 8, 0]  # rank 1 does not say what it sends itself, but what it gets from itself
    options = {"splits": Ragged.from_rows([both])}
    _, back = _back(export_param, _one("all_to_all_v", 12, "float32", **options))
    assert back.splits.row(0).tolist() == [12, 8, 4, 8, 4, 4, 4, 8, 4, 0, 8, 0]


def test_barriers_of_param_are_on_their_own_group(tmp_path: Path) -> None:
    """PARAM runs a barrier on the group used last: where that is another one, an empty all-reduce sets it, on every member."""
    world, pair = ProcessGroup("w", (0, 1, 2)), ProcessGroup("p", (0, 1))
    ops = ["all_reduce", "barrier", "barrier", "all_reduce", "barrier"]
    trace = Trace.build(
        5, op=Coded.from_optional(ops), groups=(world, pair), group=np.array([0, 0, 0, 1, 0], np.int32),
        size_bytes=np.array([8, 0, 0, 8, 0]),
        dtype=Coded.from_optional(["float32", None, None, "float32", None]), custom_op=np.array([o == "barrier" for o in ops]),
    )  # fmt: skip
    export_param(trace, tmp_path)
    for rank in range(3):
        entries = [e for e in json.loads((tmp_path / f"{rank}.json").read_text()) if e["comms"] != "init"]
        used = None
        for e in entries:
            assert e["comms"] != "barrier" or e["pg_id"] == used
            used = e["pg_id"]
        assert [e.get("sets_group", False) for e in entries].count(True) == 1
    assert operations(lab.open(tmp_path)) == operations(trace)
