"""Conversions are exact, and figures are what a person would say."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.units import MAX_TIME_US, bits_per_us, format_bytes, format_count, format_ns, format_rate, format_us, ns_to_us, us_to_ns

MAX_NS = int(MAX_TIME_US) * 1000


@given(st.integers(0, MAX_NS))
def test_whole_nanoseconds_survive_microseconds(time_ns: int) -> None:
    back, exact = us_to_ns(ns_to_us(time_ns))
    assert (int(back), bool(exact)) == (time_ns, True)


@given(st.integers(0, MAX_NS))
def test_three_decimals_in_a_file_are_whole_nanoseconds(time_ns: int) -> None:
    text = str(Decimal(time_ns) / 1000)
    assert us_to_ns(float(text))[0] == time_ns


@given(st.floats(0, 1e6, allow_subnormal=False))
def test_exact_says_whether_the_nanosecond_is_whole(time_us: float) -> None:
    time_ns, exact = us_to_ns(time_us)
    assert bool(exact) == (int(time_ns) / 1000 == time_us)
    assert abs(int(time_ns) / 1000 - time_us) <= 0.0005 * (1 + 1e-9)


def test_float_noise_is_not_taken_for_a_part_of_a_nanosecond() -> None:
    assert 1.001 * 1000 != 1001
    assert us_to_ns([1.001, 0.1, 0.0005, 1e-9])[1].tolist() == [True, True, False, False]
    assert us_to_ns(np.array([0.3]))[0].dtype == np.int64


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1, "1 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (1536, "1.50 KiB"), (2304 << 20, "2.25 GiB"), (1 << 40, "1.00 TiB"),
     (1 << 50, "1.00 PiB"), (1 << 62, "4,096 PiB"), (123456789, "118 MiB"),
     (math.nan, "unknown"), (math.inf, "unknown"), (-2048, "-2.00 KiB")],
)  # fmt: skip
def test_bytes(value: float, text: str) -> None:
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 us"), (0.001, "1.00 ns"), (0.25, "250 ns"), (7.5, "7.50 us"), (43000, "43.0 ms"), (2.5e6, "2.50 s"), (999.9, "1,000 us"),
     (math.nan, "unknown"), (-7.5, "-7.50 us")],
)  # fmt: skip
def test_times(value: float, text: str) -> None:
    assert format_us(value) == text
    if math.isfinite(value):
        assert format_ns(value * 1000) == text


def test_rates_and_counts() -> None:
    assert (format_rate(29.3614), format_rate(0.0), format_rate(math.inf)) == ("29.4 GB/s", "0 GB/s", "unknown")
    assert format_count(216092) == "216,092"
    assert bits_per_us(55.0) == 55_000


@given(st.floats(1e-3, 1e12))
def test_a_formatted_time_is_within_its_last_digit(time_us: float) -> None:
    number, unit = format_us(time_us).split()
    back = float(number.replace(",", "")) * {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}[unit]
    assert back == pytest.approx(time_us, rel=0.0051)
