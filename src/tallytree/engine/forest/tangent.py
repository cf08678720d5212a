"""Derivatives of the expectations of a pairwise forest with one count, from characteristic functions.

Under weights e^(iwy) the forest sums up to the characteristic function of the count, ``E e^(iwz)``, and its beliefs to
``E y e^(iwz)``, by ordinary belief propagation in complex numbers. The potential f enters by its transform, derivatives
ride along. A tilt e^(sy) puts the count where its posterior lies. The marginals that come out along the way are
compared with those of the certified inference: that certifies the frequencies that were left out, and the rounding.
In array code the general way (:func:`directional_derivatives`) is as quick.

Derivatives of the expectations of any forest with counts: both passes in numbers that carry their derivatives.

A number is ``log w + i d``, d the derivative of ``log w`` along a direction. Products add both parts; a sum over
alternatives of weights w_j has ``d = sum_j p_j d_j``, ``p_j = w_j / sum w``: a mean, in which nothing is amplified. The
direction is centred at the posterior, so that d is of the size of its fluctuations. Scales are constants. Cost: one
inference in logarithms for each direction, whatever the number of sets, states and edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Float64, Ints
from .. import native
from ..answer import Answer, Derivatives
from ..arithmetic import UNIT_ROUNDOFF, Carried
from ..ladder import TANGENT, announce
from ..problem import ForestProblem
from .certificate import log_odds
from .ladder import Tilter, pairs_of_counts, tilted
from .sum_product import ForestPass, scaled
from .values import Chunk


class Direction(NamedTuple):
    """A direction, or derivatives along one: of weights (B, D, K), of edges (B, E, K, K), of counts (B, T)."""

    leaf: Float64
    edge: Float64
    tables: Float64


class _TangentPass(ForestPass):
    """Both passes along one direction; reads the derivatives where the pass reads the values."""

    def __init__(self, problem: ForestProblem, direction: Direction) -> None:
        super().__init__(problem, Carried())
        self.direction = direction
        batch = len(problem)
        self.edges = np.array(np.broadcast_to(self.edges, (batch, *self.edges.shape[1:])))
        self.edges[:, :-1] += 1j * direction.edge
        self.edge_top = np.broadcast_to(self.edge_top, (batch, self.edge_top.shape[1]))
        self.moved = Direction(*(np.zeros(part.shape) for part in direction))

    def _leaf_values(self, log_weight: Float64, chunk: Chunk, vertex: Ints) -> Any:
        return log_weight + 1j * self.direction.leaf[chunk.batch, vertex]

    def _table_values(self, log_values: Float64, chunk: Chunk, place: Ints, inside: Any) -> Any:
        pushed = self.direction.tables[chunk.batch, np.where(inside, place, 0)]
        return log_values + 1j * np.where(inside, pushed, 0.0)

    def _take_messages(self, chunk: Chunk, vertex: Ints, g: Any) -> None:
        super()._take_messages(chunk, vertex, g)
        self.moved.leaf[chunk.batch, vertex] = g.imag

    def _take_counts(self, batch: Ints, place: Ints, inside: Any, belief: Any) -> None:
        super()._take_counts(batch, place, inside, belief)
        self.moved.tables[batch[inside], place[inside]] = belief.imag[inside]

    def _take_pairs(self, batch: Ints, edge: Ints, pair: Any) -> None:
        super()._take_pairs(batch, edge, pair)
        self.moved.edge[batch, edge] = pair.imag


def directional_derivatives(problem: ForestProblem, answer: Answer, direction: Direction) -> Direction:
    """Derivatives of P(state), P(pair of states) and P(count) along a direction; `answer` is what inference found.

    Entries of the direction at weights of -inf have no effect; all others must be finite.
    """
    announce(pairs_of_counts(problem), TANGENT, "A derivative")
    means = _expectations(problem, answer)
    sums: tuple[Sums, ...] = (_sums_over((2,)), _sums_over((2, 3)), partial(sums_over_sets, problem.offset))
    tables = problem.log_leaf, problem.log_edge, problem.tables
    centred = Direction(*map(_centred, direction, means, tables, sums))
    return Direction(*map(weighed, means, log_derivatives(problem, centred), sums))


def log_derivatives(problem: ForestProblem, direction: Direction) -> Direction:
    """D log P(state), d log P(pair of states) and d log P(count), up to constants, along a finite direction."""
    with np.errstate(all="ignore"):
        found = _TangentPass(problem, direction)
        found.upward()
        found.downward()
    return found.moved._replace(leaf=found.moved.leaf + direction.leaf)


def _expectations(problem: ForestProblem, answer: Answer) -> Direction:
    """P(state), P(pair of states) and P(count), normalised."""

    def normalised(log_weights: Float64, axes: tuple[int, ...]) -> Float64:
        top = log_weights.max(axis=axes, keepdims=True, initial=-math.inf)
        weight = np.exp(log_weights - np.where(np.isfinite(top), top, 0.0))
        total = weight.sum(axis=axes, keepdims=True)
        return np.asarray(weight / np.where(total > 0.0, total, 1.0))

    counts = np.zeros((len(problem), 0)) if answer.log_beliefs is None else np.exp(answer.log_beliefs)
    return Direction(
        normalised(problem.log_leaf + answer.messages, (2,)), normalised(answer.log_edges, (2, 3)), counts
    )


Sums = Callable[
    [Float64], Float64
]  # sums of terms over all that one of them stands beside, in the place of each


def _sums_over(axes: tuple[int, ...]) -> Sums:
    return lambda terms: np.asarray(terms.sum(axis=axes, keepdims=True))


def sums_over_sets(offset: Ints, terms: Float64) -> Float64:
    if len(offset) < 2:
        return np.zeros_like(terms)
    return np.repeat(np.add.reduceat(terms, offset[:-1], axis=1), np.diff(offset), axis=1)


def _centred(move: Float64, probs: Float64, log_values: Float64, sums: Sums) -> Float64:
    alive = np.where(log_values == -math.inf, 0.0, move)
    return np.where(log_values == -math.inf, 0.0, alive - sums(probs * alive))


def centred_tables(move: Float64, probs: Float64, tables: Float64, offset: Ints) -> Float64:
    """A direction of the tables, (B, T), less its mean over every set; 0 at impossible counts."""
    return _centred(move, probs, tables, partial(sums_over_sets, offset))


def weighed(probs: Float64, change: Float64, sums: Sums) -> Float64:
    """D p from d log p up to a constant."""
    seen = np.where(probs > 0.0, change, 0.0)
    return np.asarray(probs * (seen - sums(probs * seen)))


_AGREEMENT = 1e-11  # between the marginals found here and those of inference
_WORTH_A_WINDOW = 256  # counts
_TAIL = 120.0  # nats: what the forest alone has beyond a window of counts is below e^-120
# What is promised of a derivative: a share of the direction times the standard deviation of the variable, or of itself.
_SHARE, _RELATIVE = 1e-10, 1e-9


def serves(problem: ForestProblem) -> bool:
    """Whether these methods apply: the compiled engine, two states and at most one set."""
    return native.present() and problem.n_states == 2 and len(problem.offset) <= 2


def forest_derivatives(
    problem: ForestProblem, answer: Answer, v: Float64, h: Float64
) -> tuple[Derivatives, Ints]:
    """Derivatives along v (R, B, D) and h (R, B, T), and the models that have none.

    `answer` is what inference found.
    """
    marginals, counts = np.zeros(v.shape), np.zeros(h.shape)
    left = np.arange(len(problem.log_leaf))
    odds = log_odds(problem.log_leaf + answer.messages)
    probs = np.exp(answer.log_beliefs)
    for choice in _tilts(problem, answer):
        failed = []
        part, _ = tilted(problem.take(left), choice[left])
        for i, b in enumerate(left.tolist()):
            window = _window(part, i)
            moving = np.where(np.isfinite(problem.log_leaf[b]).all(axis=1), v[:, b], 0.0)
            for r in range(len(v)):
                with np.errstate(all="ignore"):
                    arguments = (part, i, window, odds[b], probs[b], moving[r], h[r, b])
                    found = _one(*arguments, centred=True) or _one(*arguments, centred=False)
                if found is None:
                    failed.append(b)
                    break
                marginals[r, b], counts[r, b] = found
        left = np.array(failed, np.int64)
        if not len(left):
            break
    return Derivatives(marginals, counts), left


def _tilts(problem: ForestProblem, answer: Answer) -> Iterator[Float64]:
    """Tilts to try, best guess first: those of inference, and others that put the mean at the posterior's."""
    tilts: Float64 = answer.tilts
    if tilts.any() or not tilts.size:
        yield tilts
    if tilts.size:
        tilter = Tilter(problem)
        first = tilter.first()
        yield first
        yield tilter.again(answer, first, np.arange(len(first)))


