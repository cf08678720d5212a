"""Exactly k of n variables: log-sums, marginals and covariances of linear statistics, for many sets at once.

Tilt the log-odds by s so that p_i = sigmoid(theta_i + s) sums to k. With phi(w) = prod_i (q_i + p_i e^(iw)),
G_m = phi(w_m) e^(-i w_m k) at the frequencies w_m = 2 pi m / N and u_i(w) = p_i e^(iw) / (q_i + p_i e^(iw)),

    e_k(exp theta) = exp(sum_i log(1 + e^(theta_i + s)) - s k) * sum_m G_m / N,
    P(y_i = 1)           = sum_m g_m u_i(w_m),                    g_m = G_m / sum G,
    P(y_i = y_j = 1)     = sum_m g_m u_i(w_m) u_j(w_m)            (i != j),

so first and second derivatives of log e_k come from the same sums, differentiated term by term. At this
tilt the count k is the mode of the tilted law, hence nothing cancels in sum G. N is odd (no factor of phi
vanishes) and beyond the distance of k from any count with a mass above e^-40; |phi(w)| <= exp(-var (1 - cos
w)) leaves a few dozen frequencies.

Sets of different size share a batch: padding with -inf changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Float64 = NDArray[np.float64]
Complex128 = NDArray[np.complex128]
Ints = NDArray[np.int64]

_BUDGET = 42.0  # nats: counts outside the window and frequencies outside the band weigh less than e^-42
_CELLS = 400_000  # complex numbers held at a time


@dataclass(frozen=True, eq=False)
class ExactlyK:
    """What the sums say about each set of a batch.

    Attributes
    ----------
    log_sum : (B,)
        log e_k(exp theta), the log-partition function given that exactly k are on.
    marginals : (B, n)
        P(y_i = 1).
    covariance : (B, p, p) or None
        Covariance of ``sum_i y_i x_i`` where x was given.
    """

    log_sum: Float64
    marginals: Float64
    covariance: Float64 | None


def exactly_k(theta: Float64, k: Ints, x: Float64 | None = None) -> ExactlyK:
    """Log-sums, marginals and covariances given the counts.

    Parameters
    ----------
    theta : (B, n) array
        Log-odds, finite, or -inf where a row is padded.
    k : (B,) int array
        Counts, ``0 < k < `` number of finite entries.
    x : (B, n, p) array, optional
        Statistics of the variables; 0 where padded.

    Notes
    -----
    Cost: O(n M) per set, M = O(sqrt(n)) frequencies at worst and 26 to 35 once the variance is large; O(n M
    p + p^2 M) with covariances.

    Accuracy: log_sum to 1e-13 (1 + abs(log_sum)), marginals to 1e-14 absolute, covariances to 1e-13 of
    ``sum_i (x_i - mean x)^2``.
    """
    batch, n = theta.shape
    log_sum, marginals = np.empty(batch), np.empty((batch, n))
    covariance = None if x is None else np.empty((batch, x.shape[2], x.shape[2]))
    s = tilt(theta, k)
    p, q = expit(theta + s[:, None]), expit(-theta - s[:, None])
    var = (p * q).sum(1)
    order = np.argsort(var, kind="stable")
    for rows in _blocks(order, var, np.isfinite(theta).sum(1), k, n):
        total, first, second = _sums(p[rows], q[rows], k[rows], var[rows], None if x is None else x[rows])
        shifted = theta[rows] + s[rows, None]
        log_sum[rows] = np.logaddexp(0.0, shifted).sum(1) - s[rows] * k[rows] + np.log(total)
        marginals[rows] = first
        if covariance is not None:
            covariance[rows] = second
    return ExactlyK(log_sum, marginals, covariance)


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


def _sums(
    p: Float64, q: Float64, k: Ints, var: Float64, x: Float64 | None
) -> tuple[Float64, Float64, Float64 | None]:
    """P(count = k) under the tilt, marginals, and covariance of the statistics; see the module's formulas."""
    batch, n = p.shape
    length, count = _frequencies(var, ((p > 0) & (q < 1)).sum(1), k)
    total, first, square = np.zeros(batch), np.zeros((batch, n)), np.zeros((batch, n))
    centred, spread = None, None
    if x is not None:
        # The count is fixed, so statistics may be shifted; this shift leaves nothing of first order to
        # cancel.
        weight = p * q
        centred = x - ((weight[:, None, :] @ x) / np.maximum(weight.sum(1), 1e-300)[:, None, None])
        centred *= (weight > 0)[:, :, None]
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
        first += _weighted(g, u)
        if x is not None and centred is not None and spread is not None:
            square += _weighted(g, u * (1.0 - u))
            shift = (u.real - p[:, None, :]) @ centred + 1j * (u.imag @ centred)  # (b, m, p)
            spread += np.einsum("bm,bmi,bmj->bij", g, shift, shift, optimize=True).real
    first /= total[:, None]
    if centred is None or spread is None:
        return total, first, None
    mean = ((first - p)[:, None, :] @ centred)[:, 0]
    second = spread / total[:, None, None] - mean[:, :, None] * mean[:, None, :]
    second += np.swapaxes(centred, 1, 2) @ (centred * (square / total[:, None])[:, :, None])
    return total, first, 0.5 * (second + np.swapaxes(second, 1, 2))


