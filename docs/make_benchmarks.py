#!/usr/bin/env python3
"""Write docs/benchmarks.md from the JSON of a benchmark run: ``make bench``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

#: Published figures of CommCanary 0.3.0 on the same generated traces, irregular shape, CPU seconds of a whole process.
PEER = {
    "load JSON": {100_000: 2.2},
    "compile lossless": {1_000: 0.368, 10_000: 3.95, 100_000: 42.1},
    "simulate": {1_000: 0.204, 10_000: 2.60, 100_000: 32.6},
}

#: What this version aims at, warm: irregular events, and seconds.
TARGETS = {
    "load JSON": (100_000, 0.4),
    "compile lossless": (100_000, 0.6),
    "simulate": (100_000, 0.2),
    "verify, bounded canary": (10_000, 0.4),
    "search, 2 to 4 records": (10_000, 1.5),
    "ddmin": (10_000, 0.5),
}


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def document(run: dict[str, Any]) -> str:
    """Return the page."""
    rows: dict[str, dict[int, dict[str, Any]]] = {}
    for b in run["benchmarks"]:
        rows.setdefault(b["group"], {})[b["extra_info"]["events"]] = b
    machine = run["machine_info"]
    lines = [
        "# Benchmarks",
        "",
        f"Made by `make bench` on {run['datetime'][:10]}: Python {machine['python_version']},"
        f" {machine['cpu'].get('count', '?')} logical CPUs, {machine['system']}. Medians of a warm process (kernels compiled,"
        " files cached); the fastest round in brackets. Traces come from"
        " `tests/bench/gen_traces.py`, shape `irregular`. The machine was shared: read ratios, not absolute times.",
        "",
        "| operation | 1k | 10k | 100k | target |",
        "|---|---|---|---|---|",
    ]
    for group, by_count in sorted(rows.items()):
        if group.startswith(("process", "Inspector")):
            continue
        cells = []
        for count in (1_000, 10_000, 100_000):
            b = by_count.get(count)
            cells.append(f"{_seconds(b['stats']['median'])} ({_seconds(b['stats']['min'])})" if b else "")
        lines.append(f"| {group} | {' | '.join(cells)} | {_target(group)} |")
    lines += ["", *_extra(rows), "", *_browser(), "", *_peer(rows), "", *_replay(), "", *_hta(), ""]
    return "\n".join(lines)


def _target(group: str) -> str:
    if group not in TARGETS:
        return ""
    events, seconds = TARGETS[group]
    return f"< {_seconds(seconds)} at {events // 1000}k"


def _extra(rows: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    out = []
    for by_count in rows.values():
        for b in by_count.values():
            if "peak_mb" in b["extra_info"]:
                out.append(
                    f"Peak memory of one process that loads, compiles and simulates 100k events: {b['extra_info']['peak_mb']:.0f} MB"
                    f" (limit 600 MB); its wall time, cold, is {_seconds(b['stats']['median'])}."
                )
    out += _inspector(rows)
    share = rows.get("compile lossless", {}).get(100_000, {}).get("extra_info", {}).get("share_of_source")
    if share is not None:
        out.append(f"The lossless canary of 100k irregular events takes {share:.1%} of its source's canonical bytes.")
    return out


def _inspector(rows: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    """Return what was measured on generated NCCL Inspector output."""
    out = []
    for group, by_count in rows.items():
        for b in by_count.values():
            more, wall = b["extra_info"], f"{_seconds(b['stats']['median'])} ({_seconds(b['stats']['min'])})"
            if "inspector_peak_mb" in more:
                used = f"{_seconds(more['cpu_s'])} of CPU time on two cores, {more['inspector_peak_mb']:.0f} MB"
                out.append(
                    f"`commcanary-lab traffic` of 1 million NCCL Inspector records in 8 files ({more['size_mb']:.0f} MB), from start to"
                    f" exit: {wall}, {used} (limits 6 s, 1500 MB)."
                )
            elif group.startswith("Inspector"):
                out.append(f"{group.removeprefix('Inspector: ')}: {wall}, {_seconds(more['cpu_s'])} of CPU time (limit 2 s).")
    return out


def _peer(rows: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    lines = [
        "## Against the published figures of CommCanary 0.3.0",
        "",
        "Theirs are CPU seconds of a whole process on a machine of the same kind, ours the median of a warm process: start-up"
        " (about a second, mostly imports and loading compiled kernels) is not in ours.",
        "",
        "| operation | events | theirs | ours | ratio |",
        "|---|---|---|---|---|",
    ]
    for group, by_count in PEER.items():
        for count, theirs in by_count.items():
            b = rows.get(group, {}).get(count)
            if b:
                ours = b["stats"]["median"]
                lines.append(f"| {group} | {count:,} | {_seconds(theirs)} | {_seconds(ours)} | {theirs / ours:.0f} x |")
    return lines


def _browser() -> list[str]:
    """Return what docs/measure_browser.py measured last."""
    measured = json.loads((Path(__file__).parent / "browser_measurements.json").read_text())
    lines = [
        "## The heatmap in a browser",
        "",
        f"From a change of the view (wheel or drag) to the frame on the screen that shows it, Chromium {measured['chromium']} without a"
        f" graphics card, server and browser on {measured['cpus']} shared logical CPUs, {measured['changes']} changes on"
        f" {measured['date']} (`python docs/measure_browser.py`). Each matrix is that of {measured['records']:,} records or some more."
        " Above 512 ranks the server adds up blocks of ranks for what is in view.",
        "",
        "| ranks | links | median | p95 | target |",
        "|---|---|---|---|---|",
    ]
    for row in measured["rows"]:
        times = " | ".join(_seconds(row[f"{what}_ms"] / 1e3) for what in ("median", "p95"))
        lines.append(f"| {row['ranks']:,} | {row['links']:,} | {times} | < {_seconds(row['target_ms'] / 1e3)} |")
    return lines


def _replay() -> list[str]:
    """Return what docs/measure_replay.py measured last."""
    m = json.loads((Path(__file__).parent / "replay_overhead.json").read_text())
    return [
        "## The replay worker",
        "",
        f"Gloo, torch {m['torch']}, {m['ranks']} ranks on {m['cpus']} shared logical CPUs, {m['events']} events in each pass,"
        f" {m['rounds']} rounds of A B B A on {m['date']} (`python docs/measure_replay.py`): A is the worker's loop, B the bare operations.",
        "",
        "| | |",
        "|---|---|",
        f"| replayed over bare time, median of rounds (95 % bootstrap interval) | {m['ratio']:.3f} ({m['low']:.3f} to {m['high']:.3f}) |",
        f"| time per event, replayed and bare | {m['replayed_us']:.0f} us, {m['bare_us']:.0f} us |",
        f"| bookkeeping between two events, p50 (target 30 us) | {m['bookkeeping_p50_us']:.1f} us |",
    ]


def _hta() -> list[str]:
    """Return the comparison that docs/compare_hta.py measured last."""
    measured = json.loads((Path(__file__).parent / "hta_comparison.json").read_text())
    rows = measured["rows"]
    lines = [
        f"## Against HolisticTraceAnalysis {rows[0]['hta_version']}",
        "",
        f"Fresh processes, alternating, medians of {measured['rounds']} on {measured['date']} (`python docs/compare_hta.py`): opening a"
        " profiler trace of one rank, and tabulating its communication (theirs: kernel breakdown and overlap; ours: the operation table).",
        "",
        "| file | | import | open | tabulate | peak |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        for who, name in (("theirs", "HolisticTraceAnalysis"), ("ours", "commcanary_lab")):
            times = " | ".join(_seconds(row[f"{who}_{part}"]) for part in ("import", "open", "tabulate"))
            lines.append(f"| {row['file']} | {name} | {times} | {row[f'{who}_peak_mb']:.0f} MB |")
        opens, peaks = row["theirs_open"] / row["ours_open"], row["theirs_peak_mb"] / row["ours_peak_mb"]
        lines.append(f"| | ratio | | {opens:.1f} x | | {peaks:.1f} x |")
    return lines


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(document(json.loads(source.read_text())), encoding="utf-8")
    print(f"wrote {target}")
