"""Expected counts, and derivatives of all expectations along directions in the parameters.

A direction is v in the log-odds and h in the log-tables. The derivative of P(y_d = 1) along it is Cov(y_d, s) with
``s = v . y + sum h(count)``, and likewise for P(count): a Hessian of log Z times a vector. The matrix is symmetric, so
vector-Jacobian products of (marginals, counts) are the same thing. Errors are absolute: nothing here is a logarithm.

The compiled engine solves every component with a certificate; what it cannot certify, and everything where there is no
compiled engine, is left to array code.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from ...arrays import Float64, Ints
from ...structure.nested.count_tree import CountTree
from ...structure.nested.tree import TreeProgram
from .. import native, thresholds
from ..answer import Answer, Derivatives, posterior
from ..forest.tangent import Direction, log_derivatives, sums_over_sets, weighed
from ..ladder import TANGENT, TOLERANCE, climb
from ..problem import Models, Problem, Rows, without_edges
from . import infer, retilt, star
from .characteristic import flat_tangent
from .flat import SHARE, certain, core_of, far_apart, heaviest, spread, stretches, within
from .infer import gathered, parts_of, put

LEFT_OUT = 1e-17  # e^-39; windows leave out e^-42 on each side
# Array code: above this many variables a flat model is differentiated by its characteristic function
_LONG = 600


class _Part(NamedTuple):
    """What one component, or several of the same shape, contribute: (R, B, n), (B, T) if R is 0, and (R, B, T).

    ``bound`` (B,) is on the absolute error of every probability; 0 where these have relative accuracy.
    """

    marginals: Float64
    probs: Float64
    counts: Float64
    bound: Float64

    def patched(self, other: _Part, rows: Ints) -> _Part:
        """Answers of some models in the place of those that were not certified."""
        self.marginals[:, rows] = other.marginals
        self.bound[rows] = other.bound
        if len(self.probs):
            self.probs[rows] = other.probs
        if len(self.counts):
            self.counts[:, rows] = other.counts
        return self


def derivatives(
    problem: Problem, v: Float64, h: Float64 | None, *, counts: bool, solved: Answer | None = None
) -> Derivatives:
    """Derivatives of the expectations along v (R, B, D) and h (R, B, T); h None moves no table.

    Entries of v at infinite log-odds and of h at impossible counts have no effect; all others must be finite. `solved`
    is what inference found, if it did.
    """
    by_groups = None if solved is None else _star(problem, v, h, counts, solved)
    found = _assemble(problem, v, h, counts=counts) if by_groups is None else by_groups
    return Derivatives(found.marginals, found.counts if counts else None)


def count_probabilities(problem: Problem, solved: Answer | None = None) -> tuple[Float64, Float64]:
    """P(count) of every set, packed (B, T), to 1e-12 absolute, and a bound (B,) on the error of every number.

    The bound is 0 where all have relative accuracy. What lies outside the windows of the compiled engine is 0 and
    weighs less than :data:`LEFT_OUT` in all. `solved` is what inference found, if it did: its tilts serve here too.
    """
    found = solved.counts() if solved is not None and solved.counts is not None else None
    if found is None and solved is not None:
        part = _star(problem, np.zeros((0, *problem.nu.shape)), None, True, solved)
        if part is not None:
            return part.probs, part.bound
    if found is None:
        part = _assemble(problem, np.zeros((0, *problem.nu.shape)), None, counts=True)
        return part.probs, part.bound
    probs, bound = found
    left = np.flatnonzero(np.isinf(bound))
    if len(left):
        probs[left], bound[left] = count_probabilities(problem.take(left))
    return probs, bound


def _star(problem: Problem, v: Float64, h: Float64 | None, counts: bool, solved: Answer) -> _Part | None:
    """A few large groups and a total; None if the problem is none of these, or a model has no certificate."""
    shape = star.large_star(problem)
    if shape is None:
        return None
    batch, total = len(problem), problem.tables.shape[1]
    values = counts and not len(v)
    part = _Batch(problem.nu, problem.tables, v, h, counts).nothing()
    finite = np.isfinite(problem.nu)
    for b in range(batch):
        model = star.StarModel(shape, problem.nu[b], problem.tables[b % len(problem.tables)], solved, b)
        if model.laws is None:
            return None
        part.bound[b] = model.laws.error
        if values:
            part.probs[b] = model.counts()
        for r in range(len(v)):
            moves = np.where(finite[b], v[r, b], 0.0)
            found = model.moved(moves, np.zeros(total) if h is None else h[r, b], counts=counts)
            if found is None:
                return None
            part.marginals[r, b] = found[0]
            if counts:
                part.counts[r, b] = found[1]
    return part


def _assemble(problem: Problem, v: Float64, h: Float64 | None, *, counts: bool) -> _Part:
    """Components one bucket at a time; variables without a group move by themselves."""
    nu, tables = problem.nu, problem.tables
    directions, batch = len(v), len(nu)
    finite = np.isfinite(nu)
    if not finite.all():
        v = np.where(finite, v, 0.0)
    parts = parts_of(problem.tree.components)
    if v.size and not v.item(0) and not v.any() and (h is None or not h.any()):  # nothing moves
        return _Batch(nu, tables, v, h, counts).nothing()
    if len(parts) == 1 and parts[0].whole and batch:
        return _solved(parts[0].program, _Batch(nu, tables, np.ascontiguousarray(v), h, counts))
    marginals = expit(nu) * expit(-nu) * v
    values = counts and directions == 0
    _, probs, moved, bound = _Batch(nu, tables, v, h, counts).nothing()
    for part in parts if batch else ():
        own = gathered(nu, part.variables), part.tables(tables, batch)
        move = gathered(v, part.variables), None if h is None else gathered(h, part.cells)
        found = _solved(part.program, _Batch(*own, *move, counts))
        put(marginals, part.variables, found.marginals)
        bound = np.maximum(bound, found.bound.reshape(batch, -1).max(1, initial=0.0))
        if values:
            put(probs, part.cells, found.probs)
        if counts:
            put(moved, part.cells, found.counts)
    return _Part(marginals, probs, moved, bound)


@dataclass(frozen=True, eq=False)
class _Batch(Models):
    """Models and directions of one component, or of several of the same shape."""

    nu: Float64  # (B, n)
    tables: Float64  # (1 or B, T)
    v: Float64  # (R, B, n)
    h: Float64 | None  # (R, B, T)
    counts: bool

    def take(self, rows: Ints) -> _Batch:
        """Some models."""
        h = None if self.h is None else self.h[:, rows]
        return _Batch(self.nu[rows], self._tables_of(rows), self.v[:, rows], h, self.counts)

    def nothing(self, bound: float = 0.0) -> _Part:
        """The answer where nothing moves, or with an infinite bound none."""
        models, directions, total = len(self), len(self.v), self.tables.shape[1]
        values = np.zeros((models if self.counts and not directions else 0, total))
        moved = np.zeros((directions if self.counts else 0, models, total))
        return _Part(np.zeros(self.v.shape), values, moved, np.full(models, bound))


def _solved(program: TreeProgram | None, batch: _Batch) -> _Part:
    """One component, or several standard models if there is no program."""
    if not native.present():
        return _array_flat(batch) if program is None else _array_nested(program, batch)
    if program is None:
        quadratic = lambda b: _climbed(_rungs(CountTree.flat(b.nu.shape[1]).program), b)  # noqa: E731
        quick = [_flat_rung, _level_rung, _without_decided]
        # Where no tilt serves all stretches, quick ways may look long for one.
        long = len(batch) > 0 and batch.nu.shape[1] > thresholds.SMALL_IN_LANES
        if long and thresholds.SPARSE * batch.nu.shape[1] < infer.glimpsed(batch.nu) < math.inf:
            quick = [_without_decided, _flat_rung, _level_rung]
        at = 0 if long and far_apart(spread(batch.nu[:1]), batch.tables[0]) else len(quick)
        return _climbed([*quick[:at], _by_stretches, *quick[at:], quadratic], batch)
    small = len(batch) >= thresholds.SIDE_BY_SIDE and program.n_leaves <= thresholds.SMALL_IN_LANES
    if small and batch.counts and not len(batch.v):
        return _climbed([partial(_side_by_side, program), *_rungs(program)], batch)
    return _climbed(_rungs(program), batch)


def _climbed(rungs: list[Callable[[_Batch], _Part]], batch: _Batch) -> _Part:
    """A bound is infinite or good enough."""
    return climb(rungs, batch, tolerance=sys.float_info.max)


def _rungs(program: TreeProgram) -> list[Callable[[_Batch], _Part]]:
    """Plain, under the posterior's tilt, by direct merges or cut to its counts, with an exponent for every number."""
    third = _cut_rung if program.n_leaves >= thresholds.CUT_WORTH else partial(_tree_rung, direct=True)

    def last(batch: _Batch) -> _Part:
        times, work = len(batch) * max(1, len(batch.v)), partial(_array_nested, program, batch)
        return infer.announced(program, times, TANGENT, "A derivative", work)

    return [*(partial(rung, program) for rung in (_tree_rung, _tilted_rung, third)), last]


