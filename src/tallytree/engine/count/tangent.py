"""Directional derivatives of both passes: one Hessian-vector product of log Z, whatever the number of parameters.

Every message u carries, next to its values, the ratio t = u' / u of its derivative along a direction, entry by entry. A
merge turns ratios into weighted means,

    t_c(k) = sum_i a(i) b(k - i) (t_a(i) + t_b(k - i)) / c(k),

a table adds the direction's entry to t, and scales are constants. Ratios never overflow where values do. At the leaves
``t = (-p v, (1 - p) v)``, the derivative of a normalised Bernoulli law, so ratios stay centred.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...structure.nested.schedule import DownStep, Schedule
from .arithmetic import LogSpace, pad_left, pad_right
from .tree_pass import extend_tables, gather


@dataclass(frozen=True, eq=False)
class Tangent:
    """Derivatives along a direction v, per model of the batch.

    Attributes
    ----------
    logits : (B, D)
        d posterior log-odds, the direction's own entry included.
    tables : (B, T)
        d log P(count) of every set, packed; 0 where the count is impossible.
    """

    logits: Any
    tables: Any


def tangent_pass(
    xp: Any, schedule: Schedule, nu: Any, tables: Any, nu_direction: Any, table_direction: Any
) -> Tangent:
    """Both passes in log-space with ratios; `nu_direction` (B, D), `table_direction` (B, T)."""
    batch, n = nu.shape
    space = LogSpace(xp)
    log_f, slope_f = extend_tables(xp, tables), _pad(xp, table_direction)
    up, up_slope = _upward(xp, schedule, space, nu, nu_direction, log_f, slope_f)
    down, down_slope = _downward(xp, schedule, space, up, up_slope, log_f, slope_f)

    slopes = xp.reshape(gather(xp, down_slope, schedule.leaf_down), (batch, n, 2))
    logits = nu_direction + slopes[..., 1] - slopes[..., 0]
    u, d = gather(xp, up, schedule.set_up), gather(xp, down, schedule.set_down)
    raw = gather(xp, up_slope, schedule.set_up) + gather(xp, down_slope, schedule.set_down)
    possible = (u > -math.inf) & (d > -math.inf)
    return Tangent(logits, xp.where(possible, raw, 0.0))


def _upward(
    xp: Any, schedule: Schedule, space: LogSpace, nu: Any, direction: Any, log_f: Any, slope_f: Any
) -> tuple[Any, Any]:
    batch, n = nu.shape
    like = {"dtype": nu.dtype, "device": nu.device}
    values = xp.full((batch, schedule.up_length), -math.inf, **like)
    slopes = xp.zeros((batch, schedule.up_length), **like)
    leaves = space.leaves(nu)
    values[:, 1 : 1 + 2 * n] = xp.reshape(leaves, (batch, 2 * n))
    p = xp.exp(leaves[..., 1])
    moving = xp.where(xp.isfinite(nu), direction, 0.0)
    leaf_slope = xp.stack([-p * moving, xp.exp(leaves[..., 0]) * moving], axis=-1)
    slopes[:, 1 : 1 + 2 * n] = xp.reshape(leaf_slope, (batch, 2 * n))
    for step in schedule.up:
        merged, slope = _merge(
            xp,
            gather(xp, values, step.left),
            gather(xp, slopes, step.left),
            gather(xp, values, step.right),
            gather(xp, slopes, step.right),
            step.width,
        )
        weighted, _ = space.weigh(merged, gather(xp, log_f, step.table))
        message, _ = space.normalise(weighted)
        length = len(step.nodes) * step.width
        cells = slice(step.start, step.start + length)
        values[:, cells] = xp.reshape(message, (batch, length))
        slopes[:, cells] = xp.reshape(slope + gather(xp, slope_f, step.table), (batch, length))
    return values, slopes


def _downward(
    xp: Any, schedule: Schedule, space: LogSpace, up: Any, up_slope: Any, log_f: Any, slope_f: Any
) -> tuple[Any, Any]:
    """Down messages scaled to <up, down> = 1, with slopes centred so that the belief's mean slope is 0."""
    batch = up.shape[0]
    like = {"dtype": up.dtype, "device": up.device}
    values = xp.full((batch, schedule.down_length), -math.inf, **like)
    slopes = xp.zeros((batch, schedule.down_length), **like)
    weighted = xp.full((batch, schedule.down_length), -math.inf, **like)
    weighted_slopes = xp.zeros((batch, schedule.down_length), **like)

    def settle(step: DownStep, message: Any, slope: Any) -> None:
        own = gather(xp, up, step.own_cells)
        message = space.divide(message, space.product(own, message))
        belief = xp.exp(own + message)
        drift = xp.sum(belief * (gather(xp, up_slope, step.own_cells) + slope), axis=-1)
        slope = slope - drift[..., None]
        length = len(step.nodes) * step.width
        cells = slice(step.start, step.start + length)
        values[:, cells] = xp.reshape(message, (batch, length))
        slopes[:, cells] = xp.reshape(slope, (batch, length))
        heavy, _ = space.weigh(message, gather(xp, log_f, step.table))
        weighted[:, cells] = xp.reshape(heavy, (batch, length))
        weighted_slopes[:, cells] = xp.reshape(slope + gather(xp, slope_f, step.table), (batch, length))

    if len(schedule.roots.nodes):
        shape = (batch, len(schedule.roots.nodes), schedule.roots.width)
        settle(schedule.roots, xp.zeros(shape, **like), xp.zeros(shape, **like))
    for step in schedule.down:
        message, slope = _correlate(
            xp,
            gather(xp, weighted, step.parent_cells),
            gather(xp, weighted_slopes, step.parent_cells),
            gather(xp, up, step.sibling_cells),
            gather(xp, up_slope, step.sibling_cells),
            step.width,
        )
        settle(step, message, slope)
    return values, slopes


