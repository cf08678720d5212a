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

from ...structure.nested.schedule import DownStep, Schedule
from ..answer import Answer
from .arithmetic import UNIT_ROUNDOFF, Arithmetic

_FAINTEST = -690.0  # plain numbers have all their digits down to e^-708


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
    up = upward(xp, schedule, arithmetic, nu, extended)
    down, error, size, faintest = downward(xp, schedule, arithmetic, up, extended)
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
        # A zero may be an impossible state or an underflow; only logarithms can tell.
        doubtful = xp.any(xp.isfinite(nu) & ~xp.isfinite(messages), axis=-1)
        bound = xp.where(doubtful | (faintest < _FAINTEST), math.inf, bound)
    sound = xp.isfinite(bound) & xp.all(~xp.isnan(messages), axis=-1)
    bound = xp.where(impossible & (arithmetic.zero != 0.0), 0.0, xp.where(sound, bound, math.inf))
    return Answer(up.log_mean, messages, log_beliefs, bound)


@dataclass(frozen=True, eq=False)
class _Up:
    storage: Any
    log_mean: Any  # (B,)
    error: Any  # (B, n_internal + 1) error of a node's merge relative to the mass it keeps, by up rank
    size: Any  # (B,) largest `magnitude` met
    faintest: Any  # (B,) log of the smallest product of positive numbers that a merge may have made


def upward(xp: Any, schedule: Schedule, arithmetic: Arithmetic, nu: Any, extended: Any) -> _Up:
    batch, n = nu.shape
    like = {"dtype": nu.dtype, "device": nu.device}
    leaves = arithmetic.leaves(nu)
    storage = xp.full((batch, schedule.up_length), arithmetic.zero, dtype=leaves.dtype, device=nu.device)
    storage[:, 1 : 1 + 2 * n] = xp.reshape(leaves, (batch, 2 * n))
    error = xp.zeros((batch, schedule.n_internal + 1), **like)
    log_mean, size = xp.zeros((batch,), **like), xp.ones((batch,), **like)
    faintest = xp.zeros((batch,), **like)
    rank = 0
    for step in schedule.up:
        count = len(step.nodes)
        a = gather(xp, storage, step.left)
        b = gather(xp, storage, step.right)
        merged = arithmetic.merge(a, b, step.width)
        table = gather(xp, extended, step.table)
        faintest = xp.minimum(faintest, _log_smallest_product(xp, arithmetic, (a, b), table))
        weighted, shift = arithmetic.weigh(merged, table)
        message, log_mass = arithmetic.normalise(weighted)
        storage[:, step.start : step.start + count * step.width] = xp.reshape(message, (batch, -1))
        # The table's largest entry is 1 after `weigh`, so an error in the merge keeps its size and the mass shrinks.
        error[:, rank : rank + count] = arithmetic.merge_error(a, b) * xp.exp(
            xp.clip(-log_mass, -700.0, 700.0)
        )
        log_mean = log_mean + xp.sum(log_mass + shift, axis=-1)
        size = xp.maximum(size, xp.max(arithmetic.magnitude(message), axis=-1))
        rank += count
    return _Up(storage, log_mean, error, size, faintest)


def downward(
    xp: Any, schedule: Schedule, arithmetic: Arithmetic, up: _Up, extended: Any
) -> tuple[Any, Any, Any, Any]:
    """Down messages, a bound on the error of any probability, the largest magnitude and the smallest product met."""
    batch = up.log_mean.shape[0]
    like = {"dtype": up.log_mean.dtype, "device": up.log_mean.device}
    numbers = {"dtype": up.storage.dtype, "device": up.storage.device}
    down = xp.full((batch, schedule.down_length), arithmetic.zero, **numbers)
    weighted = xp.full((batch, schedule.down_length), arithmetic.zero, **numbers)
    path_error = xp.zeros((batch, schedule.n_placed), **like)
    squares, size, faintest = xp.zeros((batch,), **like), up.size, up.faintest

    def settle(step: DownStep, message: Any, fresh_error: Any) -> None:
        """Scale to <up, down> = 1, weigh by the table for the children, and add up the errors."""
        nonlocal squares, size, faintest
        count = len(step.nodes)
        own = gather(xp, up.storage, step.own_cells)
        message, scale = arithmetic.against(own, message)
        cells = slice(step.start, step.start + count * step.width)
        down[:, cells] = xp.reshape(message, (batch, -1))
        table = gather(xp, extended, step.table)
        faintest = xp.minimum(faintest, _log_smallest_product(xp, arithmetic, (message,), table))
        heavy, _ = arithmetic.weigh(message, table)
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
        ones = xp.full(shape, 1.0 if arithmetic.zero == 0.0 else 0.0, **numbers)
        settle(schedule.roots, ones, xp.zeros(shape[:2], **like))
    for step in schedule.down:
        g = gather(xp, weighted, step.parent_cells)
        u = gather(xp, up.storage, step.sibling_cells)
        faintest = xp.minimum(faintest, _log_smallest_product(xp, arithmetic, (g, u), None))
        settle(step, arithmetic.correlate(g, u, step.width), arithmetic.merge_error(g, u))
    worst_path = xp.max(path_error, axis=-1) if schedule.n_placed else xp.zeros((batch,), **like)
    # Errors of different merges are independent: four standard deviations of their sum.
    return down, 4.0 * xp.sqrt(squares) + worst_path, size, faintest


def _log_smallest_product(xp: Any, arithmetic: Arithmetic, factors: tuple[Any, ...], table: Any) -> Any:
    """Log of the product of the smallest positive entries, times that of a table relative to its largest, (B,)."""
    if arithmetic.zero != 0.0:  # logarithms know no limit
        return xp.zeros(factors[0].shape[:1], dtype=xp.float64, device=factors[0].device)
    total = xp.zeros_like(factors[0][..., 0])
    # Otherwise a bound covers what is lost relative to the largest entries.
    for x in factors if arithmetic.relative else ():
        total = total + xp.log(xp.min(xp.where(x > 0.0, x, 1.0), axis=-1))
    if table is not None:
        top = xp.max(table, axis=-1)
        lowest = xp.min(xp.where(table > -math.inf, table, top[..., None]), axis=-1)
        total = total + xp.where(top > -math.inf, lowest - top, 0.0)
    return xp.min(total, axis=-1)


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
