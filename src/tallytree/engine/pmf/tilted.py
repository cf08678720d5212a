"""All counts of a long Poisson-binomial sum, from windows under several tilts.

Tilting multiplies odds by exp(s) and moves the mean to any count; undoing it is exact:
``log P(k) = log P_s(k) + log E exp(sX) - s k``. Around the tilted mean the pmf is the inverse transform of
the characteristic function. With x_i = tanh((nu_i + s)/2), V_j = T_j(|x|) - 1 and t = tan(w/4), its
logarithm is

    i w h - 2 sum_{j>=1} (-it)^j D_j / j,    D_j = sum_{x>0} V_j + (-1)^j sum_{x<0} V_j,

h being the number of positive x. Writing T_j - 1 instead of T_j removes the cancellation between variables
that are almost certain. ``|Phi(w)| <= exp(-var (1 - cos w))``, so few frequencies matter when the variance is
large. Where it is small (near 0 and n, and between clusters of log-odds) the direct recursion needs few
entries.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len
from scipy.special import expit

from tallytree.engine.law import Law, log_convolve
from tallytree.engine.pmf.recursion import extend, log_mgf, softplus
from tallytree.engine.tilt import Block, summarise, tilt_to_mean

from ...arrays import Float64

BUDGET = 42.0  # nats: what lies below exp(-BUDGET) in frequency or in count is dropped
SMALLEST_VARIANCE = 40.0  # below it the Chebyshev series of the characteristic function gets long
AMPLIFICATION = 2e4  # accept P(k) down to sum |Phi| / N divided by this: error about 1e-16 times this
SPREAD = 4.3  # standard deviations that AMPLIFICATION allows on each side of the mean
CERTAIN = 60.0  # a variable with |nu + s| above this (plus log n) is treated as fixed
RUN = 96  # counts per window of the direct recursion
RUN_SPAN = 500.0  # largest change of the tilt inside such a window: RUN times this must round to below 1e-10
CHUNK = 1 << 14


def _tilt_above(coarse: Block, k: int, low: float, high: float) -> float:
    """Return a tilt between ``low`` and ``high`` whose window starts at about ``k``."""
    for _ in range(40):
        middle = 0.5 * (low + high)
        _, mean, variance = coarse.cumulants(middle)
        if mean - SPREAD * np.sqrt(variance) < k:
            low = middle
        else:
            high = middle
    return low


def tilted_log_pmf(nu: Float64) -> Float64:
    """Log pmf of one row ``nu`` (n,) of finite log-odds.

    Notes
    -----
    Cost: about sqrt(n) / 3 windows, O(n**1.5) in total for log-odds of moderate spread.
    Accuracy: 1e-10, absolute or relative to the logarithm, at every count.
    """
    n = nu.size
    nu = np.sort(nu)[::-1]
    coarse = summarise(nu)  # chooses tilts, and is never used for answers
    # -log P(the k likeliest are on, the others off), for every k
    fixed = np.append(np.cumsum(softplus(nu)[::-1])[::-1], 0.0)
    fixed[1:] += np.cumsum(softplus(-nu))
    out = np.full(n + 1, -np.inf)
    k, s, highest = 0, coarse.solve(0.5), coarse.solve(n - 0.5)
    while k <= n:
        s = _tilt_above(coarse, k, s, highest)
        window = _spectral_window(nu, s)
        if window is None or window.first > k:
            s = _tilt_to_count(nu, k)
            window = _spectral_window(nu, s)
        if window is None or window.first > k or window.last < k:
            window = _direct_window(nu, s, k, _run_end(nu, k))
        last = window.last + 1
        untilt = _log_mgf_at(nu, s, k, fixed[k]) - s * np.arange(last - k)
        out[k:last] = window.log_weights[k - window.first :] + untilt
        k = last
    return out


def _log_mgf_at(nu: Float64, s: float, k: int, fixed: float) -> float:
    """Return ``log E exp(s (X - k))``, ``nu`` falling.

    With the k likeliest variables counted as failures, terms of size s k never appear.
    """
    tilt = np.array([s])
    if abs(s) <= 1.0:
        return float(log_mgf(-nu[None, :k], -tilt)[0] + log_mgf(nu[None, k:], tilt)[0])
    first, last = _uncertain(nu, s)
    on, off = nu[min(first, k) : k] + s, nu[k : max(last, k)] + s
    return float(softplus(-on).sum() + softplus(off).sum() - fixed)


def _tilt_to_count(nu: Float64, k: int) -> float:
    """Return the tilt with mean ``k + 1/2`` (at most ``n - 1/2``), ``nu`` falling, from variables near it.

    In a gap of the log-odds every tilt has mean k; the 1/2 picks the end of the gap next to larger counts.
    """
    n = nu.size
    room = np.log(2.0 * n) + CERTAIN
    first = int(np.searchsorted(-nu, -nu[max(k - 1, 0)] - room, side="left"))
    last = int(np.searchsorted(-nu, -nu[min(k, n - 1)] + room, side="right"))
    target = min(k + 0.5, n - 0.5) - first
    return float(tilt_to_mean(nu[None, first:last], np.array([target]))[0])


def _uncertain(nu: Float64, s: float, margin: float = 0.0) -> tuple[int, int]:
    """Return the slice of the falling ``nu`` with |nu + s| below a limit, plus ``margin`` at the low end."""
    limit = CERTAIN + np.log(nu.size)
    first = int(np.searchsorted(-nu, s - limit, side="left"))
    last = int(np.searchsorted(-nu, s + limit + margin, side="right"))
    return first, last


def _spectral_window(nu: Float64, s: float) -> Law | None:
    """Counts around the tilted mean from the characteristic function; None where the variance is small."""
    first, last = _uncertain(nu, s)
    z = nu[first:last] + s
    likely = int(np.searchsorted(-z, 0.0, side="left"))
    u = 2.0 * expit(-np.abs(z))
    variance = float(np.sum(0.5 * u * (1.0 - 0.5 * u)))
    if variance < SMALLEST_VARIANCE:
        return None
    highest = float(np.arccos(1.0 - BUDGET / variance))
    terms = int(np.ceil(np.log(1e18 * (1.0 + variance)) / -np.log(np.tan(highest / 4.0)))) + 2
    d = _chebyshev_sums(u, likely, terms)
    on = first + likely
    center = int(np.rint(on + 0.5 * d[1]))
    radius = BUDGET / 3.0 + np.sqrt(BUDGET**2 / 9.0 + 2.0 * BUDGET * variance)
    length = int(next_fast_len(2 * int(np.ceil(radius)) + 1, real=True))
    w = 2.0 * np.pi * np.arange(min(int(length * highest / (2.0 * np.pi)) + 2, length // 2 + 1)) / length
    phi = np.exp(_log_characteristic(d, w, on - center))
    pmf = np.fft.fftshift(irfft(np.conj(phi), n=length))
    level = (2.0 * np.abs(phi).sum() - 1.0) / length / AMPLIFICATION
    return _above(pmf, center - length // 2, level, nu.size)


def _above(pmf: Float64, first: int, level: float, n: int) -> Law:
    """Cut a window to the counts around its mode with probability above ``level``."""
    counts = first + np.arange(pmf.size)
    good = (pmf > level) & (counts >= 0) & (counts <= n)
    mode = int(np.argmax(np.where(good, pmf, -1.0)))
    bad = np.flatnonzero(~good)
    left = int(bad[bad < mode].max(initial=-1)) + 1
    right = int(bad[bad > mode].min(initial=pmf.size))
    return Law(first + left, np.log(pmf[left:right]))


def _chebyshev_sums(u: Float64, likely: int, terms: int) -> Float64:
    """Return D_0..D_terms for u = 1 - |x|; the first ``likely`` entries have positive x.

    V_{j+1} = V_j + (V_j - V_{j-1}) - 2u (1 + V_j) starts from V_0 = 0, V_1 = -u and keeps relative accuracy
    for small u.
    """
    sums = np.zeros((terms + 1, 2))
    for start in range(0, u.size, CHUNK):
        piece = u[start : start + CHUNK]
        split = min(max(likely - start, 0), piece.size)
        twice = piece + piece
        v, step, work = -piece, -piece, np.empty_like(piece)
        for j in range(1, terms + 1):
            sums[j, 0] += v[:split].sum()
            sums[j, 1] += v[split:].sum()
            np.multiply(twice, v, out=work)
            work += twice
            step -= work
            v += step
    alternate = np.where(np.arange(terms + 1) % 2, -1.0, 1.0)
    return np.asarray(sums[:, 0] + alternate * sums[:, 1])


def _log_characteristic(d: Float64, w: Float64, shift: int) -> NDArray[np.complex128]:
    """Return ``log E exp(i w (X - center))``; ``shift`` is the number of positive x minus the centre."""
    t = np.tan(0.25 * w)
    z = -1j * t
    total = np.zeros_like(z)
    for j in range(d.size - 1, 1, -1):
        total = z * (total + d[j] / j)
    # the j = 1 term joins the phase: both are large, their sum is small
    phase = w * (shift + 0.5 * d[1]) + (2.0 * t - 0.5 * w) * d[1]
    return np.asarray(-2.0 * z * total + 1j * phase)


def _run_end(nu: Float64, k: int) -> int:
    """Return the end of a direct window from ``k``: RUN counts, fewer where the log-odds fall steeply."""
    near = int(np.searchsorted(-nu, -nu[min(k, nu.size - 1)] + RUN_SPAN, side="right"))
    return min(max(near, k + 1), k + RUN, nu.size + 1)


def _direct_window(nu: Float64, s: float, k: int, stop: int) -> Law:
    """Counts ``k .. stop - 1``: k minus failures of the k likeliest variables plus successes of the others.

    At a small variance the failures given these counts are few, and both parts can be capped.
    """
    n = nu.size
    climb = max(-nu[min(stop, n - 1)] - s, 0.0)  # the tilt of the last count is higher by about this much
    first, last = _uncertain(nu, s, margin=climb)
    first, last = min(first, k), max(last, min(stop, n))
    z = nu[first:last] + s
    split = k - first
    expected = float(expit(-z[:split]).sum())
    cap = min(int(np.ceil(expected + 6.0 * np.sqrt(expected) + 20.0)), split)
    log_f = _capped(-z[:split][::-1], cap)
    log_y = _capped(z[split:], cap + stop - 1 - k)
    # P(k + d) = sum_f F(f) Y(d + f) is a convolution with the failures reversed
    log_p = log_convolve(log_f[::-1], log_y, 0, min(len(log_f) + len(log_y) - 2, cap + stop - 1 - k))
    return Law(k, log_p[cap:])


def _capped(nu: Float64, cap: int) -> Float64:
    """Log pmf of a sum on ``0 .. cap``, ``nu`` falling: interleaved groups side by side, then merged."""
    groups = 1 << int(np.clip(np.log2(max(nu.size, 1) / 64.0), 0.0, 5.0))
    length = -(-nu.size // groups)
    padded = np.full(groups * length, -np.inf)
    padded[: nu.size] = nu
    log_p, _ = extend(np.zeros((groups, 1)), np.zeros((groups, 0)), padded.reshape(length, groups).T, cap)
    while log_p.shape[0] > 1:
        size = min(2 * log_p.shape[1] - 2, cap)
        log_p = np.stack([log_convolve(a, b, 0, size) for a, b in zip(log_p[::2], log_p[1::2])])
    return np.asarray(np.append(log_p[0], np.full(max(cap + 1 - log_p.shape[1], 0), -np.inf)))
