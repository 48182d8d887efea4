"""Pieces of a page that is one HTML file: its frame, cards, tables, figures; no script, nothing from outside, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from commcanary_lab.review.signoff import SignOff, SignOffCheck
from commcanary_lab.review.style import CSS

__all__ = [
    "RESULT_SIGNS",
    "VERDICTS",
    "chart",
    "figure",
    "foot",
    "head",
    "identity",
    "listing",
    "page",
    "section",
    "signoffs_section",
    "table",
]

VERDICTS = {
    "pass": "Pass",
    "warn": "Warning",
    "fail": "Fail",
    "inconclusive": "Inconclusive",
    "incomparable": "Not comparable",
    "baseline": "Baseline",
}

#: Beside a colour always a sign: nobody has to tell red from green.
RESULT_SIGNS = {"pass": "\u2713", "warn": "!", "fail": "\u2715", "inconclusive": "?", "incomparable": "\u2013", "baseline": "\u25c6"}

#: Nothing is fetched, nothing runs; the style sheet stands in the file.
_CSP = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(title: str, body: str, running: str = "") -> str:
    """Return a whole page.

    Parameters
    ----------
    title : str
        Of the window.
    body : str
        HTML.
    running : str
        Stands on top of every printed page.

    Examples
    --------
    >>> text = page("<a>", "<p>b</p>", 'x"y')
    >>> "<a>" in text, "default-src 'none'" in text, "content: 'x y'" in text
    (False, True, True)
    """
    # a string of a style sheet: letters, digits and a few signs only
    safe = "".join(c if c.isalnum() or c in " .,:/-_()%" else " " for c in running)
    top = f"@page{{@top-left{{content: '{safe}'}}}}" if safe else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_CSP}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{CSS}{top}</style></head>\n<body><main>{body}</main></body></html>\n"
    )


def head(verdict: str, sentence: str, names: Sequence[str], facts: str) -> str:
    """Return the top of a page: what was compared, the verdict, the most important changes."""
    crumb = " <span>\u2192</span> ".join(escape(n) for n in names)
    mark = f'<span class="verdict {verdict}">{RESULT_SIGNS[verdict]} {VERDICTS[verdict]}</span>'
    said = escape(sentence).replace(" %", "&nbsp;%")  # a line does not begin with a percent sign
    return f'<header><p class="names">{crumb}</p><h1>{mark} {said}</h1><p class="facts">{escape(facts)}</p></header>'


def figure(name: str, value: str, change: str, note: str, result: str) -> str:
    """Return one key figure."""
    return (
        f'<div class="figure {result}"><p class="what">{escape(name)}</p><p class="number">{escape(value)}</p>'
        f'<p class="change">{escape(change)}</p><p class="note">{escape(note)}</p></div>'
    )


def section(title: str, content: str, note: str = "") -> str:
    """Return a card."""
    return f"<section><h2>{escape(title)}</h2>{f'<p class=note>{escape(note)}</p>' if note else ''}{content}</section>"


def chart(svg: str) -> str:
    """Return a chart that scrolls where the screen is narrow."""
    return f'<div class="scroll">{svg}</div>'


def listing(sentences: Iterable[str]) -> str:
    """Return sentences as a list."""
    return f"<ul>{''.join(f'<li>{escape(s)}</li>' for s in sentences)}</ul>"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], numeric: Sequence[int] = ()) -> str:
    """Return a table; cells that are results get their colour, numeric columns are right aligned."""
    out = ['<div class="scroll"><table><thead><tr>']
    out += [f'<th class="{"n" if i in numeric else ""}">{escape(h)}</th>' for i, h in enumerate(headers)]
    out.append("</tr></thead><tbody>")
    for row in rows:
        out.append("<tr>")
        for i, value in enumerate(row):
            text = "\u2013" if value is None else f"{value:,.3f}" if isinstance(value, float) else str(value)
            kind = "n" if i in numeric else f"short result {text}" if text in _RESULTS else "text" if len(text) > 28 else "short"
            sign = f"{RESULT_SIGNS[text]} " if text in RESULT_SIGNS and i not in numeric else ""
            out.append(f'<td class="{kind}">{sign}{escape(text)}</td>')
        out.append("</tr>")
    return "".join([*out, "</tbody></table></div>"])


_RESULTS = {"pass", "warn", "fail", "regression", "improvement", "unchanged", "inconclusive", "incomparable", "baseline"}


def foot(text: str) -> str:
    """Return the last line of a page."""
    return f"<footer><p>{escape(text)}</p></footer>"


def identity(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return what a page rests on: role, name and SHA-256 of each input and of the policy."""
    cells = "".join(f"<tr><th>{escape(role)}</th><td>{escape(name)}</td><td class=hash>{escape(sha)}</td></tr>" for role, name, sha in rows)
    return f'<section class="identity"><table><tbody>{cells}</tbody></table></section>'


_STATES = {
    "current": ("pass", "about exactly this comparison"),
    "other_policy": ("warn", "about these inputs under another policy"),
    "stale": ("warn", "stale"),
}


def signoffs_section(signed: Sequence[tuple[SignOff, SignOffCheck]]) -> str:
    """Return what reviewers decided, the newest first; empty where nobody did."""
    if not signed:
        return ""
    out = []
    for s, check in sorted(signed, key=lambda pair: pair[0].written_at, reverse=True):
        kind, words = _STATES[check.status]
        why = f": {'; '.join(check.reasons)}" if check.reasons else ""
        by = f" by {escape(s.reviewer)}" if s.reviewer else ""
        note = f'<p class="said">{escape(s.note)}</p>' if s.note else ""
        facts = f"{s.written_at}; the verdict was {s.verdict}; {s.baseline.name} \u2192 {s.candidate.name}"
        facts += f"; comparison {s.comparison_sha256[:16]}"
        out.append(
            f'<div class="signoff"><p><b>{escape(s.words)}</b>{by} <span class="result {kind}">{escape(words + why)}</span></p>'
            f'{note}<p class="note">{escape(facts)}</p></div>'
        )
    return section("Sign-off", "".join(out), "A file does not prove who wrote it: who may write to the folder decides who can sign.")
