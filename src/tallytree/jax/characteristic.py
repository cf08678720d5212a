"""One group of all variables by its characteristic function: O(n) per model and frequency, with a certificate.

Under a tilt s the count of the variables has mean mu and variance sigma^2 and

    Z = sum_k f(k) e^{-s(k - centre)} P(k) = Re sum_m share_m Phat(w_m) F(w_m),      w_m = 2 pi m / N,
    d_i(0) = Re sum_m G_m / phi_i(w_m),   d_i(1) = Re sum_m G_m e^{i w_m} / phi_i(w_m),   G_m = share_m Phat_m F_m.

What is left out is bounded: counts of negligible weight and those that fall together modulo N by Bennett's inequality,
P(|z - mu| >= r) <= exp(-sigma^2 h(r / sigma^2)) on either side, h(u) = (1 + u) log(1 + u) - u, and frequencies by
|Phat(w)| <= exp(-sigma^2 (1 - cos w)). Distances shrink by one and the variance by 1/4, so that the bounds hold for the
law without one variable, too.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from .arithmetic import finite_or_zero, log_of_normal, safe_log
from .arrays import unit_roundoff
from .frequencies import (
    NATS,
    Frequencies,
    characteristic,
    choose_frequencies,
    inverse,
    over_frequencies,
    times,
    transform,
)
from .ladder import Solution
from .tilt import choose_tilt, decided, log_weight_of_tilted, reachable, rounding_of_inputs, sigmoid

ACCEPTED = 8e-10  # of log-odds; the contract is 1e-9


class _Tilted(NamedTuple):
    """A batch under its tilt; (B, 1) unless said otherwise."""

    p: Any  # (B, n) 0 or 1 for decided variables
    mean: Any
    variance: Any
    forced: Any  # variables that are on whatever happens
    highest: Any  # the largest count that can occur
    f: Any  # (B, n + 1) table under the tilt, largest entry 1, 0 where it is negligible
    window: Any  # (B, 2) the first and the last count with an entry that is not 0
    furthest: Any  # distance from the mean of an entry of f that is not 0
    can_off: Any  # whether a variable that is not decided can be off, and on
    can_on: Any
    negligible: Any  # (B,) bound on what the entries left out are worth
    log_scale: Any  # (B,) what Z is to be multiplied by to give E f
    tilt: Any


def solve(nu: Any, log_f: Any) -> Solution:
    """All answers, and a bound that is inf where the method does not serve."""
    model = _tilted(nu, log_f)
    frequencies = choose_frequencies(_period(model), model.variance, nu.shape[-1])
    phat = characteristic(model.p, frequencies.versine, frequencies.sine, frequencies.needed)
    spectrum_f = transform(model.f, frequencies, model.window)
    g = tuple(frequencies.share * x for x in times(*phat, *spectrum_f))
    z = jnp.sum(g[0], -1)
    off, on = _leave_one_out(model, frequencies, g)
    sure = z > 0.0
    log_z = safe_log(jnp.where(sure, z, 0.0))
    log_partition = log_z + model.log_scale + log_weight_of_tilted(nu, model.tilt)
    messages = _log_ratio(model, jnp.isfinite(nu), on, off) + model.tilt
    law = _law(frequencies, phat)
    log_beliefs = safe_log(jnp.maximum(law * model.f, 0.0)) - finite_or_zero(log_z)[:, None]
    error = _error(model, frequencies, phat, g)
    least = _least(model, jnp.isfinite(nu), off, on, z)
    inputs = rounding_of_inputs(nu, jnp.where(model.f > 0.0, log_f, 0.0), model.tilt)  # of what matters
    bound = 2.0 * error / jnp.where(least > 0.0, least, 1.0) + inputs
    sound = (least > 0.0) & (z > 1e-280) & (bound < ACCEPTED) & jnp.isfinite(log_partition)
    bound = lax.stop_gradient(jnp.where(sound, bound, jnp.inf))
    return Solution(log_partition, messages, log_beliefs, bound)


def _tilted(nu: Any, log_f: Any) -> _Tilted:
    tilt = choose_tilt(nu, log_f)
    p = sigmoid(nu + tilt)
    fixed = lax.stop_gradient(p)
    forced, possible = decided(nu)
    highest = forced + possible
    mean = jnp.sum(fixed, -1, keepdims=True)
    # Selected terms are summed where they are computed; a bare product goes to a library that takes ten times as long.
    variance = jnp.sum(jnp.where(fixed > 0.0, fixed * (1.0 - fixed), 0.0), -1, keepdims=True)
    counts = jnp.arange(log_f.shape[-1], dtype=nu.dtype)
    centre = jnp.round(mean)
    tilted = jnp.where(reachable(nu, counts), log_f - tilt * (counts - centre), -jnp.inf)
    top = finite_or_zero(lax.stop_gradient(jnp.max(tilted, -1, keepdims=True)))
    f = jnp.exp(tilted - top)
    log_term = _at_most(lax.stop_gradient(tilted - top), counts - mean, variance)
    largest = jnp.max(log_term, -1, keepdims=True)
    matters = log_term > largest - (NATS + math.log(log_f.shape[-1]))
    negligible = jnp.exp(largest[:, 0] - NATS)
    first, last = _ends(matters, counts)
    window = jnp.concatenate([first, last], -1).astype(jnp.int32)
    furthest = jnp.maximum(jnp.maximum(mean - first, last - mean), 0.0)
    log_scale = (top - tilt * centre)[:, 0]
    allowed = lax.stop_gradient(tilted) > -jnp.inf
    return _Tilted(
        p=p,
        mean=mean,
        variance=variance,
        forced=forced,
        highest=highest,
        f=jnp.where(matters, f, 0.0),
        window=window,
        furthest=furthest,
        can_off=jnp.any(allowed & (counts < highest), -1, keepdims=True),
        can_on=jnp.any(allowed & (counts > forced), -1, keepdims=True),
        negligible=negligible,
        log_scale=log_scale,
        tilt=tilt,
    )


def _ends(which: Any, counts: Any) -> tuple[Any, Any]:
    """The first and the last count for which something holds, (B, 1) each; the last and the first of all for none."""
    first = jnp.min(jnp.where(which, counts, counts[-1]), -1, keepdims=True)
    return first, jnp.max(jnp.where(which, counts, counts[0]), -1, keepdims=True)


def _at_most(log_f: Any, distance: Any, variance: Any) -> Any:
    """Upper bounds on the logarithms of the terms of Z.

    Bennett's exponent without a logarithm per count: ``log(1 + u) >= 3 u (2 + u) / (6 + 6 u + u^2)``, its Padé
    approximant from below, leaves ``r^2 (3 s + 2 r) / (6 s^2 + 6 s r + r^2)`` for a distance r and a variance s.
    """
    r = jnp.maximum(jnp.abs(distance) - 1.0, 0.0)
    s = jnp.maximum(variance, 1e-30)
    return log_f - r * r * (3.0 * s + 2.0 * r) / (6.0 * s * s + r * (6.0 * s + r))


def _exponent(distance: Any, variance: Any) -> Any:
    """Bennett's exponent for a distance from the mean, less one count."""
    r = jnp.maximum(jnp.abs(distance) - 1.0, 0.0)
    spread = jnp.maximum(variance, 1e-300)
    return jnp.where(r > 0.0, (spread + r) * (jnp.log(spread + r) - jnp.log(spread)) - r, 0.0)


