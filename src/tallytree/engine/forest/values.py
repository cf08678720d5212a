"""Values of all clusters of a program, operands before results, many clusters at a time.

Values of many clusters in one buffer: every cluster has its own window of counts and its own place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints
from ...memo import cached
from ...structure.forest import clusters
from ...structure.forest.clusters import MATRIX, SCALAR, VECTOR, Step
from ..arithmetic import TINY, Direct
from ..log_sums import anchor
from ..problem import ForestProblem
from .certificate import table_tops


class Store:
    """Tables (state, count) of numbered rows; cell 0 of the buffer is the zero that stands outside every window.

    Attributes
    ----------
    low, width : (n_rows,)
        The counts ``low .. low + width - 1`` are kept; all others are zero.
    """

    def __init__(self, n_rows: int, zero: float) -> None:
        self.zero = zero
        self.buffer = np.full(1024, zero)
        self.used = 1
        self.base = np.zeros(n_rows, np.int64)
        self.state_stride = np.zeros(n_rows, np.int64)
        self.count_stride = np.zeros(n_rows, np.int64)
        self.low = np.zeros(n_rows, np.int64)
        self.width = np.zeros(n_rows, np.int64)

    def put(self, rows: Ints, values: Float64, low: Ints, first: Ints, width: Ints) -> None:
        """Keep counts ``first .. first + width - 1`` of `values` (state, count, row), which start at `low`."""
        size = values.size
        if self.used + size > len(self.buffer):
            grown = np.empty(max(2 * len(self.buffer), self.used + size), self.buffer.dtype)
            grown[: self.used] = self.buffer[: self.used]
            self.buffer = grown
        self.buffer[self.used : self.used + size] = values.reshape(-1)
        n = values.shape[2]
        self.base[rows] = self.used + np.arange(n) + first * n
        self.state_stride[rows] = values.shape[1] * n
        self.count_stride[rows] = n
        self.low[rows] = low + first
        self.width[rows] = width
        self.used += size

    def cells(self, rows: Ints, states: int, width: int, shift: Ints | int = 0) -> Ints:
        """Cells (state, count, row) of a window that starts `shift` counts before the row's own."""
        count = np.arange(width)[:, None] - shift
        inside = (count >= 0) & (count < self.width[rows])
        place = self.base[rows] + count * self.count_stride[rows]
        place = place + np.arange(states)[:, None, None] * self.state_stride[rows]
        return np.where(inside, place, 0)

    def get(self, rows: Ints, states: int, width: int) -> Float64:
        """Values (state, count, row)."""
        return self.buffer[self.cells(rows, states, width)]

    def twin(self) -> Float64:
        """A buffer of zeros with the same layout."""
        return np.full(self.used, self.zero)


_CELLS = 1 << 17  # how many cells are worked on at a time: what fits in a cache
_TRIMMED = 48  # windows shorter than this are kept whole
_EXCLUDED = 4  # counts kept on either side, where excluded states of vertices below would lie

