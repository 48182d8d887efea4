"""`open_trace` recognises formats by content, and refuses with what to do."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.errors import FormatError, InputError, LimitError, MergeError, UsageError
from commcanary_lab.importers import FORMATS, format_named
from commcanary_lab.importers.open import open_trace, recognise_file
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace import Trace
from commcanary_lab.trace.parquet import write_parquet
from commcanary_lab.trace.write_v1 import write_json
from tests.bench.gen_traces import build
from tests.golden_traces import golden_trace

EVENT = {"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1.5, "arrival_skew_us": 0, "compute_overlap_us": 0}


def document(**top: Any) -> dict[str, Any]:
    return {"format": "commcanary.trace.v1", "events": [EVENT], **top}


def kineto(rank: int | None = 0, seq: int = 1, start_us: float = 100.0) -> dict[str, Any]:
    info = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 2, "backend": "nccl"}}
    args = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 16, "Out msg nelems": 16, "Group size": 2,
            "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": seq, "Rank": rank, "External id": 7}  # fmt: skip
    record = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1, "ts": start_us, "dur": 10, "args": args}
    return {"schemaVersion": 1, **info, "traceEvents": [record]}


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, content: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


# -- the registry -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", FORMATS, ids=lambda f: f.name)
def test_registry_agrees_with_the_modules(entry: Any) -> None:
    module = import_module(f"commcanary_lab.importers.{entry.module}")
    assert entry.name == module.FORMAT
    parameters = set(module.read.__annotations__) - {"paths", "return", "limits"}
    assert entry.options <= parameters
    assert entry.recognise(b"") is False


def test_names_and_aliases_are_distinct() -> None:
    names = [name for f in FORMATS for name in (f.name, *f.aliases)]
    assert len(names) == len(set(names))


def test_unknown_format_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no format 'kinto'; did you mean 'kineto'\? known: .*commcanary.trace.v1"):
        format_named("kinto")


def test_importers_are_loaded_when_needed(save: Callable[..., Path]) -> None:
    path = save("t.json", document())
    code = (
        "import sys; from commcanary_lab.importers.open import open_trace; open_trace(sys.argv[1]); "
        "print([m for m in ('pandas', 'pyarrow', 'jsonschema', 'commcanary_lab.importers.kineto', 'commcanary_lab.importers.shards') "
        "if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


# -- recognition by content -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trace.json", "trace", "trace.txt", "trace.parquet"])
def test_content_decides_whatever_the_name(save: Callable[..., Path], name: str) -> None:
    assert len(open_trace(save(name, document()))) == 1


def test_gzip_is_recognised_by_its_magic(save: Callable[..., Path]) -> None:
    assert open_trace(save("t.json", gzip.compress(canonical_bytes(document())))).size_bytes.tolist() == [8]
    assert open_trace(save("k.json", gzip.compress(canonical_bytes(kineto())))).source_format == "kineto"


def test_byte_order_mark(save: Callable[..., Path]) -> None:
    assert len(open_trace(save("t.json", b"\xef\xbb\xbf" + canonical_bytes(document())))) == 1


def test_format_key_at_the_end_of_a_large_file(save: Callable[..., Path]) -> None:
    data = canonical_bytes({**build("irregular", 1500)})  # sorted keys: half a megabyte of events first
    assert b'"format"' not in data[: 1 << 16]
    path = save("t.json", data)
    assert len(open_trace(path)) == 1500
    assert len(open_trace(save("t.json.gz", gzip.compress(data)))) == 1500  # the end of the gzip data says nothing


def test_format_key_in_the_middle_of_a_large_file(save: Callable[..., Path]) -> None:
    events = build("irregular", 400)["events"]
    text = json.dumps({"events": events, "format": "commcanary.trace.v1", "workload": {"log": ["x" * 100] * 1000}})
    assert '"format"' not in text[: 1 << 16]
    assert '"format"' not in text[-(1 << 16) :]
    assert len(open_trace(save("t.json", text.encode()))) == 400


def test_a_nested_format_key_does_not_count(save: Callable[..., Path]) -> None:
    path = save("x.json", {"workload": {"pad": "x" * 70_000}, "kind": {"format": "something"}})
    with pytest.raises(FormatError, match="a JSON object without a known format"):
        open_trace(path)


def test_parquet(tmp_path: Path) -> None:
    trace = golden_trace("irr100")
    write_parquet(trace, tmp_path / "t.json")
    assert open_trace(tmp_path / "t.json").equals(trace)
    assert recognise_file(tmp_path / "t.json").name == "commcanary_lab.trace.parquet.v1"


def test_directory_of_ranks(save: Callable[..., Path]) -> None:
    for rank in (1, 0):
        save(f"profiles/rank{rank}.json", kineto(rank))
    trace = open_trace(save("profiles/.hidden", b"not a trace").parent)
    assert (len(trace), trace.ranks, trace.record_count, trace.source_format) == (1, (0, 1), 2, "kineto")


def test_directory_is_searched_in_depth_without_hidden_folders(save: Callable[..., Path], tmp_path: Path) -> None:
    save("job/node0/trace.json", kineto(0))
    save("job/node1/trace.json", kineto(1))
    save("job/.cache/junk", b"junk")
    assert open_trace(tmp_path / "job").record_count == 2


def test_files_may_come_in_any_order(save: Callable[..., Path]) -> None:
    paths = [save("a.json", kineto(1)), save("b.json", kineto(0))]
    assert open_trace(paths).equals(open_trace(paths[::-1]), ignore=("coverage",))


def test_one_string_one_path_or_a_sequence(save: Callable[..., Path]) -> None:
    path = save("t.json", document())
    assert open_trace(str(path)).equals(open_trace(path))
    assert open_trace([path]).equals(open_trace((str(path),)))


def test_real_files(shared_data: Path) -> None:
    assert len(open_trace(shared_data / "real" / "commcanary" / "llama70b_tp8_trace_long.json")) == 56
    mixed = open_trace(shared_data / "cases" / "P16")
    assert (mixed.source_format, mixed.ranks) == ("kineto", (0, 1))


# -- options reach the importer ---------------------------------------------------------------------------------------


def test_rank_by_file_name(save: Callable[..., Path]) -> None:
    paths = [save("a.json", kineto(None)), save("b.json", kineto(None))]
    with pytest.raises(FormatError, match="rank"):
        open_trace(paths)
    trace = open_trace(paths, ranks={"a.json": 1, "b.json": 0})
    assert trace.coverage.ranks == (0, 1)


def test_clock_calibration(save: Callable[..., Path]) -> None:
    paths = [save("a.json", kineto(0, start_us=100)), save("b.json", kineto(1, start_us=103))]
    assert open_trace(paths).unknown_fields["skew_us"] == 1
    assert open_trace(paths, clock_offsets_ns={0: 0, 1: 0}).skew_ns.values.tolist() == [3000]
    assert open_trace(paths, clock_offsets_ns={0: 0, 1: -1000}).skew_ns.values.tolist() == [2000]
    assert open_trace(paths, align_ends=True).skew_ns.values.tolist() == [0]


def test_two_ranks_in_one_job_claiming_the_same_rank(save: Callable[..., Path]) -> None:
    with pytest.raises(MergeError, match=r"a\.json and .*b\.json both claim rank 0"):
        open_trace([save("a.json", kineto(0)), save("b.json", kineto(0))])


@pytest.mark.parametrize("options", [{"ranks": {"t.json": 0}}, {"clock_offsets_ns": {0: 0}}, {"align_ends": True}])
def test_options_that_do_not_apply(save: Callable[..., Path], options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(UsageError, match=rf"{name} does not apply to commcanary.trace.v1; it applies to: .*kineto"):
        open_trace(save("t.json", document()), **options)


def test_round_ns_and_check(save: Callable[..., Path]) -> None:
    path = save("t.json", document(events=[{**EVENT, "gap_us": 1.0004}]))
    with pytest.raises(InputError, match="--round-ns"):
        open_trace(path)
    assert open_trace(path, round_ns=True, check=True).gap_ns.values.tolist() == [1000]


def test_limits(save: Callable[..., Path], tmp_path: Path) -> None:
    path = save("t.json", document(events=[EVENT] * 3))
    with pytest.raises(LimitError, match="MAX_EVENTS"):
        open_trace(path, limits=Limits(max_events=2))
    with pytest.raises(LimitError, match="MAX_FILE_BYTES"):
        open_trace(path, limits=Limits(max_file_bytes=20))
    with pytest.raises(LimitError, match="MAX_FILE_BYTES"):  # a small file that unpacks to a large one
        open_trace(save("bomb.json.gz", gzip.compress(b"{" + b" " * 10**6)), limits=replace(DEFAULT, max_file_bytes=10**5))
    for i in range(3):
        save(f"many/{i}.json", document())
    with pytest.raises(LimitError, match="MAX_FILES"):
        open_trace(tmp_path / "many", limits=Limits(max_files=2))


def test_format_given_by_name(save: Callable[..., Path]) -> None:
    assert len(open_trace(save("t.json", document()), format="json")) == 1
    with pytest.raises(FormatError):
        open_trace(save("k.json", kineto()), format="json")
    with pytest.raises(FormatError, match="not a Parquet file"):
        open_trace(save("k.json", kineto()), format="parquet")


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_missing_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.json: does not exist; check the path"):
        open_trace(tmp_path / "nowhere.json")


def test_no_path() -> None:
    with pytest.raises(UsageError, match="no path is given"):
        open_trace([])


def test_empty_directory(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text("x")
    with pytest.raises(InputError, match="the directory has no files"):
        open_trace(tmp_path)


def test_empty_file(save: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match="the file is empty"):
        open_trace(save("t.json", b""))


def test_neither_file_nor_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        monkeypatch.chdir(tmp_path)  # socket paths are short
        s.bind("s")
        with pytest.raises(InputError, match="neither a file nor a directory"):
            open_trace("s")


def test_without_read_permission(save: Callable[..., Path]) -> None:
    open_trace(save("warm.json", document()))  # imports are done before another user's rights apply
    with tempfile.TemporaryDirectory() as name:
        outer = Path(name)
        (outer / "closed").mkdir()
        (outer / "file.json").write_text("{}")
        outer.chmod(0o755)
        (outer / "file.json").chmod(0o000)
        (outer / "closed").chmod(0o000)
        root = os.geteuid() == 0
        if root:  # root may read everything: look with the rights of somebody else
            os.seteuid(65534)
        try:
            for path in (outer / "closed", outer / "file.json", outer / "closed" / "t.json"):
                with pytest.raises(InputError, match=rf"{path.name}: cannot be read: Permission denied; check"):
                    open_trace(path)
        finally:
            if root:
                os.seteuid(0)
            (outer / "closed").chmod(0o755)


@pytest.mark.parametrize("content", [b"hello\n", b"\x00\x01\x02", b"[]x", b"PK\x05\x06", b"PAR"])
def test_unknown_content_lists_the_known_formats(save: Callable[..., Path], content: bytes) -> None:
    with pytest.raises(FormatError, match=r"known formats: .*Parquet.*JSON trace.*shard.*kineto"):
        open_trace(save("x", content))


def test_malformed_json_names_the_line_and_the_formats(save: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match=r"x: line 3: no known format recognises it \(not JSON: .*known formats"):
        open_trace(save("x", b'{"a": 1,\n"b": 2,\n"c" 3}'))


def test_a_cut_trace_names_the_line(save: Callable[..., Path]) -> None:
    data = canonical_bytes(document())
    with pytest.raises(FormatError, match=r"line 1: not JSON"):
        open_trace(save("t.json", json.dumps(document()).encode()[:-3]))
    with pytest.raises(FormatError, match=r"the gzip data ends early; copy or export"):
        open_trace(save("t.json.gz", gzip.compress(json.dumps(document()).encode() + b" " * 5000)[:-9]))
    assert len(open_trace(save("whole.json", data))) == 1


@pytest.mark.parametrize("stated", ["commcanary.trace.v2", "commcanary_lab.canary.v1", "x"])
def test_another_document_is_named(save: Callable[..., Path], stated: str) -> None:
    with pytest.raises(FormatError, match=rf"its format is '{stated}', which is not a trace; known formats"):
        open_trace(save("x.json", {"format": stated}))


def test_other_packers_are_named(save: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match=r"packed with zstd; unpack it first"):
        open_trace(save("x.json.zst", b"\x28\xb5\x2f\xfd1234"))


def test_mixed_formats_are_listed(save: Callable[..., Path], tmp_path: Path) -> None:
    save("d/rank0.json", kineto(0))
    save("d/trace.json", document())
    with pytest.raises(
        FormatError, match=r"different formats \(kineto: rank0.json; commcanary.trace.v1: trace.json\); open the files of one"
    ):
        open_trace(tmp_path / "d")


def test_every_unknown_file_of_a_directory_is_listed(save: Callable[..., Path], tmp_path: Path) -> None:
    save("d/rank0.json", kineto(0))
    save("d/README.md", b"# hello")
    save("d/notes.txt", b"hello")
    with pytest.raises(FormatError) as e:
        open_trace(tmp_path / "d")
    assert [Path(p.file or "").name for p in e.value.problems] == ["README.md", "notes.txt"]


def test_two_complete_traces(save: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"2 complete traces \(a.json, b.json\).*one at a time; `diff A B`"):
        open_trace([save("a.json", document()), save("b.json", document())])
    for name in ("a.parquet", "b.parquet"):
        write_parquet(golden_trace("adv100"), tmp_path / name)
    with pytest.raises(FormatError, match="2 complete traces"):
        open_trace([tmp_path / "a.parquet", tmp_path / "b.parquet"])


def test_what_open_writes_it_reads(tmp_path: Path, save: Callable[..., Path]) -> None:
    trace: Trace = open_trace([save("a.json", kineto(0)), save("b.json", kineto(1, start_us=104))], align_ends=True)
    write_json(trace, tmp_path / "t.json")
    write_parquet(trace, tmp_path / "t.parquet")
    assert open_trace(tmp_path / "t.json").first_difference(trace) is None
    assert open_trace(tmp_path / "t.parquet").first_difference(trace) is None
