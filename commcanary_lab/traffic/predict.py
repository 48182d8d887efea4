"""Predicted traffic: what a model of a given shape should send under a given layout."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from commcanary_lab.errors import InputError, LimitError
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT
from commcanary_lab.trace import Coded, Column, GroupTable, ImportCoverage, ProcessGroup, Trace
from commcanary_lab.traffic.build import build_matrix
from commcanary_lab.traffic.matrix import TrafficMatrix
from commcanary_lab.traffic.model_shape import ModelShape

__all__ = ["predict", "predicted_trace"]

#: Operation, phase, group, B, how often, sender, receiver.
_Row = tuple[str, str, ProcessGroup, int, int, int, int]

FORMAT = "predicted"


def predict(layout: Layout, shape: ModelShape, **options: object) -> TrafficMatrix:
    """Return the predicted matrix; subtract it from an observed one.

    Parameters
    ----------
    layout : Layout
        Sizes of the parallelism dimensions.
    shape : ModelShape
        Model and step.
    **options
        As for `build_matrix`.

    Raises
    ------
    InputError, LimitError
        As `predicted_trace`.

    Examples
    --------
    >>> shape = ModelShape(hidden_size=4096, layers=6, sequence_length=8192, parameters=2**30, gradient_dtype="bfloat16")
    >>> m = predict(Layout(tp=4, dp=2), shape)
    >>> m.sum_bytes / 2**20, m.value(0, 1) / 2**20, m.value(0, 4) / 2**20
    (22528.0, 2304.0, 512.0)
    """
    return build_matrix(predicted_trace(layout, shape), layout=layout, **options)  # type: ignore[arg-type]


def predicted_trace(layout: Layout, shape: ModelShape) -> Trace:
    """Return the collectives of training steps, without times; phases ``tp``, ``cp``, ``ep``, ``pp`` and ``dp`` keep them apart.

    With e bytes per element, A = b s h e / cp the activations of a micro batch on a rank, m micro batches and L / pp layers per stage:

    ====  ========================================================================================================================
    tp    4 all-reduces of A per layer and micro batch: two forward, two backward (Narayanan et al., "Efficient large-scale language
          model training on GPU clusters using Megatron-LM", SC 2021, section 3.2); with sequence parallelism each is a reduce-scatter
          and an all-gather of A (Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022)
    pp    messages of A to the next stage and back, per micro batch; of A / tp with sequence parallelism, where each tensor-parallel
          rank sends its part (Narayanan et al., section 3.2.1, and the scatter/gather of section 4.1)
    cp    per layer and micro batch an all-gather of keys and values, 2 A cp kv_share forward and backward, and a reduce-scatter of
          their gradients (Llama Team, "The Llama 3 herd of models", 2024, section 3.3.2); both divided by tp
    ep    4 all-to-alls per layer with experts and micro batch: dispatch and combine, forward and backward; each rank sends top_k A,
          or top_k A / tp with sequence parallelism, spread evenly (Lepikhin et al., "GShard", 2020; Fedus et al., "Switch
          transformers", 2021). Real routing is uneven: the difference to what is observed shows it
    dp    once per step the gradients of the parameters of a rank, P / (tp pp), over the dp x cp ranks that hold the same; of its
          experts over those that hold the same experts. An all-reduce, or a reduce-scatter and an all-gather of the parameters
          (Rajbhandari et al., "ZeRO", 2020)
    ====  ========================================================================================================================

    Embeddings shared between the first and the last stage, losses and norms are left out: they are small.

    Raises
    ------
    InputError
        If layers, experts or the activations do not divide among the ranks, or the layout lists its groups without sizes.
    LimitError
        If a step has more events than `limits` allow.
    """
    _check(layout, shape)
    rows = [r for r in _rows(layout, shape) if r[2].size > 1 and r[3] > 0 and r[4] > 0]
    count = sum(r[4] for r in rows)
    if count > DEFAULT.max_events:
        raise LimitError(f"the prediction has {count:,} events", remedy="predict one step, or fewer micro batches")
    table = GroupTable()
    group = np.array([table.code(r[2].name, r[2].members) for r in rows], np.int32)
    times = np.array([r[4] for r in rows], np.int64)

    at = np.repeat(np.arange(len(rows)), times)
    sizes, sender, receiver = (np.array([r[i] for r in rows], np.int64)[at] for i in (3, 5, 6))
    return Trace.build(
        int(times.sum()),
        op=Coded.from_optional([r[0] for r in rows]).take(at),
        phase=Coded.from_optional([r[1] for r in rows]).take(at),
        groups=table.groups or (ProcessGroup("world", layout.ranks),),
        group=group[at],
        size_bytes=sizes,
        sender=Column(np.maximum(sender, 0), sender >= 0),
        receiver=Column(np.maximum(receiver, 0), receiver >= 0),
        coverage=ImportCoverage(int(times.sum()), int(times.sum()), ranks=layout.ranks),
        notes=("predicted from a layout and a model's shape: nothing of it was measured",),
        workload={"origin": "synthetic: predicted from layout and model shape"},
        source_format=FORMAT,
    )


def _rows(layout: Layout, s: ModelShape) -> Iterator[_Row]:
    a = s.activation_bytes // layout.cp
    per_stage, m = s.layers // layout.pp, s.micro_batches * s.steps
    for g in layout.groups("tp"):
        ops = ("reduce_scatter", "all_gather") if s.sequence_parallel else ("all_reduce",)
        for op in ops:
            yield (op, "tp", g, a, 4 * per_stage * m, -1, -1)
    for g in layout.groups("cp"):
        kv = round(2 * a * layout.cp * s.kv_share) // layout.tp
        yield ("all_gather", "cp", g, kv, 2 * per_stage * m, -1, -1)
        yield ("reduce_scatter", "cp", g, kv, per_stage * m, -1, -1)
    part = a // layout.tp if s.sequence_parallel else a
    for g in layout.groups("ep"):
        # experts are spread evenly over the stages that have them
        yield ("all_to_all", "ep", g, s.top_k * part, 4 * s.moe_layers * m // layout.pp, -1, -1)
    for g in layout.groups("pp"):
        for here, there in itertools.pairwise(g.members):  # ranks ascend with the stage in every order of the grid
            yield ("point_to_point", "pp", g, part, m, here, there)
            yield ("point_to_point", "pp", g, part, m, there, here)
    yield from _gradients(layout, s)


def _gradients(layout: Layout, s: ModelShape) -> Iterator[_Row]:
    ops = ("reduce_scatter", "all_gather") if s.sharded_gradients else ("all_reduce",)
    replicas = _replicas(layout)
    dense = s.dense_parameters * s.gradient_bytes // (layout.tp * layout.pp)
    for g in replicas:
        for op in ops:
            yield (op, "dp", g, dense, s.steps, -1, -1)
    if s.experts:
        own = s.expert_parameters * s.gradient_bytes // (layout.tp * layout.pp * layout.ep)
        for g in _expert_replicas(layout, replicas):
            for op in ops:
                yield (op, "dp", g, own, s.steps, -1, -1)


def _replicas(layout: Layout) -> list[ProcessGroup]:
    """Ranks that hold the same parameters: dp x cp."""
    if layout.cp == 1:
        return list(layout.groups("dp"))
    joined: dict[int, set[int]] = {}
    for g in (*layout.groups("cp"), *layout.groups("dp")):
        ranks = set(g.members).union(*(joined[r] for r in g.members if r in joined))
        joined.update(dict.fromkeys(ranks, ranks))
    found = sorted({tuple(sorted(ranks)) for ranks in joined.values()})
    return [ProcessGroup(f"DP-CP Group {i}", members) for i, members in enumerate(found)]


def _expert_replicas(layout: Layout, replicas: list[ProcessGroup]) -> list[ProcessGroup]:
    """Ranks that hold the same experts: those at equal positions of the expert groups among replicas."""
    if layout.ep == 1:
        return replicas
    home = {r: i for i, g in enumerate(replicas) for r in g.members}
    by_replica: dict[int, list[tuple[int, ...]]] = {}
    for g in layout.groups("ep"):
        by_replica.setdefault(home[g.members[0]], []).append(g.members)
    found = sorted(tuple(sorted(at)) for groups in by_replica.values() for at in zip(*groups, strict=True))
    return [ProcessGroup(f"Expert DP Group {i}", members) for i, members in enumerate(found)]


def _check(layout: Layout, s: ModelShape) -> None:
    if layout.explicit and layout.sized_world == 1:
        raise InputError("the layout lists its groups; a prediction needs the sizes", field="layout", remedy="give tp, pp, cp, ep and dp")
    parts = [
        ("layers", s.layers, layout.pp, "pipeline stages"),
        ("sequence_length", s.sequence_length, layout.cp, "context-parallel ranks"),
    ]
    if s.experts:
        parts.append(("experts", s.experts, layout.ep, "expert-parallel ranks"))
        parts.append(("expert_layers", s.moe_layers, layout.pp, "pipeline stages"))
    for field, value, among, what in parts:
        if value % among:
            raise InputError(f"{value} do not divide among {among} {what}", field=field, remedy="change the layout or the shape")
    if layout.ep > 1 and not s.experts:
        raise InputError(f"the layout has ep = {layout.ep}, the model no experts", field="experts", remedy="give the number of experts")
