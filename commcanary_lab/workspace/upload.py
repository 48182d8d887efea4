"""Names and limits of what is added to a workspace."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from commcanary_lab.errors import LimitError, UsageError
from commcanary_lab.units import format_bytes

__all__ = ["MAX_FILES", "MAX_UPLOAD_BYTES", "check_size", "common_name", "numbered", "safe_name"]

#: Largest upload; larger files are copied into the folder by hand.
MAX_UPLOAD_BYTES = 512 << 20

#: Files in one upload; a job with more ranks is copied into the folder by hand.
MAX_FILES = 256

_MAX_NAME = 120
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"|?*]')
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def safe_name(name: str) -> str:
    """Check the name of a new artifact.

    Raises
    ------
    UsageError
        If it could leave the folder, hide, or be no file name on some system.

    Examples
    --------
    >>> safe_name("rank 0.json")
    'rank 0.json'
    >>> safe_name("../rank0.json")
    Traceback (most recent call last):
    commcanary_lab.errors.UsageError: '../rank0.json' is not a plain file name; rename the file
    """
    text = unicodedata.normalize("NFC", name).strip()
    invisible = any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") for c in text)
    if not text or text.startswith(".") or text.endswith(".") or "/" in text or "\\" in text or invisible:
        raise UsageError(f"{name!r} is not a plain file name", remedy="rename the file")
    if _FORBIDDEN.search(text) or _RESERVED.fullmatch(text):
        raise UsageError(f"{name!r} is not a file name on every system", remedy="rename the file: letters, digits, dots, dashes")
    if len(text.encode("utf-8")) > _MAX_NAME:
        raise UsageError(f"the file name has {len(text.encode('utf-8'))} bytes, more than {_MAX_NAME}", remedy="rename the file")
    return text


def check_size(name: str, size_bytes: int, limit_bytes: int = MAX_UPLOAD_BYTES) -> None:
    """Refuse uploads above the limit.

    Raises
    ------
    LimitError
        With the way around it.
    """
    if size_bytes > limit_bytes:
        raise LimitError(
            f"{format_bytes(size_bytes)} exceed the upload limit of {format_bytes(limit_bytes)}",
            file=name,
            remedy="copy the file into the workspace folder instead",
        )


def numbered(name: str, number: int) -> str:
    """Return a name with a number before its suffixes.

    Examples
    --------
    >>> numbered("decode.canary.json", 2)
    'decode-2.canary.json'
    """
    stem, dot, suffixes = name.partition(".")
    return f"{stem}-{number}{dot}{suffixes}"


def common_name(names: Sequence[str]) -> str:
    """Return a name for a folder of files: what their names have in common, without what tells the ranks apart.

    Examples
    --------
    >>> common_name(["job.rank0.json", "job.rank1.json"]), common_name(["a.pt", "b.pt"])
    ('job', 'ranks-2')
    >>> common_name([f"decode-rank{i}.json" for i in range(8)])
    'decode'
    """
    first, last = min(names), max(names)
    shared = first[: next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))]
    words = re.sub(r"(?i)[\W_]*(rank|host|node|pid|worker)?[\W_\d]*$", "", shared).strip("-_. ")
    try:
        return safe_name(words) if len(words) > 2 else f"ranks-{len(names)}"
    except UsageError:
        return f"ranks-{len(names)}"
