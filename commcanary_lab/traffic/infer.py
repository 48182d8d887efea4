"""Which groups look like tensor, pipeline, context, expert and data parallelism, how sure that is, and a layout file of it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from commcanary_lab.canonical import write_atomic
from commcanary_lab.errors import InputError, LimitError, RefusedError
from commcanary_lab.inspect.html import table_html
from commcanary_lab.layout import DEFAULT_ORDER, KINDS, Layout
from commcanary_lab.trace import ProcessGroup, Trace
from commcanary_lab.trace.groups import ranks_text
from commcanary_lab.traffic.families import Family, families
from commcanary_lab.traffic.kinds import Judgement, judge
from commcanary_lab.traffic.placement import Placement

__all__ = ["InferredGroups", "InferredLayout", "infer_layout"]


@dataclass(frozen=True)
class InferredGroups:
    """Groups of one shape and what they look like.

    Parameters
    ----------
    kind : {"tp", "pp", "cp", "ep", "dp", "world", "unknown"}
        What they look like.
    confidence : {"stated", "likely", "possible", "unknown"}
        ``stated``: the communicators are named so. ``likely``: the evidence points one way. ``possible``: other kinds fit about as well.
        Nothing is ever certain that the source does not state.
    groups : tuple of ProcessGroup
        The groups.
    stride : int or None
        Distance of successive ranks, where it is one number.
    nodes : int or None
        Most nodes that one group spans; None where the nodes are unknown.
    evidence : tuple of str
        What speaks for it, in words.
    alternatives : tuple of str
        Kinds that fit about as well.
    """

    kind: str
    confidence: str
    groups: tuple[ProcessGroup, ...]
    stride: int | None
    nodes: int | None
    evidence: tuple[str, ...]
    alternatives: tuple[str, ...]

    @property
    def size(self) -> int:
        """Ranks of each group."""
        return self.groups[0].size


@dataclass(frozen=True)
class InferredLayout:
    """What the groups of a trace look like.

    Parameters
    ----------
    rows : tuple of InferredGroups
        Families of groups, those of most bytes first.
    layout : Layout
        Sizes where the named and likely groups form a grid, otherwise the groups themselves; groups of uncertain kind keep their names.
    notes : tuple of str
        What a reader must know.
    """

    rows: tuple[InferredGroups, ...]
    layout: Layout
    notes: tuple[str, ...]

    def to_toml(self) -> str:
        """Return the layout file, with the evidence as comments."""
        lines = ["# Inferred from a trace: check it before you rely on it."]
        for row in self.rows:
            shape = f"{len(row.groups)} groups of {row.size}" if len(row.groups) > 1 else f"one group of {row.size}"
            other = f" (or {', '.join(row.alternatives)})" if row.alternatives else ""
            lines.append(f"# {row.kind}{other}, {row.confidence}: {shape}: {'; '.join(row.evidence)}")
        return "\n".join([*lines, *(f"# {note}" for note in self.notes)]) + "\n" + self.layout.to_toml()

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write the layout file; returns the bytes written.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        return write_atomic(path, self.to_toml().encode("utf-8"))

    def _repr_html_(self) -> str:
        rows = [(r.kind, r.confidence, len(r.groups), r.size, "; ".join(r.evidence)) for r in self.rows]
        return table_html("Inferred layout", ["kind", "how sure", "groups", "ranks each", "evidence"], rows, len(rows), self.notes)


def infer_layout(trace: Trace, *, gpus_per_node: int | None = None) -> InferredLayout:
    """Say which groups of a trace look like which parallelism, with the evidence.

    Names of communicators decide where they say something. Otherwise size, stride, span over nodes, operations, sizes and how often a
    group is called are weighed against those of the other groups (`kinds.judge`). A kind is never certain that the source does not state.

    Parameters
    ----------
    trace : Trace
        Events on process groups.
    gpus_per_node : int, optional
        GPUs per node; without it nothing is known about nodes.

    Returns
    -------
    InferredLayout
        With the layout file.

    Raises
    ------
    RefusedError
        If no event has a group of more than one rank.
    UsageError
        If `gpus_per_node` is not positive.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> [(r.kind, r.confidence, r.size) for r in infer_layout(lab.samples.gloo4()).rows][:2]
    [('tp', 'stated', 2), ('dp', 'stated', 2)]
    """
    place = Placement(gpus_per_node) if gpus_per_node is not None else None
    found = families(trace)
    if not found:
        raise RefusedError("no event has a group of more than one rank", remedy="open the captures of all ranks, or give a layout file")
    judged = [judge(f, found, place) for f in found]
    rows = tuple(_row(f, j) for f, j in zip(found, judged, strict=True))
    layout, why = _layout(rows, frozenset(trace.ranks), gpus_per_node)
    notes = [why] if why else []
    if gpus_per_node is None:
        notes.append("GPUs per node are not known: which groups span nodes was not weighed")
    silent = sorted({*trace.ranks} - {r for f in found for r in f.ranks})
    if silent:
        notes.append(f"ranks in no group: {ranks_text(tuple(silent))}")
    return InferredLayout(rows, layout, tuple(notes))


def _row(family: Family, j: Judgement) -> InferredGroups:
    return InferredGroups(j.kind, j.confidence, family.groups, family.stride, j.nodes, j.evidence, j.alternatives)


def _layout(rows: tuple[InferredGroups, ...], ranks: frozenset[int], gpus_per_node: int | None) -> tuple[Layout, str | None]:
    """Sizes where they reproduce every group of a certain enough kind; otherwise the groups by name."""
    sure = [r for r in rows if r.confidence in ("stated", "likely") and r.kind in KINDS]
    unsure = [r for r in rows if r not in sure and r.kind != "world"]
    named: dict[str, tuple[int, ...]] = {}
    for r in unsure:
        for g in r.groups:
            _add(named, g.name or f"unnamed {ranks_text(g.members)}", g.members)
    why = "kinds of some groups are not clear: they stand under their own names" if unsure else None
    stated = [r for r in sure if r.confidence == "stated"]
    for axes in (sure, stated):
        # two kinds may share their ranks (messages beside gradients): then only what the source states spans the grid
        listed_rows = {**named, **_by_kind([r for r in sure if r not in axes])}
        sized = _sized(axes, ranks, gpus_per_node, listed_rows)
        if sized is not None:
            return sized, why
    named.update(_by_kind(sure))
    listed = "the groups form no grid of sizes: they are listed one by one" if sure else None
    return Layout(gpus_per_node=gpus_per_node, explicit=named), "; ".join(x for x in (why, listed) if x) or None


def _by_kind(rows: list[InferredGroups]) -> dict[str, tuple[int, ...]]:
    """Groups named by their kind, in order of their ranks."""
    out = {}
    for kind in KINDS:
        for i, members in enumerate(sorted({g.members for r in rows if r.kind == kind for g in r.groups})):
            out[f"{kind.upper()} Group {i}"] = members
    return out


def _sized(
    sure: list[InferredGroups], ranks: frozenset[int], gpus_per_node: int | None, named: dict[str, tuple[int, ...]]
) -> Layout | None:
    by_kind = {r.kind: r for r in sure}
    if not sure or len(by_kind) < len(sure) or any(r.stride is None for r in sure):
        return None
    kinds = sorted(by_kind, key=lambda k: (by_kind[k].stride or 0, KINDS.index(k)))
    clear = {name: m for name, m in named.items() if not any(name.upper().startswith(f"{k.upper()} GROUP ") for k in kinds)}
    for order in (DEFAULT_ORDER, (*kinds, *(k for k in KINDS if k not in kinds))):
        try:
            layout = Layout(**{k: r.size for k, r in by_kind.items()}, order=order, gpus_per_node=gpus_per_node, explicit=clear)  # type: ignore[arg-type]
        except (InputError, LimitError):
            return None
        matches = all({g.members for g in r.groups} <= {g.members for g in layout.groups(k)} for k, r in by_kind.items())
        if matches and ranks == frozenset(range(layout.sized_world)):
            return layout
    return None


def _add(named: dict[str, tuple[int, ...]], name: str, members: tuple[int, ...]) -> None:
    """Keep a group under its name, numbered where the name is taken by other ranks."""
    i, free = 1, name
    while free in named and named[free] != members:
        i += 1
        free = f"{name} #{i}"
    named[free] = members
