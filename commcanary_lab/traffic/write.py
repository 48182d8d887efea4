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
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from commcanary_lab.canonical import canonical_bytes, write_atomic
from commcanary_lab.errors import UsageError
from commcanary_lab.traffic.parts import group_names

if TYPE_CHECKING:
    from commcanary_lab.traffic.matrix import TrafficMatrix

__all__ = ["SUFFIXES", "write_matrix"]

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
            "unattributed_bytes": m.unattributed_bytes,
            "source": m.source,
            "algorithm": m.algorithm,
            "ring_order": m.ring_order,
            "origin": m.origin,
            "notes": list(m.notes),
            "import_coverage": {"read": m.coverage.read, "used": m.coverage.used, "skipped": dict(m.coverage.skipped)},
        }
    )


def _csv(m: TrafficMatrix) -> Iterator[bytes]:
    c = m.cells
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
