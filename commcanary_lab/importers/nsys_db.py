"""Read-only access to an nsys SQLite export: only plain tables, only typed values, bounded in time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from commcanary_lab.errors import FormatError
from commcanary_lab.files import open_regular
from commcanary_lab.limits import DEFAULT, Limits

__all__ = ["MAGIC", "Database", "database"]

MAGIC = b"SQLite format 3\0"

#: Steps of SQLite's machine between two looks at the budget, and the budget: far above what reading every row once takes.
_STEP, _STEPS_PER_BYTE, _FREE_STEPS = 1_000_000, 20, 400_000_000
_MAX_CELL_BYTES = 1 << 26


class Database:
    """An open export.

    Parameters
    ----------
    path : str
        The file, for messages.
    connection : sqlite3.Connection
        Read-only.
    """

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        rows = connection.execute("SELECT name, type, sql FROM sqlite_master").fetchall()
        self._tables = {
            _text(name) for name, kind, sql in rows if kind == b"table" and not _text(sql).lstrip().upper().startswith("CREATE VIRTUAL")
        }

    def has(self, table: str, *columns: str) -> bool:
        """Tell whether there is such a plain table (no view, nothing virtual) with these columns."""
        return table in self._tables and {*columns} <= self.columns(table)

    def columns(self, table: str) -> set[str]:
        """Names of a table's ordinary columns."""
        if table not in self._tables:
            return set()
        # computed columns run expressions of the file: hidden is not 0 for them
        return {_text(row[1]) for row in self._connection.execute(f"PRAGMA table_xinfo({_name(table)})") if row[6] == 0}

    def rows(self, table: str, columns: tuple[str, ...], where: str = "", values: tuple[int, ...] = ()) -> Iterator[tuple[object, ...]]:
        """Yield rows in the file's order; text comes as bytes, and columns that are not there as None.

        Raises
        ------
        FormatError
            If the file is damaged.
        """
        there = self.columns(table)
        listed = ", ".join(_name(c) if c in there else "NULL" for c in columns)
        condition = f" WHERE {where}" if where else ""
        yield from self._connection.execute(f"SELECT {listed} FROM {_name(table)}{condition}", values)

    def texts(self, like: str) -> dict[int, str]:
        """Texts of the string table that look like a pattern, by id."""
        query = "SELECT id, value FROM StringIds WHERE value LIKE ?"
        return {i: _text(v) for i, v in self._connection.execute(query, (like,)) if type(i) is int}


@contextmanager
def database(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> Iterator[Database]:
    """Open an export; nothing is ever written, and no lock or journal beside the file is made.

    Parameters
    ----------
    path : path-like
        The file.
    limits : Limits
        Resource limits.

    Raises
    ------
    FormatError
        If it is no SQLite database, is damaged, or asks for more time than reading it needs.
    InputError
        If it cannot be read.
    """
    file = str(path)
    with open_regular(path) as f:
        limits.check_file(path)
        head = f.read(len(MAGIC))
    if head != MAGIC:
        what = "the file is packed with gzip" if head.startswith(b"\x1f\x8b") else "the file is no SQLite database"
        raise FormatError(what, file=file, remedy="give the .sqlite file that `nsys export --type=sqlite` wrote, unpacked")
    left = [_FREE_STEPS + _STEPS_PER_BYTE * Path(path).stat().st_size]

    def spend() -> int:
        left[0] -= _STEP
        return left[0] < 0

    connection = None
    try:
        connection = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1", uri=True)
        connection.text_factory = bytes
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
        connection.set_progress_handler(spend, _STEP)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA cell_size_check = ON")
        yield Database(file, connection)
    except sqlite3.OperationalError as e:
        what = "reading it takes longer than its size explains" if left[0] < 0 else f"not readable: {e}"
        raise FormatError(what, file=file, remedy="export the report again") from None
    except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeDecodeError) as e:  # messages quote damaged names
        raise FormatError(f"not readable: {e}", file=file, remedy="export the report again") from None
    finally:
        if connection is not None:
            connection.close()


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
