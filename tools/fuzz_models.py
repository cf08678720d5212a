"""Random models for `fuzz.py`: every (seed, index) names one model, whatever the number of workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from accuracy_cases import CASES, accuracy_case
from case import Case
from strategies import SHAPES, BatchedCase, random_case, random_family

INF = math.inf
LARGEST = 2000


class Drawn(NamedTuple):
    """A model or a batch, and the settings it runs under."""

    case: Case | BatchedCase
    level: int  # number of the instruction-set level, modulo those there are
    threads: int
    luck: float  # decides which of the expensive checks run


KINDS = ("plain", "small", "medium", "large", "huge", "named", "batch", "grouped")


def draw(seed: int, index: int, kind: str = "") -> Drawn:
    """The model with this name, of a kind of its own choice unless one is given: then every check runs."""
    rng = np.random.default_rng([seed, index])
    level, threads, luck = int(rng.integers(3)), int(rng.integers(1, 4)), float(rng.random())
    drawn = str(rng.choice(KINDS[:-1], p=[0.5, 0.17, 0.12, 0.03, 0.01, 0.05, 0.12]))
    if index % 50 == 49:  # every fiftieth; the others keep the names they had before there were groups
        drawn = "grouped"
    return Drawn(_case(rng, kind or drawn), level, threads, 0.0 if kind else luck)


def _case(rng: np.random.Generator, kind: str) -> Case | BatchedCase:
    if kind == "plain":
        return random_case(rng, max_variables=12, allow_impossible=bool(rng.random() < 0.15))
    if kind == "named":
        return accuracy_case(str(rng.choice(CASES)), _size(rng, 2, 300))
    if kind == "batch":
        return _batch(rng)
    if kind == "grouped":
        return _grouped(rng)
    low, high = {"small": (1, 12), "medium": (13, 100), "large": (101, 500), "huge": (501, LARGEST)}[kind]
    size = _size(rng, low, high)
    family = _family(rng, size)
    theta, tables = _fill(rng, size, family, allow_impossible=bool(rng.random() < 0.1))
    return Case(theta, tuple(zip(family, tables)), kind)


def _grouped(rng: np.random.Generator) -> Case:
    """Groups large or numerous enough for characteristic functions, with numbers that do not rule these out."""
    size = _size(rng, 300, LARGEST)
    step = _size(rng, 256, 900) if rng.random() < 0.5 else _size(rng, 2, 40)
    order = (rng.permutation(size) if rng.random() < 0.3 else np.arange(size)).tolist()
    loose = int(rng.integers(0, size // 2)) if rng.random() < 0.4 else 0
    family = [tuple(order[a : a + step]) for a in range(0, size - loose, step)]
    family += [tuple(range(size))] if rng.random() < 0.9 else []
    theta = rng.choice([0.1, 1.0, 1.0, 5.0]) * rng.standard_normal(size) + rng.choice([-6.0, -1.0, 0.0, 2.0])
    theta[rng.random(size) < rng.choice([0.0, 0.0, 0.01])] = rng.choice([-30.0, 25.0, INF, -INF])
    kinds: list[Numbers] = [
        lambda n, rng: rng.choice([0.0, 1.0, 3.0]) * rng.standard_normal(n + 1),
        lambda n, rng: -0.5 * ((np.arange(n + 1) - rng.uniform(0, n)) / rng.uniform(0.3, 1 + n)) ** 2,
        lambda n, rng: np.where(np.arange(n + 1) % 2 == 0, 0.0, rng.choice([-1.0, -INF])),
        lambda n, rng: np.where(np.arange(n + 1) <= rng.integers(n + 1), 0.0, -INF),
        lambda n, rng: np.where(np.arange(n + 1) >= rng.integers(n + 1), 0.0, -INF),
    ]
    few = rng.choice(len(kinds), 2)
    hidden = rng.random(size) < np.where(
        np.isfinite(theta), 1 / (1 + np.exp(-np.clip(theta, -50, 50))), theta > 0
    )
    tables = []
    for members in family:
        table = np.array(kinds[rng.choice(few)](len(members), rng), float)
        count = hidden[list(members)].sum()
        table[count] = max(table[count], 0.0)  # this assignment stays possible
        tables.append(table)
    return Case(theta, tuple(zip(family, tables)), "grouped")


def _size(rng: np.random.Generator, low: int, high: int) -> int:
    return round(math.exp(rng.uniform(math.log(low - 0.4), math.log(high + 0.4))))


def _batch(rng: np.random.Generator) -> BatchedCase:
    size = _size(rng, 1, 80)
    shape = (int(rng.integers(1, 20)),) if rng.random() < 0.8 else tuple(rng.integers(1, 5, 2).tolist())
    family = _family(rng, size)
    rows = [_fill(rng, size, family) for _ in range(math.prod(shape))]
    theta = np.stack([row[0] for row in rows]).reshape(*shape, size)
    tables = [np.stack([row[1][i] for row in rows]).reshape(*shape, len(s) + 1) for i, s in enumerate(family)]
    if rng.random() < 0.3:  # one table for the whole batch
        tables = [np.broadcast_to(table[(0,) * len(shape)], table.shape) for table in tables]
        theta = np.where(np.isfinite(theta), theta, 0.0)  # another row's table might contradict these
    return BatchedCase(theta, tuple(zip(family, tables)), "batch")


# ------------------------------------------------------------------------------------------------ families


def _prefixes(order: list[int], rng: np.random.Generator) -> list[list[int]]:
    ends = np.unique(rng.integers(1, len(order) + 1, min(len(order), 12)))
    return [order[:n] for n in ends]


def _blocks(order: list[int], rng: np.random.Generator) -> list[list[int]]:
    step = int(rng.integers(1, len(order) + 1))
    found = [order[a : a + step] for a in range(0, len(order), step)]
    return found + ([order] if rng.random() < 0.7 else [])


def _family(rng: np.random.Generator, size: int) -> list[tuple[int, ...]]:
    """A nested family; one potential over everything more often than any other."""
    if rng.random() < 0.35:
        return [tuple(range(size))]
    own = {"prefixes": _prefixes, "blocks": _blocks}
    # Long caterpillars hold D^2 / 2 numbers: beyond 150 variables prefixes stand for them.
    choices = [*own, *(s for s in SHAPES if size <= 150 or s not in ("caterpillar", "chain"))]
    shape = str(rng.choice(choices))
    if shape not in own:
        return random_family(rng, size, shape)
    return [tuple(s) for s in own[shape](rng.permutation(size).tolist(), rng)]


# ------------------------------------------------------------------------------------------------- numbers


def _fill(
    rng: np.random.Generator, size: int, family: list[tuple[int, ...]], allow_impossible: bool = False
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits and tables; a hidden assignment stays possible unless the model may be impossible."""
    hidden = rng.random(size) < rng.choice([0.02, 0.1, 0.5, 0.9, 1.0])
    theta = LOGITS[rng.choice(len(LOGITS))](size, rng)
    if rng.random() < 0.25:
        sign = rng.choice([-INF, INF], size) if allow_impossible else np.where(hidden, INF, -INF)
        theta = np.where(rng.random(size) < rng.choice([0.05, 0.5, 1.0]), sign, theta)
    few = rng.choice(len(TABLES), 3)  # a model with two or three kinds of tables, not all of them
    tables = []
    for members in family:
        table = np.array(TABLES[rng.choice(few)](len(members), rng), float)
        count = hidden[list(members)].sum()
        if not allow_impossible and table[count] == -INF:
            table[count] = 0.0
        tables.append(table)
    return theta, tables


