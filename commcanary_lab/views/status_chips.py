"""The statuses of a verification, side by side, and every check behind them."""

from __future__ import annotations

from typing import Any

from commcanary_lab.verify.model import Verification
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import chip, html, title_html
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

__all__ = ["checks_card", "chip_row", "chips_html", "statuses"]

_GOOD = {"lossless", "full_source", "recomputed", "pass", "verified"}
_BAD = {"mismatch", "fail", "refused"}


def statuses(verification: Verification) -> Any:
    """Show a verification: one chip per status, the claim with its reason, and the checks.

    Parameters
    ----------
    verification : Verification
        From `commcanary_lab.verify`.

    Returns
    -------
    panel.viewable.Viewable
    """
    return panel().Column(
        paper(html(chips_html(verification)), margin=(0, 0, 16, 0)), checks_card(verification), sizing_mode="stretch_width"
    )


def checks_card(verification: Verification) -> Any:
    """Return every check as a table, failed ones first."""
    import pandas as pd

    rows = [
        {
            "status": c.status,
            "name": c.name,
            "backend": c.backend or "",
            "source": _value(c.source),
            "canary": _value(c.canary),
            "outcome": "pass" if c.passed else "fail",
        }
        for c in verification.checks
    ]
    frame = pd.DataFrame(rows, columns=["status", "name", "backend", "source", "canary", "outcome"])
    frame = frame.sort_values("outcome", kind="stable") if len(frame) else frame
    columns = {
        "status": TableColumn("Status", None, 100), "name": TableColumn("Compared", None, 180, grow=3),
        "backend": TableColumn("Backend", None, 130, grow=2),
        "source": TableColumn("Source", fmt.long_text_cell(), 130, right=True),
        "canary": TableColumn("Canary", fmt.long_text_cell(), 130, right=True),
        "outcome": TableColumn("Outcome", fmt.status_cell(), 80),
    }  # fmt: skip
    failed = sum(not c.passed for c in verification.checks)
    head = panel().Row(
        html(title_html("Checks", f"{len(frame):,} comparisons, {failed:,} failed; failed ones first")),
        download(lambda: frame.to_csv(index=False), "checks.csv"),
        sizing_mode="stretch_width",
        margin=0,
    )
    return paper(head, table(frame, columns, page_size=8))


def _value(value: float | int | str | None) -> str:
    if value is None:
        return ""
    return (
        f"{value:,.6g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else str(value)
    )


def chips_html(verification: Verification) -> str:
    """Return the chips of all statuses and the claim as HTML."""
    head = title_html(
        "Verification", f"Claim: {verification.claim}. {_sentence(verification.claim_reason)}", "model", f"cost model {verification.model}"
    )
    return f'{head}<div style="height:10px"></div>{chip_row(verification)}'


def chip_row(verification: Verification) -> str:
    """Return one chip per status as HTML."""
    chips = []
    for name, value in verification.statuses.items():
        state = "ok" if value in _GOOD else "bad" if value in _BAD else "open"
        text = (value or "not evaluated").replace("_", " ")
        if name == "ranking" and verification.decisions_total:
            text = f"{text} ({verification.decisions_kept} of {verification.decisions_total})"
        chips.append(chip(name, text, state))
    return f'<div class="chips">{"".join(chips)}</div>'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".") if text else ""
