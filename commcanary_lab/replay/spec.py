"""The documents of a replay's directory: what was asked, what each rank left, what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from commcanary_lab.canonical import write_atomic
from commcanary_lab.errors import FormatError, LabError
from commcanary_lab.files import read_file

__all__ = [
    "FAULTS", "PROBE_MODES", "Fault", "Mismatch", "ProbeAsked", "RankMarker", "ReplaySpec", "RunState", "marker_path", "read_document",
    "write_document",
]  # fmt: skip

#: What a test may do to the data of a probe.
FAULTS = ("stale", "swap", "flip")
PROBE_MODES = ("eager", "graph", "segmented")

T = TypeVar("T")


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Damage done on purpose, so that a test can see the probe find it.

    Parameters
    ----------
    kind : str
        ``stale``: the buffer keeps what it had after the sample before. ``swap``: the parts of two ranks change places. ``flip``: one bit.
    event : int
        Position in the program, from 0.
    sample : int
        Number of the replay, from 0.
    ranks : tuple of int
        Where; empty for every rank.
    bit : int
        Which bit flips.
    """

    kind: Literal["stale", "swap", "flip"]
    event: int
    sample: int
    ranks: tuple[int, ...] = ()
    bit: int = 0


class ProbeAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How data are checked.

    Parameters
    ----------
    epochs, replays : int
        Every epoch runs the program `replays` times; each run is a sample with inputs of its own.
    mode : str
        ``eager``; on CUDA also ``graph`` (the whole program captured) and ``segmented`` (collectives eager, the kernels between captured).
    fault : Fault, optional
        Damage for a test.
    """

    epochs: int = 1
    replays: int = 2
    mode: Literal["eager", "graph", "segmented"] = "eager"
    fault: Fault | None = None

    @property
    def samples(self) -> int:
        """Runs of the program."""
        return self.epochs * self.replays


class ReplaySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is run; written before anything starts, and never changed.

    Parameters
    ----------
    program : str
        File of the canary or trace in the directory.
    program_sha256 : str
        Of that file.
    ranks : int
        Processes.
    source_ranks : int
        Ranks of the program.
    backend : str
        ``gloo`` or ``nccl``.
    timing : str
        ``back_to_back``, or ``preserve``: every event waits for its time in the source, counted from the start of the iteration.
    barrier : bool
        A barrier before each event, so that the latency of an event does not contain the wait for a late rank.
    overlap : bool
        Compute beside the collective as long as the source says.
    warmup, iterations : int
        Runs of the program that are not measured, and that are.
    timeout_s : float
        The run is ended after so many seconds, whatever it does.
    probe : ProbeAsked, optional
        Check data after the measurement.
    skip_unsupported : bool
        Leave out what no backend runs.
    note : str
        Of the person who runs it.
    format : str
        Name and version of this document.
    """

    program: str
    program_sha256: str
    ranks: int
    source_ranks: int
    backend: Literal["gloo", "nccl"]
    timing: Literal["back_to_back", "preserve"] = "back_to_back"
    barrier: bool = True
    overlap: bool = False
    warmup: int = 1
    iterations: int = 5
    timeout_s: float = 600.0
    probe: ProbeAsked | None = None
    skip_unsupported: bool = False
    note: str = ""
    format: Literal["commcanary.replay.v1"] = "commcanary.replay.v1"


class Mismatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first boundary whose bytes were wrong on a rank.

    Parameters
    ----------
    sample, event : int
        Where.
    boundary : str
        Operation and number, from 1: ``all_reduce #98``.
    byte : int
        The first byte that differs.
    expected, found : int
        That byte.
    wrong_bytes, total_bytes : int
        How many differ, of how many.
    check : str
        ``output``, or ``rank-order sum`` of what was gathered.
    """

    sample: int
    event: int
    boundary: str
    byte: int
    expected: int
    found: int
    wrong_bytes: int
    total_bytes: int
    check: str = "output"


class RankMarker(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one rank leaves when it ends, well or not.

    Parameters
    ----------
    rank : int
        The rank.
    status : str
        ``pass`` or ``fail``.
    error : str
        Why it failed.
    ended_ns : int
        Its monotonic clock at the end.
    host, device : str
        Where it ran.
    versions : dict of str to str
        Python, torch, the backend's library.
    counts, payload_bytes : dict of str to int
        Per operation: events of one iteration, and their bytes, counted while they ran.
    changes : tuple of str
        What ran differently from the source, and why.
    iterations : int
        Measured ones that are complete.
    samples_checked, boundaries_checked, bytes_checked : int
        Of the probe.
    mismatches : int
        Boundaries whose bytes were wrong.
    first_mismatch : Mismatch, optional
        The first of them.
    """

    rank: int
    status: Literal["pass", "fail"]
    error: str = ""
    ended_ns: int = 0
    host: str = ""
    device: str = ""
    versions: dict[str, str] = {}
    counts: dict[str, int] = {}
    payload_bytes: dict[str, int] = {}
    changes: tuple[str, ...] = ()
    iterations: int = 0
    samples_checked: int = 0
    boundaries_checked: int = 0
    bytes_checked: int = 0
    mismatches: int = 0
    first_mismatch: Mismatch | None = None
    format: Literal["commcanary.rank.v1"] = "commcanary.rank.v1"


class RunState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the run went, written by the launcher when it is over.

    Parameters
    ----------
    status : str
        ``done``, ``failed``, ``timeout`` or ``cancelled``.
    seconds : float
        Wall time.
    failed_rank : int, optional
        The rank that ended first without success.
    reason : str
        In words.
    exit_status : int, optional
        Of torchrun.
    command : tuple of str
        What was started.
    """

    status: Literal["done", "failed", "timeout", "cancelled"]
    seconds: float
    failed_rank: int | None = None
    reason: str = ""
    exit_status: int | None = None
    command: tuple[str, ...] = ()
    format: Literal["commcanary.run.v1"] = "commcanary.run.v1"


def marker_path(directory: Path, rank: int) -> Path:
    """Return where a rank leaves its marker."""
    return directory / f"rank-{rank:05d}.json"


def write_document(path: Path, document: msgspec.Struct) -> None:
    """Write a document: a temporary file that is complete takes the name."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=1) + b"\n")


def read_document(path: Path, kind: type[T]) -> T:
    """Read a document.

    Raises
    ------
    FormatError
        If it is missing, or not what it should be.
    """
    try:
        return msgspec.json.decode(read_file(path).removeprefix(b"\xef\xbb\xbf"), type=kind)
    except LabError as error:
        raise FormatError(error.problems[0].what, file=str(path), remedy="the directory is not of a replay, or was changed") from None
    except (UnicodeDecodeError, RecursionError, msgspec.MsgspecError) as error:
        raise FormatError(str(error), file=str(path), remedy="the directory is not of a replay, or was changed") from None
