"""`ThinnedModel`: a potential on how many of the variables that are on show an effect; noisy-OR with unequal rates.

Every variable that is on acts with a probability of its own, independently, and f is a function of how many act. With
a hidden a_d <= y_d for "acts", the three states of a pair (y_d, a_d) weigh

    (0, 0): 1,    (1, 0): e^theta (1 - rate),    (1, 1): e^theta rate,

so that the hidden variables alone form a count model with log-odds ``log rate - log(e^-theta + 1 - rate)``, and y_d
given a_d = 0 has log-odds ``theta + log(1 - rate)``. All sums are of positive terms.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from .. import checks, display
from ..arrays import Float64, States, frozen
from ..engine.count.moments import weight_of_logits
from ..engine.log_sums import softplus
from ..memo import cached
from ..potentials import at_least, exactly
from .base import ArgumentModel
from .count import CountModel


class ThinnedModel(ArgumentModel):
    """Binary variables that act, when they are on, with rates of their own, and a potential on how many act.

    ``p(y) = exp(logits . y) E[f(number that act)] / Z``.

    Parameters
    ----------
    logits : array_like, (..., D)
        Log-odds.
    rates : array_like, (..., D)
        Probabilities that a variable acts if it is on.
    potential : potential or array_like
        Function f of the number of variables that act, as for :class:`~tallytree.CountModel`.
    leak : array_like, (...,)
        Probability that something else acts; it is counted like one more variable. Default 0.

    Attributes
    ----------
    acting : CountModel
        Distribution of which variables act, with all answers of a CountModel; its last variable is the leak, if there
        is one.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape or value; the message says what was required.
    InfeasibleError
        When an answer is asked of a model that allows no configuration.

    See Also
    --------
    tallytree.noisy_or_model
    tallytree.noisy_or

    Notes
    -----
    Cost and accuracy: those of one :class:`~tallytree.CountModel`.

    Examples
    --------
    Three possible causes of a fever that was seen, the first the likeliest to cause one:

    >>> model = tt.noisy_or_model([-2.0, -2.0, -2.0], rates=[0.9, 0.5, 0.1], leak=0.01)
    >>> model.marginals.round(4)
    array([0.6054, 0.3756, 0.168 ])
    >>> model.acting.marginals.round(4)  # which caused it
    array([0.6   , 0.3334, 0.0667, 0.0559])
    """

    def __init__(self, logits: ArrayLike, rates: ArrayLike, potential: Any, *, leak: ArrayLike = 0.0) -> None:
        theta, self._dtype = checks.logits(logits)
        self._potential = potential
        self.logits: Float64 = frozen(np.array(theta, np.float64))
        self.rates = _probabilities("rates", rates, (*self.logits.shape[:-1], self.n_variables))
        self.leak = _probabilities("leak", leak, None)
        batch = checks.broadcast(
            self.logits.shape[:-1], [("`rates`", self.rates.shape[:-1]), ("`leak`", self.leak.shape)]
        )
        shape = (*batch, self.n_variables)
        theta, rate = np.broadcast_to(self.logits, shape), np.broadcast_to(self.rates, shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_rest = np.log1p(-rate)
            acts = np.log(rate) - np.logaddexp(-theta, log_rest)
            self._idle = theta + log_rest  # log-odds of y given that it does not act
        acts = np.where(rate == 0.0, -math.inf, acts)
        self._certain = np.isposinf(theta) & (rate == 1.0)
        acts = np.where(self._certain, math.inf, acts)
        self._idle = np.where(np.isneginf(log_rest), -math.inf, self._idle)
        self._theta = theta
        self.acting = CountModel(self._with_leak(acts), potential)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of every answer."""
        return self.acting.batch_shape

    @property
    def log_partition(self) -> Any:
        """Log Z, (...,): log of the sum of ``exp(sum_d logits_d y_d) E[f]`` over all y.

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
        >>> model = tt.ThinnedModel(np.zeros(2), [0.5, 0.5], tt.at_least(1))
        >>> np.exp(model.log_partition).round(6)
        np.float64(1.75)
        """
        forced = np.isposinf(self._theta)
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.where(forced, np.log1p(-self.rates), softplus(self._idle))
        own = np.where(self._certain, 0.0, own).sum(-1)
        # The leak's two states weigh 1 - leak and leak.
        own = own + np.log1p(-np.where(self.leak < 1.0, self.leak, 0.0))
        return (np.asarray(self.acting.log_partition) + own)[()]

    @cached
    def _odds(self) -> Float64:
        acts = np.asarray(self.acting.posterior_logits)[..., : self.n_variables]
        theta = np.broadcast_to(self._theta, acts.shape)
        # P(on) / P(off) = (odds of acting) (1 + e^idle) + e^idle
        found = np.logaddexp(acts + softplus(np.where(np.isposinf(theta), 0.0, self._idle)), self._idle)
        return np.where(np.isinf(theta), theta, found)

    def log_prob(self, y: ArrayLike) -> Any:
        """Log-probability of configurations (..., D) of 0 and 1; one batched inference.

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
        log_partition, sample

        Examples
        --------
        >>> tt.ThinnedModel(np.zeros(2), [0.5, 0.5], tt.at_least(1)).log_prob([1, 1]).round(4)
        np.float64(-0.8473)
        """
        states = checks.states(y, self.n_variables, self.batch_shape)
        law = np.asarray(
            CountModel(self._with_leak(np.where(states, logit(self.rates), -math.inf))).count_log_probs()
        )
        log_mean = np.logaddexp.reduce(law + self._table, axis=-1)
        return (weight_of_logits(self.logits, states) + log_mean - self.log_partition)[()]

    def _arguments(self) -> dict[str, Any]:
        logits = self.logits.astype(self._dtype, copy=False)
        return {"logits": logits, "rates": self.rates, "potential": self._potential, "leak": self.leak}

    def _parts(self) -> tuple[Any, ...]:
        return tuple((self._arguments() | {"potential": self._table}).values())

    @property
    def _table(self) -> Float64:
        """Log f of the number that acts; a model of nothing has it in its constant."""
        tables = self.acting.tables
        return np.asarray(
            tables[0] if tables else np.asarray(self.acting.log_partition)[..., None], np.float64
        )

    def _with_leak(self, odds: Float64) -> Float64:
        """Log-odds of acting (..., D), and of the leak behind them if there is one."""
        if not (self.leak > 0).any():
            return odds
        shape = np.broadcast_shapes(odds.shape[:-1], self.leak.shape)
        extra = np.broadcast_to(logit(self.leak)[..., None], (*shape, 1))
        return np.concatenate([np.broadcast_to(odds, (*shape, odds.shape[-1])), extra], axis=-1)

    def sample(self, size: Any = None, rng: Any = None) -> States:
        """Independent configurations, (size..., ..., D) of 0 and 1, as :meth:`CountModel.sample`.

        Parameters
        ----------
        size : int or tuple of ints, optional
            Number of draws; default one, without an axis for it.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Generator or seed.

        Returns
        -------
        ndarray of uint8, (size..., ..., D)
            Configurations.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_prob, marginals

        Examples
        --------
        >>> tt.ThinnedModel(np.zeros(3), np.full(3, 0.5), tt.at_least(1)).sample(5, rng=0).shape
        (5, 3)
        """
        generator = checks.generator(rng)
        acts = self.acting.sample(size, rng=generator)[..., : self.n_variables]
        idle = generator.random(acts.shape) < np.where(np.isposinf(self._theta), 1.0, expit(self._idle))
        return (acts.astype(bool) | idle).astype(np.uint8)

    def __repr__(self) -> str:
        batch = f", batch_shape={self.batch_shape}" if self.batch_shape else ""
        return f"ThinnedModel(n_variables={self.n_variables}{batch})"

    _repr_html_ = display.thinned_page


