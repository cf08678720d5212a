"""Blocks of a few variables in logarithms, one variable after another: two loops stand for the lowest levels of a tree.

    prefix_i = law of the count of the variables before i,        up = law of all of them
    down_i(c) = sum_j prefix_i(j) suffix_i(j + c),                suffix_{i-1}(j) = sum_c leaf_i(c) suffix_i(j + c)

Levels of a tree differ in shape, so each of them is compiled by itself; a loop is compiled once.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from .logarithmic import finite_or_zero, log_sum, log_total

FEWEST, MOST = 16, 64  # variables of a block, where a model has as many


def block_of(n: int) -> int:
    """Variables of a block of a model of n, a power of two: few levels are left to compile, and chains stay short."""
    return min(n, max(FEWEST, min(MOST, n // 8)))


def _beside(x: Any, *, up: bool) -> Any:
    """Every entry one place on, or back; -inf comes in."""
    end = jnp.full_like(x[..., :1], -jnp.inf)
    return jnp.concatenate([end, x[..., :-1]] if up else [x[..., 1:], end], -1)


def _either(off: Any, on: Any, leaf: Any) -> Any:
    """Both states of a variable, with its log-weights (..., 2)."""
    return log_total(jnp.stack([off + leaf[..., :1], on + leaf[..., 1:]], -2))


def _in_turn(leaves: Any, size: int) -> Any:
    """Variables of blocks of so many, the place in the block in front, (size, B, blocks, 2)."""
    blocks = leaves.reshape(leaves.shape[0], leaves.shape[1] // size, size, 2)
    return jnp.moveaxis(blocks, 2, 0)


def upward(leaves: Any, size: int) -> tuple[Any, Any]:
    """Laws of blocks (B, blocks, size + 1) from log-weights of variables (B, D, 2); and all prefixes."""
    turns = _in_turn(leaves, size)
    empty = jnp.full((*turns.shape[1:3], size + 1), -jnp.inf, leaves.dtype).at[..., 0].set(0.0)

    def step(law: Any, leaf: Any) -> tuple[Any, Any]:
        return _either(law, _beside(law, up=True), leaf), law

    return lax.scan(step, empty, turns)


def downward(down: Any, prefixes: Any, leaves: Any) -> Any:
    """Messages to the variables, (B, D, 2) up to a constant each, from those to the blocks, (B, blocks, size + 1)."""
    size = down.shape[-1] - 1
    # Only differences between entries count; small numbers round less.
    down = down - finite_or_zero(lax.stop_gradient(jnp.max(down, -1, keepdims=True)))

    def step(suffix: Any, item: Any) -> tuple[Any, Any]:
        prefix, leaf = item
        more = _beside(suffix, up=False)
        message = log_sum(jnp.stack([prefix + suffix, prefix + more], -2))
        return _either(suffix, more, leaf), message

    messages = lax.scan(step, down, (prefixes, _in_turn(leaves, size)), reverse=True)[1]
    return jnp.moveaxis(messages, 0, 2).reshape(leaves.shape)
