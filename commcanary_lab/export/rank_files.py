"""One file per rank of a job, and the manifest that says what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from commcanary_lab.errors import LimitError
from commcanary_lab.export.folder import ExportFolder
from commcanary_lab.export.program import Program
from commcanary_lab.export.result import Export, Skipped, usual_notes

__all__ = ["MAX_RANKS", "write_rank_files"]

#: A folder of more files than this is no use to a job.
MAX_RANKS = 16_384


def write_rank_files(
    kind: str,
    program: Program,
    directory: Path,
    *,
    name: Callable[[int], str],
    content: Callable[[int], Iterable[bytes]],
    skipped: Sequence[Skipped],
    assumptions: Mapping[str, str],
    notes: Sequence[str] = (),
) -> Export:
    """Write one file for each rank of the job, whether it takes part in a call or not.

    Parameters
    ----------
    kind : str
        Kind of the export.
    program : Program
        What is exported.
    directory : Path
        Where the files go.
    name : callable
        Name of a rank's file.
    content : callable
        Bytes of a rank's file, in passes.
    skipped : sequence of Skipped
        What is left out.
    assumptions : mapping of str to str
        What is assumed.
    notes : sequence of str
        Notes besides the usual ones.

    Raises
    ------
    LimitError
        Beyond `MAX_RANKS` ranks.
    RefusedError
        If the folder has a file of such a name that no export wrote.
    InputError
        If the folder cannot be written.
    """
    ranks = program.world_size
    if ranks > MAX_RANKS:
        raise LimitError(f"a job of {ranks:,} ranks is more than {MAX_RANKS:,} files", remedy="export a trace filtered by group")
    said = (*usual_notes(program, skipped, assumptions), *notes)
    idle = ranks - len(program.groups_of_rank)
    if idle:
        said = (*said, f"{idle} of {ranks} ranks take part in nothing; their files only declare the groups")
    folder = ExportFolder(directory, kind, [name(rank) for rank in range(ranks)])
    entries = 0
    for rank in range(ranks):
        folder.write(name(rank), content(rank))
        entries += len(program.events_of(rank))
    events = int(np.count_nonzero(program.code >= 0))
    done = Export(kind, folder.files, entries, events, ranks, tuple(skipped), assumptions, said)
    about = done.to_json()
    del about["files"], about["kind"]
    folder.finish(
        {
            **about,
            "source": {"kind": program.about.kind, "sha256": program.about.identity, "timing": program.about.timing},
            "groups": [{"id": i, "name": g.name, "ranks": list(g.members)} for i, g in enumerate(program.groups)],
        }
    )
    return done
