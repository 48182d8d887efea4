"""Capture: record the collectives of a running torch.distributed job, one crash-safe shard per rank.

`Recorder` records inside a job, `launch` runs a command with the recorder switched on and merges what it wrote, and
`environment` gives the variables that switch it on under any other launcher.
"""

from commcanary_lab.capture.activate import environment
from commcanary_lab.capture.launcher import LaunchResult, launch
from commcanary_lab.capture.overhead import Overhead, measure
from commcanary_lab.capture.recorder import Recorder, Summary, phase

__all__ = ["LaunchResult", "Overhead", "Recorder", "Summary", "environment", "launch", "measure", "phase"]
