"""Every limit is enforced, says how to raise it, and can be raised from the environment."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from commcanary_lab.errors import LimitError, UsageError
from commcanary_lab.limits import Limits, from_environment


@pytest.mark.parametrize(
    ("check", "field"),
    [("events", "MAX_EVENTS"), ("groups", "MAX_GROUPS"), ("files", "MAX_FILES"), ("members", "MAX_MEMBERS"), ("bytes", "MAX_FILE_BYTES")],
)
def test_checks(check: str, field: str) -> None:
    limits = Limits(max_events=3, max_groups=3, max_files=3, max_members=3, max_file_bytes=3)
    getattr(limits, f"check_{check}")(3, "x")
    with pytest.raises(LimitError, match=rf"^x: 4 .* exceed the limit of 3; raise it with COMMCANARY_LAB_{field}$"):
        getattr(limits, f"check_{check}")(4, "x")


def test_files_are_checked_before_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1234")
    with pytest.raises(LimitError, match="4 bytes exceed the limit of 3"):
        Limits(max_file_bytes=3).check_file(tmp_path / "f")


@pytest.mark.parametrize("name", [f.name for f in fields(Limits)])
def test_environment(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"COMMCANARY_LAB_{name.upper()}", "7")
    assert getattr(from_environment(), name) == 7
    monkeypatch.setenv(f"COMMCANARY_LAB_{name.upper()}", "many")
    with pytest.raises(UsageError, match="is 'many', not a whole number"):
        from_environment()
