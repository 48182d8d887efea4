"""A comparison in plain words: the verdict as a sentence, the key figures, and the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from commcanary_lab.review.comparison import Comparison, with_sign
from commcanary_lab.review.contributions import contributions
from commcanary_lab.review.evaluate import Evaluation
from commcanary_lab.review.localise import localise
from commcanary_lab.review.measured import MeasuredComparison, MeasuredRow
from commcanary_lab.units import format_us
from commcanary_lab.views import markup
from commcanary_lab.views.markup import Figure

__all__ = ["VERDICT_WORDS", "answer", "facts", "figures", "reasons_html", "verdict_html"]

VERDICT_WORDS = {"pass": "Pass", "warn": "Warning", "fail": "Fail", "inconclusive": "Inconclusive"}

#: What a quantile says about collectives.
_QUANTILES = {
    "p99": "the slowest 1 % of the collectives (p99 of the exposed latency)",
    "p95": "the slowest 5 % of the collectives (p95 of the exposed latency)",
    "median": "the typical collective (median of the exposed latency)",
}

#: Sentences that are shown before the rest is only counted.
MAX_REASONS = 8

_COLORS = {"pass": "#2f9e62", "warn": "#d3901a", "inconclusive": "#d3901a", "fail": "var(--e)"}


def verdict_html(verdict: str) -> str:
    """Return the verdict as a label; red only where it is ``fail``.

    Examples
    --------
    >>> ">Fail<" in verdict_html("fail")
    True
    """
    color = _COLORS[verdict]
    style = (
        f"display:inline-block;padding:1px 12px;margin-right:10px;border-radius:7px;font-weight:700;"
        f"color:color-mix(in srgb, {color} 78%, var(--t));background:color-mix(in srgb, {color} 15%, var(--p));"
        f"border:1px solid color-mix(in srgb, {color} 45%, transparent)"
    )
    return f'<span class="verdict {escape(verdict)}" data-testid="verdict" style="{style}">{VERDICT_WORDS[verdict]}</span>'


def answer(result: Comparison | MeasuredComparison) -> str:
    """Return the verdict and what decided it, in sentences that need no knowledge of the tool; HTML, escaped.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> answer(lab.compare(lab.simulate(trace), lab.simulate(trace, "high_bandwidth"))).partition("</span>")[2][:92]
    'The candidate is <b>slower than the policy allows</b>: the slowest 1 % of the collectives (p'
    """
    words = _reports(result) if isinstance(result, Comparison) else _measured(result)
    return verdict_html(result.verdict) + words


# -- two reports ------------------------------------------------------------------------------------------------------


def _reports(c: Comparison) -> str:
    chosen = [e for e in c.evaluations if e.threshold_result == c.verdict and c.verdict != "pass"]
    lead = min(chosen, key=_order, default=None)
    if c.verdict == "fail" and lead is not None:
        return f"The candidate is <b>slower than the policy allows</b>: {_moved(lead)}; {_allowed(lead)}. {_where(c, lead)}"
    if c.verdict == "warn" and lead is not None:
        near = f"more than {100 * c.policy.warn_fraction:g} % of what the policy allows"
        absent = lead.relative_status == "absent"
        why = _moved(lead) if absent else f"{_moved(lead)}, {near} ({_bound(lead)})"
        return f"The candidate stays <b>within the policy, but close to it</b>: {why}. {_where(c, lead)}"
    p99 = next(e for e in c.evaluations if e.scope == "overall" and e.metric == "p99")
    if c.verdict == "warn":
        same_work = "The reports <b>do not describe the same work</b>, which was allowed"
        return f"{same_work}; otherwise every value is within the policy: {_moved(p99)}."
    faster = all((e.change or 0) <= 0 for e in c.evaluations if e.scope == "overall" and not e.is_hidden_share)
    same = all(not e.delta for e in c.evaluations)
    what = (
        "exactly as fast as the baseline" if same else "at least as fast as the baseline" if faster else "not slower than the policy allows"
    )
    return f"The candidate is <b>{what}</b>: {_moved(p99)}." + ("" if faster else f" {_allowed(p99).capitalize()}.")


def _order(e: Evaluation) -> tuple[int, int]:
    """What is said first: the whole workload before its parts, the tail before the middle."""
    return ("overall", "phase", "operation").index(e.scope), ("p99", "p95", "median", e.metric).index(e.metric)


def _moved(e: Evaluation) -> str:
    if e.relative_status == "absent":
        return f"{e.scope} {escape(e.name or '')} is missing from {'the baseline' if e.baseline is None else 'the candidate'}"
    before, after = e.baseline or 0.0, e.candidate or 0.0
    if e.is_hidden_share:
        verb = "less" if after < before else "more"
        return f"compute hides {abs(after - before):.1f} points {verb} of the communication, {after:.1f} % instead of {before:.1f} %"
    what = _QUANTILES[e.metric] if e.scope == "overall" else f"in {e.scope} {escape(e.name or '')}, {_QUANTILES[e.metric]}"
    times = f"{format_us(before)} to {format_us(after)}"
    if e.change is None or after == before:
        return f"{what} went from {times}" if after != before else f"{what} takes {format_us(after)}, as before"
    return f"{what} became <b>{abs(e.change):.1f} % {'slower' if e.change > 0 else 'faster'}</b>, {times}"


def _bound(e: Evaluation) -> str:
    if e.is_hidden_share:
        return f"{e.threshold:g} points"
    floor_us = e.absolute_threshold_us or 0.0
    if e.threshold * (e.baseline or 0.0) / 100 >= floor_us:  # a latency must exceed both: the larger one decides
        return f"{e.threshold:g} %"
    return f"{floor_us:g} us"


def _allowed(e: Evaluation) -> str:
    return f"the policy allows {_bound(e)}"


def _where(c: Comparison, lead: Evaluation) -> str:
    """Say what makes the leading value larger; where the reports hold no samples, where the time of all events was added."""
    found = contributions(c, lead.metric) if lead.scope == "overall" and not lead.is_hidden_share else None
    if found is not None and found.delta_us > 0:
        most = found.parts[0]
        share = most.delta_us / found.delta_us
        if share < 0.5 or not most.operation or len(found.parts) < 2:
            return ""
        count = "All" if share >= 0.995 else markup.percent(share)
        return f"{count} of the added {format_us(found.delta_us)} comes from <b>{escape(most.label)}</b>."
    phases = localise(c, "phase")
    scope, parts = ("phase", phases) if len(phases) > 1 else ("operation", localise(c, "operation"))
    if len(parts) < 2 or parts[0].share < 0.5:
        return ""
    share_of_all = f"{markup.percent(parts[0].share)} of the exposed time that was added to all events together"
    return f"{share_of_all} is in {scope} <b>{escape(parts[0].name)}</b>."


# -- two measured traces ----------------------------------------------------------------------------------------------


def _measured(m: MeasuredComparison) -> str:
    medians = [r for r in m.rows if r.metric == "median"]
    count = f"{len(medians):,} operation{'s' * (len(medians) != 1)}"
    if not m.rows:
        return "<b>Nothing was measured in both traces</b>, so nothing can be compared."
    slower = [r for r in m.rows if r.verdict == "regression"]
    open_rows = [r for r in medians if r.verdict == "inconclusive"]
    if m.verdict == "fail":
        what = len({(r.op, r.size_bytes, r.members, r.group) for r in slower})
        return f"<b>{what:,} of {count} became slower</b> than the policy allows; the most important is {_row(slower[0])}."
    undecided = f"the medians of {len(open_rows):,} of {count}, with {sum(r.share_pct for r in open_rows):.0f} % of the measured time"
    if m.verdict == "inconclusive":
        return f"<b>These recordings cannot decide it</b>: {undecided}, are too noisy or too rarely measured. Record more, or more quietly."
    faster = [r for r in medians if r.verdict == "improvement"]
    better = f"; {len(faster):,} became faster" if faster else ""
    if m.verdict == "warn":
        rest = f"{undecided}, cannot be decided" if open_rows else _rest(m)
        return f"<b>No operation became slower</b> than the policy allows{better}, but {rest}."
    return f"<b>No operation became slower</b> than the policy allows, of {count} measured in both traces{better}."


def _rest(m: MeasuredComparison) -> str:
    if m.unmeasured:
        n = len(m.unmeasured)
        return (
            f"{n:,} operation{'s' * (n != 1)} could not be compared, because only one trace has {'it' if n == 1 else 'them'} or measured it"
        )
    return "the tail of at least one operation cannot be decided"


def _row(r: MeasuredRow) -> str:
    span = "" if r.change_interval is None else f" (between {r.change_interval.low:+.1f} % and {r.change_interval.high:+.1f} %)"
    times = f"{format_us(r.a_us or 0.0)} to {format_us(r.b_us or 0.0)}"
    return f"{escape(r.label)}, whose {r.metric} changed by <b>{with_sign(r.change_pct)}</b>{span}, {times}"


# -- figures, facts and reasons ---------------------------------------------------------------------------------------


def figures(result: Comparison | MeasuredComparison) -> list[Figure]:
    """Return the key figures with their origin."""
    if isinstance(result, MeasuredComparison):
        medians = [r for r in result.rows if r.metric == "median"]
        words = {"regression": "Slower", "improvement": "Faster", "unchanged": "Unchanged", "inconclusive": "Not decided"}
        out = []
        for verdict, label in words.items():
            rows = [r for r in medians if r.verdict == verdict]
            share = sum(r.share_pct for r in rows)
            out.append(Figure(label, f"{len(rows):,} of {len(medians):,}", f"medians, {share:.1f} % of the {result.origin} time"))
        return out
    overall = {e.metric: e for e in result.evaluations if e.scope == "overall"}
    out = []
    for metric in ("p99", "p95", "median"):
        e = overall[metric]
        out.append(Figure(f"Exposed latency, {metric}", with_sign(e.change), f"{_times(e)}; allowed +{e.threshold:g} %"))
    hidden = next(e for e in result.evaluations if e.is_hidden_share)
    values = f"{hidden.baseline:.1f} % to {hidden.candidate:.1f} %"
    out.append(Figure("Hidden share", with_sign(hidden.change, " points"), f"{values}; allowed −{hidden.threshold:g}"))
    failed = sum(e.threshold_result == "fail" for e in result.evaluations)
    out.append(Figure("Values that fail", f"{failed:,} of {len(result.evaluations):,}", "of the whole and of each part"))
    return out


def _times(e: Evaluation) -> str:
    return f"{format_us(e.baseline or 0.0)} to {format_us(e.candidate or 0.0)}"


def facts(result: Comparison | MeasuredComparison) -> str:
    """Return what the numbers are: modelled or measured, of how much."""
    if isinstance(result, Comparison):
        return f"model {result.base.model}, {result.base.events:,} events"
    confidence = f"{100 * result.policy.measured_confidence:g} % intervals"
    return f"{result.origin}, {result.events_a:,} and {result.events_b:,} events, {confidence}"


def reasons_html(reasons: Sequence[str]) -> str:
    """Return the reasons as a list; text from files is escaped.

    Examples
    --------
    >>> reasons_html(["a < b"])
    '<ul style="margin-top:8px"><li>a &lt; b</li></ul>'
    """
    items = [f"<li>{escape(r)}</li>" for r in reasons[:MAX_REASONS]]
    if len(reasons) > MAX_REASONS:
        items.append(f'<li class="muted">{len(reasons) - MAX_REASONS:,} more in the table below</li>')
    return f'<ul style="margin-top:8px">{"".join(items)}</ul>'
