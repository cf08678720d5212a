"""Parts of a model that can be left out or solved apart, with bounds on what that does to any state of any vertex.

States: one whose weight is e^-gap of another's, edges included, has at most that share of the free forest given all
other vertices. What such states have together is compared with other states like noise.

Counts: under any tilt s the configurations with count c have weight e^(K(s) - s c) at most, K the logarithm of the sum
over the tilted free forest, and those with a vertex in a state that state's share of it (Chernoff). Where one tilt does
not serve a whole table, as when it allows two counts far apart, it is cut into windows that one tilt each does serve.
The model is the mixture of those with a window for a table; what these bounds show to be negligible is left out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from ...arrays import Float64
from ..answer import Answer
from ..arithmetic import ARITHMETICS, UNIT_ROUNDOFF, Wide
from ..log_sums import anchor, log_sum
from ..problem import ForestProblem
from .sum_product import propagate
from .tilts import Tilter

FAR = 60.0  # nats: what states below this share add up to is less than the noise of transforms
_STEEP = 5.0  # nats that a tilted table may rise above its likeliest count; noise rises by as much
_UNLIKELY = 60.0  # nats below the likeliest window: others are not solved where the bound allows that
_FAR_OFF = 20.0  # tilts beyond which the forest as it is says more of other counts
_MOST = 10  # tilts that are tried
_NEAR = 3.0  # standard deviations from a mean up to which a law is taken for Gaussian


def state_weights(problem: ForestProblem, found: Answer) -> Float64:
    """Logarithms of the weight of all configurations with a vertex in a state but for its own weight, (B, D, K)."""
    own = log_sum(problem.log_leaf + found.messages, keepdims=True)
    return np.asarray(found.messages - own + found.log_mean[:, None, None])


def largest_gap(problem: ForestProblem) -> Float64:
    """The largest difference of two possible states' weights, (B,)."""
    with np.errstate(invalid="ignore"):
        below = anchor(problem.log_leaf, 2) - problem.log_leaf
    return np.asarray(np.where(np.isfinite(below), below, 0.0).max(axis=(1, 2), initial=0.0))


def without_far_states(problem: ForestProblem) -> tuple[ForestProblem, Float64 | float]:
    """The models without states that are improbable whatever their neighbours do, and a bound on what these have, (B,).

    That is a share of any state of the free forest.
    """
    leaf, edge = problem.log_leaf, problem.log_edge
    below = anchor(leaf, 2) - leaf
    if not ((below > FAR) & (below < math.inf)).any():
        return problem, 0.0
    swayed = np.zeros((len(edge), leaf.shape[1]))  # by neighbours, at most
    with np.errstate(invalid="ignore"):
        for side, axis in ((0, 2), (1, 3)):
            most = (edge.max(axis=axis) - edge.min(axis=axis)).max(axis=2, initial=0.0)
            most = np.where(np.isnan(most), math.inf, most)
            vertex = problem.structure.pairs[:, side]
            swayed += [np.bincount(vertex, row, leaf.shape[1]) for row in most]
        gap = below - swayed[:, :, None]
        far = gap > FAR
    dropped = np.where(far, np.exp(-np.where(far, gap, 0.0)), 0.0).sum(axis=(1, 2))
    return replace(problem, log_leaf=np.where(far, -math.inf, leaf)), dropped


class Windows(NamedTuple):
    """Windows of the table of one model with one set, and free forests under tilts that bound its counts.

    Attributes
    ----------
    tables : list of (T,)
        The table, -inf outside each window; the likeliest window first.
    tilts : list of (1, 1)
        That which serves each window.
    forests : list of (tilt (1, 1), Answer)
    """

    tilter: Tilter
    tables: list[Float64]
    tilts: list[Float64]
    forests: list[tuple[Float64, Answer]]

    def heaviest(self, answer: Answer) -> Windows:
        """The window with most of the probability alone."""
        heard = [log_sum(np.where(own > -math.inf, answer.log_beliefs[0], -math.inf)) for own in self.tables]
        best = int(np.argmax(heard))
        return self._replace(tables=self.tables[best : best + 1], tilts=self.tilts[best : best + 1])

    def share_outside(self, answer: Answer) -> float:
        """The largest share that counts outside the windows may have of any state's weight in `answer`."""
        table, z = self.tilter.problem.tables[0], np.arange(self.tilter.problem.tables.shape[1])
        outside = (table > -math.inf) & (np.maximum.reduce(self.tables) == -math.inf)
        if not outside.any():
            return 0.0
        best = np.stack([free.log_mean[0] - s[0] * z for s, free in self.forests]).argmin(axis=0)
        outer = np.full(self.tilter.problem.log_leaf.shape, -math.inf)
        for k, (s, free) in enumerate(self.forests):
            own = outside & (best == k)
            if own.any():
                moved = state_weights(self.tilter.alone(s), free) + self.tilter.shift(s)
                outer = np.logaddexp(outer, moved + log_sum(table[own] - s[0] * z[own]))
        with np.errstate(invalid="ignore"):
            share = np.where(
                outer == -math.inf, -math.inf, outer - state_weights(self.tilter.problem, answer)
            )
        return float(np.exp(np.minimum(np.nan_to_num(share, nan=math.inf, posinf=math.inf).max(), 700.0)))


