"""Sums over pairs of variable and frequency, in stages whose inputs are stored.

On the CPU XLA works out whatever is cheap to write anew in every loop that reads it; an exponential inside a loop over
pairs costs ten times the loop itself, and optimization barriers are gone before loops are fused. The operands of a
loop whose length the compiler does not know are stored, so a stage is such a loop: over blocks of rows that stay in
cache, and inside over as many frequencies as the rows of the block need. Elsewhere a stage is one expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

AT_ONCE = 8  # frequencies: one wide register
_PAIRS = 1 << 17  # of rows and variables in a block: their arrays fit a second-level cache

Stage = Callable[..., tuple[Any, ...]]


def staged(
    stage: Stage, needed: Any, by_row: tuple[Any, ...], by_frequency: tuple[Any, ...], *, sums: bool
) -> Any:
    """``stage(*by_row, *by_frequency)``, whose answers are (B, M), or with `sums` sums over M. Not differentiable.

    Rows are in front everywhere; `by_frequency` has the frequencies on the last axis, a multiple of AT_ONCE, of which
    the first `needed` (B,) count: the others add nothing to sums, and answers about them may be 0.
    """
    rows = by_row[0].shape[0]
    if jax.default_backend() != "cpu" or rows == 0:
        stored: Any = lax.optimization_barrier  # untyped in JAX
        return stage(*stored((*by_row, *by_frequency)))
    block = min(rows, max(1, _PAIRS // by_row[0][0].size))
    inputs = (*by_row, *by_frequency, needed)
    start = tuple(jnp.zeros((rows, *a.shape[1:]), a.dtype) for a in jax.eval_shape(stage, *inputs[:-1]))

    def one_block(state: Any) -> Any:
        number, outputs = state
        first = jnp.minimum(number * block, rows - block)
        *parts, limit = (lax.dynamic_slice_in_dim(x, first, block) for x in inputs)
        zeros = tuple(o[:block] for o in start)
        found = _some_at_once(stage, jnp.max(limit), parts[: len(by_row)], parts[len(by_row) :], zeros, sums)
        moved = (lax.dynamic_update_slice_in_dim(o, f, first, 0) for o, f in zip(outputs, found))
        return number + 1, tuple(moved)

    blocks = jnp.int32(-(-rows // block)) + (
        needed[0] < 0
    )  # the compiler does not know that this is never so
    return lax.while_loop(lambda s: s[0] < blocks, one_block, (jnp.zeros((), jnp.int32), start))[1]


def _some_at_once(stage: Stage, limit: Any, by_row: Any, by_frequency: Any, zeros: Any, sums: bool) -> Any:
    def some(state: Any) -> Any:
        first, outputs = state
        found = stage(*by_row, *(lax.dynamic_slice_in_dim(x, first, AT_ONCE, -1) for x in by_frequency))
        if sums:
            return first + AT_ONCE, tuple(o + f for o, f in zip(outputs, found))
        moved = (lax.dynamic_update_slice_in_dim(o, f, first, -1) for o, f in zip(outputs, found))
        return first + AT_ONCE, tuple(moved)

    return lax.while_loop(lambda s: s[0] < limit, some, (jnp.zeros((), jnp.int32), zeros))[1]
