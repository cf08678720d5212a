"""A sum of independent variables given that it has a value or lies in a range, and what that says about each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from tallytree import checks
from tallytree.engine.law import smaller_side
from tallytree.engine.log_sums import log_sum
from tallytree.engine.pmf.events import Weight
from tallytree.engine.pmf.sums import draw, expectation
from tallytree.errors import InfeasibleError, ParameterError
from tallytree.memo import cached
from tallytree.models.base import place_in_batch
from tallytree.models.count import CountModel
from tallytree.models.frozen_distribution import LawOf
from tallytree.models.tail_risk import TailRisk

from ..arrays import Float64, Ints, Size, frozen

if TYPE_CHECKING:
    from tallytree.models.poisson_binomial import PoissonBinomial

_WHOLE_SUMS = checks.Entries("integers, as every sum is one", -np.inf, np.inf, whole=True)


class ConditionalPoissonBinomial(LawOf, TailRisk):
    """Distribution of a weighted sum X of independent variables given ``low <= X <= high``.

    Made by :meth:`PoissonBinomial.given <tallytree.PoissonBinomial.given>`. It has the methods of
    :class:`~tallytree.PoissonBinomial` and, in addition, the probabilities of the single variables given the range.

    Parameters
    ----------
    of : PoissonBinomial
        The sum before conditioning. Users do not call this class but :meth:`PoissonBinomial.given`.
    low, high : array
        Both ends of the range, included, of the shape of the batch.

    Raises
    ------
    InfeasibleError
        When an answer is asked for and no configuration is possible.

    See Also
    --------
    tallytree.PoissonBinomial
    tallytree.CountModel

    Notes
    -----
    Accuracy: ``posterior_logits`` to 1e-9 absolute or 1e-10 relative; with real weights this holds for the sum on its
    grid.

    Examples
    --------
    >>> given = tt.PoissonBinomial([0.5, 0.5, 0.5]).given(low=2)
    >>> given
    ConditionalPoissonBinomial(n=3, 2 <= X)
    >>> given.marginals, given.mean(), np.exp(given.event_log_prob).round(6)
    (array([0.75, 0.75, 0.75]), np.float64(2.25), np.float64(0.5))
    """

    _of: PoissonBinomial
    _low: Float64
    _high: Float64

    def __init__(self, of: PoissonBinomial, low: Float64, high: Float64) -> None:
        self.__dict__.update(_of=of, _low=low, _high=high)
        self._refuse_impossible(np.isneginf(self._log_event))

    @classmethod
    def _unchecked(cls, of: PoissonBinomial, low: Float64, high: Float64) -> ConditionalPoissonBinomial:
        """Make the distribution also where some members of the batch cannot lie in the range."""
        new = object.__new__(cls)
        new.__dict__.update(_of=of, _low=low, _high=high)
        return new

    def _member(self, index: Any) -> ConditionalPoissonBinomial:
        """Members of a batch of one axis."""
        ends = (np.broadcast_to(b, self.batch_shape)[index] if b.ndim else b for b in (self._low, self._high))
        return ConditionalPoissonBinomial(self._of._member(index), *ends)

    def _parts(self) -> tuple[Any, ...]:
        return self._of, self._low, self._high

    def __repr__(self) -> str:
        parts = [f"n={self.n}", _event_text(self._low, self._high)]
        if self.batch_shape:
            parts.append(f"batch={self.batch_shape}")
        return f"ConditionalPoissonBinomial({', '.join(parts)})"

    @property
    def weights(self) -> Any:
        """Weights (n,) or (n, K)."""
        return self._of.weights

    @property
    def before(self) -> Any:
        """The distribution before conditioning, a :class:`~tallytree.PoissonBinomial`.

        See Also
        --------
        PoissonBinomial.given

        Examples
        --------
        >>> given = tt.PoissonBinomial([0.5, 0.5, 0.5]).given(low=2)
        >>> given.before.mean()
        np.float64(1.5)
        """
        return self._of

    @property
    def prior(self) -> Float64:
        """``P(y_i = 1)`` before conditioning, (..., n).

        See Also
        --------
        marginals

        Examples
        --------
        >>> given = tt.PoissonBinomial([0.5, 0.5, 0.5]).given(low=2)
        >>> given.prior
        array([0.5, 0.5, 0.5])
        """
        return self._of.probs

    @property
    def event_log_prob(self) -> Any:
        """``log P(low <= X <= high)`` of the sum before conditioning, of the shape of the batch.

        See Also
        --------
        before

        Examples
        --------
        >>> given = tt.PoissonBinomial([0.5, 0.5, 0.5]).given(low=2)
        >>> np.exp(given.event_log_prob).round(6)
        np.float64(0.5)
        """
        return self._log_event.reshape(self.batch_shape)[()]

    @property
    def marginals(self) -> Float64:
        """``P(y_i = 1 | low <= X <= high)`` (..., n).

        See Also
        --------
        prior, posterior_logits

        Examples
        --------
        >>> given = tt.PoissonBinomial([0.5, 0.5, 0.5]).given(low=2)
        >>> given.marginals
        array([0.75, 0.75, 0.75])
        """
        if self._of._several:
            return np.exp(self._log_posterior[..., 1:]).reshape(self._of._nu.shape)
        return np.asarray(expit(self.posterior_logits))

    @cached
    def _log_posterior(self) -> Float64:
        """Log-probabilities of the outcomes of every event, (B, n, O)."""
        found = expectation(self._of._events, self._weight, outcomes=True).log_outcomes
        owner = self._of._cells[3]
        return np.stack([log_sum(found[..., owner == o]) for o in range(int(owner.max()) + 1)], axis=-1)

    @cached
    def posterior_logits(self) -> Float64:
        """Log-odds of ``marginals`` (..., n), accurate where those round to 0 or 1.

        See Also
        --------
        marginals

        Examples
        --------
        >>> given = tt.PoissonBinomial([0.5, 0.5, 0.5]).given(low=2)
        >>> given.posterior_logits.round(4)
        array([1.0986, 1.0986, 1.0986])
        """
        nu, counts = self._of._nu, self._of._count_logits
        out: Float64
        if counts is None:
            with np.errstate(invalid="ignore"):
                log_p = self._log_posterior
                out = (log_p[..., 1:] - log_p[..., :1]).reshape(nu.shape)
        else:
            out, weights = np.array(nu).reshape(len(counts), self.n), self._of.weights
            counted = weights != 0  # about others the sum says nothing
            if counts.size:
                allowed = np.where(self._allowed, 0.0, -np.inf)
                found = np.asarray(CountModel(counts, allowed).posterior_logits, np.float64)
                out[:, counted] = np.where(weights[counted] < 0, -found, found)
            out = out.reshape(nu.shape)
        return frozen(np.where(np.isinf(nu), nu, out) + 0.0)

    def sample_events(self, size: Size = None, rng: Any = None) -> Any:
        """Exact joint draws of the single events given the range of the sum.

        Parameters
        ----------
        size : int or tuple of int, optional
            Leading shape of the draws; one draw if omitted.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness, or its seed.

        Returns
        -------
        ndarray of uint8, (size..., ..., n)
            0 and 1. With weights (n, K): 0, or the number 1, ..., K of the value that the event took.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.

        See Also
        --------
        sample, marginals

        Notes
        -----
        Cost: one tree of sums, then one walk down it per draw, O(C log n) for the C values of the sum that matter.
        Accuracy: exact up to rounding; the distribution of the draws is right to 1e-12.

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5, 0.5], weights=[1, 2, 4]).given(5).sample_events(2, rng=0)
        array([[1, 0, 1],
               [1, 0, 1]], dtype=uint8)
        """
        shape, generator = checks.shape("size", size), checks.generator(rng)
        drawn = draw(self._of._events, self._weight, int(np.prod(shape, dtype=np.int64)), generator)
        owner = self._of._cells[3].astype(np.uint8)
        return owner[drawn].reshape(*shape, *self.batch_shape, self.n)

    def given(
        self, value: ArrayLike | None = None, *, low: ArrayLike | None = None, high: ArrayLike | None = None
    ) -> ConditionalPoissonBinomial:
        """The sum and the single variables, given a narrower range than is known already.

        Parameters
        ----------
        value : number or array, optional
            Condition on ``X = value`` as well.
        low, high : number or array, optional
            Condition on ``low <= X <= high`` as well, both included; one of them may be left out. Arrays broadcast to
            the batch.

        Returns
        -------
        ConditionalPoissonBinomial
            The distribution given both; ``before`` and ``event_log_prob`` still refer to the sum before any
            conditioning.

        Raises
        ------
        ParameterError
            If neither a value nor a bound is given, or both are, or they are not whole numbers.
        InfeasibleError
            If the sum cannot lie in both ranges.

        See Also
        --------
        condition, PoissonBinomial.given

        Notes
        -----
        Cost: nothing until asked, as for :meth:`PoissonBinomial.given <tallytree.PoissonBinomial.given>`.

        Examples
        --------
        >>> known = tt.PoissonBinomial([0.5, 0.5, 0.5]).given(low=1)
        >>> known.given(high=2)
        ConditionalPoissonBinomial(n=3, 1 <= X <= 2)
        >>> known.given(3).marginals
        array([1., 1., 1.])
        """
        bottom, top = event_bounds(value, low, high, self.batch_shape, self._lattice.step is None)
        return ConditionalPoissonBinomial(
            self._of, np.maximum(self._low, bottom), np.minimum(self._high, top)
        )

    def condition(self, evidence: Mapping[int, int]) -> ConditionalPoissonBinomial:
        """The distribution given the values of some variables as well.

        Parameters
        ----------
        evidence : mapping of int to int
            Variables and their values, 0 or 1.

        Returns
        -------
        ConditionalPoissonBinomial
            The distribution of the same sum given the range and these values; ``before`` is the sum given the values
            alone.

        Raises
        ------
        ParameterError
            If ``evidence`` is not a mapping, or names a variable or value that does not exist.
        InfeasibleError
            If the sum cannot lie in its range with these values.

        See Also
        --------
        given, PoissonBinomial.condition

        Examples
        --------
        >>> known = tt.PoissonBinomial([0.5, 0.5, 0.5]).given(low=2)
        >>> known.condition({0: 0}).marginals
        array([0., 1., 1.])
        """
        return ConditionalPoissonBinomial(self._of.condition(evidence), self._low, self._high)

    # -- the table ---------------------------------------------------------------------------------------------

    def _tail_shares(self, cells: Ints, log_edge: Float64, *, shares: bool = True) -> tuple[Float64, Float64]:
        """Log E[f | event] (B,) and E[value of event i | f, event] (B, n), as `PoissonBinomial._tail_shares`."""
        low, high = self._ends
        f = Weight(np.maximum(cells, low), high, np.where(cells >= low, log_edge, 0.0))
        log_mean, values = self._of._expected_values(f, shares)
        return log_mean - self._log_event, values

    @cached
    def _ends(self) -> tuple[Ints, Ints]:
        """First and last cell of the event, (B,); beyond the lattice where it has none."""
        far = float(self._lattice.size)
        bounds = (np.broadcast_to(b, self.batch_shape).reshape(-1) for b in (self._low, self._high))
        low, high = (self._lattice.place(b) for b in bounds)
        return np.clip(np.ceil(low), 0, far).astype(np.int64), np.clip(np.floor(high), -1, far - 1).astype(
            np.int64
        )

    @property
    def _weight(self) -> Weight:
        return Weight(*self._ends)

    @cached
    def _allowed(self) -> NDArray[np.bool_]:
        """Which sums of the lattice the event allows, (B, m)."""
        cells, (low, high) = np.arange(self._lattice.size), self._ends
        return (cells >= low[:, None]) & (cells <= high[:, None])

    @cached
    def _log_event(self) -> Float64:
        """Log-probability of the event (B,), by the smaller of its two sides."""
        if self._of._is_long:
            return np.minimum(expectation(self._of._events, self._weight, outcomes=False).log_mean, 0.0)
        table = self._of._log_table
        inside = log_sum(np.where(self._allowed, table, -np.inf))
        outside = log_sum(np.where(self._allowed, -np.inf, table))
        return smaller_side(inside, outside)

    @cached
    def _log_table(self) -> Float64:
        return frozen(np.where(self._allowed, self._of._log_table, -np.inf) - self._log_event[:, None])

    def _refuse_impossible(self, dead: NDArray[np.bool_]) -> None:
        if not dead.any():
            return
        row = int(np.argmax(dead))
        index = np.unravel_index(row, self.batch_shape) if self.batch_shape else ()
        where = place_in_batch(row, self.batch_shape)
        low, high = (f"{np.broadcast_to(b, self.batch_shape)[index]:.12g}" for b in self._of._bounds)
        event = _event_text(*(np.broadcast_to(b, self.batch_shape)[index] for b in (self._low, self._high)))
        unit = self._lattice.divisor * (self._lattice.step or 1)
        step = f", in steps of {unit:g}" if unit != 1 else ""
        raise InfeasibleError(
            f"`given` needs an event of positive probability, but {event} has none{where}: the sum lies between "
            f"{low} and {high}{step}. `pmf` says which sums are possible."
        )


def event_bounds(
    value: ArrayLike | None,
    low: ArrayLike | None,
    high: ArrayLike | None,
    batch: tuple[int, ...],
    whole: bool = True,
) -> tuple[Float64, Float64]:
    """Bounds of the event that the arguments of ``given`` describe."""
    if value is not None and (low is not None or high is not None):
        raise ParameterError("Give either `value` or a range with `low` and `high`; both arrived.")
    if value is None and low is None and high is None:
        raise ParameterError(
            "`given` needs to know what is given: a value, as in given(5), or a range, as in given(low=3, high=7)."
        )
    if value is not None:
        known = _numbers("value", value, batch, whole)
        return known, known
    bottom = np.array(-np.inf) if low is None else _numbers("low", low, batch, whole)
    top = np.array(np.inf) if high is None else _numbers("high", high, batch, whole)
    if np.any(bottom > top):
        raise ParameterError(f"`low` must not exceed `high`; low={low!r} and high={high!r} arrived.")
    return bottom, top


def _numbers(name: str, value: ArrayLike, batch: tuple[int, ...], whole: bool) -> Float64:
    found = checks.array(name, value, (...,), _WHOLE_SUMS if whole else checks.NUMBERS, copy=True)
    checks.broadcast(batch, [(f"`{name}`", found.shape)], grow=False)
    return found


def _event_text(low: Float64, high: Float64) -> str:
    if low.ndim or high.ndim:
        return "a range for each member of the batch"
    if low == high:
        return f"X = {float(low):.12g}"
    left = "" if np.isneginf(low) else f"{float(low):.12g} <= "
    right = "" if np.isposinf(high) else f" <= {float(high):.12g}"
    return f"{left}X{right}"
