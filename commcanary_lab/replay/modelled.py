"""What the model says of the events that a replay measured, event by event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.model import Canary
from commcanary_lab.replay.result import Replay
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.simulate.report import Report, simulate_prepared

__all__ = ["Modelled", "modelled"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Modelled:
    """Service times of a simulation, for the events that were replayed.

    Attributes
    ----------
    result : Replay
        What was measured.
    report : Report
        The simulation of the same program, all its ranks and events.
    """

    result: Replay
    report: Report

    @property
    def origin(self) -> str:
        """``model``, or what was assumed."""
        assumed = ", ".join(f"{k} = {v:g}" for k, v in self.report.assumptions.items())
        return f"assumed: {assumed}" if assumed else "model"

    @cached_property
    def service_us(self) -> FloatArray:
        """Time from the last arrival to the end without waiting for other operations, shape (e,): what a replay with barriers measures."""
        samples = self.report.samples
        size = len(self.report.prepared)
        total = np.bincount(samples.event, weights=samples.service_us, minlength=size)
        return np.asarray(total / np.bincount(samples.event, minlength=size))[self.result.events]

    def quantile_us(self, q: float) -> float:
        """Return a quantile over the replayed events."""
        return float(np.quantile(self.service_us, q))

    def kind_us(self, kind: tuple[str, int, int], q: float = 0.5) -> float:
        """Return a quantile over the events of one of `Replay.kinds`."""
        return float(np.quantile(self.service_us[self.result.kinds[kind]], q))


def modelled(
    result: Replay, backend: Backend, *, assume: Mapping[str, float] | None = None, model: str | CostModel = "commcanary-v4"
) -> Modelled:
    """Simulate what was replayed.

    Parameters
    ----------
    result : Replay
        Its program is simulated whole; of a replay on fewer ranks only the replayed events are compared.
    backend : Backend
        The configuration.
    assume : mapping of str to float, optional
        Values for what the source does not say.
    model : str or CostModel
        The cost model.

    Raises
    ------
    UnknownValueError
        If a field is unknown and not assumed.
    """
    trace = result.source.trace if isinstance(result.source, Canary) else result.source
    return Modelled(result, simulate_prepared(prepare(trace, assume), backend, model=model))
