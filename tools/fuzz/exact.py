"""Where rounding shows: quantiles at levels that are attained, log-odds whose sum cancels, divergences of near models.

The truth is exact: rational arithmetic, sums without rounding, and formulas in which nothing cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np

import tallytree as tt
from oracle_states import REAL, all_states

from .binary import listed
from .compare import Report, close, close_log_partition

INF = math.inf
NEAR = 1e-9  # of a level: beyond it a quantile is that of the next value


@dataclass(frozen=True)
class QuantileCase:
    """A sum of independent variables whose probabilities are multiples of a power of two."""

    numerators: tuple[int, ...]
    bits: int
    weights: tuple[int, ...] | None

    def model(self) -> tt.PoissonBinomial:
        return tt.PoissonBinomial([a / 2**self.bits for a in self.numerators], weights=self.weights)

    @cached_property
    def law(self) -> tuple[list[int], list[int]]:
        """Every possible sum in rising order, and its probability in units of ``2 ** -(bits * n)``."""
        mass = {0: 1}
        for a, w in zip(self.numerators, self.weights or (1,) * len(self.numerators)):
            found = dict[int, int]()
            for k, m in mass.items():
                for to, share in ((k, 2**self.bits - a), (k + w, a)):
                    if share:
                        found[to] = found.get(to, 0) + m * share
            mass = found
        values = sorted(mass)
        return values, [mass[k] for k in values]

    @cached_property
    def quantiles(self) -> dict[str, tuple[list[float], list[int]]]:
        """Levels of `ppf` and `isf` with the right answers.

        At the level itself where a float is exactly it, and a little to the side where the next value begins, unless
        the one after that is reached within the step.
        """
        values, mass = self.law
        one = 2 ** (self.bits * len(self.numerators))
        found: dict[str, tuple[list[float], list[int]]] = {"ppf": ([], []), "isf": ([], [])}
        below = list(accumulate(mass))
        sides = {"ppf": (below, mass, 1), "isf": ([one - b for b in below], mass, -1)}
        for name, (levels, jumps, sign) in sides.items():
            asked, answers = found[name]
            for i, level in enumerate(levels):
                last = i + 1 == len(values)
                q = float(Fraction(level, one))
                if Fraction(q) == Fraction(level, one) and q > 0:
                    asked.append(q)
                    answers.append(values[i])
                if last or not 0 < q * (1 + sign * NEAR) < 1:
                    continue
                if jumps[i + 1] > level * Fraction(2 * NEAR):
                    asked.append(q * (1 + sign * NEAR))
                    answers.append(values[i + 1])
        return found

    def check(self, report: Report, rng: np.random.Generator) -> None:
        x, (values, mass) = self.model(), self.law
        for name, (levels, want) in self.quantiles.items():
            if levels:
                one = int(rng.integers(len(levels)))
                with report.answer(name):
                    close(getattr(x, name)(np.array(levels)), np.array(want), 0.0)
                    close(getattr(x, name)(levels[one]), want[one], 0.0)
        for name, of in (("ppf", "cdf"), ("isf", "sf")):
            with report.answer(f"{name} of {of}"):
                levels = np.asarray(getattr(x, of)(np.array(values)))
                inside = (levels > 0) & (
                    levels < 1
                )  # 0 and 1 are the ends, also where a level rounds to them
                close(getattr(x, name)(levels[inside]), np.array(values)[inside], 0.0)
        with report.answer("median"):
            want = next(k for k, level in zip(values, accumulate(mass)) if 2 * level >= sum(mass))
            close(x.median(), want, 0.0)

    def code(self) -> str:
        return (
            f"tt.PoissonBinomial(np.array({list(self.numerators)}) / 2**{self.bits}, weights={self.weights})"
        )


def draw_quantiles(rng: np.random.Generator) -> QuantileCase:
    """Small ones all of whose levels are floats, and fair coins, whose median is one."""
    if rng.random() < 0.1:
        return QuantileCase((1,) * int(rng.integers(1, 64)), 1, None)
    bits, n = int(rng.integers(1, 5)), int(rng.integers(1, 11))
    weights = tuple(int(w) for w in rng.integers(1, 8, n)) if rng.random() < 0.3 else None
    return QuantileCase(tuple(int(a) for a in rng.integers(0, 2**bits + 1, n)), bits, weights)


@dataclass(frozen=True, eq=False)
class CancellingCase:
    """Log-odds whose sum cancels; all but ``spare`` of them are on, in one set or in two."""

    theta: np.ndarray
    spare: int
    nested: bool

    def model(self) -> tt.CountModel:
        n = len(self.theta)
        half = [tt.Group(range(n // 2), tt.exactly(n // 2))] if self.nested and n > 1 else []
        return tt.CountModel(self.theta, [*half, tt.Group(None, tt.between(n - self.spare, n))])

    @property
    def log_partition(self) -> float:
        """The sum of all, and where one may be off the same without each of them."""
        total = REAL(math.fsum(self.theta.tolist()))
        free = self.theta[len(self.theta) // 2 if self.nested and len(self.theta) > 1 else 0 :]
        terms = np.array([total, *(total - free.astype(REAL) if self.spare else [])], REAL)
        return float(terms.max() + np.log(np.exp(terms - terms.max()).sum()))

    def check(self, report: Report, rng: np.random.Generator) -> None:
        model, want = self.model(), self.log_partition
        with report.answer("log_partition"):
            close_log_partition(model.log_partition, want)
        with report.answer("error_bound"):
            error = abs(float(model.log_partition) - want)
            report.dominated(error, model.error_bound, 1e-15 * abs(want), "log_partition")
        with report.answer("log_prob"):
            best = model.mode()
            weight = math.fsum(self.theta[np.asarray(best, bool)].tolist())
            found = float(model.log_prob(best))
            close(found, weight - want, 1e-10 * (1 + abs(want)))
            assert found <= 0, f"the log-probability of the mode is {found!r}"

    def code(self) -> str:
        half = f"tt.Group(range({len(self.theta) // 2}), ...), " * self.nested
        return f"tt.CountModel({listed(self.theta)}, [{half}all but {self.spare}])"


def draw_cancelling(rng: np.random.Generator) -> CancellingCase:
    """From 2 to 1000 variables, large ones rarely."""
    n = round(10 ** (0.3 + 2.7 * rng.beta(1, 2)))
    theta = 10 ** rng.uniform(0, 6) * rng.standard_normal(n)
    theta[-1] = -math.fsum(theta[:-1].tolist())
    if rng.random() < 0.3:
        theta[-1] += rng.standard_normal()
    return CancellingCase(rng.permutation(theta), int(rng.integers(2)), bool(rng.random() < 0.4))


@dataclass(frozen=True, eq=False)
class NearCase:
    """Two models that differ by little: log-odds and a table, and the steps to those of the other.

    Without a table exactly one of many variables is on, so that the states are as many as the variables.
    """

    theta: np.ndarray
    step: np.ndarray
    table: np.ndarray | None = None
    table_step: np.ndarray | None = None

    def model(self, moved: int) -> tt.CountModel:
        theta = self.theta + moved * self.step
        if self.table is None:
            return tt.CountModel(theta, tt.exactly(1))
        return tt.CountModel(theta, self.table + moved * self.table_step)

    @cached_property
    def states(self) -> tuple[np.ndarray, np.ndarray]:
        """Log-weights of the states, and by how much the other model moves them, from the numbers that it is given."""
        moved = (self.theta + self.step).astype(REAL) - self.theta
        if self.table is None:
            return self.theta.astype(REAL), moved
        states = all_states((2,) * len(self.theta))
        counts = states.sum(1)
        lifted = (self.table + self.table_step).astype(REAL) - self.table
        return states @ self.theta.astype(REAL) + self.table[counts], states @ moved + lifted[counts]

    @cached_property
    def divergence(self) -> float:
        """KL as the mean of exp(r) - 1 - r, where r = log(q / p): the logarithms of the sums never meet."""
        logs, moved = self.states
        p = np.exp(logs - logs.max())
        p /= p.sum()
        r = moved - np.log1p((p * np.expm1(moved)).sum())
        small = r * r * (1 + r / 3 * (1 + r / 4 * (1 + r / 5 * (1 + r / 6)))) / 2
        return float((p * np.where(np.abs(r) < 1e-2, small, np.expm1(r) - r)).sum())

    @cached_property
    def entropy(self) -> float:
        """That of the first model; the most probable state is the rest's complement."""
        logs = np.sort(self.states[0])[::-1]
        rest = np.exp(logs[1:] - logs[0])
        total = np.log1p(rest.sum())
        return float(total + (rest * (logs[0] - logs[1:])).sum() / (1 + rest.sum()))

    def check(self, report: Report, rng: np.random.Generator) -> None:
        one, other = self.model(0), self.model(1)
        with report.answer("kl_divergence"):
            close(one.kl_divergence(other), self.divergence, max(1e-9 * self.divergence, 1e-15))
        with report.answer("kl_divergence of itself"):
            close(one.kl_divergence(self.model(0)), 0.0, 1e-15)
        with report.answer("entropy"):
            close(one.entropy, self.entropy, 1e-10 * (1 + self.entropy))

    def code(self) -> str:
        if len(self.theta) > 100:
            return f"exactly one of {len(self.theta)} variables"
        return f"NearCase({listed(self.theta)}, {listed(self.step)}, {listed(self.table)}, {listed(self.table_step)})"


def draw_near(rng: np.random.Generator) -> NearCase:
    """Small ones with any table, and now and then one beyond the sizes at which the method changes."""
    size = 10 ** rng.uniform(-9, -1)
    if rng.random() < 0.005:
        n = int(rng.choice([16_000, 17_000, 40_000]))
        if rng.random() < 0.5:
            theta = np.full(n, rng.uniform(-40, -5))
            theta[0] = 0.0
        else:
            theta = rng.standard_normal(n)
        return NearCase(theta, size * rng.standard_normal(n))
    n = int(rng.integers(1, 9))
    scale = rng.choice([0.1, 1.0, 10.0])
    return NearCase(
        scale * rng.standard_normal(n),
        size * rng.standard_normal(n),
        scale * rng.standard_normal(n + 1),
        size * rng.standard_normal(n + 1) * (rng.random() < 0.5),
    )
