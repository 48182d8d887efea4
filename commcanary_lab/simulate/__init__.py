"""Simulation: backends, cost models, the queue engine, ablations and reports."""

from commcanary_lab._callable import make_callable
from commcanary_lab.simulate.backend import ABLATIONS, DEFAULT_BACKENDS, Backend, load_backends, parse_ablations, parse_backend
from commcanary_lab.simulate.prepare import Prepared, parse_assumptions, prepare

__all__ = [
    "ABLATIONS",
    "DEFAULT_BACKENDS",
    "Backend",
    "Prepared",
    "load_backends",
    "parse_ablations",
    "parse_assumptions",
    "parse_backend",
    "prepare",
]

make_callable(__name__, "commcanary_lab.api", "simulate")
