"""Maximum and max-marginals of one count potential, for a batch of factors: one sort (Gupta, Diwan, Sarawagi 2007).

With log-odds sorted, t_1 >= ... >= t_n, and g(k) = t_1 + ... + t_k + log f(k):

    M_r(1) - t_r = max( max_{k >= r} g(k) - t_r,  max_{1 <= k < r} g(k) - t_k )
    M_r(0)       = max( max_{k < r}  g(k),        max_{r <= k < n} g(k) + t_{k+1} - t_r )

The message to a variable is the difference of the two.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64


def _ranked(nu: Float64, log_f: Float64) -> tuple[NDArray[np.intp], Float64, Float64]:
    """Order, sorted log-odds (B, n) and g (B, n + 1); forced variables come first and have weight one."""
    order = np.argsort(-nu, axis=1, kind="stable")
    t = np.take_along_axis(nu, order, 1)
    forced = (t == math.inf).sum(1, keepdims=True)
    allowed = (t > -math.inf).sum(1, keepdims=True)
    k = np.arange(nu.shape[1] + 1)
    best = np.concatenate([np.zeros((len(nu), 1)), np.where(np.isfinite(t), t, 0.0).cumsum(1)], axis=1)
    return order, t, np.where((k >= forced) & (k <= allowed), best + log_f, -math.inf)


def maximise(nu: Float64, log_f: Float64) -> tuple[Float64, NDArray[np.bool_]]:
    """Largest log-weight (B,) and a configuration that has it (B, n)."""
    order, _, g = _ranked(nu, log_f)
    k = g.argmax(1)
    y = np.zeros(nu.shape, bool)
    np.put_along_axis(y, order, np.arange(nu.shape[1]) < k[:, None], 1)
    return np.take_along_axis(g, k[:, None], 1)[:, 0], y


def solve(nu: Float64, log_f: Float64) -> tuple[Float64, Float64]:
    """Largest log-weight (B,) and messages (B, n); nu (B, n), log_f (1 or B, n + 1).

    Messages to variables with infinite log-odds are 0: they are decided already.
    """
    order, t, g = _ranked(nu, log_f)
    below = np.maximum.accumulate(g, axis=1)  # max_{k <= r}
    above = np.maximum.accumulate(g[:, ::-1], axis=1)[:, ::-1]  # max_{k >= r}
    free = np.isfinite(t)
    with np.errstate(invalid="ignore"):
        swap_out = np.maximum.accumulate(np.where(free, g[:, 1:] - t, -math.inf), axis=1)  # max_{1 <= k <= r}
        gain = np.where(free, g[:, :-1] + t, -math.inf)  # g(k) + t_{k+1}, k = 0..n-1
    swap_in = np.maximum.accumulate(gain[:, ::-1], axis=1)[:, ::-1]
    nothing = np.full((len(nu), 1), -math.inf)
    u = np.where(free, t, 0.0)
    on = np.maximum(above[:, 1:] - u, np.concatenate([nothing, swap_out[:, :-1]], axis=1))
    off = np.maximum(below[:, :-1], np.concatenate([swap_in[:, 1:], nothing], axis=1) - u)
    with np.errstate(invalid="ignore"):
        ranked = np.where(free, on - off, 0.0)
    messages = np.empty_like(nu)
    np.put_along_axis(messages, order, ranked, 1)
    return g.max(1), messages
