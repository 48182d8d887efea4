"""Review: two reports, two measured traces or a series of them, against a policy: a verdict with reasons, and a page to read."""

from commcanary_lab.review.compare import compare
from commcanary_lab.review.comparison import Comparison, Evaluation, verify_comparison
from commcanary_lab.review.comparison_file import ComparisonFile, read_comparison
from commcanary_lab.review.contributions import Contribution, Contributions, contributions
from commcanary_lab.review.history import Entry, History, history
from commcanary_lab.review.html import html_report
from commcanary_lab.review.html_history import history_html
from commcanary_lab.review.localise import PartChange, localise
from commcanary_lab.review.measured import MeasuredComparison, MeasuredRow, compare_measured
from commcanary_lab.review.policy import Policy, load_policy
from commcanary_lab.review.signoff import SignOff, SignOffCheck, check_signoff, read_signoff, sign_off, verify_signoff
from commcanary_lab.review.steps import Step

__all__ = [
    "Comparison",
    "ComparisonFile",
    "Contribution",
    "Contributions",
    "Entry",
    "Evaluation",
    "History",
    "MeasuredComparison",
    "MeasuredRow",
    "PartChange",
    "Policy",
    "SignOff",
    "SignOffCheck",
    "Step",
    "check_signoff",
    "compare",
    "compare_measured",
    "contributions",
    "history",
    "history_html",
    "html_report",
    "load_policy",
    "localise",
    "read_comparison",
    "read_signoff",
    "sign_off",
    "verify_comparison",
    "verify_signoff",
]
