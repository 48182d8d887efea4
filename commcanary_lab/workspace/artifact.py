"""One artifact of a workspace, as a listing shows it."""

from __future__ import annotations

from dataclasses import dataclass

from commcanary_lab.units import format_bytes

__all__ = ["KINDS", "Artifact"]

#: Kinds that a workspace can open, and what is none of them.
KINDS = ("trace", "canary", "report", "comparison", "signoff", "ledger", "replay", "campaign", "other")


@dataclass(frozen=True)
class Artifact:
    """A file, a folder of per-rank files, or a directory of evidence in a workspace.

    Parameters
    ----------
    name : str
        Name inside the workspace; unique. Evidence in the folders ``replays`` and ``campaigns`` has the folder before it, with a slash.
    kind : {"trace", "canary", "report", "comparison", "signoff", "ledger", "replay", "campaign", "other"}
        Recognised by content, never by the name.
    size_bytes : int
        Size on disk; the sum over the files of a folder.
    summary : str
        What it is, in a few words; for `other`, why it cannot be opened.
    stamp : tuple of int
        Latest modification (nanoseconds), size and number of files: changes when the content does.

    Examples
    --------
    >>> Artifact("decode.json", "trace", 2048, "commcanary.trace.v1").label
    'decode.json (trace, 2.00 KiB)'
    """

    name: str
    kind: str
    size_bytes: int
    summary: str
    stamp: tuple[int, int, int] = (0, 0, 0)

    @property
    def label(self) -> str:
        """Name, kind and size for people."""
        return f"{self.name} ({self.kind}, {format_bytes(self.size_bytes)})"
