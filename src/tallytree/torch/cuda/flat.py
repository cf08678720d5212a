"""Rows of flat models on the device: launches of :mod:`.flat_kernels`."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from . import flat_kernels as kernels
from .flat_kernels import FREQUENCIES, INFO, PLANES

LONGEST = 4096  # variables of a row that stay in the registers of one program
_UNIT_ROUNDOFF = 2.0**-53


class Solved(NamedTuple):
    """Answers for B rows; `bound` is what is certified about the posterior log-odds, infinite where nothing is."""

    log_z: Tensor
    values: Tensor
    counts: Tensor
    bound: Tensor


def solve(
    x: Tensor,
    table: Tensor,
    v: Tensor | None = None,
    push: Tensor | None = None,
    *,
    counts: bool = False,
    start: Tensor | None = None,
) -> Solved:
    """Log Z (B,), marginals (B, n) and count probabilities (B, n + 1) of log-odds (B, n), tables (B or 1, n + 1).

    With a direction v (B, n), and `push` (B or 1, n + 1) of the tables: how marginals and count probabilities move.
    Tilts are looked for from `start` (B,) on.
    """
    programs, lanes, info, wave = _prepared(x, table, push, start, moved=v is not None)
    batch, n = x.shape
    values = torch.empty_like(x)
    log_z, bound = x.new_empty(batch), x.new_empty(batch)
    drift = None if v is None else x.new_empty(batch)
    kernels.solve[(programs,)](
        x, x if v is None else v, info, wave, values, log_z, log_z if drift is None else drift, bound, batch, n,
        rounding(n), MOVED=v is not None, WITH_PUSH=push is not None, KEEP=counts, W=wave.shape[-1], **lanes,
    )  # fmt: skip
    probs = _counts(table, push, info, wave, log_z, drift) if counts else x.new_empty(batch, 0)
    return Solved(log_z, values, probs, bound)


def _prepared(
    x: Tensor, table: Tensor, push: Tensor | None = None, start: Tensor | None = None, *, moved: bool = False
) -> tuple[int, dict[str, int], Tensor, Tensor]:
    """How many programs there are and of which shape, and what :mod:`.flat_kernels` says of the rows."""
    batch, n = x.shape
    block = max(2, 1 << (n - 1).bit_length())
    rows = max(1, 64 // block)
    programs, lanes = -(-batch // rows), {"R": rows, "BLOCK": block, "num_warps": max(1, block // 512)}
    info = x.new_empty(batch, INFO)
    # A window never exceeds n + 2 counts, and half as many frequencies serve it.
    few = max(2, 1 << ((n + 2) // 2).bit_length())
    wave = x.new_empty(batch, PLANES, min(few, FREQUENCIES))
    kernels.prepare[(programs,)](
        x, table, table if push is None else push, x if start is None else start, info, wave, batch, n,
        stride(table), stride(push),
        MOVED=moved, WITH_PUSH=push is not None, STARTED=start is not None, W=wave.shape[-1], **lanes,
    )  # fmt: skip
    return programs, lanes, info, wave


def _counts(
    table: Tensor, push: Tensor | None, info: Tensor, wave: Tensor, log_z: Tensor, drift: Tensor | None
) -> Tensor:
    batch, n = len(info), table.shape[-1] - 1
    out = log_z.new_empty(batch, n + 1)
    block = min(256, max(32, 1 << n.bit_length()))
    kernels.counts[(batch, -(-(n + 1) // block))](
        table, table if push is None else push, info, wave, log_z, log_z if drift is None else drift, out,
        n, stride(table), stride(push),
        MOVED=drift is not None, WITH_PUSH=push is not None, W=wave.shape[-1],
        BLOCK=block, num_warps=max(1, block // 128),
    )  # fmt: skip
    return out


def stride(table: Tensor | None) -> int:
    """Entries from one row's table to the next; 0 for a table that all rows share."""
    return 0 if table is None or len(table) == 1 else table.stride(0)


def rounding(n: int) -> float:
    """Round-off of products over n variables, in units of their sizes: a random walk, with room."""
    return _UNIT_ROUNDOFF * (64.0 + 8.0 * math.sqrt(n))


def tilts(x: Tensor, table: Tensor) -> Tensor:
    """Tilts (B,) under which the variables of log-odds (B, n) count about as many as the posterior."""
    return _prepared(x, table)[2][:, 0]
