"""From the quick pass to the one that is always right, for the models that need it and no others.

Values: models without a certificate are gathered, a fixed number at a time, as often as there are any. Tangents: the
batch is cut into short pieces, and a piece is differentiated through the slow pass only if it holds such a model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .solution import Solution

Pass = Callable[[Any, Any], Solution]
Rungs = tuple[Pass, Pass]  # quick, right


def climb(rungs: Rungs, nu: Any, tables: Any) -> tuple[Solution, Any]:
    """Answers of the quick pass where it is certified, else of the other; and where, (B,). Not differentiable."""
    quick, right = rungs
    first = quick(nu, tables)
    certified = first.bound < jnp.inf
    if nu.shape[0] == 0:
        return first, certified
    found = lax.cond(
        jnp.all(certified),
        lambda first: first,
        lambda first: _patched(right, nu, tables, certified, first),
        first,
    )
    return Solution(*found), certified


def _patched(right: Pass, nu: Any, tables: Any, certified: Any, first: Solution) -> Solution:
    rows = nu.shape[0]
    block = _rows_at_once(rows, tables.shape[-1])
    order = lax.sort((certified, jnp.arange(rows, dtype=jnp.int32)), num_keys=1, is_stable=True)[1]
    order = jnp.concatenate([order, jnp.full((-rows % block,), rows, jnp.int32)])
    doubtful = jnp.sum(~certified, dtype=jnp.int32)

    def some(state: Any) -> Any:
        done, found = state
        which = lax.dynamic_slice_in_dim(order, done, block)
        inside = jnp.minimum(which, rows - 1)
        second = right(nu[inside], tables[inside])
        # A last block may hold certified models, too: the slow pass is right about them as well.
        return done + block, Solution(*(a.at[which].set(b, mode="drop") for a, b in zip(found, second)))

    start = jnp.zeros((), jnp.int32), first
    return Solution(*lax.while_loop(lambda state: state[0] < doubtful, some, start)[1])


def _rows_at_once(rows: int, width: int) -> int:
    """How many models the slow pass takes at a time: few on a CPU, many where every step costs a launch."""
    cells = 1 << (12 if jax.default_backend() == "cpu" else 17)
    return min(rows, max(4, cells // max(width, 1)))


def differential(rungs: Rungs, certified: Any, primals: Any, directions: Any) -> tuple[Any, Any]:
    """How messages and log-beliefs move along directions (d_nu, d_tables); linear in them, and differentiable again."""
    quick, right = rungs
    keep = certified[:, None]
    # What is not certified is kept out of the quick pass: its derivatives there may not even be numbers.
    safe = tuple(jnp.where(keep, x, 0.0) for x in primals)
    moved = _moved(quick, safe, tuple(jnp.where(keep, d, 0.0) for d in directions))
    if certified.shape[0] == 0:
        return moved
    rest = lax.cond(
        jnp.all(certified),
        lambda *_: tuple(jnp.zeros_like(x) for x in primals),
        lambda primals, directions: _in_pieces(right, certified, primals, directions),
        primals,
        directions,
    )
    return moved[0] + rest[0], moved[1] + rest[1]


def _moved(solve: Pass, primals: Any, directions: Any) -> tuple[Any, Any]:
    def wanted(nu: Any, tables: Any) -> tuple[Any, Any]:
        found = solve(nu, tables)
        return found.messages, found.log_beliefs

    moved: tuple[Any, Any] = jax.jvp(wanted, primals, directions)[1]
    return moved


def _in_pieces(right: Pass, certified: Any, primals: Any, directions: Any) -> tuple[Any, Any]:
    """Tangents of the slow pass for models without a certificate, 0 for all others."""
    rows = certified.shape[0]
    size = _rows_at_once(rows, primals[1].shape[-1])

    def cut(x: Any, fill: Any) -> Any:
        x = jnp.concatenate([x, jnp.full((-rows % size, *x.shape[1:]), fill, x.dtype)])
        return x.reshape(x.shape[0] // size, size, *x.shape[1:])

    @jax.checkpoint
    def slow(certified: Any, primals: Any, directions: Any) -> tuple[Any, Any]:
        directions = tuple(jnp.where(certified[:, None], 0.0, d) for d in directions)
        return _moved(right, primals, directions)

    def nothing(certified: Any, primals: Any, directions: Any) -> tuple[Any, Any]:
        return jnp.zeros_like(primals[0]), jnp.zeros_like(primals[1])

    def step(carry: None, item: Any) -> Any:
        return carry, lax.cond(jnp.all(item[0]), nothing, slow, *item)

    items = cut(certified, True), tuple(cut(x, 0.0) for x in primals), tuple(cut(x, 0.0) for x in directions)
    messages, beliefs = lax.scan(step, None, items)[1]
    return messages.reshape(-1, *messages.shape[2:])[:rows], beliefs.reshape(-1, *beliefs.shape[2:])[:rows]
