"""The verbs trend and verify-signoff, and the page of a history: figures, exit codes, nothing fetched, nothing unescaped."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import commcanary_lab as lab
from commcanary_lab.cli import run
from commcanary_lab.review import Policy, check_signoff, compare, history, history_html, html_report, sign_off

SOURCE = Path(__file__).parents[2] / "data" / "samples" / "adversarial.json"
WHEN = "2026-11-30T12:00:00Z"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        out = capsys.readouterr()
        assert "Traceback" not in out.out + out.err
        return code, out.out, out.err

    return call


@pytest.fixture
def folder(tmp_path: Path, cli: Any) -> Path:
    for i, backend in enumerate(("baseline", "baseline", "congested", "high_bandwidth")):
        assert cli("simulate", SOURCE, "--backend", backend, "--samples", "-o", tmp_path / f"job.2026-11-{2 + 7 * i:02}.json")[0] == 0
    return tmp_path


def _paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("job.2026-11-??.json"), reverse=True)


def test_table_exit_code_and_json(folder: Path, cli: Any) -> None:
    code, out, _ = cli("trend", *_paths(folder))
    assert code == 1
    assert out.splitlines()[0] == "fail: job.2026-11-23.json; 4 entries: 2 pass, 1 fail"
    assert "It is the first with this verdict; job.2026-11-16.json passed." in out
    code, out, _ = cli("trend", *_paths(folder)[1:], "--json")
    document = json.loads(out)
    assert (code, document["verdict"], document["ordered_by"]) == (0, "pass", "the date in each name")
    assert [r["name"] for r in document["rows"]] == [p.name for p in reversed(_paths(folder)[1:])]
    assert document["rows"][0]["verdict"] == "baseline"
    code, out, _ = cli("trend", *_paths(folder), "--baseline", "previous", "--json")
    assert json.loads(out)["rows"][3]["against"] == "job.2026-11-16.json"
    code, out, _ = cli("trend", *_paths(folder), "--baseline", _paths(folder)[1], "--json")  # a path names its file
    assert json.loads(out)["baseline"] == "job.2026-11-16.json"


def test_a_policy_and_files(folder: Path, cli: Any, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("".join(f"{n}_threshold_pct = 90\n" for n in ("p99", "p95", "median", "breakdown")))
    page, output = tmp_path / "trend.html", tmp_path / "trend.out"
    code, out, _ = cli("trend", *_paths(folder), "--policy", policy, "--html", page, "-o", output)
    assert code == 0
    assert out.startswith("pass: ")
    assert json.loads(output.read_text())["thresholds"]["p99_threshold_pct"] == 90
    assert "<svg" in page.read_text()


def test_what_is_refused(folder: Path, cli: Any, tmp_path: Path) -> None:
    one = _paths(folder)[0]
    assert cli("trend", one)[0] == 2
    code, _, err = cli("trend", one, one)
    assert (code, "is given twice" in err) == (2, True)
    code, _, err = cli("trend", *_paths(folder), "--baseline", "nobody")
    assert (code, "no entry is named 'nobody'" in err) == (2, True)
    code, _, err = cli("trend", *_paths(folder), "--baseline", one.name)
    assert (code, "is the baseline" in err) == (2, True)
    code, _, err = cli("trend", one, tmp_path / "gone.json")
    assert (code, "gone.json" in err) == (3, True)
    assert cli("simulate", SOURCE, "--backend", "seed=9", "-o", tmp_path / "z.2026-12-01.json")[0] == 0
    code, out, _ = cli("trend", *_paths(folder), tmp_path / "z.2026-12-01.json")
    assert code == 1
    assert "not comparable: z.2026-12-01.json: the reports are incompatible in seed: 7 against 9" in out


def test_files_of_one_name_are_told_apart(folder: Path, cli: Any) -> None:
    for i, path in enumerate(reversed(_paths(folder))):
        (folder / f"w{i}").mkdir()
        path.rename(folder / f"w{i}" / "report.json")
    _, out, _ = cli("trend", *sorted(folder.glob("w*/report.json")), "--json")
    assert [r["name"] for r in json.loads(out)["rows"]] == [f"w{i}/report.json" for i in range(4)]


def test_measured_traces(cli: Any, tmp_path: Path) -> None:
    samples = SOURCE.parent
    (tmp_path / "b.json").write_bytes((samples / "gloo4.json").read_bytes())
    code, out, _ = cli("trend", samples / "gloo4.json", tmp_path / "b.json")
    assert code == 0
    assert "pass" in out.splitlines()[0]


def test_verify_signoff(folder: Path, cli: Any, tmp_path: Path) -> None:
    from commcanary_lab.simulate.report_file import read_report

    new, old = _paths(folder)[0], _paths(folder)[-1]
    signed = sign_off(compare(read_report(old), read_report(new)), "reject", names=(old.name, new.name), reviewer="Ada", written_at=WHEN)
    path = tmp_path / signed.file_name
    path.write_bytes(signed.to_bytes())
    code, out, _ = cli("verify-signoff", path, old, new)
    assert (code, out) == (0, f"current: rejected by Ada on {WHEN}, the verdict was fail\n")
    code, out, _ = cli("verify-signoff", path, old, _paths(folder)[1])
    assert code == 1
    assert out.splitlines()[1] == "- the candidate is another one than the one that was signed"
    code, out, _ = cli("verify-signoff", path, old, old, "--json")
    assert (code, json.loads(out)["status"]) == (1, "stale")
    assert cli("verify-signoff", path, old, new, "--approved")[0] == 1
    yes = sign_off(compare(read_report(old), read_report(new)), "approve", written_at=WHEN)
    path.write_bytes(yes.to_bytes())
    assert cli("verify-signoff", path, old, new, "--approved")[0] == 0
    assert cli("verify-signoff", old, old, new)[0] == 3


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def _read(text: str) -> _Tags:
    parser = _Tags()
    parser.feed(text)
    return parser


def test_the_page_fetches_nothing_and_escapes_everything() -> None:
    trace = lab.samples.tp8_decode()
    a, b = lab.simulate(trace), lab.simulate(trace, "congested")
    found = history([(f"w1 {EVIL}", a), ("w2", a), (f"w3 {EVIL}", b), ("w4", lab.simulate(lab.samples.adversarial()))])
    target = found.entries[2]
    assert target.comparison is not None
    signed = sign_off(target.comparison, "needs_data", names=(EVIL, EVIL), reviewer=EVIL, note=EVIL, written_at=WHEN)
    signs = {target.name: [(signed, check_signoff(signed, target.comparison))]}
    for text in (history_html(found, signoffs=signs), html_report(target.comparison, names=(EVIL, EVIL), signoffs=signs[target.name])):
        page = _read(text)
        names = {t for t, _ in page.tags}
        assert not names & {"script", "img", "link", "iframe", "object", "form", "a"}
        assert not [k for _, attrs in page.tags for k in attrs if k.startswith("on") or k in ("src", "href")]
        assert EVIL in page.text
        policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
        assert str(policy).startswith("default-src 'none'; style-src 'unsafe-inline'")
        assert "url(" not in text
        assert "@import" not in text
        for words in ("Needs more data", "about exactly this comparison", target.member.sha256):
            assert words in page.text
    page = _read(history_html(found, signoffs=signs))
    assert "1 of 4 entries cannot be compared" in page.text
    assert page.text.count("Not comparable") >= 1
    # a sign beside every colour: nobody has to tell red from green
    assert {"\u2713", "\u2715", "\u25c6", "\u2013"} <= set(page.text)


def test_a_stale_sign_off_says_so() -> None:
    trace = lab.samples.adversarial()
    a, b, c = (lab.simulate(trace, n) for n in ("baseline", "high_bandwidth", "congested"))
    signed = sign_off(compare(a, b), "approve", written_at=WHEN)
    again = compare(a, c)
    text = _read(html_report(again, signoffs=[(signed, check_signoff(signed, again))])).text
    assert "stale: the candidate is another one than the one that was signed" in text
    lax = compare(a, b, Policy(p99_threshold_pct=80))
    assert "under another policy" in _read(html_report(lax, signoffs=[(signed, check_signoff(signed, lax))])).text
