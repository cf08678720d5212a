"""Probabilities of values and of the two sides of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tallytree.arrays import Float64

from .table import LatticeTable


class Probabilities(LatticeTable):
    """``pmf``, ``cdf``, ``sf`` and their logarithms."""

    def _few_logs(self, which: str, name: str, x: ArrayLike) -> Float64 | None:
        """Log of P(X = x), P(X <= x) or P(X > x) for "at", "below" or "above", if there is a way without the table."""
        return None

    def _log_probability(self, which: str, name: str, x: ArrayLike) -> Float64:
        """The same at the points of an array."""
        few = self._few_logs(which, name, x)
        if few is not None:
            return few
        if which == "at":
            return self._look_up(self._log_table, name, x, -np.inf, -np.inf, -np.inf)
        side, ends = (0, (-np.inf, 0.0)) if which == "below" else (1, (0.0, -np.inf))
        return self._look_up(self._log_tails[side], name, x, *ends, None)

    def _tail(self, side: int, x: ArrayLike) -> Float64:
        few = self._few_logs(("below", "above")[side], "x", x)
        if few is not None:
            return np.asarray(np.exp(few))
        return self._look_up(self._tails[side], "x", x, float(side), 1.0 - side, None)

    def logpmf(self, k: ArrayLike) -> Any:
        """``log P(X = k)``; -inf where k is not a possible value.

        Parameters
        ----------
        k : array_like
            Where to evaluate.

        Returns
        -------
        float or ndarray
            Logarithms, of the shape of ``k`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``k`` holds no numbers or does not broadcast against the batch.

        See Also
        --------
        pmf, logcdf, logsf

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).logpmf([0, 1, 7]).round(4)
        array([-1.3863, -0.6931,    -inf])
        """
        return self._log_probability("at", "k", k)[()]

    def pmf(self, k: ArrayLike) -> Any:
        """``P(X = k)``; 0 where k is not a possible value.

        Parameters
        ----------
        k : array_like
            Where to evaluate.

        Returns
        -------
        float or ndarray
            Probabilities, of the shape of ``k`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``k`` holds no numbers or does not broadcast against the batch.

        See Also
        --------
        logpmf, cdf, sf

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).pmf([0, 1, 2])
        array([0.25, 0.5 , 0.25])
        """
        return np.exp(self._log_probability("at", "k", k))[()]

    def logcdf(self, x: ArrayLike) -> Any:
        """``log P(X <= x)``.

        Parameters
        ----------
        x : array_like
            Where to evaluate.

        Returns
        -------
        float or ndarray
            Logarithms, of the shape of ``x`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``x`` holds no numbers or does not broadcast against the batch.

        See Also
        --------
        cdf, logsf

        Examples
        --------
        >>> tt.PoissonBinomial(np.full(10_000, 0.5)).logcdf(100).round(3)
        np.float64(-6374.664)
        """
        return self._log_probability("below", "x", x)[()]

    def cdf(self, x: ArrayLike) -> Any:
        """``P(X <= x)``, with relative accuracy however small.

        Parameters
        ----------
        x : array_like
            Where to evaluate.

        Returns
        -------
        float or ndarray
            Probabilities, of the shape of ``x`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``x`` holds no numbers or does not broadcast against the batch.

        See Also
        --------
        logcdf, sf, ppf

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).cdf([0, 1, 2])
        array([0.25, 0.75, 1.  ])
        """
        return self._tail(0, x)[()]

    def logsf(self, x: ArrayLike) -> Any:
        """``log P(X > x)``.

        Parameters
        ----------
        x : array_like
            Where to evaluate.

        Returns
        -------
        float or ndarray
            Logarithms, of the shape of ``x`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``x`` holds no numbers or does not broadcast against the batch.

        See Also
        --------
        sf, logcdf

        Examples
        --------
        >>> tt.PoissonBinomial(np.full(10_000, 0.001)).logsf(1_000).round(3)
        np.float64(-3674.952)
        """
        return self._log_probability("above", "x", x)[()]

    def sf(self, x: ArrayLike) -> Any:
        """``P(X > x)``, with relative accuracy however small.

        Parameters
        ----------
        x : array_like
            Where to evaluate.

        Returns
        -------
        float or ndarray
            Probabilities, of the shape of ``x`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``x`` holds no numbers or does not broadcast against the batch.

        See Also
        --------
        logsf, cdf, isf

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).sf([0, 1, 2])
        array([0.75, 0.25, 0.  ])
        """
        return self._tail(1, x)[()]
