"""What is timed: random problems of a size, and how each is solved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tallytree import CountModel, CountTree, Forest
from tallytree.arrays import Float64

from . import printed
from .baselines import potetz_lee

# Methods of Figure 3: all marginals under one random potential.
METHODS = {
    "chain": "Chain",
    "tree": "Tree",
    "fft-tree": "FFT Tree",
    "auto": "ours (auto)",
    "potetz-lee": "Potetz-Lee",
}
# Costs that the paper states elsewhere; the last three are ours.
COSTS = {
    "rc": "balanced RC, marginals",
    "sample": "balanced RC, a sample",
    "edges": "Eq. 8, balanced tree",
    "unbalanced": "unbalanced RC",
    "limited-d": "Chain, counts up to 64",
    "limited-k": "Chain, D = 16384, against k",
    "edges-path": "ours: Eq. 8, a path",
    "sample-rc": "ours: RC sample",
    "sample-one": "ours: a sample, one potential",
}
LIMITED_K, LIMITED_D = 64, 2**14
_MILD = 0.1  # standard deviation of log-potentials where there is one on every count
_EDGE = 0.5  # of couplings


def problem(kind: str, x: int, rng: np.random.Generator) -> Callable[[], Any]:
    """A function that solves a random problem of size x from its parameters; structures are analysed before."""
    if kind in METHODS:
        logits, table = rng.normal(size=x), rng.normal(size=x + 1)
        return lambda: _marginals(logits, table, kind)
    return _COSTS[kind](x, rng)


def _marginals(logits: Float64, table: Float64, method: str) -> Float64:
    if method == "potetz-lee":
        return potetz_lee(logits, table)
    return np.asarray(CountModel(logits, table, method=method).marginals)


def _levels(d: int, rng: np.random.Generator) -> list[Float64]:
    """Log-potentials of all counts of a balanced tree, a level at a time from the pairs to the root."""
    top = d.bit_length() - 1
    return [_MILD * rng.normal(size=(d >> level, (1 << level) + 1)) for level in range(1, top + 1)]


def _balanced(d: int, rng: np.random.Generator) -> tuple[CountTree, Float64, Float64]:
    """Structure, log-odds and log-tables packed as the structure has its groups: the root first."""
    logits = rng.normal(size=d)
    return CountTree.balanced(d), logits, np.concatenate([t.reshape(-1) for t in _levels(d, rng)[::-1]])


def _rc(d: int, rng: np.random.Generator) -> Callable[[], Any]:
    tree, logits, tables = _balanced(d, rng)
    return lambda: CountModel.from_tree(tree, logits, tables, method="fft-tree").marginals


def _sample(d: int, rng: np.random.Generator) -> Callable[[], Any]:
    logits, tables = rng.normal(size=d), _levels(d, rng)
    return lambda: printed.sample(logits, tables, rng)


def _own_rc_sample(d: int, rng: np.random.Generator) -> Callable[[], Any]:
    tree, logits, tables = _balanced(d, rng)
    return lambda: CountModel.from_tree(tree, logits, tables).sample(1, rng=rng)


def _own_sample(d: int, rng: np.random.Generator) -> Callable[[], Any]:
    logits, table = rng.normal(size=d), rng.normal(size=d + 1)
    return lambda: CountModel(logits, table).sample(1, rng=rng)


def _edges(d: int, rng: np.random.Generator) -> Callable[[], Any]:
    child = np.arange(1, d)
    return _with_edges(np.stack([(child - 1) // 2, child], axis=-1), rng)


def _path(d: int, rng: np.random.Generator) -> Callable[[], Any]:
    return _with_edges(np.stack([np.arange(d - 1), np.arange(1, d)], axis=-1), rng)


def _with_edges(pairs: Any, rng: np.random.Generator) -> Callable[[], Any]:
    d = len(pairs) + 1
    logits, table, coupling = rng.normal(size=d), rng.normal(size=d + 1), _EDGE * rng.normal(size=d - 1)
    return lambda: CountModel(logits, table, edges=Forest(pairs, coupling=coupling)).marginals


def _unbalanced(d: int, rng: np.random.Generator) -> Callable[[], Any]:
    """Sets that grow by one variable each, the least balanced tree there is."""
    merges = [[0 if i == 0 else d + i - 1, i + 1, float(i + 1), i + 2] for i in range(d - 1)]
    tree = CountTree.from_linkage(np.array(merges, np.float64))
    logits = rng.normal(size=d)
    tables = _MILD * rng.normal(size=sum(len(g) + 1 for g in tree.groups))
    return lambda: CountModel.from_tree(tree, logits, tables).marginals


def _limited(d: int, k: int, rng: np.random.Generator) -> Callable[[], Any]:
    logits = rng.normal(size=d) - np.log(d / k)  # so that counts up to k are usual
    table = np.where(np.arange(d + 1) <= k, rng.normal(size=d + 1), -np.inf)
    return lambda: _marginals(logits, table, "chain")


_COSTS: dict[str, Callable[[int, np.random.Generator], Callable[[], Any]]] = {
    "rc": _rc,
    "sample": _sample,
    "edges": _edges,
    "unbalanced": _unbalanced,
    "limited-d": lambda d, rng: _limited(d, LIMITED_K, rng),
    "limited-k": lambda k, rng: _limited(LIMITED_D, k, rng),
    "edges-path": _path,
    "sample-rc": _own_rc_sample,
    "sample-one": _own_sample,
}
