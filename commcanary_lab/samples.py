"""The bundled samples: synthetic traces and one recording of a real job.

They live in ``data/samples`` of a source checkout, each made by a script beside them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from commcanary_lab.errors import InputError
from commcanary_lab.trace.model import Trace

__all__ = ["adversarial", "directory", "gloo4", "tp8_decode"]


def directory() -> Path:
    """Return the directory of the samples.

    Raises
    ------
    InputError
        If this installation has none (they come with a source checkout).
    """
    path = Path(__file__).resolve().parents[1] / "data" / "samples"
    if not path.is_dir():
        raise InputError("the samples are not installed", file=str(path), remedy="use a source checkout, or open a trace of your own")
    return path


@cache
def _sample(name: str) -> Trace:
    from commcanary_lab.importers.open import open_trace

    return open_trace(directory() / name)


def adversarial() -> Trace:
    """Return a synthetic decode loop of 100 events whose rankings survive when its behaviour does not.

    Examples
    --------
    >>> len(adversarial())
    100
    """
    return _sample("adversarial.json")


def tp8_decode() -> Trace:
    """Return a synthetic decode loop with tensor parallelism over 8 ranks."""
    return _sample("tp8_decode.json")


def gloo4() -> Trace:
    """Return a recording of a real job: 4 ranks on Gloo, tensor parallel in pairs, data parallel across, one all-to-all phase."""
    return _sample("gloo4_shards")
