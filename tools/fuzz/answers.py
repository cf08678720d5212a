"""Every public answer of a binary model against the truth, one row of a batch at a time."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import REAL, Truth

from .binary import Binary
from .compare import (
    STANDS_FOR_INFINITY,
    Report,
    close,
    close_log_partition,
    close_log_probs,
    close_logits,
    close_marginals,
    close_probs,
    dominated,
)
from .law import follows_law

INF = math.inf


class Asked:
    """One model, or one row of a batch, with its truth."""

    def __init__(
        self,
        report: Report,
        model: Any,
        truth: Truth,
        data: Binary,
        row: tuple[int, ...] = (),
        single: bool = False,
    ) -> None:
        self.report, self.model, self.truth, self.data = report, model, truth, data
        self.row, self.single = row, single

    def pick(self, values: Any) -> np.ndarray:
        return np.asarray(values)[self.row]

    def scores(self, group: int | None) -> tuple[np.ndarray, int]:
        members = range(self.data.size) if group is None else self.data.groups[group][0]
        return self.truth.states[:, list(members)].sum(1), len(members)

    @property
    def groups(self) -> list[int | None]:
        return [None, *range(len(self.data.groups))]


def refuses(report: Report, model: Any) -> None:
    """An impossible model raises InfeasibleError whatever it is asked."""
    asked = {
        "log_partition": lambda: model.log_partition,
        "marginals": lambda: model.marginals,
        "posterior_logits": lambda: model.posterior_logits,
        "cavity_logits": lambda: model.cavity_logits,
        "count_log_probs": model.count_log_probs,
        "entropy": lambda: model.entropy,
        "mode": model.mode,
        "max_marginals": lambda: model.max_marginals,
        "sample": lambda: model.sample(3, rng=0),
        "log_prob": lambda: model.log_prob(np.zeros(model.n_variables, int)),
    }
    for name, call in asked.items():
        with report.answer(f"impossible: {name}"):
            try:
                found = call()
            except tt.InfeasibleError:
                continue
            raise AssertionError(f"no InfeasibleError for an impossible model, but {found!r}"[:200])


def first_order(ask: Asked) -> bool:
    """Partition function, marginals, messages, counts, certificate; False where not even log Z could be asked for."""
    report, model, truth, pick = ask.report, ask.model, ask.truth, ask.pick
    with report.answer("log_partition"):
        found = pick(model.log_partition)
        close_log_partition(found, truth.log_partition)
        assert found.dtype == np.float64, f"log_partition is {found.dtype}"
    if report.raised:
        return False
    with report.answer("posterior_logits"):
        close_logits(pick(model.posterior_logits), truth.posterior_logits, ask.single)
    with report.answer("marginals"):
        close_marginals(pick(model.marginals), truth.posterior_logits, ask.single)
    with report.answer("cavity_logits"):
        close_logits(pick(model.cavity_logits), truth.cavity_logits, ask.single)
    with report.answer("error_bound"):
        certified(ask)
    for g in ask.groups:
        with report.answer("count_log_probs"):
            close_log_probs(pick(model.count_log_probs(g)), truth.score_log_probs(*ask.scores(g)), ask.single)
    with report.answer("log_prob"):
        found = pick(np.moveaxis(np.asarray(model.log_prob(_states_for(ask))), 0, -1))
        close_log_partition(
            found, truth.log_probs, np.abs(_finite(truth.logs.values)) + _size_of(truth.log_partition)
        )
    return True


def _states_for(ask: Asked) -> np.ndarray:
    """All states with an axis in front of the batch."""
    states = ask.truth.states
    return states.reshape(len(states), *(1,) * len(ask.row), -1)


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, 0.0)


def _size_of(value: float) -> float:
    return abs(value) if math.isfinite(value) else 0.0


def certified(ask: Asked) -> None:
    """The bound covers the error, up to the rounding of what was given and is returned."""
    want, bound = ask.truth.posterior_logits, float(ask.pick(ask.model.error_bound))
    got = np.asarray(ask.pick(ask.model.posterior_logits), float)
    seen = np.isfinite(want) & (np.abs(want) < STANDS_FOR_INFINITY)
    assert np.isfinite(got[seen]).all(), "infinite log-odds where finite ones are right"
    given = np.concatenate([np.ravel(a) for a in (*ask.data.numbers(), want)])
    given = np.abs(given[np.isfinite(given) & (np.abs(given) < STANDS_FOR_INFINITY)])
    rounding = (6.1e-8 if ask.single else 4e-16) * given.max(initial=0.0)
    dominated(np.abs(got[seen] - want[seen]).max(initial=0.0), bound, rounding, "log-odds")
    if abs(ask.truth.log_partition) < STANDS_FOR_INFINITY:
        error = abs(float(ask.pick(ask.model.log_partition)) - ask.truth.log_partition)
        dominated(error, bound, 1e-14 * (1 + abs(ask.truth.log_partition) + given.sum()), "log Z")


def expectations(ask: Asked) -> None:
    """Entropy, statistics, covariances, pairs."""
    report, model, truth, pick = ask.report, ask.model, ask.truth, ask.pick
    states = truth.states
    with report.answer("entropy"):
        found = pick(model.entropy)
        close(found, truth.entropy, 1e-8 * (1 + truth.entropy))
        assert found >= 0, f"entropy is {found!r}"
        assert found.dtype == np.float64, f"entropy is {found.dtype}"
    slack = 1e-7 if ask.single else 1e-9
    with report.answer("expected_statistics"):
        found = model.expected_statistics
        close(pick(found.logits), np.exp(truth.log_marginals[:, 1]), slack)
        for g in range(len(ask.data.groups)):
            close(pick(found.tables[g]), np.exp(truth.score_log_probs(*ask.scores(g))), slack)
    with report.answer("covariance"):
        close(pick(model.covariance()), truth.covariance_of(states), slack)
    with report.answer("pairwise"):
        pairs = [(i, j) for i in range(ask.data.size) for j in range(ask.data.size)]
        want = truth.pair_tables(pairs)[:, 1, 1].reshape(ask.data.size, ask.data.size)
        if ask.single:
            close(pick(model.pairwise()), np.exp(want), slack)
        else:
            close_probs(pick(model.pairwise()), want)
    if ask.data.groups:
        with report.answer("count_covariance"):
            a, b = ask.scores(0)[0], ask.scores(len(ask.data.groups) - 1)[0]
            want = truth.covariance_of(a[:, None], b[:, None])[0, 0]
            close(
                pick(model.count_covariance(0, len(ask.data.groups) - 1)),
                want,
                slack * max(1, ask.data.size**2),
            )
    if ask.data.edges:
        with report.answer("edge_marginals"):
            close(pick(model.edge_marginals), np.exp(truth.pair_tables(ask.data.pairs)), slack)


def derivative(ask: Asked, rng: np.random.Generator) -> None:
    """The Hessian of log Z times a vector: the covariance of every statistic with the vector's combination."""
    with ask.report.answer("hessian_vector_product"):
        move = rng.standard_normal(ask.data.size)
        tables = [rng.standard_normal(len(t)) for _, t in ask.data.groups]
        try:
            found = ask.model.hessian_vector_product(move, tables)
        except tt.ParameterError as error:
            if "not available" in str(error):
                return
            raise
        states, truth = ask.truth.states, ask.truth
        counts = [ask.scores(g)[0] for g in range(len(tables))]
        along = states @ move.astype(REAL) + sum((t[c].astype(REAL) for t, c in zip(tables, counts)), REAL(0))
        allowed = (1e-6 if ask.single else 1e-9) * (
            1 + np.abs(_finite(np.asarray(along, float))).max(initial=0.0)
        )
        close(ask.pick(found.logits), truth.covariance_of(states, along[:, None])[:, 0], allowed)
        for g, c in enumerate(counts):
            hot = (c[:, None] == np.arange(len(tables[g]))).astype(int)
            close(ask.pick(found.tables[g]), truth.covariance_of(hot, along[:, None])[:, 0], allowed)


