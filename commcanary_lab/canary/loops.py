"""Find the loop nests of a symbol sequence: any period, any depth, one shared rule per loop body."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commcanary_lab.canary.grammar import MAX_SYMBOL, Grammar, Leaves, Rule, expand, expanded_length, leaf_occurrences
from commcanary_lab.errors import InputError

__all__ = ["Grammar", "Leaves", "Rule", "expand", "expanded_length", "find_loops", "leaf_occurrences"]

#: A repeat is folded where it saves at least this many events: (count - 1) * period.
MIN_GAIN = 8
#: Rounds of folding; each sees what the last one folded. Only adversarial input gets here, at the price of a larger grammar.
MAX_ROUNDS = 64
_SEPARATOR = 1 << 40


def find_loops(symbols: NDArray[np.integer], min_gain: int = MIN_GAIN) -> Grammar:
    """Return the loop nests of a sequence as a grammar whose expansion is the sequence.

    Parameters
    ----------
    symbols : int (events,)
        Symbols >= 0, one per event.
    min_gain : int
        A repeat is folded where it saves at least this many events, ``(count - 1) * period``.

    Returns
    -------
    Grammar
        Rule 0 is the program; rules are numbered in the order in which the program first enters them. Equal bodies are one rule.

    Raises
    ------
    InputError
        `symbols` is not a one-dimensional array of whole numbers from 0 to 2**26.

    Notes
    -----
    Each round finds all maximal repeats of the current sequence (no period is tried or guessed, see `run_kernels`), takes
    non-overlapping ones by what they save once the shorter loops inside their bodies are folded (ties: smaller period,
    earlier), and replaces each by one composite symbol. The bodies join the next round, and rounds go on until nothing
    pays. Finally, stray copies of loop bodies (a loop that runs once somewhere) become references. All rotations of one body are
    folded at the same rotation, the one that suits most of its repeats. Time and memory are near-linear, the result is
    deterministic, and it is compared with the input before it is returned.

    Examples
    --------
    >>> names = "ABCDEF"
    >>> token = [0, 1, 2, 3] * 8 + [4]
    >>> print(find_loops(np.array([5] + token * 50 + [0, 1, 2, 3])).text(names))
    R0 = F R1^50 R2
    R1 = R2^8 E
    R2 = A B C D
    """
    raw = _checked(symbols)
    folder = _Folder(raw, min_gain)
    active = [0]
    for _ in range(MAX_ROUNDS):
        active = folder.fold_bodies(active)
        if not active:
            break
    grammar = folder.grammar()
    if not np.array_equal(expand(grammar, raw.size), raw):
        # only a collision of 61-bit hashes can bring us here; the flat program is always right
        grammar = Grammar(raw.astype(np.int32), np.ones(raw.size, np.int64), np.array([0, raw.size]))
    return grammar


def _checked(symbols: NDArray[np.integer]) -> NDArray[np.int64]:
    array = np.asarray(symbols)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"symbols are an array of {array.ndim} dimensions and type {array.dtype}", remedy="give a flat array of whole numbers"
        )
    bad = np.flatnonzero((array < 0) | (array > MAX_SYMBOL))
    if bad.size:
        raise InputError(
            f"symbol {array[bad[0]]} is not between 0 and {MAX_SYMBOL}", record=int(bad[0]), remedy="number the signatures from 0"
        )
    return np.ascontiguousarray(array, np.int64)


@dataclass
class _Body:
    """A rule while it is being folded: ids of its items, where each begins in the raw sequence, and its length in events."""

    ids: NDArray[np.int64]
    raw: NDArray[np.int64]
    events: int


@dataclass
class _Text:
    """Bodies laid end to end, each followed by a separator that nothing else equals."""

    ids: NDArray[np.int64]
    raw: NDArray[np.int64]
    expanded: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))


class _Folder:
    """State of one `find_loops`: the rules so far, and the composite symbols (rule or terminal, repeated) that stand for runs."""

    def __init__(self, raw: NDArray[np.int64], min_gain: int) -> None:
        from commcanary_lab.canary.run_kernels import prefix_hash

        self.min_gain = max(1, min_gain)
        self.terminals = int(raw.max(initial=-1)) + 1
        self.prefix, self.power = prefix_hash(raw)
        self.rules = [_Body(raw, np.arange(raw.size), raw.size)]
        self.rule_of: dict[int, int] = {}  # raw hash of a body -> rule
        self.composites: list[tuple[int, int, int]] = []  # value (terminal or -rule), count, events
        self.composite_of: dict[tuple[int, int], int] = {}
        self.rotation_of: dict[int, int] = {}  # key of a cyclic body -> the rotation all its runs use

    def fold_bodies(self, bodies: list[int]) -> list[int]:
        """Fold these rules' bodies once; return the rules that changed or appeared."""
        known = len(self.rules)
        folded = self._round(self._join(bodies))
        if folded is None:
            return []
        return self._split(bodies, folded) + list(range(known, len(self.rules)))

    def _join(self, bodies: list[int]) -> _Text:
        ids: list[NDArray[np.int64]] = []
        raw: list[NDArray[np.int64]] = []
        mark = np.zeros(1, np.int64)
        for k, r in enumerate(bodies):
            ids += [self.rules[r].ids, mark + (_SEPARATOR + k)]
            raw += [self.rules[r].raw, mark]
        return _Text(np.concatenate(ids), np.concatenate(raw))

    def _split(self, bodies: list[int], text: _Text) -> list[int]:
        ends = np.flatnonzero(text.ids >= _SEPARATOR)
        begin = 0
        changed = []
        for r, end in zip(bodies, ends.tolist(), strict=True):
            if end - begin < self.rules[r].ids.size:
                changed.append(r)
                self.rules[r] = _Body(text.ids[begin:end], text.raw[begin:end], self.rules[r].events)
            begin = end + 1
        return changed

    def _events(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Events that each id stands for; 0 for separators."""
        events = np.ones(ids.size, np.int64)
        folded = np.flatnonzero(ids >= self.terminals)
        if folded.size:
            table = np.array([c[2] for c in self.composites] + [0], np.int64)
            events[folded] = table[np.minimum(ids[folded] - self.terminals, table.size - 1)]
        return events

    def _round(self, text: _Text) -> _Text | None:
        """Fold the best non-overlapping repeats of the text once; None where nothing pays."""
        from commcanary_lab.canary import fold_kernels, run_kernels

        ids = text.ids
        text.expanded = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._events(ids))])
        prefix, power = run_kernels.prefix_hash(ids)
        runs = run_kernels.find_runs(ids, prefix, power, text.expanded, max(1, self.min_gain // 2))
        if runs.shape[0] == 0:
            return None
        runs = np.unique(runs, axis=0)  # sorted by period, start
        period, start, end = (np.ascontiguousarray(c) for c in runs.T)
        score, inside = fold_kernels.score_runs(period, start, end, ids.size)
        plain = np.concatenate([np.zeros(1, np.int64), np.cumsum(ids < self.terminals)])
        order = np.lexsort((start, period, -score))
        kept = fold_kernels.select_runs(order, period, start, end, self._segments(text, start), text.expanded, plain, self.min_gain)
        if kept.shape[0] == 0:
            return None
        begin, times = self._phases(ids, prefix, power, kept, inside)
        size = kept[:, 2]
        new_id = self._composites(text, begin, size, times)
        ids, raw = fold_kernels.fold(ids, text.raw, begin, begin + size * times, new_id)
        return _Text(ids, raw)

    def _segments(self, text: _Text, start: NDArray[np.int64]) -> NDArray[np.int64]:
        """Events of the whole body that each run lies in."""
        ends = np.flatnonzero(text.ids >= _SEPARATOR)
        events = np.diff(text.expanded[ends], prepend=0)
        return events[np.searchsorted(ends, start)]

    def _phases(
        self,
        ids: NDArray[np.int64],
        prefix: NDArray[np.int64],
        power: NDArray[np.int64],
        kept: NDArray[np.int64],
        inside: NDArray[np.int32],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        from commcanary_lab.canary import fold_kernels

        offset, key = fold_kernels.least_rotations(ids, prefix, power, kept)
        unique, group = np.unique(key, return_inverse=True)
        rotation = np.array([self.rotation_of.get(k, -1) for k in unique.tolist()], np.int64)
        begin, times = fold_kernels.choose_phases(kept, offset, group.astype(np.int64), rotation, inside)
        self.rotation_of.update(zip(unique.tolist(), rotation.tolist(), strict=True))
        return begin, times

    def _composites(self, text: _Text, begin: NDArray[np.int64], size: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the composite symbol of each folded run, creating rules for bodies not seen before."""
        from commcanary_lab.canary.fold_kernels import range_hashes

        raw_begin = text.raw[begin]
        events = text.expanded[begin + size] - text.expanded[begin]
        body = range_hashes(self.prefix, self.power, raw_begin, raw_begin + events)
        pairs, first, group = np.unique(np.stack([body, times]), axis=1, return_index=True, return_inverse=True)
        made = np.empty(first.size, np.int64)
        for k in np.argsort(first, kind="stable").tolist():
            at = int(first[k])
            made[k] = self._composite(text, int(pairs[0, k]), int(begin[at]), int(size[at]), int(events[at]), int(times[at]))
        return made[group.reshape(-1)]

    def _composite(self, text: _Text, body: int, begin: int, size: int, events: int, times: int) -> int:
        if size == 1:
            item = int(text.ids[begin])
            if item < self.terminals:
                value = item
            else:  # the same folded loop again: longer
                value, count, _ = self.composites[item - self.terminals]
                times *= count
                events //= count
        else:
            rule = self.rule_of.get(body)
            if rule is None:
                rule = self.rule_of[body] = len(self.rules)
                self.rules.append(_Body(text.ids[begin : begin + size], text.raw[begin : begin + size], events))
            value = -rule
        known = self.composite_of.get((value, times))
        if known is None:
            known = self.composite_of[value, times] = self.terminals + len(self.composites)
            self.composites.append((value, times, events * times))
        return known

    def grammar(self) -> Grammar:
        """Return the rules as a grammar, stray bodies absorbed, numbered as the program enters them."""
        from commcanary_lab.canary.grammar_kernels import pre_order

        values, counts, row_ptr = self._absorbed()
        order = pre_order(values, row_ptr)
        number = np.zeros(row_ptr.size - 1, np.int64)
        number[order] = np.arange(order.size)
        negative = values < 0
        values[negative] = -number[-values[negative]]
        sizes = np.diff(row_ptr)[order]
        new_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        take = np.arange(new_ptr[-1]) - np.repeat(new_ptr[:-1] - row_ptr[order], sizes)
        return Grammar(values[take], counts[take], new_ptr)

    def _absorbed(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return (values, counts, row pointers) with stray copies of loop bodies replaced and neighbours merged."""
        from commcanary_lab.canary.fold_kernels import absorb

        text = np.concatenate([rule.ids for rule in self.rules])
        row_ptr = np.cumsum([0, *(rule.ids.size for rule in self.rules)])
        events = np.array([rule.events for rule in self.rules], np.int64)
        rule, item, row_ptr = absorb(text, row_ptr, events, self.min_gain // 2)
        stray = rule >= 0
        folded = ~stray & (item >= self.terminals)
        table = np.array([(value, count) for value, count, _ in self.composites] or [(0, 0)], np.int64)
        index = item[folded] - self.terminals
        values = np.where(stray, -rule, item)
        counts = np.where(stray, item, 1)
        values[folded] = table[index, 0]
        counts[folded] = table[index, 1]
        return _merged(values, counts, row_ptr)


def _merged(
    values: NDArray[np.int64], counts: NDArray[np.int64], row_ptr: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Join neighbouring references to one rule."""
    joins = np.zeros(values.size + 1, np.bool_)
    joins[1:-1] = (values[1:] == values[:-1]) & (values[1:] < 0)
    joins[row_ptr] = False
    keep = np.flatnonzero(~joins[: values.size])
    if keep.size == values.size:
        return values, counts, row_ptr
    kept_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(~joins[: values.size])])
    return values[keep], np.add.reduceat(counts, keep), kept_before[row_ptr]
