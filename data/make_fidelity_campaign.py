#!/usr/bin/env python3
"""Record `samples/fidelity_campaign/`: does a reduced canary rank network configurations as the job does, and does a benchmark?

Six configurations of four ranks on shaped links (three even ones, three that are fast inside a pair and slow across) make 15 pairs. They
are ranked by the job of `fidelity_job.py` (the reference), by a canary of one of its six steps, and by its dominant collective alone in
a loop. Two more rankings are predictions of calibrated links; they are written into the preregistration before the job is measured:

1. `calibration/`: a campaign that measures a sweep of sizes on each configuration. The latency-bandwidth fit of it predicts.
2. `fidelity/`: the campaign itself, with the predictions and the decision rule preregistered, four repetitions, interleaved.

Needs root on Linux with iproute2, and torch. Most of the time goes into starting ranks: 20 minutes in all on two busy cores.

    python data/make_fidelity_campaign.py [OUT]      # OUT is new or empty
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fidelity_job
from sample_json import SAMPLES, write_document

from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.importers.open import open_trace
from commcanary_lab.replay.campaign import CampaignProgress, run_campaign
from commcanary_lab.replay.fabric_spec import FabricSpec
from commcanary_lab.replay.fidelity_bundle import ARCHIVE, pack
from commcanary_lab.replay.fidelity_links import calibrated, predicted
from commcanary_lab.replay.spec import write_document as write_struct

FABRICS = (
    FabricSpec("even-80", 80),
    FabricSpec("even-40", 40),
    FabricSpec("even-20", 20),
    FabricSpec("pair-300-30", 300, ranks_per_node=2, across_mbit=30),
    FabricSpec("pair-300-15", 300, ranks_per_node=2, across_mbit=15),
    FabricSpec("pair-300-10", 300, ranks_per_node=2, across_mbit=10),
)
#: Which step of the job the canary keeps, and how many intervals each of its streams may have.
STEP, RECORDS = 3, 2
#: Cycles per run that are not measured, and that are. The job is one long cycle: warming up would run all of it twice.
METHODS = {"job": (0, 1), "canary": (1, 2), "isolated": (1, 2)}

CALIBRATION = """\
# A sweep of sizes on every configuration: what the latency-bandwidth fit knows of the links.
format = "commcanary.campaign.v1"
name = "fidelity-calibration"
question = "How long does an all-reduce of two ranks take on each link, by size?"
programs = { sweep = "sweep.json" }
repetitions = 1
timeout_s = 120
"""

FIDELITY = """\
# Do a reduced canary, an isolated collective and calibrated links rank six configurations as the job does?
format = "commcanary.campaign.v1"
name = "decision-fidelity"
question = "Does a canary of one step rank six network configurations as the whole job does, where a collective alone does not?"
programs = { job = "job.json", canary = "canary.json", isolated = "isolated.json" }
inputs = ["links.json"]
repetitions = 4
order = "rotation"
# four repetitions cover a median with a probability of 87.5 %
confidence = 0.85
timeout_s = 120

# Two configurations tie where they differ by no more than 5 %.
[agreement]
reference = "job"
metric = "cycle_p50_us"
tie_fraction = 0.05

[[criteria]]
name = "the canary decides the pairs as the job does"
metric = "pair_agreement"
ranking = "canary"
at_least = 0.8

[[criteria]]
name = "the canary's order is the job's"
metric = "kendall_tau_b"
ranking = "canary"
at_least = 0.8

[[criteria]]
name = "the canary inverts no pair"
metric = "inversions"
ranking = "canary"
at_most = 0

[[criteria]]
name = "a collective alone inverts a pair"
metric = "inversions"
ranking = "isolated"
at_least = 1
required = false