def _flat_rung(batch: _Batch) -> _Part:
    return _Part(*native.flat_tangent(batch.nu, batch.tables, batch.v, batch.h, batch.counts))


def _level_rung(batch: _Batch) -> _Part:
    """With the height of their tables taken off, on which no derivative depends."""
    rows, level = infer.lowered(Rows(batch.nu, batch.tables))
    return _flat_rung(replace(batch, tables=rows.tables)) if level.any() else batch.nothing(math.inf)


def _without_decided(batch: _Batch) -> _Part:
    """Models most of whose variables are decided, and do not move, one by one; no answer for the others."""
    part = batch.nothing(math.inf)
    for b in range(len(batch)):
        core = core_of(batch.nu[b], batch.tables[b % len(batch.tables)])
        if core is None:
            continue
        cells = core.counts()
        h = None if batch.h is None else np.ascontiguousarray(batch.h[:, b : b + 1, cells])
        v = np.ascontiguousarray(batch.v[:, b : b + 1, core.kept])
        found = _solved(None, _Batch(core.rows.nu, core.rows.tables, v, h, batch.counts))
        part.marginals[:, b, core.kept] = found.marginals[:, 0]
        part.bound[b] = found.bound[0] + SHARE
        if len(part.probs):
            part.probs[b, cells] = found.probs[0]
        if batch.counts and len(batch.v):
            part.counts[:, b, cells] = found.counts[:, 0]
    return part


