"""What a size sweep on real ranks runs, and the raw clock readings that each rank leaves."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Literal
from zipfile import BadZipFile, ZipFile

import msgspec
import numpy as np
import numpy.typing as npt

from commcanary_lab.canonical import atomic_file
from commcanary_lab.errors import FormatError, InputError
from commcanary_lab.files import open_regular
from commcanary_lab.replay.calibration.resample import generator, permutation
from commcanary_lab.replay.program import MESSAGES, Step

__all__ = ["SPEC_FILE", "SweepSpec", "raw_path", "read_raw", "round_order", "steps_of", "write_raw"]

IntArray = npt.NDArray[np.int64]

SPEC_FILE = "sweep.json"


class SweepSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A size sweep.

    Parameters
    ----------
    op : str
        Operation.
    ranks : int
        Ranks on this host.
    backend : str
        ``gloo`` or ``nccl``.
    sizes : tuple of int
        B per size, ascending.
    repeat : int
        Measured rounds; each holds every size once.
    warmup : int
        Rounds before, which are checked or thrown away.
    dtype : str
        Element type.
    seed : int
        Of the order of the sizes in a round.
    timeout_s : float
        Seconds after which the ranks are ended.
    """

    op: str
    ranks: int
    backend: Literal["gloo", "nccl"]
    sizes: tuple[int, ...]
    repeat: int
    warmup: int = 3
    dtype: str = "float32"
    seed: int = 7
    timeout_s: float = 300.0
    format: Literal["commcanary.size_sweep.v1"] = "commcanary.size_sweep.v1"


def steps_of(spec: SweepSpec) -> tuple[Step, ...]:
    """Return one step per size.

    Examples
    --------
    >>> steps_of(SweepSpec("broadcast", 2, "gloo", (64, 128, 256), 1))[1].size_bytes
    128
    """
    ends = (0, 1) if spec.op in MESSAGES else (None, None)
    root = 0 if spec.op in ("broadcast", "reduce") else None
    reduction = "sum" if spec.op in ("all_reduce", "reduce_scatter", "reduce") else None
    members = tuple(range(spec.ranks))
    return tuple(Step(spec.op, members, b, spec.dtype, reduction, root=root, sender=ends[0], receiver=ends[1]) for b in spec.sizes)


def round_order(spec: SweepSpec, number: int) -> list[int]:
    """Return the order of the sizes in a round: another one each time, the same on every rank.

    Examples
    --------
    >>> sorted(round_order(SweepSpec("all_reduce", 2, "gloo", (8, 16, 32), 1), 0))
    [0, 1, 2]
    """
    return permutation(generator(f"sweep:{spec.seed}:{number}"), len(spec.sizes))


def raw_path(directory: Path, rank: int) -> Path:
    """Return where a rank leaves its clock readings."""
    return directory / f"rank-{rank:05d}.npz"


def write_raw(path: Path, arrival_ns: IntArray, finish_ns: IntArray) -> None:
    """Write the readings of one rank, each of shape (rounds, sizes)."""
    with atomic_file(path) as f:
        np.savez_compressed(f, arrival_ns=arrival_ns, finish_ns=finish_ns)


#: Far above the readings of any sweep; compressed files can claim any size.
_MAX_RAW_BYTES = 1 << 30


def read_raw(path: Path, spec: SweepSpec) -> tuple[IntArray, IntArray]:
    """Read the readings of one rank.

    Raises
    ------
    FormatError
        If the file is missing or damaged, or has another shape than the sweep.
    """
    try:
        with open_regular(path) as f:
            with ZipFile(f) as z:
                if any(entry.file_size > _MAX_RAW_BYTES for entry in z.infolist()):
                    raise ValueError("it holds more than a sweep measures")
            f.seek(0)
            with np.load(f, allow_pickle=False) as found:
                arrival, finish = found["arrival_ns"], found["finish_ns"]
    except InputError as e:
        raise FormatError(f"no readings of a rank: {e.problems[0].what}", file=str(path), remedy="run the sweep again") from None
    except (OSError, LookupError, ValueError, EOFError, OverflowError, TypeError, RuntimeError, BadZipFile, zlib.error) as e:
        raise FormatError(f"no readings of a rank: {e}", file=str(path), remedy="run the sweep again") from None
    shape = (spec.repeat, len(spec.sizes))
    if any(not isinstance(a, np.ndarray) or a.shape != shape or a.dtype != np.int64 for a in (arrival, finish)):
        raise FormatError(f"readings are not whole numbers of shape {shape}", file=str(path), remedy="run the sweep again")
    return arrival, finish
