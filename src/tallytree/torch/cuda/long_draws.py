"""Exact joint samples of long flat rows: counts of pieces by trials, then every piece given its count.

Under the tilt s a configuration of count z has the weight prod p^y q^(1-y) times g(z) = f(z) e^{-s z} up to a constant,
and the pieces of a row are independent. So counts of the pieces drawn from their own laws and kept with probability
g(z) / max g follow the law exactly; a trial costs one number per piece. Given its count, a piece is a short row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from . import long, rows

_ROUNDS = 64
_AT_ONCE = 1 << 24  # numbers that one round of trials may hold
_TABLES = 1 << 25  # entries of the tables of pieces that are drawn together


class Law(NamedTuple):
    """Rows cut into pieces: tilted log-odds (B, P, m), distribution functions (B, P, m + 1), and log g (B, n + 1)."""

    pieces: Tensor
    cdf: Tensor
    score: Tensor
    sound: Tensor  # (B,): whether the laws of all pieces are certified


def cut(logits: Tensor, tables: Tensor, tolerance: float) -> Law:
    """The laws of the pieces of long rows (B, n) under their tilts."""
    batch, n = logits.shape
    s = long.tilts(logits, long.counts_of(tables, batch))[:, None]
    count = -(-n // rows.LONGEST)
    short = torch.nn.functional.pad(logits + s, (0, count * rows.LONGEST - n), value=-math.inf)
    short = short.reshape(batch * count, rows.LONGEST)
    found = rows.marginals(short, short.new_zeros(1, rows.LONGEST + 1), counts=True)
    cdf = found.counts.cumsum(-1)
    cdf = (cdf / cdf[:, -1:]).reshape(batch, count, rows.LONGEST + 1)
    score = tables - s * torch.arange(n + 1, dtype=tables.dtype, device=tables.device)
    score = score - score.amax(-1, keepdim=True)
    sound = (found.bound <= tolerance).reshape(batch, count).all(-1)
    return Law(short.reshape(batch, count, rows.LONGEST), cdf, score, sound)


def counts_of_pieces(law: Law, copies: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Counts (B, copies, P) of independent draws, and which of them (B, copies) some trial has given."""
    batch, pieces = law.cdf.shape[:2]
    chosen = torch.zeros(batch, copies, pieces, dtype=torch.long, device=law.cdf.device)
    done = torch.zeros(batch, copies, dtype=torch.bool, device=law.cdf.device)
    trials = min(4096, max(64, _AT_ONCE // (batch * copies * pieces)))
    for _ in range(_ROUNDS):
        u = law.cdf.new_empty(batch, pieces, copies * trials).uniform_(generator=generator)
        c = torch.searchsorted(law.cdf, u, right=True).clamp(max=law.cdf.shape[-1] - 1)
        c = c.reshape(batch, pieces, copies, trials)
        z = c.sum(1).clamp(max=law.score.shape[-1] - 1)
        chance = law.score.gather(1, z.reshape(batch, -1)).exp().reshape(z.shape)
        coin = law.cdf.new_empty(z.shape).uniform_(generator=generator)
        kept, first = (coin < chance).max(-1)
        found = c.gather(3, first[:, None, :, None].expand(batch, pieces, copies, 1)).squeeze(-1).mT
        chosen = torch.where((kept & ~done)[..., None], found, chosen)
        done |= kept
        if bool(done.all()):
            break
    return chosen, done


def together(draws: Tensor, pieces: int) -> tuple[Tensor, ...]:
    """Draws in groups whose pieces are drawn at once."""
    return draws.split(max(1, _TABLES // (pieces * (rows.LONGEST + 1)))) if len(draws) else ()


def exactly(counts: Tensor) -> Tensor:
    """Log-tables (R, m + 1) that allow one count each."""
    table = torch.full((len(counts), rows.LONGEST + 1), -math.inf, dtype=torch.float64, device=counts.device)
    return table.scatter_(1, counts[:, None], 0.0)
