"""Derivatives of the expectations of a pairwise forest with one count, from characteristic functions.

Under weights e^(iwy) the forest sums up to the characteristic function of the count, ``E e^(iwz)``, and its beliefs to
``E y e^(iwz)``, by ordinary belief propagation in complex numbers. The potential f enters by its transform, derivatives
ride along. A tilt e^(sy) puts the count where its posterior lies. The marginals that come out along the way are
compared with those of the certified inference: that certifies the frequencies that were left out, and the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints
from .. import native
from ..answer import Answer, Derivatives
from .arithmetic import UNIT_ROUNDOFF
from .problem import ForestProblem
from .tangent_array import forest_tangent
from .tilt import Tilter

Complex128 = NDArray[np.complex128]

_AGREEMENT = 1e-11  # between the marginals found here and those of inference
_ACCEPTED = 1e-10  # error of a derivative as a share of the largest


class _Tilted(NamedTuple):
    """One model in plain numbers of at most 1, under a tilt."""

    leaf: Float64  # (D, 2)
    edges: Float64  # (E, 2, 2)
    table: Float64  # (n + 1,)


def serves(problem: ForestProblem) -> bool:
    """Whether these methods apply: two states and at most one set."""
    return problem.n_states == 2 and len(problem.offset) <= 2


def forest_derivatives(
    problem: ForestProblem, answer: Answer, v: Float64, h: Float64
) -> tuple[Derivatives, Ints]:
    """Derivatives along v (R, B, D) and h (R, B, T), and the models that have none.

    `answer` is what inference found.
    """
    marginals, counts = np.zeros(v.shape), np.zeros(h.shape)
    left = np.arange(len(problem.log_leaf))
    means, probs = posterior_means(problem, answer), np.exp(answer.log_beliefs)
    for choice in _tilts(problem, answer):
        failed = []
        for b in left.tolist():
            model = _tilted(problem, b, float(choice[b].sum()))
            moving = np.where(np.isfinite(problem.log_leaf[b]).all(axis=1), v[:, b], 0.0)
            for r in range(len(v)):
                with np.errstate(all="ignore"):
                    found = _one(problem, model, means[b], probs[b], moving[r], h[r, b])
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


def posterior_means(problem: ForestProblem, answer: Answer) -> Float64:
    """P(y = 1), (B, D), from inference."""
    belief = problem.log_leaf + answer.messages
    with np.errstate(invalid="ignore", over="ignore"):
        odds = np.where(belief[..., 1] == belief[..., 0], 0.0, belief[..., 1] - belief[..., 0])
        return np.asarray(1.0 / (1.0 + np.exp(-odds)))


def _tilted(problem: ForestProblem, b: int, tilt: float) -> _Tilted:
    def plain(logs: Float64, axes: tuple[int, ...]) -> Float64:
        top = logs.max(axis=axes, keepdims=True, initial=-math.inf)
        return np.ascontiguousarray(np.exp(logs - np.where(np.isfinite(top), top, 0.0)))

    leaf = problem.log_leaf[b].copy()
    leaf[:, 1] += tilt * problem.program.counted
    edges = problem.log_edge[b % len(problem.log_edge)]
    table = problem.tables[b % len(problem.tables)]
    table = table - tilt * np.arange(len(table)) if len(table) else np.zeros(1)
    return _Tilted(plain(leaf, (1,)), plain(edges, (1, 2)), plain(table, (0,)))


def _one(
    problem: ForestProblem, model: _Tilted, means: Float64, probs: Float64, v: Float64, h: Float64
) -> tuple[Float64, Float64] | None:
    """One model, one direction, centred at its mean: d P(y = 1) and d P(count); None without a certificate."""
    possible = model.table > 0.0
    push = np.zeros(len(model.table))
    if len(h):
        push[possible] = h[possible] - probs @ np.where(possible, h, 0.0)
    slope = np.stack([-means * v, (1.0 - means) * v], axis=-1)
    period = len(model.table)
    f, pushed = _transform(model.table), _transform(model.table * push)
    reach = 1.0 + np.abs(push).max(initial=0.0) + np.abs(slope).max(axis=1, initial=0.0).sum()
    counted = problem.program.counted.astype(np.int8)
    order, parent, edge, flip = problem.structure.rooting
    arguments = (order, parent, edge, flip, counted, model.leaf, model.edges, slope, period, f, pushed)
    rounding = _rounding(len(v))
    for everything in (False, True):
        if native.present():
            found, change, worst, law = native.forest_tangent(*arguments, everything)
        else:
            found, change, worst, law = forest_tangent(*arguments)
        wrong = rounding * worst[:2]
        # What underflow took is missing at every frequency, where |F| is at most twice that at 0.
        lost = 2.0 * period * worst[2] * worst[0] * reach
        size = max(np.abs(change).max(initial=0.0), 1e-3 * np.abs(v).max(initial=0.0), 1e-300)
        if (
            np.all(np.abs(found - means) <= _AGREEMENT)
            and wrong[0] <= _ACCEPTED
            and wrong[1] <= _ACCEPTED * size
            and lost <= _AGREEMENT * size
        ):
            break
    else:
        return None
    if not len(h):
        return change, np.zeros(0)
    mass, moved = (model.table * np.fft.irfft(np.conj(x), period) for x in law)
    moved = moved + mass * push
    total = mass.sum()
    noise = rounding * np.abs(law).sum(axis=1) * 2.0 / (period * total)
    if not noise[1] + noise[0] * np.abs(push).max() <= _ACCEPTED * max(size, np.abs(moved).max() / total):
        return None
    return change, (moved - mass * (moved.sum() / total)) / total


def _rounding(n: int) -> float:
    """Relative error of a product of a few numbers per vertex.

    Sixteen roundings each are modelled as independent, eight standard deviations allowed, with a bias of half a unit
    per vertex on top.
    """
    return UNIT_ROUNDOFF * (64.0 + 32.0 * math.sqrt(n) + 0.5 * n)


def _transform(table: Float64) -> Complex128:
    """``sum_k f(k) e^(-iwk) / N`` at the frequencies of half the circle, those of the other half added."""
    n = len(table)
    spectrum = np.asarray(np.fft.rfft(table)) / n
    spectrum[1 : (n + 1) // 2] *= 2.0
    return np.ascontiguousarray(spectrum)
