"""Tables of nccl-tests: case P30, public tables, the number of ranks, damage, and the refusal to take one for a trace."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import FormatError, LabError, RefusedError
from commcanary_lab.importers import nccl_tests
from commcanary_lab.importers.nccl_tests import read_table
from commcanary_lab.importers.nccl_tests_rows import Measurement, NcclTestsTable, Row, rank_interval
from commcanary_lab.importers.open import open_trace, recognise_file

CASES = Path(__file__).parent.parent / "data" / "cases"
TABLES = Path(__file__).parents[3] / "shared" / "data" / "real" / "nccl_tests"

public = pytest.mark.skipif(not TABLES.is_dir(), reason="public tables (../shared/data/real/nccl_tests) are not here")

HEAD = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
ROW = "     1048576        262144     float     sum      -1    50.00   20.97   36.70      0    49.00   21.40   37.45    N/A\n"
OLD_HEAD = "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error\n"


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., NcclTestsTable]:
    def read(content: str | bytes, name: str = "all_reduce.txt") -> NcclTestsTable:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_table(path)

    return read


# -- P30 --------------------------------------------------------------------------------------------------------------


def test_P30_old_all_gather_and_alltoall() -> None:
    gather = read_table(CASES / "P30" / "all_gather.txt")
    (row,) = gather.rows
    assert row.out_of_place is not None and row.in_place is not None
    assert round(row.out_of_place.algbw_gb_s or 0, 2) == 33.55  # size / time, not the column
    assert row.out_of_place.busbw_gb_s == 29.36
    assert (gather.op, gather.ranks, gather.ranks_stated, gather.failed) == ("all_gather", 8, False, True)
    assert any("FAILED" in w for w in gather.warnings)
    assert row.in_place.wrong is None
    everyone = read_table(CASES / "P30" / "alltoall.txt")
    (row,) = everyone.rows
    assert row.out_of_place is not None and row.in_place is not None
    assert (everyone.op, everyone.ranks, everyone.failed) == ("alltoall", 8, False)
    assert math.isclose((row.out_of_place.busbw_gb_s or 0) / (row.out_of_place.algbw_gb_s or 1), 7 / 8, rel_tol=1e-3)
    assert row.in_place.wrong is None  # N/A is missing, not 0
    for name in ("all_gather.txt", "alltoall.txt"):
        assert recognise_file(CASES / "P30" / name).name == "nccl_tests"


# -- public tables ----------------------------------------------------------------------------------------------------

#: File -> operation, ranks, listed in the file, rows, failed.
PUBLIC = {
    "all_gather_perf_old_algbw_equals_busbw.txt": ("all_gather", 8, False, 1, True),
    "all_reduce_perf_2.20_gb10_2node.txt": ("all_reduce", 2, True, 4, False),
    "all_reduce_perf_2.8_12col_error_na.txt": ("all_reduce", 256, False, 6, False),
    "all_reduce_perf_with_nccl_info_interleaved.txt": ("all_reduce", None, False, 0, False),
    "alltoall_perf_2.17.8_h100_4gpu.txt": ("alltoall", 4, True, 0, False),
    "alltoall_perf_h20_8gpu_na_wrong.txt": ("alltoall", 8, True, 3, False),
    "alltoall_perf_structured_pr318.json": ("alltoall", 8, False, 2, False),
    "mscclpp_alltoall_mpirun_tag.txt": ("alltoall", 16, False, 1, False),
}


@public
@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_tables(name: str) -> None:
    t = read_table(TABLES / name)
    assert (t.op, t.ranks, t.ranks_stated, len(t.rows), t.failed) == PUBLIC[name]
    assert len(t.df) == sum(len(r.halves) for r in t.rows)


@public
def test_every_public_table_has_an_answer() -> None:
    assert {p.name for p in TABLES.iterdir()} - {"PROVENANCE.tsv"} == set(PUBLIC)


@public
def test_figures_of_public_tables() -> None:
    old = read_table(TABLES / "all_gather_perf_old_algbw_equals_busbw.txt").rows[0].out_of_place
    assert old is not None and round(old.algbw_gb_s or 0, 2) == 147.48 and old.busbw_gb_s == 129.05
    pair = read_table(TABLES / "all_reduce_perf_2.20_gb10_2node.txt")
    assert pair.version == "2.20.0"
    assert all(m.algbw_gb_s == m.busbw_gb_s for r in pair.rows for m in r.halves)
    torn = read_table(TABLES / "all_reduce_perf_with_nccl_info_interleaved.txt")
    assert torn.rows == ()
    assert any("1 rows are torn" in w for w in torn.warnings)
    eight = read_table(TABLES / "alltoall_perf_h20_8gpu_na_wrong.txt").rows[0]
    assert eight.size_bytes == eight.count * 4 * 8
    assert eight.in_place is not None and eight.in_place.wrong is None
    tagged = read_table(TABLES / "mscclpp_alltoall_mpirun_tag.txt").rows[0]
    assert tagged.in_place is None  # its columns come in the other order, and the first ones are blank
    assert tagged.out_of_place == Measurement(23275.0, 46.13, 43.25, 0.0)
    structured = read_table(TABLES / "alltoall_perf_structured_pr318.json").rows[0]
    assert structured.out_of_place == Measurement(1494.278386, 22.455275, 19.648366, 0.0)
    assert structured.in_place is not None and structured.in_place.wrong is None and structured.root is None


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_row(table: Callable[..., NcclTestsTable]) -> None:
    t = table("# nccl-tests version 2.17.8\n# Collective test starting: all_reduce_perf\n" + HEAD + ROW)
    (row,) = t.rows
    assert row == Row(1048576, 262144, "float", "sum", None, Measurement(50.0, 20.97, 36.7, 0.0), Measurement(49.0, 21.4, 37.45, None), 4)
    assert (t.op, t.version, t.ranks) == ("all_reduce", "2.17.8", 8)
    assert t.df.columns.tolist()[:6] == ["size_bytes", "count", "dtype", "redop", "root", "in_place"]
    assert t.df["wrong"].isna().tolist() == [False, True]


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "[0] ", "> ", ""])
def test_launcher_tags(tag: str, table: Callable[..., NcclTestsTable]) -> None:
    assert len(table("".join(tag + line + "\n" for line in (HEAD + ROW).splitlines())).rows) == 1


def test_a_wrong_element_fails_the_table(table: Callable[..., NcclTestsTable]) -> None:
    assert table(HEAD + ROW.replace("      0    49", "      3    49")).failed
    assert table(HEAD + ROW + "# Out of bounds values : 1 FAILED\n").failed
    assert not table(HEAD + ROW + "# Out of bounds values : 0 OK\n").failed


def test_two_ranks_are_not_taken_for_the_old_all_gather(table: Callable[..., NcclTestsTable]) -> None:
    row = ROW.replace("36.70", "20.97").replace("37.45", "21.40")
    t = table(HEAD + row)
    assert not any("old version" in n for n in t.notes)
    assert t.ranks == 2


@given(st.integers(2, 64), st.sampled_from(["all_reduce", "all_gather"]), st.integers(20, 30), st.floats(5, 400))
def test_the_number_of_ranks_is_within_what_rounding_allows(n: int, op: str, log_size: int, algbw: float) -> None:
    size = 1 << log_size
    time_us = float(f"{size / algbw / 1e3:.5g}")
    time_us = round(time_us, 2 if time_us < 1e3 else 1 if time_us < 1e4 else 0)
    factor = (2 if op == "all_reduce" else 1) * (n - 1) / n
    half = Measurement(time_us, round(size / time_us / 1e3, 2), round(size / time_us / 1e3 * factor, 2), 0)
    bounds = rank_interval([Row(size, size // 4, "float", None, None, half, None)], op)
    assert bounds is not None
    assert bounds[0] <= n <= bounds[1]


def test_broadcast_says_nothing_about_ranks(table: Callable[..., NcclTestsTable]) -> None:
    assert table(HEAD + ROW.replace("36.70", "20.97").replace("37.45", "21.40"), "broadcast.txt").ranks is None


# -- refusal and damage -----------------------------------------------------------------------------------------------


def test_a_table_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(HEAD + ROW)
    for paths in (path, [path, path]):
        with pytest.raises(RefusedError, match="a benchmark of one collective, not a trace") as e:
            open_trace(paths)
        assert e.value.exit_code == 3
        assert "calibrate" in str(e.value)


def test_recognised_by_content() -> None:
    assert nccl_tests.recognise(HEAD.encode())
    assert nccl_tests.recognise(b"[1,0]<stdout>:" + OLD_HEAD.encode())
    for other in (b"", b"size count type", b'{"size": 1}', b"n1:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1\n" + HEAD.encode()):
        assert not nccl_tests.recognise(other)


def changed(old: str, new: str) -> str:
    assert old in ROW
    return HEAD + ROW.replace(old, new)


STRUCTURED = {
    "identifier": "nccl-tests structured output",
    "benchmark": [{"1024": {"count": 8, "oop_time": 1.0, "oop_algbw": 1.0, "oop_busbw": 1.0}}],
}


def structured(**entry: object) -> str:
    return json.dumps({**STRUCTURED, "benchmark": [{"1024": {"count": 8, "oop_time": 1.0, **entry}}]})


MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "the file is empty"),
    "no table": ("hello\n", "no nccl-tests table"),
    "a list of numbers without columns": ("a\nb\n1.5 2.5\n", "no nccl-tests table"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(40), "zstd"),
    "zip": (b"PK\x03\x04" + bytes(40), "zip"),
    "xz": (b"\xfd7zXZ\x00" + bytes(40), "xz"),
    "unknown column": (HEAD.replace("redop", "color") + ROW, "line 1: unknown columns"),
    "a column twice": (HEAD.replace("redop", "type ") + ROW, "line 1: unknown columns"),
    "a third half": (HEAD.rstrip() + " time algbw busbw #wrong\n", "line 1: unknown columns"),
    "halves that differ": (HEAD.rstrip().removesuffix("#wrong") + "\n" + ROW, "line 1: unknown columns"),
    "size is negative": (changed("     1048576 ", "    -1048576 "), "line 2: size"),
    "size beyond 2^62": (changed("     1048576 ", "9" * 19 + " "), "line 2: size"),
    "size of 30 digits": (changed("     1048576 ", "9" * 30 + " "), "line 2: size"),
    "count is negative": (changed(" 262144", " -262144"), "line 2: count"),
    "count of 30 digits": (changed(" 262144", " " + "9" * 30), "line 2: count"),
    "root is a word": (changed("      -1", "    none"), "line 2: root"),
    "root below -1": (changed("      -1", "      -2"), "line 2: root"),
    "root is a fraction": (changed("      -1", "     0.5"), "line 2: root"),
    "time is a word": (changed(" 50.00", "  soon"), "line 2: time: 'soon' is not a number"),
    "time is negative": (changed(" 50.00", "-50.00"), "line 2: time"),
    "time has two points": (changed(" 50.00", "5.0.00"), "line 2: time"),
    "time overflows": (changed(" 50.00", "1e9999"), "line 2: time"),
    "time with a comma": (changed(" 50.00", " 50,00"), "line 2: time"),
    "algbw is a word": (changed(" 20.97", "  fast"), "line 2: algbw"),
    "algbw is negative": (changed(" 20.97", "-20.97"), "line 2: algbw"),
    "busbw is a word": (changed(" 36.70", "  fast"), "line 2: busbw"),
    "busbw is negative": (changed(" 36.70", "-36.70"), "line 2: busbw"),
    "wrong is a word": (changed("      0    49", "     no    49"), "line 2: wrong"),
    "wrong is negative": (changed("      0    49", "     -1    49"), "line 2: wrong"),
    "in-place time is a word": (changed(" 49.00", "  soon"), "line 2: time"),
    "in-place algbw is hexadecimal": (changed(" 21.40", "  0x15"), "line 2: algbw"),
    "in-place busbw is a bracket": (changed(" 37.45", "     ["), "line 2: busbw"),
    "a bad row after a good one": (HEAD + ROW + ROW.replace(" 50.00", "  soon"), "line 3: time"),
    "structured: cut": (json.dumps(STRUCTURED)[:80], "not a structured nccl-tests output"),
    "structured: a list": ("{}", "not a structured nccl-tests output"),
    "structured: another identifier": (json.dumps({**STRUCTURED, "identifier": "x"}), "its identifier is 'x'"),
    "structured: benchmark is an object": (json.dumps({**STRUCTURED, "benchmark": {}}), "not a structured nccl-tests output"),
    "structured: an entry is a number": (json.dumps({**STRUCTURED, "benchmark": [{"1024": 5}]}), "not a structured nccl-tests output"),
    "structured: no count": (json.dumps({**STRUCTURED, "benchmark": [{"1024": {}}]}), "count"),
    "structured: size is a word": (json.dumps({**STRUCTURED, "benchmark": [{"big": {"count": 1}}]}), "size: 'big'"),
    "structured: size is negative": (json.dumps({**STRUCTURED, "benchmark": [{"-4": {"count": 1}}]}), "size: '-4'"),
    "structured: count is a word": (structured(count="many"), "count: 'many'"),
    "structured: count is negative": (structured(count=-1), "count: '-1'"),
    "structured: time is a word": (structured(oop_time="soon"), "time: 'soon'"),
    "structured: time is negative": (structured(oop_time=-1), "time: -1"),
    "structured: algbw is a list": (structured(oop_algbw=[1]), "oop_algbw"),
    "structured: busbw is a bool": (structured(oop_busbw=True), "oop_busbw"),
    "structured: root is a word": (structured(root="zero"), "root: 'zero'"),
    "structured: NaN": (json.dumps(STRUCTURED).replace("1.0", "NaN", 1), "not a structured nccl-tests output"),
    "structured: nested too deeply": ('{"identifier": ' + "[" * 100_000, "not a structured nccl-tests output"),
}


@pytest.mark.parametrize("kind", sorted(MALFORMED))
def test_malformed(kind: str, table: Callable[..., NcclTestsTable]) -> None:
    content, where = MALFORMED[kind]
    with pytest.raises(FormatError) as e:
        table(content)
    assert e.value.exit_code == 3
    assert where in str(e.value)
    assert "all_reduce.txt" in str(e.value)


TORN = {
    "cut": ROW[:60] + "\n",
    "cut inside the first half": ROW[:80] + "\n",
    "another line inside": ROW[:54] + "[0] h:1:1 [0] NCCL INFO 512 Bytes -> Algo 0\n",
    "too long": ROW.rstrip() + " 17\n",
}


@pytest.mark.parametrize("kind", sorted(TORN))
def test_torn_rows_are_left_out_and_named(kind: str, table: Callable[..., NcclTestsTable]) -> None:
    t = table(HEAD + TORN[kind] + ROW)
    assert len(t.rows) == 1
    assert any("1 rows are torn and were left out (line 2)" in w for w in t.warnings)


@given(st.binary(max_size=300), st.integers(0, len(HEAD + ROW)))
def test_any_bytes_give_a_table_or_a_typed_error(tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int) -> None:
    path = tmp_path_factory.mktemp("damaged") / "all_reduce.txt"
    good = (HEAD + ROW).encode()
    path.write_bytes(good[:at] + junk + good[at:])
    try:
        t = read_table(path)
    except LabError as e:
        assert e.exit_code == 3  # noqa: PT017 (either outcome is right)
    else:
        assert all(r.size_bytes >= 0 for r in t.rows)
