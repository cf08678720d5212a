"""Logits and tables of every size: ordinary, subnormal, up to 1e5, infinite, and masks that stand for infinity."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

INF = math.inf
Numbers = Callable[[int, np.random.Generator], np.ndarray]
MASKS = (1e20, float(np.finfo(np.float32).max), 1e300)
SUBNORMAL = np.array([5e-324, -5e-324, 1e-310, -3e-309, 2.3e-308])


def size_between(rng: np.random.Generator, low: int, high: int) -> int:
    """A size, small ones more often."""
    return round(math.exp(rng.uniform(math.log(low - 0.4), math.log(high + 0.4))))


def only(n: int, *counts: int) -> np.ndarray:
    """Log-table of n + 1 counts that allows the given ones alone."""
    table = np.full(n + 1, -INF)
    table[list(counts)] = 0.0
    return table


def _spike(n: int, rng: np.random.Generator) -> np.ndarray:
    table = rng.standard_normal(n + 1)
    table[rng.integers(n + 1)] = rng.choice([50.0, 800.0, 1e5])
    return table


def _holes(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(n + 1) < rng.choice([0.1, 0.5, 0.9]), -INF, 10 * rng.standard_normal(n + 1))


def _far(n: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of three sizes, most of them beyond what a double exponentiates: what survives is far below the rest."""
    few = rng.choice([0.0, 1.0, -1.0, 300.0, -300.0, 500.0, -500.0, 750.0, -750.0, 1e3, -1e3, 1e5, -1e5], 3)
    return rng.choice(few, n) + rng.choice([0.0, 1.0]) * rng.standard_normal(n)


LOGITS: list[Numbers] = [
    lambda n, rng: rng.standard_normal(n),
    lambda n, rng: rng.choice([0.01, 10.0, 300.0]) * rng.standard_normal(n),
    lambda n, rng: rng.standard_normal(n) + rng.choice([-40.0, -5.0, 5.0, 40.0]),
    lambda n, rng: np.full(n, rng.choice([-20.0, 0.0, 3.0])),
    lambda n, rng: rng.choice([-30.0, 30.0], n),
    lambda n, rng: rng.choice([-800.0, 0.0, 800.0], n) + rng.standard_normal(n),
    lambda n, rng: rng.standard_cauchy(n),
    lambda n, rng: rng.uniform(-700, 700, n),
    lambda n, rng: rng.choice(SUBNORMAL, n),
    lambda n, rng: rng.choice([1e4, 1e5]) * rng.standard_normal(n).clip(-1, 1),
    lambda n, rng: rng.integers(-3, 4, n).astype(float),
]
TABLES: list[Numbers] = [
    lambda n, rng: rng.standard_normal(n + 1),
    lambda n, rng: rng.choice([5.0, 50.0, 1000.0]) * rng.standard_normal(n + 1),
    lambda n, rng: rng.uniform(-300, 300, n + 1),
    lambda n, rng: np.zeros(n + 1),
    lambda n, rng: only(n, rng.integers(n + 1)),
    lambda n, rng: only(n, *rng.integers(n + 1, size=2)),
    lambda n, rng: only(n, 0, n),
    lambda n, rng: np.where(np.arange(n + 1) <= rng.integers(n + 1), 0.0, -INF),
    lambda n, rng: np.where(np.arange(n + 1) >= rng.integers(n + 1), 0.0, -INF),
    lambda n, rng: np.where(np.arange(n + 1) % rng.integers(2, 6) == 0, 0.0, -INF),
    lambda n, rng: rng.choice([-5.0, -0.5, 0.6, 5.0]) / max(n, 1) * (2 * np.arange(n + 1) - n) ** 2,
    lambda n, rng: rng.choice([-50.0, -1.0, 1.0, 50.0]) * np.arange(n + 1),
    lambda n, rng: 10 * np.cumsum(rng.standard_normal(n + 1)),
    lambda n, rng: np.where(np.arange(n + 1) % 2 == 0, 30.0, -30.0),
    lambda n, rng: rng.choice(SUBNORMAL, n + 1),
    lambda n, rng: 1e5 * rng.uniform(-1, 1, n + 1),
    lambda n, rng: rng.integers(-3, 4, n + 1).astype(float),
    _spike,
    _holes,
]


class Source:
    """Numbers for one model: few kinds of them, and one assignment that stays possible unless contradictions may be.

    ``hidden`` (D,) holds the label of every variable in that assignment. ``mask`` is 0, or the size of the finite
    entries that stand for infinity in this model; they never touch the hidden assignment.
    """

    def __init__(self, rng: np.random.Generator, hidden: np.ndarray, contradictions: bool = False) -> None:
        self.rng, self.hidden, self.contradictions = rng, hidden, contradictions
        self.mask = 0.0 if contradictions or rng.random() > 0.15 else float(rng.choice(MASKS))
        turn = rng.random()
        self.calm = turn < 0.3  # nothing but ordinary numbers, where laws and derivatives say most
        self.far = turn > 0.85  # nothing but far ones and holes
        self._few = rng.choice(len(TABLES), 3)

    def logits(self) -> np.ndarray:
        rng, n = self.rng, len(self.hidden)
        if self.calm:
            return rng.standard_normal(n)
        theta = (_far if self.far else LOGITS[rng.choice(len(LOGITS))])(n, rng).astype(float)
        if rng.random() < 0.25:
            theta = np.where(rng.random(n) < rng.choice([0.1, 0.5, 1.0]), self._endless(), theta)
        return theta

    def _endless(self) -> np.ndarray:
        n = len(self.hidden)
        sign = (
            self.rng.choice([-1.0, 1.0], n) if self.contradictions else np.where(self.hidden == 1, 1.0, -1.0)
        )
        return sign * (self.mask or INF)

    def table(self, n: int, count: int) -> np.ndarray:
        """A log-table of n + 1 entries; ``count`` is the hidden one."""
        rng = self.rng
        if self.calm:
            return rng.standard_normal(n + 1)
        table = self._far_table(n + 1) if self.far else np.array(TABLES[rng.choice(self._few)](n, rng), float)
        return self._sound(table, count)

    def _far_table(self, size: int) -> np.ndarray:
        holes = self.rng.random(size) < self.rng.choice([0.0, 0.3, 0.7])
        return np.where(holes, -INF, self.rng.choice([0.0, 1.0]) * _far(size, self.rng))

    def weights(self, shape: tuple[int, ...], at: tuple[int, ...]) -> np.ndarray:
        """Log-weights of the combinations of a few labels; ``at`` is the hidden one."""
        rng = self.rng
        if self.calm:
            return rng.standard_normal(shape)
        size = math.prod(shape)
        kind = rng.choice(5)
        if self.far:
            values = self._far_table(size)
        elif kind == 0:
            values = rng.choice([1.0, 30.0, 300.0]) * rng.standard_normal(size)
        elif kind == 1:
            values = np.where(rng.random(size) < rng.choice([0.2, 0.6]), -INF, rng.standard_normal(size))
        else:
            values = TABLES[rng.choice(len(TABLES))](size - 1, rng).astype(float)
        return self._sound(values.reshape(shape), at)

    def _sound(self, table: np.ndarray, at: int | tuple[int, ...]) -> np.ndarray:
        if not self.contradictions and table[at] == -INF:
            table[at] = 0.0
        if self.mask:
            table[table == -INF] = -self.mask
        return table
