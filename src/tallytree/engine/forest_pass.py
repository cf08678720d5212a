"""Sum-product over a program of clusters: values upwards, then reverse mode for everything else.

Every operation is linear in each operand, so one backward sweep gives the adjoints of all values; the adjoint of a
vertex's weights is its message, that of an edge's table its marginal, that of a count its belief. Values are scaled
to sum 1, adjoints to <value, adjoint> = 1, scales are carried as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..structure import clusters
from ..structure.clusters import MATRIX, SCALAR, VECTOR, ClusterProgram, Step
from .cluster_store import Store
from .forest_arithmetic import UNIT_ROUNDOFF, Direct

Float64 = NDArray[np.float64]
Ints = NDArray[np.int64]

_CELLS = 1 << 17  # how many cells are worked on at a time: what fits in a cache
_TRIMMED = 48  # windows shorter than this are kept whole
_SHORT = 24  # values shorter than this have no errors beyond rounding

# Axes (p, q, r) of the operands of a product; 0: length one.
_AXES = {
    clusters.RAKE: ((1, 0, 0), (1, 0, 0)), clusters.HANG: ((1, 0, 0), (1, 0, 1)),
    clusters.CLOSE: ((1, 1, 0), (0, 1, 0)), clusters.COMPRESS: ((1, 1, 0), (0, 1, 1)),
    clusters.JOIN: ((0, 0, 0), (0, 0, 0)), clusters.SCALE: ((1, 0, 0), (0, 0, 0)),
    clusters.SCALE_PATH: ((1, 0, 1), (0, 0, 0)), clusters.OUTER: ((1, 0, 0), (0, 0, 1)),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ForestProblem:
    """A batch of models on one program.

    Attributes
    ----------
    score : (D, K)
        What each state of a vertex adds to the counts.
    log_leaf : (B, D, K)
    log_edge : (1 or B, E, K, K)
    tables : (1 or B, T)
        Packed log-tables; set s has counts 0..n at ``offset[s] : offset[s + 1]``.
    """

    program: ClusterProgram
    score: Ints
    log_leaf: Float64
    log_edge: Float64
    tables: Float64
    offset: Ints

    top_set: Ints  # the largest set that holds a vertex, or -1

    @property
    def n_states(self) -> int:
        return int(self.log_leaf.shape[2])


@dataclass(frozen=True, eq=False)
class ForestAnswer:
    """What a pass found, all in logarithms.

    Attributes
    ----------
    log_z : (B,)
    messages : (B, D, K)
        What the rest of the model says about a vertex, up to a constant.
    log_edges : (B, E, K, K)
        Edge marginals.
    log_counts : (B, T)
        Distributions of the counts of the sets.
    bound : (B,)
        Error of any log-odds.
    """

    log_z: Float64
    messages: Float64
    log_edges: Float64
    log_counts: Float64
    bound: Float64


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Rows computed together: row ``b * n_nodes + node``."""

    step: Step
    rows: Ints
    batch: Ints
    nodes: Ints


