"""Derivatives of the expectations of a pairwise forest with one count, from characteristic functions.

Under weights e^(iwy) the forest sums up to the characteristic function of the count, ``E e^(iwz)``, and its beliefs to
``E y e^(iwz)``, by ordinary belief propagation in complex numbers. The potential f enters by its transform, derivatives
ride along. A tilt e^(sy) puts the count where its posterior lies. The marginals that come out along the way are
compared with those of the certified inference: that certifies the frequencies that were left out, and the rounding.
In array code the general way (:mod:`.moving`) is as quick.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Float64, Ints
from .. import native
from ..answer import Answer, Derivatives
from ..problem import ForestProblem
from .arithmetic import UNIT_ROUNDOFF
from .certificate import log_odds
from .ladder import tilted
from .plain import scaled
from .tilt import Tilter

_AGREEMENT = 1e-11  # between the marginals found here and those of inference
_ACCEPTED = 1e-10  # error of a derivative as a share of the largest


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
    means = expit(log_odds(problem.log_leaf + answer.messages))
    probs = np.exp(answer.log_beliefs)
    for choice in _tilts(problem, answer):
        failed = []
        part, _ = tilted(problem.take(left), choice[left])
        for i, b in enumerate(left.tolist()):
            moving = np.where(np.isfinite(problem.log_leaf[b]).all(axis=1), v[:, b], 0.0)
            for r in range(len(v)):
                with np.errstate(all="ignore"):
                    found = _one(part, i, means[b], probs[b], moving[r], h[r, b])
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


def _one(
    problem: ForestProblem, i: int, means: Float64, probs: Float64, v: Float64, h: Float64
) -> tuple[Float64, Float64] | None:
    """Model i along one direction, centred at its mean: d P(y = 1) and d P(count); None without a certificate."""
    leaf, _ = scaled(problem.log_leaf[i], (1,))
    edges, _ = scaled(problem.log_edge[i % len(problem.log_edge)], (1, 2))
    table = scaled(problem.tables[i % len(problem.tables)], (0,))[0] if len(h) else np.ones(1)
    possible = table > 0.0
    push = np.zeros(len(table))
    if len(h):
        push[possible] = h[possible] - probs @ np.where(possible, h, 0.0)
    slope = np.stack([-means * v, (1.0 - means) * v], axis=-1)
    period = len(table)
    f, pushed = _transform(table), _transform(table * push)
    reach = 1.0 + np.abs(push).max(initial=0.0) + np.abs(slope).max(axis=1, initial=0.0).sum()
    counted = problem.program.counted.astype(np.int8)
    order, parent, edge, flip = problem.structure.rooting
    arguments = (order, parent, edge, flip, counted, leaf, edges, slope, period, f, pushed)
    rounding = _rounding(len(v))
    for everything in (False, True):
        found, change, worst, law = native.forest_tangent(*arguments, everything)
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
    mass, moved = (table * np.fft.irfft(np.conj(x), period) for x in law)
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


def _transform(table: Float64) -> NDArray[np.complex128]:
    """``sum_k f(k) e^(-iwk) / N`` at the frequencies of half the circle, those of the other half added."""
    n = len(table)
    spectrum = np.asarray(np.fft.rfft(table)) / n
    spectrum[1 : (n + 1) // 2] *= 2.0
    return np.ascontiguousarray(spectrum)
