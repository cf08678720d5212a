"""Entropies of clusters: an upward pass in which every weight carries the entropy of what it is the sum of.

A number is ``log w + i H``: the logarithm of a weight, and the entropy of the configurations inside the cluster given
that they have this weight's state. Independent parts multiply, and their entropies add up. A sum over alternatives of
weights w_j has ``H = sum_j p_j (H_j - log p_j)``, ``p_j = w_j / sum w``. Every term is non-negative: nothing cancels,
whatever the size of the log-weights.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import Float64
from .arithmetic import LogSpace
from .problem import ForestProblem
from .values import ForestValues


class Entropic(LogSpace):
    """(log-weight, entropy) as the parts of a complex number."""

    zero, one = complex(-math.inf, 0.0), 0j  # type: ignore[assignment]

    def enter(self, log_values: Float64) -> Any:
        return np.asarray(log_values, complex)

    def log(self, values: Any) -> Float64:
        return np.asarray(values.real)

    def _combine(self, values: Any, axis: Any, keepdims: bool = False) -> Any:
        log_weight, entropy = values.real, values.imag
        top = log_weight.max(axis=axis, keepdims=True)
        below = log_weight - np.where(top == -math.inf, 0.0, top)
        weight = np.exp(below)
        spread = _times(weight, entropy - below).sum(axis=axis, keepdims=True)
        out = _number(top, weight.sum(axis=axis, keepdims=True), spread)
        return out if keepdims else np.squeeze(out, axis=axis)

    def _sum(self, terms: Any, count: int) -> Any:
        top = terms(0).real
        for i in range(1, count):
            top = np.maximum(top, terms(i).real)
        anchor = np.where(top == -math.inf, 0.0, top)
        total, spread = np.zeros_like(top), np.zeros_like(top)
        for i in range(count):
            term = terms(i)
            below = term.real - anchor
            weight = np.exp(below)
            total += weight
            spread += _times(weight, term.imag - below)
        return _number(top, total, spread)


def _times(weight: Float64, value: Float64) -> Float64:
    """0 where the weight is, also times infinity."""
    return np.where(weight > 0.0, weight * np.where(weight > 0.0, value, 0.0), 0.0)


def _number(top: Float64, total: Float64, spread: Float64) -> Any:
    """From sums in units of the largest weight: ``sum w`` and ``sum w (H - log w)``."""
    alive = total > 0.0
    log_total = np.log(np.where(alive, total, 1.0))
    out = np.empty(total.shape, complex)
    out.real = np.where(alive, top + log_total, -math.inf)
    out.imag = np.where(alive, spread / np.where(alive, total, 1.0) + log_total, 0.0)
    return out


def entropy_by_parts(problem: ForestProblem) -> Float64:
    """In nats, (B,), relatively accurate up to the rounding of the log-weights. Cost: one upward pass in logarithms."""
    arithmetic = Entropic()
    with np.errstate(all="ignore"):
        values = ForestValues(problem, arithmetic)
        values.upward()
    found = np.zeros(len(problem))
    for root in values.program.roots.tolist():
        for b in range(len(problem)):
            row = np.array([b * values.program.n_nodes + root])
            inside = values.up.get(row, 1, int(values.up.width[row[0]]))
            found[b] += arithmetic.total(inside.reshape(-1), 0).imag
    return found