class ForestPass:
    """Both passes for one arithmetic."""

    def __init__(self, problem: ForestProblem, arithmetic: Direct) -> None:
        self.problem, self.arithmetic = problem, arithmetic
        self.program = problem.program
        self.k = problem.n_states
        self.batch = len(problem.log_leaf)
        n = self.program.n_nodes
        self.up = Store(self.batch * n, arithmetic.zero)
        self.log_scale = np.zeros(self.batch * n)
        states = self.k * self.k
        self.lost = np.zeros((self.batch * n, states))  # error of any entry of a value, by state
        self.cut = np.zeros((self.batch * n, states))  # mass cut off a value
        self.tape: list[_Chunk] = []
        log_edge = problem.log_edge
        self.edge_top = log_edge.max(axis=(2, 3), initial=-math.inf)
        self.edge_top[self.edge_top == -math.inf] = 0.0
        # Tables with the row last, and the identity behind them.
        scaled = arithmetic.enter(log_edge - self.edge_top[:, :, None, None])
        eye = np.where(np.eye(self.k) > 0, arithmetic.one, arithmetic.zero)
        shape = (scaled.shape[0], 1, self.k, self.k)
        self.edges = np.concatenate([scaled, np.broadcast_to(eye, shape)], axis=1)
        self.edge_top = np.concatenate([self.edge_top, np.zeros((len(self.edge_top), 1))], axis=1)

    # -- upwards -----------------------------------------------------------------------------------------------

    def upward(self) -> Float64:
        """Values of all clusters; returns log Z, (B,)."""
        for step in self.program.steps:
            for chunk in self._chunks(step):
                self.tape.append(chunk)
                self._compute(chunk)
        return np.asarray(self.log_scale.reshape(self.batch, -1).sum(1))

    def _states(self, kind: int) -> int:
        return (1, self.k, self.k * self.k)[kind]

    def _chunks(self, step: Step) -> Iterator[_Chunk]:
        """Rows of a step with operands of similar widths, as many as fit in the cache."""
        n = self.program.n_nodes
        nodes = np.tile(step.nodes, self.batch)
        batch = np.repeat(np.arange(self.batch), len(step.nodes))
        rows = batch * n + nodes
        if step.op in (clusters.LEAF, clusters.ONES):
            widths = np.ones(len(rows), np.int64)
            if step.op == clusters.LEAF:
                counted = self.program.counted[self.program.ref[nodes]]
                widths[counted] = 2
            key, cells = widths, widths
        else:
            first = self.up.width[batch * n + self.program.a[nodes]]
            key, cells = _width_class(first), first
            if step.op >= clusters.RAKE:
                second = self.up.width[batch * n + self.program.b[nodes]]
                key, cells = 64 * key + _width_class(second), first + second
        order = np.argsort(key, kind="stable")
        states = self._states(max(step.kind, step.second))
        for group in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
            room = max(1, _CELLS // (states * int(cells[group].max())))
            for i in range(0, len(group), room):
                part = group[i : i + room]
                yield _Chunk(step, rows[part], batch[part], nodes[part])

    def _operand(self, chunk: _Chunk, which: Ints, kind: int) -> tuple[Ints, Float64]:
        rows = chunk.batch * self.program.n_nodes + which[chunk.nodes]
        return rows, self.up.get(rows, self._states(kind), int(self.up.width[rows].max(initial=1)))

    def _edge_tables(self, chunk: _Chunk, *, transposed: bool = False) -> tuple[Float64, Float64]:
        """Tables (K, K, row) of the edges of a chunk, and their scales."""
        edge, b = self.program.edge[chunk.nodes], chunk.batch if len(self.edges) > 1 else 0
        tables = np.moveaxis(self.edges[b, edge], 0, 2)  # edge -1 is the identity
        flip = self.program.flip[chunk.nodes] != transposed
        return np.where(flip, tables.transpose(1, 0, 2), tables), self.edge_top[b, edge]

    def _joined(self, chunk: _Chunk, b: Float64, *, spread: bool) -> tuple[Float64, Float64 | float]:
        """The second operand with the edge's table multiplied in, (K[, K], count, row)."""
        ar, step = self.arithmetic, chunk.step
        plain = bool((self.program.edge[chunk.nodes] < 0).all())
        if spread:
            tables, top = self._edge_tables(chunk)
            return ar.times(tables[:, :, None, :], b[None]), top
        if plain:
            return b, 0.0
        tables, top = self._edge_tables(chunk)
        return ar.transform(tables, b), top

    def _shape(self, chunk: _Chunk, a: Float64, b: Float64) -> tuple[Float64, Float64]:
        axes = _AXES[chunk.step.op]
        shapes = [tuple(self.k if x else 1 for x in axis) for axis in axes]
        return a.reshape(*shapes[0], *a.shape[-2:]), b.reshape(*shapes[1], *b.shape[-2:])

    def _second(self, chunk: _Chunk, b: Float64) -> tuple[Float64, Float64 | float]:
        """The second operand as the product needs it."""
        step = chunk.step
        if step.op not in (clusters.RAKE, clusters.HANG, clusters.CLOSE, clusters.COMPRESS):
            return b, 0.0
        spread = step.second == VECTOR and step.op in (clusters.HANG, clusters.COMPRESS)
        if step.second == MATRIX:
            b = b.reshape(self.k, self.k, *b.shape[1:])
        return self._joined(chunk, b, spread=spread)

    def _compute(self, chunk: _Chunk) -> None:
        ar, program, op = self.arithmetic, self.program, chunk.step.op
        top: Any = 0.0
        if op == clusters.LEAF:
            return self._leaves(chunk)
        if op == clusters.ONES:
            return self._finish(chunk, np.full((self.k, 1, len(chunk.rows)), ar.one), np.zeros_like(chunk.rows))
        rows, a = self._operand(chunk, program.a, self._first_kind(chunk.step))
        low = self.up.low[rows]
        if op == clusters.THROUGH:
            out, top = self._joined(chunk, a, spread=False)
        elif op == clusters.SUM:
            out = ar.total(a, 0)[None]
        elif op == clusters.TURN:
            out = a.reshape(self.k, self.k, *a.shape[1:]).swapaxes(0, 1).reshape(a.shape)
        elif op == clusters.TABLE:
            f, top, collapse = self._potential(chunk, low, a.shape[1])
            out = ar.times(a, f)
            if collapse:
                out, low = ar.total(out, 1)[:, None], np.zeros_like(low)
        else:
            other, b = self._operand(chunk, program.b, chunk.step.second)
            b, top = self._second(chunk, b)
            x, y = self._shape(chunk, a, b)
            out = ar.product(x, y, x.shape[3] + y.shape[3] - 1)
            shape = (out.shape[0], out.shape[2], len(chunk.rows))
            lost = np.broadcast_to(ar.product_error(x, y), shape).reshape(-1, len(chunk.rows))
            out = out.reshape(-1, *out.shape[3:])
            low = low + self.up.low[other]
            return self._finish(chunk, out, low, top, lost)
        return self._finish(chunk, out, low, top)

    def _first_kind(self, step: Step) -> int:
        if step.op in (clusters.THROUGH, clusters.SUM):
            return VECTOR
        if step.op in (clusters.TURN, clusters.TABLE):
            return step.kind
        size = sum(_AXES[step.op][0])
        return (SCALAR, VECTOR, MATRIX)[size]

    def _leaves(self, chunk: _Chunk) -> None:
        ar, problem = self.arithmetic, self.problem
        vertex = self.program.ref[chunk.nodes]
        log_weight = problem.log_leaf[chunk.batch, vertex]  # (row, K)
        count = len(vertex)
        if not self.program.counted[vertex[0]]:
            values, width = ar.enter(log_weight.T)[:, None], np.ones(count, np.int64)
        else:
            score = problem.score[vertex]
            width = score.max(axis=1) + 1
            values = np.full((self.k, int(width.max()), count), ar.zero)
            states = np.broadcast_to(np.arange(self.k), score.shape)
            values[states, score, np.arange(count)[:, None]] = ar.enter(log_weight)
        self._finish(chunk, values, np.zeros(count, np.int64))

    def _potential(self, chunk: _Chunk, low: Ints, width: int) -> tuple[Float64, Float64, bool]:
        """Table entries (count, row) in the windows, their scale, and whether counts end here."""
        problem = self.problem
        sets = self.program.ref[chunk.nodes]
        start, stop = problem.offset[sets], problem.offset[sets + 1]
        place = start + low + np.arange(width)[:, None]
        b = chunk.batch if len(problem.tables) > 1 else 0
        inside = place < stop
        values = np.where(inside, problem.tables[b, np.where(inside, place, 0)], -math.inf)
        top = self.table_top[b, sets]
        return self.arithmetic.enter(values - top), top, bool(chunk.step.second)

    @property
    def table_top(self) -> Float64:
        if not hasattr(self, "_table_top"):
            problem = self.problem
            if problem.tables.shape[1]:
                top = np.maximum.reduceat(problem.tables, problem.offset[:-1], axis=1)
            else:
                top = np.zeros((len(problem.tables), 0))
            self._table_top = np.where(top == -math.inf, 0.0, top)
        return self._table_top

    def _finish(
        self, chunk: _Chunk, values: Float64, low: Ints, top: Any = 0.0, lost: Float64 | float = 0.0
    ) -> None:
        """Scale values (state, count, row) to sum 1, cut negligible ends, store."""
        ar, rows = self.arithmetic, chunk.rows
        mass = ar.total(values, 0)
        log_total = ar.log(ar.total(mass, 0))
        safe = np.where(log_total == -math.inf, 0.0, log_total)
        values = ar.scale(values, safe)
        self.log_scale[rows] = log_total + top
        n = values.shape[1]
        first, width = np.zeros(len(rows), np.int64), np.full(len(rows), n)
        if ar.keep > 0.0:
            relative = np.exp(-safe)
            states = len(values)
            lost = np.broadcast_to(lost * relative, (states, len(rows)))
            self.lost[rows, :states] = lost.T
            if n > _TRIMMED:
                # A state may be improbable: each is cut by its own measure.
                floor = np.maximum(ar.keep * values.max(axis=1), lost)
                first, width = _window((values > floor[:, None]).any(axis=0))
                count = np.arange(n)[:, None]
                outside = (count < first) | (count >= first + width)
                self.cut[rows, :states] = ((values * outside).sum(1) + (n - width) * lost).T
        self.up.put(rows, values, low, first, width)

    # -- downwards ---------------------------------------------------------------------------------------------

    def downward(self) -> ForestAnswer:
        """Adjoints of everything."""
        ar, problem, program = self.arithmetic, self.problem, self.program
        n = program.n_nodes
        log_z = self.log_scale.reshape(self.batch, -1).sum(1)
        self.adjoint = self.up.twin()
        self.reach = np.zeros((self.batch * n, self.k * self.k))  # largest adjoint of any count, by state
        self.path_error = np.zeros(self.batch * n)
        self.damage = np.zeros(self.batch)
        self.messages = np.zeros((self.batch, program.n_variables, self.k))
        self.log_edges = np.full((self.batch, problem.log_edge.shape[1], self.k, self.k), -math.inf)
        self.log_counts = np.full((self.batch, problem.tables.shape[1]), -math.inf)
        roots = (np.arange(self.batch)[:, None] * n + program.roots).reshape(-1)
        self.adjoint[self.up.base[roots]] = ar.one
        self.reach[roots, 0] = 1.0
        for chunk in reversed(self.tape):
            self._pull(chunk)
        return ForestAnswer(log_z, self.messages, self.log_edges, self.log_counts, self._bound(log_z))

    def _pull(self, chunk: _Chunk) -> None:
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
            g = self._adjoint(rows, states, 1 if collapse else width, 0 if collapse else self.up.low[rows] - low)
            g = ar.times(np.broadcast_to(g, (states, width, len(rows))), f)
            self._read_counts(chunk, a, g, low)
        else:
            shift = self.up.low[rows] - self.up.low[a_rows]
            g = self._adjoint(rows, states, width, shift)
            if step.op == clusters.THROUGH:
                self._read_edges(chunk, g, a)
                tables, _ = self._edge_tables(chunk, transposed=True)
                g, reach = ar.transform(tables, g), _linear(tables, ar) @ reach
            elif step.op == clusters.SUM:
                g, reach = np.broadcast_to(g, a.shape), np.broadcast_to(reach, (self.k, len(rows)))
            else:
                square = (self.k, self.k)
                g = g.reshape(*square, *g.shape[1:]).swapaxes(0, 1).reshape(a.shape)
                reach = reach.reshape(*square, -1).swapaxes(0, 1).reshape(reach.shape)
        self._settle(chunk, a_rows, a, g, reach, 0.0)

    def _pull_product(self, chunk: _Chunk, a_rows: Ints, a: Float64, reach: Float64) -> None:
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
        fresh_x = fresh_y = 0.0
        reach_x = reach_y = np.zeros(1)
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

    def _pull_edge(self, chunk: _Chunk, b: Float64, g: Float64, reach: Float64) -> tuple[Float64, Float64]:
        """Adjoint of the second operand from the adjoint of table times operand; reads the edge's marginal."""
        ar, step = self.arithmetic, chunk.step
        count = len(chunk.rows)
        spread = step.second == VECTOR and step.op in (clusters.HANG, clusters.COMPRESS)
        tables, _ = self._edge_tables(chunk)
        if spread:
            pair = ar.total(ar.times(g, b[None]), 2)
            self._read_pairs(chunk, ar.times(tables, pair))
            if ar.keep > 0.0:
                reach = (reach.reshape(self.k, self.k, count) * _linear(tables, ar, move=False)).sum(0)
            return ar.total(ar.times(g, tables[:, :, None, :]), 0), reach
        square = b.reshape(self.k, self.k, *b.shape[1:]) if step.second == MATRIX else b
        self._read_pairs(chunk, ar.times(tables, ar.pair(g, square)))
        if ar.keep > 0.0:
            plain = _linear(tables, ar, move=False)
            reach = np.einsum("pqn,prn->qrn", plain, reach.reshape(self.k, -1, count)).reshape(-1, count)
        back, _ = self._edge_tables(chunk, transposed=True)
        return ar.transform(back, g), reach

    def _adjoint(self, rows: Ints, states: int, width: int, shift: Ints | int) -> Float64:
        return self.adjoint[self.up.cells(rows, states, width, shift)]

    def _settle(
        self, chunk: _Chunk, rows: Ints, value: Float64, g: Float64, reach: Float64, fresh: Float64 | float
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
            self.path_error[rows] = self.path_error[chunk.rows] + fresh

    # -- answers and errors ------------------------------------------------------------------------------------

    def _charge(self, chunk: _Chunk, states: int) -> None:
        """What errors and cuts in values do to the mass of each state, relative to it."""
        rows = chunk.rows
        width = int(self.up.width[rows].max())
        if width <= _SHORT:
            return
        cells = self.up.cells(rows, states, width)
        g = self.adjoint[cells]
        mass = (self.up.buffer[cells] * g).sum(axis=1).T
        harm = self.lost[rows, :states] * g.sum(axis=1).T + self.cut[rows, :states] * self.reach[rows, :states]
        relative = np.where(mass > 0.0, harm / np.where(mass > 0.0, mass, 1.0), 0.0).max(axis=1)
        np.add.at(self.damage, chunk.batch, relative * relative)

    def _read_messages(self, chunk: _Chunk) -> None:
        vertex = self.program.ref[chunk.nodes]
        g = self._adjoint(chunk.rows, self.k, int(self.up.width[chunk.rows].max()), 0)
        if self.program.counted[vertex[0]]:
            states = np.broadcast_to(np.arange(self.k), (len(vertex), self.k))
            g = g[states, self.problem.score[vertex] - self.up.low[chunk.rows][:, None], np.arange(len(vertex))[:, None]]
        else:
            g = g[:, 0].T
        self.messages[chunk.batch, vertex] = self.arithmetic.log(g)

    def _read_counts(self, chunk: _Chunk, a: Float64, g: Float64, low: Ints) -> None:
        ar = self.arithmetic
        belief = ar.total(ar.times(a, g), 0)  # (count, row)
        belief = ar.log(belief) - ar.log(ar.total(belief, 0))
        sets = self.program.ref[chunk.nodes]
        start, stop = self.problem.offset[sets], self.problem.offset[sets + 1]
        place = start + low + np.arange(len(belief))[:, None]
        inside = place < stop
        batch = np.broadcast_to(chunk.batch, place.shape)
        self.log_counts[batch[inside], place[inside]] = belief[inside]

    def _read_edges(self, chunk: _Chunk, g: Float64, a: Float64) -> None:
        tables, _ = self._edge_tables(chunk)
        self._read_pairs(chunk, self.arithmetic.times(tables, self.arithmetic.pair(g, a)))

    def _read_pairs(self, chunk: _Chunk, pair: Float64) -> None:
        ar, edge = self.arithmetic, self.program.edge[chunk.nodes]
        log_pair = ar.log(pair) - ar.log(ar.total(ar.total(pair, 0), 0))
        log_pair = np.where(self.program.flip[chunk.nodes], log_pair.transpose(1, 0, 2), log_pair)
        real = edge >= 0
        self.log_edges[chunk.batch[real], edge[real]] = np.moveaxis(log_pair, 2, 0)[real]

    def _bound(self, log_z: Float64) -> Float64:
        # Errors of different clusters are independent: four standard deviations of their sum.
        error = 4.0 * np.sqrt(self.damage) + self.path_error.reshape(self.batch, -1).max(axis=1, initial=0.0)
        return certificate(self.problem, self.arithmetic.keep, log_z, self.messages, error)


def certificate(
    problem: ForestProblem, keep: float, log_z: Float64, messages: Float64, error: Float64
) -> Float64:
    """Bound on the error of any log-odds, from the error of the mass of any state relative to it.

    Errors are relative to the mass of each state, so an improbable state is as accurate as a probable one.
    """
    depth, largest = problem.program.depth, np.abs(log_z)
    rounding = UNIT_ROUNDOFF * (32.0 * depth + 4.0 * largest)
    if keep == 0.0:
        return np.where(np.isneginf(log_z), 0.0, rounding * (1.0 + largest / (1.0 + depth)))
    bound = 2.0 * error + rounding
    # A zero may be an impossible state or an underflow; only logarithms can tell.
    possible = problem.log_leaf > -math.inf
    sound = np.isfinite(bound) & np.isfinite(log_z)
    sound &= np.isfinite(np.where(possible, messages, 0.0)).all(axis=(1, 2))
    return np.where(sound, bound, math.inf)


def _linear(tables: Float64, ar: Direct, *, move: bool = True) -> Float64:
    """Tables in plain numbers; (row, p, q) ready for a product with (q, row) if `move`."""
    plain = tables if ar.zero == 0.0 else np.exp(tables)
    return _RowProduct(plain) if move else plain  # type: ignore[return-value]


class _RowProduct:
    """``tables @ values`` row by row, rows last."""

    def __init__(self, tables: Float64) -> None:
        self.tables = tables

    def __matmul__(self, values: Float64) -> Float64:
        return np.asarray(np.einsum("pqn,qn->pn", self.tables, values))


def _relative(error: Float64, value: Float64, g: Float64) -> Float64:
    """Largest error of a state's mass relative to it, by row."""
    mass = (value * g).sum(axis=3)
    return np.asarray(np.where(mass > 0.0, error / np.where(mass > 0.0, mass, 1.0), 0.0).max(axis=(0, 1, 2)))


def _fold_sum(values: Float64, shape: tuple[int, ...]) -> Float64:
    for axis in range(3):
        if shape[axis] == 1 and values.shape[axis] > 1:
            values = values.sum(axis=axis, keepdims=True)
    return np.broadcast_to(values, (*shape[:3], values.shape[-1]))


def _width_class(width: Ints) -> Ints:
    """Widths that are computed together: powers of two, and halfway between above 64."""
    fine = np.ceil(2.0 * np.log2(np.maximum(width, 1))).astype(np.int64)
    return np.where(width <= 64, 2 * ((fine + 1) // 2), fine)


def _window(keep: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """First kept count and number of counts up to the last kept one, by row; one count where none is kept."""
    n = len(keep)
    some = keep.any(axis=0)
    first = np.where(some, keep.argmax(axis=0), 0)
    last = np.where(some, n - keep[::-1].argmax(axis=0), 1)
    return first, last - first
