"""Questions to a trace: operation table, stragglers, iterations, overlap shares, difference of two traces."""

from commcanary_lab.inspect.difference import DifferenceRow, TraceDifference, diff
from commcanary_lab.inspect.iterations import Iteration, Iterations, iterations
from commcanary_lab.inspect.rates import algbw_gb_s, bus_factor
from commcanary_lab.inspect.shares import OverlapShare, OverlapShares, overlap_shares
from commcanary_lab.inspect.stragglers import StragglerRow, StragglerTable, stragglers
from commcanary_lab.inspect.table import OperationRow, OperationTable, ops

__all__ = [
    "DifferenceRow",
    "Iteration",
    "Iterations",
    "OperationRow",
    "OperationTable",
    "OverlapShare",
    "OverlapShares",
    "StragglerRow",
    "StragglerTable",
    "TraceDifference",
    "algbw_gb_s",
    "bus_factor",
    "diff",
    "iterations",
    "ops",
    "overlap_shares",
    "stragglers",
]
