"""Ablations in words: names of mechanisms and metrics, signed amounts."""

from __future__ import annotations

import math

from commcanary_lab.units import format_us

__all__ = ["MECHANISM_WORDS", "METRIC_WORDS", "amount", "metric_phrase", "metric_words", "short", "signed", "unit_of"]

#: What an ablation removes.
MECHANISM_WORDS = {
    "arrival_skew": "arrival skew",
    "compute_overlap": "compute overlap",
    "operation_ordering": "operation order",
    "rare_tail_windows": "rare tails",
    "queue_reset_gaps": "gaps",
    "pressure": "pressure",
    "observed_exposed_us": "observed latency",
}

#: What an ablation table measures.
METRIC_WORDS = {
    "median_us": "exposed latency, median",
    "p95_us": "exposed latency, p95",
    "p99_us": "exposed latency, p99",
    "mean_us": "exposed latency, mean",
    "max_us": "exposed latency, largest",
    "communication_hidden_pct": "hidden share of communication",
    "arrival_skew_median_us": "arrival skew, median",
    "arrival_skew_p95_us": "arrival skew, p95",
    "arrival_skew_max_us": "arrival skew, largest",
    "avg_rank_wait_median_us": "waiting of a rank, median",
    "calibration_mean_absolute_error_us": "model against observed, mean error",
    "calibration_mean_bias_us": "model against observed, bias",
    "calibration_mape_pct": "model against observed, relative error",
}


def metric_words(metric: str) -> str:
    """Return a metric in words.

    Examples
    --------
    >>> metric_words("p99_us"), metric_words("new_thing_us")
    ('exposed latency, p99', 'new thing us')
    """
    return METRIC_WORDS.get(metric, metric.replace("_", " "))


def metric_phrase(metric: str) -> str:
    """Return a metric in words that stand in a sentence.

    Examples
    --------
    >>> metric_phrase("p99_us"), metric_phrase("communication_hidden_pct")
    ('exposed latency (p99)', 'hidden share of communication')
    """
    name, _, which = metric_words(metric).partition(", ")
    return f"{name} ({which})" if which else name


def unit_of(metric: str) -> str:
    """Return ``us``, or ``points`` for a percentage.

    Examples
    --------
    >>> unit_of("p99_us"), unit_of("communication_hidden_pct")
    ('us', 'points')
    """
    return "points" if metric.endswith("_pct") else "us"


def amount(value: float | None, unit: str) -> str:
    """Return a value of a metric for people; empty if there is none.

    Examples
    --------
    >>> amount(43000.0, "us"), amount(12.5, "points"), amount(None, "us")
    ('43.0 ms', '12.5 %', '')
    """
    if value is None or not math.isfinite(value):
        return ""
    return format_us(value) if unit == "us" else f"{value:,.3g} %"


def signed(value: float | None, unit: str) -> str:
    """Return a change for people.

    Examples
    --------
    >>> signed(98.2, "us"), signed(-40538.9, "us"), signed(0.0, "us"), signed(-3.0, "points")
    ('+98.2 us', '−40.5 ms', 'no change', '−3 points')
    """
    if value is None:
        return ""
    if value == 0:
        return "no change"
    text = format_us(abs(value)) if unit == "us" else f"{abs(value):,.3g} points"
    return ("+" if value > 0 else "−") + text


def short(text: str) -> str:
    """Return a formatted amount without padding zeros.

    Examples
    --------
    >>> short("+10.0 ms"), short("+2.50 us"), short("100 us")
    ('+10 ms', '+2.5 us', '100 us')
    """
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}".strip()
