"""An example of a preregistration with every part explained, as a file to begin with."""

from __future__ import annotations

import json
import re
from pathlib import PurePath

__all__ = ["example"]

_TEXT = """# Preregistration of a campaign. Write down what is asked and when the answer is yes, then:
#   commcanary-lab campaign run {file} -o evidence/{name}
# Nothing here can be changed afterwards without being seen: the evidence keeps this file byte for byte.
format = "commcanary.campaign.v1"
name = "{name}"
question = "Does the candidate save at least 5 % of the control's cycle, with every byte right?"

# Each configuration runs so often. An interval of n repetitions covers a median with a probability of at most 1 - 2^(1 - n):
# 95 % need 6 of them.
repetitions = 6
# "ABBA" interleaves control and candidate, so that a drift of the machine falls on both; "rotation" is for more of them.
order = "ABBA"
control = "control"
candidate = "candidate"

# With repetitions that differ by more than this (coefficient of variation) nothing is decided.
stability_limit = 0.15
timeout_s = 120          # per run
confidence = 0.95
resamples = 2000

# Canaries and traces, one file each, relative to this file.
[programs]
control = "{control}"
candidate = "{candidate}"

[[configurations]]
name = "control"
program = "control"
{ranks}backend = "auto"         # gloo, nccl, or auto: NCCL where there is a GPU per rank
timing = "back_to_back"  # or "preserve": events wait for their time
barrier = true           # before each event, so that no latency contains a wait for a late rank
overlap = false          # compute beside the collectives as long as the source says
warmup = 1
iterations = 10
# Shaped links (root on Linux):
# fabric = {{ rate_mbit = 400, ranks_per_node = 2, across_mbit = 50 }}
[configurations.probe]   # inputs change with every sample, every byte is compared; wrong data fail the campaign
epochs = 1
replays = 2

[[configurations]]
name = "candidate"
program = "candidate"
{ranks}backend = "auto"
warmup = 1
iterations = 10
[configurations.probe]
epochs = 1
replays = 2

# Counts that must be what they are said to be, per rank and cycle; another count ends the campaign as incomparable.
# [[audits]]
# configurations = ["control"]
# counts = {{ all_gather = 96, all_reduce = 1 }}
# total = 97

[[criteria]]
name = "saves 5 % of the cycle"
metric = "cycle_us"      # time of a cycle on a rank
statistic = "p50"        # of its iterations
aggregate = "fleet_median"
compare = "reduction_pct"
at_least = 5.0

[[criteria]]
name = "no rank becomes slower"
metric = "cycle_us"
aggregate = "every_rank"
compare = "difference"   # control - candidate, in microseconds
at_least = 0.0

[[criteria]]
name = "launches"
metric = "launches"
aggregate = "every_rank"
compare = "reduction_pct"
at_least = 0.0
required = false         # reported, without influence on the decision

# A rate that is so much per cycle over the cycle time; the report says which part a change is.
# [[rates]]
# name = "tokens/s"
# per_cycle = {{ control = 3.9552, candidate = 3.9546 }}

[decision]
rule = "all"             # of the required criteria; or "any", or "at_least" with minimum = 2
"""


def example(
    *, file: str = "campaign.toml", control: str = "control.json", candidate: str = "candidate.json", ranks: int | None = None
) -> str:
    """Return a preregistration that compares two programs.

    Parameters
    ----------
    file : str
        What it will be called.
    control, candidate : str
        Files of the two programs.
    ranks : int, optional
        Processes; all ranks of the programs by default.

    Examples
    --------
    >>> from commcanary_lab.replay.campaign.read import parse_preregistration
    >>> parse_preregistration(example(ranks=2).encode(), "campaign.toml").repetitions
    6
    """
    # a basic string of TOML escapes as JSON does
    quoted = [json.dumps(name)[1:-1] for name in (control, candidate)]
    told = "" if ranks is None else f"ranks = {ranks}                # all of the program's where left out\n"
    return _TEXT.format(file=file, name=_name(PurePath(file).stem), control=quoted[0], candidate=quoted[1], ranks=told)


def _name(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "campaign"
