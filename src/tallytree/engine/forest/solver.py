"""The verbs for problems with edges of two states."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from scipy.special import expit

from ...arrays import Float64, Ints, States
from ...memo import answer, once
from .. import thresholds
from ..answer import Answer, Derivatives
from ..arithmetic import UNIT_ROUNDOFF
from ..log_sums import accurate_sum
from ..problem import ForestProblem
from ..solver import Solver
from . import maxima, walk
from .certificate import largest_entries, log_odds
from .entropy import entropy
from .ladder import exact_log_norm, infer, relative_counts
from .tangent import Direction, directional_derivatives, without_common

_ROOM = 1 << 18  # entries of log-odds that go into one batched inference of conditional models


class ForestSolver(Solver):
    """A batch of binary models with pairwise tables on a forest."""

    can: ClassVar[frozenset[str]] = frozenset({"edges"})

    def __init__(self, problem: ForestProblem) -> None:
        self.problem = problem

    @answer
    def sums(self) -> Answer:
        return infer(self.problem)

    def error_bound(self) -> Float64:
        return np.asarray(self.sums.bound)

    def log_norm(self, constants: Float64 | float = 0.0) -> Float64:
        """Log Z and the `constants` (B, m) that belong to it, from exact exponents where large numbers cancel."""
        problem = self.problem
        more = np.broadcast_to(
            constants, (len(problem), np.shape(constants)[-1] if np.ndim(constants) else 1)
        )
        total = self.sums.log_mean + more.sum(axis=1)
        size = sum(np.abs(x).sum(axis=1) for x in (*largest_entries(problem), more))
        lost = 8.0 * UNIT_ROUNDOFF * size > thresholds.LOG_NORM * (1.0 + np.abs(total))
        rows = np.flatnonzero(lost & np.isfinite(total))
        if len(rows):
            found = exact_log_norm(problem.take(rows), self.sums.tilts[rows], more[rows])
            total[rows] = np.where(np.isnan(found), total[rows], found)
        return np.asarray(total)

    @answer
    def _at_best(self) -> tuple[Float64, Float64]:
        """Log-weights of the parts of a best configuration (B, D + E + S), and log Z relative to it, (B,)."""
        states = maxima.best(self.problem)[0]
        at = maxima.log_weights(self.problem, states)
        below = maxima.relative(self.problem, at)
        # What cancels in the weights cancels exactly in exponents.
        found = exact_log_norm(below, self.sums.tilts, np.zeros((len(below), 1)))
        if np.isnan(found).any():
            found = np.where(np.isnan(found), infer(below, self.sums).log_mean, found)
        return np.concatenate(at, axis=1), np.asarray(found)

    def log_prob(self, states: Ints) -> tuple[Float64, Float64]:
        """From weights relative to those of a best configuration."""
        anchor, log_norm = self._at_best
        total = accurate_sum(np.concatenate(maxima.log_weights(self.problem, states), axis=-1) - anchor)
        return total - log_norm, np.abs(total) + np.abs(log_norm)

    def odds(self) -> Float64:
        return once(self, "odds", lambda: log_odds(self.problem.log_leaf + self.sums.messages))

    def cavities(self) -> Float64:
        # Right for infinite log-odds too: no message holds its receiver's own.
        return log_odds(self.sums.messages)

    def edge_log_probs(self) -> Float64:
        """Log P(y_i, y_j) of every edge, (B, E, 2, 2)."""
        return np.asarray(self.sums.log_edges)

    def all_counts(self) -> Float64:
        """Log-probabilities of the counts of all sets, (B, T)."""
        return once(self, "counts", lambda: relative_counts(self.problem, self.sums))

    def counts(self, set_id: int) -> Float64:
        offset = self.problem.offset
        return self.all_counts()[:, offset[set_id] : offset[set_id + 1]]

    def entropy(self) -> Float64:
        counts = self.all_counts() if len(self.problem.offset) > 1 else np.zeros((len(self.problem), 0))
        return entropy(self.problem, self.sums, counts)

    def draw(self, count: int, rng: np.random.Generator) -> States:
        return walk.draw(self.problem, self.sums, count, rng).astype(np.uint8)

    def draw_active(self, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        dense = self.draw(count, rng)
        rows = dense.reshape(-1, dense.shape[-1])
        starts = np.concatenate([[0], np.cumsum(rows.sum(-1, dtype=np.int64))])
        return np.nonzero(rows)[1].astype(np.int64), starts.astype(np.int64)

    def best(self) -> tuple[States, Float64]:
        states, values = maxima.best(self.problem)
        return states.astype(np.uint8), values

    def max_marginals(self) -> Float64:
        return once(self, "max_marginals", lambda: maxima.max_beliefs(self.problem))

    def max_counts(self, set_id: int) -> Float64:
        offset = self.problem.offset
        found = once(self, "max_counts", lambda: maxima.max_counts(self.problem))
        return np.asarray(found[:, offset[set_id] : offset[set_id + 1]])

    def joint(self, rows: Ints) -> Float64:
        """P(y_i = 1) times the marginals given y_i = 1."""
        batch, n = self.problem.log_leaf.shape[:2]
        odds = self.odds()
        out = np.zeros((batch, len(rows), n))
        room = max(1, _ROOM // max(1, n))
        model, place = np.nonzero(odds[:, rows] > -math.inf)
        for start in range(0, len(model), room):
            b, at = model[start : start + room], place[start : start + room]
            given = self.problem.given(b, rows[at], 1)
            belief = log_odds(given.log_leaf + infer(given).messages)
            out[b, at] = expit(odds[b, rows[at]])[:, None] * expit(belief)
        return out

    def covariance(self, rows: Ints) -> Float64:
        means = expit(self.odds())
        return np.asarray(self.joint(rows) - means[:, rows, None] * means[:, None, :])

    def expected_counts(self) -> Float64:
        return np.exp(self.all_counts()) if len(self.problem.offset) > 1 else np.zeros((len(self.problem), 0))

    def tangent(self, v: Float64, h: Float64 | None, *, counts: bool) -> Derivatives:
        """In numbers that carry derivatives: plain ones where these are certain, otherwise logarithms."""
        problem, moved = self.problem, np.empty(v.shape)
        pushed = np.zeros((len(v), len(problem), int(problem.offset[-1]))) if h is None else h
        moved_counts, still = np.empty(pushed.shape), np.zeros((len(problem), *problem.log_edge.shape[1:]))
        free, odds = np.asarray(np.isfinite(problem.log_leaf).all(axis=2)), self.odds()
        sets = problem.top_set, problem.offset, free, expit(odds) * expit(-odds)
        for r in range(len(v)):
            alone, push = without_common(*sets, v[r], pushed[r])
            leaf = np.stack([np.zeros(alone.shape), alone], axis=-1)
            size = np.abs(np.where(free, v[r], 0.0)).max(axis=1, initial=0.0)
            found = directional_derivatives(problem, self.sums, Direction(leaf, still, push), size)
            moved[r], moved_counts[r] = found.leaf[..., 1], found.tables
        return Derivatives(moved, moved_counts if counts else None)

    def moved(self, direction: Direction) -> Direction:
        """Derivatives of P(state), P(pair of states) and P(count) along a direction in which edges may move."""
        return directional_derivatives(self.problem, self.sums, direction)
