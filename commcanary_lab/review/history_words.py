"""A history in plain sentences: the newest entry, since when it is so, what moved, and what could not be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commcanary_lab.review.comparison import percent
from commcanary_lab.review.history_entry import Entry
from commcanary_lab.review.steps import Step
from commcanary_lab.units import format_us

if TYPE_CHECKING:
    from commcanary_lab.review.history import History

__all__ = ["VERDICT_VERBS", "headline", "sentences", "since"]

#: How a verdict reads after the name of an entry.
VERDICT_VERBS = {
    "pass": "passes",
    "warn": "passes with a warning",
    "fail": "fails",
    "inconclusive": "cannot be decided",
    "baseline": "is the baseline",
    "incomparable": "cannot be compared",
}

#: Steps that are told before the rest is only counted.
_MAX_STEPS = 3

_METRICS = {"p99": "p99", "p95": "p95", "median": "p50"}


def headline(h: History) -> str:
    """Return the verdict of the newest entry and a count of the others."""
    counts = {v: sum(e.verdict == v for e in h.entries) for v in ("pass", "warn", "fail", "inconclusive", "incomparable")}
    listed = ", ".join(f"{n} {v}" for v, n in counts.items() if n)
    return f"{h.verdict}: {h.newest.name}; {len(h.entries)} entries: {listed or 'nothing compared'}"


def sentences(h: History) -> tuple[str, ...]:
    """Return the sentences, the most important first."""
    out = [_newest(h)]
    if text := since(h):
        out.append(text)
    out += _steps(h)
    left_out = h.incomparable
    if left_out:
        listed = "; ".join(f"{e.name}: {e.problem}" for e in left_out[:5])
        more = f"; and {len(left_out) - 5} more" if len(left_out) > 5 else ""
        out.append(f"{len(left_out)} of {len(h.entries)} entries cannot be compared ({listed}{more}).")
    out.append(f"The entries are ordered by {h.ordered_by}.")
    return tuple(out)


def _newest(h: History) -> str:
    e = h.newest
    if e.comparison is None:
        why = f": {e.problem}" if e.problem else ", so there is nothing to judge"
        return f"The newest entry {e.name} {VERDICT_VERBS[e.verdict]}{why}."
    return f"The newest entry {e.name} {VERDICT_VERBS[e.verdict]} against {e.against}: {e.comparison.headline.partition(': ')[2]}."


def since(h: History) -> str:
    """Say since when the newest verdict holds.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.review import history
    >>> a, b = (lab.simulate(lab.samples.adversarial(), n) for n in ("baseline", "high_bandwidth"))
    >>> since(history([("w1", a), ("w2", a), ("w3", b), ("w4", b)]))
    'It has been so since w3; w2 passed.'
    """
    judged = [e for e in h.entries if e.comparison is not None]
    if len(judged) < 2 or judged[-1] is not h.newest:
        return ""
    run: list[Entry] = []
    for e in reversed(judged):
        if e.verdict != h.verdict:
            break
        run.append(e)
    words = {"pass": "passed", "warn": "passed with a warning", "fail": "failed", "inconclusive": "could not be decided"}
    if len(run) == len(judged):
        return f"All {len(judged)} compared entries {words[h.verdict]}."
    earlier = judged[len(judged) - len(run) - 1]
    before = f"{earlier.name} {words[earlier.verdict]}"
    return f"It has been so since {run[-1].name}; {before}." if len(run) > 1 else f"It is the first with this verdict; {before}."


def _steps(h: History) -> list[str]:
    moved = _largest(h)
    tested = sum(s.verdict in ("rise", "fall", "same", "unclear") for e in h.entries for s in e.steps)
    if not tested:
        return ["Whether the figures moved between entries was not tested: the entries hold too few samples (simulate --samples)."]
    if not moved:
        return ["No quantile moved from one entry to the next by more than its interval."]
    out = []
    place = {e.name: i for i, e in enumerate(h.entries)}
    for e, s in sorted(moved[:_MAX_STEPS], key=lambda pair: place[pair[0].name]):
        assert s.interval is not None
        verb = "rose" if s.verdict == "rise" else "fell"
        times = f"{format_us(s.before_us)} to {format_us(s.after_us)}"
        span = f"between {s.interval.low:+.1f} % and {s.interval.high:+.1f} %"
        out.append(f"From {e.before} to {e.name}, {_METRICS[s.metric]} {verb}: {times}, {percent(s.change_pct)} ({span}).")
    if len(moved) > _MAX_STEPS:
        more = len(moved) - _MAX_STEPS
        out.append(f"At {more} more {'entry' if more == 1 else 'entries'} a quantile moved by less.")
    return out


def _largest(h: History) -> Sequence[tuple[Entry, Step]]:
    """The clearest step of each entry, the largest first; the tail counts before the middle."""
    best: dict[str, tuple[Entry, Step]] = {}
    for e, s in h.moved:
        known = best.get(e.name)
        if known is None or abs(s.change_pct or 0) > abs(known[1].change_pct or 0):
            best[e.name] = (e, s)
    return sorted(best.values(), key=lambda x: -abs(x[1].change_pct or 0))
