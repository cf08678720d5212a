"""Exponential mixtures: one potential f(c) = sum_j a_j r_j^c needs no convolution at all.

    E f(z) = sum_j a_j prod_d (1 - p_d + p_d r_j),

and what the rest of the model says to variable d is the same sum without its factor. Cost O(n r) for r terms. Terms may
be negative or complex (parity, modulo), so the certificate is the cancellation in the sums.
"""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from ..answer import Answer
from .arithmetic import UNIT_ROUNDOFF, Direct


def solve_batch(xp: Any, nu: Any, coefficients: NDArray[Any], rates: NDArray[Any]) -> Answer:
    """Models (B, n) that share one mixture."""
    batch, n = nu.shape
    like = {"dtype": nu.dtype, "device": nu.device}
    leaves = Direct(xp).leaves(nu)
    off, on = leaves[..., 0], leaves[..., 1]
    logs, phases, blanks = [], [], []
    for rate in rates.tolist():
        size, phase = _polar(xp, off, on, complex(rate))
        zero = size == 0.0
        logs.append(xp.log(xp.where(zero, 1.0, size)))
        phases.append(phase)
        blanks.append(zero)
    totals = [xp.sum(part, axis=-1) for part in logs]
    turns = [xp.sum(part, axis=-1) for part in phases]
    holes = [xp.sum(xp.astype(part, nu.dtype), axis=-1) for part in blanks]
    top = totals[0]
    for total in totals[1:]:
        top = xp.maximum(top, total)

    value, spread = xp.zeros((batch,), **like), xp.zeros((batch,), **like)
    up, down = xp.zeros((batch, n), **like), xp.zeros((batch, n), **like)
    up_spread, down_spread = xp.zeros((batch, n), **like), xp.zeros((batch, n), **like)
    for j, (a, rate) in enumerate(zip(coefficients.tolist(), rates.tolist())):
        a, rate = complex(a), complex(rate)
        whole = xp.where(holes[j] == 0.0, xp.exp(totals[j] - top), 0.0)
        value = value + whole * _real_part(xp, a, turns[j])
        spread = spread + abs(a) * whole
        others = holes[j][:, None] - xp.astype(blanks[j], nu.dtype)
        rest = xp.where(
            others == 0.0, xp.exp(xp.clip(totals[j][:, None] - top[:, None] - logs[j], -745.0, 700.0)), 0.0
        )
        turn = turns[j][:, None] - phases[j]
        down = down + rest * _real_part(xp, a, turn)
        up = up + rest * _real_part(xp, a * rate, turn)
        down_spread = down_spread + abs(a) * rest
        up_spread = up_spread + abs(a * rate) * rest

    sound = (value > 0.0) & xp.all((up > 0.0) & (down > 0.0), axis=-1)
    amp = spread / xp.where(value > 0.0, value, 1.0)
    if n:
        amp = xp.maximum(amp, xp.max(up_spread / xp.where(up > 0.0, up, 1.0), axis=-1))
        amp = xp.maximum(amp, xp.max(down_spread / xp.where(down > 0.0, down, 1.0), axis=-1))
    length = xp.abs(top)
    for total in totals:
        length = xp.maximum(length, xp.abs(total))
    bound = UNIT_ROUNDOFF * amp * (16.0 + 4.0 * math.sqrt(n) + 4.0 * length)
    log_mean = xp.log(xp.where(value > 0.0, value, 1.0)) + top
    messages = xp.log(xp.where(up > 0.0, up, 1.0)) - xp.log(xp.where(down > 0.0, down, 1.0))
    return Answer(log_mean, messages, None, xp.where(sound, bound, math.inf))


def _polar(xp: Any, off: Any, on: Any, rate: complex) -> tuple[Any, Any]:
    """Size and angle of ``1 - p + p r``."""
    real = off + on * rate.real
    if rate.imag == 0.0:
        return xp.abs(real), xp.where(real < 0.0, math.pi, xp.zeros_like(real))
    imaginary = on * rate.imag
    return xp.sqrt(real * real + imaginary * imaginary), xp.atan2(imaginary, real)


def _real_part(xp: Any, a: complex, angle: Any) -> Any:
    """Real part of ``a e^(i angle)``; imaginary parts cancel between conjugate terms."""
    return a.real * xp.cos(angle) - a.imag * xp.sin(angle)
