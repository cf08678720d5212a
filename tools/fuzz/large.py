"""Count models of up to 2000 variables: nested families of every shape, against a tree pass of unlimited range."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from accuracy_cases import CASES, accuracy_case
from case import Case
from families import SHAPES, random_family
from helpers import model_of
from oracle_nested import Answer, log_space_tree

from .compare import Report, close_log_partition, close_log_probs, close_logits, close_marginals
from .law import p_value
from .numbers import INF, Numbers, Source, size_between
from .structures import hidden_states

LARGEST = 2000
GROUPS = 3  # count distributions compared per model


@dataclass(frozen=True, eq=False)
class LargeCase:
    data: Case

    @cached_property
    def truth(self) -> Answer:
        return log_space_tree(self.data.theta, self.data.sets)

    def check(self, report: Report, rng: np.random.Generator) -> None:
        data, model = self.data, model_of(self.data)
        truth = self.truth
        odds = np.asarray(truth.posterior_logits, float)
        with report.answer("log_partition"):
            close_log_partition(model.log_partition, truth.log_partition)
        if report.raised:
            return
        with report.answer("posterior_logits"):
            close_logits(model.posterior_logits, odds)
        with report.answer("marginals"):
            close_marginals(model.marginals, odds)
        step = max(1, len(data.sets) // GROUPS)
        for group in [None, *range(0, len(data.sets), step)][: GROUPS + 1]:
            with report.answer("count_log_probs"):
                close_log_probs(model.count_log_probs(group), truth.count_log_probs(group))
        with report.answer("error_bound"):
            self._certified(report, model, odds)
        with report.answer("cavity_logits"):
            assert not np.isnan(model.cavity_logits).any(), "NaN"
        with report.answer("mode"):
            weight = model.log_prob(model.mode()) + model.log_partition
            assert weight >= model.max_log_weight - 1e-9 * (1 + abs(weight)), (
                f"{weight!r}, {model.max_log_weight!r}"
            )
        self._draws(report, model, odds, int(rng.integers(2**31)))

    def _certified(self, report: Report, model: Any, odds: np.ndarray) -> None:
        """The bound covers the error, up to the rounding of what was given and is returned."""
        data, bound = self.data, float(model.error_bound)
        got, finite = model.posterior_logits, np.isfinite(odds)
        assert np.isfinite(got[finite]).all(), "infinite log-odds where finite ones are right"
        given = [data.theta, odds, *(table for _, table in data.sets)]
        largest = max(np.abs(values[np.isfinite(values)]).max(initial=0.0) for values in given)
        report.dominated(
            np.abs(got[finite] - odds[finite]).max(initial=0.0), bound, 4e-16 * largest, "log-odds"
        )
        terms = np.logaddexp(0, data.theta[np.isfinite(data.theta)]).sum()
        terms += sum(abs(np.max(table)) for _, table in data.sets)
        log_z = self.truth.log_partition
        error = abs(float(model.log_partition) - log_z)
        report.dominated(error, bound, 1e-14 * (1 + abs(log_z) + terms), "log Z")

    def _draws(self, report: Report, model: Any, odds: np.ndarray, seed: int) -> None:
        """The count of everything and single variables of samples, by exact binomial tails."""
        with report.answer("sample"):
            number = 100
            drawn = np.asarray(model.sample(number, rng=seed)).astype(int)
            logs = np.asarray(self.truth.count_log_probs(None), float)
            counts = np.bincount(drawn.sum(1), minlength=len(logs))
            assert not ((counts > 0) & np.isneginf(logs)).any(), "an impossible count was drawn"
            sums = drawn.sum(0)
            assert (sums[odds == -INF] == 0).all(), "an excluded variable was drawn"
            assert (sums[odds == INF] == number).all(), "a forced variable was not drawn"
            probs = np.minimum(np.concatenate([np.exp(logs), np.exp(-np.logaddexp(0, -odds))]), 1.0)
            seen = np.concatenate([counts, sums])
            p = float(p_value(seen[None], probs[None], number)[0])
            assert p > 1e-10, f"samples do not follow the law: p = {p:.2g} of {number} draws"

    def code(self) -> str:
        return repr(self.data)


# ---------------------------------------------------------------------------------------------------- drawing


def draw_large(rng: np.random.Generator) -> LargeCase:
    kind = str(rng.choice(["named", "medium", "large", "huge", "grouped"], p=[0.25, 0.55, 0.14, 0.01, 0.05]))
    if kind == "named":
        return LargeCase(accuracy_case(str(rng.choice(CASES)), size_between(rng, 2, 300)))
    if kind == "grouped":
        return LargeCase(grouped(rng))
    low, high = {"medium": (13, 100), "large": (101, 500), "huge": (501, LARGEST)}[kind]
    size = size_between(rng, low, high)
    source = Source(rng, hidden_states(rng, size))
    source.mask = 0.0
    sets = tuple((m, source.table(len(m), int(source.hidden[list(m)].sum()))) for m in family_of(rng, size))
    return LargeCase(Case(source.logits(), sets, kind))


def family_of(rng: np.random.Generator, size: int) -> list[tuple[int, ...]]:
    """A nested family; one potential over everything more often than any other."""
    if rng.random() < 0.35:
        return [tuple(range(size))]
    order = rng.permutation(size).tolist()
    # Long caterpillars hold D^2 / 2 numbers: beyond 150 variables prefixes stand for them.
    shapes = [s for s in SHAPES if size <= 150 or s not in ("caterpillar", "chain")]
    shape = str(rng.choice(["prefixes", "blocks", *shapes]))
    if shape == "prefixes":
        return [tuple(order[:n]) for n in np.unique(rng.integers(1, size + 1, min(size, 12)))]
    if shape == "blocks":
        step = int(rng.integers(1, size + 1))
        found = [tuple(order[a : a + step]) for a in range(0, size, step)]
        return found + ([tuple(order)] if rng.random() < 0.7 else [])
    return random_family(rng, size, shape)


def grouped(rng: np.random.Generator) -> Case:
    """Groups large or numerous enough for characteristic functions, with numbers that do not rule these out."""
    size = size_between(rng, 300, LARGEST)
    step = size_between(rng, 256, 900) if rng.random() < 0.5 else size_between(rng, 2, 40)
    order = (rng.permutation(size) if rng.random() < 0.3 else np.arange(size)).tolist()
    loose = int(rng.integers(0, size // 2)) if rng.random() < 0.4 else 0
    family = [tuple(order[a : a + step]) for a in range(0, size - loose, step)]
    family += [tuple(range(size))] if rng.random() < 0.9 else []
    theta = rng.choice([0.1, 1.0, 1.0, 5.0]) * rng.standard_normal(size) + rng.choice([-6.0, -1.0, 0.0, 2.0])
    theta[rng.random(size) < rng.choice([0.0, 0.0, 0.01])] = rng.choice([-30.0, 25.0, INF, -INF])
    few = rng.choice(len(SMOOTH), 2)
    probs = np.where(np.isfinite(theta), 1 / (1 + np.exp(-np.clip(theta, -50, 50))), theta > 0)
    hidden = rng.random(size) < probs
    tables = []
    for members in family:
        table = np.array(SMOOTH[rng.choice(few)](len(members), rng), float)
        count = hidden[list(members)].sum()
        table[count] = max(table[count], 0.0)  # this assignment stays possible
        tables.append(table)
    return Case(theta, tuple(zip(family, tables)), "grouped")


SMOOTH: list[Numbers] = [
    lambda n, rng: rng.choice([0.0, 1.0, 3.0]) * rng.standard_normal(n + 1),
    lambda n, rng: -0.5 * ((np.arange(n + 1) - rng.uniform(0, n)) / rng.uniform(0.3, 1 + n)) ** 2,
    lambda n, rng: np.where(np.arange(n + 1) % 2 == 0, 0.0, rng.choice([-1.0, -INF])),
    lambda n, rng: np.where(np.arange(n + 1) <= rng.integers(n + 1), 0.0, -INF),
    lambda n, rng: np.where(np.arange(n + 1) >= rng.integers(n + 1), 0.0, -INF),
]
