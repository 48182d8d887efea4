"""Everything that the canaries of one trace share, computed once: structure, exact streams, commitments, and streams at each level.

A *level* says how the timing of a step is kept: ``exact``, ``records=N`` (at most N intervals) or ``scale=X`` (errors of at most X times
the default scale of each field). A canary of the search is one program form and one level per signature group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.bounded import bound_streams
from commcanary_lab.canary.commit import Committer
from commcanary_lab.canary.fields import EventFields, split_trace
from commcanary_lab.canary.model import Canary, SourceStatement
from commcanary_lab.canary.streams import DEFAULT_SCALES, StepStream
from commcanary_lab.canary.structure import Structure, assembled, flat_structure, nested_structure, state_source
from commcanary_lab.errors import UsageError
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.signatures import factorize

__all__ = ["EXACT", "Plan", "Recipe", "level_of_records", "level_of_scale", "records_of_level"]

EXACT = "exact"
_COMMITMENT_BYTES = 67


def level_of_records(records: int) -> str:
    """Return the level with at most `records` intervals per step.

    Examples
    --------
    >>> level_of_records(4), level_of_scale(2.5), records_of_level("records=4"), records_of_level("exact")
    ('records=4', 'scale=2.5', 4, None)
    """
    return f"records={records}"


def level_of_scale(factor: float) -> str:
    """Return the level whose errors stay within `factor` times the default scales."""
    return f"scale={factor:g}"


def records_of_level(level: str) -> int | None:
    """Return the record budget of a level, None for other kinds."""
    return int(level.removeprefix("records=")) if level.startswith("records=") else None


@dataclass(frozen=True)
class Recipe:
    """How a candidate is made.

    Parameters
    ----------
    program : str
        ``lossless`` (as `compile_trace` without limits), ``nested`` (loop nests, one step per loop position) or ``flat`` (one step per
        distinct operation, no loops).
    levels : tuple of str
        One level for all signature groups, or one per group; empty for ``lossless``.
    """

    program: str
    levels: tuple[str, ...] = ()

    @property
    def records(self) -> int | None:
        """The record budget, where one holds for all steps."""
        return records_of_level(self.levels[0]) if len(self.levels) == 1 else None

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as a JSON object."""
        return {"program": self.program, "levels": list(self.levels)}

    def __str__(self) -> str:
        if self.program == "lossless":
            return "lossless"
        levels = self.levels[0] if len(self.levels) == 1 else f"{len(self.levels)} groups with their own levels"
        return f"{self.program}, {levels}"


class _Form:
    """One program form: its steps, and their streams at every level asked for so far."""

    def __init__(self, structure: Structure, trace: Trace, salt: bytes) -> None:
        self.structure = structure
        self.committer = Committer(trace.rows(structure.order), salt)
        self.group_of_step, first = factorize([structure.signature]) if len(structure.streams) else (np.zeros(0, np.int64),) * 2
        self.group_count = len(first)
        self.levels: dict[str, tuple[StepStream, ...]] = {EXACT: structure.streams}


