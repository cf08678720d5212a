"""Tilts for forests: where the posterior mean of every top-level count lies.

Multiplying the weight of every state by e^(s score) and the table by e^(-s z) changes nothing but rounding. The
convolutions are accurate around the mean of the count under the forest alone, so s is chosen to put that mean at the
posterior mean. Means under the forest alone come from ordinary belief propagation.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from scipy.special import softmax

from ...arrays import Float64, Ints
from ..answer import Answer
from ..problem import ForestProblem
from ..tilt import tilt_towards
from . import plain
from .arithmetic import Direct
from .passes import both_passes

_STEPS = 12


class Tilter:
    """Tilts for a batch of models."""

    def __init__(self, problem: ForestProblem) -> None:
        self.problem = problem
        self.tops = np.flatnonzero(problem.program.set_top)
        self.size = np.diff(problem.offset)[self.tops] - 1

    def _moments(self, rows: Ints, tilts: Float64) -> tuple[Float64, Float64]:
        """Mean and a variance of every top-level count (row, top) under the tilted forest."""
        weight, score = self._marginals(rows, tilts), self.problem.score
        weight = np.where(np.isfinite(weight), weight, 0.0)  # a tilt may be poor, the certificate tells
        mean = (weight * score).sum(2)
        variance = (weight * score**2).sum(2) - mean**2
        out = np.zeros((2, len(rows), len(self.tops)))
        for t in range(len(self.tops)):
            inside = self._place == t
            out[:, :, t] = mean[:, inside].sum(1), variance[:, inside].sum(1)
        return np.nan_to_num(out[0]), np.maximum(np.nan_to_num(out[1]), 1e-12)

    def _marginals(self, rows: Ints, tilts: Float64) -> Float64:
        """Marginals (row, D, K) of the forest alone under tilts (row, top)."""
        problem, top = self.problem, self._place
        log_edge = problem.log_edge if len(problem.log_edge) == 1 else problem.log_edge[rows]
        shift = np.where(top >= 0, tilts[:, top], 0.0)
        leaf = problem.log_leaf[rows] + shift[:, :, None] * problem.score
        quick = plain.means(problem.structure.rooting, leaf, log_edge)
        if quick is not None:
            return quick
        with np.errstate(all="ignore"):
            found = both_passes(replace(problem.alone(), log_leaf=leaf, log_edge=log_edge), Direct)
            return np.asarray(softmax(leaf + found.messages, axis=2))

    @cached_property
    def _place(self) -> Ints:
        """Position among the top-level sets of every vertex's own, or -1."""
        place = np.full(len(self.problem.program.set_node) + 1, -1, np.int64)
        place[self.tops] = np.arange(len(self.tops))
        return place[self.problem.top_set]

    def _spread(self, tilts: Float64) -> Float64:
        out = np.zeros((len(tilts), len(self.problem.program.set_node)))
        out[:, self.tops] = tilts
        return out

    def first(self) -> Float64:
        """Tilts from the tables and a Gaussian law of the counts, (B, n_sets)."""
        rows = np.arange(len(self.problem.log_leaf))
        return self._spread(self._search(rows, None))

    def again(self, found: Answer, tilts: Float64, rows: Ints) -> Float64:
        """Tilts at the posterior means that an uncertain answer reports."""
        wanted = np.zeros((len(rows), len(self.tops)))
        for t, s in enumerate(self.tops.tolist()):
            cells = found.log_beliefs[rows, self.problem.offset[s] : self.problem.offset[s + 1]]
            cells = np.where(np.isnan(cells), -np.inf, cells)
            with np.errstate(all="ignore"):  # an uncertain answer may be any number
                probs = np.exp(cells - cells.max(axis=1, keepdims=True))
                mean = (probs * np.arange(probs.shape[1])).sum(1) / probs.sum(1)
            wanted[:, t] = np.where(np.isfinite(mean), mean, 0.5 * self.size[t])
        return self._spread(self._search(rows, wanted, tilts[rows][:, self.tops]))

    def _search(self, rows: Ints, wanted: Float64 | None, start: Float64 | None = None) -> Float64:
        """Newton steps in s; without a wanted mean, towards the mode of table times a local Gaussian."""

        def target(tilts: Float64, mean: Float64, variance: Float64) -> Float64:
            aim = wanted if wanted is not None else self._modes(rows, tilts, mean, variance)
            return np.clip(aim, 0.02, self.size - 0.02)

        begin = np.zeros((len(rows), len(self.tops))) if start is None else start
        moments = partial(self._moments, rows)
        return tilt_towards(moments, target, begin, near=0.5, slack=0.5, steps=_STEPS, coupled=True)

    def _modes(self, rows: Ints, tilts: Float64, mean: Float64, variance: Float64) -> Float64:
        out = np.empty_like(mean)
        problem = self.problem
        for t, s in enumerate(self.tops.tolist()):
            table = problem.tables[:, problem.offset[s] : problem.offset[s + 1]]
            table = table if len(table) == 1 else table[rows]
            z = np.arange(table.shape[1])
            score = (
                table - tilts[:, t : t + 1] * z - 0.5 * (z - mean[:, t : t + 1]) ** 2 / variance[:, t : t + 1]
            )
            out[:, t] = score.argmax(1)
        return out
