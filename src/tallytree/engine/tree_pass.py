"""Sum-product on a scheduled binary forest, for any arithmetic and any array-API namespace.

Upward messages include a node's table, downward messages exclude it, so every table is used once:

    up_p   = f_p . (up_l * up_r)                    (* convolution, . product by entries)
    down_l = correlate(f_p . down_p, up_r)
    belief = up . down / <up, down>

Messages are normalised, up to sum 1 and down to <up, down> = 1; scales are carried as logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..structure.schedule import DownStep, Schedule
from .answer import Answer
from .arithmetic import UNIT_ROUNDOFF, Arithmetic

# Plain numbers reach down to e^-745; products of two of these sizes, and their sums, are still whole.
_FAINTEST_ODDS = 250.0
_FAINTEST_MASS = -450.0


def sum_product(
    xp: Any, schedule: Schedule, arithmetic: Arithmetic, nu: Any, tables: Any, *, beliefs: bool = False
) -> Answer:
    """Both passes for a batch.

    Parameters
    ----------
    nu : (B, D) array
        Log-odds of the variables.
    tables : (B, T) array
        Packed log-tables.
    beliefs : bool
        Whether the count distributions of the sets are wanted too.
    """
    batch, n = nu.shape
    extended = extend_tables(xp, tables)
    up = _upward(xp, schedule, arithmetic, nu, extended)
    down, error, size = _downward(xp, schedule, arithmetic, up, extended)
    impossible = up.log_mean == -math.inf

    log_leaf = arithmetic.log(xp.reshape(gather(xp, down, schedule.leaf_down), (batch, n, 2)))
    free = xp.asarray(schedule.leaf_down[:, 0] == 0, device=nu.device)
    on, off = log_leaf[..., 1], log_leaf[..., 0]
    same = (on == off) | free | impossible[:, None]  # also where both are -inf: nothing is known
    messages = xp.where(same, 0.0, on - xp.where(same, 0.0, off))

    log_beliefs = None
    if beliefs:
        u = arithmetic.log(gather(xp, up.storage, schedule.set_up))
        d = arithmetic.log(gather(xp, down, schedule.set_down))
        log_beliefs = xp.where((u == -math.inf) | (d == -math.inf), -math.inf, u + d)

    # An error e in <up, down> = 1 moves a probability P by at most e, hence its odds by e / min(P, 1 - P).
    posterior = xp.where(xp.isfinite(nu), nu, 0.0) + messages
    worst = xp.max(xp.exp(xp.clip(xp.abs(posterior), 0.0, 700.0)), axis=-1) if n else xp.ones_like(error)
    gathered = schedule.rounding if arithmetic.zero == 0.0 else 8.0 * schedule.levels
    bound = 2.0 * error * worst + UNIT_ROUNDOFF * (gathered * size + 4.0 * (1.0 + size))
    if arithmetic.zero == 0.0 and n:
        # A zero may be an impossible state or an underflow; only logarithms can tell. Short of zero, numbers that are
        # all but lost have fewer digits.
        doubtful = xp.any(xp.isfinite(nu) & ~xp.isfinite(messages), axis=-1)
        faint = xp.max(xp.where(xp.isfinite(nu), xp.abs(posterior), 0.0), axis=-1) > _FAINTEST_ODDS
        bound = xp.where(doubtful | faint | (up.least_mass < _FAINTEST_MASS), math.inf, bound)
    sound = xp.isfinite(bound) & xp.all(~xp.isnan(messages), axis=-1)
    bound = xp.where(impossible & (arithmetic.zero != 0.0), 0.0, xp.where(sound, bound, math.inf))
    return Answer(up.log_mean, messages, log_beliefs, bound)


@dataclass(frozen=True, eq=False)
class _Up:
    storage: Any
    log_mean: Any  # (B,)
    error: Any  # (B, n_internal + 1) error of a node's merge relative to the mass it keeps, by up rank
    size: Any  # (B,) largest `magnitude` met
    least_mass: (
        Any  # (B,) smallest log of what a merge and its table left of the mass, impossible merges aside
    )


def _upward(xp: Any, schedule: Schedule, arithmetic: Arithmetic, nu: Any, extended: Any) -> _Up:
    batch, n = nu.shape
    like = {"dtype": nu.dtype, "device": nu.device}
    storage = xp.full((batch, schedule.up_length), arithmetic.zero, **like)
    storage[:, 1 : 1 + 2 * n] = xp.reshape(arithmetic.leaves(nu), (batch, 2 * n))
    error = xp.zeros((batch, schedule.n_internal + 1), **like)
    log_mean, size = xp.zeros((batch,), **like), xp.ones((batch,), **like)
    least = xp.zeros((batch,), **like)
    rank = 0
    for step in schedule.up:
        count = len(step.nodes)
        a = gather(xp, storage, step.left)
        b = gather(xp, storage, step.right)
        merged = arithmetic.merge(a, b, step.width)
        weighted, shift = arithmetic.weigh(merged, gather(xp, extended, step.table))
        message, log_mass = arithmetic.normalise(weighted)
        storage[:, step.start : step.start + count * step.width] = xp.reshape(message, (batch, -1))
        # The table's largest entry is 1 after `weigh`, so an error in the merge keeps its size and the mass shrinks.
        error[:, rank : rank + count] = arithmetic.merge_error(a, b) * xp.exp(
            xp.clip(-log_mass, -700.0, 700.0)
        )
        log_mean = log_mean + xp.sum(log_mass + shift, axis=-1)
        least = xp.minimum(least, xp.min(xp.where(log_mass == -math.inf, 0.0, log_mass), axis=-1))
        size = xp.maximum(size, xp.max(arithmetic.magnitude(message), axis=-1))
        rank += count
    return _Up(storage, log_mean, error, size, least)


def _downward(
    xp: Any, schedule: Schedule, arithmetic: Arithmetic, up: _Up, extended: Any
) -> tuple[Any, Any, Any]:
    """Down messages, a bound on the error of any probability, and the largest magnitude met."""
    batch = up.log_mean.shape[0]
    like = {"dtype": up.storage.dtype, "device": up.storage.device}
    down = xp.full((batch, schedule.down_length), arithmetic.zero, **like)
    weighted = xp.full((batch, schedule.down_length), arithmetic.zero, **like)
    path_error = xp.zeros((batch, schedule.n_placed), **like)
    squares, size = xp.zeros((batch,), **like), up.size

    def settle(step: DownStep, message: Any, fresh_error: Any) -> None:
        """Scale to <up, down> = 1, weigh by the table for the children, and add up the errors."""
        nonlocal squares, size
        count = len(step.nodes)
        own = gather(xp, up.storage, step.own_cells)
        scale = arithmetic.product(own, message)
        message = arithmetic.divide(message, scale)
        cells = slice(step.start, step.start + count * step.width)
        down[:, cells] = xp.reshape(message, (batch, -1))
        heavy, _ = arithmetic.weigh(message, gather(xp, extended, step.table))
        weighted[:, cells] = xp.reshape(heavy, (batch, -1))
        lost = xp.take(up.error, xp.asarray(step.up_rank, device=heavy.device), axis=-1)
        damage = lost * arithmetic.loss(heavy)
        squares = squares + xp.sum(damage * damage, axis=-1)
        inherited = xp.take(path_error, xp.asarray(step.parent_rank, device=heavy.device), axis=-1)
        fresh = fresh_error * xp.exp(xp.clip(-scale, -700.0, 700.0))
        path_error[:, step.down_rank : step.down_rank + count] = inherited + fresh
        size = xp.maximum(size, xp.max(arithmetic.magnitude(message), axis=-1))

    if len(schedule.roots.nodes):
        shape = (batch, len(schedule.roots.nodes), schedule.roots.width)
        ones = xp.zeros(shape, **like) + (1.0 if arithmetic.zero == 0.0 else 0.0)
        settle(schedule.roots, ones, xp.zeros(shape[:2], **like))
    for step in schedule.down:
        g = gather(xp, weighted, step.parent_cells)
        u = gather(xp, up.storage, step.sibling_cells)
        settle(step, arithmetic.correlate(g, u, step.width), arithmetic.merge_error(g, u))
    worst_path = xp.max(path_error, axis=-1) if schedule.n_placed else xp.zeros((batch,), **like)
    # Errors of different merges are independent: four standard deviations of their sum.
    return down, 4.0 * xp.sqrt(squares) + worst_path, size


def extend_tables(xp: Any, tables: Any) -> Any:
    """Tables followed by the two constants that nodes without a table and padding refer to."""
    constants = xp.asarray(np.array([0.0, -math.inf]), dtype=tables.dtype, device=tables.device)
    return xp.concat(
        [tables, xp.zeros((tables.shape[0], 2), dtype=tables.dtype, device=tables.device) + constants],
        axis=-1,
    )


def gather(xp: Any, storage: Any, cells: Any) -> Any:
    """``storage[:, cells]``, written with `take` as the array-API standard asks."""
    flat = xp.asarray(cells.reshape(-1), device=storage.device)
    return xp.reshape(xp.take(storage, flat, axis=-1), (storage.shape[0], *cells.shape))
