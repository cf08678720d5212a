"""Anderson acceleration of a fixed-point iteration ``x <- g(x)`` (Anderson 1965; Walker and Ni 2011).

From the last few steps ``f = g(x) - x``, the combination with the smallest norm is extrapolated. The fixed
points are those of ``g``; modes that plain iteration damps slowly, such as a common shift of all rows against
all columns, go first. Steps that stay the same point to a fixed point at infinity, where nothing can be combined;
such messages are carried on along the step.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from ..arrays import Float64

# Steps that do not shrink, as of messages that run away, extrapolate to any number, and if they grow to one far behind.
# Beyond the first limit sums of messages would lose the digits that others need; the second is in steps.
_FARTHEST, _BACK = 1e7, 30.0
# A cycle of hard constraints, such as a permanent of order two, adds the same step in every sweep: the difference of
# its two weights, which may be small. One jump takes log-odds from nothing to where they are decided and no further,
# over no more sweeps than for which the last difference of two steps leaves half of the step.
_SAME, _DECIDED, _ULPS = 1e-3, 64.0, 64.0
_WORSE = 2.0  # a step this much larger than the best so far discards the history
_FEW = 4096


class Anderson:
    """History of the last ``memory`` steps."""

    def __init__(self, memory: int) -> None:
        self._steps: deque[tuple[Float64, Float64]] = deque(maxlen=memory)  # differences of f and of g(x)
        self._gram = np.empty((0, 0))
        self._last: tuple[Float64, Float64] | None = None
        self._best = math.inf

    def advance(self, x: Float64, image: Float64) -> None:
        """Replace ``image = g(x)`` by the extrapolated point, in place."""
        f = _difference(image, x)
        norm = float(np.abs(f).max(initial=0.0))
        if not math.isfinite(norm):  # hard constraints are still deciding variables
            self._forget()
            return
        if norm > _WORSE * self._best:
            self._forget()
            self._best = norm
            self._last = (f, image.copy())
            return
        self._best = min(self._best, norm)
        if self._last is not None:
            self._remember(f - self._last[0], _difference(image, self._last[1]))
        self._last = (f, image.copy())
        if self._steps:
            gram = self._gram
            target = np.array([_dot(a, f) for a, _ in self._steps])
            scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
            weights = np.linalg.lstsq(gram / np.outer(scale, scale), target / scale, rcond=1e-10)[0] / scale
            jump = np.zeros_like(image)
            for w, (_, difference) in zip(weights, self._steps):
                jump -= w * difference
            length = float(np.abs(jump).max(initial=0.0))
            if length <= (
                _FARTHEST if _dot(jump, f) >= 0.0 else min(_FARTHEST, _BACK * norm)
            ):  # false for NaN too
                image += jump
            else:
                image += _runaway(self._steps[-1][0], norm, float(np.abs(image).max())) * f
                self._forget()

    def _remember(self, df: Float64, dg: Float64) -> None:
        keep = len(self._steps) == self._steps.maxlen
        old = self._gram[1:, 1:] if keep else self._gram
        self._steps.append((df, dg))
        new = np.array([_dot(df, a) for a, _ in self._steps])
        self._gram = np.empty((len(new), len(new)))
        self._gram[:-1, :-1] = old
        self._gram[-1, :] = self._gram[:, -1] = new

    def _forget(self) -> None:
        self._steps.clear()
        self._gram = np.empty((0, 0))
        self._last = None
        self._best = math.inf


def _runaway(difference: Float64, norm: float, size: float) -> float:
    """For how many more sweeps messages of the given size will take the same step; 0 if they are not known to."""
    change = float(np.abs(difference).max())
    if norm == 0.0 or change > _SAME * norm:
        return 0.0
    lasting = math.inf if change <= _ULPS * np.spacing(size) else 0.5 * norm / change
    return min(_DECIDED / norm, lasting)


def _difference(a: Float64, b: Float64) -> Float64:
    """``a - b``, zero where both are the same infinity."""
    with np.errstate(invalid="ignore"):
        out = a - b
    return np.where(a == b, 0.0, out)


def _dot(a: Float64, b: Float64) -> float:
    # Beyond a few thousand numbers a BLAS would start threads, which costs more than the product; einsum does not.
    return float(np.dot(a, b) if len(a) <= _FEW else np.einsum("i,i->", a, b))
