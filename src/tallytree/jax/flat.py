"""Both passes over one group of all variables: blocks of equal size are merged in pairs, level by level.

The number of variables is a power of two; models are padded with variables that are never on. With a tilt s

    up_leaf = [1 - p, p],  p = sigmoid(nu + s);      up = up_left * up_right;      down_root(c) = f(c) e^{-s c} / Z
    down_left = correlate(down, up_right)

Plain numbers serve where the certificate holds, logarithms everywhere. In logarithms blocks of a few variables are
chains, one variable after another: two loops stand for the lowest levels, each of which would be compiled by itself.

    prefix_i = law of the count of the variables before i,        up = law of all of them
    down_i(c) = sum_j prefix_i(j) suffix_i(j + c),                suffix_{i-1}(j) = sum_c leaf_i(c) suffix_i(j + c)
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .convolution import convolve, correlate
from .ladder import LARGEST_DOWN, Solution, doubtful_leaves, leaf_messages, log_leaves, log_weight_of_leaves
from .logarithms import finite_or_zero, log_convolve, log_correlate, log_sum, log_total, safe_log
from .precision import unit_roundoff
from .tilt import choose_tilt, decided, reachable


def bucket(n: int) -> int:
    """The size to which n variables are padded: the next power of two."""
    return 1 << max(n - 1, 0).bit_length()


def upward(leaves: Any, merge: Any) -> list[Any]:
    """Messages of all levels, (B, blocks, size + 1), leaves first."""
    levels = [leaves]
    while levels[-1].shape[-2] > 1:
        levels.append(merge(levels[-1][..., 0::2, :], levels[-1][..., 1::2, :]))
    return levels


def downward(root: Any, levels: list[Any], correlate_with: Any) -> Any:
    """(B, D, 2) messages to the leaves from the message to the root, (B, 1, D + 1)."""
    down = root
    for below in reversed(levels[:-1]):
        blocks, width = below.shape[-2:]
        siblings = below.reshape(*below.shape[:-2], blocks // 2, 2, width)[..., ::-1, :]
        pair = correlate_with(down[..., None, :], siblings)
        down = pair.reshape(*below.shape[:-1], pair.shape[-1])
    return down


def plain_levels(nu: Any, log_f: Any) -> tuple[list[Any], Any, Any]:
    """Upward messages in plain numbers under a tilt, the tilted log-table, and the tilt."""
    tilt = choose_tilt(nu, log_f)
    leaves = jnp.stack([jax.nn.sigmoid(-(nu + tilt)), jax.nn.sigmoid(nu + tilt)], -1)
    counts = jnp.arange(log_f.shape[-1], dtype=nu.dtype)
    return upward(leaves, convolve), log_f - tilt * counts, tilt


def solve_plain(nu: Any, log_f: Any) -> Solution:
    """In plain numbers, with a certificate."""
    return _solve_plain(nu, log_f)[0]


def _solve_plain(nu: Any, log_f: Any) -> tuple[Solution, Any]:
    """The solution, and the law of the count of the tilted variables, (B, D + 1)."""
    levels, tilted, tilt = plain_levels(nu, log_f)
    root = levels[-1][..., 0, :]
    top = finite_or_zero(lax.stop_gradient(jnp.max(tilted, -1, keepdims=True)))
    f = jnp.exp(tilted - top)
    z = jnp.sum(root * f, -1)
    sound = z > 1e-250
    weighted = f / jnp.where(sound, z, 1.0)[..., None]
    down = downward(weighted[..., None, :], levels, correlate)
    messages = leaf_messages(safe_log(down)) + tilt
    log_z = safe_log(z) + top[..., 0] + log_weight_of_tilted(nu, tilt)
    beliefs = safe_log(root) + tilted - top - safe_log(z)[..., None]
    bound = _bound(nu, log_f, tilt)
    sound = sound & (jnp.max(weighted, -1) < LARGEST_DOWN) & ~doubtful_leaves(nu, down) & jnp.isfinite(log_z)
    return Solution(log_z, messages, beliefs, jnp.where(sound, bound, jnp.inf)), root


def solve_plain_in_tails(nu: Any, log_f: Any) -> Solution:
    """As `solve_plain`, certified only if no count that can occur has underflowed."""
    found, law = _solve_plain(nu, log_f)
    occurs = reachable(nu, jnp.arange(log_f.shape[-1])) & (log_f > -jnp.inf)
    lost = jnp.any(occurs & ~(law > 1e-290), -1)
    return found._replace(bound=jnp.where(lost, jnp.inf, found.bound))


@jax.custom_jvp
def sigmoid(x: Any) -> Any:
    """``1 / (1 + e^-x)`` by the exponential of `log_weight_of_tilted`; exact at infinities, with derivative 0."""
    small = jnp.exp(-jnp.abs(x))
    return jnp.where(x < 0.0, small, 1.0) / (1.0 + small)


@sigmoid.defjvp
def _sigmoid_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    p = sigmoid(*primals)
    return p, p * (1.0 - p) * tangents[0]


def log_weight_of_tilted(nu: Any, tilt: Any) -> Any:
    """The sum of ``log(1 + e^(nu + s))``, plus s per forced variable, (B,), a constant to derivatives.

    One logarithm serves for the product of 32 factors ``1 + e^-|nu + s|``, which lie between 1 and 2.
    """
    nu = lax.stop_gradient(nu)
    x = nu + tilt
    forced, _ = decided(nu)
    larger = jnp.sum(jnp.where(jnp.isfinite(nu), jnp.maximum(x, 0.0), 0.0), -1)
    factors = 1.0 + jnp.exp(-jnp.abs(x))
    many = min(32, x.shape[-1])
    products = jnp.prod(factors.reshape(*x.shape[:-1], many, x.shape[-1] // many), -2)
    return larger + jnp.sum(jnp.log(products), -1) + (forced * tilt)[..., 0]


def _bound(nu: Any, log_f: Any, tilt: Any) -> Any:
    """A sum of m positive terms is off by at most m units of round-off; log-odds and tables by one of their size."""
    table = jnp.abs(tilt[..., 0]) * log_f.shape[-1]
    return rounding_of_inputs(nu, log_f, tilt) + unit_roundoff(nu.dtype) * (
        8.0 * log_f.shape[-1] + 4.0 * table
    )


def rounding_of_inputs(nu: Any, log_f: Any, tilt: Any) -> Any:
    """What it costs that log-odds and log-tables are rounded when they are tilted, (B,)."""
    size = 1.0 + jnp.abs(tilt[..., 0]) + jnp.max(finite_or_zero(jnp.abs(nu)), -1, initial=0.0)
    return unit_roundoff(nu.dtype) * (8.0 * size + 4.0 * jnp.max(finite_or_zero(jnp.abs(log_f)), -1))


def solve_logarithms(nu: Any, log_f: Any) -> Solution:
    """In logarithms: slower, and right whatever the numbers are."""
    leaves = log_leaves(nu)
    block = chain_length(nu.shape[-1])
    laws, prefixes = chain_upward(leaves, block)
    levels = upward(laws, log_convolve)
    root = levels[-1][..., 0, :]
    log_mean = log_sum(root + log_f)
    possible = log_mean > -jnp.inf
    base = jnp.where(possible, log_mean, 0.0)[..., None]
    to_blocks = downward((log_f - base)[..., None, :], levels, log_correlate)
    down = chain_downward(to_blocks, prefixes, leaves)
    messages = jnp.where(possible[..., None] | jnp.isnan(log_mean)[..., None], leaf_messages(down), 0.0)
    size = 1.0 + sum(jnp.max(finite_or_zero(jnp.abs(x)), -1) for x in (root, log_f - base))
    in_blocks = 1.0 + jnp.max(finite_or_zero(jnp.abs(laws)), (-1, -2)) + _spread(to_blocks)
    bound = 8.0 * unit_roundoff(nu.dtype) * (len(levels) * size + block * in_blocks + log_f.shape[-1])
    bound = bound + rounding_of_inputs(nu, log_f, jnp.zeros_like(nu, shape=(*nu.shape[:-1], 1)))
    bound = jnp.where(jnp.isnan(log_mean), jnp.inf, bound)
    return Solution(log_mean + log_weight_of_leaves(nu), messages, root + log_f - base, bound)


def _spread(log_messages: Any) -> Any:
    """The largest difference of two possible entries of one message, (B,)."""
    top = jnp.max(log_messages, -1)
    least = jnp.min(jnp.where(log_messages > -jnp.inf, log_messages, jnp.inf), -1)
    return jnp.max(finite_or_zero(top) - finite_or_zero(least), -1)


_SHORTEST_CHAIN, _LONGEST_CHAIN = 16, 64  # variables of a block, where a model has as many


def chain_length(n: int) -> int:
    """Variables of a block of a model of n, a power of two: few levels are left to compile, and chains stay short."""
    return min(n, max(_SHORTEST_CHAIN, min(_LONGEST_CHAIN, n // 8)))


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


def chain_upward(leaves: Any, size: int) -> tuple[Any, Any]:
    """Laws of blocks (B, blocks, size + 1) from log-weights of variables (B, D, 2); and all prefixes."""
    turns = _in_turn(leaves, size)
    empty = jnp.full((*turns.shape[1:3], size + 1), -jnp.inf, leaves.dtype).at[..., 0].set(0.0)

    def step(law: Any, leaf: Any) -> tuple[Any, Any]:
        return _either(law, _beside(law, up=True), leaf), law

    return lax.scan(step, empty, turns)


def chain_downward(down: Any, prefixes: Any, leaves: Any) -> Any:
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
