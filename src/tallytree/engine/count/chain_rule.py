"""Entropy and divergence by the chain rule over the tree: sums of terms that are not negative.

    H(y)       = sum_roots H(z_r)  +  sum_merges sum_z P_p(z) H(z_l | z_p = z)
    KL(p || q) = the same with KL(p(z_l | z) || q(z_l | z)) in the place of entropies

Weights of z_l = i given z_p = z are ``up_l(i) up_r(z - i)``; tables above the merge cancel. With t the log-weights of a
distribution, t_m the largest, ``r_i = e^(t_i - t_m)`` and R the sum of all others,

    H = log(1 + R) + sum_i r_i (t_m - t_i) / (1 + R),

which has its relative accuracy however certain the outcome and however large the tables are. O(n^2) at worst, as direct
convolution: for models small enough for that.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import array_api_compat.numpy as xp
import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64
from ...structure.nested.schedule import Schedule
from ...structure.nested.tree import TreeProgram
from .arithmetic import LogSpace
from .tree_pass import extend_tables, gather, upward

_CELLS = 1 << 20  # message entries of the models that are worked on together


class Decisions(NamedTuple):
    """Distributions over the alternatives of many cases, as log-weights on demand."""

    top: Float64  # largest log-weight of a case, 0 where there is none
    first: NDArray[np.int64]  # the first alternative that has it
    others: Float64  # R


def entropy(program: TreeProgram, schedule: Schedule, nu: Float64, tables: Float64) -> Float64:
    """H of possible models (B, D), (B, T) in nats, (B,)."""
    out = np.empty(len(nu))
    with np.errstate(all="ignore"):
        for rows in _chunks(len(nu), schedule):
            up = _messages(schedule, nu[rows], tables[rows])
            out[rows] = _walk(schedule, up, up, _spread) + _of_free(program, nu[rows])
    return out


def divergence(program: TreeProgram, schedule: Schedule, p: tuple[Any, ...], q: tuple[Any, ...]) -> Float64:
    """KL(p || q) of possible models given by (nu, tables) each, (B,); p must allow nothing that q does not."""
    out = np.empty(len(p[0]))
    with np.errstate(all="ignore"):
        for rows in _chunks(len(out), schedule):
            first, second = (_messages(schedule, nu[rows], tables[rows]) for nu, tables in (p, q))
            free = _free_divergence(program, p[0][rows], q[0][rows])
            out[rows] = _walk(schedule, first, second, _relative) + free
    return out


def _chunks(batch: int, schedule: Schedule) -> list[slice]:
    step = max(1, _CELLS // schedule.up_length)
    return [slice(start, start + step) for start in range(0, batch, step)]


def _messages(schedule: Schedule, nu: Float64, tables: Float64) -> Float64:
    return np.asarray(upward(xp, schedule, LogSpace(xp), nu, extend_tables(xp, tables)).storage)


def _walk(schedule: Schedule, up: Float64, other: Float64, measure: Any) -> Float64:
    """Counts from the roots down: expected `measure` of every decision, summed."""
    batch = len(up)
    total = np.zeros(batch)
    probs = np.zeros_like(up)
    if len(schedule.roots.nodes):
        cells = schedule.roots.own_cells
        u, v = gather(xp, up, cells), gather(xp, other, cells)
        entries = range(cells.shape[1])
        laws = tuple(_law(lambda i, x=x: x[..., i], entries) for x in (u, v))
        total += measure(lambda i: u[..., i], lambda i: v[..., i], laws, entries).sum(-1)
        probs[:, cells] = np.exp(u - laws[0].top[..., None]) / (1.0 + laws[0].others)[..., None]
        probs[:, 0] = 0.0
    for step in reversed(schedule.up):
        small, large = step.left, step.right
        if small.shape[1] > large.shape[1]:
            small, large = large, small
        n, width = small.shape[1], step.width
        pairs = [_pairs(gather(xp, x, small), gather(xp, x, large), width) for x in (up, other)]
        entries = range(n)
        laws = tuple(_law(t, entries) for t in pairs)
        count = len(step.nodes)
        p = probs[:, step.start : step.start + count * width].reshape(batch, count, width)
        found = measure(*pairs, laws, entries)
        total += np.where(p > 0.0, p * found, 0.0).sum((-1, -2))
        # P(z_l = i), P(z_r = j) = sum of P(z) P(i | z) over i + j = z
        share = p / (1.0 + laws[0].others)
        low = np.zeros((batch, count, n))
        high = np.zeros((batch, count, n - 1 + max(width, large.shape[1])))
        for i in entries:
            term = share * np.exp(pairs[0](i) - laws[0].top)
            low[..., i] = term.sum(-1)
            high[..., n - 1 - i : n - 1 - i + width] += term
        probs[:, small] = low
        probs[:, large] = high[..., n - 1 : n - 1 + large.shape[1]]
        probs[:, 0] = 0.0
    return total


def _pairs(a: Float64, b: Float64, width: int) -> Any:
    """Log-weights of the small child's count i for all counts z < width of the parent, (B, count, width)."""
    n = a.shape[-1]
    room = np.full((*b.shape[:-1], n - 1 + max(width, b.shape[-1])), -math.inf)
    room[..., n - 1 : n - 1 + b.shape[-1]] = b
    return lambda i: a[..., i : i + 1] + room[..., n - 1 - i : n - 1 - i + width]


