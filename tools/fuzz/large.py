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

from .compare import Report, close_log_partition, close_log_probs, close_logits, close_marginals, size_of
from .law import p_value
from .numbers import INF, Numbers, Source, size_between
from .structures import hidden_states

LARGEST = 2000
GROUPS = 3  # count distributions compared per model
LOT = 32


@dataclass(frozen=True, eq=False)
class LargeCase:
    """Models over one family: ``theta`` (..., D) and tables (..., n + 1), asked as they are and one of them alone."""

    data: Case

    @cached_property
    def truth(self) -> Answer:
        return log_space_tree(self.data.theta, self.data.sets)

    def check(self, report: Report, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**31))
        self._checked(report, self.data, self.truth, seed)
        if self.data.theta.ndim > 1:
            for alone in (seed % LOT, seed // LOT % LOT):
                self._checked(report, *self._row(alone), seed)

    def _row(self, i: int) -> tuple[Case, Answer]:
        data, truth = self.data, self.truth
        total = None if truth.log_total is None else truth.log_total[i]
        counts = tuple(c[i] for c in truth.log_counts)
        alone = Case(data.theta[i], tuple((m, t[i]) for m, t in data.sets), data.name)
        return alone, Answer(truth.log_partition[i], truth.posterior_logits[i], total, counts)

    def _checked(self, report: Report, data: Case, truth: Answer, seed: int) -> None:
        model, odds = model_of(data), np.asarray(truth.posterior_logits, float)
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
            certified(report, model, data, truth)
        with report.answer("cavity_logits"):
            assert not np.isnan(model.cavity_logits).any(), "NaN"
        with report.answer("mode"):
            weight, best = model.log_prob(model.mode()) + model.log_partition, model.max_log_weight
            bad = ~np.asarray(weight >= best - 1e-9 * (1 + np.abs(weight)))
            assert not bad.any(), f"{np.asarray(weight)[bad][0]!r}, {np.asarray(best)[bad][0]!r}"
        with report.answer("sample"):
            draws(model, truth, seed)

    def code(self) -> str:
        return repr(self.data)


def certified(report: Report, model: Any, data: Case, truth: Answer) -> None:
    """The bound covers the error, up to the rounding of what was given and is returned."""
    odds, bound = truth.posterior_logits, np.asarray(model.error_bound, float)
    got, finite = np.asarray(model.posterior_logits), np.isfinite(odds)
    assert np.isfinite(got[finite]).all(), "infinite log-odds where finite ones are right"
    largest = size_of(odds).max(axis=-1, initial=0.0)
    for values in (data.theta, *(table for _, table in data.sets)):
        largest = np.maximum(largest, size_of(values).max(axis=-1, initial=0.0))
    error = np.abs(np.where(finite, got, 0.0) - np.where(finite, odds, 0.0)).max(axis=-1, initial=0.0)
    report.dominated(error, bound, 4e-16 * largest, "log-odds")
    terms = np.where(np.isfinite(data.theta), np.logaddexp(0, data.theta), 0.0).sum(axis=-1)
    for _, table in data.sets:
        terms = terms + np.abs(np.max(table, axis=-1))
    log_z = np.asarray(truth.log_partition)
    slack = 1e-14 * (1 + np.abs(log_z) + terms)
    report.dominated(np.abs(np.asarray(model.log_partition) - log_z), bound, slack, "log Z")


def draws(model: Any, truth: Answer, seed: int) -> None:
    """The count of everything and single variables of samples, by exact binomial tails."""
    number, odds = 100, truth.posterior_logits
    drawn = np.asarray(model.sample(number, rng=seed)).astype(int)
    logs = np.asarray(truth.count_log_probs(None), float)
    count = drawn.sum(-1).reshape(number, -1)  # (number, models)
    width = logs.shape[-1]
    at = count + width * np.arange(count.shape[1])
    counts = np.bincount(at.ravel(), minlength=logs.size).reshape(logs.shape)
    assert not ((counts > 0) & np.isneginf(logs)).any(), "an impossible count was drawn"
    sums = drawn.sum(0)
    assert (sums[odds == -INF] == 0).all(), "an excluded variable was drawn"
    assert (sums[odds == INF] == number).all(), "a forced variable was not drawn"
    probs = np.minimum(np.concatenate([np.exp(logs), np.exp(-np.logaddexp(0, -odds))], axis=-1), 1.0)
    p = p_value(np.concatenate([counts, sums], axis=-1), probs, number).min()
    assert p > 1e-10, f"samples do not follow the law: p = {p:.2g} of {number} draws"


# ---------------------------------------------------------------------------------------------------- drawing


def draw_large(rng: np.random.Generator) -> LargeCase:
    kind = str(
        rng.choice(["named", "medium", "large", "huge", "grouped"], p=[0.335, 0.6, 0.05, 0.003, 0.012])
    )
    if kind == "named":
        return LargeCase(varied(rng, accuracy_case(str(rng.choice(CASES)), size_between(rng, 2, 150))))
    if kind == "grouped":
        return LargeCase(grouped(rng))
    low, high = {"medium": (13, 80), "large": (81, 400), "huge": (401, LARGEST)}[kind]
    size = size_between(rng, low, high)
    family = family_of(rng, size)
    rows = []
    for _ in range(LOT):
        source = Source(rng, hidden_states(rng, size))
        source.mask = 0.0
        tables = [source.table(len(m), int(source.hidden[list(m)].sum())) for m in family]
        rows.append((source.logits(), tables))
    return LargeCase(stacked(family, rows, kind))


def stacked(
    family: list[tuple[int, ...]], rows: list[tuple[np.ndarray, list[np.ndarray]]], name: str
) -> Case:
    theta = np.array([theta for theta, _ in rows])
    tables = [np.array([tables[g] for _, tables in rows]) for g in range(len(family))]
    return Case(theta, tuple(zip(family, tables)), name)


def varied(rng: np.random.Generator, case: Case) -> Case:
    """A case as it is, and with its numbers moved; what is infinite stays so."""
    rows = [(case.theta, [np.asarray(t, float) for _, t in case.sets])]
    for _ in range(LOT - 1):
        by = float(rng.choice([1e-6, 0.1, 1.0, 10.0]))
        theta = case.theta + by * rng.standard_normal(case.size)
        rows.append((theta, [t + by * rng.standard_normal(np.shape(t)) for _, t in case.sets]))
    return stacked([tuple(m) for m, _ in case.sets], rows, case.name)


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
    return stacked(family, [smooth_numbers(rng, size, family) for _ in range(LOT)], "grouped")


def smooth_numbers(
    rng: np.random.Generator, size: int, family: list[tuple[int, ...]]
) -> tuple[np.ndarray, list[np.ndarray]]:
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
    return theta, tables


SMOOTH: list[Numbers] = [
    lambda n, rng: rng.choice([0.0, 1.0, 3.0]) * rng.standard_normal(n + 1),
    lambda n, rng: -0.5 * ((np.arange(n + 1) - rng.uniform(0, n)) / rng.uniform(0.3, 1 + n)) ** 2,
    lambda n, rng: np.where(np.arange(n + 1) % 2 == 0, 0.0, rng.choice([-1.0, -INF])),
    lambda n, rng: np.where(np.arange(n + 1) <= rng.integers(n + 1), 0.0, -INF),
    lambda n, rng: np.where(np.arange(n + 1) >= rng.integers(n + 1), 0.0, -INF),
]
