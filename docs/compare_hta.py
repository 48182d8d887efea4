#!/usr/bin/env python3
"""Time to open a profiler trace and to tabulate its communication, against HolisticTraceAnalysis, alternating in one run.

HolisticTraceAnalysis is no dependency: install it into an environment of its own and give that environment's Python. ::

    python docs/compare_hta.py --hta-python ENV/bin/python -o docs/hta_comparison.json TRACE.json.gz

The result is a part of docs/benchmarks.md (``docs/make_benchmarks.py``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path

#: Each prints one JSON object: seconds to import, to open, to tabulate, and the peak of the process in MB.
_OURS = """
import json, resource, sys, time
start = time.perf_counter()
import commcanary_lab as lab
from commcanary_lab.importers.open import open_trace
from commcanary_lab.inspect import ops
imported = time.perf_counter()
trace = open_trace(sys.argv[1])
opened = time.perf_counter()
table = ops(trace)
trace.unsized
done = time.perf_counter()
print(json.dumps({"import": imported - start, "open": opened - imported, "tabulate": done - opened,
                  "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "version": lab.__version__}))
"""
_THEIRS = """
import json, logging, resource, sys, time
logging.disable(logging.CRITICAL)
start = time.perf_counter()
from importlib.metadata import version
from hta.trace_analysis import TraceAnalysis
imported = time.perf_counter()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
opened = time.perf_counter()
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
done = time.perf_counter()
print(json.dumps({"import": imported - start, "open": opened - imported, "tabulate": done - opened,
                  "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "version": version("HolisticTraceAnalysis")}))
"""


def measure(python: str, code: str, trace: Path) -> dict[str, float | str]:
    """Run once in a fresh process."""
    done = subprocess.run([python, "-c", code, str(trace)], capture_output=True, text=True, check=True)
    result: dict[str, float | str] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--hta-python", required=True, help="Python of an environment that has HolisticTraceAnalysis")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    rows = []
    for trace in given.traces:
        ours, theirs = [], []
        for _ in range(given.rounds):  # alternating, so that both see the same machine
            theirs.append(measure(given.hta_python, _THEIRS, trace))
            ours.append(measure(sys.executable, _OURS, trace))
        row = {"file": trace.name, "hta_version": theirs[0]["version"]}
        for name in ("import", "open", "tabulate", "peak_mb"):
            row[f"ours_{name}"] = statistics.median(float(r[name]) for r in ours)
            row[f"theirs_{name}"] = statistics.median(float(r[name]) for r in theirs)
        rows.append(row)
        print(f"{trace.name}: open {row['theirs_open']:.2f} s against {row['ours_open']:.2f} s")
    given.output.write_text(json.dumps({"date": str(date.today()), "rounds": given.rounds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
