"""The Poisson-binomial distribution: how many of n independent events happen, plain or weighted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from tallytree import checks
from tallytree.checks.sums import (
    from_probs,
    grid_step,
    outcome_logits,
    outcome_probs,
    real_array,
    rectangular_weights,
    step_of_weights,
    sum_weights,
)  # fmt: skip
from tallytree.engine.pmf.events import (
    Events,
    Lattice,
    Weight,
    cells_below_and_above,
    log_outcomes,
    multiples,
    shared_between_cells,
    slack,
    to_lattice,
    without_masks,
)  # fmt: skip
from tallytree.engine.pmf.log_pmf import MOST, SHORTEST, direct_log_pmf, log_pmf, log_probabilities
from tallytree.engine.pmf.sums import SumLaw, expectation, log_table
from tallytree.errors import ParameterError
from tallytree.memo import cached
from tallytree.models.conditional_sum import ConditionalPoissonBinomial, event_bounds
from tallytree.models.frozen_distribution import cumulants
from tallytree.models.mixture import SumMixture
from tallytree.models.tail_risk import BoundedRisk

from ..arrays import Float64, Ints, Size, frozen

METHODS = ("auto", "recursion", "tilted")
BERNOULLI_DRAWS = 1 << 22  # up to this many uniform numbers, samples are sums of single draws
LONG = 1 << 13  # values of a weighted sum from which on only those are computed that are asked for


class PoissonBinomial(BoundedRisk):
    """Distribution of ``X = sum_i w_i y_i`` for independent ``y_i`` that are 1 with probability ``p_i``.

    Parameters
    ----------
    probs : array_like (..., n), optional
        Probabilities in [0, 1]. Give either ``probs`` or ``logits``.
    logits : array_like (..., n), optional
        Log-odds in [-inf, inf]; they keep the digits of probabilities near 1.
    weights : array_like (n,) or (n, K), optional
        Weights of any sign, shared by the batch; all 1 if omitted. Integers are exact. Real weights are put on a grid.
        With weights (n, K), event i takes one of K values or nothing (a loss given default that has a few values);
        ``probs`` or ``logits`` then have the shape (..., n, K), and log-odds compare each value with nothing.
    step : float, optional
        Spacing of the grid. A weight between two grid points is split between both so that its mean is kept. If
        omitted, real weights get a step of 1, 2 or 5 times a power of ten that adds at most 1e-4 of the variance.
    method : {"auto", "recursion", "tilted"}
        ``"auto"`` meets the accuracy below. The others are for study and comparison: ``"recursion"`` adds one variable
        at a time (Gail, Lubin and Rubinstein; Barlow and Heidtmann), ``"tilted"`` computes windows of the distribution
        from characteristic functions (compiled engine, no weights).

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.ConditionalPoissonBinomial
    tallytree.CountModel
    tallytree.k_out_of_n

    Notes
    -----
    It takes the place of a frozen `scipy.stats` distribution such as ``poisson_binom(p)``: the methods have the same
    names, arguments and meaning. Three things differ: NaN, or a level outside [0, 1], raises an error instead of
    returning NaN; ``support()`` leaves out values that probabilities of 0 and 1 exclude; quantiles are integers.

    Arguments ``k``, ``x`` and ``q`` broadcast against the batch axes: for a batch of shape (5,), ``k`` of shape
    (3, 1) gives (3, 5). The whole table is in ``count_log_probs`` (..., m): the log-probabilities of ``values`` (m,).

    What the grid changes for real weights, :meth:`bracket` bounds for every probability and quantile. A batch can be a
    set of scenarios: :meth:`mixture` averages over them.

    Cost: one probability of a long sum takes one pass, O(n), or O(n + C log C log n) with weights, for the C grid
    points that matter. The table of all sums is computed once, at the first call that needs it: O(n^2) simple steps
    up to n of about 10^4, O(n^1.5) beyond; with weights one pass for every few standard deviations. Moments up to the
    fourth need no table: O(n).

    Accuracy: ``logpmf``, ``logcdf`` and ``logsf`` within 1e-10, absolute or relative, at every k; with real weights
    this holds for the sum on the grid. Probabilities below the smallest float64 become 0, their logarithms stay
    right. All answers are float64, also for float32 parameters.

    Examples
    --------
    >>> x = tt.PoissonBinomial([0.1, 0.5, 0.9])
    >>> x
    PoissonBinomial(n=3)
    >>> x.pmf([0, 1, 2, 3]).round(3)
    array([0.045, 0.455, 0.455, 0.045])
    >>> x.sf(1).round(3), x.ppf(0.9), x.mean()
    (np.float64(0.5), np.int64(2), np.float64(1.5))

    The far tail keeps its digits:

    >>> tt.PoissonBinomial(np.full(10_000, 0.999)).logpmf(0).round(3)
    np.float64(-69077.553)

    With weights; and the probabilities of the single events given that a majority was reached:

    >>> votes = tt.PoissonBinomial([0.9, 0.5, 0.2], weights=[3, 20, 16])
    >>> votes.sf(19).round(3), votes.given(low=20).marginals.round(3)
    (np.float64(0.5), array([0.9, 1. , 0.2]))

    With real weights on a grid: the loss that is exceeded in one year of a hundred, and its bounds:

    >>> loss = tt.PoissonBinomial([0.02, 0.01, 0.05], weights=[1.37, 20.5, 3.99], step=0.1)
    >>> loss.value_at_risk(0.99).round(2), [float(x.round(2)) for x in loss.bracket("value_at_risk", 0.99)]
    (np.float64(5.4), [5.2, 5.4])
    """

    _nu: Float64
    _p: Float64
    _q: Float64  # kept beside p: the digits of probabilities near 1
    _weights: Ints | Float64 | None
    _grid_step: float | None
    _method: str
    _given: tuple[str, NDArray[Any]]

    def __init__(
        self,
        probs: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        step: float | None = None,
        method: str = "auto",
    ) -> None:
        kind, value = checks.one_given(probs=probs, logits=logits)
        checks.one_of("method", method, METHODS)
        step = grid_step(step, weights)
        given = real_array(kind, value)
        if weights is not None:
            weights = rectangular_weights(weights)
        several = weights is not None and weights.ndim == 2
        if several and given.ndim < 2:
            raise ParameterError(
                f"`{kind}` must be (..., n, K) for `weights` (n, K), one per outcome; shape {given.shape} arrived."
            )
        if several:
            log_p = outcome_probs(given) if kind == "probs" else outcome_logits(given)
            p, q, none = np.exp(log_p[..., 1:]), np.exp(log_p[..., :1]), log_p[..., :1]
            with np.errstate(invalid="ignore"):
                nu = np.where(log_p[..., 1:] == -np.inf, -np.inf, log_p[..., 1:] - none)
        elif kind == "probs":
            p, q, nu = from_probs(given)
        else:
            nu = given + 0.0  # -0.0 and 0.0 are one parameter
            p, q = expit(nu), expit(-nu)
        checked = None if weights is None else sum_weights(weights, nu.shape[-2 if several else -1], step)
        if several and checked is not None and nu.shape[-1] != checked.shape[-1]:
            raise ParameterError(
                f"`{kind}` and `weights` must have the same number of outcomes; {nu.shape[-1]} and {checked.shape[-1]} "
                "arrived."
            )
        if method == "tilted" and checked is not None:
            raise ParameterError('`method="tilted"` takes no `weights`; use "auto".')
        if checked is not None and checked.dtype.kind == "f":
            step = step_of_weights(step, np.asarray(checked, np.float64), p)
        frozen(given, p, q, nu, *([] if checked is None else [checked]))
        self.__dict__.update(
            _nu=nu, _p=p, _q=q, _weights=checked, _grid_step=step, _method=method, _given=(kind, given)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (*self._given, self._weights, self._grid_step, self._method)

    def _parts(self) -> tuple[Any, ...]:
        return self._nu, self._weights, self._grid_step, self._method

    def __repr__(self) -> str:
        parts = [f"n={self.n}"]
        if self._weights is not None:
            parts.append("weighted" if self._grid_step is None else f"step={self._grid_step:g}")
        if self.batch_shape:
            parts.append(f"batch={self.batch_shape}")
        if self._method != "auto":
            parts.append(f"method={self._method!r}")
        return f"PoissonBinomial({', '.join(parts)})"

    # -- parameters --------------------------------------------------------------------------------------------

    @property
    def _several(self) -> bool:
        """Whether events have more than one outcome besides nothing."""
        return self._weights is not None and self._weights.ndim == 2

    @property
    def n(self) -> int:
        """Number of variables."""
        return int(self._nu.shape[-2 if self._several else -1])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of the parameters."""
        return tuple(int(size) for size in self._nu.shape[: -2 if self._several else -1])

    @property
    def probs(self) -> Float64:
        """Probabilities (..., n) or (..., n, K), read-only."""
        return self._p

    @property
    def logits(self) -> Float64:
        """Log-odds (..., n) or (..., n, K), read-only."""
        return self._nu

    @property
    def weights(self) -> Any:
        """Weights (n,) or (n, K)."""
        return np.ones(self.n, dtype=np.int64) if self._weights is None else self._weights

    @property
    def step(self) -> float | None:
        """Spacing of the grid of real weights; None for integers.

        See Also
        --------
        grid_error, bracket

        Examples
        --------
        >>> tt.PoissonBinomial([0.1, 0.2], weights=[1.25, 2.5]).step
        0.0005
        """
        return self._grid_step

    # -- the events and the table ------------------------------------------------------------------------------

    @property
    def _outcome_values(self) -> Any:
        """What the outcomes of every event add, (n, O)."""
        w = self.weights if self._several else self.weights[:, None]
        return np.concatenate([np.zeros_like(w[:, :1]), w], axis=1)

    @cached
    def _cells(self) -> tuple[Ints, Lattice, Float64 | None, Ints]:
        """Cells (n, P) of all outcomes from 0 on, their lattice, log-probabilities on a grid, and their owners (P,)."""
        values = self._outcome_values
        if self._grid_step is None:
            return *to_lattice(values), None, np.arange(values.shape[1])
        log_p, cells, owner = shared_between_cells(self._log_outcomes, values, self._grid_step)
        return *to_lattice(cells, self._grid_step), log_p, owner

    @property
    def _log_outcomes(self) -> Float64:
        """Log-probabilities (B, n, O) of the outcomes."""
        rows = (int(np.prod(self.batch_shape, dtype=np.int64)), self.n)
        if not self._several:
            return log_outcomes(self._nu.reshape(rows))
        kind, given = self._given
        log_p = outcome_probs(given) if kind == "probs" else outcome_logits(given)
        return without_masks(log_p.reshape(*rows, -1))

    @cached
    def _events(self) -> Events:
        values, _, log_p, _ = self._cells
        return Events(self._log_outcomes if log_p is None else log_p, values)

    @property
    def _lattice(self) -> Lattice:
        return Lattice(0, 1, self.n + 1) if self._weights is None else self._cells[1]

    @cached
    def _count_logits(self) -> Float64 | None:
        """Log-odds (B, m) of a plain count that this sum is, up to its unit; None if weights differ."""
        nu = self._nu
        if self._weights is not None:
            if self._several or self._grid_step is not None:
                return None
            counted = self._weights != 0
            if len(set(np.abs(self._weights[counted]).tolist())) > 1:
                return None
            nu = np.where(self._weights < 0, -nu, nu)[..., counted]
        return nu.reshape(int(np.prod(self.batch_shape, dtype=np.int64)), nu.shape[-1])

    @property
    def _is_long(self) -> bool:
        return self._count_logits is None and self._lattice.size > LONG and "_log_table" not in self.__dict__

    @cached
    def _laws(self) -> list[SumLaw]:
        """One law per member of the batch, computed where it is asked for."""
        return [SumLaw(self._events.take([row])) for row in range(len(self._events.log_p))]

    @cached
    def _log_table(self) -> Float64:
        nu = self._count_logits
        if nu is None:
            table = log_table(self._events)
        else:
            table = direct_log_pmf(nu) if self._method == "recursion" else log_pmf(nu)
        return frozen(table)

    def _few_logs(self, which: str, name: str, x: ArrayLike) -> Float64 | None:
        """Without a table: windows of a long weighted sum, or one inference per point if points of a count are few."""
        if self._is_long:
            return self._at_points(which, name, x)
        known = "_log_table" in self.__dict__ or self._method != "auto"
        if known or self._weights is not None or self.batch_shape or self.n <= SHORTEST:
            return None
        points = real_array(name, x, least_axes=0)
        if points.size > MOST:
            return None
        return log_probabilities(self._nu, float(self._p.sum()), which, points)

    def _at_points(self, which: str, name: str, x: ArrayLike) -> Float64:
        cells, rows, on_cell = self._points(name, x)
        out = np.empty(cells.shape)
        for row, law in enumerate(self._laws):
            here = rows == row
            out[here] = law.ask("at", cells[here]) if which == "at" else law.side(which, cells[here])
        return np.where(on_cell, out, -np.inf) if which == "at" else out

    def _cell_of_tail(self, row: int, level: float, upper: bool) -> int:
        return self._laws[row].quantile(level, upper)

    @cached
    def _bounds(self) -> tuple[Any, Any]:
        low, high = (self._lattice.value(end.reshape(self.batch_shape)) for end in self._events.extremes())
        return low[()], high[()]

    # -- moments and draws without the table -------------------------------------------------------------------

    @cached
    def _cumulants(self) -> tuple[Float64, Float64, Float64, Float64]:
        """Cumulants of independent variables add: ``w p``, ``w^2 pq``, ``w^3 pq(q - p)``, ``w^4 pq(1 - 6pq)``."""
        if self._several or self._grid_step is not None:
            return self._event_cumulants()
        pq = self._p * self._q
        terms = (self._p, pq, pq * (self._q - self._p), pq * (1.0 - 6.0 * pq))
        w = self.weights.astype(np.float64)
        found = (np.asarray((term * w ** (i + 1)).sum(axis=-1)) for i, term in enumerate(terms))
        return tuple(found)  # type: ignore[return-value]

    def _event_cumulants(self) -> tuple[Float64, Float64, Float64, Float64]:
        """Cumulants from the outcomes of every event: on a grid, those of the sum on the grid."""
        step = self._lattice.step or 1.0
        each = cumulants(np.exp(self._events.log_p), self._events.values)
        found = [c.sum(1) * (self._lattice.divisor * step) ** i for i, c in enumerate(each, 1)]
        found[0] = found[0] + self._lattice.offset * step
        return tuple(np.asarray(c).reshape(self.batch_shape) for c in found)  # type: ignore[return-value]

    def _raw_moment(self, power: int) -> Any:
        mean, second, third, fourth = self._cumulants
        short = (
            np.ones(self.batch_shape),
            mean,
            second + mean**2,
            third + 3.0 * second * mean + mean**3,
            fourth + 4.0 * third * mean + 3.0 * second**2 + 6.0 * second * mean**2 + mean**4,
        )
        return short[power][()] if power < len(short) else super()._raw_moment(power)

    def _draw(self, shape: tuple[int, ...], uniform: Callable[..., Float64]) -> Any:
        """Sums of single draws where they are few, quantiles of the table where they are many."""
        if self._several or self._grid_step is not None:
            return self._draw_outcomes(shape, uniform)
        if int(np.prod((*shape, self.n), dtype=np.int64)) <= BERNOULLI_DRAWS:
            return np.asarray((uniform((*shape, self.n)) < self._p) @ self.weights)
        return super()._draw(shape, uniform)

    def _draw_outcomes(self, shape: tuple[int, ...], uniform: Callable[..., Float64]) -> Any:
        """Sums of single draws, in parts: a quantile of a long sum costs more than a few thousand of them."""
        upto = self._upto(self._events.log_p)
        count = int(np.prod(shape[: len(shape) - len(self.batch_shape)], dtype=np.int64))
        values, each = self._events.values, np.arange(self.n)
        cells = np.zeros((count, *self.batch_shape), np.int64)
        chunk = max(1, BERNOULLI_DRAWS // max(1, upto.size))
        for k in range(0, count, chunk):
            outcome = _outcomes(upto, min(chunk, count - k), uniform)
            cells[k : k + chunk] = values[each, outcome].sum(axis=-1)
        return np.asarray(self._lattice.value(cells.reshape(shape)))

    def _upto(self, log_p: Float64) -> Float64:
        """Sums (..., n, O - 1) of the probabilities of the first outcomes of every event."""
        return np.cumsum(np.exp(log_p), axis=2)[..., :-1].reshape(*self.batch_shape, self.n, -1)

    def sample_events(self, size: Size = None, rng: Any = None) -> Any:
        """Joint draws of the single events.

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
        sample, ConditionalPoissonBinomial.sample_events

        Examples
        --------
        >>> tt.PoissonBinomial([0.0, 1.0, 0.5], weights=[1, 2, 4]).sample_events(2, rng=0)
        array([[0, 1, 0],
               [0, 1, 1]], dtype=uint8)
        """
        shape, generator = checks.shape("size", size), checks.generator(rng)
        drawn = _outcomes(
            self._upto(self._log_outcomes), int(np.prod(shape, dtype=np.int64)), generator.random
        )
        return drawn.astype(np.uint8).reshape(*shape, *self.batch_shape, self.n)

    # -- the grid ----------------------------------------------------------------------------------------------

    @property
    def grid_error(self) -> float:
        """Largest distance between the sum with weights rounded down and with weights rounded up, see :meth:`bracket`.

        See Also
        --------
        bracket, step

        Examples
        --------
        >>> tt.PoissonBinomial([0.1, 0.2], weights=[1.25, 2.0], step=0.5).grid_error
        0.5
        """
        if self._grid_step is None:
            return 0.0
        down, up = cells_below_and_above(self._outcome_values, self._grid_step)
        width = multiples((up - down).max(axis=1).sum(), self._grid_step)
        return float(width + sum(self._slack))

    @cached
    def _slack(self) -> tuple[Fraction, Fraction]:
        if self._grid_step is None:
            return Fraction(0), Fraction(0)
        return slack(self._outcome_values, self._grid_step)

    @cached
    def _rounded(self) -> tuple[PoissonBinomial, PoissonBinomial]:
        """The sums with all weights rounded down and up."""
        if self._grid_step is None:
            return self, self
        kind, given = self._given
        values = self._outcome_values[:, 1:] if self._several else self.weights
        found = []
        for cells in cells_below_and_above(values, self._grid_step):
            end = object.__new__(PoissonBinomial)
            end.__dict__.update(
                _nu=self._nu, _p=self._p, _q=self._q, _weights=multiples(cells, self._grid_step),
                _grid_step=self._grid_step, _method=self._method, _given=(kind, given),
            )  # fmt: skip
            found.append(end)
        return found[0], found[1]

    # -- scenarios ---------------------------------------------------------------------------------------------

    def mixture(self, weights: ArrayLike) -> SumMixture:
        """The distribution of the sum if the scenario is random, with these probabilities.

        The scenarios are the members of the batch.

        Parameters
        ----------
        weights : array_like (S,)
            Probabilities of the S scenarios, up to a common factor.

        Returns
        -------
        SumMixture
            A distribution with ``cdf``, ``sf``, ``ppf``, ``given``, ``expected_shortfall`` and ``contributions``.

        Raises
        ------
        ParameterError
            If the batch has not exactly one axis, or ``weights`` are not one non-negative number for each member.

        See Also
        --------
        tallytree.SumMixture

        Examples
        --------
        >>> calm_and_crisis = tt.PoissonBinomial([[0.01, 0.02], [0.3, 0.2]], weights=[10, 25])
        >>> calm_and_crisis.mixture([0.9, 0.1]).sf(20).round(4)
        np.float64(0.038)
        """
        return SumMixture(self, weights)

    def _member(self, index: Any) -> PoissonBinomial:
        """Members of a batch of one axis."""
        kind, given = self._given
        return _rebuild(kind, given[index], self._weights, self._grid_step, self._method)

    def _tail_shares(self, cells: Ints, log_edge: Float64, *, shares: bool = True) -> tuple[Float64, Float64]:
        """Log E[f] (B,) and E[value of event i | f] (B, n), f being 1 above the cells and ``exp(log_edge)`` at them."""
        return self._expected_values(Weight(cells, np.full(len(cells), self._events.most), log_edge), shares)

    def _expected_values(self, f: Weight, shares: bool) -> tuple[Float64, Float64]:
        """Log E[f] and E[value of event i | f] for any f; without `shares` the second is empty."""
        found = expectation(self._events, f, outcomes=shares)
        return found.log_mean, self._value_means(found.log_outcomes) if shares else np.zeros(0)

    def _value_means(self, log_outcomes: Float64) -> Float64:
        """Mean value of every event (B, n), from log-probabilities of its outcomes."""
        least = np.asarray(self._outcome_values, np.float64).min(axis=1)
        if self._grid_step is not None:
            down, up = cells_below_and_above(self._outcome_values, self._grid_step)
            least = np.minimum(down.min(axis=1), up.min(axis=1)) * self._grid_step
        unit = self._lattice.divisor * (self._lattice.step or 1.0)
        return np.asarray((np.exp(log_outcomes) * self._events.values).sum(axis=2) * unit + least)

    # -- evidence ----------------------------------------------------------------------------------------------

    def given(
        self, value: ArrayLike | None = None, *, low: ArrayLike | None = None, high: ArrayLike | None = None
    ) -> ConditionalPoissonBinomial:
        """The sum and the single variables, given the sum or a range of it.

        Parameters
        ----------
        value : number or array, optional
            Condition on ``X = value``; a whole number unless weights are real.
        low, high : number or array, optional
            Condition on ``low <= X <= high``, both included; one of them may be left out. Arrays broadcast to the
            batch.

        Returns
        -------
        ConditionalPoissonBinomial
            A distribution with the same methods and, in addition, ``marginals``: the probabilities of the variables
            given the sum or its range.

        Raises
        ------
        ParameterError
            If neither a value nor a bound is given, or both are, or they are not whole numbers.
        InfeasibleError
            If the sum cannot lie there.

        See Also
        --------
        condition, ConditionalPoissonBinomial

        Notes
        -----
        Cost: nothing until asked. Then all ``marginals`` take one pass up and one down, near-linear in n.

        Examples
        --------
        >>> x = tt.PoissonBinomial([0.1, 0.5, 0.9], weights=[1, 2, 3])
        >>> x.given(3).marginals.round(3)
        array([0.012, 0.012, 0.988])
        >>> x.given(low=3).pmf([2, 3, 4]).round(3)
        array([0.   , 0.453, 0.05 ])
        """
        return ConditionalPoissonBinomial(
            self, *event_bounds(value, low, high, self.batch_shape, self._grid_step is None)
        )

    def condition(self, evidence: Mapping[int, int]) -> PoissonBinomial:
        """The distribution given the values of some variables.

        Parameters
        ----------
        evidence : mapping of int to int
            Variables and their values, 0 or 1; with weights (n, K) 0, ..., K.

        Returns
        -------
        PoissonBinomial
            The distribution of the same sum.

        Raises
        ------
        ParameterError
            If ``evidence`` is not a mapping, or names a variable or value that does not exist.

        See Also
        --------
        given

        Examples
        --------
        >>> tt.PoissonBinomial([0.1, 0.5, 0.9]).condition({0: 1}).pmf([0, 1, 2, 3]).round(3)
        array([0.  , 0.05, 0.5 , 0.45])
        """
        variables, tables = self._evidence(evidence)
        kind, given = self._given if self._several else ("logits", self._nu)
        changed, sure = np.array(given), (1.0, 0.0) if kind == "probs" else (np.inf, -np.inf)
        for variable, table in zip(variables.tolist(), tables):
            if self._several:
                changed[..., variable, :] = np.where(table[1:] == 0.0, *sure)
            else:
                changed[..., variable] = sure[0] if table[1] == 0.0 else sure[1]
        return _rebuild(kind, changed, self._weights, self._grid_step, self._method)

    def _evidence(self, evidence: Mapping[int, int]) -> tuple[Ints, list[Float64]]:
        return checks.evidence(evidence, self.n, self._outcome_values.shape[1])

    def _log_evidence(self, evidence: Mapping[int, int]) -> Float64:
        """Log-probability of the values of some variables, (B,)."""
        variables, tables = self._evidence(evidence)
        allowed = np.reshape(tables, (len(variables), self._log_outcomes.shape[-1]))
        return np.asarray((self._log_outcomes[:, variables] + allowed).max(axis=2).sum(axis=1))


def _outcomes(upto: Float64, count: int, uniform: Callable[..., Float64]) -> Ints:
    """Outcomes (count, ..., n) of independent events, from sums (..., n, O - 1) of the probabilities of the first."""
    u = uniform((count, *upto.shape[:-1]))
    return np.asarray((u[..., None] >= upto).sum(axis=-1))


def _rebuild(
    kind: str, given: NDArray[Any], weights: Any, step: float | None, method: str
) -> PoissonBinomial:
    probs, logits = (given, None) if kind == "probs" else (None, given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when it was made
        return PoissonBinomial(probs, logits=logits, weights=weights, step=step, method=method)


class WeightedEvents:
    """Weights of a sum whose log-odds vary: what gradients in other array libraries are made of."""

    def __init__(self, weights: ArrayLike, step: float | None, n: int) -> None:
        self.step = grid_step(step, weights)
        self.weights = sum_weights(weights, n, self.step)
        if self.weights.ndim != 1:
            raise ParameterError(
                "`weights` must be (n,) here; events with several outcomes are in tallytree.PoissonBinomial."
            )
        if self.weights.dtype.kind == "f" and self.step is None:
            raise ParameterError(
                "`step` must be given with real `weights`: the grid may not depend on log-odds that vary. "
                "`tallytree.PoissonBinomial(probs, weights=weights).step` proposes one."
            )

    def log_probs(
        self, which: str, logits: Any, value: Any, *, edges: bool = False
    ) -> tuple[Float64, Float64]:
        """Log P(X = value), P(X <= value) or P(X > value) for "at", "below" or "above", and its gradients.

        `logits` (..., n) and `value` (...) have equal leading axes. ``d log P(E) / d logit_i = P(y_i = 1 | E) - p_i``;
        all of them from one downward pass; 0 where the event is impossible. With `edges`, infinite log-odds have the
        derivative by their probability instead of 0, which takes a pass for each.
        """
        nu, x = np.asarray(logits, np.float64), np.asarray(value, np.float64)
        rows = nu.reshape(x.size, nu.shape[-1])
        lattice = self.law(rows)._lattice
        place = lattice.place(x.reshape(-1))
        low, high = np.zeros(x.size), np.full(x.size, lattice.size - 1.0)
        if which == "above":
            low = np.floor(place) + 1.0
        else:
            high = np.floor(place)
            low = np.ceil(place) if which == "at" else low
        first, last = (np.clip(end, -1.0, float(lattice.size)).astype(np.int64) for end in (low, high))
        log_p, slope = self.given(rows, Weight(first, last), edges=edges)
        return log_p.reshape(x.shape), slope.reshape(nu.shape)

    def law(self, rows: Float64) -> PoissonBinomial:
        """The sums with log-odds (B, n)."""
        return _rebuild("logits", rows, self.weights, self.step, "auto")

    def given(self, rows: Float64, f: Weight, *, edges: bool = False) -> tuple[Float64, Float64]:
        """Log E[f(X)] (B,) and its gradients (B, n), as `log_probs`."""
        law = self.law(rows)
        found = expectation(law._events, f, outcomes=True)
        on = np.exp(found.log_outcomes[..., law._cells[3] == 1]).sum(axis=-1)
        possible = (found.log_mean > -np.inf)[:, None] & np.isfinite(rows)
        slope = np.where(possible, on - law.probs, 0.0)
        row, i = np.nonzero(np.isinf(rows) & (found.log_mean > -np.inf)[:, None] & edges)
        if len(row):
            other = rows[row]
            other[np.arange(len(row)), i] *= -1.0
            moved = expectation(self.law(other)._events, f.take(row), outcomes=False).log_mean
            slope[row, i] = np.expm1(moved - found.log_mean[row]) * -np.sign(rows[row, i])
        return found.log_mean if f.table is not None else np.minimum(found.log_mean, 0.0), slope
