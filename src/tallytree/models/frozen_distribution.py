"""What `scipy.stats` asks of a frozen discrete distribution, answered from a table of log-probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from tallytree import checks
from tallytree._display import sum_page
from tallytree.checks.sums import (
    broadcast_shape,
    full_shape,
    function_values,
    moment_letters,
    probability,
    real_array,
    real_number,
    sample_shape,
    uniform_source,
)
from tallytree.engine.log_sums import log_sum
from tallytree.engine.pmf.tails import log_tails
from tallytree.errors import InfeasibleError, ParameterError

from ..arrays import Float64, Ints

Size = int | tuple[int, ...] | None


class FrozenDistribution(ABC):
    """Distributions of integers ``start + step * (0, 1, ..., m - 1)``, one per member of a batch.

    Methods have the names, arguments and meaning of a frozen `scipy.stats` distribution.
    """

    @property
    @abstractmethod
    def batch_shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def _start(self) -> int: ...

    @property
    @abstractmethod
    def _step(self) -> int: ...

    @property
    @abstractmethod
    def _n_values(self) -> int:
        """Length of the table, known before there is one."""

    @property
    @abstractmethod
    def _log_table(self) -> Float64:
        """Log pmf (B, m), read-only."""

    @cached_property
    def _bounds(self) -> tuple[Any, Any]:
        """Smallest and largest possible value, each of the shape of the batch."""
        possible = self._log_table > -np.inf
        first, last = possible.argmax(axis=1), possible.shape[1] - 1 - possible[:, ::-1].argmax(axis=1)
        low, high = (self._start + self._step * end.reshape(self.batch_shape) for end in (first, last))
        return low[()], high[()]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: make a new one instead of setting {name!r}.")

    def _repr_html_(self) -> str:
        return sum_page(self, self._n_values)

    # -- the table ---------------------------------------------------------------------------------------------

    @property
    def values(self) -> Ints:
        """The values (m,) that ``count_log_probs`` refers to.

        See Also
        --------
        count_log_probs, support

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).given(1).values
        array([0, 1, 2])
        """
        return self._start + self._step * np.arange(self._log_table.shape[1], dtype=np.int64)

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

    @cached_property
    def _log_tails(self) -> tuple[Float64, Float64]:
        """``log P(X <= v)`` and ``log P(X > v)`` on the lattice."""
        tails = log_tails(self._log_table)
        for tail in tails:
            tail.flags.writeable = False
        return tails

    @cached_property
    def _tails(self) -> tuple[Float64, Float64]:
        """The tails themselves: quantiles invert exactly these numbers."""
        return np.exp(self._log_tails[0]), np.exp(self._log_tails[1])

    def _look_up(
        self, table: Float64, name: str, k: ArrayLike, before: float, after: float, between: float | None
    ) -> Float64:
        """Read ``table`` at ``k``; ``between`` is the answer off the lattice, None to round down."""
        x = real_array(name, k, least_axes=0).astype(np.float64)
        shape = broadcast_shape(name, x.shape, self.batch_shape)
        x = np.broadcast_to(x, shape)
        rows = np.broadcast_to(np.arange(table.shape[0]).reshape(self.batch_shape), shape)
        place = (x - self._start) / self._step
        last = table.shape[1] - 1
        index = np.clip(np.floor(place), -1, last + 1).astype(np.int64)
        out = table[rows, np.clip(index, 0, last)]
        out = np.where(index < 0, before, np.where(index > last, after, out))
        if between is not None:
            out = np.where(place == np.floor(place), out, between)
        return np.asarray(out)

    # -- probabilities -----------------------------------------------------------------------------------------

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

    # -- quantiles ---------------------------------------------------------------------------------------------

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

    # -- moments -----------------------------------------------------------------------------------------------

    @cached_property
    def _cumulants(self) -> tuple[Float64, Float64, Float64, Float64]:
        """The first four cumulants, each of the shape of the batch."""
        mass, values = np.exp(self._log_table), self.values.astype(np.float64)
        mean = mass @ values
        away = values - mean[:, None]
        second, third, fourth = ((mass * away**power).sum(axis=1) for power in (2, 3, 4))
        found = (mean, second, third, fourth - 3.0 * second**2)
        return tuple(c.reshape(self.batch_shape) for c in found)  # type: ignore[return-value]

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
            return (self._cumulants[2] / self._cumulants[1] ** 1.5)[()]

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
            return (self._cumulants[3] / self._cumulants[1] ** 2)[()]

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

    def moment(self, order: int) -> Any:
        """``E[X**order]``, about zero, for a whole number ``order``.

        Parameters
        ----------
        order : int
            Which moment.

        Returns
        -------
        float or ndarray
            One number per member of the batch.

        Raises
        ------
        ParameterError
            If ``order`` is no whole number, or negative.

        See Also
        --------
        expect, stats

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).moment(2)
        np.float64(1.5)
        """
        power = checks.integer("order", order)
        if power < 0:
            raise ParameterError(
                f"`order` must be 0, 1, 2, ...; {power} arrived. For E[1/X] use `expect(lambda k: 1 / k)`."
            )
        return self._raw_moment(power)

    def _raw_moment(self, power: int) -> Any:
        with np.errstate(over="ignore"):
            return self.expect(lambda k: k.astype(np.float64) ** power)

    def entropy(self) -> Any:
        """Entropy in nats.

        Returns
        -------
        float or ndarray
            One number per member of the batch.

        See Also
        --------
        logpmf, var

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).entropy().round(4)
        np.float64(1.0397)
        """
        table = np.minimum(self._log_table, 0.0)  # rounding may lift the log of almost 1 above 0
        terms = np.exp(table) * np.where(np.isfinite(table), table, 0.0)
        return (0.0 - terms.sum(axis=1)).reshape(self.batch_shape)[()]

    def expect(
        self,
        func: Callable[[Ints], Any] | None = None,
        lb: float | None = None,
        ub: float | None = None,
        conditional: bool = False,
        **kwds: Any,
    ) -> Any:
        """Expected value of a function of X.

        Parameters
        ----------
        func : callable, optional
            Takes the possible values in an integer array and returns one number for each; default X itself.
        lb, ub : number, optional
            Sum over ``lb <= X <= ub`` only, both included.
        conditional : bool
            Divide by ``P(lb <= X <= ub)``.
        **kwds
            ``maxcount``, ``tolerance`` and ``chunksize`` of `scipy.stats` are accepted and change nothing: the sum
            is always complete.

        Returns
        -------
        float or ndarray
            One number per member of the batch.

        Raises
        ------
        ParameterError
            If ``func`` does not return one number for each value, or the event has probability zero.

        See Also
        --------
        moment, mean

        Examples
        --------
        >>> x = tt.PoissonBinomial([0.5, 0.5])
        >>> x.expect(lambda k: k**2), x.expect(lb=1, conditional=True).round(3)
        (np.float64(1.5), np.float64(1.333))
        """
        unknown = set(kwds) - {"maxcount", "tolerance", "chunksize"}
        if unknown:
            raise ParameterError(
                f"`expect` takes func, lb, ub and conditional; {sorted(unknown)[0]!r} arrived. "
                "Bind other arguments into `func` with a lambda."
            )
        conditional = checks.flag("conditional", conditional)
        low = -np.inf if lb is None else real_number("lb", lb)
        high = np.inf if ub is None else real_number("ub", ub)
        values = self.values
        chosen = (values >= low) & (values <= high) & (self._log_table > -np.inf).any(axis=0)
        logs, points = self._log_table[:, chosen], values[chosen]
        if conditional:
            logs = logs - self._event(logs)[:, None]
        mass = np.exp(logs)
        found = function_values(func, points)
        with np.errstate(invalid="ignore", over="ignore"):
            terms = np.where(logs > -np.inf, mass * found, 0.0)
            return terms.sum(axis=1).reshape(self.batch_shape)[()]

    def _event(self, logs: Float64) -> Float64:
        total = log_sum(logs)
        if np.isneginf(total).any():
            raise InfeasibleError(
                "`expect` cannot condition on lb <= X <= ub: this has probability zero. `support()` has the bounds."
            )
        return total

    # -- draws -------------------------------------------------------------------------------------------------

    def rvs(self, size: Size = None, random_state: Any = None) -> Any:
        """Draw values independently, as `scipy.stats` does.

        Parameters
        ----------
        size : int or tuple of int, optional
            Shape of the result; its last axes are the batch. One draw of every member if omitted.
        random_state : int, numpy.random.Generator, numpy.random.RandomState or None
            Source of randomness or its seed. None takes fresh randomness and leaves NumPy's global state alone.

        Returns
        -------
        int or ndarray of int64
            Values, of the shape ``size``.

        Raises
        ------
        ParameterError
            If ``size`` does not end in the shape of the batch, or ``random_state`` is none of these.

        See Also
        --------
        sample

        Examples
        --------
        >>> tt.PoissonBinomial([0.0, 1.0, 1.0]).rvs(4, random_state=0)
        array([2, 2, 2, 2])
        """
        shape = full_shape(size, self.batch_shape)
        return self._draw(shape, uniform_source(random_state))[()]

    def sample(self, size: Size = None, rng: Any = None) -> Any:
        """Draw values independently, as the models of this package do.

        Parameters
        ----------
        size : int or tuple of int, optional
            Leading shape of the draws; one draw if omitted.
        rng : numpy.random.Generator, int or None
            Source of randomness, or its seed.

        Returns
        -------
        int or ndarray of int64, (size..., batch...)
            Values.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.

        See Also
        --------
        rvs

        Notes
        -----
        Accuracy: exact up to the 53 bits of a uniform number.

        Examples
        --------
        >>> tt.PoissonBinomial([0.0, 1.0, 1.0]).sample(4, rng=0)
        array([2, 2, 2, 2])
        """
        shape = (*sample_shape(size), *self.batch_shape)
        return self._draw(shape, checks.generator(rng).random)[()]

    def _draw(self, shape: tuple[int, ...], uniform: Callable[..., Float64]) -> Ints:
        u = uniform(shape)
        # each half of u uses the accurate side of the distribution; u = 0 stands for its cell of width 2^-53
        upper = u >= 0.5
        low = self.ppf(np.where(upper, 0.5, u + 2.0**-54))
        return np.asarray(np.where(upper, self.isf(np.where(upper, 1.0 - u, 0.5)), low))
