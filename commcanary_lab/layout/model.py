"""Parallelism layout: which global ranks form which communicator, and which node a rank is on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import InputError, LimitError, Problem, UsageError
from commcanary_lab.limits import DEFAULT
from commcanary_lab.trace.groups import ProcessGroup

__all__ = ["DEFAULT_ORDER", "KINDS", "Layout", "kind_and_number"]

KINDS = ("tp", "cp", "ep", "dp", "pp")
#: Fastest-varying first.
DEFAULT_ORDER = KINDS
#: Kinds that span the grid of ranks; ep divides cp x dp.
_AXES = ("tp", "cp", "dp", "pp")


@dataclass(frozen=True)
class Layout:
    """Sizes of the parallelism dimensions in their order, or explicit groups.

    The world has tp * cp * dp * pp ranks. Expert-parallel groups are sub-groups of the dp x cp ranks that share tp and pp: blocks of ep
    successive ones where ``ep`` stands before ``dp`` in the order, every (dp * cp / ep)-th one where it stands after.

    Parameters
    ----------
    tp, pp, cp, ep, dp : int
        Sizes; 1 means that there is no such group.
    order : tuple of str
        The kinds, fastest-varying first.
    gpus_per_node : int, optional
        Rank r is GPU ``r % gpus_per_node`` of node ``r // gpus_per_node``.
    explicit : mapping of str to tuple of int
        Groups by name; ``<KIND> Group <n>`` belongs to a kind.

    Examples
    --------
    >>> layout = Layout(tp=2, dp=2)
    >>> [(g.name, g.members) for g in layout.groups("dp")]
    [('DP Group 0', (0, 2)), ('DP Group 1', (1, 3))]
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    order: tuple[str, ...] = DEFAULT_ORDER
    gpus_per_node: int | None = None
    explicit: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = [*_size_problems(self), *_group_problems(self)]
        if problems:
            raise InputError(problems)
        object.__setattr__(self, "explicit", {name: tuple(sorted(members)) for name, members in self.explicit.items()})
        if self.sized_world > DEFAULT.max_ranks:
            raise LimitError(
                f"the sizes multiply to {self.sized_world} ranks, more than {DEFAULT.max_ranks}",
                remedy="raise it with COMMCANARY_LAB_MAX_RANKS",
            )

    @property
    def sized_world(self) -> int:
        """Ranks that the sizes span."""
        return self.tp * self.cp * self.dp * self.pp

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """All global ranks, ascending."""
        listed = {r for members in self.explicit.values() for r in members}
        return tuple(sorted(listed | set(range(self.sized_world if self.sized_world > 1 or not listed else 0))))

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @cached_property
    def _grid(self) -> npt.NDArray[np.int64]:
        """Ranks by (tp, cp, dp, pp) index."""
        axes = [kind for kind in self.order if kind != "ep"]
        sizes = [getattr(self, kind) for kind in axes]
        ranks = np.arange(self.sized_world).reshape(sizes[::-1]).transpose()  # fastest-varying first
        return ranks.transpose([axes.index(kind) for kind in _AXES])

    @cached_property
    def _by_kind(self) -> dict[str, tuple[ProcessGroup, ...]]:
        out = {kind: rows for kind in KINDS if (rows := self._derived(kind))}
        for name, members in self.explicit.items():
            out.setdefault(_kind_of(name) or "other", []).append(members)
        own = {members: name for name, members in self.explicit.items()}
        named = {
            kind: tuple(ProcessGroup(own.get(m, f"{kind.upper()} Group {i}"), m) for i, m in enumerate(sorted(out[kind])))
            for kind in KINDS
            if kind in out
        }
        other = tuple(ProcessGroup(name, m) for name, m in self.explicit.items() if _kind_of(name) is None)
        return {**named, "other": other} if other else named

    def _derived(self, kind: str) -> list[tuple[int, ...]]:
        """Members of the groups of a kind that follow from the sizes."""
        size = getattr(self, kind)
        if size == 1:
            return []
        if kind != "ep":
            return _rows(np.moveaxis(self._grid, _AXES.index(kind), -1).reshape(-1, size))
        shared = np.sort(self._grid.transpose(0, 3, 1, 2).reshape(self.tp * self.pp, self.cp * self.dp), axis=1)
        if self.order.index("ep") < self.order.index("dp"):
            return _rows(shared.reshape(-1, size))
        return _rows(shared.reshape(len(shared), size, -1).transpose(0, 2, 1).reshape(-1, size))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that have groups; ``other`` holds explicit groups of no kind."""
        return tuple(self._by_kind)

    def groups(self, kind: str) -> tuple[ProcessGroup, ...]:
        """Return the groups of a kind in ascending order of their ranks; empty where the size is 1.

        Raises
        ------
        UsageError
            If the kind is unknown.
        """
        if kind not in (*KINDS, "other"):
            raise UsageError(f"there is no kind of group {kind!r}", remedy=f"give one of: {', '.join((*KINDS, 'other'))}")
        return self._by_kind.get(kind, ())

    @property
    def all_groups(self) -> tuple[ProcessGroup, ...]:
        """The groups of every kind."""
        return tuple(g for groups in self._by_kind.values() for g in groups)

    def group_named(self, name: str) -> ProcessGroup | None:
        """Return the group that a communicator name stands for, or None.

        Examples
        --------
        >>> Layout(tp=2, dp=2).group_named("TP Group 1").members
        (2, 3)
        """
        if name in self.explicit:
            return ProcessGroup(name, self.explicit[name])
        kind, number = kind_and_number(name) or ("", 0)
        groups = self._by_kind.get(kind, ())
        return groups[number] if number < len(groups) else None

    def node_of(self, rank: int) -> int:
        """Return the node of a rank.

        Raises
        ------
        UsageError
            If the layout does not say how many GPUs a node has.
        """
        return rank // self._per_node()

    def rail_of(self, rank: int) -> int:
        """Return the rail of a rank: the index of its GPU in the node."""
        return rank % self._per_node()

    def _per_node(self) -> int:
        if self.gpus_per_node is None:
            raise UsageError("the layout does not say how many GPUs a node has", remedy="add gpus_per_node to it")
        return self.gpus_per_node

    def to_toml(self) -> str:
        """Return the layout as a layout file.

        Examples
        --------
        >>> print(Layout(tp=4, dp=2, gpus_per_node=4).to_toml(), end="")
        gpus_per_node = 4
        tp = 4
        dp = 2
        order = ["tp", "cp", "ep", "dp", "pp"]
        """
        lines = [] if self.gpus_per_node is None else [f"gpus_per_node = {self.gpus_per_node}"]
        sizes = [f"{kind} = {getattr(self, kind)}" for kind in ("tp", "pp", "cp", "ep", "dp") if getattr(self, kind) > 1]
        if sizes or not self.explicit:
            lines += [*sizes, "order = [" + ", ".join(f'"{kind}"' for kind in self.order) + "]"]
        if self.explicit:
            lines.append("[groups]")
            lines += [f"{_quoted(name)} = {list(members)}" for name, members in self.explicit.items()]
        return "\n".join(lines) + "\n"


def _size_problems(layout: Layout) -> list[Problem]:
    out = []
    for name in (*KINDS, "gpus_per_node"):
        value = getattr(layout, name)
        if value is not None and value < 1:
            out.append(Problem(f"{value} is not a size", field=name, remedy="give a whole number >= 1"))
    if sorted(layout.order) != sorted(KINDS):
        out.append(
            Problem(
                f"{list(layout.order)} does not name each of {', '.join(KINDS)} once",
                field="order",
                remedy="name them, fastest-varying first",
            )
        )
    if not out and layout.cp * layout.dp % layout.ep:
        out.append(
            Problem(
                f"ep groups are sub-groups of the dp x cp = {layout.dp * layout.cp} ranks, which {layout.ep} does not divide",
                field="ep",
                remedy="change ep, dp or cp, or list the ep groups under [groups]",
            )
        )
    return out


def _group_problems(layout: Layout) -> list[Problem]:
    out = []
    for name, members in layout.explicit.items():
        where, kind = f"groups.{name}", _kind_of(name)
        if not members:
            out.append(Problem("the group has no rank", field=where, remedy="list its global ranks"))
        elif len(set(members)) != len(members):
            out.append(Problem("a rank occurs more than once", field=where, remedy="list every rank once"))
        elif min(members) < 0:
            out.append(Problem(f"{min(members)} is not a rank", field=where, remedy="ranks are global and start at 0"))
        if kind and getattr(layout, kind) > 1:
            out.append(
                Problem(
                    f"{kind} groups follow from {kind} = {getattr(layout, kind)} already",
                    field=where,
                    remedy=f"give either {kind} or its groups",
                )
            )
    return out


def kind_and_number(name: str) -> tuple[str, int] | None:
    """Split the name of a group of a kind.

    Examples
    --------
    >>> kind_and_number("TP Group 12"), kind_and_number("world")
    (('tp', 12), None)
    """
    words = name.split()
    if len(words) != 3 or words[1] != "Group" or words[0].lower() not in KINDS or not (words[2].isascii() and words[2].isdigit()):
        return None
    return words[0].lower(), int(words[2][:18])


def _kind_of(name: str) -> str | None:
    found = kind_and_number(name)
    return None if found is None else found[0]


def _rows(ranks: npt.NDArray[np.int64]) -> list[tuple[int, ...]]:
    return [tuple(row) for row in np.sort(ranks, axis=1).tolist()]


def _quoted(name: str) -> str:
    """A TOML basic string: control characters and quotes escaped."""
    return '"' + "".join(f"\\u{ord(c):04x}" if c < " " or c in '\\"\x7f' else c for c in name) + '"'
