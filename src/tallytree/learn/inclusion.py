"""From inclusion probabilities to log-odds: the fixed-size design of maximum entropy with given first moments.

The log-odds theta with P(y_i = 1 | exactly n on) = pi_i minimise the convex function ``log e_n(exp theta) -
pi . theta``; they are unique up to a constant. The step ``log-odds(pi) - log-odds(marginals)`` costs one
inference and divides the error by about the variance ``sum_i pi_i (1 - pi_i)``, so two or three of them are
enough for large populations. Where it no longer gains much, as in small ones, Newton's method takes over with
the exact covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from .. import checks
from ..arrays import Float64
from ..errors import ParameterError
from ..models.count import CountModel
from ..potentials import exactly
from .descent import QuadraticModel

_DENSE = 600  # up to this many units the covariance matrix is formed; above, products with it are used
_GAIN = 0.5  # a cheap step that leaves more of the error than this gives way to Newton's


@dataclass(frozen=True, eq=False)
class InclusionFit:
    """Log-odds whose inclusion probabilities are as asked, these probabilities, and how far off they are at most.

    ``n_inferences`` counts the models solved on the way, a Newton step's matrix or product as one each.
    """

    theta: Float64
    marginals: Float64
    error: float
    n_iterations: int
    converged: bool
    n_inferences: int


def logits_from_inclusion(
    pi: Float64, n: int, *, method: str = "newton", tolerance: float = 1e-13, max_iterations: int = 100
) -> InclusionFit:
    """Solve for theta; `pi` in (0, 1) with sum n.

    Parameters
    ----------
    pi : (N,) array
        Inclusion probabilities.
    n : int
        Size of the sample, 0 < n < N.
    method : {"newton", "fixed-point"}
        "fixed-point" takes only the cheap steps, damped where the variance is small.
    tolerance : float
        Largest error of an inclusion probability.
    max_iterations : int
        Limit on steps.

    Returns
    -------
    InclusionFit
        With the log-odds in ``theta``.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.estimators.MaxEntropySampler

    Notes
    -----
    Cost: one inference per cheap step, three of them for large populations; where the variance is small a few
    Newton steps, each 2 N inferences of N units up to N = 600 and a few Hessian products above.
    Accuracy: probabilities within `tolerance` of `pi`, and within 1e-9 of it relatively where rounding allows.

    Examples
    --------
    >>> found = tt.learn.logits_from_inclusion(np.array([0.5, 0.25, 0.25]), 1)
    >>> np.exp(found.theta - found.theta[1]).round(6)
    array([2., 1., 1.])
    """
    pi, n = checks.array("pi", pi, ("n",)), checks.integer("n", n, 1)
    if not ((pi > 0.0) & (pi < 1.0)).all() or not abs(pi.sum() - n) <= 1e-6 * n:
        raise ParameterError(
            f"`pi` must be probabilities in (0, 1) that add to n = {n}; the {len(pi)} that arrived add to "
            f"{pi.sum():.9g}. Leave units of probability 0 and 1 out, and scale the others."
        )
    checks.one_of("method", method, ("newton", "fixed-point"))
    tolerance = checks.real("tolerance", tolerance, 0.0)
    max_iterations = checks.integer("max_iterations", max_iterations, 0)
    wanted = logit(pi)
    theta = wanted - wanted.mean()
    search = _Search(pi, n)
    now, cheap, before = search.at(theta), True, math.inf
    for iteration in range(1, max_iterations + 1):
        # Estimates divide by the probabilities, so small ones are refined while that still helps.
        if now.error <= tolerance and (now.relative <= 1e-9 or now.relative > 0.5 * before):
            return InclusionFit(theta, now.marginals, now.error, iteration, True, search.n_inferences)
        if method == "newton" and not cheap and now.error > tolerance:
            step = _newton_step(now.model, search, pi - now.marginals)
        else:
            step = (wanted - now.odds) * (1.0 if method == "newton" else search.damping)
        theta, found = search.descend(theta, step, now)
        cheap = found.error <= _GAIN * now.error
        now, before = found, now.relative
    near = now.error <= 1e3 * tolerance
    return InclusionFit(theta, now.marginals, now.error, max_iterations, near, search.n_inferences)


@dataclass(frozen=True, eq=False)
class _Point:
    """A model on the way: its objective, marginals, their log-odds, and the largest errors."""

    model: CountModel
    value: float
    marginals: Float64
    odds: Float64
    error: float
    relative: float


class _Search:
    def __init__(self, pi: Float64, n: int) -> None:
        self._pi, self._n = pi, n
        self.n_inferences = 0
        # Half steps while the count says much about single variables, whole ones otherwise.
        self.damping = 0.5 if float((pi * (1.0 - pi)).sum()) < 4.0 else 1.0

    def at(self, theta: Float64) -> _Point:
        self.n_inferences += 1
        model = CountModel(theta, exactly(self._n))
        marginals = np.asarray(model.marginals, np.float64)
        value = float(model.log_partition) - float(self._pi @ theta)
        gap = np.abs(self._pi - marginals)
        error, relative = float(gap.max()), float((gap / self._pi).max())
        odds = np.asarray(model.posterior_logits, np.float64)
        return _Point(model, value, marginals, odds, error, relative)

    def descend(self, theta: Float64, step: Float64, now: _Point) -> tuple[Float64, _Point]:
        """Halve the step until the convex objective does not rise, or the error is halved where rounding hides it."""
        slack = 1e-12 * (1.0 + abs(now.value))
        for _ in range(50):
            trial = theta + step
            trial -= trial.mean()
            found = self.at(trial)
            if found.value <= now.value + slack or found.error <= 0.5 * now.error:
                return trial, found
            step = 0.5 * step
        return theta, now


def _newton_step(model: CountModel, search: _Search, gap: Float64) -> Float64:
    """Solve Cov(y) d = gap on the space orthogonal to the constants, where the covariance is regular."""
    gap = gap - gap.mean()
    if len(gap) <= _DENSE:
        search.n_inferences += 1
        matrix = np.asarray(model.covariance())
        # Adding the constants' projector, scaled to the trace, fills the null space and changes nothing else.
        whole = matrix + np.trace(matrix) / len(gap) / len(gap)
        return np.asarray(np.linalg.solve(whole, gap))
    mu = np.asarray(model.marginals)

    def product(_: Float64, direction: Float64) -> Float64:
        return np.asarray(model.hessian_vector_product(direction, counts=False).logits)

    # The constants, in which the objective is flat, stay out of the residuals because they are not in the gap.
    quadratic = QuadraticModel(gap, -gap, product, mu * (1.0 - mu))
    step = quadratic.minimise(math.inf, 1e-4 * float(np.abs(gap).max()))
    search.n_inferences += step.n_products
    return step.s
