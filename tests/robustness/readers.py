"""Everything that reads a file: how it is called, and what a readable file means."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from commcanary_lab.canary.model import Canary
from commcanary_lab.trace.model import Trace
from tests.robustness.samples import sample

__all__ = ["READERS", "Reader", "same"]


@dataclass(frozen=True)
class Reader:
    """Something that reads a kind of file.

    Parameters
    ----------
    name : str
        Key of its sample.
    suffix : str
        Of its files.
    family : {"json", "jsonl", "text", "toml", "binary", "opaque"}
        Which kinds of damage apply. Every content of an opaque file is valid.
    read : callable
        Reads a path.
    gzip : bool
        Whether gzip files are read, too.
    repairs : bool
        Whether some damage is repaired, with a warning.
    blank : bool
        Whether a blank file is a valid one: a matrix without ranks.
    file : str, optional
        Name of the file inside a folder of evidence that is made once; by default the file stands alone.
    """

    name: str
    suffix: str
    family: str
    read: Callable[[Path], Any]
    gzip: bool = False
    repairs: bool = False
    blank: bool = False
    file: str | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def sample(self) -> bytes:
        """A valid file."""
        return sample(self.name) if self.file is None else _whole(self.file)

    def target(self, folder: Path) -> Path:
        """Where a file to be read is put."""
        return folder / f"{self.name}{self.suffix}" if self.file is None else evidence() / self.file


def same(a: Any, b: Any) -> bool:
    """Whether two readings mean the same."""
    if isinstance(a, Trace):
        return bool(replace(a, warnings=()).equals(replace(b, warnings=())))
    if isinstance(a, Canary):
        return bool(a.canonical == b.canonical)
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if hasattr(a, "canonical"):
        return bool(a.canonical == b.canonical)
    if hasattr(a, "document"):
        return bool(a.document == b.document)
    if hasattr(a, "equals"):
        return bool(a.equals(b))
    return bool(a == b) if not hasattr(a, "__dataclass_fields__") else repr(a) == repr(b)


def _trace(format: str) -> Callable[[Path], Trace]:
    def read(path: Path) -> Trace:
        from commcanary_lab.importers.open import open_trace

        return open_trace(path, format=format)

    return read


def _call(module: str, name: str) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        from importlib import import_module

        return getattr(import_module(f"commcanary_lab.{module}"), name)(path)

    return read


def _raw(path: Path) -> Any:
    from commcanary_lab.replay.calibration.sweep_spec import SweepSpec, read_raw

    return read_raw(path, SweepSpec(op="all_reduce", sizes=(1, 2, 3), ranks=2, backend="gloo", repeat=2))


def _samples(path: Path) -> Any:
    from commcanary_lab.replay.sample_file import read_samples

    return read_samples(path)[0]


def _bundle(path: Path) -> Any:
    from commcanary_lab.replay.fidelity_bundle import unpack

    with tempfile.TemporaryDirectory() as folder:
        unpack(path, Path(folder) / "out")
        return sorted((p.name, p.read_bytes()) for p in Path(folder).rglob("*") if p.is_file())


def _offsets(path: Path) -> Any:
    from commcanary_lab.commands.inputs import parse_offsets

    return parse_offsets(str(path))


def _replay(path: Path) -> Any:
    from commcanary_lab.replay.result import read_replay

    found = read_replay(path.parent)
    return [found.spec, found.state, found.markers]


def _campaign(path: Path) -> Any:
    from commcanary_lab.replay.campaign.result import read_campaign

    found = read_campaign(path.parent)
    return [found.record.manifest, found.outcome]


@cache
def evidence() -> Path:
    """A campaign of synthetic runs, made once per process; what is damaged in it has to be mended."""
    from tests.replay.campaign.builder import Lab, paired

    folder = Path(_keep().name)
    done = Lab.at(folder).run(paired(repetitions=6, probe="probe = { epochs = 1, replays = 2 }", text="""
        [[criteria]]
        name = "faster"
        metric = "cycle_us"
        aggregate = "fleet_median"
        compare = "reduction_pct"
        at_least = 5.0
        """))  # fmt: skip
    for path in [done.record.directory, *done.record.directory.rglob("*")]:
        path.chmod(0o755)
    runs = done.record.directory / "runs"
    sorted(runs.iterdir())[0].rename(runs / "first")
    return done.record.directory


@cache
def _whole(file: str) -> bytes:
    return (evidence() / file).read_bytes()


@cache
def _keep() -> Any:
    return tempfile.TemporaryDirectory(prefix="robustness-")


_IMPORTERS = (
    ("trace_v1", ".json", "json", "commcanary.trace.v1"),
    ("trace_parquet", ".parquet", "binary", "parquet"),
    ("shard", ".jsonl", "jsonl", "shard"),
    ("inspector", ".log", "jsonl", "nccl_inspector"),
    ("kineto", ".json", "json", "kineto"),
    ("mpi_text", ".txt", "text", "mpi_text"),
    ("nccl_log", ".log", "text", "nccl_log"),
    ("rccl_log", ".log", "text", "nccl_log"),
    ("pytorch_et", ".json", "json", "pytorch_et"),
    ("param_basic", ".json", "json", "param_basic"),
    ("flight_recorder", ".json", "json", "flight_recorder"),
    ("flight_recorder_pickle", ".pkl", "binary", "flight_recorder"),
    ("nsys_sqlite", ".sqlite", "binary", "nsys_sqlite"),
    ("chakra_et", ".et", "binary", "chakra_et"),
    ("chakra_json", ".json", "json", "chakra_et"),
)
_NO_GZIP = ("trace_parquet", "shard", "nsys_sqlite")

#: Every reader.
READERS: tuple[Reader, ...] = (
    *(
        Reader(name, suffix, family, _trace(form), gzip=name not in _NO_GZIP, repairs=name not in ("trace_v1", "trace_parquet"))
        for name, suffix, family, form in _IMPORTERS
    ),
    Reader("nccl_tests", ".txt", "text", _call("importers.nccl_tests", "read_table"), gzip=True, repairs=True),
    Reader("nccl_tests_json", ".json", "json", _call("importers.nccl_tests", "read_table"), gzip=True),
    Reader("prometheus", ".prom", "text", _call("importers.inspector_prom", "read_latency_table"), gzip=True),
    Reader("canary_lossless", ".json", "json", _call("canary.read", "read_canary")),
    Reader("canary_bounded", ".json", "json", _call("canary.read", "read_canary")),
    Reader("report", ".json", "json", _call("simulate.report_file", "read_report")),
    Reader("comparison", ".json", "json", _call("review.comparison_file", "read_comparison")),
    Reader("signoff", ".json", "json", _call("review.signoff", "read_signoff")),
    Reader("search_ledger", ".json", "json", _call("workspace.ledger_file", "read_ledger")),
    Reader("ddmin_ledger", ".json", "json", _call("workspace.ledger_file", "read_ledger")),
    Reader("fit", ".json", "json", _call("replay.calibration.fit_file", "read_fit")),
    Reader("layout", ".toml", "toml", _call("layout.file", "read_layout")),
    Reader("layout_groups", ".toml", "toml", _call("layout.file", "read_layout")),
    Reader("policy", ".toml", "toml", _call("review.policy", "load_policy")),
    Reader("backends", ".toml", "toml", _call("simulate.backend", "load_backends")),
    Reader("fabric", ".toml", "toml", _call("replay.fabric_spec", "read_fabric")),
    Reader("campaign", ".toml", "toml", _call("replay.campaign.read", "read_preregistration")),
    Reader("offsets", ".txt", "text", _offsets),
    Reader("salt", ".salt", "opaque", _call("commands.inputs", "read_salt")),
    Reader("matrix_csv", ".csv", "text", _call("traffic.write", "read_cells")),
    Reader("matrix_npz", ".npz", "binary", _call("traffic.write", "read_cells")),
    Reader("matrix_parquet", ".parquet", "binary", _call("traffic.write", "read_cells")),
    Reader("matrix_txt", ".txt", "text", _call("traffic.write", "read_cells"), blank=True),
    Reader("sweep_raw", ".npz", "binary", _raw),
    Reader("replay_samples", ".arrows", "binary", _samples, repairs=True),
    Reader("bundle", ".tar.xz", "binary", _bundle),
    Reader("replay_spec", ".json", "json", _replay, file="runs/first/run.json"),
    Reader("replay_result", ".json", "json", _replay, file="runs/first/result.json"),
    Reader("replay_marker", ".json", "json", _replay, file="runs/first/rank-00000.json"),
    Reader("campaign_manifest", ".json", "json", _campaign, file="manifest.json"),
    Reader("campaign_decision", ".json", "json", _campaign, file="decision.json"),
)
