"""Derivative of a standard model's posterior along a direction, from the characteristic function.

Along a direction v the log of the characteristic function moves by

    D(w) = sum_i v_i p_i q_i (e^(iw) - 1) / (q_i + p_i e^(iw)),

one sum over the variables per frequency. What a leaf hears moves by the same sum without its own term, so the
derivative of its log-odds is ``v_i + alpha(x_i) - v_i beta(x_i)`` with two smooth functions of x, interpolated like the
odds ratio itself. Cost O(n M), M the few dozen frequencies that matter.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64
from .characteristic import (
    MAX_AMP,
    Piece,
    chebyshev_fit,
    clenshaw,
    node_angles,
    potential_spectrum,
    solve,
)


def flat_tangent(xp: Any, nu: Any, log_f: Float64, direction: Any, table_direction: Float64) -> Any | None:
    """D posterior log-odds (n,) along a direction, or None where one window of counts does not do."""
    pieces = solve(xp, nu, log_f)
    if pieces is None or len(pieces) != 1 or pieces[0].amp > MAX_AMP:
        return None
    piece = pieces[0]
    x = xp.tanh(0.5 * (nu + piece.tilt))
    moving = xp.where(xp.isfinite(nu), direction, 0.0)
    moved = _moved_product(xp, piece, x, moving, table_direction)
    alpha, beta = _functions(piece, moved)
    return direction + clenshaw(xp, x, alpha) - moving * clenshaw(xp, x, beta)


def _moved_product(
    xp: Any, piece: Piece, x: Any, moving: Any, table_direction: Float64
) -> NDArray[np.complex128]:
    """Derivative of law times spectrum, frequency by frequency."""
    band = piece.band
    weight = moving * (0.25 * (1.0 - x) * (1.0 + x))
    drift = np.zeros(len(band.omega), np.complex128)
    for m in range(1, len(band.omega)):
        cosine, sine = math.cos(band.omega[m]), math.sin(band.omega[m])
        # (e - 1) / (q + p e) = (e - 1) conj(q + p e) / |q + p e|^2
        real = 0.5 * ((1.0 - x) + (1.0 + x) * cosine)
        imaginary = 0.5 * (1.0 + x) * sine
        share = weight / (real * real + imaginary * imaginary)
        a, b = float(xp.sum(share * real)), float(xp.sum(share * imaginary))
        drift[m] = complex(cosine - 1.0, sine) * complex(a, -b)
    moved = band.law * band.spectrum * drift
    if np.any(table_direction):
        counts = np.arange(band.first, band.last + 1) - band.centre
        pushed = band.potential * table_direction[band.first : band.last + 1]
        moved = moved + band.law * potential_spectrum(pushed, counts, band.length, len(band.omega))
    return moved


def _functions(piece: Piece, moved: NDArray[np.complex128]) -> tuple[Float64, Float64]:
    """Chebyshev coefficients of alpha(x) (the others move) and beta(x) (the own term taken out)."""
    band = piece.band
    angles = node_angles(math.tan(float(band.omega[-1]) / 4.0)) if len(band.omega) > 1 else node_angles(0.01)
    p = 0.5 + 0.5 * np.cos(angles)
    turn = np.exp(1j * band.omega)
    reach = (1.0 - p)[:, None] + p[:, None] * turn
    product = band.law * band.spectrum

    def heard(values: NDArray[np.complex128]) -> tuple[Float64, Float64]:
        share = values / reach
        return (share * turn).real.sum(1), share.real.sum(1)

    on, off = heard(product)
    on_moved, off_moved = heard(moved)
    own = (p * (1.0 - p))[:, None] * (turn - 1.0) / reach
    on_own, off_own = ((product * own / reach) * turn).real.sum(1), (product * own / reach).real.sum(1)
    alpha = on_moved / on - off_moved / off
    beta = on_own / on - off_own / off
    return chebyshev_fit(alpha, angles), chebyshev_fit(beta, angles)
