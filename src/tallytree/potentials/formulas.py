"""Formulas of the named potentials, written once for NumPy, PyTorch and JAX.

Every formula is ``log f`` at the counts ``c`` of a group of ``n`` variables, in the namespace ``xp``. Its numbers are
single numbers or columns (..., 1), one row per model. The value is NaN where there is none: it leaves the range of
floating point, or the numbers are out of the range of the potential.

PyTorch and JAX differentiate the formulas. A branch that is not taken therefore gets an argument at which its
derivative is finite, since ``0 * inf`` would be NaN.

For learning with NumPy the rules of the derivatives are at the end. There named potentials are functions of unbounded
coordinates: a number that must be positive has its logarithm as coordinate, a probability its log-odds; others are
their own. In coordinates every table is smooth, and no step of an optimiser leaves the range. Fixed numbers may lie on
the edge of it: their coordinates are infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_expit, logit

from tallytree.arrays import Float64
from tallytree.errors import ParameterError


def counts(n: int) -> Float64:
    """The counts ``0, ..., n``."""
    return np.arange(n + 1, dtype=np.float64)


def _where(xp: Any, mask: Any, f: Callable[..., Any], otherwise: Any, *arguments: Any) -> Any:
    """``f(*arguments)`` where the mask holds, and ``otherwise`` elsewhere; NumPy evaluates ``f`` there only."""
    if xp is not np:
        return xp.where(mask, f(*arguments), otherwise)
    shape = otherwise.shape
    mask = mask if mask.shape == shape else np.broadcast_to(mask, shape)
    there = [
        a if np.ndim(a) == 0 else (a if a.shape == shape else np.broadcast_to(a, shape))[mask]
        for a in arguments
    ]
    otherwise[mask] = f(*there)
    return otherwise


def _either(xp: Any, condition: Any, yes: Any, no: Any) -> Any:
    """``xp.where``, also for a single truth value."""
    return xp.where(condition, yes, no) if hasattr(condition, "shape") else yes if condition else no


# -- hard constraints ----------------------------------------------------------------------------------------------


def exactly(xp: Any, c: Any, n: int, k: Any) -> Any:
    return _allowed(xp, c, c == k)


def at_least(xp: Any, c: Any, n: int, k: Any) -> Any:
    return _allowed(xp, c, c >= k)


def at_most(xp: Any, c: Any, n: int, k: Any) -> Any:
    return _allowed(xp, c, c <= k)


def between(xp: Any, c: Any, n: int, lo: Any, hi: Any) -> Any:
    return _allowed(xp, c, (c >= lo) & (c <= hi))


def modulo(xp: Any, c: Any, n: int, m: Any, r: Any) -> Any:
    return _allowed(xp, c, c % m == r)


# The count that a group must be able to reach; None: any count that is not negative will do.
REACHED = {"exactly": "k", "at_least": "k", "between": "lo", "at_most": None}


def out_of_reach(name: str, n: int, counts: Any) -> Any:
    """Which of the first numbers of a constraint no group of ``n`` variables can have."""
    return counts < 0 if REACHED[name] is None else (counts < 0) | (counts > n)


def reach_error(name: str, n: int, count: int) -> ParameterError:
    """What to say of a count that is out of reach, where potentials are made from tensors."""
    limits = f"{REACHED[name]} <= n = {n}, the number of variables of its group" if REACHED[name] else "k"
    return ParameterError(
        f"`{name}` needs 0 <= {limits}; {count} arrived. Change the count, or put the potential on a larger group."
    )


def _allowed(xp: Any, c: Any, mask: Any) -> Any:
    return xp.where(mask, 0.0 * c, -math.inf)


def one_of(xp: Any, c: Any, n: int, numbers: npt.NDArray[np.int64]) -> Float64:
    """For NumPy and all counts ``0, ..., n``; listed counts above ``n`` fall into a column that is dropped."""
    log_f = np.full((*numbers.shape[:-1], n + 2), -np.inf)
    np.put_along_axis(log_f, np.minimum(numbers, n + 1), 0.0, axis=-1)
    return log_f[..., :-1]


# -- causes --------------------------------------------------------------------------------------------------------


def noisy_or(xp: Any, c: Any, n: int, rate: Any, leak: Any, t: Any = 1) -> Any:
    return outcome(xp, t, log_absent(xp, c, xp.log1p(-rate), xp.log1p(-leak)))


def noisy_and(xp: Any, c: Any, n: int, rate: Any, leak: Any, t: Any = 1) -> Any:
    return noisy_or(xp, n - c, n, rate, leak, 1 - t)


def log_absent(xp: Any, c: Any, log_fail: Any, log_no_leak: Any) -> Any:
    """Logarithm of the probability that ``c`` causes and the leak all fail."""
    return multiples(xp, c, log_fail) + log_no_leak


def outcome(xp: Any, t: Any, absent: Any) -> Any:
    """Logarithm of the probability of the effect (``t = 1``), or of its absence (``t = 0``), from the latter."""
    if isinstance(t, int):
        return log1mexp(xp, absent) if t == 1 else absent
    return xp.where(t == 1, log1mexp(xp, absent), absent)


def log1mexp(xp: Any, a: Any) -> Any:
    """``log(1 - exp(a))`` for ``a <= 0``, without cancellation near 0 or near 1 (Maechler 2012)."""

    def above_underflow(a: Any) -> Any:
        small, possible = a > -math.log(2.0), a < 0.0
        near = xp.log(-xp.expm1(_harmless(xp, small & possible, a)))
        far = xp.log1p(-xp.exp(_harmless(xp, ~small, a)))
        return xp.where(possible, xp.where(small, near, far), -math.inf)

    return _where(xp, a > -746.0, above_underflow, xp.zeros_like(a), a)


def _harmless(xp: Any, wanted: Any, a: Any) -> Any:
    """An argument without infinite derivatives where it is not wanted."""
    return a if xp is np else xp.where(wanted, a, -1.0)


# -- profiles ------------------------------------------------------------------------------------------------------


def gaussian(xp: Any, c: Any, n: int, mean: Any, sd: Any, fraction: bool = False) -> Any:
    share = c / n if fraction and n > 0 else c
    return _finite(xp, -0.5 * ((share - mean) / sd) ** 2)


def quadratic(xp: Any, c: Any, n: int, curvature: Any, center: Any = None) -> Any:
    return _finite(xp, 0.5 * curvature * (c - (0.5 * n if center is None else center)) ** 2)


def poisson(xp: Any, c: Any, n: int, mean: Any, log_mean: Any = None) -> Any:
    """Loader's saddle-point form: ``c log(mean) - mean - lgamma(c + 1)`` loses nine digits at a mean of a million."""
    log_mean = xp.log(mean) if log_mean is None else log_mean
    some = xp.where(c == 0.0, 1.0, c)
    log_f = -_log_factorial_error(xp, some) - _deviance(xp, some, mean, log_mean)
    return xp.where(c == 0.0, -mean, _either(xp, mean > 0.0, _finite(xp, log_f), -math.inf))


