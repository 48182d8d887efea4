"""Sign-offs of a workspace: which of them are about a pair, and whether they still hold; without any widget."""

from __future__ import annotations

from dataclasses import dataclass

from commcanary_lab.errors import LabError
from commcanary_lab.review.comparison import Comparison
from commcanary_lab.review.measured import MeasuredComparison
from commcanary_lab.review.signoff import SignOff, SignOffCheck, check_signoff, sign_off
from commcanary_lab.workspace import Workspace

__all__ = ["Signed", "keep", "newest", "pair_of", "signed_for"]


@dataclass(frozen=True)
class Signed:
    """A sign-off file and whether it is about what is shown."""

    file: str
    signoff: SignOff
    check: SignOffCheck

    @property
    def words(self) -> str:
        """Decision and reviewer, and where it does not hold, that."""
        by = f" by {self.signoff.reviewer}" if self.signoff.reviewer else ""
        states = {"current": "", "other_policy": " (another policy)", "stale": " (stale)"}
        return f"{self.signoff.words}{by}{states[self.check.status]}"


def signed_for(workspace: Workspace, names: tuple[str, str], comparison: Comparison | MeasuredComparison) -> tuple[Signed, ...]:
    """Return the sign-offs about two inputs, the newest first: about the same content, or about files of the same names.

    A file of the same name with another content makes its sign-offs stale; a file that was renamed keeps them.
    """
    out = []
    for artifact in workspace.list("signoff"):
        try:
            signoff = workspace.signoff(artifact.name)
        except LabError:  # a damaged one is in the list of the Overview page, which says so
            continue
        check = check_signoff(signoff, comparison)
        if check.status != "stale" or (signoff.baseline.name, signoff.candidate.name) == names:
            out.append(Signed(artifact.name, signoff, check))
    return tuple(sorted(out, key=lambda s: (s.signoff.written_at, s.file), reverse=True))


def pair_of(workspace: Workspace, name: str) -> dict[str, tuple[str, ...]]:
    """Return the choices that show what a sign-off is about: both inputs, found by content or else by name, and its policy.

    Raises
    ------
    LabError
        If it cannot be opened.
    """
    from .policy_panel import policy_values

    signoff = workspace.signoff(name)
    known = {}
    if signoff.kind == "reports":
        for artifact in workspace.list("report"):
            try:
                known[workspace.report(artifact.name).sha256] = artifact.name
            except LabError:
                continue
    sides = {role: (known.get(s.sha256, s.name),) for role, s in (("baseline", signoff.baseline), ("candidate", signoff.candidate))}
    allow = {"allow": ("1",)} if signoff.allow_incompatible else {}
    policy = {"policy": values} if (values := policy_values(signoff.policy)) else {}
    return {"compare": (signoff.kind,), **sides, **policy, **allow}


def newest(found: tuple[Signed, ...]) -> Signed | None:
    """Return the sign-off that counts: the newest that holds, else the newest."""
    return next((s for s in found if s.check.passed), found[0] if found else None)


def keep(
    workspace: Workspace, names: tuple[str, str], comparison: Comparison | MeasuredComparison, decision: str, reviewer: str, note: str
) -> str:
    """Write a sign-off as a file of its own, and return its name; nothing is ever overwritten.

    Raises
    ------
    LabError
        If a text is refused, or the workspace cannot be written.
    """
    signoff = sign_off(comparison, decision, names=names, reviewer=reviewer, note=note)
    return workspace.add(signoff.file_name, signoff.to_bytes(), rename=True).name
