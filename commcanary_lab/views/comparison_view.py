"""A comparison on the screen: the verdict in words, changes against their limits, where they come from, every value behind them."""

from __future__ import annotations

from typing import Any

from commcanary_lab.review.comparison import Comparison, with_sign
from commcanary_lab.review.evaluate import Evaluation
from commcanary_lab.review.localise import localise
from commcanary_lab.review.measured import MeasuredComparison
from commcanary_lab.units import format_us
from commcanary_lab.views import markup
from commcanary_lab.views.before_after import SIDES_LEGEND, BeforeAfter
from commcanary_lab.views.change_bars import CHANGE_LEGEND, ChangeBar, ChangeBars, bar_of
from commcanary_lab.views.comparison_tables import ValuesTable, sides_html
from commcanary_lab.views.comparison_words import answer, facts, figures, reasons_html
from commcanary_lab.views.contribution_card import ContributionCard
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import html, key_figures, rows_html, title_html
from commcanary_lab.views.measured_view import MeasuredView
from commcanary_lab.views.theme import fill, paper

__all__ = ["ReportsView", "comparison", "view_of"]

#: Parts in a chart; the rest is in the table.
MAX_PARTS = 12


def comparison(result: Comparison | MeasuredComparison, names: tuple[str, str] = ("baseline", "candidate")) -> Any:
    """Show a comparison of two reports or of two measured traces.

    Parameters
    ----------
    result : Comparison or MeasuredComparison
        From `commcanary_lab.compare`.
    names : (str, str)
        What to call both sides, such as file names.

    Returns
    -------
    panel.viewable.Viewable
        The verdict in plain sentences, then the charts, then the table behind them.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> found = lab.compare(lab.simulate(trace), lab.simulate(trace, "high_bandwidth"))
    >>> comparison(found, ("before", "after")).get_root() is not None
    True
    """
    from html import escape

    crumb = escape(f"{names[0]} → {names[1]} · {facts(result)}")
    keys = key_figures(figures(result))
    top = html(f'<div class="crumb">{crumb}</div><p class="answer">{answer(result)}</p><div style="height:16px"></div>{keys}')
    cards = view_of(result, names).cards
    return panel().Column(top, *cards, sizing_mode="stretch_width", styles={"gap": "16px"})


def view_of(result: Comparison | MeasuredComparison, names: tuple[str, str] = ("baseline", "candidate")) -> ReportsView | MeasuredView:
    """Return the cards of a comparison; their `update` follows another policy in place."""
    return ReportsView(result, names) if isinstance(result, Comparison) else MeasuredView(result, names)


