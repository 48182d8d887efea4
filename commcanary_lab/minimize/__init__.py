"""Minimisers: what small traces keep, and what they lose."""

from commcanary_lab.minimize.ddmin import Reduction, Step
from commcanary_lab.minimize.ddmin import ddmin as reduce

__all__ = ["Reduction", "Step", "reduce"]