def _only(n: int, *counts: int) -> np.ndarray:
    table = np.full(n + 1, -INF)
    table[list(counts)] = 0.0
    return table


def _spike(n: int, rng: np.random.Generator) -> np.ndarray:
    table = rng.standard_normal(n + 1)
    table[rng.integers(n + 1)] = rng.choice([50.0, 800.0, 1e5])
    return table


def _holes(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(n + 1) < rng.choice([0.1, 0.5, 0.9]), -INF, 10 * rng.standard_normal(n + 1))


Numbers = Callable[[int, np.random.Generator], np.ndarray]
LOGITS: list[Numbers] = [
    lambda n, rng: rng.standard_normal(n),
    lambda n, rng: rng.choice([0.01, 10.0, 300.0]) * rng.standard_normal(n),
    lambda n, rng: rng.standard_normal(n) + rng.choice([-40.0, -5.0, 5.0, 40.0]),
    lambda n, rng: np.full(n, rng.choice([-20.0, 0.0, 3.0])),
    lambda n, rng: rng.choice([-30.0, 30.0], n),
    lambda n, rng: rng.choice([-800.0, 0.0, 800.0], n) + rng.standard_normal(n),
    lambda n, rng: rng.standard_cauchy(n),
    lambda n, rng: rng.uniform(-700, 700, n),
]
TABLES: list[Numbers] = [
    lambda n, rng: rng.standard_normal(n + 1),
    lambda n, rng: rng.choice([5.0, 50.0, 1000.0]) * rng.standard_normal(n + 1),
    lambda n, rng: rng.uniform(-300, 300, n + 1),
    lambda n, rng: np.zeros(n + 1),
    lambda n, rng: _only(n, rng.integers(n + 1)),
    lambda n, rng: _only(n, *rng.integers(n + 1, size=2)),
    lambda n, rng: _only(n, 0, n),
    lambda n, rng: np.where(np.arange(n + 1) <= rng.integers(n + 1), 0.0, -INF),
    lambda n, rng: np.where(np.arange(n + 1) >= rng.integers(n + 1), 0.0, -INF),
    lambda n, rng: np.where(np.arange(n + 1) % rng.integers(2, 6) == 0, 0.0, -INF),
    lambda n, rng: rng.choice([-5.0, -0.5, 0.6, 5.0]) / n * (2 * np.arange(n + 1) - n) ** 2,
    lambda n, rng: rng.choice([-50.0, -1.0, 1.0, 50.0]) * np.arange(n + 1),
    lambda n, rng: 10 * np.cumsum(rng.standard_normal(n + 1)),
    lambda n, rng: np.where(np.arange(n + 1) % 2 == 0, 30.0, -30.0),
    _spike,
    _holes,
]
