"""Traffic matrices of several sources side by side: a table, and where each differs from the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.traffic import TrafficMatrix
from commcanary_lab.traffic.attribution import switch_name
from commcanary_lab.traffic.cells import CellDifference
from commcanary_lab.traffic.sources import SourceComparison, SourceRow, compare_sources
from commcanary_lab.units import format_bytes
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.difference_map import difference_map, difference_text
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import coverage_text, html, message, rows_html, title_html
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["sources", "sources_frame", "sources_sentence"]

#: Links listed beside each map; the heads of the table have as much room as the map leaves.
_LISTED = 8
#: Names of files are long.
_CSS = ".cl th.r { white-space: normal; overflow-wrap: anywhere; min-width: 64px; vertical-align: bottom; }"


def sources(compared: SourceComparison | Mapping[str, TrafficMatrix], *, failed: Mapping[str, str] | None = None) -> Any:
    """Show matrices of several sources side by side, and the signed difference of each from the first.

    Parameters
    ----------
    compared : SourceComparison or mapping of str to TrafficMatrix
        From `compare_sources`, or the matrices by name, the reference first.
    failed : mapping of str to str, optional
        Sources that have no matrix, with the reason; they are shown in their place.

    Returns
    -------
    panel.viewable.Viewable
    """
    pn = panel()
    both = compared if isinstance(compared, SourceComparison) else compare_sources(compared)
    lost = dict(failed or {})
    frame = sources_frame(both, lost)
    reference = both.reference
    m = reference.matrix
    order = "" if m.origin == "measured" else f"ring order {m.ring_order}"
    title = title_html(
        "Against other sources", f"Matrices compared cell by cell with that of {reference.name}", m.origin, coverage_text(m.coverage), order
    )
    head = pn.Row(html(title), download(lambda: frame.to_csv(index=False), "sources.csv"), sizing_mode="stretch_width", margin=0)
    said = sources_sentence(both, len(lost))
    sentence = html(f'<p class="answer" data-testid="against" style="font-size:16px;margin:8px 0 6px">{said}</p>')
    parts = [html(message(f"{name} has no matrix", why, "err"), margin=(12, 0, 0, 0)) for name, why in lost.items()]
    differing = [row for row in both.rows if not row.difference.is_zero]
    top = max((float(abs(r.difference.cells.size_bytes).max()) for r in differing if len(r.difference.cells)), default=0.0)
    parts += [_difference(row, reference, top) for row in differing]
    return paper(head, sentence, _table(frame), *parts)


def sources_frame(compared: SourceComparison, failed: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return one row per source, the reference first, then what failed; sizes in bytes.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.traffic import compare_sources
    >>> m = lab.traffic(lab.samples.tp8_decode())
    >>> frame = sources_frame(compare_sources({"trace": m, "again": m}), {"damaged": "why"})
    >>> frame[["name", "links", "verdict"]].values.tolist()
    [['trace', 8.0, 'reference'], ['again', 8.0, 'equal cell by cell'], ['damaged', nan, 'no matrix']]
    """
    import pandas as pd

    rows: list[dict[str, Any]] = [
        {
            "name": r.name,
            "source": r.matrix.source,
            "ranks": float(r.matrix.n),
            "records": float(r.matrix.records),
            "payload_bytes": float(r.matrix.payload_bytes),
            "matrix_sum_bytes": r.matrix.sum_bytes,
            "links": float(len(r.matrix.cells)),
            "unattributed_bytes": float(r.matrix.unattributed_bytes),
            "origin": r.matrix.origin,
            "verdict": "reference" if r is compared.reference else _verdict(r.first_difference),
            "error": "",
        }
        for r in compared.rows
    ]
    rows += [{"name": name, "source": "", "origin": "", "verdict": "no matrix", "error": why} for name, why in (failed or {}).items()]
    return pd.DataFrame(rows)


def _verdict(found: CellDifference | None) -> str:
    if found is None:
        return "equal cell by cell"
    src, dst = (switch_name(end) if end < 0 else str(end) for end in (found.src, found.dst))
    left, right = format_bytes(found.left_bytes), format_bytes(found.right_bytes)
    if left == right:  # rounded alike: every digit counts
        left, right = f"{found.left_bytes:.15g} B", f"{found.right_bytes:.15g} B"
    return f"first difference {src} to {dst}: {right}, not {left}"


