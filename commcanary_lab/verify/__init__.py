"""Verification: does a canary stand for its source, and does it still answer like it?"""

from commcanary_lab._callable import make_callable
from commcanary_lab.verify.model import CLAIMS, Check, Tolerances, Verification

__all__ = ["CLAIMS", "Check", "Tolerances", "Verification"]

make_callable(__name__, "commcanary_lab.api", "verify")
