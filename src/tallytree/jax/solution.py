"""What a pass returns, and what the passes share: leaves, and the last step to a leaf."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..engine.far import FAR


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
    return jnp.where(jnp.abs(nu) > FAR, jnp.where(nu > 0.0, jnp.inf, -jnp.inf), nu)


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
    off, on = log_down[..., 0], log_down[..., 1]
    nothing = (on == -jnp.inf) & (off == -jnp.inf)
    return jnp.where(nothing, 0.0, on - jnp.where(nothing, 0.0, off))


def doubtful_leaves(nu: Any, down: Any) -> Any:
    """Whether a plain down entry is so small that it may have underflowed, (B,)."""
    return jnp.any(jnp.isfinite(nu) & ~(jnp.min(down, -1) > SMALLEST_DOWN), -1)
