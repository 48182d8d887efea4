"""The matrix itself: labels, arithmetic, comparison, files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.errors import InputError, LimitError, RefusedError, UsageError
from commcanary_lab.trace import ProcessGroup
from commcanary_lab.traffic import TrafficMatrix, build_matrix
from commcanary_lab.traffic.cells import Cells
from commcanary_lab.traffic.parts import group_names
from commcanary_lab.traffic.write import SUFFIXES, read_cells
from tests.traffic.jobs import Event, eight_ranks, trace_of


def messages(*links: tuple[int, int, int], op: str = "point_to_point", phase: str | None = None) -> TrafficMatrix:
    return build_matrix(trace_of([Event(op, (s, d), b, sender=s, receiver=d, phase=phase) for s, d, b in links]))


def test_ranks_are_labels() -> None:
    m = messages((100, 7, 5), (7, 16000, 9))
    assert m.ranks.tolist() == [7, 100, 16000]
    assert m.dense().tolist() == [[0, 0, 9], [5, 0, 0], [0, 0, 0]]
    assert (m.value(100, 7), m.value(7, 100), m.value(3, 4)) == (5, 0, 0)


def test_sum_of_matrices() -> None:
    a, b = messages((0, 1, 5), phase="x"), messages((0, 1, 7), (2, 0, 1), phase="y")
    total = a + b
    assert total.dense().tolist() == [[0, 12, 0], [0, 0, 0], [1, 0, 0]]
    assert (total.records, total.payload_bytes, total.events) == (6, 26, 3)
    assert total.by("phase")["x"].equals(a)
    assert total.by("phase")["y"].equals(b)
    assert (a + b).equals(b + a, rtol=0)


def test_difference() -> None:
    a, b = messages((0, 1, 5), (1, 2, 8)), messages((0, 1, 7), (1, 2, 8), (2, 5, 100))
    d = a - b
    assert [(x.src, x.dst, x.size_bytes) for x in d.links()] == [(2, 5, -100.0), (0, 1, -2.0)]
    assert (d.sum_bytes, d.added_bytes, d.removed_bytes, d.is_zero, d.ranks.tolist()) == (-102, 0, 102, False, [0, 1, 2, 5])
    assert d.dense()[0, 1] == -2
    assert (a - a).is_zero
    assert not len((a - a).cells)
    assert list(d.by("op")) == ["point_to_point"]
    assert "links differ" in d._repr_html_()
    assert "2 links differ" in repr(d)


def test_difference_taken_apart() -> None:
    a, b = messages((0, 1, 5)), messages((0, 1, 5), op="send")
    parts = (a - b).by("op")
    assert {key: x.sum_bytes for key, x in parts.items()} == {"point_to_point": 5, "send": -5}
    assert (a - b).is_zero


def test_difference_names_what_differs() -> None:
    trace = trace_of([Event("all_reduce", (0, 1, 2), 9)])
    d = build_matrix(trace) - build_matrix(trace, ring_order=[0, 2, 1])
    assert d.notes[0] == "ring order differs: assumed against stated"
    assert d.sum_bytes == 0
    assert d.added_bytes == d.removed_bytes == 36


def test_equality_is_relative() -> None:
    a, b = messages((0, 1, 10**15)), messages((0, 1, 10**15 + 10**4))
    assert not a.equals(b)
    assert a.equals(b, rtol=1e-10)
    assert a.equals(messages((0, 1, 10**15 + 100)))
    first = a.first_difference(b)
    assert first is not None
    assert (first.src, first.dst, first.left_bytes, first.right_bytes) == (0, 1, 1e15, 1e15 + 1e4)
    assert str(first) == "0 -> 1: 1e+15 bytes against 1.00000000001e+15 bytes"
    assert a.first_difference(a) is None
    c = messages((0, 1, 10**15), (1, 0, 3))
    assert str(a.first_difference(c)) == "1 -> 0: 0 bytes against 3 bytes"


def test_unknown_property() -> None:
    with pytest.raises(UsageError, match="a traffic matrix has no 'rank'; give op, group or phase"):
        messages((0, 1, 1)).by("rank")
    with pytest.raises(UsageError, match="0 GPUs per node"):
        messages((0, 1, 1)).group_by_node(0)


def test_groups_of_equal_names_stay_apart() -> None:
    m = build_matrix(trace_of([Event("all_reduce", (0, 1), 4, "tp"), Event("all_reduce", (2, 3), 6, "tp"), Event("all_reduce", (0, 2), 8)]))
    assert {k: x.sum_bytes for k, x in m.by("group").items()} == {"tp (2 ranks: 0-1)": 8, "tp (2 ranks: 2-3)": 12, "unnamed": 16}
    long = [ProcessGroup("w", (*range(0, 20, 2), last)) for last in (30, 31)]
    assert list(group_names(long).values()) == ["w (11 ranks: 0,2,4,6,8,10,...) #1", "w (11 ranks: 0,2,4,6,8,10,...) #2"]


def test_no_phase() -> None:
    assert list(messages((0, 1, 1)).by("phase")) == ["no phase"]


def test_dense_is_bounded() -> None:
    m = build_matrix(trace_of([Event("all_reduce", tuple(range(40_000)), 8)]))
    with pytest.raises(LimitError, match=r"a dense matrix of 40,000 ranks takes 11.9 GiB"):
        m.dense()
    assert m.csr().shape == (40_000, 40_000)


def test_repr() -> None:
    m = build_matrix(eight_ranks())
    assert repr(m) == "TrafficMatrix(8 ranks, 16 links, 22.0 GiB, ring, ring order assumed, from commcanary.trace.v1)"
    html = m._repr_html_()
    assert "matrix sum 22.0 GiB" in html
    assert "ring order assumed" in html
    assert html.count("<tr>") == 17


def test_csv(tmp_path: Path) -> None:
    m = build_matrix(trace_of([Event("all_reduce", (0, 3, 5), 10)]))
    assert m.to_csv(tmp_path / "m.csv") == (tmp_path / "m.csv").stat().st_size
    rows = list(csv.DictReader((tmp_path / "m.csv").read_text().splitlines()))
    assert [(int(r["src"]), int(r["dst"]), float(r["bytes"])) for r in rows] == [(x.src, x.dst, x.size_bytes) for x in
                                                                               sorted(m.links(), key=lambda x: (x.src, x.dst))]
    assert messages((0, 1, 2**40)).write(tmp_path / "n.csv") == len("src,dst,bytes\n0,1,1099511627776\n")


def test_npz(tmp_path: Path) -> None:
    m = build_matrix(eight_ranks())
    m.to_npz(tmp_path / "m.npz")
    assert np.array_equal(scipy.sparse.load_npz(tmp_path / "m.npz").toarray(), m.dense())
    with np.load(tmp_path / "m.npz") as file:
        assert file["ranks"].tolist() == list(range(8))
        about = json.loads(file["about"].tobytes())
    assert (about["records"], about["matrix_sum_bytes"], about["algorithm"]) == (200, m.sum_bytes, "ring")


def test_parquet(tmp_path: Path) -> None:
    m = build_matrix(eight_ranks())
    m.to_parquet(tmp_path / "m.parquet")
    table = pq.read_table(tmp_path / "m.parquet")
    frame = table.to_pandas()
    assert frame.columns.tolist() == ["op", "group", "phase", "src", "dst", "bytes"]
    assert frame["bytes"].sum() == m.sum_bytes
    assert frame.groupby("phase", observed=True)["bytes"].sum().to_dict() == {k: x.sum_bytes for k, x in m.by("phase").items()}
    assert json.loads(table.schema.metadata[b"commcanary_lab"])["payload_bytes"] == m.payload_bytes


def test_txt(tmp_path: Path) -> None:
    m = build_matrix(trace_of([Event("all_to_all", (0, 1, 5), 10), Event("point_to_point", (0, 5), 7, sender=5, receiver=0)]))
    m.to_txt(tmp_path / "m.txt")
    assert (tmp_path / "m.txt").read_text() == "0 3 3\n3 0 3\n10 3 0\n"
    assert np.array_equal(np.loadtxt(tmp_path / "m.txt"), np.rint(m.dense()))


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=25, deadline=None)
@given(drawn=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 1 << 50)), max_size=12))
def test_files_read_back(suffix: str, drawn: list[tuple[int, int, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    m = messages(*drawn)
    path = tmp_path_factory.mktemp("files") / f"m{suffix}"
    m.write(path)
    ranks, cells = read_cells(path)
    labels = m.ranks if suffix != ".csv" else np.union1d(m.cells.src, m.cells.dst)
    if suffix == ".txt":  # no labels
        assert len(ranks) == m.n
        cells = Cells(m.ranks[cells.src], m.ranks[cells.dst], cells.size_bytes)
    else:
        assert ranks.tolist() == labels.tolist()
    assert all(np.array_equal(getattr(cells, f), getattr(m.cells, f)) for f in ("src", "dst", "size_bytes"))


def test_files_with_switches(tmp_path: Path) -> None:
    m = build_matrix(trace_of([Event("all_reduce", (0, 1, 2, 3), 30), Event("send", (0, 3), 7, sender=3, receiver=0)]),
                     algorithm={"all_reduce": "nvls"}, gpus_per_node=2)  # fmt: skip
    assert len(m.switch_cells) == 8
    for suffix in (".csv", ".npz", ".parquet"):
        m.write(tmp_path / f"m{suffix}")
        _, cells = read_cells(tmp_path / f"m{suffix}")
        assert all(np.array_equal(getattr(cells, f), getattr(m.all_cells, f)) for f in ("src", "dst", "size_bytes")), suffix
    assert np.array_equal(scipy.sparse.load_npz(tmp_path / "m.npz").toarray(), m.dense())
    with pytest.raises(RefusedError, match="what passes switches cannot be replayed"):
        m.write(tmp_path / "m.txt")
    assert not (tmp_path / "m.txt").exists()


@pytest.mark.parametrize(("name", "data", "message"), [
    ("m.csv", b"a,b\n1,2\n", "the header is not src,dst,bytes"),
    ("m.csv", b"src,dst,bytes\n1,x,3\n", "is no traffic matrix"),
    ("m.txt", b"1 2\n", "1 lines of 2 values"),
    ("m.txt", b"1 2\n3\n", "no square matrix"),
    ("m.npz", b"nothing", "is no traffic matrix"),
    ("m.parquet", b"nothing", "is no traffic matrix"),
])  # fmt: skip
def test_files_that_are_no_matrix(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_cells(tmp_path / name)
    with pytest.raises(InputError, match="cannot be read"):
        read_cells(tmp_path / f"no-{name}")
    with pytest.raises(UsageError, match=r"cannot be read from '\.md'"):
        read_cells(tmp_path / "m.md")


def test_files_are_deterministic(tmp_path: Path) -> None:
    for suffix in (".csv", ".npz", ".parquet", ".txt"):
        for name in ("a", "b"):
            build_matrix(eight_ranks()).write(tmp_path / (name + suffix))
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_empty_matrix_can_be_written(tmp_path: Path) -> None:
    for suffix in (".csv", ".npz", ".parquet", ".txt"):
        build_matrix(trace_of([])).write(tmp_path / f"m{suffix}")
    assert (tmp_path / "m.csv").read_text() == "src,dst,bytes\n"
    assert (tmp_path / "m.txt").read_text() == ""


def test_refused_files(tmp_path: Path) -> None:
    m = messages((0, 1, 1))
    with pytest.raises(UsageError, match=r"m.xlsx: .* cannot be written as .*xlsx.*; name the file .csv, .npz, .parquet, .txt"):
        m.write(tmp_path / "m.xlsx")
    with pytest.raises(UsageError, match="a file without suffix"):
        m.write(tmp_path / "m")
    with pytest.raises(InputError, match="cannot be written"):
        m.write(tmp_path / "nowhere" / "m.csv")
