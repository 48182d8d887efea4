"""Traffic matrices as files.

========  =====================================================================================================================
suffix    content
========  =====================================================================================================================
.csv      one line per link: ``src,dst,bytes`` (global ranks), in order of source and destination
.npz      a scipy sparse matrix (``scipy.sparse.load_npz``), with ``ranks`` (labels of rows and columns) and ``about`` (JSON)
.parquet  one row per contribution: op, group, phase, src, dst, bytes; what M is about is in the file's metadata
.txt      the dense matrix for all-to-all-v benchmarks: one line per sending rank in ascending order, whole bytes separated by
          blanks, no header; fractions of a byte are rounded to the nearest even
========  =====================================================================================================================

What passes switches (`TrafficMatrix.switch_cells`) is no cell of M. In .csv and .parquet it has rows of its own, with the switch of node n
as ``-1 - n``; in .npz it stands beside the matrix (``switch_src``, ``switch_dst``, ``switch_bytes``); a .txt cannot say it and is refused.
`read_cells` reads .csv, .npz, .parquet and .txt back.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from zipfile import BadZipFile, ZipFile

import numpy as np

from commcanary_lab.canonical import canonical_bytes, write_atomic
from commcanary_lab.errors import InputError, LabError, RefusedError, UsageError
from commcanary_lab.files import open_regular
from commcanary_lab.limits import DEFAULT
from commcanary_lab.traffic.cells import Cells, FloatArray, IntArray, canonical
from commcanary_lab.traffic.parts import group_names

if TYPE_CHECKING:
    from commcanary_lab.traffic.matrix import TrafficMatrix

__all__ = ["SUFFIXES", "read_cells", "write_matrix"]

_LINES = 65_536


def write_matrix(matrix: TrafficMatrix, path: str | os.PathLike[str], suffix: str | None = None) -> int:
    """Write a traffic matrix; the same matrix gives the same bytes.

    Parameters
    ----------
    matrix : TrafficMatrix
        The matrix.
    path : path-like
        Where the file ends up.
    suffix : str, optional
        One of `SUFFIXES`, whatever the path ends with.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    UsageError
        If the suffix is not known.
    RefusedError
        If M stands beside traffic through switches and the file cannot say that.
    InputError
        If the file cannot be written.
    """
    suffix = Path(path).suffix.lower() if suffix is None else suffix
    if suffix not in _WRITERS:
        raise UsageError(
            f"a traffic matrix cannot be written as {suffix or 'a file without suffix'!r}",
            file=str(path),
            remedy=f"name the file {', '.join(SUFFIXES)}",
        )
    return write_atomic(path, _WRITERS[suffix](matrix))


def _about(m: TrafficMatrix) -> bytes:
    return canonical_bytes(
        {
            "ranks": m.n,
            "events": m.events,
            "records": m.records,
            "payload_bytes": m.payload_bytes,
            "matrix_sum_bytes": m.sum_bytes,
            "to_switches_bytes": m.to_switches_bytes,
            "from_switches_bytes": m.from_switches_bytes,
            "unattributed_bytes": m.unattributed_bytes,
            "source": m.source,
            "algorithm": m.algorithm,
            "algorithm_origin": m.algorithm_origin,
            "ring_order": m.ring_order,
            "origin": m.origin,
            "notes": list(m.notes),
            "import_coverage": {"read": m.coverage.read, "used": m.coverage.used, "skipped": dict(m.coverage.skipped)},
        }
    )


def _csv(m: TrafficMatrix) -> Iterator[bytes]:
    c = m.all_cells
    yield b"src,dst,bytes\n"
    for low in range(0, len(c), _LINES):
        at = slice(low, low + _LINES)
        rows = zip(c.src[at].tolist(), c.dst[at].tolist(), c.size_bytes[at].tolist(), strict=True)
        yield "".join(f"{s},{d},{int(b) if b.is_integer() else repr(b)}\n" for s, d, b in rows).encode("ascii")


def _npz(m: TrafficMatrix) -> bytes:
    csr = m.csr()
    buffer = io.BytesIO()
    np.savez(
        buffer,
        format=np.array(b"csr"),
        shape=np.array(csr.shape),
        data=csr.data,
        indices=csr.indices,
        indptr=csr.indptr,
        ranks=m.ranks,
        switch_src=m.switch_cells.src,
        switch_dst=m.switch_cells.dst,
        switch_bytes=m.switch_cells.size_bytes,
        about=np.frombuffer(_about(m), np.uint8),
    )
    return buffer.getvalue()


def _parquet(m: TrafficMatrix) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = group_names({p.group: None for p in m.parts})

    def text(values: list[str | None]) -> pa.Array:
        return pa.array(values, pa.string()).take(pa.array(m.part)).dictionary_encode()

    table = pa.table(
        {
            "op": text([p.op for p in m.parts]),
            "group": text([names[p.group] for p in m.parts]),
            "phase": text([p.phase for p in m.parts]),
            "src": m.part_cells.src,
            "dst": m.part_cells.dst,
            "bytes": m.part_cells.size_bytes,
        }
    ).replace_schema_metadata({"commcanary_lab": _about(m), "ranks": canonical_bytes(m.ranks.tolist())})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _txt(m: TrafficMatrix) -> Iterator[bytes]:
    if len(m.switch_cells):
        raise RefusedError(
            "what passes switches cannot be replayed between ranks", remedy="attribute with an algorithm between ranks, for example ring"
        )
    return _rows(m)


def _rows(m: TrafficMatrix) -> Iterator[bytes]:
    c = m.cells
    column, size = np.searchsorted(m.ranks, c.dst), np.rint(c.size_bytes).astype(np.int64)
    starts = np.searchsorted(c.src, m.ranks)
    stops = np.searchsorted(c.src, m.ranks, "right")
    for low, high in zip(starts.tolist(), stops.tolist(), strict=True):
        row = np.zeros(m.n, np.int64)
        row[column[low:high]] = size[low:high]
        yield (" ".join(map(str, row.tolist())) + "\n").encode("ascii")


_WRITERS: dict[str, Callable[[TrafficMatrix], bytes | Iterator[bytes]]] = {".csv": _csv, ".npz": _npz, ".parquet": _parquet, ".txt": _txt}

#: What the file name may end with.
SUFFIXES = tuple(_WRITERS)


#: What the readers of formats raise for files that are damaged.
_DAMAGED = (
    *(AttributeError, EOFError, LookupError, OSError, OverflowError, RuntimeError, TypeError, ValueError),
    *(BadZipFile, zlib.error),
)


def read_cells(path: str | os.PathLike[str]) -> tuple[IntArray, Cells]:
    """Read the cells of a matrix file that `write_matrix` wrote; a .txt has no labels, its ranks are 0, 1, ...

    Returns
    -------
    ranks : ndarray of int64, shape (n,)
        Labels; in a .csv, which has none, those that occur.
    cells : Cells
        Cells of M and, below 0, of switches, in canonical order.

    Raises
    ------
    UsageError
        If the suffix is not known.
    InputError
        If the file cannot be read or is no matrix.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _READERS:
        raise UsageError(f"a traffic matrix cannot be read from {suffix!r}", file=str(path), remedy=f"known are {', '.join(_READERS)}")
    try:
        with open_regular(path) as f:
            DEFAULT.check_bytes(os.fstat(f.fileno()).st_size, str(path))
            ranks, src, dst, size = _READERS[suffix](f)
        _check_cells(ranks, src, dst, size)
    except LabError:
        raise
    except _DAMAGED as e:
        raise InputError(f"is no traffic matrix: {e}", file=str(path), remedy="write one with `traffic -o`") from None
    return ranks, canonical(np.zeros(len(src), np.int64), src, dst, size)[1]


