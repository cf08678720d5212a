"""Nested families of sets of every shape, seeded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Members = list[int]


def _none(order: Members, rng: np.random.Generator) -> list[Members]:
    return []


def _flat(order: Members, rng: np.random.Generator) -> list[Members]:
    return [order]


def _caterpillar(order: Members, rng: np.random.Generator) -> list[Members]:
    return [order[:n] for n in range(2, len(order) + 1)]


def _chain(order: Members, rng: np.random.Generator) -> list[Members]:
    """Nested sets that skip some sizes."""
    return [order[:n] for n in range(1, len(order) + 1) if rng.random() < 0.5]


def _balanced(order: Members, rng: np.random.Generator) -> list[Members]:
    if len(order) < 2:
        return []
    half = (len(order) + 1) // 2
    return [order, *_balanced(order[:half], rng), *_balanced(order[half:], rng)]


def _random(order: Members, rng: np.random.Generator) -> list[Members]:
    """Split at random into two or three parts; keep each part as a set more often than not."""
    own = [order] if rng.random() < 0.7 else []
    if len(order) < 2:
        return own
    inside = np.arange(1, len(order))
    cuts = sorted(rng.choice(inside, min(len(inside), rng.integers(1, 3)), replace=False))
    parts = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)])]
    return own + [s for part in parts for s in _random(part, rng)]


def _forest(order: Members, rng: np.random.Generator) -> list[Members]:
    """Several families side by side, some variables in none."""
    found, rest = [], order
    while rest:
        n = int(rng.integers(1, len(rest) + 1))
        found += _random(rest[:n], rng) if rng.random() < 0.7 else []
        rest = rest[n:]
    return found


def _singletons(order: Members, rng: np.random.Generator) -> list[Members]:
    return [[v] for v in order] + ([order] if rng.random() < 0.5 else [])


def _duplicates(order: Members, rng: np.random.Generator) -> list[Members]:
    found = _random(order, rng) or [order]
    return found + [rng.permutation(s).tolist() for s in found if rng.random() < 0.6] + [found[0]]


SHAPES: dict[str, Callable[[Members, np.random.Generator], list[Members]]] = {
    "flat": _flat,
    "none": _none,
    "balanced": _balanced,
    "caterpillar": _caterpillar,
    "chain": _chain,
    "random": _random,
    "forest": _forest,
    "singletons": _singletons,
    "duplicates": _duplicates,
}


def random_family(rng: np.random.Generator, size: int, shape: str) -> list[tuple[int, ...]]:
    """A nested family over randomly labelled variables: sets and members in random order."""
    found = SHAPES[shape](rng.permutation(size).tolist(), rng)
    found = [tuple(rng.permutation(s).tolist()) for s in found]
    return [found[i] for i in rng.permutation(len(found))]
