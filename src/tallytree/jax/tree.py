"""Both passes over any nested groups, on the schedule that the structure lays down once.

    up_p   = f_p . (up_l * up_r)                    (* convolution, . product by entries)
    down_l = correlate(f_p . down_p, up_r)
    belief = up . down / <up, down>

The same code runs in two arithmetics: plain numbers with a certificate, and logarithms. A step computes the messages
of a bucket of nodes and stores them one after another; cell 0 always holds zero. Messages up sum to one, and those down
have product one with them: a merge without a table keeps both, so only tables are followed by a division.

Readers name cells of all steps together; only the steps that they name are touched. Messages of a regular tree lie at
equal distances, in pairs or repeated, and are cut out by slices. Others are gathered; and since the tangent of a
gather, transposed, would scatter into zeros of the caller's float type (see :mod:`.arithmetic`), their tangents are
put together from static slices, one for every run of neighbouring cells.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..structure.nested.schedule import DownStep, Schedule, UpStep
from .arithmetic import Arithmetic, finite_or_zero, widened
from .arrays import unit_roundoff
from .ladder import LARGEST_DOWN, Solution, doubtful_leaves, leaf_messages, log_leaves, log_weight_of_leaves


class Messages(NamedTuple):
    """What the steps so far stored, (B, cells) each, in the order of their cells."""

    parts: tuple[Any, ...]

    def followed_by(self, messages: Any) -> Messages:
        """These, and the messages (B, ...) of one more step."""
        flat = messages.reshape(messages.shape[0], math.prod(messages.shape[1:]))
        return Messages((*self.parts, flat))

    def at(self, cells: Any) -> Any:
        """The entries at a constant array of cells, (B, *cells.shape)."""
        places = np.asarray(cells, np.int64)
        starts = np.cumsum([0, *(p.shape[1] for p in self.parts)])
        holder = np.searchsorted(starts, places, "right") - 1
        holder = np.maximum(holder, 0)
        named = np.unique(holder)
        if len(named) == 0:
            return pick(self.parts[0], places)
        sizes = [self.parts[i].shape[1] for i in named]
        offset = np.zeros(len(self.parts), np.int64)
        offset[named] = np.cumsum([0, *sizes[:-1]]) - starts[named]
        joined = [self.parts[i] for i in named]
        storage = joined[0] if len(joined) == 1 else jnp.concatenate(joined, -1)
        return pick(storage, places + offset[holder])

    def largest(self, of: Any) -> Any:
        """The largest ``of(entry)``, (B,)."""
        tops = [jnp.max(of(p), -1) for p in self.parts if p.shape[1]]
        return jnp.max(jnp.stack(tops, -1), -1)


def pick(storage: Any, cells: Any) -> Any:
    """``storage[:, cells]`` for a constant array of cells."""
    cells = np.asarray(cells)
    if cells.ndim == 2 and cells.size:
        found = _in_a_row(storage, cells)
        if found is not None:
            return found
    return _pick(_Cells(cells), storage)


def _in_a_row(storage: Any, cells: Any) -> Any:
    """Messages at equal distances, or such in which every one comes twice, or the two of every pair change places."""
    count, width = cells.shape
    starts = cells[:, 0]
    if np.any(cells != starts[:, None] + np.arange(width)):
        return None
    if _evenly(starts, width):
        return _cut(storage, starts, width)
    if count % 2:
        return None
    first, second = starts[0::2], starts[1::2]
    if np.array_equal(first, second) and _evenly(first, width):
        once = _cut(storage, first, width)
        return jnp.broadcast_to(once[:, :, None], (*once.shape[:2], 2, width)).reshape(
            once.shape[0], count, width
        )
    swapped = np.stack([second, first], 1).reshape(-1)
    if _evenly(swapped, width):
        pairs = _cut(storage, swapped, width).reshape(storage.shape[0], count // 2, 2, width)
        return jnp.flip(pairs, 2).reshape(storage.shape[0], count, width)
    return None


def _evenly(starts: Any, width: int) -> bool:
    step = np.diff(starts)
    return len(step) == 0 or bool(step[0] >= width and np.all(step == step[0]))


def _cut(storage: Any, starts: Any, width: int) -> Any:
    """Messages of equal distance, (B, count, width)."""
    batch, count = storage.shape[0], len(starts)
    distance = int(starts[1] - starts[0]) if count > 1 else width
    first, last = int(starts[0]), int(starts[0]) + count * distance
    short = max(last - storage.shape[1], 0)  # what follows the last message
    whole = lax.slice_in_dim(storage, first, last - short, axis=1)
    if short:
        whole = jnp.concatenate([whole, jnp.zeros((batch, short), storage.dtype)], -1)
    return lax.slice_in_dim(whole.reshape(batch, count, distance), 0, width, axis=-1)


class _Cells:
    """A constant index array that may be a static argument: it is compared by identity."""

    def __init__(self, places: Any) -> None:
        self.places = np.asarray(places, np.int32)  # 64-bit indices do not survive every transformation


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _pick(cells: _Cells, storage: Any) -> Any:
    return storage.at[:, cells.places].get(mode="promise_in_bounds")


@_pick.defjvp
def _pick_jvp(cells: _Cells, primals: Any, tangents: Any) -> tuple[Any, Any]:
    return _pick(cells, primals[0]), _by_slices(tangents[0], cells.places)


def _by_slices(storage: Any, places: Any) -> Any:
    flat = np.asarray(places).reshape(-1)
    if len(flat) == 0:
        return jnp.zeros((storage.shape[0], *places.shape), storage.dtype)
    step = np.diff(flat)
    runs = np.split(flat, np.flatnonzero(step != 1) + 1)
    joined: list[Any] = []
    for run in runs:
        joined.append(lax.slice_in_dim(storage, int(run[0]), int(run[-1]) + 1, axis=1))
    return jnp.concatenate(joined, -1).reshape(storage.shape[0], *places.shape)


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
        merged = arithmetic.convolve(messages.at(step.left), messages.at(step.right))
        merged = lax.slice_in_dim(merged, 0, step.width, axis=-1)
        if _has_tables(step, tables):
            table, top = scaled(pick(extended, step.table))
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


def scaled(log_table: Any) -> tuple[Any, Any]:
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
            table, _ = scaled(pick(extended, step.table))
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
        parent = lax.slice_in_dim(widened(parent, needed, arithmetic.zero), 0, needed, axis=-1)
        state = place(step, arithmetic.correlate(parent, sibling), state)
    return state[0], state[2], state[3]
