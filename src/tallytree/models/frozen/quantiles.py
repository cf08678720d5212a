"""Values at which a distribution reaches a probability."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tallytree.arrays import Float64, Ints
from tallytree.checks.sums import broadcast_shape, probability

from .table import LatticeTable


class Quantiles(LatticeTable):
    """``ppf``, ``isf``, ``median``, ``interval`` and ``support``."""

    def _quantile(self, q: ArrayLike, rising: Float64, sign: float) -> Ints:
        """Return the first value where ``rising >= sign q``, with the ends of the support at q = 0 and 1."""
        x = probability("q", q)
        shape = broadcast_shape("q", x.shape, self.batch_shape)
        x = np.broadcast_to(x, shape)
        rows = np.broadcast_to(np.arange(rising.shape[0]).reshape(self.batch_shape), shape)
        index = np.zeros(shape, dtype=np.int64)
        order = np.argsort(rows, axis=None, kind="stable")
        ends = np.searchsorted(rows.ravel()[order], np.arange(rising.shape[0] + 1))
        for row in range(rising.shape[0]):
            here = order[ends[row] : ends[row + 1]]
            index.flat[here] = np.searchsorted(rising[row], sign * x.ravel()[here], side="left")
        low, high = (np.broadcast_to(end, shape) for end in self._bounds)
        found = self._start + self._step * index
        bottom, top = (0.0, 1.0) if sign > 0 else (1.0, 0.0)
        return np.asarray(np.where(x == bottom, low - 1, np.where(x == top, high, np.clip(found, low, high))))

    def ppf(self, q: ArrayLike) -> Any:
        """Smallest k with ``cdf(k) >= q``; as in `scipy.stats`, ppf(0) is one below the support.

        Parameters
        ----------
        q : array_like
            Probabilities.

        Returns
        -------
        int or ndarray of int
            Values, of the shape of ``q`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``q`` is not between 0 and 1.

        See Also
        --------
        cdf, isf, interval

        Examples
        --------
        >>> tt.PoissonBinomial([0.5] * 10).ppf([0.5, 0.99])
        array([5, 9])
        """
        return self._quantile(q, self._tails[0], 1.0)[()]

    def isf(self, q: ArrayLike) -> Any:
        """Smallest k with ``sf(k) <= q``; as in `scipy.stats`, isf(1) is one below the support.

        Parameters
        ----------
        q : array_like
            Probabilities.

        Returns
        -------
        int or ndarray of int
            Values, of the shape of ``q`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``q`` is not between 0 and 1.

        See Also
        --------
        sf, ppf

        Examples
        --------
        >>> tt.PoissonBinomial([0.5] * 10).isf([0.01, 0.5])
        array([9, 5])
        """
        return self._quantile(q, -self._tails[1], -1.0)[()]

    def median(self) -> Any:
        """Smallest k with ``cdf(k) >= 1/2``.

        Returns
        -------
        int or ndarray of int
            One value per member of the batch.

        See Also
        --------
        ppf, mean

        Examples
        --------
        >>> tt.PoissonBinomial([0.9, 0.9, 0.9]).median()
        np.int64(3)
        """
        return self.ppf(0.5)

    def interval(self, confidence: ArrayLike) -> tuple[Any, Any]:
        """Return an interval that leaves at most ``(1 - confidence) / 2`` on either side.

        Parameters
        ----------
        confidence : array_like
            Probability of the interval.

        Returns
        -------
        low : int or ndarray of int
            Lower end, included.
        high : int or ndarray of int
            Upper end, included.

        Raises
        ------
        ParameterError
            If ``confidence`` is not between 0 and 1.

        See Also
        --------
        ppf, isf

        Examples
        --------
        >>> low, high = tt.PoissonBinomial([0.5] * 10).interval(0.9)
        >>> int(low), int(high)
        (2, 8)
        """
        tail = (1.0 - probability("confidence", confidence)) / 2.0
        return self.ppf(tail), self.isf(tail)

    def support(self) -> tuple[Any, Any]:
        """Smallest and largest possible value, each of the shape of the batch.

        Returns
        -------
        low : int or ndarray of int
            The smallest value whose probability is not zero.
        high : int or ndarray of int
            The largest one.

        See Also
        --------
        values, pmf

        Examples
        --------
        >>> low, high = tt.PoissonBinomial([0.5, 0.5, 1.0]).support()
        >>> int(low), int(high)
        (1, 3)
        """
        return self._bounds
