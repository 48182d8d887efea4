"""A campaign on the screen: what was decided and why, every criterion, the runs, and how rankings agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.errors import RefusedError
from commcanary_lab.replay.campaign.result import Campaign
from commcanary_lab.replay.ranking_rows import MethodRow
from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.agreement_matrix import agreement
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import Figure, chip, html, message, title_html
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["answer", "campaign", "campaign_cards", "decision_chips", "figures"]

_STATES = {"pass": "ok", "fail": "bad", "inconclusive": "open", "incomparable": "open"}
_SAYS = {
    "pass": "It passes",
    "fail": "It fails",
    "inconclusive": "It is inconclusive",
    "incomparable": "Its runs cannot be compared",
}


def campaign(result: Campaign) -> Any:
    """Show a campaign.

    Parameters
    ----------
    result : Campaign
        From `commcanary_lab.replay.campaign.read_campaign` or `run_campaign`.

    Returns
    -------
    panel.viewable.Viewable
    """
    head = html(f'<p class="answer">{answer(result)}</p>')
    return panel().Column(head, *campaign_cards(result), sizing_mode="stretch_width", styles={"gap": "16px"})


def answer(result: Campaign) -> str:
    """Return the decision as a sentence, with ``<b>``."""
    o = result.outcome
    return f"{escape(o.question)} <b>{_SAYS[o.decision]}</b>: {escape(o.reason)}."


def figures(result: Campaign) -> list[Figure]:
    """Return the key figures."""
    o = result.outcome
    required = [f for f in o.criteria if f.required]
    met = sum(f.verdict == "pass" for f in required)
    out = [Figure("Decision", o.decision, "by the preregistered rule")]
    if required:
        out.append(Figure("Criteria met", f"{met:,} of {len(required):,}", "those that decide"))
    out.append(Figure("Runs", f"{len(o.runs):,} of {o.planned:,}", "measured"))
    best = max(o.agreement, key=lambda a: a.pair_agreement, default=None)
    if best is not None:
        out.append(Figure("Pairs decided alike", f"{best.agreeing:,} of {best.pairs:,}", f"{best.ranking} as {best.reference}, the best"))
    return out


def decision_chips(result: Campaign, problems: list[str] | None = None) -> str:
    """Return one chip per status; `problems` are those of the seal, None where it was not looked at."""
    o = result.outcome
    parts = [chip("decision", o.decision, _STATES[o.decision])]
    parts.append(chip("runs", f"{len(o.runs):,} of {o.planned:,}", "ok" if len(o.runs) == o.planned else "open"))
    if o.failure_boundary is not None:
        parts.append(chip("data", f"wrong after {o.failure_boundary}", "bad"))
    if o.audits:
        parts.append(chip("counts", "not those that are pinned", "bad"))
    if problems is not None:
        parts.append(chip("evidence", "changed after it was sealed" if problems else "as it was sealed", "bad" if problems else "ok"))
    return f'<div class="chips">{"".join(parts)}</div>'


def campaign_cards(result: Campaign, problems: list[str] | None = None, rows: Sequence[MethodRow] = ()) -> list[Any]:
    """Return the cards: state, criteria, agreement where rankings are compared, and runs; `rows` are its `method_rows`, where known."""
    cards = [_state_card(result, problems)]
    if result.criteria:
        cards.append(_criteria_card(result))
    if result.agreement:
        try:
            cards += list(agreement(result, rows))
        except RefusedError as error:
            cards.append(paper(html(message("The rankings cannot be shown", str(error), "warn"))))
    return [*cards, _runs_card(result)]


def _state_card(result: Campaign, problems: list[str] | None) -> Any:
    o, gap = result.outcome, '<div style="height:10px"></div>'
    ran = "; ".join(dict.fromkeys(r.ran_on for r in o.runs)) or "nothing ran"
    parts = [title_html(f"Campaign {o.name}", ran, "measured"), gap, decision_chips(result, problems)]
    if problems:
        more = f"\nand {len(problems) - 6:,} more" if len(problems) > 6 else ""
        parts += [gap, message("The evidence was changed", "\n".join(problems[:6]) + more, "err")]
    if o.failure_boundary is not None:
        ranks = ", ".join(map(str, o.failure_ranks))
        text = f"Wrong bytes come first after {o.failure_boundary} in sample {o.failure_sample} of run {o.failure_run}, on ranks {ranks}."
        parts += [gap, message("The data are wrong", text, "err")]
    if o.stopped is not None:
        text = f"After run {o.stopped.after_run:,} of {o.planned:,}: {o.stopped.reason}"
        parts += [gap, message("It ended before its last run", text, "warn")]
    for line in o.audits:
        parts += [gap, message("Counts", line, "err")]
    for f in o.factors:
        share = "" if f.cycle_share is None else f"; {100 * f.cycle_share:.1f} % of the change is the cycle time"
        text = (
            f"{f.rate}: {f.control_rate:,.2f} per second became {f.candidate_rate:,.2f} ({f.change_pct:+.2f} %). What a cycle yields alone "
            f"would have changed it by {f.per_cycle_pct:+.2f} %, the cycle time alone by {f.cycle_pct:+.2f} %{share}."
        )
        parts.append(f'<p style="margin-top:12px">{escape(text)}</p>')
    m = result.manifest
    code = f"commit {m.tool.commit[:12]}{' with changes' if m.tool.modified else ''}"
    tool = f"{code}, Python {m.python}, torch {m.torch}"
    parts.append(f'<p class="muted" style="margin-top:10px">Frozen identity: {escape(tool)}</p>')
    parts.append(f'<p class="muted" style="margin-top:4px">Evidence: <span class="mono">{escape(str(result.directory))}</span></p>')
    return paper(html("".join(parts)))


def criteria_frame(result: Campaign) -> pd.DataFrame:
    """Return one row per criterion."""
    import pandas as pd

    rows = [asdict(r) | {"required": "decides" if r.required else "for information"} for r in result.criteria]
    return pd.DataFrame(rows)


def _criteria_card(result: Campaign) -> Any:
    frame = criteria_frame(result)
    columns = {
        "name": TableColumn("Criterion", fmt.long_text_cell(), 250, grow=4),
        "metric": TableColumn("What", fmt.long_text_cell(), 170, grow=1),
        "boundary": TableColumn("Boundary", fmt.long_text_cell(), 90, grow=1),
        "value": TableColumn("Value", None, 90, right=True),
        "interval": TableColumn("Interval", None, 120, right=True),
        "spread": TableColumn("Spread", None, 65, right=True),
        "verdict": TableColumn("Verdict", fmt.status_cell(), 95),
        "required": TableColumn("Role", None, 110),
        "reason": TableColumn("Why", fmt.long_text_cell(), 150, grow=4),
    }
    for name in ("interval", "spread", "reason"):  # what no criterion has takes no room
        if not frame[name].any():
            del columns[name]
    text = "Written down before the first run. An interval that crosses the boundary, or a spread above the limit, decides nothing"
    head = panel().Row(
        html(title_html("Criteria", text, "measured", f"{result.asked.confidence:.0%} intervals")),
        download(lambda: frame.to_csv(index=False), "campaign_criteria.csv"), sizing_mode="stretch_width", margin=0,
    )  # fmt: skip
    return paper(head, table(frame, columns, page_size=10))


def runs_frame(result: Campaign) -> pd.DataFrame:
    """Return one row per run that took place."""
    import pandas as pd

    rows = [
        {
            "run": r.run, "round": r.round, "configuration": r.configuration, "status": r.status, "probe": r.probe,
            "iterations": r.iterations, "cycle": _time(r.metrics, "cycle_p50_us"), "latency": _time(r.metrics, "latency_p50_us"),
            "reason": r.reason,
        }
        for r in result.runs
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["run", "round", "configuration", "status", "probe", "iterations", "cycle", "latency", "reason"])


def _time(metrics: dict[str, float], name: str) -> str:
    return format_us(metrics[name]) if name in metrics else ""


def _runs_card(result: Campaign) -> Any:
    frame = runs_frame(result)
    columns = {
        "run": TableColumn("Run", None, 50, right=True),
        "round": TableColumn("Round", None, 60, right=True),
        "configuration": TableColumn("Configuration", None, 180, grow=3),
        "status": TableColumn("Ended", None, 80),
        "probe": TableColumn("Data", fmt.status_cell(), 80),
        "iterations": TableColumn("Iterations", None, 80, right=True),
        "cycle": TableColumn("Cycle, median", None, 100, right=True),
        "latency": TableColumn("Latency, median", None, 110, right=True),
        "reason": TableColumn("Why", fmt.long_text_cell(), 100, grow=2),
    }
    if not frame["reason"].any():
        del columns["reason"]
    head = panel().Row(
        html(title_html("Runs", "In the order in which they took place", "measured")),
        download(lambda: frame.to_csv(index=False), "campaign_runs.csv"), sizing_mode="stretch_width", margin=0,
    )  # fmt: skip
    return paper(head, table(frame, columns, page_size=8, empty="No run took place."))
