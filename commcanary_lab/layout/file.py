"""Layout files (TOML)."""

from __future__ import annotations

import difflib
import os
from dataclasses import replace

from commcanary_lab.errors import InputError, LabError, Problem
from commcanary_lab.files import MAX_CONFIG_BYTES, parse_toml, read_file
from commcanary_lab.layout.model import DEFAULT_ORDER, KINDS, Layout

__all__ = ["parse_layout", "read_layout"]

_KEYS = (*KINDS, "gpus_per_node", "order", "groups")


def read_layout(path: str | os.PathLike[str]) -> Layout:
    """Read a layout file (TOML).

    Raises
    ------
    InputError
        If the file cannot be read, is not TOML, or contradicts itself; every problem is listed.
    """
    data = read_file(path, max_bytes=MAX_CONFIG_BYTES)
    if not data.strip():
        raise InputError("is empty", file=str(path), remedy="write sizes such as tp = 4, or [groups]")
    return parse_layout(data, str(path))


def parse_layout(text: str | bytes, file: str | None = None) -> Layout:
    """Parse the text of a layout file.

    Parameters
    ----------
    text : str or bytes
        TOML.
    file : str, optional
        Its name, for messages.

    Raises
    ------
    InputError
        As `read_layout`.

    Examples
    --------
    >>> parse_layout("tp = 4\\ndp = 2\\ngpus_per_node = 4").world_size
    8
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    table = parse_toml(data, file, "see the layout format: sizes tp, pp, cp, ep, dp, or [groups]")
    problems = [p for key, value in table.items() if (p := _check(key, value, file)) is not None]
    if problems:
        raise InputError(problems)
    order = tuple(table.get("order", DEFAULT_ORDER))
    order += tuple(kind for kind in KINDS if kind not in order and table.get(kind, 1) == 1)  # no matter where
    try:
        return Layout(
            **{k: table[k] for k in (*KINDS, "gpus_per_node") if k in table},
            order=order,
            explicit={name: tuple(members) for name, members in table.get("groups", {}).items()},
        )
    except LabError as e:
        raise type(e)([replace(p, file=file) for p in e.problems]) from None


def _check(key: str, value: object, file: str | None) -> Problem | None:
    """What is wrong with one key of the file."""
    if key not in _KEYS:
        near = difflib.get_close_matches(key, _KEYS, 1)
        return Problem("unknown key", file, field=key, remedy=f"did you mean {near[0]}?" if near else f"known are {', '.join(_KEYS)}")
    if key == "order" and not (isinstance(value, list) and all(isinstance(x, str) for x in value)):
        return Problem(f"{value!r} is not a list of kinds", file, field=key, remedy='write e.g. order = ["tp", "dp"]')
    if key == "groups" and not _is_groups(value):
        return Problem("not a table of rank lists", file, field=key, remedy='write e.g. "TP Group 0" = [0, 1, 2, 3]')
    if key in (*KINDS, "gpus_per_node") and (isinstance(value, bool) or not isinstance(value, int)):
        return Problem(f"{value!r} is not a whole number", file, field=key, remedy="give a whole number >= 1")
    return None


def _is_groups(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(members, list) and all(isinstance(r, int) and not isinstance(r, bool) for r in members) for members in value.values()
    )
