"""What `scipy.stats` asks of a frozen discrete distribution: moments, entropy, expected values and draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from .. import checks
from ..arrays import Float64, Ints, Size
from ..checks.sums import full_shape, function_values, moment_letters
from ..display import sum_page
from ..engine.log_sums import log_sum
from ..engine.pmf.events import Lattice
from ..errors import InfeasibleError, ParameterError
from ..memo import cached
from .base import Value
from .lattice_distribution import LatticeDistribution


class FrozenDistribution(Value, LatticeDistribution):
    """Distributions on the values of a lattice, one per member of a batch.

    Methods have the names, arguments and meaning of a frozen `scipy.stats` distribution.
    """

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: make a new one instead of setting {name!r}.")

    def _repr_html_(self) -> str:
        return sum_page(self, self._lattice.size)

    # -- draws -------------------------------------------------------------------------------------------------

    def rvs(self, size: Size = None, random_state: Any = None) -> Any:
        """Draw values independently, as `scipy.stats` does.

        Parameters
        ----------
        size : int or tuple of int, optional
            Shape of the result; its last axes are the batch. One draw of every member if omitted.
        random_state : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
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
        return self._draw(shape, checks.generator(random_state, "random_state").random)[()]

    def sample(self, size: Size = None, rng: Any = None) -> Any:
        """Draw values independently, as the models of this package do.

        Parameters
        ----------
        size : int or tuple of int, optional
            Leading shape of the draws; one draw if omitted.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
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
        shape = (*checks.shape("size", size), *self.batch_shape)
        return self._draw(shape, checks.generator(rng).random)[()]

    def _draw(self, shape: tuple[int, ...], uniform: Callable[..., Float64]) -> Ints:
        u = uniform(shape)
        # each half of u uses the accurate side of the distribution; u = 0 stands for its cell of width 2^-53
        upper = u >= 0.5
        low = self.ppf(np.where(upper, 0.5, u + 2.0**-54))
        return np.asarray(np.where(upper, self.isf(np.where(upper, 1.0 - u, 0.5)), low))

    # -- moments, entropy and expected values ------------------------------------------------------------------

    @cached
    def _cumulants(self) -> tuple[Float64, Float64, Float64, Float64]:
        """The first four cumulants, each of the shape of the batch."""
        found = cumulants(np.exp(self._log_table), self.values.astype(np.float64))
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
            If ``order`` is not a whole number, or negative.

        See Also
        --------
        expect, stats

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).moment(2)
        np.float64(1.5)
        """
        return self._raw_moment(
            checks.integer("order", order, 0, what="for E[1/X] use `expect(lambda k: 1 / k)`")
        )

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
            Takes the possible values in an array and returns one number for each; default X itself.
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
        low = -np.inf if lb is None else checks.real("lb", lb, infinite=True)
        high = np.inf if ub is None else checks.real("ub", ub, infinite=True)
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


def cumulants(mass: Float64, values: Any) -> tuple[Float64, Float64, Float64, Float64]:
    """The first four cumulants, (...), of laws with probabilities (..., m) of values (..., m)."""
    mean = (mass * values).sum(axis=-1)
    away = values - mean[..., None]
    second, third, fourth = ((mass * away**power).sum(axis=-1) for power in (2, 3, 4))
    return mean, second, third, fourth - 3.0 * second**2


class LawOf(FrozenDistribution):
    """The law of a sum that follows from something with the same batch and lattice; not used on its own."""

    _of: Any

    @property
    def n(self) -> int:
        """Number of variables."""
        return int(self._of.n)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of the parameters."""
        return self._of.batch_shape  # type: ignore[no-any-return]

    @property
    def _lattice(self) -> Lattice:
        return self._of._lattice  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts()
