"""Sum-product over a program of clusters: values upwards, then reverse mode for everything else.

Every operation is linear in each operand, so one backward sweep gives the adjoints of all values; the adjoint of a
vertex's weights is its message, that of an edge's table its marginal, that of a count its belief. Values are scaled
to sum 1, adjoints to <value, adjoint> = 1, scales are carried as logarithms.

Forests without counts have ordinary belief propagation, one vertex after the other, at the end of the file.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays import Float64, Ints
from ...structure.forest import clusters
from ...structure.forest.clusters import MATRIX, VECTOR
from .. import native
from ..answer import Answer
from ..arithmetic import ARITHMETICS, TINY, UNIT_ROUNDOFF, Direct, Fourier, fold
from ..log_sums import anchor
from ..problem import ForestProblem
from .certificate import certificate, table_tops
from .values import Chunk, ForestValues


class ForestPass(ForestValues):
    """Both passes for one arithmetic."""

    def downward(self) -> Answer:
        """Adjoints of everything."""
        ar, problem, program = self.arithmetic, self.problem, self.program
        n = program.n_nodes
        log_z = self.log_z()
        self.adjoint = self.up.twin()
        self.reach = np.zeros((self.batch * n, self.k * self.k))  # largest adjoint of any count, by state
        self.path_error = np.zeros(self.batch * n)
        self.path_noise = np.zeros(self.batch * n)
        self.damage = np.zeros(self.batch)
        self.vanished = np.zeros(self.batch)  # what may be missing from Z or any part of it, relative to Z
        self.adjoint_underflow = np.zeros(self.batch * n)
        self.messages = np.zeros((self.batch, program.n_variables, self.k))
        self.log_edges = np.full((self.batch, problem.log_edge.shape[1], self.k, self.k), -math.inf)
        self.log_counts = np.full((self.batch, problem.tables.shape[1]), -math.inf)
        roots = (np.arange(self.batch)[:, None] * n + program.roots).reshape(-1)
        self.adjoint[self.root_cells] = ar.one
        self.reach[roots, 0] = 1.0
        for chunk in reversed(self.tape):
            self._pull(chunk)
        # Errors of different clusters are independent: four standard deviations of their sum.
        error = 4.0 * np.sqrt(self.damage) + self.path_error.reshape(self.batch, n).max(axis=1, initial=0.0)
        noise = 4.0 * np.sqrt(self.noise) + self.path_noise.reshape(self.batch, n).max(axis=1, initial=0.0)
        bound = certificate(problem, ar.keep, log_z, self.messages, error, self.vanished)
        return Answer(
            log_z, self.messages, self.log_counts, bound, log_edges=self.log_edges,
            vanished=self.vanished, noise=noise if program.set_top.all() else error,
        )  # fmt: skip

    def _pull(self, chunk: Chunk) -> None:
        """From the adjoint of a chunk's values to those of its operands."""
        ar, program, step = self.arithmetic, self.program, chunk.step
        if step.op == clusters.ONES:
            return None
        states = self._states(step.kind)
        rows = chunk.rows
        if ar.keep > 0.0:
            self._charge(chunk, states)
        if step.op == clusters.LEAF:
            return self._read_messages(chunk)
        a_rows, a = self._operand(chunk, program.a, self._first_kind(step))
        width = a.shape[1]
        reach = self.reach[rows, :states].T
        if step.op >= clusters.RAKE:
            return self._pull_product(chunk, a_rows, a, reach)
        if step.op == clusters.TABLE:
            low = self.up.low[a_rows]
            f, _, collapse = self._potential(chunk, low, width)
            g = self._adjoint(
                rows, states, 1 if collapse else width, 0 if collapse else self.up.low[rows] - low
            )
            g = ar.times(np.broadcast_to(g, (states, width, len(rows))), f)
            self._read_counts(chunk, a, g, low)
        else:
            shift = self.up.low[rows] - self.up.low[a_rows]
            g = self._adjoint(rows, states, width, shift)
            if step.op == clusters.THROUGH:
                self._read_edges(chunk, g, a)
                tables, _ = self._edge_tables(chunk, transposed=True)
                g, reach = ar.transform(tables, g), np.einsum("pqn,qn->pn", _linear(tables, ar), reach)
            elif step.op == clusters.SUM:
                g, reach = np.broadcast_to(g, a.shape), np.broadcast_to(reach, (self.k, len(rows)))
            else:
                square = (self.k, self.k)
                g = g.reshape(*square, *g.shape[1:]).swapaxes(0, 1).reshape(a.shape)
                reach = reach.reshape(*square, -1).swapaxes(0, 1).reshape(reach.shape)
        self._settle(chunk, a_rows, a, g, reach, 0.0)

    def _pull_product(self, chunk: Chunk, a_rows: Ints, a: Float64, reach: Float64) -> None:
        ar, program, step = self.arithmetic, self.program, chunk.step
        b_rows, b = self._operand(chunk, program.b, step.second)
        joined, _ = self._second(chunk, b)
        x, y = self._shape(chunk, a, joined)
        shift = self.up.low[chunk.rows] - self.up.low[a_rows] - self.up.low[b_rows]
        width = x.shape[3] + y.shape[3] - 1
        g = self._adjoint(chunk.rows, self._states(step.kind), width, shift)
        shape = (max(x.shape[0], y.shape[0]), 1, max(x.shape[2], y.shape[2]))
        g, reach = g.reshape(*shape, *g.shape[1:]), reach.reshape(*shape, -1)
        gx, gy = ar.adjoint(g, y, x), ar.adjoint(g, x, y)
        fresh_x: Any = 0.0
        fresh_y: Any = 0.0
        reach_x: Any = np.zeros(1)
        reach_y: Any = np.zeros(1)
        if ar.keep > 0.0:
            norm_x, norm_y = x.sum(axis=3), y.sum(axis=3)
            fresh_x = _relative(ar.adjoint_error(g, y, x) * norm_x, x, gx)
            fresh_y = _relative(ar.adjoint_error(g, x, y) * norm_y, y, gy)
            reach_x = _fold_sum(reach * norm_y, norm_x.shape).reshape(-1, len(chunk.rows))
            reach_y = _fold_sum(reach * norm_x, norm_y.shape)
        self._settle(chunk, a_rows, a, gx.reshape(a.shape), reach_x, fresh_x)
        # Back through the edge's table.
        gy = gy.reshape(joined.shape)
        has_edge = step.op <= clusters.COMPRESS and joined is not b
        if has_edge:
            gy, reach_y = self._pull_edge(chunk, b, gy, reach_y)
        self._settle(chunk, b_rows, b, gy.reshape(b.shape), reach_y.reshape(-1, reach_y.shape[-1]), fresh_y)

    def _pull_edge(self, chunk: Chunk, b: Float64, g: Float64, reach: Float64) -> tuple[Float64, Float64]:
        """Adjoint of the second operand from the adjoint of table times operand; reads the edge's marginal."""
        ar, step = self.arithmetic, chunk.step
        count = len(chunk.rows)
        spread = step.second == VECTOR and step.op in (clusters.HANG, clusters.COMPRESS)
        tables, _ = self._edge_tables(chunk)
        if spread:
            pair = ar.total(ar.times(g, b[None]), 2)
            self._read_pairs(chunk, ar.times(tables, pair))
            if ar.keep > 0.0:
                reach = (reach.reshape(self.k, self.k, count) * _linear(tables, ar)).sum(0)
            return ar.total(ar.times(g, tables[:, :, None, :]), 0), reach
        square = b.reshape(self.k, self.k, *b.shape[1:]) if step.second == MATRIX else b
        self._read_pairs(chunk, ar.times(tables, ar.pair(g, square)))
        if ar.keep > 0.0:
            plain = _linear(tables, ar)
            reach = np.einsum("pqn,prn->qrn", plain, reach.reshape(self.k, -1, count)).reshape(-1, count)
        back, _ = self._edge_tables(chunk, transposed=True)
        return ar.transform(back, g), reach

    def _adjoint(self, rows: Ints, states: int, width: int, shift: Ints | int) -> Float64:
        return self.adjoint[self.up.cells(rows, states, width, shift)]

    def _settle(
        self, chunk: Chunk, rows: Ints, value: Float64, g: Float64, reach: Float64, fresh: Float64 | float
    ) -> None:
        """Scale an adjoint to <value, adjoint> = 1 and store it."""
        ar = self.arithmetic
        dot = ar.log(ar.total(ar.total(ar.times(value, g), 0), 0))
        scale = np.where(np.isfinite(dot), dot, 0.0)
        cells = self.up.cells(rows, *value.shape[:2])
        self.adjoint[cells] = ar.scale(g, scale)
        self.adjoint[0] = ar.zero
        if ar.keep > 0.0:
            relative = np.exp(-scale)
            self.reach[rows, : value.shape[0]] = (reach * relative).T
            self.adjoint_underflow[rows] = TINY * np.maximum(1.0, relative)
            # The product is that of the cluster above, 1, but for a scale: if it is gone, so is the adjoint.
            gone = np.where(dot > math.log(TINY), 0.0, math.inf)
            self.path_error[rows] = self.path_error[chunk.rows] + fresh + gone
            self.path_noise[rows] = self.path_noise[chunk.rows] + self.transform[chunk.rows]

    # -- answers and errors ------------------------------------------------------------------------------------

    def _charge(self, chunk: Chunk, states: int) -> None:
        """What errors and cuts in values do.

        Errors of transforms are compared with the mass of their state, where it has any. What was cut or has
        underflowed is gone from the whole; whoever wants a part of it compares it with that part.
        """
        rows = chunk.rows
        cells = self.up.cells(rows, states, int(self.up.width[rows].max()))
        g, value = self.adjoint[cells], self.up.buffer[cells]
        sum_g = g.sum(axis=1).T
        gone = self.underflow[rows] * sum_g.sum(axis=1) + self.adjoint_underflow[rows] * value.sum(
            axis=(0, 1)
        )
        gone += (self.cut[rows, :states] * self.reach[rows, :states]).sum(axis=1)
        harm, mass = self.lost[rows, :states] * sum_g, (value * g).sum(axis=1).T
        seen = mass > 0.0
        relative = np.where(seen, harm / np.where(seen, mass, 1.0), 0.0).max(axis=1)
        np.add.at(self.damage, chunk.batch, relative * relative)
        np.add.at(self.vanished, chunk.batch, gone + np.where(seen, 0.0, harm).sum(axis=1))

    def _read_messages(self, chunk: Chunk) -> None:
        vertex = self.program.ref[chunk.nodes]
        g = self._adjoint(chunk.rows, self.k, int(self.up.width[chunk.rows].max()), 0)
        if self.program.counted[vertex[0]]:
            states = np.broadcast_to(np.arange(self.k), (len(vertex), self.k))
            g = g[
                states,
                self.problem.score[vertex] - self.up.low[chunk.rows][:, None],
                np.arange(len(vertex))[:, None],
            ]
        else:
            g = g[:, 0].T
        self._take_messages(chunk, vertex, g)

    def _take_messages(self, chunk: Chunk, vertex: Ints, g: Float64) -> None:
        """Keep what the rest of the model says of vertices, (row, K)."""
        self.messages[chunk.batch, vertex] = self.arithmetic.relative_log(g)

    def _read_counts(self, chunk: Chunk, a: Float64, g: Float64, low: Ints) -> None:
        ar = self.arithmetic
        belief = ar.total(ar.times(a, g), 0)  # (count, row)
        sets = self.program.ref[chunk.nodes]
        start, stop = self.problem.offset[sets], self.problem.offset[sets + 1]
        place = start + low + np.arange(len(belief))[:, None]
        inside = place < stop
        batch = np.broadcast_to(chunk.batch, place.shape)
        self._take_counts(batch, place, inside, belief)

    def _take_counts(self, batch: Ints, place: Ints, inside: Any, belief: Float64) -> None:
        """Keep the weights of counts, (count, row), at their places."""
        ar = self.arithmetic
        log_belief = ar.log(belief) - _possible(ar.log(ar.total(belief, 0)))
        self.log_counts[batch[inside], place[inside]] = log_belief[inside]

    def _read_edges(self, chunk: Chunk, g: Float64, a: Float64) -> None:
        tables, _ = self._edge_tables(chunk)
        self._read_pairs(chunk, self.arithmetic.times(tables, self.arithmetic.pair(g, a)))

    def _read_pairs(self, chunk: Chunk, pair: Float64) -> None:
        edge = self.program.edge[chunk.nodes]
        pair = np.where(self.program.flip[chunk.nodes], pair.transpose(1, 0, 2), pair)
        real = edge >= 0
        self._take_pairs(chunk.batch[real], edge[real], np.moveaxis(pair, 2, 0)[real])

    def _take_pairs(self, batch: Ints, edge: Ints, pair: Float64) -> None:
        """Keep the weights of the pairs of edges, (row, K, K)."""
        ar = self.arithmetic
        log_total = _possible(ar.log(ar.total(ar.total(pair, 1), 1)))
        self.log_edges[batch, edge] = ar.log(pair) - log_total[:, None, None]


