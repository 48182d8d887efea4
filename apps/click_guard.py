"""Clicks that a table would lose, given to the row that they were meant for."""

from __future__ import annotations

from pathlib import Path

from panel.custom import JSComponent

__all__ = ["ClickGuard"]


class ClickGuard(JSComponent):
    """Has no look of its own; put anywhere into a page, it guards every table there.

    Panel draws a table again when its page has come to rest, when the window changes and when rows change. A press of the button takes a
    tenth of a second, and a browser that no longer has the pressed element tells nobody of a click.
    """

    _esm = Path(__file__).with_name("assets") / "click_guard.js"
