"""A replay on the screen: what was measured, against the model, per operation and per rank, and whether it can be believed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.replay.modelled import Modelled
from commcanary_lab.replay.result import LatencyRow, Replay
from commcanary_lab.units import format_bytes
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import html, key_figures, message, title_html
from commcanary_lab.views.replay_charts import MeasuredCurves, measured_legend, parts_legend, rank_parts
from commcanary_lab.views.replay_words import answer, chips_html, ended_text, figures, probe_text
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ReplayView", "replay"]

_MANY_NOTES = 12


def replay(result: Replay, model: Modelled | None = None) -> Any:
    """Show a replay.

    Parameters
    ----------
    result : Replay
        From `commcanary_lab.replay`.
    model : Modelled, optional
        The same program simulated: `commcanary_lab.replay.modelled.modelled`.

    Returns
    -------
    panel.viewable.Viewable
    """
    head = html(
        f'<p class="answer">{answer(result, model)}</p><div style="height:12px"></div>{key_figures(figures(result, model))}',
        margin=(0, 0, 16, 0),
    )
    return panel().Column(head, *ReplayView(result, model).cards, sizing_mode="stretch_width", styles={"gap": "16px"})


class ReplayView:
    """The cards of a replay.

    Parameters
    ----------
    result : Replay
        What to show.
    model : Modelled, optional
        What to compare it with.
    why_no_model : str
        What is said where there is none.
    problems : list of str, optional
        What is wrong with the seal, where that was looked up already.
    """

    def __init__(self, result: Replay, model: Modelled | None = None, why_no_model: str = "", problems: list[str] | None = None) -> None:
        self.result, self.model, self._why = result, model, why_no_model
        self._problems = result.verify() if problems is None else problems
        self.rows = result.latencies
        self.cards = [self._state_card()]
        if self.rows:
            self._curves, self._curves_head = MeasuredCurves(), html("")
            self._table = panel().Column(self._operations(), sizing_mode="stretch_width", margin=0)
            self.cards += [paper(self._curves_head, self._curves.pane), self._table_card(), self._ranks_card()]
            self._draw(None)
        self.cards += self._notes_card()

    def compare(self, model: Modelled | None, why: str = "") -> None:
        """Compare with another simulation, in place."""
        self.model, self._why = model, why
        if self.rows:
            self._table[:] = [self._operations()]  # a new one: a table whose data are exchanged hears no more clicks
            self._draw(self._shown)

    # -- whether it can be believed -----------------------------------------------------------------------------------

    def _state_card(self) -> Any:
        r = self.result
        parts = [title_html("What ran", r.ran_on, "measured"), '<div style="height:10px"></div>', chips_html(r, self._problems)]
        if ended := ended_text(r):
            parts.append(f'<div style="height:10px"></div>{message(ended, _left(r), "warn" if r.status == "cancelled" else "err")}')
        for title, lines in (("Counts differ from the program", r.count_differences), ("The evidence was changed", self._changed)):
            if lines:
                parts.append(f'<div style="height:10px"></div>{message(title, _some(lines), "err")}')
        parts.append(f'<p style="margin-top:12px" data-testid="probe">{escape(probe_text(r))}</p>')
        parts.append(f'<p class="muted" style="margin-top:6px">Evidence: <span class="mono">{escape(str(r.directory))}</span></p>')
        return paper(html("".join(parts)))

    def _notes_card(self) -> list[Any]:
        notes = self.result.notes
        if not notes:
            return []
        items = "".join(f"<li>{escape(n)}</li>" for n in notes[:_MANY_NOTES])
        more = len(notes) - _MANY_NOTES
        items += f"<li>and {more:,} more in the evidence</li>" if more > 0 else ""
        head = title_html("What a reader must know", "Notes of the source, and what ran differently from it")
        return [paper(html(f'{head}<ul style="margin-top:8px">{items}</ul>'))]

    @property
    def _changed(self) -> list[str]:
        return [p for p in self._problems if not p.startswith("SHA256SUMS: cannot be read")]

    # -- latencies ----------------------------------------------------------------------------------------------------

    def _draw(self, row: LatencyRow | None) -> None:
        self._shown = row
        r, model = self.result, self.model
        kind = None if row is None else (row.op, row.size_bytes, row.ranks)
        measured = r.latency_ns if kind is None else r.latency_ns[:, r.kinds[kind]]
        expected = None if model is None else model.service_us if kind is None else model.service_us[r.kinds[kind]]
        self._curves.show(measured.ravel() / 1000, expected)
        name = "all operations" if row is None else _label(row)
        which = "A click in the table below shows one operation" if row is None else "A second click on its row shows all operations again"
        count = f"{measured.size:,} measured in {r.iterations:,} iteration{'s' * (r.iterations != 1)}"
        origins = (f"{model.origin}: {model.report.backend.label}",) if model is not None else ()
        title = title_html(f"Latency of {name}", which, "measured", count)
        badges = "".join(f'<span class="b {o.split()[0].strip(":,")}">{escape(o)}</span>' for o in origins)
        title = title.replace('<span class="b plain">', f'{badges}<span class="b plain">', 1)
        legend = measured_legend(f"{model.origin}, {model.report.backend.label}: service time" if model is not None else "")
        missing = (
            f'<div style="height:10px"></div>{message("Nothing is modelled", self._why, "warn")}' if self._why and model is None else ""
        )
        self._curves_head.object = f'<div class="cl">{title}{legend}{missing}</div>'

    def _operations(self) -> Any:
        time = fmt.time_cell()
        columns = {
            "operation": TableColumn("Operation", None, 130, grow=2),
            "size_bytes": TableColumn("B", fmt.bytes_cell(), 80, right=True),
            "ranks": TableColumn("Ranks", fmt.count_cell(), 60, right=True),
            "count": TableColumn("Measured", fmt.count_cell(), 80, right=True),
            **{f"{q}_us": TableColumn(q, time, 74, right=True) for q in ("min", "p10", "p50", "p95", "p99")},
            "spread": TableColumn("Spread", fmt.share_cell(), 70, right=True),
            "model_p50_us": TableColumn("Model p50", time, 86, right=True),
        }
        out = table(operations_frame(self.result, self.model), columns, page_size=10)
        out.on_click(lambda e: self._clicked(e.row))
        return out

    def _clicked(self, at: int | None) -> None:
        if at is not None and 0 <= at < len(self.rows):
            self._draw(None if self.rows[at] is self._shown else self.rows[at])

    def _table_card(self) -> Any:
        text = (
            "Over all ranks and measured iterations, largest share of the time first. Spread: how much the median changes between "
            "iterations, standard deviation over mean"
        )
        save = download(lambda: operations_frame(self.result, self.model).to_csv(index=False), "replay_operations.csv")
        head = panel().Row(html(title_html("Every operation", text)), save, sizing_mode="stretch_width", margin=0)
        return paper(head, self._table)

    # -- ranks --------------------------------------------------------------------------------------------------------

    def _ranks_card(self) -> Any:
        rows, time = self.result.ranks, fmt.time_cell()
        chart, parts = rank_parts(rows, self.result.iterations)
        columns = {
            "rank": TableColumn("Rank", fmt.count_cell(), 60, right=True),
            "events": TableColumn("Operations", fmt.count_cell(), 90, right=True),
            "p50_us": TableColumn("In operation, p50", time, 120, right=True),
            "p99_us": TableColumn("In operation, p99", time, 120, right=True),
            "inside_us": TableColumn("In operations", time, 105, right=True),
            "wait_us": TableColumn("At barriers", time, 95, right=True),
            "between_us": TableColumn("Between", time, 85, right=True),
            "bookkeeping_p50_us": TableColumn("Bookkeeping, p50", time, 120, right=True),
        }
        frame = ranks_frame(self.result)
        if "between operations" not in parts:
            del columns["between_us"], columns["bookkeeping_p50_us"]
        text = "The chart shows one iteration on the average, the table sums over all measured ones"
        if "between operations" not in parts:
            text += "; gaps were preserved, so a rank also waits on purpose, which is left out"
        save = download(lambda: frame.to_csv(index=False), "replay_ranks.csv")
        title = title_html("Where the time of each rank goes", text, "measured")
        head = panel().Row(html(title + parts_legend(parts)), save, sizing_mode="stretch_width", margin=0)
        return paper(head, chart, table(frame, columns, page_size=8))


def operations_frame(result: Replay, model: Modelled | None = None) -> pd.DataFrame:
    """Return the latencies as a data frame; `model_p50_us` is empty without a model."""
    import pandas as pd

    rows = [
        {
            "operation": r.op, "size_bytes": float(r.size_bytes), "ranks": r.ranks, "count": r.count,
            "min_us": r.min_us, "p10_us": r.p10_us, "p50_us": r.p50_us, "p95_us": r.p95_us, "p99_us": r.p99_us, "spread": r.spread,
            "model_p50_us": float("nan") if model is None else model.kind_us((r.op, r.size_bytes, r.ranks)),
        }
        for r in result.latencies
    ]  # fmt: skip
    names = ["operation", "size_bytes", "ranks", "count", "min_us", "p10_us", "p50_us", "p95_us", "p99_us", "spread", "model_p50_us"]
    return pd.DataFrame(rows, columns=names)


def ranks_frame(result: Replay) -> pd.DataFrame:
    """Return the times of the ranks as a data frame."""
    from dataclasses import asdict

    import pandas as pd

    return pd.DataFrame([asdict(r) for r in result.ranks])


def _label(row: LatencyRow) -> str:
    return f"{row.op}, {format_bytes(row.size_bytes)}, {row.ranks:,} ranks"


def _left(result: Replay) -> str:
    ended = [str(i) for i, m in enumerate(result.markers) if m is not None and m.status == "pass"]
    told = f"Ranks that ended well: {', '.join(ended)}." if ended else "No rank came to its end."
    return f"{told} The log and the samples that there are lie in the evidence."


def _some(lines: Any, most: int = 6) -> str:
    shown = list(lines[:most])
    return "\n".join([*shown, *([f"and {len(lines) - most:,} more"] if len(lines) > most else [])])
