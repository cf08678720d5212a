"""The FFT tree of the textbook in plain NumPy: level by level, both passes, no tilt and no certificate.

What a careful user writes from the paper. It is right where nothing is far from the mean, and wrong without a
word elsewhere; under an exact tilt chosen by hand (`tilted`) it serves as a reference for large models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.fft
from scipy.special import expit

DIRECT = 16  # messages over fewer variables are multiplied out


class Answer(NamedTuple):
    """``log_partition`` (...), ``posterior_logits`` and ``marginals`` (..., D)."""

    log_partition: np.ndarray
    posterior_logits: np.ndarray
    marginals: np.ndarray


def fft_length(size: int) -> int:
    """Length that holds the product of two messages over ``size`` variables each."""
    return scipy.fft.next_fast_len(2 * size + 1, real=True)


def product(u: np.ndarray) -> np.ndarray:
    """Messages of the parents, (..., m, n + 1) to (..., m/2, 2n + 1)."""
    size = u.shape[-1] - 1
    if size >= DIRECT:
        length = fft_length(size)
        spectrum = scipy.fft.rfft(u, length)
        return scipy.fft.irfft(spectrum[..., ::2, :] * spectrum[..., 1::2, :], length)[..., : 2 * size + 1]
    left, right = u[..., ::2, :], u[..., 1::2, :]
    out = np.zeros((*left.shape[:-1], 2 * size + 1))
    for j in range(size + 1):
        out[..., j : j + size + 1] += left[..., j, None] * right
    return out


def pull(down: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Messages to the children: each is the parent's correlated with the sibling's."""
    size = u.shape[-1] - 1
    out = np.empty_like(u)
    if size >= DIRECT:
        length = fft_length(size)
        above, spectrum = scipy.fft.rfft(down, length), scipy.fft.rfft(u, length).conj()
        for me, sibling in ((0, 1), (1, 0)):
            found = scipy.fft.irfft(above * spectrum[..., sibling::2, :], length)
            out[..., me::2, :] = found[..., : size + 1]
        return out
    for me, sibling in ((0, 1), (1, 0)):
        terms = [u[..., sibling::2, j, None] * down[..., j : j + size + 1] for j in range(size + 1)]
        out[..., me::2, :] = sum(terms)
    return out


def fft_tree(theta: np.ndarray, log_f: np.ndarray, inner: Mapping[int, np.ndarray] | None = None) -> Answer:
    """Standard models (..., D) with tables (..., D + 1).

    ``inner[n]`` holds tables (m, n + 1) for the first m aligned groups of n variables, n a power of two.
    """
    count = theta.shape[-1]
    total = 1 << max(1, (count - 1).bit_length())
    p = np.zeros((*theta.shape[:-1], total))
    p[..., :count] = expit(theta)
    ups = [np.stack([1 - p, p], axis=-1)]
    ups[0][..., :count, 0] = expit(-theta)
    factors, shift = {}, 0.0
    while ups[-1].shape[-2] > 1:
        up = product(ups[-1])
        size = up.shape[-1] - 1
        if inner and size in inner:
            table = inner[size]
            top = table.max(axis=-1, keepdims=True)
            factors[size] = np.ones(up.shape[-2:])
            factors[size][: len(table)] = np.exp(table - top)
            up = up * factors[size]
            scale = up.sum(axis=-1, keepdims=True)  # a product of a thousand of these would underflow
            up = up / scale
            shift += top.sum() + np.log(scale).sum()
        ups.append(up)
    top = log_f.max(axis=-1, keepdims=True)
    down = np.zeros((*log_f.shape[:-1], 1, total + 1))
    down[..., 0, : count + 1] = np.exp(log_f - top)
    with np.errstate(all="ignore"):  # noise may be negative: that is the textbook's failure
        mean = np.log((ups[-1] * down).sum(axis=(-1, -2))) + top[..., 0] + shift
        down = down / (ups.pop() * down).sum(axis=(-1, -2))[..., None, None]
        while ups:
            up = ups.pop()
            size = up.shape[-1] - 1
            down = pull(down, up)
            if size in factors:
                down = down * factors[size]
        message = np.log(down[..., :count, 1] / down[..., :count, 0])
    logits = theta + message
    return Answer(mean + np.logaddexp(0, theta).sum(axis=-1), logits, expit(logits))


def tilt_for(theta: np.ndarray, mean: float) -> float:
    """The shift of all log-odds under which the expected count is ``mean``."""
    low, high = -60.0 - theta.max(), 60.0 - theta.min()
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if expit(theta + middle).sum() < mean else (low, middle)
    return 0.5 * (low + high)


def tilted(theta: np.ndarray, log_f: np.ndarray, mean: float) -> Answer:
    """The tree under the tilt that puts the expected count at ``mean``: an exact change of parameters."""
    s = tilt_for(theta, mean)
    return fft_tree(theta + s, log_f - s * np.arange(len(log_f)))


def pieces(theta: np.ndarray, log_f: np.ndarray, cuts: list[tuple[slice, float]]) -> Answer:
    """A table as a sum of pieces, each under its own tilt, for models with several modes."""
    found = []
    for counts, mean in cuts:
        piece = np.full_like(log_f, -math.inf)
        piece[counts] = log_f[counts]
        found.append(tilted(theta, piece, mean))
    log_z = np.logaddexp.reduce([a.log_partition for a in found])
    on = np.logaddexp.reduce([a.log_partition - np.logaddexp(0, -a.posterior_logits) for a in found])
    off = np.logaddexp.reduce([a.log_partition - np.logaddexp(0, a.posterior_logits) for a in found])
    return Answer(log_z, on - off, expit(on - off))
