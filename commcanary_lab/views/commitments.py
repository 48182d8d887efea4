"""What each commitment of a canary covers, and what the canary reveals."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.canary.disclosure import disclosure_sentences
from commcanary_lab.canary.model import Canary
from commcanary_lab.canary.streams import BoundedStream
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import panel
from commcanary_lab.views.group_labels import group_labels
from commcanary_lab.views.markup import html, title_html
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["commitments_card", "commitments_frame", "disclosure_card"]


def commitments_card(canary: Canary) -> Any:
    """Return the commitments: the root over all rows, and one per interval of a bounded step."""
    frame = commitments_frame(canary)
    source = canary.source
    whole = "all" if source.is_whole else f"rows {source.start:,} to {source.stop - 1:,} of"
    text = f"SHA-256 over {whole} {source.events:,} source events; {'salted' if source.salted else 'unsalted'}. "
    text += f"A locator of {len(source.locator.bits) + 1} sums names a single changed row."
    root = (
        f'<div style="margin-top:8px"><span class="muted">root, rows {source.start:,} to {source.stop - 1:,}</span><br>'
        f'<code style="overflow-wrap:anywhere">{escape(source.root)}</code></div>'
    )
    head = panel().Row(
        html(title_html("Commitments", text) + root),
        download(lambda: frame.to_csv(index=False), "commitments.csv"),
        sizing_mode="stretch_width",
        margin=0,
    )
    if len(frame) == 1:
        return paper(head)
    columns = {
        "covers": TableColumn("Covers", None, 180, grow=2), "events": TableColumn("Events", fmt.count_cell(), 70, right=True),
        "first": TableColumn("First row", fmt.count_cell(), 75, right=True),
        "last": TableColumn("Last row", fmt.count_cell(), 75, right=True),
        "sha256": TableColumn("SHA-256", None, 130, grow=2),
    }  # fmt: skip
    listed = frame.iloc[1:].assign(sha256=[f"{x[:20]}…" for x in frame["sha256"][1:]])
    return paper(head, table(listed, columns, page_size=8))


def commitments_frame(canary: Canary) -> pd.DataFrame:
    """Return one row per commitment: what it covers, events, first and last source row, digest."""
    import pandas as pd

    source = canary.source
    rows: list[tuple[str, int, int, int, str]] = [("root", canary.event_count, source.start, source.stop - 1, source.root)]
    if any(isinstance(s, BoundedStream) for s in canary.streams):
        order, pointers = canary.by_step
        groups = group_labels(canary.signatures.groups)
        for step, stream in enumerate(canary.streams):
            if not isinstance(stream, BoundedStream):
                continue
            row = int(canary.step_signature[step])
            name = f"step {step}: {canary.signatures.op.text(row)} {groups[canary.signatures.groups[canary.signatures.group[row]]]}"
            at = int(pointers[step])
            for i, (length, digest) in enumerate(zip(stream.lengths.tolist(), stream.commitments, strict=True)):
                events = order[at : at + length]
                rows.append((f"{name}, interval {i + 1}", length, source.start + int(events[0]), source.start + int(events[-1]), digest))
                at += length
    return pd.DataFrame(rows, columns=["covers", "events", "first", "last", "sha256"])


def disclosure_card(canary: Canary) -> Any:
    """Return what a holder of the canary learns about its source."""
    items = "".join(f"<li>{escape(s)}</li>" for s in disclosure_sentences(canary))
    return paper(
        html(title_html("What this canary reveals", "A list, not a promise of safety") + f'<ul style="margin-top:8px">{items}</ul>')
    )
