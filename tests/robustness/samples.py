"""Small valid files of every format that is read; damage starts from them."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import commcanary_lab as lab
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.importers.chakra_schema import Metadata, encode_trace
from commcanary_lab.trace.json_v1 import read_json_bytes
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.parquet import write_parquet
from tests.importers.inspector_lines import collective, message, rank_line
from tests.importers.test_chakra_et import coll
from tests.importers.test_chakra_et import message as chakra_message
from tests.importers.test_flight_recorder import dump, entry
from tests.importers.test_nsys_sqlite import COMM, INIT, P0, P1, PLAIN, REDUCE, Report, payload
from tests.importers.test_param_basic import init, op

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "data" / "cases"

__all__ = ["CASES", "ROOT", "in_folder", "sample", "small_trace"]


def _dumps(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def _lines(*values: Any) -> bytes:
    return b"".join(json.dumps(v).encode() + b"\n" for v in values)


def _event(i: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"e{i}", "op": "all_reduce", "bytes": 1024 * (1 + i % 2), "ranks": [0, 1], "phase": "decode", "group": "tp",
        "dtype": "float32", "reduction_op": "sum", "start_us": 10.5 * i, "rank_arrival_us": {"0": 0, "1": 1.25}, "compute_overlap_us": 2,
        "compute_pressure": 0.5,
    } | more  # fmt: skip


def _v1() -> bytes:
    events = [_event(0), _event(1), _event(2, op="send_recv", peer_ranks=[0, 1]) | {"reduction_op": None}, _event(3)]
    for e in events:
        if e["op"] == "send_recv":
            e |= {"op": "point_to_point", "sender_rank": 0, "receiver_rank": 1}
            del e["reduction_op"], e["peer_ranks"]
    return _dumps({"format": "commcanary.trace.v1", "workload": {"name": "job"}, "system": {"note": "x"}, "events": events})


@cache
def small_trace() -> Trace:
    """Four events of two ranks, everything known."""
    return read_json_bytes(sample("trace_v1"))


def in_folder(write: Callable[[Path], object], name: str) -> bytes:
    """Return what `write` writes to a file of that name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        return path.read_bytes()


def _mpi() -> bytes:
    folder = ROOT / "data" / "samples" / "fabric_job" / "mpi"
    return sorted(folder.iterdir())[0].read_bytes()


def _nsys() -> bytes:
    def write(path: Path) -> None:
        report = Report(path)
        for rank, process in enumerate((P0, P1)):
            report.call("ncclCommInitRank", 0, process, payload(INIT, COMM, 2, rank, rank), kernel=False)
        for process in (P0, P1):
            report.call("ncclAllReduce", 1000, process, payload(REDUCE, COMM, 64, 4))
            report.call("ncclAllGather", 2000, process, payload(PLAIN, COMM, 64))
        report.done()

    return in_folder(write, "job.sqlite")


def _structured() -> bytes:
    row = {"count": 262144, "type": "float", "redop": "sum", "root": -1, "oop_time": 100.5, "oop_algbw": 10.43, "oop_busbw": 18.26,
           "oop_error": 0, "ip_time": 99.0, "ip_algbw": 10.59, "ip_busbw": 18.5, "ip_error": 0}  # fmt: skip
    return _dumps(
        {
            "identifier": "nccl-tests structured output",
            "version": "2.13",
            "benchmark": [{"1048576": row, "2097152": row | {"count": 524288}}],
        }
    )


def _shard() -> bytes:
    text = (ROOT / "data" / "samples" / "gloo4_shards" / "rank-0.jsonl").read_bytes()
    lines = text.splitlines(keepends=True)
    groups = [x for x in lines if b'"kind":"group"' in x]
    ops = [x for x in lines if b'"kind":"op"' in x][:6]
    end = json.loads(lines[-1])
    end |= {"operations": len(ops)}
    return b"".join([lines[0], *groups, *ops, json.dumps(end).encode() + b"\n"])


def _prometheus() -> bytes:
    labels = 'collective="AllReduce",message_size="1-2MB",comm_name="x",hostname="n1",n_nodes="1",nranks="8",gpu="GPU0"'
    return (
        "# HELP nccl_bus_bandwidth_gbs x\n# TYPE nccl_bus_bandwidth_gbs gauge\n"
        f"nccl_bus_bandwidth_gbs{{{labels}}} 678.2\n"
        f"nccl_collective_exec_time_microseconds{{{labels}}} 12.5\n"
    ).encode()


def _chakra_json() -> bytes:
    nodes = [
        {
            "Id": i,
            "Name": f"n{i}",
            "NodeType": 7,
            "runtime": 5,
            "start_time": 10 * (i + 1),
            "is_cpu_op": False,
            "comm_type": 0,
            "comm_size": 1024,
        }
        for i in range(3)
    ]
    return _dumps({"ngpus": 2, "workload_graph": nodes})


def _ledger(method: str) -> bytes:
    trace = lab.samples.adversarial()
    found = lab.search(trace, range(2, 4)) if method == "search" else lab.reduce(trace)
    return canonical_bytes(found.ledger()) + b"\n"


def _comparison() -> bytes:
    base, candidate = lab.simulate(small_trace()), lab.simulate(small_trace(), "congested")
    return canonical_bytes(lab.compare(base, candidate).to_json()) + b"\n"


def _signoff() -> bytes:
    from commcanary_lab.review.signoff import sign_off

    found = lab.compare(lab.simulate(small_trace()), lab.simulate(small_trace(), "congested"))
    return sign_off(found, "approve", reviewer="Ada", note="fine", written_at="2026-11-30T12:00:00Z").to_bytes()


