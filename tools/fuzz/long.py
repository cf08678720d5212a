"""Long chains and paths with a count of everything: a recursion over labels and counts in numbers of unlimited range.

Forward weights ``F_t(k, c)`` of the first t + 1 positions with count c and last label k, and backward weights
``B_t(k, c)`` of what follows them, the potential included; both as extended mantissas with integer exponents, so that
no product vanishes. ``P(y_t = k) = sum_c F_t(k, c) B_t(k, c) / Z``. Cost O(T C K^2). A case is a lot of chains of one
length, asked as a batch; every other one by transforms where they can be certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy as np

import tallytree as tt
from oracle_nested import NIL, Wide, normal, wide_exp, wide_log
from oracle_states import REAL
from tallytree.engine.forest import ladder

from .binary import listed
from .compare import Report, close_log_partition, close_log_probs, close_logits
from .law import p_value
from .numbers import Source

INF = math.inf
LOT = 32
CELLS = 1 << 20  # of a table of forward weights


def total(values: Wide, axis: int) -> Wide:
    """Sums of non-negative terms, each at the exponent of its largest one."""
    top = values.exponent.max(axis=axis, keepdims=True)
    down = np.maximum(values.exponent - top, -16000)
    return normal(np.ldexp(values.mantissa, down).sum(axis=axis), np.squeeze(top, axis))


def product(a: Wide, b: Wide) -> Wide:
    """Without bringing the mantissas back to [1/2, 1): sums do that."""
    return Wide(a.mantissa * b.mantissa, a.exponent + b.exponent)


def cut(values: Wide, *at: Any) -> Wide:
    return Wide(values.mantissa[at], values.exponent[at])


@dataclass(frozen=True, eq=False)
class Recursion:
    """Of every chain: log Z, log-marginals (T, K), log-probabilities of the count and of neighbours (T - 1, K, K)."""

    log_partition: np.ndarray
    log_marginals: np.ndarray
    count_log_probs: np.ndarray
    log_pairs: np.ndarray


def recursion(unary: np.ndarray, transitions: np.ndarray, table: np.ndarray, counted: int = 1) -> Recursion:
    """Chains (B, T, K), (B, T - 1, K, K), (B, T + 1)."""
    batch, n, k = unary.shape
    u, w, f = (wide_exp(a) for a in (unary, transitions, table))
    empty = Wide(np.zeros((n, batch, k, n + 1), REAL), np.full((n, batch, k, n + 1), NIL))
    forward, backward = empty, Wide(empty.mantissa.copy(), empty.exponent.copy())

    def moved(values: Wide, by: int) -> Wide:
        """The counted label one count further up, or down."""
        out = Wide(values.mantissa.copy(), values.exponent.copy())
        to, origin = (slice(1, None), slice(None, -1)) if by > 0 else (slice(None, -1), slice(1, None))
        end = 0 if by > 0 else -1
        for target, source, nothing in zip(out, values, (0, NIL)):
            target[:, counted, to] = source[:, counted, origin]
            target[:, counted, end] = nothing
        return out

    def put(values: Wide, t: int, found: Wide) -> None:
        values.mantissa[t], values.exponent[t] = found

    first = Wide(empty.mantissa[0].copy(), empty.exponent[0].copy())
    first.mantissa[:, :, 0], first.exponent[:, :, 0] = cut(u, slice(None), 0)
    put(forward, 0, moved(first, 1))
    for t in range(1, n):
        # (B, from, to, c)
        steps = product(
            cut(forward, t - 1, slice(None), slice(None), None), cut(w, slice(None), t - 1, ..., None)
        )
        put(forward, t, moved(product(total(steps, 1), cut(u, slice(None), t, ..., None)), 1))
    put(backward, n - 1, Wide(*(np.broadcast_to(a[:, None], (batch, k, n + 1)) for a in f)))
    for t in range(n - 2, -1, -1):
        ahead = moved(product(cut(backward, t + 1), cut(u, slice(None), t + 1, ..., None)), -1)
        steps = product(cut(w, slice(None), t, ..., None), cut(ahead, slice(None), None))
        put(backward, t, total(steps, 2))
    counts = product(total(cut(forward, n - 1), 1), f)
    log_z = wide_log(total(counts, 1))
    marginals = wide_log(total(product(forward, backward), 3)).swapaxes(0, 1) - log_z[:, None, None]
    pairs = [_pairs(forward, backward, u, w, t, moved) for t in range(n - 1)]
    log_pairs = np.stack(pairs, 1) - log_z[:, None, None, None]
    found = (log_z, marginals, wide_log(counts) - log_z[:, None], log_pairs)
    return Recursion(*(np.asarray(a, float) for a in found))


def _pairs(forward: Wide, backward: Wide, u: Wide, w: Wide, t: int, moved: Any) -> np.ndarray:
    """(B, K, K) logarithms of the weights of two neighbours."""
    ahead = moved(product(cut(backward, t + 1), cut(u, slice(None), t + 1, ..., None)), -1)
    both = total(product(cut(forward, t, slice(None), slice(None), None), cut(ahead, slice(None), None)), 3)
    return wide_log(product(both, cut(w, slice(None), t)))


@dataclass(frozen=True, eq=False)
class LongCase:
    """Chains (B, T, K), (B, T - 1, K, K), (B, T + 1); or count models on a path, where there are two labels."""

    unary: np.ndarray
    transitions: np.ndarray
    table: np.ndarray
    as_path: bool

    @cached_property
    def truth(self) -> Recursion:
        """A few chains at a time, so that their tables stay small."""
        _, n, k = self.unary.shape
        step = max(1, CELLS // (n * (n + 1) * k))
        parts = [
            recursion(self.unary[s : s + step], self.transitions[s : s + step], self.table[s : s + step])
            for s in range(0, len(self.unary), step)
        ]
        return Recursion(*(np.concatenate(each) for each in zip(*(vars(p).values() for p in parts))))

    def model(self, rows: Any) -> Any:
        unary, transitions, table = self.unary[rows], self.transitions[rows], self.table[rows]
        if not self.as_path:
            return tt.ChainModel(unary, transitions, tt.Group(None, table))
        n = unary.shape[-2]
        pairs = np.stack([np.arange(n - 1), np.arange(1, n)], -1)
        edges = tt.Forest(pairs, transitions)
        return tt.CountModel(unary[..., 1], tt.Group(None, table), edges=edges)  # the other label weighs one

    def check(self, report: Report, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**31))
        by_transforms = bool(seed & 1)
        report.tag = " (path)" * self.as_path + " (transforms)" * by_transforms
        # Transforms come with thousands of variables, for which no truth can be had here: let them come sooner.
        small, long = (0, 0) if by_transforms else (ladder.SMALL, ladder.LONG)
        with patch.multiple(ladder, SMALL=small, LONG=long):
            self._checked(report, slice(None), seed)
            self._checked(report, seed % len(self.unary), seed)  # one of them on its own

    def _checked(self, report: Report, rows: Any, seed: int) -> None:
        model = self.model(rows)
        truth = Recursion(*(getattr(self.truth, name)[rows] for name in Recursion.__dataclass_fields__))
        with report.answer("log_partition"):
            close_log_partition(model.log_partition, truth.log_partition)
        if report.raised:
            return
        want = truth.log_marginals
        with report.answer("marginals"):
            if self.as_path:
                close_logits(model.posterior_logits, want[..., 1] - want[..., 0])
            else:
                close_logits(model.log_marginals, want)
        with report.answer("count_log_probs"):
            close_log_probs(model.count_log_probs(), truth.count_log_probs)
        with report.answer("edge_marginals"):
            error = np.abs(model.edge_marginals - np.exp(truth.log_pairs)).max(initial=0.0)
            assert error < 1e-8, f"off by {error:.2g}"
        with report.answer("error_bound"):
            seen = np.isfinite(want[..., :2]).all(-1)
            exact = np.where(seen, want[..., 1], 0.0) - np.where(seen, want[..., 0], 0.0)
            if self.as_path:
                got = np.where(seen, model.posterior_logits, 0.0)
            else:
                off, on = np.moveaxis(np.where(seen[..., None], model.log_marginals[..., :2], 0.0), -1, 0)
                got = on - off
            rounding = 1e-14 * (1 + np.abs(exact).max(axis=-1, initial=0.0))
            error = np.abs(got - exact).max(axis=-1, initial=0.0)
            report.dominated(error, np.asarray(model.error_bound), rounding, "log-odds")
        self._draws(report, model, truth, seed)

    def _draws(self, report: Report, model: Any, truth: Recursion, seed: int) -> None:
        """Counts and single labels of samples by exact binomial tails."""
        with report.answer("sample"):
            number, top = 60, truth.count_log_probs.shape[-1]
            drawn = np.asarray(model.sample(number, rng=seed)).astype(int)
            counts = ((drawn == 1).sum(-1)[..., None] == np.arange(top)).sum(0)
            labels = (drawn[..., None] == np.arange(self.unary.shape[-1])).sum(0)
            flat = (*labels.shape[:-2], -1)
            seen = np.concatenate([counts, labels.reshape(flat)], axis=-1)
            logs = np.concatenate([truth.count_log_probs, truth.log_marginals.reshape(flat)], axis=-1)
            impossible = (seen > 0) & np.isneginf(logs)
            assert not impossible.any(), "an impossible label or count was drawn"
            p = p_value(seen, np.minimum(np.exp(logs), 1.0), number).min()
            assert p > 1e-10, f"samples do not follow the law: p = {p:.2g} of {number} draws"

    def code(self) -> str:
        return f"tt.ChainModel({listed(self.unary)}, {listed(self.transitions)}, tt.Group(None, {listed(self.table)}))"


def draw_long(rng: np.random.Generator) -> LongCase:
    k = int(rng.choice([2, 2, 2, 3]))
    n = int(rng.integers(20, 60 if rng.random() < 0.95 else 420))
    as_path = k == 2 and bool(rng.random() < 0.5)
    unary, transitions, table = (np.array(p) for p in zip(*(_row(rng, n, k) for _ in range(LOT))))
    if as_path:
        unary[..., 0] = 0.0
    return LongCase(unary, transitions, table, as_path)


def _row(rng: np.random.Generator, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    hidden = rng.integers(0, k, n)
    in_order = bool(rng.random() < 0.15)  # labels never go back
    if in_order:
        hidden = np.sort(hidden)
    source = Source(rng, hidden)
    source.mask = 0.0
    unary = float(rng.choice([0.3, 1.0, 5.0, 50.0, 300.0])) * rng.standard_normal((n, k))
    transitions = float(rng.choice([0.0, 0.5, 2.0, 30.0, 300.0])) * rng.standard_normal((n - 1, k, k))
    if rng.random() < 0.3:
        holes = rng.random(transitions.shape) < 0.2
        holes[np.arange(n - 1), hidden[:-1], hidden[1:]] = False
        transitions[holes] = -INF
    if in_order:
        transitions[:, np.tri(k, k, -1, dtype=bool)] = -INF
    if rng.random() < 0.3:  # a few weights far from all others
        far = rng.integers(0, n, 5)
        unary[far, rng.integers(0, k, 5)] = 100.0 * rng.standard_cauchy(5)
    table = source.table(n, int((hidden == 1).sum()))
    if rng.random() < 0.15:
        table = rng.choice([1e-3, 0.1, 3.0]) * (np.arange(n + 1.0) - n / 3) ** 2
    return unary, transitions, table