def _possible(log_total: Float64) -> Float64:
    """What logarithms are compared with: of an impossible model nothing is left, which is not NaN."""
    return np.where(log_total == -math.inf, 0.0, log_total)


def _linear(tables: Float64, ar: Direct) -> Float64:
    """Tables in plain numbers."""
    return tables if ar.zero == 0.0 else np.exp(tables)


def _relative(error: Float64, value: Float64, g: Float64) -> Float64:
    """Largest error of a state's mass relative to it, by row."""
    mass = (value * g).sum(axis=3)
    return np.asarray(np.where(mass > 0.0, error / np.where(mass > 0.0, mass, 1.0), 0.0).max(axis=(0, 1, 2)))


def _fold_sum(values: Float64, shape: tuple[int, ...]) -> Float64:
    values = fold(values, shape, np.sum)
    return np.broadcast_to(values, (*shape[:3], values.shape[-1]))


# -- without counts ---------------------------------------------------------------------------------------------------


def reparametrised(problem: ForestProblem) -> tuple[ForestProblem, Float64 | float]:
    """The same models with what children say moved into the weights, and what that adds to the weights.

    A vertex with many neighbours may have a state of probability e^-1000; in plain numbers its products would
    underflow.
    """
    if not native.present() or problem.log_edge.shape[1] == 0:
        return problem, 0.0
    log_leaf, log_edge = np.ascontiguousarray(problem.log_leaf), np.ascontiguousarray(problem.log_edge)
    leaf, edges, moved = native.forest_gauge(problem.structure.rooting, log_leaf, log_edge)
    return replace(problem, log_leaf=leaf, log_edge=edges), moved


