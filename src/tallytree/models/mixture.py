"""Mixtures of sums: one of several scenarios comes first, then independent events."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Float64, Ints, Size, frozen
from ..engine.law import log_side
from ..engine.log_sums import log_sum
from ..engine.pmf.sums import CERTIFIED
from ..errors import InfeasibleError, ParameterError
from ..memo import cached
from .conditional_sum import ConditionalPoissonBinomial, event_bounds
from .frozen_distribution import FrozenDistribution, LawOf
from .tail_risk import BoundedRisk

if TYPE_CHECKING:
    from .poisson_binomial import PoissonBinomial

_NEVER = 1e-18  # share of a scenario that is left out: far below rounding


class SumMixture(LawOf, BoundedRisk):
    """Distribution of a sum of events whose probabilities depend on a scenario.

    Made by :meth:`PoissonBinomial.mixture <tallytree.PoissonBinomial.mixture>`: a batch is a set of scenarios, such as
    the values of a common factor with quadrature weights. It has the methods of :class:`~tallytree.PoissonBinomial`.

    Parameters
    ----------
    of : PoissonBinomial
        The sums in the scenarios, along one batch axis; they may be conditioned by :meth:`PoissonBinomial.given`.
    weights : array_like (S,)
        Probabilities of the scenarios, up to a common factor.

    Raises
    ------
    ParameterError
        If the batch has not exactly one axis, or ``weights`` are not one non-negative number for each member.

    See Also
    --------
    tallytree.PoissonBinomial

    Notes
    -----
    Cost: the sum over the scenarios. Accuracy: every probability has a relative error below 1e-10, as for one scenario.

    Examples
    --------
    >>> x = tt.PoissonBinomial([[0.1, 0.1], [0.6, 0.9]], weights=[3, 5]).mixture([0.75, 0.25])
    >>> x
    SumMixture(n=2, scenarios=2)
    >>> x.sf(4).round(4), x.value_at_risk(0.9), x.given(low=8).marginals
    (np.float64(0.3), np.int64(8), array([1., 1.]))
    """

    _of: PoissonBinomial | ConditionalPoissonBinomial
    _share: Float64
    _log_before: float

    def __init__(self, of: Any, weights: ArrayLike) -> None:
        if not isinstance(of, FrozenDistribution) or not hasattr(of, "_member"):
            raise ParameterError(
                f"`of` must be a PoissonBinomial with one batch axis, the scenarios; {checks.describe(of)} arrived."
            )
        if len(of.batch_shape) != 1:
            raise ParameterError(
                f"`mixture` needs one batch axis, the scenarios; a batch of shape {of.batch_shape} arrived. Reshape "
                "the parameters to (scenarios, n)."
            )
        share = checks.array(
            "weights", weights, of.batch_shape, checks.Entries("finite numbers of at least 0", 0.0), copy=True
        )
        if not share.sum() > 0.0:
            raise ParameterError("`weights` must not all be 0: no scenario would be possible.")
        self._fill(of, share / share.sum(), 0.0)

    def _fill(self, of: Any, share: Float64, log_before: float) -> None:
        self.__dict__.update(_of=of, _share=frozen(share), _log_before=log_before)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._of, np.array(self._share), self._log_before)

    def _parts(self) -> tuple[Any, ...]:
        return self._of, self._share

    def __repr__(self) -> str:
        return f"SumMixture(n={self.n}, scenarios={len(self._share)})"

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """A mixture is a single distribution: ()."""
        return ()

    @property
    def scenarios(self) -> PoissonBinomial | ConditionalPoissonBinomial:
        """The sums in the single scenarios; after ``given``, those of scenarios that are still possible.

        See Also
        --------
        scenario_probs

        Examples
        --------
        >>> tt.PoissonBinomial([[0.1], [0.5]]).mixture([0.5, 0.5]).scenarios.mean()
        array([0.1, 0.5])
        """
        return self._of

    @property
    def scenario_probs(self) -> Float64:
        """Probabilities of the scenarios (S,); after ``given``, given the range of the sum.

        See Also
        --------
        scenarios

        Examples
        --------
        >>> x = tt.PoissonBinomial([[0.1], [0.5]]).mixture([0.5, 0.5])
        >>> x.given(1).scenario_probs.round(4)
        array([0.1667, 0.8333])
        """
        return self._share

    @property
    def marginals(self) -> Float64:
        """Probabilities of the single events, (n,) or (n, K), averaged over the scenarios.

        See Also
        --------
        given

        Examples
        --------
        >>> tt.PoissonBinomial([[0.1, 0.2], [0.5, 0.6]]).mixture([0.5, 0.5]).marginals
        array([0.3, 0.4])
        """
        each = self._of.marginals if hasattr(self._of, "marginals") else self._of.probs
        return np.asarray(np.tensordot(self._share, each, axes=1))

    @property
    def event_log_prob(self) -> float:
        """Log-probability of what was given; 0 if nothing was.

        See Also
        --------
        given

        Examples
        --------
        >>> x = tt.PoissonBinomial([[0.1], [0.5]]).mixture([0.5, 0.5])
        >>> round(float(np.exp(x.given(1).event_log_prob)), 6)
        0.3
        """
        return self._log_before

    def given(
        self, value: ArrayLike | None = None, *, low: ArrayLike | None = None, high: ArrayLike | None = None
    ) -> SumMixture:
        """The sum, the single events and the scenarios, given the sum or a range of it.

        Parameters
        ----------
        value : number, optional
            Condition on ``X = value``.
        low, high : number, optional
            Condition on ``low <= X <= high``, both included; one of them may be left out.

        Returns
        -------
        SumMixture
            The mixture of the conditional sums, with the probabilities of the scenarios given the range.

        Raises
        ------
        ParameterError
            If neither a value nor a bound is given, or both are.
        InfeasibleError
            If the sum cannot lie there in any scenario.

        See Also
        --------
        PoissonBinomial.given, scenario_probs

        Examples
        --------
        >>> x = tt.PoissonBinomial([[0.1, 0.1], [0.6, 0.9]], weights=[3, 5]).mixture([0.75, 0.25])
        >>> x.given(low=4).marginals.round(4), x.given(low=4).scenario_probs
        (array([0.475, 1.   ]), array([0.25, 0.75]))
        """
        bottom, top = event_bounds(value, low, high, (), self._lattice.step is None)
        before, least, most = self._known
        return self._updated(before, np.maximum(least, bottom), np.minimum(most, top))

    def condition(self, evidence: Mapping[int, int]) -> SumMixture:
        """The sum, the other events and the scenarios, given the values of some events.

        Parameters
        ----------
        evidence : mapping of int to int
            Events and their values, 0 or 1; with weights (n, K) 0, ..., K.

        Returns
        -------
        SumMixture
            The mixture of the sums given these values, with the probabilities of the scenarios given them.

        Raises
        ------
        ParameterError
            If ``evidence`` is not a mapping, or names an event or value that does not exist.
        InfeasibleError
            If these values are impossible in every scenario.

        See Also
        --------
        given, scenario_probs

        Examples
        --------
        >>> x = tt.PoissonBinomial([[0.1, 0.1], [0.6, 0.9]], weights=[3, 5]).mixture([0.75, 0.25])
        >>> x.condition({1: 1}).scenario_probs, x.condition({1: 1}).mean().round(3)
        (array([0.25, 0.75]), np.float64(6.425))
        """
        before, low, high = self._known
        return self._updated(before.condition(evidence), low, high, before._log_evidence(evidence))

    def sample_events(self, size: Size = None, rng: Any = None) -> Any:
        """Exact joint draws of the single events: a scenario for each draw, then events in it.

        Parameters
        ----------
        size : int or tuple of int, optional
            Leading shape of the draws; one draw if omitted.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness, or its seed.

        Returns
        -------
        ndarray of uint8, (size..., n)
            0 and 1. With weights (n, K): 0, or the number 1, ..., K of the value that the event took.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.

        See Also
        --------
        sample, marginals

        Examples
        --------
        >>> x = tt.PoissonBinomial([[0.1, 0.1], [0.6, 0.9]], weights=[3, 5]).mixture([0.75, 0.25])
        >>> x.given(low=8).sample_events(2, rng=0)
        array([[1, 1],
               [1, 1]], dtype=uint8)
        """
        shape, generator = checks.shape("size", size), checks.generator(rng)
        return self._of_scenarios(
            (*shape, self.n),
            generator.random(shape),
            np.uint8,
            lambda of, count: of.sample_events(count, generator),
        )

    @property
    def _known(self) -> tuple[PoissonBinomial, Float64, Float64]:
        """The sums before a range was known, and the range."""
        of = self._of
        if isinstance(of, ConditionalPoissonBinomial):
            return of._of, of._low, of._high
        return of, np.array(-math.inf), np.array(math.inf)

    def _updated(self, sums: PoissonBinomial, low: Float64, high: Float64, log_seen: Any = 0.0) -> SumMixture:
        """The mixture of other sums or of a narrower range, where scenarios had `log_seen` (S,) of what was seen."""
        some = np.isneginf(low).all() and np.isposinf(high).all()
        of: Any = sums if some else ConditionalPoissonBinomial._unchecked(sums, low, high)
        with np.errstate(divide="ignore"):
            logs = np.log(self._share) + log_seen
        if np.isneginf(logs).all():
            raise InfeasibleError(
                "`evidence` has probability zero in every scenario. `marginals` says what is possible."
            )
        logs = logs + getattr(of, "_log_event", 0.0) - getattr(self._of, "_log_event", 0.0)
        total = float(log_sum(logs))
        if total == -math.inf:
            of._refuse_impossible(np.isneginf(logs))
        share = np.exp(logs - total)
        kept = np.flatnonzero(share > _NEVER)
        return _again(of._member(kept), share[kept] / share[kept].sum(), self._log_before + min(total, 0.0))

    @cached
    def _rounded(self) -> tuple[SumMixture, SumMixture]:
        if isinstance(self._of, ConditionalPoissonBinomial):
            raise ParameterError(
                "`bracket` bounds what holds before a range is given; ask the mixture without `given`."
            )
        down, up = self._of._rounded
        return SumMixture(down, self._share), SumMixture(up, self._share)

    @property
    def _slack(self) -> tuple[Fraction, Fraction]:
        return self._of._slack  # type: ignore[union-attr]

    # -- the law -----------------------------------------------------------------------------------------------

    @property
    def _is_long(self) -> bool:
        return self._of._is_long

    @cached
    def _log_table(self) -> Float64:
        with np.errstate(divide="ignore"):
            table = log_sum(self._of._log_table + np.log(self._share)[:, None], axis=0)[None]
        return frozen(table)

    @cached
    def _bounds(self) -> tuple[Any, Any]:
        low, high = (np.asarray(b)[self._share > 0.0] for b in self._of._bounds)
        return low.min(), high.max()

    @cached
    def _cumulants(self) -> tuple[Float64, Float64, Float64, Float64]:
        """Central moments about the common mean, from those of the scenarios."""
        mean, second, third, fourth = (np.asarray(c) for c in self._of._cumulants)
        centre = float(self._share @ mean)
        away = mean - centre
        two = second + away**2
        three = third + 3.0 * away * second + away**3
        four = fourth + 3.0 * second**2 + 4.0 * away * third + 6.0 * away**2 * second + away**4
        moments = [float(self._share @ m) for m in (two, three, four)]
        found = (centre, moments[0], moments[1], moments[2] - 3.0 * moments[0] ** 2)
        return tuple(np.asarray(c) for c in found)  # type: ignore[return-value]

    def _few_logs(self, which: str, name: str, x: ArrayLike) -> Float64 | None:
        if not self._is_long:
            return None
        cells, _, on_cell = self._points(name, x)
        found = np.array([self._mixed(which, int(k)) for k in cells.ravel()]).reshape(cells.shape)
        return np.where(on_cell, found, -np.inf) if which == "at" else found

    def _mixed(self, which: str, cell: int) -> float:
        """Log P(X = cell), P(X <= cell) or P(X > cell) in the mixture."""
        if which == "at":
            return self._refined("at", cell)

        def ask(side: str, cells: Ints) -> Float64:
            return np.array([self._refined(side, k + (side == "above")) for k in cells.tolist()])

        return float(log_side(ask, which, np.array([cell]), self._mean_cell)[0])

    @cached
    def _mean_cell(self) -> float:
        means = [float(law.events.moments()[0][0]) for law in self._of._laws]  # type: ignore[union-attr]
        return float(self._share @ np.array(means))

    def _refined(self, which: str, cell: int) -> float:
        """Log-probability, tails with the cell: scenarios are refined, largest first, until the rest cannot matter."""
        laws, at = self._of._laws, np.array([cell])  # type: ignore[union-attr]
        rough = np.array([law.rough(which, cell) for law in laws])  # (S, 2): value and error
        value, error = rough[:, 0], rough[:, 1]
        while True:
            total, off = float(self._share @ value), self._share * error
            if off.sum() <= 0.5 * CERTIFIED * total or not off.any():
                return math.log(total) if total > 0.0 else self._far(which, cell)
            row = int(np.argmax(off))
            value[row], error[row] = math.exp(float(laws[row].ask(which, at)[0])), 0.0

    def _far(self, which: str, cell: int) -> float:
        """Probabilities below the smallest float64."""
        logs = [float(law.ask(which, np.array([cell]))[0]) for law in self._of._laws]  # type: ignore[union-attr]
        with np.errstate(divide="ignore"):
            return float(log_sum(np.array(logs) + np.log(self._share)))

    def _cell_of_tail(self, row: int, level: float, upper: bool) -> int:
        """By bisection on the tail of the mixture, between the quantiles of the scenarios."""
        each = [law.quantile(level, upper) for law, p in zip(self._of._laws, self._share) if p > 0.0]  # type: ignore[union-attr]

        def reached(k: int) -> bool:
            tail = math.exp(self._mixed("above" if upper else "below", k))
            return tail <= level * (1.0 + CERTIFIED) if upper else tail >= level * (1.0 - CERTIFIED)

        low, high = int(min(each)), int(max(each))
        return low + bisect_left(range(low, high), True, key=reached)

    def _draw(self, shape: tuple[int, ...], uniform: Any) -> Any:
        if not self._is_long:
            return super()._draw(shape, uniform)
        return self._of_scenarios(
            shape, uniform(shape), self.values.dtype, lambda of, count: of._draw((count,), uniform)
        )

    def _of_scenarios(self, shape: tuple[int, ...], u: Float64, dtype: Any, drawn: Callable[..., Any]) -> Any:
        """What is drawn from scenarios, which uniform numbers pick."""
        which = np.searchsorted(np.cumsum(self._share), u * self._share.sum(), side="right")
        which, out = np.minimum(which, len(self._share) - 1), np.empty(shape, dtype)
        for i in np.unique(which).tolist():
            here = which == i
            out[here] = drawn(self._of._member(i), int(here.sum()))
        return out

    def _contributions(self, cells: Ints, log_edge: Float64) -> Float64:
        count = len(self._share)
        each = np.repeat(cells, count), np.repeat(log_edge, count)
        with np.errstate(divide="ignore"):
            logs = np.log(self._share) + self._of._tail_shares(*each, shares=False)[0]
        share = np.exp(logs - log_sum(logs))
        kept = np.flatnonzero(share > _NEVER)  # calm scenarios have no part in a crisis
        _, values = self._of._member(kept)._tail_shares(
            np.repeat(cells, len(kept)), np.repeat(log_edge, len(kept))
        )
        return (share[kept] @ values)[None]


def _again(of: Any, share: Float64, log_before: float) -> SumMixture:
    new: SumMixture = object.__new__(SumMixture)
    new._fill(of, share, log_before)
    return new
