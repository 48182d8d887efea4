"""The sign-off of a review: what was decided about this comparison, and the form for another decision."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.errors import LabError, UsageError
from commcanary_lab.review.signoff import DECISIONS, MAX_NAME, MAX_NOTE
from commcanary_lab.views.comparison_words import VERDICT_WORDS
from commcanary_lab.views.markup import chip, html, message, title_html
from commcanary_lab.views.theme import paper

from .review_signoffs import Signed

__all__ = ["SignOffPanel", "signed_html"]

_CHOICES = {"Approve": "approve", "Reject": "reject", "Needs data": "needs_data"}
_STATES = {"current": ("about exactly this", "ok"), "other_policy": ("about another policy", "open"), "stale": ("stale", "bad")}


class SignOffPanel:
    """A card with every decision and the form.

    Parameters
    ----------
    save : callable
        Takes decision, name and note; writes them, and raises a `LabError` where that is refused.
    refused : str
        Why nothing can be signed here; empty where it can.
    signer : str
        Who is logged in: signs under that name and no other.
    """

    def __init__(self, save: Callable[[str, str, str], None], refused: str = "", signer: str = "") -> None:
        self._save, self._signer = save, signer
        self._list, self._problem = html(""), html("", visible=False)
        style: dict[str, Any] = {"size": "small", "variant": "outlined"}
        self.name = pmui.TextInput(label="Your name (optional)", max_length=MAX_NAME, margin=(0, 12, 0, 0), width=240, **style)
        if signer:
            self.name.param.update(label="You sign as", value=signer, disabled=True)
        self.note = pmui.TextAreaInput(
            label="Note (optional)", max_length=MAX_NOTE, rows=2, auto_grow=True, max_rows=10, margin=(10, 0, 8, 0),
            sizing_mode="stretch_width", **style,
        )  # fmt: skip
        self.decision = pmui.RadioButtonGroup(label="", options=_CHOICES, value=None, size="small", margin=0, align="center", width=270)
        self.button = pmui.Button(label="Save sign-off", variant="contained", disable_elevation=True, size="small", margin=0)
        self.button.on_click(lambda _: self._pressed())
        row = pn.Row(
            self.name, self.decision, sizing_mode="stretch_width", margin=(8, 0, 0, 0), styles={"flex-wrap": "wrap", "gap": "8px 0"}
        )
        form = [html(f'<p class="muted">{escape(refused)}</p>')] if refused else [row, self.note, self._problem, self.button]
        self.card = paper(self._list, *form)

    def show(self, found: tuple[Signed, ...], verdict: str) -> None:
        """Show the decisions about a comparison."""
        words = f"A decision is a file of its own in the workspace; it states this comparison by SHA-256, with its verdict: {verdict}"
        self._list.object = f'<div class="cl">{title_html("Sign-off", words)}{signed_html(found)}</div>'

    def _pressed(self) -> None:
        self.button.disabled = True
        try:
            if self.decision.value not in DECISIONS:
                raise UsageError("no decision is chosen", remedy="press Approve, Reject or Needs data")
            self._save(self.decision.value, self._signer or self.name.value or "", self.note.value or "")
        except LabError as e:
            self._problem.object = f'<div class="cl">{message("The sign-off was not saved", str(e), "err")}</div>'
            self._problem.visible = True
            return
        finally:
            self.button.disabled = False
        self._problem.visible = False
        self.note.value = ""


def signed_html(found: tuple[Signed, ...]) -> str:
    """Return decisions as a list; every text of a file is escaped."""
    if not found:
        return '<p class="muted" style="margin-top:8px">Nobody has signed this comparison.</p>'
    out = []
    for s in found:
        words, state = _STATES[s.check.status]
        signoff = s.signoff
        by = f" by <b>{escape(signoff.reviewer)}</b>" if signoff.reviewer else ""
        chips = chip("it is", words, state) + chip("verdict then", VERDICT_WORDS[signoff.verdict].lower())
        why = f'<p class="muted" style="font-size:12.5px">{escape("; ".join(s.check.reasons))}</p>' if s.check.reasons else ""
        note = f'<p style="white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0">{escape(signoff.note)}</p>' if signoff.note else ""
        head = f"<b>{escape(DECISIONS[signoff.decision])}</b>{by} <span class=muted>{escape(signoff.written_at)}</span>"
        about = f"{signoff.baseline.name} \u2192 {signoff.candidate.name}, in {s.file}"
        file = f'<p class="muted" style="font-size:12.5px;overflow-wrap:anywhere">{escape(about)}</p>'
        out.append(
            f'<div data-testid="signoff" style="border-top:1px solid var(--d);padding:8px 0"><div class="chips" style="align-items:center">'
            f'<span style="margin-right:8px">{head}</span>{chips}</div>'
            f"{note}{why}{file}</div>"
        )
    return f'<div style="margin-top:10px">{"".join(out)}</div>'
