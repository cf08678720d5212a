"""Exponential mixtures: one potential f(c) = sum_j a_j r_j^c needs no convolution at all.

    E f(z) = sum_j a_j prod_d (1 - p_d + p_d r_j),

and what the rest of the model says to variable d is the same sum without its factor. Cost O(n r) for r terms. Terms may
be negative or complex (parity, modulo), so the certificate is the cancellation in the sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Float64
from ..answer import Answer
from ..arithmetic import UNIT_ROUNDOFF


def solve_batch(nu: Float64, coefficients: NDArray[Any], rates: NDArray[Any]) -> Answer:
    """Models (B, n) that share one mixture."""
    batch, n = nu.shape
    off, on = expit(-nu), expit(nu)
    factors = [off + on * (rate.real if rate.imag == 0.0 else rate) for rate in map(complex, rates.tolist())]
    blanks = [factor == 0.0 for factor in factors]
    phases = [np.angle(factor) for factor in factors]
    logs = [np.log(np.where(blank, 1.0, np.abs(factor))) for blank, factor in zip(blanks, factors)]
    totals, turns, holes = ([part.sum(axis=1) for part in parts] for parts in (logs, phases, blanks))
    top = np.max(totals, axis=0)

    value, spread = np.zeros(batch), np.zeros(batch)
    up, down, up_spread, down_spread = (np.zeros((batch, n)) for _ in range(4))
    for j, (a, rate) in enumerate(zip(coefficients.tolist(), rates.tolist())):
        a, rate = complex(a), complex(rate)
        whole = np.where(holes[j] == 0, np.exp(totals[j] - top), 0.0)
        value += whole * _real_part(a, turns[j])
        spread += abs(a) * whole
        others = holes[j][:, None] - blanks[j]
        size = np.exp(np.clip(totals[j][:, None] - top[:, None] - logs[j], -745.0, 700.0))
        rest = np.where(others == 0, size, 0.0)
        turn = turns[j][:, None] - phases[j]
        down += rest * _real_part(a, turn)
        up += rest * _real_part(a * rate, turn)
        down_spread += abs(a) * rest
        up_spread += abs(a * rate) * rest

    sound = (value > 0.0) & ((up > 0.0) & (down > 0.0)).all(axis=1)
    amp = spread / np.where(value > 0.0, value, 1.0)
    for sums, sizes in ((up, up_spread), (down, down_spread)):
        amp = np.maximum(amp, (sizes / np.where(sums > 0.0, sums, 1.0)).max(axis=1, initial=0.0))
    length = np.abs([top, *totals]).max(axis=0)
    bound = UNIT_ROUNDOFF * amp * (16.0 + 4.0 * math.sqrt(n) + 4.0 * length)
    log_mean = np.log(np.where(value > 0.0, value, 1.0)) + top
    messages = np.log(np.where(up > 0.0, up, 1.0)) - np.log(np.where(down > 0.0, down, 1.0))
    return Answer(log_mean, messages, None, np.where(sound, bound, math.inf))


def _real_part(a: complex, angle: Float64) -> Float64:
    """Real part of ``a e^(i angle)``; imaginary parts cancel between conjugate terms."""
    return np.asarray(a.real * np.cos(angle) - a.imag * np.sin(angle))
