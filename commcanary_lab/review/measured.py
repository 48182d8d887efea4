"""Compare two measured traces: latency per operation, size and group, with bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from commcanary_lab._shown import Shown
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.errors import RefusedError
from commcanary_lab.review.bootstrap import Interval, quantile_replicates, replicate_count
from commcanary_lab.review.latencies import Latencies, latencies, latencies_sha256, matched
from commcanary_lab.review.policy import Policy
from commcanary_lab.trace.model import Trace
from commcanary_lab.units import format_bytes, format_us

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MeasuredComparison", "MeasuredRow", "compare_measured"]

IntArray = npt.NDArray[np.int64]

#: Quantiles that are compared, and the fewest measurements on each side that say anything about them.
QUANTILES = (("median", 0.5, 5), ("p95", 0.95, 40))


@dataclass(frozen=True)
class MeasuredRow:
    """One quantile of one operation at one size on one group, before and after.

    Parameters
    ----------
    op, group, members, size_bytes
        The operation; `size_bytes` is B.
    metric : str
        ``median`` or ``p95`` of the measured latency (the longest over the reporting ranks).
    count_a, count_b : int
        Measurements.
    a_us, b_us : float or None
        The quantile; None where nothing was measured.
    a_interval, b_interval : Interval or None
        Bootstrap interval of each; None where there are too few measurements.
    change_pct : float or None
        b relative to a, percent.
    change_interval : Interval or None
        Bootstrap interval of that.
    verdict : str
        ``regression``, ``improvement``, ``unchanged`` or ``inconclusive``.
    reason : str
        Why.
    share_pct : float
        Share of the measured time of both traces that this operation has.
    """

    op: str
    group: str | None
    members: tuple[int, ...]
    size_bytes: int
    metric: str
    count_a: int
    count_b: int
    a_us: float | None
    b_us: float | None
    a_interval: Interval | None
    b_interval: Interval | None
    change_pct: float | None
    change_interval: Interval | None
    verdict: str
    reason: str
    share_pct: float

    @property
    def label(self) -> str:
        """Operation, size and group in words."""
        return f"{self.op} {format_bytes(self.size_bytes)} on {self.group or f'{len(self.members)} ranks'}"


@dataclass(frozen=True)
class MeasuredComparison(Shown):
    """Two measured traces.

    Attributes
    ----------
    verdict : str
        ``fail`` if an operation regressed; ``inconclusive`` if too much of the measured time cannot be decided; ``warn`` if some of it;
        otherwise ``pass``.
    reasons : tuple of str
        Plain sentences.
    rows : tuple of MeasuredRow
        The largest share of measured time first.
    unmeasured : tuple of str
        Operations that only one trace has, or that were not measured.
    policy : Policy
        Thresholds, confidence, resamples and seed.
    """

    verdict: str
    reasons: tuple[str, ...]
    rows: tuple[MeasuredRow, ...]
    unmeasured: tuple[str, ...]
    policy: Policy
    sha256_a: str
    sha256_b: str
    events_a: int
    events_b: int
    notes: tuple[str, ...] = ()
    origin: str = "measured"
    samples: tuple[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]], ...] = field(default=(), repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """True when the verdict is ``pass`` or ``warn``."""
        return self.verdict in ("pass", "warn")

    @property
    def deltas(self) -> dict[str, float | None]:
        """Relative change of each row, percent."""
        return {f"{r.label} {r.metric}_pct": r.change_pct for r in self.rows}

    @property
    def headline(self) -> str:
        """The verdict, and how many operations got which judgement on each quantile."""
        words = {"regression": "regressed", "improvement": "improved", "unchanged": "unchanged", "inconclusive": "inconclusive"}
        parts = []
        for metric, _, _ in QUANTILES:
            counts = {w: sum(r.verdict == v and r.metric == metric for r in self.rows) for v, w in words.items()}
            listed = ", ".join(f"{n} {w}" for w, n in counts.items() if n)
            parts += [f"{metric} {listed}"] if listed else []
        return f"{self.verdict}: {'; '.join(parts) or 'nothing to compare'}"

    def __repr__(self) -> str:
        return f"MeasuredComparison({self.headline})"

    @cached_property
    def df(self) -> pd.DataFrame:
        """The rows as a pandas table; intervals in columns of their own."""
        import pandas as pd

        names = [n for n in MeasuredRow.__dataclass_fields__ if not n.endswith("_interval")]
        rows = []
        for r in self.rows:
            row = {n: getattr(r, n) for n in names}
            for name, interval in (("a", r.a_interval), ("b", r.b_interval), ("change", r.change_interval)):
                unit = "pct" if name == "change" else "us"
                row |= {f"{name}_low_{unit}": interval and interval.low, f"{name}_high_{unit}": interval and interval.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {
            "format": "commcanary_lab.comparison.v1",
            "kind": "measured",
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "deltas": self.deltas,
            "rows": [{**asdict(r), "members": list(r.members)} for r in self.rows],
            "unmeasured": list(self.unmeasured),
            "thresholds": self.policy.to_json("measured"),
            "policy_sha256": self.policy.sha256("measured"),
            "baseline": {"sha256": self.sha256_a, "events": self.events_a},
            "candidate": {"sha256": self.sha256_b, "events": self.events_b},
            "notes": list(self.notes),
            "origin": self.origin,
        }

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        headers = ["operation", "value", "before (us)", "after (us)", "change (%)", "from (%)", "to (%)", "verdict"]
        rows = ((r.label, r.metric, r.a_us, r.b_us, r.change_pct, r.change_interval and r.change_interval.low,
                 r.change_interval and r.change_interval.high, r.verdict) for r in self.rows)  # fmt: skip
        return table_html(f"{self.headline} ({self.origin})", headers, rows, len(self.rows), (*self.reasons, *self.notes))


def compare_measured(base: Trace, candidate: Trace, policy: Policy | None = None) -> MeasuredComparison:
    """Compare the measured latency of two traces, operation by operation.

    A quantile is a ``regression`` where the whole bootstrap interval of its relative change lies above the policy's threshold (8 % for
    the median, 10 % for p95, and more than 1 us), an ``improvement`` where it lies below the negative one, ``unchanged`` where it lies
    between the two, and otherwise ``inconclusive``: the interval crosses a threshold, or the intervals of both sides cross, or there
    are too few measurements.

    Groups are matched by members and name; where a set of members has one name in each trace, by members alone.

    Parameters
    ----------
    base, candidate : Trace
        Before and after the change.
    policy : Policy, optional
        Thresholds, confidence, resamples and seed.

    Raises
    ------
    RefusedError
        If a trace has no measured latency.
    """
    policy = policy or Policy()
    for name, trace in (("base", base), ("candidate", candidate)):
        if not trace.duration_max_ns.known_count:
            raise RefusedError(f"the {name} trace has no measured latency", remedy="compare two recordings, or two reports")
    a, b = matched(latencies(base), latencies(candidate))
    total = sum(int(o.time_ns.sum()) for side in (a, b) for o in side.values())
    rows: list[MeasuredRow] = []
    unmeasured: list[str] = []
    samples: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = []
    for key in sorted({*a, *b}, key=lambda k: -sum(int(s[k].time_ns.sum()) for s in (a, b) if k in s)):
        x, y = a.get(key), b.get(key)
        if x is None or y is None or not len(x.time_ns) or not len(y.time_ns):
            unmeasured.append(_why_unmeasured(x, y))
            continue
        share = round(100 * (int(x.time_ns.sum()) + int(y.time_ns.sum())) / total, 2) if total else 0.0
        found = [_row(x, y, metric, q, fewest, share, policy) for metric, q, fewest in QUANTILES]
        rows += found
        samples += [(x.time_ns / 1000.0, y.time_ns / 1000.0)] * len(found)
    verdict, reasons = _verdict(rows, unmeasured, policy)
    notes = (*(f"baseline: {n}" for n in base.notes), *(f"candidate: {n}" for n in candidate.notes))
    origin = "measured" if base.origin == candidate.origin == "measured" else "synthetic"
    hashes = latencies_sha256(a), latencies_sha256(b)
    counts = len(base), len(candidate)
    return MeasuredComparison(verdict, reasons, tuple(rows), tuple(unmeasured), policy, *hashes, *counts, notes, origin, tuple(samples))


def _why_unmeasured(x: Latencies | None, y: Latencies | None) -> str:
    one = x or y
    assert one is not None
    label = one.label
    if x is None or y is None:
        return f"{label}: only in the {'candidate' if x is None else 'baseline'} ({one.events:,} events)"
    return f"{label}: not measured in the {'baseline' if not len(x.time_ns) else 'candidate'}"


def _row(x: Latencies, y: Latencies, metric: str, q: float, fewest: int, share: float, policy: Policy) -> MeasuredRow:
    a, b = x.time_ns / 1000.0, y.time_ns / 1000.0
    old, new = (round(float(np.quantile(v, q)), 3) for v in (a, b))
    change = round((new - old) / old * 100, 2) if old else None
    row = partial(MeasuredRow, x.op, x.group, x.members, x.size_bytes, metric, len(a), len(b), old, new)
    if np.array_equal(a, b):
        return row(None, None, change, None, "unchanged", "both sides hold the same measurements", share)
    if min(len(a), len(b)) < fewest:
        reason = f"{min(len(a), len(b))} measurements, a {metric} needs {fewest} on each side"
        return row(None, None, change, None, "inconclusive", reason, share)
    n = replicate_count(len(a) + len(b), policy.measured_resamples)
    name = canonical_bytes([policy.measured_seed, x.op, x.size_bytes, list(x.members), metric]).decode()
    one, two = quantile_replicates(a, q, n, f"{name}a"), quantile_replicates(b, q, n, f"{name}b")
    confidence = policy.measured_confidence
    interval_a, interval_b = Interval.of(one, confidence), Interval.of(two, confidence)
    if not one.all():  # a resample whose quantile is 0 has no relative change
        return row(interval_a, interval_b, change, None, "inconclusive", "the baseline reaches 0 us", share)
    relative = Interval.of((two - one) / one * 100, confidence)
    absolute = Interval.of(two - one, confidence)
    limits = policy.latency_limits("overall", metric)
    verdict, reason = _decide(interval_a, interval_b, relative, absolute, *limits)
    return row(interval_a, interval_b, change, relative, verdict, reason, share)


def _decide(a: Interval, b: Interval, relative: Interval, absolute: Interval, pct: float, floor_us: float) -> tuple[str, str]:
    """Judge one change from its intervals."""
    span = f"{relative.low:+.1f} % to {relative.high:+.1f} %"
    if (-pct <= relative.low and relative.high <= pct) or (-floor_us <= absolute.low and absolute.high <= floor_us):
        return "unchanged", f"{span} is within {pct:g} %, or within {floor_us:g} us"
    if a.crosses(b):
        return "inconclusive", f"the intervals of both sides cross: {_span(a)} and {_span(b)}"
    if relative.low > pct and absolute.low > floor_us:
        return "regression", f"{span} is above {pct:g} %"
    if relative.high < -pct and absolute.high < -floor_us:
        return "improvement", f"{span} is below -{pct:g} %"
    return "inconclusive", f"{span} crosses the threshold of {pct:g} % and {floor_us:g} us"


def _span(i: Interval) -> str:
    return f"{format_us(i.low)} to {format_us(i.high)}"


def _verdict(rows: Sequence[MeasuredRow], unmeasured: Sequence[str], policy: Policy) -> tuple[str, tuple[str, ...]]:
    reasons = [f"{r.label}: {r.metric} changed by {_percent(r.change_pct)}, {r.reason}." for r in rows if r.verdict == "regression"]
    # a tail with few measurements alone decides nothing: the share counts medians
    open_rows = [r for r in rows if r.verdict == "inconclusive" and r.metric == "median"]
    open_share = sum(r.share_pct for r in open_rows)
    if open_rows:
        what = "operation" if len(open_rows) == 1 else "operations"
        reasons.append(f"The median of {len(open_rows)} {what} with {open_share:.1f} % of the measured time is inconclusive.")
    reasons += [f"{text}." for text in unmeasured]
    if not rows:
        return "inconclusive", tuple(["No operation was measured in both traces.", *reasons])
    if any(r.verdict == "regression" for r in rows):
        return "fail", tuple(reasons)
    if open_share > policy.measured_inconclusive_pct:
        return "inconclusive", tuple(reasons)
    undecided = any(r.verdict == "inconclusive" and r.change_interval is not None for r in rows)
    if open_rows or unmeasured or undecided:
        if undecided and not open_rows:
            reasons.append("The tail of at least one operation is inconclusive.")
        return "warn", tuple(reasons)
    return "pass", tuple(reasons) or ("No operation changed by more than the policy allows.",)


def _percent(value: float | None) -> str:
    return "an undefined share" if value is None or math.isnan(value) else f"{value:+.1f} %"
