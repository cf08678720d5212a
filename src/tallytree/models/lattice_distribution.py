"""Probabilities and quantiles of distributions on a lattice, from a table of log-probabilities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Bools, Float64, Ints, frozen
from ..checks.sums import real_array
from ..engine.law import least_reached, log_tails, most_left
from ..engine.pmf.events import Lattice
from ..memo import cached


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
    def n(self) -> int: ...

    @property
    @abstractmethod
    def _log_table(self) -> Float64:
        """Log pmf (B, m), read-only."""

    @cached
    def _bounds(self) -> tuple[Any, Any]:
        """Smallest and largest possible value, each of the shape of the batch."""
        possible = self._log_table > -np.inf
        first, last = possible.argmax(axis=1), possible.shape[1] - 1 - possible[:, ::-1].argmax(axis=1)
        low, high = (self._lattice.value(end.reshape(self.batch_shape)) for end in (first, last))
        return low[()], high[()]

    @property
    def values(self) -> Any:
        """The values (m,) that ``count_log_probs`` refers to: 0 .. n for a sum without weights.

        See Also
        --------
        count_log_probs, support

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).given(1).values
        array([0, 1, 2])
        """
        return self._lattice.values

    @property
    def count_log_probs(self) -> Float64:
        """``log P(X = values)`` (..., m).

        See Also
        --------
        values, logpmf

        Examples
        --------
        >>> np.exp(tt.PoissonBinomial([0.5, 0.5]).count_log_probs)
        array([0.25, 0.5 , 0.25])
        """
        return self._log_table.reshape(*self.batch_shape, self._log_table.shape[1])

    @cached
    def _log_tails(self) -> tuple[Float64, Float64]:
        """``log P(X <= v)`` and ``log P(X > v)`` on the lattice."""
        tails = log_tails(self._log_table)
        frozen(*tails)
        return tails

    @cached
    def _tails(self) -> tuple[Float64, Float64]:
        """The tails themselves: quantiles invert exactly these numbers."""
        return np.exp(self._log_tails[0]), np.exp(self._log_tails[1])

    def _look_up(
        self, table: Float64, name: str, k: ArrayLike, before: float, after: float, between: float | None
    ) -> Float64:
        """Read ``table`` at ``k``; ``between`` is the answer off the lattice, None to round down."""
        cells, rows, on_cell = self._points(name, k)
        last = table.shape[1] - 1
        out = table[rows, np.clip(cells, 0, last)]
        out = np.where(cells < 0, before, np.where(cells > last, after, out))
        return np.asarray(out if between is None else np.where(on_cell, out, between))

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

    def _few_logs(self, which: str, name: str, x: ArrayLike) -> Float64 | None:
        """Log of P(X = x), P(X <= x) or P(X > x) for "at", "below" or "above", if there is a way without the table."""
        return None

    def _log_probability(self, which: str, name: str, x: ArrayLike) -> Float64:
        """Log of P(X = x), P(X <= x) or P(X > x) at the points of an array."""
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
            Where to evaluate.

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
            Where to evaluate.

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
            Where to evaluate.

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
            Where to evaluate.

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
            Where to evaluate.

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
        find = self._cells_without_table if self._is_long else self._cells_of_table
        low, high = (np.broadcast_to(end, shape) for end in self._bounds)
        found = np.clip(self._lattice.value(find(level, rows, side)), low, high)
        before = low - (self._lattice.step or 1)
        return np.asarray(np.where(level == float(side), before, np.where(level == 1.0 - side, high, found)))

    def _cells_of_table(self, level: Float64, rows: Ints, side: int) -> Ints:
        n = self.n
        small = np.minimum(level, 1.0 - level)
        upper = (level > 0.5) != (side == 1)
        # beside 1 a level has an absolute rounding, which the small tail that is looked at would notice
        beside = np.where(level > 0.5, 2.0**-54, 0.0)
        near = np.where(upper, -most_left(small, n) - beside, least_reached(small, n) - beside).ravel()
        exact = (-level if side else level).ravel()
        # every member of the batch has two rising sequences: its cdf and its negative sf
        case = 2 * rows + upper
        order = np.argsort(case, axis=None, kind="stable")
        ends = np.searchsorted(case.ravel()[order], np.arange(2 * len(self._tails[0]) + 1))
        cells = np.zeros(level.shape, dtype=np.int64)
        for c in range(len(ends) - 1):
            here = order[ends[c] : ends[c + 1]]
            rising = self._tails[0][c // 2], -self._tails[1][c // 2]
            reached = np.searchsorted(rising[side], exact[here]), np.searchsorted(rising[c % 2], near[here])
            cells.flat[here] = np.minimum(*reached)
        return cells

    def _cells_without_table(self, level: Float64, rows: Ints, side: int) -> Ints:
        cells = np.zeros(level.shape, np.int64)
        for at in np.ndindex(*level.shape):
            q = float(level[at])
            if q in (0.0, 1.0):
                continue
            upper = (q > 0.5) != (side == 1)
            rounding = (2.0**-54 if upper else -(2.0**-54)) if q > 0.5 else 0.0
            cells[at] = self._cell_of_tail(int(rows[at]), max(min(q, 1.0 - q) + rounding, 5e-324), upper)
        return cells

    @property
    def _is_long(self) -> bool:
        """Whether the table of all values is too long to be made for a few of them."""
        return False

    def _cell_of_tail(self, row: int, level: float, upper: bool) -> int:
        """First cell with P(X <= v) >= level, or P(X > v) <= level if `upper`, without the table."""
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
        values, pmf

        Examples
        --------
        >>> low, high = tt.PoissonBinomial([0.5, 0.5, 1.0]).support()
        >>> int(low), int(high)
        (1, 3)
        """
        return self._bounds
