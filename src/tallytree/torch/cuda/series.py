"""One huge flat model with an interval of counts: reduce on the device, solve on the host, map on the device.

    log E e^{i o z} = n (i o / 2 + 2 log cos(o / 4)) - 2 sum_j (-i t)^j C_j / j,    o = w - i delta, t = tan(o / 4)

C_j are the sums of T_j(tanh((theta + s) / 2)). They are taken under a tilt found from a sample; delta, which makes it
right, is a complex frequency, so that the variables are read twice in all. A few dozen numbers visit the host. Where
the series is too short (small variance, or a window at an end of the range) and where log-odds are so far away that
their exponentials overflow, the answer is None, and the stretches of :mod:`.long` serve.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor

from . import series_kernels as kernels
from .flat import Solved
from .long import Counts, tilts

SHORTEST = 1 << 22  # variables from which on two passes with few sums beat products over all frequencies
_SAMPLE = 1 << 20
_EXPONENT = 34.0  # nats that windows and frequencies may leave out
_ROUNDING = 1e-13
_NODES = kernels.TERMS
_NEAR = kernels.SUMS - 1
_SHORT = 1e-12  # what a series of three terms, at 20 bits, may leave out
_STRETCH, _PER = 256, 256  # variables that a program of the reduction reads at a time, and how often at most
_PROGRAMS = 2048  # at least, in a reduction
_BLOCK = 512  # variables that a program of the map answers for


class _Row(NamedTuple):
    log_z: float
    bound: float
    tilt: float
    series: Any


def marginals(x: Tensor, counts: Counts) -> Solved | None:
    """Log Z (B,), marginals (B, n) and a bound (B,) of log-odds (B, n); None where the series does not serve."""
    batch, n = x.shape
    if counts.table is not None or n < SHORTEST:
        return None
    sample = x[:, :: max(1, n // _SAMPLE)].contiguous()
    share = sample.shape[-1] / n
    s = tilts(sample, Counts(None, counts.low * share, counts.high * share))
    numbers = torch.cat([_sums(x, s), torch.stack([s, counts.low, counts.high], -1)], -1).tolist()
    infinite = _infinite(x) if any(row[_NEAR] != n for row in numbers) else [(0, 0)] * batch
    rows = [_solve(n, row, *kinds) for row, kinds in zip(numbers, infinite)]
    if None in rows:
        return None
    short = [None if row is None else _shortened(row) for row in rows]
    given = [row for row in (rows if None in short else short) if row is not None]
    found = torch.tensor([[row.log_z, row.bound, row.tilt, *row.series] for row in given], dtype=x.dtype).to(
        x.device
    )
    values = torch.empty_like(x)
    stretches = -(-n // _BLOCK)
    kernels.spread[(batch * stretches,)](
        x, found[:, 2].contiguous(), found[:, 3:].contiguous(), values, n, stretches,
        SHORT=None not in short, WHOLE=n % _BLOCK == 0, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return Solved(found[:, 0], values, x.new_empty(batch, 0), found[:, 1])


def _sums(x: Tensor, s: Tensor) -> Tensor:
    """Sums (B, 10) of :mod:`.series_kernels`."""
    batch, n = x.shape
    per, programs = _shares(n)
    out = x.new_empty(batch, programs, kernels.SUMS)
    kernels.reduce[(batch * programs,)](
        x, s, out, n, programs, per, WHOLE=n % (_STRETCH * per) == 0, BLOCK=_STRETCH, num_warps=4
    )
    return out.sum(1)


def _infinite(x: Tensor) -> list[tuple[int, int]]:
    """How many variables of every row are forced, and how many are excluded."""
    batch, n = x.shape
    per, programs = _shares(n)
    out = x.new_empty(batch, programs, 2, dtype=torch.int32)
    kernels.infinities[(batch * programs,)](x, out, n, programs, per, BLOCK=_STRETCH, num_warps=4)
    return [(forced, excluded) for forced, excluded in out.sum(1).tolist()]


def _shares(n: int) -> tuple[int, int]:
    """How often a program reads, and how many programs there are: enough for every processor."""
    per = max(1, min(_PER, n // (_STRETCH * _PROGRAMS)))
    return per, -(-n // (_STRETCH * per))


class _Cumulants:
    """Log of the moment generating function around a tilt, from Chebyshev sums."""

    def __init__(self, n: float, sums: Any) -> None:
        self.n, self.sums = n, sums
        self.mean = 0.5 * (n + sums[0])

    def __call__(self, o: Any, reference: float = 0.0) -> Any:
        """At frequencies o = w - i delta, with e^{i o reference} divided out."""
        y = np.asarray(o, complex) / 4.0
        t = np.tan(y)
        # tan y - y without cancellation; y is small
        bent = y**3 * (1.0 / 3.0 + y**2 * (2.0 / 15.0 + y**2 * (17.0 / 315.0 + y**2 * (62.0 / 2835.0))))
        total = 4.0j * y * (self.mean - reference) + 2.0j * bent * self.sums[0]
        total = total + 2.0 * self.n * np.log1p(-2.0 * np.sin(0.5 * y) ** 2)
        power = (-1.0j * t) ** 2
        for j, c in enumerate(self.sums[1:], 2):
            total = total - 2.0 * power * c / j
            power = power * (-1.0j * t)
        return total

    def moments(self, delta: float) -> tuple[float, float]:
        """Mean and variance under a further tilt."""
        tau = math.tanh(0.25 * delta)
        slope = 0.25 * (1.0 - tau * tau)
        terms = [(-tau) ** j * c for j, c in enumerate(self.sums)]
        mean = 0.5 * self.n * (1.0 + tau) + 2.0 * slope * sum(terms)
        bends = [-j * (-tau) ** (j - 1) * c for j, c in enumerate(self.sums) if j]
        var = 0.5 * self.n * slope + 2.0 * slope * slope * sum(bends) - tau * slope * sum(terms)
        return mean, var

    def error(self, t: float) -> float:
        """What the missing terms can add."""
        j = len(self.sums) + 1
        return 2.0 * self.n * t**j / (j * (1.0 - t)) if t < 1.0 else math.inf


_POLYNOMIALS = np.stack(
    [
        np.pad(chebyshev.cheb2poly(np.eye(kernels.POWERS + 1)[j])[: j + 1], (0, kernels.POWERS - j))
        for j in range(1, kernels.POWERS + 1)
    ]
) * (-2.0) ** np.arange(kernels.POWERS + 1)  # C_1 to C_8 from the sums of 1 to v^8, where tanh(t / 2) = -2 v


def _solve(n: int, numbers: list[float], forced: int, excluded: int) -> _Row | None:
    """The series of the map of one row, from its sums; counts are those of the free variables."""
    *powers, norm, free, s, low, high = numbers
    if forced + excluded + free != n:
        return None  # some log-odds are too far away, or NaN
    low, high = low - forced, high - forced
    law = _Cumulants(free, (_POLYNOMIALS @ [free, *powers]).tolist())
    delta = 0.0
    for _ in range(20):
        mean, var = law.moments(delta)
        if not var > 256.0:
            return None
        step = (min(max(mean, low), high) - mean) / var
        delta += min(max(step, -0.1), 0.1)
        if abs(step) * math.sqrt(var) < 1e-3 or abs(delta) > 0.2:
            break
    mean, var = law.moments(delta)
    third = _EXPONENT / 3.0
    length = 2 * math.ceil(third + math.sqrt(third * third + 2.0 * _EXPONENT * var) + 2.0)
    begin = math.floor(mean) - length // 2
    if not var > 256.0 or begin < 0 or begin + length > free:
        return None
    # var (1 - cos w) = B
    used = math.ceil(length * 2.0 * math.asin(math.sqrt(_EXPONENT / (2.0 * var))) / (2.0 * math.pi)) + 1
    w = (2 * np.arange(used) + 1) * math.pi / length
    o = w - 1j * delta
    truncated = law.error(float(np.abs(np.tan(o / 4.0)).max()))
    first, last = max(low, begin), min(high, begin + length - 1)
    if first > last or not truncated < 1e-11:
        return None
    tilt = s + delta
    reference = first if tilt >= 0.0 else last
    ratio = (tilt + 1j * w) if tilt >= 0.0 else -(tilt + 1j * w)
    f = np.expm1(-(last - first + 1.0) * ratio) / np.expm1(-ratio)
    shift = float(law(-1j * delta).real)
    g = np.exp(law(o, reference) - shift + delta * reference) * f
    return _row(w, g, f, length, truncated, norm + shift - tilt * reference, tilt)


def _row(w: Any, g: Any, f: Any, length: int, truncated: float, scale: float, tilt: float) -> _Row | None:
    """Leave-one-out sums at Chebyshev nodes, the series of their ratio, and the certificate.

    Under the tilt that includes delta frequencies are real: q + p e^{io} = (q + p e^delta)(q' + p' e^{iw}).
    """
    total = float(g.real.sum())
    node = (np.arange(_NODES) + 0.5) * math.pi / _NODES
    p = 0.5 * (1.0 + np.cos(node))[:, None]
    factor = 1.0 / (1.0 + p * np.expm1(1j * w))
    off = (g * factor).real.sum(-1)
    on = (g * np.exp(1j * w) * factor).real.sum(-1)
    least = min(float(off.min()), float(on.min()), total)
    if not least > 0.0:
        return None
    series = (2.0 / _NODES) * np.cos(np.arange(_NODES)[:, None] * node) @ (on / off)
    series[0] *= 0.5
    size = float((np.abs(g) / np.cos(0.5 * w)).sum())
    tail = 0.5 * length * (2.0 + 4.0 * float(np.abs(f).max())) * math.exp(-_EXPONENT)
    bound = ((_ROUNDING + truncated) * size + tail) / least + 4.0 * float(np.abs(series[-2:]).max())
    return _Row(scale + math.log(2.0 * total / length), bound, tilt, series)


def _shortened(row: _Row) -> _Row | None:
    """The first three terms as a polynomial in q, u = 1 - 2 q, where that is enough."""
    c = row.series
    b, a2 = -2.0 * c[1] - 8.0 * c[2], 8.0 * c[2]
    left = float(np.abs(c[3:]).sum() + (abs(b) + 2.0 * abs(a2)) * 2.0**-19) / (
        1.0 - float(np.abs(c[1:]).sum())
    )
    if not 0.0 <= left < _SHORT:
        return None
    polynomial = np.zeros_like(c)
    polynomial[:3] = c[0] + c[1] + c[2], b, a2
    return row._replace(series=polynomial, bound=row.bound + left)
