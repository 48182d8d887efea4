"""Layout files, under the name that they have among the parts of a matrix."""

from commcanary_lab.layout.file import parse_layout, read_layout

__all__ = ["parse_layout", "read_layout"]