# Axes (p, q, r) of the operands of a product; 0: length one.
_AXES = {
    clusters.RAKE: ((1, 0, 0), (1, 0, 0)), clusters.HANG: ((1, 0, 0), (1, 0, 1)),
    clusters.CLOSE: ((1, 1, 0), (0, 1, 0)), clusters.COMPRESS: ((1, 1, 0), (0, 1, 1)),
    clusters.JOIN: ((0, 0, 0), (0, 0, 0)), clusters.SCALE: ((1, 0, 0), (0, 0, 0)),
    clusters.SCALE_PATH: ((1, 0, 1), (0, 0, 0)), clusters.OUTER: ((1, 0, 0), (0, 0, 1)),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows computed together: row ``b * n_nodes + node``."""

    step: Step
    rows: Ints
    batch: Ints
    nodes: Ints


class ForestValues:
    """The pass upwards, for one arithmetic."""

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
        # What transforms did to clusters, relative to their sums: sum of squares
        self.noise = np.zeros(self.batch)
        self.transform = np.zeros(self.batch * n)  # error of a transform of this size
        self.transformed = np.zeros(self.batch * n, bool)  # here or below
        self.underflow = np.zeros(self.batch * n)  # what may have vanished from any entry of a value
        self.tape: list[Chunk] = []
        log_edge = problem.log_edge
        top = self._anchor(log_edge, (2, 3))
        # Tables with the row last, and the identity behind them.
        scaled = arithmetic.enter(log_edge - top)
        eye = np.where(np.eye(self.k) > 0, arithmetic.one, arithmetic.zero)
        shape = (scaled.shape[0], 1, self.k, self.k)
        self.edges = np.concatenate([scaled, np.broadcast_to(eye, shape)], axis=1)
        self.edge_top = np.concatenate([top[:, :, 0, 0], np.zeros((len(top), 1))], axis=1)

    def _anchor(self, log_values: Float64, axis: Any = -1) -> Float64:
        """The largest entries, which are taken out of tables, or 0."""
        top = anchor(log_values, axis)
        return top if self.arithmetic.anchored else np.zeros_like(top)

    # -- upwards -----------------------------------------------------------------------------------------------

    def upward(self) -> Float64:
        """Values of all clusters; returns log Z, (B,)."""
        for step in self.program.steps:
            for chunk in self._chunks(step, self.batch):
                self.tape.append(chunk)
                self._compute(chunk)
        return self.log_z()

    def log_z(self, constants: Float64 | None = None) -> Float64:
        """The logarithms of all scales, (B,), summed without rounding in between; or that of the unscaled roots.

        Unscaled values may be multiplied by `constants` (B, m), which are logarithms.
        """
        scales = self.log_scale.reshape(self.batch, self.program.n_nodes)
        if not self.arithmetic.anchored:
            values = self.up.buffer[self.root_cells]
            if constants is not None:
                values = np.concatenate([values, self.arithmetic.enter(constants)], axis=1)
            return self.arithmetic.log_product(values)
        if not np.isfinite(scales).all():
            return np.asarray(scales.sum(1))
        return np.array([math.fsum(row) for row in scales.tolist()])

    @property
    def root_cells(self) -> Ints:
        """Where the values of the roots are, single numbers, (B, n_roots)."""
        rows = np.arange(self.batch)[:, None] * self.program.n_nodes + self.program.roots
        return np.asarray(self.up.base[rows])

    def _states(self, kind: int) -> int:
        return (1, self.k, self.k * self.k)[kind]

    def _chunks(self, step: Step, models: int) -> Iterator[Chunk]:
        """Rows of a step with operands of similar widths, as many as fit in the cache, of the first models."""
        if models == 0:
            return
        n = self.program.n_nodes
        nodes = np.tile(step.nodes, models)
        batch = np.repeat(np.arange(models), len(step.nodes))
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
                yield Chunk(step, rows[part], batch[part], nodes[part])

    def _operand(self, chunk: Chunk, which: Ints, kind: int) -> tuple[Ints, Float64]:
        rows = chunk.batch * self.program.n_nodes + which[chunk.nodes]
        return rows, self.up.get(rows, self._states(kind), int(self.up.width[rows].max(initial=1)))

    def _edge_tables(self, chunk: Chunk, *, transposed: bool = False) -> tuple[Float64, Float64]:
        """Tables (K, K, row) of the edges of a chunk, and their scales."""
        edge, b = self.program.edge[chunk.nodes], chunk.batch if len(self.edges) > 1 else 0
        tables = np.moveaxis(self.edges[b, edge], 0, 2)  # edge -1 is the identity
        flip = self.program.flip[chunk.nodes] != transposed
        return np.where(flip, tables.transpose(1, 0, 2), tables), self.edge_top[b, edge]

    def _joined(self, chunk: Chunk, b: Float64, *, spread: bool) -> tuple[Float64, Float64 | float]:
        """The second operand with the edge's table multiplied in, (K[, K], count, row)."""
        ar = self.arithmetic
        plain = bool((self.program.edge[chunk.nodes] < 0).all())
        if spread:
            tables, top = self._edge_tables(chunk)
            return ar.times(tables[:, :, None, :], b[None]), top
        if plain:
            return b, 0.0
        tables, top = self._edge_tables(chunk)
        return ar.transform(tables, b), top

    def _shape(self, chunk: Chunk, a: Float64, b: Float64) -> tuple[Float64, Float64]:
        axes = _AXES[chunk.step.op]
        shapes = [tuple(self.k if x else 1 for x in axis) for axis in axes]
        return a.reshape(*shapes[0], *a.shape[-2:]), b.reshape(*shapes[1], *b.shape[-2:])

    def _second(self, chunk: Chunk, b: Float64) -> tuple[Float64, Float64 | float]:
        """The second operand as the product needs it."""
        step = chunk.step
        if step.op not in (clusters.RAKE, clusters.HANG, clusters.CLOSE, clusters.COMPRESS):
            return b, 0.0
        spread = step.second == VECTOR and step.op in (clusters.HANG, clusters.COMPRESS)
        if step.second == MATRIX:
            b = b.reshape(self.k, self.k, *b.shape[1:])
        return self._joined(chunk, b, spread=spread)

    def _compute(self, chunk: Chunk) -> None:
        ar, program, op = self.arithmetic, self.program, chunk.step.op
        top: Any = 0.0
        if op == clusters.LEAF:
            return self._leaves(chunk)
        if op == clusters.ONES:
            return self._finish(
                chunk, np.full((self.k, 1, len(chunk.rows)), ar.one), np.zeros_like(chunk.rows)
            )
        rows, a = self._operand(chunk, program.a, self._first_kind(chunk.step))
        low = self.up.low[rows]
        self.transformed[chunk.rows] = self.transformed[rows]
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
            out = ar.product(x, y)
            shape = (out.shape[0], out.shape[2], len(chunk.rows))
            lost = np.broadcast_to(ar.product_error(x, y), shape).reshape(-1, len(chunk.rows))
            np.add.at(self.noise, chunk.batch, ar.product_noise(x, y) ** 2)
            self.transform[chunk.rows] = ar.transform_size(x.shape[3], y.shape[3])
            below = self.transformed[rows] | self.transformed[other]
            self.transformed[chunk.rows] = below | (self.transform[chunk.rows] > 0.0)
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

    def _leaves(self, chunk: Chunk) -> None:
        ar, problem = self.arithmetic, self.problem
        vertex = self.program.ref[chunk.nodes]
        log_weight = problem.log_leaf[chunk.batch, vertex]  # (row, K)
        top = self._anchor(log_weight)
        weight = self._leaf_values(log_weight - top, chunk, vertex)
        count = len(vertex)
        if not self.program.counted[vertex[0]]:
            values, width = weight.T[:, None], np.ones(count, np.int64)
        else:
            score = problem.score[vertex]
            width = score.max(axis=1) + 1
            values = np.full((self.k, int(width.max()), count), ar.zero)
            states = np.broadcast_to(np.arange(self.k), score.shape)
            values[states, score, np.arange(count)[:, None]] = weight
        self._finish(chunk, values, np.zeros(count, np.int64), top[:, 0])

    def _leaf_values(self, log_weight: Float64, chunk: Chunk, vertex: Ints) -> Float64:
        """Weights (row, K) of a chunk's vertices as numbers of the arithmetic."""
        return self.arithmetic.enter(log_weight)

    def _table_values(self, log_values: Float64, chunk: Chunk, place: Ints, inside: Any) -> Float64:
        """Table entries (count, row) as numbers of the arithmetic, to be kept at `place` if that is inside a table."""
        return self.arithmetic.enter(log_values)

    def _potential(self, chunk: Chunk, low: Ints, width: int) -> tuple[Float64, Float64, bool]:
        """Table entries (count, row) in the windows, their scale, and whether counts end here."""
        problem = self.problem
        sets = self.program.ref[chunk.nodes]
        start, stop = problem.offset[sets], problem.offset[sets + 1]
        place = start + low + np.arange(width)[:, None]
        b = chunk.batch if len(problem.tables) > 1 else 0
        inside = place < stop
        values = np.where(inside, problem.tables[b, np.where(inside, place, 0)], -math.inf)
        top = self.table_top[b, sets]
        return self._table_values(values - top, chunk, place, inside), top, bool(chunk.step.second)

    @cached
    def table_top(self) -> Float64:
        tops = table_tops(self.problem)
        return tops if self.arithmetic.anchored else np.zeros_like(tops)

    def _finish(
        self, chunk: Chunk, values: Float64, low: Ints, top: Any = 0.0, lost: Float64 | float = 0.0
    ) -> None:
        """Scale values (state, count, row) to sum 1, cut negligible ends, store."""
        ar, rows = self.arithmetic, chunk.rows
        log_total = ar.log_mass(values)
        safe = np.where(log_total == -math.inf, 0.0, log_total)
        values = ar.scale(values, safe)
        self.log_scale[rows] = log_total + top if ar.anchored else 0.0
        n = values.shape[1]
        first, width = np.zeros(len(rows), np.int64), np.full(len(rows), n)
        if ar.keep > 0.0:
            relative = np.exp(-safe)
            self.underflow[rows] = TINY * np.maximum(1.0, relative)
            states = len(values)
            lost = np.broadcast_to(lost * relative, (states, len(rows)))
            self.lost[rows, :states] = lost.T
            if n > _TRIMMED:
                # A state may be improbable: each is cut by its own measure. Ends that are lost in the noise of a
                # transform stay: they may be all that a rare state of some vertex below has.
                kept = (values > ar.keep * values.max(axis=1, keepdims=True)).any(axis=0)
                first, last = _window(kept | self.transformed[rows])
                first, last = np.maximum(first - _EXCLUDED, 0), np.minimum(last + _EXCLUDED, n)
                width = last - first
                count = np.arange(n)[:, None]
                outside = (count < first) | (count >= first + width)
                self.cut[rows, :states] = (values * outside).sum(1).T
        self.up.put(rows, values, low, first, width)


def _width_class(width: Ints) -> Ints:
    """Widths that are computed together: powers of two, and halfway between above 64."""
    fine = np.ceil(2.0 * np.log2(np.maximum(width, 1))).astype(np.int64)
    return np.where(width <= 64, 2 * ((fine + 1) // 2), fine)


def _window(keep: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """First kept count and the one behind the last kept, by row; one count where none is kept."""
    n = len(keep)
    some = keep.any(axis=0)
    first = np.where(some, keep.argmax(axis=0), 0)
    last = np.where(some, n - keep[::-1].argmax(axis=0), 1)
    return first, last
