"""Parallelism layouts: which global ranks form which communicator, and which node a rank is on."""

from commcanary_lab.layout.file import parse_layout, read_layout
from commcanary_lab.layout.model import DEFAULT_ORDER, KINDS, Layout, kind_and_number

__all__ = ["DEFAULT_ORDER", "KINDS", "Layout", "kind_and_number", "parse_layout", "read_layout"]
