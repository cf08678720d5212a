"""Exact joint samples on the device: trials for flat models, long ones in pieces, counts down the tree for others.

    P(z_l = i | z_p) ~ up_l(i) up_r(z_p - i)

Messages are those of the certified pass; rows whose plain numbers are not certified have theirs in logarithms. A row
of which no trial is kept for long is drawn down its tree: both ways follow the same law, so that their mixture does.
Random numbers are those of Philox, counted by draw and step, so that the same seed gives the same samples.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .. import host
from ..structure import Structure, of_members
from ..tensors import refuse_impossible, refuse_nan
from . import draw_kernels as kernels
from . import flat, logarithms, long, tree
from .ladder import TOLERANCE, explicit, is_flat, is_long, own_tables, shared, tilted, uncertified
from .tree import Plan, plan_of

_LANES = 128
_DRAWN = 1 << 28  # counts that one round of draws may hold
_VARIABLES = 64  # of short rows that one program draws
_ROUNDS = 512  # of two trials; rows of 4096 variables need about 40 of them
_PIECE_ROUNDS = 64  # of trials of the counts of pieces
_AT_ONCE = 1 << 24  # numbers that one round of trials may hold
_TABLES = 1 << 25  # entries of the tables of pieces that are drawn together


def draw(structure: Structure, logits: Tensor, tables: Tensor | None, seed: Tensor, count: int) -> Tensor:
    """Samples (count, B, D) of zeros and ones, uint8, of log-odds (B, D) and packed tables (1 or B, T) or None."""
    tables = explicit(structure, logits, tables)
    refuse_nan(logits, tables)
    if is_flat(structure):
        way = _by_trials if logits.shape[-1] <= flat.LONGEST else _by_pieces
        return way(structure, logits, tables, seed, count)
    return _by_tree(structure, logits, tables, seed, count)


def _by_trials(structure: Structure, logits: Tensor, tables: Tensor, seed: Tensor, count: int) -> Tensor:
    """Draws of short flat models; those that no trial has given go down the tree together."""
    batch, n = logits.shape
    draws = count * batch
    out = torch.empty(draws, n, dtype=torch.uint8, device=logits.device)
    done = torch.empty(draws, dtype=torch.uint8, device=logits.device)
    block = max(2, 1 << (n - 1).bit_length())
    together = max(1, _VARIABLES // block)
    kernels.trials[(-(-draws // together),)](
        logits, tables, flat.tilts(logits, tables).contiguous(), seed, out, done, draws, batch, n,
        flat.stride(tables), _ROUNDS,
        R=together, BLOCK=block, num_warps=max(1, block // 512),
    )  # fmt: skip
    if not bool(done.all()):
        left = torch.nonzero(done == 0).squeeze(-1)
        own = left % batch
        out[left] = _by_tree(structure, logits[own], own_tables(tables, own), seed, 1)[0]
    return out.view(count, batch, n)


def _by_pieces(structure: Structure, logits: Tensor, tables: Tensor, seed: Tensor, count: int) -> Tensor:
    """Draws of long flat models: counts of pieces, then the pieces as short rows; what no trial gives, by the tree.

    Under the tilt s a configuration of count z has the weight prod p^y q^(1-y) times g(z) = f(z) e^{-s z} up to a
    constant, and the pieces of a row are independent. So counts of the pieces drawn from their own laws and kept with
    probability g(z) / max g follow the law exactly; a trial costs one number per piece. Given its count, a piece is a
    short row.
    """
    batch, n = logits.shape
    law = cut(logits, tables, TOLERANCE)
    generator = torch.Generator(logits.device).manual_seed(int(seed))
    counts, done = counts_of_pieces(law, count, generator)
    done &= law.sound[:, None]
    pieces, short = counts.shape[-1], of_members((None,), flat.LONGEST)
    out = torch.empty(batch, count, n, dtype=torch.uint8, device=logits.device)
    given = torch.nonzero(done)
    for some in together(given, pieces):
        row, copy = some.unbind(-1)
        x = law.pieces[row].reshape(-1, flat.LONGEST)
        wanted = exactly(counts[row, copy].reshape(-1))
        seed = seed + 1
        drawn = _by_trials(short, x, wanted, seed, 1)[0]
        out[row, copy] = drawn.reshape(len(row), -1)[:, :n]
    if len(given) < batch * count:
        row, copy = torch.nonzero(~done).unbind(-1)
        out[row, copy] = _by_tree(structure, logits[row], own_tables(tables, row), seed + 1, 1)[0]
    return out.transpose(0, 1)


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
    count = -(-n // flat.LONGEST)
    short = torch.nn.functional.pad(logits + s, (0, count * flat.LONGEST - n), value=-math.inf)
    short = short.reshape(batch * count, flat.LONGEST)
    found = flat.solve(short, short.new_zeros(1, flat.LONGEST + 1), counts=True)
    cdf = found.counts.cumsum(-1)
    cdf = (cdf / cdf[:, -1:]).reshape(batch, count, flat.LONGEST + 1)
    score = tables - s * torch.arange(n + 1, dtype=tables.dtype, device=tables.device)
    score = score - score.amax(-1, keepdim=True)
    sound = (found.bound <= tolerance).reshape(batch, count).all(-1)
    return Law(short.reshape(batch, count, flat.LONGEST), cdf, score, sound)


def counts_of_pieces(law: Law, copies: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Counts (B, copies, P) of independent draws, and which of them (B, copies) some trial has given."""
    batch, pieces = law.cdf.shape[:2]
    chosen = torch.zeros(batch, copies, pieces, dtype=torch.long, device=law.cdf.device)
    done = torch.zeros(batch, copies, dtype=torch.bool, device=law.cdf.device)
    trials = min(4096, max(64, _AT_ONCE // (batch * copies * pieces)))
    for _ in range(_PIECE_ROUNDS):
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
    return draws.split(max(1, _TABLES // (pieces * (flat.LONGEST + 1)))) if len(draws) else ()


def exactly(counts: Tensor) -> Tensor:
    """Log-tables (R, m + 1) that allow one count each."""
    table = torch.full((len(counts), flat.LONGEST + 1), -math.inf, dtype=torch.float64, device=counts.device)
    return table.scatter_(1, counts[:, None], 0.0)


def _by_tree(structure: Structure, logits: Tensor, tables: Tensor, seed: Tensor, count: int) -> Tensor:
    if is_long(structure):
        return host.from_afar("draw", structure, logits, shared(tables), seed, count)
    if is_flat(structure):
        logits, tables = tilted(logits, tables)
    plan = plan_of(structure, logits.device)
    stream = 0
    parts = []
    for x, t in tree.stretches(structure, logits, tables):
        storage = _log_messages(structure, x, t)
        rounds = []
        at_once = max(1, _DRAWN // max(1, len(x) * plan.n_nodes))
        for first in range(0, count, at_once):
            copies = min(at_once, count - first)
            z = _counts(plan, storage, seed, copies * len(x), stream)
            stream += 1 + len(plan.children)
            rounds.append(z[:, : x.shape[-1]].to(torch.uint8).reshape(copies, len(x), x.shape[-1]))
        parts.append(torch.cat(rounds))
    return torch.cat(parts, dim=1)


def _log_messages(structure: Structure, logits: Tensor, tables: Tensor) -> Tensor:
    found = tree.solve(structure, logits, tables)
    storage = found.storage.log()
    failed = uncertified(found.bound, TOLERANCE)
    if failed is not None:
        x, t = logits[failed], own_tables(tables, failed)
        refuse_impossible(logarithms.solve(structure, x, t).log_z)
        storage.index_copy_(0, failed, logarithms.upward(structure, x, t))
    return storage


def mode(structure: Structure, logits: Tensor, tables: Tensor | None) -> Tensor:
    """A most probable configuration of every row, (B, D), uint8: the same walk down the messages of the best."""
    tables = explicit(structure, logits, tables)
    refuse_nan(logits, tables)
    if is_flat(structure):
        return _flat_mode(logits, tables)
    plan = plan_of(structure, logits.device)
    parts = []
    for x, t in tree.stretches(structure, logits, tables):
        storage = logarithms.upward(structure, x, t, best=True)
        tops = torch.stack(
            [storage[:, cell : cell + n].amax(-1) for cell, n in plan.heads[:, 3:5].tolist()], -1
        )
        refuse_impossible(tops.amin(-1))
        z = _counts(plan, storage, storage, len(x), 0, best=True)
        parts.append(z[:, : x.shape[-1]].to(torch.uint8))
    return torch.cat(parts)


def _counts(
    plan: Plan, storage: Tensor, seed: Tensor, copies: int, stream: int, *, best: bool = False
) -> Tensor:
    """Counts of all nodes (copies, nodes); a copy belongs to row ``copy % B``."""
    z = torch.zeros(copies, plan.n_nodes, dtype=torch.int32, device=storage.device)
    batch, cells = storage.shape
    for step, nodes in enumerate([plan.heads, *plan.children]):
        draws = copies * len(nodes)
        kernels.split[(-(-draws // _LANES),)](
            storage, z, nodes, seed, draws, len(nodes), batch, cells, plan.n_nodes, stream + step,
            HEAD=step == 0, BEST=best, L=_LANES, num_warps=4,
        )  # fmt: skip
    return z


def _flat_mode(logits: Tensor, tables: Tensor) -> Tensor:
    """A most probable configuration of flat models, (B, D), uint8, of log-tables (1 or B, D + 1).

    It is the best prefix of the sorted log-odds: max_k  theta_(1) + ... + theta_(k) + log f(k).
    """
    n = logits.shape[-1]
    ordered, place = torch.sort(logits, dim=-1, descending=True, stable=True)
    forced = torch.isposinf(ordered)
    weight = torch.where(forced, 0.0, ordered).cumsum(-1)
    score = torch.cat([torch.zeros_like(weight[:, :1]), weight], -1) + tables
    counts = torch.arange(n + 1, device=logits.device)
    score = torch.where(counts >= forced.sum(-1, keepdim=True), score, -math.inf)
    best = score.max(-1)
    refuse_impossible(best.values)
    chosen = (counts[:n] < best.indices[:, None]).to(torch.uint8)
    return torch.zeros_like(chosen).scatter_(-1, place, chosen)
