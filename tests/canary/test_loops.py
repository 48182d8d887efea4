"""Loop nests: structure of known programs, exactness of any, refusal of hostile ones."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.canary import loops
from commcanary_lab.canary.loops import Grammar, expand, expanded_length, find_loops, leaf_occurrences
from commcanary_lab.errors import InputError, LimitError

NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def symbols(text: str) -> np.ndarray:
    return np.array([NAMES.index(c) for c in text], np.int64)


def shown(text: str, **options: int) -> list[str]:
    return find_loops(symbols(text), **options).text(NAMES).splitlines()


LAYERED = "ABCD" * 32 + "E"

KNOWN = {
    "one loop": ("ABCD" * 100, ["R0 = R1^100", "R1 = A B C D"]),
    "layers in tokens": (LAYERED * 100, ["R0 = R1^100", "R1 = R2^32 E", "R2 = A B C D"]),
    "three levels": ((("AB" * 5 + "C") * 4 + "D") * 3, ["R0 = R1^3", "R1 = R2^4 D", "R2 = R3^5 C", "R3 = A B"]),
    "two tokens": (LAYERED * 2, ["R0 = R1^2", "R1 = R2^32 E", "R2 = A B C D"]),
    "inner counts vary": ("ABCD" * 8 + "E" + "ABCD" * 7 + "E", ["R0 = R1^8 E R1^7 E", "R1 = A B C D"]),
    "inner counts alternate": (("ABCD" * 8 + "E" + "ABCD" * 7 + "E") * 9, ["R0 = R1^9", "R1 = R2^8 E R2^7 E", "R2 = A B C D"]),
    "prologue and epilogue": ("EFG" + "ABCD" * 10 + "GF", ["R0 = E F G R1^10 G F", "R1 = A B C D"]),
    "starts and ends mid-loop": (
        "CD" + "ABCD" * 10 + "E" + LAYERED * 99 + "ABCD" * 5 + "AB",
        ["R0 = C D R1^10 R2^99 E R1^5 A B", "R1 = A B C D", "R2 = E R1^32"],
    ),
    "a stray body is the loop, run once": ("ABCD" * 9 + "E" + "ABCD" + "E" + "ABCD" * 2, ["R0 = R1^9 E R1 E R1^2", "R1 = A B C D"]),
    "repeated symbols in the body": (("AABC" * 32 + "AG") * 50, ["R0 = R1^50", "R1 = R2^32 A G", "R2 = A A B C"]),
    "rotations share a rule": ("AB" * 30 + "C" + "BA" * 30, ["R0 = R1^30 C B R1^29 A", "R1 = A B"]),
    "a run needs no rule": ("A" * 20 + "B" + "AAA" + "B", ["R0 = A^20 B A A A B"]),
    "too short to pay": ("A" * 8 + "BCDBCD", ["R0 = A A A A A A A A B C D B C D"]),
    "just long enough": ("A" * 9, ["R0 = A^9"]),
    "empty": ("", ["R0 ="]),
}


@pytest.mark.parametrize(("text", "lines"), KNOWN.values(), ids=KNOWN.keys())
def test_known_programs(text: str, lines: list[str]) -> None:
    assert shown(text) == lines
    assert expand(find_loops(symbols(text))).tolist() == symbols(text).tolist()


def test_threshold_is_adjustable() -> None:
    assert shown("ABAB", min_gain=2) == ["R0 = R1^2", "R1 = A B"]
    assert shown("AB" * 10, min_gain=19) == ["R0 = " + " ".join("AB" * 10)]


@pytest.mark.parametrize("period", [1500, 5000])
@pytest.mark.parametrize("alphabet", [3, 70, 5000])
def test_long_bodies_run_twice(period: int, alphabet: int) -> None:
    body = np.random.default_rng(period + alphabet).integers(0, alphabet, period)
    grammar = find_loops(np.concatenate([[alphabet], body, body, [alphabet + 1]]))
    assert grammar.rule(0).items == ((alphabet, 1), (-1, 2), (alphabet + 1, 1))
    assert expand(grammar)[1 : period + 1].tolist() == body.tolist()


def test_random_sequences_are_left_alone() -> None:
    rng = np.random.default_rng(5)
    weights = rng.random(70) ** 2
    grammar = find_loops(rng.choice(70, 100_000, p=weights / weights.sum()))
    assert grammar.rule_count == 1
    assert grammar.item_count == 100_000


def test_rejects_what_is_no_sequence_of_symbols() -> None:
    for bad in (np.zeros((2, 2), np.int64), np.array([0.5]), np.array([1, -1]), np.array([1 << 40])):
        with pytest.raises(InputError):
            find_loops(bad)


# -- exactness -------------------------------------------------------------------------------------------------------------------

terminals = st.integers(0, 5)
programs = st.recursive(
    st.lists(st.tuples(terminals, st.just(1)), min_size=1, max_size=5),
    lambda bodies: st.lists(st.tuples(st.one_of(terminals, bodies), st.sampled_from([1, 1, 2, 3, 5, 8, 13])), min_size=1, max_size=4),
    max_leaves=12,
)


def run(program: list) -> list[int]:
    out: list[int] = []
    for item, count in program:
        out += (run(item) if isinstance(item, list) else [item]) * count
    return out


@settings(max_examples=300, deadline=None)
@given(programs)
def test_structured_programs_survive(program: list) -> None:
    sequence = np.array(run(program)[:5000], np.int64)
    grammar = find_loops(sequence)
    assert expanded_length(grammar) == sequence.size
    assert np.array_equal(expand(grammar), sequence)
    assert grammar == find_loops(sequence)
    assert grammar.item_count <= max(sequence.size, 1)
    bodies = [rule.items for rule in grammar.rules[1:]]
    assert len(set(bodies)) == len(bodies)  # equal bodies are one rule


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=300), st.integers(1, 12))
def test_any_sequence_survives(sequence: list[int], min_gain: int) -> None:
    array = np.array(sequence, np.int64)
    assert np.array_equal(expand(find_loops(array, min_gain)), array)


def runs_by_definition(s: list[int]) -> set[tuple[int, int, int]]:
    found = set()
    for p in range(1, len(s) // 2 + 1):
        i = 0
        while i + p < len(s):
            j = i
            while j + p < len(s) and s[j] == s[j + p]:
                j += 1
            if j - i >= p and not any(all(s[x] == s[x + q] for x in range(i, j + p - q)) for q in range(1, p)):
                found.add((p, i, j + p))
            i = j + 1
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 12))
def test_every_maximal_repeat_is_found(word: list[int], times: int) -> None:
    from commcanary_lab.canary.run_kernels import find_runs, prefix_hash

    s = np.array((word * times)[:150] + word[:3], np.int64)
    prefix, power = prefix_hash(s)
    found = find_runs(s, prefix, power, np.arange(s.size + 1), 1)
    assert set(map(tuple, found.tolist())) == runs_by_definition(s.tolist())


def test_a_wrong_fold_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops._Folder, "grammar", lambda self: Grammar.from_rules([[(0, 8)]]))
    assert find_loops(symbols("ABABABAB")).text(NAMES) == "R0 = A B A B A B A B"


# -- leaves ----------------------------------------------------------------------------------------------------------------------


def leaves_by_walking(grammar: Grammar) -> list[tuple]:
    """Step of every event, as (rule, item) or, in code that runs once, as the symbol."""
    times = {0: 1}
    for _ in range(grammar.rule_count):  # no nest is deeper
        fresh = {0: 1}
        for r, rule in enumerate(grammar.rules):
            for value, count in rule.items:
                if value < 0:
                    fresh[-value] = fresh.get(-value, 0) + count * times.get(r, 0)
        times = fresh

    def walk(r: int) -> list[tuple]:
        out: list[tuple] = []
        for i, (value, count) in enumerate(grammar.rule(r).items):
            once = walk(-value) if value < 0 else [(value,) if times[r] == 1 else (r, i)]
            out += once * count
        return out

    return walk(0)


@settings(max_examples=150, deadline=None)
@given(programs)
def test_every_event_has_its_step(program: list) -> None:
    sequence = np.array(run(program)[:2000], np.int64)
    grammar = find_loops(sequence)
    leaves = leaf_occurrences(grammar)
    assert np.array_equal(leaves.symbol[leaves.event_leaf], sequence)
    keys = leaves_by_walking(grammar)
    numbers: dict[tuple, int] = {}
    for key, leaf in zip(keys, leaves.event_leaf.tolist(), strict=True):
        assert numbers.setdefault(key, leaf) == leaf
    assert len(numbers) == leaves.symbol.size == len(set(numbers.values()))
    assert np.array_equal(leaves.repeated, [len(k) == 2 for k, _ in sorted(numbers.items(), key=lambda x: x[1])])


def test_leaves_of_a_nest() -> None:
    grammar = Grammar.from_rules([[(5, 1), (-1, 4), (5, 1)], [(-2, 9), (0, 3)], [(0, 1), (0, 1), (1, 1)]])
    leaves = leaf_occurrences(grammar)
    assert leaves.symbol.tolist() == [5, 0, 0, 0, 1]
    assert leaves.event_leaf[:4].tolist() == [0, 2, 3, 4]
    assert leaves.event_leaf[-4:].tolist() == [1, 1, 1, 0]
    assert leaves.repeated.tolist() == [False, True, True, True, True]
    assert leaves.item_leaf.tolist() == [0, -1, 0, -1, 1, 2, 3, 4]
    assert list(zip(leaves.rule.tolist(), leaves.item.tolist(), strict=True)) == [(0, 0), (1, 1), (2, 0), (2, 1), (2, 2)]


# -- hostile grammars ------------------------------------------------------------------------------------------------------------


def test_long_programs_are_refused_before_they_run() -> None:
    grammar = Grammar.from_rules([[(-1, 10**9)], [(-2, 10**9)], [(0, 10**9)]])
    assert expanded_length(grammar) == 10**27
    for unfold in (expand, leaf_occurrences):
        with pytest.raises(LimitError, match="above the limit of"):
            unfold(grammar)
    with pytest.raises(LimitError, match="runs 6 events, above the limit of 5"):
        expand(Grammar.from_rules([[(-1, 3)], [(0, 2)]]), max_events=5)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([[(-1, 1)], [(-1, 2)]], "contains itself"),
        ([[(-1, 1)], [(-2, 1)], [(0, 1), (-1, 1)]], "contains itself"),
        ([[(-2, 1)], [(0, 1)]], "neither a symbol"),
        ([[(0, 1)], [(1, 1)]], "never used"),
        ([[(-1, 1)], []], "is empty"),
        ([[(0, 0)]], "repeats 0 times"),
        ([[(0, -(10**9))]], "repeats -1000000000 times"),
        ([[(1 << 30, 1)]], "neither a symbol"),
        ([], "do not fit together"),
    ],
)
def test_damaged_programs_are_refused(rules: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Grammar.from_rules(rules)


def test_columns_must_fit() -> None:
    one = np.ones(1, np.int64)
    columns = [(one, one, [0, 2]), (one, one, [1, 1]), (one, one, [0, 1, 0]), (one, [1, 1], [0, 1]), ([0.5], one, [0, 1])]
    for values, counts, row_ptr in columns:
        with pytest.raises(InputError):
            Grammar(np.array(values), np.array(counts), np.array(row_ptr))


def test_depth_is_no_recursion() -> None:
    depth = 50_000
    grammar = Grammar.from_rules([[(-r - 1, 1), (r % 7, 1)] for r in range(depth)] + [[(9, 1)]])
    assert expand(grammar).tolist() == [9, *(r % 7 for r in reversed(range(depth)))]
    doubling = Grammar.from_rules([[(-r - 1, 2)] for r in range(200)] + [[(0, 1)]])
    assert expanded_length(doubling) == 2**200
    assert expanded_length(Grammar.from_rules([[(-r - 1, 2)] for r in range(70)] + [[(0, 1)]])) == 2**70


# -- time ------------------------------------------------------------------------------------------------------------------------


def fibonacci(n: int) -> np.ndarray:
    a, b = [0], [0, 1]
    while len(b) < n:
        a, b = b, b + a
    return np.array(b[:n])


def varying(n: int) -> np.ndarray:
    counts = np.random.default_rng(1).integers(1, 12, n)
    return np.concatenate([np.append(np.tile(np.arange(4), c), 4) for c in counts[: n // 10]])[:n]


SHAPES = {
    "constant": lambda n: np.zeros(n, np.int64),
    "regular": lambda n: np.arange(n) % 4,
    "layered": lambda n: np.where(np.arange(n) % 129 == 128, 4, np.arange(n) % 129 % 4),
    "random": lambda n: np.random.default_rng(0).integers(0, 70, n),
    "binary": lambda n: np.random.default_rng(0).integers(0, 2, n),
    "halves": lambda n: np.tile(np.random.default_rng(0).integers(0, 9, n // 2), 2),
    "varying": varying,
    "fibonacci": fibonacci,
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_time_grows_little_faster_than_length(shape) -> None:
    find_loops(shape(1000))
    seconds = []
    for n in (20_000, 160_000):
        sequence = shape(n)
        best = np.inf
        for _ in range(2):
            began = time.process_time()
            grammar = find_loops(sequence)
            best = min(best, time.process_time() - began)
        assert np.array_equal(expand(grammar), sequence)
        seconds.append(best)
    # eight times as long: exponent 1.2 would be a factor of 12; a quadratic method, 64
    assert seconds[1] < 32 * max(seconds[0], 0.003)
