"""What can be asked of distributions on a lattice: probabilities, quantiles and moments."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Bools, Float64, Ints
from ..checks.sums import moment_letters, real_array
from ..engine.pmf.events import Lattice


class LatticeDistribution(ABC):
    """Distributions on the values of a lattice, one per member of a batch."""

    @property
    @abstractmethod
    def batch_shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def _lattice(self) -> Lattice:
        """Which values there are, known before there is a table."""

    @property
    @abstractmethod
    def _bounds(self) -> tuple[Any, Any]:
        """Smallest and largest possible value, each of the shape of the batch."""

    @property
    @abstractmethod
    def _cumulants(self) -> tuple[Any, Any, Any, Any]:
        """The first four cumulants, each of the shape of the batch."""

    @abstractmethod
    def _log_probability(self, which: str, name: str, x: ArrayLike) -> Float64:
        """Log of P(X = x), P(X <= x) or P(X > x), for "at", "below" or "above", at the points of an array."""

    def _tail(self, side: int, x: ArrayLike) -> Float64:
        """P(X <= x) or P(X > x), for side 0 or 1."""
        return np.asarray(np.exp(self._log_probability(("below", "above")[side], "x", x)))

    def _points(self, name: str, x: ArrayLike) -> tuple[Ints, Ints, Bools]:
        """Cells of points, rounded down to -1 .. size; the members of the batch they are about; who is on a cell."""
        points = real_array(name, x, least_axes=0)
        shape = checks.broadcast(self.batch_shape, [(f"`{name}`", points.shape)])
        place = self._lattice.place(np.broadcast_to(points, shape))
        cells = np.clip(np.floor(place), -1, self._lattice.size).astype(np.int64)
        return cells, self._members(shape), place == np.floor(place)

    def _members(self, shape: tuple[int, ...]) -> Ints:
        """Numbers of the members of the batch, of a shape that they broadcast to."""
        return np.broadcast_to(np.arange(math.prod(self.batch_shape)).reshape(self.batch_shape), shape)

    # -- probabilities of values and of the two sides of one ---------------------------------------------------

    def logpmf(self, k: ArrayLike) -> Any:
        """``log P(X = k)``; -inf where k is not a possible value.

        Parameters
        ----------
        k : array_like
            Values at which to evaluate.

        Returns
        -------
        float or ndarray
            Logarithms, of the shape of ``k`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``k`` does not hold numbers or does not broadcast against the batch.

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
            Values at which to evaluate.

        Returns
        -------
        float or ndarray
            Probabilities, of the shape of ``k`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``k`` does not hold numbers or does not broadcast against the batch.

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
            Values at which to evaluate.

        Returns
        -------
        float or ndarray
            Logarithms, of the shape of ``x`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``x`` does not hold numbers or does not broadcast against the batch.

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
        """``P(X <= x)``, with the same relative accuracy however small it is.

        Parameters
        ----------
        x : array_like
            Values at which to evaluate.

        Returns
        -------
        float or ndarray
            Probabilities, of the shape of ``x`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``x`` does not hold numbers or does not broadcast against the batch.

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
            Values at which to evaluate.

        Returns
        -------
        float or ndarray
            Logarithms, of the shape of ``x`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``x`` does not hold numbers or does not broadcast against the batch.

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
        """``P(X > x)``, with the same relative accuracy however small it is.

        Parameters
        ----------
        x : array_like
            Values at which to evaluate.

        Returns
        -------
        float or ndarray
            Probabilities, of the shape of ``x`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``x`` does not hold numbers or does not broadcast against the batch.

        See Also
        --------
        logsf, cdf, isf

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).sf([0, 1, 2])
        array([0.75, 0.25, 0.  ])
        """
        return self._tail(1, x)[()]

    # -- values at which a probability is reached --------------------------------------------------------------

    def _quantile(self, q: ArrayLike, side: int) -> Any:
        """First value with P(X <= v) >= q (side 0) or P(X > v) <= q (side 1), with the ends of the support at 0 and 1.

        The computed probability has to reach the level, or the smaller one of the two tails has to up to its rounding.
        """
        level = checks.array("q", q, (...,), checks.PROBABILITIES)
        shape = checks.broadcast(self.batch_shape, [("`q`", level.shape)])
        level, rows = np.broadcast_to(level, shape), self._members(shape)
        cells = self._cells_of_levels(level, rows, side)
        low, high = (np.broadcast_to(end, shape) for end in self._bounds)
        found = np.clip(self._lattice.value(cells), low, high)
        before = low - (self._lattice.step or 1)
        return np.asarray(np.where(level == float(side), before, np.where(level == 1.0 - side, high, found)))

    def _cells_of_levels(self, level: Float64, rows: Ints, side: int) -> Ints:
        cells = np.zeros(level.shape, np.int64)
        for at in np.ndindex(*level.shape):
            q = float(level[at])
            if q in (0.0, 1.0):
                continue
            upper = (q > 0.5) != (side == 1)
            rounding = (2.0**-54 if upper else -(2.0**-54)) if q > 0.5 else 0.0
            cells[at] = self._cell_of_tail(int(rows[at]), max(min(q, 1.0 - q) + rounding, 5e-324), upper)
        return cells

    def _cell_of_tail(self, row: int, level: float, upper: bool) -> int:
        """First cell with P(X <= v) >= level, or P(X > v) <= level if `upper`, for a level of at most 1/2."""
        raise NotImplementedError

    def ppf(self, q: ArrayLike) -> Any:
        """Smallest k with ``cdf(k) >= q``; as in `scipy.stats`, ppf(0) is one below the support.

        A level that the distribution attains up to rounding counts as attained.

        Parameters
        ----------
        q : array_like
            Probabilities.

        Returns
        -------
        number or ndarray
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
        number or ndarray
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
        number or ndarray
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
        low : number or ndarray
            Lower end, included.
        high : number or ndarray
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
        tail = (1.0 - checks.array("confidence", confidence, (...,), checks.PROBABILITIES)) / 2.0
        return self.ppf(tail), self.isf(tail)

    def support(self) -> tuple[Any, Any]:
        """Smallest and largest possible value, each of the shape of the batch.

        Returns
        -------
        low : number or ndarray
            The smallest value whose probability is not zero.
        high : number or ndarray
            The largest one.

        See Also
        --------
        interval, pmf

        Examples
        --------
        >>> low, high = tt.PoissonBinomial([0.5, 0.5, 1.0]).support()
        >>> int(low), int(high)
        (1, 3)
        """
        return self._bounds

    # -- moments -----------------------------------------------------------------------------------------------

    def mean(self) -> Any:
        """Mean.

        Returns
        -------
        float or ndarray
            One number per member of the batch.

        See Also
        --------
        var, stats, median

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.25]).mean()
        np.float64(0.75)
        """
        return self._cumulants[0][()]

    def var(self) -> Any:
        """Variance.

        Returns
        -------
        float or ndarray
            One number per member of the batch.

        See Also
        --------
        std, mean, stats

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).var()
        np.float64(0.5)
        """
        return self._cumulants[1][()]

    def std(self) -> Any:
        """Standard deviation.

        Returns
        -------
        float or ndarray
            One number per member of the batch.

        See Also
        --------
        var, stats

        Examples
        --------
        >>> tt.PoissonBinomial([0.5] * 4).std()
        np.float64(1.0)
        """
        return np.sqrt(self._cumulants[1])[()]

    def skew(self) -> Any:
        """Skewness; NaN where the variance is 0, as in `scipy.stats`.

        Returns
        -------
        float or ndarray
            One number per member of the batch.

        See Also
        --------
        kurtosis, stats

        Examples
        --------
        >>> tt.PoissonBinomial([0.1, 0.1]).skew().round(4)
        np.float64(1.8856)
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            # one division after the other: powers of a tiny variance would underflow
            return (self._cumulants[2] / self._cumulants[1] / np.sqrt(self._cumulants[1]))[()]

    def kurtosis(self) -> Any:
        """Excess kurtosis; NaN where the variance is 0, as in `scipy.stats`.

        Returns
        -------
        float or ndarray
            One number per member of the batch.

        See Also
        --------
        skew, stats

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).kurtosis()
        np.float64(-1.0)
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            return (self._cumulants[3] / self._cumulants[1] / self._cumulants[1])[()]

    def stats(self, moments: str = "mv") -> Any:
        """Mean, variance, skewness and excess kurtosis, those whose letters are in ``moments``, in this order.

        Parameters
        ----------
        moments : str
            Letters out of "mvsk".

        Returns
        -------
        float or ndarray, or a tuple of them
            One for each letter; a single letter gives the number itself.

        Raises
        ------
        ParameterError
            If ``moments`` is not made of these letters.

        See Also
        --------
        mean, var, skew, kurtosis

        Examples
        --------
        >>> mean, variance = tt.PoissonBinomial([0.5, 0.5]).stats("mv")
        >>> float(mean), float(variance)
        (1.0, 0.5)
        """
        answers = {"m": self.mean, "v": self.var, "s": self.skew, "k": self.kurtosis}
        asked = moment_letters(moments, answers)
        found = tuple(answers[letter]() for letter in asked)
        return found[0] if len(found) == 1 else found
