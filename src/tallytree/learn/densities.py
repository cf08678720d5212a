"""Densities of binary rows with a model behind them: counts on trees, Chow-Liu trees, trees times a count potential.

``p(y) = T(y) g(sum y) / Z``. For a given tree T the likelihood is largest at ``g(c) = P(c) / P_T(c)``, the data's law
of the count over the tree's, and then Z = 1: the tree keeps the pairs as far as it can, the potential gets the count
right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.spatial.distance import squareform
from scipy.special import rel_entr

from .. import checks
from .._progress import Report
from ..arrays import Bools, Float64, Ints
from ..errors import InfeasibleError, ParameterError
from ..memo import cached
from ..models.count import CountModel
from ..models.edges import Forest
from ..models.parameters import pack
from ..potentials import exactly
from ..structure.nested.count_tree import CountTree
from .maximum_likelihood import fit
from .statistics import CountFeatures, TrainingRows


class Density:
    """A density over binary rows, with a model behind it."""

    model: Any

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return int(self.model.n_variables)

    def log_prob(self, rows: NDArray[Any]) -> Float64:
        """Log-probabilities of complete rows, (N,)."""
        raise NotImplementedError

    def evidence(self, rows: Float64) -> tuple[Float64, Float64]:
        """Log-probability of what is known in rows (N, D), NaN where unknown, (N,), and P(y = 1 | known), (N, D).

        A row that is impossible has log-probability -inf and marginals 0.

        Notes
        -----
        Cost: one inference per row, batched.
        """
        total, marginals = np.empty(len(rows)), np.empty(rows.shape)
        for start in range(0, len(rows), _ROWS):
            part = slice(start, start + _ROWS)
            total[part], marginals[part] = _of_batch(self.model, rows[part])
        return total, marginals

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Independent rows, (size, D)."""
        found: NDArray[np.uint8] = self.model.sample(size, rng=rng)
        return found


def _tree_sums(t: Float64, parents: Ints, rows: NDArray[Any]) -> Float64:
    """Sums over a tree of ``t[d, parent's state, own state]``, (N,), as two products with the rows (N, D)."""
    child = np.flatnonzero(parents >= 0)
    parent = parents[child]
    unary = t[:, 0, 1] - t[:, 0, 0]
    np.add.at(unary, parent, t[child, 1, 0] - t[child, 0, 0])
    pair = t[child, 1, 1] - t[child, 1, 0] - t[child, 0, 1] + t[child, 0, 0]
    return np.asarray(t[:, 0, 0].sum() + rows @ unary + (rows[:, child] & rows[:, parent]) @ pair)