def sources_sentence(compared: SourceComparison, failed: int = 0) -> str:
    """Return in one sentence whether the sources agree, as HTML.

    Parameters
    ----------
    compared : SourceComparison
        The sources.
    failed : int
        How many more have no matrix.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.traffic import compare_sources
    >>> m = lab.traffic(lab.samples.tp8_decode())
    >>> sources_sentence(compare_sources({"trace": m, "canary": m}))
    'M of canary is <b>equal</b> to that of trace, cell by cell.'
    """
    others = compared.rows[1:]
    base = escape(compared.reference.name)
    lost = f" {failed:,} more {'has' if failed == 1 else 'have'} no matrix." if failed else ""
    if not others:
        return f"There is <b>nothing to compare</b> {base} with.{lost}"
    unequal = [r for r in others if not r.agrees]
    if not unequal:
        what = f"M of {escape(others[0].name)} is" if len(others) == 1 else f"The matrices of all {len(others)} other sources are"
        return f"{what} <b>equal</b> to that of {base}, cell by cell.{lost}"
    if len(others) == 1:
        return f"M of {escape(others[0].name)} <b>differs</b> from that of {base}: {difference_text(others[0].difference, 'there')}.{lost}"
    worst = max(unequal, key=lambda r: r.difference.added_bytes + r.difference.removed_bytes)
    most = f" most by {escape(worst.name)}: {difference_text(worst.difference, 'there')}" if len(unequal) > 1 else ""
    one = "" if most else f" ({escape(worst.name)}: {difference_text(worst.difference, 'there')})"
    return f"<b>{len(unequal)} of {len(others)}</b> sources differ from {base}{',' if most else ''}{most}{one}.{lost}"


def _table(frame: pd.DataFrame) -> Any:
    columns = {
        "name": TableColumn("Name", fmt.long_text_cell(), 150, grow=3),
        "source": TableColumn("Source", fmt.long_text_cell(), 155, grow=2),
        "records": TableColumn("Records", fmt.count_cell(), 70, right=True),
        "payload_bytes": TableColumn("Payload", fmt.bytes_cell(), 80, right=True),
        "matrix_sum_bytes": TableColumn("Matrix sum", fmt.bytes_cell(), 85, right=True),
        "links": TableColumn("Links", fmt.count_cell(), 60, right=True),
        "unattributed_bytes": TableColumn("Unattributed", fmt.bytes_cell(), 90, right=True),
        "verdict": TableColumn("M against the reference", fmt.long_text_cell(), 210, grow=4),
    }
    return table(frame, columns, page_size=12)


def _difference(row: SourceRow, reference: SourceRow, top: float) -> Any:
    """The map of one difference, and its largest links."""
    pn = panel()
    d = row.difference
    apart = [note for note in d.notes if note.startswith(("algorithm differs", "ring order differs"))]
    words = html(
        title_html(f"{reference.name} minus {row.name}", "; ".join([difference_text(d, f"in {reference.name}"), *apart]), d.origin),
        margin=(18, 0, 0, 0),
    )
    links = d.links(top=_LISTED)
    listed = rows_html(
        ("From rank", "To rank", reference.name, row.name, "Difference"),
        [
            (
                f"{x.src:,}",
                f"{x.dst:,}",
                format_bytes(d.left.value(x.src, x.dst)),
                format_bytes(d.right.value(x.src, x.dst)),
                signed(x.size_bytes),
            )
            for x in links
        ],
        right=(0, 1, 2, 3, 4),
    )
    rest = len(d.cells) - len(links)
    more = f'<p class="muted" style="font-size:12.5px;margin-top:6px">and {rest:,} more links that differ</p>' if rest > 0 else ""
    side = html(listed + more, stylesheets=[_CSS], styles={"flex": "1 1 0px", "min-width": "0", "align-self": "flex-start"})
    return pn.Column(
        words,
        pn.Row(difference_map(d, top, label=f"{reference.name} - {row.name}"), side, sizing_mode="stretch_width", margin=0),
        sizing_mode="stretch_width",
        margin=0,
    )


def signed(size_bytes: float) -> str:
    """Return a difference of bytes with its sign.

    Examples
    --------
    >>> signed(2048.0), signed(-1.0), signed(0.0)
    ('+2.00 KiB', '-1 B', '0 B')
    """
    return f"{'+' if size_bytes > 0 else ''}{format_bytes(size_bytes)}"
