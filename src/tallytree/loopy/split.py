"""A model split over classes of disjoint factors: each class is a product of independent models and is solved exactly.

With ``sum_k x_k = theta`` and weights ``w_k > 0``,

    value = sum_k w_k log Z_k(x_k / w_k, f^(1 / w_k)),      d value / d x_k = marginals of class k.

Weights that add to one give Hoelder's upper bound of log Z; equal small weights give a smooth version of the
dual of MAP.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..arrays import Float64, Ints
from ..engine import far
from ..engine.maximize import block
from ..models.count import CountModel
from ..models.factor_graph import FactorGraph
from .layout import Layout, Phase, layout
from .messages import best_counts, joint_of_pairs, sum_product

Objective = Callable[[Float64], tuple[float, Float64]]  # value and gradient
Bounds = list[tuple[float, float]]

_ROUNDING = 2.0**-49  # of a share, by all sums that it enters


@dataclass(frozen=True, eq=False)
class Split:
    """The classes of a graph. ``free`` are the variables with finite log-odds; only those are split."""

    graph: FactorGraph
    structure: Layout
    free: Ints

    @property
    def n_classes(self) -> int:
        return max(1, len(self.structure.phases))

    @property
    def theta(self) -> Float64:
        return self.structure.theta[self.free]

    def spread(self, weights: Float64) -> Float64:
        """Log-odds of all classes but the last, (K - 1, free), in proportion to the weights."""
        return np.outer(weights[:-1] / weights.sum(), self.theta)

    def shares(self, x: Float64) -> Float64:
        """Log-odds of all classes, (K, D)."""
        part = x.reshape(self.n_classes - 1, len(self.free))
        full = np.repeat(self.structure.theta[None], self.n_classes, axis=0)
        full[:-1, self.free] = part
        full[-1, self.free] = self.theta - part.sum(0)
        return full

    def limits(self, x: Float64, least_weight: float) -> Bounds:
        """Bounds on the shares, for a search that starts at x: beyond them log-odds count as infinite.

        A line search where the value is linear tries ever larger steps, up to shares that stand for hard decisions,
        which may contradict one another.
        """
        largest = 0.25 * far.FAR * least_weight / self.n_classes
        return [(-size, size) for size in np.maximum(np.abs(x), largest).tolist()]

    def rounding(self, x: Float64) -> float:
        """What rounding may take from a bound at x: shares cancel, and each enters a few sums of its own size."""
        return _ROUNDING * float(np.abs(self.shares(x)[:, self.free]).sum())

    def value(self, x: Float64, weights: Float64) -> tuple[float, Float64, Float64]:
        """The bound, its gradient in x (K - 1, free), and the marginals of the classes (K, D)."""
        log_z, marginals = self.solutions(x, weights)
        return self.combined(log_z, weights), self.gradient(marginals), marginals

    def solutions(self, x: Float64, weights: Float64) -> tuple[Float64, Float64]:
        """The log Z (K,) and the marginals (K, D) of the classes."""
        shares = self.shares(x)
        log_z, marginals = np.empty(len(shares)), np.empty_like(shares)
        for k, weight in enumerate(weights):
            log_z[k], marginals[k] = self.solve(k, shares[k] / weight, 1.0 / weight)
        return log_z, marginals

    def combined(self, log_z: Float64, weights: Float64) -> float:
        """The bound from the log Z of the classes."""
        return self.structure.constant + float(np.sum(weights * log_z))

    def gradient(self, marginals: Float64) -> Float64:
        """Of the bound in x, (K - 1, free)."""
        return np.asarray((marginals[:-1] - marginals[-1])[:, self.free])

    def solve(self, k: int, logits: Float64, power: float) -> tuple[float, Float64]:
        """The log Z and marginals (D,) of one class with its factors raised to a power."""
        covered = np.zeros(len(logits), bool)
        odds = logits.copy()
        total = 0.0
        for batch, at in self._parts(k):
            log_z, messages = sum_product(batch.tempered(power), logits[at])
            total += float(log_z.sum())
            covered[at] = True
            odds[at] = np.where(np.isinf(logits[at]), logits[at], logits[at] + messages)
        loose = ~covered & np.isfinite(logits)
        total += float(np.logaddexp(0.0, logits[loose]).sum())
        return total, np.asarray(expit(odds))

    def entropy(
        self, k: int, logits: Float64, power: float, known: tuple[float, Float64] | None = None
    ) -> float:
        """Entropy of one class: log Z minus the expected log-weight; what `solve` said may be known."""
        log_z, marginals = self.solve(k, logits, power) if known is None else known
        finite = np.isfinite(logits)
        total = log_z - float(np.dot(logits[finite], marginals[finite]))
        for batch, at in self._parts(k):
            tempered = batch.tempered(power)
            if batch.kind == "count" and np.isin(batch.tables, (0.0, -math.inf)).all():
                continue  # log f is zero wherever f is not
            total -= _expected_log_factor(tempered, logits[at])
        return total

    def maximum(self, x: Float64) -> tuple[float, NDArray[np.bool_]]:
        """Sum of the maxima of the classes, an upper bound of the best log-weight, and their maximisers (K, D)."""
        shares = self.shares(x)
        total = self.structure.constant
        best = shares > 0.0
        for k in range(self.n_classes):
            covered = np.zeros(shares.shape[1], bool)
            for batch, at in self._parts(k):
                value, y = _maximise(batch, shares[k][at])
                total += float(value.sum())
                best[k, at] = y
                covered[at] = True
            loose = ~covered & np.isfinite(shares[k])
            total += float(np.maximum(shares[k][loose], 0.0).sum())
        return total, best

    def _parts(self, k: int) -> list[tuple[Any, Ints]]:
        if not self.structure.phases:
            return []
        phase: Phase = self.structure.phases[k]
        return [(batch, self.structure.variable[batch.start : batch.stop]) for batch in phase.batches]


def split(graph: FactorGraph) -> Split:
    """Classes of disjoint factors."""
    structure = layout(graph)
    return Split(graph, structure, np.flatnonzero(np.isfinite(structure.theta)))


def descend(
    objective: Objective, x: Float64, bounds: Bounds, max_iter: int, callback: Any = None, **tolerances: float
) -> Any:
    """What L-BFGS finds from x on."""
    from scipy.optimize import minimize

    solver: Any = minimize
    options = {"maxiter": max_iter, "maxfun": 2 * max_iter + 20, **tolerances}
    return solver(
        objective, x, jac=True, method="L-BFGS-B", bounds=bounds, callback=callback, options=options
    )


def _expected_log_factor(batch: Any, nu: Float64) -> float:
    """Sum over the batch of E[log f]."""
    odds = batch.block(nu)
    if batch.kind == "pair":
        log_joint = joint_of_pairs(batch, nu)
        p = np.exp(log_joint - log_joint.max((1, 2), keepdims=True))
        p /= p.sum((1, 2), keepdims=True)
        return float(np.sum(np.where(p > 0.0, p * np.where(p > 0.0, batch.tables, 0.0), 0.0)))
    if batch.kind == "model":
        model = batch.model.replace(logits=odds)
        finite = np.where(np.isfinite(odds), odds, 0.0)
        score = (
            np.asarray(model.log_partition) - np.asarray(model.entropy) - (finite * model.marginals).sum(-1)
        )
        return float(np.sum(score))
    p = np.exp(CountModel(odds, batch.tables if len(batch.tables) > 1 else batch.tables[0]).count_log_probs())
    return float(np.sum(np.where(p > 0.0, p * np.where(batch.tables == -math.inf, 0.0, batch.tables), 0.0)))


def _maximise(batch: Any, nu: Float64) -> tuple[Float64, NDArray[np.bool_]]:
    """Maxima of a batch and its maximisers, flat."""
    if batch.kind == "count":
        odds = batch.block(nu)
        ranked, weights = best_counts(odds, batch.tables)
        return weights.max(1), batch.unblock(block.largest(odds, ranked, weights.argmax(1)))
    if batch.kind == "model":
        model = batch.model.replace(logits=batch.block(nu))
        return np.asarray(model.max_log_weight), np.asarray(model.mode()).reshape(-1)
    joint = joint_of_pairs(batch, nu).reshape(len(batch), 4)
    k = joint.argmax(1)
    return joint.max(1), np.stack([k // 2 == 1, k % 2 == 1], axis=-1).reshape(-1)