def noisy_or_model(logits: ArrayLike, rates: ArrayLike, *, leak: ArrayLike = 0.0, t: int = 1) -> ThinnedModel:
    """Causes of an effect, given whether the effect was seen: a noisy-OR with one rate per cause.

    ``p(y) ~ exp(logits . y) (1 - (1 - leak) prod_d (1 - rate_d)^y_d)`` for ``t = 1``, the effect is seen;
    ``p(y) ~ exp(logits . y) (1 - leak) prod_d (1 - rate_d)^y_d`` for ``t = 0``. With equal rates it is
    :func:`~tallytree.noisy_or` on the count.

    Parameters
    ----------
    logits : array_like, (..., D)
        Log-odds of the causes.
    rates : array_like, (..., D)
        Probabilities that a cause acts if it is on.
    leak : array_like, (...)
        Probability of the effect without any cause.
    t : {1, 0}
        Observed effect.

    Returns
    -------
    ThinnedModel
        The causes given the effect.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape or value; the message says what was required.

    See Also
    --------
    tallytree.ThinnedModel
    tallytree.noisy_or

    Examples
    --------
    >>> tt.noisy_or_model(np.zeros(2), [0.5, 0.5], t=0).marginals.round(6)
    array([0.333333, 0.333333])
    """
    seen = checks.one_of("t", t, (0, 1))
    return ThinnedModel(logits, rates, at_least(1) if seen else exactly(0), leak=leak)


def _probabilities(name: str, value: ArrayLike, shape: tuple[int, ...] | None) -> Float64:
    array = checks.array(name, value, (..., *(("D",) if shape else ())), checks.PROBABILITIES, copy=True)
    if shape is not None:
        checks.spread(name, array, (*array.shape[:-1], shape[-1]))
    return frozen(array)
