"""Smooth preferences on counts: gaussian, poisson, quadratic, and the all-or-none potentials of vision."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tallytree.checks.numbers import FloatArray, check_flag, check_range, check_real, show
from tallytree.potentials.base import Potential
from tallytree.potentials.expansions import Expansion, expansion


def gaussian(mean: float, sd: float, *, fraction: bool = False) -> Potential:
    """Bell curve on the count, or on the fraction of active variables.

    ``log f(c) = -(c - mean)**2 / (2 sd**2)``, with ``c / n`` in place of ``c`` if ``fraction``.

    The fraction form is the "Normal" potential of the paper's section 6.3, whose printed formula lacks the
    square.

    Parameters
    ----------
    mean : float
        Preferred count (or fraction).
    sd : float
        Width in counts (or as a fraction), above 0.
    fraction : bool
        Measure ``mean`` and ``sd`` in fractions of the group. An empty group has fraction 0.

    Notes
    -----
    Cost: O(n) for the table.
    Accuracy: relative 1e-13 in ``log f`` for a mean of moderate size.

    Examples
    --------
    >>> tt.gaussian(1, 0.5).log_table(3)
    array([-2.,  0., -2., -8.])
    >>> tt.gaussian(0.5, 0.25, fraction=True).log_table(4)
    array([-2. , -0.5,  0. , -0.5, -2. ])
    """
    fraction = check_flag(fraction, "fraction")
    return Gaussian(check_real(mean, "mean"), check_real(sd, "sd", 0.0, strict=True), fraction)


def poisson(mean: float) -> Potential:
    """Poisson probability of the count.

    ``f(c) = mean**c exp(-mean) / c!``, not renormalised to the counts ``0..n``.

    Parameters
    ----------
    mean : float
        Expected count, at least 0 and finite.

    Notes
    -----
    Cost: O(n) for the table.
    Accuracy: ``log f`` within ``1e-13 (1 + |log f|)`` also for large means, by Loader's saddle-point form;
    the textbook difference ``c log(mean) - lgamma(c + 1) - mean`` loses nine digits at a mean of a million.

    References
    ----------
    C. Loader, "Fast and accurate computation of binomial probabilities", 2000.

    Examples
    --------
    >>> tt.poisson(2.0).log_table(3).round(4)
    array([-2.    , -1.3069, -1.3069, -1.7123])
    """
    return Poisson(check_real(mean, "mean", 0.0))


def quadratic(curvature: float, center: float | None = None) -> Potential:
    """Parabola in the count: smoothness if convex, competition if concave.

    ``log f(c) = curvature / 2 * (c - center)**2``.

    Parameters
    ----------
    curvature : float
        Positive (convex): variables like to be on together or off together. Negative (concave): they
        compete, and counts near ``center`` are preferred.
    center : float, optional
        Lowest (or highest) point, in counts. Half the group, ``n / 2``, if not given.

    Notes
    -----
    Cost: O(n) for the table.
    Accuracy: relative 1e-13 in ``log f`` for a center of moderate size.

    Examples
    --------
    >>> tt.quadratic(1.0).log_table(4)
    array([2. , 0.5, 0. , 0.5, 2. ])
    >>> tt.quadratic(-2.0, center=1).log_table(3)
    array([-1.,  0., -1., -4.])
    """
    checked = None if center is None else check_real(center, "center")
    return Quadratic(check_real(curvature, "curvature"), checked)


def all_or_none(strength: float, truncation: float | None = None) -> Potential:
    """Preference for groups that agree: the P^n potential, and its robust form.

    P^n: ``log f(c) = 0`` if ``c`` is 0 or ``n``, else ``-strength``.
    Robust P^n: ``log f(c) = -strength * min(min(c, n - c) / truncation, 1)``.

    Parameters
    ----------
    strength : float
        Largest penalty, at least 0. ``np.inf`` makes agreement compulsory.
    truncation : float, optional
        Number of dissenting variables, above 0, at which the penalty of the robust form stops growing.

    Notes
    -----
    Cost: O(n) for the table.
    Accuracy: relative 1e-13 in ``log f``.

    References
    ----------
    Kohli, Ladicky and Torr, "Robust higher order potentials for enforcing label consistency", IJCV 2009.

    Examples
    --------
    >>> tt.all_or_none(2.0).log_table(4)
    array([ 0., -2., -2., -2.,  0.])
    >>> tt.all_or_none(2.0, truncation=2).log_table(4)
    array([ 0., -1., -2., -1.,  0.])
    """
    limit = None if truncation is None else check_real(truncation, "truncation", 0.0, strict=True)
    return AllOrNone(check_real(strength, "strength", 0.0, infinite=True), limit)


def _counts(n: int) -> FloatArray:
    return np.arange(n + 1, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Gaussian(Potential):
    """See :func:`gaussian`."""

    mean: float
    sd: float
    fraction: bool

    def __repr__(self) -> str:
        return f"gaussian({show(self.mean)}, {show(self.sd)}{', fraction=True' if self.fraction else ''})"

    def _log_f(self, n: int) -> FloatArray:
        c = _counts(n)
        if self.fraction and n > 0:
            c /= n
        with np.errstate(over="ignore"):
            return check_range(-0.5 * ((c - self.mean) / self.sd) ** 2, None, repr(self))

    def _support(self, n: int) -> tuple[int, int]:
        return 0, n


@dataclass(frozen=True, slots=True)
class Poisson(Potential):
    """See :func:`poisson`."""

    mean: float

    def __repr__(self) -> str:
        return f"poisson({show(self.mean)})"

    def _log_f(self, n: int) -> FloatArray:
        log_f = np.full(n + 1, -np.inf)
        log_f[0] = -self.mean
        if self.mean > 0.0 and n > 0:
            c = _counts(n)[1:]
            log_f[1:] = -_stirling_error(c) - _deviance(c, self.mean) - 0.5 * np.log(2.0 * np.pi * c)
            check_range(log_f, None, repr(self))
        return log_f

    def _support(self, n: int) -> tuple[int, int]:
        return 0, n if self.mean > 0.0 else 0

    def _expansion(self, n: int) -> Expansion | None:
        return expansion([1.0], [0.0]) if self.mean == 0.0 else None


@dataclass(frozen=True, slots=True)
class Quadratic(Potential):
    """See :func:`quadratic`."""

    curvature: float
    center: float | None

    def __repr__(self) -> str:
        center = "" if self.center is None else f", center={show(self.center)}"
        return f"quadratic({show(self.curvature)}{center})"

    def _log_f(self, n: int) -> FloatArray:
        center = 0.5 * n if self.center is None else self.center
        with np.errstate(over="ignore", invalid="ignore"):
            return check_range(0.5 * self.curvature * (_counts(n) - center) ** 2, None, repr(self))

    def _support(self, n: int) -> tuple[int, int]:
        return 0, n


@dataclass(frozen=True, slots=True)
class AllOrNone(Potential):
    """See :func:`all_or_none`."""

    strength: float
    truncation: float | None

    def __repr__(self) -> str:
        truncation = "" if self.truncation is None else f", truncation={show(self.truncation)}"
        return f"all_or_none({show(self.strength)}{truncation})"

    def _log_f(self, n: int) -> FloatArray:
        dissent = _counts(n)
        dissent = np.minimum(dissent, dissent[::-1])
        if self.truncation is None:
            fraction = np.minimum(dissent, 1.0)
        else:
            with np.errstate(over="ignore"):
                fraction = np.minimum(dissent / self.truncation, 1.0)
        log_f = np.zeros(n + 1)
        agree = fraction == 0.0
        log_f[~agree] = -self.strength * fraction[~agree]
        return log_f

    def _support(self, n: int) -> tuple[int, int]:
        return 0, n

    def _expansion(self, n: int) -> Expansion | None:
        return expansion([1.0], [1.0]) if self.strength == 0.0 or n <= 1 else None


def _stirling_error(c: FloatArray) -> FloatArray:
    """``log(c!) - [c log c - c + log(2 pi c) / 2]`` for ``c = 1, 2, ...``; the series serves from 16 on."""
    c2 = c * c
    error = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / c2) / c2) / c2) / c2) / c
    error[:15] = _SMALL_STIRLING_ERRORS[: c.size]
    return error


_SMALL_STIRLING_ERRORS = [
    math.log(math.factorial(k)) - (k * math.log(k) - k + 0.5 * math.log(2.0 * math.pi * k))
    for k in range(1, 16)
]


def _deviance(c: FloatArray, mean: float) -> FloatArray:
    """``c log(c / mean) + mean - c``, without cancellation where ``c`` is near ``mean`` (Loader's bd0)."""
    v = (c - mean) / (c + mean)
    near = np.abs(v) < 0.1
    result: FloatArray = c * (np.log(c) - math.log(mean)) + (mean - c)
    x, w = c[near], v[near]
    term = 2.0 * x * w
    total = (x - mean) * w
    for j in range(1, 10):
        term = term * w * w
        total = total + term / (2 * j + 1)
    result[near] = total
    return result
