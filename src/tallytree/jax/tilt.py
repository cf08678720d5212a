"""The tilt of a flat model: log-odds move by s, the table by -s c, and the model stays what it is.

Under the right tilt the variables alone count about as many as the posterior, so that plain numbers do not underflow
where the answer lives. The search is a heuristic in single precision: the certificate of the pass, not the search,
decides.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .arithmetic import finite_or_zero
from .arrays import unit_roundoff
from .stages import plus

_STEPS = 12
_CLOSE = (
    2.0  # standard deviations between the tilted mean and its target; one more step leaves hundredths of one
)
_LONGEST_STEP = 8.0  # nats; the curvature is no guide further out


def decided(nu: Any) -> tuple[Any, ...]:
    """How many variables are on whatever happens, and how many can still move, (B, 1) each."""
    ones = tuple(x.astype(nu.dtype) for x in (nu == jnp.inf, jnp.isfinite(nu)))
    zero = np.zeros((), nu.dtype)
    return tuple(x[..., None] for x in lax.reduce(ones, (zero, zero), plus, (nu.ndim - 1,)))


def reachable(nu: Any, counts: Any) -> Any:
    """Whether so many variables can be on, (B, counts)."""
    forced, possible = decided(nu)
    return (counts >= forced) & (counts <= forced + possible)


def choose_tilt(nu: Any, log_f: Any) -> Any:
    """Tilts (B, 1) for log-odds (B, D) and log-tables (B, D + 1).

    Newton steps towards the fixed point where the tilted mean equals the posterior mean of the count, the law of the
    count being taken as normal with the tilted mean and variance. Steps are taken in the log-odds of the mean share
    of variables, which move with the tilt at a nearly constant rate.
    """
    nu, log_f = lax.stop_gradient(nu), lax.stop_gradient(log_f)
    near = jnp.isfinite(nu)
    counts = jnp.arange(log_f.shape[-1], dtype=nu.dtype)
    forced, possible = decided(nu)
    # A count beyond the variables that can still move is out of reach, whatever its table says.
    log_f = jnp.where(reachable(nu, counts), log_f, -jnp.inf).astype(jnp.float32)
    finite = jnp.where(near, nu, 0.0).astype(jnp.float32)

    def wide_sum(which: Any, x: Any) -> Any:
        # What is widened before it is selected is widened where it is computed, not in the sum.
        return jnp.sum(jnp.where(which, x.astype(nu.dtype), 0.0), -1, keepdims=True)

    def target(mean: Any, variance: Any, tilt: Any) -> Any:
        away = (counts - mean).astype(jnp.float32)
        rate, curvature = (x.astype(jnp.float32) for x in (tilt, -0.5 / variance))
        score = log_f + away * (curvature * away - rate)
        top = jnp.max(score, -1, keepdims=True)
        weight = jnp.exp(score - jnp.where(jnp.isfinite(top), top, 0.0))
        total, moment = (wide_sum(score > -jnp.inf, x) for x in (weight, weight * away))
        return mean + jnp.where(total > 0.0, moment / jnp.where(total > 0.0, total, 1.0), 0.0)

    def odds(free: Any) -> Any:
        share = jnp.clip(free / jnp.maximum(possible, 1.0), 1e-12, 1.0 - 1e-12)
        return share / (1.0 - share)

    def step(state: Any) -> Any:
        number, tilt, _ = state
        p = jax.nn.sigmoid(finite + tilt.astype(jnp.float32))
        mean, variance = (wide_sum(near, x) for x in (p, p * (1.0 - p)))
        mean, variance = mean + forced, variance + 1e-3
        # Where all or none are wanted the best tilt is infinite; half a variable less serves as well.
        wanted = jnp.clip(
            target(mean, variance, tilt), forced + 0.3, forced + jnp.maximum(possible - 0.3, 0.3)
        )
        apart = jnp.max(jnp.abs(wanted - mean) / jnp.sqrt(variance), initial=0.0)
        length = jnp.log(odds(wanted - forced) / odds(mean - forced))
        slope = (mean - forced) * (forced + possible - mean) / (jnp.maximum(possible, 1.0) * variance)
        return number + 1, tilt + jnp.clip(length * slope, -_LONGEST_STEP, _LONGEST_STEP), apart

    def unsettled(state: Any) -> Any:
        return (state[0] < _STEPS) & (state[2] > _CLOSE)

    start = (
        jnp.zeros((), jnp.int32),
        jnp.zeros((*nu.shape[:-1], 1), nu.dtype),
        jnp.full((), jnp.inf, nu.dtype),
    )
    _, tilt, _ = lax.while_loop(unsettled, step, start)
    return jnp.where(jnp.isfinite(tilt) & (jnp.abs(tilt) < 1e4), tilt, 0.0)


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


def rounding_of_inputs(nu: Any, log_f: Any, tilt: Any) -> Any:
    """What it costs that log-odds and log-tables are rounded when they are tilted, (B,)."""
    size = 1.0 + jnp.abs(tilt[..., 0]) + jnp.max(finite_or_zero(jnp.abs(nu)), -1, initial=0.0)
    return unit_roundoff(nu.dtype) * (8.0 * size + 4.0 * jnp.max(finite_or_zero(jnp.abs(log_f)), -1))