def _side_by_side(program: TreeProgram, batch: _Batch) -> _Part:
    """Count probabilities of small models; they have relative accuracy wherever nothing underflows, hence no bound."""
    probs, bound = native.small_beliefs(program, batch.nu, batch.tables)
    return _Part(batch.v, probs, np.zeros((0, *probs.shape)), np.where(bound < math.inf, 0.0, bound))


def _tree_rung(program: TreeProgram, batch: _Batch, direct: bool = False, size: float = 0.0) -> _Part:
    found = native.tree_tangent(program, batch.nu, batch.tables, batch.v, batch.h, batch.counts, direct, size)
    return _Part(*found)


def _tilted_rung(program: TreeProgram, batch: _Batch) -> _Part:
    """Under the tilt of the posterior; then along directions without what all variables have in common, too."""
    solution = infer.infer_program(program, batch.nu, batch.tables)
    odds = posterior(batch.nu, solution.messages)
    level = retilt.near_means(program, batch.tables, odds)
    nu, tables = retilt.at_posterior(program, batch.nu, batch.tables, odds, solution.messages, level)
    tilted = replace(batch, nu=nu, tables=tables, v=np.where(np.isfinite(nu), batch.v, 0.0))
    part = _tree_rung(program, tilted)
    if not np.isinf(part.bound).any() or not len(batch.v) or not retilt.serves(program):
        return part
    centred = _centred(program, tilted, odds)
    assert centred.h is not None
    if not centred.v.any() and not centred.h.any():
        return batch.nothing()
    again = _tree_rung(program, centred, size=float(np.abs(batch.v).max(-1).min()))
    better = np.flatnonzero(again.bound < part.bound)
    return part.patched(
        _Part(again.marginals[:, better], again.probs, again.counts[:, better], again.bound[better]), better
    )


def _cut_rung(program: TreeProgram, batch: _Batch) -> _Part:
    """Only with the counts and states that matter, each set under a tilt of its own."""
    part = batch.nothing(math.inf)
    if not len(batch.v):
        beliefs = infer.program_log_beliefs(program, batch.nu, batch.tables)
        return part._replace(probs=_normalised(beliefs, program), bound=np.zeros(len(batch)))
    for b in range(len(batch)):
        rows = np.array([b])
        part = part.patched(_by_modes(program, batch.take(rows)), rows)
    return part


