"""Penalised negative log-likelihood per row of a count model, its gradient and products with its Hessian.

``J = log Z(eta) - eta . s + l2 / 2 |free|^2 + smoothness / 2 sum (second differences of log-tables)^2``

with s the empirical means of the natural statistics. The gradient is model minus empirical means; the
Hessian is the covariance of the statistics.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError
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
    l2_logits, l2_tables : float
        Penalties ``l2 / 2 * sum of squares`` on free logits and free table entries, relative to one row.
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
        smoothness: float = 0.0,
    ) -> None:
        self._model, self._features, self._free = model, features, free
        self._means = statistics.packed
        dead = (free.base == -math.inf) & (self._means > 0)
        if dead.any():
            raise ParameterError(
                "`data` holds rows that the model gives probability zero (a count or variable "
                "excluded by -inf). "
                "Drop those rows, or make the entries finite."
            )
        d = free.n_variables
        weight = np.zeros(free.n_free)
        first = np.full(free.n_free, len(free.labels))
        position = np.flatnonzero(free.labels >= 0)
        np.minimum.at(first, free.labels[position], position)
        weight[first < d], weight[first >= d] = l2_logits, l2_tables
        self._l2 = weight
        self._smoothness = smoothness
        inside = free.labels[d:] >= 0
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
            logits, packed = self._free.natural(values)
            self._seen = (key, self._model.replace(logits=logits, tables=packed))
        return self._seen[1]

    def value_and_gradient(self, values: Float64) -> tuple[float, Float64]:
        """J and its gradient with respect to the free parameters."""
        model = self.model_at(values)
        logits, packed = self._free.natural(values)
        natural = np.concatenate([logits, packed])
        used = self._means != 0
        value = float(model.log_partition) - float(natural[used] @ self._means[used])
        expected = model.expected_statistics
        means = np.concatenate([expected.logits, *expected.tables])
        gradient = self._free.pull(means - self._means) + self._l2 * values
        value += 0.5 * float(self._l2 @ values**2)
        if self._smoothness and len(self._bend):
            bend = self._bends(packed)
            value += 0.5 * self._smoothness * float(bend @ bend)
            gradient += self._smoothness * self._unbend(bend)
        return value, gradient

    def hessian_product(self, values: Float64, direction: Float64) -> Float64:
        """H v: covariance of the statistics times the direction, plus the penalties."""
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
        i, t = self._bend, np.zeros(self._features.n_cells)
        np.add.at(t, i, bend)
        np.add.at(t, i + 1, -2.0 * bend)
        np.add.at(t, i + 2, bend)
        return self._free.pull(np.concatenate([np.zeros(self._free.n_variables), t]))
