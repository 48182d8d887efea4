"""How each kind of artifact is opened. What opening raises, a user may read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.review.comparison_file import ComparisonFile
    from commcanary_lab.review.signoff import SignOff
    from commcanary_lab.simulate.report_file import ReportFile
    from commcanary_lab.trace.model import Trace
    from commcanary_lab.workspace.ledger_file import LedgerFile

__all__ = ["OPENERS"]


def _open_trace(path: Path) -> Trace:
    """A trace file, or a folder of per-rank files."""
    from commcanary_lab.importers.open import open_trace

    return open_trace([path])


def _open_canary(path: Path) -> Canary:
    from commcanary_lab.canary.read import read_canary

    return read_canary(path)


def _open_report(path: Path) -> ReportFile:
    from commcanary_lab.simulate.report_file import read_report

    return read_report(path)


def _open_comparison(path: Path) -> ComparisonFile:
    from commcanary_lab.review.comparison_file import read_comparison

    return read_comparison(path)


def _open_signoff(path: Path) -> SignOff:
    from commcanary_lab.review.signoff import read_signoff

    return read_signoff(path)


def _open_ledger(path: Path) -> LedgerFile:
    from commcanary_lab.workspace.ledger_file import read_ledger

    return read_ledger(path)


#: Kinds that are files; evidence is opened by the package that writes it.
OPENERS: dict[str, Callable[[Path], object]] = {
    "trace": _open_trace,
    "canary": _open_canary,
    "report": _open_report,
    "comparison": _open_comparison,
    "signoff": _open_signoff,
    "ledger": _open_ledger,
}
