"""The likelihood of a conditional count model: which numbers are free, its value, gradient and Hessian products.

Free numbers, in this order: weights of covariates, intercepts, entries of log-tables, interactions of edges,
coordinates of the parameters of potentials. All but the last enter the log-weights linearly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..models.count import CountModel
from ..models.edges import Forest
from ..models.group import Group
from ..structure.nested.count_tree import CountTree
from .free import shared_parameters
from .options import finite_array
from .regression_tables import table_choices
from .statistics import CountFeatures, binary_rows


@dataclass(frozen=True)
class Choices:
    """What may move, and the penalties per row."""

    intercept: str
    tables: Any
    interactions: Any
    l2: float
    l2_tables: float
    l2_edges: float


@dataclass(frozen=True, eq=False)
class Numbers:
    """Values of everything: w, b (D,), packed tables (n_classes, T) and log-tables of edges (E, 2, 2)."""

    coef: Float64
    intercept: Float64
    tables: Float64
    edges: Float64


class ConditionalProblem:
    """Rows with covariates, and the model of their responses.

    Parameters
    ----------
    tree, forest
        Groups and edges.
    X, Y, classes, start_tables
        As in :func:`~tallytree.learn.fit_conditional`.
    choices
        What may move.
    """

    def __init__(
        self,
        tree: CountTree,
        forest: Forest | None,
        X: ArrayLike,
        Y: ArrayLike,
        classes: ArrayLike | None,
        start_tables: ArrayLike | None,
        choices: Choices,
    ) -> None:
        if not isinstance(tree, CountTree):
            raise ParameterError(
                f"`tree` must be a CountTree; {checks.describe(tree)} arrived. Make one with CountTree.from_groups."
            )
        pairs = None if forest is None else forest.pairs
        self.tree, self.forest, self._choices = tree, forest, choices
        self.features = CountFeatures(tree, pairs)
        self.y = binary_rows(Y, tree.n_variables).astype(np.float64)
        self.x = _covariates(X, self.y)
        n, d = self.y.shape
        self.n_rows = n
        self.classes, self.n_classes = _classes(classes, n)
        self.coef_shape = (self.x.shape[-1],) if self.x.ndim == 3 else (self.x.shape[-1], d)
        self._n_coef = int(np.prod(self.coef_shape))
        base = _start_tables(start_tables, self.features.n_cells, self.n_classes)
        moves, places = table_choices(
            choices.tables, np.diff(self.features.offset), self.n_classes, self.features.offset
        )
        self.free = shared_parameters(d, choices.intercept, base, moves, places, choices.interactions, forest)
        shared = self.free.penalties(0.0, choices.l2_tables, choices.l2_edges)
        self._penalty = np.append(np.full(self._n_coef, choices.l2), shared)
        start = self.numbers(self.start(None))
        self.cells = self.features.cells(self.y)
        self._pairs_on = self.features.pair_cells(self.y) % 4 == 3
        _refuse_excluded(start.tables[self.classes[:, None], self.cells], "a count whose table entry")
        if forest is not None:
            own = start.edges.reshape(-1)[self.features.pair_cells(self.y)]
            _refuse_excluded(own, "a pair of states whose entry in `edges`")
        groups = [Group(members) for members in tree.groups]
        self._template = CountModel(np.zeros(d), groups, edges=forest)
        self._seen: tuple[bytes, CountModel] | None = None

    # -- numbers and free numbers ------------------------------------------------------------------------------

    def _parts(self, values: Float64) -> tuple[Float64, Float64]:
        """Weights of covariates, and what all rows share."""
        return values[: self._n_coef].reshape(self.coef_shape), values[self._n_coef :]

    def start(self, warm: Any) -> Float64:
        """Where nothing has moved yet, or at the numbers of an earlier fit."""
        if warm is None:
            return np.concatenate([np.zeros(self._n_coef), self.free.start])
        if not hasattr(warm, "coef") or not hasattr(warm, "tables"):
            raise ParameterError(
                f"`warm_start` must be a ConditionalFit; {checks.describe(warm)} arrived. Pass what an "
                "earlier fit returned."
            )
        if warm.coef.shape != self.coef_shape or warm.tables.shape != (self.n_classes, self.features.n_cells):
            raise ParameterError("`warm_start` must be a fit with the same tree, covariates and classes.")
        free, natural = self.free, self.free.base.copy()
        logits, tables, edges = free.parts
        natural[logits], natural[tables] = warm.intercept, warm.tables.reshape(-1)
        if self.forest is not None and warm.edges is not None:
            natural[edges] = warm.edges.log_tables.reshape(-1)
        coordinates = free.parametric.start
        if set(free.parametric.names) <= set(warm.parameters):
            coordinates = free.parametric.coordinates(warm.parameters)
        change = np.subtract(natural, free.base, out=np.zeros(len(natural)), where=free.labels >= 0)
        return np.concatenate([warm.coef.reshape(-1), free.nearest(change), coordinates])

    def numbers(self, values: Float64) -> Numbers:
        """Everything at values of the free numbers."""
        coef, shared = self._parts(values)
        intercept, tables, edges = self.free.natural(shared)
        return Numbers(coef, intercept, tables.reshape(self.n_classes, -1), edges.reshape(-1, 2, 2))

    def parameters(self, values: Float64) -> dict[str, float]:
        """Values of the parameters of potentials by name."""
        return self.free.parameters(self._parts(values)[1])

    def model(self, numbers: Numbers, rows: Ints) -> CountModel:
        """The models of some rows."""
        logits = self.x[rows] @ numbers.coef + numbers.intercept
        tables = numbers.tables[0] if self.n_classes == 1 else numbers.tables[self.classes[rows]]
        edges = None if self.forest is None else numbers.edges
        return self._template.replace(logits=logits, tables=tables, edges=edges)

    def log_weights(self, numbers: Numbers, model: CountModel, rows: Ints) -> Float64:
        """Unnormalised log-probabilities of the responses of some rows."""
        total = (np.asarray(model.logits) * self.y[rows]).sum(1)
        total += numbers.tables[self.classes[rows, None], self.cells[rows]].sum(1)
        if self.forest is not None:
            total += numbers.edges.reshape(-1)[self.features.pair_cells(self.y[rows])].sum(1)
        return np.asarray(total)

    # -- the objective -----------------------------------------------------------------------------------------

    def on_rows(self, values: Float64, rows: Ints) -> tuple[float, Float64]:
        """Penalised negative log-likelihood per row, and gradient, on some rows."""
        if not self.free.in_range(self._parts(values)[1]):
            return math.inf, np.zeros(len(values))
        numbers = self.numbers(values)
        model = self.model(numbers, rows)
        value = float((np.asarray(model.log_partition) - self.log_weights(numbers, model, rows)).mean())
        expected = model.expected_statistics
        gap = np.asarray(expected.logits) - self.y[rows]
        tables = self._summed(np.concatenate([np.zeros((len(rows), 0)), *expected.tables], axis=-1), rows)
        seen = (np.repeat(self.classes[rows], self.cells.shape[1]), self.cells[rows].reshape(-1))
        np.subtract.at(tables, seen, 1.0)
        pairs = np.zeros(0)
        if expected.edges is not None:
            pairs = (np.asarray(expected.edges)[..., 1, 1] - self._pairs_on[rows]).sum(0)
        value += 0.5 * float(self._penalty @ values**2)
        return value, self._pull(gap, tables, pairs, values, rows) + self._penalty * values

    def value_and_gradient(self, values: Float64) -> tuple[float, Float64]:
        """The same on all rows."""
        return self.on_rows(values, np.arange(self.n_rows))

    def hessian_product(self, values: Float64, direction: Float64) -> Float64:
        """H v, the expected Hessian where potentials have parameters; not where edges move."""
        rows = np.arange(self.n_rows)
        coef, shared = self._parts(direction)
        natural = self.free.push(shared, self._parts(values)[1])
        bias, moved = natural[self.free.parts[0]], natural[self.free.parts[1]].reshape(self.n_classes, -1)
        pushed = np.broadcast_to(moved[self.classes], (self.n_rows, self.features.n_cells))
        image = self._model_at(values).hessian_vector_product(self.x @ coef + bias, pushed)
        by_class = self._summed(np.concatenate([np.zeros((self.n_rows, 0)), *image.tables], axis=-1), rows)
        product = self._pull(np.asarray(image.logits), by_class, np.zeros(0), values, rows)
        return product + self._penalty * direction

    def scale(self, values: Float64) -> Float64:
        """A positive diagonal near that of the Hessian, from the variances of single statistics."""
        expected = self._model_at(values).expected_statistics
        mean = np.asarray(expected.logits)
        variance = mean * (1.0 - mean)
        counts = np.concatenate([np.zeros((self.n_rows, 0)), *expected.tables], axis=-1)
        tables = self._summed(counts * (1.0 - counts), np.arange(self.n_rows))
        shared = self.free.squares(self._natural(variance, tables, np.zeros(0)), self._parts(values)[1])
        found = np.concatenate([_by_covariates(variance, self.x**2), shared]) / self.n_rows
        found += self._penalty
        return np.where(found > 0.0, found, 1.0)

    def first_radius(self, values: Float64) -> float:
        """Limit on the first step, in the metric of :meth:`scale`."""
        return self.free.first_radius(self._parts(self.scale(values))[1])

    def _model_at(self, values: Float64) -> CountModel:
        key = values.tobytes()
        if self._seen is None or self._seen[0] != key:
            self._seen = (key, self.model(self.numbers(values), np.arange(self.n_rows)))
        return self._seen[1]

    def _summed(self, packed: Float64, rows: Ints) -> Float64:
        """Sums over the rows of every class, (n_classes, T)."""
        out = np.zeros((self.n_classes, self.features.n_cells))
        np.add.at(out, self.classes[rows], packed)
        return out

    def _pull(self, gap: Float64, tables: Float64, pairs: Float64, values: Float64, rows: Ints) -> Float64:
        """Per row, from logits (N, D), tables (n_classes, T) and entries (1, 1) of edges (E,) to the free numbers."""
        shared = self.free.pull(self._natural(gap, tables, pairs), self._parts(values)[1])
        return np.concatenate([_by_covariates(gap, self.x[rows]), shared]) / len(rows)

    def _natural(self, logits: Float64, tables: Float64, pairs: Float64) -> Float64:
        """Sums of logits (N, D), tables (n_classes, T) and entries (1, 1) of edges (E,), or none, packed."""
        out = np.concatenate([logits.sum(0), tables.reshape(-1), np.zeros(4 * len(self.features.pairs))])
        if len(pairs):
            out[self.free.parts[2]][3::4] = pairs
        return out


def _by_covariates(gap: Float64, x: Float64) -> Float64:
    """Sums over rows and variables of (N, D) times the covariates, one for every weight."""
    found = np.tensordot(gap, x, axes=([0, 1], [0, 1])) if x.ndim == 3 else x.T @ gap
    return np.asarray(found.reshape(-1))


def _covariates(X: ArrayLike, y: Float64) -> Float64:
    x = finite_array("X", X, "covariates (N, p) or (N, D, p)")
    n, d = y.shape
    if x.ndim not in (2, 3) or len(x) != n or (x.ndim == 3 and x.shape[1] != d):
        raise ParameterError(
            f"`X` must have shape ({n}, p) or ({n}, {d}, p) to go with `Y`; shape {x.shape} arrived."
        )
    return x


def _classes(classes: ArrayLike | None, n: int) -> tuple[Ints, int]:
    if classes is None:
        return np.zeros(n, np.int64), 1
    found = checks.rectangular("classes", classes, f"{n} integers of at least 0")
    if found.shape != (n,) or found.dtype.kind not in "biu" or (found < 0).any():
        raise ParameterError(
            f"`classes` must be {n} integers of at least 0; {checks.describe(classes)} arrived."
        )
    return found.astype(np.int64), int(found.max(initial=0)) + 1


def covariates_like(X: ArrayLike, coef: Float64, d: int) -> Float64:
    """New rows with the columns of a fit: (N, p), or (N, D, p) where variables share their coefficients."""
    x = finite_array("X", X, "covariates of new rows")
    columns = (len(coef),) if coef.ndim == 2 else (d, len(coef))
    if x.ndim == 0 or x.shape[1:] != columns:
        wanted = ", ".join(["N", *map(str, columns)])
        raise ParameterError(f"`X` must have shape ({wanted}), as in the fit; shape {x.shape} arrived.")
    return x


def classes_like(classes: ArrayLike | None, n: int, n_classes: int) -> Ints:
    """Classes of new rows among those of a fit."""
    if classes is None and n_classes > 1:
        raise ParameterError(
            f"`classes` must say the class of every row, because the fit has tables of {n_classes} classes; None "
            "arrived."
        )
    found, above = _classes(classes, n)
    if above > n_classes:
        raise ParameterError(
            f"`classes` must be classes of the fit, 0 to {n_classes - 1}; {above - 1} arrived. Fit with rows of it."
        )
    return found


def _start_tables(start: ArrayLike | None, n_cells: int, n_classes: int) -> Float64:
    base = np.zeros(n_cells) if start is None else checks.rectangular("start_tables", start, "log-values")
    if base.dtype.kind not in "biuf" or np.isnan(base).any() or (base == math.inf).any():
        raise ParameterError(
            f"`start_tables` must hold numbers or -inf; {checks.describe(start)} arrived. NaN and +inf are no "
            "log-values."
        )
    base = base.astype(np.float64)
    if base.shape not in ((n_cells,), (n_classes, n_cells)):
        raise ParameterError(
            f"`start_tables` must be packed, {n_cells} entries, or {n_classes} such rows, one per class; shape "
            f"{base.shape} arrived."
        )
    return np.array(np.broadcast_to(base, (n_classes, n_cells)))


def _refuse_excluded(entries: Float64, what: str) -> None:
    excluded = np.flatnonzero((entries == -math.inf).any(1))
    if len(excluded):
        raise ParameterError(
            f"`Y` must hold rows that `start_tables` and `edges` allow; row {excluded[0]} has {what} is "
            "-inf. Drop such rows, or make the entries finite."
        )
