"""Values at which a distribution reaches a probability."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tallytree.arrays import Ints
from tallytree.checks.sums import broadcast_shape, probability
from tallytree.engine.pmf.tails import least_reached, most_left

from .table import LatticeTable


class Quantiles(LatticeTable):
    """``ppf``, ``isf``, ``median``, ``interval`` and ``support``."""

    def _quantile(self, q: ArrayLike, side: int) -> Ints:
        """First value with P(X <= v) >= q (side 0) or P(X > v) <= q (side 1), with the ends of the support at 0 and 1.

        The computed probability has to reach the level, or the smaller one of the two tails has to up to its rounding.
        """
        level = probability("q", q)
        shape = broadcast_shape("q", level.shape, self.batch_shape)
        level = np.broadcast_to(level, shape)
        n = self._lattice.nu.shape[1]
        small = np.minimum(level, 1.0 - level)
        upper = (level > 0.5) != (side == 1)
        near = np.where(upper, -most_left(small, n), least_reached(small, n)).ravel()
        rows = np.broadcast_to(np.arange(len(self._tails[0])).reshape(self.batch_shape), shape)
        exact = (-level if side else level).ravel()
        # every member of the batch has two rising sequences: its cdf and its negative sf
        case = 2 * rows + upper
        order = np.argsort(case, axis=None, kind="stable")
        ends = np.searchsorted(case.ravel()[order], np.arange(2 * len(self._tails[0]) + 1))
        index = np.zeros(shape, dtype=np.int64)
        for c in range(len(ends) - 1):
            here = order[ends[c] : ends[c + 1]]
            rising = self._tails[0][c // 2], -self._tails[1][c // 2]
            reached = np.searchsorted(rising[side], exact[here]), np.searchsorted(rising[c % 2], near[here])
            index.flat[here] = np.minimum(*reached)
        low, high = (np.broadcast_to(end, shape) for end in self._bounds)
        found = np.clip(self._start + self._step * index, low, high)
        return np.asarray(np.where(level == float(side), low - 1, np.where(level == 1.0 - side, high, found)))

    def ppf(self, q: ArrayLike) -> Any:
        """Smallest k with ``cdf(k) >= q``; as in `scipy.stats`, ppf(0) is one below the support.

        A level that the distribution attains up to rounding counts as attained.

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
        return self._quantile(q, 0)[()]

    def isf(self, q: ArrayLike) -> Any:
        """Smallest k with ``sf(k) <= q``; as in `scipy.stats`, isf(1) is one below the support.

        A level that the distribution attains up to rounding counts as attained.

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
        return self._quantile(q, 1)[()]

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
