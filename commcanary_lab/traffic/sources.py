"""The same job seen by several sources: their figures side by side, and where their matrices differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commcanary_lab._shown import Shown
from commcanary_lab.errors import UsageError
from commcanary_lab.inspect.html import table_html
from commcanary_lab.traffic.difference import TrafficDifference
from commcanary_lab.traffic.matrix import CellDifference, TrafficMatrix
from commcanary_lab.units import format_bytes

__all__ = ["SourceComparison", "SourceRow", "compare_sources"]


@dataclass(frozen=True)
class SourceRow:
    """One source.

    Parameters
    ----------
    name : str
        As the caller names it.
    matrix : TrafficMatrix
        Its matrix.
    first_difference : CellDifference or None
        First cell that differs from the reference; None where all agree.
    difference : TrafficDifference
        Reference less this one.
    """

    name: str
    matrix: TrafficMatrix
    first_difference: CellDifference | None
    difference: TrafficDifference

    @property
    def agrees(self) -> bool:
        """Whether every cell is that of the reference."""
        return self.first_difference is None


@dataclass(frozen=True)
class SourceComparison(Shown):
    """Sources against the first of them.

    Parameters
    ----------
    rows : tuple of SourceRow
        The reference first.
    """

    rows: tuple[SourceRow, ...]

    @property
    def reference(self) -> SourceRow:
        """The source that the others are compared with."""
        return self.rows[0]

    @property
    def agree(self) -> bool:
        """Whether all matrices are equal, cell by cell."""
        return all(row.agrees for row in self.rows)

    def _repr_html_(self) -> str:
        verdict = "equal cell by cell" if self.agree else "differ"
        rows = [
            (r.name, r.matrix.source, r.matrix.n, r.matrix.records, format_bytes(r.matrix.payload_bytes), format_bytes(r.matrix.sum_bytes),
             format_bytes(r.matrix.unattributed_bytes), r.matrix.origin, "" if r.agrees else str(r.first_difference))
            for r in self.rows
        ]  # fmt: skip
        headers = ["", "source", "ranks", "records", "payload", "matrix sum", "unattributed", "origin", "first difference"]
        return table_html(f"{len(self.rows)} sources: matrices {verdict}", headers, rows, len(rows), ())


def compare_sources(matrices: Mapping[str, TrafficMatrix], *, reference: str | None = None, rtol: float = 1e-12) -> SourceComparison:
    """Compare matrices of one job from several sources, or of a canary with its trace, or predicted with observed.

    Parameters
    ----------
    matrices : mapping of str to TrafficMatrix
        By a name for people.
    reference : str, optional
        The name that the others are compared with; default: the first.
    rtol : float
        Relative tolerance per cell.

    Raises
    ------
    UsageError
        If there is no matrix, or no such name.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.tp8_decode()
    >>> canary = lab.compile(trace, records=4)
    >>> compare_sources({"trace": lab.traffic(trace), "canary": lab.traffic(canary.trace)}).agree
    True
    """
    if not matrices:
        raise UsageError("there is no matrix to compare", remedy="give one per source")
    first = next(iter(matrices)) if reference is None else reference
    if first not in matrices:
        raise UsageError(f"there is no source {first!r}", remedy=f"there is: {', '.join(matrices)}")
    base = matrices[first]
    names = [first, *(n for n in matrices if n != first)]
    return SourceComparison(tuple(SourceRow(n, matrices[n], base.first_difference(matrices[n], rtol), base - matrices[n]) for n in names))
