"""Generated traces whose traffic can be attributed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from commcanary_lab.trace import Ragged, Trace
from tests.strategies import traces


def attributable(**options: Any) -> st.SearchStrategy[Trace]:
    """Traces without split lists: generated ones contradict each other, and M refuses them."""
    return traces(**options).map(lambda t: replace(t, splits=Ragged.empty(len(t))))
