"""Penalised negative log-likelihood per row of a count model, its gradient and products with its Hessian.

``J = log Z(eta) - eta . s + l2 / 2 |free|^2 + smoothness / 2 sum (second differences of log-tables)^2``

with s the empirical means of the natural statistics: y, counts, and pairs of states at the edges. The
gradient is model minus empirical means; the Hessian is the covariance of the statistics.
"""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Float64
from ..errors import ParameterError
from ..models.count import CountModel
from .free import FreeParameters
from .statistics import CountFeatures, Statistics


class Objective:
    """Value, gradient and Hessian products at values of the free parameters.

    Parameters
    ----------
    model : CountModel
        Structure and base values.
    features, free, statistics
        Packing of the tables, labels of the free parameters, empirical means.
    l2_logits, l2_tables, l2_edges : float
        Penalties ``l2 / 2 * sum of squares`` on free logits, table entries and interactions, relative to
        one row.
    smoothness : float
        Penalty on second differences of free log-tables.
    """

    def __init__(
        self,
        model: CountModel,
        features: CountFeatures,
        free: FreeParameters,
        statistics: Statistics,
        *,
        l2_logits: float = 0.0,
        l2_tables: float = 0.0,
        l2_edges: float = 0.0,
        smoothness: float = 0.0,
    ) -> None:
        self._model, self._features, self._free = model, features, free
        self._means = statistics.packed
        _refuse_contradictions(free, self._means)
        # Infinite logits weigh 1 in log Z; rows that agree with them have nothing to add.
        self._used = (self._means != 0) & np.isfinite(free.base)
        self._l2 = free.penalties(l2_logits, l2_tables, l2_edges)
        self._smoothness = smoothness
        inside = free.labels[free.parts[1]] >= 0
        same = (
            features.group_of_cell[2:] == features.group_of_cell[:-2]
            if features.n_cells > 2
            else np.zeros(0, bool)
        )
        self._bend = np.flatnonzero(same & inside[2:] & inside[1:-1] & inside[:-2])
        self._seen: tuple[bytes, CountModel] | None = None

    def model_at(self, values: Float64) -> CountModel:
        """The model with these values of the free parameters."""
        key = values.tobytes()
        if self._seen is None or self._seen[0] != key:
            logits, packed, edges = self._free.natural(values)
            of_edges = edges.reshape(-1, 2, 2) if len(edges) else None
            self._seen = (key, self._model.replace(logits=logits, tables=packed, edges=of_edges))
        return self._seen[1]

    def log_likelihood(self, values: Float64) -> float:
        """Mean log-probability of a row, penalties not counted."""
        return self._log_likelihood(self.model_at(values), np.concatenate(self._free.natural(values)))

    def _log_likelihood(self, model: CountModel, natural: Float64) -> float:
        return float(natural[self._used] @ self._means[self._used]) - float(model.log_partition)

    def value_and_gradient(self, values: Float64) -> tuple[float, Float64]:
        """J and its gradient with respect to the free parameters; infinite where a parameter makes no table."""
        if not self._free.in_range(values):
            return math.inf, np.zeros(len(values))
        model = self.model_at(values)
        parts = self._free.natural(values)
        packed = parts[1]
        value = -self._log_likelihood(model, np.concatenate(parts))
        gradient = self._free.pull(self._expected(model) - self._means, values) + self._l2 * values
        value += 0.5 * float(self._l2 @ values**2)
        if self._smoothness and len(self._bend):
            bend = self._bends(packed)
            value += 0.5 * self._smoothness * float(bend @ bend)
            gradient += self._smoothness * self._unbend(bend, values)
        return value, gradient

    @staticmethod
    def _expected(model: CountModel) -> Float64:
        """Expectations of the natural statistics, packed."""
        found = model.expected_statistics
        pairs = np.zeros(0) if found.edges is None else found.edges.reshape(-1)
        return np.concatenate([found.logits, *found.tables, pairs])

    def hessian_product(self, values: Float64, direction: Float64) -> Float64:
        """H v: covariance of the statistics times the direction, plus the penalties; not where edges move.

        For potentials with parameters it is the expected Hessian, which leaves out how their tables bend: the factor of
        that is the difference between model and data.
        """
        free = self._free
        natural = free.push(direction, values)
        logits, tables, edges = free.parts
        image = self.model_at(values).hessian_vector_product(natural[logits], natural[tables])
        moved = np.concatenate([image.logits, *image.tables, np.zeros(edges.stop - edges.start)])
        product = free.pull(moved, values) + self._l2 * direction
        if self._smoothness and len(self._bend):
            product += self._smoothness * self._unbend(self._bends(natural[tables]), values)
        return product

    def scale(self, values: Float64) -> Float64:
        """A diagonal near that of the Hessian, positive: the larger variance of every statistic, by model or data."""
        expected = self._expected(self.model_at(values))
        variance = np.maximum(expected * (1.0 - expected), self._means * (1.0 - self._means))
        found = self._free.squares(np.maximum(variance, 0.0), values) + self._l2
        return np.where(found > 0.0, found, 1.0)

    def first_radius(self, values: Float64) -> float:
        """Limit on the first step, in the metric of :meth:`scale`."""
        return self._free.first_radius(self.scale(values))

    def _bends(self, packed: Float64) -> Float64:
        i = self._bend
        return np.asarray(packed[i] - 2.0 * packed[i + 1] + packed[i + 2])

    def _unbend(self, bend: Float64, values: Float64) -> Float64:
        i, natural = self._bend, np.zeros(len(self._free.labels))
        t = natural[self._free.parts[1]]  # a view
        np.add.at(t, i, bend)
        np.add.at(t, i + 1, -2.0 * bend)
        np.add.at(t, i + 2, bend)
        return self._free.pull(natural, values)


def _refuse_contradictions(free: FreeParameters, means: Float64) -> None:
    """Refuse data that the infinite parameters exclude."""
    logits = free.parts[0]
    against = (free.base == -math.inf) & (means > 0)
    against[logits] |= (free.base[logits] == math.inf) & (means[logits] < 1)
    if not against.any():
        return
    first = int(np.flatnonzero(against)[0])
    if first < free.n_variables:
        sign, state = ("+inf", 0) if free.base[first] > 0 else ("-inf", 1)
        what = f"the logit of variable {first} is {sign}, yet it is {state} in some row"
    else:
        what = "a count or pair that occurs is excluded by -inf"
    raise ParameterError(
        f"`data` holds rows that the model gives probability zero: {what}. Drop those rows, or make the "
        "entries finite."
    )
