"""What a replay runs: distinct steps, and the order and timing in which they come, expanded one call at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.fields import split_trace
from commcanary_lab.canary.grammar import Grammar
from commcanary_lab.canary.model import Canary
from commcanary_lab.canary.streams import BoundedStream
from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.trace.ops import ALL_TO_ALL_V, OPS

if TYPE_CHECKING:
    from commcanary_lab.trace.columns import Ragged
    from commcanary_lab.trace.model import Trace

__all__ = ["MESSAGES", "ROOTED", "RUNNABLE", "Call", "Program", "Step", "walk"]

IntArray = npt.NDArray[np.int64]

#: One sender, one receiver.
MESSAGES = frozenset({"send", "recv", "point_to_point"})
#: Operations with a root.
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
#: What a replay can run: the vocabulary, and the collectives beyond it that torch.distributed has.
RUNNABLE = OPS | {ALL_TO_ALL_V, "reduce", "gather", "scatter", "barrier", "monitored_barrier"}


@dataclass(frozen=True)
class Step:
    """One distinct thing to run. Ranks are those of the replay, 0 to n - 1.

    Parameters
    ----------
    op : str
        Operation, one of `RUNNABLE`.
    members : tuple of int
        Ranks of the process group, ascending.
    size_bytes : int
        B, the "size" of nccl-tests.
    dtype, reduction, phase : str, optional
        As the source says; None where it does not.
    root, sender, receiver : int, optional
        Ranks, where the operation has them.
    splits : tuple of tuple of int, optional
        Uneven all-to-all: bytes that member i sends to member j.
    places : tuple of int
        Where the members stand in the source's group, for what the source says per member.
    source_size : int
        Ranks of the source's group.
    """

    op: str
    members: tuple[int, ...]
    size_bytes: int
    dtype: str | None = None
    reduction: str | None = None
    phase: str | None = None
    root: int | None = None
    sender: int | None = None
    receiver: int | None = None
    splits: tuple[tuple[int, ...], ...] | None = None
    places: tuple[int, ...] = ()
    source_size: int = 0

    def arrivals(self, row: npt.NDArray[np.int64]) -> tuple[int, ...]:
        """Return the arrival offset of each member from a row of the source; nothing where it has no offset per member."""
        return tuple(row[list(self.places)].tolist()) if len(row) == self.source_size > 1 else ()

    @property
    def participants(self) -> tuple[int, ...]:
        """Ranks that take part: the members, or the two ends of a message."""
        if self.op in MESSAGES:
            assert self.sender is not None and self.receiver is not None
            return tuple(sorted({self.sender, self.receiver}))
        return self.members

    def payload_bytes(self, rank: int) -> int:
        """Return B as the rank sees it: for an uneven all-to-all the larger of what it sends and receives.

        Examples
        --------
        >>> step = Step("all_to_all_v", (0, 1), 24, splits=((8, 16), (0, 4)))
        >>> step.payload_bytes(0), step.payload_bytes(1)
        (24, 20)
        """
        if rank not in self.participants:
            return 0
        if self.splits is None:
            return self.size_bytes
        at = self.members.index(rank)
        return max(sum(self.splits[at]), sum(row[at] for row in self.splits))


@dataclass(frozen=True, slots=True)
class Call:
    """One execution of a step.

    Parameters
    ----------
    event : int
        Number of the event in the program, from 0.
    step : int
        The step.
    due_ns : int
        When it starts, from the start of the program; 0 when timing is not asked for.
    arrival_ns : tuple of int
        Per member of the source's group that replays: how long after the first rank it arrives; empty where unknown.
    overlap_ns : int
        Compute that runs beside it.
    """

    event: int
    step: int
    due_ns: int = 0
    arrival_ns: tuple[int, ...] = ()
    overlap_ns: int = 0


@dataclass(frozen=True, eq=False)
class Program:
    """A canary's program, or a trace, as a replay runs it.

    Attributes
    ----------
    steps : tuple of Step
        Distinct steps; those that do not run here are None.
    ranks : tuple of int
        Global rank of the source behind each rank of the replay.
    source_ranks : int
        Ranks of the source's program.
    events : int
        Events of the source's program, those that do not run included.
    dropped : mapping of str to int
        Events that do not run here, by reason.
    notes : tuple of str
        Notes of the source, and what a replay on fewer ranks means.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> program = Program.of(lab.compile(lab.samples.gloo4()))
    >>> program.size, program.events, program.counts(rank=0)["all_reduce"]
    (4, 252, 100)
    >>> next(program.calls()).event
    0
    """

    steps: tuple[Step | None, ...]
    ranks: tuple[int, ...]
    source_ranks: int
    events: int
    _source: _Source
    dropped: dict[str, int]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: Canary | Trace, ranks: int | None = None, *, skip_unsupported: bool = False) -> Program:
        """Return the program of a canary or of a trace.

        Parameters
        ----------
        source : Canary or Trace
            What to run.
        ranks : int, optional
            Run the part of the job that its first `ranks` ranks see: groups keep their members among them, the sizes stay, and what
            leaves less than two ranks does not run. By default all ranks.
        skip_unsupported : bool
            Leave out operations that no backend has, instead of refusing them.

        Raises
        ------
        UsageError
            If there are less ranks, or none.
        RefusedError
            If an operation cannot be run: unknown to torch.distributed, without root or peer, with unknown splits.
        """
        inner = _CanarySource(source) if isinstance(source, Canary) else _TraceSource(source)
        signatures = inner.signatures
        everyone = tuple(sorted({r for g in np.unique(signatures.group).tolist() for r in signatures.groups[g].members}))
        if not everyone:
            raise RefusedError("there is nothing to run: no event has a process group", remedy="open a trace with communication")
        n = len(everyone) if ranks is None else ranks
        if not 1 <= n <= len(everyone):
            raise UsageError(f"the program has {len(everyone)} ranks, {n} cannot run it", remedy=f"choose 1 to {len(everyone)}")
        kept = everyone[:n]
        builder = _Builder(signatures, inner.splits, kept, whole=n == len(everyone), skip=skip_unsupported)
        steps = tuple(builder.step(signature, split) for signature, split in inner.kinds)
        dropped: Counter[str] = Counter()
        for number, times in enumerate(inner.counts):
            if steps[number] is None:
                dropped[builder.reasons[number]] += times
        if sum(dropped.values()) == inner.events:
            raise RefusedError(f"nothing of the program runs on {n} ranks: {', '.join(dropped)}", remedy="choose more ranks")
        notes = list(source.notes)
        if n < len(everyone):
            notes.append(f"restricted to the first {n} of {len(everyone)} ranks: groups keep their members among them, sizes stay")
        return cls(steps, kept, len(everyone), inner.events, inner, dict(dropped), tuple(notes))

    @property
    def size(self) -> int:
        """Ranks that the replay needs."""
        return len(self.ranks)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Distinct process groups that need to be made, in order of first use; the group of all ranks is not among them."""
        world = tuple(range(self.size))
        found = dict.fromkeys(s.members for s in self.steps if s is not None and s.op not in MESSAGES)
        found.pop(world, None)
        return tuple(found)

    @property
    def runs(self) -> int:
        """Events that run here."""
        return self.events - sum(self.dropped.values())

    def calls(self, *, timing: bool = False) -> Iterator[Call]:
        """Yield the events that run here, in order, with their timing where it is asked for.

        Without timing nothing but the loop nest is held; with it, one number per event and field.
        """
        return self._source.calls(self.steps, timing)

    def counts(self, rank: int) -> dict[str, int]:
        """Return how many events of each operation the rank takes part in."""
        return self._total(rank, lambda step: 1)

    def payload(self, rank: int) -> dict[str, int]:
        """Return the bytes of each operation at the rank: B summed over its events."""
        return self._total(rank, lambda step: step.payload_bytes(rank))

    def _total(self, rank: int, value: object) -> dict[str, int]:
        out: Counter[str] = Counter()
        for step, times in zip(self.steps, self._source.counts, strict=True):
            if step is not None and rank in step.participants:
                out[step.op] += times * value(step)  # type: ignore[operator]
        return dict(sorted(out.items()))


