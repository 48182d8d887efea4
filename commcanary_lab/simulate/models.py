"""Cost models: the service time of an event on a backend.

A cost model is any object with a `name` and a method ``service_us(prepared, backend, iteration, ablations)`` that returns float64
microseconds, shape (n,). Add one by putting it into `MODELS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import UsageError
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.prepare import Prepared

__all__ = ["CostModel", "get_model", "register_model"]


class CostModel(Protocol):
    """The one signature of a cost model."""

    @property
    def name(self) -> str:
        """Name under which the model is registered."""
        ...

    def service_us(self, prepared: Prepared, backend: Backend, iteration: int, ablations: frozenset[str]) -> npt.NDArray[np.float64]:
        """Return the service time of each event in microseconds, shape (n,), in trace order."""
        ...


_MODELS: dict[str, CostModel] = {}


def register_model(model: CostModel) -> CostModel:
    """Make a model available by its name."""
    _MODELS[model.name] = model
    return model


def get_model(model: str | CostModel) -> CostModel:
    """Return a model by name.

    Raises
    ------
    UsageError
        If there is no model of that name.
    """
    if not isinstance(model, str):
        return model
    _load_builtin()
    if model not in _MODELS:
        raise UsageError(f"unknown cost model {model!r}", remedy=f"known: {', '.join(sorted(_MODELS))}")
    return _MODELS[model]


def models() -> Mapping[str, CostModel]:
    """Return all registered models by name."""
    _load_builtin()
    return dict(_MODELS)


def _load_builtin() -> None:
    from commcanary_lab.simulate import alpha_beta, commcanary_v4  # noqa: F401  (each registers itself)