class _Cut(NamedTuple):
    """One model cut to what its posterior makes possible: marginals (n,), count probabilities (T,), derivatives."""

    marginals: Float64
    probs: Float64
    batch: _Batch
    part: _Part

    def surer(self, program: TreeProgram) -> _Cut:
        """By direct merges, if transforms lose too much."""
        if self.part.bound[0] < math.inf:
            return self
        return self._replace(part=_tree_rung(program, self.batch, direct=True))


def _cut(program: TreeProgram, one: _Batch) -> _Cut:
    solution = infer.program_beliefs(program, one.nu, one.tables)
    beliefs = np.asarray(solution.log_beliefs)
    nu, tables = retilt.around_posterior(program, one.nu, one.tables, solution.messages, beliefs)
    v, possible = np.where(np.isfinite(nu), one.v, 0.0), tables[0] > -math.inf
    open_sets = np.add.reduceat(possible, program.set_offset[:-1], dtype=np.int64) > 1
    moves = possible & np.repeat(open_sets, np.diff(program.set_offset))
    still = not v.any() and (one.h is None or not one.h[..., moves].any())
    batch = replace(one, nu=nu, tables=tables, v=v)
    part = one.nothing() if still else _tree_rung(program, batch)
    marginals = expit(posterior(one.nu, solution.messages))
    return _Cut(marginals[0], _normalised(beliefs, program)[0], batch, part)


def _by_modes(program: TreeProgram, one: _Batch) -> _Part:
    """One model cut; where counts of all variables lie in a few places far apart, place by place.

    A covariance is the mean of those of the places and the covariance of their means.
    """
    whole = _cut(program, one)
    apart: list[tuple[int, int]] = []
    if whole.part.bound[0] == math.inf and retilt.serves(program):
        cells = retilt.outermost_cells(program)
        apart = stretches(whole.batch.tables[0, cells])
    if len(apart) < 2:
        return whole.surer(program).part
    found, shares = [], []
    for place in apart:
        tables = one.tables.copy()
        tables[:, cells] = [within(row, *place) for row in tables[:, cells]]
        found.append(_cut(program, replace(one, tables=tables)).surer(program))
        shares.append(whole.probs[cells][slice(*place)].sum())
    return _mixture(one, np.array(shares) / np.sum(shares), found)


def _by_stretches(batch: _Batch) -> _Part:
    """Standard models whose possible counts are a few stretches, stretch by stretch; no answer for the others."""
    part = batch.nothing(math.inf)
    for b in range(len(batch)):
        one = batch.take(np.array([b]))
        own = infer.stretch_answers(one.nu, one.tables[0])
        answers = [answer for _, answer in own]
        if own and certain(answers):
            heavy = [own[i] for i in heaviest(answers)]
            part = part.patched(_stretch_by_stretch(one, heavy), np.array([b]))
    return part


def _stretch_by_stretch(one: _Batch, own: list[tuple[Float64, Answer]]) -> _Part:
    found, answers = [], [answer for _, answer in own]
    for table, answer in own:
        part = replace(one, tables=table[None])
        probs = np.where(np.isneginf(part.tables), 0.0, 1.0)  # of one count
        if (one.counts or one.h is not None) and probs.sum() > 1.0:
            probs = _solved(None, replace(part, v=part.v[:0], h=None, counts=True)).probs
        moved = _solved(None, part) if len(part.v) else part.nothing()
        found.append(_Cut(expit(posterior(part.nu, answer.messages))[0], probs[0], part, moved))
    return _mixture(one, softmax([answer.log_mean[0] for answer in answers]), found)


def _mixture(one: _Batch, share: Float64, found: list[_Cut]) -> _Part:
    """One model from those of its places, with their shares of the weight."""
    part = one.nothing(max(cut.part.bound[0] for cut in found))
    if part.bound[0] == math.inf:
        return part
    mean = sum(w * cut.marginals for w, cut in zip(share, found))
    probs = sum(w * cut.probs for w, cut in zip(share, found))
    if len(part.probs):
        part.probs[0] = probs
    for w, cut in zip(share, found):
        away, other = cut.marginals - mean, cut.probs - probs
        moved = (one.v[:, 0] * away).sum(-1) + (0.0 if one.h is None else (one.h[:, 0] * other).sum(-1))
        part.marginals[:, 0] += w * (cut.part.marginals[:, 0] + away * moved[:, None])
        if one.counts:
            part.counts[:, 0] += w * (cut.part.counts[:, 0] + other * moved[:, None])
    return part