def walk(grammar: Grammar) -> Iterator[int]:
    """Yield the symbols of a program one by one; memory grows with the depth of the nest only.

    Examples
    --------
    >>> list(walk(Grammar.from_rules([[(-1, 2), (7, 1)], [(3, 1), (4, 2)]])))
    [3, 4, 4, 3, 4, 4, 7]
    """
    bodies = [grammar.rule(r).items for r in range(grammar.rule_count)]
    stack: list[Iterator[tuple[int, int]]] = [iter(bodies[0])]
    while stack:
        item = next(stack[-1], None)
        if item is None:
            stack.pop()
            continue
        value, count = item
        if value >= 0:
            for _ in range(count):
                yield value
        else:
            stack.append(_repeat(bodies[-value], count))


def _repeat(body: tuple[tuple[int, int], ...], count: int) -> Iterator[tuple[int, int]]:
    for _ in range(count):
        yield from body


class _Source:
    """The order of a program's kinds, a kind being a signature with one list of splits."""

    signatures: Trace
    splits: Ragged
    events: int
    kinds: list[tuple[int, int]]
    counts: list[int]

    def calls(self, steps: tuple[Step | None, ...], timing: bool) -> Iterator[Call]:
        raise NotImplementedError


class _CanarySource(_Source):
    def __init__(self, canary: Canary) -> None:
        self.canary = canary
        self.signatures, self.splits, self.events = canary.signatures, canary.splits, canary.event_count
        self._known: dict[tuple[int, int], int] = {}
        self.counts = []
        #: Per step of the canary: its kind where its splits never change, otherwise one kind per execution.
        self._kind: list[int | IntArray] = []
        for stream, signature, pattern in zip(canary.streams, canary.step_signature.tolist(), canary.step_pattern.tolist(), strict=True):
            split = (stream.exact if isinstance(stream, BoundedStream) else stream.scalars).get("split")
            if split is None or "split" not in canary.patterns[pattern]:
                self._kind.append(self._code(signature, -1, stream.rows))
            else:
                codes, times = np.unique(split, return_counts=True)
                table = {s: self._code(signature, s, t) for s, t in zip(codes.tolist(), times.tolist(), strict=True)}
                self._kind.append(np.array([table[s] for s in split.tolist()], np.int64))
        self.kinds = list(self._known)

    def _code(self, signature: int, split: int, times: int) -> int:
        code = self._known.setdefault((signature, split), len(self._known))
        if code == len(self.counts):
            self.counts.append(0)
        self.counts[code] += times
        return code

    def calls(self, steps: tuple[Step | None, ...], timing: bool) -> Iterator[Call]:
        at = [0] * len(self._kind)
        streams = [s.expanded() for s in self.canary.streams] if timing else []
        due = 0
        for event, number in enumerate(walk(self.canary.program)):
            kinds, i = self._kind[number], at[number]
            at[number] = i + 1
            kind = kinds if isinstance(kinds, int) else int(kinds[i])
            if timing:
                stream = streams[number]
                due += int(stream.gap_ns[i]) if event else 0
            if (step := steps[kind]) is None:
                continue
            if not timing:
                yield Call(event, kind)
                continue
            overlap = int(stream.scalars["overlap_ns"][i]) if "overlap_ns" in stream.scalars else 0
            yield Call(event, kind, due, step.arrivals(stream.arrival_ns[i]), overlap)


