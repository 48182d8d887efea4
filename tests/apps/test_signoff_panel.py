"""The form of a sign-off: nothing is decided by default, and who is logged in signs under that name."""

from __future__ import annotations

import pytest

pytest.importorskip("panel_material_ui")

from apps.signoff_panel import SignOffPanel
from commcanary_lab.errors import UsageError

Saved = list[tuple[str, str, str]]


def _panel(saved: Saved, **options: str) -> SignOffPanel:
    return SignOffPanel(lambda *values: saved.append(values), **options)


@pytest.mark.parametrize("decision", ["approve", "reject", "needs_data"])
def test_each_button_is_one_decision(decision: str) -> None:
    saved: Saved = []
    panel = _panel(saved)
    panel.name.value, panel.note.value = "Ada", "because"
    assert saved == []  # nothing is saved, or chosen, before a button is pressed
    panel.buttons[decision].clicks += 1
    assert saved == [(decision, "Ada", "because")]
    assert panel.note.value == ""
    assert not panel.buttons[decision].disabled


def test_who_is_logged_in_signs_under_that_name_whatever_the_browser_sends() -> None:
    saved: Saved = []
    panel = _panel(saved, signer="grace")
    assert panel.name.disabled
    panel.name.value = "somebody else"
    panel.buttons["approve"].clicks += 1
    assert saved == [("approve", "grace", "")]


def test_a_viewer_gets_no_buttons_and_a_refusal_is_shown() -> None:
    saved: Saved = []
    refused = _panel(saved, refused="Signing off is for operators.")
    assert refused.name not in list(refused.card)
    assert all(b not in list(row) for row in refused.card if hasattr(row, "__iter__") for b in refused.buttons.values())

    def fail(*_: str) -> None:
        raise UsageError("the note has 5,000 characters", remedy="shorten it")

    panel = SignOffPanel(fail)
    panel.note.value = "kept"
    panel.buttons["reject"].clicks += 1
    assert panel._problem.visible
    assert "5,000 characters" in panel._problem.object
    assert panel.note.value == "kept"
    assert not panel.buttons["reject"].disabled