def _merge(xp: Any, a: Any, a_slope: Any, b: Any, b_slope: Any, width: int) -> tuple[Any, Any]:
    if a.shape[-1] > b.shape[-1]:
        a, a_slope, b, b_slope = b, b_slope, a, a_slope
    first = a.shape[-1] - 1
    b = pad_left(xp, pad_right(xp, b, width, -math.inf), first, -math.inf)
    b_slope = pad_left(xp, pad_right(xp, b_slope, width, 0.0), first, 0.0)

    def term(i: int) -> tuple[Any, Any]:
        cut = slice(first - i, first - i + width)
        return a[..., i : i + 1] + b[..., cut], a_slope[..., i : i + 1] + b_slope[..., cut]

    return _mean_of_terms(xp, term, a.shape[-1])


def _correlate(xp: Any, g: Any, g_slope: Any, u: Any, u_slope: Any, width: int) -> tuple[Any, Any]:
    n = u.shape[-1]
    reach = max(width + n - 1, g.shape[-1])
    g, g_slope = pad_right(xp, g, reach, -math.inf), pad_right(xp, g_slope, reach, 0.0)
    if n <= width:

        def term(j: int) -> tuple[Any, Any]:
            return g[..., j : j + width] + u[..., j : j + 1], g_slope[..., j : j + width] + u_slope[
                ..., j : j + 1
            ]

        return _mean_of_terms(xp, term, n)
    values, slopes = [], []
    for i in range(width):
        logs = g[..., i : i + n] + u
        total, weights = _soft_max(xp, logs)
        values.append(total)
        slopes.append(xp.sum(weights * (g_slope[..., i : i + n] + u_slope), axis=-1))
    return xp.stack(values, axis=-1), xp.stack(slopes, axis=-1)


def _soft_max(xp: Any, logs: Any) -> tuple[Any, Any]:
    """log-sum-exp over the last axis, and the weights."""
    top = xp.max(logs, axis=-1)
    anchor = xp.where(top == -math.inf, 0.0, top)
    weights = xp.exp(logs - anchor[..., None])
    total = xp.sum(weights, axis=-1)
    safe = xp.where(total > 0.0, total, 1.0)
    return anchor + xp.log(total), weights / safe[..., None]


def _mean_of_terms(xp: Any, term: Any, count: int) -> tuple[Any, Any]:
    """Log sum_i exp(value_i) and the mean of slope_i under those weights: first the maximum, then the sums."""
    top, _ = term(0)
    for i in range(1, count):
        top = xp.maximum(top, term(i)[0])
    anchor = xp.where(top == -math.inf, 0.0, top)
    total, moment = xp.zeros_like(anchor), xp.zeros_like(anchor)
    for i in range(count):
        value, slope = term(i)
        weight = xp.exp(value - anchor)
        total = total + weight
        moment = moment + weight * slope
    safe = xp.where(total > 0.0, total, 1.0)
    return anchor + xp.log(total), moment / safe


def _pad(xp: Any, direction: Any) -> Any:
    """A direction has no entries on the two constants behind the tables."""
    zeros = xp.zeros((direction.shape[0], 2), dtype=direction.dtype, device=direction.device)
    return xp.concat([direction, zeros], axis=-1)
