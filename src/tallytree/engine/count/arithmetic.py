"""Arithmetics for messages: three ways to convolve, one interface.

A message is an array ``(..., width)`` over counts. ``Direct`` and ``Fourier`` hold plain numbers, ``LogSpace`` holds
logarithms. All functions are written against an array-API namespace `xp`.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

UNIT_ROUNDOFF = 2.0**-53
TINY = 1e-300  # anything smaller may have been lost to underflow


class Arithmetic(Protocol):
    """What a pass over the tree needs to know about numbers."""

    zero: float
    relative: bool  # entries have relative accuracy, however small

    def leaves(self, nu: Any) -> Any: ...
    def merge(self, a: Any, b: Any, width: int) -> Any: ...
    def correlate(self, g: Any, u: Any, width: int) -> Any: ...
    def weigh(self, values: Any, log_f: Any) -> tuple[Any, Any]: ...
    def normalise(self, values: Any) -> tuple[Any, Any]: ...
    def product(self, u: Any, d: Any) -> Any: ...
    def log(self, values: Any) -> Any: ...
    def divide(self, values: Any, log_scale: Any) -> Any: ...
    def merge_error(self, a: Any, b: Any) -> Any: ...
    def loss(self, values: Any) -> Any: ...
    def magnitude(self, values: Any) -> Any: ...


def pad_left(xp: Any, values: Any, count: int, fill: float) -> Any:
    padding = xp.full((*values.shape[:-1], count), fill, dtype=values.dtype, device=values.device)
    return xp.concat([padding, values], axis=-1)


def pad_right(xp: Any, values: Any, width: int, fill: float) -> Any:
    missing = width - values.shape[-1]
    if missing <= 0:
        return values[..., :width]
    padding = xp.full((*values.shape[:-1], missing), fill, dtype=values.dtype, device=values.device)
    return xp.concat([values, padding], axis=-1)


class Direct:
    """Plain numbers and sums of positive terms: every entry has relative accuracy until it underflows."""

    zero = 0.0
    relative = True

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def leaves(self, nu: Any) -> Any:
        """``[1 - p, p]`` with both entries accurate."""
        xp = self.xp
        small = xp.exp(-xp.abs(nu))
        big = 1.0 / (1.0 + small)
        small = small * big
        on = nu > 0
        return xp.stack([xp.where(on, small, big), xp.where(on, big, small)], axis=-1)

    def merge(self, a: Any, b: Any, width: int) -> Any:
        """``c[k] = sum_i a[i] b[k - i]``."""
        if a.shape[-1] > b.shape[-1]:
            a, b = b, a
        b = pad_left(self.xp, pad_right(self.xp, b, width, 0.0), a.shape[-1] - 1, 0.0)
        first = a.shape[-1] - 1
        total = a[..., :1] * b[..., first : first + width]
        for i in range(1, a.shape[-1]):
            total = total + a[..., i : i + 1] * b[..., first - i : first - i + width]
        return total

    def correlate(self, g: Any, u: Any, width: int) -> Any:
        """``d[i] = sum_j g[i + j] u[j]``."""
        g = pad_right(self.xp, g, max(width + u.shape[-1] - 1, g.shape[-1]), 0.0)
        if u.shape[-1] <= width:
            total = g[..., :width] * u[..., :1]
            for j in range(1, u.shape[-1]):
                total = total + g[..., j : j + width] * u[..., j : j + 1]
            return total
        n = u.shape[-1]
        sums = [self.xp.sum(g[..., i : i + n] * u, axis=-1) for i in range(width)]
        return self.xp.stack(sums, axis=-1)

    def weigh(self, values: Any, log_f: Any) -> tuple[Any, Any]:
        top = self.xp.max(log_f, axis=-1)
        top = self.xp.where(top == -math.inf, 0.0, top)
        return values * self.xp.exp(log_f - top[..., None]), top

    def normalise(self, values: Any) -> tuple[Any, Any]:
        total = self.xp.sum(values, axis=-1)
        safe = self.xp.where(total > 0, total, 1.0)
        return values / safe[..., None], self.xp.log(total)

    def product(self, u: Any, d: Any) -> Any:
        """``<u, d>``, in logarithms."""
        return self.xp.log(self.xp.sum(u * d, axis=-1))

    def log(self, values: Any) -> Any:
        return self.xp.log(values)

    def divide(self, values: Any, log_scale: Any) -> Any:
        scale = self.xp.where(self.xp.isfinite(log_scale), log_scale, 0.0)
        return values * self.xp.exp(-scale)[..., None]

    def merge_error(self, a: Any, b: Any) -> Any:
        """Bound on the absolute error of a merge that is not relative to the entry itself: what underflow loses."""
        n = min(a.shape[-1], b.shape[-1])
        return self.xp.zeros(a.shape[:-1], dtype=a.dtype, device=a.device) + n * TINY

    def loss(self, values: Any) -> Any:
        """``||values||_1``: what an absolute error of one in the partner would do."""
        return self.xp.sum(values, axis=-1)

    def magnitude(self, values: Any) -> Any:
        """How many units of round-off one entry of a message may carry by its size: one, for plain numbers."""
        return self.xp.ones(values.shape[:-1], dtype=values.dtype, device=values.device)


class Fourier(Direct):
    """Convolution by real FFTs above a crossover; the error is absolute, relative to the largest entries."""

    crossover = 64
    relative = False

    def _by_fft(self, a: Any, b: Any) -> bool:
        return bool(min(a.shape[-1], b.shape[-1]) > self.crossover)

    def merge(self, a: Any, b: Any, width: int) -> Any:
        if not self._by_fft(a, b):
            return super().merge(a, b, width)
        xp, n = self.xp, _fast_length(a.shape[-1] + b.shape[-1] - 1)
        c = xp.fft.irfft(xp.fft.rfft(a, n=n) * xp.fft.rfft(b, n=n), n=n)
        c = pad_right(xp, c, width, 0.0)
        return xp.where(c > 0, c, 0.0)

    def correlate(self, g: Any, u: Any, width: int) -> Any:
        if min(u.shape[-1], width) <= self.crossover:
            return super().correlate(g, u, width)
        xp, n = self.xp, _fast_length(g.shape[-1] + u.shape[-1] - 1)
        d = xp.fft.irfft(xp.fft.rfft(g, n=n) * xp.conj(xp.fft.rfft(u, n=n)), n=n)
        d = pad_right(xp, d, width, 0.0)
        return xp.where(d > 0, d, 0.0)

    def merge_error(self, a: Any, b: Any) -> Any:
        """``1.5 log2(N) u ||a||_2 ||b||_2``: an FFT product's error in any entry (measured at least 3x below)."""
        floor = super().merge_error(a, b)
        if not self._by_fft(a, b):
            return floor
        xp = self.xp
        norms = xp.sqrt(xp.sum(a * a, axis=-1)) * xp.sqrt(xp.sum(b * b, axis=-1))
        return floor + 1.5 * math.log2(a.shape[-1] + b.shape[-1]) * UNIT_ROUNDOFF * norms


