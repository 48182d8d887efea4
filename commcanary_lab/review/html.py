"""A comparison as one HTML file: works offline and on paper, in light and dark, without any script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape

from commcanary_lab.review.charts import MAX_ROWS, Bar, Pair, Span, cumulative, deltas, pairs, spans
from commcanary_lab.review.comparison import Comparison, percent
from commcanary_lab.review.evaluate import Evaluation
from commcanary_lab.review.measured import MeasuredComparison, MeasuredRow
from commcanary_lab.review.policy import Policy
from commcanary_lab.review.style import CSS
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.units import format_us

__all__ = ["html_report"]

_WORDS = {"pass": "Pass", "warn": "Warning", "fail": "Fail", "inconclusive": "Inconclusive"}
_SIDES = '<span class="key before"></span>baseline <span class="key after"></span>candidate'
_LEGEND = f'<p class="legend">{_SIDES} <span class="key failed"></span>outside the policy <span class="tickmark"></span>allowed</p>'
_CURVES = f'<p class="legend">{_SIDES}</p>'


def html_report(comparison: Comparison | MeasuredComparison, *, names: tuple[str, str] = ("baseline", "candidate")) -> str:
    """Return a comparison as a self-contained HTML page.

    Parameters
    ----------
    comparison : Comparison or MeasuredComparison
        The result.
    names : (str, str)
        What to call both sides, such as file names.

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
    body = _reports(comparison, names) if isinstance(comparison, Comparison) else _measured(comparison, names)
    title = f"{_WORDS[comparison.verdict]}: {names[0]} against {names[1]}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title><style>{CSS}</style></head>\n'
        f"<body><main>{body}</main></body></html>\n"
    )


def _head(verdict: str, sentence: str, names: tuple[str, str], facts: str) -> str:
    return (
        f'<header><p class="names">{escape(names[0])} <span>→</span> {escape(names[1])}</p>'
        f'<h1><span class="verdict {verdict}">{_WORDS[verdict]}</span> {escape(sentence)}</h1><p class="facts">{escape(facts)}</p></header>'
    )


def _figure(name: str, value: str, change: str, note: str, result: str) -> str:
    return (
        f'<div class="figure {result}"><p class="what">{escape(name)}</p><p class="number">{escape(value)}</p>'
        f'<p class="change">{escape(change)}</p><p class="note">{escape(note)}</p></div>'
    )


def _section(title: str, content: str, note: str = "") -> str:
    return f"<section><h2>{escape(title)}</h2>{f'<p class=note>{escape(note)}</p>' if note else ''}{content}</section>"


def _chart(svg: str) -> str:
    return f'<div class="scroll">{svg}</div>'


def _listing(sentences: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(s)}</li>' for s in sentences)}</ul>"


def _table(headers: Sequence[str], rows: Iterable[Sequence[object]], numeric: Sequence[int] = ()) -> str:
    """Return a table; cells that are results get their colour, numeric columns are right aligned."""
    out = ['<div class="scroll"><table><thead><tr>']
    out += [f'<th class="{"n" if i in numeric else ""}">{escape(h)}</th>' for i, h in enumerate(headers)]
    out.append("</tr></thead><tbody>")
    for row in rows:
        out.append("<tr>")
        for i, value in enumerate(row):
            text = "–" if value is None else f"{value:,.3f}" if isinstance(value, float) else str(value)
            kind = "n" if i in numeric else f"result {text}" if text in _RESULTS else "text" if len(text) > 28 else ""
            out.append(f'<td class="{kind}">{escape(text)}</td>')
        out.append("</tr>")
    return "".join([*out, "</tbody></table></div>"])


_RESULTS = {"pass", "warn", "fail", "regression", "improvement", "unchanged", "inconclusive"}


def _reports(c: Comparison, names: tuple[str, str]) -> str:
    overall = {e.metric: e for e in c.evaluations if e.scope == "overall"}
    failed = sum(e.threshold_result == "fail" for e in c.evaluations)
    events = f"{c.base.events:,} events, cost model {c.base.model}: modelled, not measured"
    sentence = c.headline.partition(": ")[2]
    parts = [
        _head(c.verdict, sentence, names, f"{events}. {failed} of {len(c.evaluations)} values fail."),
        f'<div class="figures">{"".join(_key_figure(overall[m]) for m in ("p99", "p95", "median"))}{_hidden_figure(c.evaluations)}</div>',
        _section("Why", _listing(c.reasons)),
        _section("Exposed latency", _LEGEND + _chart(pairs(_quantiles(c), "exposed latency (us)", "Exposed latency before and after")),
                 "The mark is the largest value that the policy allows."),
    ]  # fmt: skip
    if c.base.exposed_us is not None and c.candidate.exposed_us is not None and len(c.base.exposed_us) and len(c.candidate.exposed_us):
        chart = cumulative(c.base.exposed_us, c.candidate.exposed_us, "exposed latency (us)", "Distribution of exposed latency")
        parts.append(_section("Distribution", _CURVES + _chart(chart), "Every event of every iteration; the dot is the median."))
    for scope, title in (("phase", "By phase"), ("operation", "By operation")):
        found = c.where(scope)
        if found:
            parts.append(_section(title, _breakdown(found, c.policy), _localised(found, scope)))
    parts += [_values(c), _sides(c, names), _policy_table(c.policy)]
    return "".join(parts) + _foot("commcanary-lab verify-comparison recomputes every number on this page from the two reports.")


def _key_figure(e: Evaluation) -> str:
    limit = f"was {format_us(e.baseline or 0.0)}; allowed +{e.threshold:g} %"
    return _figure(f"{e.metric} exposed", format_us(e.candidate or 0.0), percent(e.change), limit, e.threshold_result)


