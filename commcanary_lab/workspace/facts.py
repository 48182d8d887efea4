"""What an artifact is and what it states that it was made from, in SHA-256 values of content: names never count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from commcanary_lab.canary.commit import commitment
from commcanary_lab.canary.model import Canary
from commcanary_lab.canonical import canonical_bytes, sha256_hex
from commcanary_lab.errors import LabError
from commcanary_lab.review.comparison_file import ComparisonFile
from commcanary_lab.review.signoff import SignOff
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.derived import derived_from, trace_sha256
from commcanary_lab.workspace.artifact import Artifact
from commcanary_lab.workspace.ledger_file import LedgerFile
from commcanary_lab.workspace.openers import OPENERS

__all__ = ["FACTS", "Facts", "Origin", "identity", "look"]

#: Under this name, with the version of what is written here, facts stand in the index.
FACTS = "facts 1"


@dataclass(frozen=True)
class Origin:
    """Something that an artifact states it was made from, or belongs to.

    Parameters
    ----------
    role : str
        How: ``compiled from``, ``simulated from``, ``baseline``, ...
    kinds : tuple of str
        What it can be.
    scheme : str
        Which SHA-256 is stated, with every parameter: `identity` recomputes it from a candidate.
    sha256 : str
        The value; empty where the statement cannot be matched without a secret.
    events : int, optional
        Events of the candidate, where that is known: others need not be looked at.
    expected : bool
        False for what need not exist as a file: it is shown only where it does.
    """

    role: str
    kinds: tuple[str, ...]
    scheme: str
    sha256: str
    events: int | None = None
    expected: bool = True


@dataclass(frozen=True)
class Facts:
    """What is known about one artifact.

    Parameters
    ----------
    events : int, optional
        Of a trace or canary.
    measured : bool
        Whether a trace holds measured latencies.
    identities : mapping of str to str
        SHA-256 by scheme: those that cost nothing more once the artifact is open.
    origins : tuple of Origin
        What it states that it was made from.
    problem : str
        Why nothing is known.
    """

    events: int | None = None
    measured: bool = False
    identities: Mapping[str, str] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()
    problem: str = ""


def look(path: Path, artifact: Artifact) -> Facts:
    """Open an artifact and return what is known about it; a damaged one has its problem.

    Examples
    --------
    >>> import tempfile
    >>> import commcanary_lab as lab
    >>> place = Path(tempfile.mkdtemp()) / "c.json"
    >>> _ = lab.write(lab.compile(lab.samples.adversarial()), place)
    >>> facts = look(place, Artifact("c.json", "canary", 1, ""))
    >>> [(o.role, o.scheme) for o in facts.origins], facts.origins[0].sha256 == trace_sha256(lab.samples.adversarial())
    ([('compiled from', 'events')], True)
    """
    try:
        if artifact.kind in ("replay", "campaign"):
            return Facts(origins=_replayed(path) if artifact.kind == "replay" else _campaign(path))
        opened = OPENERS[artifact.kind](path)
        match opened:
            case Trace():
                return _trace(opened)
            case Canary():
                return _canary(opened)
            case ReportFile():
                return _report(opened)
            case ComparisonFile():
                return Facts(origins=_compared(opened))
            case SignOff():
                kind = "report" if opened.kind == "reports" else "trace"
                scheme = "report" if kind == "report" else "measured"
                sides = (("baseline", opened.baseline), ("candidate", opened.candidate))
                return Facts(origins=tuple(Origin(role, (kind,), scheme, side.sha256) for role, side in sides))
            case LedgerFile():
                return Facts(origins=_ledger(opened))
    except LabError as e:
        return Facts(problem=e.problems[0].what)
    except (OSError, msgspec.MsgspecError, TypeError, ValueError, KeyError, AttributeError) as e:
        return Facts(problem=f"does not say what it was made from: {e}")
    return Facts(problem="is nothing that was made from something")


def identity(opened: object, scheme: str) -> str:
    """Return the SHA-256 of a trace or canary under a scheme that another artifact states; empty where it has none.

    Schemes are ``events`` (the commitment to all events), ``events A:B`` (to a range of them), ``workload`` (everything that a simulation
    reads), ``workload with FIELD=VALUE ...`` (with assumptions in place of unknown values) and ``canary`` (the canonical file).
    """
    what, _, rest = scheme.partition(" ")
    try:
        if what == "events" and isinstance(opened, Trace):
            if not rest:
                return trace_sha256(opened)
            start, stop = (int(x) for x in rest.split(":"))
            return commitment(opened.take(slice(start, stop))) if stop <= len(opened) else ""
        if what == "canary" and isinstance(opened, Canary):
            return opened.identity
        if what == "workload" and isinstance(opened, (Trace, Canary)):
            from commcanary_lab.simulate.prepare import prepare

            assume = {n: float(v) for n, _, v in (part.partition("=") for part in rest.removeprefix("with ").split(" ") if part)}
            return prepare(opened if isinstance(opened, Trace) else opened.trace, assume).workload_sha256
    except LabError:  # unknown values, for one: then no report was made from it
        return ""
    return ""


def _trace(trace: Trace) -> Facts:
    ids = {"events": trace_sha256(trace)}
    origins: list[Origin] = []
    if (derived := derived_from(trace)) is not None:
        ids["kept"] = _kept(derived.to_json())
        origins.append(Origin(f"kept by {derived.method} from", ("trace",), "events", derived.trace_sha256))
    return Facts(len(trace), bool(trace.duration_max_ns.known_count), ids, tuple(origins))


def _canary(canary: Canary) -> Facts:
    source, derived = canary.source, derived_from(canary)
    ids = {"canary": canary.identity}
    whole = (source.start, source.stop) == (0, source.events)
    scheme = "events" if whole else f"events {source.start}:{source.stop}"
    stated = "" if source.salted else source.root
    origins = [Origin("compiled from", ("trace",), scheme, stated, source.events, expected=derived is None)]
    if derived is not None:
        ids["kept"] = _kept(derived.to_json())
        origins.append(Origin(f"compiled from what {derived.method} kept of", ("trace",), "events", derived.trace_sha256))
    return Facts(canary.event_count, False, ids, tuple(origins))


def _report(report: ReportFile) -> Facts:
    assumed = " ".join(f"{name}={float(value)!r}" for name, value in sorted(report.assumptions.items()))
    scheme = f"workload with {assumed}" if assumed else "workload"
    ids = {"report": report.sha256}
    if "canary" in report.source:
        stated = Origin("simulated from", ("canary",), "canary", report.source["canary"])
        # the canary may be gone while the trace that it stood for exactly is there
        return Facts(
            identities=ids, origins=(stated, Origin("same work as", ("trace",), scheme, report.workload_sha256, report.events, False))
        )
    kinds = ("trace",) if "trace" in report.source else ("trace", "canary")  # what it was, not what it was called
    return Facts(identities=ids, origins=(Origin("simulated from", kinds, scheme, report.workload_sha256, report.events),))


def _compared(comparison: ComparisonFile) -> tuple[Origin, ...]:
    """Measured comparisons state what depends on both traces; `provenance` matches them in pairs."""
    if comparison.kind == "reports":
        sides = (("baseline", comparison.base_sha256), ("candidate", comparison.candidate_sha256))
        return tuple(Origin(role, ("report",), "report", value) for role, value in sides)
    document = comparison.document
    events = [document[side].get("events") for side in ("baseline", "candidate")]
    values = (comparison.base_sha256, comparison.candidate_sha256)
    return tuple(Origin(r, ("trace",), "measured", v, n) for r, v, n in zip(("baseline", "candidate"), values, events, strict=True))


def _ledger(ledger: LedgerFile) -> tuple[Origin, ...]:
    document = ledger.document
    if ledger.method == "ddmin":
        derived = document["derived_from"]
        return (
            Origin("reduces", ("trace",), "events", _sha(derived["trace_sha256"]), document["events_before"]),
            Origin("kept these events:", ("trace", "canary"), "kept", _kept(derived), expected=False),
        )
    found = [Origin("searched", ("trace",), "events", _sha(document["source"]["sha256"]), document["source"]["events"])]
    if document["canary_sha256"] is not None:
        found.append(Origin("selected", ("canary",), "canary", _sha(document["canary_sha256"])))
    return tuple(found)


class _Run(msgspec.Struct):
    program: str
    program_sha256: str


class _Program(msgspec.Struct):
    file: str
    replayed: str
    replayed_sha256: str
    events: int


class _Manifest(msgspec.Struct):
    programs: dict[str, _Program]


def _replayed(path: Path) -> tuple[Origin, ...]:
    run = msgspec.json.decode((path / "run.json").read_bytes(), type=_Run)
    return (_program("replays", path / _inner(run.program), run.program, run.program_sha256),)


def _campaign(path: Path) -> tuple[Origin, ...]:
    stated = msgspec.json.decode((path / "manifest.json").read_bytes(), type=_Manifest)
    programs = sorted(stated.programs.items())
    return tuple(_program(f"runs as {name}", path / _inner(p.file), p.replayed, p.replayed_sha256) for name, p in programs)


def _program(role: str, path: Path, replayed: str, sha256: str) -> Origin:
    """A canary is replayed in canonical form, so the hash of the file is its identity; a trace is opened for its own."""
    if replayed == "canary.json":
        return Origin(role, ("canary",), "canary", _sha(sha256))
    trace = OPENERS["trace"](path)
    assert isinstance(trace, Trace)
    return Origin(role, ("trace",), "events", trace_sha256(trace), len(trace))


def _inner(name: str) -> str:
    """A path inside of the evidence: a manifest is data, and must not name a file elsewhere."""
    if name.startswith("/") or "\\" in name or ".." in name.split("/"):
        raise ValueError(f"{name!r} leads out of the evidence")
    return name


def _kept(derived: Mapping[str, Any]) -> str:
    return sha256_hex(canonical_bytes({k: derived[k] for k in ("trace_sha256", "kept", "method")}))


def _sha(value: object) -> str:
    if not isinstance(value, str) or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise ValueError(f"{value!r} is no SHA-256")
    return value