class LogSpace:
    """Logarithms throughout: nothing under- or overflows, O(ab) exponentials per merge. The last rung."""

    zero = -math.inf
    relative = True

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def leaves(self, nu: Any) -> Any:
        xp = self.xp
        shared = xp.log1p(xp.exp(-xp.abs(nu)))
        on = xp.where(nu > 0, 0.0, nu) - shared
        off = xp.where(nu > 0, -nu, 0.0) - shared
        return xp.stack([off, on], axis=-1)

    def _sum(self, terms: Any, count: int) -> Any:
        """``log sum_i exp(terms(i))`` in two passes: the maximum first, then one logarithm."""
        xp = self.xp
        top = terms(0)
        for i in range(1, count):
            top = xp.maximum(top, terms(i))
        anchor = xp.where(top == -math.inf, 0.0, top)
        total = xp.exp(terms(0) - anchor)
        for i in range(1, count):
            total = total + xp.exp(terms(i) - anchor)
        return anchor + xp.log(total)

    def merge(self, a: Any, b: Any, width: int) -> Any:
        if a.shape[-1] > b.shape[-1]:
            a, b = b, a
        b = pad_left(self.xp, pad_right(self.xp, b, width, -math.inf), a.shape[-1] - 1, -math.inf)
        first = a.shape[-1] - 1
        return self._sum(lambda i: a[..., i : i + 1] + b[..., first - i : first - i + width], a.shape[-1])

    def correlate(self, g: Any, u: Any, width: int) -> Any:
        n = u.shape[-1]
        g = pad_right(self.xp, g, max(width + n - 1, g.shape[-1]), -math.inf)
        if n <= width:
            return self._sum(lambda j: g[..., j : j + width] + u[..., j : j + 1], n)
        return self.xp.stack([self.product(g[..., i : i + n], u) for i in range(width)], axis=-1)

    def weigh(self, values: Any, log_f: Any) -> tuple[Any, Any]:
        return values + log_f, self.xp.zeros(values.shape[:-1], dtype=values.dtype, device=values.device)

    def normalise(self, values: Any) -> tuple[Any, Any]:
        top = self.xp.max(values, axis=-1)
        anchor = self.xp.where(top == -math.inf, 0.0, top)
        total = anchor + self.xp.log(self.xp.sum(self.xp.exp(values - anchor[..., None]), axis=-1))
        safe = self.xp.where(total == -math.inf, 0.0, total)
        return values - safe[..., None], total

    def product(self, u: Any, d: Any) -> Any:
        terms = u + d
        top = self.xp.max(terms, axis=-1)
        anchor = self.xp.where(top == -math.inf, 0.0, top)
        return anchor + self.xp.log(self.xp.sum(self.xp.exp(terms - anchor[..., None]), axis=-1))

    def log(self, values: Any) -> Any:
        return values

    def divide(self, values: Any, log_scale: Any) -> Any:
        scale = self.xp.where(self.xp.isfinite(log_scale), log_scale, 0.0)
        return values - scale[..., None]

    def merge_error(self, a: Any, b: Any) -> Any:
        return self.xp.zeros(a.shape[:-1], dtype=a.dtype, device=a.device)

    def loss(self, values: Any) -> Any:
        return self.xp.zeros(values.shape[:-1], dtype=values.dtype, device=values.device)

    def magnitude(self, values: Any) -> Any:
        """A logarithm of size L is known to L units of round-off."""
        finite = self.xp.where(self.xp.isfinite(values), self.xp.abs(values), 0.0)
        return 1.0 + self.xp.max(finite, axis=-1)


def _fast_length(n: int) -> int:
    """Smallest 2^a 3^b >= n: every FFT library is quick at those."""
    best = 1 << (n - 1).bit_length()
    three = 3
    while three < best:
        length = three * (1 << max(0, (-(-n // three) - 1).bit_length()))
        best = min(best, length)
        three *= 3
    return best
