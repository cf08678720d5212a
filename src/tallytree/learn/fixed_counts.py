"""Sets of variables of which exactly k are on: what learning asks about many of them at once.

Log-sums, marginals and products with the Hessian come from :class:`~tallytree.CountModel`, one batch for all sets. Sets
of different size share a batch: padding with -inf changes nothing.

The other way round, log-odds follow from inclusion probabilities: those with P(y_i = 1 | exactly n on) = pi_i minimise
the convex function ``log e_n(exp theta) - pi . theta`` and are unique up to a constant. The step ``log-odds(pi) -
log-odds(marginals)`` costs one inference and divides the error by about the variance ``sum_i pi_i (1 - pi_i)``, so two
or three of them are enough for large populations. Where it no longer gains much, as in small ones, Newton's method
takes over with the exact covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from .. import checks
from ..arrays import Float64, Ints
from ..engine.tilt import tilt_to_mean
from ..errors import ParameterError
from ..models.count import CountModel
from ..potentials import exactly
from .descent import conjugate_gradients


@dataclass(frozen=True, eq=False)
class FixedCounts:
    """Result of :func:`fixed_counts`: log-sums and marginals of a batch of sets.

    Attributes
    ----------
    model : CountModel
        The models "exactly k_b of the variables with log-odds theta_b are on", batch shape (B,).
    log_sum : (B,) array
        ``log e_k(exp theta)``, where the elementary symmetric polynomial e_k is the sum over all ways to choose k.
    marginals : (B, n) array
        P(y_i = 1 | exactly k are on).

    See Also
    --------
    tallytree.learn.fixed_counts

    Examples
    --------
    >>> tt.learn.fixed_counts(np.zeros((1, 4)), np.array([1])).marginals
    array([[0.25, 0.25, 0.25, 0.25]])
    """

    model: CountModel
    log_sum: Float64
    marginals: Float64

    def covariances(self, x: Float64) -> Float64:
        """Covariance of ``sum_i y_i x_i`` in every set, (B, p, p), for statistics x (B, n, p).

        Parameters
        ----------
        x : (B, n, p) array
            Statistics of the variables.

        Returns
        -------
        ndarray, (B, p, p)
            One matrix per set.

        Raises
        ------
        ParameterError
            If ``x`` has another shape, or entries that are not finite.

        See Also
        --------
        CountModel.hessian_vector_product

        Notes
        -----
        Equal to ``x' H x``, H the Hessian of the log-sum.

        Cost: p products of :meth:`~tallytree.CountModel.hessian_vector_product`.

        Examples
        --------
        >>> sets = tt.learn.fixed_counts(np.zeros((1, 2)), np.array([1]))
        >>> sets.covariances(np.array([[[1.0], [0.0]]]))
        array([[[0.25]]])
        """
        x = checks.array("x", x, (*self.marginals.shape, "p"))
        # The count is fixed, so statistics may be shifted; this shift leaves little to cancel.
        weight = self.marginals * (1.0 - self.marginals)
        total = weight.sum(1)
        middle = (weight[:, None, :] @ x) / np.where(total > 0, total, 1.0)[:, None, None]
        centred = np.where(weight[:, :, None] > 0, x - middle, 0.0)
        images = [
            self.model.hessian_vector_product(centred[:, :, j], counts=False).logits
            for j in range(x.shape[2])
        ]
        if not images:
            return np.zeros((len(x), 0, 0))
        product = np.stack(images, axis=1) @ centred
        return np.asarray(0.5 * (product + np.swapaxes(product, 1, 2)))


def fixed_counts(theta: Float64, k: Ints) -> FixedCounts:
    """Solve a batch of sets of variables, given how many of each set are on.

    Parameters
    ----------
    theta : (B, n) array
        Log-odds, one set per row; -inf pads sets with fewer than n variables.
    k : (B,) int array
        How many are on in each set, at most its number of variables.

    Returns
    -------
    FixedCounts
        Log-sums, marginals and the batch of models.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    InfeasibleError
        When an answer is asked for and no configuration is possible.

    See Also
    --------
    tallytree.learn.FixedCounts
    tallytree.learn.ConditionalLikelihood
    tallytree.RaggedBatch

    Notes
    -----
    Cost and accuracy: one batched inference of :class:`~tallytree.CountModel`.

    Examples
    --------
    >>> found = tt.learn.fixed_counts(np.zeros((2, 3)), np.array([1, 2]))
    >>> found.log_sum.round(6), found.marginals[1].round(6)
    (array([1.098612, 1.098612]), array([0.666667, 0.666667, 0.666667]))
    """
    theta = checks.logits(theta)[0]
    k = checks.array("k", k, ("n",), checks.WHOLE)
    if theta.ndim != 2 or len(k) != len(theta) or k.max(initial=0) > theta.shape[1]:
        raise ParameterError(
            "`theta` must have one row of log-odds per entry of `k`, as many as the largest at least; "
            f"{checks.describe(theta)} and counts {checks.describe(k)} arrived. Pad rows with -inf."
        )
    tables = np.full((len(k), theta.shape[1] + 1), -math.inf)
    tables[np.arange(len(k)), k] = 0.0
    model = CountModel(theta, tables)
    return FixedCounts(model, np.asarray(model.log_partition), np.asarray(model.marginals))


def balancing_shift(theta: Float64, k: int) -> float:
    """The shift s with ``sum_i sigmoid(theta_i + s) = k``, for finite theta and 0 < k < n."""
    return float(tilt_to_mean(theta[None], np.array([float(k)]), near=1e-13)[0])


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
    """Find the log-odds for which random subsets of size n have the inclusion probabilities `pi`.

    Parameters
    ----------
    pi : (N,) array
        Inclusion probabilities, which sum to n.
    n : int
        Size of the sample, 0 < n < N.
    method : {"newton", "fixed-point"}
        "newton" mixes cheap steps with Newton's; "fixed-point" takes only cheap steps, damped if the variance is small.
    tolerance : float
        Largest error of an inclusion probability.
    max_iterations : int
        Limit on steps.

    Returns
    -------
    InclusionFit
        Fields ``theta`` (the log-odds), ``marginals`` (the inclusion probabilities that they have), ``error`` (the
        largest difference from `pi`), ``n_iterations``, ``converged`` and ``n_inferences``.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.estimators.MaxEntropySampler

    Notes
    -----
    Cost: one inference per cheap step, about three of them for a large population. If the variance is small, a few
    Newton steps are added: each takes 2 N inferences up to N = 600, and a few Hessian products above.
    Accuracy: probabilities within `tolerance` of `pi`, and within a relative 1e-9 where rounding allows.

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
    # Half steps while the count says much about single variables, whole ones otherwise.
    damping = 0.5 if method == "fixed-point" and float((pi * (1.0 - pi)).sum()) < 4.0 else 1.0
    now, cheap, before, solved = _Point(wanted, pi, n), True, math.inf, 1
    for iteration in range(1, max_iterations + 1):
        # Estimates divide by the probabilities, so small ones are refined while that still helps.
        if now.error <= tolerance and (now.relative <= 1e-9 or now.relative > 0.5 * before):
            return InclusionFit(now.theta, now.marginals, now.error, iteration, True, solved)
        products = 0
        if method == "newton" and not cheap and now.error > tolerance:
            step, products = _newton_step(now.model, pi - now.marginals)
        else:
            step = damping * (wanted - np.asarray(now.model.posterior_logits))
        found, trials = _descend(now, step, pi, n)
        solved += products + trials
        cheap = found.error <= _GAIN * now.error
        now, before = found, now.relative
    near = now.error <= 1e3 * tolerance
    return InclusionFit(now.theta, now.marginals, now.error, max_iterations, near, solved)


