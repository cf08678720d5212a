"""Likelihoods of bags of independent instances, of their labels and of their counts, and the potentials of labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .. import checks
from ..arrays import Float64, Ints
from ..learn.fixed_counts import fixed_counts
from ..models.count import CountModel
from ..potentials import noisy_or
from ._bags import Bags


class BagLikelihood:
    """log Z of every bag under both labels, for instance scores theta."""

    def __init__(self, bags: Bags, potential: BagPotential) -> None:
        self.bags, self.potential = bags, potential
        self._batches = list(bags.batches(np.arange(bags.n_bags)))

    def _models(self, theta: Float64, knots: Float64) -> Iterator[tuple[Ints, Ints, CountModel]]:
        """Batches of bags, their rows, and the models of both labels, batch shape (2, B)."""
        extended = np.append(theta, -np.inf)
        for members, index in self._batches:
            tables = self.potential.tables(self.bags.sizes[members], index.shape[1], knots)
            logits = np.broadcast_to(extended[index], (2, *index.shape))
            yield members, index, CountModel(logits, tables)

    def log_odds(self, theta: Float64, knots: Float64) -> Float64:
        """Log Z^(1) - log Z^(0) of every bag, (n_bags,)."""
        odds = np.empty(self.bags.n_bags)
        for members, _, model in self._models(theta, knots):
            odds[members] = model.log_partition[1] - model.log_partition[0]
        return odds

    def active(self, theta: Float64, knots: Float64, share: Float64) -> Float64:
        """P(active) of every instance when the bags are positive with probability `share`."""
        out = np.zeros(len(theta) + 1)
        for members, index, model in self._models(theta, knots):
            s = share[members, None]
            out[index] = s * model.marginals[1] + (1.0 - s) * model.marginals[0]
        return out[:-1]

    def loss(
        self, theta: Float64, knots: Float64, positive: NDArray[np.bool_], observed: Float64
    ) -> tuple[float, Float64, Float64]:
        """Sum of -log P(label) over bags, each as often as it was observed; gradients in theta and in the knots."""
        total = 0.0
        by_theta, by_knots = np.zeros(len(theta) + 1), np.zeros(len(knots))
        for members, index, model in self._models(theta, knots):
            log_z = np.asarray(model.log_partition)
            sign = np.where(positive[members], 1.0, -1.0)
            odds = sign * (log_z[1] - log_z[0])
            total += float((observed[members] * np.logaddexp(0.0, -odds)).sum())
            # Derivative of the loss in log Z^(1), minus that in log Z^(0).
            pull = -sign * expit(-odds) * observed[members]
            gap = model.marginals[1] - model.marginals[0]
            np.add.at(by_theta, index, pull[:, None] * gap)
            if len(knots):
                counts = np.exp(model.count_log_probs())  # (2, B, width + 1)
                basis = self.potential.basis(self.bags.sizes[members], index.shape[1])
                moved = np.einsum("b,tbc,bck->tk", pull, counts, basis, optimize=True)
                by_knots += np.concatenate([-moved[0], moved[1]])
        return total, by_theta[:-1], by_knots


class CountLikelihood:
    """log P(count = k) of bags of independent instances, with its gradient."""

    def __init__(self, bags: Bags, k: Ints) -> None:
        self._bags, self._k = bags, k
        inner = np.flatnonzero((k > 0) & (k < bags.sizes))
        self._batches = list(bags.batches(inner))

    def loss(self, theta: Float64, observed: Float64) -> tuple[float, Float64]:
        """Sum of -log P(count) over bags, each as often as it was observed, and its gradient in theta."""
        log_sums, posterior = self._solved(theta)
        of_row = observed[self._bags.codes]
        full = (self._k == self._bags.sizes)[self._bags.codes]
        # sum of log(1 + e^theta), less log e_k; where all are on, e_n is the product of the odds.
        total = float((of_row * np.logaddexp(0.0, theta)).sum()) - float((of_row * theta)[full].sum())
        for members, log_sum in log_sums:
            total -= float((observed[members] * log_sum).sum())
        return total, of_row * (expit(theta) - posterior)

    def posterior(self, theta: Float64) -> Float64:
        """P(positive | counts), (n_instances,)."""
        return self._solved(theta)[1]

    def _solved(self, theta: Float64) -> tuple[list[tuple[Ints, Float64]], Float64]:
        """Log e_k of batches of the bags that are neither empty nor full, and all marginals given k."""
        extended, log_sums = np.append(theta, -np.inf), []
        marginals = np.append(np.where(self._k[self._bags.codes] > 0, 1.0, 0.0), 0.0)
        for members, index in self._batches:
            found = fixed_counts(extended[index], self._k[members])
            log_sums.append((members, found.log_sum))
            marginals[index] = found.marginals
        return log_sums, marginals[:-1]


KINDS = ("at-least-one", "noisy-or", "normal", "free")


@dataclass(frozen=True)
class BagPotential:
    """A family of potentials with its settings; `free` ones have values at knots of the active fraction c / n."""

    kind: str
    rate: float
    leak: float
    mu: float
    sigma: float
    n_knots: int

    def __post_init__(self) -> None:
        checks.one_of("potential", self.kind, tuple(KINDS))
        checks.real("rate", self.rate, 0.0, 1.0, strict=True)
        checks.real("leak", self.leak, 0.0, math.nextafter(1.0, 0.0))
        checks.real("mu", self.mu)
        checks.real("sigma", self.sigma, 0.0, strict=True)
        checks.integer("n_knots", self.n_knots, 2)

    def tables(self, sizes: Ints, width: int, values: Float64) -> Float64:
        """Log f^(t)(c), (2, B, width + 1); -inf beyond the bag's size."""
        count = np.arange(width + 1.0)
        fraction = count / sizes[:, None]
        if self.kind == "normal":
            log_f = np.stack([fraction**2, (self.mu - fraction) ** 2]) / (-2.0 * self.sigma**2)
        elif self.kind == "free":
            log_f = np.stack([self.basis(sizes, width) @ v for v in values.reshape(2, self.n_knots)])
        else:
            rate, leak = (1.0, 0.0) if self.kind == "at-least-one" else (self.rate, self.leak)
            both = np.stack([noisy_or(rate, leak, t=t).log_table(width) for t in (0, 1)])
            log_f = np.broadcast_to(both[:, None, :], (2, len(sizes), width + 1))
        return np.where(count <= sizes[:, None], log_f, -math.inf)

    def basis(self, sizes: Ints, width: int) -> Float64:
        """Weights of linear interpolation between the knots at the fractions c / n, (B, width + 1, n_knots)."""
        place = np.minimum(np.arange(width + 1.0) / sizes[:, None], 1.0) * (self.n_knots - 1)
        return np.maximum(0.0, 1.0 - np.abs(place[:, :, None] - np.arange(self.n_knots)))


def start_values(potential: BagPotential) -> Float64:
    """Where learned tables start: active instances speak for the positive label."""
    if potential.kind != "free":
        return np.zeros(0)
    knots = np.linspace(0.0, 1.0, potential.n_knots)
    return np.concatenate([-2.0 * knots, -2.0 * (1.0 - knots)])
