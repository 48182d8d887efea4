"""Links inside a folder of a workspace that lead out of it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["leads_out"]


def leads_out(folder: Path, root: Path, *, deep: bool = True) -> str | None:
    """Return the first link in a folder that leads out of the workspace, as a path inside the folder; None if there is none.

    Parameters
    ----------
    folder : Path
        A folder of the workspace.
    root : Path
        The workspace, resolved.
    deep : bool
        Look into its folders, too. Links are not followed.

    Examples
    --------
    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp()).resolve()
    >>> (root / "job").mkdir()
    >>> (root / "job" / "rank0.json").symlink_to("/etc/passwd")
    >>> leads_out(root / "job", root)
    'rank0.json'
    """
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    if not Path(os.path.realpath(entry.path)).is_relative_to(root):
                        return os.path.relpath(entry.path, folder)
                elif deep and entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
    return None