@dataclass(frozen=True, eq=False)
class TreeDensity(Density):
    """A directed tree over binary variables, which may have a log-potential on the total count.

    Attributes
    ----------
    order : (D,) int
        Variables, parents before children; the first is the root.
    parent : (D,) int
        Parent of every variable, -1 at the root.
    log_conditional : (D, 2, 2)
        ``log P(y_d = b | parent = a)`` at ``[d, a, b]``; at the root both rows are equal.
    log_g : (D + 1,), optional
        log g, normalised so that Z = 1.
    """

    order: Ints
    parent: Ints
    log_conditional: Float64
    log_g: Float64 | None = None

    def log_prob(self, rows: NDArray[Any]) -> Float64:
        """Log-probabilities of complete rows (N, D), (N,)."""
        impossible = np.isneginf(self.log_conditional)
        found = _tree_sums(np.where(impossible, 0.0, self.log_conditional), self.parent, rows)
        if impossible.any():
            # Counts of impossible conditionals are whole numbers.
            dead = _tree_sums(impossible.astype(np.float64), self.parent, rows) > 0.5
            found = np.where(dead, -np.inf, found)
        return found if self.log_g is None else found + self.log_g[rows.sum(1, dtype=np.int64)]

    @cached
    def model(self) -> CountModel:
        """The same law as a model with edges, and one group if there is a potential."""
        child = np.flatnonzero(self.parent >= 0)
        pairs = np.stack([self.parent[child], child], axis=1)
        logits = np.zeros(len(self.parent))
        root = self.parent < 0
        logits[root] = self.log_conditional[root, 0, 1] - self.log_conditional[root, 0, 0]
        return CountModel(logits, self.log_g, edges=Forest(pairs, self.log_conditional[child]))

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Independent rows, (size, D): parents first, then children given their parents."""
        if self.log_g is not None:
            return super().sample(size, rng)
        rows = np.zeros((size, len(self.parent)), np.uint8)
        for v in self.order:
            given = rows[:, self.parent[v]] if self.parent[v] >= 0 else np.zeros(size, np.uint8)
            rows[:, v] = rng.random(size) < np.exp(self.log_conditional[v, given, 1])
        return rows


def pair_frequencies(rows: NDArray[Any], weights: Float64 | None, pseudo_count: float) -> Float64:
    """Smoothed ``P(y_i = a, y_j = b)`` at ``[a, b, i, j]``; `pseudo_count` is added to each of the four cells.

    Each is a sum of non-negative terms, so what never occurs has probability 0 exactly. On the diagonals of
    ``[0, 0]`` and ``[1, 1]`` are the probabilities of single variables.
    """
    y, weight = rows.astype(np.float64), np.ones(len(rows)) if weights is None else weights
    weighted, total = y if weights is None else y * weight[:, None], float(weight.sum())
    both = y.T @ weighted
    on = np.diag(both)
    if weights is None or pseudo_count > 0:
        # Differences of whole numbers are exact, and what rounding leaves vanishes beside a pseudo-count.
        first, neither = on[:, None] - both, total - on[:, None] - on[None, :] + both
    else:
        first, neither = weighted.T @ (1.0 - y), (1.0 - y).T @ ((1.0 - y) * weight[:, None])
    found = np.array([[neither, first.T], [first, both]])
    each = np.arange(len(on))
    single = found[[0, 1], [0, 1]][:, each, each] + 2.0 * pseudo_count
    found = np.maximum(found, 0.0) + pseudo_count
    found[:, :, each, each] = 0.0
    found[[0, 1], [0, 1], each[:, None], each[:, None]] = single.T
    return np.asarray(found / (total + 4.0 * pseudo_count))


def mutual_information(pairs: Float64) -> Float64:
    """Mutual information of every pair in nats, (D, D), zero on the diagonal."""
    off, on = np.diag(pairs[0, 0]), np.diag(pairs[1, 1])
    out = np.zeros(pairs.shape[2:])
    for a, b in np.ndindex(2, 2):
        out += rel_entr(pairs[a, b], np.outer((off, on)[a], (off, on)[b]))
    np.fill_diagonal(out, 0.0)
    return out


def chow_liu(rows: NDArray[Any], weights: Float64 | None = None, pseudo_count: float = 1.0) -> TreeDensity:
    """The tree of largest likelihood for binary rows (N, D).

    Parameters
    ----------
    rows : (N, D) array of 0 and 1
        Data.
    weights : (N,) array, optional
        Weights of the rows.
    pseudo_count : float
        Added to each cell of every pair table; with 0, pairs of states that no row has are impossible.

    Notes
    -----
    Cost: O(N D^2) for the pair tables, O(D^2 log D) for the spanning tree.
    """
    pairs = pair_frequencies(rows, weights, pseudo_count)
    if rows.shape[1] == 1:
        order, parent = np.zeros(1, np.int64), np.full(1, -1, np.int64)
    else:
        gain = mutual_information(pairs)
        cost = gain.max() + 1.0 - gain  # positive: a zero would read as "no edge"
        np.fill_diagonal(cost, 0.0)
        spanning = minimum_spanning_tree(cost)
        found, before = breadth_first_order(spanning, 0, directed=False)
        order = found.astype(np.int64)
        parent = np.where(before < 0, -1, before).astype(np.int64)
    return TreeDensity(order, parent, _conditionals(pairs, parent))


def _conditionals(pairs: Float64, parent: Ints) -> Float64:
    """Log P(y_d = b | parent = a), (D, 2, 2); -inf throughout where the parent's state has probability 0."""
    root, own = parent < 0, np.arange(len(parent))
    table = np.moveaxis(pairs[:, :, np.where(root, own, parent), own], 2, 0)
    table[root] = np.diagonal(table[root], axis1=1, axis2=2)[:, None, :]
    total = table.sum(2, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(table) - np.log(np.where(total > 0, total, 1.0)))


