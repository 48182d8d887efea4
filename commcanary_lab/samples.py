"""The bundled samples: synthetic traces and one recording of a real job.

They live in ``data/samples`` of a source checkout, each made by a script beside them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from commcanary_lab.errors import InputError
from commcanary_lab.trace.model import Trace

__all__ = ["adversarial", "directory", "fill", "gloo4", "tp8_decode"]

#: Samples that are compiled for a workspace, each with the record limits of its bounded canaries.
_COMPILED = {"adversarial": (4,), "gloo4": (2,), "tp8_decode": (4,)}
#: A trace and the configurations that it is simulated on: what runs today, and a rollout with slower links to review.
_REPORTED = "tp8_decode"
_BACKENDS = {"baseline": 55.0, "slower_links": 45.0}
#: Campaigns that were recorded, in one archive.
_CAMPAIGNS = "fidelity_campaign"


def directory() -> Path:
    """Return the directory of the samples.

    Raises
    ------
    InputError
        If this installation has none (they come with a source checkout).
    """
    path = Path(__file__).resolve().parents[1] / "data" / "samples"
    if not path.is_dir():
        raise InputError("the samples are not installed", file=str(path), remedy="use a source checkout, or open a trace of your own")
    return path


@cache
def _sample(name: str) -> Trace:
    from commcanary_lab.importers.open import open_trace

    return open_trace(directory() / name)


def adversarial() -> Trace:
    """Return a synthetic decode loop of 100 events whose rankings survive when its behaviour does not.

    Examples
    --------
    >>> len(adversarial())
    100
    """
    return _sample("adversarial.json")


def tp8_decode() -> Trace:
    """Return a synthetic decode loop with tensor parallelism over 8 ranks."""
    return _sample("tp8_decode.json")


def gloo4() -> Trace:
    """Return a recording of a real job: 4 ranks on Gloo, tensor parallel in pairs, data parallel across, one all-to-all phase."""
    return _sample("gloo4_shards")


def fill(workspace: Path, *, replace: bool = False, progress: Callable[[str], None] = lambda text: None) -> int:
    """Add the samples to a workspace: traces, canaries compiled from them, two reports to compare, and two recorded campaigns.

    The same samples always give the same bytes.

    Parameters
    ----------
    workspace : Path
        The folder; it is made if it does not exist.
    replace : bool
        Replace files of the same name that have another content; otherwise they stay as they are.
    progress : callable
        Told what comes next, in a few words.

    Returns
    -------
    int
        Files that were written.

    Raises
    ------
    InputError
        If this installation has no samples, or the folder cannot be written.
    """
    workspace.mkdir(parents=True, exist_ok=True)
    parts = (("Copying traces", _traces), ("Compiling canaries", _canaries), ("Simulating reports", _reports))
    written = 0
    for words, part in parts:
        progress(words)
        for place, content in part():
            written += _put(workspace.joinpath(*place), content, replace)
    progress("Unpacking recorded campaigns")
    return written + _campaigns(workspace)


def _put(path: Path, content: bytes, replace: bool) -> bool:
    from commcanary_lab.canonical import write_atomic

    if path.is_file() and path.read_bytes() == content:
        return False
    if os.path.lexists(path) and not replace:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content)
    return True


def _traces() -> Iterator[tuple[tuple[str, ...], bytes]]:
    for source in sorted(p for p in directory().rglob("*") if p.is_file()):
        folder, *rest = source.relative_to(directory()).parts
        if folder == _CAMPAIGNS:
            continue
        if folder == "fabric_job":  # one artifact per source of the job; the layout is for the command line
            if len(rest) < 2:
                continue
            folder, rest = f"fabric_job.{rest[0]}", rest[1:]
        yield (folder, *rest), source.read_bytes()


def _canaries() -> Iterator[tuple[tuple[str, ...], bytes]]:
    from commcanary_lab.canary.compile import compile_trace

    for stem, limits in _COMPILED.items():
        trace = _sample(f"{stem}.json")
        yield (f"{stem}.lossless.canary.json",), compile_trace(trace).canonical
        for records in limits:
            canary = compile_trace(trace, records=records)
            if canary.timing != "lossless":  # where exact timing is shorter, the compiler keeps it
                yield (f"{stem}.records-{records}.canary.json",), canary.canonical


def _reports() -> Iterator[tuple[tuple[str, ...], bytes]]:
    from commcanary_lab.canonical import canonical_bytes
    from commcanary_lab.simulate.backend import Backend
    from commcanary_lab.simulate.prepare import prepare
    from commcanary_lab.simulate.report import simulate_prepared

    prepared = prepare(_sample(f"{_REPORTED}.json"))
    for label, bandwidth_gbps in _BACKENDS.items():
        document = simulate_prepared(prepared, Backend(label, bandwidth_gbps=bandwidth_gbps)).to_json(samples=True)
        document["source"] = {"trace": f"{_REPORTED}.json"}
        yield (f"{_REPORTED}.{label}.report.json",), canonical_bytes(document) + b"\n"


def _campaigns(workspace: Path) -> int:
    """Unpack the recorded campaigns, unless they are there; evidence is never replaced."""
    from commcanary_lab.replay.fidelity_bundle import ARCHIVE, unpack

    archive = directory() / _CAMPAIGNS / ARCHIVE
    if not archive.is_file():
        return 0
    written = 0
    with tempfile.TemporaryDirectory(dir=workspace, prefix=".unpack-") as stage:
        unpack(archive, Path(stage) / "all")
        for campaign in sorted((Path(stage) / "all").iterdir()):
            place = workspace / "campaigns" / campaign.name
            if not os.path.lexists(place):
                place.parent.mkdir(exist_ok=True)
                written += sum(1 for p in campaign.rglob("*") if p.is_file())
                campaign.rename(place)
    return written
