"""Signature codes number exactly the distinct signatures, in order of first appearance."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.trace import Coded, ProcessGroup, Trace
from commcanary_lab.trace.signatures import factorize, occurrence_codes, signature_codes
from tests.strategies import traces

NUMBERS = st.sampled_from([0, 1, -1, 7, 1 << 40, -(1 << 62), (1 << 62)])


@given(st.integers(0, 6).flatmap(lambda n: st.lists(st.lists(NUMBERS, min_size=n, max_size=n), min_size=1, max_size=9)))
def test_factorize_is_a_dictionary_of_rows(columns: list[list[int]]) -> None:
    rows = list(zip(*columns, strict=True))
    table: dict[tuple[int, ...], int] = {}
    expected = [table.setdefault(row, len(table)) for row in rows]
    codes, first = factorize([np.array(c, np.int64) for c in columns])
    assert codes.tolist() == expected
    assert first.tolist() == [rows.index(row) for row in table]


def signature(t: Trace, i: int) -> tuple[object, ...]:
    def at(name: str) -> object:
        column = getattr(t, name)
        return int(column.values[i]) if column.mask[i] else None

    text = [t.op, t.phase, t.dtype, t.reduction, t.tag, t.channel]
    numbers = [at(name) for name in ("root", "sender", "receiver", "concurrent_groups")]
    group = t.groups[t.group[i]]
    observers = None if t.observers[i] < 0 else t.observers_of(i)
    return (*(c.text(i) for c in text), *numbers, int(t.size_bytes[i]), group.name, group.members, bool(t.custom_op[i]), observers)


@given(traces(min_events=1))
def test_equal_codes_are_equal_signatures(trace: Trace) -> None:
    codes, first = signature_codes(trace)
    keys = [signature(trace, i) for i in range(len(trace))]
    table: dict[object, int] = {}
    assert codes.tolist() == [table.setdefault(key, len(table)) for key in keys]
    assert first.tolist() == [keys.index(key) for key in table]


def test_occurrences_count_with_the_defaults_filled_in() -> None:
    groups = (ProcessGroup(None, (0, 1)), ProcessGroup("default", (0, 1)))
    t = Trace.build(3, op=Coded.constant(3, "broadcast"), groups=groups, group=np.array([0, 1, 0], np.int32), size_bytes=np.full(3, 8),
                    phase=Coded.from_optional([None, "unknown", "decode"]))  # fmt: skip
    assert signature_codes(t)[0].tolist() == [0, 1, 2]
    assert occurrence_codes(t)[0].tolist() == [0, 0, 1]
