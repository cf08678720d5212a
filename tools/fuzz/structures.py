"""Structures of small models, and numbers in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from families import SHAPES, random_family
from forest_cases import FAMILIES, fitting_sets, parents_of
from forest_cases import SHAPES as FORESTS

from .binary import Binary
from .numbers import Source


def in_single(data: Binary) -> Binary:
    """The log-odds rounded to float32."""
    with np.errstate(over="ignore"):
        return replace(data, theta=data.theta.astype(np.float32).astype(float))


def tag_of(numbers: list[np.ndarray], single: bool = False) -> str:
    masked = any((np.isfinite(a) & (np.abs(a) >= 1e17)).any() for a in numbers)
    return " (float32)" * single + " (masks)" * masked


def filled(source: Source, family: list[tuple[int, ...]], pairs: list[tuple[int, int]] | None) -> Binary:
    """Numbers in a structure."""
    hidden = source.hidden
    groups = tuple((tuple(m), source.table(len(m), int(hidden[list(m)].sum()))) for m in family)
    edges = tuple((i, j, source.weights((2, 2), (hidden[i], hidden[j]))) for i, j in pairs or [])
    return Binary(source.logits(), groups, edges, pairs is not None)


def hidden_states(rng: np.random.Generator, n: int) -> np.ndarray:
    return (rng.random(n) < rng.choice([0.1, 0.5, 0.9])).astype(int)


def nested_family(rng: np.random.Generator, n: int) -> list[tuple[int, ...]]:
    """One potential over everything more often than any other family."""
    if rng.random() < 0.35 or n == 0:
        return [tuple(range(n))] if n else []
    return random_family(rng, n, str(rng.choice(list(SHAPES))))


def forest_structure(rng: np.random.Generator, n: int) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """Edges of a forest and groups that fit it, over shuffled variables."""
    parents = parents_of(str(rng.choice(FORESTS)), n, rng)
    is_path = all(p == v - 1 for v, p in enumerate(parents))
    families = [f for f in FAMILIES if f != "intervals" or is_path]
    sets = fitting_sets(str(rng.choice(families)), parents, rng)
    label = rng.permutation(n)
    pairs = [(int(label[v]), int(label[p])) for v, p in enumerate(parents) if p >= 0]
    pairs = [pair if rng.random() < 0.5 else pair[::-1] for pair in pairs]
    return [tuple(int(label[v]) for v in s) for s in sets], pairs
