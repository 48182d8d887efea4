"""Python imports this module at its start: switch the recorder on, then run the sitecustomize that this one hides."""

from __future__ import annotations

import os
import sys


def _record() -> None:
    if not os.environ.get("COMMCANARY_LAB_CAPTURE"):
        return
    import _commcanary_lab_hook  # type: ignore[import-not-found]  # beside this file

    _commcanary_lab_hook.install_hook()


def _run_hidden() -> None:
    """Load the next sitecustomize on the path under its own name."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":  # as Python's start imports it, not as a submodule
    _record()
    _run_hidden()
