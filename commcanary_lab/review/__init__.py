"""Review: two reports, or two measured traces, against a policy: a verdict with reasons, an exit code, and a page to read."""

from commcanary_lab.review.compare import compare
from commcanary_lab.review.comparison import Comparison, Evaluation, verify_comparison
from commcanary_lab.review.comparison_file import ComparisonFile, read_comparison
from commcanary_lab.review.html import html_report
from commcanary_lab.review.localise import PartChange, localise
from commcanary_lab.review.measured import MeasuredComparison, MeasuredRow, compare_measured
from commcanary_lab.review.policy import Policy, load_policy

__all__ = [
    "Comparison",
    "ComparisonFile",
    "Evaluation",
    "MeasuredComparison",
    "MeasuredRow",
    "PartChange",
    "Policy",
    "compare",
    "compare_measured",
    "html_report",
    "load_policy",
    "localise",
    "read_comparison",
    "verify_comparison",
]
