"""Models of any size that have a closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy as np

from oracle_enumeration import INF, REAL, log_fraction, log_odds, log_sum_exp
from oracle_nested import Answer


def log_poisson_binomial(theta: Sequence[float]) -> np.ndarray:
    """Log distribution of a sum of independent variables with log-odds ``theta``, one variable at a time."""
    theta = np.asarray(theta, REAL)
    log_pmf = np.full(len(theta) + 1, -INF, REAL)
    log_pmf[0] = 0
    for d, (log_p, log_q) in enumerate(zip(-np.logaddexp(0, -theta), -np.logaddexp(0, theta))):
        shifted = np.concatenate([[-INF], log_pmf[: d + 1] + log_p])
        log_pmf[: d + 2] = np.logaddexp(log_pmf[: d + 2] + log_q, shifted)
    return np.asarray(log_pmf, float)


def log_factorials(n: int) -> np.ndarray:
    """Return log 0!, ..., log n! in extended precision: exact products, then Stirling's series."""
    with mpmath.workdps(30):
        small = [REAL(mpmath.nstr(mpmath.log(mpmath.factorial(k)), 25)) for k in range(min(n, 63) + 1)]
        half_log_2pi = REAL(mpmath.nstr(mpmath.log(2 * mpmath.pi) / 2, 25))
    k = np.arange(64, max(n, 63) + 1, dtype=REAL)
    series = (1 / REAL(12) - (1 / REAL(360) - (1 / REAL(1260) - 1 / (1680 * k**2)) / k**2) / k**2) / k
    return np.concatenate([np.array(small, REAL), (k + REAL(0.5)) * np.log(k) - k + half_log_2pi + series])


def log_group_weights(n: int, logit: float) -> np.ndarray:
    """Return log of C(n, c) exp(c logit) for c = 0..n."""
    fact = log_factorials(n)
    log_choose = fact[n] - fact - fact[::-1]
    if math.isinf(logit):
        return np.where(np.arange(n + 1) == (n if logit > 0 else 0), log_choose, -INF)
    return log_choose + np.arange(n + 1) * REAL(logit)


def binomial_model(n: int, logit: float, log_f: Sequence[float]) -> Answer:
    """Equal theta and one table: a single sum over the count."""
    return two_value_model(n, logit, 0, 0.0, log_f)


def two_value_model(n1: int, logit1: float, n2: int, logit2: float, log_f: Sequence[float]) -> Answer:
    """``n1`` variables at ``logit1``, then ``n2`` at ``logit2``, and one table: a double sum."""
    log_f = np.asarray(log_f, REAL)

    def log_sum(m1: int, m2: int, table: np.ndarray) -> np.ndarray:
        first, second = log_group_weights(m1, logit1), log_group_weights(m2, logit2)
        tables = np.lib.stride_tricks.sliding_window_view(table, m2 + 1)
        return log_sum_exp(first + log_sum_exp(tables + second))

    def logit_of(logit: float, m1: int, m2: int) -> float:
        if math.isinf(logit):
            return logit
        return logit + float(log_odds(log_sum(m1, m2, log_f[1:]), log_sum(m1, m2, log_f[:-1])))

    log_z = log_sum(n1, n2, log_f)
    first = [logit_of(logit1, n1 - 1, n2)] * n1 if n1 else []
    second = [logit_of(logit2, n1, n2 - 1)] * n2 if n2 else []
    weights = log_diagonals(log_group_weights(n1, logit1), log_group_weights(n2, logit2))
    return Answer(float(log_z), np.array(first + second), np.asarray(weights + log_f - log_z, float))