def maxima(ask: Asked) -> None:
    """Best configurations and largest weights, up to the rounding of the sums that decide."""
    report, model, truth, pick = ask.report, ask.model, ask.truth, ask.pick
    given = np.concatenate([np.ravel(a) for a in ask.data.numbers()])
    given = np.abs(given[np.abs(given) < STANDS_FOR_INFINITY])
    allowed = 1e-12 * given.sum() + (1e-7 * given.sum() if ask.single else 0.0)
    best, weights = truth.max_log_weight, truth.logs.minus(truth.total)
    with report.answer("mode"):
        found, top = weights[int(truth.index(pick(model.mode())))], weights.max()
        assert found >= top - allowed, f"mode has log-probability {found!r}, the best {top!r}"
    with report.answer("max_log_weight"):
        close(pick(model.max_log_weight), best, allowed, best)
    with report.answer("max_marginals"):
        close(pick(model.max_marginals), truth.max_marginals, allowed, best)
    for g in ask.groups:
        with report.answer("max_count_values"):
            close(pick(model.max_count_values(g)), truth.max_count_values(*ask.scores(g)), allowed, best)
    with report.answer("mode_k"):
        try:
            ranked(ask, allowed)
        except tt.ParameterError as error:
            if "not available" not in str(error):
                raise


