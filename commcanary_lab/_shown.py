"""Results that Panel can lay out: ``pn.Row(trace, canary)``.

Panel asks an object for its `__panel__`. Figures are made by `views`, the layer above all results, which no result may import. So the
results know only that somebody can show them, and the package, which knows every layer, says who (`show_with`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from commcanary_lab.errors import UsageError

__all__ = ["Shown", "show_with"]

_maker: list[Callable[[object], Any]] = []


def show_with(maker: Callable[[object], Any]) -> None:
    """Say who makes the figure of a result; the last call counts."""
    _maker[:] = [maker]


class Shown:
    """A result that has a figure; a notebook without Panel shows its `_repr_html_`."""

    __slots__ = ()

    def __panel__(self) -> Any:
        """Return the figure of this result, for ``pn.panel(result)`` and everything that lays out with Panel.

        Raises
        ------
        UsageError
            If no layer that shows results is there.
        """
        if not _maker:
            raise UsageError(f"nothing shows a {type(self).__name__}", remedy="import commcanary_lab as a package")
        return _maker[0](self)