def log_diagonals(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return log of the convolution of exp(a) with exp(b), one entry at a time."""
    if len(b) == 1:
        return a + b[0]
    sums = []
    for c in range(len(a) + len(b) - 1):
        i = np.arange(max(0, c - len(b) + 1), min(c, len(a) - 1) + 1)
        sums.append(log_sum_exp(a[i] + b[c - i]))
    return np.array(sums, REAL)


def mixture_model(theta: Sequence[float], coefs: Sequence, rates: Sequence) -> Answer:
    """Table f(c) = sum_j coefs_j rates_j^c over all variables: Z = sum_j coefs_j prod_d (1 + w_d rates_j).

    Signs are free as long as f >= 0. The number of digits grows until cancellation leaves thirty of them; a
    sum that is still exactly zero when no weight can be lost to rounding is zero.
    """
    finite = [abs(float(t)) for t in theta if math.isfinite(t)]
    plenty = 1000 + 2 * int(max(finite, default=0.0))
    digits = 60
    while digits < 50 * plenty:
        with mpmath.workdps(digits):
            coefs_now, rates_now = [mpmath.mpf(c) for c in coefs], [mpmath.mpf(r) for r in rates]
            found = mixture_attempt(theta, coefs_now, rates_now, zero_is_zero=digits > plenty)
        if found is not None:
            return found
        digits *= 2
    raise ValueError("the mixture is negative")


def mixture_attempt(theta: Sequence[float], coefs: list, rates: list, zero_is_zero: bool) -> Answer | None:
    """One attempt at the current number of digits; None if it was not enough."""
    enough = mpmath.mpf(10) ** (30 - mpmath.mp.dps)
    weights = [(0, 1) if t == INF else (1, mpmath.exp(mpmath.mpf(float(t)))) for t in theta]
    factors = [[off + on * r for off, on in weights] for r in rates]
    without = [[c * rest for rest in leave_one_out(row)] for c, row in zip(coefs, factors)]

    def log_total(terms: list) -> mpmath.mpf | None:
        value = mpmath.fsum(terms)
        if value > enough * max(abs(t) for t in terms):
            return mpmath.log(value)
        return mpmath.mpf("-inf") if zero_is_zero and value == 0 else None

    log_z = log_total([rest[0] * row[0] for rest, row in zip(without, factors)])
    if log_z is None:
        return None
    logits = []
    for d, t in enumerate(theta):
        if math.isinf(t):
            logits.append(float(t))
            continue
        log_off = log_total([rest[d] for rest in without])
        log_on = log_total([rest[d] * r for rest, r in zip(without, rates)])
        if log_on is None or log_off is None:
            return None
        logits.append(float(mpmath.mpf(float(t)) + log_on - log_off))
    return Answer(float(log_z), np.array(logits))


def leave_one_out(values: list) -> list:
    """Return, for each entry, the product of all others (no division: entries may be zero)."""
    before, after = [mpmath.mpf(1)], [mpmath.mpf(1)]
    for forward, backward in zip(values, reversed(values)):
        before.append(before[-1] * forward)
        after.append(after[-1] * backward)
    return [a * b for a, b in zip(before, after[-2::-1])]


def noisy_or_model(theta: Sequence[float], rate: float, leak: float) -> Answer:
    """Table f(c) = 1 - (1 - leak) (1 - rate)^c, at any D and however far the two terms cancel."""
    with mpmath.workdps(700):
        one = mpmath.mpf(1)
        return mixture_model(theta, [one, mpmath.mpf(leak) - 1], [one, 1 - mpmath.mpf(rate)])


def noisy_or_log_table(n: int, rate: float, leak: float) -> np.ndarray:
    with mpmath.workdps(700):
        stay, keep = 1 - mpmath.mpf(leak), 1 - mpmath.mpf(rate)
        values = [1 - stay * keep**c for c in range(n + 1)]
        return np.array([float(mpmath.log(v)) if v > 0 else -INF for v in values])


@dataclass(frozen=True)
class ExactCounts:
    """Coefficients of prod_d (1 + w_d x) as integers, and what follows from them."""

    weights: tuple[int, ...]
    coefficients: tuple[int, ...]

    @property
    def probabilities(self) -> list[Fraction]:
        total = sum(self.coefficients)
        return [Fraction(c, total) for c in self.coefficients]

    @property
    def log_probs(self) -> np.ndarray:
        return np.array([log_fraction(p) for p in self.probabilities])

    def partition(self, table: Sequence[Fraction | int]) -> Fraction:
        """Z with a rational table on the count of all variables."""
        return sum((Fraction(f) * c for f, c in zip(table, self.coefficients)), Fraction(0))

    def odds(self, table: Sequence[Fraction | int]) -> list[tuple[Fraction, Fraction]]:
        """Weights of (y_d = 1, y_d = 0) under a rational table; divides out one factor exactly."""
        table = [Fraction(f) for f in table]
        pairs = []
        for w in self.weights:
            rest = [1]
            for c in self.coefficients[1:-1]:
                rest.append(c - w * rest[-1])
            on = w * sum((f * c for f, c in zip(table[1:], rest)), Fraction(0))
            pairs.append((on, sum((f * c for f, c in zip(table, rest)), Fraction(0))))
        return pairs


def exact_integer_counts(weights: Sequence[int]) -> ExactCounts:
    """Exact count polynomial of integer weights ``w_d = exp(theta_d)``."""
    coefficients = [1]
    for w in weights:
        coefficients = [a + w * b for a, b in zip([*coefficients, 0], [0, *coefficients])]
    return ExactCounts(tuple(weights), tuple(coefficients))