def _centred(program: TreeProgram, batch: _Batch, odds: Float64) -> _Batch:
    """Move what all log-odds have in common, a, to the table of the outermost set, as ``a (c - mean)``."""
    finite = np.isfinite(batch.nu)
    variance = np.where(finite, expit(odds) * expit(-odds), 0.0)
    weight = variance.sum(-1)
    shift = (batch.v * variance).sum(-1) / np.where(weight > 0.0, weight, 1.0)
    v = np.where(finite, batch.v - shift[..., None], 0.0)
    h = np.zeros((*batch.v.shape[:2], batch.tables.shape[1])) if batch.h is None else batch.h.copy()
    cells = retilt.outermost_cells(program)
    count = np.arange(program.n_leaves + 1.0) - np.round(np.nansum(expit(odds), -1))[:, None]
    h[..., cells] += np.where(batch.tables[:, cells] > -math.inf, shift[..., None] * count, 0.0)
    return replace(batch, v=v, h=h)


def _array_flat(batch: _Batch) -> _Part:
    """Long models by their characteristic function if it certifies all of them."""
    nu, tables, v, h, counts = batch.nu, batch.tables, batch.v, batch.h, batch.counts
    n = nu.shape[1]
    program = CountTree.flat(n).program
    if counts or n <= _LONG:
        return _array_nested(program, batch)
    still = np.zeros(n + 1)
    rows: list[Any] = []
    for r in range(len(v)):
        for b in range(len(nu)):
            pushed = still if h is None else h[r, b]
            rows.append(flat_tangent(nu[b], tables[b % len(tables)], v[r, b], pushed))
    if any(row is None for row in rows):
        return _array_nested(program, batch)
    change = np.reshape(np.asarray(rows, np.float64), v.shape)
    nothing = np.zeros((0, len(nu), n + 1))
    return _Part(_moved(_odds(program, nu, tables), change), nothing[:, 0], nothing, np.zeros(len(nu)))


def _array_nested(program: TreeProgram, batch: _Batch) -> _Part:
    """Both passes in log-space, where every number has an exponent of its own."""
    nu, tables, v, h, counts = batch.nu, batch.tables, batch.v, batch.h, batch.counts
    models, total = len(nu), tables.shape[1]
    rows = np.broadcast_to(tables, (models, total))
    problem = without_edges(program, nu, rows)
    probs, known = np.zeros((0, total)), None
    if counts:
        known = infer.program_beliefs(program, nu, tables)
        probs = _normalised(np.asarray(known.log_beliefs), program)
    certain = known is not None and np.all(known.bound <= TOLERANCE)
    odds = posterior(nu, known.messages) if known is not None and certain else _odds(program, nu, tables)
    on, off = expit(odds), expit(-odds)
    moved = np.zeros((len(v) if counts else 0, models, total))
    marginals, edge = np.empty(v.shape), np.zeros((models, 0, 2, 2))
    for r in range(len(v)):
        pushed = np.zeros((models, total)) if h is None else np.where(rows == -math.inf, 0.0, h[r])
        # Ratios are of the size of what they mean if a variable by itself has none on the average.
        leaf = np.stack([-on * v[r], off * v[r]], axis=-1)
        change = log_derivatives(problem, Direction(leaf, edge, pushed))
        marginals[r] = _moved(odds, change.leaf[..., 1] - change.leaf[..., 0])
        if counts:
            moved[r] = weighed(probs, change.tables, partial(sums_over_sets, program.set_offset))
    return _Part(marginals, probs, moved, np.zeros(models))


def _odds(program: TreeProgram, nu: Float64, tables: Float64) -> Float64:
    """Posterior log-odds (B, n)."""
    return posterior(nu, infer.infer_program(program, nu, tables).messages)


def _moved(odds: Float64, change: Float64) -> Float64:
    """D P(y = 1) from d log-odds; certain variables do not move."""
    with np.errstate(invalid="ignore"):
        return np.asarray(expit(odds) * expit(-odds) * np.where(np.isfinite(odds), change, 0.0))


def _normalised(log_probs: Float64, program: TreeProgram) -> Float64:
    """Probabilities of every set from log-probabilities that may be off by a common factor per set."""
    probs = np.exp(log_probs)
    starts = program.set_offset[:-1]
    totals = np.add.reduceat(probs, starts, axis=1) if len(starts) else np.zeros((len(probs), 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(probs / np.repeat(totals, np.diff(program.set_offset), axis=1))
