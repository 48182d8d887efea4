"""Verbs on traffic between nodes: fabric, diagnose, export."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from commcanary_lab.commands import layouts
from commcanary_lab.commands.inputs import Format, Json, LayoutFile, Paths, load_events, load_layout
from commcanary_lab.commands.matrices import Algorithm_, GpusPerNode, RingOrder_, parse_algorithm, parse_order
from commcanary_lab.commands.output import busy, emit_json, say, table
from commcanary_lab.units import format_bytes

if TYPE_CHECKING:
    from commcanary_lab.traffic import Diagnosis, FabricVerdict, Placement, TrafficMatrix

__all__ = ["register"]

_T = TypeVar("_T")

_Spine = Annotated[float, typer.Option("--spine", help="Bandwidth of the spine over that of a fat tree, 0 to 1.")]
_Pxn = Annotated[bool, typer.Option("--pxn", help="Count PXN: messages change rails inside the sending node.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to the application."""
    app.command()(fabric)
    app.command()(diagnose)
    layouts.register(app)


def _matrix(
    paths: Paths,
    format: Format = None,
    layout: LayoutFile = None,
    gpus_per_node: GpusPerNode = None,
    algorithm: Algorithm_ = None,
    ring_order: RingOrder_ = None,
) -> TrafficMatrix:
    """M on the nodes that the options name; these options are declared here for every verb on traffic between nodes."""
    from commcanary_lab.errors import UsageError
    from commcanary_lab.traffic import Placement, build_matrix

    place = Placement.of(gpus_per_node, load_layout(layout))
    if place is None:
        raise UsageError("nobody says how many GPUs a node has", remedy="give --gpus-per-node, or --layout with a file that has it")
    trace = load_events(paths, format=format, layout=layout)
    return build_matrix(trace, algorithm=parse_algorithm(algorithm), ring_order=parse_order(ring_order), placement=place)


def _on_nodes(verb: Callable[..., _T]) -> Callable[..., _T]:
    """Give a verb on M the options of `_matrix` in front of its own."""
    source = _options(_matrix)

    @functools.wraps(verb)
    def run(**options: Any) -> _T:
        return verb(_matrix(**{p.name: options.pop(p.name) for p in source}), **options)

    every = [*source, *(p for p in _options(verb) if p.name != "m")]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in every}
    return run


