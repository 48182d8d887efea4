"""Which network the traffic needs: share of the bytes that changes rails against the spine, per order of the rings."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape
from typing import Any

from commcanary_lab.traffic import TrafficMatrix
from commcanary_lab.traffic.diagnose import Diagnosis, diagnose
from commcanary_lab.traffic.fabric import fabric as judge
from commcanary_lab.traffic.fabric_verdict import DEPENDS, SATURATES, VIABLE, FabricVerdict
from commcanary_lab.units import format_bytes
from commcanary_lab.views.extra import material, panel
from commcanary_lab.views.markup import coverage_text, html, percent, title_html
from commcanary_lab.views.theme import paper

__all__ = ["FabricPanel", "at_spine", "fabric", "sentence", "verdict"]

_ORDERS = {"group": "Group order", "rail_aligned": "Rail-aligned order", "hierarchical": "Hierarchical", "stated": "Stated order"}
_CSS = """
.cl .fab { display: grid; grid-template-columns: minmax(128px, max-content) 1fr max-content max-content; gap: 9px 16px; align-items: center;
  font-size: 13px; }
.cl .fab .r { text-align: right; white-space: nowrap; }
.cl .fab .track { position: relative; height: 14px; border-radius: 4px; background: var(--s); }
.cl .fab .track i { position: absolute; left: 0; top: 0; bottom: 0; border-radius: 4px; background: #4477aa; }
.cl .fab .track i.over { background: #dd8a2b; }
.cl .fab .track b { position: absolute; top: -4px; bottom: -4px; width: 2px; background: var(--t); }
.cl .fab .h { color: var(--m); font-size: 12px; }
.cl .lim { color: var(--m); font-size: 12.5px; margin-top: 12px; padding-left: 17px; }
"""


def fabric(matrix: TrafficMatrix, gpus_per_node: int, *, spine: float = 0.1) -> Any:
    """Show whether a rail-optimised network carries the traffic, with a slider for its spine.

    Parameters
    ----------
    matrix : TrafficMatrix
        The traffic.
    gpus_per_node : int
        GPUs per node.
    spine : float
        Bandwidth of the spine over that of a fat tree, at first.

    Returns
    -------
    panel.viewable.Viewable
    """
    return FabricPanel(matrix, gpus_per_node, spine=spine).view


def verdict(found: FabricVerdict) -> Any:
    """Show a verdict as it was given; `fabric` has a slider for the spine, and the diagnosis.

    Parameters
    ----------
    found : FabricVerdict
        From `commcanary_lab.fabric`.

    Returns
    -------
    panel.viewable.Viewable
    """
    return paper(html(fabric_html(found), stylesheets=[_CSS]))


def at_spine(found: FabricVerdict, spine: float) -> FabricVerdict:
    """Return a verdict for another spine: where the bytes travel stays as it is.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.traffic.fabric import fabric
    >>> found = fabric(lab.traffic(lab.samples.tp8_decode()), gpus_per_node=4, spine=0.1)
    >>> at_spine(found, 0.5).by_order[0].rail_congestion, found.by_order[0].rail_congestion
    (2.0, 10.0)
    """
    orders = tuple(replace(v, spine_fraction=spine) for v in found.by_order)
    return replace(found, spine_fraction=spine, by_order=orders, own=replace(found.own, spine_fraction=spine))


def sentence(found: FabricVerdict) -> str:
    """Return the verdict in words, as HTML."""
    spine = f"{found.spine_fraction:.0%} spine".replace("%", "\u00a0%")
    if found.nodes < 2:
        return "All ranks share <b>one node</b>: no network is needed."
    if not found.inter_node_bytes and all(not v.cross_rail_fraction for v in found.by_order if v.crossing is not None):
        return "<b>Nothing leaves a node</b>: any network carries it."
    if found.verdict == DEPENDS:
        shares = [v.cross_rail_fraction for v in found.by_order if v.crossing is not None]
        return (
            f"Whether a rail fabric with a {spine} carries it <b>depends on ring order</b>, which the source does not state: "
            f"{percent(min(shares))} to {percent(max(shares))} of the inter-node bytes change rails."
        )
    if found.verdict == VIABLE:
        if not found.cross_rail_fraction:
            return f"Inter-node traffic is <b>all on-rail</b>; a rail fabric with a {spine} carries it."
        return (
            f"{percent(found.cross_rail_fraction)} of the inter-node bytes change rails; a rail fabric with a {spine} <b>carries them</b>."
        )
    return (
        f"{percent(found.cross_rail_fraction)} of the inter-node bytes change rails; a {spine} <b>saturates</b> "
        f"({found.rail_congestion:.3g} times its capacity). Break-even is a spine of {percent(found.break_even_spine)}."
    )


class FabricPanel:
    """The verdict with its controls.

    Parameters
    ----------
    matrix : TrafficMatrix
        The traffic.
    gpus_per_node : int
        GPUs per node.
    spine : float
        Bandwidth of the spine over that of a fat tree, at first.
    """

    def __init__(self, matrix: TrafficMatrix, gpus_per_node: int, *, spine: float = 0.1) -> None:
        pmui, pn = material(), panel()
        self.matrix = matrix
        self.gpus_per_node = gpus_per_node
        self._found: dict[bool, FabricVerdict] = {}
        self._diagnosis = diagnose(matrix, gpus_per_node=gpus_per_node)
        options = {"size": "small", "sizing_mode": "stretch_width"}
        self.spine = pmui.FloatSlider(
            label="Spine, share of a fat tree's", start=0, end=1, step=0.01, value=spine, margin=(4, 12), **options
        )
        self.pxn = pmui.Switch(label="Count PXN", value=False, size="small", margin=(0, 0, 0, 12))
        self._body = html("", stylesheets=[_CSS])
        self.view = paper(self._body, pn.Row(self.spine, self.pxn, sizing_mode="stretch_width", margin=(14, 0, 0, 0)))
        self.spine.param.watch(lambda _: self._draw(), "value")
        self.pxn.param.watch(lambda _: self._draw(), "value")
        self._draw()

    @property
    def found(self) -> FabricVerdict:
        """The verdict for what the controls say."""
        pxn = bool(self.pxn.value)
        if pxn not in self._found:
            self._found[pxn] = judge(self.matrix, gpus_per_node=self.gpus_per_node, spine=float(self.spine.value), pxn=pxn)
        return at_spine(self._found[pxn], float(self.spine.value))

    def _draw(self) -> None:
        self._body.object = f'<div class="cl">{fabric_html(self.found, replace(self._diagnosis, fabric=self.found))}</div>'


def fabric_html(found: FabricVerdict, diagnosis: Diagnosis | None = None) -> str:
    """Return the verdict, the shares per ring order beside the spine, the diagnosis if there is one, and the limits as HTML."""
    order = f"ring order {found.ring_order}" if found.ordered else ""
    shape = f"{found.nodes} nodes of {found.gpus_per_node}, {format_bytes(found.inter_node_bytes)} between nodes"
    subtitle = f"Share of inter-node bytes that change rails, beside the spine of {found.spine_fraction:.2f}; {shape}"
    title = title_html("Fabric", subtitle, found.origin, coverage_text(found.coverage), order)
    rows = "".join(_row(_ORDERS[v.order], v.cross_rail_fraction, v.rail_congestion, v.verdict, v.reason, found) for v in found.by_order)
    if found.moe is not None:
        rows += _row(
            "If it were an expert exchange", found.moe.cross_rail_fraction, found.moe_rail_congestion, found.moe_verdict, None, found
        )
    heads = '<span class="h">Order of the rings</span><span class="h">Changes rails</span>'
    heads += '<span class="h r">Congestion of the spine</span><span class="h"></span>'
    limits = "".join(f"<li>{escape(text)}</li>" for text in found.limits)
    return (
        f'{title}<p class="answer" data-testid="fabric" style="margin:10px 0 14px;font-size:16px">{sentence(found)}</p>'
        f'<div class="fab">{heads}{rows}</div>{_diagnosis(diagnosis) if diagnosis is not None else ""}'
        f'<ul class="lim">{limits}</ul>'
    )


def _row(name: str, share: float, load: float, verdict: str | None, reason: str | None, found: FabricVerdict) -> str:
    if verdict is None:
        return f'<span>{escape(name)}</span><span class="muted">{escape(reason or "")}</span><span></span><span></span>'
    over = " class=over" if verdict == SATURATES else ""
    bar = f'<i{over} style="width:{share:.2%}"></i><b style="left:calc({found.spine_fraction:.2%} - 1px)"></b>'
    number = "no spine" if load == float("inf") else f"{load:.2f}"
    return (
        f'<span>{escape(name)}</span><span class="track" role="img" aria-label="{share:.0%} change rails">{bar}</span>'
        f'<span class="r">{share:.2f} / {found.spine_fraction:.2f} = {number}</span><span>{escape(verdict)}</span>'
    )


def _diagnosis(diagnosis: Diagnosis) -> str:
    """Both numbers of the diagnosis, whatever it says."""
    routing = (
        "no group exchanges data all to all"
        if math.isnan(diagnosis.imbalance)
        else (f"the busiest receiver of {diagnosis.groups[0].name} gets {diagnosis.imbalance:.2f} times the mean")
    )
    text = f"Routing: {routing}. Placement: congestion {diagnosis.rail_congestion:.2f}. Diagnosis: {diagnosis.verdict}; {diagnosis.advice}."
    return f'<p class="muted" style="margin-top:14px">{escape(text)}</p>'
