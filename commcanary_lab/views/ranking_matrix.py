"""Which backend is better: the decision of every pair, in the source and in its canary, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.errors import UsageError
from commcanary_lab.simulate.report import Report
from commcanary_lab.trace.model import ImportCoverage
from commcanary_lab.units import format_us
from commcanary_lab.verify.model import Verification
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import panel
from commcanary_lab.views.grid import GRID_CSS, breakable, opening, tip
from commcanary_lab.views.markup import coverage_text, html, title_html
from commcanary_lab.views.ranked_pairs import METRIC_WORDS, RankedPair, ranked_pairs, ranking_csv
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import DIFFERENCE, paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RankingView", "matrices_html", "order_html", "ranking"]


def ranking(
    source: Verification | Sequence[Report],
    canary: Sequence[Report] | None = None,
    *,
    metric: str = "p99_us",
    coverage: ImportCoverage | None = None,
) -> Any:
    """Show which backend is better in every pair: source and canary side by side, differing decisions marked.

    Parameters
    ----------
    source : Verification or sequence of Report
        A verification, or the reports of the source on several backends.
    canary : sequence of Report, optional
        The reports of the canary on the same backends.
    metric : str
        The metric that decides: ``median_us``, ``p95_us``, ``p99_us`` or ``mean_us``.
    coverage : ImportCoverage, optional
        Of the source.

    Returns
    -------
    panel.viewable.Viewable
    """
    view = RankingView(ranked_pairs(source, canary), metric=metric, coverage=coverage)
    cards = [view.matrix_card, view.order_card, view.pairs_card]
    return panel().Column(*cards, sizing_mode="stretch_width", styles={"gap": "16px"})


class RankingView:
    """The matrices of one metric, the order under every metric, and the table of all pairs.

    Parameters
    ----------
    pairs : sequence of RankedPair
        From `ranked_pairs`.
    metric : str
        The metric of the matrices.
    coverage : ImportCoverage, optional
        Of the source.
    origin : str
        ``model``, with what was assumed.
    """

    def __init__(
        self, pairs: Sequence[RankedPair], *, metric: str = "p99_us", coverage: ImportCoverage | None = None, origin: str = "model"
    ) -> None:
        pn = panel()
        self._matrices, self._order, self._pairs_title = html("", stylesheets=[GRID_CSS]), html(""), html("")
        self._table = table(_frame(pairs), _columns(pairs), page_size=10, pagination="local")
        self.matrix_card = paper(self._matrices)
        self.order_card = paper(self._order)
        head = pn.Row(self._pairs_title, download(lambda: ranking_csv(self.pairs), "ranking.csv"), sizing_mode="stretch_width", margin=0)
        self.pairs_card = paper(head, self._table)
        self.coverage, self.origin = coverage, origin
        self.pairs: tuple[RankedPair, ...] = tuple(pairs)
        self.metric = metric
        self.show(pairs, metric)

    @property
    def both(self) -> bool:
        """Whether there is a canary's side."""
        return any(p.canary is not None for p in self.pairs)

    def show(self, pairs: Sequence[RankedPair] | None = None, metric: str | None = None, *, origin: str | None = None) -> None:
        """Exchange the pairs, the metric or the origin, in place; pairs with a canary's side need a new view after pairs without.

        Raises
        ------
        UsageError
            If the metric decides nothing.
        """
        if pairs is not None:
            self.pairs = tuple(pairs)
            self._table.value = _frame(self.pairs)
        self.metric, self.origin = metric or self.metric, origin or self.origin
        if self.metric not in METRIC_WORDS:
            raise UsageError(f"{self.metric!r} decides no ranking", remedy=f"choose one of {', '.join(METRIC_WORDS)}")
        self._matrices.object = _cl(matrices_html(self.pairs, self.metric, self.origin, self.coverage))
        self._order.object = _cl(order_html(self.pairs, self.origin, self.coverage))
        covered = coverage_text(self.coverage) if self.coverage is not None else None
        self._pairs_title.object = _cl(title_html("Decisions", _counted(self.pairs), self.origin, covered))


def _cl(content: str) -> str:
    return f'<div class="cl">{content}</div>'


def _counted(pairs: Sequence[RankedPair]) -> str:
    different = sum(p.agrees is False for p in pairs)
    ties = sum(p.source == "tie" for p in pairs)
    text = f"{len(pairs):,} decisions (pair x metric), {ties:,} of them ties in the source"
    if all(p.canary is None for p in pairs):
        return text
    return f"{text}; {different:,} differ, these first" if different else f"{text}; the canary decides all of them alike"


# -- matrices ---------------------------------------------------------------------------------------------------------