def _law(t: Any, entries: range) -> Decisions:
    top = t(0)
    first = np.zeros(top.shape, np.int64)
    for i in entries[1:]:
        new = t(i)
        better = new > top
        top, first = np.where(better, new, top), np.where(better, i, first)
    top = np.where(top == -math.inf, 0.0, top)
    others = np.zeros_like(top)
    for i in entries:
        others += np.where(first == i, 0.0, np.exp(t(i) - top))
    return Decisions(top, first, others)


def _spread(t: Any, _: Any, laws: tuple[Decisions, Decisions], entries: range) -> Float64:
    """Entropy of every case."""
    law = laws[0]
    gap = np.zeros_like(law.top)
    for i in entries:
        below = law.top - t(i)
        gap += np.where((law.first == i) | (below == math.inf), 0.0, np.exp(-below) * below)
    return np.asarray(np.log1p(law.others) + gap / (1.0 + law.others))


def _relative(t: Any, s: Any, laws: tuple[Decisions, Decisions], entries: range) -> Float64:
    """Divergence of every case: the sum of p (e^u - 1 - u) with u = log q / p, no term of which is negative."""
    norm_p, norm_q = (np.log1p(law.others) for law in laws)
    total = np.zeros_like(norm_p)
    for i in entries:
        log_p = (t(i) - laws[0].top) - norm_p
        log_q = (s(i) - laws[1].top) - norm_q
        p, q = np.exp(log_p), np.exp(log_q)
        impossible = log_p == -math.inf
        u = np.where(impossible, 0.0, log_q - np.where(impossible, 0.0, log_p))
        large = np.where(u < 1.0, p * (np.expm1(np.minimum(u, 1.0)) - u), q - p - p * u)
        term = np.where(np.abs(u) < 0.5, p * _exp_minus_line(np.clip(u, -0.5, 0.5)), large)
        total += np.where(impossible, q, np.where(u == -math.inf, math.inf, np.maximum(term, 0.0)))
    return total


def _exp_minus_line(u: Float64) -> Float64:
    """``e^u - 1 - u`` for abs(u) <= 1/2, to the last digits."""
    series = np.ones_like(u)
    for k in range(16, 2, -1):
        series = 1.0 + u / k * series
    return 0.5 * u * u * series


def binary_entropy(odds: Float64) -> Float64:
    """Entropy of variables with these log-odds."""
    size = np.abs(odds)
    rare = np.exp(-size)
    return np.asarray(np.log1p(rare) + np.where(rare > 0.0, np.minimum(size, 1e3) * rare / (1.0 + rare), 0.0))


def _of_free(program: TreeProgram, nu: Float64) -> Float64:
    free = program.parent[: program.n_leaves] < 0
    return np.asarray(binary_entropy(nu[:, free]).sum(-1))


def _free_divergence(program: TreeProgram, p: Float64, q: Float64) -> Float64:
    free = program.parent[: program.n_leaves] < 0
    pair = [np.stack([np.zeros_like(x), x], -1)[:, free] for x in (p, q)]
    for x in pair:
        x[..., 0][x[..., 1] == math.inf] = -math.inf
        x[..., 1][x[..., 1] == math.inf] = 0.0
    laws = tuple(_law(lambda i, x=x: x[..., i], range(2)) for x in pair)
    found = _relative(lambda i: pair[0][..., i], lambda i: pair[1][..., i], laws, range(2))  # type: ignore[arg-type]
    return np.asarray(found.sum(-1))
