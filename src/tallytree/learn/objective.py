"""Penalised negative log-likelihood per row of a count model, its gradient and products with its Hessian.

``J = log Z(eta) - eta . s + l2 / 2 |free|^2 + smoothness / 2 sum (second differences of log-tables)^2``

with s the empirical means of the natural statistics: y, counts, and pairs of states at the edges. The
gradient is model minus empirical means; the Hessian is the covariance of the statistics.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError
from ..forest_model import ForestCountModel, ForestStatistics
from ..model import CountModel
from .free import FreeParameters
from .statistics import CountFeatures, Statistics

Float64 = NDArray[np.float64]


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
        weight = np.zeros(free.n_free)
        for part, l2 in zip(free.parts, (l2_logits, l2_tables, l2_edges)):
            own = free.labels[part]
            weight[own[own >= 0]] = l2  # no label is in two parts
        self._l2 = weight
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
            if isinstance(self._model, ForestCountModel) and len(edges):
                tables = edges.reshape(-1, 2, 2)
                self._seen = (key, self._model.replace(logits=logits, tables=packed, edges=tables))
            else:
                self._seen = (key, self._model.replace(logits=logits, tables=packed))
        return self._seen[1]

    def log_likelihood(self, values: Float64) -> float:
        """Mean log-probability of a row, penalties not counted."""
        return self._log_likelihood(self.model_at(values), np.concatenate(self._free.natural(values)))

    def _log_likelihood(self, model: CountModel, natural: Float64) -> float:
        return float(natural[self._used] @ self._means[self._used]) - float(model.log_partition)

    def value_and_gradient(self, values: Float64) -> tuple[float, Float64]:
        """J and its gradient with respect to the free parameters."""
        model = self.model_at(values)
        parts = self._free.natural(values)
        packed = parts[1]
        value = -self._log_likelihood(model, np.concatenate(parts))
        expected = model.expected_statistics
        pairs = expected.edges.reshape(-1) if isinstance(expected, ForestStatistics) else np.zeros(0)
        means = np.concatenate([expected.logits, *expected.tables, pairs])
        gradient = self._free.pull(means - self._means) + self._l2 * values
        value += 0.5 * float(self._l2 @ values**2)
        if self._smoothness and len(self._bend):
            bend = self._bends(packed)
            value += 0.5 * self._smoothness * float(bend @ bend)
            gradient += self._smoothness * self._unbend(bend)
        return value, gradient

    def hessian_product(self, values: Float64, direction: Float64) -> Float64:
        """H v: covariance of the statistics times the direction, plus the penalties; not with edges."""
        free = self._free
        natural = np.append(direction, 0.0)[free.labels]
        d = free.n_variables
        image = self.model_at(values).hessian_vector_product(natural[:d], natural[d:])
        product = free.pull(np.concatenate([image.logits, *image.tables])) + self._l2 * direction
        if self._smoothness and len(self._bend):
            product += self._smoothness * self._unbend(self._bends(natural[d:]))
        return product

    def _bends(self, packed: Float64) -> Float64:
        i = self._bend
        return np.asarray(packed[i] - 2.0 * packed[i + 1] + packed[i + 2])

    def _unbend(self, bend: Float64) -> Float64:
        i, natural = self._bend, np.zeros(len(self._free.labels))
        t = natural[self._free.parts[1]]  # a view
        np.add.at(t, i, bend)
        np.add.at(t, i + 1, -2.0 * bend)
        np.add.at(t, i + 2, bend)
        return self._free.pull(natural)


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
