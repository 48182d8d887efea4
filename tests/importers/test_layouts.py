"""A layout gives the members that a source does not say, in every format that names groups, and is refused where it contradicts one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import InputError, RefusedError
from commcanary_lab.importers import FORMATS, chakra_et, kineto
from commcanary_lab.importers.chakra_schema import CommType, Metadata, Node, NodeType, encode_trace
from commcanary_lab.importers.layout_members import LayoutGroups
from commcanary_lab.importers.open import open_trace
from commcanary_lab.layout import Layout
from commcanary_lab.trace import Trace
from commcanary_lab.traffic import build_matrix
from tests.importers.inspector_lines import collective, rank_line, write
from tests.importers.nccl_lines import job
from tests.importers.test_flight_recorder import dump, entry
from tests.importers.test_nsys_sqlite import INIT, PLAIN, Report, payload
from tests.importers.test_param_basic import op
from tests.importers.test_pytorch_et import comm, document

JOB = Layout(tp=4, dp=2, gpus_per_node=4)
#: Groups of 4 ranks by two names: a choice.
TWO_KINDS = Layout(tp=4, cp=4)
NAMED = Layout(tp=4, dp=2, explicit={"7": (0, 1, 2, 3), "8": (4, 5, 6, 7)})


def kineto_files(folder: Path, ranks: tuple[int, ...], group: str, size: int, stated: tuple[int, ...] | None, **info: Any) -> list[Path]:
    """One all-reduce of `size` ranks per file, with a complete rank list or none."""
    out = []
    for rank in ranks:
        args: dict[str, Any] = {
            "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 256, "Out msg nelems": 256, "Group size": size,
            "Process Group Name": group, "Seq": 1,
        }  # fmt: skip
        if stated is not None:
            args["Process Group Ranks"] = str(list(stated))
        event = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1, "ts": 10.0, "dur": 5.0, "args": args}
        distributed = {"rank": rank, "world_size": 8} | info
        text = {"schemaVersion": 1, "distributedInfo": distributed, "baseTimeNanoseconds": 0, "traceEvents": [event]}
        out.append(folder / f"k{rank}.json")
        out[-1].write_text(json.dumps(text))
    return out


def et_files(folder: Path, ranks: tuple[int, ...], group: str, size: int, stated: tuple[int, ...] | None, **more: Any) -> list[Path]:
    out = []
    for rank in ranks:
        place = {} if stated is None else {"start": stated[0], "stride": stated[1] - stated[0]}
        node = comm(5, "allreduce", more.get("own", rank % size), 256, group=(group, "x"), size=size, **(place or {"stride": -1}))
        out.append(folder / f"et_rank{rank}.json")
        out[-1].write_text(json.dumps(document(node)))
    return out


def param_files(folder: Path, ranks: tuple[int, ...], group: str, size: int, stated: tuple[int, ...] | None) -> list[Path]:
    made = [] if stated is None else [{"comms": "init", "pg_id": group, "global_ranks": list(stated)}]
    out = []
    for rank in ranks:
        out.append(folder / f"{rank}.json")
        out[-1].write_text(json.dumps([*made, op("all_reduce", 256, pg_id=group, world_size=size)]))
    return out


def recorder_files(folder: Path, ranks: tuple[int, ...], group: str, size: int, stated: tuple[int, ...] | None) -> list[Path]:
    """All-gathers: a flight recorder writes no group size, the ratio of their ends is it."""
    out = []
    for rank in ranks:
        one = entry("nccl:_all_gather_base", sent=[[256]], got=[[256 * size]], process_group=(group, "x"), pg_id=int(group))
        table = {} if stated is None else {group: {"name": group, "desc": "x", "ranks": str(list(stated))}}
        out.append(folder / f"trace_rank_{rank}")
        out[-1].write_text(json.dumps({"version": "2.5", "pg_config": table, "pg_status": {}, "entries": [one]}))
    return out


Files = Callable[..., list[Path]]
SOURCES: dict[str, Files] = {"kineto": kineto_files, "pytorch_et": et_files, "param_basic": param_files, "flight_recorder": recorder_files}
TP = {(i, (i + 1) % 4): (2 * 3 / 4) * 1024 for i in range(4)} | {(4 + i, 4 + (i + 1) % 4): (2 * 3 / 4) * 1024 for i in range(4)}


def links(trace: Trace) -> dict[tuple[int, int], float]:
    return {(x.src, x.dst): x.size_bytes for x in build_matrix(trace).links()}


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_members_that_the_source_does_not_say(name: str, tmp_path: Path) -> None:
    """Eight ranks; the name of the group is the same on both nodes: the size and the rank tell which it is."""
    files = SOURCES[name](tmp_path, tuple(range(8)), "7", 4, None)
    blind = open_trace(files)
    assert len(blind) == 0 and {u.reason for u in blind.unsized} == {"members unknown"}
    trace = open_trace(files, layout=JOB)
    assert trace.source_format == name
    assert sorted({g.members for g in trace.groups}) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    per_link = 3 * 1024 if name == "flight_recorder" else 2 * 3 / 4 * 1024
    assert links(trace) == dict.fromkeys(TP, per_link)
    assert any("group members come from: the layout" in n for n in trace.notes)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_choice_is_refused_with_the_choices(name: str, tmp_path: Path) -> None:
    files = SOURCES[name](tmp_path, (0,), "7", 4, None, **({"world_size": 16} if name == "kineto" else {}))
    with pytest.raises(RefusedError, match=r"of rank 0 could be TP Group 0 \(0-3\) or CP Group 0 \(0,4,8,12\) of the layout") as refused:
        open_trace(files, layout=TWO_KINDS)
    assert "[groups]" in str(refused.value) and files[0].name in str(refused.value)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_layout_that_contradicts_is_refused_with_both(name: str, tmp_path: Path) -> None:
    files = SOURCES[name](tmp_path, (0, 2), "7", 4, (0, 2, 4, 6))
    assert sorted({g.members for g in open_trace(files, layout=JOB).groups}) == [(0, 2, 4, 6)]  # a group that the layout does not name
    named = Layout(dp=8, explicit={"7": (0, 1, 2, 3)})
    with pytest.raises(InputError, match=r"group 7\S* joins 0,2,4,6 \(.*\); in the layout 7 is 0-3") as refused:
        open_trace(files, layout=named)
    assert "that of another job" in str(refused.value)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_layout_of_fewer_ranks_is_refused(name: str, tmp_path: Path) -> None:
    files = SOURCES[name](tmp_path, (0,), "7", 4, (0, 2, 4, 6))
    with pytest.raises(InputError, match=r"a job of 8 ranks, the layout of 4|joins 0,2,4,6 .*; in the layout the whole job is 0-3"):
        open_trace(files, layout=Layout(tp=2, dp=2))


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_names_of_the_layout(name: str, tmp_path: Path) -> None:
    """[groups] by the source's name; the wrong size or a rank outside is a contradiction."""
    layout = Layout(explicit={"7": (0, 1, 2, 5)})
    trace = open_trace(SOURCES[name](tmp_path, (0, 1), "7", 4, None), layout=layout)
    assert {g.members for g in trace.groups} == {(0, 1, 2, 5)}
    with pytest.raises(InputError, match=r"group 7\S* has 4 ranks, rank 0 among them; in the layout 7 is 0-2"):
        open_trace(SOURCES[name](tmp_path, (0,), "7", 4, None), layout=Layout(explicit={"7": (0, 1, 2)}))
    with pytest.raises(InputError, match=r"in the layout 7 is 4-7"):
        open_trace(SOURCES[name](tmp_path, (0,), "7", 4, None), layout=Layout(explicit={"7": (4, 5, 6, 7)}))


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_what_the_layout_does_not_have_stays_unknown(name: str, tmp_path: Path) -> None:
    trace = open_trace(SOURCES[name](tmp_path, (0,), "7", 3, None), layout=JOB)
    assert len(trace) == 0
    assert [u.reason for u in trace.unsized] == ["members unknown: no group of the layout has 3 ranks with rank 0 among them"]
    assert trace.unsized[0].size_bytes == 1024