class ReportsView:
    """The cards of a comparison of two reports.

    Parameters
    ----------
    result : Comparison
        What to show.
    names : (str, str)
        Both sides.
    """

    def __init__(self, result: Comparison, names: tuple[str, str]) -> None:
        self.result, self.names = result, names
        self._why = html("")
        self._bars = ChangeBars(_whole(result), "change of the exposed latency in %, of the hidden share in points")
        self._parts = {s: ChangeBars(b, "change of p99 in %") for s in ("phase", "operation") if (b := _parts(result, s))}
        self._captions = {scope: html("") for scope in self._parts}
        self._values = ValuesTable(result)
        self._sides = html("")
        self.cards: list[Any] = [
            _beside(self._whole_card(), paper(self._why), 58),
            _beside(self._distribution(), paper(self._sides), 58),
            *self._brought(),
            *self._localisation(),
            self._values.card,
        ]
        self.update(result)

    def update(self, result: Comparison) -> None:
        """Show the same reports under another policy."""
        self.result = result
        title = title_html("Why", "The whole workload first, then each phase and operation")
        self._why.object = f'<div class="cl">{title}{reasons_html(result.reasons)}</div>'
        self._bars.update(_whole(result))
        for scope, chart in self._parts.items():
            chart.update(_parts(result, scope))
            self._captions[scope].object = f'<div class="cl">{_caption(result, scope)}</div>'
        self._values.update(result)
        self._sides.object = f'<div class="cl">{sides_html(result, self.names)}</div>'

    def _whole_card(self) -> Any:
        """Chart of the whole workload against the policy."""
        title = title_html("Change against the policy", "Exposed latency: what compute does not hide", "model", facts(self.result))
        return paper(html(title + CHANGE_LEGEND), self._bars.pane)

    def _brought(self) -> list[Any]:
        """What each phase and operation brings, where the reports have samples."""
        self._contributions = ContributionCard(self.result)
        return [] if self._contributions.card is None else [self._contributions.card]

    def _localisation(self) -> list[Any]:
        """One card per scope; side by side where there are both."""
        cards = [paper(self._captions[scope], chart.pane) for scope, chart in self._parts.items()]
        return [_beside(cards[0], cards[1], 50)] if len(cards) == 2 else cards

    def _distribution(self) -> Any:
        before, after = self.result.base.exposed_us, self.result.candidate.exposed_us
        subtitle = "Every event of every iteration; the tail is at the bottom"
        if before is None or after is None or not len(before) or not len(after):
            why = "The reports hold no samples. Simulate with --samples to see the whole distribution."
            return paper(html(title_html("Distribution of the exposed latency", why)))
        chart = BeforeAfter(before, after, "exposed latency")
        title = title_html("Distribution of the exposed latency", subtitle, "model", f"{len(before):,} and {len(after):,} samples")
        return paper(html(title + SIDES_LEGEND), chart.pane)


def _beside(left: Any, right: Any, share: int) -> Any:
    """Two cards of the same height."""
    for card, part, margin in ((left, share, (0, 16, 0, 0)), (right, 100 - share, 0)):
        fill(card, flex=f"{part} 1 0px", **{"min-width": "0"})
        card.margin = margin
    return panel().Row(left, right, sizing_mode="stretch_width", margin=0, styles={"align-items": "stretch"})


def _whole(c: Comparison) -> list[ChangeBar]:
    overall = [e for e in c.evaluations if e.scope == "overall"]
    latencies = [e for e in overall if not e.is_hidden_share]
    return [bar_of(e, c.policy.warn_fraction) for e in (*reversed(latencies), *(e for e in overall if e.is_hidden_share))]


def _parts(c: Comparison, scope: str) -> list[ChangeBar]:
    return [bar_of(e, c.policy.warn_fraction, e.name or "") for e in c.where(scope)[:MAX_PARTS]]


def _caption(c: Comparison, scope: str) -> str:
    """Title, one sentence, and how much exposed time each part has."""
    found = c.where(scope)
    more = f"; {len(found) - MAX_PARTS:,} more in the table" if len(found) > MAX_PARTS else ""
    title = title_html(f"What changed by {scope}", f"{_sentence(found, scope)}{more}", "model")
    parts = localise(c, scope)[:6]
    rows = [
        (p.name, format_us(p.baseline_us), format_us(p.candidate_us), _signed(p.delta_us), markup.percent(p.share) if p.share else "")
        for p in parts
    ]
    head = [scope.capitalize(), "Baseline", "Candidate", "Added", "Of the added"]
    return f'{title}<div style="height:6px"></div>{rows_html(head, rows, right=[1, 2, 3, 4])}'


def _signed(time_us: float) -> str:
    return "0 us" if not time_us else f"{'+' if time_us > 0 else '−'}{format_us(abs(time_us))}"


def _sentence(found: tuple[Evaluation, ...], scope: str) -> str:
    failing = [e for e in found if e.threshold_result == "fail"]
    absent = [e for e in found if e.relative_status == "absent"]
    if absent:
        return f"{len(absent)} of {len(found)} {scope}s exist on one side only"
    if not failing:
        return f"No {scope} exceeds its limit at p99. Below: exposed time of all events together"
    most = f"most of all {failing[0].name} ({with_sign(failing[0].change)})"
    return f"{len(failing)} of {len(found)} {scope}s exceed their limit at p99, {most}. Below: exposed time of all events together"
