"""Potentials on a window of counts: a named potential over 10^9 variables needs no table of that length.

``log_window(potential, n, first, last)`` is ``potential.log_table(n)[first : last + 1]``, bit for bit, at the cost of
the window. Kinds that are not listed here, such as a potential of the user's own, are evaluated as a whole.
"""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import numpy as np

from tallytree.checks.numbers import FloatArray, check_log_values, check_range
from tallytree.potentials import rows
from tallytree.potentials.base import Complement, Potential, Power, Product
from tallytree.potentials.causes import NoisyAnd, NoisyOr
from tallytree.potentials.constraints import Interval, OneOf
from tallytree.potentials.exponentials import Geometric, SpikeAndSlab, Uniform
from tallytree.potentials.profiles import AllOrNone, Gaussian, Poisson, Quadratic
from tallytree.potentials.remainders import Modulo, Parity
from tallytree.potentials.tables import Function, Table


def log_window(potential: Potential, n: int, first: int, last: int) -> FloatArray:
    """``log f(first), ..., log f(last)`` for a group of ``n`` variables, ``0 <= first <= last <= n``."""
    potential._require(n)
    return _window(potential, n, first, last) + 0.0


def _counts(first: int, last: int) -> FloatArray:
    return np.arange(first, last + 1, dtype=np.float64)


@singledispatch
def _window(potential: Potential, n: int, first: int, last: int) -> FloatArray:
    return potential._log_f(n)[first : last + 1]


@_window.register
def _interval(potential: Interval, n: int, first: int, last: int) -> FloatArray:
    lo, hi = potential._support(n)
    c = _counts(first, last)
    return np.where((c >= lo) & (c <= hi), 0.0, -math.inf)


@_window.register
def _one_of(potential: OneOf, n: int, first: int, last: int) -> FloatArray:
    log_f = np.full(last - first + 1, -math.inf)
    log_f[[c - first for c in potential.counts if first <= c <= last]] = 0.0
    return log_f


@_window.register
def _noisy_or(potential: NoisyOr, n: int, first: int, last: int) -> FloatArray:
    log_absent = _counts(first, last)
    positive = slice(1, None) if first == 0 else slice(None)
    with np.errstate(divide="ignore"):
        log_absent[positive] *= np.log1p(-potential.rate)
        log_absent += np.log1p(-potential.leak)
    return rows.log1mexp(log_absent) if potential.t == 1 else log_absent


@_window.register
def _noisy_and(potential: NoisyAnd, n: int, first: int, last: int) -> FloatArray:
    return _window(potential._mirror(), n, n - last, n - first)[::-1].copy()


@_window.register
def _uniform(potential: Uniform, n: int, first: int, last: int) -> FloatArray:
    return np.zeros(last - first + 1)


@_window.register
def _geometric(potential: Geometric, n: int, first: int, last: int) -> FloatArray:
    log_f = _counts(first, last)
    positive = slice(1, None) if first == 0 else slice(None)
    with np.errstate(divide="ignore"):
        log_f[positive] *= np.log(potential.ratio)
    return log_f


@_window.register
def _spike_and_slab(potential: SpikeAndSlab, n: int, first: int, last: int) -> FloatArray:
    if first > 0:
        with np.errstate(divide="ignore"):
            return np.full(last - first + 1, np.log(potential.slab))
    return potential._log_f(last)


@_window.register
def _gaussian(potential: Gaussian, n: int, first: int, last: int) -> FloatArray:
    c = _counts(first, last)
    if potential.fraction and n > 0:
        c /= n
    with np.errstate(over="ignore"):
        return check_range(-0.5 * ((c - potential.mean) / potential.sd) ** 2, None, repr(potential))


@_window.register
def _poisson(potential: Poisson, n: int, first: int, last: int) -> FloatArray:
    if first < 16 or potential.mean == 0.0:  # the first counts have a table of their own
        return potential._log_f(last)[first:]
    c = _counts(first, last)
    stirling = rows.stirling_error(np.concatenate([_counts(1, 15), c]))[15:]
    log_f: FloatArray = (
        -stirling - rows.deviance(c, potential.mean, math.log(potential.mean)) - 0.5 * np.log(2.0 * np.pi * c)
    )
    return check_range(log_f, None, repr(potential))


@_window.register
def _quadratic(potential: Quadratic, n: int, first: int, last: int) -> FloatArray:
    center = 0.5 * n if potential.center is None else potential.center
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (_counts(first, last) - center) ** 2
        return check_range(0.5 * potential.curvature * squares, None, repr(potential))


@_window.register
def _all_or_none(potential: AllOrNone, n: int, first: int, last: int) -> FloatArray:
    c = _counts(first, last)
    dissent = np.minimum(c, n - c)
    with np.errstate(over="ignore"):
        fraction = np.minimum(
            dissent if potential.truncation is None else dissent / potential.truncation, 1.0
        )
    log_f = np.zeros(len(c))
    agree = fraction == 0.0
    log_f[~agree] = -potential.strength * fraction[~agree]
    return log_f


@_window.register
def _modulo(potential: Modulo, n: int, first: int, last: int) -> FloatArray:
    log_f = np.full(last - first + 1, -math.inf)
    log_f[max(potential.r - first, (potential.r - first) % potential.m) :: potential.m] = 0.0
    return log_f


@_window.register
def _parity(potential: Parity, n: int, first: int, last: int) -> FloatArray:
    return _modulo(potential._modulo(), n, first, last)


@_window.register
def _table(potential: Table, n: int, first: int, last: int) -> FloatArray:
    return potential.log_values[first : last + 1].copy()


@_window.register
def _function(potential: Function, n: int, first: int, last: int) -> FloatArray:
    """Users write functions of an array of counts; these need not begin at 0."""
    values: Any = np.asarray(potential.function(np.arange(first, last + 1)), np.float64)
    if values.shape != (last - first + 1,):
        return potential._log_f(n)[first : last + 1]  # which says what is wrong
    check_log_values(values, repr(potential))
    return np.array(values)


@_window.register
def _product(potential: Product, n: int, first: int, last: int) -> FloatArray:
    total = _window(potential.factors[0], n, first, last)
    for factor in potential.factors[1:]:
        log_f = _window(factor, n, first, last)
        possible = np.minimum(total, log_f)
        with np.errstate(over="ignore"):
            total = check_range(total + log_f, possible, repr(potential))
    return total


@_window.register
def _power(potential: Power, n: int, first: int, last: int) -> FloatArray:
    log_f = _window(potential.base, n, first, last)
    with np.errstate(over="ignore"):
        return check_range(log_f * potential.exponent, log_f, repr(potential))  # type: ignore[operator]


@_window.register
def _complement(potential: Complement, n: int, first: int, last: int) -> FloatArray:
    return _window(potential.base, n, n - last, n - first)[::-1].copy()
