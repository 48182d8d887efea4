"""The optional plotting stack, imported where a figure is made."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from commcanary_lab.errors import MissingExtraError

__all__ = ["holoviews", "material", "panel"]


def _need(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise MissingExtraError(
            f"figures need {e.name or name}, which is not installed", remedy="pip install 'commcanary-lab[workbench]'"
        ) from None


@cache
def panel() -> ModuleType:
    """Return Panel, with its extensions loaded once."""
    module = _need("panel")
    _need("panel_material_ui")
    module.extension("tabulator", inline=module.config.inline)
    return module


@cache
def material() -> ModuleType:
    """Return panel-material-ui."""
    panel()
    return _need("panel_material_ui")


@cache
def holoviews() -> ModuleType:
    """Return HoloViews with its Bokeh backend."""
    panel()
    module = _need("holoviews")
    _need("holoviews.plotting.bokeh")
    module.Store.set_current_backend("bokeh")
    return module
