"""A replay in words: the sentence at the top, key figures, statuses, and what the data check found."""

from __future__ import annotations

from html import escape

from commcanary_lab.replay.modelled import Modelled
from commcanary_lab.replay.result import Replay
from commcanary_lab.units import format_bytes, format_us
from commcanary_lab.views.markup import Figure, chip

__all__ = ["answer", "chips_html", "ended_text", "figures", "probe_text", "ran_text", "times_text"]

_ENDED = {"failed": "The replay failed", "timeout": "The replay ran out of time", "cancelled": "The replay was cancelled"}
_BACKENDS = {"gloo": "Gloo", "nccl": "NCCL"}


def ran_text(result: Replay) -> str:
    """Return what ran, in a few words: ``4 Gloo ranks``, ``2 of 4 ranks on Gloo``."""
    spec = result.spec
    backend = _BACKENDS.get(spec.backend, spec.backend)
    if spec.ranks == spec.source_ranks:
        return f"{spec.ranks:,} {backend} rank{'s' * (spec.ranks != 1)}"
    return f"{spec.ranks:,} of {spec.source_ranks:,} ranks on {backend}"


def times_text(ratio: float) -> str:
    """Return how a time compares with another, as people say it.

    Examples
    --------
    >>> times_text(31.6), times_text(1.04), times_text(0.25), times_text(1.4)
    ('32 times that', 'about that', 'a quarter of that', '40 % more')
    """
    if 0.93 <= ratio <= 1.07:
        return "about that"
    if ratio >= 2:
        return f"{ratio:,.0f} times that" if ratio >= 9.5 else f"{ratio:.1f} times that"
    if ratio > 1:
        return f"{100 * (ratio - 1):.0f} % more"
    return f"{100 * (1 - ratio):.0f} % less" if ratio > 0.5 else f"{_part(round(1 / ratio))} of that"


def _part(n: int) -> str:
    return {2: "half", 3: "a third", 4: "a quarter"}.get(n, f"a {n:,}th")


def ended_text(result: Replay) -> str:
    """Return how a replay ended that did not end well; empty where it did."""
    if result.status == "done":
        return ""
    reason = result.state.reason
    return f"{_ENDED.get(result.status, result.status)}{f': {reason}' if reason and reason not in ('cancelled', 'interrupted') else ''}"


def answer(result: Replay, model: Modelled | None = None) -> str:
    """Return one sentence on what was measured, with ``<b>``; text of the source is escaped."""
    where = escape(ran_text(result))
    if result.status != "done":
        n, asked = result.iterations, result.spec.iterations
        kept = f"{n:,} of {asked:,} iterations were measured on all ranks" if n else "nothing was measured on all ranks"
        return f"<b>{escape(ended_text(result))}</b>. It was to run on {where}; {kept}."
    m = result.metrics
    if not m:
        return f"<b>Nothing was measured</b> on {where}: no event of the program runs there."
    first = f"On <b>{where}</b> half of the operations take at least <b>{format_us(m['latency_p50_us'])}</b>"
    first += f" and one in a hundred {format_us(m['latency_p99_us'])} or more"
    if model is not None:
        expected = model.quantile_us(0.5)
        against = times_text(m["latency_p50_us"] / expected) if expected > 0 else "more than that"
        first += (
            f"; the model&rsquo;s {escape(model.report.backend.label)} says {format_us(expected)}, and the measured median is {against}"
        )
    data = {
        "pass": "Every byte was right.",
        "not run": "The data were not checked.",
        "incomplete": "The check of the data is not complete.",
    }
    if result.count_differences:
        return f"{first}. <b>Counts differ from the program.</b>"
    if result.probe.status == "fail":
        return f"<b>The data are wrong</b>, first after {escape(str(result.probe.boundary))} in sample {result.probe.sample}. {first}."
    return f"{first}. {data[result.probe.status]}"


def figures(result: Replay, model: Modelled | None = None) -> list[Figure]:
    """Return the key figures."""
    m, spec = result.metrics, result.spec
    if not m:
        return []
    timing = "" if spec.timing == "back_to_back" else ", with its gaps"
    n = result.iterations
    out = [
        Figure("Latency, median", format_us(m["latency_p50_us"]), f"measured, {result.latency_ns.size:,} operations"),
        Figure("Latency, p99", format_us(m["latency_p99_us"]), "measured"),
        Figure("One iteration", format_us(m["cycle_p50_us"]), f"measured, median of {n:,}{timing}"),
    ]
    if model is not None:
        label = f"{model.origin}, {model.report.backend.label}"
        out.append(Figure("Modelled, median", format_us(model.quantile_us(0.5)), label))
    if spec.overlap:
        out.append(Figure("Exposed, median", format_us(m["exposed_p50_us"]), "measured, beside compute"))
    p = result.probe
    if p.status == "not run":
        out.append(Figure("Data", "unchecked", "times only"))
    else:
        words = {"pass": "right", "fail": "wrong", "incomplete": "incomplete"}[p.status]
        out.append(Figure("Data", words, f"{format_bytes(p.size_bytes)} compared in {p.samples:,} samples"))
    return out


def probe_text(result: Replay) -> str:
    """Return what the data check found, in whole sentences."""
    p = result.probe
    if p.status == "not run":
        return "The data were not checked: this replay measured times only."
    checked = (
        f"{p.boundaries:,} results of operations and {p.size_bytes:,} bytes were compared with an independently computed reference, over "
        f"all ranks and {p.samples:,} sample{'s' * (p.samples != 1)} with inputs of their own"
    )
    if p.status == "pass":
        return f"Every byte is right: {checked}."
    if p.status == "incomplete":
        return f"The check did not come to its end. {checked[0].upper() + checked[1:]}; none of them was wrong."
    ranks = f"rank{'s' * (len(p.ranks) > 1)} {', '.join(map(str, p.ranks))}"
    first = ""
    if (f := p.first) is not None:
        what = "" if f.check == "output" else f" ({f.check})"
        first = (
            f" There byte {f.byte:,} is {f.found:#04x} instead of {f.expected:#04x}{what}, and {f.wrong_bytes:,} of "
            f"{f.total_bytes:,} bytes are wrong."
        )
    return (
        f"Wrong bytes come first after {p.boundary} (event {p.event:,}) in sample {p.sample}, on {ranks}.{first} In all "
        f"{p.mismatches:,} of {p.boundaries:,} compared results are wrong."
    )


def chips_html(result: Replay, problems: list[str]) -> str:
    """Return one chip per status; `problems` are those of the seal."""
    ended = {"done": ("all ranks ended well", "ok"), "cancelled": ("cancelled", "open"), "timeout": ("out of time", "bad")}
    out = [chip("run", *ended.get(result.status, ("failed", "bad")))]
    if result.status == "done":
        wrong = result.count_differences
        out.append(chip("counts and bytes", "differ from the program" if wrong else "those of the program", "bad" if wrong else "ok"))
    data = {
        "pass": ("every byte right", "ok"),
        "fail": ("wrong", "bad"),
        "incomplete": ("not complete", "open"),
        "not run": ("not checked", "open"),
    }
    out.append(chip("data", *data[result.probe.status]))
    sealed = not any(p.startswith("SHA256SUMS: cannot be read") for p in problems)
    seal = ("not sealed", "open") if not sealed else ("changed after it was sealed", "bad") if problems else ("as it was sealed", "ok")
    out.append(chip("evidence", *seal))
    return f'<div class="chips">{"".join(out)}</div>'
