"""Configurations from the values of a program: exact samples, or the best one, by walking from the roots down.

Given the state of a cluster's boundary and its count, the states and counts of its operands are drawn from the terms of
the sum that made it. With the maxima of (max, +) in place of sums the largest term is taken instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import Float64, Ints
from ...structure.forest import clusters
from ...structure.forest.clusters import MATRIX
from .. import native
from ..answer import Answer
from ..arithmetic import ARITHMETICS, Direct, Fourier, LogSpace, MaxPlus, Wide
from ..problem import ForestProblem
from .ladder import SMALL
from .sum_product import reparametrised
from .tilts import tilted
from .values import Chunk, ForestValues

_CELLS = 1 << 22  # cells of states, or uniform numbers, kept at a time
_LONG = 1 << 16  # compiled: from here on transforms take less time than direct sums
_TERMS = 1 << 20  # terms weighed at a time


class Walk:
    """States and counts of all clusters for several configurations of every model of a batch."""

    def __init__(self, values: ForestValues, size: int, rng: np.random.Generator | None) -> None:
        self.values, self.size, self.rng = values, size, rng
        rows = values.batch * values.program.n_nodes
        self.state = np.zeros((size, rows), np.int32)
        self.count = np.zeros((size, rows), np.int32)

    def run(self) -> Ints:
        """States of the vertices, (size, B, D)."""
        values = self.values
        out = np.zeros((self.size, values.batch, values.program.n_variables), np.int64)
        for chunk in reversed(values.tape):
            op = chunk.step.op
            if op == clusters.LEAF:
                out[:, chunk.batch, values.program.ref[chunk.nodes]] = self.state[:, chunk.rows]
            elif op >= clusters.RAKE:
                self._product(chunk)
            elif op != clusters.ONES:
                self._single(chunk)
        return out

    def _pick(self, weights: Float64) -> Ints:
        """One term of every row (item, term)."""
        if isinstance(self.values.arithmetic, MaxPlus):
            return np.asarray(weights.argmax(axis=1))
        assert self.rng is not None
        if self.values.arithmetic.zero != 0.0:
            weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        total = np.cumsum(weights, axis=1)
        # A threshold in [0, total) and a strict comparison never pick a term of weight zero.
        threshold = self.rng.random(len(total)) * total[:, -1]
        return np.asarray(np.minimum((total <= threshold[:, None]).sum(axis=1), weights.shape[1] - 1))

    def _parts(self, chunk: Chunk, terms: int) -> Any:
        """Items (sample, position in the chunk), a bounded number at a time."""
        rows = len(chunk.rows)
        samples = np.repeat(np.arange(self.size), rows)
        place = np.tile(np.arange(rows), self.size)
        room = max(1, _TERMS // terms)
        for i in range(0, len(samples), room):
            yield samples[i : i + room], place[i : i + room]

    def _single(self, chunk: Chunk) -> None:
        values, step = self.values, chunk.step
        ar, program = values.arithmetic, values.program
        rows, a = values._operand(chunk, program.a, values._first_kind(step))
        low = values.up.low[rows]
        if step.op == clusters.TURN:
            p, q = np.divmod(self.state[:, chunk.rows], values.k)
            self.state[:, rows], self.count[:, rows] = q * values.k + p, self.count[:, chunk.rows]
            return
        if step.op == clusters.TABLE:
            f, _, collapse = values._potential(chunk, low, a.shape[1])
            self.state[:, rows] = self.state[:, chunk.rows]
            if not collapse:
                self.count[:, rows] = self.count[:, chunk.rows]
                return
            weighted = ar.times(a, f)
            for sample, place in self._parts(chunk, a.shape[1]):
                terms = weighted[self.state[sample, chunk.rows[place]], :, place]
                self.count[sample, rows[place]] = low[place] + self._pick(terms)
            return
        tables = values._edge_tables(chunk)[0] if step.op == clusters.THROUGH else None
        for sample, place in self._parts(chunk, values.k):
            z = self.count[sample, chunk.rows[place]]
            terms = a[:, z - low[place], place].T
            if tables is not None:
                terms = ar.times(terms, tables[self.state[sample, chunk.rows[place]], :, place])
            self.state[sample, rows[place]] = self._pick(terms)
            self.count[sample, rows[place]] = z

    def _product(self, chunk: Chunk) -> None:
        values, step, program = self.values, chunk.step, self.values.program
        a_rows, a = values._operand(chunk, program.a, values._first_kind(step))
        b_rows, b = values._operand(chunk, program.b, step.second)
        joined, _ = values._second(chunk, b)
        x, y = values._shape(chunk, a, joined)
        low_a, low_b = values.up.low[a_rows], values.up.low[b_rows]
        n_states, m, n = max(x.shape[1], y.shape[1]), x.shape[3], y.shape[3]
        short = min(m, n)
        steps = np.arange(short)
        for sample, place in self._parts(chunk, n_states * short):
            state = self.state[sample, chunk.rows[place]]
            z = self.count[sample, chunk.rows[place]] - low_a[place] - low_b[place]
            p, r = np.divmod(state, values.k) if step.kind == MATRIX else (state, np.zeros_like(state))
            # Counts i of the first operand and z - i of the second, the shorter one running.
            i = steps + np.zeros_like(z)[:, None] if m <= n else z[:, None] - steps
            j = z[:, None] - i
            inside = (i >= 0) & (i < m) & (j >= 0) & (j < n)
            q = np.arange(n_states)[:, None]
            terms = values.arithmetic.times(
                _entries(x, p, q, r, np.where(inside, i, 0), place),
                _entries(y, p, q, r, np.where(inside, j, 0), place),
            )
            terms = np.where(inside[:, None], terms, values.arithmetic.zero).reshape(len(z), -1)
            middle, run = np.divmod(self._pick(terms), short)
            z_a = np.take_along_axis(i, run[:, None], 1)[:, 0]
            self.count[sample, a_rows[place]] = z_a + low_a[place]
            self.count[sample, b_rows[place]] = z - z_a + low_b[place]
            first, second = self._operand_states(chunk, p, middle, r)
            self.state[sample, a_rows[place]] = first
            self.state[sample, b_rows[place]] = self._behind_edge(chunk, b, second, z - z_a, place)

    def _operand_states(self, chunk: Chunk, p: Ints, q: Ints, r: Ints) -> tuple[Ints, tuple[Ints, Ints]]:
        """State of the first operand, and (row, column) of the second with the edge's table in it."""
        k, op = self.values.k, chunk.step.op
        nothing = np.zeros_like(p)
        if op == clusters.RAKE:
            return p, (p, nothing)
        if op == clusters.HANG:
            return p, (p, r)
        if op == clusters.CLOSE:
            return p * k + q, (q, nothing)
        if op == clusters.COMPRESS:
            return p * k + q, (q, r)
        if op == clusters.OUTER:
            return p, (r, nothing)
        return (p * k + r if chunk.step.kind == MATRIX else p), (nothing, nothing)

    def _behind_edge(self, chunk: Chunk, b: Float64, second: tuple[Ints, Ints], z: Ints, place: Ints) -> Ints:
        """State of the second operand: across the edge the upper vertex's row becomes the lower one's."""
        values, step = self.values, chunk.step
        p, r = second
        if step.op not in (clusters.RAKE, clusters.HANG, clusters.CLOSE, clusters.COMPRESS):
            return p
        wide = step.op in (clusters.HANG, clusters.COMPRESS)
        if wide and step.second != MATRIX:
            return r  # the edge's table alone stands between the two vertices
        if bool((values.program.edge[chunk.nodes] < 0).all()):
            return p * values.k + r if wide else p
        tables, _ = values._edge_tables(chunk)
        square = b.reshape(values.k, -1, *b.shape[1:])
        terms = values.arithmetic.times(tables[p, :, place], square[:, r, z, place].T)
        lower = self._pick(terms)
        return lower * values.k + r if wide else lower


