"""Arithmetics for trees and clusters: products of polynomials in plain numbers, by FFT, in logarithms, and for maxima.

Tables have axes (p, q, r, count, row): a product is ``out[p, r] = sum_q a[p, q, r] b[p, q, r]`` with axes of length one
broadcast, polynomials multiplied by convolution along `count`. Rows, the many clusters computed together, come last:
that keeps the inner loops long where polynomials are short.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import fft

from .. import config
from ..arrays import Float64
from .log_sums import log_sum

UNIT_ROUNDOFF = 2.0**-53
TINY = 1e-290  # anything smaller may have been lost to underflow

# Where each starts along the counts, and (p, q, r, count, row)
Terms = Callable[[], Iterator[tuple[int, Any]]]


def fold(values: Any, shape: tuple[int, ...], combine: Any) -> Any:
    """Reduce the axes (p, q, r) that have length one in this shape."""
    for axis in range(3):
        if shape[axis] == 1 and values.shape[axis] > 1:
            values = combine(values, axis=axis, keepdims=True)
    return values


class Direct:
    """Sums of positive products: every entry keeps its relative accuracy until it underflows."""

    zero, one = 0.0, 1.0
    keep = 1e-250  # entries below this part of the largest are cut off at both ends
    anchored = True  # tables enter relative to their largest entries, and values are scaled

    def enter(self, log_values: Float64) -> Float64:
        return np.exp(log_values)

    def log(self, values: Float64) -> Float64:
        with np.errstate(divide="ignore"):
            return np.log(values)

    def relative_log(self, values: Float64) -> Float64:
        """Logarithms up to a constant along the last axis."""
        return self.log(values)

    def log_product(self, values: Float64) -> Float64:
        """The logarithm of the product along the last axis."""
        return np.asarray(self.log(values).sum(axis=-1))

    def times(self, a: Float64, b: Float64) -> Float64:
        return a * b

    def total(self, values: Float64, axis: Any, keepdims: bool = False) -> Float64:
        return np.asarray(values.sum(axis=axis, keepdims=keepdims))

    def log_mass(self, values: Float64) -> Float64:
        """The logarithm of the sum of values (state, count, row), (row,)."""
        return self.log(self.total(self.total(values, 0), 0))

    def gathered(self, shape: tuple[int, ...], terms: Terms) -> Float64:
        """The sum of terms that start at their own places along the counts."""
        out = np.zeros(shape)
        for start, term in terms():
            out[..., start : start + term.shape[3], :] += term
        return out

    def scale(self, values: Float64, log_scale: Float64) -> Float64:
        """`values` less a log-scale per row."""
        return np.asarray(values * np.exp(-log_scale))

    def transform(self, table: Float64, values: Float64) -> Float64:
        """``out[p] = sum_q table[p, q] values[q]``: tables (K, K, row), values (K, ..., count, row)."""
        spread = table.reshape(table.shape[:2] + (1,) * (values.ndim - 2) + table.shape[2:])
        return self.total(self.times(spread, values[None]), 1)

    def pair(self, g: Float64, values: Float64) -> Float64:
        """Adjoint of the table: ``out[p, q] = sum g[p] values[q]`` over all but the row."""
        return self.total(self.times(_flat(g)[:, None], _flat(values)[None]), 2)

    def product(self, a: Float64, b: Float64) -> Float64:
        """Cluster product."""
        short, long = (b, a) if a.shape[3] > b.shape[3] else (a, b)
        shape = np.broadcast_shapes(a.shape[:3], b.shape[:3])

        def terms() -> Iterator[tuple[int, Float64]]:
            for q in range(shape[1]):
                s, x = _pick(short, q), _pick(long, q)
                for i in range(s.shape[3]):
                    yield i, self.times(s[..., i : i + 1, :], x)

        width = a.shape[3] + b.shape[3] - 1
        return self.gathered((shape[0], 1, shape[2], width, a.shape[-1]), terms)

    def adjoint(self, g: Float64, other: Float64, like: Float64) -> Float64:
        """Adjoint of a product with respect to the operand `like`: correlation with the other one."""
        width, m = like.shape[3], other.shape[3]
        if m > width:
            sums = [self.total(self.times(g[..., i : i + m, :], other), 3, True) for i in range(width)]
            return np.asarray(fold(np.concatenate(sums, axis=3), like.shape, self.total))

        def terms() -> Iterator[tuple[int, Float64]]:
            for j in range(m):
                yield 0, self.times(g[..., j : j + width, :], other[..., j : j + 1, :])

        shape = np.broadcast_shapes(g.shape[:3], other.shape[:3])
        return np.asarray(fold(self.gathered((*shape, width, g.shape[-1]), terms), like.shape, self.total))

    def product_error(self, a: Float64, b: Float64) -> Float64:
        """Bound (p, r, row) on the error of any entry of a product beyond its own rounding and underflow."""
        return np.zeros((1, 1, a.shape[-1]))

    def transform_size(self, m: int, n: int) -> float:
        """Error of a transform of polynomials of m and n entries relative to their norms; 0 where there is none."""
        return 0.0

    def product_noise(self, a: Float64, b: Float64) -> Float64:
        """Bound (row,) on the Euclidean norm of the error of any state, relative to the sum of its entries."""
        return np.zeros(a.shape[-1])

    def adjoint_error(self, g: Float64, other: Float64, like: Float64) -> Float64:
        """Bound (p, q, r, row) on the error of any entry of an adjoint beyond its own rounding and underflow."""
        return np.zeros((1, 1, 1, g.shape[-1]))


class Fourier(Direct):
    """Products by FFT where polynomials are long; errors are relative to the largest entries."""

    crossover = 24

    def _by_fft(self, m: int, n: int) -> bool:
        return min(m, n) > self.crossover

    def transform_size(self, m: int, n: int) -> float:
        return 1.5 * math.log2(m + n) * UNIT_ROUNDOFF if self._by_fft(m, n) else 0.0

    def product(self, a: Float64, b: Float64) -> Float64:
        if not self._by_fft(a.shape[3], b.shape[3]):
            return super().product(a, b)
        width = a.shape[3] + b.shape[3] - 1
        fa, fb = _spectra(a, b, width)
        return _from_spectrum((fa * fb).sum(axis=1, keepdims=True), width, width)

    def adjoint(self, g: Float64, other: Float64, like: Float64) -> Float64:
        if not self._by_fft(like.shape[3], other.shape[3]):
            return super().adjoint(g, other, like)
        fg, fo = _spectra(g, other, g.shape[3])
        return _from_spectrum(fold(fg * np.conj(fo), like.shape, np.sum), g.shape[3], like.shape[3])

    def product_error(self, a: Float64, b: Float64) -> Float64:
        size = self.transform_size(a.shape[3], b.shape[3])
        if size == 0.0:
            return super().product_error(a, b)
        return np.asarray(size * (_norm(a) * _norm(b)).sum(axis=1))

    def product_noise(self, a: Float64, b: Float64) -> Float64:
        size = self.transform_size(a.shape[3], b.shape[3])
        if size == 0.0:
            return super().product_noise(a, b)
        sum_a, sum_b = a.sum(axis=3), b.sum(axis=3)
        mass = (sum_a * sum_b).sum(axis=1)
        noise = np.maximum(_norm(a) * sum_b, sum_a * _norm(b)).sum(axis=1)
        return np.asarray(
            size * np.where(mass > 0.0, noise / np.where(mass > 0.0, mass, 1.0), 0.0).max(axis=(0, 1))
        )

    def adjoint_error(self, g: Float64, other: Float64, like: Float64) -> Float64:
        if not self._by_fft(like.shape[3], other.shape[3]):
            return super().adjoint_error(g, other, like)
        size = 1.5 * math.log2(g.shape[3] + other.shape[3]) * UNIT_ROUNDOFF
        norms = fold(_norm(g) * _norm(other), like.shape, np.sum)
        return np.asarray(size * norms)


def _spectra(a: Float64, b: Float64, length: int) -> tuple[Any, Any]:
    """Transforms of polynomials whose product has this length."""
    n, workers = fft.next_fast_len(length, real=True), config.threads()
    return fft.rfft(a, n, axis=3, workers=workers), fft.rfft(b, n, axis=3, workers=workers)


def _from_spectrum(spectrum: Any, length: int, width: int) -> Float64:
    """Counts 0..width-1 of a product of this length; what rounding made negative is 0."""
    n = fft.next_fast_len(length, real=True)
    out = fft.irfft(spectrum, n, axis=3, workers=config.threads(), overwrite_x=True)[..., :width, :]
    return np.maximum(out, 0.0, out=out)


def _pick(x: Any, q: int) -> Any:
    """Slice q of the axis q, which may have length one."""
    return x[:, q : q + 1] if x.shape[1] > 1 else x


def _norm(values: Float64) -> Float64:
    return np.asarray(np.sqrt(np.einsum("pqrcn,pqrcn->pqrn", values, values)))


def _flat(values: Float64) -> Float64:
    return values.reshape(values.shape[0], -1, values.shape[-1])


class LogSpace(Direct):
    """Logarithms throughout: nothing under- or overflows. O(mn) exponentials per product: the last rung."""

    zero, one = -math.inf, 0.0
    keep = 0.0

    def enter(self, log_values: Float64) -> Float64:
        return log_values

    def log(self, values: Float64) -> Float64:
        return values

    def times(self, a: Float64, b: Float64) -> Float64:
        return a + b

    def total(self, values: Float64, axis: Any, keepdims: bool = False) -> Float64:
        return log_sum(values, axis, keepdims=keepdims)

    def scale(self, values: Float64, log_scale: Float64) -> Float64:
        return values - log_scale

    def gathered(self, shape: tuple[int, ...], terms: Terms) -> Float64:
        """The largest terms first, then sums relative to them."""
        top = largest(shape, terms)
        anchor = np.where(top == -math.inf, 0.0, top)
        total = np.zeros(shape)
        for start, term in terms():
            place = slice(start, start + term.shape[3])
            total[..., place, :] += np.exp(term - anchor[..., place, :])
        with np.errstate(divide="ignore"):
            return np.asarray(anchor + np.log(total))


def largest(shape: tuple[int, ...], terms: Terms) -> Float64:
    """The largest log-weight that reaches each place."""
    top = np.full(shape, -math.inf)
    for start, term in terms():
        place = top[..., start : start + term.shape[3], :]
        np.maximum(place, term.real, out=place)
    return top


class Carried(LogSpace):
    """Log-weights that carry a number of the configurations behind them, as the parts of a complex number.

    Products add both parts. A sum over alternatives of weights w_j carries the mean of theirs under p_j = w_j / sum w.
    """

    zero, one = complex(-math.inf, 0.0), 0j  # type: ignore[assignment]

    def enter(self, log_values: Float64) -> Any:
        return np.asarray(log_values, complex)

    def log(self, values: Any) -> Float64:
        return np.asarray(values.real)

    def log_mass(self, values: Any) -> Float64:
        return np.asarray(log_sum(values.real, (0, 1)))

    def moment(self, weight: Float64, below: Float64, carried: Float64) -> Float64:
        """What an alternative adds to the mean; `below` is the logarithm of its weight."""
        return weight * carried

    def number(self, top: Float64, total: Float64, moment: Float64) -> Any:
        """From sums in units of the largest weight: ``sum w`` and the sum of moments."""
        alive = total > 0.0
        divisor = np.where(alive, total, 1.0)
        out = np.empty(total.shape, complex)
        out.real = np.where(alive, top + np.log(divisor), -math.inf)
        out.imag = np.where(alive, moment / divisor, 0.0)
        return out

    def total(self, values: Any, axis: Any, keepdims: bool = False) -> Any:
        top = values.real.max(axis=axis, keepdims=True)
        below = values.real - np.where(top == -math.inf, 0.0, top)
        weight = np.exp(below)
        moment = self.moment(weight, below, values.imag).sum(axis=axis, keepdims=True)
        out = self.number(top, weight.sum(axis=axis, keepdims=True), moment)
        return out if keepdims else np.squeeze(out, axis=axis)

    def gathered(self, shape: tuple[int, ...], terms: Terms) -> Any:
        top = largest(shape, terms)
        anchor = np.where(top == -math.inf, 0.0, top)
        total, moment = np.zeros(shape), np.zeros(shape)
        for start, term in terms():
            place = slice(start, start + term.shape[3])
            below = term.real - anchor[..., place, :]
            weight = np.exp(below)
            total[..., place, :] += weight
            moment[..., place, :] += self.moment(weight, below, term.imag)
        return self.number(top, total, moment)


LN2_HIGH, LN2_LOW = (
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
)  # n times the first is exact to 2^20
_NOTHING = -1e15  # the exponent of zero
_SPLIT = 2.0**20


class Wide(Direct):
    """Mantissas in [1, 2) and powers of two, as the parts of a complex number; they are never scaled.

    For models in which large numbers cancel: ``e^x = 2^n e^(x - n log 2)`` is split exactly up to x of 7e5, exponents
    are integers that add and cancel exactly, and only mantissas are rounded.
    """

    zero, one = complex(0.0, _NOTHING), complex(1.0, 0.0)  # type: ignore[assignment]
    keep = 0.0
    anchored = False

    def enter(self, log_values: Float64) -> Any:
        finite = log_values > -math.inf
        safe = np.where(finite, log_values, 0.0)
        n = np.rint(safe / math.log(2.0))
        rough = np.rint(n / _SPLIT) * _SPLIT  # both parts of n LN2_HIGH and both differences are exact
        rest = ((safe - rough * LN2_HIGH) - (n - rough) * LN2_HIGH) - n * LN2_LOW
        return self._number(np.where(finite, np.exp(rest), 0.0), n)

    def _number(self, value: Float64, exponent: Float64) -> Any:
        mantissa, shift = np.frexp(value)
        dead = (value <= 0.0) | (exponent < 0.5 * _NOTHING)
        out = np.empty(np.shape(value), complex)
        out.real = np.where(dead, 0.0, 2.0 * mantissa)
        out.imag = np.where(dead, _NOTHING, exponent + (shift - 1.0))
        return out

    def log(self, values: Any) -> Float64:
        with np.errstate(divide="ignore"):
            return np.asarray(values.imag * LN2_HIGH + (values.imag * LN2_LOW + np.log(values.real)))

    def relative_log(self, values: Any) -> Float64:
        return self.log(values.real + 1j * (values.imag - values.imag.max(axis=-1, keepdims=True)))

    def log_product(self, values: Any) -> Float64:
        exponent = values.imag.sum(axis=-1)  # what cancels does so exactly
        return np.asarray(np.log(values.real).sum(axis=-1) + exponent * LN2_LOW + exponent * LN2_HIGH)

    def times(self, a: Any, b: Any) -> Any:
        return self._number(a.real * b.real, a.imag + b.imag)

    def scale(self, values: Any, log_scale: Float64) -> Any:
        return values

    def total(self, values: Any, axis: Any, keepdims: bool = False) -> Any:
        top = values.imag.max(axis=axis, keepdims=True)
        power = np.exp2(np.maximum(values.imag - top, -1100.0))
        out = self._number((values.real * power).sum(axis=axis, keepdims=True), top)
        return out if keepdims else np.squeeze(out, axis=axis)

    def gathered(self, shape: tuple[int, ...], terms: Terms) -> Any:
        top = np.full(shape, 2.0 * _NOTHING)
        for start, term in terms():
            window = top[..., start : start + term.shape[3], :]
            np.maximum(window, term.imag, out=window)
        total = np.zeros(shape)
        for start, term in terms():
            place = slice(start, start + term.shape[3])
            total[..., place, :] += term.real * np.exp2(np.maximum(term.imag - top[..., place, :], -1100.0))
        return self._number(total, top)


class MaxPlus(LogSpace):
    """(max, +): the same programs, for best configurations; in array code, as the compiled engine has its own."""

    def total(self, values: Float64, axis: Any, keepdims: bool = False) -> Float64:
        return np.asarray(values.max(axis=axis, keepdims=keepdims))

    def gathered(self, shape: tuple[int, ...], terms: Terms) -> Float64:
        return largest(shape, terms)


ARITHMETICS = (Fourier, Direct, Wide, LogSpace)  # quickest first
