"""Decision fidelity: the bundled recording verifies, nothing in it can be changed unnoticed, and its figures are recomputed here."""

from __future__ import annotations

import shutil
import stat
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import FormatError
from commcanary_lab.replay.evidence import seal
from commcanary_lab.replay.fabric_spec import FabricSpec
from commcanary_lab.replay.fidelity import Fidelity, read_fidelity, verify
from commcanary_lab.replay.fidelity_bundle import ARCHIVE, CALIBRATION, FIDELITY, LINKS, pack, unpack
from commcanary_lab.replay.link_model import LinkTerms, cycle_us, exposed_us, nominal_terms, search_inversions
from commcanary_lab.replay.program import Program
from commcanary_lab.replay.ranking_rows import decide
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.run import verify_canary

BUNDLE = Path(__file__).parents[2] / "data" / "samples" / "fidelity_campaign"
LIMIT_BYTES = 400 * 1024


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fidelity") / "evidence"
    unpack(BUNDLE / ARCHIVE, place)
    return place


@pytest.fixture(scope="module")
def result(evidence: Path) -> Fidelity:
    return read_fidelity(evidence)


def files(place: Path) -> list[Path]:
    return sorted(p for p in place.rglob("*") if p.is_file())


def flip(path: Path, at: int) -> bytes:
    """Change one bit of one byte; return what was there."""
    before = path.read_bytes()
    path.chmod(0o644)
    changed = bytearray(before)
    changed[at] ^= 1
    path.write_bytes(changed)
    return before


# -- it verifies ------------------------------------------------------------------------------------------------------


def test_the_bundled_recording_verifies() -> None:
    check = verify(BUNDLE)
    assert check.differences == ()
    assert check.runs == 6 + 72 and check.files > 800 and check.values > 1000


def test_it_is_small() -> None:
    assert {p.name for p in BUNDLE.iterdir()} == {ARCHIVE, "SHA256SUMS"}
    assert sum(p.stat().st_size for p in BUNDLE.iterdir()) < LIMIT_BYTES


def test_packing_again_gives_the_same_bytes(evidence: Path, tmp_path: Path) -> None:
    pack(evidence, tmp_path / "again")
    assert (tmp_path / "again" / ARCHIVE).read_bytes() == (BUNDLE / ARCHIVE).read_bytes()


# -- nothing can be changed -------------------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLE, tmp_path / "bundle"))


