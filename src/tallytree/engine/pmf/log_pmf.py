"""The Poisson-binomial pmf with relative accuracy at every count, and the textbook transform beside it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from tallytree.engine import choose, far, native
from tallytree.engine.pmf.recursion import band_size, recursion_log_pmf
from tallytree.engine.pmf.tilted import tilted_log_pmf

from ...arrays import Float64, Ints
from ...structure.nested.count_tree import CountTree

DIRECT_LENGTH = 12_000  # up to here the O(n^2) recursion is the faster one
DIRECT_BAND = 4e8  # entry updates for which the recursion is still the faster one at any length
ROWS_AT_ONCE = 1 << 19  # entries of a batch that go through the recursion together


def log_pmf(nu: Float64) -> Float64:
    """Log pmf of sums of independent Bernoulli variables.

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf].

    Returns
    -------
    (B, n + 1) array
        ``log P(sum = k)``; -inf exactly at impossible counts.

    Notes
    -----
    Cost: O(n^2) simple steps up to n of about 10^4, O(n^1.5) beyond.
    Accuracy: 1e-10, absolute or relative to the logarithm, at every count.
    """
    if not far.all_near(nu):
        nu = far.near_logits(nu)[0]
    rows, n = nu.shape
    if native.present():
        if rows >= choose.SIDE_BY_SIDE and 2 <= n <= choose.COUNTED_IN_LANES:
            return _side_by_side(nu)
        return native.flat_log_pmf(nu)
    if n <= DIRECT_LENGTH:
        step = max(1, ROWS_AT_ONCE // (n + 1))
        parts = [recursion_log_pmf(nu[start : start + step]) for start in range(0, rows, step)]
        return np.concatenate(parts) if parts else np.zeros((0, n + 1))
    return np.stack([_free_part(row, _long_row) for row in nu]) if rows else np.zeros((0, n + 1))


def _side_by_side(nu: Float64) -> Float64:
    """Small rows by plain numbers in the lanes of registers; what may have underflowed by tilts, row by row."""
    n = nu.shape[1]
    program = CountTree.flat(n).program
    found, certain = native.root_counts(program, nu, np.zeros((1, n + 1)), int(program.set_node[0]))
    rest = np.flatnonzero(~certain)
    if len(rest):
        found[rest] = native.flat_log_pmf(nu[rest])
    return found


def tilted_rows_log_pmf(nu: Float64) -> Float64:
    """Like :func:`log_pmf`, always by tilted windows, whatever the length."""
    rows, n = nu.shape
    return np.stack([_free_part(row, tilted_log_pmf) for row in nu]) if rows else np.zeros((0, n + 1))


def _long_row(nu: Float64) -> Float64:
    if nu.size <= DIRECT_LENGTH or band_size(nu) <= DIRECT_BAND:
        return np.asarray(recursion_log_pmf(nu[None, :])[0])
    return tilted_log_pmf(nu)


def _free_part(nu: Float64, solve: Callable[[Float64], Float64]) -> Float64:
    """Log pmf of one row: variables that are certain only move the support of the others."""
    free = nu[np.isfinite(nu)]
    forced = int(np.sum(nu == np.inf))
    out = np.full(nu.size + 1, -np.inf)
    out[forced : forced + free.size + 1] = solve(free) if free.size else 0.0
    return out


def dft_cf_pmf(nu: Float64, weights: Ints | None = None) -> Float64:
    """Pmf by one discrete Fourier transform of the characteristic function.

    ``P(k) = 1/(W+1) sum_l exp(-2 pi i l k/(W+1)) prod_i (q_i + p_i exp(2 pi i l w_i/(W+1)))``: Fernandez and
    Williams (2010), Hong (2013).

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf].
    weights : (n,), optional
        Positive integer weights, 1 if omitted; W is their sum.

    Returns
    -------
    (B, W + 1) array
        Probabilities; what rounding made negative is 0.

    Notes
    -----
    Cost: O(n W) per row.
    Accuracy: absolute, about 1e-15 sqrt(n); smaller probabilities carry no digits.
    """
    rows, n = nu.shape
    w = np.ones(n, dtype=np.int64) if weights is None else weights
    length = int(w.sum()) + 1
    half = np.arange(length // 2 + 1)
    p, q = expit(nu), expit(-nu)
    phi = np.ones((rows, half.size), dtype=np.complex128)
    if weights is None:
        turn = np.exp(2j * np.pi * half / length)
    for i in range(n):
        if weights is not None:
            # reduce the angle in integers: l w_i may be far above 2 pi
            turn = np.exp(2j * np.pi * ((half * w[i]) % length) / length)
        phi *= q[:, i : i + 1] + p[:, i : i + 1] * turn
    pmf = np.fft.irfft(np.conj(phi), n=length, axis=1)
    return np.maximum(pmf, 0.0)
