"""Open a trace in Parquet, as `trace.parquet.write_parquet` writes it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.parquet import MAGIC, read_parquet
from commcanary_lab.trace.parquet_meta import PARQUET_FORMAT as FORMAT

__all__ = ["FORMAT", "read", "recognise"]


def recognise(head: bytes) -> bool:
    """Tell by the magic bytes.

    Examples
    --------
    >>> recognise(b"PAR1...")
    True
    """
    return head.startswith(MAGIC)


def read(paths: Sequence[str | os.PathLike[str]], *, limits: Limits = DEFAULT) -> Trace:
    """Read one Parquet trace; see `trace.parquet.read_parquet`."""
    (path,) = paths
    return read_parquet(path, limits)