def _hidden_figure(evaluations: Sequence[Evaluation]) -> str:
    e = next(e for e in evaluations if e.is_hidden_share)
    note = f"was {e.baseline:.1f} %; allowed -{e.threshold:g} points"
    return _figure("hidden share", f"{e.candidate:.1f} %", percent(e.change, " points"), note, e.threshold_result)


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


def _breakdown(found: Sequence[Evaluation], policy: Policy) -> str:
    bars = [Bar(e.name or "", e.change, e.threshold_result) for e in found[:MAX_ROWS]]
    more = f'<p class="note">{len(found) - MAX_ROWS} more in the table below.</p>' if len(found) > MAX_ROWS else ""
    return _chart(deltas(bars, policy.breakdown_threshold_pct, "Change of p99")) + more


def _localised(found: Sequence[Evaluation], scope: str) -> str:
    failing = [e for e in found if e.threshold_result == "fail"]
    if not failing:
        return f"No {scope} exceeds its p99 threshold."
    return f"{len(failing)} of {len(found)} {scope}s exceed the p99 threshold; the most in {failing[0].name}, {percent(failing[0].change)}."


def _values(c: Comparison) -> str:
    rows = []
    for e in c.evaluations:
        limit = f"-{e.threshold:g} points" if e.is_hidden_share else f"+{e.threshold:g} % and {e.absolute_threshold_us:g} us"
        change = percent(e.change, " points" if e.is_hidden_share else " %")
        rows.append([e.scope, e.label, e.baseline, e.candidate, e.absolute_delta if not e.is_hidden_share else None, change, limit,
                     e.threshold_result])  # fmt: skip
    headers = ["", "value", "baseline", "candidate", "change (us)", "change", "allowed", "result"]
    return _section("Every value", _table(headers, rows, (2, 3, 4, 5, 6)), "Latencies in microseconds, the hidden share in percent.")


def _sides(c: Comparison, names: tuple[str, str]) -> str:
    a, b = _described(c.base), _described(c.candidate)
    rows = [[name, a[name], b[name], "" if a[name] == b[name] else "differs"] for name in a]
    notes = [f"{names[0]}: {n}" for n in c.base.notes] + [f"{names[1]}: {n}" for n in c.candidate.notes]
    return _section("What was compared", _table(["", names[0], names[1], ""], rows) + (_listing(notes) if notes else ""))


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


def _policy_table(policy: Policy, *, measured: bool = False) -> str:
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
    return _section("Policy", _table(["value", "allowed", ""], rows, (1,)))


def _foot(text: str) -> str:
    return f"<footer><p>{escape(text)}</p></footer>"


def _measured(m: MeasuredComparison, names: tuple[str, str]) -> str:
    medians = [(r, s) for r, s in zip(m.rows, m.samples, strict=True) if r.metric == "median"]
    counts = {v: [r for r, _ in medians if r.verdict == v] for v in ("regression", "improvement", "unchanged", "inconclusive")}
    confidence = f"{m.policy.measured_confidence * 100:g} % intervals"
    facts = f"{m.events_a:,} and {m.events_b:,} events, {m.origin}; latency of the longest rank, {confidence}."
    figures = "".join(
        _figure(words, str(len(counts[v])), f"{sum(r.share_pct for r in counts[v]):.1f} %", "of the measured time",
                "fail" if v == "regression" and counts[v] else "pass")
        for v, words in (("regression", "medians regressed"), ("improvement", "medians improved"), ("unchanged", "medians unchanged"),
                         ("inconclusive", "medians inconclusive"))
    )  # fmt: skip
    parts = [_head(m.verdict, m.headline.partition(": ")[2], names, facts), f'<div class="figures">{figures}</div>']
    parts.append(_section("Why", _listing(m.reasons)))
    drawn = [Span(r.label, r.change_pct, *_ends(r), r.verdict) for r, _ in medians if r.change_pct is not None]
    if drawn:
        note = "Within the band nothing counts. The operations with the largest share of the measured time come first."
        more = f'<p class="note">{len(drawn) - MAX_ROWS} more in the table below.</p>' if len(drawn) > MAX_ROWS else ""
        chart = spans(drawn, m.policy.median_threshold_pct, "Change of the median")
        parts.append(_section("Change per operation", _chart(chart) + more, note))
    worst = next((x for v in ("regression", "inconclusive", "improvement", "unchanged") for x in medians if x[0].verdict == v), None)
    if worst is not None:
        chart = cumulative(*worst[1], "measured latency (us)", "Distribution of measured latency")
        parts.append(_section(f"Distribution of {worst[0].label}", _CURVES + _chart(chart), worst[0].reason))
    parts += [_measured_table(m), _policy_table(m.policy, measured=True)]
    if m.notes:
        parts.append(_section("Notes", _listing(m.notes)))
    return "".join(parts) + _foot("commcanary-lab verify-comparison recomputes every number on this page from the two traces.")


def _ends(r: MeasuredRow) -> tuple[float | None, float | None]:
    return (None, None) if r.change_interval is None else (r.change_interval.low, r.change_interval.high)


def _measured_table(m: MeasuredComparison) -> str:
    rows = []
    for r in m.rows:
        low, high = _ends(r)
        span = None if low is None else f"{low:+.1f} to {high:+.1f} %"
        share = f"{r.share_pct:.1f} %"
        rows.append([r.label, r.metric, r.count_a, r.count_b, r.a_us, r.b_us, percent(r.change_pct), span, share, r.verdict, r.reason])
    headers = ["operation", "value", "n before", "n after", "before (us)", "after (us)", "change", "interval", "share", "verdict", "why"]
    return _section("Every operation", _table(headers, rows, (2, 3, 4, 5, 6, 7, 8)))
