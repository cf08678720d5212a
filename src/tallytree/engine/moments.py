"""Sums over variables and tables: log-weights of configurations and their expectations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import config
from ..structure.count_tree import CountTree

Float64 = NDArray[np.float64]


def softplus_sum(nu: Float64) -> Float64:
    """``sum_d log(1 + e^nu_d)``, (B,); excluded and forced variables contribute nothing."""
    engine = config.native()
    if engine is not None:
        return np.asarray(engine.softplus_sums(np.ascontiguousarray(nu), config.threads(), config.level()))
    finite = np.isfinite(nu)
    return np.asarray(np.where(finite, np.logaddexp(0.0, np.where(finite, nu, 0.0)), 0.0).sum(-1))


def log_weight(tree: CountTree, params: Any, states: NDArray[np.bool_]) -> Float64:
    """Log of the unnormalised weight of configurations; forced variables enter with weight one."""
    logits = np.asarray(params.logits, np.float64)
    on = np.where(states, np.where(logits == math.inf, 0.0, logits), 0.0).sum(-1)
    missing = (~states & (logits == math.inf)).any(-1)
    total = np.where(missing, -math.inf, on)
    for g, members in enumerate(tree.groups):
        count = states[..., members].sum(-1)
        table = params.tables[g]
        shape = np.broadcast_shapes(table.shape[:-1], count.shape)
        picked = np.take_along_axis(
            np.broadcast_to(table, (*shape, table.shape[-1])), np.broadcast_to(count, shape)[..., None], -1
        )
        total = total + picked[..., 0]
    return np.asarray(total + params.batch_constant)


def expected_score(logits: Float64, marginals: Float64, tables: Any, counts: Any) -> Float64:
    """E[log weight] = sum_d theta_d mu_d + sum_i sum_c P_i(c) log f_i(c), with 0 log 0 = 0.

    Infinite log-odds: weight one where they agree with the marginal, -inf where they forbid what has mass.
    """
    finite = np.isfinite(logits)
    total = (np.where(finite, logits, 0.0) * marginals).sum(-1)
    forbidden = ((logits == -math.inf) & (marginals > 0)) | ((logits == math.inf) & (marginals < 1))
    total = np.where(forbidden.any(-1), -math.inf, total)
    for table, log_probs in zip(tables, counts):
        probs = np.exp(log_probs)
        term = np.where(probs > 0, probs * np.where(table == -math.inf, 0.0, table), 0.0).sum(-1)
        dead = ((probs > 0) & (table == -math.inf)).any(-1)
        total = total + np.where(dead, -math.inf, term)
    return np.asarray(total)