class _Window(NamedTuple):
    """Counts ``low .. high`` that the forest alone has; ``log_tail`` (n + 1,) bounds log P(z = c), by moments."""

    low: int
    high: int
    log_tail: Float64


def _window(problem: ForestProblem, i: int) -> _Window:
    """Where the count of the (tilted) forest alone is found."""
    n = int(problem.offset[-1]) - 1 if len(problem.offset) > 1 else 0
    everything = _Window(0, n, np.full(n + 1, -math.inf))
    if n < _WORTH_A_WINDOW:
        return everything
    edges, rooting = problem.log_edge[i % len(problem.log_edge)][None], problem.structure.rooting

    def moments(tilts: Float64) -> tuple[Float64, Float64]:
        leaf = problem.log_leaf[i] + tilts[:, None, None] * (problem.score * problem.program.counted[:, None])
        weights, tops = scaled(leaf, (2,))
        beliefs, log_z, *_ = native.forest_means(rooting, weights, scaled(edges, (2, 3))[0])
        return log_z + tops.sum(axis=(1, 2)), np.asarray(beliefs)

    base, beliefs = moments(np.zeros(1))
    variance = float((beliefs[0, :, 0] * beliefs[0, :, 1]).sum())
    steps = math.sqrt(2.0 * _TAIL / max(variance, 1.0)) * np.array([0.1, 0.25, 0.5, 1.0, 2.0, 4.0])
    tilts = np.concatenate([steps, -steps])
    cumulants = moments(tilts)[0] - base
    if not np.isfinite(cumulants).all():
        return everything
    bounds = np.minimum(0.0, cumulants[:, None] - tilts[:, None] * np.arange(n + 1))
    above, below = bounds[: len(steps)].min(axis=0), bounds[len(steps) :].min(axis=0)
    high = int(np.argmax(above < -_TAIL)) if above[n] < -_TAIL else n
    low = n - int(np.argmax(below[::-1] < -_TAIL)) if below[0] < -_TAIL else 0
    return _Window(min(low, high), max(low, high), np.minimum(below, above))


