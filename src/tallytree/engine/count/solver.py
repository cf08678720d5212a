"""The verbs for count problems without edges."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from scipy.special import expit

from ...arrays import Float64, Ints, States
from ...memo import answer, once
from .. import maximize, native, thresholds
from ..answer import Answer, Derivatives, posterior
from ..log_sums import accurate_sum, anchor
from ..pmf.log_pmf import log_pmf
from ..problem import Problem
from ..sample.sampler import Sampler
from ..solver import Solver
from . import derivatives, infer, information, moments, star


class CountSolver(Solver):
    """A batch of models of independent log-odds and tables on counts."""

    can: ClassVar[frozenset[str]] = frozenset({"ranked"})

    def __init__(self, problem: Problem, method: str = "auto") -> None:
        self.problem, self.method = problem, method

    @answer
    def sums(self) -> Answer:
        return infer.infer(self.problem, self.method, cavities=False)

    def log_norm(self) -> Float64:
        return self._norm[0]

    def error_bound(self) -> Float64:
        return np.asarray(self.sums.bound + self._norm[1])

    @answer
    def _norm(self) -> tuple[Float64, Float64]:
        """Log Z, (B,), and a bound on what it lost to large numbers that cancel, beyond the rounding of its size."""
        found, problem = self.sums, self.problem
        leaves = problem.log_leaves
        if leaves is None:
            softplus = moments.softplus_sum(problem.nu) if found.softplus is None else found.softplus
            leaves = softplus + problem.constant
        return infer.without_cancellation(problem, found, leaves, problem.constant)

    def log_prob(self, states: Ints) -> tuple[Float64, Float64]:
        """As probabilities of independent variables times potentials over the mean of these.

        That is right where the variables agree with their log-odds, however large these are.
        """
        problem, family = self.problem, self.problem.tree.family
        terms = [-accurate_sum(np.logaddexp(0.0, np.where(states == 1, -problem.nu, problem.nu)))]
        rows = np.arange(len(problem)) if len(problem.tables) > 1 else 0
        for s, offset in enumerate(family.set_offset[:-1].tolist()):
            members = problem.tree.groups[int(np.flatnonzero(family.set_of_group == s)[0])]
            terms.append(problem.tables[rows, offset + states[..., members].sum(-1)])
        terms.append(np.broadcast_to(-self.sums.log_mean, terms[0].shape))
        return sum(terms[1:], terms[0]), np.abs(terms).sum(0)

    def odds(self) -> Float64:
        return once(self, "odds", lambda: posterior(self.problem.nu, self.sums.messages))

    def cavities(self) -> Float64:
        if np.isinf(self.problem.nu).any():
            return np.asarray(infer.infer(self.problem, self.method).messages)
        return np.asarray(self.sums.messages)

    def marginals(self) -> Float64:
        found = self.sums
        if found.marginals is not None:
            known: Float64 = found.marginals()
            return known
        return native.posterior_marginals(self.problem.nu, found.messages)

    # -- counts ----------------------------------------------------------------------------------------------------

    def counts(self, set_id: int) -> Float64:
        tree, tables = self.problem.tree, self.problem.tables
        place = infer.flat_bucket_of(tree, set_id)
        if place is not None:
            bucket, row = place
            table = tables[:, bucket.cells[row]]
            if np.all((table > -math.inf).sum(-1) == 1) and self.sums.log_mean.min(initial=0.0) > -math.inf:
                # A possible model whose table allows one count has that count, whatever the log-odds.
                certain = np.where(table > -math.inf, 0.0, table)
                return np.array(np.broadcast_to(certain, (len(self.problem), table.shape[1])))
            prior = log_pmf(np.ascontiguousarray(self.problem.nu[:, bucket.variables[row]]))
            return _normalised(prior + table)
        root = infer.root_log_beliefs(self.problem, set_id)
        if root is not None:
            return _normalised(root)
        problem = self.problem
        packed = once(
            self, "beliefs", lambda: infer.program_log_beliefs(tree.program, problem.nu, problem.tables)
        )
        offset = tree.family.set_offset
        return _normalised(packed[:, offset[set_id] : offset[set_id + 1]])

    def entropy(self) -> Float64:
        return self.bounded_entropy()[0]

    def bounded_entropy(self) -> tuple[Float64, Float64]:
        """In nats, and an estimate of the error, (B,) each."""
        return once(self, "entropy", lambda: information.entropy_of(self))

    # -- draw ------------------------------------------------------------------------------------------------------

    @property
    def sampler(self) -> Sampler:
        return once(self, "sampler", lambda: Sampler(self.problem))

    def draw(self, count: int, rng: np.random.Generator) -> States:
        return self.sampler.draw(count, rng)

    def draw_active(self, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        return self.sampler.draw_active(count, rng)

    # -- best ------------------------------------------------------------------------------------------------------

    def best(self) -> tuple[States, Float64]:
        return maximize.mode(self.problem.tree, self.problem.nu, self.problem.tables)

    def max_marginals(self) -> Float64:
        return maximize.max_marginals(self.problem.tree, self.problem.nu, self.problem.tables)

    def max_counts(self, set_id: int) -> Float64:
        return maximize.max_count_values(self.problem.tree, self.problem.nu, self.problem.tables, set_id)

    def ranked(self, k: int) -> tuple[States, Float64]:
        """The k best configurations (B, k, D) and their log-weights (B, k), best first."""
        return maximize.ranked(self.problem.tree, self.problem.nu, self.problem.tables, k)

    # -- joint -----------------------------------------------------------------------------------------------------

    def _given_on(self, b: int, rows: Ints) -> Float64:
        """P(y_j = 1 | y_i = 1) of model b for every i in `rows`, (R, D); the events must be possible."""
        n = self.problem.nu.shape[1]
        out = np.empty((len(rows), n))
        step = max(1, thresholds.CONDITIONED // max(1, n))
        for start in range(0, len(rows), step):
            part = self.problem.given(b, rows[start : start + step], math.inf)
            found = infer.infer(part, cavities=False)
            out[start : start + step] = native.posterior_marginals(part.nu, found.messages)
        return out

    def joint(self, rows: Ints) -> Float64:
        odds = self.odds()
        own = odds[:, rows]
        out = np.zeros((*own.shape, odds.shape[1]))
        for b in range(len(own)):
            alive = np.flatnonzero(own[b] > -math.inf)
            out[b, alive] = expit(own[b, alive])[:, None] * self._given_on(b, rows[alive])
        out[:, np.arange(len(rows)), rows] = expit(own)
        return out

    def covariance(self, rows: Ints) -> Float64:
        """Derivatives along one log-odds each."""
        odds = self.odds()
        batch, n = odds.shape
        out = np.empty((batch, len(rows), n))
        step = max(1, thresholds.CONDITIONED // max(1, batch * n))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            v = np.zeros((len(part), batch, n))
            v[np.arange(len(part)), :, part] = 1.0
            out[:, start : start + step] = np.moveaxis(self.tangent(v, None, counts=False).marginals, 0, 1)
        out[:, np.arange(len(rows)), rows] = expit(odds[:, rows]) * expit(-odds[:, rows])
        return out

    # -- tangent ---------------------------------------------------------------------------------------------------

    def expected_counts(self) -> Float64:
        return derivatives.count_probabilities(self.problem, self.sums)[0]

    def tangent(self, v: Float64, h: Float64 | None, *, counts: bool) -> Derivatives:
        solved = self.sums if star.large_star(self.problem) is not None else None
        return derivatives.derivatives(self.problem, v, h, counts=counts, solved=solved)


def _normalised(log_weights: Float64) -> Float64:
    below = log_weights - anchor(log_weights)
    return np.asarray(below - np.log(np.exp(below).sum(-1, keepdims=True)))
