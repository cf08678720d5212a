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

    zero: Any
    relative: bool  # entries have relative accuracy, however small

    def leaves(self, nu: Any) -> Any: ...
    def merge(self, a: Any, b: Any, width: int) -> Any: ...
    def correlate(self, g: Any, u: Any, width: int) -> Any: ...
    def weigh(self, values: Any, log_f: Any) -> tuple[Any, Any]: ...
    def normalise(self, values: Any) -> tuple[Any, Any]: ...
    def against(self, u: Any, d: Any) -> tuple[Any, Any]: ...
    def log(self, values: Any) -> Any: ...
    def merge_error(self, a: Any, b: Any) -> Any: ...
    def loss(self, values: Any) -> Any: ...
    def magnitude(self, values: Any) -> Any: ...


def pad_left(xp: Any, values: Any, count: int, fill: complex) -> Any:
    padding = xp.full((*values.shape[:-1], count), fill, dtype=values.dtype, device=values.device)
    return xp.concat([padding, values], axis=-1)


def pad_right(xp: Any, values: Any, width: int, fill: complex) -> Any:
    missing = width - values.shape[-1]
    if missing <= 0:
        return values[..., :width]
    padding = xp.full((*values.shape[:-1], missing), fill, dtype=values.dtype, device=values.device)
    return xp.concat([values, padding], axis=-1)


class Direct:
    """Plain numbers and sums of positive terms: every entry has relative accuracy until it underflows."""

    zero: Any = 0.0
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

    def times(self, a: Any, b: Any) -> Any:
        return a * b

    def total(self, values: Any) -> Any:
        """The sum over the last axis."""
        return self.xp.sum(values, axis=-1)

    def gathered(self, term: Any, count: int) -> Any:
        """The sum of ``term(0)``, ``term(1)``, ..."""
        total = term(0)
        for i in range(1, count):
            total = total + term(i)
        return total

    def merge(self, a: Any, b: Any, width: int) -> Any:
        """``c[k] = sum_i a[i] b[k - i]``."""
        if a.shape[-1] > b.shape[-1]:
            a, b = b, a
        first = a.shape[-1] - 1
        b = pad_left(self.xp, pad_right(self.xp, b, width, self.zero), first, self.zero)
        return self.gathered(
            lambda i: self.times(a[..., i : i + 1], b[..., first - i : first - i + width]), first + 1
        )

    def correlate(self, g: Any, u: Any, width: int) -> Any:
        """``d[i] = sum_j g[i + j] u[j]``."""
        n = u.shape[-1]
        g = pad_right(self.xp, g, max(width + n - 1, g.shape[-1]), self.zero)
        if n <= width:
            return self.gathered(lambda j: self.times(g[..., j : j + width], u[..., j : j + 1]), n)
        return self.xp.stack([self.total(self.times(g[..., i : i + n], u)) for i in range(width)], axis=-1)

    def weigh(self, values: Any, log_f: Any) -> tuple[Any, Any]:
        top = self.xp.max(log_f, axis=-1)
        top = self.xp.where(top == -math.inf, 0.0, top)
        return values * self.xp.exp(log_f - top[..., None]), top

    def normalise(self, values: Any) -> tuple[Any, Any]:
        total = self.xp.sum(values, axis=-1)
        safe = self.xp.where(total > 0, total, 1.0)
        return values / safe[..., None], self.xp.log(total)

    def against(self, u: Any, d: Any) -> tuple[Any, Any]:
        """``d`` scaled to ``<u, d> = 1``, and the logarithm of what that was; as it is where that is 0."""
        log_scale = self.xp.log(self.total(u * d))
        scale = self.xp.where(self.xp.isfinite(log_scale), log_scale, 0.0)
        return d * self.xp.exp(-scale)[..., None], log_scale

    def log(self, values: Any) -> Any:
        return self.xp.log(values)

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


class LogSpace(Direct):
    """Logarithms throughout: nothing under- or overflows, O(ab) exponentials per merge. The last rung."""

    zero: Any = -math.inf

    def leaves(self, nu: Any) -> Any:
        xp = self.xp
        shared = xp.log1p(xp.exp(-xp.abs(nu)))
        on = xp.where(nu > 0, 0.0, nu) - shared
        off = xp.where(nu > 0, -nu, 0.0) - shared
        return xp.stack([off, on], axis=-1)

    def times(self, a: Any, b: Any) -> Any:
        return a + b

    def total(self, values: Any) -> Any:
        top = self.xp.max(values, axis=-1)
        anchor = self.xp.where(top == -math.inf, 0.0, top)
        return anchor + self.xp.log(self.xp.sum(self.xp.exp(values - anchor[..., None]), axis=-1))

    def gathered(self, term: Any, count: int) -> Any:
        """In two passes: the maximum first, then one logarithm."""
        xp = self.xp
        top = term(0)
        for i in range(1, count):
            top = xp.maximum(top, term(i))
        anchor = xp.where(top == -math.inf, 0.0, top)
        total = xp.exp(term(0) - anchor)
        for i in range(1, count):
            total = total + xp.exp(term(i) - anchor)
        return anchor + xp.log(total)

    def weigh(self, values: Any, log_f: Any) -> tuple[Any, Any]:
        return values + log_f, self.none(values)

    def normalise(self, values: Any) -> tuple[Any, Any]:
        total = self.total(values)
        return values - self.xp.where(total == -math.inf, 0.0, total)[..., None], total

    def against(self, u: Any, d: Any) -> tuple[Any, Any]:
        log_scale = self.total(u + d)
        return d - self.xp.where(self.xp.isfinite(log_scale), log_scale, 0.0)[..., None], log_scale

    def log(self, values: Any) -> Any:
        return values

    def none(self, values: Any) -> Any:
        """A zero for every message."""
        return self.xp.zeros(values.shape[:-1], dtype=values.dtype, device=values.device)

    def merge_error(self, a: Any, b: Any) -> Any:
        return self.none(a)

    def loss(self, values: Any) -> Any:
        return self.none(values)

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
