"""Covariances of linear statistics of sets of which exactly k variables are on, for many sets at once.

Tilt the log-odds by s so that p_i = sigmoid(theta_i + s) sums to k. With phi(w) = prod_i (q_i + p_i e^(iw)),
G_m = phi(w_m) e^(-i w_m k) at the frequencies w_m = 2 pi m / N and u_i(w) = p_i e^(iw) / (q_i + p_i e^(iw)),

    P(y_i = 1)           = sum_m g_m u_i(w_m),                    g_m = G_m / sum G,
    P(y_i = y_j = 1)     = sum_m g_m u_i(w_m) u_j(w_m)            (i != j).

At this tilt the count k is the mode of the tilted law, hence nothing cancels in sum G. N is odd (no factor of
phi vanishes) and beyond the distance of k from any count with a mass above e^-40; |phi(w)| <= exp(-var (1 -
cos w)) leaves a few dozen frequencies.

Sets of different size share a batch: padding with -inf changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..arrays import Float64, Ints

Complex128 = NDArray[np.complex128]

_BUDGET = 42.0  # nats: counts outside the window and frequencies outside the band weigh less than e^-42
_CELLS = 400_000  # complex numbers held at a time


def covariances_of_sums(theta: Float64, k: Ints, marginals: Float64, x: Float64) -> Float64:
    """Covariance of ``sum_i y_i x_i`` in every set, (B, p, p).

    Parameters
    ----------
    theta : (B, n) array
        Log-odds, finite, or -inf where a row is padded.
    k : (B,) int array
        Counts, ``0 < k < `` number of finite entries.
    marginals : (B, n) array
        P(y_i = 1).
    x : (B, n, p) array
        Statistics of the variables; 0 where padded.

    Notes
    -----
    Cost: O(n M p + p^2 M) per set, M = O(sqrt(n)) frequencies at worst and 26 to 35 once the variance is large.

    Accuracy: 1e-13 of ``sum_i (x_i - mean x)^2``.
    """
    out = np.empty((len(theta), x.shape[2], x.shape[2]))
    s = tilt(theta, k)
    p, q = expit(theta + s[:, None]), expit(-theta - s[:, None])
    var = (p * q).sum(1)
    order = np.argsort(var, kind="stable")
    for rows in _blocks(order, var, np.isfinite(theta).sum(1), k, theta.shape[1]):
        out[rows] = _sums(p[rows], q[rows], k[rows], var[rows], marginals[rows], x[rows])
    return out


def tilt(theta: Float64, k: Ints) -> Float64:
    """Tilts s with ``sum_i sigmoid(theta_i + s) = k``, (B,), by Newton's method inside a bracket."""
    finite = np.isfinite(theta)
    n = finite.sum(1)
    base = np.log(k / (n - k))
    low = base - np.where(finite, theta, -math.inf).max(1)
    high = base - np.where(finite, theta, math.inf).min(1)
    s = 0.5 * (low + high)
    open_ = np.arange(len(theta))
    for _ in range(200):
        p = expit(theta[open_] + s[open_, None])
        excess = p.sum(1) - k[open_]
        slope = (p * (1.0 - p)).sum(1)
        above = excess > 0
        high[open_[above]] = s[open_[above]]
        low[open_[~above]] = s[open_[~above]]
        with np.errstate(divide="ignore", invalid="ignore"):
            step = s[open_] - excess / slope
        inside = (step > low[open_]) & (step < high[open_])
        # Any s is exact; this one only has to put the mode at k. Where it does it stays, whatever the bracket.
        settled = np.abs(excess) <= 1e-6
        midway = np.where(settled, s[open_], 0.5 * (low[open_] + high[open_]))
        s[open_] = np.where(inside, step, midway)
        wide = high[open_] - low[open_] > 1e-13 * np.maximum(1.0, np.abs(high[open_]))
        open_ = open_[~settled & wide]
        if len(open_) == 0:
            break
    return np.asarray(s)


def _frequencies(var: Float64, sizes: Ints, k: Ints) -> tuple[int, int]:
    """Odd window length N and number of frequencies M that serve all these sets."""
    largest, smallest = float(var.max()), float(var.min())
    reach = _BUDGET / 3.0 + math.sqrt(_BUDGET**2 / 9.0 + 2.0 * _BUDGET * largest)
    length = 1 + min(int(np.maximum(k, sizes - k).max()), math.ceil(reach))
    length += 1 - length % 2
    cosine = 1.0 - _BUDGET / smallest if smallest > 0 else -1.0
    band = math.acos(cosine) if cosine > -1.0 else math.pi
    return length, min((length - 1) // 2, math.ceil(length * band / (2.0 * math.pi))) + 1


def _blocks(order: Ints, var: Float64, sizes: Ints, k: Ints, n: int) -> Iterator[Ints]:
    """Sets of similar variance, few enough to fit the memory bound."""
    start = 0
    while start < len(order):
        stop, step = start + 1, 1
        while stop < len(order):
            step = min(2 * step, len(order) - stop)
            rows = order[start : stop + step]
            _, count = _frequencies(var[rows], sizes[rows], k[rows])
            if len(rows) * n * count > _CELLS or var[rows[-1]] > 4.0 * var[rows[0]] + 40.0:
                break
            stop += step
        yield order[start:stop]
        start = stop


def _sums(p: Float64, q: Float64, k: Ints, var: Float64, marginals: Float64, x: Float64) -> Float64:
    """The covariances of sets of similar variance; see the module's formulas."""
    batch, n = p.shape
    length, count = _frequencies(var, ((p > 0) & (q < 1)).sum(1), k)
    total, square = np.zeros(batch), np.zeros((batch, n))
    # The count is fixed, so statistics may be shifted; this shift leaves nothing of first order to cancel.
    weight = p * q
    spread_of = weight.sum(1)
    mean_x = (weight[:, None, :] @ x) / np.where(spread_of > 0, spread_of, 1.0)[:, None, None]
    centred = (x - mean_x) * (weight > 0)[:, :, None]
    spread = np.zeros((batch, x.shape[2], x.shape[2]))
    step = max(1, _CELLS // max(1, batch * n))
    for start in range(0, count, step):
        omega = 2.0 * math.pi / length * np.arange(start, min(start + step, count))
        turn = np.exp(1j * omega)[None, :, None]
        on = p[:, None, :] * turn
        factor = q[:, None, :] + on
        g = np.multiply.reduce(factor, axis=2) * np.exp(-1j * k[:, None] * omega)  # (b, m)
        g *= np.where(omega == 0.0, 1.0, 2.0) / length
        u = np.divide(on, factor, out=factor)
        total += g.real.sum(1)
        square += _weighted(g, u * (1.0 - u))
        shift = (u.real - p[:, None, :]) @ centred + 1j * (u.imag @ centred)  # (b, m, p)
        spread += np.einsum("bm,bmi,bmj->bij", g, shift, shift, optimize=True).real
    mean = ((marginals - p)[:, None, :] @ centred)[:, 0]
    second = spread / total[:, None, None] - mean[:, :, None] * mean[:, None, :]
    second += np.swapaxes(centred, 1, 2) @ (centred * (square / total[:, None])[:, :, None])
    return np.asarray(0.5 * (second + np.swapaxes(second, 1, 2)))


def _weighted(g: Complex128, u: Complex128) -> Float64:
    """``Re sum_m g_m u_m``, (b, n)."""
    return np.asarray((g.real[:, None, :] @ u.real)[:, 0] - (g.imag[:, None, :] @ u.imag)[:, 0])
