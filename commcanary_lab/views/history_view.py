"""A history on the screen: sentences, the trend with its decisions, every entry, and the entries that cannot be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.review.comparison import Comparison, percent
from commcanary_lab.review.history import Entry, History
from commcanary_lab.review.history_words import since
from commcanary_lab.review.html_parts import RESULT_SIGNS, VERDICTS
from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.comparison_words import verdict_html
from commcanary_lab.views.extra import material, panel
from commcanary_lab.views.history_chart import HISTORY_LEGEND, STRIP_LEGEND, HistoryChart
from commcanary_lab.views.markup import Figure, html, key_figures, title_html
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HistoryView", "history", "history_answer", "history_facts", "history_figures"]

_COLUMNS = ("entry", "date", "what", "p50", "p95", "p99", "mean", "change", "verdict", "moved", "signoff")


def history(result: History) -> Any:
    """Show a series of reports or of measured traces.

    Parameters
    ----------
    result : History
        From `commcanary_lab.review.history`.

    Returns
    -------
    panel.viewable.Viewable
        The newest verdict in plain sentences, then the trend, then the table behind it.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.review import history as series
    >>> a, b = (lab.simulate(lab.samples.adversarial(), n) for n in ("baseline", "high_bandwidth"))
    >>> history(series([("w1", a), ("w2", a), ("w3", b)])).get_root() is not None
    True
    """
    crumb = escape(history_facts(result))
    keys = key_figures(history_figures(result))
    top = html(f'<div class="crumb">{crumb}</div><p class="answer">{history_answer(result)}</p><div style="height:16px"></div>{keys}')
    return panel().Column(top, *HistoryView(result).cards, sizing_mode="stretch_width", styles={"gap": "16px"})


class HistoryView:
    """The cards of a history; `update` follows another policy, another selection or a new sign-off in place.

    Parameters
    ----------
    result : History
        What to show first.
    picked : callable, optional
        Called with the name of an entry that was clicked, in the chart or in the table.
    """

    def __init__(self, result: History, picked: Callable[[str], None] | None = None) -> None:
        self.result, self._picked = result, picked
        self._signed: Mapping[str, tuple[str, bool, str]] = {}
        self.chart = HistoryChart(result, picked)
        self._words, self._title, self._strip = html(""), html("", sizing_mode="stretch_width"), html(STRIP_LEGEND)
        self._table = _table(_frame(result, {}))
        if picked is not None:
            self._table.on_click(lambda e: picked(self.result.entries[e.row].name) if e.row is not None else None)
        scale = material().RadioButtonGroup(
            label="", options={"Time": False, "Change": True}, value=False, size="small", margin=0, align="start", width=140
        )
        scale.param.watch(lambda e: self.chart.scale(bool(e.new)), "value")
        head = panel().Row(self._title, scale, sizing_mode="stretch_width", margin=0)
        trend = paper(head, html(HISTORY_LEGEND), self.chart.pane, self._strip)
        save = download(lambda: self.result.df.to_csv(index=False), "history.csv")
        caption = title_html("Every entry", _table_words(result, picked is not None))
        rows = paper(panel().Row(html(caption), save, sizing_mode="stretch_width", margin=0), self._table)
        self.cards: list[Any] = [paper(self._words), trend, rows]
        self.update(result)

    def update(self, result: History, selected: str | None = None, signed: Mapping[str, tuple[str, bool, str]] | None = None) -> None:
        """Show the same entries under another policy; parameters as for `HistoryChart.show`."""
        self.result, self._signed = result, self._signed if signed is None else signed
        told = result.sentences[1:]
        if since(result):  # the answer on top says it
            told = told[1:]
        items = "".join(f"<li>{escape(s)}</li>" for s in told)
        self._words.object = f'<div class="cl">{title_html("In words")}<ul style="margin-top:8px">{items}</ul></div>'
        what = "Exposed latency: what compute does not hide" if result.kind == "reports" else "Measured latency of every collective"
        origin = "model" if result.kind == "reports" else result.newest.member.what
        coverage = f"{result.newest.member.events:,} events each" if _alike(result) else "events differ"
        title = title_html("p50, p95 and p99 over the history", f"{what}. {_how(result)}", origin, coverage)
        self._title.object = f'<div class="cl">{title}</div>'
        self.chart.show(result, selected, self._signed)
        frame = _frame(result, self._signed)
        if not frame.equals(self._table.value):
            self._table.value = frame


def _alike(h: History) -> bool:
    return len({e.member.events for e in h.entries}) == 1


def _how(h: History) -> str:
    words = {"first": "the first entry", "previous": "the entry before it"}
    click = "Click an entry to see its comparison"
    return f"Each entry against {words.get(h.baseline, h.baseline)}, ordered by {h.ordered_by}. {click}"


def _table_words(h: History, clickable: bool) -> str:
    moved = "moved: since the comparable entry before, by more than its interval"
    return f"{'Click a row to see its comparison; ' if clickable else ''}{moved}"


def _frame(h: History, signed: Mapping[str, tuple[str, bool, str]]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for e in h.entries:
        figures = ["" if v is None else format_us(v) for v in e.member.figures.values()]
        change = percent(e.comparison.deltas["p99_pct"]) if isinstance(e.comparison, Comparison) else ""
        verdict = f"{RESULT_SIGNS[e.verdict]} {VERDICTS[e.verdict].lower()}"
        moved = ", ".join(f"{'p50' if s.metric == 'median' else s.metric} {s.change_pct:+.1f}" for s in e.steps if s.moved)
        moved = f"{moved} %" if moved else ""
        decided = signed.get(e.name)
        said = "" if decided is None else decided[2]
        rows.append([e.name, e.date or "", e.member.what, *figures, change, verdict, e.problem or moved, said])
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _table(frame: pd.DataFrame) -> Any:
    from bokeh.models import HTMLTemplateFormatter

    verdict = HTMLTemplateFormatter(
        template="""<% const bad = value.endsWith(' fail'), open = value.endsWith('warning') || value.endsWith('inconclusive');
