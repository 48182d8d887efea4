"""Parquet files that are foreign or damaged are refused with what is missing; writing is atomic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commcanary_lab.canonical import sha256_hex
from commcanary_lab.errors import FormatError, InputError, LimitError, TimingError
from commcanary_lab.limits import Limits
from commcanary_lab.trace import Coded, Column, ProcessGroup, Trace
from commcanary_lab.trace import parquet as module
from commcanary_lab.trace.parquet import read_parquet, write_parquet
from commcanary_lab.trace.parquet_meta import DIGEST_KEY, METADATA_KEY
from tests.golden_traces import golden_trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_parquet(golden_trace("irr100"), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table] = lambda t: t, **metadata: Any) -> Path:
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[METADATA_KEY]) | metadata
    table = change(table)
    about = {k: v for k, v in about.items() if v is not ...}
    data = json.dumps(about).encode()
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: data, DIGEST_KEY: sha256_hex(data).encode()}), path)
    return path


def put(name: str, values: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        i = table.column_names.index(name)
        return table.set_column(i, table.schema.field(i), pa.chunked_array([pa.array(values, table.schema.field(i).type)]))

    return change


def refusal(path: Path) -> str:
    with pytest.raises(FormatError) as e:
        read_parquet(path)
    return str(e.value).removeprefix(f"{path}: ")


def test_columns_are_natural(path: Path) -> None:
    table = pq.read_table(path)
    assert table.schema.field("op").type == pa.dictionary(pa.int32(), pa.string())
    assert table.schema.field("arrival_ns").type == pa.large_list(pa.int64())
    assert table.schema.field("gap_ns").type == pa.int64()
    trace = golden_trace("irr100")
    assert table["size_bytes"].to_pylist() == trace.size_bytes.tolist()
    assert table["gap_ns"].to_pylist() == trace.gap_ns.values.tolist()
    assert table["arrival_ns"][3].as_py() == trace.arrival_ns.row(3).tolist()
    assert table["start_ns"].null_count == len(trace)
    assert table["id"][0].as_py() == trace.id(0)
    frame = table.to_pandas()
    assert frame["op"].tolist() == trace.op.to_list()


def test_row_groups_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROW_GROUP", 7)
    trace = golden_trace("irr100")
    write_parquet(trace, tmp_path / "t.parquet")
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 15
    assert read_parquet(tmp_path / "t.parquet").first_difference(trace) is None


def test_columns_may_come_back_as_other_types_of_the_same_values(path: Path) -> None:
    """As pandas or DuckDB write them: plain text, small lists, 64-bit indices."""

    def change(table: pa.Table) -> pa.Table:
        types = {"op": pa.string(), "arrival_ns": pa.list_(pa.int64()), "group": pa.int64(), "size_bytes": pa.uint64()}
        return table.cast(pa.schema([f.with_type(types.get(f.name, f.type)) for f in table.schema]))

    assert read_parquet(rewrite(path, change)).equals(golden_trace("irr100"))


def test_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}")
    assert refusal(tmp_path / "x") == "is not a Parquet file; let open recognise the format"
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_parquet(tmp_path / "nowhere")


@pytest.mark.parametrize("keep", [4, 100, -1, -200])
def test_cut_files(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])
    assert refusal(path).startswith("is damaged: ")


def test_no_damage_changes_what_is_read(path: Path) -> None:
    """A flipped byte is found (pages and metadata have checksums), or it is in a part that does not matter."""
    data, trace = path.read_bytes(), golden_trace("irr100")
    refused = 0
    for at in range(4, len(data) - 8, 61):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            assert read_parquet(path).equals(trace), at
        except InputError as e:
            refused += 1
            assert str(path) in str(e)  # noqa: PT017
    assert refused > 100


def test_damaged_metadata_is_found(path: Path) -> None:
    table = pq.read_table(path)
    about = dict(table.schema.metadata)
    about[METADATA_KEY] = about[METADATA_KEY].replace(b'["tp0",', b'["tp9",')
    pq.write_table(table.replace_schema_metadata(about), path)
    assert refusal(path) == "commcanary_lab: the metadata is damaged: its digest differs; copy the file again, or write it again"


def test_foreign_files(path: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    assert refusal(tmp_path / "x.parquet").startswith(
        "the metadata 'commcanary_lab' is missing: another program wrote this Parquet file; open"
    )


def test_missing_columns_are_named(path: Path) -> None:
    assert refusal(rewrite(path, lambda t: t.drop_columns(["gap_ns"]))) == "the column gap_ns is missing; write the trace again"
    assert refusal(rewrite(path, lambda t: t.drop_columns(["op", "observers"]))).startswith("the columns op, gap_ns, observers are missing")


def test_metadata_of_another_version_or_damaged(path: Path) -> None:
    assert refusal(rewrite(path, format="commcanary_lab.trace.parquet.v9")) == (
        "format: format is 'commcanary_lab.trace.parquet.v9'; expected 'commcanary_lab.trace.parquet.v1'"
    )
    assert "the metadata is damaged" in refusal(rewrite(path, format="commcanary_lab.trace.parquet.v1", groups=3))
    assert "missing required field `notes`" in refusal(rewrite(path, groups=[["a", [0, 1]]], notes=...))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("group", [7] * 100, "group: names a process group outside the table"),
        ("observers", [3] * 100, "observers: names a rank set outside the table"),
        ("op", ["gather"] * 100, "op: is missing or outside the vocabulary without custom_op"),
        ("size_bytes", [-1] * 100, "size_bytes: is -1"),
        ("gap_ns", [-1] * 100, "gap_ns: holds a negative time"),
        ("pressure", [float("nan")] * 100, "pressure: holds a value that is not a number >= 0"),
        ("arrival_ns", [[1, 2]] * 100, "arrival_ns, duration_ns, rank_start_ns or splits: has rows of the wrong length"),
        ("arrival_ns", [[-1]] * 100, "arrival_ns: holds a negative time"),
        ("root", [99] * 100, "root, sender or receiver: is not a member of the group"),
        ("size_bytes", [None] * 100, "size_bytes: 100 values are missing"),
        ("op", [None] * 100, "op: 100 values are missing"),
    ],
)
def test_values_that_do_not_fit(path: Path, name: str, values: list[Any], message: str) -> None:
    def change(table: pa.Table) -> pa.Table:
        fields = [f.with_nullable(True) for f in table.schema]
        table = table.cast(pa.schema(fields))
        if name == "op":
            return table.set_column(table.column_names.index("op"), "op", pa.array(values, pa.string()))
        return put(name, values)(table)

    assert refusal(rewrite(path, change)).startswith(message)


def test_a_column_of_another_kind(path: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index("gap_ns"), "gap_ns", pa.array(["x"] * 100))

    assert refusal(rewrite(path, change)) == "gap_ns: has the type string, expected int64; write the trace again"


def test_contradicting_times(path: Path) -> None:
    with pytest.raises(TimingError, match="remove one of the two"):
        read_parquet(rewrite(path, put("start_ns", list(range(100)))))


def test_limits(path: Path) -> None:
    with pytest.raises(LimitError, match="100 events exceed the limit of 99"):
        read_parquet(path, Limits(max_events=99))
    with pytest.raises(LimitError, match="process groups"):
        read_parquet(path, Limits(max_groups=1))
    with pytest.raises(LimitError, match="bytes"):
        read_parquet(path, Limits(max_file_bytes=99))


def test_what_json_cannot_say_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    trace = Trace.build(1, op=Coded.constant(1, "broadcast"), groups=(ProcessGroup(None, (0,)),), group=np.zeros(1, np.int32),
                        size_bytes=np.array([8]), workload={"loss": float("nan")}, gap_ns=Column(np.array([1])))  # fmt: skip
    with pytest.raises(InputError, match="not representable as canonical JSON"):
        write_parquet(trace, tmp_path / "t.parquet")
    assert list(tmp_path.iterdir()) == []


def test_writing_replaces_a_file_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def fail(*_: Any) -> Any:
        raise RuntimeError("the disk caught fire")

    monkeypatch.setattr(module, "_table", fail)
    with pytest.raises(RuntimeError):
        write_parquet(golden_trace("adv100"), path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["t.parquet"]
    with pytest.raises(InputError, match="cannot be written"):
        write_parquet(golden_trace("adv100"), path.parent / "no" / "t.parquet")
