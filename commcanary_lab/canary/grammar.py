"""Loop nests as a grammar: rule 0 is the program, every other rule is a loop body that the program repeats or shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commcanary_lab import limits
from commcanary_lab.errors import InputError, LimitError

__all__ = ["Grammar", "Leaves", "Rule", "expand", "expanded_length", "leaf_occurrences"]

#: Symbols above this would make the per-symbol tables larger than any trace has signatures.
MAX_SYMBOL = 1 << 26
MAX_COUNT = 1 << 62


@dataclass(frozen=True)
class Rule:
    """One rule body: items run in order, each `count` times.

    Parameters
    ----------
    items : tuple of (int, int)
        Pairs (value, count). A value >= 0 is a terminal symbol; ``-r`` refers to rule r.
    """

    items: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Grammar:
    """A program as shared loop bodies, in columns.

    Parameters
    ----------
    values : int32 (items,)
        A value >= 0 is a terminal symbol; ``-r`` refers to rule r >= 1.
    counts : int64 (items,)
        How often each item repeats, >= 1.
    row_ptr : int64 (rules + 1,)
        The items of rule r are ``row_ptr[r]:row_ptr[r + 1]``. Rule 0 is the program.

    Raises
    ------
    InputError
        On columns that do not fit together, a reference to a rule that does not exist, a count below 1, an empty loop body,
        a rule that contains itself, or one that the program never reaches.

    Examples
    --------
    >>> g = Grammar.from_rules([[(-1, 2), (7, 1)], [(3, 1), (4, 5)]])
    >>> print(g.text())
    R0 = R1^2 7
    R1 = 3 4^5
    >>> expand(g).tolist()
    [3, 4, 4, 4, 4, 4, 3, 4, 4, 4, 4, 4, 7]
    """

    values: NDArray[np.int32]
    counts: NDArray[np.int64]
    row_ptr: NDArray[np.int64]

    def __post_init__(self) -> None:
        self._check_columns()
        for name, dtype in (("values", np.int32), ("counts", np.int64), ("row_ptr", np.int64)):
            column = np.array(getattr(self, name), dtype)
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        _ = self._order  # refuses cycles and unused rules

    def _check_columns(self) -> None:
        columns: list[NDArray[Any]] = [np.asarray(c) for c in (self.values, self.counts, self.row_ptr)]
        values, counts, row_ptr = columns
        remedy = "the program is damaged; compile the canary again"
        for name, column in zip(("values", "counts", "row_ptr"), columns, strict=True):
            if column.ndim != 1 or (column.size and column.dtype.kind not in "iu"):
                raise InputError(f"program column {name} is not a list of whole numbers", field=name, remedy=remedy)
        if (
            row_ptr.size < 2
            or row_ptr[0] != 0
            or row_ptr[-1] != values.size
            or values.size != counts.size
            or (row_ptr[1:] < row_ptr[:-1]).any()
        ):
            raise InputError(
                f"program columns do not fit together: {values.size} values, {counts.size} counts, {row_ptr.size} row pointers",
                field="row_ptr",
                remedy=remedy,
            )
        rules = row_ptr.size - 1
        bad = np.flatnonzero((values <= -rules) | (values > MAX_SYMBOL))
        if bad.size:
            raise InputError(
                f"program item {bad[0]} is {values[bad[0]]}, neither a symbol (0 to {MAX_SYMBOL}) nor one of {rules - 1} loop bodies",
                field="values",
                remedy=remedy,
            )
        bad = np.flatnonzero((counts < 1) | (counts > MAX_COUNT))
        if bad.size:
            raise InputError(
                f"program item {bad[0]} repeats {counts[bad[0]]} times, not between 1 and 2**62", field="counts", remedy=remedy
            )
        bad = np.flatnonzero(row_ptr[2:] == row_ptr[1:-1])
        if bad.size:
            raise InputError(f"loop body {bad[0] + 1} is empty", field="row_ptr", remedy=remedy)

    @classmethod
    def from_rules(cls, rules: Sequence[Sequence[tuple[int, int]]]) -> Grammar:
        """Build a grammar from one list of (value, count) pairs per rule."""
        flat = [pair for rule in rules for pair in rule]
        return cls(
            np.array([v for v, _ in flat], np.int64),
            np.array([c for _, c in flat], np.int64),
            np.cumsum([0, *(len(rule) for rule in rules)], dtype=np.int64),
        )

    @property
    def rule_count(self) -> int:
        """Number of rules, the program included."""
        return self.row_ptr.size - 1

    @property
    def item_count(self) -> int:
        """Number of items in all rules."""
        return self.values.size

    def rule(self, index: int) -> Rule:
        """Return rule `index` as pairs."""
        part = slice(self.row_ptr[index], self.row_ptr[index + 1])
        return Rule(tuple(zip(self.values[part].tolist(), self.counts[part].tolist(), strict=True)))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules as pairs (slow for millions of items; use the columns)."""
        return tuple(self.rule(r) for r in range(self.rule_count))

    def text(self, names: Sequence[str] | None = None) -> str:
        """Return the grammar as one line per rule, with `names` for the symbols."""
        lines = []
        for index, rule in enumerate(self.rules):
            words = []
            for value, count in rule.items:
                word = f"R{-value}" if value < 0 else names[value] if names is not None else str(value)
                words.append(word if count == 1 else f"{word}^{count}")
            lines.append(" ".join([f"R{index} =", *words]))
        return "\n".join(lines)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grammar):
            return NotImplemented
        return (
            np.array_equal(self.values, other.values)
            and np.array_equal(self.counts, other.counts)
            and np.array_equal(self.row_ptr, other.row_ptr)
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """Reachable rules, children first."""
        from commcanary_lab.canary.grammar_kernels import post_order

        order, cycle = post_order(self.values, self.row_ptr)
        remedy = "the program is damaged; compile the canary again"
        if cycle >= 0:
            raise InputError(f"loop body {cycle} contains itself", field="values", remedy=remedy)
        if order.size < self.rule_count:
            unused = np.setdiff1d(np.arange(self.rule_count), order)[0]
            raise InputError(f"loop body {unused} is never used by the program", field="values", remedy=remedy)
        return order

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        """Expanded length per rule, -1 beyond int64."""
        from commcanary_lab.canary.grammar_kernels import lengths

        return lengths(self.values, self.counts, self.row_ptr, self._order)


def expanded_length(grammar: Grammar) -> int:
    """Return how many events the program runs; exact however large, nothing is allocated.

    Examples
    --------
    >>> expanded_length(Grammar.from_rules([[(-1, 10**9)], [(-2, 10**9)], [(0, 10**9)]]))
    1000000000000000000000000000
    """
    if grammar._lengths[0] >= 0:
        return int(grammar._lengths[0])
    total = [0] * grammar.rule_count
    for r in grammar._order.tolist():
        total[r] = sum(count * (total[-value] if value < 0 else 1) for value, count in grammar.rule(r).items)
    return total[0]


def _check_length(grammar: Grammar, max_events: int | None) -> None:
    allowed = limits.DEFAULT.max_events if max_events is None else max_events
    length = expanded_length(grammar)
    if length > allowed:
        raise LimitError(
            f"the program runs {length} events, above the limit of {allowed}", remedy="raise it with COMMCANARY_LAB_MAX_EVENTS"
        )


def expand(grammar: Grammar, max_events: int | None = None) -> NDArray[np.int32]:
    """Return the symbols that the program runs, in order.

    Parameters
    ----------
    grammar : Grammar
    max_events : int, optional
        Refuse longer programs before anything is allocated; default ``limits.DEFAULT.max_events``.

    Returns
    -------
    int32 (events,)

    Raises
    ------
    LimitError
        The program is longer than `max_events`.

    Examples
    --------
    >>> expand(Grammar.from_rules([[(-1, 3)], [(0, 1), (1, 2)]])).tolist()
    [0, 1, 1, 0, 1, 1, 0, 1, 1]
    """
    from commcanary_lab.canary.grammar_kernels import expand_items

    _check_length(grammar, max_events)
    return expand_items(grammar.values, grammar.counts, grammar.row_ptr, grammar._lengths, grammar.values)


@dataclass(frozen=True, eq=False)
class Leaves:
    """The steps of a program: every terminal position of a repeated body, and one per symbol of the straight-line code.

    Parameters
    ----------
    event_leaf : int32 (events,)
        Leaf behind each event, in program order.
    symbol : int32 (leaves,)
        Symbol of each leaf.
    rule, item : int64 (leaves,)
        Where the leaf stands; for a leaf that straight-line code shares, its first place.
    repeated : bool (leaves,)
        Whether the leaf is a position in a body that runs more than once.
    item_leaf : int32 (items,)
        Leaf of each item of the grammar, -1 for references.
    """

    event_leaf: NDArray[np.int32]
    symbol: NDArray[np.int32]
    rule: NDArray[np.int64]
    item: NDArray[np.int64]
    repeated: NDArray[np.bool_]
    item_leaf: NDArray[np.int32]


def leaf_occurrences(grammar: Grammar, max_events: int | None = None) -> Leaves:
    """Return which step every event of the program is.

    Each terminal position in a repeated rule is a leaf of its own; in rules that run once in the whole program, terminals with
    the same symbol share one. Leaves are numbered in rule order, then item order.

    Raises
    ------
    LimitError
        The program is longer than `max_events`.

    Examples
    --------
    >>> found = leaf_occurrences(Grammar.from_rules([[(5, 1), (-1, 2), (5, 1)], [(5, 1), (6, 1), (5, 1)]]))
    >>> found.event_leaf.tolist(), found.symbol.tolist(), found.repeated.tolist()
    ([0, 1, 2, 3, 1, 2, 3, 0], [5, 5, 6, 5], [False, True, True, True])
    """
    from commcanary_lab.canary.grammar_kernels import executed_once, expand_items, label_leaves

    _check_length(grammar, max_events)
    once = executed_once(grammar.values, grammar.counts, grammar.row_ptr, grammar._order)
    symbols = int(grammar.values.max(initial=-1)) + 1
    label, rule, item = label_leaves(grammar.values, grammar.row_ptr, once, max(symbols, 0))
    label.flags.writeable = False
    event_leaf = expand_items(grammar.values, grammar.counts, grammar.row_ptr, grammar._lengths, label)
    symbol = grammar.values[grammar.row_ptr[rule] + item]
    return Leaves(event_leaf, symbol, rule, item, ~once[rule], label)
