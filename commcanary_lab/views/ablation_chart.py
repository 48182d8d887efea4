"""What each preserved mechanism contributes: the change of a metric without it, on every backend, and the decisions that flip."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.errors import UsageError
from commcanary_lab.simulate.ablation import LABEL, AblationTable
from commcanary_lab.simulate.backend import ABLATIONS
from commcanary_lab.trace.model import ImportCoverage
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.ablation_bars import MARK, AblationBars, backend_colors, wants_log
from commcanary_lab.views.ablation_words import MECHANISM_WORDS, amount, metric_phrase, metric_words, signed, unit_of
from commcanary_lab.views.extra import panel
from commcanary_lab.views.grid import GRID_CSS
from commcanary_lab.views.markup import coverage_text, html, title_html
from commcanary_lab.views.ranked_pairs import METRIC_WORDS as RANKED_WORDS
from commcanary_lab.views.saving import savable
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AblationView", "ablation", "ablation_csv", "flips_csv", "metrics_of", "telling_metric"]


def ablation(result: AblationTable, *, metric: str = "p99_us", log: bool | None = None, coverage: ImportCoverage | None = None) -> Any:
    """Show an ablation: bars per mechanism and backend, every value, the decisions that flip.

    Parameters
    ----------
    result : AblationTable
        From `commcanary_lab.ablate`.
    metric : str
        The metric shown first; a select changes it.
    log : bool, optional
        Signed logarithmic axis; by default where the changes differ by more than a factor of 50.
    coverage : ImportCoverage, optional
        Of the trace.

    Returns
    -------
    panel.viewable.Viewable
    """
    from commcanary_lab.views.extra import material

    view = AblationView(result, metric=metric, log=log, coverage=coverage)
    choice = material().Select(
        label="Metric", options={metric_words(m): m for m in metrics_of(result)}, value=metric, size="small", variant="outlined", width=320
    )
    choice.param.watch(lambda e: view.show(metric=e.new), "value")
    cards = [choice, view.chart_card, view.table_card, view.flips_card]
    return panel().Column(*cards, sizing_mode="stretch_width", styles={"gap": "16px"})


def metrics_of(result: AblationTable) -> list[str]:
    """Return the metrics that a result has, in its order."""
    return list(dict.fromkeys(r.metric for r in result.rows))


def telling_metric(result: AblationTable, default: str = "p99_us") -> str:
    """Return the metric under which most decisions flip; the default where none does, or as many."""
    flips = Counter(f.metric for f in result.flipped_decisions)
    most = max(flips.values(), default=0)
    return default if flips[default] == most else min(m for m in flips if flips[m] == most)


class AblationView:
    """The cards of an ablation; `show` exchanges the result or the metric in place.

    Parameters
    ----------
    result : AblationTable
        From `commcanary_lab.ablate`.
    metric : str
        The metric.
    log : bool, optional
        Signed logarithmic axis; None decides by the spread of the changes.
    coverage : ImportCoverage, optional
        Of the trace.
    """

    def __init__(
        self, result: AblationTable, *, metric: str = "p99_us", log: bool | None = None, coverage: ImportCoverage | None = None
    ) -> None:
        pn = panel()
        self.result, self.metric, self.log, self.coverage = result, metric, log, coverage
        self._title, self._foot = html("", stylesheets=[GRID_CSS]), html("")
        self._bars = AblationBars()
        self.chart_card = paper(self._title, savable(self._bars.pane, lambda: ablation_csv(self.result)), self._foot)
        self._table_title, self._flips_title = html(""), html("")
        self._table = table(_frame(result, metric), _COLUMNS, page_size=10, pagination="local")
        self._flips = table(_flips_frame(result), _FLIP_COLUMNS, page_size=8, pagination="local", empty="No decision flips.")
        row = {"sizing_mode": "stretch_width", "margin": 0}
        self.table_card = paper(pn.Row(self._table_title, download(lambda: ablation_csv(self.result), "ablation.csv"), **row), self._table)
        self.flips_card = paper(pn.Row(self._flips_title, download(lambda: flips_csv(self.result), "flips.csv"), **row), self._flips)
        self.show(result, metric, log=log)

    def show(self, result: AblationTable | None = None, metric: str | None = None, *, log: bool | None = None) -> None:
        """Exchange the result or the metric; `log` None decides anew by the spread of the changes.

        Raises
        ------
        UsageError
            If the result does not have the metric.
        """
        wanted, shown = metric or self.metric, result or self.result
        if wanted not in metrics_of(shown):
            raise UsageError(f"the ablation has no metric {wanted!r}", remedy=f"choose one of {', '.join(metrics_of(shown))}")
        self.result, self.metric = shown, wanted
        self.log = wants_log(shown, wanted) if log is None else log
        self._bars.show(shown, wanted, self.log)
        self._table.value = _frame(shown, wanted)
        self._flips.value = _flips_frame(shown)
        self._describe()

    def _describe(self) -> None:
        r = self.result
        covered = coverage_text(self.coverage) if self.coverage is not None else None
        scale = "signed logarithmic axis" if self.log else "linear axis"
        text = f"{metric_phrase(self.metric).capitalize()}: without the mechanism minus with it, {scale}"
        title = title_html("Change without each mechanism", text, _origin(r), covered, f"cost model {r.model}")
        self._title.object = _cl(title + _legend(r))
        self._foot.object = _cl(_reasons(r))
        text = f"{metric_phrase(self.metric).capitalize()}; the download has every metric"
        self._table_title.object = _cl(title_html("Values", text, _origin(r), covered))
        many, total = len(r.flipped_decisions), r.decisions_total * len(r.applicable)
        said = f"{many:,} of {total:,} decisions (pair x metric x mechanism) flip" if total else "One backend ranks nothing"
        self._flips_title.object = _cl(title_html("Decisions that flip", said, _origin(r), covered))


def _cl(content: str) -> str:
    return f'<div class="cl">{content}</div>'


def _origin(result: AblationTable) -> str:
    if not result.assumptions:
        return result.origin
    return f"assumed: {', '.join(f'{k} = {v:g}' for k, v in result.assumptions.items())}"


def _legend(result: AblationTable) -> str:
    items = [f'<span><i style="background:{c}"></i>{escape(n)}</span>' for n, c in backend_colors(result.backends).items()]
    diamond = f"background:{MARK};transform:rotate(45deg) scale(.72);border-radius:0"
    items.append(f'<span><i style="{diamond}"></i>takes part in a decision that flips</span>')
    items.append('<span><i class="sw none"></i>not applicable</span>')
    return f'<div class="lg" style="margin-top:10px">{"".join(items)}</div>'


def _reasons(result: AblationTable) -> str:
    """Say why mechanisms cannot act, and what an ablation is."""
    parts = []
    for name in ABLATIONS:
        why: dict[str, list[str]] = {}
        for m in result.mechanisms:
            if m.ablation == name and not m.applicable:
                why.setdefault(m.reason, []).append(m.backend)
        for reason, backends in why.items():
            where = "" if len(backends) == len(result.backends) else f" on {', '.join(backends)}"
            parts.append(f"<li><b>{MECHANISM_WORDS.get(name, name)}</b>{escape(where)}: {escape(reason)}</li>")
    absent = f'<div style="margin-top:4px">Not applicable:</div><ul>{"".join(parts)}</ul>' if parts else ""
    return f'<div class="muted" style="font-size:12.5px">An ablation is a {escape(LABEL)}.{absent}</div>'


# -- tables -----------------------------------------------------------------------------------------------------------

_COLUMNS = {
    "mechanism": TableColumn("Without", None, 120, grow=2),
    "backend": TableColumn("Backend", None, 120, grow=2),
    "before": TableColumn("With it", None, 85, right=True),
    "after": TableColumn("Without it", None, 85, right=True),
    "change": TableColumn("Change", None, 90, right=True),
    "relative": TableColumn("Relative", None, 80, right=True),
    "flips": TableColumn("Flips with this backend", fmt.count_cell(), 90, right=True),
    "status": TableColumn("Status", None, 220, grow=4),
}

_FLIP_COLUMNS = {
    "mechanism": TableColumn("Without", None, 120, grow=2),
    "left": TableColumn("Left", None, 120, grow=2),
    "right": TableColumn("Right", None, 120, grow=2),
    "metric": TableColumn("Metric", None, 80),
    "before": TableColumn("Faster with it", None, 120, grow=2),
    "after": TableColumn("Faster without it", None, 120, grow=2),
}


def _frame(result: AblationTable, metric: str) -> pd.DataFrame:
    import pandas as pd

    unit = unit_of(metric)
    why = {(m.ablation, m.backend): m.reason for m in result.mechanisms}
    rows = []
    for r in result.rows:
        if r.metric != metric:
            continue
        flips = sum(r.backend in (f.left, f.right) and (f.metric == metric or metric not in RANKED_WORDS) for f in result.flips(r.ablation))
        reason = why.get((r.ablation, r.backend), "")
        rows.append(
            {
                "mechanism": MECHANISM_WORDS.get(r.ablation, r.ablation),
                "backend": r.backend,
                "before": amount(r.unablated, unit),
                "after": amount(r.value, unit),
                "change": signed(r.delta, unit),
                "relative": f"{100 * r.delta / r.unablated:+,.1f} %".replace("-", "−") if r.delta and r.unablated else "",
                "flips": float(flips) if r.status != "not_applicable" else None,
                "status": f"not applicable: {reason}" if r.status == "not_applicable" else r.status,
            }
        )
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _flips_frame(result: AblationTable) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for f in result.flipped_decisions:
        better = {"left": f.left, "right": f.right, "tie": "tie"}
        words = MECHANISM_WORDS.get(f.ablation, f.ablation)
        rows.append([words, f.left, f.right, RANKED_WORDS.get(f.metric, f.metric), better[f.before], better[f.after]])
    return pd.DataFrame(rows, columns=list(_FLIP_COLUMNS))


def ablation_csv(result: AblationTable) -> str:
    """Return every row of every metric as CSV, with the reason where a mechanism cannot act.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> ablation_csv(lab.ablate(lab.samples.adversarial())).splitlines()[0]
    'backend,ablation,metric,value,delta,unablated,status,reason,model,label'
    """
    why = {(m.ablation, m.backend): m.reason for m in result.mechanisms}
    frame = result.df
    reasons = [why.get((a, b), "") for a, b in zip(frame["ablation"], frame["backend"], strict=True)]
    return frame.assign(reason=reasons, model=result.model, label=LABEL).to_csv(index=False)


def flips_csv(result: AblationTable) -> str:
    """Return the flipped decisions as CSV."""
    import pandas as pd

    names = ["ablation", "left", "right", "metric", "before", "after"]
    return pd.DataFrame([[getattr(f, n) for n in names] for f in result.flipped_decisions], columns=names).to_csv(index=False)