def all_or_none(xp: Any, c: Any, n: int, strength: Any, truncation: Any = None) -> Any:
    if truncation is None:
        return xp.where((c == 0.0) | (c == n), 0.0 if xp is np else 0.0 * c, -strength)
    share = xp.where(2.0 * c < n, c, n - c) / truncation
    return xp.where(share > 0.0, -strength * xp.where(share < 1.0, share, 1.0), 0.0)


def _finite(xp: Any, log_f: Any) -> Any:
    """NaN for values that overflow."""
    fits = xp.isfinite(log_f)
    return log_f if xp is np and fits.all() else xp.where(fits, log_f, math.nan)


def _log_factorial_error(xp: Any, c: Any) -> Any:
    """``log(c!) - [c log c - c]`` for counts from 1: half of ``log(2 pi c)``, and Stirling's series from 16 on."""
    r = 1.0 / c
    r2 = r * r
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - r2 / 1188) * r2) * r2) * r2) * r
    limit = len(_SMALL_STIRLING_ERRORS)
    error = _where(xp, c < limit, lambda c: _small_errors(xp, xp.where(c < limit, c, 1.0)), series, c)
    return error + 0.5 * xp.log(2.0 * math.pi * c)


def _small_errors(xp: Any, c: Any) -> Any:
    """Stirling errors of small counts: a lookup, which PyTorch writes differently."""
    if hasattr(c, "new_tensor"):
        return c.new_tensor(_SMALL_STIRLING_ERRORS)[c.long()]
    return xp.asarray(_SMALL_STIRLING_ERRORS, c.dtype)[c.astype(int)]


