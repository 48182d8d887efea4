"""The error tree. Every message says what is wrong, where it is, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

__all__ = [
    "BudgetError",
    "FormatError",
    "InputError",
    "LabError",
    "LaunchError",
    "LimitError",
    "MergeError",
    "MissingExtraError",
    "Problem",
    "RefusedError",
    "TimingError",
    "UnknownValueError",
    "UsageError",
    "naming",
]

#: How many problems one message lists before it only counts the rest.
MAX_LISTED = 20
#: How many characters of each part of a problem are shown.
MAX_CHARACTERS = 1200


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input.

    Parameters
    ----------
    what : str
        What is wrong, with the offending value.
    file : str, optional
        The file, as the user named it.
    record : int, optional
        Zero-based index of the event or record.
    field : str, optional
        The field inside the record.
    line : int, optional
        One-based line of the file.
    remedy : str, optional
        What to do next.

    Examples
    --------
    >>> print(Problem("bytes is -4", file="t.json", record=3, field="bytes", remedy="give a size >= 1"))
    t.json: event 3: bytes: bytes is -4; give a size >= 1
    >>> print(Problem("the name is \x1b[2J", file="t.json"))
    t.json: the name is \\x1b[2J
    """

    what: str
    file: str | None = None
    record: int | None = None
    field: str | None = None
    line: int | None = None
    remedy: str | None = None

    def __post_init__(self) -> None:
        # messages quote what a file says: bounded, and nothing that a terminal would obey
        for name in ("what", "file", "field", "remedy"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, _plain(text))

    def __str__(self) -> str:
        where = []
        if self.file is not None:
            where.append(self.file)
        if self.line is not None:
            where.append(f"line {self.line}")
        if self.record is not None:
            where.append(f"event {self.record}")
        if self.field is not None:
            where.append(self.field)
        text = ": ".join([*where, self.what])
        return f"{text}; {self.remedy}" if self.remedy else text


def _plain(text: str) -> str:
    """Return a text as one that can be printed: control and direction characters escaped, the middle of a long one left out."""
    if len(text) > MAX_CHARACTERS:
        text = f"{text[: MAX_CHARACTERS - 210]} ... {text[-200:]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "backslashreplace").decode("ascii") for c in text)


class LabError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes
    ----------
    problems : tuple of Problem
        Everything that is wrong, in input order.
    exit_code : int
        What the command line exits with.
    """

    exit_code = 3

    def __init__(self, problem: str | Problem | Sequence[Problem], **where: object) -> None:
        if isinstance(problem, str):
            problem = Problem(problem, **where)  # type: ignore[arg-type]
        self.problems: tuple[Problem, ...] = (problem,) if isinstance(problem, Problem) else tuple(problem)
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [str(p) for p in self.problems[:MAX_LISTED]]
        if len(self.problems) > MAX_LISTED:
            lines.append(f"... and {len(self.problems) - MAX_LISTED} more")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:  # survives process pools with its problems intact
        return (type(self), (self.problems,))


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Name a file in the problems that do not name one: what is found out about decoded content does not know where it came from.

    Examples
    --------
    >>> with naming("a.json"):
    ...     raise LabError("is empty", field="events")
    Traceback (most recent call last):
    commcanary_lab.errors.LabError: a.json: events: is empty
    """
    try:
        yield
    except LabError as e:
        if all(p.file for p in e.problems):
            raise
        raise type(e)(tuple(p if p.file else replace(p, file=file) for p in e.problems)) from None


class UsageError(LabError, ValueError):
    """The call itself is wrong: an unknown name, options that exclude each other."""

    exit_code = 2


class InputError(LabError, ValueError):
    """The input is invalid."""


class FormatError(InputError):
    """The file is not what its format says, or no format recognises it."""


class TimingError(InputError):
    """The timing fields of a trace contradict each other or the format."""


class MergeError(InputError):
    """Per-rank captures cannot be merged into one trace without inventing something."""


class RefusedError(LabError, ValueError):
    """The input is valid, but answering would need something that it does not say."""


class UnknownValueError(RefusedError):
    """A value that the answer needs is unknown and was not assumed."""


class LimitError(RefusedError):
    """A resource limit would be exceeded."""


class MissingExtraError(LabError, ImportError):
    """An optional dependency is not installed."""


class BudgetError(LabError, ValueError):
    """An error budget or a verdict cannot be met; nothing was written."""

    exit_code = 1


class LaunchError(LabError, RuntimeError):
    """A launched run failed."""

    exit_code = 4
