"""What a canary says of other parts of its source, and salts; changes of canaries are in `test_mutations`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.errors import RefusedError
from commcanary_lab.simulate import Backend
from commcanary_lab.verify.run import verify_canary
from tests.verify.traces import KNOWN, mixed_trace

BACKENDS = (Backend("a"), Backend("b", bandwidth_gbps=99))


def test_an_event_after_the_last_one_is_no_partial_canary() -> None:
    whole = mixed_trace(20, "start")
    found = verify_canary(whole, compile_trace(whole.take(slice(0, 19))), backends=BACKENDS, assume=KNOWN)
    assert (found.coverage, found.bounds, found.claim) == ("partial_source", "mismatch", "refused")


def test_a_canary_of_a_range_says_nothing_of_other_groups() -> None:
    trace = mixed_trace(40, "gap")
    rows = np.flatnonzero(trace.sender.mask)[:1]
    part = compile_trace(trace, events=(int(rows[0]), int(rows[0]) + 1))
    assert [g.name for g in part.signatures.groups] == [None]
    assert "tp" not in json.dumps(json.loads(part.canonical)["groups"])


def test_a_salt_for_an_unsalted_canary_is_refused() -> None:
    trace = mixed_trace(8, "gap")
    with pytest.raises(RefusedError, match="unsalted"):
        verify_canary(trace, compile_trace(trace), salt=b"x" * 16, assume=KNOWN)
