"""Small models by listing every assignment: in extended precision and in exact rationals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product

import mpmath
import numpy as np

Sets = Sequence[tuple[Sequence[int], Sequence[float]]]
REAL = np.longdouble
INF = math.inf


def log_sum_exp(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return log sum exp along an axis in extended precision; all ``-inf`` gives ``-inf``."""
    values = np.asarray(values, REAL)
    top = np.max(values, axis=axis, keepdims=True, initial=-INF)
    shift = np.where(np.isneginf(top), 0, top)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values - shift).sum(axis=axis)) + np.squeeze(shift, axis=axis)


def log_odds(log_on: np.ndarray, log_off: np.ndarray) -> np.ndarray:
    """``log_on - log_off`` with the right infinities; NaN only where both are ``-inf``."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.asarray(log_on, REAL) - np.asarray(log_off, REAL), float)


@dataclass(frozen=True, eq=False)
class Enumerated:
    """Every assignment of a small model with its log weight; see `enumerate_model`."""

    states: np.ndarray  # (2^D, D) of 0 and 1
    log_weights: np.ndarray  # (2^D,) extended precision
    sets: Sets

    @cached_property
    def _log_z(self) -> np.ndarray:
        return log_sum_exp(self.log_weights)

    @cached_property
    def log_partition(self) -> float:
        return float(self._log_z)

    def log_mass(self, chosen: np.ndarray) -> np.ndarray:
        """Log of the total weight of the assignments selected by a boolean mask."""
        return log_sum_exp(self.log_weights[chosen])

    @cached_property
    def posterior_logits(self) -> np.ndarray:
        masses = [(self.log_mass(y == 1), self.log_mass(y == 0)) for y in self.states.T]
        return np.array([log_odds(on, off) for on, off in masses], float)

    @cached_property
    def marginals(self) -> np.ndarray:
        return np.array([np.exp(self.log_mass(y == 1) - self._log_z) for y in self.states.T], float)

    def count_log_probs(self, which: int | Sequence[int] | None = None) -> np.ndarray:
        """Log distribution of a count: of set number ``which``, of a list of variables, or of all of them."""
        members = range(self.states.shape[1]) if which is None else which
        members = self.sets[members][0] if isinstance(members, int) else members
        counts = self.states[:, list(members)].sum(axis=1)
        return np.array([self.log_mass(counts == c) - self._log_z for c in range(len(members) + 1)], float)

    @cached_property
    def log_probs(self) -> np.ndarray:
        return np.asarray(self.log_weights - self._log_z, float)

    def log_prob(self, y: Sequence[int]) -> float:
        return float(self.log_probs[int("".join(str(int(v)) for v in y), 2)])

    @cached_property
    def entropy(self) -> float:
        log_p = (self.log_weights - self._log_z)[np.isfinite(self.log_weights)]
        return float(-(np.exp(log_p) * log_p).sum())

    def pair_table(self, i: int, j: int) -> np.ndarray:
        """Return the 2 x 2 table P(y_i = a, y_j = b)."""
        on_i, on_j = self.states[:, i], self.states[:, j]
        masses = [[self.log_mass((on_i == a) & (on_j == b)) for b in (0, 1)] for a in (0, 1)]
        return np.asarray(np.exp(np.array(masses, REAL) - self._log_z), float)

    @cached_property
    def pairwise(self) -> np.ndarray:
        """P(y_i = y_j = 1), a D x D matrix with the marginals on its diagonal."""
        on = self.states == 1
        pairs = [[self.log_mass(a & b) for b in on.T] for a in on.T]
        return np.asarray(np.exp(np.array(pairs, REAL) - self._log_z), float)

    @cached_property
    def covariance(self) -> np.ndarray:
        weights = np.exp(self.log_weights - self._log_z)
        centred = self.states - (weights[:, None] * self.states).sum(axis=0)
        return np.asarray(np.einsum("s,si,sj->ij", weights, centred, centred), float)

    @cached_property
    def max_marginals(self) -> np.ndarray:
        """(D, 2): the largest log weight with y_d = 0 and with y_d = 1."""
        best = [[self.log_weights[y == v].max() for v in (0, 1)] for y in self.states.T]
        return np.array(best, float)

    def modes(self, tolerance: float = 1e-12) -> set[tuple[int, ...]]:
        """All maximisers, ties decided up to ``tolerance * (1 + |best|)``."""
        best = self.log_weights.max()
        if np.isneginf(best):
            return set()
        near = self.log_weights >= best - tolerance * (1 + abs(best))
        return {tuple(int(v) for v in y) for y in self.states[near]}

    def ranked(self, k: int | None = None) -> list[tuple[float, tuple[int, ...]]]:
        """The possible assignments as (log weight, y), best first."""
        order = np.argsort(-self.log_weights, kind="stable")
        order = order[np.isfinite(self.log_weights[order])][:k]
        return [(float(self.log_weights[s]), tuple(int(v) for v in self.states[s])) for s in order]


def enumerate_model(
    theta: Sequence[float], sets: Sets, edges: Sequence[tuple[int, int, np.ndarray]] = ()
) -> Enumerated:
    """Enumerate all assignments, D <= 16. ``edges`` adds pairwise factors ``(i, j, log_table[y_i][y_j])``."""
    size = len(theta)
    if size > 16:
        raise ValueError(f"enumeration is meant for at most 16 variables, got {size}")
    states = (np.arange(2**size)[:, None] >> np.arange(size)[::-1]) & 1
    log_weights = np.zeros(2**size, REAL)
    for y, (log_off, log_on) in zip(states.T, leaf_log_weights(theta)):
        log_weights += np.where(y == 1, log_on, log_off)
    for members, log_table in sets:
        log_weights += np.asarray(log_table, REAL)[states[:, list(members)].sum(axis=1)]
    for i, j, log_table in edges:
        log_weights += np.asarray(log_table, REAL)[states[:, i], states[:, j]]
    return Enumerated(states, log_weights, sets)


def leaf_log_weights(theta: Sequence[float]) -> np.ndarray:
    """(D, 2): log weights of y_d = 0 and y_d = 1 under the convention for infinite theta."""
    theta = np.asarray(theta, REAL)
    forced = np.isposinf(theta)
    return np.stack([np.where(forced, -INF, 0), np.where(forced, 0, theta)], axis=1)


def log_fraction(value: Fraction) -> float:
    """Return the log of a non-negative rational, rounded once."""
    if value == 0:
        return -INF
    with mpmath.workdps(40):
        return float(mpmath.log(mpmath.mpf(value.numerator) / mpmath.mpf(value.denominator)))


@dataclass(frozen=True)
class ExactModel:
    partition: Fraction
    on: list[Fraction]  # total weight with y_d = 1
    counts: list[list[Fraction]]  # total weight by count, one list per set


def enumerate_exactly(
    weights: Sequence[Fraction | int], sets: Sequence[tuple[Sequence[int], Sequence[Fraction | int]]]
) -> ExactModel:
    """Enumeration in rationals, D <= 10: ``weights`` are exp(theta), tables are plain (not logs)."""
    size = len(weights)
    partition, on = Fraction(0), [Fraction(0)] * size
    counts = [[Fraction(0)] * len(table) for _, table in sets]
    for y in product((0, 1), repeat=size):
        value = Fraction(1)
        for v, w in zip(y, weights):
            value *= Fraction(w) if v else 1
        where = [sum(y[d] for d in members) for members, _ in sets]
        for c, (_, table) in zip(where, sets):
            value *= Fraction(table[c])
        partition += value
        on = [total + value if v else total for total, v in zip(on, y)]
        for row, c in zip(counts, where):
            row[c] += value
    return ExactModel(partition, on, counts)
