"""What `scipy.stats` asks of a frozen discrete distribution, from a table of log-probabilities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Float64, Ints, Size, frozen
from ..checks.sums import full_shape, function_values
from ..display import sum_page
from ..engine.law import least_reached, log_tails, most_left
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

    # -- the table ---------------------------------------------------------------------------------------------

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

    def _few_logs(self, which: str, name: str, x: ArrayLike) -> Float64 | None:
        """Log of P(X = x), P(X <= x) or P(X > x) for "at", "below" or "above", if there is a way without the table."""
        return None

    def _log_probability(self, which: str, name: str, x: ArrayLike) -> Float64:
        few = self._few_logs(which, name, x)
        if few is not None:
            return few
        table = self._log_table if which == "at" else self._log_tails[which == "above"]
        return self._look_up(table, which, name, x, -np.inf, 0.0)

    def _tail(self, side: int, x: ArrayLike) -> Float64:
        which = ("below", "above")[side]
        few = self._few_logs(which, "x", x)
        return self._look_up(self._tails[side], which, "x", x, 0.0, 1.0) if few is None else np.exp(few)

    def _look_up(
        self, table: Float64, which: str, name: str, x: ArrayLike, nothing: float, everything: float
    ) -> Float64:
        """Read a table of one kind of answers; beyond its ends, and off the lattice, they are known."""
        cells, rows, on_cell = self._points(name, x)
        last = table.shape[1] - 1
        before, after = (everything if which == sure else nothing for sure in ("above", "below"))
        out = np.where(cells > last, after, table[rows, np.clip(cells, 0, last)])
        return np.where((cells < 0) | ((which == "at") & ~on_cell), before, out)

    @property
    def _is_long(self) -> bool:
        """Whether the table of all values is too long to be made for a few of them."""
        return False

    def _cells_of_levels(self, level: Float64, rows: Ints, side: int) -> Ints:
        return (super()._cells_of_levels if self._is_long else self._cells_of_table)(level, rows, side)

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

    # -- entropy and expected values ------------------------------------------------------------------

    @cached
    def _cumulants(self) -> tuple[Float64, Float64, Float64, Float64]:
        """The first four cumulants, each of the shape of the batch."""
        found = cumulants(np.exp(self._log_table), self.values.astype(np.float64))
        return tuple(c.reshape(self.batch_shape) for c in found)  # type: ignore[return-value]

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