class _Point:
    """A model on the way: its log-odds, objective and marginals, and the largest errors of these."""

    def __init__(self, theta: Float64, pi: Float64, n: int) -> None:
        self.theta = theta - theta.mean()
        self.model = CountModel(self.theta, exactly(n))
        self.value = float(self.model.log_partition) - float(pi @ self.theta)
        self.marginals = np.asarray(self.model.marginals, np.float64)
        gap = np.abs(pi - self.marginals)
        self.error, self.relative = float(gap.max()), float((gap / pi).max())


def _descend(now: _Point, step: Float64, pi: Float64, n: int) -> tuple[_Point, int]:
    """Halve the step until the convex objective does not rise, or the error is halved where rounding hides it.

    The new point comes with the number of models that were solved.
    """
    slack = 1e-12 * (1.0 + abs(now.value))
    for trial in range(1, 51):
        found = _Point(now.theta + step, pi, n)
        if found.value <= now.value + slack or found.error <= 0.5 * now.error:
            return found, trial
        step = 0.5 * step
    return now, trial


def _newton_step(model: CountModel, gap: Float64) -> tuple[Float64, int]:
    """Solve Cov(y) d = gap on the space orthogonal to the constants, where the covariance is regular.

    The number of covariances or products with them comes with the step.
    """
    gap = gap - gap.mean()
    if len(gap) <= _DENSE:
        matrix = np.asarray(model.covariance())
        # Adding the constants' projector, scaled to the trace, fills the null space and changes nothing else.
        whole = matrix + np.trace(matrix) / len(gap) / len(gap)
        return np.linalg.lstsq(whole, gap)[0], 1
    mu = np.asarray(model.marginals)

    def product(direction: Float64) -> Float64:
        return np.asarray(model.hessian_vector_product(direction, counts=False).logits)

    # The constants, in which the objective is flat, stay out of the residuals because they are not in the gap.
    enough = 1e-4 * float(np.abs(gap).max())
    step = conjugate_gradients(product, -gap, mu * (1.0 - mu), math.inf, enough)
    return step.s, step.n_products