def find_windows(tilter: Tilter, tilt: Float64) -> Windows | None:
    """Cut the table of one model with one set, starting at a `tilt` (1, 1); None where that takes too many tilts."""
    table, z = tilter.problem.tables[0], np.arange(tilter.problem.tables.shape[1])
    size, left = len(z) - 1.0, table > -math.inf
    most = bound = np.where(left, math.inf, -math.inf)
    means: list[tuple[float, float]] = []
    found, heights = Windows(tilter, [], [], []), [-math.inf]
    for _ in range(_MOST):
        free = propagate(without_far_states(tilter.alone(tilt))[0])
        if free is None or not np.isfinite(free.log_mean).all():
            return None
        found.forests.append((tilt, free))
        mean, variance = (float(x[0, 0]) for x in tilter.moments_at(tilt))
        sd = math.sqrt(variance)
        means.append((mean, sd))
        # A law falls at least as a Gaussian does near its mean, and then not more slowly (its logarithm is concave).
        away = np.abs(z - mean) / max(sd, 0.3)
        fall = np.where(away < _NEAR, 0.5 * away**2, _NEAR * (away - 0.5 * _NEAR))
        line = table + (float(free.log_mean[0]) - float(tilt[0, 0]) * z)
        most, bound = np.minimum(most, line - fall), np.minimum(bound, line)
        while True:
            rest = np.where(left, most, -math.inf)
            top = int(rest.argmax())
            if rest[top] <= max(heights) - _UNLIKELY:  # for all that is known; the bound is to say so, too
                rest = np.where(left, bound, -math.inf)
                top = int(rest.argmax())
                if rest[top] <= max(heights) - _UNLIKELY:
                    return found
                break
            close = [
                k
                for k, (m, d) in enumerate(means)
                if abs(min(max(top, 0.02), size - 0.02) - m) <= 0.6 * d + 0.6
            ]
            if not close:
                break
            s = found.forests[close[0]][0]
            steep = np.flatnonzero(~left | (table - float(s[0, 0]) * (z - top) > table[top] + _STEEP))
            place = int(np.searchsorted(steep, top))
            window = slice(
                steep[place - 1] + 1 if place else 0, steep[place] if place < len(steep) else len(z)
            )
            own = np.full(len(z), -math.inf)
            own[window], left[window] = table[window], False
            found.tables.append(own)
            found.tilts.append(s)
            heights.append(float(rest[top]))
        if len(means) == 1 and abs(tilt[0, 0]) > _FAR_OFF:
            tilt = np.zeros((1, 1))  # bounds most counts that are far from here
            continue
        tilt = tilter.towards(np.clip([[float(top)]], 0.02, size - 0.02), tilt)
        if any(abs(tilt - known).max() <= 1e-3 * (1.0 + abs(known).max()) for known, _ in found.forests):
            return None  # a mean that no tilt brings there, as that of a hub's neighbours
    return None


def mixed(problem: ForestProblem, parts: Answer) -> Answer:
    """The answer for one model from the `parts` with its windows."""
    order = np.argsort(-parts.log_mean)
    parts = parts.take(order[: max(1, np.count_nonzero(parts.log_mean > -math.inf))])
    log_z = parts.log_mean
    if log_z[0] == -math.inf:
        return parts
    total = logsumexp(log_z)
    share = (log_z - total)[:, None]
    own = log_sum(problem.log_leaf + parts.messages, keepdims=True)
    size = np.abs(np.where(np.isfinite(own), own, 0.0)).max(axis=(1, 2), initial=0.0) + np.abs(log_z)
    error = 2.0 * parts.bound + 4.0 * UNIT_ROUNDOFF * size
    with np.errstate(invalid="ignore"):
        weights = parts.messages - own + (log_z - log_z[0])[:, None, None]
        # Relative to the first window: where the others have no share, its errors are all that there is.
        more = np.where(weights == weights[0], 0.0, weights - weights[0])
        gain = logsumexp(more, axis=0, keepdims=True)
        others = np.exp(np.nan_to_num(more - gain, nan=math.inf)).max(axis=(1, 2), initial=0.0)
        alone = logsumexp(weights, axis=0, keepdims=True) + own[:1]  # what the first window excludes
        messages = np.where(weights[:1] == -math.inf, alone, parts.messages[:1] + gain)
    bound = parts.bound[0] + 2.0 * float(others[1:] @ (error[1:] + error[0])) + 8.0 * UNIT_ROUNDOFF
    return Answer(
        np.array([total]),
        messages,
        logsumexp(parts.log_beliefs + share, axis=0, keepdims=True),
        np.array([bound]),
        log_edges=logsumexp(parts.log_edges + share[:, :, None, None], axis=0, keepdims=True),
        # Counts that are left out make it an answer for which all passes that go on from it need exponents.
        vanished=np.ones(1),
        tilts=parts.tilts[:1],
        arithmetic=np.array([ARITHMETICS.index(Wide)]),
    )
