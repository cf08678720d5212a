"""Assignments of up to twelve cells by enumeration: weights, decided cells, the best one, bounds, samples."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import sparse

import tallytree as tt
from oracle_states import Truth, all_states, truth_of_terms

from .binary import leaf_table, listed
from .compare import STANDS_FOR_INFINITY, Report, close, close_log_partition
from .graphs import COOLING, SLOWLY
from .law import p_value, tallied
from .numbers import Source
from .structures import tag_of

INF = math.inf
SHAPES = [(1, 1), (1, 4), (2, 2), (2, 3), (3, 2), (3, 3), (2, 4), (4, 2), (2, 5), (3, 4)]
# Shares of the assignments of which the procedures that take longest are asked.
TURNS = {"dual": 0.2, "propagation": 0.15, "bounds": 0.25, "sample": 0.1, "chains": 0.3}
EARLY, LATE = 2, 15  # sweeps of bounds, which hold however early one stops; the second for every tenth case


@dataclass(frozen=True, eq=False)
class AssignmentCase:
    """Affinities (I, J), a table per row and per column, forbidden cells."""

    affinity: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    forbidden: np.ndarray
    stored: bool  # as a sparse matrix of the cells that are not forbidden

    def problem(self) -> Any:
        if not self.stored:
            return tt.assignment(self.affinity, self.rows, self.columns, self.forbidden)
        at = np.nonzero(~self.forbidden)
        matrix = sparse.csr_array((self.affinity[at], at), shape=self.affinity.shape)
        return tt.assignment(matrix, self.rows, self.columns)

    @cached_property
    def truth(self) -> Truth:
        shape = self.affinity.shape
        states = all_states((2,) * self.affinity.size)
        grid = states.reshape(-1, *shape)
        theta = np.where(self.forbidden, -INF, self.affinity).ravel()
        terms = [self.rows[i][grid[:, i].sum(1)] for i in range(shape[0])]
        terms += [self.columns[j][grid[:, :, j].sum(1)] for j in range(shape[1])]
        return truth_of_terms(states, leaf_table(theta), terms)

    def settled_line_by_line(self) -> np.ndarray | None:
        """The only cells that remain when rows and columns exclude values in turns, or None where some stay open.

        Propagation sees one line at a time. Where a single assignment is possible for a reason of the whole, such as
        that rows and columns have one total, it may leave cells open and is not wrong.
        """
        may = np.ones((2, *self.affinity.shape), bool)  # may[y, i, j]: cell (i, j) can still be y
        may[1] = ~self.forbidden & ~np.isneginf(self.affinity)
        may[0] = ~np.isposinf(self.affinity)
        before = -1
        while may.sum() != before:
            before = may.sum()
            for lines, tables in ((may, self.rows), (may.transpose(0, 2, 1), self.columns)):
                for line, table in zip(lines.transpose(1, 0, 2), tables, strict=True):
                    patterns = all_states((2,) * line.shape[1])
                    allowed = line[patterns, np.arange(line.shape[1])].all(1)
                    kept = patterns[allowed & ~np.isneginf(table[patterns.sum(1)])]
                    line &= np.array([(kept == 0).any(0), (kept == 1).any(0)])
        return may[1].astype(float) if (may.sum(0) == 1).all() else None

    def check(self, report: Report, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**31))
        report.tag = tag_of(self.numbers())
        truth = self.truth
        try:
            problem = self.problem()
        except tt.InfeasibleError:
            with report.answer("feasibility"):
                assert not truth.possible, "InfeasibleError for a possible assignment"
            return
        if not truth.possible:
            with report.answer("impossible: mode"):
                try:
                    found = problem.mode()
                except tt.InfeasibleError:
                    return
                raise AssertionError(f"no InfeasibleError for an impossible assignment: {found!r}")
            return
        sizes = np.concatenate([np.ravel(a) for a in self.numbers()])
        sizes = np.abs(sizes[np.isfinite(sizes) & (np.abs(sizes) < STANDS_FOR_INFINITY)]).sum()
        slack = 1e-9 * (1 + sizes)
        decided(report, problem, truth)
        optimum(report, "mode", problem.mode, truth, slack)
        turn, sweeps = (
            str(rng.choice(list(TURNS), p=list(TURNS.values()))),
            LATE if rng.random() < 0.1 else EARLY,
        )
        if turn == "dual":
            ladder = COOLING if sweeps == EARLY else SLOWLY
            dual = partial(problem.dual_decomposition, max_iter=sweeps, temperatures=ladder)
            optimum(report, "dual_decomposition", dual, truth, slack)
        elif turn == "propagation":
            propagation(report, problem, self.settled_line_by_line(), sweeps)
        elif turn == "bounds":
            bounds(report, problem, truth, slack, sweeps)
        elif turn == "sample":
            sampled(report, problem, truth, seed, mild=sizes < 60)
        else:
            chains(report, problem, seed)

    def code(self) -> str:
        return (
            f"tt.assignment({listed(self.affinity)}, {listed(self.rows)}, {listed(self.columns)}, "
            f"np.array({self.forbidden.tolist()})){'  # as a sparse matrix' if self.stored else ''}"
        )

    def numbers(self) -> list[np.ndarray]:
        return [self.affinity, self.rows, self.columns]

    def with_numbers(self, numbers: list[np.ndarray]) -> AssignmentCase:
        return replace(self, affinity=numbers[0], rows=numbers[1], columns=numbers[2])

    def simpler(self) -> list[AssignmentCase]:
        return []


def dense(matrix: Any) -> np.ndarray:
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix)


def decided(report: Report, problem: Any, truth: Truth) -> None:
    shape = problem.shape
    with report.answer("log_weight"):
        pick = np.linspace(0, len(truth.states) - 1, 12).astype(int)
        found = np.array([problem.log_weight(truth.states[s].reshape(shape)) for s in pick])
        want, top = truth.logs[pick], truth.total.huge
        masked = (want.huge < top) & np.isneginf(found)  # what a mask excludes may count as impossible
        want = np.where(masked, -INF, want.values)
        close_log_partition(found, want, 1e4)
    with report.answer("decided"):
        alive = ~np.isneginf(truth.logs.small) & (truth.logs.huge == truth.total.huge)
        possible = truth.states[alive]  # without those that a mask excludes
        found = dense(problem.decided).ravel()
        assert (possible[:, found >= 0] == found[found >= 0]).all(), "a decided cell takes its other value"


def optimum(report: Report, name: str, call: Any, truth: Truth, slack: float) -> None:
    best = truth.max_log_weight
    with report.answer(name):
        found = call()
        weight = float(truth.logs.values[int(truth.index(dense(found.cells).astype(int).ravel()))])
        if found.log_weight > -INF:
            close(found.log_weight, weight, slack)
        assert found.upper_bound >= best - 1e-6 * (1 + abs(best)) - slack, (
            f"upper bound {found.upper_bound!r} of the best, {best!r}"
        )
        if name == "mode":
            assert weight >= best - 1e-6 * (1 + abs(best)) - slack, f"mode {weight!r}, the best {best!r}"


def propagation(report: Report, problem: Any, settled: np.ndarray | None, sweeps: int) -> None:
    with report.answer("loopy_bp"):
        found = problem.loopy_bp(max_iter=sweeps * 15)
        marginals = dense(found.marginals)
        assert not np.isnan(marginals).any(), "marginals are NaN"
        assert ((marginals >= 0) & (marginals <= 1)).all(), "marginals are no probabilities"
        if settled is not None:
            close(marginals, settled, 1e-9)


def bounds(report: Report, problem: Any, truth: Truth, slack: float, sweeps: int) -> None:
    log_z = truth.log_partition
    with report.answer("bounds"):
        found = problem.bounds(max_iter=sweeps)
        loose = 1e-6 * (1 + abs(log_z)) + slack
        assert found.lower <= log_z + loose, (
            f"lower bound {found.lower!r} of log Z = {log_z!r} ({found.why_lower})"
        )
        assert found.upper >= log_z - loose, f"upper bound {found.upper!r} of log Z = {log_z!r}"


def sampled(report: Report, problem: Any, truth: Truth, seed: int, mild: bool) -> None:
    """Samples are possible; where the chains mix quickly and warn of nothing, they follow the law."""
    with report.answer("sample"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            number = 200 if mild else 20
            drawn = problem.sample(number, rng=seed, chains=number, burn_in=30 if mild else 5, thin=1)
        states = np.array([dense(y).astype(int).ravel() for y in drawn])
        p = p_value(*tallied(states, truth, number), number)[0]
        if mild and not caught:
            assert p > 1e-12, f"samples do not follow the law: p = {p:.2g} of {number} draws"


def chains(report: Report, problem: Any, seed: int) -> None:
    with report.answer("gibbs_marginals"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = problem.gibbs_marginals(4, rng=seed, burn_in=1, chains=4)
        marginals = dense(found.marginals)
        assert not np.isnan(marginals).any(), "marginals are NaN"
        assert ((marginals >= -1e-12) & (marginals <= 1 + 1e-12)).all(), "marginals outside [0, 1]"


# ------------------------------------------------------------------------------------------------------ drawing


def draw_assignment(rng: np.random.Generator) -> AssignmentCase:
    shape = SHAPES[int(rng.choice(len(SHAPES)))]
    hidden = (rng.random(shape) < rng.choice([0.2, 0.4, 0.7])).astype(int)
    contradictions = bool(rng.random() < 0.1)
    source = Source(rng, hidden.ravel(), contradictions)
    source.calm = source.calm or bool(rng.random() < 0.4)
    kinds = rng.choice(4, 2)  # of the tables of rows and columns
    rows = np.array([_table(rng, source, kinds[0], shape[1], int(c)) for c in hidden.sum(1)])
    columns = np.array([_table(rng, source, kinds[1], shape[0], int(c)) for c in hidden.sum(0)])
    forbidden = (rng.random(shape) < rng.choice([0.0, 0.0, 0.3])) & (contradictions | (hidden == 0))
    affinity = source.logits().reshape(shape)
    return AssignmentCase(affinity, rows, columns, forbidden, bool(rng.random() < 0.2))


def _table(rng: np.random.Generator, source: Source, kind: int, n: int, count: int) -> np.ndarray:
    c = np.arange(n + 1)
    if kind == 0:
        return np.where(c == count, 0.0, -INF)
    if kind == 1:
        return np.where(c <= count, 0.0, -INF)
    if kind == 2:
        return np.where(c >= count, 0.0, -INF)
    return source.table(n, count)