class Plan:
    """Compiles many canaries of one trace.

    Parameters
    ----------
    trace : Trace
        The source; not itself a reduced trace.
    salt : bytes
        Mixed into the commitments.

    Raises
    ------
    UsageError
        If the trace was derived from another one.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.tp8_decode()
    >>> plan = Plan(trace)
    >>> plan.canary(Recipe("nested", ("records=2",))).identity == lab.compile(trace, records=2).identity
    True
    """

    def __init__(self, trace: Trace, salt: bytes = b"") -> None:
        if "derived_from" in trace.extra:
            raise UsageError("the trace was itself reduced", remedy="search the trace that it was derived from")
        self.trace, self.salt = trace, salt
        self._forms: dict[str, _Form] = {}
        self._canaries: dict[Recipe, Canary] = {}

    @cached_property
    def _fields(self) -> EventFields:
        return split_trace(self.trace)

    @cached_property
    def _source(self) -> SourceStatement:
        return state_source(self.trace, self.trace, 0, self.salt)

    def _form(self, name: str) -> _Form:
        if name not in self._forms:
            if name == "nested":
                self._forms[name] = self._formed(nested_structure(self._fields, by_timing=True))
            elif name == "flat":
                self._forms[name] = self._formed(flat_structure(self._fields))
            else:
                raise UsageError(f"no program form {name!r}", remedy="known: lossless, nested, flat")
        return self._forms[name]

    def _formed(self, structure: Structure) -> _Form:
        return _Form(structure, self.trace, self.salt)

    def prime(self, program: str) -> None:
        """Compute what all candidates of a program form share, before several threads ask for it."""
        self._form(program)
        self.canary(Recipe("lossless"))
        _ = self._source

    def same_program(self) -> bool:
        """True when the nested program has no loop and one step per operation, so that the flat one is the same."""
        nested, flat = self._form("nested").structure, self._form("flat").structure
        return nested.program.rule_count == 1 and len(nested.streams) == len(flat.streams)

    def group_count(self, program: str) -> int:
        """Return how many signature groups a program form has."""
        return self._form(program).group_count

    def group_sizes(self, program: str, level: str) -> npt.NDArray[np.int64]:
        """Return about how many bytes the timing of each signature group takes at a level, shape (groups,)."""
        form = self._form(program)
        sizes = [s.encoded_bytes for s in self._streams(form, level)]
        return np.bincount(form.group_of_step, weights=sizes, minlength=form.group_count).astype(np.int64)

    def _streams(self, form: _Form, level: str) -> tuple[StepStream, ...]:
        if level not in form.levels:
            if level.startswith("records="):
                found = bound_streams(form.structure.streams, form.committer, records_of_level(level), {})
            else:
                factor = float(level.removeprefix("scale="))
                found = bound_streams(form.structure.streams, form.committer, None, {n: v * factor for n, v in DEFAULT_SCALES.items()})
            form.levels[level] = found
        return form.levels[level]

    def canary(self, recipe: Recipe) -> Canary:
        """Compile a candidate; repeated recipes are answered from memory."""
        if recipe not in self._canaries:
            self._canaries[recipe] = self._compile(recipe)
        return self._canaries[recipe]

    def _compile(self, recipe: Recipe) -> Canary:
        if recipe.program == "lossless":
            structure = nested_structure(self._fields, by_timing=False)
            return assembled(self.trace, self._fields, self._source, structure, structure.streams)
        form = self._form(recipe.program)
        if len(recipe.levels) == 1:
            streams = self._streams(form, recipe.levels[0])
        else:
            if len(recipe.levels) != form.group_count:
                raise UsageError(f"{len(recipe.levels)} levels for {form.group_count} signature groups", remedy="give one, or one each")
            groups = form.group_of_step.tolist()
            streams = tuple(self._streams(form, recipe.levels[g])[i] for i, g in enumerate(groups))
        canary = self._assembled(form, streams)
        if len(recipe.levels) == 1 and recipe.program == "nested" and recipe.levels[0] != EXACT:
            # as compile does: exact timing where that is no larger
            lossless = self.canary(Recipe("lossless"))
            if lossless.size_bytes <= canary.size_bytes:
                return lossless
        return canary

    def _assembled(self, form: _Form, streams: tuple[StepStream, ...]) -> Canary:
        return assembled(self.trace, self._fields, self._source, form.structure, streams)

    def group_names(self, program: str) -> tuple[str, ...]:
        """Return each signature group in words."""
        from commcanary_lab.canary.summary import step_text

        form = self._form(program)
        canary = self._assembled(form, form.structure.streams)
        firsts = [int(np.flatnonzero(form.group_of_step == g)[0]) for g in range(form.group_count)]
        return tuple(step_text(canary, step) for step in firsts)
