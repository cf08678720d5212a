"""Linear maps by kernels, for derivatives of any order.

A kernel can be neither differentiated nor transposed by JAX; but K x is part of the solution of a linear system,

    [ I   0 ] [x]   [x]
    [ -K  I ] [y] = [0],

for which JAX takes a function that solves it and one that solves the transposed system, and differentiates through the
system itself.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax


def solved(plain: Any, forth: Any, back: Any, v: Any, given: Any, shape: Any) -> Any:
    """``plain(given)``, computed by `forth` and transposed to `back`; v is what the map depends on.

    Tuples of matrices with rows in front: those of `given`, and answers of the given shape.
    """

    def system(state: Any) -> Any:
        x, y = state
        return x, _less(y, plain(x))

    def solve(_: Any, right: Any) -> Any:
        x, y = right
        return x, plus(y, forth(x))

    def solve_transposed(_: Any, right: Any) -> Any:
        x, y = right
        return plus(x, back(y)), y

    # JAX transposes the system only if its whole right-hand side moves with whatever moves, zeros included; and the
    # right-hand side of the transposed system is what comes back to both parts of the solution.
    tied = jnp.where(False, v[:, :1], 0.0)
    right = tuple(x + tied for x in given)
    zeros = tuple(jnp.broadcast_to(jnp.where(False, x[:, :1], 0.0), shape) for x in right)
    left, found = lax.custom_linear_solve(system, (right, zeros), solve, solve_transposed)
    return tuple((1.0 + tied) * (y + jnp.where(False, x[:, :1], 0.0)) for x, y in zip(left, found))


def plus(a: Any, b: Any) -> Any:
    """The sum of two tuples, member by member."""
    return tuple(x + y for x, y in zip(a, b))


def _less(a: Any, b: Any) -> Any:
    return tuple(x - y for x, y in zip(a, b))