def test_own_place_in_the_group_is_checked(tmp_path: Path) -> None:
    """An execution trace says the rank's number in the group."""
    files = et_files(tmp_path, (1,), "7", 4, None, own=3)
    with pytest.raises(InputError, match=r"group 7:x has rank 1 as its number 3; in the layout 7:x is 0-3"):
        open_trace(files, layout=JOB)


def test_kind_and_number_in_a_description(tmp_path: Path) -> None:
    (path,) = kineto_files(tmp_path, (5,), "12", 4, None)
    document = json.loads(path.read_text())
    document["traceEvents"][0]["args"]["Process Group Description"] = "TP Group 1"
    path.write_text(json.dumps(document))
    assert kineto.read([path], layout=JOB).groups[0].members == (4, 5, 6, 7)
    (record,) = kineto.read_rank(path, layout=JOB).records
    assert record.members == (4, 5, 6, 7)


def test_a_cut_list_must_agree_with_the_layout(tmp_path: Path) -> None:
    """The first entries that the event shows are part of what the source says."""
    (path,) = kineto_files(tmp_path, (0,), "7", 4, None)
    document = json.loads(path.read_text())
    document["traceEvents"][0]["args"]["Process Group Ranks"] = "[0, 2, ...]"
    path.write_text(json.dumps(document))
    trace = open_trace(path, layout=JOB)
    assert len(trace) == 0
    assert trace.unsized[0].reason == "members unknown: the layout contradicts the ranks that the event shows"
    document["traceEvents"][0]["args"]["Process Group Ranks"] = "[0, 1, ...]"
    path.write_text(json.dumps(document))
    assert open_trace(path, layout=JOB).groups[0].members == (0, 1, 2, 3)


