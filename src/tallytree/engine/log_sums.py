"""Sums of numbers that are given by their logarithms, and sums in which large numbers cancel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays import Float64

_ROUNDED = 2.0**-50  # of the sizes of all terms: what a sum in the usual order may lose
_FEW = 512  # terms that are quicker one by one


def accurate_sum(*parts: Float64) -> Float64:
    """Sums over the last axes of all parts; those in which large numbers cancel carry their rounding errors along."""
    total = np.asarray(sum((x.sum(-1) for x in parts[1:]), parts[0].sum(-1)))
    squares = sum(float(np.einsum("...i,...i->...", x, x).sum()) * x.shape[-1] for x in parts) * len(parts)
    if squares <= (1e-13 / _ROUNDED) ** 2:  # the usual case, kept short
        return total
    values = parts[0]
    if len(parts) > 1:
        values = np.concatenate([np.broadcast_to(x, (*total.shape, x.shape[-1])) for x in parts], axis=-1)
    size = np.asarray(np.abs(values).sum(-1))
    lost = (_ROUNDED * size > 1e-13 * (1.0 + np.abs(total))) & np.isfinite(size)
    for place in np.argwhere(lost).tolist():
        total[tuple(place)] = _sum_with_errors(values[tuple(place)])
    return total


def _sum_with_errors(x: Float64) -> float:
    """Halves added to each other until few are left, and the rounding errors of all these additions."""
    errors = 0.0
    while len(x) > _FEW:
        half = len(x) // 2
        a, b, rest = x[:half], x[half : 2 * half], x[2 * half :]
        total, lost = add_exactly(a, b)
        errors += float(lost.sum())
        x = np.concatenate([total, rest])
    return math.fsum([*x.tolist(), errors])


def add_exactly(x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """A sum and its rounding error, which is exact (Knuth, 1969); 0 where the sum is infinite."""
    with np.errstate(invalid="ignore"):
        total = x + y
        part = total - x
        error = (x - (total - part)) + (y - part)
    return total, np.where(np.isfinite(total), error, 0.0)


def anchor(log_values: Float64, axis: Any = -1) -> Float64:
    """The largest along the axes, which are kept; 0 where that is infinite or there is none."""
    top = log_values.max(axis=axis, keepdims=True, initial=-math.inf)
    return np.where(np.isfinite(top), top, 0.0)


def log_sum(log_values: Float64, axis: Any = -1, *, keepdims: bool = False) -> Float64:
    """``log sum exp`` along the axes; -inf for a sum of nothing."""
    top = anchor(log_values, axis)
    with np.errstate(divide="ignore"):
        out = top + np.log(np.exp(log_values - top).sum(axis=axis, keepdims=True))
    return np.asarray(out if keepdims else np.squeeze(out, axis=axis))


def softplus(x: Float64) -> Float64:
    """Return ``log(1 + exp(x))``."""
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))
