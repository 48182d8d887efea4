"""Every check of a verification against the backends: what passes where, both values under the pointer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations
from typing import Any

from commcanary_lab.trace.model import ImportCoverage
from commcanary_lab.verify.model import Check, Verification
from commcanary_lab.views.extra import panel
from commcanary_lab.views.grid import GRID_CSS, breakable, opening, tip
from commcanary_lab.views.markup import coverage_text, html, title_html
from commcanary_lab.views.status_chips import checks_card
from commcanary_lab.views.theme import paper

__all__ = ["WHOLE", "CheckRow", "check_rows", "matrix_card", "verification"]

#: The column of checks that depend on no backend.
WHOLE = "any backend"

#: Rows that are drawn; with failures first, nothing that failed is cut before this many rows failed.
MAX_ROWS = 40

#: Values in a tip.
_MAX_TIP = 9


@dataclass(frozen=True)
class CheckRow:
    """Checks of one kind.

    Parameters
    ----------
    status : str
        The status they belong to.
    name : str
        What they compare.
    cells : mapping of str to tuple of Check
        By backend, or `WHOLE`; a column that is absent is not applicable.
    """

    status: str
    name: str
    cells: Mapping[str, tuple[Check, ...]]

    @property
    def failed(self) -> int:
        """Checks of the row that failed; a decision counts for both of its backends."""
        return sum(not c.passed for checks in self.cells.values() for c in checks)


def check_rows(verification: Verification) -> tuple[CheckRow, ...]:
    """Return the checks by kind and backend, in the order of work.

    A ranking decision stands in the columns of both backends that it compares.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> rows = check_rows(lab.verify(trace, lab.compile(trace)))
    >>> [(r.status, r.name, list(r.cells)[:2]) for r in rows if r.status in ("traffic", "ranking")]
    [('traffic', 'matrix', ['any backend']), ('ranking', 'decisions', ['baseline', 'low_latency'])]
    """
    pairs = {f"{a} / {b}": (a, b) for a, b in combinations(verification.backends, 2)}
    kinds: dict[tuple[str, str], dict[str, list[Check]]] = {}
    for check in verification.checks:
        columns = (WHOLE,) if check.backend is None else pairs.get(check.backend, (check.backend,))
        cells = kinds.setdefault((check.status, _kind(check)), {})
        for column in columns:
            cells.setdefault(column, []).append(check)
    order = [WHOLE, *verification.backends]
    return tuple(CheckRow(status, name, {c: tuple(cells[c]) for c in order if c in cells}) for (status, name), cells in kinds.items())


_PLAIN = {"coverage": "events", "commitments": "commitments", "bounds": "stated values", "traffic": "matrix", "ranking": "decisions"}


def _kind(check: Check) -> str:
    """Name the kind of a check: behaviour by what it looks at, the others by their status."""
    if check.status in _PLAIN:
        return _PLAIN[check.status]
    for start, kind in (("exposed ", "exposed latency"), ("queue wait ", "queue wait"), ("hidden share", "hidden share"),
                        ("p95 tail", "p95 tail"), ("p99 tail", "p99 tail")):  # fmt: skip
        if check.name.startswith(start):
            return kind
    if check.name.startswith(("phase ", "op ")):
        head, _, last = check.name.rpartition(" ")
        return head if last == "count" or last.endswith("_us") else check.name
    return check.name


def verification(check: Verification, *, coverage: ImportCoverage | None = None) -> Any:
    """Show a verification as a matrix of checks and backends, and every check with both values below.

    Parameters
    ----------
    check : Verification
        From `commcanary_lab.verify`.
    coverage : ImportCoverage, optional
        Of the source.

    Returns
    -------
    panel.viewable.Viewable
    """
    return panel().Column(
        matrix_card(check, coverage=coverage, margin=(0, 0, 16, 0)), checks_card(check), sizing_mode="stretch_width", margin=0
    )


def matrix_card(check: Verification, *, coverage: ImportCoverage | None = None, **params: Any) -> Any:
    """Return the matrix alone, as a card."""
    return paper(html(_matrix_html(check, coverage), stylesheets=[GRID_CSS]), **params)


def _matrix_html(v: Verification, coverage: ImportCoverage | None) -> str:
    rows = check_rows(v)
    shown = sorted(rows, key=lambda r: r.failed == 0) if len(rows) > MAX_ROWS else rows
    columns = [WHOLE, *v.backends]
    failed = len(v.failures)
    text = f"{len(v.checks):,} comparisons of source and canary, {failed:,} failed; values under the pointer"
    assumed = f"assumed: {', '.join(f'{k} = {x:g}' for k, x in v.assumptions.items())}" if v.assumptions else "model"
    head = title_html(
        "Checks by backend", text, assumed, coverage_text(coverage) if coverage is not None else None, f"cost model {v.model}"
    )
    names = "".join(f'<th scope="col">{breakable(c)}</th>' for c in columns)
    body = "".join(_row(r, columns) for r in shown[:MAX_ROWS])
    rest = len(shown) - MAX_ROWS
    more = f'<p class="muted" style="margin-top:6px">{rest:,} more rows, all of them in the table below.</p>' if rest > 0 else ""
    grid = f'<table class="grid checks"><thead><tr><td></td>{names}</tr></thead><tbody>{body}</tbody></table>'
    return f"{head}{_LEGEND}{_WIDTHS}{grid}{more}"


_LEGEND = (
    '<div class="lg" style="margin:10px 0 4px"><span><i class="sw pass"></i>all comparisons pass</span>'
    '<span><i class="sw fail"></i>so many of them fail</span><span><i class="sw none"></i>not applicable</span></div>'
)
_WIDTHS = "<style>.cl table.checks td:first-child, .cl table.checks tbody th { width: 190px } .cl table.checks td { height: 28px }</style>"


def _row(row: CheckRow, columns: Sequence[str]) -> str:
    name = row.name if row.name.startswith(row.status) else f"{row.status}: {row.name}"
    cells = "".join(_cell(row, name, column, opening(at, len(columns))) for at, column in enumerate(columns))
    return f'<tr><th scope="row">{breakable(name)}</th>{cells}</tr>'


def _cell(row: CheckRow, name: str, column: str, side: str) -> str:
    checks = row.cells.get(column)
    if not checks:
        why = "depends on no backend" if column != WHOLE else "compared for each backend"
        return f'<td class="none {side}" tabindex="0" aria-label="not applicable">{tip("Not applicable", [("", f"{name} {why}")])}</td>'
    failed = [c for c in checks if not c.passed]
    text = f"✕ {len(failed):,} of {len(checks):,}" if failed else f"✓ {len(checks):,}"
    spoken = f"{name}, {column}: {f'{len(failed)} of {len(checks)} fail' if failed else f'{len(checks)} pass'}"
    first = [*failed, *(c for c in checks if c.passed)][:_MAX_TIP]
    lines = [(_compared(c, column), f"{_value(c.source)} → {_value(c.canary)}{'' if c.passed else '  ✕'}") for c in first]
    if len(checks) > len(first):
        lines.append(("", f"and {len(checks) - len(first):,} more, in the table below"))
    shown = tip(f"{name}, {column}: source → canary", lines)
    state = "fail" if failed else "pass"
    return f'<td class="{state} {side}" tabindex="0" aria-label="{escape(spoken)}">{text}{shown}</td>'


def _compared(check: Check, column: str) -> str:
    return f"{check.backend}, {check.name}" if check.status == "ranking" and check.backend != column else check.name


def _value(value: float | int | str | None) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:,.6g}"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
