"""Second order: covariances, joint probabilities of pairs, Hessian-vector products of log Z.

Row i of the covariance matrix comes from two conditional models, exactly and without cancellation of large numbers:

    Cov(y_i, y_j) = P_i (1 - P_i) (P(y_j | y_i = 1) - P(y_j | y_i = 0)),     P_ij = P_i P(y_j | y_i = 1).

A product of the Hessian of log Z with a vector, Cov(statistics, v . statistics), costs a few inferences whatever the
number of parameters.
"""

from __future__ import annotations

import math
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .engine import auto
from .engine.flat_tangent import flat_tangent
from .engine.solution import posterior
from .engine.tangent import tangent_pass
from .parameters import Parameters
from .structure.count_tree import CountTree

Float64 = NDArray[np.float64]

_CHUNK = 1 << 22  # entries of log-odds that go into one batched inference
_LONG = 600  # above this many variables a flat model's derivative comes from its characteristic function


def conditional_marginals(
    tree: CountTree, params: Parameters, rows: NDArray[np.int64], value: int
) -> Float64:
    """P(y_j = 1 | y_i = value) for every i in `rows`, (B, R, D); the events must be possible."""
    batch, n = params.nu.shape
    out = np.empty((batch, len(rows), n))
    step = max(1, _CHUNK // max(1, batch * n))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        nu = np.repeat(params.nu[:, None, :], len(part), axis=1)
        nu[:, np.arange(len(part)), part] = math.inf if value else -math.inf
        nu = nu.reshape(batch * len(part), n)
        packed = params.packed
        if packed.shape[0] > 1:
            packed = np.repeat(packed, len(part), axis=0)
        found = auto.infer(auto.Problem(tree, nu, packed, {}))
        out[:, start : start + step] = expit(posterior(nu, found.messages())).reshape(batch, len(part), n)
    return out


def covariance_rows(tree: CountTree, params: Parameters, odds: Float64, rows: NDArray[np.int64]) -> Float64:
    """Rows of Cov(y), (B, R, D); `odds` are the posterior log-odds (B, D)."""
    own = odds[:, rows]
    spread = expit(own) * expit(-own)
    out = np.zeros((*own.shape, odds.shape[1]))
    for b, alive in _possible(own):
        part = _model(params, b)
        given = [conditional_marginals(tree, part, rows[alive], value)[0] for value in (1, 0)]
        out[b, alive] = spread[b, alive, None] * (given[0] - given[1])
    out[:, np.arange(len(rows)), rows] = spread
    return out


def joint_probabilities(
    tree: CountTree, params: Parameters, odds: Float64, rows: NDArray[np.int64]
) -> Float64:
    """P(y_i = y_j = 1) for i in `rows` and all j, (B, R, D)."""
    own = odds[:, rows]
    out = np.zeros((*own.shape, odds.shape[1]))
    for b, alive in _possible(own, zero_only=True):
        given = conditional_marginals(tree, _model(params, b), rows[alive], 1)[0]
        out[b, alive] = expit(own[b, alive])[:, None] * given
    out[:, np.arange(len(rows)), rows] = expit(own)
    return out


def _possible(own: Float64, *, zero_only: bool = False) -> list[tuple[int, NDArray[np.int64]]]:
    """For every model, the rows whose conditioning events have positive probability."""
    alive = own > -math.inf if zero_only else np.isfinite(own)
    return [(b, np.flatnonzero(alive[b])) for b in range(len(own)) if alive[b].any()]


def _model(params: Parameters, b: int) -> Any:
    """One model of the batch, in the form that `conditional_marginals` reads."""

    class Single:
        nu = params.nu[b : b + 1]
        packed = params.packed if params.packed.shape[0] == 1 else params.packed[b : b + 1]

    return Single()


def tangent(
    tree: CountTree, params: Parameters, nu_direction: Float64, table_direction: Float64, *, counts: bool
) -> tuple[Float64, Float64 | None]:
    """d posterior log-odds (B, D) and, if `counts`, d log P(count) of the sets (B, T) along a direction."""
    batch = params.nu.shape[0]
    whole = len(tree.components.flat) == 1 and tree.components.flat[0].whole
    with np.errstate(all="ignore"):
        if whole and not counts and params.nu.shape[1] > _LONG:
            rows = [
                flat_tangent(
                    xp,
                    params.nu[b],
                    params.packed[b % len(params.packed)],
                    nu_direction[b],
                    table_direction[b],
                )
                for b in range(batch)
            ]
            if all(row is not None for row in rows):
                return np.asarray(np.stack(rows) if rows else np.zeros_like(params.nu)), None
        tables = np.broadcast_to(params.packed, (batch, params.packed.shape[1]))
        schedule = auto.schedule_for(tree.program, params.packed)
        found = tangent_pass(xp, schedule, params.nu, tables, nu_direction, table_direction)
    return np.asarray(found.logits), np.asarray(found.tables)
