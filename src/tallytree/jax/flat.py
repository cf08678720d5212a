"""Both passes over one group of all variables: blocks of equal size are merged in pairs, level by level.

The number of variables is a power of two; models are padded with variables that are never on. In the arithmetics of
:mod:`.tree`: plain numbers under a tilt s, which serve where the certificate holds, and logarithms, which serve
everywhere.

    up_leaf = [1 - p, p],  p = sigmoid(nu + s);      up = up_left * up_right;      down_root(c) = f(c) e^{-s c} / Z
    down_left = correlate(down, up_right)
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .arithmetic import LOGARITHMS, PLAIN, Arithmetic, finite_or_zero
from .arrays import unit_roundoff
from .ladder import LARGEST_DOWN, Solution, doubtful_leaves, leaf_messages, log_leaves, log_weight_of_leaves
from .tilt import choose_tilt, decided, reachable, rounding_of_inputs
from .tree import scaled


def bucket(n: int) -> int:
    """The size to which n variables are padded: the next power of two."""
    return 1 << max(n - 1, 0).bit_length()


def upward(leaves: Any, merge: Any) -> list[Any]:
    """Messages of all levels, (B, blocks, size + 1), leaves first."""
    levels = [leaves]
    while levels[-1].shape[-2] > 1:
        levels.append(merge(*(lax.slice_in_dim(levels[-1], first, None, 2, -2) for first in (0, 1))))
    return levels


def downward(root: Any, levels: list[Any], correlate_with: Any) -> Any:
    """(B, D, 2) messages to the leaves from the message to the root, (B, 1, D + 1)."""
    down = root
    for below in reversed(levels[:-1]):
        blocks, width = below.shape[-2:]
        siblings = jnp.flip(below.reshape(*below.shape[:-2], blocks // 2, 2, width), -2)
        pair = correlate_with(down[..., None, :], siblings)
        down = pair.reshape(*below.shape[:-1], pair.shape[-1])
    return down


def _solve(arithmetic: Arithmetic, nu: Any, log_f: Any) -> tuple[Solution, Any]:
    """All answers, and the law of the count of the variables without the table, (B, D + 1)."""
    plain = arithmetic is PLAIN
    leaves = jnp.stack([jax.nn.sigmoid(-nu), jax.nn.sigmoid(nu)], -1) if plain else log_leaves(nu)
    levels = upward(leaves, arithmetic.convolve)
    law = jnp.squeeze(levels[-1], -2)
    table, top = scaled(log_f)
    f = arithmetic.from_log(table)
    log_mean = arithmetic.total(arithmetic.times(law, f))
    base = finite_or_zero(log_mean)[..., None]
    root = arithmetic.divide(f, base)
    down = downward(root[..., None, :], levels, arithmetic.correlate)
    messages = jnp.where((log_mean == -jnp.inf)[..., None], 0.0, leaf_messages(arithmetic.log(down)))
    rounding: Any = log_f.shape[-1]
    if plain:
        sound = (log_mean > -575.0) & (jnp.max(root, -1) < LARGEST_DOWN) & ~doubtful_leaves(nu, down)
    else:
        sound = ~jnp.isnan(log_mean)
        size = 1.0 + sum(jnp.max(finite_or_zero(jnp.abs(x)), -1) for x in (law, root))
        rounding = rounding + len(levels) * size
    bound = jnp.where(sound, 8.0 * unit_roundoff(nu.dtype) * rounding, jnp.inf)
    log_beliefs = arithmetic.log(law) + table - base
    return Solution(log_mean + top + log_weight_of_leaves(nu), messages, log_beliefs, bound), law


def _solve_tilted(nu: Any, log_f: Any) -> tuple[Solution, Any]:
    tilt = choose_tilt(nu, log_f)
    width = log_f.shape[-1]
    found, law = _solve(PLAIN, nu + tilt, log_f - tilt * jnp.arange(width, dtype=nu.dtype))
    in_table = 4.0 * unit_roundoff(nu.dtype) * jnp.abs(tilt[..., 0]) * width
    return Solution(
        found.log_partition + (decided(nu)[0] * tilt)[..., 0],
        found.messages + tilt,
        found.log_beliefs,
        found.bound + rounding_of_inputs(nu, log_f, tilt) + in_table,
    ), law


def solve_plain(nu: Any, log_f: Any) -> Solution:
    """In plain numbers under a tilt, with a certificate."""
    return _solve_tilted(nu, log_f)[0]


def solve_plain_in_tails(nu: Any, log_f: Any) -> Solution:
    """As `solve_plain`, certified only if no count that can occur has underflowed."""
    found, law = _solve_tilted(nu, log_f)
    occurs = reachable(nu, jnp.arange(log_f.shape[-1])) & (log_f > -jnp.inf)
    lost = jnp.any(occurs & ~(law > 1e-290), -1)
    return found._replace(bound=jnp.where(lost, jnp.inf, found.bound))


def solve_logarithms(nu: Any, log_f: Any) -> Solution:
    """In logarithms: slower, and right whatever the numbers are."""
    found = _solve(LOGARITHMS, nu, log_f)[0]
    untilted = jnp.zeros_like(nu, shape=(*nu.shape[:-1], 1))
    return found._replace(bound=found.bound + rounding_of_inputs(nu, log_f, untilted))
