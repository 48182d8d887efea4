"""What a lab fabric is: a short TOML file says which rank hangs on which link, and how fast the links are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from commcanary_lab.errors import InputError, Problem
from commcanary_lab.files import read_toml

__all__ = ["FABRIC_FILE", "FabricSpec", "fabric_from", "read_fabric"]

#: Where the directory of a replay says on which fabric it ran.
FABRIC_FILE = "fabric.json"

#: Below this a message of 64 KiB takes five seconds; above it the two cores of a small machine are the limit, not the link.
RATE_MBIT = (0.1, 10_000.0)
#: Below 576 bytes IPv4 need not work; 9000 are jumbo frames.
MTU = (576, 9000)


class FabricSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Links between the ranks of one host, shaped in both directions.

    Without `ranks_per_node` every rank has a link of `rate_mbit` to one switch. With it, ranks 0 to g - 1 hang on the switch of node 0,
    the next g on that of node 1, and so on; every node has one uplink of `across_mbit`, which its ranks share.

    Parameters
    ----------
    name : str
        What it is called in results.
    rate_mbit : float
        Rate of each rank's link, Mbit/s (1e6), each way.
    ranks_per_node : int, optional
        g.
    across_mbit : float, optional
        Rate of each node's uplink, Mbit/s, each way.
    mtu : int
        Largest packet, bytes.
    format : str
        Name and version of this document.

    Raises
    ------
    InputError
        If a figure is out of range, or only one of `ranks_per_node` and `across_mbit` is given.

    Examples
    --------
    >>> FabricSpec("pairs", 400, ranks_per_node=2, across_mbit=50).nodes(4)
    ((0, 1), (2, 3))
    >>> FabricSpec("flat", 100).nodes(3)
    ((0, 1, 2),)
    """

    name: str
    rate_mbit: float
    ranks_per_node: int | None = None
    across_mbit: float | None = None
    mtu: int = 1500
    format: Literal["commcanary.fabric.v1"] = "commcanary.fabric.v1"

    def __post_init__(self) -> None:
        problems = [p for p in (_rate("rate_mbit", self.rate_mbit), _rate("across_mbit", self.across_mbit)) if p is not None]
        if not MTU[0] <= self.mtu <= MTU[1]:
            problems.append(Problem(f"mtu is {self.mtu}", field="mtu", remedy=f"give {MTU[0]} to {MTU[1]} bytes"))
        if self.ranks_per_node is not None and self.ranks_per_node < 1:
            problems.append(Problem(f"ranks_per_node is {self.ranks_per_node}", field="ranks_per_node", remedy="give 1 or more"))
        if (self.ranks_per_node is None) != (self.across_mbit is None):
            what = "ranks_per_node and across_mbit belong together"
            problems.append(Problem(what, field="across_mbit", remedy="give both, or neither for one switch"))
        if problems:
            raise InputError(problems)

    def nodes(self, ranks: int) -> tuple[tuple[int, ...], ...]:
        """Return the ranks on each switch."""
        width = self.ranks_per_node or max(1, ranks)
        return tuple(tuple(range(first, min(first + width, ranks))) for first in range(0, ranks, width))

    @property
    def text(self) -> str:
        """The links in words.

        Examples
        --------
        >>> FabricSpec("pairs", 400, ranks_per_node=2, across_mbit=50).text
        '400 Mbit/s per rank inside nodes of 2, 50 Mbit/s between nodes'
        """
        if self.across_mbit is None:
            return f"{self.rate_mbit:g} Mbit/s per rank on one switch"
        return f"{self.rate_mbit:g} Mbit/s per rank inside nodes of {self.ranks_per_node}, {self.across_mbit:g} Mbit/s between nodes"


def _rate(field: str, value: float | None) -> Problem | None:
    if value is None or RATE_MBIT[0] <= value <= RATE_MBIT[1]:
        return None
    return Problem(f"{field} is {value}", field=field, remedy=f"give {RATE_MBIT[0]:g} to {RATE_MBIT[1]:g} Mbit/s")


def read_fabric(path: str | os.PathLike[str]) -> FabricSpec:
    """Read a fabric from a TOML file; without a name in it, it is called like the file.

    Raises
    ------
    InputError
        If the file cannot be read, is not TOML, or says something impossible.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "pairs.toml"
    >>> _ = path.write_text("rate_mbit = 400\\nranks_per_node = 2\\nacross_mbit = 50\\n")
    >>> read_fabric(path).name
    'pairs'
    """
    file = os.fspath(path)
    document = read_toml(path, "write for example rate_mbit = 100")
    try:
        return fabric_from(document, Path(path).stem)
    except InputError as error:
        raise InputError([_in_file(p, file) for p in error.problems]) from None


def fabric_from(table: Mapping[str, object], name: str = "fabric") -> FabricSpec:
    """Return the fabric that a table describes; without a name in it, it is called `name`.

    Raises
    ------
    InputError
        If the table says something impossible.

    Examples
    --------
    >>> fabric_from({"rate_mbit": 100}).text
    '100 Mbit/s per rank on one switch'
    """
    for field in ("latency_us", "delay_us"):
        if field in table:
            what = "latency cannot be set: links are shaped by a token bucket, which limits rates only"
            raise InputError(what, field=field, remedy="leave it out")
    try:
        return msgspec.convert({"name": name, **table}, FabricSpec, strict=True)
    except msgspec.ValidationError as error:
        # what __post_init__ raises comes wrapped
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from None
        remedy = f"known: {', '.join(f.name for f in msgspec.structs.fields(FabricSpec))}"
        raise InputError(str(error), remedy=remedy) from None


def _in_file(problem: Problem, file: str) -> Problem:
    """Add the file that has the problem."""
    return Problem(problem.what, file=file, field=problem.field, remedy=problem.remedy)
