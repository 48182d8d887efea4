"""Minimisers: what small traces keep, and what they lose."""

from commcanary_lab.minimize.baselines import KINDS, Baseline, baseline
from commcanary_lab.minimize.candidates import Candidate
from commcanary_lab.minimize.contrast import Contrast
from commcanary_lab.minimize.contrast import contrast as contrast
from commcanary_lab.minimize.ddmin import Reduction, Step
from commcanary_lab.minimize.ddmin import ddmin as reduce
from commcanary_lab.minimize.ledger import LedgerCheck, verify_ledger
from commcanary_lab.minimize.methods import MethodRow, MethodTable, compare_methods
from commcanary_lab.minimize.pareto import Frontier, Point
from commcanary_lab.minimize.pareto import pareto as pareto
from commcanary_lab.minimize.search import Search
from commcanary_lab.minimize.search import search as search

__all__ = [
    "KINDS",
    "Baseline",
    "Candidate",
    "Contrast",
    "Frontier",
    "LedgerCheck",
    "MethodRow",
    "MethodTable",
    "Point",
    "Reduction",
    "Search",
    "Step",
    "baseline",
    "compare_methods",
    "contrast",
    "pareto",
    "reduce",
    "search",
    "verify_ledger",
]
