"""The workspace as one visitor has it: everything can be opened, and what changes it asks first whether the visitor may."""

from __future__ import annotations

from typing import Any

from commcanary_lab.workspace import Artifact, Staging, Trashed, Workspace
from commcanary_lab.workspace.upload import MAX_UPLOAD_BYTES

from .access import Visitor

__all__ = ["GuardedWorkspace"]


class GuardedWorkspace(Workspace):
    """A workspace for one visitor. Files, index and cache are those of the server's.

    Parameters
    ----------
    workspace : Workspace
        The server's.
    visitor : Visitor
        Whose role decides, at each call.
    """

    def __init__(self, workspace: Workspace, visitor: Visitor) -> None:
        vars(self).update(vars(workspace))
        self._visitor = visitor

    def add(self, name: str, data: bytes, *, limit_bytes: int = MAX_UPLOAD_BYTES, rename: bool = False) -> Artifact:
        """Add a file; operators only. As `Workspace.add`."""
        self._visitor.require("saving into the workspace")
        return super().add(name, data, limit_bytes=limit_bytes, rename=rename)

    def stage(self, **options: Any) -> Staging:
        """Return a place for an upload; operators only. As `Workspace.stage`."""
        self._visitor.require("an upload")
        return super().stage(**options)

    def trash(self, name: str) -> Trashed:
        """Delete an artifact; operators only. As `Workspace.trash`."""
        self._visitor.require("deleting")
        return super().trash(name)

    def restore(self, entry: str) -> Artifact:
        """Put an artifact back; operators only. As `Workspace.restore`."""
        self._visitor.require("restoring")
        return super().restore(entry)

    def purge(self, entry: str) -> None:
        """Remove an artifact for good; operators only. As `Workspace.purge`."""
        self._visitor.require("deleting for good")
        super().purge(entry)
