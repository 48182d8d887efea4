"""NCCL Inspector's and RCCL Inspector's Prometheus text: averages per size class. Enough for a table of latencies, not for a trace."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from commcanary_lab.errors import FormatError, Problem, RefusedError
from commcanary_lab.importers._text import read_source
from commcanary_lab.limits import DEFAULT, Limits

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FORMAT", "read", "read_latency_table", "recognise"]

FORMAT = "nccl_inspector_prometheus"

_NAME = re.compile(
    rb"^(?:# (?:HELP|TYPE) )?(?:nccl|rccl)_(?:p2p_|collective_)?(?:bus_bandwidth_gbs|exec_time_microseconds)\b", re.MULTILINE
)
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*+)\s*+(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_METRICS = {"bus_bandwidth_gbs": "busbw_gb_s", "exec_time_microseconds": "time_us"}
_COLUMNS = ("node", "gpu", "comm_name", "n_nodes", "nranks", "op", "message_size", "algo_proto", "time_us", "busbw_gb_s")
_MAX_PROBLEMS = 20
_MAX_LINE = 1 << 16


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is such text.

    Examples
    --------
    >>> recognise(b'nccl_bus_bandwidth_gbs{nranks="4"} 678.2'), recognise(b"node_load1 0.5")
    (True, False)
    """
    return _NAME.search(head) is not None


def read(paths: Sequence[str | os.PathLike[str]], *, limits: Limits = DEFAULT) -> Any:
    """Refuse: the text has no trace in it.

    Raises
    ------
    RefusedError
        Always.
    """
    raise RefusedError(
        "Prometheus text holds averages per size class: no counts, no peers, so that neither a trace nor a traffic matrix can be made",
        file=str(paths[0]) if paths else None,
        remedy="record JSON lines instead; importers.inspector_prom.read_latency_table reads the latencies",
    )


def read_latency_table(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, limits: Limits = DEFAULT) -> pd.DataFrame:
    """Read the latencies.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        Files of one or more GPUs.
    limits : Limits
        Resource limits.

    Returns
    -------
    pandas.DataFrame
        One row per GPU, communicator, operation and size class: ``node, gpu, comm_name, n_nodes, nranks, op, message_size, algo_proto,
        time_us, busbw_gb_s``, and ``min_size_bytes, max_size_bytes`` where the size class reads as a range.

    Raises
    ------
    FormatError
        If a line is no sample; names it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as f:
    ...     _ = f.write('nccl_collective_exec_time_microseconds{collective="AllReduce",message_size="8-9MB",nranks="8"} 1772.12\\n')
    ...     f.flush()
    ...     read_latency_table(f.name)[["op", "nranks", "min_size_bytes", "time_us"]].values.tolist()
    [['AllReduce', 8, 8000000, 1772.12]]
    """
    import pandas as pd

    files = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    rows: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for path in files:
        for metric, labels, value in _samples(path, limits):
            key = tuple(sorted({**labels, "file": str(path)}.items()))
            row = rows.setdefault(key, {**labels, "op": labels.get("collective") or labels.get("p2p_operation")})
            row[metric] = value
    frame = pd.DataFrame(list(rows.values()), columns=list(_COLUMNS))
    for name in ("n_nodes", "nranks"):
        frame[name] = pd.array([_count(value) for value in frame[name]], dtype="Int64")
    bounds = [_bounds(text) for text in frame["message_size"]]
    frame["min_size_bytes"] = pd.array([b[0] if b else None for b in bounds], dtype="Int64")
    frame["max_size_bytes"] = pd.array([b[1] if b else None for b in bounds], dtype="Int64")
    return frame


def _samples(path: str | os.PathLike[str], limits: Limits) -> Iterator[tuple[str, dict[str, str], float]]:
    """Metric, labels and value of each sample that is one of the plugin's."""
    problems: list[Problem] = []
    seen = 0
    try:
        lines = read_source(path, limits).data.removeprefix(b"\xef\xbb\xbf").decode("utf-8").splitlines()
    except UnicodeDecodeError as e:
        raise FormatError(f"not UTF-8 text (byte {e.start})", file=str(path), remedy="record again") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            found = _sample(line)
        except ValueError as e:
            problems.append(Problem(str(e), file=str(path), line=number, remedy="remove the line, or record again"))
            if len(problems) > _MAX_PROBLEMS:
                break
            continue
        seen += 1
        if found is not None:
            yield found
    if problems:
        raise FormatError(problems)
    if not seen:
        raise FormatError("holds no sample", file=str(path), remedy="give the text that the Inspector exports for Prometheus")


def _count(value: object) -> int | None:
    """A number of nodes or ranks; None where the label says none."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value) else None


def _sample(line: str) -> tuple[str, dict[str, str], float] | None:
    if len(line) > _MAX_LINE:
        raise ValueError(f"a line of {len(line)} characters is no sample")
    match = _SAMPLE.match(line)
    if match is None:
        raise ValueError("not a sample: name{labels} value")
    name, text, value = match.groups()
    metric = next((column for suffix, column in _METRICS.items() if name.endswith(suffix)), None)
    if metric is None or not name.startswith(("nccl_", "rccl_")):
        return None
    labels: dict[str, str] = {}
    at = 0
    while text and at < len(text):
        label = _LABEL.match(text, at)
        if label is None:
            raise ValueError('labels that are not name="value"')
        labels[label[1]] = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], label[2])
        at = label.end()
    try:
        return metric, labels, float(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number") from None


_UNITS = {"B": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000, "TB": 1_000_000_000_000}
_RANGE = re.compile(r"(\d{1,6})-(\d{1,6})([KMGT]?B)", re.IGNORECASE)


def _bounds(text: object) -> tuple[int, int] | None:
    """Bounds of a size class such as ``8-9MB``."""
    match = _RANGE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        return None
    unit = _UNITS[match[3].upper()]
    return int(match[1]) * unit, int(match[2]) * unit
