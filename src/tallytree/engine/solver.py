"""The verbs: what every problem can be asked.

Arrays have the batch in front, (B, ...), in double precision; the shapes and dtypes that users see are made by models.
Model kinds differ in the problem they pose, not in the verbs. What a solver cannot do is not in its capabilities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from scipy.special import expit

from ..arrays import Float64, Ints, States
from ..memo import Caching
from .answer import Answer, Derivatives


class Solver(ABC, Caching):
    """Answers for one batch of models; each is computed when first asked for, and once."""

    can: ClassVar[frozenset[str]]  # the verbs beyond those of every solver: "ranked", "edges"

    @property
    @abstractmethod
    def sums(self) -> Answer:
        """Log Z, messages and their certificate."""

    @abstractmethod
    def log_norm(self) -> Float64:
        """Log Z, (B,), the constants of the problem included; -inf for an impossible model."""

    @abstractmethod
    def error_bound(self) -> Float64:
        """Bound on the errors of all posterior log-odds and of log Z up to its rounding, (B,)."""

    @abstractmethod
    def log_prob(self, states: Ints) -> tuple[Float64, Float64]:
        """Log-probabilities of configurations (S, B, D), and the size of the numbers they are sums of, (S, B) each.

        For possible models whose log-weights are so large that their difference to log Z loses digits.
        """

    @abstractmethod
    def odds(self) -> Float64:
        """Posterior log-odds, (B, D)."""

    @abstractmethod
    def cavities(self) -> Float64:
        """Messages to the variables, (B, D), right also where log-odds are infinite."""

    def marginals(self) -> Float64:
        """P(y = 1), (B, D)."""
        return np.asarray(expit(self.odds()))

    @abstractmethod
    def counts(self, set_id: int) -> Float64:
        """Log-probabilities of the count of a set, (B, n + 1), with relative accuracy into the tails."""

    @abstractmethod
    def entropy(self) -> Float64:
        """In nats, (B,)."""

    # -- draw ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> States:
        """Exact joint samples, (count, B, D)."""

    @abstractmethod
    def draw_active(self, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Exact joint samples as the variables that are on: indices, and where each of the count * B samples starts."""

    # -- best ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def best(self) -> tuple[States, Float64]:
        """A best configuration (B, D) and its log-weight (B,)."""

    @abstractmethod
    def max_marginals(self) -> Float64:
        """Best log-weight with each variable off and on, (B, D, 2)."""

    @abstractmethod
    def max_counts(self, set_id: int) -> Float64:
        """Best log-weight for every count of a set, (B, n + 1)."""

    # -- joint -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def joint(self, rows: Ints) -> Float64:
        """P(y_i = y_j = 1) for i in `rows` and all j, (B, R, D)."""

    @abstractmethod
    def covariance(self, rows: Ints) -> Float64:
        """Rows of Cov(y), (B, R, D)."""

    # -- tangent ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def expected_counts(self) -> Float64:
        """P(count) of every set, packed (B, T), to 1e-12 absolute; tails are not relatively accurate."""

    @abstractmethod
    def tangent(self, v: Float64, h: Float64 | None, *, counts: bool) -> Derivatives:
        """Derivatives of the expectations along v (R, B, D) in the log-odds and h (R, B, T) in the tables.

        This is the covariance of the statistics times a vector, hence also a vector-Jacobian product.
        """