[[criteria]]
name = "latency and bandwidth decide the pairs as the job does"
metric = "pair_agreement"
ranking = "alpha-beta"
at_least = 0.8
required = false
"""


def fabric_table(f: FabricSpec) -> str:
    """Return the table of a fabric."""
    across = f", ranks_per_node = {f.ranks_per_node}, across_mbit = {f.across_mbit:g}" if f.across_mbit is not None else ""
    return f'fabric = {{ name = "{f.name}", rate_mbit = {f.rate_mbit:g}{across} }}'


def configuration(name: str, program: str, fabric: FabricSpec, cycles: tuple[int, int], ranking: str = "") -> str:
    """Return the table of one configuration."""
    warmup, iterations = cycles
    lines = [f'name = "{name}"', f'program = "{program}"', 'backend = "gloo"', f"warmup = {warmup}", f"iterations = {iterations}"]
    lines.append(fabric_table(fabric))
    if ranking:
        lines += [f'ranking = "{ranking}"', f'setting = "{fabric.name}"']
    return "\n[[configurations]]\n" + "\n".join(lines) + "\n"


def write_programs(out: Path) -> None:
    """Write the programs."""
    write_document(fidelity_job.job(), out / "job.json")
    write_document(fidelity_job.isolated(), out / "isolated.json")
    write_document(fidelity_job.sweep(), out / "sweep.json")
    canary = compile_trace(open_trace(out / "job.json"), events=fidelity_job.step_range(STEP), records=RECORDS)
    (out / "canary.json").write_bytes(canary.canonical)


def write_calibration(out: Path) -> Path:
    """Write the preregistration of the calibration."""
    text = CALIBRATION + '\n[[criteria]]\nname = "every event ran"\nmetric = "launches"\naggregate = "every_rank"\n'
    text += f'configuration = "sweep-{FABRICS[0].name}"\nequals = {2 * len(fidelity_job.SWEEP_BYTES)}\n'
    text += "".join(configuration(f"sweep-{f.name}", "sweep", f, (1, 5)) for f in FABRICS)
    path = out / "calibration.toml"
    path.write_text(text, encoding="ascii")
    return path


def write_fidelity(out: Path, predictions: dict[str, dict[str, float]]) -> Path:
    """Write the preregistration of the campaign, with what the calibrated links predict."""
    told = {
        "alpha-beta": "calibrated links: service times of a rank's events, summed",
        "simulator": "calibrated links: mean exposed latency of the queue engine, with the gaps of the trace",
    }
    text = FIDELITY
    for name, values in predictions.items():
        listed = ", ".join(f'"{setting}" = {value!r}' for setting, value in values.items())
        text += f'\n[[agreement.predictions]]\nname = "{name}"\nsource = "{told[name]}"\nvalues = {{ {listed} }}\n'
    for f in FABRICS:
        text += "".join(configuration(f"{m}-{f.name}", m, f, cycles, m) for m, cycles in METHODS.items())
    path = out / "fidelity.toml"
    path.write_text(text, encoding="ascii")
    return path


def report(now: CampaignProgress) -> None:
    """Print when a run begins."""
    if now.phase == "starting the ranks" and now.total == 0:
        print(f"{time.strftime('%H:%M:%S')} run {now.run} of {now.planned}: {now.configuration}", flush=True)


def main(work: Path, out: Path) -> None:
    """Record both campaigns in the directory `work`, and pack their evidence into `out`."""
    begin = time.monotonic()
    write_programs(work)
    first = run_campaign(write_calibration(work), work / "calibration", progress=report)
    print(first)
    links = calibrated(work / "calibration")
    write_struct(work / "links.json", links)
    second = run_campaign(write_fidelity(work, predicted(open_trace(work / "job.json"), links)), work / "fidelity", progress=report)
    print(second)
    pack(work, out)
    print(f"{time.monotonic() - begin:.0f} s, {(out / ARCHIVE).stat().st_size:,} bytes packed")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES / "fidelity_campaign"
    with tempfile.TemporaryDirectory(prefix="fidelity-") as scratch:
        main(Path(scratch), target)
