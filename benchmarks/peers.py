"""Other packages on the same work. Each is called as its manual says; what is absent or fails says why.

A peer is a function of the parameters that prepares the call to be timed. Peers that give the distribution of
the sum alone ("sum only") do less than half of the work and are listed all the same.

`fft_tree` is the FFT tree of the textbook in plain NumPy: level by level, both passes, no tilt and no certificate, as a
careful user writes it from the paper. It is right where nothing is far from the mean, and wrong without a word
elsewhere; under an exact tilt chosen by hand (`tilted`) it serves as a reference for large models.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
from scipy.special import expit


class Skip(Exception):
    """Why a contender does not run."""


def _limit(n: int, most: int, reason: str) -> None:
    if n > most:
        raise Skip(f"not run above D = {most}: {reason}")


def fast_poibin(theta: np.ndarray, mode: str = "mixed") -> Callable[[], Any]:
    """fast-poibin: the sum only, absolute accuracy ("mixed") or O(D^2) ("dp")."""
    try:
        from fast_poibin import PoiBin
    except ImportError:
        raise Skip("fast-poibin is not installed") from None
    rows = np.atleast_2d(expit(theta))
    if mode == "dp":
        _limit(rows.shape[1], 20_000, "O(D^2)")
    return lambda: [PoiBin(p, mode).pmf for p in rows] and None


def scipy_poisson_binom(theta: np.ndarray) -> Callable[[], Any]:
    """scipy.stats.poisson_binom: the sum only, O(D^2) memory."""
    try:
        from scipy.stats import poisson_binom
    except ImportError:
        raise Skip("this SciPy has no poisson_binom (it came with 1.15)") from None
    rows = np.atleast_2d(expit(theta))
    _limit(rows.shape[1], 10_000, "O(D^2) memory")
    counts = np.arange(rows.shape[1] + 1)
    return lambda: [poisson_binom.pmf(counts, p) for p in rows] and None


def statsmodels_recursion(theta: np.ndarray, k: int) -> Callable[[], Any]:
    """statsmodels ConditionalLogit: marginals given exactly k, through the score of one stratum."""
    try:
        from statsmodels.discrete.conditional_models import ConditionalLogit
    except ImportError:
        raise Skip("statsmodels is not installed") from None
    n = len(theta)
    _limit(n, 1000, "a recursion in Python over D k states")
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20 * n + 1000))
    y = np.zeros(n)
    y[:k] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ConditionalLogit(y, np.eye(n), groups=np.zeros(n))

    def run() -> np.ndarray:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return np.asarray(model._xy[0] - model.score(theta))

    return run


def pysdd_exactly(theta: np.ndarray, k: int) -> Callable[[], Any]:
    """PySDD: marginals given exactly k by weighted model counting; compilation is not timed."""
    try:
        from pysdd.sdd import SddManager, WmcManager
    except ImportError:
        raise Skip("PySDD is not installed") from None
    n = len(theta)
    _limit(n, 300, "compilation grows as D k")
    manager = SddManager(n, 0)
    states = [manager.true()] + [manager.false()] * k  # exactly j of the variables seen so far
    for v in range(n, 0, -1):
        on, off = manager.literal(v), manager.literal(-v)
        states = [(off & states[j]) | (on & states[j - 1]) if j else off & states[j] for j in range(k + 1)]
    node = states[k]
    node.ref()
    literals = np.r_[-np.arange(1, n + 1), np.arange(1, n + 1)]
    weights = np.r_[np.zeros(n), theta]

    def run() -> np.ndarray:
        counter = WmcManager(node, log_mode=True)
        for literal, weight in zip(literals.tolist(), weights.tolist()):
            counter.set_literal_weight(manager.literal(literal), weight)
        counter.propagate()
        return np.array([np.exp(counter.literal_pr(manager.literal(v))) for v in range(1, n + 1)])

    run.manager = manager  # keeps the diagram alive
    return run


def versions() -> dict[str, str]:
    """Installed peers."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("fast-poibin", "scipy", "statsmodels", "pysdd"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


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
