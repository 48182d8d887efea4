"""Starts one of PARAM's programs in a rank process: ``param_launcher.py MODULE ARGUMENTS``. Nothing of PARAM is replaced.

Two attributes are given defaults that PARAM's basic replay reads and never sets (seen at commit 1e115ffc): an option that only its
benchmarks define, and the root of a broadcast under its other name.
"""

from __future__ import annotations

import argparse
import importlib
import runpy
import sys
from typing import Any


def _root(self: Any, name: str) -> Any:
    if name == "srcOrDst":
        return self.root
    raise AttributeError(name)


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    if sys.argv[0].startswith("param_bench."):
        argparse.Namespace.use_device_time = False  # type: ignore[attr-defined]
        importlib.import_module("param_bench.train.comms.pt.comms_utils").commsArgs.__getattr__ = _root
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
