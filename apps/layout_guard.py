"""Two races of Bokeh and Panel, mended in the browser."""

from __future__ import annotations

from pathlib import Path

from panel.custom import JSComponent

__all__ = ["LayoutGuard"]


class LayoutGuard(JSComponent):
    """Has no look of its own; put anywhere into a page, it keeps views that are not drawn yet out of what happens to those that are.

    Bokeh lists new children of a container before it lays them out. A change of size in between (a page that is reloaded while
    something runs, for example) asks each plot for a layout that it does not have, and ends in an exception; the pass that follows
    once the children are there lays out everything. A table whose page was left before it was drawn is asked for its rows.
    """

    _esm = Path(__file__).with_name("assets") / "layout_guard.js"
