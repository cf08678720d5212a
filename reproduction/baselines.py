"""Earlier algorithms that the paper improves on, kept as baselines for its figures."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy.special import expit

from tallytree import PrecisionError
from tallytree.arrays import Bools, Float64

_ROUNDOFF = 2.0**-53
_ACCEPTABLE = 1e-6


def potetz_lee(logits: Float64, log_f: Float64) -> Float64:
    """Marginals by the elimination of Potetz and Lee (2008): every message afresh, one FFT per eliminated variable.

    Parameters
    ----------
    logits : (n,)
        Log-odds.
    log_f : (n + 1,)
        Logarithm of the potential at every count.

    Returns
    -------
    (n,) array
        ``P(y_d = 1)``.

    Raises
    ------
    PrecisionError
        If the answer is lost in the rounding of the Fourier transforms.

    Notes
    -----
    Cost: O(n^3 log n): n messages, each the sum of n - 1 variables, each step of a sum a convolution. Section 2.3 of
    the paper describes it.
    """
    n = len(logits)
    on, off = expit(logits), expit(-logits)
    length = 1 << n.bit_length()  # the smallest power of two above n: no wrap-around
    spectra = np.fft.rfft(np.stack([off, on], axis=-1), n=length)

    # Row d of `rest` is the distribution of the count of all variables but d.
    rest = np.zeros((n, length))
    rest[:, 0] = 1.0
    for e in range(n):
        summed = np.fft.irfft(np.fft.rfft(rest) * spectra[e], n=length)
        summed[e] = rest[e]
        rest = summed
    f = np.exp(log_f - log_f.max())
    without, with_it = rest[:, :n] @ f[:n], rest[:, :n] @ f[1:]

    # Each convolution adds a few units of round-off relative to the largest entry, which f may weigh up.
    step = 1.5 * math.log2(length + 1.0) * _ROUNDOFF
    weakest = float(min(without.min(), with_it.min()))
    bound = 4.0 * n * step * float(np.linalg.norm(f)) / weakest if weakest > 0.0 else math.inf
    if bound > _ACCEPTABLE:
        raise PrecisionError(f"Potetz and Lee's elimination lost its digits: its error bound is {bound:.1e}.")
    return np.asarray(expit(logits + np.log(with_it) - np.log(without)))


def dft_cf_pmf(logits: Float64) -> Float64:
    """Poisson-binomial probabilities by one Fourier transform of the characteristic function.

    ``P(k) = 1/(n+1) sum_l exp(-2 pi i l k/(n+1)) prod_i (q_i + p_i exp(2 pi i l/(n+1)))``: Fernandez and Williams
    (2010), Hong (2013). O(n^2) time; the error is absolute, about 1e-15 sqrt(n): small probabilities carry no digits.
    """
    turn = np.exp(2j * np.pi * np.arange((len(logits) + 1) // 2 + 1) / (len(logits) + 1))
    phi = np.ones(len(turn), np.complex128)
    for p, q in zip(expit(logits), expit(-logits)):
        phi *= q + p * turn
    return np.asarray(np.maximum(np.fft.irfft(np.conj(phi), n=len(logits) + 1), 0.0))


def block_gibbs(
    problem: Any,
    theta: Float64,
    rows: Any,
    columns: Any,
    sweeps: int,
    rng: np.random.Generator,
    burn_in: int = 0,
) -> Float64:
    """Marginals of an assignment by the paper's Gibbs sampler on 2x2 blocks: one chain, from the best assignment.

    Parameters
    ----------
    problem : Assignment
        The problem, which knows its best assignment.
    theta : (I, J)
        Its affinities, all finite.
    rows, columns : Potential
        Its potentials.
    sweeps : int
        Length of the chain after `burn_in` sweeps; a sweep touches every cell once on average.
    rng : Generator
        Source of randomness.
    burn_in : int
        Sweeps before the first that counts.

    Returns
    -------
    (I, J) array
        How often every cell was on. A block changes a count by at most two, so that counts such as "0 or 4" are never
        left.
    """
    n_rows, n_columns = theta.shape
    row_table, column_table = rows.log_table(n_columns), columns.log_table(n_rows)
    y = np.asarray(problem.lp_marginals()) > 0.5
    total = np.zeros(theta.shape)
    steps = math.ceil(theta.size / (4 * min(n_rows // 2, n_columns // 2)))
    for sweep in range(burn_in + sweeps):
        for _ in range(steps):
            _redraw_blocks(y, theta, row_table, column_table, rng)
        if sweep >= burn_in:
            total += y
    return total / sweeps


_SQUARES = np.array(list(itertools.product((0, 1), repeat=4))).reshape(-1, 2, 2)


def _redraw_blocks(
    y: Bools, theta: Float64, row_table: Float64, column_table: Float64, rng: np.random.Generator
) -> None:
    """Redraw, in place and at random, as many 2x2 blocks without a common row or column as fit."""
    n_rows, n_columns = theta.shape
    size = min(n_rows // 2, n_columns // 2)
    i = rng.permutation(n_rows)[: 2 * size].reshape(size, 2)
    j = rng.permutation(n_columns)[: 2 * size].reshape(size, 2)
    at = i[:, :, None], j[:, None, :]
    row_rest, column_rest = y.sum(1)[i] - y[at].sum(2), y.sum(0)[j] - y[at].sum(1)
    log_weight = (theta[at][:, None] * _SQUARES).sum((2, 3))  # (blocks, states)
    log_weight += row_table[row_rest[:, None] + _SQUARES.sum(2)].sum(-1)
    log_weight += column_table[column_rest[:, None] + _SQUARES.sum(1)].sum(-1)
    weight = np.exp(log_weight - log_weight.max(-1, keepdims=True)).cumsum(-1)
    u = rng.random(size)[:, None] * weight[:, -1:]
    y[at] = _SQUARES[(u >= weight).sum(-1)] == 1
