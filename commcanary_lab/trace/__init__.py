"""Traces: columnar events, process groups, timing semantics, merging, reading and writing."""

from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.groups import GroupTable, ProcessGroup
from commcanary_lab.trace.model import ImportCoverage, Trace, UnsizedRow

__all__ = ["Coded", "Column", "GroupTable", "ImportCoverage", "ProcessGroup", "Ragged", "Trace", "UnsizedRow"]