def test_a_default_group_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace_rank_0"
    path.write_text(json.dumps(dump(entry(), ranks="[0, 1]")))
    assert open_trace(path, layout=Layout(tp=2)).groups[0].members == (0, 1)
    with pytest.raises(InputError, match=r"joins 0-1 \(pg_config\); in the layout the whole job is 0-7"):
        open_trace(path, layout=JOB)


def test_entries_without_a_group_are_not_the_world_of_a_larger_layout(tmp_path: Path) -> None:
    """PARAM: world_size is the size of the group; without a layout it is taken for the default one."""
    (tmp_path / "5.json").write_text(json.dumps([op("all_reduce", 256, world_size=4)]))
    path = tmp_path / "5.json"
    assert open_trace(path, layout=JOB).groups[0].members == (4, 5, 6, 7)
    (tmp_path / "5.json").write_text(json.dumps([op("all_reduce", 256, world_size=8)]))
    assert open_trace(path, layout=JOB).groups[0].members == open_trace(path).groups[0].members == tuple(range(8))


# -- Chakra -----------------------------------------------------------------------------------------------------------


def chakra(folder: Path, ranks: tuple[int, ...], **more: Any) -> list[Path]:
    out = []
    for rank in ranks:
        attributes = {"is_cpu_op": False, "comm_type": int(CommType.ALL_GATHER), "comm_size": 1024, **more}
        out.append(folder / f"t.{rank}.et")
        out[-1].write_bytes(encode_trace(Metadata("0.0.4"), [Node(1, "n", NodeType.COMM_COLL, attributes=attributes)]))
    return out


def test_chakra_takes_the_system_from_a_layout(tmp_path: Path) -> None:
    """Two files of eight: without a layout they are taken for all there are; comm_size is one NPU's part, so B depends on it."""
    files = chakra(tmp_path, (0, 1))
    assert int(open_trace(files).size_bytes[0]) == 2 * 1024
    trace = open_trace(files, layout=JOB)
    assert (int(trace.size_bytes[0]), trace.groups[0].members) == (8 * 1024, tuple(range(8)))
    assert "collectives without a group are over all 8 NPUs of the system (from the layout)" in trace.notes
    assert len(open_trace(chakra(tmp_path, (3,)), layout=JOB)) == 1
    with pytest.raises(InputError, match=r"the file of NPU 9, the layout has 8 ranks"):
        open_trace(chakra(tmp_path, (9,)), layout=JOB)


def test_chakra_takes_named_groups_from_a_layout(tmp_path: Path) -> None:
    files = chakra(tmp_path, (4,), pg_name="8")
    assert "does not say who is in group 8" in open_trace(files).unsized[0].reason
    trace = open_trace(files, layout=NAMED_ONLY)
    assert (trace.groups[0].members, trace.groups[0].name, int(trace.size_bytes[0])) == ((4, 5, 6, 7), "8", 4 * 1024)
    table = '[{"pg_name": "8", "ranks": [4, 6], "group_size": 2}]'
    node = Node(0, "## process_group:init ##", NodeType.METADATA, inputs=f"['{table}']")
    attributes: dict[str, Any] = {"is_cpu_op": False, "comm_type": int(CommType.ALL_GATHER), "comm_size": 1024, "pg_name": "8"}
    files[0].write_bytes(encode_trace(Metadata("0.0.4"), [node, Node(1, "n", NodeType.COMM_COLL, attributes=attributes)]))
    assert chakra_et.read(files).groups[0].members == (4, 6)
    with pytest.raises(InputError, match=r"group 8 joins 4,6; in the layout it is 4-7"):
        open_trace(files, layout=NAMED_ONLY)


NAMED_ONLY = Layout(explicit={"7": (0, 1, 2, 3), "8": (4, 5, 6, 7)})


