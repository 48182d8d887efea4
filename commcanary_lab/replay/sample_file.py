"""Raw samples of one rank: an Arrow stream that grows while the replay runs, and is readable when it was cut short."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import FormatError, InputError
from commcanary_lab.files import open_regular

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "SampleWriter", "read_samples", "sample_path"]

IntArray = npt.NDArray[np.int64]

#: Iteration (warm-up ones are negative), event of the program, and four looks at the rank's monotonic clock, in nanoseconds: when the
#: rank came to the event, when it started it (after the barrier, where there is one), when it was done, and when the compute beside it
#: was done (0 without).
COLUMNS = ("iteration", "event", "ready_ns", "start_ns", "finish_ns", "overlap_ns")

_ROWS = 2048
_FLUSH_S = 1.0


def sample_path(directory: Path, rank: int) -> Path:
    """Return where a rank's samples are."""
    return directory / f"rank-{rank:05d}.arrows"


class SampleWriter:
    """Writes samples of one rank; a batch goes to disk when it is full or a second old.

    Parameters
    ----------
    path : Path
        A new file.
    rank : int
        The rank, kept in the stream's metadata.
    """

    def __init__(self, path: Path, rank: int) -> None:
        import pyarrow as pa

        self._rows: list[tuple[int, ...]] = []
        self._next_s = time.monotonic() + _FLUSH_S
        self.schema = pa.schema([(name, pa.int64()) for name in COLUMNS], {"format": "commcanary.samples.v1", "rank": str(rank)})
        self._file: IO[bytes] = open(path, "xb")  # noqa: SIM115  (closed in close)
        self._stream = pa.ipc.new_stream(self._file, self.schema)

    def add(self, iteration: int, event: int, ready_ns: int, start_ns: int, finish_ns: int, overlap_ns: int) -> None:
        """Take one sample."""
        self._rows.append((iteration, event, ready_ns, start_ns, finish_ns, overlap_ns))
        if len(self._rows) >= _ROWS:
            self.flush()

    def breathe(self) -> None:
        """Write what there is when the last batch is old; called between iterations and events that are not timed."""
        if self._rows and time.monotonic() > self._next_s:
            self.flush()

    def flush(self) -> None:
        """Write what there is."""
        import pyarrow as pa

        if self._rows:
            columns = np.array(self._rows, np.int64).T
            arrays: list[pa.Array] = [pa.array(np.ascontiguousarray(c)) for c in columns]
            self._stream.write_batch(pa.record_batch(arrays, schema=self.schema))
            self._file.flush()
            self._rows.clear()
        self._next_s = time.monotonic() + _FLUSH_S

    def close(self) -> None:
        """Write the rest and end the stream."""
        self.flush()
        self._stream.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> SampleWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_samples(path: Path) -> tuple[dict[str, IntArray], bool]:
    """Return the samples of one rank, by column, and whether the stream was ended properly.

    Raises
    ------
    FormatError
        If it is no stream of samples.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rank-00000.arrows"
    >>> with SampleWriter(path, 0) as w:
    ...     w.add(0, 7, 100, 110, 150, 0)
    >>> samples, whole = read_samples(path)
    >>> samples["finish_ns"].tolist(), whole
    ([150], True)
    """
    import pyarrow as pa

    batches: list[Any] = []
    whole = False
    try:
        with open_regular(path) as file:
            stream = pa.ipc.open_stream(file)
            if tuple(stream.schema.names) != COLUMNS:
                raise FormatError(f"the columns are {', '.join(stream.schema.names)}", file=str(path), remedy="not a file of samples")
            if any(kind != pa.int64() for kind in stream.schema.types):
                raise FormatError("a column holds something else than whole numbers", file=str(path), remedy="not a file of samples")
            try:
                while True:
                    batches.append(stream.read_next_batch())
            except StopIteration:
                whole = True
            except (pa.ArrowException, OSError):  # the last batch is not complete
                whole = False
            # a stream that was not closed ends without its mark of 8 bytes
            file.seek(-8, os.SEEK_END)
            whole = whole and file.read() == b"\xff\xff\xff\xff\x00\x00\x00\x00"
    except FormatError:
        raise
    except InputError as error:
        raise FormatError(error.problems[0].what, file=str(path), remedy="not a file of samples") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"cannot be read: {error}", file=str(path), remedy="not a file of samples") from None
    columns = {}
    for i, name in enumerate(COLUMNS):
        if any(b.column(i).null_count for b in batches):
            raise FormatError("a sample is missing", file=str(path), field=name, remedy="the file is damaged")
        parts = [b.column(i).to_numpy() for b in batches]
        columns[name] = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return columns, whole
