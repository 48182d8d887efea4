"""All-to-all-v matrix files: replay a traffic matrix with a benchmark.

==================  ===============================================================================================================
file                content
==================  ===============================================================================================================
alltoallv.csv       the fractions that the all-to-all-v benchmark proposed for nccl-tests (pull request 157) reads: line i, value j
                    is what rank i sends to rank j over the size that the benchmark is given, in [0, 1], separated by commas
alltoallv.txt       the same in whole bytes separated by blanks, as UCC's perftest reads it
                    (``UCC_PT_COLL_ALLTOALLV_TRANSFER_MATRIX_FILE``)
alltoallv.json      the size, the ranks behind the lines, where M comes from, and what was left out
==================  ===============================================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.errors import LimitError, RefusedError
from commcanary_lab.export.folder import ExportFolder
from commcanary_lab.traffic import TrafficMatrix, write_matrix
from commcanary_lab.units import format_bytes

__all__ = ["MAX_RANKS", "NcclTestsExport", "export_nccl_tests"]

#: A dense text file of more ranks is no use to a benchmark: 16,384 ranks make 268 million values.
MAX_RANKS = 16_384


@dataclass(frozen=True)
class NcclTestsExport:
    """What was written.

    Parameters
    ----------
    files : tuple of Path
        The files.
    ranks : int
        Lines of the matrix.
    entries : int
        Pairs of ranks with traffic.
    size_bytes : int
        The size to give to the benchmark (``-b`` and ``-e``): the largest cell.
    skipped : tuple of (str, int)
        What the files do not say, with its bytes.
    """

    files: tuple[Path, ...]
    ranks: int
    entries: int
    size_bytes: int
    skipped: tuple[tuple[str, int], ...]


def export_nccl_tests(m: TrafficMatrix, directory: str | os.PathLike[str], *, skip_unsupported: bool = False) -> NcclTestsExport:
    """Write the matrix files of an all-to-all-v benchmark.

    Parameters
    ----------
    m : TrafficMatrix
        The traffic; the benchmark starts one process per rank, in ascending order of global ranks.
    directory : path-like
        Where the files go; it is made.
    skip_unsupported : bool
        Leave out what the files cannot say: bytes without destination, and what passes switches.

    Raises
    ------
    RefusedError
        If something cannot be said and is not to be left out, or nothing is left.
    LimitError
        Beyond `MAX_RANKS` ranks.
    InputError
        If the directory cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import commcanary_lab as lab
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = export_nccl_tests(lab.traffic(lab.samples.adversarial()), folder)
    ...     print(done.entries, done.size_bytes, (Path(folder) / "alltoallv.csv").read_text().split())
    2 102400 ['0,1', '1,0']
    """
    skipped = tuple(_unsupported(m))
    if skipped and not skip_unsupported:
        what = "; ".join(f"{format_bytes(size)} {name}" for name, size in skipped)
        raise RefusedError(f"a matrix file cannot say: {what}", remedy="leave it out with --skip-unsupported")
    if not len(m.cells):
        raise RefusedError("there is no traffic between ranks to export", remedy="check with `traffic` what the source holds")
    if m.n > MAX_RANKS:
        raise LimitError(f"a dense matrix of {m.n:,} ranks is more than {MAX_RANKS:,}", remedy="filter the trace by group")
    plain = m.without_switches()
    size = int(np.rint(plain.cells.size_bytes).max())
    folder = ExportFolder(Path(directory), "nccl-tests", ("alltoallv.csv", "alltoallv.txt", "alltoallv.json"))
    folder.write("alltoallv.csv", _fractions(plain, size))
    write_matrix(plain, folder.path / "alltoallv.txt")
    about = _about(plain, size, skipped)
    folder.write("alltoallv.json", canonical_bytes(about))
    folder.finish({"entries": len(plain.cells), "skipped": about["skipped"]})
    return NcclTestsExport(folder.files, m.n, len(plain.cells), size, skipped)


def _unsupported(m: TrafficMatrix) -> Iterator[tuple[str, int]]:
    if m.unattributed_bytes:
        yield "unattributed: their destination is unknown", m.unattributed_bytes
    if len(m.switch_cells):
        yield "through switches: no rank is their destination", round(m.to_switches_bytes)


def _fractions(m: TrafficMatrix, size: int) -> Iterator[bytes]:
    c = m.cells
    column, value = np.searchsorted(m.ranks, c.dst), np.rint(c.size_bytes) / size
    starts, stops = np.searchsorted(c.src, m.ranks), np.searchsorted(c.src, m.ranks, "right")
    for low, high in zip(starts.tolist(), stops.tolist(), strict=True):
        row = ["0"] * m.n
        for at, fraction in zip(column[low:high].tolist(), value[low:high].tolist(), strict=True):
            row[at] = "1" if fraction == 1 else repr(fraction)
        yield (",".join(row) + "\n").encode("ascii")


def _about(m: TrafficMatrix, size: int, skipped: tuple[tuple[str, int], ...]) -> dict[str, object]:
    return {
        "size_bytes": size,
        "ranks": m.ranks.tolist(),
        "matrix_sum_bytes": m.sum_bytes,
        "source": m.source,
        "algorithm": m.algorithm,
        "ring_order": m.ring_order,
        "origin": m.origin,
        "notes": list(m.notes),
        "skipped": [{"reason": reason, "bytes": left} for reason, left in skipped],
        "usage": {
            "nccl-tests (pull request 157)": f"alltoallv_perf -b {size} -e {size} -s alltoallv.csv",
            "ucc": "UCC_PT_COLL_ALLTOALLV_TRANSFER_MATRIX_FILE=alltoallv.txt ucc_perftest -c alltoallv",
        },
    }
