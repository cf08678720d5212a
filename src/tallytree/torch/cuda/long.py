"""Long flat models on the device: reduce, solve, map, without the host.

sample -> tilt -> moments -> Newton step -> moments -> window and F -> products -> marginals
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...memo import lru
from . import long_kernels as kernels
from .flat import Solved, rounding, stride
from .flat_kernels import FREQUENCIES, INFO, PLANES

_SAMPLE = 4096
_STRETCH = 1024  # counts that a program looks at


class Counts(NamedTuple):
    """The table of a long model: entries (1 or B, n + 1) or None for an interval, and its possible counts (B,)."""

    table: Tensor | None
    low: Tensor
    high: Tensor


class _Waves(NamedTuple):
    info: Tensor
    wave: Tensor
    log_z: Tensor  # (B,)
    total: Tensor  # (B,)
    error: Tensor  # (B,)
    block: int
    programs: int


def counts_of(table: Tensor, batch: int) -> Counts:
    """Possible counts of explicit tables."""
    possible = table > -math.inf
    n = table.shape[-1] - 1
    low = possible.to(torch.int32).argmax(-1)
    high = n - possible.flip(-1).to(torch.int32).argmax(-1)
    none = ~possible.any(-1)
    low, high = torch.where(none, n + 1, low), torch.where(none, -1, high)
    return Counts(table, *(v.to(torch.float64).expand(batch).contiguous() for v in (low, high)))


def interval(low: int, high: int, x: Tensor) -> Counts:
    """All counts from low to high alike."""
    return _interval(low, high, len(x), x.device)


@lru(64)
def _interval(low: int, high: int, batch: int, device: torch.device) -> Counts:
    ends = torch.tensor([[float(low)], [float(high)]], dtype=torch.float64, device=device)
    return Counts(None, *ends.expand(2, batch).contiguous())


def marginals(x: Tensor, counts: Counts, start: Tensor | None = None) -> Solved:
    """Log Z (B,), marginals (B, n) and a bound (B,) of log-odds (B, n)."""
    found = _waves(x, counts, start)
    values = torch.empty_like(x)
    least = x.new_empty(len(x), found.programs)
    kernels.spread[(len(x) * found.programs,)](
        x, x, found.info, found.wave, found.total, values, least, x.shape[1], found.programs, found.total,
        MOVED=False, W=FREQUENCIES, BLOCK=found.block, num_warps=_warps(found.block),
    )  # fmt: skip
    return Solved(found.log_z, values, x.new_empty(len(x), 0), _bound(found, least))


def covariances(x: Tensor, counts: Counts, v: Tensor, start: Tensor | None = None) -> Solved:
    """How the marginals move along v (B, n), and what is certified, absolutely."""
    found = _waves(x, counts, start)
    sums = x.new_zeros(len(x), found.programs, FREQUENCIES, 2)
    kernels.products[(len(x) * found.programs,)](
        x, v, found.info, found.wave, sums, x.shape[1], found.programs,
        MOVED=True, W=FREQUENCIES, BLOCK=found.block, num_warps=_warps(found.block),
    )  # fmt: skip
    t = sums.sum(1)
    drift = (_kept(found, 4) * t[..., 0] - _kept(found, 5) * t[..., 1]).sum(-1) / found.total
    found.wave[:, 6], found.wave[:, 7] = t[..., 0], t[..., 1]
    values = torch.empty_like(x)
    kernels.spread[(len(x) * found.programs,)](
        x, v, found.info, found.wave, found.total, values, values, x.shape[1], found.programs, drift,
        MOVED=True, W=FREQUENCIES, BLOCK=found.block, num_warps=_warps(found.block),
    )  # fmt: skip
    return Solved(found.log_z, values, x.new_empty(len(x), 0), _bound(found, found.total[:, None]))


def tilts(x: Tensor, counts: Counts, start: Tensor | None = None) -> Tensor:
    """Tilts (B,) under which the variables count about as many as the posterior."""
    batch, n = x.shape
    s = x.new_empty(batch) if start is None else start
    if start is None:
        kernels.start[(batch,)](
            x, counts.low, counts.high, s, n, max(1, n // _SAMPLE), SAMPLE=_SAMPLE, num_warps=16
        )
    if counts.table is None:
        part = _moments(x, s)
        kernels.settle[(batch,)](part, s, counts.low, counts.high, part.shape[1], BLOCK=1024, num_warps=4)
        return s
    for _ in range(3):  # a table moves its own target
        s = s + _newton_step(_moments(x, s).sum(1), s, counts)
    return s


def _waves(x: Tensor, counts: Counts, start: Tensor | None) -> _Waves:
    batch, n = x.shape
    info, wave = x.new_empty(batch, INFO), x.new_empty(batch, PLANES, FREQUENCIES)
    s = tilts(x, counts, start)
    part = _moments(x, s)
    table, held = (x, False) if counts.table is None else (counts.table, True)
    stretches = -(-(n + 1) // _STRETCH)
    top = x.new_empty(batch, stretches, 3)
    kernels.tops[(batch * stretches,)](
        table, part, s, counts.low, counts.high, top, n, part.shape[1], stride(counts.table), stretches,
        TABLE=held, W=FREQUENCIES, BLOCK=_STRETCH, num_warps=8,
    )  # fmt: skip
    kernels.waves[(batch,)](
        table, part, top, s, counts.low, counts.high, info, wave, n, part.shape[1], stride(counts.table), stretches,
        TABLE=held, W=FREQUENCIES, BLOCK=_STRETCH, num_warps=8,
    )  # fmt: skip
    block = 1024 if n < 1 << 19 else 4096
    programs = -(-n // block)
    parts = x.new_empty(batch, programs, FREQUENCIES, 2)
    kernels.products[(batch * programs,)](
        x, x, info, wave, parts, n, programs,
        MOVED=False, W=FREQUENCIES, BLOCK=block, num_warps=_warps(block),
    )  # fmt: skip
    log_z, total, error = x.new_empty(batch), x.new_empty(batch), x.new_empty(batch)
    kernels.gather[(batch,)](
        parts, info, wave, log_z, total, error, programs, rounding(n),
        W=FREQUENCIES, BLOCK=32, num_warps=8,
    )  # fmt: skip
    return _Waves(info, wave, log_z, total, error, block, programs)


def _moments(x: Tensor, s: Tensor) -> Tensor:
    """Moments (B, programs, 5) of stretches."""
    batch, n = x.shape
    block = 1024
    per = max(1, min(64, n // (block * 1024)))
    programs = -(-n // (block * per))
    out = x.new_empty(batch, programs, kernels.MOMENTS)
    kernels.moments[(batch * programs,)](x, s, out, n, programs, per, BLOCK=block, num_warps=4)
    return out


def _newton_step(sums: Tensor, s: Tensor, counts: Counts) -> Tensor:
    """Towards the posterior mean under a table."""
    mean, var, _, forced, free = sums.unbind(-1)
    assert counts.table is not None
    nearest = torch.minimum(torch.maximum(mean, counts.low), counts.high)
    wanted = _posterior_mean(counts.table, mean, var, s, nearest)
    least = forced + 0.3
    wanted = torch.minimum(torch.maximum(wanted, least), torch.maximum(forced + free - 0.3, least))
    return torch.where(free > 0, (wanted - mean) / var.clamp(min=1e-30), 0.0).clamp(-8.0, 8.0)


def _posterior_mean(table: Tensor, mean: Tensor, var: Tensor, s: Tensor, other: Tensor) -> Tensor:
    """Mean of the count (B,) where the tilted law is taken as normal; `other` where all near counts are impossible."""
    c = torch.arange(table.shape[-1], dtype=table.dtype, device=table.device)
    away = c - mean[:, None]
    score = table - s[:, None] * away - 0.5 * away * away / (var[:, None] + 0.01)
    weight = torch.exp(score - score.amax(-1, keepdim=True))
    found = mean + (weight * away).sum(-1) / weight.sum(-1)
    return torch.where(torch.isfinite(found), found, other)


def _kept(found: _Waves, plane: int) -> Tensor:
    """A plane of the waves (B, W), zero beyond the frequencies in use."""
    number = torch.arange(FREQUENCIES, device=found.wave.device)
    return torch.where(number < found.info[:, 3:4], found.wave[:, plane], 0.0)


def _bound(found: _Waves, least: Tensor) -> Tensor:
    """What is certified (B,), from the least sums (B, stretches) that are divided by."""
    bound = torch.empty_like(found.total)
    kernels.certify[(len(bound),)](
        least, found.total, found.error, bound, least.shape[1], BLOCK=256, num_warps=4
    )
    return bound


def _warps(block: int) -> int:
    return max(1, block // 512)
