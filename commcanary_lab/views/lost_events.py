"""The tail events of a source that its results lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commcanary_lab.minimize.contrast import Contrast
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.tables import TableColumn, table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["lost_csv", "lost_frame", "lost_table", "lost_text"]

_COLUMNS = ["result", "event", "op", "group", "phase", "size", "exposed", "tail", "fate"]


def lost_frame(result: Contrast, backend: str) -> pd.DataFrame:
    """Return one row per result and lost event of a backend, the slowest events first."""
    import pandas as pd

    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for e in result.lost_tail_events:
        if e.backend != backend:
            continue
        row = rows.setdefault(
            (e.label, e.index),
            {
                "result": e.label,
                "event": e.index,
                "op": e.op or "",
                "group": e.group or "unnamed",
                "phase": e.phase or "",
                "size": float(e.size_bytes),
                "exposed": e.exposed_us,
                "tail": "",
                "fate": "kept, but fast" if e.kept else "left out",
            },
        )
        row["tail"] = f"{row['tail']}, p{e.quantile * 100:g}".lstrip(", ")
    frame = pd.DataFrame(list(rows.values()), columns=_COLUMNS)
    return frame.sort_values(["result", "exposed", "event"], ascending=[True, False, True], kind="stable", ignore_index=True)


def lost_table(frame: pd.DataFrame) -> Any:
    """Return the rows of `lost_frame` as a table."""
    columns = {
        "result": TableColumn("Lost by", None, 130, grow=2),
        "event": TableColumn("Event", fmt.count_cell(), 70, right=True),
        "op": TableColumn("Operation", None, 110, grow=2),
        "group": TableColumn("Group", None, 90),
        "phase": TableColumn("Phase", None, 80),
        "size": TableColumn("Size B", fmt.bytes_cell(), 80, right=True),
        "exposed": TableColumn("Exposed in source", fmt.time_cell(), 90, right=True),
        "tail": TableColumn("Tail of", None, 80),
        "fate": TableColumn("In the result", None, 110, grow=2),
    }
    return table(frame, columns, page_size=10, empty="No tail event was lost on this backend.", pagination="local")


def lost_text(result: Contrast, backend: str) -> str:
    """Return how many tail events each result lost on a backend."""
    parts = []
    for side in (result.a, result.b):
        found = [e for e in result.lost(side.label) if e.backend == backend]
        gone = len({e.index for e in found})
        parts.append(f"{side.label} lost {gone:,}" if gone else f"{side.label} lost none")
    total = result.tail_sizes[backend]
    return f"Of the {total:,} events of the p95 and p99 tails on {backend}: {'; '.join(parts)}"


def lost_csv(result: Contrast) -> str:
    """Return every lost event of every backend and quantile as CSV."""
    import pandas as pd

    names = ["label", "backend", "quantile", "index", "op", "phase", "group", "size_bytes", "exposed_us", "kept"]
    rows = [[getattr(e, n) for n in names] for e in result.lost_tail_events]
    return pd.DataFrame(rows, columns=["result", *names[1:]]).to_csv(index=False)