def test_a_feeder_that_states_another_system_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.0.json"
    node = {"Id": 1, "Name": "c", "NodeType": int(NodeType.COMM_COLL), "comm_type": 0, "comm_size": 8, "is_cpu_op": False}
    path.write_text(json.dumps({"workload_graph": [node], "ngpus": 4}))
    assert open_trace(path, layout=Layout(tp=4)).groups[0].size == 4
    with pytest.raises(InputError, match=r"a system of 4 NPUs, the layout has 8 ranks"):
        open_trace(path, layout=JOB)


# -- nsys -------------------------------------------------------------------------------------------------------------

PROCESSES = [(i + 1) << 24 for i in range(8)]


def nsys(path: Path, communicators: dict[int, list[tuple[int, ...]]]) -> Path:
    """Per process the call that makes each communicator, and an all-gather of 256 B on it; ids differ by group."""
    report = Report(path)
    for kind, groups in communicators.items():
        for g, members in enumerate(groups):
            for rank, process in enumerate(members):
                made = payload(INIT, 0xA000 + 256 * kind + g, len(members), rank, 0)
                report.call("ncclCommInitRank", 10 * kind, PROCESSES[process], made, kernel=False)
                report.call("ncclAllGather", 1000 * (kind + 1), PROCESSES[process], payload(PLAIN, 0xA000 + 256 * kind + g, 256))
    return report.done()


def test_nsys_reports_without_a_world_communicator(tmp_path: Path) -> None:
    tp, dp = [(0, 1, 2, 3), (4, 5, 6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)]
    path = nsys(tmp_path / "job.sqlite", {1: tp, 2: dp})
    blind = open_trace(path)
    assert len(blind) == 0 and {u.reason for u in blind.unsized} == {"members unknown: no communicator numbers all the processes"}
    trace = open_trace(path, layout=JOB)
    assert {g.members for g in trace.groups} == {*tp, *dp}
    assert trace.record_count == 16 and not trace.unsized
    expected = {(a, b): 3 * 256.0 for g in tp for a, b in zip(g, (*g[1:], g[0]), strict=True)}
    expected |= {(a, b): 256.0 for x, y in dp for a, b in ((x, y), (y, x))}
    assert links(trace) == expected


def test_nsys_choices_and_contradictions_are_refused(tmp_path: Path) -> None:
    path = nsys(tmp_path / "job.sqlite", {1: [(0, 1, 2, 3), (4, 5, 6, 7)]})
    with pytest.raises(RefusedError, match=r"could be TP Group 0 \(0-3\) or TP Group 1 \(4-7\)"):
        open_trace(path, layout=JOB)
    by_id = Layout(explicit={"0xa100": (0, 1, 2, 3), "0xa101": (4, 5, 6, 7)})
    assert {g.members for g in open_trace(path, layout=by_id).groups} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    with pytest.raises(InputError, match=r"is no group of the layout"):
        open_trace(path, layout=Layout(tp=2, dp=2))


@pytest.mark.parametrize("name", ["inspector", "log", "kineto"])
def test_gpus_per_node_alone_say_nothing_about_members(name: str, tmp_path: Path) -> None:
    """A layout file may give the nodes only: the import is what it is without."""
    if name == "kineto":
        path = kineto_files(tmp_path, (0,), "7", 4, None)[0]
    elif name == "log":
        path = tmp_path / "job.log"
        path.write_text("\n".join(job()) + "\n")
    else:
        path = write(tmp_path / "n1.log", *(rank_line(collective(), r) for r in (0, 1)))
    with_nodes, without = open_trace(path, layout=Layout(gpus_per_node=4)), open_trace(path)
    assert with_nodes.groups == without.groups and with_nodes.unsized == without.unsized
    assert with_nodes.notes == without.notes


# -- in general -------------------------------------------------------------------------------------------------------


def test_every_format_that_can_lack_members_takes_a_layout() -> None:
    takes = {f.name for f in FORMATS if "layout" in f.options}
    assert takes == {"nccl_inspector", "nccl_log", "kineto", "pytorch_et", "param_basic", "flight_recorder", "chakra_et", "nsys_sqlite"}


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.data())
def test_groups_of_a_rank_are_those_that_hold_it(tp: int, dp: int, pp: int, data: st.DataObject) -> None:
    layout = Layout(tp=tp, dp=dp, pp=pp)
    groups = LayoutGroups(layout)
    rank = data.draw(st.integers(0, layout.world_size))
    wanted = {g.members for g in layout.all_groups if rank in g.members} | ({layout.ranks} if rank in layout.ranks else set())
    assert {g.members for g in groups.of_rank(rank)} == wanted
    assert len(groups.of_rank(rank)) == len(wanted)
