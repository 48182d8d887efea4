"""Calibration: latency and bandwidth from a size sweep, and which changes they say would help."""

from __future__ import annotations

from commcanary_lab.replay.calibration.costs import cost_of
from commcanary_lab.replay.calibration.fit import Fit, fit
from commcanary_lab.replay.calibration.fit_file import read_fit, write_fit
from commcanary_lab.replay.calibration.levers import Levers, levers
from commcanary_lab.replay.calibration.measure import measure
from commcanary_lab.replay.calibration.samples import SizeSamples, from_table, geometric_sizes
from commcanary_lab.replay.calibration.terms import Terms
from commcanary_lab.replay.calibration.worked_example import byte_saving_bound, factor_rate

__all__ = [
    "Fit",
    "Levers",
    "SizeSamples",
    "Terms",
    "byte_saving_bound",
    "cost_of",
    "factor_rate",
    "fit",
    "from_table",
    "geometric_sizes",
    "levers",
    "measure",
    "read_fit",
    "write_fit",
]
