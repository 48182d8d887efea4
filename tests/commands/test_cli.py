"""The command line: figures, exit codes, and that nobody ever sees a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.simulate import DEFAULT_BACKENDS

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "data" / "samples"
CASES = ROOT / "tests" / "data" / "cases"
ADVERSARIAL = str(SAMPLES / "adversarial.json")

Result = tuple[int, str, str]


@pytest.fixture
def canary(tmp_path: Path, cli: Any) -> Path:
    path = tmp_path / "a.canary.json"
    assert cli("compile", ADVERSARIAL, "-o", path)[0] == 0
    return path


def test_open_says_what_is_there(document: Any, cli: Any, tmp_path: Path) -> None:
    found = document("open", ADVERSARIAL)
    assert {"format", "events", "ranks", "groups", "ops", "unsized", "import_coverage", "notes", "warnings"} <= set(found)
    assert (found["format"], found["events"], found["ranks"], found["groups"], found["ops"]) == (
        "commcanary.trace.v1",
        100,
        2,
        1,
        {"all_reduce": 100},
    )
    assert found["unsized"] == {"count": 0, "time_us": 0.0}
    for name in ("t.json", "t.parquet"):
        assert cli("open", ADVERSARIAL, "-o", tmp_path / name)[0] == 0
        again = document("open", tmp_path / name)
        assert {k: again[k] for k in ("events", "ranks", "ops")} == {k: found[k] for k in ("events", "ranks", "ops")}
    assert "100 events on 2 ranks" in cli("open", ADVERSARIAL)[1]


def test_open_a_real_recording(document: Any) -> None:
    found = document("open", SAMPLES / "gloo4_shards")
    assert (found["format"], found["ranks"]) == ("commcanary_lab.shard.v1", 4)
    assert found["import_coverage"]["used"] == found["import_coverage"]["read"] == found["records"]


def test_tables(document: Any, cli: Any) -> None:
    rows = document("ops", SAMPLES / "gloo4_shards")["rows"]
    assert {"op", "group", "size_bytes", "count", "total_bytes", "p50_us", "p95_us", "algbw_gb_s", "busbw_gb_s", "share"} <= set(rows[0])
    assert sum(r["count"] for r in rows) == 252
    assert [r["rank"] for r in sorted(document("stragglers", SAMPLES / "gloo4_shards")["rows"], key=lambda r: r["rank"])] == [0, 1, 2, 3]
    same = document("diff", ADVERSARIAL, ADVERSARIAL)["rows"]
    assert all(r["count_a"] == r["count_b"] and r["only_in"] is None for r in same)
    for verb in ("ops", "stragglers", "traffic"):
        assert cli(verb, SAMPLES / "gloo4_shards")[0] == 0


def test_traffic(document: Any, cli: Any, tmp_path: Path) -> None:
    found = document("traffic", ADVERSARIAL)
    # two ranks, 100 all-reduces of 1 KiB: each rank sends 2 (k-1)/k B
    assert found["links"] == [{"src": 0, "dst": 1, "bytes": 102400.0}, {"src": 1, "dst": 0, "bytes": 102400.0}]
    assert (found["ranks"], found["records"], found["payload_bytes"], found["matrix_sum_bytes"], found["unattributed_bytes"]) == (
        2,
        200,
        204800,
        204800.0,
        0,
    )
    assert (found["ring_order"], found["source"], found["import_coverage"]["used"]) == ("assumed", "commcanary.trace.v1", 100)
    assert document("traffic", ADVERSARIAL, "--ring-order", "1,0")["ring_order"] == "stated"
    for name in ("m.csv", "m.npz", "m.parquet", "m.txt"):
        assert cli("traffic", ADVERSARIAL, "-o", tmp_path / name)[0] == 0
        assert (tmp_path / name).stat().st_size > 0
    assert cli("traffic", ADVERSARIAL, "-o", tmp_path / "m.xyz")[0] == 2
    assert cli("traffic", ADVERSARIAL, "--algorithm", "nope")[0] == 2
    assert cli("traffic", ADVERSARIAL, "--ring-order", "a")[0] == 2


def test_compile(document: Any, cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "c.canary.json"
    found = document("compile", ADVERSARIAL, "-o", path)
    assert {"source_events", "canary_records", "event_ratio", "source_bytes", "canary_bytes", "byte_ratio", "timing", "errors"} <= set(
        found
    )
    assert (found["source_events"], found["timing"], found["canary_bytes"]) == (100, "lossless", path.stat().st_size)
    assert found["byte_ratio"] == found["source_bytes"] / found["canary_bytes"]
    bounded = document("compile", SAMPLES / "tp8_decode.json", "-o", path, "--records", 2)
    assert bounded["timing"] == "bounded_approximate"
    assert bounded["errors"]["skew_us"] > 0
    assert cli("compile", ADVERSARIAL, "-o", "-")[1].startswith('{"clock"')
    before = path.read_bytes()
    code, _, err = cli("compile", SAMPLES / "tp8_decode.json", "-o", path, "--records", 1, "--max-skew-error-us", 0.001)
    assert code == 1
    assert "skew" in err
    assert cli("compile", SAMPLES / "tp8_decode.json", "-o", path, "--records", 1, "--strict")[0] == 1
    assert path.read_bytes() == before  # nothing was written
    assert cli("compile", ADVERSARIAL, "-o", path, "--lossless", "--records", 2)[0] == 2
    assert cli("compile", ADVERSARIAL, "-o", path, "--events", "9")[0] == 2
    assert cli("compile", ADVERSARIAL, "-o", tmp_path / "none" / "c.json")[0] == 3


def test_strict_compile_shows_every_failed_check_and_writes_nothing(cli: Any, document: Any, tmp_path: Path) -> None:
    source, path = SAMPLES / "tp8_decode.json", tmp_path / "c.canary.json"
    strict = ["compile", source, "--records", 1, "--strict"]
    loose = tmp_path / "loose.canary.json"
    assert cli("compile", source, "-o", loose, "--records", 1)[0] == 0
    failed = [c for c in document("verify", source, loose, expect=1)["checks"] if not c["passed"]]
    assert len({c["backend"] for c in failed}) >= 5

    code, out, err = cli(*strict, "-o", path)
    assert code == 1
    assert f"strict compile wrote nothing: {len(failed)} of " in err
    rows = [line.split() for line in out.splitlines() if line.endswith("FAILED")]
    assert len(rows) == len(failed)
    for c in failed:  # status, name, backend and both values, rounded as tables are
        wanted = [c["status"], *c["name"].split(), *c["backend"].split(), *(_shown(c[side]) for side in ("source", "canary")), "FAILED"]
        assert wanted in rows
    on = [next(b for b in BACKEND_NAMES if b in row) for row in rows if row[0] == "behavior"]
    assert on == sorted(on, key=BACKEND_NAMES.index)  # one backend after the other

    found = document(*strict, "-o", path, expect=1)
    assert (found["written"], found["claim"]) == (False, "refused")
    assert [c for c in found["checks"] if not c["passed"]] == failed
    code, out, err = cli(*strict, "-o", "-")
    assert (code, out) == (1, "")
    assert err.count("FAILED") == len(failed)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["loose.canary.json"]

    assert cli("compile", source, "-o", path, "--strict")[0] == 0
    assert cli("compile", source, "-o", path, "--strict", "--events", "0:50")[0] == 0
    assert document("verify", source, path)["claim"] == "partial"


BACKEND_NAMES = [b.label for b in DEFAULT_BACKENDS]


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.3f}" if abs(value) < 1000 else f"{value:,.0f}"


def test_simulate(document: Any, cli: Any, canary: Path, tmp_path: Path) -> None:
    of_trace, of_canary = document("simulate", ADVERSARIAL), document("simulate", canary)
    assert of_trace["metrics"] == of_canary["metrics"]
    assert of_trace["metrics"]["p99_us"] == 263.601
    found = document(
        "simulate", canary, "--backend", "latency_floor_us=12,seed=3", "--ablate", "pressure", "--ablate", "arrival_skew", "--samples"
    )
    assert found["backend"]["latency_floor_us"] == 12.0
    assert found["protocol"]["ablations"] == ["arrival_skew", "pressure"]
    assert "not a physical intervention" in found["protocol"]["ablation_label"]
    assert len(found["samples"]) == 100
    report = tmp_path / "r.json"
    assert cli("simulate", canary, "-o", report)[0] == 0
    assert json.loads(report.read_text())["metrics"] == of_trace["metrics"]
    backends = tmp_path / "b.toml"
    backends.write_text("[backends.fast]\nbandwidth_gbps = 400\n")
    assert document("simulate", canary, "--backends", backends, "--backend", "fast")["backend"]["bandwidth_gbps"] == 400.0
    assert document("simulate", canary, "--model", "alpha-beta")["protocol"]["model"] == "alpha-beta"
    for wrong in (["--backend", "nope"], ["--ablate", "nope"], ["--model", "nope"], ["--assume", "x=1"], ["--backend", "seed=-1"]):
        assert cli("simulate", canary, *wrong)[0] == 2
    backends.write_text("[backends.fast]\nbandwith = 400\n")
    assert cli("simulate", canary, "--backends", backends, "--backend", "fast")[0] == 3


def test_verify(document: Any, cli: Any, canary: Path, tmp_path: Path) -> None:
    found = document("verify", ADVERSARIAL, canary)
    assert {k: found[k] for k in ("timing", "coverage", "commitments", "bounds", "traffic", "ranking", "behavior", "claim")} == {
        "timing": "lossless",
        "coverage": "full_source",
        "commitments": "recomputed",
        "bounds": "recomputed",
        "traffic": "pass",
        "ranking": "pass",
        "behavior": "pass",
        "claim": "verified",
    }
    assert found["claim_reason"]
    assert all(c["passed"] for c in found["checks"])
    other = document("verify", SAMPLES / "tp8_decode.json", canary, expect=1)
    assert (other["commitments"], other["claim"]) == ("mismatch", "refused")
    assert "FAILED" in cli("verify", SAMPLES / "tp8_decode.json", canary)[1]
    code, _, err = cli("verify", canary, ADVERSARIAL)
    assert (code, "verify TRACE CANARY" in err) == (3, True)
    salt = tmp_path / "salt"
    salt.write_bytes(b"s" * 32)
    salted = tmp_path / "s.canary.json"
    assert cli("compile", ADVERSARIAL, "-o", salted, "--salt-file", salt)[0] == 0
    assert cli("verify", ADVERSARIAL, salted)[0] == 3
    assert cli("verify", ADVERSARIAL, salted, "--salt-file", salt)[0] == 0
    salt.write_bytes(b"short")
    assert cli("compile", ADVERSARIAL, "-o", salted, "--salt-file", salt)[0] == 3


def test_a_single_rank_profile_compiles_and_is_never_more_than_unverified(document: Any, cli: Any, tmp_path: Path) -> None:
    profile, path = CASES / "P03__rank0.json", tmp_path / "p.canary.json"
    assert document("compile", profile, "-o", path)["timing"] == "lossless"
    assert "observational" in " ".join(document("open", profile)["notes"])
    for arguments in (["simulate", path], ["simulate", profile], ["verify", profile, path]):
        code, _, err = cli(*arguments)
        assert code == 3
        assert "--assume skew_us=0,overlap_us=0" in err
    assumed = ["--assume", "skew_us=0,overlap_us=0"]
    assert {a["field"] for a in document("simulate", path, *assumed)["assumptions"]} == {"skew_us", "overlap_us"}
    found = document("verify", profile, path, *assumed, expect=1)
    assert (found["commitments"], found["bounds"], found["traffic"], found["behavior"], found["claim"]) == (
        "recomputed",
        "recomputed",
        "pass",
        "unverified",
        "unverified",
    )
    code, _, err = cli("compile", profile, "-o", path, "--strict")
    assert (code, "strict" in err) == (3, True)


@pytest.mark.parametrize("verb", ["open", "ops", "stragglers", "traffic", "simulate"])
def test_missing_and_malformed_inputs_exit_3(verb: str, cli: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    for content in (b"", b"{", b'{"format": "commcanary.trace.v1", "events": [{"op": 1}]}', b"\x00\xff", b"[1, 2"):
        bad.write_bytes(content)
        code, _, err = cli(verb, bad)
        assert code == 3, content
        assert "bad.json" in err
    code, _, err = cli(verb, tmp_path / "missing.json")
    assert (code, "missing.json" in err) == (3, True)


def test_wrong_usage_exits_2(cli: Any) -> None:
    for arguments in (["nope"], ["compile"], ["open"], ["simulate", ADVERSARIAL, "--nope"], ["capture", "-o", "x"]):
        assert cli(*arguments)[0] == 2


def _process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "commcanary_lab.cli", *arguments], capture_output=True, text=True, check=False, cwd=ROOT, **options
    )


def test_as_a_process() -> None:
    assert _process("--version").stdout.strip() == "0.1.0"
    help_text = _process("--help").stdout
    for verb in ("open", "ops", "stragglers", "diff", "compile", "simulate", "verify", "traffic", "capture", "serve"):
        assert verb in help_text
    assert _process("simulate", "none.json").returncode == 3
    pipe = subprocess.run(
        f"{sys.executable} -m commcanary_lab.cli simulate {ADVERSARIAL} --samples --json | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (pipe.stdout.strip(), pipe.stderr) == ("{", "")


@pytest.mark.gloo
def test_capture_runs_a_command_and_merges(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for _ in range(3):\n"
        "    dist.all_reduce(torch.ones(256))\n"
        "dist.destroy_process_group()\n"
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(job)]
    done = _process("capture", "-o", str(tmp_path / "shards"), "--timeout", "60", "--json", "--", *torchrun)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (len(found["shards"]), found["events"], found["ranks"]) == (2, 3, 2)
    failed = _process("capture", "-o", str(tmp_path / "none"), "--", sys.executable, "-c", "import sys; sys.exit(5)")
    assert failed.returncode == 4


def test_the_input_is_never_written_over(cli: Any, tmp_path: Path, canary: Path) -> None:
    source = tmp_path / "t.json"
    source.write_bytes(Path(ADVERSARIAL).read_bytes())
    before = source.read_bytes()
    (tmp_path / "link.json").hardlink_to(source)
    for arguments in (
        ("compile", source, "-o", source),
        ("compile", source, "-o", tmp_path / "link.json"),
        ("open", source, "-o", source),
        ("simulate", source, "-o", source),
        ("traffic", source, "-o", source),
    ):
        code, _, err = cli(*arguments)
        assert (code, "is the input" in err) == (2, True), err
    assert source.read_bytes() == before


def test_questions_about_traces_take_canaries(cli: Any, document: Any, canary: Path) -> None:
    assert document("traffic", canary)["links"] == document("traffic", ADVERSARIAL)["links"]
    assert "program of a canary: times are exact" in document("ops", canary)["notes"]
    assert document("diff", ADVERSARIAL, canary)["same_operations"]
    for arguments in (("open", canary), ("compile", canary, "-o", canary.parent / "x.json"), ("verify", canary, canary)):
        code, _, err = cli(*arguments)
        assert (code, "is a canary, not a trace" in err) == (3, True), err


def test_a_canary_is_recognised_wherever_its_format_stands(document: Any, tmp_path: Path, cli: Any) -> None:
    import commcanary_lab as lab
    from commcanary_lab.canonical import canonical_bytes
    from commcanary_lab.commands.inputs import is_canary
    from commcanary_lab.trace.json_v1 import read_json_bytes
    from tests.bench.gen_traces import build

    path = tmp_path / "long.canary.json"
    lab.write(lab.compile(read_json_bytes(canonical_bytes(build("irregular", 50_000)))), path)
    data = path.read_bytes()
    assert b"canary.v1" not in data[: 1 << 16] + data[-(1 << 16) :]
    assert is_canary(path)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("compile", ADVERSARIAL, "-o", "{}/x.json", "--records", 10**30), 0, ""),
        (("traffic", ADVERSARIAL, "--algorithm", "all_reduce=ring,x"), 2, "is not op=algorithm"),
        (("traffic", ADVERSARIAL, "--top", -1), 2, "--top"),
        (("stragglers", ADVERSARIAL, "--clock-offsets", "0=inf"), 2, "RANK=MICROSECONDS"),
        (("verify", ADVERSARIAL, "{}/a.canary.json", "--relative", "nan"), 2, "finite number"),
        (("verify", ADVERSARIAL, "{}/a.canary.json", "--tail-recall", -1), 2, "finite number"),
        (("serve", "--port", 99999999), 2, "--port"),
        (("simulate", ADVERSARIAL, "-o", "-", "--json"), 2, "standard output"),
    ],
)
def test_odd_values_are_answered(cli: Any, canary: Path, arguments: tuple[object, ...], code: int, says: str) -> None:
    found, _, err = cli(*(str(a).format(canary.parent) for a in arguments))
    assert (found, says in err) == (code, True), err


def test_a_report_goes_to_standard_output(cli: Any) -> None:
    code, out, _ = cli("simulate", ADVERSARIAL, "-o", "-")
    assert (code, json.loads(out)["format"]) == (0, "commcanary_lab.report.v1")