class _TraceSource(_Source):
    def __init__(self, trace: Trace) -> None:
        fields = split_trace(trace)
        self.fields = fields
        self.signatures, self.splits, self.events = fields.signatures, fields.splits, len(trace)
        split = np.full(self.events, -1, np.int64)
        if "split" in fields.scalars:
            has = np.array(["split" in p for p in fields.patterns], np.bool_)[fields.pattern]
            split = np.where(has, fields.scalars["split"], -1)
        width = len(fields.splits) + 1
        codes, self.kind, times = np.unique(fields.signature * width + split + 1, return_inverse=True, return_counts=True)
        self.kinds = [(int(c) // width, int(c) % width - 1) for c in codes]
        self.counts = times.tolist()

    def calls(self, steps: tuple[Step | None, ...], timing: bool) -> Iterator[Call]:
        kinds = self.kind.reshape(-1).tolist()
        f = self.fields
        due = np.cumsum(f.gap_ns) - (f.gap_ns[0] if len(f.gap_ns) else 0)
        overlap = f.scalars.get("overlap_ns")
        for event, kind in enumerate(kinds):
            if (step := steps[kind]) is None:
                continue
            if not timing:
                yield Call(event, kind)
                continue
            beside = int(overlap[event]) if overlap is not None else 0
            yield Call(event, kind, int(due[event]), step.arrivals(f.arrival.row(event)), beside)


class _Builder:
    """Makes steps from signatures."""

    def __init__(self, signatures: Trace, splits: Ragged, kept: tuple[int, ...], *, whole: bool, skip: bool) -> None:
        self.t, self.splits, self.whole, self.skip = signatures, splits, whole, skip
        self.place = {rank: i for i, rank in enumerate(kept)}
        self.op, self.dtype = signatures.op.to_list(), signatures.dtype.to_list()
        self.reduction, self.phase = signatures.reduction.to_list(), signatures.phase.to_list()
        self.reasons: list[str] = []

    def step(self, signature: int, split: int) -> Step | None:
        reason = ""
        try:
            step = self._step(signature, split)
        except RefusedError as error:
            if not self.skip:
                raise
            step, reason = None, error.problems[0].what
        if step is None and not reason:
            reason = "less than two of its ranks are replayed"
        self.reasons.append(reason)
        return step

    def _step(self, i: int, split: int) -> Step | None:
        op = str(self.op[i])
        if op not in RUNNABLE:
            raise _refused(f"operation {op!r} cannot be run: torch.distributed has no such collective")
        source = self.t.groups[self.t.group[i]].members
        members = tuple(self.place[r] for r in source if r in self.place)
        places = tuple(j for j, r in enumerate(source) if r in self.place)
        base = Step(
            op, members, int(self.t.size_bytes[i]), self.dtype[i], self.reduction[i], self.phase[i], places=places, source_size=len(source)
        )  # fmt: skip
        if op in MESSAGES:
            return self._message(base, i)
        if len(members) < (1 if self.whole else 2):
            return None
        if op in ROOTED:
            return self._rooted(base, i)
        if op == ALL_TO_ALL_V:
            return self._uneven(base, i, source, split)
        return base

    def _rooted(self, step: Step, i: int) -> Step | None:
        if not self.t.root.mask[i]:
            raise _refused(f"a {step.op} without a root cannot be run")
        root = self.place.get(int(self.t.root.values[i]))
        return None if root is None else replace(step, root=root)

    def _message(self, step: Step, i: int) -> Step | None:
        if not (self.t.sender.mask[i] and self.t.receiver.mask[i]):
            raise _refused(f"a {step.op} without sender and receiver cannot be run")
        sender, receiver = (self.place.get(int(c.values[i])) for c in (self.t.sender, self.t.receiver))
        if sender is None or receiver is None:
            return None
        if sender == receiver:
            raise _refused(f"a message of rank {sender} to itself cannot be run")
        return replace(step, sender=sender, receiver=receiver)

    def _uneven(self, step: Step, i: int, source: tuple[int, ...], split: int) -> Step:
        matrix = _split_matrix(self.splits.row(split), source, self._observers(i, source)) if split >= 0 else None
        if matrix is None or (matrix < 0).any():
            raise _refused("an uneven all-to-all whose splits are not all known cannot be run")
        at = [j for j, r in enumerate(source) if r in self.place]
        part = matrix[np.ix_(at, at)]
        size = int(max(part.sum(axis=0).max(), part.sum(axis=1).max())) if not self.whole else step.size_bytes
        return replace(step, size_bytes=size, splits=tuple(tuple(row) for row in part.tolist()))

    def _observers(self, i: int, source: tuple[int, ...]) -> tuple[int, ...]:
        code = int(self.t.observers[i])
        return source if code < 0 else self.t.rank_sets[code]


def _split_matrix(row: npt.NDArray[np.int64], members: tuple[int, ...], observers: tuple[int, ...]) -> IntArray | None:
    """Bytes from member to member, -1 where neither end says; each observer has its totals, what it sent and what it received."""
    k = len(members)
    if len(row) != len(observers) * (2 + 2 * k):
        return None
    out = np.full((k, k), -1, np.int64)
    for rank, line in zip(observers, row.reshape(len(observers), 2 + 2 * k), strict=True):
        at = members.index(rank)
        sent, received = line[2 : 2 + k], line[2 + k :]
        out[at] = np.where(sent >= 0, sent, out[at])
        out[:, at] = np.where((received >= 0) & (out[:, at] < 0), received, out[:, at])
    return out


def _refused(what: str) -> RefusedError:
    return RefusedError(what, remedy="leave such events out with --skip-unsupported, which lists them")