_SMALL_STIRLING_ERRORS = np.array(
    [0.0]
    + [
        math.log(math.factorial(k)) - (k * math.log(k) - k + 0.5 * math.log(2.0 * math.pi * k))
        for k in range(1, 16)
    ]
)


def _deviance(xp: Any, c: Any, mean: Any, log_mean: Any) -> Any:
    """``c log(c / mean) + mean - c``, without cancellation where ``c`` is near ``mean`` (Loader's bd0)."""

    def series(c: Any, mean: Any) -> Any:
        v = (c - mean) / (c + mean)
        v2 = v * v
        total = 1 / 19
        for odd in range(17, 1, -2):
            total = total * v2 + 1 / odd
        return (c - mean) * v + 2.0 * c * v * v2 * total

    near = xp.abs(c - mean) < 0.1 * (c + mean)
    return _where(xp, near, series, c * (xp.log(c) - log_mean) + (mean - c), c, mean)


# -- sums of exponentials -------------------------------------------------------------------------------------------


def uniform(xp: Any, c: Any, n: int) -> Any:
    return 0.0 * c


def geometric(xp: Any, c: Any, n: int, ratio: Any) -> Any:
    return multiples(xp, c, xp.log(ratio))


def multiples(xp: Any, c: Any, step: Any) -> Any:
    """``c * step``, with ``0 * inf = 0``."""
    return c * step if xp is np and np.isfinite(step).all() else xp.where(c == 0.0, 0.0, c * step)


def spike_and_slab(xp: Any, c: Any, n: int, spike: Any, slab: Any = 1.0) -> Any:
    return log_spike_and_slab(xp, c, xp.log(spike), xp.log(slab))


def log_spike_and_slab(xp: Any, c: Any, log_spike: Any, log_slab: Any) -> Any:
    return xp.where(c == 0.0, xp.logaddexp(log_spike, log_slab), log_slab)


def exponential_mixture(xp: Any, c: Float64, n: int, coefficients: Any, rates: Any) -> Float64:
    """For NumPy, which looks at the rounding of sums that cancel."""
    return log_of_mixture(*mixture_sums(c, coefficients, rates))


def log_of_mixture(total: Float64, size: Float64, rounding: Float64, log_scale: Float64) -> Float64:
    """``log f``; NaN where ``f`` is negative or overflows, ``-inf`` where it is no more than rounding."""
    positive = (total > rounding) | ((total > 0.0) & (total == size))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_f = np.where(positive, np.log(total), -np.inf) + log_scale
    wrong = (total < -rounding) | (positive & ~np.isfinite(log_f))
    return np.where(wrong, np.nan, log_f)


def mixture_sums(c: Float64, coefficients: Any, rates: Any) -> tuple[Float64, Float64, Float64, Float64]:
    """``f``, the sum of its absolute terms and the rounding of it, all over ``exp(log_scale)``, and ``log_scale``."""
    coefficients, rates = coefficients[..., None, :], rates[..., None, :]
    log_scale, terms = _scaled_terms(coefficients, rates, c[:, None])
    total, size = terms.sum(axis=-1), np.abs(terms).sum(axis=-1)
    rounding = 4.0 * np.finfo(float).eps * (rates.shape[-1] + np.abs(log_scale)) * size
    return total, size, rounding, log_scale


def _scaled_terms(coefficients: Float64, rates: Float64, c: Any) -> tuple[Float64, Float64]:
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


# -- derivatives in unbounded coordinates -----------------------------------------------------------------------------

Slopes = dict[str, Float64]


@dataclass(frozen=True)
class Domain:
    """Values that a number may take, and the coordinate that covers their inside."""

    name: str
    to_coordinate: Callable[[float], float]
    to_value: Callable[[float], float]
    low: float
    high: float


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else -math.inf


def _exp(coordinate: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(coordinate))


