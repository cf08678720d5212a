"""Functions of a linear combination, and potentials on how many variables act, by enumeration in extended precision."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import REAL, all_states

from .binary import listed
from .compare import Report, close

INF = math.inf
_STEP = 0.25


def draw_weighted(rng: np.random.Generator) -> LinearCase | ThinnedCase:
    n = int(rng.integers(0, 8))
    logits = rng.choice([0.1, 1.0, 5.0, 60.0, 900.0]) * rng.normal(size=n)
    logits[rng.random(n) < 0.1] = rng.choice([INF, -INF])
    if rng.random() < 0.5:
        units = rng.integers(-4, 5, n) * int(rng.choice([1, 1, 3]))
        if not units.any():
            units[:1] = 1  # a step above all weights is refused
        table = rng.choice([0.0, 1.0, 30.0, 500.0]) * rng.normal(size=int(np.abs(units).sum()) + 1)
        table[rng.random(len(table)) < rng.choice([0.0, 0.3])] = -INF
        return LinearCase(logits, units, table)
    rates = np.where(rng.random(n) < 0.2, rng.choice([0.0, 1.0, 1e-12]), rng.random(n))
    leak = float(rng.choice([0.0, 1e-9, 0.2, 1.0]))
    table = rng.choice([0.0, 1.0, 30.0]) * rng.normal(size=n + 1 + (leak > 0))
    table[rng.random(len(table)) < rng.choice([0.0, 0.3])] = -INF
    return ThinnedCase(logits, rates, table, leak)


class Enumerated:
    """All states of a model with their log-weights; infinite logits weigh 1."""

    def __init__(self, logits: np.ndarray, log_f: Any) -> None:
        self.states = all_states((2,) * len(logits))
        with np.errstate(invalid="ignore"):
            allowed = np.where(np.isinf(logits), self.states == (logits > 0), True).all(1)
        score = self.states @ np.where(np.isinf(logits), 0.0, logits).astype(REAL)
        self.logs = np.where(allowed, score + log_f(self.states), -INF)
        top = self.logs.max()
        self.possible = bool(top > -INF)
        if self.possible:
            with np.errstate(divide="ignore"):
                self.total = top + np.log(np.exp(self.logs - top).sum())
                self.probs = np.exp(self.logs - self.total)

    def log_sum(self, chosen: np.ndarray) -> Any:
        if not (chosen & (self.logs > -INF)).any():
            return REAL(-INF)
        top = self.logs[chosen].max()
        return top + np.log(np.exp(self.logs[chosen] - top).sum())

    def odds(self, v: int) -> float:
        on, off = (self.log_sum(self.states[:, v] == value) for value in (1, 0))
        return float(on - off)


def check_shared(
    model: Any, truth: Enumerated, size: float, report: Report, rng: np.random.Generator
) -> None:
    """Answers that both kinds have; `size` is that of the numbers they are made of."""
    if not truth.possible:
        with report.answer("impossible"):
            try:
                found = model.log_partition
            except tt.InfeasibleError:
                return
            raise AssertionError(f"log_partition {found} of an impossible model")
        return
    with report.answer("log_partition"):
        close(model.log_partition, float(truth.total), 1e-10 + 1e-12 * size)
    want = np.array([truth.odds(v) for v in range(truth.states.shape[1])])
    with report.answer("posterior_logits"):
        close(
            model.posterior_logits,
            want,
            1e-9 + 1e-10 * np.abs(np.where(np.isinf(want), 0.0, want)) + 1e-12 * size,
        )
    with report.answer("log_prob"):
        close(model.log_prob(truth.states), (truth.logs - truth.total).astype(float), 1e-9 + 1e-12 * size)
    with report.answer("sample"):
        drawn = model.sample(64, rng=int(rng.integers(2**31)))
        at = drawn @ 2 ** np.arange(drawn.shape[-1])[::-1]
        order = np.argsort(truth.states @ 2 ** np.arange(drawn.shape[-1])[::-1])
        assert (truth.logs[order][at] > -INF).all(), "an impossible configuration was drawn"
    with report.answer("pickle"):
        assert pickle.loads(pickle.dumps(model)) == model


@dataclass(frozen=True, eq=False)
class LinearCase:
    """Log-odds, weights in steps of the grid, and log f at every point of it."""

    logits: np.ndarray
    units: np.ndarray
    table: np.ndarray

    def check(self, report: Report, rng: np.random.Generator) -> None:
        low = int(self.units[self.units < 0].sum())
        truth = Enumerated(self.logits, lambda y: self.table.astype(REAL)[y @ self.units - low])
        model = tt.LinearModel(self.logits, _STEP * self.units, self.table, step=_STEP)
        size = float(np.abs(self.logits[np.isfinite(self.logits)]).sum())
        size += float(np.abs(self.table[np.isfinite(self.table)]).max(initial=0.0))
        check_shared(model, truth, size, report, rng)
        if not truth.possible:
            return
        with report.answer("entropy"):
            p = truth.probs[truth.probs > 0]
            close(model.entropy, float(-(p * np.log(p)).sum()), 1e-9 + 1e-12 * size)
        with report.answer("mode"):
            at = np.flatnonzero((truth.states == model.mode()).all(1))[0]
            close(float(truth.logs[at]), float(truth.logs.max()), 1e-12 * (1.0 + size))
        with report.answer("sum_log_probs"):
            sums = truth.states @ self.units - low
            want = [float(truth.log_sum(sums == s) - truth.total) for s in range(len(self.table))]
            close(model.sum_log_probs, want, 1e-9 + 1e-12 * size)

    def code(self) -> str:
        weights = f"{_STEP} * {listed(self.units)}"
        return f"tt.LinearModel({listed(self.logits)}, {weights}, {listed(self.table)}, step={_STEP})"

    def simpler(self) -> list[LinearCase]:
        return []

    def numbers(self) -> list[np.ndarray]:
        return [self.logits, self.table]

    def with_numbers(self, numbers: list[np.ndarray]) -> LinearCase:
        return replace(self, logits=numbers[0], table=numbers[1])


@dataclass(frozen=True, eq=False)
class ThinnedCase:
    """Log-odds, rates, log f of the number that acts, and the leak."""

    logits: np.ndarray
    rates: np.ndarray
    table: np.ndarray
    leak: float

    def log_mean(self, states: np.ndarray) -> np.ndarray:
        """Log E[f] given which variables are on: the law of the number that acts, one variable after the other."""
        out = np.full(len(states), -INF, REAL)
        for i, y in enumerate(states):
            law = np.array([1.0], REAL)
            rates = [*self.rates[y == 1], *([self.leak] if self.leak > 0 else [])]
            for rate in rates:
                law = np.append(law * (1 - REAL(rate)), 0) + np.append(REAL(0), law * REAL(rate))
            log_f = self.table[: len(law)].astype(REAL)
            able = (law > 0) & (log_f > -INF)
            if able.any():
                top = log_f[able].max()
                out[i] = top + np.log((law[able] * np.exp(log_f[able] - top)).sum())
        return out

    def check(self, report: Report, rng: np.random.Generator) -> None:
        truth = Enumerated(self.logits, self.log_mean)
        model = tt.ThinnedModel(self.logits, self.rates, self.table, leak=self.leak)
        size = float(np.abs(self.logits[np.isfinite(self.logits)]).sum())
        size += float(np.abs(self.table[np.isfinite(self.table)]).max(initial=0.0))
        check_shared(model, truth, size, report, rng)

    def code(self) -> str:
        return f"tt.ThinnedModel({listed(self.logits)}, {listed(self.rates)}, {listed(self.table)}, leak={self.leak!r})"

    def simpler(self) -> list[ThinnedCase]:
        return []

    def numbers(self) -> list[np.ndarray]:
        return [self.logits, self.table]

    def with_numbers(self, numbers: list[np.ndarray]) -> ThinnedCase:
        return replace(self, logits=numbers[0], table=numbers[1])
