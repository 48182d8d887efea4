"""One number for how far behaviour is off: the largest ratio of a difference to its tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterable

from commcanary_lab.verify.model import Check, Tolerances

__all__ = ["check_ratio", "smallest_tail_recall", "worst_error"]


def check_ratio(check: Check, tolerances: Tolerances) -> float:
    """Return a check's difference over its tolerance: at most 1 exactly where it passes.

    Latencies are measured against ``max(relative * source, absolute)``, the hidden share against its points, a tail's recall by what
    is missing against what may be missing, a tail's total against ``relative * source``. A count has no tolerance: where it differs the
    ratio is ``1 + difference / (relative * source)``, so that it still orders candidates. A ranking decision that flipped counts 2.

    Parameters
    ----------
    check : Check
        Of status ``behavior`` or ``ranking``.
    tolerances : Tolerances

    Examples
    --------
    >>> t = Tolerances()
    >>> check_ratio(Check("behavior", "exposed p99_us", True, 100.0, 105.0), t)
    0.5
    >>> check_ratio(Check("behavior", "event count", False, 100, 1), t), check_ratio(Check("behavior", "event count", True, 5, 5), t)
    (10.9, 0.0)
    """
    ratio = _ratio(check, tolerances)
    return min(ratio, 1.0) if check.passed else max(ratio, math.nextafter(1.0, 2.0))


def _ratio(check: Check, tolerances: Tolerances) -> float:
    if check.status == "ranking":
        return 0.0 if check.passed else 2.0
    source = 0.0 if isinstance(check.source, str) or check.source is None else float(check.source)
    canary = 0.0 if isinstance(check.canary, str) or check.canary is None else float(check.canary)
    difference, name = abs(source - canary), check.name
    if isinstance(check.source, str) or isinstance(check.canary, str) or name.endswith(" count"):
        return 1 + difference / (tolerances.relative * max(1.0, abs(source))) if difference else 0.0
    if " tail recall " in name:
        return _over(1 - canary, 1 - tolerances.tail_recall)
    if " tail total " in name:
        return _over(difference, tolerances.relative * abs(source))
    if name.startswith("hidden share"):
        return _over(difference, tolerances.hidden_points)
    return _over(difference, max(tolerances.relative * abs(source), tolerances.absolute_us))


def _over(difference: float, tolerance: float) -> float:
    if not difference:
        return 0.0
    return difference / tolerance if tolerance else math.inf


def worst_error(checks: Iterable[Check], tolerances: Tolerances) -> float:
    """Return the largest `check_ratio` over all behaviour and ranking checks; at most 1 exactly when all of them pass.

    Parameters
    ----------
    checks : iterable of Check
        Those of other statuses are left out.
    tolerances : Tolerances
    """
    return max((check_ratio(c, tolerances) for c in checks if c.status in ("behavior", "ranking")), default=0.0)


def smallest_tail_recall(checks: Iterable[Check]) -> float | None:
    """Return the smallest tail recall over quantiles and backends; None where no tail was compared.

    Examples
    --------
    >>> smallest_tail_recall([Check("behavior", "p99 tail recall (at least 0.8)", False, 1.0, 0.5, "baseline")])
    0.5
    """
    found = [float(c.canary) for c in checks if c.status == "behavior" and " tail recall " in c.name and isinstance(c.canary, (int, float))]
    return min(found, default=None)
