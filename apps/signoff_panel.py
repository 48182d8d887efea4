"""The sign-off of a review: what was decided about this comparison, and the form for another decision."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.errors import LabError
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
        self.name = pmui.TextInput(label="Your name (optional)", max_length=MAX_NAME, margin=(8, 0, 0, 0), width=280, **style)
        if signer:
            self.name.param.update(label="You sign as", value=signer, disabled=True)
        self.note = pmui.TextAreaInput(
            label="Note (optional)", max_length=MAX_NOTE, rows=2, auto_grow=True, max_rows=10, margin=(10, 0, 8, 0),
            sizing_mode="stretch_width", **style,
        )  # fmt: skip
        # one button for each decision: a choice with a state begins with its first option, which nobody has chosen
        self.buttons = {d: pmui.Button(label=words, variant="outlined", size="small", margin=(0, 8, 0, 0)) for words, d in _CHOICES.items()}
        for decision, button in self.buttons.items():
            button.on_click(lambda _, decision=decision: self._pressed(decision))
        row = pn.Row(*self.buttons.values(), sizing_mode="stretch_width", margin=0)
        form = [html(f'<p class="muted">{escape(refused)}</p>')] if refused else [self.name, self.note, self._problem, row]
        self.card = paper(self._list, *form)

    def show(self, found: tuple[Signed, ...], verdict: str) -> None:
        """Show the decisions about a comparison."""
        words = f"A decision is a file of its own in the workspace; it states this comparison by SHA-256, with its verdict: {verdict}"
        self._list.object = f'<div class="cl">{title_html("Sign-off", words)}{signed_html(found)}</div>'

    def _pressed(self, decision: str) -> None:
        self._enable(False)
        try:
            self._save(decision, self._signer or self.name.value or "", self.note.value or "")
        except LabError as e:
            self._problem.object = f'<div class="cl">{message("The sign-off was not saved", str(e), "err")}</div>'
            self._problem.visible = True
            return
        finally:
            self._enable(True)
        self._problem.visible = False
        self.note.value = ""

    def _enable(self, enabled: bool) -> None:
        """A second click while the first one is written must not make a second file."""
        for button in self.buttons.values():
            button.disabled = not enabled


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