def ranked(ask: Asked, allowed: float) -> None:
    """The best six, or all that are possible; those that only a mask excludes may be among them or not."""
    weights, best = ask.truth.logs.values, ask.truth.max_log_weight
    sure = ~np.isneginf(ask.truth.logs.small) & (ask.truth.logs.huge == ask.truth.total.huge)
    found = ask.model.mode_k(6)
    states, values = ask.pick(found.configurations), ask.pick(found.log_weights)
    k = int((values > -INF).sum())
    assert min(6, int(sure.sum())) <= k <= min(6, int((weights > -INF).sum())), f"{k} configurations"
    assert (values[:k] > -INF).all(), f"gaps in {values}"
    at = ask.truth.index(states[:k])
    assert len(set(at.tolist())) == k, "configurations repeat"
    close(values[:k], weights[at], allowed, best)
    close(values[:k], np.sort(weights)[::-1][:k], allowed, best)
    first, mode = states[0].tolist(), ask.pick(ask.model.mode()).tolist()
    assert first == mode, f"mode_k begins with {first}, mode is {mode}"


def samples(ask: Asked, seed: int) -> None:
    with ask.report.answer("sample"):

        def draw(number: int, key: int) -> np.ndarray:
            found = np.asarray(ask.model.sample(number, rng=key))
            return found[(slice(None), *ask.row)]

        follows_law(draw, ask.truth, ask.report, seed)
        if seed % 16 == 0:
            again = ask.model.sample(7, rng=seed, sparse=True).to_dense()
            assert np.array_equal(again, ask.model.sample(7, rng=seed)), (
                "sparse samples differ from dense ones"
            )


def given(ask: Asked, rng: np.random.Generator) -> None:
    """Evidence on variables and counts."""
    report, model, truth, n = ask.report, ask.model, ask.truth, ask.data.size
    if n:
        chosen = rng.permutation(n)[: int(rng.integers(1, min(n, 3) + 1))]
        evidence = {int(v): int(rng.integers(2)) for v in chosen}
        event = np.all([truth.states[:, v] == y for v, y in evidence.items()], axis=0)
        with report.answer("condition"):
            conditioned(ask, model.condition(evidence), truth.restrict(event))
    group = ask.groups[int(rng.integers(len(ask.groups)))]
    scores, size = ask.scores(group)
    if n:
        count = int(rng.integers(size + 1))
        with report.answer("condition_count"):
            conditioned(ask, model.condition_count(group, count), truth.restrict(scores == count))


def conditioned(ask: Asked, model: Any, truth: Truth) -> None:
    if not truth.possible or not math.isfinite(truth.log_partition):
        try:
            found = model.log_partition
        except tt.InfeasibleError:
            return
        raise AssertionError(f"no InfeasibleError for an impossible event, log_partition {found!r}")
    if abs(truth.log_partition - ask.truth.log_partition) > STANDS_FOR_INFINITY:
        return  # an event that only a mask allows: both readings of a mask are right
    close_log_partition(ask.pick(model.log_partition), truth.log_partition)
    close_logits(ask.pick(model.posterior_logits), truth.posterior_logits, ask.single)
    close_log_probs(ask.pick(model.count_log_probs()), truth.score_log_probs(*ask.scores(None)), ask.single)


def divergence(ask: Asked, other: Any, other_truth: Truth) -> None:
    with ask.report.answer("kl_divergence"):
        if not other_truth.possible:
            return
        want = ask.truth.kl_divergence(other_truth)
        found = ask.pick(ask.model.kl_divergence(other))
        mine = ~np.isneginf(ask.truth.logs.small)
        if (mine & (other_truth.logs.huge < other_truth.total.huge)).any() and found == INF:
            return  # a mask of the other excludes what this model allows
        if ask.truth.logs.unit and want > STANDS_FOR_INFINITY:
            return  # a mask of this model allows what the other excludes
        close(found, want, 1e-8 * (1 + _size_of(want)))


def same_object(ask: Asked) -> None:
    with ask.report.answer("pickle"):
        again = pickle.loads(pickle.dumps(ask.model))
        assert again == ask.model, "a pickled model is another model"
        assert np.array_equal(again.log_partition, ask.model.log_partition), (
            "a pickled model has another log Z"
        )
