"""Arithmetics for clusters: products of tables of polynomials, in plain numbers, by FFT, in logarithms, and for maxima.

Tables have axes (p, q, r, count, row): a product is ``out[p, r] = sum_q a[p, q, r] b[p, q, r]`` with axes of length one
broadcast, polynomials multiplied by convolution along `count`. Rows, the many clusters computed together, come last:
that keeps the inner loops long where polynomials are short.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import fft

from ... import config
from ...arrays import Float64
from .. import native
from ..log_sums import log_sum

UNIT_ROUNDOFF = 2.0**-53
TINY = 1e-290  # anything smaller may have been lost to underflow


def _fold(values: Any, like: Float64, combine: Any) -> Any:
    """Reduce the axes (p, q, r) that have length one in `like`."""
    for axis in range(3):
        if like.shape[axis] == 1 and values.shape[axis] > 1:
            values = combine(values, axis=axis, keepdims=True)
    return values


class Direct:
    """Sums of positive products: every entry keeps its relative accuracy until it underflows."""

    zero, one = 0.0, 1.0
    keep = 1e-250  # entries below this part of the largest are cut off at both ends

    def enter(self, log_values: Float64) -> Float64:
        return np.exp(log_values)

    def log(self, values: Float64) -> Float64:
        with np.errstate(divide="ignore"):
            return np.log(values)

    def times(self, a: Float64, b: Float64) -> Float64:
        return a * b

    def total(self, values: Float64, axis: Any) -> Float64:
        return np.asarray(values.sum(axis=axis))

    def scale(self, values: Float64, log_scale: Float64) -> Float64:
        """`values` less a log-scale per row."""
        return np.asarray(values * np.exp(-log_scale))

    def transform(self, table: Float64, values: Float64) -> Float64:
        """``out[p] = sum_q table[p, q] values[q]``: tables (K, K, row), values (K, ..., count, row)."""
        spread = table.reshape(table.shape[:2] + (1,) * (values.ndim - 2) + table.shape[2:])
        out = spread[:, 0] * values[0]
        for q in range(1, table.shape[1]):
            out = out + spread[:, q] * values[q]
        return np.asarray(out)

    def pair(self, g: Float64, values: Float64) -> Float64:
        """Adjoint of the table: ``out[p, q] = sum g[p] values[q]`` over all but the row."""
        return np.asarray(np.einsum("pi...r,qi...r->pqr", _flat(g), _flat(values)))

    def product(self, a: Float64, b: Float64, width: int) -> Float64:
        """Cluster product; counts 0..width-1."""
        if a.shape[3] > b.shape[3]:
            return self._shifted(b, a, width)
        return self._shifted(a, b, width)

    def _shifted(self, short: Float64, long: Float64, width: int) -> Float64:
        shape = np.broadcast_shapes(short.shape[:3], long.shape[:3])
        out = np.zeros((shape[0], 1, shape[2], width, long.shape[-1]))
        n = long.shape[3]
        for q in range(shape[1]):
            s = short[:, q : q + 1] if short.shape[1] > 1 else short
            x = long[:, q : q + 1] if long.shape[1] > 1 else long
            for i in range(min(short.shape[3], width)):
                m = min(n, width - i)
                out[..., i : i + m, :] += s[..., i : i + 1, :] * x[..., :m, :]
        return out

    def adjoint(self, g: Float64, other: Float64, like: Float64) -> Float64:
        """Adjoint of a product with respect to the operand `like`: correlation with the other one."""
        width, m = like.shape[3], other.shape[3]
        shape = np.broadcast_shapes(g.shape[:3], other.shape[:3], like.shape[:3])
        out = np.zeros((*[1 if s == 1 else n for s, n in zip(like.shape[:3], shape)], width, g.shape[-1]))
        pad = width + m - 1 - g.shape[3]
        if pad > 0:
            g = np.concatenate([g, np.zeros((*g.shape[:3], pad, g.shape[-1]))], axis=3)
        if m <= width:
            for j in range(m):
                out += _fold(g[..., j : j + width, :] * other[..., j : j + 1, :], like, np.sum)
        else:
            for i in range(width):
                out[..., i : i + 1, :] = _fold(
                    (g[..., i : i + m, :] * other).sum(axis=3, keepdims=True), like, np.sum
                )
        return out

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
        """The same for an adjoint, (p, q, r, row)."""
        return np.zeros((1, 1, 1, g.shape[-1]))


class Fourier(Direct):
    """Products by FFT where polynomials are long; errors are relative to the largest entries."""

    crossover = 24

    def _by_fft(self, m: int, n: int) -> bool:
        return min(m, n) > self.crossover

    def transform_size(self, m: int, n: int) -> float:
        return 1.5 * math.log2(m + n) * UNIT_ROUNDOFF if self._by_fft(m, n) else 0.0

    def product(self, a: Float64, b: Float64, width: int) -> Float64:
        if not self._by_fft(a.shape[3], b.shape[3]):
            return super().product(a, b, width)
        n = fft.next_fast_len(a.shape[3] + b.shape[3] - 1, real=True)
        workers = config.threads()
        fa = fft.rfft(a, n, axis=3, workers=workers)
        fb = fft.rfft(b, n, axis=3, workers=workers)
        total = _inner(fa, fb)
        out = fft.irfft(total, n, axis=3, workers=workers, overwrite_x=True)[..., :width, :]
        return np.maximum(out, 0.0, out=out)

    def adjoint(self, g: Float64, other: Float64, like: Float64) -> Float64:
        width, m = like.shape[3], other.shape[3]
        if not self._by_fft(width, m):
            return super().adjoint(g, other, like)
        n = fft.next_fast_len(max(g.shape[3], width + m - 1), real=True)
        workers = config.threads()
        fg = fft.rfft(g, n, axis=3, workers=workers)
        fo = fft.rfft(other, n, axis=3, workers=workers)
        total = _fold_product(fg, np.conj(fo), like)
        out = fft.irfft(total, n, axis=3, workers=workers, overwrite_x=True)[..., :width, :]
        return np.maximum(out, 0.0, out=out)

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
        norms = _fold(_norm(g) * _norm(other), like, np.sum)
        return np.asarray(size * norms)


def _pick(x: Any, q: int) -> Any:
    """Slice q of the axis q, which may have length one."""
    return x[:, q : q + 1] if x.shape[1] > 1 else x


def _inner(a: Any, b: Any) -> Any:
    """``sum_q a[p, q, r] b[p, q, r]`` without the big product in between."""
    n = max(a.shape[1], b.shape[1])
    total = _pick(a, 0) * _pick(b, 0)
    for q in range(1, n):
        total = total + _pick(a, q) * _pick(b, q)
    return total


def _fold_product(g: Any, other: Any, like: Any) -> Any:
    """``g * other`` summed over the axes that have length one in `like`, one slice at a time."""
    axes = [x for x in range(3) if like.shape[x] == 1 and max(g.shape[x], other.shape[x]) > 1]
    if not axes:
        return g * other
    axis = axes[0]
    total = None
    for i in range(max(g.shape[axis], other.shape[axis])):
        term = _fold(_slice(g, axis, i) * _slice(other, axis, i), like, np.sum)
        total = term if total is None else total + term
    return total


def _slice(x: Any, axis: int, i: int) -> Any:
    return x if x.shape[axis] == 1 else x.take([i], axis=axis)


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

    def _combine(self, values: Float64, axis: Any, keepdims: bool = False) -> Float64:
        return log_sum(values, axis, keepdims=keepdims)

    def total(self, values: Float64, axis: Any) -> Float64:
        return self._combine(values, axis)

    def scale(self, values: Float64, log_scale: Float64) -> Float64:
        return values - log_scale

    def transform(self, table: Float64, values: Float64) -> Float64:
        spread = table.reshape(table.shape[:2] + (1,) * (values.ndim - 2) + table.shape[2:])
        return self._combine(spread + values[None], 1)

    def pair(self, g: Float64, values: Float64) -> Float64:
        return self._combine(_flat(g)[:, None] + _flat(values)[None], 2)

    def _sum(self, terms: Any, count: int) -> Float64:
        """``log sum_i exp(terms(i))`` in two passes."""
        top = terms(0)
        for i in range(1, count):
            top = np.maximum(top, terms(i))
        anchor = np.where(top == -math.inf, 0.0, top)
        total = np.exp(terms(0) - anchor)
        for i in range(1, count):
            total += np.exp(terms(i) - anchor)
        with np.errstate(divide="ignore"):
            return np.asarray(anchor + np.log(total))

    def _shifted(self, short: Float64, long: Float64, width: int) -> Float64:
        m, n = short.shape[3], max(short.shape[1], long.shape[1])
        long = _padded(long, m - 1, max(0, width - long.shape[3]))

        def term(k: int) -> Float64:
            q, i = divmod(k, m)
            moved = _pick(long, q)[..., m - 1 - i : m - 1 - i + width, :]
            return np.asarray(_pick(short, q)[..., i : i + 1, :] + moved)

        return self._sum(term, n * m)

    def adjoint(self, g: Float64, other: Float64, like: Float64) -> Float64:
        width, m = like.shape[3], other.shape[3]
        g = _padded(g, 0, max(0, width + m - 1 - g.shape[3]))
        if m <= width:
            terms = self._sum(lambda j: g[..., j : j + width, :] + other[..., j : j + 1, :], m)
        else:
            terms = np.concatenate(
                [self._combine(g[..., i : i + m, :] + other, 3, True) for i in range(width)], axis=3
            )
        return np.asarray(_fold(terms, like, self._combine))


class MaxPlus(LogSpace):
    """(max, +): the same programs, for best configurations."""

    def _combine(self, values: Float64, axis: Any, keepdims: bool = False) -> Float64:
        return np.asarray(values.max(axis=axis, keepdims=keepdims))

    def _sum(self, terms: Any, count: int) -> Float64:
        top = terms(0)
        for i in range(1, count):
            top = np.maximum(top, terms(i))
        return np.asarray(top)

    def _shifted(self, short: Float64, long: Float64, width: int) -> Float64:
        if not self._compiled(short, long):
            return super()._shifted(short, long, width)
        shape = np.broadcast_shapes(short.shape[:3], long.shape[:3])
        found = [_max_plus(_pick(short, q), _pick(long, q), 0, width) for q in range(shape[1])]
        return np.asarray(np.maximum.reduce(found))

    def adjoint(self, g: Float64, other: Float64, like: Float64) -> Float64:
        if not self._compiled(like, other):
            return super().adjoint(g, other, like)
        found = _max_plus(other[..., ::-1, :], g, other.shape[3] - 1, like.shape[3])
        return np.asarray(_fold(found, like, self._combine))

    def _compiled(self, a: Float64, b: Float64) -> bool:
        return native.present() and min(a.shape[3], b.shape[3]) > _SHORT


_SHORT = 8  # counts up to which a loop over them in array code is as quick as the compiled product


def _max_plus(a: Float64, b: Float64, start: int, width: int) -> Float64:
    """(max, +) products along the counts, all other axes broadcast."""
    shape = np.broadcast_shapes(a.shape[:3], b.shape[:3])

    def rows(x: Float64) -> Float64:
        whole = np.broadcast_to(x, (*shape, *x.shape[3:]))
        return np.ascontiguousarray(np.swapaxes(whole, 3, 4)).reshape(-1, x.shape[3])

    found = native.max_plus(rows(a), rows(b), start, width)
    return np.swapaxes(found.reshape(*shape, b.shape[-1], width), 3, 4)


ARITHMETICS = (Fourier, Direct, LogSpace)  # quickest first


def _padded(values: Float64, before: int, after: int) -> Float64:
    if before == 0 and after == 0:
        return values
    return np.pad(values, ((0, 0), (0, 0), (0, 0), (before, after), (0, 0)), constant_values=-math.inf)