_Columns = tuple[IntArray, IntArray, IntArray, FloatArray]


def _check_cells(ranks: IntArray, src: IntArray, dst: IntArray, size: FloatArray) -> None:
    if ranks.ndim != 1 or not src.shape == dst.shape == size.shape == (len(src),):
        raise ValueError("its columns differ in length")
    if not np.isfinite(size).all() or (size < 0).any():
        raise ValueError("a cell is no number of bytes")
    DEFAULT.check_members(len(ranks), "the ranks of the matrix")
    labels = np.concatenate([src, dst])
    known = np.isin(labels, ranks) | (labels < 0)
    if not known.all():
        raise ValueError(f"it has a cell of rank {labels[~known][0]}, which it does not list")


def _lines(f: BinaryIO) -> list[str]:
    return f.read().removeprefix(b"\xef\xbb\xbf").decode("ascii").splitlines()


def _read_csv(f: BinaryIO) -> _Columns:
    head, *lines = _lines(f) or [""]
    if head.strip() != "src,dst,bytes":
        raise ValueError("the header is not src,dst,bytes")
    rows = [line.split(",") for line in lines]
    for number, row in enumerate(rows, 2):
        if len(row) != 3:
            raise ValueError(f"line {number} has {len(row)} values")
    src, dst = (np.array([int(r[i]) for r in rows], np.int64) for i in (0, 1))
    ends = np.unique(np.concatenate([src, dst]))
    return ends[ends >= 0], src, dst, np.array([float(r[2]) for r in rows], np.float64)


#: Largest array of a matrix file; compressed files can claim any size.
_MAX_ARRAY_BYTES = 1 << 31


def _read_npz(file: BinaryIO) -> _Columns:
    with ZipFile(file) as z:
        if any(entry.file_size > _MAX_ARRAY_BYTES for entry in z.infolist()):
            raise ValueError("it holds an array of more than 2 GiB")
    file.seek(0)
    with np.load(file, allow_pickle=False) as f:
        ranks, pointers = f["ranks"].astype(np.int64), f["indptr"]
        src, dst = np.repeat(ranks, np.diff(pointers)), ranks[f["indices"]]
        ends = [np.concatenate([a, f[name].astype(np.int64)]) for a, name in ((src, "switch_src"), (dst, "switch_dst"))]
        return ranks, ends[0], ends[1], np.concatenate([f["data"], f["switch_bytes"]])


def _read_parquet(f: BinaryIO) -> _Columns:
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(f, columns=["src", "dst", "bytes"])
    except pa.ArrowException as e:
        raise ValueError(str(e)) from None
    ranks = np.array(json.loads((table.schema.metadata or {})[b"ranks"]), np.int64)
    return ranks, *(table[name].to_numpy() for name in ("src", "dst", "bytes"))


def _read_txt(f: BinaryIO) -> _Columns:
    rows = [[int(x) for x in line.split()] for line in _lines(f)]
    if any(len(row) != len(rows) for row in rows):
        raise ValueError(f"{len(rows)} lines of {len(rows[0])} values are no square matrix")
    dense = np.array(rows, np.int64).reshape(len(rows), len(rows))
    src, dst = np.nonzero(dense)
    return np.arange(len(rows)), src.astype(np.int64), dst.astype(np.int64), dense[src, dst].astype(np.float64)


_READERS: dict[str, Callable[[BinaryIO], _Columns]] = {".csv": _read_csv, ".npz": _read_npz, ".parquet": _read_parquet, ".txt": _read_txt}
