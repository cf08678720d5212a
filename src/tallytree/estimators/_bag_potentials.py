"""Count potentials of bags: log f^(t)(c) for bags of size n labelled t, as tables over c = 0..width."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..arrays import Float64, Ints
from ..checks.numbers import check_count, check_real
from ..errors import ParameterError
from ..potentials import noisy_or

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
        check_real(self.rate, "rate", 0.0, 1.0, strict=True)
        if check_real(self.leak, "leak", 0.0, 1.0) == 1.0:
            raise ParameterError("`leak` must be below 1; 1.0 arrived. Choose a value inside [0, 1).")
        check_real(self.mu, "mu")
        check_real(self.sigma, "sigma", 0.0, strict=True)
        check_count(self.n_knots, "n_knots", 2)

    @property
    def n_parameters(self) -> int:
        """Learned values: two tables at the knots, or none."""
        return 2 * self.n_knots if self.kind == "free" else 0

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


def settings(estimator: Any) -> BagPotential:
    """The potential that an estimator's parameters describe."""
    return BagPotential(
        estimator.potential, estimator.rate, estimator.leak, estimator.mu, estimator.sigma, estimator.n_knots
    )