def propagate(problem: ForestProblem) -> Answer | None:
    """All answers of a forest without counts; None where the compiled engine is absent or meets zeros."""
    if not native.present():
        return None
    log_leaf, log_edge = problem.log_leaf, problem.log_edge
    with np.errstate(all="ignore"):
        leaf, leaf_top = scaled(log_leaf, (2,))
        edges, edge_top = scaled(log_edge, (2, 3))
    _, log_z, messages, log_edges, sound = native.forest_means(problem.structure.rooting, leaf, edges, True)
    if not np.all(sound):
        return None
    # Rounding: a few operations per vertex, and the logarithms that were exponentiated along any configuration.
    size = np.abs(messages).max(axis=(1, 2), initial=0.0) + np.abs(log_z) + log_leaf.shape[1]
    with np.errstate(invalid="ignore"):
        apart = np.where(leaf > 0, np.abs(log_leaf - leaf_top), 0.0).max(axis=(1, 2), initial=0.0)
    bound = UNIT_ROUNDOFF * (64.0 + 4.0 * (size + apart) + 2.0 * problem.folded)
    log_z = log_z + leaf_top.sum(axis=(1, 2)) + edge_top.sum(axis=(1, 2, 3))
    nothing = np.zeros((len(log_z), 0))
    return Answer(
        log_z, messages, nothing, bound, log_edges=log_edges, vanished=np.zeros(len(log_z)), tilts=nothing,
        arithmetic=np.full(len(log_z), ARITHMETICS.index(Direct)),
    )  # fmt: skip


