"""Sets of variables of which exactly k are on: what learning asks about many of them at once.

Log-sums and marginals come from :class:`~tallytree.CountModel`, one batch for all sets. Covariances of linear
statistics, ``Cov(sum_i y_i x_i)``, are products of its Hessian with the columns of x; :func:`covariances` is
the only place that knows how they are found.

Sets of different size share a batch: padding with -inf changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ..arrays import Float64, Ints
from ..models.count import CountModel
from .exactly import covariances_of_sums


@dataclass(frozen=True, eq=False)
class FixedCounts:
    """Log e_k(exp theta) of every set, (B,), and P(y_i = 1), (B, n)."""

    log_sum: Float64
    marginals: Float64


def models(theta: Float64, k: Ints) -> CountModel:
    """The batch of models "exactly k_b of the variables with log-odds theta_b"; theta (B, n), k (B,)."""
    tables = np.full((len(k), theta.shape[1] + 1), -math.inf)
    tables[np.arange(len(k)), k] = 0.0
    return CountModel(theta, tables)


def fixed_counts(theta: Float64, k: Ints) -> FixedCounts:
    """Log-sums and marginals of sets, each with its number of variables that are on.

    Parameters
    ----------
    theta : (B, n) array
        Log-odds, finite, or -inf where a row is padded.
    k : (B,) int array
        Counts, at most the number of finite entries.

    Notes
    -----
    Cost and accuracy: one batched inference of :class:`~tallytree.CountModel`.
    """
    if not theta.size:
        return FixedCounts(np.zeros(len(theta)), np.zeros(theta.shape))
    batch = models(theta, k)
    return FixedCounts(np.asarray(batch.log_partition), np.asarray(batch.marginals))


def covariances(theta: Float64, k: Ints, marginals: Float64, x: Float64) -> Float64:
    """Covariance of ``sum_i y_i x_i`` in every set, (B, p, p).

    Parameters
    ----------
    theta, k
        As in :func:`fixed_counts`, ``0 < k <`` number of finite entries.
    marginals : (B, n) array
        As :func:`fixed_counts` finds them.
    x : (B, n, p) array
        Statistics of the variables; 0 where padded.

    Notes
    -----
    Equal to ``x' H x`` with H the Hessian of the log-sum, p products
    ``models(theta, k).hessian_vector_product(x[..., j], counts=False)``. Summed here over frequencies, all
    columns at once, because a product of a batch costs many inferences.
    """
    return covariances_of_sums(theta, k, marginals, x)


def balancing_shift(theta: Float64, k: int) -> float:
    """The shift s with ``sum_i sigmoid(theta_i + s) = k``, for finite theta and 0 < k < n.

    Newton's method inside a bracket; a point that it cannot improve is kept.
    """
    base = math.log(k) - math.log(len(theta) - k)
    low, high = base - float(theta.max()), base - float(theta.min())
    s = 0.5 * (low + high)
    for _ in range(200):
        p = expit(theta + s)
        excess, slope = float(p.sum()) - k, float((p * (1.0 - p)).sum())
        low, high = (low, s) if excess > 0 else (s, high)
        step = excess / slope if slope > 0 else math.inf
        if abs(step) <= 4e-16 * max(1.0, abs(s)) or not high > low:
            break
        s = s - step if low < s - step < high else 0.5 * (low + high)
    return s
