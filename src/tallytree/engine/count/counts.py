"""Posterior distributions of counts, with relative accuracy far into the tails."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays import Float64
from ...structure.nested.count_tree import CountTree
from ..answer import posterior
from ..pmf.log_pmf import log_pmf
from ..problem import Problem
from .infer import flat_bucket_of, infer, set_log_beliefs


def group_log_probs(tree: CountTree, params: Any, group: int, cached: Callable[[Any, Any], Any]) -> Float64:
    """Log-probabilities of the counts of one group, (B, n + 1); `cached` keeps what several groups share."""
    family = tree.family
    nu = params.nu
    s = int(family.set_of_group[group])
    problem = Problem(tree, nu, params.packed)
    if s < 0:
        variable = int(family.variable_of_group[group])
        odds = cached("posterior", lambda: _posterior(problem))[:, variable]
        return np.stack([-np.logaddexp(0.0, odds), -np.logaddexp(0.0, -odds)], axis=-1)
    place = flat_bucket_of(tree, s)
    if place is not None:
        bucket, row = place
        prior = log_pmf(np.ascontiguousarray(nu[:, bucket.variables[row]]))
        return _normalised(prior + params.packed[:, bucket.cells[row]])
    packed = cached("beliefs", lambda: set_log_beliefs(problem))
    offset = family.set_offset
    return _normalised(packed[:, offset[s] : offset[s + 1]])


def _posterior(problem: Problem) -> Float64:
    return posterior(problem.nu, infer(problem, cavities=False).messages)


def _normalised(log_weights: Float64) -> Float64:
    top = log_weights.max(-1, keepdims=True)
    top = np.where(top == -math.inf, 0.0, top)
    total = np.log(np.exp(log_weights - top).sum(-1, keepdims=True))
    return np.asarray(log_weights - top - total)
