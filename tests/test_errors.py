"""Errors say what, where and what to do; they are builtins too, carry exit codes and survive process pools."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from commcanary_lab import errors
from commcanary_lab.errors import InputError, LabError, Problem

TREE = {
    "UsageError": (ValueError, 2), "InputError": (ValueError, 3), "FormatError": (InputError, 3), "TimingError": (InputError, 3),
    "MergeError": (InputError, 3), "RefusedError": (ValueError, 3), "UnknownValueError": (errors.RefusedError, 3),
    "LimitError": (errors.RefusedError, 3), "MissingExtraError": (ImportError, 3), "BudgetError": (ValueError, 1),
    "LaunchError": (RuntimeError, 4),
}  # fmt: skip


def test_the_tree_is_complete() -> None:
    assert {*TREE, "LabError", "Problem", "naming"} == set(errors.__all__)


@pytest.mark.parametrize("name", TREE)
def test_every_error_is_a_lab_error_and_a_builtin(name: str) -> None:
    kind = getattr(errors, name)
    builtin, code = TREE[name]
    assert issubclass(kind, LabError)
    assert issubclass(kind, builtin)
    assert kind.exit_code == code
    error = kind("what", file="f", record=3, field="gap_us", line=2, remedy="do")
    assert str(error) == "f: line 2: event 3: gap_us: what; do"
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), back.problems) == (kind, error.problems)


def test_a_message_has_only_what_is_known() -> None:
    assert str(Problem("what")) == "what"
    assert str(Problem("what", record=0)) == "event 0: what"
    assert str(InputError([Problem("a"), Problem("b", remedy="c")])) == "a\nb; c"


def test_twenty_problems_are_listed_and_the_rest_is_counted() -> None:
    lines = str(InputError([Problem(str(i)) for i in range(23)])).splitlines()
    assert lines == [*map(str, range(20)), "... and 3 more"]
    assert len(str(InputError([Problem(str(i)) for i in range(20)])).splitlines()) == 20


def fail() -> None:
    raise InputError([Problem("a", file="f"), Problem("b")])


def test_problems_survive_a_process_pool() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(InputError) as e:
        pool.submit(fail).result()
    assert e.value.problems == (Problem("a", file="f"), Problem("b"))
