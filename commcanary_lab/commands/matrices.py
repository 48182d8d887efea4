"""The verb traffic: the matrix M, parts of it, and M against another source or a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commcanary_lab.commands.inputs import Format, Json, LayoutFile, Paths, check_output, load_events, load_layout
from commcanary_lab.commands.output import emit_json, say, table
from commcanary_lab.units import format_bytes

if TYPE_CHECKING:
    from commcanary_lab.layout import Layout
    from commcanary_lab.trace.model import Trace
    from commcanary_lab.traffic import Link, TrafficDifference, TrafficMatrix

__all__ = ["Algorithm_", "GpusPerNode", "RingOrder_", "parse_algorithm", "parse_order", "register"]

GpusPerNode = Annotated[int | None, typer.Option("--gpus-per-node", help="GPUs per node; also from the layout file.")]
Algorithm_ = Annotated[str | None, typer.Option("--algorithm", help="Attribution algorithm, or op=algorithm,...")]
RingOrder_ = Annotated[str | None, typer.Option("--ring-order", metavar="R,R,...", help="Order of ranks in every ring.")]
_Names = Annotated[list[str] | None, typer.Option(help="Keep only this one; repeatable.")]


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command()(traffic)


def traffic(
    paths: Paths,
    format: Format = None,
    layout: LayoutFile = None,
    gpus_per_node: GpusPerNode = None,
    algorithm: Algorithm_ = None,
    ring_order: RingOrder_ = None,
    op: _Names = None,
    group: _Names = None,
    phase: _Names = None,
    window: Annotated[str | None, typer.Option("--window", metavar="LO:HI", help="Events that start in these seconds.")] = None,
    against: Annotated[Path | None, typer.Option("--against", help="Another source or a canary of the job: what differs.")] = None,
    predict: Annotated[
        str | None, typer.Option("--predict", metavar="K=V,...", help="Model shape: what the layout should send, against M.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Links to print.")] = 20,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where to write; the suffix chooses the format.")] = None,
    json: Json = False,
) -> None:
    """Who sends what to whom: the traffic matrix M, as links."""
    options: dict[str, Any] = {
        "algorithm": parse_algorithm(algorithm),
        "ring_order": parse_order(ring_order),
        "gpus_per_node": gpus_per_node,
        "layout": load_layout(layout),
    }
    check_output(output, *paths)
    m = _matrix(load_events(paths, format=format, layout=layout), window, options, op, group, phase)
    difference = _difference(m, against, predict, layout, window, options, (op, group, phase))
    if output is not None:
        m.write(output)
    if json:
        emit_json(_json(m, difference, options["layout"]))
        return
    _print(m, top)
    if difference is not None:
        _print_difference(difference, top)
    for note in m.notes:
        say(f"note: {note}")
    if output is not None:
        say(f"wrote {output}")


def parse_window(text: str | None) -> tuple[int, int] | None:
    """Parse ``LO:HI`` in seconds to whole nanoseconds."""
    from commcanary_lab.errors import UsageError

    if text is None:
        return None
    low, _, high = text.partition(":")
    try:
        return round(float(low) * 1e9), round(float(high) * 1e9)
    except (OverflowError, ValueError):
        raise UsageError(
            f"--window {text!r} is not LO:HI", remedy="write seconds from the first event, for example --window 0:0.5"
        ) from None


def _matrix(
    trace: Trace, window: str | None, options: dict[str, Any], op: list[str] | None, group: list[str] | None, phase: list[str] | None
) -> TrafficMatrix:
    from commcanary_lab.traffic import build_matrix, in_window

    interval = parse_window(window)
    m = build_matrix(trace if interval is None else in_window(trace, *interval), **options)
    return m.where(op=op, group=group, phase=phase) if op or group or phase else m


def _difference(
    m: TrafficMatrix,
    against: Path | None,
    predict: str | None,
    layout: Path | None,
    window: str | None,
    options: dict[str, Any],
    names: tuple[list[str] | None, ...],
) -> TrafficDifference | None:
    from commcanary_lab.errors import UsageError
    from commcanary_lab.traffic import parse_shape
    from commcanary_lab.traffic import predict as predicted

    if against is not None and predict is not None:
        raise UsageError("--against and --predict exclude each other", remedy="give one of them")
    if against is not None:
        return m - _matrix(load_events([against], layout=layout), window, options, *names)
    if predict is None:
        return None
    own: Layout | None = options["layout"]
    if own is None:
        raise UsageError("a prediction needs the layout", remedy="give --layout with the sizes tp, pp, cp, ep, dp")
    rest = {k: v for k, v in options.items() if k in ("algorithm", "gpus_per_node", "ring_order")}
    return m - predicted(own, parse_shape(predict), **rest)


def parse_algorithm(text: str | None) -> str | dict[str, str] | None:
    """Parse ``ring`` or ``all_reduce=ring,...``."""
    if text is None or "=" not in text:
        return text
    from commcanary_lab.errors import UsageError

    pairs = [pair.split("=", 1) for pair in text.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise UsageError(f"--algorithm {text!r} is not op=algorithm,...", remedy="write for example --algorithm all_reduce=ring")
    return {op: name for op, name in pairs}


def parse_order(text: str | None) -> list[int] | None:
    """Parse ``0,4,1,5``."""
    from commcanary_lab.errors import UsageError

    try:
        return None if text is None else [int(r) for r in text.split(",")]
    except ValueError:
        raise UsageError(f"--ring-order {text!r} is not a list of ranks", remedy="write for example --ring-order 0,4,1,5") from None


def _json(m: TrafficMatrix, difference: TrafficDifference | None, layout: Layout | None) -> dict[str, Any]:
    out: dict[str, Any] = {
        "ranks": len(m.ranks),
        "records": m.records,
        "payload_bytes": m.payload_bytes,
        "matrix_sum_bytes": m.sum_bytes,
        "links": _links(m.links()),
        "switch_links": _links(m.switch_links()),
        "source": m.source,
        "algorithm": m.algorithm,
        "ring_order": m.ring_order,
        "unattributed_bytes": m.unattributed_bytes,
        "notes": list(m.notes),
        "origin": m.origin,
        "import_coverage": {"read": m.coverage.read, "used": m.coverage.used, "skipped": dict(m.coverage.skipped)},
    }
    if layout is not None:
        out["gpus_per_node"] = layout.gpus_per_node
    if difference is not None:
        first = difference.left.first_difference(difference.right)
        out["difference"] = {
            "with": difference.right.source,
            "equal": first is None,
            "first": None if first is None else str(first),
            "added_bytes": difference.added_bytes,
            "removed_bytes": difference.removed_bytes,
            "links": _links(difference.links()),
        }
    return out


def _links(links: list[Link]) -> list[dict[str, float]]:
    return [{"src": x.src, "dst": x.dst, "bytes": x.size_bytes} for x in links]


def _print(m: TrafficMatrix, top: int) -> None:
    from commcanary_lab.traffic.attribution import switch_name

    say(f"{len(m.ranks)} ranks, {m.records:,} records, payload {format_bytes(m.payload_bytes)}, matrix sum {format_bytes(m.sum_bytes)}")
    say(f"algorithm {m.algorithm}, ring order {m.ring_order}, unattributed {format_bytes(m.unattributed_bytes)}, from {m.source}")
    links = m.links()
    table(["from", "to", "bytes", ""], [[x.src, x.dst, _exact(x.size_bytes), format_bytes(x.size_bytes)] for x in links[:top]])
    if len(links) > top:
        say(f"... and {len(links) - top:,} more links (--top {len(links)})")
    if len(m.switch_cells):
        to, back = format_bytes(m.to_switches_bytes), format_bytes(m.from_switches_bytes)
        say(f"through switches, beside M: {to} from ranks, {back} to ranks")
        rows = [[*(switch_name(end) if end < 0 else str(end) for end in (x.src, x.dst)), _exact(x.size_bytes)] for x in m.switch_links(top)]
        table(["from", "to", "bytes"], rows)


def _exact(size_bytes: float) -> int | float:
    return int(size_bytes) if size_bytes.is_integer() else size_bytes


def _print_difference(d: TrafficDifference, top: int) -> None:
    first = d.left.first_difference(d.right)
    if first is None:
        say(f"against {d.right.source}: equal cell by cell")
        return
    more, less = format_bytes(d.added_bytes), format_bytes(d.removed_bytes)
    say(f"against {d.right.source}: {len(d.cells):,} links differ, {more} more and {less} less; first {first}")
    table(["from", "to", "more (+) or less (-)"], [[x.src, x.dst, _exact(x.size_bytes)] for x in d.links(top)])
