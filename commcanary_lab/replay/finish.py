"""The end of a run that something else than this package started, such as a batch script: its verdict, and the seal.

``python -m commcanary_lab.replay.finish DIRECTORY EXIT_STATUS SECONDS``, once all ranks have ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from commcanary_lab.errors import LabError, UsageError
from commcanary_lab.replay.launch import markers_verdict
from commcanary_lab.replay.run import conclude
from commcanary_lab.replay.spec import ReplaySpec, RunState, read_document

__all__ = ["finish"]


def finish(directory: str | os.PathLike[str], exit_status: int, seconds: float) -> RunState:
    """Write how a run ended, from what its ranks left, and seal its directory.

    Parameters
    ----------
    directory : path-like
        From `prepare`.
    exit_status : int
        Of what started the ranks; 0 for success.
    seconds : float
        Wall time.

    Raises
    ------
    UsageError
        If the directory says already how the run ended.
    FormatError
        If it is not the directory of a replay.
    """
    place = Path(directory)
    spec = read_document(place / "run.json", ReplaySpec)
    if (place / "result.json").exists():
        raise UsageError(f"{place} says already how its run ended", remedy="prepare a new directory for another run")
    failed, why = markers_verdict(place, spec.ranks, exit_status == 0)
    well = exit_status == 0 and failed is None and not why
    reason = "" if well else why or f"the batch script's command exited with {exit_status}"
    state = RunState(status="done" if well else "failed", seconds=seconds, failed_rank=failed, reason=reason, exit_status=exit_status)
    conclude(place, state)
    return state


def main(arguments: list[str]) -> int:
    """Run the module; the exit code is 0 for a run that ended well, otherwise 4."""
    try:
        directory, status, seconds = arguments
        state = finish(directory, int(status), float(seconds))
    except ValueError as e:
        if not isinstance(e, LabError):
            print(f"usage: {Path(sys.argv[0]).stem} DIRECTORY EXIT_STATUS SECONDS", file=sys.stderr)
            return 2
        print(f"error: {e}", file=sys.stderr)
        return 3
    except LabError as e:
        print(f"error: {e}", file=sys.stderr)
        return 3
    print(f"{directory}: {state.status}{f', {state.reason}' if state.reason else ''}")
    return 0 if state.status == "done" else 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
