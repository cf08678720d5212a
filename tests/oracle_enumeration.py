"""Small models by listing every assignment: in extended precision and in exact rationals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product

import numpy as np

from oracle_states import INF, REAL, Truth, all_states, log_sum, truth_of_terms

Sets = Sequence[tuple[Sequence[int], Sequence[float]]]


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
class Enumerated(Truth):
    """Every assignment of a small model of counts with its log weight; see `enumerate_model`."""

    sets: Sets = ()

    @property
    def log_weights(self) -> np.ndarray:
        """(2^D,) in extended precision; no masks here."""
        return self.logs.small

    def log_mass(self, chosen: np.ndarray) -> np.ndarray:
        """Log of the total weight of the assignments selected by a boolean mask."""
        return log_sum(self.logs, chosen[None])[0].small

    @cached_property
    def marginals(self) -> np.ndarray:
        return np.exp(self.log_marginals[:, 1])

    def count_log_probs(self, which: int | Sequence[int] | None = None) -> np.ndarray:
        """Log distribution of a count: of set number ``which``, of a list of variables, or of all of them."""
        members = range(self.states.shape[1]) if which is None else which
        members = self.sets[members][0] if isinstance(members, int) else members
        return self.score_log_probs(self.states[:, list(members)].sum(axis=1), len(members))

    def log_prob(self, y: Sequence[int]) -> float:
        return float(self.log_probs[int(self.index(np.asarray(y)))])

    def pair_table(self, i: int, j: int) -> np.ndarray:
        """Return the 2 x 2 table P(y_i = a, y_j = b)."""
        return np.exp(self.pair_tables([(i, j)])[0])

    @cached_property
    def pairwise(self) -> np.ndarray:
        """P(y_i = y_j = 1), a D x D matrix with the marginals on its diagonal."""
        size = self.states.shape[1]
        pairs = [(i, j) for i in range(size) for j in range(size)]
        return np.exp(self.pair_tables(pairs)[:, 1, 1].reshape(size, size))

    @cached_property
    def covariance(self) -> np.ndarray:
        return self.covariance_of(self.states)

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
    states = all_states((2,) * size)
    terms = [np.asarray(table, float)[states[:, list(members)].sum(axis=1)] for members, table in sets]
    terms += [np.asarray(table, float)[states[:, i], states[:, j]] for i, j, table in edges]
    found = truth_of_terms(states, leaf_log_weights(theta), terms)
    return Enumerated(found.states, found.logs, 2, found.leaves, found.others, sets)


def leaf_log_weights(theta: Sequence[float]) -> np.ndarray:
    """(..., D, 2): log weights of y_d = 0 and y_d = 1 under the convention for infinite theta."""
    theta = np.asarray(theta, REAL)
    forced = np.isposinf(theta)
    return np.stack([np.where(forced, -INF, 0), np.where(forced, 0, theta)], axis=-1)


def log_fraction(value: Fraction) -> float:
    """Return the log of a non-negative rational, rounded once."""
    if value == 0:
        return -INF
    import mpmath

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
