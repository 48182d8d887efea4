"""A comparison as one HTML file: works offline and on paper, in light and dark, without any script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from commcanary_lab.review.charts import MAX_ROWS, Bar, Pair, Span, cumulative, deltas, pairs, spans
from commcanary_lab.review.comparison import Comparison, with_sign
from commcanary_lab.review.contributions import contributions
from commcanary_lab.review.evaluate import Evaluation
from commcanary_lab.review.html_parts import VERDICTS, chart, figure, foot, head, identity, listing, page, section, signoffs_section, table
from commcanary_lab.review.measured import MeasuredComparison, MeasuredRow
from commcanary_lab.review.policy import Policy
from commcanary_lab.review.signoff import SignOff, SignOffCheck
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.units import format_us

__all__ = ["body_of", "html_report", "identity_rows", "policy_table", "policy_words"]

_SIDES = '<span class="key before"></span>baseline <span class="key after"></span>candidate'
_LEGEND = f'<p class="legend">{_SIDES} <span class="key failed"></span>outside the policy <span class="tickmark"></span>allowed</p>'
_CURVES = f'<p class="legend">{_SIDES}</p>'


Result = Comparison | MeasuredComparison


def html_report(
    comparison: Result,
    *,
    names: tuple[str, str] = ("baseline", "candidate"),
    signoffs: Sequence[tuple[SignOff, SignOffCheck]] = (),
) -> str:
    """Return a comparison as a self-contained HTML page.

    Parameters
    ----------
    comparison : Comparison or MeasuredComparison
        The result.
    names : (str, str)
        What to call both sides, such as file names.
    signoffs : sequence of (SignOff, SignOffCheck)
        What reviewers decided, and whether that is about this comparison (`check_signoff`).

    Returns
    -------
    str
        HTML; every text from outside is escaped.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.review import compare
    >>> trace = lab.samples.adversarial()
    >>> page = html_report(compare(lab.simulate(trace), lab.simulate(trace, "high_bandwidth")))
    >>> "<script" in page, page.count("<svg")
    (False, 4)
    """
    rows = identity_rows(comparison, names)
    body = body_of(comparison, names, identity(rows) + signoffs_section(signoffs))
    title = f"{VERDICTS[comparison.verdict]}: {names[0]} against {names[1]}"
    running = f"{VERDICTS[comparison.verdict]}, {', '.join(f'{role} {sha[:12]}' for role, _, sha in rows)}"
    return page(title, body, running)


def body_of(comparison: Result, names: tuple[str, str], more: str = "") -> str:
    """Return the cards of a comparison; `more` stands below its key figures."""
    return _reports(comparison, names, more) if isinstance(comparison, Comparison) else _measured(comparison, names, more)


def identity_rows(comparison: Result, names: tuple[str, str]) -> list[tuple[str, str, str]]:
    """Return role, name and SHA-256 of both inputs and of the policy."""
    if isinstance(comparison, Comparison):
        hashes, kind = (comparison.base.sha256, comparison.candidate.sha256), "reports"
    else:
        hashes, kind = (comparison.sha256_a, comparison.sha256_b), "measured"
    policy = ("policy", policy_words(comparison.policy, kind), comparison.policy.sha256(kind))
    return [("baseline", names[0], hashes[0]), ("candidate", names[1], hashes[1]), policy]


def policy_words(policy: Policy, kind: str) -> str:
    """Say whether a policy is the default one, and what differs."""
    used = policy.to_json(kind)
    changed = [f"{name} = {value:g}" for name, value in policy.changed().items() if name in used]
    return ", ".join(changed) or "default thresholds"


def _reports(c: Comparison, names: tuple[str, str], more: str) -> str:
    overall = {e.metric: e for e in c.evaluations if e.scope == "overall"}
    failed = sum(e.threshold_result == "fail" for e in c.evaluations)
    events = f"{c.base.events:,} events, cost model {c.base.model}: modelled, not measured"
    sentence = c.headline.partition(": ")[2]
    parts = [
        head(c.verdict, sentence, names, f"{events}. {failed} of {len(c.evaluations)} values fail."),
        f'<div class="figures">{"".join(_key_figure(overall[m]) for m in ("p99", "p95", "median"))}{_hidden_figure(c.evaluations)}</div>',
        more,
        section("Why", listing(c.reasons)),
        section("Exposed latency", _LEGEND + chart(pairs(_quantiles(c), "exposed latency (us)", "Exposed latency before and after")),
                 "The mark is the largest value that the policy allows."),
    ]  # fmt: skip
    if c.base.exposed_us is not None and c.candidate.exposed_us is not None and len(c.base.exposed_us) and len(c.candidate.exposed_us):
        svg = cumulative(c.base.exposed_us, c.candidate.exposed_us, "exposed latency (us)", "Distribution of exposed latency")
        parts.append(section("Distribution", _CURVES + chart(svg), "Every event of every iteration; the dot is the median."))
    parts.append(_brought(c))
    for scope, title in (("phase", "By phase"), ("operation", "By operation")):
        found = c.where(scope)
        if found:
            parts.append(section(title, _breakdown(found, c.policy), _localised(found, scope)))
    parts += [_values(c), _sides(c, names), policy_table(c.policy)]
    return "".join(parts) + foot("commcanary-lab verify-comparison recomputes every number on this page from the two reports.")


def _key_figure(e: Evaluation) -> str:
    limit = f"was {format_us(e.baseline or 0.0)}; allowed +{e.threshold:g} %"
    return figure(f"{e.metric} exposed", format_us(e.candidate or 0.0), with_sign(e.change), limit, e.threshold_result)


def _hidden_figure(evaluations: Sequence[Evaluation]) -> str:
    e = next(e for e in evaluations if e.is_hidden_share)
    note = f"was {e.baseline:.1f} %; allowed −{e.threshold:g} points"
    return figure("hidden share", f"{e.candidate:.1f} %", with_sign(e.change, " points"), note, e.threshold_result)


def _quantiles(c: Comparison) -> list[Pair]:
    out = []
    for metric in ("mean", "median", "p95", "p99", "max"):
        before, after = c.base.metrics[f"{metric}_us"], c.candidate.metrics[f"{metric}_us"]
        found = next((e for e in c.evaluations if e.scope == "overall" and e.metric == metric), None)
        limit = None
        if found is not None:
            limit = before + max(before * found.threshold / 100, found.absolute_threshold_us or 0.0)
        out.append(Pair(metric, before, after, limit, "pass" if found is None else found.threshold_result))
    return out


def _brought(c: Comparison) -> str:
    """What each phase and operation brings to the change, in words and numbers; empty where the reports hold no samples."""
    found = {m: f for m in ("p99", "p95", "median") if (f := contributions(c, m)) is not None}
    if not found:
        return ""
    told = [sentence for f in found.values() for sentence in f.sentences[:2]]
    by_part = {m: {p.label: p for p in f.parts} for m, f in found.items()}
    rows = []
    for part in found["p99"].parts:
        adds = [f"{by_part[m][part.label].delta_us:+,.3f}" for m in found]
        rows.append([part.label, f"{part.samples:,}", *adds, f"{part.exposed_us:+,.3f}"])
    headers = ["phase and operation", "events", "to p99 (us)", "to p95 (us)", "to the median (us)", "to all exposed time (us)"]
    note = "Contributions add up to the change of the whole workload: each part is exchanged alone, averaged over all orders."
    return section("What changed", listing(told) + table(headers, rows, (1, 2, 3, 4, 5)), note)


def _breakdown(found: Sequence[Evaluation], policy: Policy) -> str:
    bars = [Bar(e.name or "", e.change, e.threshold_result) for e in found[:MAX_ROWS]]
    more = f'<p class="note">{len(found) - MAX_ROWS} more in the table below.</p>' if len(found) > MAX_ROWS else ""
    return chart(deltas(bars, policy.breakdown_threshold_pct, "Change of p99")) + more


def _localised(found: Sequence[Evaluation], scope: str) -> str:
    failing = [e for e in found if e.threshold_result == "fail"]
    if not failing:
        return f"No {scope} exceeds its p99 threshold."
    return f"{len(failing)} of {len(found)} {scope}s exceed the p99 threshold; most in {failing[0].name}, {with_sign(failing[0].change)}."


def _values(c: Comparison) -> str:
    rows = []
    for e in c.evaluations:
        limit = f"−{e.threshold:g} points" if e.is_hidden_share else f"+{e.threshold:g} % and {e.absolute_threshold_us:g} us"
        change = with_sign(e.change, " points" if e.is_hidden_share else " %")
        rows.append([e.scope, e.label, e.baseline, e.candidate, e.absolute_delta if not e.is_hidden_share else None, change, limit,
                     e.threshold_result])  # fmt: skip
    headers = ["", "value", "baseline", "candidate", "change (us)", "change", "allowed", "result"]
    return section("Every value", table(headers, rows, (2, 3, 4, 5, 6)), "Latencies in microseconds, the hidden share in percent.")


def _sides(c: Comparison, names: tuple[str, str]) -> str:
    a, b = _described(c.base), _described(c.candidate)
    rows = [[name, a[name], b[name], "" if a[name] == b[name] else "differs"] for name in a]
    notes = [f"{names[0]}: {n}" for n in c.base.notes] + [f"{names[1]}: {n}" for n in c.candidate.notes]
    return section("What was compared", table(["", names[0], names[1], ""], rows) + (listing(notes) if notes else ""))


def _described(r: ReportFile) -> dict[str, str]:
    out = {k: str(v) for k, v in asdict(r.backend).items()}
    assumed = ", ".join(f"{k} = {v:g}" for k, v in r.assumptions.items())
    return out | {
        "cost model": r.model,
        "ablations": ", ".join(r.ablations) or "none",
        "assumed": assumed or "nothing",
        "events": f"{r.events:,}",
        "workload SHA-256": r.workload_sha256,
        "report SHA-256": r.sha256,
    }


def policy_table(policy: Policy, *, measured: bool = False) -> str:
    """The thresholds that the verdict used."""
    scopes = [("p95", "overall"), ("median", "overall")] if measured else [("p99", "overall"), ("p95", "overall"), ("median", "overall")]
    rows: list[list[object]] = []
    for metric, scope in scopes:
        pct, floor_us = policy.latency_limits(scope, metric)
        rows.append([metric, f"{pct:g} %", f"and more than {floor_us:g} us"])
    if measured:
        drawn = f"{policy.measured_resamples:,} resamples, seed {policy.measured_seed}"
        rows.append(["intervals", f"{policy.measured_confidence * 100:g} %", drawn])
        rows.append(["inconclusive time", f"{policy.measured_inconclusive_pct:g} %", "more makes the comparison inconclusive"])
    else:
        rows.append(["hidden share", f"{policy.hidden_drop_threshold_points:g} points", "drop"])
        rows.append(["each phase and operation", f"{policy.breakdown_threshold_pct:g} %",
                     f"and more than {policy.breakdown_absolute_threshold_us:g} us, for median, p95 and p99"])  # fmt: skip
        rows.append(["warning", f"{policy.warn_fraction * 100:g} %", "of a threshold"])
    return section("Policy", table(["value", "allowed", ""], rows, (1,)))


def _measured(m: MeasuredComparison, names: tuple[str, str], extra: str) -> str:
    medians = [(r, s) for r, s in zip(m.rows, m.samples, strict=True) if r.metric == "median"]
    counts = {v: [r for r, _ in medians if r.verdict == v] for v in ("regression", "improvement", "unchanged", "inconclusive")}
    confidence = f"{m.policy.measured_confidence * 100:g} % intervals"
    facts = f"{m.events_a:,} and {m.events_b:,} events, {m.origin}; latency of the longest rank, {confidence}."
    figures = "".join(
        figure(words, str(len(counts[v])), f"{sum(r.share_pct for r in counts[v]):.1f} %", "of the measured time",
                "fail" if v == "regression" and counts[v] else "pass")
        for v, words in (("regression", "medians regressed"), ("improvement", "medians improved"), ("unchanged", "medians unchanged"),
                         ("inconclusive", "medians inconclusive"))
    )  # fmt: skip
    parts = [head(m.verdict, m.headline.partition(": ")[2], names, facts), f'<div class="figures">{figures}</div>']
    parts += [extra, section("Why", listing(m.reasons))]
    drawn = [Span(r.label, r.change_pct, *_ends(r), r.verdict) for r, _ in medians if r.change_pct is not None]
    if drawn:
        note = "Within the band nothing counts. The operations with the largest share of the measured time come first."
        more = f'<p class="note">{len(drawn) - MAX_ROWS} more in the table below.</p>' if len(drawn) > MAX_ROWS else ""
        svg = spans(drawn, m.policy.median_threshold_pct, "Change of the median")
        parts.append(section("Change per operation", chart(svg) + more, note))
    worst = next((x for v in ("regression", "inconclusive", "improvement", "unchanged") for x in medians if x[0].verdict == v), None)
    if worst is not None:
        svg = cumulative(*worst[1], "measured latency (us)", "Distribution of measured latency")
        parts.append(section(f"Distribution of {worst[0].label}", _CURVES + chart(svg), worst[0].reason))
    parts += [_measured_table(m), policy_table(m.policy, measured=True)]
    if m.notes:
        parts.append(section("Notes", listing(m.notes)))
    return "".join(parts) + foot("commcanary-lab verify-comparison recomputes every number on this page from the two traces.")


def _ends(r: MeasuredRow) -> tuple[float | None, float | None]:
    return (None, None) if r.change_interval is None else (r.change_interval.low, r.change_interval.high)


def _measured_table(m: MeasuredComparison) -> str:
    rows = []
    for r in m.rows:
        low, high = _ends(r)
        span = None if low is None else f"{low:+.1f} to {high:+.1f} %"
        share = f"{r.share_pct:.1f} %"
        rows.append([r.label, r.metric, r.count_a, r.count_b, r.a_us, r.b_us, with_sign(r.change_pct), span, share, r.verdict, r.reason])
    headers = ["operation", "value", "n before", "n after", "before (us)", "after (us)", "change", "interval", "share", "verdict", "why"]
    return section("Every operation", table(headers, rows, (2, 3, 4, 5, 6, 7, 8)))
