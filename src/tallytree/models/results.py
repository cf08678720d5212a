"""What models return when an array would not do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import display
from ..arrays import Float64, FloatArray, Ints, States


@dataclass(frozen=True, eq=False)
class SparseSamples:
    """Samples stored as lists of the variables that are on, as the rows of a sparse matrix.

    Attributes
    ----------
    indices : (total,) int64
        Variables that are on, increasing in every sample.
    indptr : (rows + 1,) int64
        Sample i is ``indices[indptr[i]:indptr[i + 1]]``; samples are counted in C order over the leading axes.
    shape : tuple of int
        Shape of the dense samples, (size..., batch..., D).

    See Also
    --------
    tallytree.CountModel

    Examples
    --------
    >>> model = tt.CountModel([np.inf, -np.inf, np.inf], tt.exactly(2))
    >>> drawn = model.sample(2, rng=0, sparse=True)
    >>> drawn.indices, drawn.indptr
    (array([0, 2, 0, 2]), array([0, 2, 4]))
    """

    indices: Ints
    indptr: Ints
    shape: tuple[int, ...]

    def to_scipy(self) -> Any:
        """The samples as a :class:`scipy.sparse.csr_array` of uint8, one row per sample.

        Returns
        -------
        scipy.sparse.csr_array
            Matrix of shape (number of samples of all models, D).

        See Also
        --------
        to_dense, CountModel.sample

        Examples
        --------
        >>> tt.CountModel([-np.inf, np.inf, -np.inf]).sample(2, rng=0, sparse=True).to_scipy().toarray()
        array([[0, 1, 0],
               [0, 1, 0]], dtype=uint8)
        """
        from scipy.sparse import csr_array  # needed only here

        ones = np.ones(len(self.indices), np.uint8)
        return csr_array((ones, self.indices, self.indptr), shape=(len(self.indptr) - 1, self.shape[-1]))

    def to_dense(self) -> States:
        """The samples as an array of 0 and 1, (size..., batch..., D).

        Returns
        -------
        ndarray of uint8
            As :meth:`CountModel.sample` without ``sparse`` returns them.

        See Also
        --------
        to_scipy, CountModel.sample

        Examples
        --------
        >>> tt.CountModel([-np.inf, np.inf, -np.inf]).sample(2, rng=0, sparse=True).to_dense()
        array([[0, 1, 0],
               [0, 1, 0]], dtype=uint8)
        """
        out = np.zeros((len(self.indptr) - 1, self.shape[-1]), np.uint8)
        out[np.repeat(np.arange(len(out)), np.diff(self.indptr)), self.indices] = 1
        return out.reshape(self.shape)

    def _repr_html_(self) -> str:
        if math.prod(self.shape) > display.MOST_CELLS:
            return display.page(repr(self))
        return display.matrix_page(self, self.to_dense(), "one sample to a row")


class Modes(NamedTuple):
    """The best configurations, best first: ``configurations`` (..., k, D) and their ``log_weights`` (..., k).

    Log-weights are unnormalised; subtract ``log_partition`` for log-probabilities.

    Attributes
    ----------
    configurations : (..., k, D) array
        Zeros and ones, best first.
    log_weights : (..., k) array
        Their unnormalised log-weights.

    See Also
    --------
    tallytree.CountModel

    Examples
    --------
    >>> best = tt.CountModel([1.0, 2.0, 3.0], tt.exactly(2)).mode_k(2)
    >>> best.configurations.tolist(), best.log_weights.tolist()
    ([[0, 1, 1], [1, 0, 1]], [5.0, 4.0])
    """

    configurations: States
    log_weights: Float64

    def _repr_html_(self) -> str:
        return display.matrix_page(self, self.configurations, "one configuration to a row")


@dataclass(frozen=True, eq=False)
class ExpectedStatistics:
    """Gradient of ``log_partition``: what learning compares with the data.

    Attributes
    ----------
    logits : (..., D) array
        P(y_d = 1), the derivatives with respect to the logits.
    tables : tuple of (..., n + 1) arrays
        Probabilities of the counts of every group, the derivatives with respect to the log-tables.
    edges : (..., E, 2, 2) array or None
        Joint probabilities of the two ends of every edge, the derivatives with respect to its log-table; None for a
        model without edges.

    See Also
    --------
    tallytree.CountModel
    tallytree.learn.fit

    Examples
    --------
    >>> found = tt.CountModel([0.0, 0.0], tt.exactly(1)).expected_statistics
    >>> found.logits, found.tables[0]
    (array([0.5, 0.5]), array([0., 1., 0.]))
    """

    logits: FloatArray
    tables: tuple[FloatArray, ...]
    edges: FloatArray | None = None

    _repr_html_ = display.statistics_page


@dataclass(frozen=True, eq=False)
class ChainStatistics:
    """Gradient of ``log_partition``: ``unary`` (..., T, K), ``transitions`` (..., T - 1, K, K), ``tables`` by group."""

    unary: FloatArray
    transitions: FloatArray
    tables: tuple[FloatArray, ...]