def _period(model: _Tilted) -> Any:
    """How far apart counts must be before they may fall together, (B, 1): an image of f must miss the law."""
    # Newton's steps for h(u) = NATS / variance from Bernstein's radius, which is too large; h is convex.
    variance = jnp.maximum(model.variance, 1e-2)
    radius = NATS / 3.0 + jnp.sqrt((NATS / 3.0) ** 2 + 2.0 * NATS * variance)
    for _ in range(2):
        value = (variance + radius) * jnp.log1p(radius / variance) - radius
        radius = radius - (value - NATS) / jnp.log1p(radius / variance)
    return jnp.minimum(model.furthest + radius + 2.0, model.highest - model.forced + 1.0)


def _law(frequencies: Frequencies, phat: Any) -> Any:
    """P(k) for all counts of the table, right to absolute accuracy."""
    re, im = (frequencies.share * x for x in phat)
    last = [x[:, -1] for x in frequencies.large]
    blocks = inverse(re, im, frequencies.small, tuple(x[:, :-1] for x in frequencies.large))
    final = jnp.sum(re * last[0] - im * last[1], -1, keepdims=True)
    return jnp.concatenate([blocks.reshape(re.shape[0], blocks.shape[1] * blocks.shape[2]), final], -1)


def _leave_one_out(model: _Tilted, frequencies: Frequencies, g: Any) -> tuple[Any, Any]:
    """What the others say about a variable that is off and on, (B, n) each."""
    re, im = g
    cosine = 1.0 - frequencies.versine
    ahead = re * cosine - im * frequencies.sine  # Re G e^{iw}
    behind = re * cosine + im * frequencies.sine
    p = model.p
    q = 1.0 - p
    sums = over_frequencies(1, 2.0 * p * q, frequencies.versine, (re, ahead, behind), frequencies.needed)
    return q * sums[0] + p * sums[2], p * sums[0] + q * sums[1]