def _one(
    problem: ForestProblem, i: int, window: _Window, odds: Float64, probs: Float64, v: Float64, h: Float64,
    *, centred: bool,
) -> tuple[Float64, Float64] | None:  # fmt: skip
    """Model i along one direction: d P(y = 1) and d P(count); None without a certificate.

    Moving all log-odds alike is moving the table by a multiple of the count: if `centred`, the mean of the direction,
    weighted by the variances, becomes such a move. What is left is relative to the posterior mean.
    """
    leaf, _ = scaled(problem.log_leaf[i], (1,))
    edges, _ = scaled(problem.log_edge[i % len(problem.log_edge)], (1, 2))
    log_table = problem.tables[i % len(problem.tables)] if len(h) else np.zeros(1)
    near, means = slice(window.low, window.high + 1), expit(odds)
    possible, push = log_table > -math.inf, np.zeros(len(log_table))
    table, top = scaled(log_table[near], (0,))
    spread = np.where(np.isfinite(odds), 0.5 / np.cosh(0.5 * np.clip(odds, -1400.0, 1400.0)), 0.0)
    scale, counted = np.abs(v).max(initial=0.0), problem.program.counted
    if len(h):
        counts, weight = np.arange(len(push)), counted * spread**2
        common = float(weight @ v / weight.sum()) if centred and weight.sum() > 0.0 else 0.0
        push[possible] = h[possible] - probs @ np.where(possible, h, 0.0)
        scale = max(scale, math.sqrt(probs @ push**2))
        push[possible] += common * (counts[possible] - probs @ counts)
        v = v - common * counted
    if not v.any() and not push.any():
        return np.zeros(len(v)), np.zeros(len(h))
    slope = np.stack([-means * v, expit(-odds) * v], axis=-1)
    period, place = len(table), np.arange(window.low, window.high + 1) % len(table)
    f, pushed = _transform(table, place), _transform(table * push[near], place)
    reach = np.abs(push).max(initial=0.0) + np.abs(slope).max(axis=1, initial=0.0).sum()
    arguments = (problem.structure.rooting, counted.astype(np.int8), leaf, edges, slope, period, f, pushed)
    # A variable that is all but decided moves by less than its variance times twice what the direction can be.
    still = 2.0 * spread * reach <= _SHARE * scale
    rounding, least = _rounding(len(v)), spread[~still].min(initial=1.0)
    for everything in (False, True):
        found, change, worst, doubt, law = native.forest_tangent(*arguments, everything)
        allowed = np.where(still, math.inf, np.maximum(_SHARE * scale * spread, _RELATIVE * np.abs(change)))
        # What underflow took is missing at every frequency, where |F| is at most twice that at 0.
        lost = 2.0 * period * worst[1] * worst[0] * reach
        with np.errstate(divide="ignore", over="ignore"):
            law_on_counts = np.fft.irfft(np.conj(law), period)[:, place]
            mass, moved = table * law_on_counts
            # Counts beyond the window are taken for others by the transform, and missing where they belong.
            beyond = np.delete(window.log_tail, np.r_[near])
            outside = np.exp(beyond).sum() + np.exp(beyond + np.delete(log_table, np.r_[near]) - top[0]).sum()
            lost += 4.0 * reach * outside * law[0, 0].real / mass.sum() if len(beyond) else 0.0
        if np.all(np.abs(found - means) <= _AGREEMENT):
            break
    else:
        return None
    if not (
        rounding * worst[0] <= _SHARE
        and np.all(rounding * doubt <= allowed)
        and lost <= _SHARE * scale * least
    ):
        return None
    change = np.where(still, 0.0, change)
    if not len(h):
        return change, np.zeros(0)
    if not rounding * np.abs(law[1]).sum() * 2.0 / (period * mass.sum()) <= _SHARE * scale:
        return None
    moved_counts = probs * push
    moved_counts[near] += moved / mass.sum()
    return change, moved_counts - probs * (moved_counts.sum() / probs.sum())


def _rounding(n: int) -> float:
    """Relative error of a product of a few numbers per vertex.

    Sixteen roundings each are modelled as independent, eight standard deviations allowed, with a bias of half a unit
    per vertex on top.
    """
    return UNIT_ROUNDOFF * (64.0 + 32.0 * math.sqrt(n) + 0.5 * n)


def _transform(table: Float64, place: Ints) -> NDArray[np.complex128]:
    """``sum_k f(k) e^(-iwk) / N`` at the frequencies of half the circle, those of the other half added.

    `place` says where on the circle of N counts each entry is.
    """
    n, on_circle = len(table), np.empty(len(table))
    on_circle[place] = table
    spectrum = np.asarray(np.fft.rfft(on_circle)) / n
    spectrum[1 : (n + 1) // 2] *= 2.0
    return np.ascontiguousarray(spectrum)