_RARE = -450.0  # logarithms of probabilities of counts below this are not promised to be accurate


def fit_tree_counts(
    rows: NDArray[Any], weights: Float64 | None = None, pseudo_count: float = 1.0
) -> TreeDensity:
    """Chow-Liu tree with the count potential of largest likelihood given the tree.

    Count frequencies are smoothed with `pseudo_count` rows drawn from the tree itself.

    Notes
    -----
    Cost: O(N D^2) for the tree, one inference for its law of the count.
    """
    tree = chow_liu(rows, weights, pseudo_count)
    d = tree.n_variables
    weight = np.ones(len(rows)) if weights is None else weights
    seen = np.bincount(rows.sum(1, dtype=np.int64), weight, d + 1)
    log_law = _log_law(tree, seen > 0)
    with np.errstate(divide="ignore"):
        # (seen + pseudo_count law) / law; what was not seen needs no law.
        log_ratio = np.where(seen > 0, np.log(seen) - log_law, -math.inf)
        log_g = np.logaddexp(log_ratio, np.log(pseudo_count)) - math.log(weight.sum() + pseudo_count)
    return replace(tree, log_g=log_g)


def _log_law(tree: TreeDensity, wanted: Bools) -> Float64:
    """The tree's log P(count) where it is wanted, 0 elsewhere."""
    found = np.asarray(tree.model.count_log_probs())
    log_law = np.where(wanted, found, 0.0)
    for c in np.flatnonzero(wanted & (found < _RARE)).tolist():
        given = CountModel(tree.model.logits, exactly(c), edges=tree.model.edges)
        log_law[c] = float(given.log_partition) - float(tree.model.log_partition)
    return log_law


_ROWS = 256  # rows handled in one batch of models


def _of_batch(model: CountModel, rows: Float64) -> tuple[Float64, Float64]:
    """Forced variables enter log Z with weight one, so their logits are added back."""
    logits = np.asarray(model.logits, np.float64)
    endless, missing = np.isinf(logits), np.isnan(rows)
    own = np.where((rows == 1) & ~endless, logits, 0.0).sum(1)
    own[(~missing & endless & ((rows == 1) != (logits > 0))).any(1)] = -np.inf
    clamped = model.replace(logits=np.where(missing, logits, np.where(rows == 1, np.inf, -np.inf)))
    try:
        log_known, marginals = np.asarray(clamped.log_partition), np.asarray(clamped.marginals)
    except InfeasibleError:
        # Some row is impossible: halves find it without asking about every other one alone.
        if len(rows) == 1:
            return np.full(1, -np.inf), np.zeros(rows.shape)
        halves = [_of_batch(model, half) for half in np.array_split(rows, 2)]
        return np.concatenate([h[0] for h in halves]), np.concatenate([h[1] for h in halves])
    total = log_known + own - float(model.log_partition)
    return total, np.where(own[:, None] > -np.inf, marginals, 0.0)


class CountComponent(Density):
    """A recursive cardinality model."""

    def __init__(self, model: CountModel) -> None:
        self.model = model
        self._features = CountFeatures(model.tree)

    def log_prob(self, rows: NDArray[Any]) -> Float64:
        """Log-probabilities of complete rows, (N,)."""
        logits = np.asarray(self.model.logits, np.float64)
        packed = pack(self.model.tables)
        return np.asarray(self._features.log_weight(rows, logits, packed) - float(self.model.log_partition))