def _entries(x: Float64, p: Ints, q: Ints, r: Ints, count: Ints, row: Ints) -> Float64:
    """``x[p, q, r, count, row]`` as (item, q, count), axes of length one broadcast."""
    first = p[:, None, None] if x.shape[0] > 1 else 0
    middle = q if x.shape[1] > 1 else 0
    last = r[:, None, None] if x.shape[2] > 1 else 0
    found = x[first, middle, last, count[:, None, :], row[:, None, None]]
    return np.broadcast_to(found, (len(row), len(q), count.shape[1]))


@np.errstate(all="ignore")
def draw(problem: ForestProblem, answer: Answer, size: int, rng: np.random.Generator) -> Ints:
    """Exact joint samples, (size, B, D), from passes like those that gave the answer."""
    out = np.zeros((size, len(problem), problem.program.n_variables), np.int64)
    for number, certified in enumerate(ARITHMETICS):
        rows = np.flatnonzero(answer.arithmetic == number)
        if not len(rows):
            continue
        kind = Direct if certified is Fourier and problem.longest <= 16 * SMALL else certified
        part = problem.take(rows)
        room = max(1, _CELLS // max(1, len(rows) * problem.program.n_nodes))
        parts = [slice(i, min(i + room, size)) for i in range(0, size, room)]
        if native.present() and (kind is Wide or (kind.keep > 0.0 and problem.longest <= _LONG)):
            for some in parts:
                uniform = rng.random((len(rows), some.stop - some.start, problem.program.n_nodes))
                out[some, rows] = native.row_pass(part, answer.tilts[rows], uniform)
            continue
        if kind is not LogSpace:
            part = tilted(part, answer.tilts[rows])[0]
        if kind.keep > 0.0:
            part = reparametrised(part)[0]
        passes = ForestValues(part, kind())
        passes.upward()
        for some in parts:
            out[some, rows] = Walk(passes, some.stop - some.start, rng).run()
    return out
