"""Rates of a noisy-OR that differ between the variables, learned from effects whose causes may be hidden.

A cause that is on with probability p acts with probability r, so that without an effect ``log P(t = 0) = log(1 - leak)
+ sum_d log(1 - p_d r_d)``. Where p r is near 1 the term is ``softplus(theta + log(1 - r)) - softplus(theta)``, which
loses no digits there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from .. import checks
from .._progress import Report
from ..arrays import Float64
from ..engine.log_sums import softplus
from ..errors import ParameterError
from ..models.thinned import ThinnedModel, noisy_or_model
from .descent import minimise, stopping


def silences(theta: Float64, rho: Float64) -> tuple[Float64, Float64, Float64]:
    """Log-probabilities that causes of log-odds theta do not act, rates of log-odds rho; derivatives in both."""
    known = np.isposinf(theta)
    idle = np.where(known, 0.0, theta) - softplus(rho)
    acts = expit(theta) * expit(rho)
    with np.errstate(invalid="ignore", divide="ignore"):
        far = np.where(known, -softplus(rho), softplus(idle) - softplus(theta))
        value = np.where(acts < 0.5, np.log1p(-acts), far)
    on = np.where(known, 1.0, expit(idle))  # given that it does not act
    return value, np.where(known, 0.0, on - expit(theta)), -on * expit(rho)


def effect_losses(log_none: Float64, seen: Any) -> tuple[Float64, Float64]:
    """``-log P(t)`` where `log_none` is log P(t = 0), and its derivative in that."""
    with np.errstate(divide="ignore", over="ignore"):
        value = np.where(seen, -np.log(-np.expm1(log_none)), -log_none)
        slope = np.where(seen, 1.0 / np.expm1(-log_none), -1.0)
    return value, slope


@dataclass(frozen=True, eq=False)
class NoisyOrFit:
    """Result of :func:`fit_noisy_or`: the rates, and how the search ended.

    Attributes
    ----------
    rates : (D,) array
        Probability that a cause acts if it is on.
    leak : float
        Probability of the effect without any cause.
    log_likelihood : float
        Mean log-probability of the effect of a row.
    converged : bool
        Whether the gradient fell below the tolerance.
    n_iterations : int
        Number of steps.

    See Also
    --------
    tallytree.learn.fit_noisy_or

    Examples
    --------
    >>> fit = tt.learn.fit_noisy_or(np.full((4, 1), np.inf), [1, 1, 1, 0], leak=0.0)
    >>> fit.rates.round(4)
    array([0.75])
    """

    rates: Float64
    leak: float
    log_likelihood: float
    converged: bool
    n_iterations: int

    def model(self, logits: ArrayLike, t: int = 1) -> ThinnedModel:
        """The causes given the effect, with the rates of the fit.

        Parameters
        ----------
        logits : array_like, (..., D)
            Log-odds of the causes.
        t : {1, 0}
            Observed effect.

        Returns
        -------
        ThinnedModel
            As :func:`tallytree.noisy_or_model` makes it.

        Raises
        ------
        ParameterError
            If ``logits`` have another number of causes.

        See Also
        --------
        tallytree.noisy_or_model

        Examples
        --------
        >>> fit = tt.learn.fit_noisy_or(np.full((4, 1), np.inf), [1, 1, 1, 0], leak=0.0)
        >>> fit.model([0.0], t=0).marginals.round(4)
        array([0.2])
        """
        return noisy_or_model(logits, self.rates, leak=self.leak, t=t)


def fit_noisy_or(
    logits: ArrayLike,
    effects: ArrayLike,
    *,
    leak: float | None = None,
    l2: float = 0.0,
    tol: float = 1e-8,
    max_iter: int = 500,
    progress: bool | Report = False,
) -> NoisyOrFit:
    """Learn the rates of a noisy-OR, one for every cause, from causes and effects.

    The effect of row n is absent with ``log P(t_n = 0) = log(1 - leak) + sum_d log(1 - p_nd rate_d)``, where p_nd is
    the probability that cause d is on in row n.

    Parameters
    ----------
    logits : array_like, (N, D)
        Log-odds of the causes in every row before the effect is known; ``inf`` and ``-inf`` where a cause was seen to
        be on or off.
    effects : array_like, (N,)
        Whether the effect was seen in every row, 0 or 1.
    leak : float, optional
        Probability of the effect without any cause. It is learned if omitted.
    l2 : float
        Penalty ``l2 / 2 * sum of squares`` on the log-odds of the rates, beside the mean log-loss of a row.
    tol : float
        Stop when no entry of the gradient is larger.
    max_iter : int
        Limit on steps.
    progress : bool or callable
        True shows the steps. A function is called after each of them with ``log_likelihood`` and the norm ``gradient``.

    Returns
    -------
    NoisyOrFit
        Rates and leak; its method ``model`` makes models with them.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape or value; the message says what was required.

    See Also
    --------
    tallytree.ThinnedModel
    tallytree.noisy_or_model
    tallytree.estimators.BagClassifier

    Notes
    -----
    Cost: O(N D) per step, exact. Where all causes are known the likelihood has one maximum; where they are hidden it
    may have several, and the search begins at rates of a half. Rates that the data push to 0 or 1 need `l2`.

    References
    ----------
    Tarlow, Swersky, Zemel, Adams and Frey, UAI 2012, section 4.2.1.

    Examples
    --------
    Two causes that are seen, one of which acts more often:

    >>> rng = np.random.default_rng(0)
    >>> causes = rng.random((4000, 2)) < 0.5
    >>> effects = (causes & (rng.random((4000, 2)) < [0.8, 0.3])).any(axis=1)
    >>> tt.learn.fit_noisy_or(np.where(causes, np.inf, -np.inf), effects, leak=0.0).rates.round(1)
    array([0.8, 0.3])
    """
    theta = np.asarray(checks.logits(logits)[0], np.float64)
    if theta.ndim != 2 or not len(theta):
        raise ParameterError(
            "`logits` must have one row per effect and one column per cause, (N, D) with N at least 1; "
            f"{checks.describe(logits)} arrived."
        )
    n, d = theta.shape
    seen = checks.flags("effects", effects, n)
    l2 = checks.real("l2", l2, 0.0)
    tol, max_iter, told = stopping(tol, max_iter, progress)
    if leak is not None:
        leak = checks.real("leak", leak, 0.0, math.nextafter(1.0, 0.0))

    def log_leak(values: Float64) -> tuple[float, Float64]:
        """log(1 - leak), and its derivative in the number behind the rates."""
        if leak is not None:
            return math.log1p(-leak), np.zeros(0)
        return -float(softplus(values[d])), -np.asarray(expit(values[d:]))

    def evaluate(values: Float64) -> tuple[float, Float64]:
        silent, _, by_rho = silences(theta, np.broadcast_to(values[:d], theta.shape))
        own, by_leak = log_leak(values)
        losses, slopes = effect_losses(own + silent.sum(1), seen)
        value = float(losses.mean()) + 0.5 * l2 * float(values[:d] @ values[:d])
        gradient = np.append(slopes @ by_rho / n + l2 * values[:d], slopes.mean() * by_leak)
        return value, gradient

    start = np.append(np.zeros(d), [logit(0.1)] if leak is None else [])
    found, _ = minimise(evaluate, start, tol, max_iter, told, work="fit_noisy_or")
    value = float(found.fun) - 0.5 * l2 * float(found.x[:d] @ found.x[:d])
    learned = float(expit(found.x[d])) if leak is None else leak
    return NoisyOrFit(expit(found.x[:d]), learned, -value, bool(found.success), int(found.nit))
