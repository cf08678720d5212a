"""Tilts for forests: where the posterior mean of every top-level count lies.

Multiplying the weight of every state by e^(s score) and the table by e^(-s z) changes nothing but rounding. The
convolutions are accurate around the mean of the count under the forest alone, so s is chosen to put that mean at the
posterior mean. Means under the forest alone come from ordinary belief propagation.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

from ...arrays import Float64, Ints
from ...memo import cached
from .. import native
from ..answer import Answer
from ..arithmetic import Direct
from ..problem import ForestProblem
from ..tilt import Block, summarise, tilt_towards
from .sum_product import both_passes, scaled

_STEPS = 40
_JOINED = 12  # steps with edges: hubs may have a mean that jumps, and then no tilt serves transforms
_ENDS = 64  # log-odds at either end


class Tilter:
    """Tilts (B, n_sets) for a batch of models; those of sets inside others are 0."""

    def __init__(self, problem: ForestProblem) -> None:
        self.problem, self.top = problem, problem.program.set_top
        self.size = np.diff(problem.offset) - 1
        self._latest: tuple[Ints, Float64, tuple[Float64, Float64]] | None = (
            None  # where, and what was found there
        )

    @cached
    def _edges(self) -> Float64:
        return scaled(self.problem.log_edge, (2, 3))[0]

    @cached
    def _blocks(self) -> list[list[Block]]:
        """The vertices of every outermost set without their edges, by model."""
        with np.errstate(invalid="ignore"):
            nu = self.problem.log_leaf[:, :, 1] - self.problem.log_leaf[:, :, 0]
        members = [self.problem.top_set == s if top else [] for s, top in enumerate(self.top)]
        return [[_block(row[own]) for own in members] for row in nu]

    def _alone(self, rows: Ints, tilts: Float64) -> tuple[Float64, Float64]:
        """Mean and variance of the counts of binary vertices (row, set) without edges."""
        found = np.array(
            [[self._blocks[r][s].cumulants(t)[1:] for s, t in enumerate(row)] for r, row in zip(rows, tilts)]
        )
        forced = np.array([[block.forced for block in self._blocks[r]] for r in rows])
        return found[..., 0] + forced, np.maximum(found[..., 1], 1e-12)

    def shift(self, tilts: Float64) -> Float64:
        """What tilts (row, set) add to the weights (row, D, K)."""
        return np.asarray(vertex_tilt(self.problem, tilts)[:, :, None] * self.problem.score)

    def alone(self, tilts: Float64) -> ForestProblem:
        """The forests of all models without their counts, under tilts."""
        return replace(self.problem.without_counts(), log_leaf=self.problem.log_leaf + self.shift(tilts))

    def _moments(self, rows: Ints, tilts: Float64) -> tuple[Float64, Float64]:
        """Mean and a variance of the count of every set (row, set) under the tilted forest; 0 inside others."""
        known = self._latest
        if known is None or not (np.array_equal(known[0], rows) and np.array_equal(known[1], tilts)):
            known = self._latest = rows, tilts.copy(), self._fresh_moments(rows, tilts)
        return known[2]

    def _fresh_moments(self, rows: Ints, tilts: Float64) -> tuple[Float64, Float64]:
        leaf = self.problem.log_leaf[rows] + self.shift(tilts)
        weight, score = self._marginals(rows, leaf), self.problem.score
        weight = np.where(np.isfinite(weight), weight, 0.0)  # a tilt may be poor, the certificate tells
        mean = (weight * score).sum(2)
        variance = (weight * score**2).sum(2) - mean**2
        held = self.problem.top_set >= 0

        def sums(values: Float64) -> Float64:
            place = self.problem.top_set[held]
            return np.reshape(
                [np.bincount(place, row, len(self.top)) for row in values[:, held]], tilts.shape
            )

        return sums(mean), np.maximum(sums(variance), 1e-12)

    def _marginals(self, rows: Ints, leaf: Float64) -> Float64:
        """Marginals (row, D, K) of the forest alone with weights (row, D, K)."""
        problem, shared = self.problem, len(self.problem.log_edge) == 1
        with np.errstate(all="ignore"):
            if native.present():
                edges = self._edges if shared else self._edges[rows]
                return np.asarray(
                    native.forest_means(problem.structure.rooting, scaled(leaf, (2,))[0], edges)[0]
                )
            edges = problem.log_edge if shared else problem.log_edge[rows]
            found = both_passes(replace(problem.without_counts(), log_leaf=leaf, log_edge=edges), Direct)
            return np.asarray(softmax(leaf + found.messages, axis=2))

    def moments_at(self, tilts: Float64) -> tuple[Float64, Float64]:
        """Mean and a variance of the counts of all models under tilts."""
        return self._moments(np.arange(len(self.problem)), tilts)

    def first(self) -> Float64:
        """Tilts from the tables and a Gaussian law of the counts."""
        batch = len(self.problem)
        return self._search(np.arange(batch), None, np.zeros((batch, len(self.top))))

    def towards(self, wanted: Float64, start: Float64) -> Float64:
        """Tilts of all models at wanted means."""
        return self._search(np.arange(len(self.problem)), wanted, start)

    def again(self, found: Answer, tilts: Float64, rows: Ints) -> Float64:
        """Tilts at the posterior means that an uncertain answer reports."""
        wanted = np.zeros((len(rows), len(self.top)))
        for s in np.flatnonzero(self.top).tolist():
            cells = found.log_beliefs[rows, self.problem.offset[s] : self.problem.offset[s + 1]]
            cells = np.where(np.isnan(cells), -np.inf, cells)
            with np.errstate(all="ignore"):  # an uncertain answer may be any number
                probs = np.exp(cells - cells.max(axis=1, keepdims=True))
                mean = (probs * np.arange(probs.shape[1])).sum(1) / probs.sum(1)
            wanted[:, s] = np.where(np.isfinite(mean), mean, 0.5 * self.size[s])
        return self._search(rows, wanted, tilts[rows])

    def _search(self, rows: Ints, wanted: Float64 | None, start: Float64) -> Float64:
        """Newton steps in s; without a wanted mean, towards that of table times a local Gaussian."""

        def target(tilts: Float64, mean: Float64, variance: Float64) -> Float64:
            aim = wanted if wanted is not None else self._aims(rows, tilts, mean, variance)
            return np.where(self.top, np.clip(aim, 0.02, self.size - 0.02), mean)

        limits: Any = {"near": 0.5, "slack": 0.5, "coupled": self.size}
        if self.problem.n_states == 2 and (self.problem.score == [0, 1]).all():
            # Without edges a step takes no time, and most often the tilt is near that with edges.
            start = tilt_towards(partial(self._alone, rows), target, start, steps=_STEPS, **limits)
        return tilt_towards(partial(self._moments, rows), target, start, steps=_JOINED, **limits)

    def _aims(self, rows: Ints, tilts: Float64, mean: Float64, variance: Float64) -> Float64:
        """Means, not modes, which noise has anywhere: a tilt that is not needed blows up the ends of long tables."""
        out = mean.copy()
        problem = self.problem
        for s in np.flatnonzero(self.top).tolist():
            table = problem.tables[:, problem.offset[s] : problem.offset[s + 1]]
            table = table if len(table) == 1 else table[rows]
            z = np.arange(table.shape[1])
            near = 0.5 * (z - mean[:, s : s + 1]) ** 2 / variance[:, s : s + 1]
            with np.errstate(invalid="ignore"):
                aim = softmax(table - tilts[:, s : s + 1] * z - near, axis=1) @ z
            out[:, s] = np.where(np.isnan(aim), out[:, s], aim)  # of a table that allows nothing
        return out


def _block(nu: Float64) -> Block:
    """A histogram in which the largest and the smallest log-odds, which move the last counts, are as they are."""
    order = np.sort(nu[np.isfinite(nu)])
    inner = summarise(order[_ENDS:-_ENDS])
    ends = np.concatenate([order[:_ENDS], order[_ENDS:][-_ENDS:]])
    weight = np.concatenate([inner.weight, np.ones(len(ends))])
    forced = int(np.count_nonzero(nu == math.inf))
    return Block(np.concatenate([inner.centre, ends]), weight, forced, len(order), inner.slack)


def vertex_tilt(problem: ForestProblem, tilts: Float64) -> Float64:
    """The tilt of every vertex, (B, D): that of its top-level set."""
    out = np.zeros((len(tilts), problem.program.n_variables))
    inside = problem.top_set >= 0
    out[:, inside] = tilts[:, problem.top_set[inside]]
    return out


def tilted(problem: ForestProblem, tilts: Float64) -> tuple[ForestProblem, Float64]:
    """The same models with other rounding errors, and what was taken out of their log-weights, (B,).

    Weights get e^(s score) and tables e^(-s z) at the top-level sets. Tables are tilted around their highest place
    under the tilt, which becomes 0: a steep one is rounded at the size of what it says, not at that of its entries.
    """
    taken_out = np.zeros(len(tilts))
    if not tilts.any():
        return problem, taken_out
    leaf = problem.log_leaf + vertex_tilt(problem, tilts)[:, :, None] * problem.score
    tables = problem.full_tables.copy()
    rows = np.arange(len(tilts))
    for s in np.flatnonzero(problem.program.set_top).tolist():
        cells = slice(problem.offset[s], problem.offset[s + 1])
        own, z, tilt = tables[:, cells], np.arange(problem.offset[s + 1] - problem.offset[s]), tilts[:, s]
        top = (own - tilt[:, None] * z).argmax(axis=1)
        height = np.where(own[rows, top] > -math.inf, own[rows, top], 0.0)
        tables[:, cells] = (own - height[:, None]) - tilt[:, None] * (z - top[:, None])
        taken_out += height - tilt * top
    return replace(problem, log_leaf=leaf, tables=tables), taken_out
