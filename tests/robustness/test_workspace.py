"""A workspace full of damaged files: listing it never fails and never waits; what it shows as an artifact either opens or says why not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commcanary_lab.errors import LabError
from commcanary_lab.workspace import Workspace
from tests.robustness.damage import BYTES, PLACES, variants
from tests.robustness.readers import READERS
from tests.robustness.samples import sample

_KINDS = (
    "first half", "NUL inside", "random bytes", "lists nested 100,000 deep", "objects nested 100,000 deep", "gzip", "cut gzip",
    "UTF-16 with mark", "byte order mark", "hostile pickle", "duplicate keys", "unknown versions", "lone surrogates", "other documents",
    "references to themselves",
)  # fmt: skip


def test_damaged_artifacts(tmp_path: Path) -> None:
    count = 0
    for reader in READERS:
        if reader.file is None:
            for kind in _KINDS:
                for i, variant in enumerate(variants(reader, BYTES[kind])[:2]):
                    (tmp_path / f"{reader.name}-{_KINDS.index(kind)}-{i}{reader.suffix}").write_bytes(variant.data)
                    count += 1
    workspace = Workspace(tmp_path)
    listed = workspace.list()
    assert len(listed) == count
    openers = {
        "trace": workspace.trace, "canary": workspace.canary, "report": workspace.report, "comparison": workspace.comparison,
        "ledger": workspace.ledger,
    }  # fmt: skip
    refused = 0
    for artifact in listed:
        assert artifact.summary
        if artifact.kind in openers:
            try:
                openers[artifact.kind](artifact.name)
            except LabError:
                refused += 1
    assert refused > 50


def test_things_that_are_no_files(tmp_path: Path) -> None:
    place = tmp_path / "ws"
    place.mkdir()
    (place / "whole.json").write_bytes(sample("trace_v1"))
    for number, (make, _) in enumerate(PLACES.values()):
        make(place / f"odd-{number}.json")
    for name in ("run.json", "manifest.json"):
        (place / f"evidence-{name}").mkdir()
        os.mkfifo(place / f"evidence-{name}" / name)
    (tmp_path / "outside.json").write_bytes(sample("trace_v1"))
    (place / "link.json").symlink_to(tmp_path / "outside.json")
    listed = {a.name: a.kind for a in Workspace(place).list()}
    assert listed["whole.json"] == "trace"
    assert "link.json" not in listed
    assert all(kind == "other" for name, kind in listed.items() if name != "whole.json"), listed


def test_uploads_of_damaged_files_leave_nothing(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    refused = 0
    for name in ("trace_v1", "kineto", "canary_lossless", "report", "flight_recorder_pickle"):
        reader = next(r for r in READERS if r.name == name)
        for kind in ("empty", "random bytes", "hostile pickle", "objects nested 100,000 deep", "PNG", "tar with names that leave"):
            for variant in variants(reader, BYTES[kind])[:3]:
                with pytest.raises(LabError) as refusal:
                    workspace.add(f"{name}{reader.suffix}", variant.data)
                refused += 1
                assert str(tmp_path) not in str(refusal.value)  # the user knows the file by its own name
    assert refused >= 30
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".commcanary-index")] == []
