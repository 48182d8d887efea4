"""Samples with known terms."""

from __future__ import annotations

import numpy as np

from commcanary_lab.replay.calibration.costs import Cost, cost_of
from commcanary_lab.replay.calibration.samples import SizeSamples

SIZES = tuple(1 << i for i in range(10, 24))


def samples(cost: Cost, alpha_us: float, bandwidth_gb_s: float, *, rounds: int = 1, noise: float = 0.0, common: float = 0.0,
            seed: int = 0, sizes: tuple[int, ...] = SIZES) -> SizeSamples:  # fmt: skip
    """Times of the model, times log-normal noise per call and per round."""
    rng = np.random.default_rng(seed)
    true = cost.steps * alpha_us + np.array([cost.wire_bytes(b) for b in sizes]) / bandwidth_gb_s / 1e3
    drawn = noise * rng.standard_normal((rounds, len(sizes))) + common * rng.standard_normal((rounds, 1))
    return SizeSamples(cost.op, cost.ranks, "float32", sizes, tuple((true * np.exp(drawn)).T), "a generator", "synthetic")


__all__ = ["SIZES", "cost_of", "samples"]
