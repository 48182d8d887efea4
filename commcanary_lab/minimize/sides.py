"""A minimised result made ready for comparison: its canary, what it kept of the source, and its verification against the whole source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import UsageError
from commcanary_lab.minimize.baselines import Baseline
from commcanary_lab.minimize.ddmin import Reduction
from commcanary_lab.minimize.search import Search
from commcanary_lab.minimize.worst import smallest_tail_recall, worst_error
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS
from commcanary_lab.simulate.models import get_model
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.simulate.report import Report
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.derived import derived_from, verify_derived
from commcanary_lab.verify.model import Verification
from commcanary_lab.verify.run import verify_canary
from commcanary_lab.verify.setting import Setting

__all__ = ["Minimised", "Side", "make_side"]

#: What can be compared: a canary, a (reduced) trace, or the result of a minimiser.
Minimised = Canary | Trace | Reduction | Search | Baseline

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Side:
    """One of the results that are compared.

    Attributes
    ----------
    label : str
        Its name.
    canary : Canary
        Its canary.
    kept : ndarray of int64, shape (events,)
        Source index of each event of the canary.
    verification : Verification
        Against the whole source.
    setting : Setting
        On what it was compared.
    """

    label: str
    canary: Canary
    kept: IntArray
    verification: Verification
    setting: Setting

    @cached_property
    def reports(self) -> tuple[Report, ...]:
        """Simulations of the canary, one per backend."""
        return tuple(self.setting.reports(prepare(self.canary.trace, self.setting.assume)))

    @property
    def worst_error(self) -> float:
        """Largest difference over its tolerance, over ranking and behaviour checks."""
        return worst_error(self.verification.checks, self.setting.tolerances)

    @property
    def tail_recall(self) -> float | None:
        """Smallest tail recall over quantiles and backends."""
        return smallest_tail_recall(self.verification.checks)


def make_side(result: Minimised, source: Trace, label: str, setting: Setting) -> Side:
    """Compile a result where it is no canary yet, and verify it against the source.

    Raises
    ------
    UsageError
        If a search has no canary.
    """
    canary = _canary(result, setting)
    stated = derived_from(canary)
    options = {
        "backends": setting.backends,
        "tolerances": setting.tolerances,
        "assume": setting.assume,
        "model": setting.model,
        "salt": setting.salt if canary.source.salted else b"",
    }
    if stated is None:
        kept = np.arange(canary.source.start, canary.source.stop)
        found = result.verification if isinstance(result, Search) else None
        check = found if found is not None and _same(found, setting) else verify_canary(source, canary, **options)  # type: ignore[arg-type]
    else:
        kept = stated.kept[canary.source.start : canary.source.stop]
        check = verify_derived(source, canary, **options)  # type: ignore[arg-type]
    return Side(label, canary, kept, check, setting)


def _same(found: Verification, setting: Setting) -> bool:
    """Whether a search was verified in this setting; only the names of the default backends say what they are."""
    stated = (found.backends, found.tolerances, found.model)
    return setting.backends == DEFAULT_BACKENDS and stated == (setting.labels, setting.tolerances, get_model(setting.model).name)


def _canary(result: Minimised, setting: Setting) -> Canary:
    if isinstance(result, Canary):
        return result
    if isinstance(result, Search):
        if result.canary is None:
            raise UsageError("the search found no canary", remedy="let it finish")
        return result.canary
    trace = result if isinstance(result, Trace) else result.trace
    return compile_trace(trace, salt=setting.salt, derived_from=trace.extra.get("derived_from"))
