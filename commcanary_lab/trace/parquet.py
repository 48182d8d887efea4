"""Traces as Parquet: one row per event, times in whole nanoseconds, nulls for what is unknown.

Columns are what the names say: text is dictionary-coded, ``arrival_ns``, ``splits``, ``duration_ns`` and ``rank_start_ns`` are lists,
``group`` and ``observers`` are indices into tables that travel in the file's metadata, together with everything that is not per event.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canonical import atomic_file
from commcanary_lab.errors import FormatError, InputError, LabError
from commcanary_lab.files import open_regular
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.invariants import check_trace
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.parquet_meta import decode_metadata, encode_metadata
from commcanary_lab.trace.timing import in_time_order

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAGIC", "read_parquet", "write_parquet"]

#: First and last bytes of every Parquet file.
MAGIC = b"PAR1"

_ROW_GROUP = 1 << 20

_TEXT = ("op", "phase", "dtype", "reduction", "tag", "channel")
_INTEGERS = ("root", "sender", "receiver", "message_sequence", "concurrent_groups")
_TIMES = ("start_ns", "gap_ns", "compute_before_ns", "overlap_ns", "observed_exposed_ns")
_LISTS = ("arrival_ns", "splits", "duration_ns", "rank_start_ns")


def write_parquet(trace: Trace, path: str | os.PathLike[str]) -> int:
    """Write a trace as Parquet, atomically.

    Parameters
    ----------
    trace : Trace
        The trace; everything it holds is written, so that reading gives an equal trace.
    path : path-like
        The file.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    InputError
        If the place cannot be written, or workload, system or extra hold something that JSON cannot say.
    """
    from pyarrow import parquet

    schema = _schema(with_ids=trace.ids is not None).with_metadata(encode_metadata(trace))
    with atomic_file(path) as f:
        with parquet.ParquetWriter(f, schema, compression="zstd", write_page_checksum=True) as writer:
            for start in range(0, len(trace), _ROW_GROUP):
                writer.write_table(_table(trace.rows(slice(start, start + _ROW_GROUP)), schema))
        return f.tell()


def read_parquet(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> Trace:
    """Read a trace from a Parquet file that `write_parquet` wrote.

    Parameters
    ----------
    path : path-like
        The file.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace
        Events in time order.

    Raises
    ------
    FormatError
        If the file is not Parquet, is damaged, or is not a trace; the message says what is missing.
    """
    import pyarrow as pa
    from pyarrow import parquet

    name = str(path)
    try:
        limits.check_file(path)
        with open_regular(path) as f:
            if f.read(len(MAGIC)) != MAGIC:
                raise FormatError("is not a Parquet file", file=name, remedy="let open recognise the format")
            f.seek(0)
            with parquet.ParquetFile(f, page_checksum_verification=True) as source:
                limits.check_events(source.metadata.num_rows, name)
                about = decode_metadata(source.schema_arrow.metadata or {}, name)
                _check_columns(source.schema_arrow, name)
                table = source.read()
        columns = _columns(table, name)
    except LabError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError) as e:
        if isinstance(e, OSError) and e.strerror:
            raise InputError(f"cannot be read: {e.strerror}", file=name, remedy="check the path and its permissions") from None
        what = (str(e).splitlines() or [type(e).__name__])[0]
        raise FormatError(f"is damaged: {what}", file=name, remedy="copy the file again, or write it again") from None
    limits.check_groups(len(about["groups"]), name)
    trace = Trace.build(table.num_rows, **columns, **about)
    check_trace(in_time_order(trace), name)
    return in_time_order(trace)


def _schema(with_ids: bool) -> pa.Schema:
    import pyarrow as pa

    text, rows = pa.dictionary(pa.int32(), pa.string()), pa.large_list(pa.int64())
    types: dict[str, pa.DataType] = {"id": pa.large_string()} if with_ids else {}
    types |= {"op": text, "custom_op": pa.bool_(), "phase": text, "group": pa.int32(), "size_bytes": pa.int64()}
    types |= dict.fromkeys(_TEXT[2:], text) | dict.fromkeys((*_INTEGERS, *_TIMES), pa.int64())
    types |= {"pressure": pa.float64(), "arrival_known": pa.bool_(), "observers": pa.int32()} | dict.fromkeys(_LISTS, rows)
    required = {"op", "custom_op", "group", "size_bytes", "arrival_known"}
    return pa.schema([pa.field(name, kind, nullable=name not in required) for name, kind in types.items()])


def _table(trace: Trace, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = {}
    for name in schema.names:
        value: Any = trace.ids if name == "id" else getattr(trace, name)
        if isinstance(value, Coded):
            codes = pa.array(value.codes, pa.int32(), mask=value.codes < 0)
            columns[name] = pa.DictionaryArray.from_arrays(codes, pa.array(value.names, pa.string()))
        elif isinstance(value, Column):
            masked = None if value.all_known else ~value.mask
            columns[name] = pa.nulls(len(trace), pa.int64()) if value.none_known else pa.array(value.values, mask=masked)
        elif name == "id":
            columns[name] = _id_array(value)
        elif isinstance(value, Ragged):
            columns[name] = _list_array(value)
        elif name == "observers":
            columns[name] = pa.array(value, pa.int32(), mask=value < 0)
        else:
            columns[name] = pa.array(value)
    return pa.table([columns[f.name].cast(f.type) for f in schema], schema=schema)


def _list_array(rows: Ragged) -> pa.Array:
    import pyarrow as pa

    if rows.is_empty:
        return pa.nulls(len(rows), pa.large_list(pa.int64()))
    mask = pa.array(rows.lengths == 0)
    return pa.LargeListArray.from_arrays(pa.array(rows.pointers), pa.array(rows.values, pa.int64()), mask=mask)


def _id_array(ids: Ragged) -> pa.Array:
    import pyarrow as pa

    known = np.packbits(ids.lengths > 0, bitorder="little")
    buffers = [pa.py_buffer(np.ascontiguousarray(a)) for a in (known, ids.pointers, ids.values)]
    return pa.Array.from_buffers(pa.large_string(), len(ids), buffers)


def _check_columns(schema: pa.Schema, file: str) -> None:
    expected = _schema(with_ids=False)
    missing = [name for name in expected.names if name not in schema.names]
    if missing:
        raise FormatError(f"the column{'s' * (len(missing) > 1)} {', '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing",
                          file=file, remedy="write the trace again")  # fmt: skip


def _columns(table: pa.Table, file: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in _schema(with_ids="id" in table.column_names):
        column = table.column(field.name)
        if column.type != field.type:
            column = _cast(column, field, file)
        if not field.nullable and column.null_count:
            raise FormatError(f"{column.null_count} values are missing", file=file, field=field.name, remedy="write the trace again")
        out["ids" if field.name == "id" else field.name] = _READERS.get(field.name, _read_column)(column)
    return out


def _cast(column: pa.ChunkedArray, field: pa.Field, file: str) -> pa.ChunkedArray:
    import pyarrow as pa

    try:
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
            return column.cast(pa.string()).dictionary_encode()
        return column.cast(field.type)
    except pa.ArrowException:
        raise FormatError(f"has the type {column.type}, expected {field.type}", file=file, field=field.name,
                          remedy="write the trace again") from None  # fmt: skip


def _one(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _read_text(column: pa.ChunkedArray) -> Coded:
    array = _one(column.unify_dictionaries())
    codes = array.indices.cast("int32").fill_null(-1).to_numpy(zero_copy_only=False)
    return Coded(codes, tuple(array.dictionary.to_pylist()))


def _read_column(column: pa.ChunkedArray) -> Column:
    dtype = np.float64 if column.type == "double" else np.int64
    if column.null_count == len(column):
        return Column.absent(len(column), dtype)
    array = _one(column)
    if not array.null_count:
        return Column(array.to_numpy(zero_copy_only=False))
    return Column(array.fill_null(0).to_numpy(zero_copy_only=False), array.is_valid().to_numpy(zero_copy_only=False))


def _read_plain(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    return _one(column).to_numpy(zero_copy_only=False)


def _read_observers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    if column.null_count == len(column):
        return np.broadcast_to(np.int32(-1), (len(column),))
    return _one(column).fill_null(-1).to_numpy(zero_copy_only=False)


def _read_list(column: pa.ChunkedArray) -> Ragged:
    if column.null_count == len(column):
        return Ragged.empty(len(column))
    array = _one(column)
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    values = array.flatten()
    return Ragged.from_lengths(values.fill_null(-1).to_numpy(zero_copy_only=False), lengths)


def _read_ids(column: pa.ChunkedArray) -> Ragged:
    array = _one(column).fill_null("")
    _, offsets, data = array.buffers()
    pointers = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8) if len(array) else np.zeros(1, np.int64)
    values = np.frombuffer(data, np.uint8)[pointers[0] : pointers[-1]] if data is not None else np.zeros(0, np.uint8)
    return Ragged(values, pointers - pointers[0])


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TEXT, _read_text),
    **dict.fromkeys(("custom_op", "group", "size_bytes", "arrival_known"), _read_plain),
    **dict.fromkeys(_LISTS, _read_list),
    "observers": _read_observers,
    "id": _read_ids,
}
