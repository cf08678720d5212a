"""Formulas of named potentials: their logarithms at the counts ``c`` of a group of ``n``; NaN where there is none.

Pure functions of arrays. The parameters are single numbers, or columns (..., 1) with one row per model as in
:mod:`~tallytree.potentials.per_model`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tallytree.checks.numbers import FloatArray


def counts(n: int) -> FloatArray:
    """The counts ``0, ..., n``."""
    return np.arange(n + 1, dtype=np.float64)


def allowed(mask: Any) -> FloatArray:
    """Zero where a count is allowed, ``-inf`` elsewhere."""
    return np.where(mask, 0.0, -np.inf)


def listed(c: FloatArray, n: int, numbers: npt.NDArray[np.int64]) -> FloatArray:
    """Zero at the listed counts; those above ``n`` fall into a column that is dropped."""
    log_f = np.full((*numbers.shape[:-1], n + 2), -np.inf)
    np.put_along_axis(log_f, np.minimum(numbers, n + 1), 0.0, axis=-1)
    return log_f[..., :-1]


def multiples(c: FloatArray, step: Any) -> FloatArray:
    """``c * step`` for rising counts, with ``0 * inf = 0``."""
    found: FloatArray = c * step
    if c[0] == 0.0:
        found[..., 0] = 0.0
    return found


def either(condition: Any, yes: Any, no: Any) -> Any:
    """``np.where``, which takes a microsecond to choose between single numbers."""
    return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else yes if condition else no


def log_absent(c: FloatArray, rate: Any, leak: Any) -> FloatArray:
    """Logarithm of the probability that ``c`` causes and the leak all fail."""
    found: FloatArray = multiples(c, np.log1p(-rate)) + np.log1p(-leak)
    return found


def noisy_or(c: FloatArray, n: int, rate: Any, leak: Any, t: Any) -> FloatArray:
    absent, seen = np.broadcast_arrays(log_absent(c, rate, leak), t == 1)
    log_f: FloatArray = np.where(seen, log1mexp(absent), absent)
    return log_f


def noisy_and(c: FloatArray, n: int, rate: Any, leak: Any, t: Any) -> FloatArray:
    return noisy_or((n - c)[::-1], n, rate, leak, 1 - t)[..., ::-1]


def spike_and_slab(c: FloatArray, n: int, spike: Any, slab: Any) -> FloatArray:
    log_f: FloatArray = c * (0.0 * spike) + np.log(slab)  # in the shape that all of them have together
    if c[0] == 0.0:
        # log(1 + spike) keeps its digits for a small spike on the usual slab of one
        log_f[..., :1] = either(slab == 1.0, np.log1p(spike), np.log(slab + spike))
    return log_f


def gaussian(c: FloatArray, n: int, mean: Any, sd: Any, fraction: bool) -> FloatArray:
    share = c / n if fraction and n > 0 else c
    return finite(-0.5 * ((share - mean) / sd) ** 2)


def quadratic(c: FloatArray, n: int, curvature: Any, center: Any) -> FloatArray:
    return finite(0.5 * curvature * (c - (0.5 * n if center is None else center)) ** 2)


def poisson(c: FloatArray, mean: Any, log_mean: Any) -> FloatArray:
    some = np.maximum(c, 1.0)
    log_f = -stirling_error(some) - deviance(some, mean, log_mean) - 0.5 * np.log(2.0 * np.pi * some)
    found: FloatArray = np.where(c == 0.0, -mean, either(mean > 0.0, finite(log_f), -np.inf))
    return found


def all_or_none(c: FloatArray, n: int, strength: Any, truncation: Any) -> FloatArray:
    if truncation is None:
        return np.where((c == 0.0) | (c == n), 0.0, -strength)
    fraction = np.minimum(np.minimum(c, n - c) / truncation, 1.0)
    return np.where(fraction > 0.0, -strength * fraction, 0.0)


def finite(log_f: FloatArray) -> FloatArray:
    """NaN for values that overflow."""
    fits = np.isfinite(log_f)
    return log_f if fits.all() else np.where(fits, log_f, np.nan)


def log1mexp(a: FloatArray) -> FloatArray:
    """``log(1 - exp(a))`` for ``a <= 0``, without cancellation near 0 or near 1 (Maechler 2012)."""
    out = np.zeros_like(a)
    seen = a > -746.0  # below that exp(a) is zero
    x = a[seen]
    with np.errstate(divide="ignore"):
        out[seen] = np.where(x > -np.log(2.0), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))
    return out


def stirling_error(c: FloatArray) -> FloatArray:
    """``log(c!) - [c log c - c + log(2 pi c) / 2]`` for counts from 1; the series serves from 16 on."""
    c2 = c * c
    error = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / c2) / c2) / c2) / c2) / c
    small = c < 16.0
    error[small] = _SMALL_STIRLING_ERRORS[c[small].astype(np.int64) - 1]
    return error


_SMALL_STIRLING_ERRORS = np.array(
    [
        math.log(math.factorial(k)) - (k * math.log(k) - k + 0.5 * math.log(2.0 * math.pi * k))
        for k in range(1, 16)
    ]
)


def deviance(c: FloatArray, mean: Any, log_mean: Any) -> FloatArray:
    """``c log(c / mean) + mean - c``, without cancellation where ``c`` is near ``mean`` (Loader's bd0)."""
    v = (c - mean) / (c + mean)
    near = np.abs(v) < 0.1
    result: FloatArray = c * (np.log(c) - log_mean) + (mean - c)
    x, m, w = np.broadcast_to(c, v.shape)[near], np.broadcast_to(mean, v.shape)[near], v[near]
    term = 2.0 * x * w
    total = (x - m) * w
    for j in range(1, 10):
        term = term * w * w
        total = total + term / (2 * j + 1)
    result[near] = total
    return result


def mixture(c: FloatArray, n: int, coefficients: Any, rates: Any) -> FloatArray:
    return log_of_mixture(*mixture_sums(c, coefficients, rates))


def log_of_mixture(
    total: FloatArray, size: FloatArray, rounding: FloatArray, log_scale: FloatArray
) -> FloatArray:
    """``log f``; NaN where ``f`` is negative or overflows, ``-inf`` where it is no more than rounding."""
    positive = (total > rounding) | ((total > 0.0) & (total == size))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_f = np.where(positive, np.log(total), -np.inf) + log_scale
    wrong = (total < -rounding) | (positive & ~np.isfinite(log_f))
    return np.where(wrong, np.nan, log_f)


def mixture_sums(
    c: FloatArray, coefficients: Any, rates: Any
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """``f``, the sum of its absolute terms and the rounding of it, all over ``exp(log_scale)``, and ``log_scale``."""
    coefficients, rates = coefficients[..., None, :], rates[..., None, :]
    log_scale, terms = _scaled_terms(coefficients, rates, c[:, None])
    total, size = terms.sum(axis=-1), np.abs(terms).sum(axis=-1)
    rounding = 4.0 * np.finfo(float).eps * (rates.shape[-1] + np.abs(log_scale)) * size
    return total, size, rounding, log_scale


def _scaled_terms(coefficients: FloatArray, rates: FloatArray, c: Any) -> tuple[FloatArray, FloatArray]:
    """Terms ``coefficient * rate**c`` and the logarithm of the factor taken out of each row.

    Rows whose terms all fit into floating point are left alone: a power is correct to the last digit, while
    ``exp(c log rate)`` is not, and the digits matter when terms cancel.
    """
    with np.errstate(all="ignore"):
        terms = coefficients * np.power(rates, c)
        log_size = np.log(np.abs(coefficients)) + np.where(c > 0, c * np.log(np.abs(rates)), 0.0)
        extreme = np.any(np.isfinite(log_size) & (np.abs(log_size) > 600.0), axis=-1)
        log_scale = np.where(extreme, log_size.max(axis=-1), 0.0)
        sign = np.sign(coefficients) * np.where((rates < 0.0) & (c % 2 == 1), -1.0, 1.0)
        shifted = sign * np.exp(log_size - log_scale[..., None])
    return log_scale, np.where(log_scale[..., None] != 0.0, shifted, terms)