def scaled(log_values: Float64, axes: tuple[int, ...]) -> tuple[Float64, Float64]:
    """Plain numbers, the largest of every table 1, and the logarithms taken out."""
    top = anchor(log_values, axes)
    return np.ascontiguousarray(np.exp(log_values - top)), top


# -- both ways -------------------------------------------------------------------------------------------------------


def both_passes(problem: ForestProblem, kind: type[Direct]) -> Answer:
    """Upwards and downwards, by the compiled engine where it has this arithmetic."""
    with np.errstate(all="ignore"):
        if kind.keep > 0.0 and native.present():
            edge_top, tops = anchor(problem.log_edge, (2, 3)), table_tops(problem)
            return read(
                problem, native.cluster_pass(problem, edge_top, tops, kind.keep, kind is Fourier), kind
            )
        passes = ForestPass(problem, kind())
        passes.upward()
        return passes.downward()


def read(problem: ForestProblem, found: Any, kind: type[Direct]) -> Answer:
    """What the compiled engine found, with its certificate."""
    log_z, messages, log_edges, log_counts, error, vanished, noise = found
    log_z = np.where(np.isnan(log_z), -math.inf, log_z)
    bound = certificate(problem, kind.keep, log_z, messages, error, vanished)
    noise = noise if problem.program.set_top.all() else error
    return Answer(log_z, messages, log_counts, bound, log_edges=log_edges, vanished=vanished, noise=noise)
