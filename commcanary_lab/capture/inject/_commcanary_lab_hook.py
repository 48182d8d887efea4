"""Start the recorder when this process initialises torch.distributed. Standard library only until then.

`sitecustomize` imports this at the start of every Python process of a recorded job, so it must cost nothing where
torch.distributed is never used.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

__all__ = ["DIRECTORY_VARIABLE", "HOST_VARIABLE", "install_hook"]

#: Set to a directory, it makes every Python process that initialises torch.distributed record there.
DIRECTORY_VARIABLE = "COMMCANARY_LAB_CAPTURE"

#: Name to write in the shards instead of the host's name.
HOST_VARIABLE = "COMMCANARY_LAB_CAPTURE_HOST"

_TARGET = "torch.distributed"


def install_hook() -> None:
    """Start a recorder when this process initialises torch.distributed; at once if it already has."""
    if _TARGET in sys.modules:
        _watch()
    else:
        sys.meta_path.insert(0, _Finder())


def _watch() -> None:
    """Put a first call in front of ``init_process_group`` wherever torch has it by now, its own submodules included."""
    package = sys.modules[_TARGET]
    if not package.is_available():
        return
    if package.is_initialized():
        _start()
        return
    original = package.init_process_group
    places: list[ModuleType] = [m for name, m in list(sys.modules.items())
                                if name.startswith(_TARGET) and getattr(m, "init_process_group", None) is original]

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        for module in places:
            if getattr(module, "init_process_group", None) is init_process_group:
                module.init_process_group = original  # type: ignore[attr-defined]
        recorder = _start() if places else None
        places.clear()
        result = original(*args, **kwargs)
        if recorder is not None:
            recorder.ready()
        return result

    for module in places:
        module.init_process_group = init_process_group  # type: ignore[attr-defined]


def _start() -> Any:
    """Start and return the recorder; a failure is told on standard error and leaves the job alone."""
    try:
        from commcanary_lab.capture.recorder import Recorder

        recorder = Recorder(os.environ[DIRECTORY_VARIABLE], host=os.environ.get(HOST_VARIABLE))
        recorder.start()
    except Exception as error:
        print(f"commcanary_lab: not recording this process: {type(error).__name__}: {error}", file=sys.stderr)
        return None
    return recorder


class _Finder(importlib.abc.MetaPathFinder):
    """Find torch.distributed as the other finders would, and watch it once it has been executed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        """Return the module's own spec with a loader that calls back."""
        if name != _TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """A loader that calls back after its module; everything else is the wrapped loader's."""

    def __init__(self, inner: importlib.abc.Loader) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Create the module as the wrapped loader does."""
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module and put its own loader back; then watch."""
        self._inner.exec_module(module)
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        _watch()
