"""The robust estimator behind a fit: two coefficients >= 0, relative errors, soft-L1, many samples at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["SOFT_LIMIT", "relative_loss", "solve"]

FloatArray = npt.NDArray[np.float64]

#: Relative error beyond which a size counts linearly instead of quadratically.
SOFT_LIMIT = 0.05

_ITERATIONS = 60


def solve(steps: FloatArray, wire_bytes: FloatArray, time_us: FloatArray) -> FloatArray:
    """Fit ``time = steps * alpha + wire_bytes * beta`` with alpha, beta >= 0, for many samples of the times.

    It minimises the sum over sizes of ``2 (sqrt(1 + (r / 0.05)^2) - 1)``, r = the relative error (a convex function, so there is one
    minimum), by weighted least squares with the weights of the step before. Two coefficients with a bound at 0 have a closed form.

    Parameters
    ----------
    steps, wire_bytes : ndarray of float64, shape (s,)
        Per size.
    time_us : ndarray of float64, shape (n, s)
        One row per sample, > 0.

    Returns
    -------
    ndarray of float64, shape (n, 2)
        alpha in microseconds and beta in microseconds per byte.

    Examples
    --------
    >>> wire = np.array([0.0, 1e5, 1e6])
    >>> solve(np.full(3, 2.0), wire, (20.0 + wire / 1e3)[None]).round(6).tolist()
    [[10.0, 0.001]]
    """
    a, b = steps / time_us, wire_bytes / time_us
    scale = np.maximum(b.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)  # bytes and steps differ by many orders
    b = b / scale
    weights = np.ones_like(time_us)
    found = np.zeros((len(time_us), 2))
    for _ in range(_ITERATIONS):
        new = _bounded(a, b, weights)
        residual = new[:, :1] * a + new[:, 1:] * b - 1
        weights = 1 / np.sqrt(1 + (residual / SOFT_LIMIT) ** 2)
        done = bool(np.all(np.abs(new - found) <= 1e-12 * np.abs(new)))
        found = new
        if done:
            break
    return np.column_stack([found[:, 0], found[:, 1] / scale[:, 0]])


def _bounded(a: FloatArray, b: FloatArray, w: FloatArray) -> FloatArray:
    """Weighted least squares of ``x a + y b = 1`` with x, y >= 0."""
    aa, bb, ab = (w * a * a).sum(1), (w * b * b).sum(1), (w * a * b).sum(1)
    a1, b1 = (w * a).sum(1), (w * b).sum(1)
    determinant = aa * bb - ab * ab
    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
        only_x, only_y = np.where(aa > 0, a1 / aa, 0.0), np.where(bb > 0, b1 / bb, 0.0)
    inside = (determinant > 1e-12 * aa * bb) & (x >= 0) & (y >= 0)
    # on the edge, the better of the two single coefficients: the one that explains more
    first = a1 * only_x >= b1 * only_y
    return np.where(inside[:, None], np.column_stack([x, y]), np.column_stack([only_x * first, only_y * ~first]))


def relative_loss(predicted_us: FloatArray, time_us: FloatArray) -> FloatArray:
    """Return the loss that `solve` minimises, per size."""
    r = (predicted_us - time_us) / time_us
    out: FloatArray = 2 * (np.sqrt(1 + (r / SOFT_LIMIT) ** 2) - 1)
    return out
