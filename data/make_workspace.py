#!/usr/bin/env python3
"""Build the sample workspace that `make demo` serves: the bundled traces, canaries compiled from them, two reports to
compare, and the evidence of two campaigns.

    python data/make_workspace.py DIR

Files that exist are replaced only when their content differs; other files in DIR are left alone. The same samples always give
the same bytes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.canonical import canonical_bytes, write_atomic
from commcanary_lab.errors import LabError
from commcanary_lab.replay.fidelity_bundle import ARCHIVE, unpack
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace.json_v1 import read_json

SAMPLES = Path(__file__).resolve().parent / "samples"

#: Samples that are compiled, each with the record limits of its bounded canaries.
COMPILED = {"adversarial.json": (4,), "gloo4.json": (2,), "tp8_decode.json": (4,)}

#: A trace and the configurations that it is simulated on: what runs today, and a rollout with slower links to review.
REPORTED = "tp8_decode.json"
BACKENDS = (Backend("baseline"), Backend("slower_links", bandwidth_gbps=45.0))


#: Campaigns that were recorded, in one archive.
CAMPAIGNS = "fidelity_campaign"


def put(path: Path, data: bytes) -> bool:
    """Write a file unless it has this content already; returns whether it was written."""
    if path.is_file() and path.read_bytes() == data:
        return False
    write_atomic(path, data)
    return True


def copy_samples(target: Path) -> int:
    """Copy traces and folders of shards; returns the number of files written."""
    written = 0
    for source in sorted(p for p in SAMPLES.rglob("*") if p.is_file()):
        folder, *rest = source.relative_to(SAMPLES).parts
        if folder == CAMPAIGNS:
            continue
        if folder == "fabric_job":  # one artifact per source of the job; the layout is for the command line
            if len(rest) < 2:
                continue
            folder, rest = f"fabric_job.{rest[0]}", rest[1:]
        place = target.joinpath(folder, *rest)
        place.parent.mkdir(parents=True, exist_ok=True)
        written += put(place, source.read_bytes())
    return written


def compile_samples(target: Path) -> int:
    """Compile the canaries; returns the number of files written."""
    written = 0
    for name, limits in COMPILED.items():
        if not (SAMPLES / name).is_file():
            continue
        trace = read_json(SAMPLES / name)
        stem = name.split(".")[0]
        written += put(target / f"{stem}.lossless.canary.json", compile_trace(trace).canonical)
        for records in limits:
            canary = compile_trace(trace, records=records)
            if canary.timing != "lossless":  # where exact timing is shorter, the compiler keeps it
                written += put(target / f"{stem}.records-{records}.canary.json", canary.canonical)
    return written


def report_samples(target: Path) -> int:
    """Simulate the reports; returns the number of files written."""
    if not (SAMPLES / REPORTED).is_file():
        return 0
    prepared = prepare(read_json(SAMPLES / REPORTED))
    written = 0
    for backend in BACKENDS:
        document = simulate_prepared(prepared, backend).to_json(samples=True)
        document["source"] = {"trace": REPORTED}
        written += put(target / f"{REPORTED.split('.')[0]}.{backend.label}.report.json", canonical_bytes(document) + b"\n")
    return written


def campaign_samples(target: Path) -> int:
    """Unpack the recorded campaigns, unless they are there; returns the number of files written."""
    archive = SAMPLES / CAMPAIGNS / ARCHIVE
    place = target / "campaigns"
    if not archive.is_file():
        return 0
    written = 0
    with tempfile.TemporaryDirectory(dir=target, prefix=".unpack-") as stage:
        unpack(archive, Path(stage) / "all")
        for campaign in sorted((Path(stage) / "all").iterdir()):
            if not (place / campaign.name).exists():
                place.mkdir(exist_ok=True)
                written += sum(1 for p in campaign.rglob("*") if p.is_file())
                campaign.rename(place / campaign.name)
    return written


def main() -> int:
    """Build the workspace named on the command line."""
    parser = argparse.ArgumentParser(description="Build the sample workspace.")
    parser.add_argument("directory", type=Path)
    target: Path = parser.parse_args().directory
    try:
        target.mkdir(parents=True, exist_ok=True)
        written = copy_samples(target) + compile_samples(target) + report_samples(target) + campaign_samples(target)
    except (LabError, OSError, shutil.Error) as e:
        print(f"error: {e}", file=sys.stderr)
        return 3
    print(f"{target}: {sum(1 for p in target.iterdir() if not p.name.startswith('.'))} artifacts, {written} files written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