REAL = Domain("a real number", float, float, -math.inf, math.inf)
POSITIVE = Domain("a positive number", _log, _exp, 0.0, math.inf)
PROBABILITY = Domain(
    "a number between 0 and 1", lambda p: float(logit(p)), lambda x: float(expit(x)), 0.0, 1.0
)


@dataclass(frozen=True)
class Family:
    """A named potential whose numbers can be learned.

    Attributes
    ----------
    domains
        Domain of every number with a derivative; the others are settings.
    table
        ``table(n, **coordinates and settings)`` is ``log f``, (n + 1,), with its derivative in every coordinate; 0
        where ``log f`` is ``-inf``.
    """

    domains: dict[str, Domain]
    table: Callable[..., tuple[Float64, Slopes]]


@np.errstate(all="ignore")
def _noisy_or(n: int, rate: float, leak: float, t: int) -> tuple[Float64, Slopes]:
    c = counts(n)
    absent = log_absent(np, c, log_expit(-rate), log_expit(-leak))
    slopes = {"rate": -expit(rate) * c, "leak": np.full(n + 1, -expit(leak))}
    if t == 0:
        return absent, slopes
    possible = absent < 0.0
    # d log(1 - e^a) / d a = -1 / (e^-a - 1)
    factor = np.where(possible, -1.0 / np.expm1(np.where(possible, -absent, 1.0)), 0.0)
    return outcome(np, t, absent), {name: factor * slope for name, slope in slopes.items()}


def _noisy_and(n: int, rate: float, leak: float, t: int) -> tuple[Float64, Slopes]:
    table, slopes = _noisy_or(n, rate, leak, 1 - t)
    return table[::-1].copy(), {name: slope[::-1].copy() for name, slope in slopes.items()}


def _gaussian(n: int, mean: float, sd: float, fraction: bool) -> tuple[Float64, Slopes]:
    c, width = counts(n), _exp(sd)
    away = ((c / n if fraction and n > 0 else c) - mean) / width
    table = gaussian(np, c, n, mean, width, fraction)
    return table, {"mean": away / width, "sd": away**2}


@np.errstate(all="ignore")
def _poisson(n: int, mean: float) -> tuple[Float64, Slopes]:
    c, value = counts(n), _exp(mean)
    return poisson(np, c, n, value, mean), {"mean": c - value}


def _quadratic(n: int, curvature: float, center: float | None) -> tuple[Float64, Slopes]:
    c = counts(n)
    away = c - (0.5 * n if center is None else center)
    table = quadratic(np, c, n, curvature, center)
    return table, {"curvature": 0.5 * away**2, "center": -curvature * away}


def _all_or_none(n: int, strength: float, truncation: float | None) -> tuple[Float64, Slopes]:
    table = all_or_none(np, counts(n), n, _exp(strength), truncation)
    return table, {"strength": np.where(table > -math.inf, table, 0.0)}


def _geometric(n: int, ratio: float) -> tuple[Float64, Slopes]:
    c = counts(n)
    return multiples(np, c, ratio), {"ratio": c}


def _spike_and_slab(n: int, spike: float, slab: float) -> tuple[Float64, Slopes]:
    c = counts(n)
    share = float(expit(spike - slab)) if spike != slab else 0.5
    slopes = {"spike": np.where(c == 0.0, share, 0.0), "slab": np.where(c == 0.0, 1.0 - share, 1.0)}
    return log_spike_and_slab(np, c, spike, slab), slopes


FAMILIES: dict[str, Family] = {
    "noisy_or": Family({"rate": PROBABILITY, "leak": PROBABILITY}, _noisy_or),
    "noisy_and": Family({"rate": PROBABILITY, "leak": PROBABILITY}, _noisy_and),
    "gaussian": Family({"mean": REAL, "sd": POSITIVE}, _gaussian),
    "poisson": Family({"mean": POSITIVE}, _poisson),
    "quadratic": Family({"curvature": REAL, "center": REAL}, _quadratic),
    "all_or_none": Family({"strength": POSITIVE}, _all_or_none),
    "geometric": Family({"ratio": POSITIVE}, _geometric),
    "spike_and_slab": Family({"spike": POSITIVE, "slab": POSITIVE}, _spike_and_slab),
}
