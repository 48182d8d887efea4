"""Measures what the replay worker costs, and records it for the benchmarks page.

    python docs/measure_replay.py

Two ranks of the bundled recording, in rounds of A B B A: the worker's loop, the bare operations twice, the worker's loop.
"""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import asdict
from pathlib import Path

import torch

import commcanary_lab as lab
from commcanary_lab.replay.overhead import measure

if __name__ == "__main__":
    canary = lab.compile(lab.samples.gloo4())
    found = asdict(measure(canary, ranks=2, rounds=40))
    document = {**found, "torch": torch.__version__, "cpus": os.cpu_count(), "date": datetime.date.today().isoformat()}
    target = Path(__file__).parent / "replay_overhead.json"
    target.write_text(json.dumps(document, indent=1) + "\n")
    print(f"wrote {target}: {document}")
