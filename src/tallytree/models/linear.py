"""`LinearModel`: binary variables with a function of a real-valued linear combination of them, on a grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from .. import checks, display
from ..arrays import Float64, Ints, Size, States, frozen
from ..checks.sums import check_sizes
from ..engine.count.moments import softplus_sum, weight_of_logits
from ..engine.pmf.events import (
    Events,
    Lattice,
    Weight,
    best_configurations,
    decimal,
    log_outcomes,
    to_lattice,
    weight_of_table,
)
from ..engine.pmf.sums import Expectation, draw, expectation, log_table
from ..errors import InfeasibleError, ParameterError, warn
from ..memo import cached
from .base import ArgumentModel, place_in_batch, rows_of
from .conditional_sum import event_bounds
from .frozen_distribution import LawOf
from .tail_risk import BRACKETED, BoundedRisk, BoundingLaw, bounding_laws

_LARGEST = 1 << 24  # points of the grid
_OWN = ("log_partition", "log_expectation", "marginals")  # what has bounds beside questions about the sum


class LinearModel(ArgumentModel):
    """Binary variables with a potential on a weighted sum of them.

    ``p(y) = exp(logits . y) f(weights . y) / Z``: the potentials of Potetz and Lee (2008). Real weights are rounded
    to a grid. If all weights are equal the sum is a count: use :class:`~tallytree.CountModel`, which needs no grid.

    Parameters
    ----------
    logits : array_like, (..., D)
        Log-odds.
    weights : array_like, (D,)
        Real weights w.
    log_f : callable or array_like, (..., M)
        The potential: a function from an array of sums ``w . y`` to the array of their ``log f``, or an array of
        ``log f`` at ``values``. ``-inf`` marks an impossible sum.
    step : float
        Spacing of the grid. Every weight is replaced by the nearest multiple of it.

    Attributes
    ----------
    values : (M,) array
        The points of the grid: all values that the sum may have.
    grid_error : float
        Largest distance between the sum with the given weights and the sum on the grid.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape or value; the message says what was required.
    InfeasibleError
        When an answer is asked of a model that allows no configuration.

    See Also
    --------
    tallytree.CountModel
    tallytree.PoissonBinomial

    Notes
    -----
    Cost: near-linear in D and in the number of grid points that matter; at worst O(D M) for M points.

    Accuracy: with the rounded weights ``posterior_logits`` are right to 1e-9 absolute or 1e-10 relative.
    :meth:`bracket` bounds what the rounding of the weights can change, and ``total.bracket`` does so for
    probabilities and quantiles of the sum: they use the smallest and the largest value of f within ``grid_error`` of
    every point.

    References
    ----------
    Potetz and Lee, "Efficient belief propagation for higher-order cliques using linear constraint nodes", 2008.

    Examples
    --------
    >>> model = tt.LinearModel(np.zeros(3), [0.5, 1.0, -1.5], lambda x: -((x - 1.0) ** 2), step=0.25)
    >>> model.values
    array([-1.5 , -1.25, -1.  , -0.75, -0.5 , -0.25,  0.  ,  0.25,  0.5 ,
            0.75,  1.  ,  1.25,  1.5 ])
    >>> model.marginals.round(4)
    array([0.5685, 0.6587, 0.1443])
    >>> float(model.log_partition.round(6))
    1.22935
    """

    def __init__(
        self,
        logits: ArrayLike,
        weights: ArrayLike,
        log_f: Callable[[Float64], ArrayLike] | ArrayLike,
        *,
        step: float,
    ) -> None:
        nu, self._dtype = checks.logits(logits)
        self.step = checks.real("step", step, 0.0, strict=True)
        self.logits: Float64 = np.array(nu, np.float64)
        hint = " Give one per variable."
        self.weights = checks.array("weights", weights, nu.shape[-1:], checks.REALS, hint=hint, copy=True)
        check_sizes(self.weights, self.step)
        self._units = _units(self.weights, self.step)
        hidden = int(np.count_nonzero((self._units == 0) & (self.weights != 0.0)))
        if hidden:
            warn(
                f"`step`={self.step:g} rounds the weights of {hidden} of {len(self.weights)} variables to 0: `log_f` "
                "does not see them. Take a smaller step.",
                UserWarning,
            )
        reach = int(np.abs(self._units).sum())
        low = int(self._units[self._units < 0].sum())
        self.values: Float64 = self.step * np.arange(low, low + reach + 1, dtype=np.float64)
        table = log_f(self.values) if callable(log_f) else log_f
        hint = " A function gets the array `values`."
        self.log_f = checks.array("log_f", table, (..., len(self.values)), checks.LOGS, hint=hint, copy=True)
        checks.broadcast(nu.shape[:-1], [("`log_f`", self.log_f.shape[:-1])])
        frozen(self.logits, self.weights, self.values, self.log_f)

    @cached
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of every answer."""
        return np.broadcast_shapes(self.logits.shape[:-1], self.log_f.shape[:-1])

    @property
    def grid_error(self) -> float:
        """Largest distance between the sum with the given weights and the sum on the grid.

        See Also
        --------
        sum_log_probs

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.25, 2.0], lambda s: 0.0 * s, step=0.5)
        >>> model.grid_error
        0.25
        """
        return float(max(self._slack))

    @cached
    def _slack(self) -> tuple[Fraction, Fraction]:
        """How far the linear combination may be below and above its value on the grid, in decimals as they print."""
        step = decimal(self.step)
        off = [decimal(w) - step * k for w, k in zip(self.weights.tolist(), self._units.tolist())]
        return sum((-x for x in off if x < 0), Fraction()), sum((x for x in off if x > 0), Fraction())

    @cached
    def _enclosing_f(self) -> tuple[Float64, Float64]:
        """The least and the largest log f (B, W + 1) that real sums may meet, at the sums on the grid."""
        from scipy.ndimage import maximum_filter1d, minimum_filter1d  # nothing else needs it

        most = len(self.values) - 1
        below, above = (min(math.ceil(off / decimal(self.step)), most) for off in self._slack)
        size = below + above + 1
        ends = (
            pick(self.log_f, size, axis=-1, mode="nearest", origin=below - size // 2)
            for pick in (minimum_filter1d, maximum_filter1d)
        )
        least, largest = (self._at_sums(log_f) for log_f in ends)
        return least, largest

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def log_partition(self) -> Any:
        """Log Z, (...,), the logarithm of the normalising constant.

        A variable that an infinite logit forces on contributes a factor of one, so that log Z stays finite.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0)
        >>> np.exp(model.log_partition).round(6)
        np.float64(2.0)
        """
        return (self._constant + self._log_mean).reshape(self.batch_shape)[()]

    @property
    def log_expectation(self) -> Any:
        """Logarithm of the mean of f over independent variables with these log-odds, (...,).

        If f is 1 for some sums and 0 for the others it is the log-probability of these sums.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_partition

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0)
        >>> np.exp(model.log_expectation).round(6)
        np.float64(0.5)
        """
        return self._log_mean.reshape(self.batch_shape)[()]

    def bracket(self, question: str, *arguments: Any) -> tuple[Any, Any]:
        """Bounds of an answer with the weights as given, before they were rounded to the grid.

        Parameters
        ----------
        question : str
            Name of the answer: "log_partition", "log_expectation" or "marginals", or a method of ``total`` such as
            "sf".
        *arguments
            Arguments of that method of ``total``.

        Returns
        -------
        low : float or ndarray
            Lower bound.
        high : float or ndarray
            Upper bound; equal to the lower one if all weights are multiples of the step.

        Raises
        ------
        ParameterError
            If ``question`` is none of these.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        grid_error, total

        Notes
        -----
        Cost: two inferences. Accuracy: the bounds hold up to 1e-10 of a probability, provided that f between two grid
        points lies between its values there and does not change beyond the ends of the grid.

        Examples
        --------
        The second and third weight together are 1.81; on the grid they are 1.8:

        >>> weights, rule = [2.5, 1.02, 0.79], lambda s: np.where(s >= 1.81, 0.0, -np.inf)
        >>> model = tt.LinearModel(np.zeros(3), weights, rule, step=0.1)
        >>> float(np.exp(model.log_expectation).round(4))
        0.5
        >>> [float(np.exp(end).round(4)) for end in model.bracket("log_expectation")]
        [0.5, 0.625]
        """
        checks.one_of("question", question, (*_OWN, *BRACKETED))
        if question in BRACKETED:
            ends: tuple[Any, Any] = self.total.bracket(question, *arguments)
            return ends
        self._log_mean  # noqa: B018 - raises for an impossible model
        least, most = (
            expectation(self._events, weight_of_table(log_f), outcomes=question == "marginals")
            for log_f in self._enclosing_f
        )
        if question != "marginals":
            base = self._constant if question == "log_partition" else 0.0
            low, high = ((base + end.log_mean).reshape(self.batch_shape)[()] for end in (least, most))
            return low, high
        # P(y = 1) = a / (a + b), the parts of E[f] with y = 1 and y = 0
        low_0, low_1 = np.moveaxis(least.log_mean[:, None, None] + least.log_outcomes, -1, 0)
        high_0, high_1 = np.moveaxis(most.log_mean[:, None, None] + most.log_outcomes, -1, 0)
        with np.errstate(invalid="ignore"):
            odds = (
                np.where(high_0 == -math.inf, math.inf, low_1 - high_0),
                np.where(high_1 == -math.inf, -math.inf, high_1 - low_0),
            )
        free = self.weights == 0.0  # f says nothing about them
        low, high = (
            expit(np.where(free, self._nu, end)).reshape(*self.batch_shape, self.n_variables) for end in odds
        )
        return low, high

    @property
    def total(self) -> Any:
        """The distribution of the weighted sum on its grid, with the methods of :class:`~tallytree.PoissonBinomial`.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        sum_log_probs, given

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [0.5, 2.0], lambda s: np.where(s >= 0.5, 0.0, -np.inf), step=0.5)
        >>> model.total.sf(1.0).round(4), model.total.ppf(0.5), model.total.mean().round(4)
        (np.float64(0.6667), np.float64(2.0), np.float64(1.6667))
        """
        return _Total(self)

    def given(
        self, value: float | None = None, *, low: float | None = None, high: float | None = None
    ) -> LinearModel:
        """The model given that the sum has a value or lies in a range.

        Parameters
        ----------
        value : float, optional
            Require ``w . y = value``.
        low, high : float, optional
            Require ``low <= w . y <= high``, both included; one of them may be left out.

        Returns
        -------
        LinearModel
            The same model with ``log_f = -inf`` outside the range.

        Raises
        ------
        ParameterError
            If neither a value nor a bound is given, or both are.

        See Also
        --------
        condition, total

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(3), [0.5, 1.0, 1.5], lambda s: 0.0 * s, step=0.5)
        >>> model.given(1.5).marginals
        array([0.5, 0.5, 0.5])
        """
        bottom, top = event_bounds(value, low, high, (), False)
        slack = 1e-9 * (1.0 + np.abs(self.values))
        inside = (self.values >= bottom - slack) & (self.values <= top + slack)
        return self.replace(log_f=np.where(inside, self.log_f, -math.inf))

    @cached
    def entropy(self) -> Any:
        """Entropy in nats, (...,).

        ``log Z - sum_d logits_d P(y_d = 1) - E[log f]``, every term from exact sums.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_partition, log_prob

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0)
        >>> round(float(model.entropy), 4)  # log(2)
        0.6931
        """
        score = np.where(np.isfinite(self._nu), self._nu, 0.0) * expit(self._odds)
        table = self._posterior.log_f
        return frozen((self._constant + self._log_mean - score.sum(-1) - table).reshape(self.batch_shape))[()]

    @cached
    def _odds(self) -> Float64:
        """(B, D)."""
        log_p = self._posterior.log_outcomes
        self._log_mean  # noqa: B018 - raises for an impossible model
        with np.errstate(invalid="ignore"):
            odds = log_p[..., 1] - log_p[..., 0]
        return np.where(np.isinf(self._nu) | (self._units == 0), self._nu, odds)

    @cached
    def sum_log_probs(self) -> Float64:
        """Log-probabilities of the sum at the points of the grid, ``values``, (..., M).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals, log_prob

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0)
        >>> np.exp(model.sum_log_probs).round(6)
        array([0. , 0. , 0.5, 0.5])
        """
        return self._on_grid(self._law)

    @property
    def _prior_log_probs(self) -> Float64:
        """Log-probabilities of the values of the grid without f."""
        return self._on_grid(self._log_prior)

    def _on_grid(self, rows: Float64) -> Float64:
        out = np.full((len(self._nu), len(self.values)), -math.inf)
        out[:, :: self._lattice.divisor] = rows
        return self._vector(out)

    def sample(self, size: Size = None, rng: Any = None) -> States:
        """Exact joint samples, ``(*size, ..., D)`` of 0 and 1.

        Parameters
        ----------
        size : int or tuple of int, optional
            How many; default one, without an axis.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Generator or seed.

        Returns
        -------
        ndarray of uint8, (size..., ..., D)
            Zeros and ones.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        mode, marginals

        Notes
        -----
        Cost: one tree of sums, near-linear in D and the grid points that matter, then one walk down it per sample.

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s == 2, 0.0, -np.inf), step=1.0)
        >>> model.sample(3, rng=0)
        array([[0, 1],
               [0, 1],
               [0, 1]], dtype=uint8)
        """
        shape, generator = checks.shape("size", size), checks.generator(rng)
        self._log_mean  # noqa: B018 - raises for an impossible model
        drawn = draw(self._events, self._weight, math.prod(shape), generator)
        return drawn.astype(np.uint8).reshape(*shape, *self.batch_shape, self.n_variables)

    def mode(self) -> States:
        """A most probable configuration, (..., D) of 0 and 1.

        Returns
        -------
        ndarray of uint8, (..., D)
            Zeros and ones.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        sample, log_prob

        Notes
        -----
        Cost: O(D M) for a grid of M points.

        Examples
        --------
        >>> tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: -((s - 2.0) ** 2), step=1.0).mode()
        array([0, 1], dtype=uint8)
        """
        self._log_mean  # noqa: B018 - raises for an impossible model
        found = best_configurations(self._nu, self._events.values, self._log_f)
        return found.reshape(*self.batch_shape, self.n_variables)

    def log_prob(self, y: ArrayLike) -> Any:
        """Log-probability of configurations (..., D) of 0 and 1.

        Parameters
        ----------
        y : (..., D) array
            Configurations.

        Returns
        -------
        float or ndarray, (...)
            Logarithms; ``-inf`` for impossible configurations.

        Raises
        ------
        ParameterError
            If ``y`` does not consist of 0 and 1 with D of them on the last axis.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_partition, sum_log_probs

        Examples
        --------
        >>> tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0).log_prob([0, 1])
        np.float64(-0.6931471805599453)
        """
        states = checks.states(y, self.n_variables, self.batch_shape)
        at = states @ self._units - int(self._units[self._units < 0].sum())
        shape = np.broadcast_shapes(states.shape[:-1], self.batch_shape)
        table = np.broadcast_to(self.log_f, (*shape, len(self.values)))
        value = np.take_along_axis(table, np.broadcast_to(at, shape)[..., None], -1)[..., 0]
        return (weight_of_logits(self.logits, states) + value - self.log_partition)[()]

    # -- how it is done ----------------------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        logits = self.logits.astype(self._dtype, copy=False)
        return {
            "logits": logits, "weights": self.weights, "log_f": self.log_f, "step": self.step,
        }  # fmt: skip

    @cached
    def _law(self) -> Float64:
        """Log-probabilities of the sums on the lattice, (B, W + 1)."""
        return self._log_prior + self._log_f - self._log_mean[:, None]

    @cached
    def _nu(self) -> Float64:
        return rows_of(self.logits, self.batch_shape)

    @property
    def _constant(self) -> Float64:
        """Log Z without f, (B,); infinite logits weigh 1."""
        return softplus_sum(self._nu)

    @cached
    def _cells(self) -> tuple[Ints, Lattice]:
        return to_lattice(np.stack([np.zeros_like(self._units), self._units], axis=1), self.step)

    @property
    def _lattice(self) -> Lattice:
        return self._cells[1]

    @cached
    def _events(self) -> Events:
        return Events(log_outcomes(self._nu), self._cells[0])

    @property
    def _log_f(self) -> Float64:
        """Log f at the sums that are reached, (B, W + 1)."""
        return self._at_sums(self.log_f)

    def _at_sums(self, log_f: Float64) -> Float64:
        return rows_of(log_f, self.batch_shape)[:, :: self._lattice.divisor]

    @cached
    def _weight(self) -> Weight:
        return weight_of_table(self._log_f)

    @cached
    def _log_prior(self) -> Float64:
        """Log-probabilities of the sums without f, (B, W + 1)."""
        return log_table(self._events)

    @cached
    def _posterior(self) -> Expectation:
        return expectation(self._events, self._weight, outcomes=True)

    @cached
    def _log_mean(self) -> Float64:
        """Log E[f], (B,)."""
        known = vars(self).get("_posterior")
        found = (known or expectation(self._events, self._weight, outcomes=False)).log_mean
        dead = np.flatnonzero(np.isneginf(found))
        if len(dead):
            raise InfeasibleError(
                f"The model{place_in_batch(dead[0], self.batch_shape)} gives probability zero to every configuration: "
                "no value that `log_f` allows can be reached. Relax it, or an infinite logit."
            )
        return found

    def __repr__(self) -> str:
        batch = f", batch_shape={self.batch_shape}" if self.batch_shape else ""
        return f"LinearModel(n_variables={self.n_variables}, grid={len(self.values)}{batch})"

    _repr_html_ = display.linear_page


class _Total(LawOf, BoundedRisk):
    """The law of the sum of a `LinearModel`."""

    _of: LinearModel

    def __init__(self, of: LinearModel) -> None:
        self.__dict__.update(_of=of)

    def _parts(self) -> tuple[Any, ...]:
        return (self._of,)

    def __repr__(self) -> str:
        return f"{self._of!r}.total"

    @property
    def n(self) -> int:
        return self._of.n_variables

    @property
    def _log_table(self) -> Float64:
        return self._of._law

    def _contributions(self, cells: Ints, log_edge: Float64) -> Float64:
        of = self._of
        most = np.full(len(cells), of._events.most)
        tail = expectation(of._events, Weight(cells, most, log_edge, of._log_f), outcomes=True).log_outcomes
        return np.asarray(np.exp(tail[..., 1]) * (of._units * of.step))

    @cached
    def _rounded(self) -> tuple[BoundingLaw, BoundingLaw]:
        least, most = self._of._enclosing_f
        return bounding_laws(self, self._of._log_prior + least, self._of._log_prior + most)

    @property
    def _slack(self) -> tuple[Fraction, Fraction]:
        return self._of._slack


def _units(weights: Float64, step: float) -> Ints:
    """Weights in steps of the grid, which must be small enough."""
    with np.errstate(over="ignore"):
        units = np.rint(weights / step)
        reach = float(np.abs(units).sum())  # infinite before it is an integer that overflows
    if reach >= _LARGEST:
        raise ParameterError(
            f"`step` must leave a grid of less than {_LARGEST} points; {step:g} makes {reach + 1:.10g}. Take a "
            "larger one."
        )
    return units.astype(np.int64)
