"""Read a preregistration; everything that is wrong with it is said at once."""

from __future__ import annotations

import os

from commcanary_lab.errors import InputError
from commcanary_lab.files import MAX_CONFIG_BYTES, parse_toml, read_file
from commcanary_lab.replay.campaign.checks import check
from commcanary_lab.replay.campaign.preregistration import Preregistration
from commcanary_lab.replay.campaign.strict import Complaints, convert

__all__ = ["parse_preregistration", "read_preregistration"]


def read_preregistration(path: str | os.PathLike[str]) -> Preregistration:
    """Read the preregistration of a campaign.

    Raises
    ------
    InputError
        With every problem: what is wrong, in which field, and what to do.
    """
    return parse_preregistration(read_file(path, max_bytes=MAX_CONFIG_BYTES), str(path))


def parse_preregistration(data: bytes, file: str) -> Preregistration:
    """Read the bytes of a preregistration; `file` is its name in messages. Raises like `read_preregistration`.

    Examples
    --------
    >>> parse_preregistration(b'format = "commcanary.campaign.v1"\\nquestion = "?"\\nrepetition = 4', "c.toml")
    Traceback (most recent call last):
    commcanary_lab.errors.InputError: c.toml: repetition: there is no such key; did you mean 'repetitions'?
    c.toml: name: is missing; write name = ...
    c.toml: programs: is missing; write programs = ...
    c.toml: configurations: is missing; write configurations = ...
    c.toml: repetitions: is missing; write repetitions = ...
    """
    document = parse_toml(data, file, "commcanary-lab campaign new writes an example")
    complaints = Complaints(file)
    asked = convert(document, Preregistration, complaints)
    if asked is not None:
        check(asked, complaints)
    if complaints.problems or asked is None:
        raise InputError(complaints.problems)
    return asked
