"""From the quick pass to the one that is always right, for the models that need it and no others.

Values: models without a certificate are gathered, a fixed number at a time, as often as there are any. Tangents: the
batch is cut into short pieces, and a piece is differentiated through the slow pass only if it holds such a model.
Also what the passes share: what they return, leaves, and the last step to a leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from ..engine.masks import MASK
from .stages import on_cpu, rows_in_a_block


class Solution(NamedTuple):
    """Answers for a batch of B models, packed tables of T entries."""

    log_partition: Any  # (B,) log Z
    messages: Any  # (B, D) what the tables add to the log-odds
    log_beliefs: Any  # (B, T) log-probabilities of the counts; None where they were not asked for
    bound: Any  # (B,) bound on the error of messages and log Z; inf: nothing is certified


# Plain numbers reach down to 1e-308. If no down message exceeds 1e80 while <up, down> = 1, what underflows is worth
# less than 1e-220 of Z, and a leaf's two down entries above 1e-100 are right to the last digits.
LARGEST_DOWN = 1e80
SMALLEST_DOWN = 1e-100


def near(nu: Any) -> Any:
    """Log-odds with far ones infinite."""
    return jnp.where(jnp.abs(nu) > MASK, jnp.where(nu > 0.0, jnp.inf, -jnp.inf), nu)


def log_leaves(nu: Any) -> Any:
    """(..., D, 2) log-probabilities of off and on; exact at infinite log-odds, where derivatives vanish."""
    finite = jnp.isfinite(nu)
    x = jnp.where(finite, nu, 0.0)
    on = jnp.where(finite, -jax.nn.softplus(-x), jnp.where(nu > 0, 0.0, -jnp.inf))
    off = jnp.where(finite, -jax.nn.softplus(x), jnp.where(nu > 0, -jnp.inf, 0.0))
    keep = jnp.where(jnp.isnan(nu), nu, 0.0)
    return jnp.stack([off + keep, on + keep], -1)


def log_weight_of_leaves(nu: Any) -> Any:
    """Sum of log(1 + e^nu); forced variables count with weight one."""
    finite = jnp.isfinite(nu)
    return jnp.sum(jnp.where(finite, jax.nn.softplus(jnp.where(finite, nu, 0.0)), 0.0), -1)


def leaf_messages(log_down: Any) -> Any:
    """``log d(1) / d(0)``; 0 where neither is possible."""
    off, on = (lax.index_in_dim(log_down, y, -1, keepdims=False) for y in (0, 1))
    nothing = (on == -jnp.inf) & (off == -jnp.inf)
    return jnp.where(nothing, 0.0, on - jnp.where(nothing, 0.0, off))


def doubtful_leaves(nu: Any, down: Any) -> Any:
    """Whether a plain down entry is so small that it may have underflowed, (B,)."""
    return jnp.any(jnp.isfinite(nu) & ~(jnp.min(down, -1) > SMALLEST_DOWN), -1)


Pass = Callable[[Any, Any], Solution]
Rungs = tuple[Pass, Pass | None]  # quick, and right; None if the first is right whatever the numbers are


@custom_vmap
def all_of(certified: Any) -> Any:
    """Whether all models have a certificate, those on mapped axes included.

    A condition that differs along a mapped axis becomes a choice after both branches, which JAX cannot transpose.
    """
    return jnp.all(certified)


@all_of.def_vmap
def _all_of_all(size: int, mapped: Any, certified: Any) -> tuple[Any, bool]:
    return all_of(certified), False


def lean(rungs: Rungs) -> Rungs:
    """The same passes without log-beliefs: what only those need is never computed."""

    def without(solve: Pass, nu: Any, tables: Any) -> Solution:
        return solve(nu, tables)._replace(log_beliefs=None)

    quick, right = rungs
    return partial(without, quick), right and partial(without, right)


def climb(rungs: Rungs, nu: Any, tables: Any) -> tuple[Solution, Any]:
    """Answers of the quick pass where it is certified, else of the other; and where, (B,). Not differentiable."""
    quick, right = rungs
    rows = nu.shape[0]
    block = rows_in_a_block(rows, nu.shape[-1])
    if tables.shape[0] == rows:
        first = _by_pieces(quick, block, nu, tables)
    else:  # tables that all models share are written out for a block at a time
        first = _by_pieces(lambda nu: quick(nu, _repeated(tables, nu.shape[0])), block, nu)
    certified = first.bound < jnp.inf
    if rows == 0 or right is None:
        return first, certified
    return _patched(right, nu, tables, certified, first), certified


def _patched(right: Pass, nu: Any, tables: Any, certified: Any, first: Solution) -> Any:
    """`first` with what the slow pass says about the models without a certificate; a loop that may never run.

    Of a single model, or a few, the slow pass is a branch: nothing in it would depend on the turn of a loop, so that a
    compiler would move all of it out of the loop and run it always.
    """
    rows = nu.shape[0]
    block = _rows_at_once(rows, tables.shape[-1])
    if block == rows:
        shared = _repeated(tables, rows)
        return lax.cond(jnp.all(certified), lambda *_: first, right, nu, shared)
    places = jnp.arange(rows, dtype=jnp.int32)

    def some(state: Any) -> Any:
        settled, found = state
        order = lax.sort((settled, places), num_keys=1, is_stable=True)[1]
        which = order[
            jnp.minimum(np.arange(block), rows - 1)
        ]  # a batch of unknown size may be shorter than a block
        second = right(nu[which], tables[which] if tables.shape[0] == rows else _repeated(tables, block))
        # A last block may hold certified models, too: the slow pass is right about them as well.
        put = jax.tree.map(lambda a, b: a.at[which].set(b), found, second)
        return settled.at[which].set(True), put

    return lax.while_loop(lambda state: ~jnp.all(state[0]), some, (certified, first))[1]


def _repeated(tables: Any, rows: int) -> Any:
    """Tables that models may share, for so many models."""
    return jnp.broadcast_to(tables, (rows, tables.shape[-1]))


def _rows_at_once(rows: int, width: int) -> int:
    """How many models the slow pass takes at a time: few on a CPU, many where every step costs a launch."""
    cells = 1 << (12 if on_cpu() else 17)
    most = max(4, cells // max(width, 1))
    return min(rows, most) if isinstance(rows, int) else most


def differential(rungs: Rungs, certified: Any, primals: Any, directions: Any) -> Any:
    """How messages and log-beliefs move along directions (d_nu, d_tables); linear in them, and differentiable again.

    What does not move has None for its direction.
    """
    quick, right = rungs
    rows = certified.shape[0]
    primals, directions = jax.tree.map(partial(_repeated, rows=rows), (primals, directions))
    if right is None:
        certified = jnp.ones_like(certified)
    keep = certified[:, None]
    # What is not certified is kept out of the quick pass: its derivatives there may not even be numbers.
    safe = tuple(jnp.where(keep, x, 0.0) for x in primals)
    directions_there = jax.tree.map(lambda d: jnp.where(keep, d, 0.0), directions)
    block = rows_in_a_block(rows, primals[0].shape[-1])
    tangents = partial(_moved, quick)
    moved = _by_pieces(tangents if block == rows else jax.checkpoint(tangents), block, safe, directions_there)
    if rows == 0 or right is None:
        return moved
    rest = lax.cond(
        all_of(certified),
        lambda *_: jax.tree.map(jnp.zeros_like, moved),
        lambda primals, directions: _in_pieces(right, certified, primals, directions),
        primals,
        directions,
    )
    return jax.tree.map(jnp.add, moved, rest)


def _moved(solve: Pass, primals: Any, directions: Any) -> Any:
    moving = [i for i, d in enumerate(directions) if d is not None]

    def wanted(*some: Any) -> tuple[Any, Any]:
        whole = list(primals)
        for i, x in zip(moving, some):
            whole[i] = x
        found = solve(*whole)
        return found.messages, found.log_beliefs

    given, along = ([x[i] for i in moving] for x in (primals, directions))
    return jax.jvp(wanted, given, along)[1]


def _in_pieces(right: Pass, certified: Any, primals: Any, directions: Any) -> Any:
    """Tangents of the slow pass for models without a certificate, 0 for all others."""

    def slow(primals: Any, directions: Any, certified: Any) -> Any:
        directions = jax.tree.map(lambda d: jnp.where(certified[:, None], 0.0, d), directions)
        return _moved(right, primals, directions)

    def nothing(*given: Any) -> Any:
        return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(slow, *given))

    def piece(primals: Any, directions: Any, certified: Any) -> Any:
        return lax.cond(all_of(certified), nothing, jax.checkpoint(slow), primals, directions, certified)

    rows = certified.shape[0]
    size = _rows_at_once(rows, primals[1].shape[-1]) if isinstance(rows, int) else rows
    return _by_pieces(jax.checkpoint(piece), size, primals, directions, certified)


def _by_pieces(piece: Callable[..., Any], size: int, *arrays: Any) -> Any:
    """`piece` of so many rows at a time."""
    rows = jax.tree.leaves(arrays)[0].shape[0]
    if size == rows:
        return piece(*arrays)

    def cut(x: Any) -> Any:
        x = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (-rows % size, *x.shape[1:]))])
        return x.reshape(x.shape[0] // size, size, *x.shape[1:])

    found = lax.scan(lambda _, item: (None, piece(*item)), None, jax.tree.map(cut, arrays))[1]
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * size, *x.shape[2:])[:rows], found)
