"""From the counts of groups down to configurations: exact joint draws, and the most probable state.

Given the count c of a node, its left child has count j with weight ``up_left(j) up_right(c - j)``. A draw takes j with
that probability (largest of the log-weights with Gumbel noise), the mode takes the largest itself on max-plus messages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import flat, nested
from .cells import Messages
from .core import Structure
from .logarithmic import log_convolve, max_convolve
from .nested import LOGARITHMS, MAXIMUM
from .solution import log_leaves

Choose = Callable[
    [Any, int], Any
]  # log-weights (..., m) and the number of the step to the index that is taken


def draw(structure: Structure, key: Any, nu: Any, tables: Any) -> tuple[Any, Any]:
    """One configuration (B, D) per model, and the value of the model, (B,): -inf or NaN where there is none."""
    ups, value = _upward(structure, nu, tables, maximum=False)

    def choose(log_weights: Any, step: int) -> Any:
        noise = _gumbel(jax.random.fold_in(key, step), log_weights)
        return _largest(jnp.where(log_weights == -jnp.inf, -jnp.inf, log_weights + noise), step)

    return _descend(structure, nu, ups, choose), value


def _gumbel(key: Any, like: Any) -> Any:
    """Gumbel noise with 53 or 23 random bits, drawn as 32-bit words: 64-bit words need the caller's flag."""
    high, low = jax.random.bits(key, (2, *like.shape), jnp.uint32).astype(like.dtype)
    if like.dtype == jnp.float32:
        uniform = (jnp.floor(high / 512.0) + 0.5) * 2.0**-23
    else:
        uniform = (jnp.floor(high / 64.0) * 2.0**27 + jnp.floor(low / 32.0) + 0.5) * 2.0**-53
    return -jnp.log(-jnp.log(uniform))


def best(structure: Structure, nu: Any, tables: Any) -> tuple[Any, Any]:
    """A most probable configuration (B, D) per model, and its value as for `draw`."""
    ups, value = _upward(structure, nu, tables, maximum=True)
    return _descend(structure, nu, ups, _largest), value


def _largest(log_weights: Any, step: int) -> Any:
    # The place of the largest, by comparison: a 64-bit argmax cannot be lowered unless the caller's flag is on.
    places = jnp.arange(log_weights.shape[-1], dtype=jnp.int32)
    first = jnp.where(log_weights == jnp.max(log_weights, -1, keepdims=True), places, places[-1])
    return jnp.min(first, -1)


def _upward(structure: Structure, nu: Any, tables: Any, *, maximum: bool) -> tuple[Any, Any]:
    """Upward messages in logarithms, of a flat model by levels, the root's times its table; and what they come to."""
    if structure.tree is None:
        levels = flat.upward(log_leaves(nu), max_convolve if maximum else log_convolve)
        root = levels[-1] + tables[:, None, :]
        return [*levels[:-1], root], jnp.max(root, (-1, -2))
    schedule = nested.schedule_of(structure.tree)
    up = nested.upward(schedule, MAXIMUM if maximum else LOGARITHMS, log_leaves(nu), tables)
    return up.messages, jnp.where(jnp.any(jnp.isnan(nu), -1), jnp.nan, up.log_mean)


def _descend(structure: Structure, nu: Any, ups: Any, choose: Choose) -> Any:
    if structure.tree is None:
        return _descend_levels(ups, choose)
    return _descend_schedule(structure, nu, ups, choose)


def _split(left: Any, right: Any, counts: Any, choose: Choose, step: int) -> tuple[Any, Any]:
    """Counts of the two children, given those of their parents, (B, nodes)."""
    j = jnp.arange(left.shape[-1], dtype=jnp.int32)
    other = counts[..., None] - j
    inside = (other >= 0) & (other < right.shape[-1])
    weights = left + jnp.take_along_axis(right, jnp.clip(other, 0, right.shape[-1] - 1), -1)
    taken = choose(jnp.where(inside, weights, -jnp.inf), step)
    return taken, counts - taken


def _descend_levels(levels: list[Any], choose: Choose) -> Any:
    counts = choose(levels[-1], 0)
    for step, below in enumerate(reversed(levels[:-1]), 1):
        left, right = _split(below[..., 0::2, :], below[..., 1::2, :], counts, choose, step)
        counts = jnp.stack([left, right], -1).reshape(*below.shape[:-1])
    return counts


def _descend_schedule(structure: Structure, nu: Any, messages: Messages, choose: Choose) -> Any:
    assert structure.tree is not None
    schedule, program = nested.schedule_of(structure.tree), structure.tree.program
    n = program.n_leaves
    counts = jnp.zeros((nu.shape[0], program.n_nodes), jnp.int32)
    free = np.flatnonzero(program.parent[:n] < 0).astype(np.int32)
    if len(free):
        counts = counts.at[:, free].set(choose(log_leaves(nu[:, free]), 0))
    roots = schedule.roots
    if len(roots.nodes):
        allowed = np.asarray(roots.own_cells) > 0
        own = jnp.where(allowed, messages.at(roots.own_cells), -jnp.inf)
        counts = counts.at[:, roots.nodes].set(choose(own, 1))
    for number, step in enumerate(reversed(schedule.up), 2):
        left, right = messages.at(step.left), messages.at(step.right)
        a, b = _split(left, right, counts[:, step.nodes], choose, number)
        counts = counts.at[:, program.left[step.nodes - n]].set(a)
        counts = counts.at[:, program.right[step.nodes - n]].set(b)
    return counts[:, :n]


def many(structure: Structure, draws: int, key: Any, nu: Any, tables: Any) -> tuple[Any, Any]:
    """`draws` configurations per model, (draws, B, D), and values as for `draw`, (draws, B)."""
    keys = jax.random.split(key, draws)
    return jax.vmap(partial(draw, structure), (0, None, None))(keys, nu, tables)
