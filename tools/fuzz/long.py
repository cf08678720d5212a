"""Long chains and paths with a count of everything: a recursion over labels and counts in extended logarithms.

Forward weights ``F_t(k, c)`` of the first t + 1 positions with count c and last label k, and backward weights
``B_t(k, c)`` of what follows them, the potential included: both have unlimited range, because they are kept as
logarithms. ``P(y_t = k) = sum_c F_t(k, c) B_t(k, c) / Z``. Cost O(T C K^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import REAL

from .binary import listed
from .compare import Report, close_log_partition, close_log_probs, close_logits, dominated
from .numbers import Source

INF = math.inf


def _log_sum(values: np.ndarray, axis: int) -> np.ndarray:
    top = values.max(axis=axis, keepdims=True)
    shift = np.where(np.isneginf(top), 0, top)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values - shift).sum(axis=axis)) + np.squeeze(shift, axis=axis)


@dataclass(frozen=True, eq=False)
class Recursion:
    """Log Z, log-marginals (T, K), log-probabilities of the count and of pairs of neighbours (T - 1, K, K)."""

    log_partition: float
    log_marginals: np.ndarray
    count_log_probs: np.ndarray
    log_pairs: np.ndarray


def recursion(unary: np.ndarray, transitions: np.ndarray, table: np.ndarray, counted: int = 1) -> Recursion:
    n, k = unary.shape
    u, w, f = unary.astype(REAL), transitions.astype(REAL), table.astype(REAL)

    def shifted(values: np.ndarray, by: int) -> np.ndarray:
        """What has one more in the count: (k, C) with the counted label moved."""
        out = values.copy()
        edge = np.full(1, -INF, REAL)
        moved = values[counted]
        out[counted] = np.concatenate([edge, moved[:-1]] if by > 0 else [moved[1:], edge])
        return out

    forward, backward = np.full((n, k, n + 1), -INF, REAL), np.full((n, k, n + 1), -INF, REAL)
    forward[0, :, 0] = u[0]
    forward[0] = shifted(forward[0], 1)
    for t in range(1, n):
        arrived = _log_sum(forward[t - 1][:, None, :] + w[t - 1][:, :, None], axis=0)
        forward[t] = shifted(arrived + u[t][:, None], 1)
    backward[n - 1] = f
    for t in range(n - 2, -1, -1):
        ahead = shifted(backward[t + 1] + u[t + 1][:, None], -1)
        backward[t] = _log_sum(w[t][:, :, None] + ahead[None], axis=1)
    counts = _log_sum(forward[n - 1], axis=0) + f
    log_z = _log_sum(counts, axis=0)
    marginals = _log_sum(forward + backward, axis=2) - log_z
    pairs = np.full((max(n - 1, 0), k, k), -INF, REAL)
    for t in range(n - 1):
        ahead = shifted(backward[t + 1] + u[t + 1][:, None], -1)
        pairs[t] = _log_sum(forward[t][:, None, :] + w[t][:, :, None] + ahead[None], axis=2) - log_z
    return Recursion(float(log_z), *(np.asarray(a, float) for a in (marginals, counts - log_z, pairs)))


@dataclass(frozen=True, eq=False)
class LongCase:
    """A chain of labels, also asked as a count model on a path where there are two labels."""

    unary: np.ndarray
    transitions: np.ndarray
    table: np.ndarray
    as_path: bool

    def check(self, report: Report, rng: np.random.Generator) -> None:
        n = len(self.unary)
        truth = recursion(self.unary, self.transitions, self.table)
        report.tag = " (path)" * self.as_path
        model: Any
        if self.as_path:
            pairs = np.stack([np.arange(n - 1), np.arange(1, n)], -1)
            edges = tt.Forest(pairs, self.transitions)
            model = tt.CountModel(self.unary[:, 1] - self.unary[:, 0], self.table, edges=edges)
            constant = float(self.unary[:, 0].astype(REAL).sum())
        else:
            model, constant = tt.ChainModel(self.unary, self.transitions, tt.Group(None, self.table)), 0.0
        with report.answer("log_partition"):
            close_log_partition(model.log_partition + constant, truth.log_partition, constant)
        if report.raised:
            return
        want = truth.log_marginals
        with report.answer("marginals"):
            if self.as_path:
                close_logits(model.posterior_logits, want[:, 1] - want[:, 0])
            else:
                close_logits(model.log_marginals, want)
        with report.answer("count_log_probs"):
            close_log_probs(model.count_log_probs(), truth.count_log_probs)
        with report.answer("edge_marginals"):
            error = np.abs(model.edge_marginals - np.exp(truth.log_pairs)).max(initial=0.0)
            assert error < 1e-8, f"off by {error:.2g}"
        with report.answer("error_bound"):
            seen = np.isfinite(want[:, :2]).all(1)
            exact = want[seen, 1] - want[seen, 0]
            if self.as_path:
                got = model.posterior_logits[seen]
            else:
                got = model.log_marginals[seen, 1] - model.log_marginals[seen, 0]
            rounding = 1e-14 * (1 + np.abs(exact).max(initial=0.0))
            dominated(np.abs(got - exact).max(initial=0.0), float(model.error_bound), rounding, "log-odds")
        self._draws(report, model, truth, int(rng.integers(2**31)))

    def _draws(self, report: Report, model: Any, truth: Recursion, seed: int) -> None:
        """Counts and single labels of samples by exact binomial tails."""
        from scipy.stats import binom

        with report.answer("sample"):
            number, tests = 200, truth.log_marginals.size + len(truth.count_log_probs)
            drawn = np.asarray(model.sample(number, rng=seed)).astype(int)
            counts = np.bincount((drawn == 1).sum(1), minlength=len(truth.count_log_probs))
            labels = (drawn[:, :, None] == np.arange(self.unary.shape[1])).sum(0)
            seen = np.concatenate([counts, labels.ravel()])
            logs = np.concatenate([truth.count_log_probs, truth.log_marginals.ravel()])
            impossible = (seen > 0) & np.isneginf(logs)
            assert not impossible.any(), "an impossible label or count was drawn"
            probs = np.minimum(np.exp(logs), 1.0)
            tails = np.minimum(binom.cdf(seen, number, probs), binom.sf(seen - 1, number, probs))
            p = float(2 * tails.min()) * tests
            assert p > 1e-10, f"samples do not follow the law: p = {p:.2g} of {number} draws"

    def code(self) -> str:
        return f"tt.ChainModel({listed(self.unary)}, {listed(self.transitions)}, tt.Group(None, {listed(self.table)}))"


def draw_long(rng: np.random.Generator) -> LongCase:
    k = int(rng.choice([2, 2, 2, 3]))
    n = int(rng.integers(20, 60 if rng.random() < 0.6 else 420))
    hidden = rng.integers(0, k, n)
    source = Source(rng, hidden)
    source.mask = 0.0
    scale = float(rng.choice([0.3, 1.0, 5.0, 50.0, 300.0]))
    unary = scale * rng.standard_normal((n, k))
    coupling = float(rng.choice([0.0, 0.5, 2.0, 30.0, 300.0]))
    transitions = coupling * rng.standard_normal((n - 1, k, k))
    if rng.random() < 0.3:
        holes = rng.random(transitions.shape) < 0.2
        holes[np.arange(n - 1), hidden[:-1], hidden[1:]] = False
        transitions[holes] = -INF
    table = source.table(n, int((hidden == 1).sum()))
    as_path = k == 2 and bool(rng.random() < 0.5)
    return LongCase(unary, transitions, table, as_path)
