"""Packages that are also verbs: ``lab.traffic(trace)`` calls, ``commcanary_lab.traffic.matrix`` is still a module.

The layers are named after what they do, and so are the functions of the public API. A package that is called hands the call to the
function named here.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["make_callable"]


class _CallablePackage(ModuleType):
    _target: tuple[str, str]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, name = self._target
        return getattr(import_module(module), name)(*args, **kwargs)


def make_callable(package: str, module: str, function: str) -> None:
    """Let ``package(...)`` call ``module.function(...)``; the module is imported at the first call."""
    this = sys.modules[package]
    this.__class__ = _CallablePackage
    this._target = (module, function)  # type: ignore[attr-defined]
    this.__doc__ = f"{this.__doc__}\n\nCalling the package calls `{module}.{function}`.\n"
