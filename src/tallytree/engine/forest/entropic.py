"""Entropies of clusters: an upward pass in which every weight carries the entropy of what it is the sum of.

A number is ``log w + i H``: the logarithm of a weight, and the entropy of the configurations inside the cluster given
that they have this weight's state. Independent parts multiply, and their entropies add up. A sum over alternatives of
weights w_j has ``H = sum_j p_j (H_j - log p_j)``, ``p_j = w_j / sum w``. Every term is non-negative: nothing cancels,
whatever the size of the log-weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import Float64
from ..problem import ForestProblem
from .arithmetic import Carried
from .values import ForestValues


class Entropic(Carried):
    """(log-weight, entropy): the entropy of an alternative joins the surprise that it was this one."""

    def moment(self, weight: Float64, below: Float64, carried: Float64) -> Float64:
        alive = weight > 0.0  # 0 where the weight is, also times infinity
        return np.where(alive, weight * np.where(alive, carried - below, 0.0), 0.0)

    def number(self, top: Float64, total: Float64, moment: Float64) -> Any:
        out = super().number(top, total, moment)
        out.imag += np.log(np.where(total > 0.0, total, 1.0))
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