def _weighted(g: Complex128, u: Complex128) -> Float64:
    """``Re sum_m g_m u_m``, (b, n)."""
    return np.asarray((g.real[:, None, :] @ u.real)[:, 0] - (g.imag[:, None, :] @ u.imag)[:, 0])


@dataclass(frozen=True, eq=False)
class PairSums:
    """One set: weights g_m and values u_i(w_m), from which every covariance follows.

    ``Cov(y) = diag(Re sum_m g_m u_m (1 - u_m)) + Re sum_m g_m (u_m - mu)(u_m - mu)^T``.
    """

    weights: Complex128
    values: Complex128  # (M, n)
    marginals: Float64

    @cached_property
    def _centred(self) -> Complex128:
        return self.values - self.marginals

    @cached_property
    def diagonal(self) -> Float64:
        """The diagonal part of the covariance, (n,)."""
        return np.asarray((self.weights @ (self.values * (1.0 - self.values))).real)

    def covariance_times(self, v: Float64) -> Float64:
        """Cov(y) v in O(n M)."""
        v = v - v @ self.diagonal / self.diagonal.sum()  # the count is fixed: constants do not matter
        about = self._centred @ v
        return np.asarray(self.diagonal * v + ((self.weights * about) @ self._centred).real)

    def joint(self) -> Float64:
        """P(y_i = y_j = 1), (n, n), with the marginals on the diagonal."""
        real, imag = self.values.real, self.values.imag
        a, b = self.weights.real[:, None], self.weights.imag[:, None]
        # Re g u_i u_j = a (r r - s s) - b (r s + s r)
        cross = real.T @ (b * imag)
        found = real.T @ (a * real) - imag.T @ (a * imag) - cross - cross.T
        np.fill_diagonal(found, self.marginals)
        return np.asarray(found)


def pair_sums(theta: Float64, k: int) -> PairSums:
    """The sums of one set of n variables, exactly k on.

    Notes
    -----
    Cost: O(n M) time and memory, M as in :func:`exactly_k`.
    """
    counts = np.array([k])
    s = tilt(theta[None], counts)[0]
    p, q = expit(theta + s), expit(-theta - s)
    var = np.array([(p * q).sum()])
    length, count = _frequencies(var, np.array([len(theta)]), counts)
    omega = 2.0 * math.pi / length * np.arange(count)
    on = p * np.exp(1j * omega)[:, None]
    factor = q + on
    g: Any = np.multiply.reduce(factor, axis=1) * np.exp(-1j * k * omega)
    g *= np.where(omega == 0.0, 1.0, 2.0) / length
    g /= g.real.sum()
    values = on / factor
    return PairSums(g, values, np.asarray((g @ values).real))