const color = bad ? 'var(--mui-palette-error-main, #c93a32)' : open ? 'color-mix(in srgb, #d3901a 80%, var(--cl-t))' : 'inherit';
%><span style="color:<%= color %>;font-weight:<%= bad || open ? 700 : 400 %>"><%- value %></span>"""
    )
    columns = {
        "entry": TableColumn("Entry", fmt.long_text_cell(), 170, grow=3),
        "date": TableColumn("Date", None, 78),
        "what": TableColumn("What", fmt.long_text_cell(), 60),
        **{n: TableColumn(n, None, 54, right=True) for n in ("p50", "p95", "p99", "mean")},
        "change": TableColumn("p99, change", None, 62, right=True),
        "verdict": TableColumn("Verdict", verdict, 92),
        "moved": TableColumn("Moved, or why not comparable", fmt.long_text_cell(), 170, grow=4),
        "signoff": TableColumn("Sign-off", fmt.long_text_cell(), 92, grow=2),
    }
    return table(frame, columns, page_size=14)


def history_answer(h: History) -> str:
    """Return the newest verdict and since when it holds, in sentences that need no knowledge of the tool; HTML, escaped.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.review import history as series
    >>> a, b = (lab.simulate(lab.samples.adversarial(), n) for n in ("baseline", "high_bandwidth"))
    >>> history_answer(series([("w1", a), ("w2", b)])).partition("</span>")[2]
    'The newest entry <b>w2</b> is slower than the policy allows, compared with w1.'
    """
    e = h.newest
    if e.verdict in ("baseline", "incomparable"):
        label = _plain_label(e)
        why = f": {escape(e.problem)}" if e.problem else ", so there is nothing to judge. Choose an earlier baseline at the left"
        verb = "is the baseline itself" if e.verdict == "baseline" else "cannot be compared"
        return f"{label}The newest entry <b>{escape(e.name)}</b> {verb}{why}."
    words = {
        "pass": "is within the policy",
        "warn": "is within the policy, but close to it",
        "fail": "is slower than the policy allows",
        "inconclusive": "is too noisy, or too rarely measured, to decide it",
    }[e.verdict]
    rest = since(h)
    tail = f" {escape(rest)}" if rest else ""
    return f"{verdict_html(e.verdict)}The newest entry <b>{escape(e.name)}</b> {words}, compared with {escape(str(e.against))}.{tail}"


def _plain_label(e: Entry) -> str:
    style = "display:inline-block;padding:1px 12px;margin-right:10px;border-radius:7px;font-weight:700;border:1px solid var(--d)"
    return f'<span class="verdict" data-testid="verdict" style="{style}">{VERDICTS[e.verdict]}</span>'


def history_figures(h: History) -> list[Figure]:
    """Return the key figures with their origin."""
    e = h.newest
    out = []
    for metric, name in (("p99", "p99_us"), ("p95", "p95_us"), ("median", "p50_us")):
        label = f"Newest {'p50' if metric == 'median' else metric}"
        limit = e.limit_us(metric)
        value = e.figure(name)
        if isinstance(e.comparison, Comparison) and limit is not None and value is not None:
            change = percent(e.comparison.deltas[f"{metric}_pct"])
            out.append(Figure(label, format_us(value), f"{change}; allowed {format_us(limit)}"))
        else:
            out.append(Figure(label, "unknown" if value is None else format_us(value), e.member.what))
    judged = [x for x in h.entries if x.comparison is not None]
    failed = sum(x.verdict in ("fail", "inconclusive") for x in judged)
    out.append(Figure("Entries outside the policy", f"{failed:,} of {len(judged):,}", f"{len(h.incomparable):,} more cannot be compared"))
    steps = len({x.name for x, _ in h.moved})
    out.append(Figure("Entries where it moved", f"{steps:,} of {max(0, sum(x.comparable for x in h.entries) - 1):,}",
                      f"together {100 * h.policy.measured_confidence:g} % sure"))  # fmt: skip
    return out


def history_facts(h: History) -> str:
    """Return what the numbers are: modelled or measured, of how many entries."""
    what = "model" if h.kind == "reports" else f"{h.newest.member.what} latencies"
    return f"{h.entries[0].name} \u2192 {h.newest.name} \u00b7 {len(h.entries)} entries, {what}"
