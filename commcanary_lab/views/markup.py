"""Small pieces of HTML: sentences, key figures, badges, chips, tables. Every text that is passed in is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from commcanary_lab.trace.model import ImportCoverage
from commcanary_lab.views.extra import panel

__all__ = ["CSS", "Figure", "badges", "chip", "coverage_text", "html", "key_figures", "message", "percent", "rows_html", "title_html"]

CSS = """
:host, .cl { --t: var(--mui-palette-text-primary, #18212d); --m: var(--mui-palette-text-secondary, #56616f);
  --d: var(--mui-palette-divider, #e1e6ec); --a: var(--mui-palette-primary-main, #0f7285); --e: var(--mui-palette-error-main, #c93a32);
  --p: var(--mui-palette-background-paper, #fff); --s: color-mix(in srgb, var(--t) 5%, transparent); }
.cl { font-family: Roboto, 'Helvetica Neue', Arial, sans-serif; color: var(--t); font-size: 13.5px; line-height: 1.45;
  font-variant-numeric: tabular-nums; }
.cl * { box-sizing: border-box; }
.cl p, .cl h1 { margin: 0; }
.cl .muted { color: var(--m); }
.cl .answer { font-size: 19px; line-height: 1.4; font-weight: 400; letter-spacing: -.003em; max-width: 92ch; text-wrap: pretty; }
.cl .answer b { font-weight: 700; }
.cl .crumb { font-size: 12px; color: var(--m); margin-bottom: 4px; letter-spacing: .01em; overflow-wrap: anywhere; }
.cl .keys { display: grid; grid-template-columns: repeat(auto-fit, minmax(168px, 1fr)); gap: 0; border: 1px solid var(--d);
  border-radius: 10px; background: var(--p); overflow: hidden; }
.cl .key { padding: 13px 18px 12px; box-shadow: 1px 0 0 0 var(--d), 0 1px 0 0 var(--d); min-width: 0; }
.cl .key .n { font-size: 23px; line-height: 1.25; font-weight: 500; white-space: nowrap; letter-spacing: -.01em; }
.cl .key .n small { font-size: 14px; font-weight: 400; color: var(--m); margin-left: 3px; letter-spacing: 0; }
.cl .key .l { font-size: 12.5px; color: var(--m); margin-bottom: 2px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.cl .key .o { font-size: 11.5px; color: var(--m); margin-top: 3px; line-height: 1.35; overflow-wrap: anywhere; }
.cl .head { display: flex; align-items: flex-start; justify-content: space-between; gap: 6px 16px; flex-wrap: wrap; }
.cl .head .tt { font-size: 14.5px; font-weight: 700; }
.cl .head .st { font-size: 12.5px; color: var(--m); margin-top: 1px; }
.cl .bs { display: inline-flex; gap: 6px; flex-wrap: wrap; }
.cl .b { display: inline-flex; align-items: center; height: 21px; padding: 0 8px; border-radius: 11px; font-size: 11.5px;
  border: 1px solid var(--d); color: var(--m); white-space: nowrap; background: var(--p); }
.cl .b::before { content: ''; width: 7px; height: 7px; border-radius: 50%; margin-right: 6px; background: var(--c, transparent);
  border: 1.5px solid var(--c, transparent); }
.cl .b.plain::before { display: none; }
.cl .b.measured { --c: #2f9e62; } .cl .b.model { --c: #4477aa; } .cl .b.assumed { --c: #d3ae2c; } .cl .b.synthetic { --c: #aa3377; }
.cl .b.model::before { background: transparent; } .cl .b.assumed::before { background: transparent; border-style: dashed; }
.cl .chips { display: flex; flex-wrap: wrap; gap: 6px; }
.cl .chip { display: inline-flex; border: 1px solid var(--d); border-radius: 8px; overflow: hidden; font-size: 12px; background: var(--p); }
.cl .chip > span { padding: 3px 8px; } .cl .chip > span:first-child { color: var(--m); background: var(--s); }
.cl .chip.ok > span:last-child { color: color-mix(in srgb, #2f9e62 80%, var(--t)); font-weight: 500;
  } .cl .chip.ok > span:last-child::before { content: '\\2713\\00a0'; }
.cl .chip.bad { border-color: var(--e); } .cl .chip.bad > span:last-child { color: var(--e); font-weight: 700;
  } .cl .chip.bad > span:last-child::before { content: '\\2715\\00a0'; }
.cl .chip.open > span:last-child { color: var(--m); }
.cl table { border-collapse: collapse; width: 100%; font-size: 13px; }
.cl th { text-align: left; font-weight: 500; color: var(--m); font-size: 12px; padding: 4px 12px 5px 0;
  border-bottom: 1px solid var(--d); white-space: nowrap; }
.cl td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--d); vertical-align: top; overflow-wrap: anywhere; }
.cl tr:last-child td { border-bottom: 0; }
.cl th.r, .cl td.r { text-align: right; padding-right: 0; padding-left: 12px; white-space: nowrap; }
.cl ul { margin: 0; padding-left: 17px; } .cl li { margin: 3px 0; overflow-wrap: anywhere; }
.cl code, .cl .mono { font-family: 'SF Mono', Menlo, Consolas, 'Liberation Mono', monospace; font-size: 12px; }
.cl .bar { display: flex; height: 9px; border-radius: 5px; overflow: hidden; background: var(--s); margin: 6px 0 8px; }
.cl .bar i { display: block; height: 100%; }
.cl .box { border-radius: 8px; padding: 12px 16px; border: 1px solid var(--d); background: var(--p); }
.cl .box.err { border-color: color-mix(in srgb, var(--e) 55%, transparent); background: color-mix(in srgb, var(--e) 7%, var(--p)); }
.cl .box.warn { border-color: color-mix(in srgb, #d3ae2c 60%, transparent); background: color-mix(in srgb, #d3ae2c 9%, var(--p)); }
.cl .box .bt { font-weight: 700; margin-bottom: 3px; } .cl .box .bx { overflow-wrap: anywhere; white-space: pre-wrap; }
.cl .empty { text-align: center; padding: 56px 24px; color: var(--m); } .cl .empty .bt { font-size: 17px; color: var(--t);
  font-weight: 500; margin-bottom: 6px; }
.cl .lg { display: inline-flex; flex-wrap: wrap; gap: 4px 16px; font-size: 12.5px; color: var(--m); }
.cl .lg span { display: inline-flex; align-items: center; gap: 6px; } .cl .lg i { width: 11px; height: 11px; border-radius: 3px;
  display: inline-block; }
"""


@dataclass(frozen=True)
class Figure:
    """One key figure.

    Parameters
    ----------
    label : str
        What it is.
    value : str
        Formatted, with its unit after a space.
    origin : str
        Where it comes from: measured, synthetic, model, assumed, or a few words.
    """

    label: str
    value: str
    origin: str = ""


def html(content: str, **params: Any) -> Any:
    """Return a pane with markup of this module."""
    options = {"sizing_mode": "stretch_width", "margin": 0, **params}
    stylesheets = [CSS, *options.pop("stylesheets", [])]
    return panel().pane.HTML(f'<div class="cl">{content}</div>', stylesheets=stylesheets, **options)


def key_figures(figures: Iterable[Figure]) -> str:
    """Return key figures side by side."""
    cells = []
    for f in figures:
        number, _, unit = f.value.partition(" ")
        small = f"<small>{escape(unit)}</small>" if unit else ""
        cells.append(
            f'<div class="key"><div class="l">{escape(f.label)}</div><div class="n">{escape(number)}{small}</div>'
            f'<div class="o" title="{escape(f.origin)}">{escape(f.origin) or "&nbsp;"}</div></div>'
        )
    return f'<div class="keys">{"".join(cells)}</div>'


def badges(origin: str | None = None, coverage: str | None = None, *more: str) -> str:
    """Return the badges of a chart: where its numbers come from and how much of the source it covers."""
    out = []
    if origin:
        out.append(f'<span class="b {escape(origin.split()[0].strip(":,"))}">{escape(origin)}</span>')
    out += [f'<span class="b plain">{escape(text)}</span>' for text in (coverage, *more) if text]
    return f'<span class="bs">{"".join(out)}</span>'


def title_html(title: str, subtitle: str = "", origin: str | None = None, coverage: str | None = None, *more: str) -> str:
    """Return the head of a chart: what it shows, units, badges."""
    second = f'<div class="st">{escape(subtitle)}</div>' if subtitle else ""
    return f'<div class="head"><div><div class="tt">{escape(title)}</div>{second}</div>{badges(origin, coverage, *more)}</div>'


def coverage_text(coverage: ImportCoverage) -> str:
    """Return how much of the source a figure covers.

    Examples
    --------
    >>> coverage_text(ImportCoverage(read=200, used=150)), coverage_text(ImportCoverage(read=8, used=8))
    ('150 of 200 source records', 'all 8 source records')
    """
    if not coverage.read:
        return "source records not counted"
    if coverage.used == coverage.read:
        return f"all {coverage.read:,} source records"
    return f"{coverage.used:,} of {coverage.read:,} source records"


def percent(fraction: float) -> str:
    r"""Return a share in words.

    Examples
    --------
    >>> percent(0.613), percent(0.004), percent(0.0), percent(1.0)
    ('61\xa0%', 'less than 1 %', '0\xa0%', '100\xa0%')
    """
    if 0 < fraction < 0.01:
        return "less than 1 %"
    return f"{min(fraction, 0.99) if fraction < 1 else 1:.0%}".replace("%", "\u00a0%")


def chip(name: str, value: str, state: str = "") -> str:
    """Return one status; `state` is ``ok``, ``bad`` or ``open``."""
    return f'<span class="chip {escape(state)}"><span>{escape(name)}</span><span>{escape(value)}</span></span>'


def message(title: str, text: str = "", kind: str = "") -> str:
    """Return a box: `kind` is ``err``, ``warn`` or empty."""
    body = f'<div class="bx">{escape(text)}</div>' if text else ""
    return (
        f'<div class="box {escape(kind)}" role="{"alert" if kind == "err" else "note"}"><div class="bt">{escape(title)}</div>{body}</div>'
    )


def rows_html(headers: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Return a small table of formatted cells; columns in `right` are right aligned."""
    to_right = set(right)

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(f"<{tag}{' class=r' if i in to_right else ''}>{escape(c)}</{tag}>" for i, c in enumerate(row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', headers)}</tr></thead><tbody>{body}</tbody></table>"
