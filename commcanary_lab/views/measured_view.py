"""A comparison of two measured traces on the screen: changes with their intervals, the distribution of one operation, every row."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.review.comparison import percent
from commcanary_lab.review.measured import MeasuredComparison
from commcanary_lab.units import format_us
from commcanary_lab.views.before_after import SIDES_LEGEND, BeforeAfter
from commcanary_lab.views.comparison_tables import result_cell
from commcanary_lab.views.comparison_words import facts, reasons_html
from commcanary_lab.views.extra import material, panel
from commcanary_lab.views.interval_chart import INTERVAL_LEGEND, MAX_ROWS, IntervalChart, row_labels
from commcanary_lab.views.markup import html, title_html
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MeasuredView"]


class MeasuredView:
    """The cards of a comparison of two measured traces.

    Parameters
    ----------
    result : MeasuredComparison
        What to show.
    names : (str, str)
        Both sides.
    """

    def __init__(self, result: MeasuredComparison, names: tuple[str, str]) -> None:
        self.result, self.names = result, names
        self.metric = "median"
        self._why, self._head, self._title, self._notes = html(""), html(""), html(""), html("")
        self._chosen: tuple[str, str, int] | None = None
        self.cards: list[Any] = [paper(self._why)]
        if result.rows:
            self._chart = IntervalChart(self._rows(), self._limit)
            self._curves = BeforeAfter(*result.samples[0], f"{result.origin} latency")
            self._curves_title = html("")
            self._table = self._make_table()
            self.cards += [self._chart_card(), paper(self._curves_title, self._curves.pane), self._table_card()]
            self._curves_at(self._first())
        self.cards += [paper(self._notes)] if result.notes else []
        self.update(result)

    def update(self, result: MeasuredComparison) -> None:
        """Show the same traces under another policy."""
        self.result = result
        self._why.object = f'<div class="cl">{title_html("Why", "Slower operations first")}{reasons_html(result.reasons)}</div>'
        if result.notes:
            notes = "".join(f"<li>{escape(n)}</li>" for n in result.notes)
            self._notes.object = f'<div class="cl">{title_html("Notes of the sources")}<ul style="margin-top:8px">{notes}</ul></div>'
        if not result.rows:
            return
        self._draw()
        self._title.object = f'<div class="cl">{title_html("Every operation", self._counts())}</div>'
        frame = _frame(result)
        if not frame.equals(self._table.value):
            self._table.value = frame

    # -- chart of changes ---------------------------------------------------------------------------------------------

    def _rows(self) -> list[Any]:
        return [r for r in self.result.rows if r.metric == self.metric]

    @property
    def _limit(self) -> float:
        return self.result.policy.latency_limits("overall", self.metric)[0]

    def _chart_card(self) -> Any:
        choice = material().RadioButtonGroup(
            label="", options={"Median": "median", "p95": "p95"}, value=self.metric, size="small", margin=(2, 0, 0, 14), width=130
        )

        def choose(event: Any) -> None:
            self.metric = event.new
            self._draw()

        choice.param.watch(choose, "value")
        return paper(panel().Row(self._head, choice, sizing_mode="stretch_width", margin=0), html(INTERVAL_LEGEND), self._chart.pane)

    def _draw(self) -> None:
        rows = self._rows()
        rest = len(rows) - MAX_ROWS
        more = f"; the {MAX_ROWS} with the largest share of the time, {rest:,} more in the table" if rest > 0 else ""
        band = f"the band is the {self._limit:g} % that the policy allows"
        text = f"{'p95' if self.metric == 'p95' else 'Median'} of the latency of the longest rank; {band}{more}"
        title = title_html("Change of each operation", text, self.result.origin, facts(self.result).partition(", ")[2])
        self._head.object = f'<div class="cl">{title}</div>'
        self._chart.update(rows, self._limit)

    # -- distribution of one operation --------------------------------------------------------------------------------

    def _first(self) -> int:
        """What decides the verdict most: a regression, else what cannot be decided, else the largest."""
        rows = self.result.rows
        order = ("regression", "inconclusive", "improvement", "unchanged")
        return min(range(len(rows)), key=lambda i: (order.index(rows[i].verdict), i))

    def _curves_at(self, index: int) -> None:
        r = self.result.rows[index]
        self._curves.show(*self.result.samples[index])
        text = f"{r.metric} {percent(r.change_pct)}: {r.reason}. A click in the table below shows another operation"
        counts = f"{r.count_a:,} and {r.count_b:,} measured"
        title = title_html(f"Distribution of {row_labels(self.result.rows)[index]}", text, self.result.origin, counts)
        self._curves_title.object = f'<div class="cl">{title}{SIDES_LEGEND}</div>'

    # -- table --------------------------------------------------------------------------------------------------------

    def _counts(self) -> str:
        counts = {v: sum(r.verdict == v for r in self.result.rows) for v in ("regression", "inconclusive", "improvement", "unchanged")}
        listed = ", ".join(f"{n:,} {v}" for v, n in counts.items() if n)
        return f"{len(self.result.rows):,} rows (operation x size x group, median and p95): {listed}. A click shows a distribution"

    def _make_table(self) -> Any:
        columns = {
            "operation": TableColumn("Operation", None, 190, grow=3),
            "metric": TableColumn("Value", None, 70),
            "measured": TableColumn("Measured", None, 85, right=True),
            "baseline": TableColumn("Baseline", None, 85, right=True),
            "candidate": TableColumn("Candidate", None, 85, right=True),
            "change": TableColumn("Change", None, 80, right=True),
            "interval": TableColumn("Interval", None, 130, right=True),
            "share": TableColumn("Share", None, 65, right=True),
            "verdict": TableColumn("Verdict", result_cell(), 100),
            "why": TableColumn("Why", None, 200, grow=4),
        }
        out = table(_frame(self.result), columns, page_size=12)
        out.on_click(lambda e: self._curves_at(_ordered(self.result)[e.row]) if e.row is not None else None)
        return out

    def _table_card(self) -> Any:
        save = download(lambda: self.result.df.to_csv(index=False), "measured_comparison.csv")
        return paper(panel().Row(self._title, save, sizing_mode="stretch_width", margin=0), self._table)


def _ordered(result: MeasuredComparison) -> list[int]:
    """Rows in the order of the table: what fails first, then what is not decided, then by share of the time."""
    order = ("regression", "inconclusive", "improvement", "unchanged")
    return sorted(range(len(result.rows)), key=lambda i: (order.index(result.rows[i].verdict), i))


def _frame(result: MeasuredComparison) -> pd.DataFrame:
    import pandas as pd

    rows = []
    labels = row_labels(result.rows)
    for i in _ordered(result):
        r = result.rows[i]
        rows.append(
            {
                "operation": labels[i],
                "metric": r.metric,
                "measured": f"{r.count_a:,} / {r.count_b:,}",
                "baseline": "" if r.a_us is None else format_us(r.a_us),
                "candidate": "" if r.b_us is None else format_us(r.b_us),
                "change": percent(r.change_pct),
                "interval": "" if r.change_interval is None else f"{r.change_interval.low:+.1f} to {r.change_interval.high:+.1f} %",
                "share": f"{r.share_pct:.1f} %",
                "verdict": r.verdict,
                "why": r.reason,
            }
        )
    return pd.DataFrame(rows)
