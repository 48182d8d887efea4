"""The shard reader on shards written by the recorder's own rows, and on broken ones."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from commcanary_lab.capture import rows
from commcanary_lab.capture.rows import EndRow, GroupRow, HeaderRow, OpRow, encode_rows, pending
from commcanary_lab.capture.shard import ShardFile
from commcanary_lab.errors import FormatError, InputError, LimitError, MergeError, UsageError
from commcanary_lab.importers import shard_lines, shards
from commcanary_lab.limits import Limits

BASE = 10_000_000


def header(rank: int, world: int = 2, **changes: object) -> HeaderRow:
    facts = dict(format=rows.FORMAT, rank=rank, world_size=world, host="h", boot_id="b", clock="monotonic@h/b", pid=1)
    facts |= dict(started_unix_ns=0, started_clock_ns=0, versions={"torch": "2.13"}, overhead_ns=5000)
    return HeaderRow(**{**facts, **changes})  # type: ignore[arg-type]


def group(ranks: list[int], backend: str = "gloo") -> GroupRow:
    return GroupRow(0, "tp", ranks, "0", backend)


def op(n: int, name: str = "all_reduce", **changes: object) -> OpRow:
    facts = dict(n=n, group=0, op=name, arrival_ns=BASE + n * 1000, seq=n, size_bytes=64, dtype="float32", is_async=False,
                 issued_ns=BASE + n * 1000 + 10, wait_ns=BASE + n * 1000 + 20, finish_ns=BASE + n * 1000 + 500)
    return OpRow(**{**facts, **changes})  # type: ignore[arg-type]


def message(n: int, sender: int, receiver: int, name: str, **changes: object) -> OpRow:
    return op(n, name, sender=sender, receiver=receiver, tag=0, is_async=None, seq=None, **changes)


def end(operations: int, **changes: object) -> EndRow:
    facts = dict(operations=operations, unfinished=0, stopped_clock_ns=0, overhead_ns=None, outside={}, problems={})
    return EndRow(**{**facts, **changes})  # type: ignore[arg-type]


def write(folder: Path, rank: int, *lines: object, ranks: list[int] | None = None, closed: bool = True, world: int = 2) -> Path:
    done = sum(isinstance(line, OpRow) for line in lines)
    path = folder / f"rank-{rank}.jsonl"
    path.write_bytes(encode_rows([header(rank, world), group(ranks or [0, 1]), *lines, *([end(done)] if closed else [])]))  # type: ignore[list-item]
    return path


def kind(field: msgspec.inspect.Field) -> str:
    """The type of a field without the bounds that the reader sets."""
    return re.sub(r"\b([gl][et])=-?\d+", r"\1=None", repr(field.type))


def test_writer_and_reader_define_the_same_lines() -> None:
    pairs = [(HeaderRow, shard_lines.Header), (GroupRow, shard_lines.Group), (OpRow, shard_lines.Op),
             (rows.PendingRow, shard_lines.Pending), (EndRow, shard_lines.End)]
    for written, read in pairs:
        a, b = msgspec.inspect.type_info(written), msgspec.inspect.type_info(read)
        assert isinstance(a, msgspec.inspect.StructType)
        assert isinstance(b, msgspec.inspect.StructType)
        assert (a.tag, a.tag_field) == (b.tag, b.tag_field)
        assert [(f.name, kind(f), f.required, f.default) for f in a.fields] == [(f.name, kind(f), f.required, f.default) for f in b.fields]
    assert rows.FORMAT == shards.FORMAT


def test_a_restarted_rank_sets_its_earlier_shard_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ShardFile(tmp_path, header(0, notes=["first"])).close(end(0))
    with pytest.raises(UsageError, match="already holds a shard"):
        ShardFile(tmp_path, header(0))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    shard = ShardFile(tmp_path, header(0, notes=["second"]))
    shard.close(end(0))
    shard.write([group([0, 1])])  # after the end: nothing
    assert shards.read(tmp_path).notes[0] == "second"
    assert shards.read(tmp_path / "rank-0.jsonl.attempt0").notes[0] == "first"


def test_recognise() -> None:
    assert shards.recognise(encode_rows([header(0)])[:100])
    assert not shards.recognise(b'{"format": "commcanary.trace.v1"}')
    assert not shards.recognise(b'{"traceEvents": []}\n"commcanary_lab.shard.v1"')
    assert not shards.recognise(b"")


def test_skew_is_the_difference_of_arrivals(tmp_path: Path) -> None:
    write(tmp_path, 0, op(0))
    write(tmp_path, 1, op(0, arrival_ns=BASE + 300))
    trace = shards.read(tmp_path)
    assert trace.arrival_ns.row(0).tolist() == [0, 300]
    assert trace.duration_ns.row(0).tolist() == [500, 200]
    assert trace.source_format == shards.FORMAT
    assert trace.system == {"world_size": 2}


def test_a_torn_last_line_is_a_warning_at_every_length(tmp_path: Path) -> None:
    path = write(tmp_path, 0, op(0), op(1), closed=False)
    whole = path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for cut in range(start + 1, len(whole)):
        path.write_bytes(whole[:cut])
        capture = shards.read_rank(path)
        assert len(capture.records) == 1
        assert any("cut short" in w for w in capture.warnings)
    path.write_bytes(whole[:start])
    assert not any("cut short" in w for w in shards.read_rank(path).warnings)


@pytest.mark.parametrize(("line", "text"), [
    (b"{}", "malformed line"), (b"not json", "malformed line"), (b"", "malformed line"),
    (b'{"kind":"op","n":5,"group":0,"op":"all_reduce","arrival_ns":"soon"}', r"Expected `int`, got `str` - at `\$.arrival_ns`"),
    (encode_rows([op(0)]).strip(), "operation 0 occurs twice"),
    (encode_rows([header(0)]).strip(), "a second header"),
    (encode_rows([GroupRow(1, "x", [0, 0], "1", "gloo")]).strip(), "group x has ranks"),
    (encode_rows([GroupRow(1, "x", [0, 7], "1", "gloo")]).strip(), "outside the world of 2"),
    (encode_rows([end(5)]).strip(), "the last line counts 5 operations, the file holds 1"),
])
def test_a_malformed_line_is_named(tmp_path: Path, line: bytes, text: str) -> None:
    path = write(tmp_path, 0, op(0), closed=False)
    path.write_bytes(path.read_bytes() + line + b"\n" + encode_rows([op(7)]))
    with pytest.raises(FormatError, match=text) as caught:
        shards.read_rank(path)
    assert caught.value.problems[0].line == 4
    assert caught.value.problems[0].file == str(path)


BAD_STARTS = [b"", b"\n", b'{"a": 1}\n', encode_rows([op(0)]), encode_rows([header(0)]).strip(), encode_rows([header(3)])]


@pytest.mark.parametrize("data", BAD_STARTS)
def test_a_file_without_a_good_header_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(FormatError):
        shards.read_rank(tmp_path / "x")


def test_missing_files_and_ranks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        shards.read(tmp_path / "rank-9.jsonl")
    with pytest.raises(FormatError, match="holds no rank"):
        shards.read(tmp_path)
    with pytest.raises(FormatError, match="no shard was given"):
        shards.read([])
    trace = shards.read(write(tmp_path, 0, op(0), ranks=[0, 2], world=3))
    assert trace.warnings == ("2 of 3 ranks have no shard here: 1, 2",)
    assert not trace.arrival_known.any()  # one of two members is no skew


def test_an_unknown_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="names group 4"):
        shards.read_rank(write(tmp_path, 0, op(0, group=4)))


def test_limits(tmp_path: Path) -> None:
    path = write(tmp_path, 0, op(0), op(1))
    with pytest.raises(LimitError, match="exceed"):
        shards.read_rank(path, limits=Limits(max_events=1))
    with pytest.raises(LimitError, match="exceed"):
        shards.read_rank(path, limits=Limits(max_file_bytes=10))


def test_pending_lines_give_way_to_finished_ones(tmp_path: Path) -> None:
    late = op(0)
    path = write(tmp_path, 0, pending(late), pending(op(1)), late, closed=False)
    capture = shards.read_rank(path)
    assert [r.sequence for r in capture.records] == [0]
    assert capture.coverage.skipped == {"unfinished when the process ended": 1}
    path = write(tmp_path, 0, pending(op(1)), late)
    assert shards.read_rank(path).coverage.skipped == {"never waited for": 1}


def test_a_message_lost_on_one_side_does_not_shift_the_others(tmp_path: Path) -> None:
    first = message(0, 0, 1, "send", size_bytes=8)
    write(tmp_path, 0, pending(first), message(1, 0, 1, "send", size_bytes=16), message(2, 0, 1, "send", size_bytes=24))
    write(tmp_path, 1, *(message(i, 0, 1, "recv", size_bytes=8 * (i + 1)) for i in range(3)))
    trace = shards.read(tmp_path)
    assert sorted(trace.size_bytes.tolist()) == [16, 24]
    assert trace.coverage.skipped == {"never waited for": 1, "the other end of the message did not finish": 1}


def test_messages_that_a_dead_rank_did_not_write_are_left_out_on_the_other_side(tmp_path: Path) -> None:
    write(tmp_path, 0, *(message(i, 0, 1, "send") for i in range(5)))
    write(tmp_path, 1, *(message(i, 0, 1, "recv") for i in range(3)), closed=False)
    trace = shards.read(tmp_path)
    assert len(trace) == 3
    assert trace.coverage.skipped == {"the other end of the message did not finish": 2}
    assert len(shards.read(tmp_path / "rank-0.jsonl")) == 5  # alone, nothing contradicts it


def test_messages_of_different_tags_are_counted_apart(tmp_path: Path) -> None:
    for r, name in enumerate(("send", "recv")):
        rows_ = [message(i, 0, 1, name, size_bytes=8 * (i + 1)) for i in range(4)]
        for i, row in enumerate(rows_):
            row.tag = i % 2
        write(tmp_path, r, *(rows_ if r == 0 else [rows_[1], rows_[0], rows_[3], rows_[2]]))
    trace = shards.read(tmp_path)
    assert sorted(zip(trace.size_bytes.tolist(), trace.tag.to_list(), strict=True)) == [(8, None), (16, "1"), (24, None), (32, "1")]


def test_a_message_to_itself_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, 0, op(0), message(1, 0, 0, "send"), message(2, 0, 0, "recv"))
    write(tmp_path, 1, op(0))
    trace = shards.read(tmp_path)
    assert len(trace) == 1
    assert trace.coverage.skipped == {"message of a rank to itself": 2}


def test_an_unreadable_size_is_an_unsized_row(tmp_path: Path) -> None:
    for r in (0, 1):
        write(tmp_path, r, op(0, "allreduce", size_bytes=None), op(1))
    trace = shards.read(tmp_path)
    assert len(trace) == 1
    assert trace.coverage.skipped == {"size not readable": 2}
    assert [(u.name, u.time_ns, u.rank) for u in trace.unsized] == [("allreduce", 500, 0), ("allreduce", 500, 1)]


def test_device_operations_have_order_and_no_invented_times(tmp_path: Path) -> None:
    for r in (0, 1):
        write(tmp_path, r, op(0, device="cuda"), op(1, device="cuda"))
    trace = shards.read(tmp_path)
    assert len(trace) == 2
    assert trace.start_ns.all_known
    assert not trace.arrival_known.any()
    assert trace.overlap_ns.none_known
    assert trace.duration_max_ns.none_known
    assert any("operations on a device" in n for n in trace.notes)


def test_splits_follow_the_members_not_the_groups_own_order(tmp_path: Path) -> None:
    for r in (0, 1):
        write(tmp_path, r, op(0, "all_to_all_v", sent_splits=[10 + r, 20 + r], received_splits=[30, 40]), ranks=[1, 0])
    trace = shards.read(tmp_path)
    assert trace.splits.row(0).tolist() == [30, 70, 20, 10, 40, 30, 32, 70, 21, 11, 40, 30]
    with pytest.raises(FormatError, match="1 splits in a group of 2"):
        shards.read_rank(write(tmp_path, 0, op(0, "all_to_all_v", sent_splits=[1], received_splits=[1, 2])))


def test_nccl_tags_do_not_separate_messages(tmp_path: Path) -> None:
    for r, (name, tag) in enumerate([("send", 3), ("recv", 0)]):
        row = message(0, 0, 1, name)
        row.tag = tag
        path = write(tmp_path, r, row)
        path.write_bytes(path.read_bytes().replace(b'"gloo"', b'"nccl"'))
    trace = shards.read(tmp_path)
    assert len(trace) == 1
    assert trace.observer_counts.tolist() == [2]


def test_reductions_outside_the_vocabulary_stay_unknown(tmp_path: Path) -> None:
    capture = shards.read_rank(write(tmp_path, 0, op(0, reduction="bxor"), op(1, reduction="premul_sum"), op(2, "reduce", reduction="max")))
    assert [r.reduction for r in capture.records] == [None, "sum", None]
    assert [r.custom_op for r in capture.records] == [False, False, True]


def test_two_jobs_or_two_claims_are_refused(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir(), b.mkdir()
    with pytest.raises(MergeError, match="of a job of 2 ranks, this one of 3"):
        shards.read([write(a, 0, op(0)), write(b, 1, op(0), world=3)])
    with pytest.raises(MergeError, match="both claim rank 0"):
        shards.read([write(a, 0, op(0)), write(b, 0, op(0))])


def test_hosts_without_calibration_have_no_skew(tmp_path: Path) -> None:
    write(tmp_path, 0, op(0))
    path = write(tmp_path, 1, op(0, arrival_ns=99_000_000, finish_ns=99_001_000))
    path.write_bytes(path.read_bytes().replace(b"monotonic@h/b", b"monotonic@g/c"))
    assert not shards.read(tmp_path).arrival_known.any()
    trace = shards.read(tmp_path, clock_offsets_ns={0: 0, 1: BASE + 7 - 99_000_000})
    assert trace.arrival_ns.row(0).tolist() == [0, 7]


def test_what_the_recorder_could_not_see_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.jsonl"
    path.write_bytes(encode_rows([header(0, 1), group([0]), op(0), end(1, outside={"tp": 4}, problems={"send: size not readable: X": 2})]))
    warnings = shards.read(path).warnings
    assert any("4 collectives of group tp ran outside the recorder" in w for w in warnings)
    assert "rank-0.jsonl: 2 x send: size not readable: X" in warnings
