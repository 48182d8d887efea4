"""Resource limits. Every limit can be raised by the caller; a refusal names the limit and how to raise it."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path

from commcanary_lab.errors import LimitError, UsageError

__all__ = ["DEFAULT", "Limits", "from_environment"]


@dataclass(frozen=True)
class Limits:
    """What one command may consume.

    Each field can be raised through the environment variable ``COMMCANARY_LAB_<FIELD>``.

    Examples
    --------
    >>> Limits(max_events=10).check_events(11, "t.json")
    Traceback (most recent call last):
    commcanary_lab.errors.LimitError: t.json: 11 events exceed the limit of 10; raise it with COMMCANARY_LAB_MAX_EVENTS
    """

    max_file_bytes: int = 8 << 30
    max_events: int = 50_000_000
    max_ranks: int = 1 << 20
    max_groups: int = 200_000
    max_members: int = 1 << 24
    max_text_bytes: int = 4096
    max_files: int = 65_536

    def _check(self, name: str, value: int, what: str, where: str) -> None:
        limit = getattr(self, name)
        if value > limit:
            raise LimitError(
                f"{value} {what} exceed the limit of {limit}", file=where, remedy=f"raise it with COMMCANARY_LAB_{name.upper()}"
            )

    def check_events(self, count: int, where: str) -> None:
        """Refuse more events than `max_events`."""
        self._check("max_events", count, "events", where)

    def check_groups(self, count: int, where: str) -> None:
        """Refuse more distinct process groups than `max_groups`."""
        self._check("max_groups", count, "process groups", where)

    def check_members(self, count: int, where: str) -> None:
        """Refuse process groups with more than `max_members` members together; ``"ranks": n`` makes many from few bytes."""
        self._check("max_members", count, "group members", where)

    def check_files(self, count: int, where: str) -> None:
        """Refuse directories with more than `max_files` input files."""
        self._check("max_files", count, "files", where)

    def check_bytes(self, count: int, where: str) -> None:
        """Refuse more (decompressed) bytes than `max_file_bytes`."""
        self._check("max_file_bytes", count, "bytes", where)

    def check_file(self, path: str | os.PathLike[str]) -> None:
        """Refuse a file above `max_file_bytes` before it is read."""
        self.check_bytes(Path(path).stat().st_size, str(path))


def from_environment() -> Limits:
    """Return the default limits with what the environment raises or lowers."""
    changes = {}
    for f in fields(Limits):
        name = f"COMMCANARY_LAB_{f.name.upper()}"
        text = os.environ.get(name)
        if text is not None:
            try:
                changes[f.name] = int(text)
            except ValueError:
                raise UsageError(f"{name} is {text!r}, not a whole number") from None
    return replace(Limits(), **changes)


DEFAULT = from_environment()
