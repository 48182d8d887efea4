"""When an entry of a history is from: what the artifact says, else what its name says, and in which order that puts a series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

__all__ = ["Dated", "date_in_name", "date_in_notes", "date_in_system", "natural", "ordered"]

_DAY = re.compile(r"(?<!\d)(20\d\d)[-_.]?(\d\d)[-_.]?(\d\d)(?!\d)")
_WEEK = re.compile(r"(?<!\d)(20\d\d)[-_.]?[wW](\d\d)(?!\d)")
_NOTE = re.compile(r"\brecorded (?:on|at) (20\d\d-\d\d-\d\d)")
#: Keys of the description of a system or a workload that hold the time of the recording.
_KEYS = ("recorded_at", "captured_at", "recorded_on", "date")


@dataclass(frozen=True)
class Dated:
    """A day, and who says so.

    Parameters
    ----------
    day : date
    stated_by : {"artifact", "name"}
    """

    day: date
    stated_by: str


def date_in_name(name: str) -> date | None:
    """Return the day, or the Monday of the week, that a file name holds.

    Examples
    --------
    >>> date_in_name("job.2026-11-30.report.json"), date_in_name("20261102_job.json"), date_in_name("job.2026-W48.json")
    (datetime.date(2026, 11, 30), datetime.date(2026, 11, 2), datetime.date(2026, 11, 23))
    >>> date_in_name("job.20269999.json") is None, date_in_name("run12.json") is None
    (True, True)
    """
    for pattern, make in ((_DAY, date), (_WEEK, lambda y, w: date.fromisocalendar(y, w, 1))):
        for found in pattern.finditer(name):
            try:
                return make(*map(int, found.groups()))
            except ValueError:
                continue
    return None


def date_in_notes(notes: Iterable[str]) -> date | None:
    """Return the day that a note states, such as ``recorded on 2026-11-30 by ...``.

    Examples
    --------
    >>> date_in_notes(["synthetic", "recorded on 2026-11-30 on 2 cores"])
    datetime.date(2026, 11, 30)
    """
    for note in notes:
        if (found := _NOTE.search(note)) and (day := date_in_name(found.group(1))):
            return day
    return None


def date_in_system(*described: Mapping[str, Any]) -> date | None:
    """Return the day that the description of a system or a workload states.

    Examples
    --------
    >>> date_in_system({}, {"recorded_at": "2026-11-30T08:00:00Z"})
    datetime.date(2026, 11, 30)
    """
    for values in described:
        for key in _KEYS:
            if isinstance(value := values.get(key), str):
                try:
                    moment = datetime.fromisoformat(value)
                except ValueError:
                    continue
                return (moment.astimezone(UTC) if moment.tzinfo else moment).date()
    return None


def natural(name: str) -> tuple[Any, ...]:
    """Return a key that puts ``run2`` before ``run10``.

    Examples
    --------
    >>> sorted(["run10", "Run2", "run1"], key=natural)
    ['run1', 'Run2', 'run10']
    """
    parts = re.split(r"([0-9]+)", name.casefold())
    return (*((i % 2, int(p) if i % 2 else p) for i, p in enumerate(parts)), (2, name))


def ordered(names: Sequence[str], dates: Sequence[Dated | None]) -> tuple[list[int], str]:
    """Return the order of a series, and by what it is ordered: by date where every entry has one, else by name.

    Examples
    --------
    >>> ordered(["b", "a"], [None, None])
    ([1, 0], 'name, because not every entry states a date')
    """
    places = range(len(names))
    if dates and all(dates):
        order = sorted(places, key=lambda i: (dates[i].day, natural(names[i])))  # type: ignore[union-attr]
        said = {d.stated_by for d in dates if d is not None}
        by: dict[tuple[str, ...], str] = {("artifact",): "the date that each artifact states", ("name",): "the date in each name"}
        return order, by.get(tuple(sorted(said)), "the date that each artifact, or else its name, states")
    return sorted(places, key=lambda i: natural(names[i])), "name, because not every entry states a date"
