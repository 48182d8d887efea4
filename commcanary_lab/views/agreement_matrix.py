"""Rankings of a campaign against its reference: every pair under every ranking, the measured times, and what each ranking costs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from commcanary_lab.replay.campaign.result import Campaign
from commcanary_lab.replay.ranking_rows import MethodRow, PairRow, method_rows, pair_rows, wanted
from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.cycle_chart import CYCLE_NOTE, cycle_figure, cycle_legend, repetitions_csv
from commcanary_lab.views.extra import panel
from commcanary_lab.views.grid import GRID_CSS, breakable, opening, tip
from commcanary_lab.views.markup import html, title_html
from commcanary_lab.views.plot_frame import pane
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["agreement", "agreement_frame", "agreement_html", "agreement_text"]

_SHOWN = {"agree": "agrees", "inverted": "inverted", "false positive": "no tie", "false negative": "tie"}
_CLASS = {"agree": "pass", "inverted": "fail", "false positive": "tie", "false negative": "tie"}


class _HasCampaign(Protocol):
    @property
    def campaign(self) -> Campaign: ...


def agreement(result: Campaign | _HasCampaign, rows: Sequence[MethodRow] = ()) -> Any:
    """Show whether rankings decide the pairs of settings as the reference does, what was measured, and what each ranking costs.

    Parameters
    ----------
    result : Campaign or Fidelity
        A campaign that ranks settings.
    rows : sequence of MethodRow, optional
        Its `method_rows`, where they are known already: finding them reads every run.

    Returns
    -------
    panel.viewable.Viewable

    Raises
    ------
    RefusedError
        If it ranks nothing, or has not run far enough to rank.
    """
    pn = panel()
    campaign = result if isinstance(result, Campaign) else result.campaign
    rows, tie = rows or method_rows(campaign), wanted(campaign).tie_fraction
    pairs = pair_rows(rows, tie)
    matrix = paper(html(agreement_html(rows, pairs, tie), stylesheets=[GRID_CSS]))
    repetitions = len(next(iter(rows[0].repetitions_us.values())))
    text = f"{_metric(campaign)}; median of {repetitions} repetitions, its interval, and every repetition. The axis is logarithmic"
    chart = paper(
        html(title_html("Measured times", text, "measured", None, _ran_on(campaign)) + cycle_legend(rows)),
        pane(cycle_figure(rows), csv=lambda: repetitions_csv(rows)),
        html(f'<p class="muted" style="font-size:12.5px">{escape(CYCLE_NOTE)}</p>'),
    )  # fmt: skip
    frame_ = agreement_frame(rows)
    title = title_html("Rankings", f"Against {rows[0].name}; intervals from resampled repetitions, {campaign.asked.confidence:.0%}")
    head = pn.Row(html(title), download(lambda: frame_.to_csv(index=False), "rankings.csv"), sizing_mode="stretch_width", margin=0)
    cards = [matrix, chart, paper(head, _table(frame_))]
    return pn.Column(*cards, sizing_mode="stretch_width", margin=0, styles={"gap": "16px"})


def _metric(campaign: Campaign) -> str:
    name = wanted(campaign).metric
    return "Time of a cycle on its slowest rank" if name.startswith(("cycle", "fleet_cycle")) else name.removesuffix("_us")


def _ran_on(campaign: Campaign) -> str:
    return "; ".join(dict.fromkeys(r.ran_on.partition(",")[0] for r in campaign.runs))


def agreement_text(rows: Sequence[MethodRow]) -> str:
    """Return how far the rankings agree, in one sentence."""
    parts = [f"{m.name} {m.line.agreeing} of {m.line.pairs}" for m in rows if m.line is not None]
    return f"Pairs decided as {rows[0].name} does: {', '.join(parts)}"


# -- matrix -----------------------------------------------------------------------------------------------------------


def agreement_html(rows: Sequence[MethodRow], pairs: Sequence[PairRow], tie_fraction: float) -> str:
    """Return the matrix of pairs and rankings; pairs on which a ranking differs come first."""
    reference, others = rows[0], [m for m in rows if m.line is not None]
    shown = sorted(pairs, key=lambda p: -sum(p.outcome(m.name) != "agree" for m in others))
    width = len(others) + 1
    head = f"<th scope='col'>{escape(reference.name)}<br>is faster on</th>"
    head += "".join(f'<th scope="col">{breakable(m.name)}<br>{escape(_short(m))}</th>' for m in others)
    body = []
    for p in shown:
        cells = [_reference_cell(p, reference), *(_cell(p, m, opening(i, width)) for i, m in enumerate(others, 1))]
        body.append(f'<tr><th scope="row">{breakable(p.left)} or {breakable(p.right)}</th>{"".join(cells)}</tr>')
    totals = "".join(f"<td>{_total(m)}</td>" for m in others)
    foot = f'<tr class="foot"><th scope="row">pairs decided alike<br>Kendall tau-b</th><td></td>{totals}</tr>'
    title = title_html("Which setting is faster", agreement_text(rows), _origins(rows), None, f"a tie is within {tie_fraction:.0%}")
    grid = (
        f'<table class="grid" style="max-width:{230 + 165 * width}px"><colgroup><col style="width:230px">{"<col>" * width}</colgroup>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(body)}{foot}</tbody></table>"
    )
    return f"<style>.cl tr.foot td {{ height: 46px; line-height: 1.4; }}</style>{title}{_LEGEND}{grid}{_unsure(pairs)}"


_LEGEND = (
    '<div class="lg" style="margin:10px 0 4px"><span><i class="sw pass"></i>decides as the reference does</span>'
    '<span><i class="sw fail"></i>the other way round</span><span><i class="sw tie"></i>one of the two sees a tie</span></div>'
)


def _origins(rows: Sequence[MethodRow]) -> str:
    return "measured" if all(m.measured for m in rows) else "measured and model"


def _short(method: MethodRow) -> str:
    return "measured" if method.measured else "model"


def _total(method: MethodRow) -> str:
    line = method.line
    assert line is not None
    tau = "all ties" if line.tau_b is None else f"{line.tau_b:.2f}"
    if line.tau_low is not None and line.tau_high is not None:
        tau += f' <span class="muted">{line.tau_low:.2f} to {line.tau_high:.2f}</span>'
    return f"<b>{line.agreeing} of {line.pairs}</b><br>{tau}"


def _reference_cell(pair: PairRow, reference: MethodRow) -> str:
    decision = pair.decisions[reference.name]
    winner = {"left": pair.left, "right": pair.right, "tie": "tie"}[decision]
    mark = "" if pair.sure else '<span class="muted" aria-label="not sure"> ?</span>'
    return f'<td class="left" tabindex="0">{breakable(winner)}{mark}{_tip(pair, reference)}</td>'


def _cell(pair: PairRow, method: MethodRow, classes: str) -> str:
    outcome = pair.outcome(method.name)
    label = f"{pair.left} or {pair.right}, {method.name}: {outcome}"
    return (
        f'<td class="{_CLASS[outcome]} {classes}" tabindex="0" aria-label="{escape(label)}">'
        f"{escape(_SHOWN[outcome])}{_tip(pair, method)}</td>"
    )


def _tip(pair: PairRow, method: MethodRow) -> str:
    rows = []
    for setting in (pair.left, pair.right):
        text = format_us(method.values_us[setting])
        if (i := method.intervals_us.get(setting)) is not None:
            text += f" ({format_us(i.low)} to {format_us(i.high)})"
        rows.append((setting, text))
    winner = {"left": pair.left, "right": pair.right, "tie": "a tie"}[pair.decisions[method.name]]
    rows += [("decides", winner), ("origin", method.origin)]
    return tip(method.name, rows)


def _unsure(pairs: Sequence[PairRow]) -> str:
    unsure = [f"{p.left} or {p.right}" for p in pairs if not p.sure]
    if not unsure:
        text = "The reference's own intervals decide every pair as its medians do."
    else:
        text = f"? The reference's own intervals do not decide: {', '.join(unsure)}."
    return f'<p class="muted" style="font-size:12.5px;margin-top:6px">{escape(text)}</p>'


# -- table ------------------------------------------------------------------------------------------------------------


def agreement_frame(rows: Sequence[MethodRow]) -> pd.DataFrame:
    """Return one row per ranking."""
    import pandas as pd

    def interval(low: float | None, high: float | None) -> str:
        return "" if low is None or high is None else f"{low:.2f} to {high:.2f}"

    out = []
    for m in rows:
        x = m.line
        out.append(
            {
                "ranking": m.name, "origin": m.origin, "alike": "reference" if x is None else f"{x.agreeing} of {x.pairs}",
                "alike_interval": "" if x is None else interval(x.agreement_low, x.agreement_high),
                "tau": "" if x is None or x.tau_b is None else f"{x.tau_b:.3f}",
                "tau_interval": "" if x is None else interval(x.tau_low, x.tau_high),
                "false_positives": None if x is None else len(x.false_positives),
                "false_negatives": None if x is None else len(x.false_negatives), "inverted": None if x is None else len(x.inversions),
                "cycle_us": None if m.cycle_seconds is None else 1e6 * m.cycle_seconds,
                "run_us": None if m.run_seconds is None else 1e6 * m.run_seconds,
                "bytes": None if m.program_bytes is None else float(m.program_bytes),
                "spread": "" if m.spread is None else f"{m.spread:.1%}",
            }
        )  # fmt: skip
    return pd.DataFrame(out)


def _table(frame_: pd.DataFrame) -> Any:
    columns = {
        "ranking": TableColumn("Ranking", None, 72),
        "origin": TableColumn("Origin", fmt.long_text_cell(), 108, grow=6),
        "alike": TableColumn("Pairs alike", None, 75),
        "alike_interval": TableColumn("Share, interval", None, 90),
        "tau": TableColumn("tau-b", None, 55, right=True),
        "tau_interval": TableColumn("Interval", None, 90),
        "false_positives": TableColumn("False positives", fmt.count_cell(), 74, right=True),
        "false_negatives": TableColumn("False negatives", fmt.count_cell(), 76, right=True),
        "inverted": TableColumn("Inverted", fmt.count_cell(), 72, right=True),
        "cycle_us": TableColumn("One cycle on all settings", fmt.time_cell(), 76, right=True),
        "run_us": TableColumn("All runs", fmt.time_cell(), 66, right=True),
        "bytes": TableColumn("Program", fmt.bytes_cell(), 68, right=True),
        "spread": TableColumn("Largest spread", None, 65, right=True),
    }
    return table(frame_, columns)
