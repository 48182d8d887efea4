"""A history as one HTML file: the newest verdict in words, the trend, every entry, and the newest comparison in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commcanary_lab.review.charts_history import TREND_LEGEND, trend_svg
from commcanary_lab.review.comparison import Comparison, with_sign
from commcanary_lab.review.history import Entry, History
from commcanary_lab.review.html import body_of, policy_table, policy_words
from commcanary_lab.review.html_parts import VERDICTS, chart, figure, foot, head, identity, listing, page, section, signoffs_section, table
from commcanary_lab.review.signoff import SignOff, SignOffCheck
from commcanary_lab.units import format_us

__all__ = ["history_html"]

_METRICS = (("p99", "p99_us"), ("p95", "p95_us"), ("median", "p50_us"))


def history_html(
    history: History, *, entry: str | None = None, signoffs: Mapping[str, Sequence[tuple[SignOff, SignOffCheck]]] | None = None
) -> str:
    """Return a history as a self-contained HTML page.

    Parameters
    ----------
    history : History
        The series.
    entry : str, optional
        Entry whose comparison follows in full; the newest one that was compared, if not given.
    signoffs : mapping, optional
        For names of entries, what reviewers decided about their comparison, and whether that still holds (`check_signoff`).

    Returns
    -------
    str
        HTML; every text from outside is escaped.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.review import history
    >>> a, b = (lab.simulate(lab.samples.adversarial(), n) for n in ("baseline", "high_bandwidth"))
    >>> text = history_html(history([("w1", a), ("w2", a), ("w3", b)]))
    >>> "<script" in text, "It is the first with this verdict; w2 passed." in text
    (False, True)
    """
    h, signed = history, signoffs or {}
    shown = h.entry(entry) if entry is not None else next((e for e in reversed(h.entries) if e.comparison is not None), h.newest)
    rows = [("policy", policy_words(h.policy, h.kind), h.policy.sha256(h.kind))]
    rows += [("newest entry", h.newest.name, h.newest.member.sha256)]
    if shown.against is not None:
        rows += [("baseline", shown.against, h.entry(shown.against).member.sha256)]
    what = "exposed latency, modelled" if h.kind == "reports" else f"measured latency of every collective, {h.newest.member.what}"
    dotted = "" if h.kind == "reports" else " Operations are judged one by one, so that no limit is drawn."
    parts = [
        head(h.verdict, h.sentences[0], (h.entries[0].name, h.newest.name), f"{len(h.entries)} entries; {what}."),
        f'<div class="figures">{"".join(_figure(h.newest, m, name) for m, name in _METRICS)}{_count(h)}</div>',
        identity(rows),
        signoffs_section(signed.get(shown.name, ())),
        section("In words", listing(h.sentences[1:])),
        section(
            "Trend", TREND_LEGEND + chart(trend_svg(h.entries, what, "Quantiles of the latency over the entries")), _against(h) + dotted
        ),
        _table(h, signed),
    ]
    if shown.comparison is not None and shown.against is not None:
        names = (shown.against, shown.name)
        parts.append(f'<div class="pair">{body_of(shown.comparison, names)}</div>')
    else:
        parts += [policy_table(h.policy, measured=h.kind == "measured"), foot("commcanary-lab trend computes this page from its files.")]
    title = f"{VERDICTS[h.verdict]}: {h.newest.name} and {len(h.entries) - 1} before it"
    running = f"{VERDICTS[h.verdict]}, {', '.join(f'{role} {sha[:12]}' for role, _, sha in rows)}"
    return page(title, "".join(parts), running)


def _against(h: History) -> str:
    words = {"first": "the first entry", "previous": "the entry before it"}
    return f"Each entry is compared with {words.get(h.baseline, h.baseline)}, and ordered by {h.ordered_by}."


def _figure(e: Entry, metric: str, name: str) -> str:
    value = e.figure(name)
    text = "not known" if value is None else format_us(value)
    label = "p50" if metric == "median" else metric
    limit = e.limit_us(metric)
    if not isinstance(e.comparison, Comparison) or limit is None:
        return figure(f"{label}, newest", text, "", VERDICTS[e.verdict].lower(), "pass")
    return figure(
        f"{label}, newest", text, with_sign(e.comparison.deltas[f"{metric}_pct"]), f"allowed {format_us(limit)}", e.result(metric) or "pass"
    )


def _count(h: History) -> str:
    failed = sum(e.verdict in ("fail", "inconclusive") for e in h.entries)
    judged = sum(e.comparison is not None for e in h.entries)
    return figure("entries that fail", f"{failed} of {judged}", "", f"{len(h.incomparable)} not comparable", "pass")


def _table(h: History, signed: Mapping[str, Sequence[tuple[SignOff, SignOffCheck]]]) -> str:
    rows = []
    for e in h.entries:
        moved = ", ".join(f"{'p50' if s.metric == 'median' else s.metric} {with_sign(s.change_pct)}" for s in e.steps if s.moved)
        decided = ", ".join(f"{s.words}{'' if c.passed else ' (' + c.status.replace('_', ' ') + ')'}" for s, c in signed.get(e.name, ()))
        change = with_sign(e.comparison.deltas["p99_pct"]) if isinstance(e.comparison, Comparison) else None
        figures = [e.figure(n) for n in ("p50_us", "p95_us", "p99_us", "mean_us")]
        rows.append([e.name, e.date, *figures, change, e.verdict, e.problem or moved, decided])
    headers = [
        "entry",
        "date",
        "p50 (us)",
        "p95 (us)",
        "p99 (us)",
        "mean (us)",
        "p99",
        "verdict",
        "moved since the last",
        "sign-off",
    ]
    note = (
        f"Moved: the whole interval of the change lies on one side of 0; all intervals of a quantile hold together with "
        f"{100 * h.policy.measured_confidence:g} %."
    )
    return section("Every entry", table(headers, rows, (2, 3, 4, 5, 6)), note)
