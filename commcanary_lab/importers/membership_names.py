"""What names and ids of communicators say about their members."""

from __future__ import annotations

import math
from collections.abc import Sequence

from commcanary_lab.errors import InputError, LimitError
from commcanary_lab.layout import KINDS, Layout, kind_and_number
from commcanary_lab.trace.groups import ProcessGroup

__all__ = ["group_of_id", "layout_of_names"]

#: Hexadecimal digits that are left of an id that had one more.
_CUT = 15


def group_of_id(layout: Layout, identity: str, size: int) -> ProcessGroup | None:
    """Return the explicit group of a layout that has an id of a communicator as its name.

    Ids are hexadecimal. A source that cuts ids of 16 digits to 15 still matches, where only one group begins with them.

    Examples
    --------
    >>> layout = Layout(explicit={"0xa0": (0, 1), "0x123456789abcdef7": (2, 3)})
    >>> group_of_id(layout, "0x00A0", 2).members, group_of_id(layout, "0x123456789abcdef", 2).members
    ((0, 1), (2, 3))
    """
    own = _digits(identity)
    if own is None:
        return None
    found = {name: digits for name in layout.explicit if (digits := _digits(name)) is not None}
    exact = [name for name, digits in found.items() if digits == own]
    cut = [name for name, digits in found.items() if len(own) == _CUT and digits[:-1] == own and len(layout.explicit[name]) == size]
    names = exact or (cut if len(cut) == 1 else [])
    return ProcessGroup(names[0], layout.explicit[names[0]]) if names else None


def _digits(name: str) -> str | None:
    text = name.strip().lower()
    digits = text.removeprefix("0x")
    return (digits.lstrip("0") or "0") if digits != text and all(c in "0123456789abcdef" for c in digits) else None


def layout_of_names(communicators: Sequence[tuple[str | None, int]]) -> Layout | None:
    """Return the layout that names such as "TP Group 1" imply, in the default order; None where they do not say enough.

    The sizes of the kinds are those of their groups; the numbers of the groups must not need more ranks than the sizes make. Only where
    the groups are of the fastest-varying kinds, the others do not matter.

    Parameters
    ----------
    communicators : sequence of (str or None, int)
        Names and sizes.

    Examples
    --------
    >>> layout_of_names([("TP Group 0", 4), ("TP Group 1", 4), ("DP Group 3", 2)]).group_named("DP Group 3").members
    (3, 7)
    >>> layout_of_names([("DP Group 3", 2)]) is None, layout_of_names([("TP Group 1", 4)]).group_named("TP Group 1").members
    (True, (4, 5, 6, 7))
    """
    sizes: dict[str, int] = {}
    needed = 1
    for name, size in communicators:
        found = kind_and_number(name) if name is not None else None
        if found is None or sizes.setdefault(found[0], size) != size:
            return None
        needed = max(needed, (found[1] + 1) * size)
    spanned = math.prod(size for kind, size in sizes.items() if kind != "ep")
    if not sizes or (needed > spanned and not sizes.keys() <= {"tp", "cp"}) or ("cp" in sizes and "tp" not in sizes and needed > spanned):
        return None
    if needed > spanned:
        sizes["dp"] = -(-needed // spanned)
    try:
        tp, cp, ep, dp, pp = (sizes.get(kind, 1) for kind in KINDS)
        return Layout(tp=tp, cp=cp, ep=ep, dp=dp, pp=pp)
    except (InputError, LimitError):
        return None