def matrices_html(pairs: Sequence[RankedPair], metric: str, origin: str, coverage: ImportCoverage | None) -> str:
    """Return the matrices of one metric: the source's, and the canary's where there is one."""
    shown = [p for p in pairs if p.metric == metric]
    both = any(p.canary is not None for p in shown)
    sides = ["source", "canary"] if both else ["source"]
    top = max((abs(d) for p in shown for s in sides if (d := _relative(*p.values(s))) is not None), default=0.0)
    text = f"Exposed latency, {METRIC_WORDS[metric]}: the row's backend against the column's, in percent; lower is better"
    title = title_html("Which backend is better", text, origin, coverage_text(coverage) if coverage is not None else None)
    grids = [f'<div class="side"><div class="cap">{s.capitalize()}</div>{_matrix(shown, s, top)}</div>' for s in sides]
    return f'{title}{_legend(both)}<div class="sides">{"".join(grids)}</div>'


def _legend(both: bool) -> str:
    better, worse = DIFFERENCE[0], DIFFERENCE[-1]
    differs = '<span><i class="sw differs"></i>decided differently</span>' if both else ""
    return (
        f'<div class="lg" style="margin:10px 0 4px"><span><i style="background:{better}"></i>row is faster</span>'
        f'<span><i style="background:{worse}"></i>row is slower</span><span><i class="sw tie"></i>tie within 0.001 us</span>{differs}</div>'
    )


def _matrix(pairs: Sequence[RankedPair], side: str, top: float) -> str:
    names = list(dict.fromkeys(n for p in pairs for n in (p.left, p.right)))
    by_pair = {(p.left, p.right): p for p in pairs}
    head = "".join(f'<th scope="col">{breakable(n)}</th>' for n in names)
    body = []
    for row in names:
        cells = []
        for at, column in enumerate(names):
            pair = by_pair.get((row, column)) or by_pair.get((column, row))
            cells.append('<td class="none"></td>' if pair is None else _cell(pair, row, side, top, opening(at, len(names))))
        body.append(f'<tr><th scope="row">{breakable(row)}</th>{"".join(cells)}</tr>')
    width = f"max-width:{120 + 110 * len(names)}px;min-width:{90 + 56 * len(names)}px"
    return f'<table class="grid" style="{width}"><thead><tr><td></td>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def _cell(pair: RankedPair, row: str, side: str, top: float, classes: str) -> str:
    """One cell: how much faster or slower the backend of the row is; all values in the tip."""
    a, b = pair.values(side)
    difference = _relative(a, b) if row == pair.left else _relative(b, a)
    winner = pair.winner(side)
    classes += " differs" if pair.agrees is False else ""
    if winner == "tie":
        text, style = "=", "background:color-mix(in srgb, var(--m) 18%, transparent)"
        classes += " tie"
    else:
        better = winner == row
        share = 0.5 if difference is None or not top else (abs(difference) / top) ** 0.5
        color = DIFFERENCE[0] if better else DIFFERENCE[-1]
        style = f"background:color-mix(in srgb, {color} {12 + 50 * share:.0f}%, transparent)"
        text = ("faster" if better else "slower") if difference is None else _percent(difference)
    mark = '<span class="mark" aria-hidden="true">≠</span>' if pair.agrees is False else ""
    label = f"{pair.left} or {pair.right}: {_spoken(pair, side)}"
    inside = f"{escape(text)}{mark}{_pair_tip(pair)}"
    return f'<td class="{classes.strip()}" style="{style}" tabindex="0" aria-label="{escape(label)}">{inside}</td>'


def _pair_tip(pair: RankedPair) -> str:
    rows = []
    for side in ("source", "canary"):
        if side == "canary" and pair.canary is None:
            continue
        a, b = pair.values(side)
        if a is None or b is None:
            rows.append((side, pair.winner(side)))
            continue
        rows.append((f"{side}: {pair.left}", f"{a:,.3f} us"))
        rows.append((f"{side}: {pair.right}", f"{b:,.3f} us"))
        rows.append((f"{side} decides", "tie" if pair.winner(side) == "tie" else f"{pair.winner(side)} is faster"))
    if pair.agrees is False:
        rows.append(("", "decided differently"))
    return tip(f"{pair.left} or {pair.right}, {METRIC_WORDS[pair.metric]}", rows)


def _spoken(pair: RankedPair, side: str) -> str:
    winner = pair.winner(side)
    end = ", unlike the other side" if pair.agrees is False else ""
    return f"{'a tie' if winner == 'tie' else f'{winner} is faster'} in the {side}{end}"


