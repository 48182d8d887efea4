"""Which global rank each file of a job belongs to: as asked, as its content says, or as its name says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from commcanary_lab.errors import FormatError, UsageError

__all__ = ["Claim", "asked_rank", "rank_in_name", "ranks_of"]

_MAX_RANK = 1 << 31
_SUFFIX = re.compile(r"(?:\.(?:json|gz|pkl|pickle|et|jsonl|txt|sqlite|chakra))+$", re.IGNORECASE)
_NAMED = re.compile(r"rank[-_ .]?(\d{1,9})(?!\d)(?!.*rank[-_ .]?\d)", re.IGNORECASE)
_TRAILING = re.compile(r"(?:^|[-_. ])(\d{1,9})$")


@dataclass(frozen=True)
class Claim:
    """What speaks for a file's rank.

    Parameters
    ----------
    path : path-like
        The file, as the user named it.
    stated : int, optional
        What its content says.
    named : int, optional
        What its name says; used where the content says nothing.
    why_not : str
        Why the content says nothing, for messages.
    """

    path: str | os.PathLike[str]
    stated: int | None = None
    named: int | None = None
    why_not: str = "the file does not say which rank wrote it"


def asked_rank(path: str | os.PathLike[str], given: Mapping[str, int] | None) -> int | None:
    """Return the rank that the user gives a file, by its path as given or its file name.

    Raises
    ------
    UsageError
        If it is negative.

    Examples
    --------
    >>> asked_rank("run/a.json", {"a.json": 3}), asked_rank("run/a.json", None)
    (3, None)
    """
    rank = None if given is None else given.get(str(path), given.get(Path(path).name))
    if rank is not None and rank < 0:
        raise UsageError(f"rank {rank} is negative", file=str(path))
    return rank


def rank_in_name(path: str | os.PathLike[str], *, trailing_first: bool = False) -> int | None:
    """Return the rank in a file's name: ``rank3``, ``rank_3``, or a number at the end of the name.

    Parameters
    ----------
    path : path-like
        The file.
    trailing_first : bool
        Prefer the number at the end, where host names stand before it.

    Examples
    --------
    >>> [rank_in_name(n) for n in ("run_rank3_et.json.gz", "all_gather.2.et", "7.json", "trace.json")]
    [3, 2, 7, None]
    >>> rank_in_name("nccl_trace_rank_10-0-0-1_5", trailing_first=True)
    5
    """
    stem = _SUFFIX.sub("", Path(path).name)
    patterns = (_TRAILING, _NAMED) if trailing_first else (_NAMED, _TRAILING)
    found = next((m for p in patterns if (m := p.search(stem)) is not None), None)
    return None if found is None or int(found.group(1)) >= _MAX_RANK else int(found.group(1))


def ranks_of(claims: Sequence[Claim], given: Mapping[str, int] | None) -> tuple[list[int], list[str]]:
    """Return the rank of each file, and warnings.

    Parameters
    ----------
    claims : sequence of Claim
        One per file.
    given : mapping of str to int, optional
        Ranks as asked, by path as given or by file name; they come before everything else.

    Raises
    ------
    FormatError
        If one of several files has no rank. A single file without one is rank 0, with a warning.
    UsageError
        If an asked rank is negative.

    Examples
    --------
    >>> ranks_of([Claim("a.json", stated=1), Claim("b.0.json", named=0)], {"a.json": 3})
    ([3, 0], ['a.json: its content says rank 1; read as rank 3, as asked'])
    """
    ranks, warnings = [], []
    for claim in claims:
        name = Path(claim.path).name
        rank = asked_rank(claim.path, given)
        if rank is not None:
            if claim.stated not in (None, rank):
                warnings.append(f"{name}: its content says rank {claim.stated}; read as rank {rank}, as asked")
        elif claim.stated is not None:
            rank = claim.stated
            if claim.named not in (None, rank) and len(claims) > 1:
                warnings.append(f"{name}: the name says rank {claim.named}, the content rank {rank}; the content is used")
        elif claim.named is not None:
            rank = claim.named
        elif len(claims) == 1:
            rank = 0
            warnings.append(f"{name}: {claim.why_not}: taken as rank 0 (give the rank of the file if it is another)")
        else:
            remedy = f"give the rank by hand: ranks={{{name!r}: N}}"
            raise FormatError(claim.why_not, file=str(claim.path), remedy=remedy)
        ranks.append(rank)
    return ranks, warnings
