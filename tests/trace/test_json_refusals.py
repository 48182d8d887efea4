"""Every refusal of the interchange JSON: all errors at once, each with file, event, field, value and remedy.

Each case runs on a small file, whose keys are compared in Python, and on one of more than 256 KiB, which goes through the compiled scan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numba  # noqa: F401 - with it loaded, SMALL_BYTES decides how a file is read
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import FormatError, InputError, LabError, LimitError, TimingError
from commcanary_lab.limits import Limits
from commcanary_lab.trace import Trace
from commcanary_lab.trace.json_v1 import SMALL_BYTES, read_json, read_json_bytes
from commcanary_lab.trace.scan import BATCH
from commcanary_lab.trace.schema_v1 import EVENT_FIELDS
from tests.strategies import texts

EVENT = {"op": "all_reduce", "bytes": 64, "ranks": [0, 1, 2, 3], "group": "tp0"}
ROUND = "round it to 3 decimals, or accept rounding with --round-ns"
KEYS = "give exactly the ranks as keys"
ENDS = "point_to_point needs sender_rank and receiver_rank"
EITHER = "remove one of the two"
ONCE = "list each rank once, in ascending order"
REDUCES = "only all_reduce and reduce_scatter reduce"
PAD = [{**EVENT, "phase": "p" * 4000} for _ in range(70)]


def encode(events: list[Any], **top: Any) -> bytes:
    return json.dumps({"format": "commcanary.trace.v1", **top, "events": events}).encode()


@pytest.fixture(params=["small", "large"])
def pad(request: pytest.FixtureRequest) -> list[Any]:
    if request.param == "small":
        return []
    assert len(encode(PAD)) > SMALL_BYTES
    return PAD


def problems(data: bytes, **options: Any) -> list[tuple[int | None, str | None, str, str | None]]:
    with pytest.raises(InputError) as e:
        read_json_bytes(data, file="t.json", **options)
    assert {p.file for p in e.value.problems} == {"t.json"}
    return [(p.record, p.field, p.what, p.remedy) for p in e.value.problems]


CASES: list[tuple[dict[str, Any], str | None, str, str]] = [
    # fields of the wrong kind
    ({"bytes": "64"}, "bytes", "bytes is a string ('64')", "write an integer, without quotes"),
    ({"gap_us": "1.5"}, "gap_us", "gap_us is a string ('1.5')", "write a number, without quotes"),
    ({"gap_us": None}, "gap_us", "gap_us is null (None)", "leave the field out where the value is unknown"),
    ({"rank_arrival_us": None}, "rank_arrival_us", "rank_arrival_us is null (None)", "leave the field out where the value is unknown"),
    ({"bytes": 64.0}, "bytes", "bytes is a number (64.0)", "expected an integer"),
    ({"bytes": True}, "bytes", "bytes is a boolean (True)", "expected an integer"),
    ({"ranks": ["0", "1"]}, "ranks", "ranks[0] is a string ('0')", "write an integer, without quotes"),
    ({"op": 3}, "op", "op is a number (3)", "expected a string"),
    ({"custom_op": 1}, "custom_op", "custom_op is a number (1)", "expected a boolean"),
    # values out of range
    ({"bytes": 0}, "bytes", "bytes is 0", "expected a value at least 1"),
    ({"bytes": -4}, "bytes", "bytes is -4", "expected a value at least 1"),
    ({"bytes": 1 << 63}, "bytes", f"bytes is {1 << 63}", f"expected a value at most {1 << 62}"),
    ({"gap_us": -1}, "gap_us", "gap_us is -1", "expected a value at least 0"),
    ({"start_us": 2e12}, "start_us", "start_us is 2000000000000.0", "expected a value at most 1000000000000.0"),
    ({"compute_pressure": -0.5}, "compute_pressure", "compute_pressure is -0.5", "expected a value at least 0"),
    ({"concurrent_groups": 0}, "concurrent_groups", "concurrent_groups is 0", "expected a value at least 1"),
    ({"message_sequence": -1}, "message_sequence", "message_sequence is -1", "expected a value at least 0"),
    ({"op": ""}, "op", "op is ''", "expected a value of length at least 1"),
    ({"id": "x" * 4097}, "id", "id is 'xxxx", "expected a value of length at most 4096"),
    ({"ranks": 0}, "ranks", "ranks is 0", "expected a value at least 1"),
    ({"ranks": []}, "ranks", "ranks is empty", "list at least one rank"),
    ({"ranks": [0, 1, -1]}, "ranks", "ranks[2] is -1", "expected a value at least 0"),
    ({"ranks": [0, 1, 1]}, "ranks", "ranks lists a rank twice", "list each rank once"),
    ({"lab_bytes": 4}, "lab_bytes", "lab_bytes is 4", "the only value is 0"),
    ({"lab_bytes": 0}, "lab_bytes", "says 0 but bytes is 64", "write bytes: 1 for a zero size"),
    # vocabulary
    ({"op": "allreduce"}, "op", "op 'allreduce' is not in the vocabulary", "write 'all_reduce'"),
    ({"op": "gather"}, "op", "op 'gather' is not in the vocabulary", "add custom_op: true if it is meant"),
    ({"dtype": "half"}, "dtype", "dtype 'half' is not a known dtype", "write 'float16'"),
    ({"dtype": "quint4"}, "dtype", "dtype 'quint4' is not a known dtype", "see the dtype table of the format"),
    ({"reduction_op": "mean"}, "reduction_op", "reduction_op 'mean' is not known", "write 'avg'"),
    ({"op": "broadcast", "reduction_op": "sum"}, "reduction_op", "reduction_op is given on broadcast", REDUCES),
    ({"dtype": "int8", "lab_dtype": "int7"}, "lab_dtype", "is given beside dtype", EITHER),
    # members
    ({"rank_count": 3}, "rank_count", "rank_count is 3 but ranks has 4", "remove rank_count or make it agree"),
    ({"root_rank": 4}, "root_rank", "root_rank 4 is not among the ranks", "name a member of the group"),
    ({"op": "point_to_point"}, "sender_rank", "is missing", ENDS),
    ({"op": "point_to_point", "sender_rank": 0}, "receiver_rank", "is missing", ENDS),
    ({"op": "point_to_point", "sender_rank": 0, "receiver_rank": 9}, "receiver_rank", "receiver_rank 9 is not among the ranks",
     "name a member of the group"),
    ({"lab_observers": [0, 7]}, "lab_observers", "names a rank that is not a member", "list members only"),
    ({"lab_observers": [1, 0]}, "lab_observers", "is not in ascending order, or names a rank twice", ONCE),
    ({"lab_duration_us": [1.5]}, "lab_duration_us", "has 1 values for 4 reporting ranks", "give one value per reporting rank"),
    ({"lab_splits": [1, 2]}, "lab_splits", "has 2 values, expected 40", "re-export the trace"),
    # arrivals
    ({"rank_arrival_us": {"0": 0, "1": 0, "2": 0}}, "rank_arrival_us", "has no value for rank 3", KEYS),
    ({"rank_arrival_us": {"0": 0, "1": 0, "2": 0, "3": 0, "4": 0}}, "rank_arrival_us", "names rank 4, which is not a member",
     KEYS),
    ({"rank_arrival_us": {"0": 0, "1": 0, "2": 0, "03": 0}}, "rank_arrival_us", "has no value for rank 3", KEYS),
    ({"rank_arrival_us": {"x": 0}}, "rank_arrival_us", "rank_arrival_us has the key 'x', which is not a rank", "use ranks as keys"),
    ({"rank_arrival_us": [0, 1]}, "rank_arrival_us", "has 2 values for 4 ranks", "give one value per rank"),
    ({"rank_arrival_us": [0, 0, 0, -2]}, "rank_arrival_us", "rank_arrival_us[3] is -2", "expected a value at least 0"),
    ({"rank_arrival_us": [0, 0, 0, 2], "arrival_skew_us": 3}, "arrival_skew_us", "is 3 but the arrivals differ by 2.0",
     "remove it or make it agree"),
    ({"ranks": 1, "arrival_skew_us": 3}, "arrival_skew_us", "is 3 on a group of one rank", "one rank has no skew: remove it"),
    ({"rank_arrival_us": [0, 0, 0, 2], "arrival_skew_unknown": True}, "arrival_skew_unknown",
     "arrivals are given although they are declared unknown", EITHER),
    ({"arrival_skew_us": 0, "arrival_skew_unknown": True}, "arrival_skew_unknown",
     "arrivals are given although they are declared unknown", EITHER),
    ({"partial_rank_arrival": True}, "partial_rank_arrival", "arrivals of only some ranks are refused",
     "give all ranks, or arrival_skew_unknown: true"),
    ({"compute_overlap_us": 0, "compute_overlap_unknown": True}, "compute_overlap_unknown",
     "compute_overlap_us is given although it is declared unknown", EITHER),
    # nanoseconds
    ({"gap_us": 1.00001}, "gap_us", "1.00001 us is not a whole number of nanoseconds", ROUND),
    ({"arrival_skew_us": 0.0005}, "arrival_skew_us", "0.0005 us is not a whole number of nanoseconds",
     ROUND),
    ({"rank_arrival_us": [0, 0, 0.1234, 0]}, "rank_arrival_us", "0.1234 us is not a whole number of nanoseconds",
     ROUND),
    ({"lab_duration_us": [1, 1, None, 0.1234]}, "lab_duration_us", "0.1234 us is not a whole number of nanoseconds",
     ROUND),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field", "what", "remedy"), CASES, ids=lambda v: next(iter(v)) if isinstance(v, dict) else None)
def test_one_thing_wrong(pad: list[Any], change: dict[str, Any], field: str, what: str, remedy: str) -> None:
    found = problems(encode([*pad, {**EVENT, **change}]))
    record, where, text, advice = found[0]
    assert (record, where, advice) == (len(pad), field, remedy)
    assert text.startswith(what)
    if "point_to_point" not in change.values():
        assert len(found) == 1, found


@pytest.mark.parametrize("name", ["op", "bytes", "ranks"])
def test_required_fields(pad: list[Any], name: str) -> None:
    event = {k: v for k, v in EVENT.items() if k != name}
    assert problems(encode([*pad, event])) == [(len(pad), name, "is missing", f"every event needs {name}")]


@pytest.mark.parametrize("event", [None, 3, "x", [], True])
def test_events_are_objects(pad: list[Any], event: Any) -> None:
    ((record, _, what, remedy),) = problems(encode([*pad, event]))
    assert record == len(pad)
    assert what.endswith("not an object")
    assert remedy == "write an object with op, bytes and ranks"


def test_duplicate_ids(pad: list[Any]) -> None:
    events = [*pad, {**EVENT, "id": "a"}, {**EVENT, "id": "b"}, {**EVENT, "id": "a"}]
    n = len(pad)
    assert problems(encode(events)) == [(n + 2, "id", f"id 'a' is already used by event {n}", "give every event its own id")]


def test_a_rank_outside_the_world(pad: list[Any]) -> None:
    event = {**EVENT, "ranks": [0, 8]}
    expected = (len(pad), "ranks", "rank 8 is outside system.world_size 8", "correct the rank or the world size")
    assert problems(encode([*pad, event], system={"world_size": 8})) == [expected]
    assert read_json_bytes(encode([*pad, event], system={"world_size": 9})).ranks[-1] == 8


@pytest.mark.parametrize("world", ["8", 0, -1, 8.0, True, None])
def test_world_size_is_a_count(pad: list[Any], world: Any) -> None:
    found = problems(encode([*pad, EVENT], system={"world_size": world}))
    assert found == [(None, "system.world_size", f"is {world!r}", "write a whole number >= 1 or leave it out")]


def test_observed_exposed_on_every_event_or_on_none(pad: list[Any]) -> None:
    events = [*pad, EVENT, {**EVENT, "observed_exposed_us": 4}]
    what = f"observed_exposed_us is on 1 of {len(events)} events"
    assert problems(encode(events)) == [(None, "observed_exposed_us", what, "give it on every event or on none")]
    whole = [{**e, "observed_exposed_us": 4} for e in events]
    assert read_json_bytes(encode(whole)).observed_exposed_ns.values.tolist() == [4000] * len(whole)


@pytest.mark.parametrize("name", ["workload", "system"])
def test_sections_are_objects(pad: list[Any], name: str) -> None:
    assert problems(encode([*pad, EVENT], **{name: [1]})) == [(None, name, f"{name} is an array, not an object", "write an object")]


def test_a_damaged_lab_section() -> None:
    with pytest.raises(InputError, match=r"t.json: system.commcanary_lab: is damaged: .*notes.*remove the section"):
        read_json_bytes(encode([EVENT], system={"commcanary_lab": {"notes": 3}}), file="t.json")


HEAD = b'{"format": "commcanary.trace.v1", "events": []'


# -- the whole document -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"[1]", "the top level is an array, not an object"),
        (b"{", "not JSON"),
        (b'{"events": []}', "t.json: format: is missing; expected 'commcanary.trace.v1'"),
        (b'{"format": "x", "events": []}', "format is 'x'; expected 'commcanary.trace.v1'"),
        (b'{"format": "commcanary.trace.v1"}', "t.json: events: is missing; write a list of event objects"),
        (b'{"format": "commcanary.trace.v1", "events": null}', "events is null, not an array"),
        (b'{"format": "commcanary.trace.v1", "events": [], "system": {"a": NaN}}', "NaN is not a JSON number"),
        (b'{"format": "commcanary.trace.v1", "events": [], "system": {"a": -Infinity}}', "-Infinity is not a JSON number"),
        (b'\xff\xfe{"format": 1}', "not UTF-8 text"),
        ('{"format": "commcanary.trace.v1", "events": []}'.encode("utf-16"), "not UTF-8 text"),
        (b'{"format": "commcanary.trace.v1",\n "events": [}', "line 2: not JSON"),
        (HEAD + b', "system": {"n": ' + b"9" * 5000 + b"}}", "t.json"),
        (HEAD + b', "workload": {"n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "nested too deeply"),
    ],
    ids=range(14),
)  # fmt: skip
def test_not_a_trace_at_all(data: bytes, message: str) -> None:
    with pytest.raises(LabError) as e:
        read_json_bytes(data, file="t.json")
    assert message in str(e.value)


def test_the_missing_file_is_named(tmp_path: Any) -> None:
    with pytest.raises(InputError, match=r"t\.json: cannot be read: No such file"):
        read_json(tmp_path / "t.json")


def test_limits(pad: list[Any]) -> None:
    with pytest.raises(LimitError, match="events exceed the limit of 0"):
        read_json_bytes(encode([*pad, EVENT]), limits=Limits(max_events=0))
    with pytest.raises(LimitError, match="group members exceed the limit of 16777216"):
        read_json_bytes(encode([*pad, *({**EVENT, "group": f"g{i}", "ranks": 1 << 20} for i in range(100))]))
    groups = [{**EVENT, "group": f"g{i}"} for i in range(4)]
    with pytest.raises(LimitError, match="process groups exceed the limit of 2"):
        read_json_bytes(encode([*pad, *groups]), limits=Limits(max_groups=2))


# -- duplicate and unknown keys ---------------------------------------------------------------------------------------


def splice(pad: list[Any], event: str, top: str = "") -> bytes:
    """A document with hand-written text for the last event and the top level."""
    data = encode([*pad, "EVENT"], workload={"name": "w"}, TOP=0).decode()
    return data.replace('"EVENT"', event).replace('"TOP": 0, ', top).encode()


@pytest.mark.parametrize(
    ("event", "top", "key"),
    [
        ('{"op": "all_reduce", "bytes": 1, "ranks": 2, "bytes": 2}', "", "bytes"),
        ('{"op": "all_reduce", "bytes": 1, "ranks": 2, "rank_arrival_us": {"0": 1, "1": 1, "0": 5}}', "", "0"),
        ('{"op": "all_reduce", "bytes": 1, "ranks": 2}', '"format": "commcanary.trace.v1", ', "format"),
        ('{"op": "all_reduce", "bytes": 1, "ranks": 2}', '"workload": {}, ', "workload"),
        ('{"op": "all_reduce", "bytes": 1, "ranks": 2}', '"system": {"a": {"b": 1, "b": 2}}, ', "b"),
        ('{"op": "all_reduce", "bytes": 1, "ranks": 2}', '"events": [], ', "events"),
        ('{"op": "all_reduce", "byt\\u0065s": 1, "ranks": 2, "bytes": 2}', "", "bytes"),
    ],
)  # fmt: skip
def test_duplicate_keys(pad: list[Any], event: str, top: str, key: str) -> None:
    with pytest.raises(FormatError, match=rf"t.json: the key '{key}' occurs twice in one object; keep one of the two"):
        read_json_bytes(splice(pad, event, top), file="t.json")


def test_the_spliced_document_is_otherwise_valid(pad: list[Any]) -> None:
    trace = read_json_bytes(splice(pad, '{"op": "all_reduce", "bytes": 1, "ranks": 2}'), file="t.json")
    assert len(trace) == len(pad) + 1
    assert not trace.warnings


def test_unknown_fields_are_warnings_with_the_nearest_name(pad: list[Any]) -> None:
    events = [*pad, {**EVENT, "compute_presure": 0.5}, {**EVENT, "compute_presure": 0.5, "zzz": 1}]
    trace = read_json_bytes(encode(events, worklod={}), file="t.json")
    assert trace.warnings == (
        "t.json: top level: unknown field 'worklod' is not used; did you mean workload?",
        "t.json: unknown field 'compute_presure' on 2 events is not used; did you mean compute_pressure?",
        "t.json: unknown field 'zzz' on 1 event is not used",
    )
    assert trace.pressure.none_known


def test_many_unknown_fields_are_counted(pad: list[Any]) -> None:
    trace = read_json_bytes(encode([*pad, {**EVENT, **{f"zz{i:03}": 1 for i in range(300)}}]))
    assert len(trace.warnings) == 21
    assert trace.warnings[-1].endswith("280 more unknown fields are not used")


def test_recipes_are_read_over_with_a_warning(pad: list[Any]) -> None:
    recipe = [{"op": "gemm", "m": 1}]
    trace = read_json_bytes(encode([*pad, {**EVENT, "compute_recipe": recipe, "compute_recipe_by_rank": {"0": recipe}}]))
    assert trace.warnings == ("compute_recipe on 1 events is not used", "compute_recipe_by_rank on 1 events is not used")


# -- everything at once -----------------------------------------------------------------------------------------------


def test_all_errors_are_listed_first_twenty_then_a_count(pad: list[Any]) -> None:
    wrong = [{**EVENT, "bytes": 0, "gap_us": "1", "dtype": "half"} for _ in range(10)]
    with pytest.raises(InputError) as e:
        read_json_bytes(encode([*pad, *wrong, {**EVENT, "gap_us": 0.00001}]), file="t.json")
    assert len(e.value.problems) == 31
    lines = str(e.value).splitlines()
    assert len(lines) == 21
    assert lines[0].startswith(f"t.json: event {len(pad)}: ")
    assert lines[-1] == "... and 11 more"


def test_different_kinds_of_errors_come_together(pad: list[Any]) -> None:
    n = len(pad)
    events = [*pad, {**EVENT, "id": "a", "gap_us": 1.00001}, {**EVENT, "id": "a"}, {**EVENT, "ranks": [9]}, {**EVENT, "start_us": 1}]
    found = problems(encode(events, system={"world_size": 4}))
    assert [(r, f) for r, f, *_ in found if f != "gap_us" or r == n] == [(n, "gap_us"), (n + 1, "id"), (n + 2, "ranks")]
    assert any("some events have start_us" in what for *_, what, _ in found)


def test_parts_of_a_nanosecond_come_in_file_order(pad: list[Any]) -> None:
    n = len(pad)
    wrong = [{**EVENT, "start_us": n + 5.0001, "compute_before_us": 0.0002}, {**EVENT, "start_us": n + 6.0001, "arrival_skew_us": 0.0001}]
    found = problems(encode([*({**e, "start_us": i} for i, e in enumerate(pad)), *wrong]))
    assert [r for r, *_ in found] == [n, n, n + 1, n + 1]
    assert {(r, f) for r, f, *_ in found} == {(n, "start_us"), (n, "compute_before_us"), (n + 1, "start_us"), (n + 1, "arrival_skew_us")}


# -- timing -----------------------------------------------------------------------------------------------------------


def test_mixed_timing_without_gaps(pad: list[Any]) -> None:
    events = [*pad, {**EVENT, "start_us": 1}, {**EVENT, "gap_us": 2}, EVENT]
    with pytest.raises(TimingError) as e:
        read_json_bytes(encode(events), file="t.json")
    assert [p.record for p in e.value.problems] == [*range(len(pad)), len(pad), len(pad) + 2]
    assert e.value.problems[-1].what == "some events have start_us, some do not, and this one has no gap_us"
    assert e.value.problems[-1].remedy == "give every event a start_us, or every event a gap_us"


def test_mixed_timing_with_gaps_everywhere(pad: list[Any]) -> None:
    events = [*({**e, "gap_us": 1} for e in pad), {**EVENT, "start_us": 5, "gap_us": 1}, {**EVENT, "gap_us": 2}]
    trace = read_json_bytes(encode(events))
    assert trace.start_ns.known_count == 1
    assert trace.gap_ns.values.tolist() == [1000] * (len(pad) + 1) + [2000]


@pytest.mark.parametrize(("gap", "ok"), [(4, True), (4.001, True), (3.999, True), (4.002, False), (0, False)])
def test_contradiction_of_more_than_a_nanosecond(pad: list[Any], gap: float, ok: bool) -> None:
    events = [*({**e, "start_us": 1} for e in pad), {**EVENT, "start_us": 2}, {**EVENT, "start_us": 6, "gap_us": gap}]
    if ok:
        assert read_json_bytes(encode(events)).gap_ns.values[-1] == round(gap * 1000)
        return
    with pytest.raises(TimingError) as e:
        read_json_bytes(encode(events), file="t.json")
    (problem,) = e.value.problems
    assert (problem.record, problem.field, problem.remedy) == (len(pad) + 1, "gap_us", "remove one of the two or make them agree")
    away = abs(4000 - round(gap * 1000)) / 1000
    assert problem.what == f"gap_us is {float(gap)} but start_us is {away} us away from the previous start plus this gap"


def test_contradiction_in_a_file_out_of_time_order(pad: list[Any]) -> None:
    early = [{**e, "start_us": 0} for e in pad]
    events = [*early, {**EVENT, "start_us": 9, "gap_us": 5}, {**EVENT, "start_us": 3}, {**EVENT, "start_us": 4, "gap_us": 9}]
    with pytest.raises(TimingError) as e:
        read_json_bytes(encode(events))
    assert [p.record for p in e.value.problems] == [len(pad) + 2]  # the index in the file, not in time


def test_start_orders_the_trace_and_ties_keep_file_order(pad: list[Any]) -> None:
    early = [{**e, "start_us": 0} for e in pad]
    events = [*early, {**EVENT, "start_us": 9, "id": "c"}, {**EVENT, "start_us": 3, "id": "a"}, {**EVENT, "start_us": 3, "id": "b"}]
    trace = read_json_bytes(encode(events))
    assert [trace.id(len(pad) + i) for i in range(3)] == ["a", "b", "c"]


# -- rounding ---------------------------------------------------------------------------------------------------------


def test_round_ns_records_the_largest_change(pad: list[Any]) -> None:
    events = [*pad, {**EVENT, "gap_us": 1.0004, "arrival_skew_us": 2.00025}, {**EVENT, "gap_us": 2.0001}]
    trace = read_json_bytes(encode(events), round_ns=True)
    assert trace.gap_ns.values[len(pad) :].tolist() == [1000, 2000]
    assert trace.arrival_ns.values.tolist() == [2000]
    assert any(note == "times rounded to whole nanoseconds; the largest change is 0.0004 us" for note in trace.notes)


def test_round_ns_changes_nothing_else(pad: list[Any]) -> None:
    data = encode([*pad, {**EVENT, "gap_us": 78.296}])
    assert read_json_bytes(data, round_ns=True).equals(read_json_bytes(data))
    assert problems(encode([*pad, {**EVENT, "gap_us": 1.00001, "bytes": 0}]), round_ns=True)[0][1] == "bytes"


# -- what is accepted -------------------------------------------------------------------------------------------------


def one(pad: list[Any], **change: Any) -> Trace:
    trace = read_json_bytes(encode([*pad, {**EVENT, **change}]))
    return trace.take(slice(len(pad), None))


def test_zero_sizes(pad: list[Any]) -> None:
    assert one(pad, bytes=1, lab_bytes=0).size_bytes.tolist() == [0]
    assert one(pad, op="barrier", custom_op=True, bytes=1, lab_bytes=0).size_bytes.tolist() == [0]
    assert one(pad, bytes=1).size_bytes.tolist() == [1]


def test_ranks_as_a_count_and_in_any_order(pad: list[Any]) -> None:
    assert one(pad, ranks=3).groups[-1].members == (0, 1, 2)
    assert one(pad, ranks=[3, 1, 0, 2]).groups[0].members == (0, 1, 2, 3)


def test_arrivals_follow_the_ranks_of_the_file(pad: list[Any]) -> None:
    listed = one(pad, ranks=[3, 1, 0, 2], rank_arrival_us=[30, 10, 0, 20])
    mapped = one(pad, ranks=[3, 1, 0, 2], rank_arrival_us={"3": 30, "1": 10, "0": 0, "2": 20})
    assert listed.arrival_ns.row(0).tolist() == mapped.arrival_ns.row(0).tolist() == [0, 10_000, 20_000, 30_000]
    assert one(pad, ranks=4, rank_arrival_us=[30, 10, 0, 20]).arrival_ns.row(0).tolist() == [30_000, 10_000, 0, 20_000]
    assert listed.skew_ns.values.tolist() == [30_000]


def test_skew_alone_and_skew_that_agrees(pad: list[Any]) -> None:
    assert one(pad, arrival_skew_us=7).skew_ns.values.tolist() == [7000]
    assert one(pad, rank_arrival_us=[1, 0, 0, 8.001], arrival_skew_us=8).skew_ns.values.tolist() == [8001]
    assert one(pad, ranks=1, rank_arrival_us=[4]).skew_ns.values.tolist() == [0]


def test_unknown_stays_unknown(pad: list[Any]) -> None:
    t = one(pad, arrival_skew_unknown=True, compute_overlap_unknown=True)
    assert t.unknown_fields == {"skew_us": 1, "overlap_us": 1}
    assert not t.skew_ns.mask.any()


def test_defaults_of_the_format_are_noted() -> None:
    trace = read_json_bytes(encode([EVENT, {**EVENT, "arrival_skew_us": 0, "compute_overlap_us": 0}]))
    assert trace.notes == (
        "1 of 2 events give no arrivals; the format's default of 0 us skew applies",
        "1 of 2 events give no compute_overlap_us; the format's default of 0 us applies",
    )
    assert not trace.unknown_fields


def test_a_broadcast_without_root_opens_with_a_note(pad: list[Any]) -> None:
    note = "1 broadcast without root_rank: replay and export refuse them"
    assert note in one(pad, op="broadcast").notes
    assert note not in one(pad, op="broadcast", root_rank=2).notes


def test_values_beyond_the_vocabulary_travel_beside_it(pad: list[Any]) -> None:
    t = one(pad, lab_dtype="uint16", lab_reduction_op="premul_sum")
    assert (t.dtype.text(0), t.reduction.text(0)) == ("uint16", "premul_sum")


# -- the fast and the slow path agree ---------------------------------------------------------------------------------

_VALUES = (
    st.none() | st.booleans() | st.sampled_from([0, 1, 2, 3, 1.0, 0.5, 1e-5, -1, 1e13, 1 << 63, "0", "sum", "float16", "broadcast", [], {}])
    | st.lists(st.sampled_from([0, 1, 2, 1.5, None, -1, "0"]), max_size=4)
    | st.dictionaries(st.sampled_from(["0", "1", "2", "x", "00"]), st.sampled_from([0, 1.5, -1, None, 0.0001]), max_size=3) | texts()
)  # fmt: skip
_BASE = st.fixed_dictionaries(
    {"op": st.sampled_from(["all_reduce", "broadcast", "point_to_point", "barrier"]), "bytes": st.just(8),
     "ranks": st.sampled_from([2, [0, 1], [2, 0]])},
    optional={"start_us": st.sampled_from([0, 5]), "gap_us": st.sampled_from([0, 5]), "custom_op": st.just(True),
              "id": st.sampled_from("ab"),
              "sender_rank": st.just(0), "receiver_rank": st.just(0), "rank_arrival_us": st.just([0, 4]), "lab_observers": st.just([0]),
              "observed_exposed_us": st.just(1)},
)  # fmt: skip
_EVENTS = st.lists(
    st.builds(
        lambda base, change: {**base, **change},
        _BASE,
        st.just({}) | st.dictionaries(st.sampled_from(EVENT_FIELDS), _VALUES, max_size=2),
    ),
    max_size=3,
)


def outcome(data: bytes) -> Trace | list[str]:
    try:
        return read_json_bytes(data, file="t.json")
    except InputError as e:
        return [type(e).__name__, *map(str, e.problems)]


@given(_EVENTS, st.just({}) | st.fixed_dictionaries({"world_size": st.sampled_from([1, 2, 3, "3", 0])}))
def test_every_refusal_is_explained(events: list[Mapping[str, Any]], system: dict[str, Any]) -> None:
    found = outcome(encode(list(events), system=system))
    assert isinstance(found, Trace) or "not a commcanary.trace.v1 document" not in str(found), "the checker found nothing to explain"


@given(_EVENTS)
def test_large_files_are_refused_like_small_ones(events: list[Mapping[str, Any]]) -> None:
    small, large = outcome(encode(list(events))), outcome(encode([*events], workload={"pad": "x" * SMALL_BYTES}))
    if isinstance(small, Trace):
        assert isinstance(large, Trace)
        assert small.first_difference(large, ignore=["workload"]) is None
    else:
        assert small == large


#: Three batches and a bit; the events differ, so that a batch in the wrong place is seen.
MANY = [{**EVENT, "id": f"e{i}", "bytes": 1 + i % 997, **({"tag": f"t{i}"} if i % 7 else {})} for i in range(3 * BATCH + 5)]


def test_batches_are_put_together_like_the_whole_file() -> None:
    trace = read_json_bytes(encode(MANY))
    assert trace.size_bytes.tolist() == [e["bytes"] for e in MANY]
    assert trace.tag.to_list() == [e.get("tag") for e in MANY]
    assert [trace.ids.row(i).tobytes().decode() for i in range(len(trace))] == [e["id"] for e in MANY]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("event", [0, 1, BATCH - 1, BATCH, 2 * BATCH, 3 * BATCH + 4])
@pytest.mark.parametrize("damage", ["comma", "commas", "junk", "number", "closed", "twice", "id", "type"])
def test_damage_at_the_edges_of_batches(event: int, damage: str, indent: int | None) -> None:
    text = json.dumps({"format": "commcanary.trace.v1", "events": MANY}, indent=indent)
    at = text.index(f'"id": "e{event}"')
    start = text.rindex("{", 0, at)
    match damage:
        case "comma":
            comma = text.find(",", text.index("}", at)) if event < len(MANY) - 1 else text.rindex(",", 0, start)
            text = text[:comma] + " " + text[comma + 1 :]
        case "commas":
            text = text[:start] + ", " + text[start:]
        case "junk":
            text = text[:start] + "x" + text[start:]
        case "number":
            text = text[:start] + "1, " + text[start:]
        case "closed":
            text = text[: text.rindex("]")] + "}" + text[text.rindex("]") + 1 :]
        case "twice":
            text = text[:start] + '{"op": "barrier", ' + text[start + 1 :]
        case "id":
            text = text[:at] + f'"id": "e{(event + BATCH) % len(MANY)}"' + text[at + len(f'"id": "e{event}"') :]
        case "type":
            text = text[:start] + '{"gap_us": "1", ' + text[start + 1 :]
    with pytest.raises(InputError) as e:
        read_json_bytes(text.encode(), file="t.json")
    assert "not a commcanary.trace.v1 document" not in str(e.value), "the checker found nothing to explain"


@pytest.mark.parametrize("end", ["", "]", "}", "]}]", "]} x", '], "events": []}'])
def test_a_file_that_ends_wrongly(end: str) -> None:
    text = json.dumps({"format": "commcanary.trace.v1", "events": MANY})
    with pytest.raises(InputError):
        read_json_bytes((text[:-2] + end).encode(), file="t.json")
