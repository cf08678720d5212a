"""Where the posterior of a count is, for tables that have it far from where the search for a tilt begins.

Of weights e_c, the sums over all configurations with c variables on, each tilt s says ``log e_c <= K(s) - s c``, and
nearly equality at the mean c(s) under it. Tilts from one end to the other find the likely counts; counts whose
bound is far below these are left out of the table, and what they weigh together is part of the certificate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .flat import Solved

_TILTS = 32  # inside the range of the log-odds
_BEYOND = (2.0, 8.0, 32.0)  # nats outside of it: there all variables are nearly on, or off
_MARGIN = 50.0  # nats below the likely counts, from which on counts are left out
_ROUNDING = 1e-12  # of exponents
_AT_ONCE = 1 << 25  # numbers at once


class Near(NamedTuple):
    """Tables (B, n + 1) without far counts, a bound on the log-weight (B,) of those, tilts (B,) of the likeliest."""

    tables: Tensor
    left_out: Tensor
    start: Tensor


def nearest(x: Tensor, tables: Tensor) -> Near:
    """Of log-odds (B, n) and tables (B, n + 1), as many rows at a time as leave room for others."""
    rows = max(1, _AT_ONCE // x.shape[-1])
    parts = [_nearest(*part) for part in zip(x.split(rows), tables.split(rows))]
    return Near(*(torch.cat(part) for part in zip(*parts)))


def _nearest(x: Tensor, tables: Tensor) -> Near:
    forced = torch.isposinf(x).sum(-1, keepdim=True)
    s = _tilts(x, forced)
    norm, mean = _moments(x, s)
    c = torch.arange(tables.shape[-1], dtype=x.dtype, device=x.device) - forced
    free = torch.isfinite(x).sum(-1, keepdim=True)
    after = torch.searchsorted(mean, c.contiguous()).clamp(1, s.shape[-1] - 1)
    sides = [(norm.gather(-1, at), s.gather(-1, at), mean.gather(-1, at)) for at in (after - 1, after)]
    (k0, s0, m0), (k1, s1, m1) = sides
    highest = torch.where((c >= 0) & (c <= free), torch.minimum(k0 - s0 * c, k1 - s1 * c), -math.inf) + tables
    share = ((c - m0) / (m1 - m0).clamp(min=1e-30)).clamp(0.0, 1.0)
    rate = (1.0 - share) * (k0 - s0 * m0) + share * (k1 - s1 * m1) + tables
    rate = torch.where(highest > -math.inf, rate, -math.inf)
    best, place = rate.max(-1, keepdim=True)
    start = ((1.0 - share) * s0 + share * s1).gather(-1, place)[:, 0]
    kept = highest >= best - _MARGIN
    left_out = torch.logsumexp(torch.where(kept, -math.inf, highest), -1) + _ROUNDING * norm.abs().amax(-1)
    return Near(torch.where(kept, tables, -math.inf).contiguous(), left_out, start.contiguous())


def bound(near: Near, found: Solved, v: Tensor | None) -> Tensor:
    """What is certified (B,) with the counts that were left out: of marginals relatively, of motions absolutely."""
    share = torch.exp(near.left_out - found.log_z)
    if v is None:
        values = torch.where(found.values > 0.0, found.values, 1.0)
        return found.bound + share / values.amin(-1)
    return found.bound + share * (4.0 * v.abs().sum(-1))


def _tilts(x: Tensor, forced: Tensor) -> Tensor:
    """Tilts (B, T), rising, each of which leaves some log-odds undecided, or none."""
    ordered = x.sort(-1, descending=True).values
    last = (torch.isfinite(x).sum(-1, keepdim=True) - 1).clamp(min=0)
    at = forced + torch.linspace(0.0, 1.0, _TILTS, device=x.device) * last
    inside = -ordered.gather(-1, at.long().clamp(max=x.shape[-1] - 1))
    inside = torch.where(torch.isfinite(inside), inside, 0.0)
    out = torch.tensor(_BEYOND, dtype=x.dtype, device=x.device)
    return torch.cat([inside[:, :1] - out.flip(0), inside, inside[:, -1:] + out], -1)


def _moments(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """K(s) and the mean of the count of the variables that are not decided, (B, T) each."""
    finite = torch.isfinite(x)[:, None]
    step = max(1, _AT_ONCE // x.numel())
    parts = []
    for first in range(0, s.shape[-1], step):
        odds = x[:, None] + s[:, first : first + step, None]
        norm = torch.where(finite, torch.nn.functional.softplus(odds), 0.0).sum(-1)
        parts.append((norm, torch.where(finite, torch.sigmoid(odds), 0.0).sum(-1)))
    norm, mean = (torch.cat(part, -1) for part in zip(*parts))
    return norm, torch.cummax(mean, -1).values.contiguous()
