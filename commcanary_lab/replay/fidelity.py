"""Decision fidelity: do a reduced canary, an isolated collective and calibrated links rank configurations as the job does?

The experiment is two campaigns beside each other: ``calibration`` (a sweep of sizes on every configuration) and ``fidelity`` (the job, the
canary and the isolated collective on every configuration, with what the calibrated links predict in the preregistration).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import combinations
from pathlib import Path

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import FormatError, LabError
from commcanary_lab.replay.campaign.result import Campaign, read_campaign
from commcanary_lab.replay.campaign.verify import verify_campaign
from commcanary_lab.replay.evidence import verify_seal
from commcanary_lab.replay.fidelity_bundle import CALIBRATION, FIDELITY, LINKS, bundle_problems, unpacked
from commcanary_lab.replay.fidelity_links import Links, calibrated, predicted
from commcanary_lab.replay.ranking_rows import MethodRow, PairRow, decide, method_rows, pair_rows, wanted
from commcanary_lab.replay.spec import read_document
from commcanary_lab.trace.model import Trace

__all__ = ["Fidelity", "FidelityCheck", "read_fidelity", "verify"]

#: Terms are written with six digits; beyond these processors may differ.
_RELATIVE = 1e-5


@dataclass(frozen=True, eq=False)
class Fidelity:
    """The experiment, read back.

    Attributes
    ----------
    directory : Path
        With the evidence of both campaigns.
    campaign, calibration : Campaign
        The two.
    links : Links
        What the calibration says.
    """

    directory: Path
    campaign: Campaign
    calibration: Campaign
    links: Links

    @property
    def settings(self) -> tuple[str, ...]:
        """The configurations, in the order of the preregistration."""
        return tuple(self.campaign.asked.rankings()["job"])

    @cached_property
    def methods(self) -> tuple[MethodRow, ...]:
        """The job, and every other way to rank."""
        return method_rows(self.campaign)

    def method(self, name: str) -> MethodRow:
        """Return a way to rank by name: ``job``, ``canary``, ``isolated``, ``alpha-beta`` or ``simulator``."""
        return next(m for m in self.methods if m.name == name)

    @cached_property
    def pairs(self) -> tuple[PairRow, ...]:
        """Every pair of configurations."""
        return pair_rows(self.methods, wanted(self.campaign).tie_fraction)

    @property
    def inverted(self) -> tuple[PairRow, ...]:
        """Pairs that the collective alone orders the other way round than the job."""
        return tuple(p for p in self.pairs if p.outcome("isolated") == "inverted")

    @cached_property
    def repeatability(self) -> float:
        """How often two single repetitions of the job agree on a pair: no other ranking can be expected to reach more."""
        cycles, tie = self.method("job").repetitions_us, wanted(self.campaign).tie_fraction
        same = [
            decide(cycles[a][i], cycles[b][i], tie) == decide(cycles[a][j], cycles[b][j], tie)
            for i, j in combinations(range(self.campaign.asked.repetitions), 2)
            for a, b in combinations(self.settings, 2)
        ]
        return sum(same) / len(same)

    def program(self, name: str) -> Canary | Trace:
        """Return a program of the campaign: ``job``, ``canary`` or ``isolated``."""
        from commcanary_lab.replay.campaign.freeze import open_program_file

        return open_program_file(self.campaign.directory / self.campaign.manifest.programs[name].file)

    def verify(self) -> FidelityCheck:
        """Recompute everything from the raw samples."""
        return verify(self.directory)

    def __repr__(self) -> str:
        told = ", ".join(f"{m.name} {m.line.agreeing} of {m.line.pairs}" for m in self.methods if m.line is not None)
        return f"Fidelity({self.campaign.decision}; pairs as the job decides them: {told})"

    def _repr_html_(self) -> str:
        names = ("ranking", "origin", "pairs as the job", "tau-b", "inverted", "cycles", "bytes")
        head = "<tr>" + "".join(f"<th>{n}</th>" for n in names) + "</tr>"
        rows = []
        for m in self.methods:
            x = m.line
            cells = ("reference", "", "") if x is None else (
                f"{x.agreeing} of {x.pairs}", "" if x.tau_b is None else f"{x.tau_b:.3f}", str(len(x.inversions))
            )  # fmt: skip
            cost = "" if m.cycle_seconds is None else f"{m.cycle_seconds:.2f} s"
            size = "" if m.program_bytes is None else f"{m.program_bytes:,}"
            rows.append("".join(f"<td>{escape(c)}</td>" for c in (m.name, m.origin, *cells, cost, size)))
        body = "".join(f"<tr>{r}</tr>" for r in rows)
        told = f"{escape(self.campaign.decision)}, {escape(self.campaign.outcome.reason)}"
        return f"<p><b>Decision fidelity</b>: {told}</p><table>{head}{body}</table>"


def read_fidelity(path: str | os.PathLike[str]) -> Fidelity:
    """Read the experiment.

    Parameters
    ----------
    path : path-like
        The directory with both campaigns, or the archive of it, which is unpacked into a temporary directory.

    Raises
    ------
    FormatError
        If it is neither, or a campaign has not ended.
    """
    place = unpacked(Path(path))
    campaign, calibration = read_campaign(place / FIDELITY), read_campaign(place / CALIBRATION)
    if "job" not in campaign.asked.rankings() or campaign.asked.agreement is None:
        raise FormatError("ranks no job", file=str(place / FIDELITY), remedy="give what data/make_fidelity_campaign.py recorded")
    return Fidelity(place, campaign, calibration, read_document(place / FIDELITY / LINKS, Links))


@dataclass(frozen=True)
class FidelityCheck:
    """Outcome of a verification.

    Attributes
    ----------
    differences : tuple of str
        What is not as it should be; nothing where all is well.
    files, runs, values : int
        What was read again and recomputed, of both campaigns.
    """

    differences: tuple[str, ...]
    files: int = 0
    runs: int = 0
    values: int = 0

    @property
    def passed(self) -> bool:
        """Everything is as it was recorded, and comes out again."""
        return not self.differences


def verify(path: str | os.PathLike[str]) -> FidelityCheck:
    """Verify both campaigns, the fit of the links from the raw samples of the sweep, and the predictions that the preregistration states.

    Parameters
    ----------
    path : path-like
        As for `read_fidelity`.
    """
    differences: list[str] = []
    files = runs = values = 0
    try:
        differences += bundle_problems(Path(path))
        place = unpacked(Path(path))
        strangers = sorted({p.name for p in place.iterdir()} - {CALIBRATION, FIDELITY})
        differences += [f"{name}: added" for name in strangers]
        differences += [f"{part}: {d}" for part in (CALIBRATION, FIDELITY) for d in verify_seal(place / part)]
        # figures of files that were changed say nothing more
        for part in () if differences else (CALIBRATION, FIDELITY):
            check = verify_campaign(place / part)
            differences += [f"{part}: {d}" for d in check.differences]
            files, runs, values = files + check.files, runs + check.runs, values + check.values
        if not differences:
            found, recomputed = _links(read_fidelity(place))
            differences, values = found, values + recomputed
    except (LabError, OSError) as error:
        differences.append(str(error))
    return FidelityCheck(tuple(differences), files, runs, values)


def _links(result: Fidelity) -> tuple[list[str], int]:
    """Compare the stated links and predictions with recomputed ones."""
    again, stated = calibrated(result.calibration.directory), result.links
    job = result.program("job")
    assert isinstance(job, Trace) and result.campaign.asked.agreement is not None
    differences = []
    for field in ("format", "calibration_sha256", "verdicts"):
        if getattr(again, field) != getattr(stated, field):
            differences.append(f"{LINKS}: {field} is {getattr(stated, field)!r}, recomputed {getattr(again, field)!r}")
    pairs = [(f"{LINKS}: {name}: {f}", getattr(stated.terms.get(name), f, None), getattr(t, f)) for name, t in again.terms.items()
             for f in t.__struct_fields__]  # fmt: skip
    told = {p.name: p.values for p in result.campaign.asked.agreement.predictions}
    for name, values in predicted(job, stated).items():
        pairs += [(f"prediction {name} of {s}", told.get(name, {}).get(s), v) for s, v in values.items()]
    differences += [f"{what} is {a}, recomputed {b}" for what, a, b in pairs if not _same(a, b)]
    return differences, len(pairs)


def _same(a: float | None, b: float) -> bool:
    return a is not None and abs(a - b) <= _RELATIVE * max(abs(a), abs(b))
