"""Both passes over any nested groups, on the schedule that the structure lays down once.

    up_p   = f_p . (up_l * up_r)                    (* convolution, . product by entries)
    down_l = correlate(f_p . down_p, up_r)
    belief = up . down / <up, down>

The same code runs in two arithmetics: plain numbers with a certificate, and logarithms. A step computes the messages
of a bucket of nodes, and cell 0 always holds zero. Messages up sum to one, and those down have product one with them:
a merge without a table keeps both, so only tables are followed by a division.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..structure.nested.count_tree import CountTree
from ..structure.nested.schedule import DownStep, Schedule, UpStep, build_schedule
from .cells import Messages, pick
from .logarithmic import finite_or_zero, log_convolve, log_correlate, log_sum, max_convolve, safe_log
from .merges import convolve, correlate
from .positive import widened
from .precision import unit_roundoff
from .solution import LARGEST_DOWN, Solution, doubtful_leaves, leaf_messages, log_leaves, log_weight_of_leaves


class Arithmetic(NamedTuple):
    """How messages are stored and combined."""

    zero: float
    from_log: Callable[[Any], Any]
    log: Callable[[Any], Any]
    convolve: Callable[[Any, Any], Any]
    correlate: Callable[[Any, Any], Any]
    times: Callable[[Any, Any], Any]
    total: Callable[[Any], Any]  # log of the sum along the last axis
    divide: Callable[[Any, Any], Any]  # by exp of a finite logarithm


PLAIN = Arithmetic(
    0.0,
    jnp.exp,
    safe_log,
    convolve,
    correlate,
    lambda a, b: a * b,
    lambda x: safe_log(jnp.sum(x, -1)),
    lambda x, log_scale: x * jnp.exp(-log_scale),
)
LOGARITHMS = Arithmetic(
    -jnp.inf,
    lambda x: x,
    lambda x: x,
    log_convolve,
    log_correlate,
    lambda a, b: a + b,
    log_sum,
    lambda x, log_scale: x - log_scale,
)
# Upward only: the best completion instead of the sum of all.
MAXIMUM = LOGARITHMS._replace(convolve=max_convolve, total=lambda x: jnp.max(x, -1))


@lru_cache(maxsize=64)
def schedule_of(tree: CountTree) -> Schedule:
    """The steps of both passes, laid down once per structure."""
    return build_schedule(tree.program)


class Upward(NamedTuple):
    """Upward messages and what was learned on the way."""

    messages: Messages
    log_mean: Any  # (B,)
    faintest: Any  # (B,) log of the smallest mass that a step kept


def upward(schedule: Schedule, arithmetic: Arithmetic, leaves: Any, tables: Any) -> Upward:
    """All upward messages; `leaves` are log-weights (B, D, 2), `tables` packed log-tables (B, T)."""
    batch = leaves.shape[0]
    extended = extend(tables)
    messages = _nothing(batch, arithmetic, leaves.dtype).followed_by(arithmetic.from_log(leaves))
    log_mean = jnp.zeros((batch,), leaves.dtype)
    faintest = jnp.zeros((batch,), leaves.dtype)
    for step in schedule.up:
        merged = arithmetic.convolve(messages.at(step.left), messages.at(step.right))[..., : step.width]
        if _has_tables(step, tables):
            table, top = _scaled(pick(extended, step.table))
            weighted = arithmetic.times(merged, arithmetic.from_log(table))
            log_mass = arithmetic.total(weighted)
            merged = arithmetic.divide(weighted, finite_or_zero(log_mass)[..., None])
            log_mean = log_mean + jnp.sum(log_mass + top, -1)
            faintest = jnp.minimum(faintest, jnp.min(log_mass, -1))
        messages = messages.followed_by(merged)
    return Upward(messages, log_mean, faintest)


def _nothing(batch: int, arithmetic: Arithmetic, dtype: Any) -> Messages:
    """Cell 0."""
    return Messages((jnp.full((batch, 1), arithmetic.zero, dtype),))


def _has_tables(step: UpStep | DownStep, tables: Any) -> bool:
    """Whether a node of a step has a table."""
    return bool(np.any(step.table < tables.shape[-1]))


def extend(tables: Any) -> Any:
    """The packed tables, followed by 0 (no table) and -inf (padding)."""
    ends = jnp.array([0.0, -jnp.inf], tables.dtype)
    return jnp.concatenate([tables, jnp.broadcast_to(ends, (*tables.shape[:-1], 2))], -1)


def _scaled(log_table: Any) -> tuple[Any, Any]:
    """A log-table with largest entry 0, and that entry; a table that allows nothing stays as it is."""
    top = finite_or_zero(lax.stop_gradient(jnp.max(log_table, -1)))
    return log_table - top[..., None], top


def solve(schedule: Schedule, arithmetic: Arithmetic, nu: Any, tables: Any) -> Solution:
    """Both passes and the count distributions of all sets."""
    n = nu.shape[-1]
    up = upward(schedule, arithmetic, log_leaves(nu), tables)
    down, largest, faintest = _downward(schedule, arithmetic, up, tables)
    impossible = up.log_mean == -jnp.inf
    leaf_down = down.at(schedule.leaf_down)
    free = schedule.leaf_down[:, 0] == 0
    messages = jnp.where(impossible[:, None] | free, 0.0, leaf_messages(arithmetic.log(leaf_down)))
    u, d = arithmetic.log(up.messages.at(schedule.set_up)), arithmetic.log(down.at(schedule.set_down))
    if arithmetic.zero == 0.0:
        sound = (largest < LARGEST_DOWN) & (jnp.minimum(up.faintest, faintest) > -230.0)
        sound = sound & ~doubtful_leaves(jnp.where(free, jnp.inf, nu), leaf_down) & ~impossible
        bound = unit_roundoff(nu.dtype) * (8.0 * (n + schedule.rounding) + _size(nu, tables))
    else:
        sound = ~jnp.isnan(up.log_mean)
        size = sum(x.largest(lambda y: jnp.abs(finite_or_zero(y))) for x in (up.messages, down))
        bound = (
            8.0 * unit_roundoff(nu.dtype) * ((schedule.levels + 1.0) * (1.0 + size) + n + _size(nu, tables))
        )
    log_partition = up.log_mean + log_weight_of_leaves(nu)
    return Solution(log_partition, messages, u + d, jnp.where(sound, bound, jnp.inf))


def _size(nu: Any, tables: Any) -> Any:
    return 8.0 + sum(jnp.max(jnp.abs(finite_or_zero(x)), -1, initial=0.0) for x in (nu, tables))


def _downward(
    schedule: Schedule, arithmetic: Arithmetic, up: Upward, tables: Any
) -> tuple[Messages, Any, Any]:
    """Downward messages, their largest entry and the log of the smallest pairing met, (B,) each."""
    batch, extended = up.log_mean.shape[0], extend(tables)
    zeros = jnp.zeros((batch,), tables.dtype)
    nothing = _nothing(batch, arithmetic, tables.dtype)
    heavy = np.zeros(schedule.n_placed, bool)  # whether a node's message goes on times a table

    def place(step: DownStep, down: Any, state: Any) -> Any:
        messages, weighted, largest, faintest = state
        if np.any(heavy[step.parent_rank]):
            pairing = arithmetic.total(arithmetic.times(up.messages.at(step.own_cells), down))
            down = arithmetic.divide(down, finite_or_zero(pairing)[..., None])
            faintest = jnp.minimum(faintest, jnp.min(pairing, -1))
        above, allowed = down, step.own_cells > 0  # padding holds whatever the sums gave
        if _has_tables(step, tables):
            heavy[step.down_rank : step.down_rank + len(step.nodes)] = True
            table, _ = _scaled(pick(extended, step.table))
            above = arithmetic.times(down, arithmetic.from_log(table))
            scale = lax.stop_gradient(jnp.max(arithmetic.log(above), -1, keepdims=True))
            above = arithmetic.divide(above, finite_or_zero(scale))
            allowed = table > -jnp.inf  # elsewhere nothing comes up
        largest = jnp.maximum(largest, jnp.max(jnp.where(allowed, down, 0.0), (-1, -2), initial=0.0))
        return messages.followed_by(down), weighted.followed_by(above), largest, faintest

    state = (nothing, nothing, zeros, zeros)
    roots = schedule.roots
    if len(roots.nodes):
        one = arithmetic.from_log(jnp.zeros((), tables.dtype))
        state = place(roots, jnp.broadcast_to(one, (batch, *roots.own_cells.shape)), state)
    for step in schedule.down:
        parent, sibling = state[1].at(step.parent_cells), up.messages.at(step.sibling_cells)
        needed = step.width + sibling.shape[-1] - 1
        parent = widened(parent, needed, arithmetic.zero)[..., :needed]
        state = place(step, arithmetic.correlate(parent, sibling), state)
    return state[0], state[2], state[3]
