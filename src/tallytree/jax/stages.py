"""Sums over pairs of variable and frequency, in stages whose inputs are stored; and batches in blocks of rows.

On the CPU XLA works out whatever is cheap to write anew in every loop that reads it; an exponential inside a loop over
pairs costs ten times the loop itself, and optimization barriers are gone before loops are fused. The operands of a
loop whose length the compiler does not know are stored, so a stage is such a loop, over as many frequencies as the
rows need. On CUDA devices a stage is a kernel, elsewhere one expression.

A kernel can be neither differentiated nor transposed by JAX; but K x is part of the solution of a linear system,

    [ I   0 ] [x]   [x]
    [ -K  I ] [y] = [0],

for which JAX takes a function that solves it and one that solves the transposed system, and differentiates through the
system itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

AT_ONCE = 8  # frequencies: one wide register
INTERPRETED = False  # kernels by Pallas' interpreter, which needs no device; for tests
_CELLS = (
    1 << 13
)  # variables in a block of rows: its arrays stay in a cache, and are not mapped anew every time

Stage = Callable[..., tuple[Any, ...]]
_array: Any = jax.ShapeDtypeStruct  # untyped in JAX


def has_sizes(*arrays: Any) -> bool:
    """Whether all axes have sizes; those of batches have none while `jax.export` traces a function for all of them."""
    return all(isinstance(size, int) for x in arrays for size in x.shape)


def on_cpu() -> bool:
    """Whether loops and small blocks are what the device likes."""
    return jax.default_backend() == "cpu"


def dispatched(kernel: Callable[[Any], Callable[..., Any]], plain: Callable[..., Any], *args: Any) -> Any:
    """``plain(*args)``; on a CUDA device what `kernel` takes from :mod:`.kernels`, where Pallas is installed."""
    if not has_sizes(*jax.tree.leaves(args)):
        return plain(*args)
    try:
        from . import kernels
    except ImportError:
        return plain(*args)
    if INTERPRETED:
        return kernel(kernels)(*args, interpret=True)
    return lax.platform_dependent(*args, cuda=kernel(kernels), default=plain)


def staged(
    stage: Stage, needed: Any, by_row: tuple[Any, ...], by_frequency: tuple[Any, ...], *, sums: bool
) -> Any:
    """``stage(*by_row, *by_frequency)``, whose answers are (B, M), or with `sums` sums over M. Not differentiable.

    Rows are in front everywhere; `by_frequency` has the frequencies on the last axis, a multiple of AT_ONCE, of which
    the first `needed` (B,) count: the others add nothing to sums, and answers about them may be 0.
    """
    if needed.shape[0] == 0:
        return stage(*by_row, *by_frequency)
    limit = jnp.max(needed).astype(jnp.uint32)  # places that cannot be negative are not looked at again
    zeros = tuple(jnp.zeros(a.shape, a.dtype) for a in jax.eval_shape(stage, *by_row, *by_frequency))

    def some(state: Any) -> Any:
        first, outputs = state
        found = stage(*by_row, *(lax.dynamic_slice_in_dim(x, first, AT_ONCE, -1) for x in by_frequency))
        if sums:
            return first + AT_ONCE, tuple(o + f for o, f in zip(outputs, found))
        moved = (lax.dynamic_update_slice_in_dim(o, f, first, -1) for o, f in zip(outputs, found))
        return first + AT_ONCE, tuple(moved)

    return lax.while_loop(lambda s: s[0] < limit, some, (jnp.zeros((), jnp.uint32), zeros))[1]


def rows_in_a_block(rows: int, n: int) -> int:
    """How many models are worked on at a time; all of them but on a CPU."""
    return min(rows, max(1, _CELLS // max(n, 1))) if on_cpu() and isinstance(rows, int) else rows


def solved(plain: Any, forth: Any, back: Any, v: Any, given: Any, shape: Any) -> Any:
    """``plain(given)``, computed by `forth` and transposed to `back`; v is what the map depends on.

    Tuples of matrices with rows in front: those of `given`, and answers of the given shape.
    """

    def system(state: Any) -> Any:
        x, y = state
        return x, jax.tree.map(jnp.subtract, y, plain(x))

    def solve(_: Any, right: Any) -> Any:
        x, y = right
        return x, plus(y, forth(x))

    def solve_transposed(_: Any, right: Any) -> Any:
        x, y = right
        return plus(x, back(y)), y

    # JAX transposes the system only if its whole right-hand side moves with whatever moves, zeros included; and the
    # right-hand side of the transposed system is what comes back to both parts of the solution.
    tied = jnp.where(False, lax.slice_in_dim(v, 0, 1, axis=1), 0.0)
    right = tuple(x + tied for x in given)
    ties = tuple(jnp.where(False, lax.slice_in_dim(x, 0, 1, axis=1), 0.0) for x in right)
    zeros = tuple(jnp.broadcast_to(x, shape) for x in ties)
    left, found = lax.custom_linear_solve(system, (right, zeros), solve, solve_transposed)
    return tuple(
        (1.0 + tied) * (y + jnp.where(False, lax.slice_in_dim(x, 0, 1, axis=1), 0.0))
        for x, y in zip(left, found)
    )


def plus(a: Any, b: Any) -> Any:
    """The sum of two tuples, member by member."""
    return tuple(x + y for x, y in zip(a, b))
