"""Belief propagation under complex weights with derivatives, in array code: what `forest_tangent` asks of an engine.

All components hang below one more vertex with a single state. A message is an array (part, state, frequency): its value
and its derivative, products by the product rule. Scales are those of frequency 0, the same for all frequencies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64

Complex128 = NDArray[np.complex128]

_AT_ONCE = 256  # frequencies
_LOST = 4.0 * np.finfo(float).tiny  # by a product below the smallest normal number


def forest_tangent(
    order: Any, parent: Any, edge: Any, flip: Any, counted: Any, leaf: Float64, tables: Float64, slope: Float64,
    period: int, f: Complex128, h: Complex128,
) -> tuple[Float64, Float64, Float64, Complex128]:  # fmt: skip
    """P(y = 1) and its derivative, (D,), errors, (3,), and the law of the count, (2, M).

    Of the errors: how much relative ones are amplified in both, and the share that underflow may have taken.
    """
    n = len(leaf)
    above = np.append(np.where(parent >= 0, parent, n), -1)
    links = np.empty((n, 2, 2))  # parent's state first
    for v in range(n):
        table = tables[edge[v]] if parent[v] >= 0 else np.ones((2, 2))
        links[v] = table.T if parent[v] >= 0 and flip[v] else table
    weights = np.concatenate([leaf, [[1.0, 0.0]]])
    slopes = np.concatenate([slope, [[0.0, 0.0]]])
    turned = np.append(counted, 0).astype(bool)
    law = np.zeros((2, len(f)), np.complex128)
    sums = np.zeros((2, n, 2, 2))  # (sums or sums of absolute values, vertex, part, state)
    scales = np.zeros((n, 3))
    for start in range(0, len(f), _AT_ONCE):
        m = np.arange(start, min(start + _AT_ONCE, len(f)))
        turn = np.exp(2j * np.pi * m / period)
        own = np.repeat(weights[:, :, None], len(m), axis=2).astype(np.complex128)
        own[turned, 1] *= turn
        below = np.stack([own, slopes[:, :, None] * own], axis=1)
        law[:, m] = _sweep([n, *order.tolist()], above, links, below, scales, start == 0, (f[m], h[m]), sums)
    total, size = sums.sum(axis=3)
    with np.errstate(all="ignore"):
        marginals = sums[0, :, 0, 1] / total[:, 0]
        change = (sums[0, :, 1, 1] - marginals * total[:, 1]) / total[:, 0]
        relative = size / total[:, :1]
        drift = np.abs(total[:, 1] / total[:, 0]) + np.abs(change)
        lost = underflow([n, *order.tolist()], above, links, weights)
        worst = np.array(
            [
                relative[:, 0].max(initial=0.0),
                (relative[:, 1] + relative[:, 0] * drift).max(initial=0.0),
                lost,
            ]
        )
    if not np.all(total[:, 0] > 0.0):
        worst[:] = np.inf
    return marginals, change, worst, law


def _times(a: Complex128, b: Complex128) -> Complex128:
    return np.stack([a[0] * b[0], a[1] * b[0] + a[0] * b[1]])


def _scaled(x: Complex128, scales: Float64, place: tuple[int, int], first: bool) -> Complex128:
    if first:
        top = float(x[0, :, 0].real.max())
        scales[place] = 1.0 / top if top > 0.0 else 1.0
    return np.asarray(x * scales[place])


def _sweep(
    order: list[int], parent: Any, links: Float64, below: Complex128, scales: Float64, first: bool,
    transforms: tuple[Complex128, Complex128], sums: Float64,
) -> Complex128:  # fmt: skip
    """Up and down once; adds what these frequencies contribute to `sums` and returns the law, (2, M)."""
    f, h = transforms
    sent, before = np.empty_like(below), np.empty_like(below)
    over = np.zeros_like(below)
    for v in reversed(order[1:]):
        p = parent[v]
        sent[v] = np.einsum("pq,dqm->dpm", links[v], below[v])
        before[v] = below[p]
        below[p] = _scaled(_times(below[p], sent[v]), scales, (v, 0), first)
    over[order[0], 0] = 1.0
    belief = np.empty_like(below[:-1])
    for v in order[1:]:
        p = parent[v]
        rest = _times(before[v], over[p])
        over[v] = _scaled(np.einsum("pq,dpm->dqm", links[v], rest), scales, (v, 1), first)
        belief[v] = _times(below[v], over[v])
        over[p] = _scaled(_times(over[p], sent[v]), scales, (v, 2), first)
    sums[0, :, 0] += (f * belief[:, 0]).real.sum(-1)
    sums[0, :, 1] += (f * belief[:, 1] + h * belief[:, 0]).real.sum(-1)
    sums[1, :, 0] += np.abs(f * belief[:, 0]).sum(-1)
    sums[1, :, 1] += (np.abs(f * belief[:, 1]) + np.abs(h * belief[:, 0])).sum(-1)
    return np.asarray(below[order[0]].sum(axis=1))


def underflow(order: list[int], parent: Any, links: Float64, weights: Float64) -> float:
    """The largest share of a vertex's weight at frequency 0 that products below the smallest number may have lost.

    The products and scales of `_sweep`, each entry with a bound on what it lacks; messages are (value or bound, state).
    """
    below = np.stack([weights, np.full_like(weights, _LOST)], axis=1)
    sent, before, over = np.empty_like(below), np.empty_like(below), np.ones_like(below)
    for v in reversed(order[1:]):
        p = parent[v]
        sent[v] = _crossed(links[v], below[v])
        before[v] = below[p]
        below[p] = _to_one(_lossy(below[p], sent[v]))
    worst = 0.0
    over[order[0], 1] = 0.0
    for v in order[1:]:
        p = parent[v]
        over[v] = _to_one(_crossed(links[v].T, _lossy(before[v], over[p])))
        over[p] = _to_one(_lossy(over[p], sent[v]))
        value, lost = _lossy(below[v], over[v]).sum(axis=-1)
        worst = max(worst, float(lost / value) if value > 0.0 else np.inf)
    return worst


def _lossy(a: Float64, b: Float64) -> Float64:
    return np.stack([a[0] * b[0], a[0] * b[1] + a[1] * (b[0] + b[1]) + _LOST])


def _crossed(link: Float64, message: Float64) -> Float64:
    value, lost = message
    return np.stack([link @ value, link @ lost + _LOST * (2.0 + (value + lost).sum())])


def _to_one(message: Float64) -> Float64:
    top = message[0].max()
    return np.asarray(message / top) if top > 0.0 else message
