#!/usr/bin/env python3
"""Write docs/benchmarks.md from the JSON of a benchmark run: ``make bench``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

#: What this version aims at, warm: irregular events, and seconds.
TARGETS = {
    "load JSON": ((100_000, 0.3),),
    "compile lossless": ((100_000, 0.42),),
    "simulate": ((100_000, 0.15),),
    "verify, bounded canary": ((10_000, 0.25), (100_000, 2.5)),
    "search, 2 to 4 records": ((10_000, 1.2),),
    "ddmin": ((10_000, 0.33),),
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
        if group.startswith(("process", "Inspector", "peer", "cold", "large")):
            continue
        cells = []
        for count in (1_000, 10_000, 100_000):
            b = by_count.get(count)
            cells.append(f"{_seconds(b['stats']['median'])} ({_seconds(b['stats']['min'])})" if b else "")
        lines.append(f"| {group} | {' | '.join(cells)} | {_target(group)} |")
    lines += ["", *_extra(rows), "", *_large(rows), "", *_browser(), "", *_peer(rows), "", *_replay(), "", *_hta(), ""]
    return "\n".join(lines)


def _target(group: str) -> str:
    if group not in TARGETS:
        return ""
    return ", ".join(f"< {_seconds(seconds)} at {events // 1000}k" for events, seconds in TARGETS[group])


def _extra(rows: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    out = []
    for by_count in rows.values():
        for b in by_count.values():
            if "peak_mb" in b["extra_info"] and not b["group"].startswith(("large: ", "peer: ")):
                out.append(
                    f"Peak memory of one process that loads, compiles and simulates 100k events: {b['extra_info']['peak_mb']:.0f} MB"
                    f" (limit 600 MB); its wall time, cold, is {_seconds(b['stats']['median'])}."
                )
    out += _inspector(rows)
    share = rows.get("compile lossless", {}).get(100_000, {}).get("extra_info", {}).get("share_of_source")
    if share is not None:
        out.append(f"The lossless canary of 100k irregular events takes {share:.1%} of its source's canonical bytes.")
    return out


def _large(rows: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    """Return what the largest inputs took."""
    lines = [
        "## Ten million events",
        "",
        "Whole processes, once each: start, reading the file, the work, the output. The trace is that of `tests/bench/gen_large.py` (64"
        " ranks, irregular, 116 MB of Parquet), the profiler trace that of `tests/bench/gen_kineto.py`.",
        "",
        "| | wall | CPU | peak | limits |",
        "|---|---|---|---|---|",
    ]
    for group, by_count in rows.items():
        for b in by_count.values() if group.startswith("large: ") else ():
            more = b["extra_info"]
            lines.append(
                f"| {group.removeprefix('large: ')} | {_seconds(more['wall_s'])} | {_seconds(more['cpu_s'])} | {more['peak_mb']:,.0f} MB |"
                f" {more['limits'][0]} s, {more['limits'][1]:,} MB |"
            )
    return lines


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
        "Whole processes on the same generated traces, from start to exit: theirs as published, on a machine of the same kind; ours the"
        " middle of three (one at 100k), with start-up, imports and loading of compiled kernels. Their two verifications together are one"
        " of ours. Below a few thousand events start-up is nearly all of our time.",
        "",
        "| operation | shape | events | theirs, CPU | ours, CPU | ratio | theirs, peak | ours, peak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group, by_count in rows.items():
        if not group.startswith("peer: "):
            continue
        operation, shape = group.removeprefix("peer: ").rsplit(", ", 1)
        for count, b in sorted(by_count.items()):
            more, theirs = b["extra_info"], b["extra_info"]["theirs"]
            ours = f"{_seconds(more['cpu_s'])}"
            before = (
                (_seconds(theirs[0]), f"{theirs[0] / more['cpu_s']:.3g} x", f"{theirs[1]} MB" if theirs[1] else "")
                if theirs
                else ("not run", "", "")
            )
            lines.append(
                f"| {operation} | {shape} | {count:,} | {before[0]} | {ours} | {before[1]} | {before[2]} | {more['peak_mb']:.0f} MB |"
            )
    cold = [
        f"`commcanary-lab {group.removeprefix('cold: ')}`: {_seconds(b['stats']['median'])} ({_seconds(b['stats']['min'])}), target"
        f" < {_seconds(b['extra_info']['target_s'])}."
        for group, by_count in rows.items()
        if group.startswith("cold: ")
        for b in by_count.values()
    ]
    return [*lines, "", "Cold start, a fresh process with its files in the page cache:", "", *(f"- {line}" for line in cold)]


def _browser() -> list[str]:
    """Return what docs/measure_browser.py measured last."""
    measured = json.loads((Path(__file__).parent / "browser_measurements.json").read_text())
    many = measured["visitors"]
    first, last = many["cycles"][0], many["cycles"][-1]
    lines = [
        "## The workbench in a browser",
        "",
        f"Chromium {measured['chromium']} without a graphics card, server and browser on {measured['cpus']} shared logical CPUs, on"
        f" {measured['date']} (`python docs/measure_browser.py`).",
        "",
        "From the address to the sentence and the first chart or table of a page, with a warm cache:",
        "",
        "| page | median | worst | target |",
        "|---|---|---|---|",
        *(f"| {r['page']} | {_ms(r['median_ms'])} | {_ms(r['worst_ms'])} | < 3 s |" for r in measured["ready"]),
        "",
        f"From a change of the view (wheel or drag) to the frame on the screen that shows it, {measured['changes']} changes each. A matrix is"
        f" that of {measured['records']:,} records or some more; above 512 ranks the server adds up blocks of ranks for what is in view.",
        "",
        "| chart | median | p95 | target |",
        "|---|---|---|---|",
        *(
            f"| heatmap of {r['ranks']:,} ranks, {r['links']:,} links | {_ms(r['median_ms'])} | {_ms(r['p95_ms'])} | < {_ms(r['target_ms'])} |"
            for r in measured["heatmap"]
        ),
        f"| timeline of {measured['timeline']['events']:,} events | {_ms(measured['timeline']['median_ms'])} |"
        f" {_ms(measured['timeline']['p95_ms'])} | < {_ms(measured['timeline']['target_ms'])} |",
        "",
        f"The server holds {_mb(many['before'])} before the first of them, and {_mb(many['full'])} with {many['sessions']} sessions open on"
        f" all pages (limit 1,500 MB). {last['cycles'] - first['cycles']} visits that open a page, wait until it is drawn and close it"
        f" take it from {_mb(first)} to {_mb(last)} (limit of the growth: 150 MB), from {first['files']} to {last['files']} open files and"
        f" from {first['threads']} to {last['threads']} threads.",
    ]
    return lines


def _ms(value: float) -> str:
    return _seconds(value / 1e3)


def _mb(held: dict[str, int]) -> str:
    return f"{held['rss_bytes'] / 1e6:,.0f} MB"


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
