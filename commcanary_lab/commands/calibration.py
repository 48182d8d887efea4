"""Verbs on latency and bandwidth: sweep measures and fits them, levers says what they mean for a job."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commcanary_lab.commands.inputs import Format, Json, Paths, check_output, load_events
from commcanary_lab.commands.output import busy, emit_json, say, table, warn
from commcanary_lab.errors import UsageError
from commcanary_lab.units import format_bytes, format_rate, format_us

if TYPE_CHECKING:
    from commcanary_lab.replay.calibration.fit import Fit
    from commcanary_lab.replay.calibration.levers import Levers
    from commcanary_lab.replay.calibration.resample import Interval
    from commcanary_lab.replay.calibration.samples import SizeSamples
    from commcanary_lab.replay.calibration.terms import Terms

__all__ = ["register"]

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def register(app: typer.Typer) -> None:
    """Add the verbs to the application."""
    app.command()(sweep)
    app.command("levers")(levers_)


def sweep(
    ranks: Annotated[int | None, typer.Option("--ranks", min=2, help="Processes on this host; with --from what the table lacks.")] = None,
    backend: Annotated[str, typer.Option("--backend", help="gloo, nccl, or auto: NCCL where there is a GPU per rank.")] = "auto",
    op: Annotated[str | None, typer.Option("--op", help="Operation; all_reduce unless a table says another.")] = None,
    sizes: Annotated[str, typer.Option("--sizes", metavar="LO:HI", help="Range of message sizes, in equal ratios.")] = "1KiB:4MiB",
    points: Annotated[int, typer.Option("--points", min=3, max=64, help="Most sizes in that range.")] = 12,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Rounds; each holds every size once.")] = 30,
    table_file: Annotated[Path | None, typer.Option("--from", metavar="TABLE", help="Fit a table of nccl-tests instead.")] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="The in-place half of the table.")] = False,
    algorithm: Annotated[str | None, typer.Option("--algorithm", help="ring or tree; ring by default.")] = None,
    statistic: Annotated[
        str, typer.Option("--statistic", help="What stands for a size: min, p10, median; auto: p10 from 20 rounds on, else min.")
    ] = "auto",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the order of sizes and of the resampling.")] = 7,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Seconds after which the ranks are ended.")] = 300.0,
    keep: Annotated[Path | None, typer.Option("--keep", help="New directory for the clock readings of every rank.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where fit and samples go; - is standard output.")] = None,
    json: Json = False,
) -> int:
    """Size sweep of one collective and its latency-bandwidth fit. Exits 1 when the fit is inconclusive or does not describe the times."""
    from commcanary_lab.replay.calibration.fit import fit
    from commcanary_lab.replay.calibration.fit_file import fit_document, fit_json, write_fit

    to_stdout = output is not None and str(output) == "-"
    if json and to_stdout:
        raise UsageError("--json and -o - both want standard output", remedy="write the fit to a file")
    check_output(output, *(() if table_file is None else (table_file,)))
    if table_file is not None:
        from commcanary_lab.replay.calibration.samples import from_table

        if keep is not None:
            raise UsageError("a table has no clock readings to keep", remedy="leave out --keep or --from")
        samples = from_table(table_file, in_place=in_place, op=op, ranks=ranks)
    else:
        samples = _measured(op or "all_reduce", ranks or 2, backend, sizes, points, repeat, seed, timeout_s, keep)
    found = fit(samples, algorithm=algorithm, statistic=statistic, seed=seed)
    if output is not None and not to_stdout:
        write_fit(found, output)
    if to_stdout:
        emit_json(fit_document(found))
    elif json:
        emit_json(fit_json(found))
    else:
        _print_fit(found)
        if output is not None:
            say(f"wrote {output}")
    return 0 if found.verdict == "fits" else 1


def _measured(op: str, ranks: int, backend: str, sizes: str, points: int, repeat: int, seed: int, timeout_s: float,
              keep: Path | None) -> SizeSamples:  # fmt: skip
    from commcanary_lab.replay.calibration.measure import measure, size_multiple
    from commcanary_lab.replay.calibration.samples import geometric_sizes

    low, _, high = sizes.partition(":")
    chosen = geometric_sizes(_bytes(low), _bytes(high), points=points, multiple=size_multiple(ranks))
    with busy(f"measuring {op} on {ranks} ranks: {repeat} rounds of {len(chosen)} sizes"):
        return measure(op, ranks, chosen, backend=backend, repeat=repeat, seed=seed, timeout_s=timeout_s, keep=keep)


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None or found[2].lower() not in _UNITS:
        raise UsageError(f"{text!r} is not a size", remedy="write for example --sizes 1KiB:16MiB, or plain bytes 1024:16777216")
    return round(float(found[1]) * _UNITS[found[2].lower()])


def _rate(rate_gb_s: float) -> str:
    return format_rate(rate_gb_s) if math.isfinite(rate_gb_s) else "unlimited"


def _size(size_bytes: float) -> str:
    return format_bytes(size_bytes) if math.isfinite(size_bytes) else "none"


def _print_fit(found: Fit) -> None:
    s, alpha, rate, half = found.samples, found.alpha_interval_us, found.bandwidth_interval_gb_s, found.half_size_interval_bytes
    once = max(map(len, s.latencies_us)) == 1
    say(f"{found.cost.op} ({found.cost.algorithm}) on {s.ranks} ranks, {s.origin}: {s.ran_on}")
    sure = f"{found.terms.confidence:.0%} within"
    say(f"alpha       {format_us(found.alpha_us)} per step, {sure} {format_us(alpha.low)} to {format_us(alpha.high)}")
    say(f"bandwidth   {_rate(found.bandwidth_gb_s)} on the busiest link, within {_rate(rate.low)} to {_rate(rate.high)}")
    say(f"half size   {_size(found.half_size_bytes)}, within {_size(half.low)} to {_size(half.high)}: smaller messages are latency-bound")
    of = "the one time of each size" if once else f"the {found.statistic} of {s.repetitions} repetitions"
    say(f"fitted to {of}; intervals from resampled {found.uncertainty}")
    spread = ("time us",) if once else ("min us", "p10 us", "median us", "p90 us")
    rows = []
    for r, p in zip(found.residuals, s.spreads, strict=True):
        measured = (r.time_us,) if once else (p.min_us, p.p10_us, p.median_us, p.p90_us)
        rows.append((format_bytes(r.size_bytes), r.size_bytes, *measured, r.predicted_us, r.residual_us, f"{100 * r.relative:+.1f}"))
    table(("B", "bytes", *spread, "fit us", "residual us", "residual %"), rows)
    say(f"verdict: {found.verdict} (residuals {found.goodness.rms_relative:.1%} rms, {found.goodness.worst_relative:.1%} at most)")
    for reason in found.reasons:
        say(f"  {reason}")
    for note in s.notes:
        say(f"note: {note}")


def levers_(
    paths: Paths,
    fit: Annotated[Path | None, typer.Option("--fit", help="File that sweep -o wrote.")] = None,
    alpha_us: Annotated[float | None, typer.Option("--alpha-us", help="Latency of one step, instead of --fit.")] = None,
    bandwidth_gb_s: Annotated[float | None, typer.Option("--bandwidth-gb-s", help="Bandwidth of a link, GB/s, instead of --fit.")] = None,
    keep_share: Annotated[float, typer.Option("--keep-share", help="Share of the bytes that would be left.")] = 0.5,
    fuse: Annotated[int, typer.Option("--fuse", help="How many neighbouring equal calls would become one.")] = 2,
    algorithm: Annotated[str | None, typer.Option("--algorithm", help="ring or tree, for operations that come as both.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows to print; --json has all.")] = 20,
    format: Format = None,
    json: Json = False,
) -> None:
    """What fewer bytes, fewer (fused) calls, or no calls would save in a trace or canary, by a latency-bandwidth fit."""
    from commcanary_lab.replay.calibration.levers import levers

    found = levers(load_events(paths, format=format), _terms(fit, alpha_us, bandwidth_gb_s), keep_share=keep_share, fuse=fuse,
                   algorithm=algorithm)  # fmt: skip
    if found.unpriced:
        warn(f"{count} events left out: {reason}" for reason, count in found.unpriced.items())
    if json:
        emit_json(_levers_json(found))
    else:
        _print_levers(found, top)


def _terms(path: Path | None, alpha_us: float | None, bandwidth_gb_s: float | None) -> Fit | Terms:
    from commcanary_lab.replay.calibration.fit_file import read_fit
    from commcanary_lab.replay.calibration.terms import Terms

    if path is not None:
        if alpha_us is not None or bandwidth_gb_s is not None:
            raise UsageError("--fit has alpha and bandwidth already", remedy="give either --fit, or --alpha-us and --bandwidth-gb-s")
        return read_fit(path)
    if alpha_us is None or bandwidth_gb_s is None:
        raise UsageError(
            "nobody says what a step and a byte cost", remedy="give --fit FILE (from sweep -o), or --alpha-us and --bandwidth-gb-s"
        )
    return Terms.assumed(alpha_us, bandwidth_gb_s)


def _levers_json(found: Levers) -> dict[str, Any]:
    from commcanary_lab.replay.calibration.levers import LIMITS

    t = found.terms
    return {
        "rows": [
            {
                "op": r.op,
                "size_bytes": r.size_bytes,
                "ranks": r.ranks,
                "count": r.count,
                "bound": r.bound,
                "latency_share": r.latency_share,
                "call_us": r.call_us,
                "save_bytes_us": r.save_bytes_us,
                "save_bytes_interval_us": _pair(r.save_bytes_interval_us),
                "fuse_us": r.fuse_us,
                "fuse_interval_us": _pair(r.fuse_interval_us),
                "fused_calls": r.fused_calls,
                "remove_us": r.remove_us,
                "remove_interval_us": _pair(r.remove_interval_us),
            }
            for r in found.rows
        ],
        "total_us": found.total_us,
        "latency_bound_us": found.latency_bound_us,
        "terms": {"alpha_us": t.alpha_us, "bandwidth_gb_s": t.bandwidth_gb_s, "origin": t.origin, "source": t.source},
        "keep_share": found.keep_share,
        "fuse": found.fuse,
        "unpriced": found.unpriced,
        "import_coverage": {"read": found.coverage.read, "used": found.coverage.used, "skipped": dict(found.coverage.skipped)},
        "notes": list(found.notes),
        "limits": list(LIMITS),
    }


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _print_levers(found: Levers, top: int) -> None:
    from commcanary_lab.replay.calibration.levers import LIMITS

    t = found.terms
    total, share = found.total_us, found.latency_bound_us / found.total_us if found.total_us else 0.0
    say(f"{format_us(total)} of communication by the fit (model), {share:.0%} of it in latency-bound calls")
    say(f"alpha {format_us(t.alpha_us)}, {_rate(t.bandwidth_gb_s)}, {t.origin}: {t.source}")
    rows = []
    for r in found.rows[:top]:
        saved = (
            _saved(r.save_bytes_us, r.save_bytes_interval_us),
            _saved(r.fuse_us, r.fuse_interval_us),
            _saved(r.remove_us, r.remove_interval_us),
        )
        rows.append((r.op, format_bytes(r.size_bytes), r.ranks, r.count, r.bound, r.call_us, *saved))
    say(f"saved in all calls of a row: {1 - found.keep_share:.0%} fewer bytes, up to {found.fuse} neighbouring calls in one, no calls")
    table(("op", "B", "ranks", "calls", "bound by", "one call us", "fewer bytes", "fused", "removed"), rows)
    if len(found.rows) > top:
        say(f"... and {len(found.rows) - top} more rows (--top, --json)")
    for note in found.notes:
        say(f"note: {note}")
    for limit in LIMITS:
        say(f"limit: {limit}")


def _saved(value_us: float, interval: Interval | None) -> str:
    if interval is None or value_us == 0:
        return format_us(value_us)
    return f"{format_us(value_us)} ({format_us(interval.low)} to {format_us(interval.high)})"
