"""Which ranks arrive late, and how long the others wait for them."""

from __future__ import annotations

from typing import Any

from commcanary_lab.inspect import StragglerTable
from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import coverage_text, html, title_html
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

__all__ = ["late_ranks_card"]


def late_ranks_card(late: StragglerTable) -> Any:
    """Return the table of late ranks as a card.

    Parameters
    ----------
    late : StragglerTable
        From `commcanary_lab.inspect.stragglers`.
    """
    columns = {
        "rank": TableColumn("Rank", fmt.count_cell(), 60, right=True),
        "events": TableColumn("Collectives", fmt.count_cell(), 85, right=True),
        "last": TableColumn("Arrived last", fmt.count_cell(), 85, right=True),
        "last_fraction": TableColumn("Share last", fmt.share_cell(), 80, right=True),
        "median_lateness_us": TableColumn("Late, median", fmt.time_cell(), 90, right=True),
        "p95_lateness_us": TableColumn("Late, p95", fmt.time_cell(), 85, right=True),
        "max_lateness_us": TableColumn("Late, worst", fmt.time_cell(), 85, right=True),
        "waiting_caused_us": TableColumn("Waiting caused", fmt.time_cell(), 95, right=True),
        "waited_us": TableColumn("Waited", fmt.time_cell(), 80, right=True),
    }
    text = f"Over {late.known:,} collectives with arrivals per rank; waiting of all ranks together {format_us(late.waiting_us)}"
    rest = late.unknown + late.skew_only
    text += f"; {rest:,} others do not say who was late" if rest else ""
    head = panel().Row(
        html(title_html("Late ranks", text, late.origin, coverage_text(late.coverage))),
        download(lambda: late.df.to_csv(index=False), "late_ranks.csv"),
        sizing_mode="stretch_width",
        margin=0,
    )
    return paper(head, table(late.df, columns, page_size=8))
