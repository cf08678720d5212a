"""Random small factor graphs as plain data, their exact answers by enumeration, and the same graphs for the package.

The oracle shares no code with the package: it reads tables, logits and pairs from `Case`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np

INF = math.inf


@dataclass
class Factor:
    """A count table, or logits with nested tables and edges: all over ``members``."""

    members: np.ndarray
    table: np.ndarray | None = None
    logits: np.ndarray | None = None
    groups: list = field(default_factory=list)  # (places among the members, table)
    edges: list = field(default_factory=list)  # (place, place, 2 x 2 table)


@dataclass
class Case:
    logits: np.ndarray
    factors: list
    pairs: list  # (variable, variable, 2 x 2 table)

    @property
    def n(self) -> int:
        return len(self.logits)


def _own(logits: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log-weight of states (S, n) by log-odds alone; what is forced on counts with weight one."""
    on = np.where(logits == INF, 0.0, logits)
    off = np.where(logits == INF, -INF, 0.0)
    return np.where(y == 1, on, off).sum(1)


def log_weights(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """All configurations (2^n, n) and their log-weights."""
    y = np.array(list(itertools.product((0, 1), repeat=case.n)), dtype=int).reshape(2**case.n, case.n)
    w = _own(case.logits, y)
    for factor in case.factors:
        part = y[:, factor.members]
        if factor.table is not None:
            w = w + factor.table[part.sum(1)]
            continue
        w = w + _own(factor.logits, part)
        for places, table in factor.groups:
            w = w + table[part[:, places].sum(1)]
        for i, j, table in factor.edges:
            w = w + table[part[:, i], part[:, j]]
    for i, j, table in case.pairs:
        w = w + table[y[:, i], y[:, j]]
    return y, w


def solve(case: Case) -> tuple[float, np.ndarray, float] | None:
    """Log Z, marginals and the largest log-weight; None if nothing is possible."""
    y, w = log_weights(case)
    top = float(w.max())
    if top == -INF:
        return None
    p = np.exp(w - top)
    return top + math.log(p.sum()), p @ y / p.sum(), top


def is_tree(case: Case) -> bool:
    """Whether factors and variables form a forest."""
    scopes = [list(f.members) for f in case.factors] + [[i, j] for i, j, _ in case.pairs]
    parent = list(range(case.n + len(scopes)))

    def root(v: int) -> int:
        while parent[v] != v:
            v = parent[v]
        return v

    for a, scope in enumerate(scopes):
        for v in scope:
            first, second = root(int(v)), root(case.n + a)
            if first == second:
                return False
            parent[first] = second
    return True


# -- random cases ------------------------------------------------------------------------------------------------------


def _numbers(rng: np.random.Generator, shape, scale: float, minus: float, plus: float = 0.0) -> np.ndarray:
    """Numbers of a spread; a share of them -inf or +inf."""
    x = rng.normal(size=shape) * scale
    u = rng.random(shape)
    x = np.where(u < minus, -INF, x)
    return np.where(u > 1.0 - plus, INF, x)


def _model(rng: np.random.Generator, members: np.ndarray, scale: float, hard: float, edges: bool) -> Factor:
    n = len(members)
    logits = _numbers(rng, n, scale, hard / 4, hard / 4)
    groups = []
    if rng.random() < 0.7:
        groups.append((np.arange(n), _numbers(rng, n + 1, scale, hard)))
    if n > 1 and rng.random() < 0.5:
        size = int(rng.integers(1, n))
        groups.append((np.arange(size), _numbers(rng, size + 1, scale, hard)))
    factor = Factor(members, logits=logits, groups=groups)
    if edges:
        # a path in the order of the members: prefixes are intervals, so every group fits
        keep = [i for i in range(n - 1) if rng.random() < 0.8]
        factor.edges = [(i, i + 1, _numbers(rng, (2, 2), scale, hard)) for i in keep]
    return factor


def random_case(rng: np.random.Generator, *, tree: bool | None = None) -> Case:
    """Two to six variables with up to four factors of all kinds; ``tree=True`` asks for a forest of factors."""
    n = int(rng.integers(1, 7))
    scale = float(rng.choice([0.5, 2.0, 2.0, 30.0, 800.0, 1e5]))
    hard = float(rng.choice([0.0, 0.0, 0.15, 0.35]))
    case = Case(_numbers(rng, n, scale, hard / 4, hard / 4), [], [])
    for _ in range(int(rng.integers(0, 5))):
        kind = str(rng.choice(["count", "model", "edges", "pair"]))
        size = 2 if kind == "pair" else int(rng.integers(1, n + 1))
        if size > n:
            continue
        members = rng.permutation(n)[:size]
        if kind == "pair":
            case.pairs.append((int(members[0]), int(members[1]), _numbers(rng, (2, 2), scale, hard)))
        elif kind == "count":
            case.factors.append(Factor(members, table=_numbers(rng, size + 1, scale, hard)))
        else:
            case.factors.append(_model(rng, members, scale, hard, kind == "edges"))
        if tree and not is_tree(case):
            (case.pairs if kind == "pair" else case.factors).pop()
    return case


# -- the same for the package ------------------------------------------------------------------------------------------


def build(case: Case):
    """The case as a `tallytree.FactorGraph`."""
    import tallytree as tt

    groups = []
    for factor in case.factors:
        if factor.table is not None:
            groups.append(tt.Group(factor.members, factor.table))
            continue
        inner = [tt.Group(list(places), table) for places, table in factor.groups]
        edges = None
        if factor.edges:
            edges = tt.Forest([(i, j) for i, j, _ in factor.edges], np.array([t for _, _, t in factor.edges]))
        groups.append(tt.Group(factor.members, tt.CountModel(factor.logits, inner, edges=edges)))
    edges = None
    if case.pairs:
        edges = (np.array([(i, j) for i, j, _ in case.pairs]), np.array([t for _, _, t in case.pairs]))
    return tt.FactorGraph(case.logits, groups, edges=edges)
