"""A race of Bokeh's layout, mended in the browser."""

from __future__ import annotations

from pathlib import Path

from panel.custom import JSComponent

__all__ = ["LayoutGuard"]


class LayoutGuard(JSComponent):
    """Has no look of its own; put anywhere into a page, it keeps a plot that has no layout yet out of the layout of the page.

    Bokeh lists new children of a container before it lays them out. A change of size in between (a page that is reloaded while
    something runs, for example) asks each plot for a layout that it does not have, and ends in an exception. The pass that follows
    once the children are there lays out everything, so the plot can be left out of the early one.
    """

    _esm = Path(__file__).with_name("assets") / "layout_guard.js"