def _options(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters by name, with their types as typer needs them."""
    types = get_type_hints(function, localns={"TrafficMatrix": object}, include_extras=True)
    own = inspect.signature(function).parameters.values()
    return [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[p.name]) for p in own]


@_on_nodes
def fabric(
    m: TrafficMatrix,
    spine: _Spine = 0.1,
    pxn: _Pxn = False,
    moe_skew: Annotated[float, typer.Option("--moe-skew", help="Skew of the expert exchange; 0 is uniform.")] = 0.0,
    link_gb_s: Annotated[float | None, typer.Option("--link-gb-s", help="Capacity of one network card per direction, GB/s.")] = None,
    step_time_s: Annotated[float | None, typer.Option("--step-time-s", help="Seconds in which the bytes travel.")] = None,
    search: Annotated[int, typer.Option("--search-placement", min=0, help="Placements of ranks on nodes to try; 0: none.")] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of that search.")] = 7,
    json: Json = False,
) -> int:
    """Rail-optimised network against fat tree. Exits 1 when the spine saturates, or when the verdict depends on an assumed ring order."""
    from commcanary_lab.traffic import fabric as judge
    from commcanary_lab.traffic import search_placement

    found = judge(m, spine=spine, pxn=pxn, moe_skew=moe_skew, link_gb_s=link_gb_s, step_time_s=step_time_s)
    with busy("searching a placement"):
        placed = search_placement(m, _place(m), evaluations=search, seed=seed) if search else None
    if json:
        emit_json({**_fabric_json(found), **({} if placed is None else {"placement": _placement_json(placed)})})
    else:
        _print_fabric(found)
        if placed is not None:
            _print_placement(placed)
    return 0 if found.verdict == "viable" else 1


def _place(m: TrafficMatrix) -> Placement:
    assert m.placement is not None  # `_matrix` refuses without
    return m.placement


def _fabric_json(v: FabricVerdict) -> dict[str, Any]:
    u, moe = v.utilisation, v.moe
    return {
        "inter_node_bytes": v.inter_node_bytes,
        "on_rail_bytes": v.on_rail_bytes,
        "cross_rail_bytes": v.crossing.cross_rail_bytes,
        "intra_node_bytes": v.crossing.intra_node_bytes,
        "cross_rail_fraction": v.cross_rail_fraction,
        "fat_tree_congestion": v.fat_tree_congestion,
        "rail_congestion": v.rail_congestion,
        "verdict": v.verdict,
        "by_order": {
            o.order: {
                "inter_node_bytes": None if o.crossing is None else o.crossing.inter_node_bytes,
                "on_rail_bytes": None if o.crossing is None else o.crossing.on_rail_bytes,
                "cross_rail_fraction": o.cross_rail_fraction,
                "fat_tree_congestion": o.fat_tree_congestion,
                "rail_congestion": o.rail_congestion,
                "verdict": o.verdict,
                "reason": o.reason,
            }
            for o in v.by_order
        },
        "relative_cost": v.relative_cost,
        "break_even_spine": v.break_even_spine,
        "spine_fraction": v.spine_fraction,
        "pxn": v.pxn,
        "pxn_bytes": v.crossing.pxn_bytes,
        "gpus_per_node": v.gpus_per_node,
        "nodes": v.nodes,
        "moe": None
        if moe is None
        else {
            "inter_node_bytes": moe.inter_node_bytes,
            "skew": moe.skew,
            "cross_rail_fraction": moe.cross_rail_fraction,
            "fat_tree_congestion": v.moe_fat_tree_congestion,
            "rail_congestion": v.moe_rail_congestion,
            "verdict": v.moe_verdict,
            "hottest_ingress": moe.hottest_ingress,
            "hottest_rank": moe.hottest_rank,
        },
        "utilisation": None
        if u is None
        else {
            "link_gb_s": u.link_gb_s,
            "step_time_s": u.step_time_s,
            "nic": u.nic,
            "rail_spine": u.rail_spine,
            "fat_tree_spine": u.fat_tree_spine,
        },
        **_origin(v),
    }


def _origin(v: FabricVerdict) -> dict[str, Any]:
    return {
        "source": v.source,
        "algorithm": v.algorithm,
        "ring_order": v.ring_order,
        "origin": v.origin,
        "limits": list(v.limits),
        "notes": list(v.notes),
        "import_coverage": {"read": v.coverage.read, "used": v.coverage.used, "skipped": dict(v.coverage.skipped)},
    }


def _placement_json(found: Any) -> dict[str, Any]:
    def crossing(c: Any) -> dict[str, float]:
        return {"inter_node_bytes": c.inter_node_bytes, "cross_rail_bytes": c.cross_rail_bytes}

    return {
        "improved": found.improved,
        "evaluations": found.evaluations,
        "seed": found.seed,
        "before": crossing(found.before),
        "after": crossing(found.after),
        "slots": {str(rank): slot for rank, slot in found.placement.slots.items()},
        "notes": list(found.notes),
    }


def _print_fabric(v: FabricVerdict) -> None:
    nodes = f"{v.nodes} node{'s' if v.nodes != 1 else ''} of {v.gpus_per_node}"
    say(f"{v.verdict}: rail-optimised with a spine of {v.spine_fraction:g}, {nodes}")
    say(f"algorithm {v.algorithm}, ring order {v.ring_order}, from {v.source} ({v.origin})")
    rows = [
        [o.order.replace("_", "-") + (" (as given)" if o.order == v.own.order else ""), *_order_cells(o), o.verdict or o.reason]
        for o in v.by_order
    ]
    if v.moe is not None:
        moe = [format_bytes(v.moe.inter_node_bytes), v.moe.cross_rail_fraction, v.moe_fat_tree_congestion, v.moe_rail_congestion]
        rows.append(["what if: expert exchange", *moe, v.moe_verdict])
    table(["ring order", "inter-node", "cross-rail", "fat tree", "rail", ""], rows)
    say(f"break-even at a spine of {v.break_even_spine:.3f}; cost of the spine {v.relative_cost:g} of a fat tree's")
    if v.crossing.pxn_bytes:
        say(f"PXN moves {format_bytes(v.crossing.pxn_bytes)} to the destination's rail inside the sending node")
    if v.utilisation is not None:
        u = v.utilisation
        say(f"utilisation at {u.link_gb_s:g} GB/s in {u.step_time_s:g} s: busiest card {u.nic:.3f}, spine {u.rail_spine:.3f}")
    for line in (*(f"limit: {x}" for x in v.limits), *(f"note: {x}" for x in v.notes)):
        say(line)


def _order_cells(o: Any) -> list[object]:
    if o.crossing is None:
        return [None] * 4
    return [format_bytes(o.crossing.inter_node_bytes), o.cross_rail_fraction, o.fat_tree_congestion, o.rail_congestion]


def _print_placement(found: Any) -> None:
    verb = "a better placement" if found.improved else "no better placement"
    say(f"{verb} in {found.evaluations:,} tried (seed {found.seed}):")
    for name, c in (("before", found.before), ("after", found.after)):
        say(f"  {name}: inter-node {format_bytes(c.inter_node_bytes)}, cross-rail {format_bytes(c.cross_rail_bytes)}")
    for note in found.notes:
        say(f"note: {note}")


@_on_nodes
def diagnose(
    m: TrafficMatrix,
    spine: _Spine = 0.1,
    pxn: _Pxn = False,
    max_imbalance: Annotated[float, typer.Option("--max-imbalance", help="Largest over mean column that still counts as even.")] = 1.25,
    json: Json = False,
) -> None:
    """Routing problem (uneven columns inside a group) or fabric problem (even volume across rails), both numbers."""
    from commcanary_lab.traffic import diagnose as judge

    found = judge(m, spine=spine, pxn=pxn, max_imbalance=max_imbalance)
    if json:
        emit_json(_diagnosis_json(found))
        return
    number = "no group exchanges" if math.isnan(found.imbalance) else f"largest over mean column {found.imbalance:.3f}"
    say(f"{found.verdict}")
    say(f"routing: {number} (even up to {found.max_imbalance:g})")
    say(f"fabric: cross-rail fraction {found.cross_rail_fraction:.3f}, congestion {found.rail_congestion:.3f} ({found.fabric.verdict})")
    say(f"next: {found.advice}")
    if found.groups:
        table(
            ["group", "ranks", "bytes", "largest / mean", "hottest rank", "cross-rail"],
            [
                [g.name, g.group.size, format_bytes(g.size_bytes), g.imbalance, g.hottest_rank, g.cross_rail_fraction]
                for g in found.groups[:20]
            ],
        )
    for line in (*(f"limit: {x}" for x in found.fabric.limits), *(f"note: {x}" for x in found.notes)):
        say(line)


def _diagnosis_json(found: Diagnosis) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "routing_problem": found.routing_problem,
        "fabric_problem": found.fabric_problem,
        "imbalance": found.imbalance,
        "max_imbalance": found.max_imbalance,
        "cross_rail_fraction": found.cross_rail_fraction,
        "rail_congestion": found.rail_congestion,
        "advice": found.advice,
        "groups": [
            {
                "name": g.name,
                "ranks": list(g.group.members),
                "bytes": g.size_bytes,
                "imbalance": g.imbalance,
                "hottest_rank": g.hottest_rank,
                "senders": g.senders,
                "inter_node_bytes": g.inter_node_bytes,
                "cross_rail_fraction": g.cross_rail_fraction,
            }
            for g in found.groups
        ],
        "fabric": _fabric_json(found.fabric),
        "notes": list(found.notes),
    }
