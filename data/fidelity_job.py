"""The programs of the decision-fidelity campaign: a small training job, one collective alone, and a sweep of sizes.

The job: four ranks on two nodes of two. Tensor parallelism inside a node (ranks 0 1, 2 3), data parallelism across (0 2, 1 3). A step
is eight layers forward and backward with one tensor-parallel all-reduce each, an all-gather of the logits in between, two buckets of
gradients over the data-parallel groups, and the loss over all ranks. Six steps make 234 events, 120 on each rank.

Sizes and rates are chosen so that a collective takes milliseconds: with more processes than cores, anything shorter drowns in the ticks
of the scheduler. Standard library only; the same bytes every time.
"""

from __future__ import annotations

from sample_json import pick

__all__ = ["isolated", "job", "step_range", "sweep"]

KIB = 1024
RANKS = 4
TP = ((0, 1), (2, 3))
DP = ((0, 2), (1, 3))
WORLD = (0, 1, 2, 3)
STEPS, LAYERS = 6, 8
TP_BYTES, LOGIT_BYTES, LOSS_BYTES = 64 * KIB, 32 * KIB, 4 * KIB
BUCKETS = (128 * KIB, 96 * KIB)
SWEEP_BYTES = (48 * KIB, 64 * KIB, 96 * KIB, 128 * KIB, 192 * KIB)


def _event(op: str, size: int, members: tuple[int, ...], phase: str, key: tuple[object, ...], gap_us: float) -> dict[str, object]:
    late = [pick(0, 60_000, "arrival", *key, r) for r in members]
    kind = "world" if members == WORLD else "tp" if members in TP else "dp"
    event: dict[str, object] = {
        "op": op, "bytes": size, "group": kind if members == WORLD else f"{kind}{members[0]}", "ranks": list(members), "phase": phase,
        "dtype": "float32", "gap_us": gap_us, "rank_arrival_us": [(t - min(late)) / 1000 for t in late], "compute_overlap_us": 0.0,
    }  # fmt: skip
    if op == "all_reduce":
        event["reduction_op"] = "sum"
    return event


def _pair(
    op: str, size: int, groups: tuple[tuple[int, ...], ...], phase: str, key: tuple[object, ...], gap: int
) -> list[dict[str, object]]:  # fmt: skip
    """The groups of one kind do the same at nearly the same time."""
    first = (gap + pick(0, gap // 8, "gap", *key)) / 1000
    between = pick(2_000, 30_000, "between", *key) / 1000
    return [_event(op, size, g, phase, (*key, i), between if i else first) for i, g in enumerate(groups)]


def _step(step: int) -> list[dict[str, object]]:
    events = []
    for layer in range(LAYERS):
        events += _pair("all_reduce", TP_BYTES, TP, "forward", (step, "f", layer), 900_000)
    events += _pair("all_gather", LOGIT_BYTES, TP, "forward", (step, "logits"), 600_000)
    for layer in range(LAYERS):
        events += _pair("all_reduce", TP_BYTES, TP, "backward", (step, "b", layer), 1_700_000)
    for number, size in enumerate(BUCKETS):
        events += _pair("all_reduce", size, DP, "gradients", (step, "g", number), 400_000)
    return [*events, _event("all_reduce", LOSS_BYTES, WORLD, "loss", (step, "loss"), 150.0)]


def _document(name: str, notes: str, events: list[dict[str, object]]) -> dict[str, object]:
    return {
        "format": "commcanary.trace.v1",
        "workload": {"name": name, "notes": f"Synthetic. {notes}", "origin": "synthetic: data/fidelity_job.py"},
        "system": {"backend": "synthetic", "world_size": RANKS},
        "events": [{"id": f"e{i}", **e} for i, e in enumerate(events)],
    }


def job() -> dict[str, object]:
    """Return the trace of the job."""
    notes = f"{STEPS} training steps of a job with tensor parallelism in pairs and data parallelism across."
    return _document("fidelity-job", notes, [e for s in range(STEPS) for e in _step(s)])


def step_range(step: int) -> tuple[int, int]:
    """Return which events of the job are a step, half-open."""
    width = len(_step(0))
    return step * width, (step + 1) * width


def isolated() -> dict[str, object]:
    """Return the dominant collective of the job alone in a loop: the all-reduce, on all ranks, each size as often as in a step."""
    sizes = [int(str(e["bytes"])) for e in _step(0) if e["op"] == "all_reduce" and 0 in e["ranks"] and len(e["ranks"]) == 2]  # type: ignore[operator, arg-type]
    events = [_event("all_reduce", size, WORLD, "loop", ("isolated", i), 500.0) for i, size in enumerate(sorted(sizes))]
    return _document("isolated-all-reduce", "One all-reduce over all ranks after the other.", events)


def sweep() -> dict[str, object]:
    """Return an all-reduce of several sizes on the groups of the job, those of one kind at once, as the job has them."""
    events = []
    for size in SWEEP_BYTES:
        for groups in (TP, DP):
            events += _pair("all_reduce", size, groups, "sweep", ("sweep", size, len(events)), 500_000)
    return _document("sweep", "An all-reduce of several sizes on the groups of the job.", events)
