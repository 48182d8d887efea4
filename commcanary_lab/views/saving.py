"""Saving a chart as it is on screen: PNG and SVG are made by the browser, with the chart's title; CSV holds what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

from commcanary_lab.views.extra import panel

__all__ = ["define", "savable", "series_csv"]


def savable(chart: Any, csv: Callable[[], str] | None = None) -> Any:
    """Return a chart with its row of links: PNG, SVG, and CSV where the data behind it is given.

    Parameters
    ----------
    chart : panel.pane.Bokeh or panel.pane.HoloViews
        The chart; its content may be exchanged later.
    csv : callable, optional
        Returns the data as CSV text when it is asked for.

    Returns
    -------
    panel.Column
        The chart, and the links below it. A saved picture has the title, the badges and the legend of the card that it stands in.

    Examples
    --------
    >>> from commcanary_lab.views.plot_frame import frame
    >>> import panel as pn
    >>> [type(o).__name__ for o in savable(pn.pane.Bokeh(frame(100)))]
    ['Bokeh', 'SaveLinks']
    """
    links = _component()(table=csv is not None, sizing_mode="stretch_width", margin=0)
    links.csv = csv
    return panel().Column(chart, links, sizing_mode="stretch_width", margin=0)


def series_csv(samples: Mapping[str, npt.NDArray[Any]], value: str) -> str:
    """Return samples below each other as CSV: the name of the sample, and the value under its name with the unit.

    Examples
    --------
    >>> import numpy as np
    >>> print(series_csv({"before": np.array([1.5])}, "exposed_us"), end="")
    sample,exposed_us
    before,1.5
    """
    import pandas as pd

    parts = [pd.DataFrame({"sample": name, value: values}) for name, values in samples.items()]
    return pd.concat(parts, ignore_index=True).to_csv(index=False, lineterminator="\n") if parts else f"sample,{value}\n"


def define() -> None:
    """Make the class of the links now: a page in the browser knows only the classes that existed when it was loaded."""
    _component()


@cache
def _component() -> Any:
    """The class is made where a figure is: the library works without Panel."""
    pn = panel()
    import param
    from panel.custom import JSComponent

    class SaveLinks(JSComponent):
        """The row of links below a chart."""

        table = param.Boolean(default=False, doc="Whether there is data to save as CSV.")
        csv: Callable[[], str] | None = None
        _esm = Path(__file__).with_name("saving.js")

        def _handle_msg(self, data: Any) -> None:
            if data == "csv" and self.csv is not None:
                self._send_msg({"csv": self.csv()})

    assert pn is not None
    return SaveLinks
