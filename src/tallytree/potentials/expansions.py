"""Short sums of exponentials ``f(c) = sum_j coefficient_j * rate_j**c`` and how they multiply and reverse.

A potential of this form needs no convolution at all: the partition function is a sum of ``r`` products over
the variables. The price is cancellation between terms of opposite sign, so every expansion carries a bound
on ``sum_j |term_j| / f(c)``, and one that would lose too many digits is not offered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Products of expansions longer than this are slower than the general algorithms they would replace.
SHORT = 8
# Largest cancellation offered: a relative error of about 2**16 * 2**-53 = 7e-12 in f.
WORST_CONDITION = 2.0**16
# Rates and coefficients outside this range have lost digits to underflow, or are about to overflow.
_SMALLEST, _LARGEST = 1e-290, 1e290

Terms = npt.NDArray[np.float64] | npt.NDArray[np.complex128]


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """``f(c) = sum_j coefficients[j] * rates[j]**c``; ``sum_j |term_j| <= condition * f(c)`` where f > 0."""

    coefficients: Terms
    rates: Terms
    condition: float

    def times(self, other: Expansion, n: int) -> Expansion | None:
        """The product of two expansions on the counts ``0..n``; ``None`` when it is long or inaccurate."""
        if self.rates.size * other.rates.size > SHORT:
            return None
        condition = self.condition * other.condition
        if condition > 1.0 and not (_powers_are_exact(self.rates) or _powers_are_exact(other.rates)):
            condition *= max(n, 1)  # the rounding of a product of rates is raised to the power c
        rates = _products(self.rates, other.rates)
        coefficients = _products(self.coefficients, other.coefficients)
        if rates is None or coefficients is None:
            return None
        return _merged(coefficients, rates, condition)

    def reversed(self, n: int) -> Expansion | None:
        """The expansion of ``f(n - c)``; ``None`` if a rate is zero or ``rate**n`` leaves the float range."""
        if n == 0:
            return self
        if np.any(self.rates == 0):
            return None
        with np.errstate(all="ignore"):
            scale = self.rates**n
            coefficients = self.coefficients * scale
        lost = (np.abs(coefficients) < _SMALLEST) & (self.coefficients != 0)
        if lost.any() or np.any(np.abs(scale) < _SMALLEST) or np.any(np.abs(scale) > _LARGEST):
            return None
        signed = self.condition > 1.0 and not _powers_are_exact(self.rates)
        return expansion(coefficients, 1.0 / self.rates, self.condition * (n if signed else 1))

    def power(self, p: float, n: int) -> Expansion | None:
        """The expansion of ``f(c)**p``: for one positive term, or a small whole ``p``; else ``None``."""
        if self.rates.size == 1 and not np.iscomplexobj(self.rates):
            rate, coefficient = float(self.rates[0]), float(self.coefficients[0])
            if coefficient > 0.0 and rate >= 0.0:
                with np.errstate(all="ignore"):
                    tempered = np.power([coefficient, rate], p)
                if tempered[0] < _SMALLEST or (rate > 0.0 and not _SMALLEST < tempered[1] < _LARGEST):
                    return None
                return expansion(tempered[:1], tempered[1:], 1.0)
        if p != int(p) or p > SHORT or self.rates.size**p > SHORT:
            return None
        result: Expansion | None = self
        for _ in range(int(p) - 1):
            result = result.times(self, n) if result is not None else None
        return result


def expansion(coefficients: Any, rates: Any, condition: float = 1.0) -> Expansion | None:
    """Build an expansion; ``None`` when a number is out of range or the terms cancel too much."""
    is_complex = np.iscomplexobj(coefficients) or np.iscomplexobj(rates)
    dtype: type[Any] = np.complex128 if is_complex else np.float64
    terms: Terms = np.array(coefficients, dtype=dtype)
    bases: Terms = np.array(rates, dtype=dtype)
    size = np.abs(terms)
    fits = np.all((size == 0) | ((size > _SMALLEST) & (size < _LARGEST))) and np.all(np.abs(bases) < np.inf)
    return Expansion(terms, bases, condition) if fits and condition <= WORST_CONDITION else None


def expand_interval(lo: int, hi: int, n: int) -> Expansion | None:
    """Expansion of the indicator of ``lo <= c <= hi`` within ``0..n``, where two terms are enough."""
    if lo == 0 and hi >= n:
        return expansion([1.0], [1.0])
    if lo == 0 and hi == 0:
        return expansion([1.0], [0.0])
    if lo == 1 and hi >= n:
        return expansion([1.0, -1.0], [1.0, 0.0])
    return None


def _powers_are_exact(rates: Terms) -> bool:
    return bool(np.all((rates == 0) | (rates == 1) | (rates == -1)))


def _products(a: Terms, b: Terms) -> Terms | None:
    """All products of an entry of ``a`` with one of ``b``; ``None`` if one of them underflows."""
    with np.errstate(all="ignore"):
        products: Terms = np.multiply.outer(a, b)
    lost = (np.abs(products) < _SMALLEST) & np.logical_and.outer(a != 0, b != 0)
    return None if lost.any() else products.ravel()


def _merged(coefficients: Terms, rates: Terms, condition: float) -> Expansion | None:
    """Add the coefficients of equal rates, unless they cancel: a rounded difference is not a coefficient."""
    distinct, where = np.unique(rates, return_inverse=True)
    total = np.zeros(distinct.size, dtype=coefficients.dtype)
    size = np.zeros(distinct.size)
    with np.errstate(all="ignore"):
        np.add.at(total, where, coefficients)
        np.add.at(size, where, np.abs(coefficients))
        if np.any(np.abs(total) * 8.0 < size):
            return expansion(coefficients, rates, condition)
    return expansion(total, distinct, condition)