class CountTrainer:
    """Fits count models on one tree to weighted rows, again and again; penalties pull towards independent variables."""

    def __init__(self, rows: NDArray[Any], tree: CountTree, settings: Any) -> None:
        self._features, self._settings = CountFeatures(tree), settings
        self._rows = TrainingRows(self._features, rows)
        self._last: CountModel | None = None
        self.n_iterations, self.converged = 0, False

    def fit(self, weights: Float64, steps: int, progress: bool | Report = False) -> Density:
        """Weighted maximum likelihood from the previous model."""
        found, use = self._rows.mean(weights), self._settings
        on, off = found.weight * found.logits, found.weight * (1.0 - found.logits)
        with np.errstate(divide="ignore"):
            # Without a pseudo-count a variable that never changes has an infinite logit.
            logits = np.log(on + use.pseudo_count) - np.log(off + use.pseudo_count)
        base = CountModel.from_tree(self._features.tree, logits, np.zeros(self._features.n_cells))
        penalties = {"l2": use.l2 / found.weight, "smoothness": use.smoothness / found.weight}
        stopping = {"method": use.method, "tol": use.tol, "max_iter": steps, "progress": progress}
        result = fit(base, found, start=self._last, gauge=None, **penalties, **stopping)
        self._last, self.converged = result.model, result.converged
        self.n_iterations += result.n_iterations
        return CountComponent(result.model)

    def log_prob(self) -> Float64:
        """Log-probabilities of the training rows."""
        model = self._last
        assert model is not None
        packed = pack(model.tables)
        found = self._rows.log_weight(np.asarray(model.logits, np.float64), packed)
        return found - float(model.log_partition)


class TreeTrainer:
    """Fits Chow-Liu trees, with or without a potential on the count; closed form."""

    def __init__(self, rows: NDArray[Any], settings: Any) -> None:
        self._rows, self._settings = rows, settings
        self._last: Density | None = None
        self.n_iterations, self.converged = 0, True

    def fit(self, weights: Float64, steps: int, progress: bool | Report = False) -> Density:
        """Weighted Chow-Liu tree."""
        build = fit_tree_counts if self._settings.kind == "tree+counts" else chow_liu
        self._last = build(self._rows, weights, self._settings.pseudo_count)
        self.n_iterations += 1
        return self._last

    def log_prob(self) -> Float64:
        """Log-probabilities of the training rows."""
        assert self._last is not None
        return self._last.log_prob(self._rows)


LINKAGES = ("single", "complete", "average", "weighted", "centroid", "median", "ward")  # of SciPy


def disagreement(rows: NDArray[Any], weights: Float64 | None = None) -> Float64:
    """How often two columns differ, (D, D)."""
    y = rows.astype(np.float64)
    w = np.ones(len(y)) if weights is None else weights
    both = y.T @ (y * w[:, None])
    single = np.diag(both)
    apart = (single[:, None] + single[None, :] - 2.0 * both) / w.sum()
    np.fill_diagonal(apart, 0.0)
    return np.asarray(np.maximum(apart, 0.0))


def cluster(
    rows: NDArray[Any],
    structure: Any,
    method: Any,
    rng: np.random.RandomState,
    weights: Float64 | None = None,
) -> CountTree:
    """A count tree over the columns.

    Parameters
    ----------
    structure : {"adaptive", "anti", "random", "flat"}, CountTree or linkage matrix
        "adaptive" joins columns that agree often, "anti" negates the distances first, "random" joins at
        random, "flat" is one group of all variables.
    method : str
        Linkage method of SciPy.
    """
    d = rows.shape[1]
    checks.one_of("linkage", method, LINKAGES)
    if not isinstance(structure, str):
        tree = structure if isinstance(structure, CountTree) else CountTree.from_linkage(structure)
        if tree.n_variables != d:
            raise ParameterError(
                f"`structure` must be a tree or linkage over {d} variables; one over {tree.n_variables} arrived."
            )
        return tree
    checks.one_of("structure", structure, ("adaptive", "anti", "random", "flat"))
    if d == 1 or structure == "flat":
        return CountTree.flat(d)
    if structure == "random":
        return CountTree.from_linkage(linkage(rng.random_sample(d * (d - 1) // 2), method))
    distance = disagreement(rows, weights)
    if structure == "anti":
        distance = distance.max() - distance
        np.fill_diagonal(distance, 0.0)
    return CountTree.from_linkage(linkage(squareform(distance, checks=False), method))
