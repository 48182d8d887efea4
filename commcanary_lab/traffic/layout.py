"""The parallelism layout, under the name that it has among the parts of a matrix."""

from commcanary_lab.layout.model import DEFAULT_ORDER, KINDS, Layout

__all__ = ["DEFAULT_ORDER", "KINDS", "Layout"]
