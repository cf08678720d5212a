"""Sums of numbers that are given by their logarithms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays import Float64


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
