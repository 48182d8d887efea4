"""Numbers of distinct rows, found by the compiled search: the same as by sorting."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from commcanary_lab.trace.numbering import number_rows
from commcanary_lab.trace.numbering_kernels import number_few

ROWS = 1 << 18  # from here on the search is compiled
LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def column(distinct: int, low: int, high: int) -> npt.NDArray[np.int64]:
    rng = np.random.default_rng(distinct)
    return rng.choice(rng.integers(low, high, distinct, np.int64), ROWS)


@pytest.mark.parametrize("distinct", [1, 2, 4095, 4096, 4097, 60_000])
@pytest.mark.parametrize(("low", "high"), [(0, 1 << 40), (-(1 << 61), 1 << 61), (LOW, HIGH)])
def test_the_same_as_by_sorting(distinct: int, low: int, high: int) -> None:
    values = column(distinct, low, high)
    codes, count = number_rows(values)
    expected = np.unique(values, return_inverse=True)[1]
    assert count == int(expected.max()) + 1
    assert np.array_equal(codes, expected)


def test_combinations_of_columns() -> None:
    a, b = column(50, 0, 1 << 40), column(60, LOW, HIGH)
    codes, count = number_rows(a, b)
    pairs, expected = np.unique(np.column_stack([a, b]), axis=0, return_inverse=True)
    assert count == len(pairs)
    assert np.array_equal(codes, expected.reshape(-1))


def test_numbers_are_by_first_appearance_and_too_many_are_given_up() -> None:
    values = np.array([9, 9, -4, HIGH, 9, LOW])
    codes, distinct = number_few(values, 2)
    assert codes.tolist() == [0, 0, 1, 2, 0, 3]
    assert distinct.tolist() == [9, -4, HIGH, LOW]
    assert len(number_few(values, 1)[1]) == 0


def test_keys_that_fall_into_one_slot() -> None:
    values = np.arange(1000, dtype=np.int64) << 54  # the products share their high bits with many others
    codes, distinct = number_few(np.tile(values, 3), 12)
    assert np.array_equal(codes, np.tile(np.arange(1000), 3))
    assert np.array_equal(distinct, values)
