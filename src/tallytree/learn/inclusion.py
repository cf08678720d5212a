"""From inclusion probabilities to log-odds: the fixed-size design of maximum entropy with given first moments.

The log-odds theta with P(y_i = 1 | exactly n on) = pi_i minimise the convex function ``log e_n(exp theta) -
pi . theta``; they are unique up to a constant. Newton's method uses the exact covariance, which is a
diagonal plus a few dozen rank-one terms, inside conjugate gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .exactly import PairSums, exactly_k, pair_sums

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class InclusionFit:
    """Log-odds whose inclusion probabilities are as asked, and how far off they are at most."""

    theta: Float64
    error: float
    n_iterations: int
    converged: bool


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
        "fixed-point" is the damped update ``theta += log-odds(pi) - log-odds(marginals)``.

    Notes
    -----
    Cost: O(N M) per product with the covariance, M a few dozen; about five Newton steps.
    Accuracy: probabilities within `tolerance` of `pi`.
    """
    theta = np.log(pi) - np.log1p(-pi)
    error = math.inf
    for iteration in range(1, max_iterations + 1):
        sums = pair_sums(theta, n)
        gap = pi - sums.marginals
        error = float(np.abs(gap).max())
        if error <= tolerance:
            return InclusionFit(theta - theta.mean(), error, iteration, True)
        if method == "newton":
            step = _newton_step(sums, gap)
        else:
            mu = sums.marginals
            step = gap / (mu * (1.0 - mu)) * _damping(sums)
        theta = _descend(theta, step, pi, n)
    return InclusionFit(theta - theta.mean(), error, max_iterations, error <= 1e3 * tolerance)


def _damping(sums: PairSums) -> float:
    """Half steps while the count says much about single variables, whole ones otherwise."""
    return 0.5 if float((sums.marginals * (1.0 - sums.marginals)).sum()) < 4.0 else 1.0


def _newton_step(sums: PairSums, gap: Float64) -> Float64:
    """Solve Cov(y) d = gap by conjugate gradients on the space orthogonal to the constants."""
    scale = sums.diagonal
    d, r = np.zeros_like(gap), gap - gap.mean()
    z = r / scale
    z = z - z.mean()
    direction, rz = z.copy(), float(r @ z)
    stop = 1e-30 * rz
    for _ in range(min(len(gap), 200)):
        if rz <= stop or rz <= 0.0:
            break
        image = sums.covariance_times(direction)
        curvature = float(direction @ image)
        if curvature <= 0.0:
            break
        alpha = rz / curvature
        d += alpha * direction
        r -= alpha * image
        r -= r.mean()
        z = r / scale
        z = z - z.mean()
        rz, old = float(r @ z), rz
        direction = z + (rz / old) * direction
    return d


def _descend(theta: Float64, step: Float64, pi: Float64, n: int) -> Float64:
    """Halve the step until the convex objective does not rise beyond rounding."""
    counts = np.array([n])

    def objective(at: Float64) -> float:
        return float(exactly_k(at[None], counts).log_sum[0] - pi @ at)

    before = objective(theta)
    slack = 1e-12 * (1.0 + abs(before))
    for _ in range(50):
        trial = theta + step
        if objective(trial) <= before + slack:
            return trial
        step = 0.5 * step
    return theta