def _log_ratio(model: _Tilted, near: Any, on: Any, off: Any) -> Any:
    """``log on / off``; infinite where one of them is impossible, 0 for decided variables."""
    usable = near & (on > 0.0) & (off > 0.0) & model.can_on & model.can_off
    ratio = log_of_normal(jnp.where(usable, on / jnp.where(usable, off, 1.0), 1.0))
    return jnp.where(near & ~model.can_on, -jnp.inf, jnp.where(near & ~model.can_off, jnp.inf, ratio))


def _least(model: _Tilted, near: Any, off: Any, on: Any, z: Any) -> Any:
    """The smallest number whose logarithm is taken, (B,)."""
    smaller = jnp.minimum(jnp.where(model.can_off, off, jnp.inf), jnp.where(model.can_on, on, jnp.inf))
    return lax.stop_gradient(jnp.minimum(z, jnp.min(jnp.where(near, smaller, jnp.inf), -1, initial=jnp.inf)))


def _error(model: _Tilted, frequencies: Frequencies, phat: Any, g: Any) -> Any:
    """Bound on the error of Z and of all leave-one-out sums, (B,)."""
    n = model.p.shape[-1]
    total = jnp.sum(lax.stop_gradient(model.f), -1)
    # An image of an entry that matters lies at least so far from the mean.
    apart = frequencies.period - model.furthest
    alone = frequencies.period >= model.highest - model.forced + 1.0
    folded = total * jnp.where(alone, 0.0, 4.0 * jnp.exp(-_exponent(apart, model.variance)))[:, 0]
    spread = jnp.maximum(model.variance - 0.25, 0.0)
    cut = total * jnp.where(frequencies.omitted < jnp.inf, jnp.exp(-spread * frequencies.omitted), 0.0)[:, 0]
    # A factor is right to two units of round-off of 1, a product to sqrt(5) of its size; 1 / |phi| is at most `small`.
    # Series for the sums over frequencies leave out one unit of their size.
    v = jnp.max(2.0 * model.p * (1.0 - model.p), -1, keepdims=True)
    small = lax.rsqrt(1.0 - v * frequencies.versine)
    size = frequencies.share * _size(*phat) * small
    in_product = _size(*g) * small * (_roundings(n) * (2.0 * small + 3.3) + 6.0 * small**2 + 65.0)
    turns = (model.window[:, 1] - model.window[:, 0]).astype(
        total.dtype
    )  # each may add the round-off of a product
    in_table = (64.0 + 3.0 * n**0.5 + 4.0 * turns)[:, None] * size * total[:, None]
    rounded = unit_roundoff(total.dtype) * jnp.sum(in_product + in_table, -1)
    return lax.stop_gradient(model.negligible + folded + cut + rounded)


def _roundings(n: int) -> float:
    """Of n factors, how many round alike.

    All of a few. Of many, roundings are independent, eight standard deviations allowed, but for a bias of a
    thirty-second of each, as in the other engines.
    """
    return float(min(n, 8.0 * n**0.5 + n / 32.0))


def _size(re: Any, im: Any) -> Any:
    """Absolute values; what underflows in the squares is far below anything that counts."""
    return jnp.sqrt(re * re + im * im)
