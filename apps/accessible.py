"""What the libraries leave out for people who do not see the page: names of controls, roles of tables."""

from __future__ import annotations

from pathlib import Path

from panel.custom import JSComponent

__all__ = ["AccessibleNames"]


class AccessibleNames(JSComponent):
    """Has no look of its own; put anywhere into a page, it mends the whole page, and what appears in it later."""

    _esm = Path(__file__).with_name("assets") / "names.js"
