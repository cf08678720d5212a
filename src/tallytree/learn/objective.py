"""Penalised negative log-likelihood per row of count models, its gradient and products with its Hessian.

``J = mean over rows of (log Z - natural parameters . statistics) + sum of l2 / 2 free^2 + smoothness / 2 sum (second
differences of log-tables)^2``

The statistics are y, counts, and pairs of states at the edges. The gradient is model minus empirical means; the Hessian
is the covariance of the statistics. Without covariates all rows have one model, and their means are all that matters.

Free numbers, in this order: weights of covariates, then those of :class:`~tallytree.learn.free.FreeParameters`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..models.count import CountModel
from ..models.parameters import pack
from .free import FreeParameters
from .statistics import CountFeatures, Statistics


@dataclass(frozen=True, eq=False)
class Seen:
    """Covariates and mean statistics of rows: of each (N leading), or of all together (no leading axis).

    x (N, p), (N, D, p) or (0,); y (N, D) or (D,); classes (N,) or (1,); tables (n_classes, T) and edges (4 E,) are sums
    over the rows divided by N.
    """

    x: Float64
    y: Float64
    classes: Ints
    tables: Float64
    edges: Float64


@dataclass(frozen=True, eq=False)
class Numbers:
    """Values of everything: w, b (D,), packed tables (n_classes, T) and log-tables of edges (E, 2, 2)."""

    coef: Float64
    intercept: Float64
    tables: Float64
    edges: Float64


class Objective:
    """Value, gradient and Hessian products at values of the free numbers.

    Parameters
    ----------
    model : CountModel
        The structure.
    features, free
        Packing of the tables, labels of the free parameters.
    data : Statistics or Seen
        Means of rows without covariates, or rows with them.
    penalties : four floats
        Penalties ``l2 / 2 * sum of squares`` on weights of covariates and on free logits, table entries and
        interactions, relative to one row.
    smoothness : float
        Penalty on second differences of free log-tables; for one class of rows.
    """

    def __init__(
        self,
        model: CountModel,
        features: CountFeatures,
        free: FreeParameters,
        data: Statistics | Seen,
        penalties: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
        smoothness: float = 0.0,
    ) -> None:
        if isinstance(data, Statistics):
            _refuse_contradictions(free, data.packed)
            data = Seen(np.zeros(0), data.logits, np.zeros(1, np.int64), data.tables[None], data.edges)
        self._template, self.features, self.free, self._all = model, features, free, data
        self.coef_shape = data.x.shape[-1:] if data.x.ndim == 3 else (data.x.shape[-1], data.y.shape[-1])
        self._n_coef = math.prod(self.coef_shape)
        self._penalty = np.append(np.full(self._n_coef, penalties[0]), free.penalties(*penalties[1:]))
        self._smoothness = smoothness
        inside, of_cell = free.labels[free.parts[1]] >= 0, features.group_of_cell
        three = inside[2:] & inside[1:-1] & inside[:-2]
        at = np.flatnonzero((of_cell[2:] == of_cell[:-2]) & three) if smoothness else np.zeros(0, np.int64)
        cells, entries = (at[:, None] + np.arange(3)).reshape(-1), np.tile([1.0, -2.0, 1.0], len(at))
        shape = (len(at), features.n_cells)
        self._second: Any = csr_array((entries, cells, 3 * np.arange(len(at) + 1)), shape=shape)
        self._last: tuple[bytes, Seen, tuple[Numbers, CountModel]] | None = None

    def _parts(self, values: Float64) -> tuple[Float64, Float64]:
        """Weights of covariates, and what all rows share."""
        return values[: self._n_coef].reshape(self.coef_shape), values[self._n_coef :]

    def numbers(self, values: Float64) -> Numbers:
        """Everything at values of the free numbers."""
        coef, shared = self._parts(values)
        intercept, tables, edges = self.free.natural(shared)
        return Numbers(coef, intercept, tables.reshape(self._all.tables.shape), edges.reshape(-1, 2, 2))

    def model_at(self, values: Float64) -> CountModel:
        """The models of all rows."""
        return self._at(values, self._all)[1]

    def _at(self, values: Float64, seen: Seen) -> tuple[Numbers, CountModel]:
        """Numbers and models of some rows; the last ones are kept."""
        key = values.tobytes()
        if self._last is None or self._last[0] != key or self._last[1] is not seen:
            numbers = self.numbers(values)
            self._last = (key, seen, (numbers, self._model(numbers, seen)))
        return self._last[2]

    def _model(self, numbers: Numbers, seen: Seen) -> CountModel:
        tables = numbers.tables[0] if len(numbers.tables) == 1 else numbers.tables[seen.classes]
        edges = numbers.edges if len(numbers.edges) else None
        logits = seen.x @ numbers.coef + numbers.intercept if self._n_coef else numbers.intercept
        return self._template.replace(logits=logits, tables=tables, edges=edges)

    def log_likelihood(self, values: Float64) -> float:
        """Mean log-probability of a row, penalties not counted."""
        return self._log_likelihood(*self._at(values, self._all), self._all)

    @staticmethod
    def _log_likelihood(numbers: Numbers, model: CountModel, seen: Seen) -> float:
        logits = np.asarray(model.logits, np.float64)
        if not np.isfinite(numbers.intercept).all():
            logits = np.where(
                np.isfinite(logits), logits, 0.0
            )  # they weigh 1 in log Z, and rows agree with them
        total = float(np.vdot(logits, seen.y)) / len(seen.classes)
        total += float(np.vdot(np.where(seen.tables > 0, numbers.tables, 0.0), seen.tables))
        if len(seen.edges):
            total += float(np.vdot(np.where(seen.edges > 0, numbers.edges.reshape(-1), 0.0), seen.edges))
        return total - float(np.mean(model.log_partition))

    def value_and_gradient(self, values: Float64) -> tuple[float, Float64]:
        """J and its gradient; infinite where a parameter makes no table."""
        return self._evaluated(values, self._all)

    def _evaluated(self, values: Float64, seen: Seen) -> tuple[float, Float64]:
        if not self.free.in_range(self._parts(values)[1]):
            return math.inf, np.zeros(len(values))
        numbers, model = self._at(values, seen)
        value = 0.5 * float(self._penalty @ values**2) - self._log_likelihood(numbers, model, seen)
        mean = model.expected_statistics
        tables = self._by_class(mean.tables, seen) - seen.tables
        edges = -seen.edges
        if mean.edges is not None:
            edges = edges + np.asarray(mean.edges).reshape(len(seen.classes), -1).mean(0)
        differences = self._second @ numbers.tables[0]
        value += 0.5 * self._smoothness * float(differences @ differences)
        tables += self._smoothness * (self._second.T @ differences)
        gradient = self._pull(np.asarray(mean.logits) - seen.y, tables, edges, values, seen)
        return value, gradient + self._penalty * values

    def hessian_product(self, values: Float64, direction: Float64) -> Float64:
        """H v: covariance of the statistics times the direction, plus the penalties; not where edges move.

        For potentials with parameters it is the expected Hessian, which leaves out how their tables bend: the factor of
        that is the difference between model and data.
        """
        seen, (coef, shared) = self._all, self._parts(direction)
        natural = self.free.jacobian(self._parts(values)[1]) @ shared
        logits, tables, edges = self.free.parts
        moved = natural[tables].reshape(seen.tables.shape)
        pushed = moved[seen.classes].reshape(*seen.y.shape[:-1], -1)
        image = self.model_at(values).hessian_vector_product(seen.x @ coef + natural[logits], pushed)
        back = self._by_class(image.tables, seen)
        back += self._smoothness * (self._second.T @ (self._second @ moved[0]))
        none = np.zeros(edges.stop - edges.start)
        return self._pull(np.asarray(image.logits), back, none, values, seen) + self._penalty * direction

    def scale(self, values: Float64) -> Float64:
        """A diagonal near that of the Hessian, positive: the larger variance of every statistic, by model or data."""
        seen, mean = self._all, self.model_at(values).expected_statistics
        p = np.asarray(mean.logits)
        logits = np.maximum(p * (1.0 - p), seen.y * (1.0 - seen.y))
        tables = self._by_class([t * (1.0 - t) for t in mean.tables], seen)
        tables = np.maximum(tables, seen.tables * (1.0 - seen.tables))
        natural = self._packed(logits, tables, np.zeros(len(seen.edges)))
        jacobian = self.free.jacobian(self._parts(values)[1])
        shared = jacobian.power(2).T @ np.maximum(natural, 0.0)
        found = np.append(_by_covariates(logits, seen.x**2, len(seen.classes)), shared) + self._penalty
        return np.where(found > 0.0, found, 1.0)

    def first_radius(self, values: Float64) -> float:
        """Limit on the first step, in the metric of :meth:`scale`."""
        return self.free.first_radius(self._parts(self.scale(values))[1])

    def _by_class(self, tables: Sequence[Any], seen: Seen) -> Float64:
        """Means over the rows of statistics of tables, those of every class apart, (n_classes, T)."""
        n, (n_classes, n_cells) = len(seen.classes), seen.tables.shape
        packed = pack(tables).reshape(n, n_cells)
        if n_classes == 1:
            return packed if n == 1 else packed.mean(0, keepdims=True)
        return np.stack([packed[seen.classes == k].sum(0) for k in range(n_classes)]) / n

    @staticmethod
    def _packed(logits: Float64, tables: Float64, edges: Float64) -> Float64:
        """Means over rows, packed as the natural parameters are."""
        return np.concatenate([logits.mean(0) if logits.ndim == 2 else logits, tables.reshape(-1), edges])

    def _pull(self, logits: Float64, tables: Float64, edges: Float64, values: Float64, seen: Seen) -> Float64:
        """From statistics to the free numbers."""
        natural = self._packed(logits, tables, edges)
        shared = self.free.jacobian(self._parts(values)[1]).T @ natural
        return np.append(_by_covariates(logits, seen.x, len(seen.classes)), shared)


def read_penalties(l2: Any, l2_tables: Any, l2_edges: Any) -> tuple[float, float, float]:
    """Penalties of at least 0; the last two default to the first."""
    given = {"l2": l2, "l2_tables": l2_tables, "l2_edges": l2_edges}
    first, second, third = (
        checks.real(name, l2 if value is None else value, 0.0, infinite=True) for name, value in given.items()
    )
    return first, second, third


def _by_covariates(logits: Float64, x: Float64, n: int) -> Float64:
    """Means over rows of (N, D) times the covariates, one for every weight."""
    if x.ndim == 1:
        return np.zeros(0)
    if x.ndim == 3:
        return np.tensordot(logits, x, axes=([0, 1], [0, 1])) / n
    return np.asarray(x.T @ logits).reshape(-1) / n


def _refuse_contradictions(free: FreeParameters, means: Float64) -> None:
    """Refuse data that the infinite parameters exclude."""
    logits = free.parts[0]
    against = (free.base == -math.inf) & (means > 0)
    against[logits] |= (free.base[logits] == math.inf) & (means[logits] < 1)
    if not against.any():
        return
    first = int(np.flatnonzero(against)[0])
    what = "a count or pair that occurs is excluded by -inf"
    if first < free.n_variables:
        sign, state = ("+inf", 0) if free.base[first] > 0 else ("-inf", 1)
        what = f"the logit of variable {first} is {sign}, yet it is {state} in some row"
    raise ParameterError(
        f"`data` holds rows that the model gives probability zero: {what}. Drop those rows, or make the entries finite."
    )
