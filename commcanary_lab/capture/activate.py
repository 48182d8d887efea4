"""Switch the recorder on from outside, through the environment, without a change to the job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from commcanary_lab.capture.inject._commcanary_lab_hook import DIRECTORY_VARIABLE, HOST_VARIABLE

__all__ = ["DIRECTORY_VARIABLE", "HOST_VARIABLE", "environment"]


def environment(out: str | os.PathLike[str], base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which Python processes record themselves.

    For launchers that `launch` does not start, such as ``srun``: a job started with this environment writes its shards
    to `out`. A ``sitecustomize`` module is put in front of ``PYTHONPATH``; one that exists already still runs.

    Parameters
    ----------
    out : path-like
        Directory of the shards.
    base : mapping of str to str, optional
        The environment to extend; that of this process by default.

    Examples
    --------
    >>> env = environment("run", base={"PYTHONPATH": "lib"})
    >>> env["COMMCANARY_LAB_CAPTURE"].endswith("run"), env["PYTHONPATH"].endswith("inject" + os.pathsep + "lib")
    (True, True)
    """
    env = dict(os.environ if base is None else base)
    env[DIRECTORY_VARIABLE] = os.path.abspath(out)
    inject = str(Path(__file__).resolve().parent / "inject")
    rest = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p and p != inject]
    env["PYTHONPATH"] = os.pathsep.join([inject, *rest])
    return env
