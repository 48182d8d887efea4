"""What the pages of a pair and of a series share: buttons that take the result along, and errors in the words of the workbench."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from commcanary_lab.views.tables import download

__all__ = ["in_the_workbench", "take_along"]


def take_along(content: Callable[[], str], filename: str, label: str, width: int, *, strong: bool = False) -> Any:
    """Return a button that downloads a result; `strong` for the one that most people want."""
    out = download(content, filename, label)
    variant = "contained" if strong else "outlined"
    out.param.update(variant=variant, width=width, margin=(0, 8, 0, 0), align="center", disable_elevation=True, description=None)
    return out


def in_the_workbench(text: str) -> str:
    """Errors speak of the command line; here the same is a switch.

    Examples
    --------
    >>> in_the_workbench("they differ; allow it with --allow-incompatible, or simulate both alike")
    'they differ; simulate both alike, or allow it at the left'
    """
    text = text.replace("allow it with --allow-incompatible, or simulate both alike", "simulate both alike, or allow it at the left")
    return re.sub(r"assume values with --assume [^;]*; ", "switch on the assumption at the left; ", text)
