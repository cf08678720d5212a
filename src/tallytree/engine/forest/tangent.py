"""Derivatives of the expectations of any forest with counts: both passes in numbers that carry their derivatives.

Compiled, these are plain numbers under the tilts of inference, with a certificate. In array code, where edges move, and
where plain numbers do not reach, they are logarithms:

A number is ``log w + i d``, d the derivative of ``log w`` along a direction. Products add both parts; a sum over
alternatives of weights w_j has ``d = sum_j p_j d_j``, ``p_j = w_j / sum w``: a mean, in which nothing is amplified. The
direction is centred at the posterior, so that d is of the size of its fluctuations. Scales are constants. Cost: one
inference in logarithms for each direction, whatever the number of sets, states and edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ...arrays import Bools, Float64, Ints
from .. import native
from ..answer import Answer
from ..arithmetic import UNIT_ROUNDOFF, Carried, Direct, Fourier
from ..ladder import TANGENT, announce
from ..log_sums import anchor
from ..problem import ForestProblem
from .certificate import table_tops
from .ladder import infer, noisy_bound, pairs_of_counts, transform_error
from .parts import Windows, find_windows, without_far_states
from .sum_product import ForestPass
from .tilts import Tilter, tilted, vertex_tilt
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


def directional_derivatives(
    problem: ForestProblem, answer: Answer, direction: Direction, size: Float64 | float = 0.0
) -> Direction:
    """Derivatives of P(state), P(pair of states) and P(count) along a direction; `answer` is what inference found.

    `size` (B,) is the largest entry of the direction that was asked for, where what has no effect was taken out of it.
    Entries of the direction at weights of -inf have no effect; all others must be finite.
    """
    means = _expectations(problem, answer)
    sums: tuple[Sums, ...] = (_sums_over((2,)), _sums_over((2, 3)), partial(sums_over_sets, problem.offset))
    tables = problem.log_leaf, problem.log_edge, problem.tables
    centred = Direction(*map(_centred, direction, means, tables, sums))
    found, left = Direction(*(np.zeros(m.shape) for m in means)), np.arange(len(problem))
    if native.present() and not direction.edge.any():
        left = _in_plain_numbers(problem, answer, means, direction, centred, size, found)
    if len(left):
        part, own = problem.take(left), Direction(*(move[left] for move in centred))
        announce(pairs_of_counts(part), TANGENT, "A derivative")
        for to, probs, change, over in zip(found, means, log_derivatives(part, own), sums):
            to[left] = weighed(probs[left], change, over)
    return found


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


def without_common(
    top: Ints, offset: Ints, free: Bools, spread: Float64, v: Float64, h: Float64
) -> tuple[Float64, Float64]:
    """The same direction, (B, D) and (B, T), without what is common to the variables of an outermost set, -1 for none.

    Adding a to v there is adding ``a c`` to the table of the set: what cancels is taken out before it is summed. Fixed
    variables, which are not `free`, move the count by a constant, but not with the others.
    """
    n_sets, free = len(offset) - 1, free & (top >= 0)
    if not n_sets or not len(v):
        return v, h
    spread = np.where(free, spread, 0.0)

    def sums(values: Float64) -> Float64:
        return np.stack([np.bincount(np.maximum(top, 0), row, n_sets) for row in values])

    weight = sums(spread)
    shift = sums(spread * v) / np.where(weight > 0.0, weight, 1.0)
    owner = np.repeat(np.arange(n_sets), np.diff(offset))
    moved = h + shift[:, owner] * (np.arange(offset[-1]) - offset[owner])
    return np.where(free, v - shift[:, top], v), moved


def weighed(probs: Float64, change: Float64, sums: Sums) -> Float64:
    """D p from d log p up to a constant."""
    seen = np.where(probs > 0.0, change, 0.0)
    return np.asarray(probs * (seen - sums(probs * seen)))


# What is promised of a derivative: a share of the direction times the standard deviation of the variable.
_SHARE = 1e-10
_VALUES = 1e-3  # relative error of values that leaves bounds on their derivatives what they are


def _in_plain_numbers(
    problem: ForestProblem,
    answer: Answer,
    means: Direction,
    direction: Direction,
    centred: Direction,
    size: Float64 | float,
    found: Direction,
) -> Ints:
    """Write the derivatives that compiled passes in plain numbers are certain of; return the models without."""

    def improve(rows: Ints, part: ForestProblem, tilts: Float64, kind: type[Direct], lost: float) -> Ints:
        shifted, known, lost_states = _tilted_without_far_states(part, answer.take(rows), tilts)
        own, along, move = (Direction(*(x[rows] for x in given)) for given in (means, direction, centred))
        least = np.broadcast_to(size, len(problem))[rows]
        moved, certain = _one(shifted, known, own, along, move, kind, lost + lost_states, least)
        for to, change in zip(found, moved):
            to[rows] = change
        return rows[~certain]

    left = np.arange(len(problem))
    for tilts in _tilts(problem, answer):
        for kind in (Fourier, Direct):
            left = improve(left, problem.take(left), tilts[left], kind, 0.0)
            if not len(left):
                return left
    if len(problem.offset) != 2:
        return left
    failed = []
    for b in left:
        row = np.array([b])
        own = answer.take(row)
        windows = find_windows(Tilter(problem.take(row)), own.tilts)
        if windows is not None:
            heaviest = windows.heaviest(own)
            part = replace(problem.take(row), tables=heaviest.tables[0][None])
            lost = heaviest.share_outside(own)
            for kind in (Fourier, Direct):
                row = improve(row, part, heaviest.tilts[0], kind, lost) if len(row) else row
            if len(row) and len(windows.tables) > 1:
                one = Direction(*(x[row] for x in centred)), np.broadcast_to(size, len(problem))[row]
                mixture, certain = _mixed(problem.take(row), windows, own, *one)
                for to, change in zip(found, mixture):
                    to[row] = change
                row = row[~certain]
        failed.extend(row.tolist())
    return np.array(failed, int)


def _mixed(
    problem: ForestProblem, windows: Windows, answer: Answer, direction: Direction, size: Float64
) -> tuple[Direction, NDArray[np.bool_]]:
    """Derivatives of a mixture over windows for one model, and whether they are certain.

    ``d sum_j w_j P_j = sum_j w_j (d P_j + P_j (m_j - m))``, m_j the mean of the direction in window j.
    """
    parts = problem.take(np.zeros(len(windows.tables), int))
    parts = replace(parts, tables=np.stack(windows.tables), origin=None)
    known = infer(parts, start=np.concatenate(windows.tilts))
    means = _expectations(parts, known)
    sums: tuple[Sums, ...] = (_sums_over((2,)), _sums_over((2, 3)), partial(sums_over_sets, problem.offset))
    alive = [
        np.where(x == -math.inf, 0.0, move)
        for x, move in zip((parts.log_leaf, parts.log_edge, parts.tables), direction)
    ]
    along = Direction(*(np.broadcast_to(x, m.shape) for x, m in zip(alive, means)))
    centred = Direction(*map(_centred, along, means, (parts.log_leaf, parts.log_edge, parts.tables), sums))
    share = softmax(known.log_mean)
    mean = sum((m * x).reshape(len(share), -1).sum(axis=1) for m, x in zip(means, along))
    spread = float(np.sqrt(share @ (mean - share @ mean) ** 2))
    certain, moved = np.zeros(len(share), bool), Direction(*(np.zeros(m.shape) for m in means))
    for kind in (Fourier, Direct):
        shifted, below, lost = _tilted_without_far_states(parts, known, np.concatenate(windows.tilts))
        found, sure = _one(
            shifted, below, means, along, centred, kind, lost, np.broadcast_to(size, len(share))
        )
        for to, new in zip(moved, found):
            to[sure & ~certain] = new[sure & ~certain]
        certain |= sure
        if certain.all():
            break
    # What errors of the windows' means and shares do, and what is outside of all windows.
    doubt = sum(
        (m * (1.0 - m) * np.abs(x)).reshape(len(share), -1).sum(axis=1) for m, x in zip(means, centred)
    )
    error = 2.0 * float((known.bound * doubt).max())
    error += spread * float((known.bound + 8.0 * UNIT_ROUNDOFF * np.abs(known.log_mean)).max())
    reach = np.abs(direction.tables).max(initial=0.0) + np.abs(direction.leaf).max(axis=2).sum()
    error += 4.0 * windows.share_outside(answer) * reach
    change = Direction(
        *(
            np.tensordot(share, d + m * (mean - share @ mean).reshape(-1, *[1] * (m.ndim - 1)), 1)[None]
            for d, m in zip(moved, means)
        )
    )
    likeliest = np.tensordot(share, means.leaf, 1).argmax(axis=1)[None, :, None]
    np.put_along_axis(change.leaf, likeliest, 0.0, 2)  # what is rare keeps its digits
    np.put_along_axis(change.leaf, likeliest, -change.leaf.sum(axis=2, keepdims=True), 2)
    return change, np.array([bool(certain.all()) and error <= _SHARE * float(size[0])])


def _tilted_without_far_states(
    problem: ForestProblem, answer: Answer, tilts: Float64
) -> tuple[ForestProblem, Answer, Float64 | float]:
    """The models under tilts without far states, their answers, and the largest share that these may have, (B,)."""
    full, constant = tilted(problem, tilts)
    moved = answer.messages - vertex_tilt(problem, tilts)[:, :, None] * problem.score
    known = replace(answer, log_mean=answer.log_mean - constant, given_messages=moved)
    if not problem.program.set_top.all():
        return full, known, 0.0
    shifted, dropped = without_far_states(full)
    if shifted is full:
        return full, known, 0.0
    with np.errstate(all="ignore"):
        return shifted, known, transform_error(shifted, replace(known, noise=dropped))


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


def _one(
    shifted: ForestProblem,
    known: Answer,
    means: Direction,
    direction: Direction,
    centred: Direction,
    kind: type[Direct],
    lost: Float64 | float,
    size: Float64,
) -> tuple[Direction, NDArray[np.bool_]]:
    """Derivatives, and for which models they are certain.

    `shifted` has the tilts, as does its answer `known`, and lacks what may have a share `lost` of any state. `size`
    (B,) is that of the direction.
    """
    edge_top, tops = anchor(shifted.log_edge, (2, 3)), table_tops(shifted)
    with np.errstate(all="ignore"):
        d_message, d_pairs, d_counts, error, vanished, noise = native.cluster_tangent(
            shifted, edge_top, tops, kind.keep, kind is Fourier, centred.leaf, centred.tables
        )
        rise, probs = centred.leaf + d_message, means.leaf
        # In this order what is rare keeps its digits.
        change = probs * ((rise[..., :, None] - rise[..., None, :]) * probs[..., None, :]).sum(axis=-1)
        # A state that is all but decided moves by less than its variance times twice what the direction can be.
        spread = np.sqrt(probs * (probs @ (1.0 - np.eye(probs.shape[2]))))
        by_set = partial(sums_over_sets, shifted.offset)
        scale = np.maximum(
            size,
            np.maximum(
                np.abs(np.where(probs > 0.0, direction.leaf, 0.0)).max(axis=(1, 2), initial=0.0),
                np.sqrt(by_set(means.tables * centred.tables**2).max(axis=1, initial=0.0)),
            ),
        )
        reach = np.abs(centred.tables).max(axis=1, initial=0.0) + np.abs(centred.leaf).max(axis=2).sum(axis=1)
        still = 2.0 * spread * reach[:, None, None] <= _SHARE * scale[:, None, None]
        least = np.where(still, 1.0, spread).min(axis=(1, 2), initial=1.0)
        unmoved, error = reach == 0.0, error + 4.0 * lost * reach
        if kind is Fourier:  # errors are compared with values, which noise must not be
            values = noisy_bound(shifted, replace(known, noise=noise, bound=np.zeros(len(noise))))
            error = np.where(values <= _VALUES, error, math.inf)
        certain = unmoved | ((error <= _SHARE * scale) & (vanished <= _SHARE * scale * least))
    change, d_pairs, d_counts = (
        np.where(unmoved.reshape(-1, *[1] * (x.ndim - 1)), 0.0, x) for x in (change, d_pairs, d_counts)
    )
    return Direction(np.where(still, 0.0, change), d_pairs, d_counts), certain