def _relative(a: float | None, b: float | None) -> float | None:
    """How far `a` is from `b`, as a share of `b`; None where that says nothing."""
    return None if a is None or b is None or b == 0 else (a - b) / b


def _percent(share: float) -> str:
    """Signed percent with at most three digits, no sign on what rounds to nothing."""
    value = 100 * share
    if abs(value) < 0.01:
        return "< 0.01 %"
    digits = 0 if abs(value) >= 99.5 else 1 if abs(value) >= 9.95 else 2
    return f"{value:+,.{digits}f} %".replace("-", "−").replace(" ", "\u00a0")


# -- order ------------------------------------------------------------------------------------------------------------


def order_html(pairs: Sequence[RankedPair], origin: str, coverage: ImportCoverage | None) -> str:
    """Return the backends from fastest to slowest under every metric, in the source and in the canary."""
    both = any(p.canary is not None for p in pairs)
    head = ["Metric", *(["Decided alike"] if both else []), "Source", *(["Canary"] if both else [])]
    body = []
    for metric, words in METRIC_WORDS.items():
        own = [p for p in pairs if p.metric == metric]
        cells = [f'<span style="white-space:nowrap">{words}</span>']
        if both:
            alike = sum(p.agrees is True for p in own)
            state = "" if alike == len(own) else ' style="color:var(--e);font-weight:700"'
            cells.append(f"<span{state}>{alike:,} of {len(own):,}</span>")
        cells += [_order(own, side) for side in (("source", "canary") if both else ("source",))]
        body.append(f"<tr>{''.join(f'<td>{c}</td>' for c in cells)}</tr>")
    title = title_html("Order, fastest first", "Exposed latency; = is a tie", origin, coverage_text(coverage) if coverage else None)
    headers = "".join(f"<th>{h}</th>" for h in head)
    return f'{title}<table style="margin-top:8px"><thead><tr>{headers}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def _order(pairs: Sequence[RankedPair], side: str) -> str:
    names = list(dict.fromkeys(n for p in pairs for n in (p.left, p.right)))
    values: dict[str, float | None] = {}
    for p in pairs:
        values[p.left], values[p.right] = p.values(side)
    wins = {n: sum(p.winner(side) == n for p in pairs) for n in names}
    ties = {frozenset((p.left, p.right)) for p in pairs if p.winner(side) == "tie"}
    ordered = sorted(names, key=lambda n: (v if (v := values[n]) is not None else 0.0, -wins[n], names.index(n)))
    out = []
    for before, name in zip([None, *ordered], ordered, strict=False):
        if before is not None:
            out.append(" = " if frozenset((before, name)) in ties else " &lt; ")
        value = values[name]
        amount = f' <span class="muted">{format_us(value)}</span>' if value is not None else ""
        out.append(f'<span style="white-space:nowrap">{escape(name)}{amount}</span>')
    return "".join(out)


# -- table ------------------------------------------------------------------------------------------------------------


def _frame(pairs: Sequence[RankedPair]) -> pd.DataFrame:
    import pandas as pd

    rows = [
        {
            "left": p.left,
            "right": p.right,
            "metric": METRIC_WORDS[p.metric],
            "source_left": p.source_left_us,
            "source_right": p.source_right_us,
            "source": p.winner("source"),
            "canary_left": p.canary_left_us,
            "canary_right": p.canary_right_us,
            "canary": p.winner("canary") if p.canary is not None else "",
            "outcome": "" if p.agrees is None else "alike" if p.agrees else "differs",
        }
        for p in sorted(pairs, key=lambda p: p.agrees is not False)
    ]
    names = ["left", "right", "metric", "source_left", "source_right", "source", "canary_left", "canary_right", "canary", "outcome"]
    return pd.DataFrame(rows, columns=names)


def _columns(pairs: Sequence[RankedPair]) -> dict[str, TableColumn]:
    columns = {
        "left": TableColumn("Left", None, 110, grow=2),
        "right": TableColumn("Right", None, 110, grow=2),
        "metric": TableColumn("Metric", None, 70),
        "source_left": TableColumn("Source, left", fmt.time_cell(), 85, right=True),
        "source_right": TableColumn("Source, right", fmt.time_cell(), 85, right=True),
        "source": TableColumn("Source: faster", None, 110, grow=2),
        "canary_left": TableColumn("Canary, left", fmt.time_cell(), 85, right=True),
        "canary_right": TableColumn("Canary, right", fmt.time_cell(), 85, right=True),
        "canary": TableColumn("Canary: faster", None, 110, grow=2),
        "outcome": TableColumn("Decided", None, 70),
    }
    both = any(p.canary is not None for p in pairs)
    return {k: v for k, v in columns.items() if both or (not k.startswith("canary") and k != "outcome")}