def _fit() -> bytes:
    from commcanary_lab.replay.calibration.fit import fit
    from commcanary_lab.replay.calibration.fit_file import write_fit
    from tests.replay.calibration.synthetic import cost_of, samples

    found = fit(samples(cost_of("all_reduce", 4), 5.0, 2.0, sizes=(1024, 65536, 1 << 20, 1 << 22)), replicates=100)
    return in_folder(lambda p: write_fit(found, p), "fit.json")


def _campaign() -> bytes:
    from commcanary_lab.replay.campaign.example import example

    return example(ranks=2).encode()


def _matrix(suffix: str) -> bytes:
    from commcanary_lab.traffic.write import write_matrix

    return in_folder(lambda p: write_matrix(lab.traffic(small_trace()), p), f"m{suffix}")


def _raw() -> bytes:
    from commcanary_lab.replay.calibration.sweep_spec import write_raw

    readings = np.arange(6, dtype=np.int64).reshape(2, 3)
    return in_folder(lambda p: write_raw(p, readings, readings + 10), "rank-00000.npz")


def _arrows() -> bytes:
    from commcanary_lab.replay.sample_file import SampleWriter

    def write(path: Path) -> None:
        with SampleWriter(path, 0) as w:
            for i in range(8):
                w.add(i, 7, 100 * i, 100 * i + 10, 100 * i + 50, 0)

    return in_folder(write, "rank-00000.arrows")


def _bundle() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as tar:
        for name in ("fidelity/a.txt", "calibration/b.txt"):
            info = tarfile.TarInfo(name)
            info.size = 5
            tar.addfile(info, io.BytesIO(b"12345"))
    return out.getvalue()


_MAKERS: dict[str, Callable[[], bytes]] = {
    "trace_v1": _v1,
    "trace_parquet": lambda: in_folder(lambda p: write_parquet(small_trace(), p), "t.parquet"),
    "shard": _shard,
    "inspector": lambda: _lines(
        *(rank_line(collective(sn=i, size=4096 * i), rank) for i in (1, 2) for rank in (0, 1)), rank_line(message(), 0)
    ),
    "kineto": (CASES / "P01__rank0.json").read_bytes,
    "mpi_text": _mpi,
    "nccl_tests": (CASES / "P30" / "all_gather.txt").read_bytes,
    "nccl_tests_json": _structured,
    "nccl_log": (CASES / "P18__job.log").read_bytes,
    "rccl_log": (CASES / "P22__job.log").read_bytes,
    "pytorch_et": (CASES / "P28__rank0_et.json").read_bytes,
    "param_basic": lambda: _dumps([init(0, 0, 1), op("all_reduce", pg_id=0), op("all_gather", 8, 16), op("broadcast", root=1)]),
    "flight_recorder": lambda: _dumps(dump(entry(), entry(seq=2), entry("nccl:all_gather", 3, got=([6, 4],)))),
    "flight_recorder_pickle": lambda: pickle.dumps(dump(entry(), entry(seq=2)), 2),
    "prometheus": _prometheus,
    "nsys_sqlite": _nsys,
    "chakra_et": lambda: encode_trace(Metadata("0.0.4"), [coll(0, 0), coll(1, 2), chakra_message(2, True, 0, 1)]),
    "chakra_json": _chakra_json,
    "canary_lossless": lambda: lab.compile(small_trace(), lossless=True).canonical,
    "canary_bounded": lambda: lab.compile(lab.samples.adversarial(), records=2).canonical,
    "report": lambda: canonical_bytes(lab.simulate(small_trace()).to_json(samples=True)) + b"\n",
    "comparison": _comparison,
    "signoff": _signoff,
    "search_ledger": lambda: _ledger("search"),
    "ddmin_ledger": lambda: _ledger("ddmin"),
    "fit": _fit,
    "layout": lambda: b'tp = 2\ndp = 4\ngpus_per_node = 4\norder = ["tp", "dp"]\n',
    "layout_groups": lambda: b'[groups]\n"TP Group 0" = [0, 1]\n"TP Group 1" = [2, 3]\n',
    "policy": lambda: b"[policy]\np99_threshold_pct = 5.5\nmeasured_seed = 7\nmeasured_resamples = 200\n",
    "backends": lambda: b"[backends.fast]\nbandwidth_gbps = 400.5\niterations = 2\nseed = 3\n[backends.slow]\nlatency_floor_us = 20\n",
    "fabric": lambda: b'name = "pairs"\nrate_mbit = 400\nranks_per_node = 2\nacross_mbit = 50.5\nmtu = 1500\n',
    "campaign": _campaign,
    "offsets": lambda: b"0=0\n1=-1250.5\n2=3\n",
    "salt": lambda: bytes(range(32)),
    "matrix_csv": lambda: _matrix(".csv"),
    "matrix_npz": lambda: _matrix(".npz"),
    "matrix_parquet": lambda: _matrix(".parquet"),
    "matrix_txt": lambda: _matrix(".txt"),
    "sweep_raw": _raw,
    "replay_samples": _arrows,
    "bundle": _bundle,
}


@cache
def sample(name: str) -> bytes:
    """Return the valid file of a reader."""
    return _MAKERS[name]()


def packed(name: str) -> bytes:
    """Return the valid file of a reader as gzip."""
    return gzip.compress(sample(name), mtime=0)