def test_a_changed_byte_of_the_bundle_is_found(bundle: Path) -> None:
    for path in files(bundle):
        size = path.stat().st_size
        for at in (0, size // 3, size // 2, size - 1):
            before = flip(path, at)
            assert not verify(bundle).passed, f"{path.name}, byte {at}"
            path.write_bytes(before)
    (bundle / "notes.txt").write_text("mine")
    assert verify(bundle).differences == ("notes.txt: added",)
    (bundle / "notes.txt").unlink()
    for path in files(bundle):
        path.rename(bundle.parent / path.name)
        assert not verify(bundle).passed
        (bundle.parent / path.name).rename(path)
    assert verify(bundle).passed


@pytest.fixture
def copy(evidence: Path, tmp_path: Path) -> Path:
    place = tmp_path / "copy"
    shutil.copytree(evidence, place)
    for path in place.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return place


def _each(place: Path, chosen: list[Path]) -> None:
    """Change, remove and accompany each file."""
    assert verify(place).passed
    for path in chosen:
        at = int(np.random.default_rng(len(path.name)).integers(max(1, path.stat().st_size)))
        if path.stat().st_size:
            before = flip(path, at)
            check = verify(place)
            assert not check.passed, f"{path}: byte {at}"
            path.write_bytes(before)
        else:
            path.write_bytes(b"x")
            assert not verify(place).passed, path
            path.write_bytes(b"")
        aside = place.parent / "aside"
        path.rename(aside)
        assert not verify(place).passed, f"{path} is missing"
        aside.rename(path)
    for folder in sorted({p.parent for p in chosen} | {place}):
        (folder / "stranger").write_text("")
        assert any("stranger" in d for d in verify(place).differences), folder
        (folder / "stranger").unlink()
    assert verify(place).passed


def test_one_file_of_each_kind_cannot_be_changed_removed_or_added(copy: Path) -> None:
    kinds = {p.name: p for p in files(copy)}
    kinds |= {f"top {p.name}": p for part in (CALIBRATION, FIDELITY) for p in (copy / part).iterdir() if p.is_file()}
    _each(copy, sorted(set(kinds.values())))


@pytest.mark.slow
def test_no_file_can_be_changed_removed_or_added(copy: Path) -> None:
    _each(copy, files(copy))


def test_a_better_time_is_found_although_everything_was_sealed_again(copy: Path) -> None:
    """Seals are not signed; but the decision follows from the samples."""
    from commcanary_lab.replay.sample_file import SampleWriter, read_samples

    run = next(p for p in sorted((copy / FIDELITY / "runs").iterdir()) if p.name.endswith("-canary-even-20"))
    for path in run.glob("*.arrows"):
        columns, _ = read_samples(path)
        path.unlink()
        with SampleWriter(path, int(path.stem.split("-")[1])) as writer:
            first = int(columns["ready_ns"].min())
            for row in zip(*columns.values(), strict=True):
                iteration, event, *times = map(int, row)
                writer.add(iteration, event, *(first + (t - first) // 3 if t else 0 for t in times))
    seal(run)
    seal(copy / FIDELITY)
    check = verify(copy)
    assert any("decision" in d for d in check.differences), check


def test_other_links_are_found_although_everything_was_sealed_again(copy: Path) -> None:
    links = copy / FIDELITY / LINKS
    links.write_text(links.read_text().replace('"rate_gbps": 0.', '"rate_gbps": 1.', 1))
    seal(copy / FIDELITY)
    check = verify(copy)
    assert not check.passed


def test_another_calibration_is_found(copy: Path) -> None:
    """The links name the calibration that they come from."""
    calibration = copy / CALIBRATION
    journal = calibration / "journal.jsonl"
    journal.write_text(journal.read_text() + '{"at": "2026-11-30T00:00:00.000+00:00", "what": "nothing"}\n')
    seal(calibration)
    check = verify(copy)
    assert any("calibration_sha256" in d for d in check.differences), check


@pytest.mark.parametrize("damage", ["cut", "text", "absent", "folder", "outside", "link"])
def test_what_is_no_such_recording_is_said(tmp_path: Path, damage: str) -> None:
    import io
    import tarfile

    path = tmp_path / ARCHIVE
    if damage == "cut":
        path.write_bytes((BUNDLE / ARCHIVE).read_bytes()[:5000])
    elif damage == "text":
        path.write_text("no archive")
    elif damage == "folder":
        path.mkdir()
    elif damage in ("outside", "link"):
        with tarfile.open(path, "w:xz") as tar:
            entry = tarfile.TarInfo("../outside" if damage == "outside" else "link")
            if damage == "link":
                entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(entry, io.BytesIO())
    with pytest.raises(FormatError):
        read_fidelity(path)
    assert not verify(path).passed
    assert not (tmp_path / "outside").exists()


# -- its figures ------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_raw_samples(result: Fidelity) -> None:
    """An independent reading: samples to cycles to medians to pairs to tau-b, with nothing of the package but the file reader."""
    from scipy.stats import kendalltau

    from commcanary_lab.replay.sample_file import read_samples

    cycles: dict[str, dict[str, list[float]]] = {}
    for run in sorted((result.directory / FIDELITY / "runs").iterdir()):
        _, method, setting = run.name.split("-", 2)
        ranks = [read_samples(p)[0] for p in sorted(run.glob("*.arrows"))]
        assert len(ranks) == 4
        per_rank = []
        for c in ranks:
            of = [c["iteration"] == i for i in range(int(c["iteration"].max()) + 1)]
            per_rank.append([int(c["finish_ns"][k].max() - c["ready_ns"][k].min()) for k in of])
        cycles.setdefault(method, {}).setdefault(setting, []).append(float(np.median(np.max(per_rank, axis=0))) / 1000)
    assert set(cycles) == {"job", "canary", "isolated"}
    medians = {m: {s: float(np.median(v)) for s, v in of.items()} for m, of in cycles.items()}
    for m in ("job", "canary", "isolated"):
        row = result.method(m)
        assert row.values_us == pytest.approx(medians[m])
        if row.line is None:
            continue
        settings = list(medians["job"])
        same = [
            decide(medians["job"][a], medians["job"][b], 0.05) == decide(medians[m][a], medians[m][b], 0.05)
            for a, b in combinations(settings, 2)
        ]
        assert row.line.pairs == len(same) == 15 and row.line.agreeing == sum(same)
        tau = kendalltau([medians["job"][s] for s in settings], [medians[m][s] for s in settings]).statistic
        assert row.line.tau_b == pytest.approx(tau)


def test_the_pairs_are_counted_as_the_campaign_counts_them(result: Fidelity) -> None:
    assert len(result.pairs) == 15
    for m in result.methods[1:]:
        assert m.line is not None
        outcomes = [p.outcome(m.name) for p in result.pairs]
        assert outcomes.count("agree") == m.line.agreeing
        assert outcomes.count("inverted") == len(m.line.inversions)
        assert outcomes.count("false positive") == len(m.line.false_positives)
        assert outcomes.count("false negative") == len(m.line.false_negatives)


def test_every_ranking_is_there(result: Fidelity) -> None:
    assert [m.name for m in result.methods] == ["job", "canary", "isolated", "alpha-beta", "simulator"]
    assert [m.measured for m in result.methods] == [True, True, True, False, False]
    assert {f for s in result.settings for f in [s.split("-")[0]]} == {"even", "pair"}


def test_what_the_page_says(result: Fidelity) -> None:
    """docs/decision_fidelity.md states these; a new recording changes both."""
    canary, isolated, job = result.method("canary"), result.method("isolated"), result.method("job")
    assert canary.line is not None and isolated.line is not None
    assert canary.line.agreeing >= 13 and canary.line.inversions == ()
    assert len(isolated.line.inversions) >= 1 and isolated.line.agreeing < canary.line.agreeing
    assert {(p.left, p.right) for p in result.inverted} >= {("even-20", "pair-300-15")}
    assert canary.cycle_seconds is not None and job.cycle_seconds is not None
    assert canary.cycle_seconds < job.cycle_seconds / 4
    assert canary.program_bytes is not None and job.program_bytes is not None
    assert canary.program_bytes < job.program_bytes / 10
    assert result.campaign.decision == "pass"


# -- its programs -----------------------------------------------------------------------------------------------------


def test_the_programs_are_what_the_script_makes(result: Fidelity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "data"))
    import fidelity_job
    from sample_json import write_document

    for name, document in (("job", fidelity_job.job()), ("isolated", fidelity_job.isolated())):
        write_document(document, tmp_path / f"{name}.json")
        assert (tmp_path / f"{name}.json").read_bytes() == (result.directory / FIDELITY / "programs" / f"{name}.json").read_bytes()
    write_document(fidelity_job.sweep(), tmp_path / "sweep.json")
    assert (tmp_path / "sweep.json").read_bytes() == (result.directory / CALIBRATION / "programs" / "sweep.json").read_bytes()


def test_the_canary_is_a_part_of_the_job(result: Fidelity) -> None:
    job, canary = result.program("job"), result.program("canary")
    assert isinstance(job, Trace) and isinstance(canary, Canary)
    check = verify_canary(job, canary)
    assert (check.coverage, check.commitments, check.bounds) == ("partial_source", "recomputed", "recomputed")
    assert Program.of(canary).runs * 6 == Program.of(job).runs == 234


def test_a_canary_of_the_whole_job_replays_the_job(result: Fidelity) -> None:
    """Back to back its program is the job's, event for event: measuring it would measure the job again."""
    job = result.program("job")
    assert isinstance(job, Trace)
    whole = compile_trace(job, records=2)
    a, b = Program.of(job), Program.of(whole)
    assert [a.steps[c.step] for c in a.calls()] == [b.steps[c.step] for c in b.calls()]
    assert len(whole.canonical) < 5000 < 40_000 < (result.directory / FIDELITY / "programs" / "job.json").stat().st_size


# -- the model of links -----------------------------------------------------------------------------------------------


def test_the_time_of_a_cycle_by_hand(result: Fidelity) -> None:
    """An all-reduce of two ranks has two steps and moves B; one of four has six steps and moves 1.5 B; an all-gather of two half of B."""
    job = result.program("job")
    assert isinstance(job, Trace)
    inside, across = 1000 * 8 / 300, 1000 * 8 / 15  # us per kB
    terms = nominal_terms(FabricSpec("f", 300, ranks_per_node=2, across_mbit=30), sharing=2, alpha_us=100)
    kib = 1.024
    per_step = 16 * (200 + 64 * kib * inside) + (100 + 16 * kib * inside) + 2 * 200 + 224 * kib * across + 600 + 1.5 * 4 * kib * across
    assert cycle_us(job, terms) == pytest.approx(6 * per_step, rel=1e-9)
    assert exposed_us(job, terms) > 0


def test_a_search_finds_what_is_constructed_and_nothing_where_there_is_nothing(result: Fidelity) -> None:
    job, alone = result.program("job"), result.program("isolated")
    assert isinstance(job, Trace) and isinstance(alone, Trace)
    fabrics = [FabricSpec("even", 40), FabricSpec("pair", 300, ranks_per_node=2, across_mbit=30)]
    pairs, found = search_inversions(job, alone, fabrics)
    assert pairs == 1 and [(i.left, i.right) for i in found] == [("even", "pair")]
    assert (
        found[0].job_ratio > 1.4 and found[0].isolated_ratio < 0.85 and found[0].strength == pytest.approx(1 / found[0].isolated_ratio - 1)
    )
    assert search_inversions(job, alone, [FabricSpec(f"e{r}", r) for r in (10, 20, 40, 80)]) == (6, ())


def test_calibrated_rates_are_those_of_the_links(result: Fidelity) -> None:
    """Inside a pair each rank has its link; across, the two groups share an uplink whenever both use it. The bucket gives a little."""
    for name, terms in result.links.terms.items():
        assert isinstance(terms, LinkTerms)
        kind, *rates = name.split("-")
        inside, across = (float(rates[0]) / 1000, float(rates[-1]) / 1000)
        assert 0.85 * inside < terms.rate_gbps < 1.15 * inside, name
        assert across / (2 if kind == "pair" else 1) * 0.9 < terms.across_rate_gbps < 1.15 * across, name


def test_evidence_is_read_only_when_it_is_recorded(evidence: Path) -> None:
    runs = [p for p in files(evidence) if p.name != "SHA256SUMS"]
    assert all(stat.S_IMODE(p.stat().st_mode) & 0o222 == 0 for p in runs)
