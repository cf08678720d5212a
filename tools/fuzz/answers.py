"""Every public answer of binary models against the truth: of one model, or of a batch over one structure."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import REAL, Truth

from .binary import Binary
from .compare import (
    FLOAT32,
    STANDS_FOR_INFINITY,
    TINY32,
    Report,
    close,
    close_log_partition,
    close_log_probs,
    close_logits,
    close_marginals,
    close_probs,
    size_of,
)
from .law import follows_law

INF = math.inf
EXACT = 16 * float(np.finfo(REAL).eps)  # what enumeration itself may lose of log-odds near 0


class Asked:
    """A model, or a batch of some shape over one structure, with the truth of the same shape."""

    def __init__(
        self, report: Report, model: Any, truth: Truth, rows: Sequence[Binary], single: bool = False
    ) -> None:
        self.report, self.model, self.truth, self.single = report, model, truth, single
        self.data = rows[0]  # what all rows share: sizes, groups, pairs
        self.shape = np.shape(truth.log_partition)
        given = np.array([np.concatenate([np.ravel(a) for a in r.numbers()]) for r in rows])
        sizes = np.abs(given)
        sizes = np.where(sizes < STANDS_FOR_INFINITY, sizes, 0.0)
        self.largest = sizes.max(axis=1, initial=0.0).reshape(self.shape)  # of the numbers of every model
        self.sum = sizes.sum(axis=1).reshape(self.shape)

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
    report, model, truth = ask.report, ask.model, ask.truth
    with report.answer("log_partition"):
        found = np.asarray(model.log_partition)
        close_log_partition(found, truth.log_partition)
        assert found.dtype == np.float64, f"log_partition is {found.dtype}"
    if report.raised:
        return False
    with report.answer("posterior_logits"):
        close_logits(model.posterior_logits, truth.posterior_logits, ask.single)
    with report.answer("marginals"):
        close_marginals(model.marginals, truth.posterior_logits, ask.single)
    with report.answer("cavity_logits"):
        close_logits(model.cavity_logits, truth.cavity_logits, ask.single)
    with report.answer("error_bound"):
        certified(ask)
    for g in ask.groups:
        with report.answer("count_log_probs"):
            close_log_probs(model.count_log_probs(g), truth.score_log_probs(*ask.scores(g)), ask.single)
    with report.answer("log_prob"):
        states = truth.states.reshape(len(truth.states), *(1,) * len(ask.shape), -1)
        found = np.moveaxis(np.asarray(model.log_prob(states)), 0, -1)
        sizes = size_of(truth.logs.values) + size_of(truth.log_partition)[..., None]
        close_log_partition(found, truth.log_probs, sizes)
    return True


def certified(ask: Asked) -> None:
    """The bound covers the error, up to the rounding of what was given and is returned, and of the truth itself."""
    want, bound = ask.truth.posterior_logits, np.asarray(ask.model.error_bound, float)
    got, size = np.asarray(ask.model.posterior_logits, float), np.abs(ask.truth.posterior_logits)
    seen = size < STANDS_FOR_INFINITY
    assert np.isfinite(got[seen]).all(), "infinite log-odds where finite ones are right"
    largest = np.maximum(ask.largest, np.where(seen, size, 0.0).max(axis=-1, initial=0.0))
    error = np.abs(np.where(seen, got, 0.0) - np.where(seen, want, 0.0)).max(axis=-1, initial=0.0)
    ask.report.dominated(error, bound, (FLOAT32 if ask.single else 4e-16) * largest + EXACT, "log-odds")
    log_z = np.asarray(ask.truth.log_partition)
    off = np.abs(np.asarray(ask.model.log_partition) - log_z)
    slack = 1e-14 * (1 + np.abs(log_z) + ask.sum)
    ask.report.dominated(np.where(np.abs(log_z) < STANDS_FOR_INFINITY, off, 0.0), bound, slack, "log Z")


def expectations(ask: Asked) -> None:
    """Entropy, statistics, covariances, pairs."""
    report, model, truth = ask.report, ask.model, ask.truth
    states = truth.states
    with report.answer("entropy"):
        found = np.asarray(model.entropy)
        close(found, truth.entropy, 1e-10 * (1 + truth.entropy))
        assert (found >= 0).all(), f"entropy is {found.min()!r}"
        assert found.dtype == np.float64, f"entropy is {found.dtype}"
    slack = 1e-7 if ask.single else 1e-9
    with report.answer("expected_statistics"):
        found = model.expected_statistics
        close(found.logits, np.exp(truth.log_marginals[..., 1]), slack)
        for g in range(len(ask.data.groups)):
            close(found.tables[g], np.exp(truth.score_log_probs(*ask.scores(g))), slack)
    with report.answer("covariance"):
        close(model.covariance(), truth.covariance_of(states), slack)
    with report.answer("pairwise"):
        n = ask.data.size
        above = [(i, j) for i in range(n) for j in range(i, n)]
        want = np.empty((*ask.shape, n, n))
        i, j = np.array(above, int).reshape(-1, 2).T
        want[..., i, j] = want[..., j, i] = truth.pair_tables(above)[..., 1, 1]
        if ask.single:
            close(model.pairwise(), np.exp(want), slack)
        else:
            close_probs(model.pairwise(), want)
    if ask.data.groups:
        with report.answer("count_covariance"):
            last = len(ask.data.groups) - 1
            a, b = ask.scores(0)[0], ask.scores(last)[0]
            want = truth.covariance_of(a[:, None], b[:, None])[..., 0, 0]
            close(model.count_covariance(0, last), want, slack * max(1, ask.data.size**2))
    if ask.data.edges:
        with report.answer("edge_marginals"):
            close(model.edge_marginals, np.exp(truth.pair_tables(ask.data.pairs)), slack)


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
        allowed = (1e-6 if ask.single else 1e-9) * (1 + size_of(np.asarray(along, float)).max(initial=0.0))
        close(found.logits, truth.covariance_of(states, along[:, None])[..., 0], allowed)
        for g, c in enumerate(counts):
            hot = (c[:, None] == np.arange(len(tables[g]))).astype(int)
            close(found.tables[g], truth.covariance_of(hot, along[:, None])[..., 0], allowed)


def maxima(ask: Asked) -> None:
    """Best configurations and largest weights, up to the rounding of the sums that decide."""
    report, model, truth = ask.report, ask.model, ask.truth
    allowed = 1e-12 * ask.sum + (1e-7 * ask.sum + TINY32 if ask.single else 0.0)
    best, weights = np.asarray(truth.max_log_weight), truth.logs.minus(truth.total[..., None])
    with report.answer("mode"):
        at = truth.index(np.asarray(model.mode()))
        found, top = np.take_along_axis(weights, at[..., None], -1)[..., 0], weights.max(axis=-1)
        bad = ~(found >= top - allowed)
        assert not bad.any(), f"mode has log-probability {found[bad][0]!r}, the best {top[bad][0]!r}"
    with report.answer("max_log_weight"):
        close(model.max_log_weight, best, allowed, best)
    with report.answer("max_marginals"):
        close(model.max_marginals, truth.max_marginals, allowed[..., None, None], best[..., None, None])
    for g in ask.groups:
        with report.answer("max_count_values"):
            want = truth.max_count_values(*ask.scores(g))
            close(model.max_count_values(g), want, allowed[..., None], best[..., None])
    with report.answer("mode_k"):
        try:
            ranked(ask, allowed[..., None])
        except tt.ParameterError as error:
            if "not available" not in str(error):
                raise


def ranked(ask: Asked, allowed: np.ndarray) -> None:
    """The best six, or all that are possible; those that only a mask excludes may be among them or not."""
    logs, best = ask.truth.logs, np.asarray(ask.truth.max_log_weight)[..., None]
    weights = logs.values
    sure = ~np.isneginf(logs.small) & (logs.huge == ask.truth.total.huge[..., None])
    found = ask.model.mode_k(6)
    states, values = np.asarray(found.configurations), np.asarray(found.log_weights)
    there = values > -INF
    number = there.sum(axis=-1)
    low, high = np.minimum(6, sure.sum(axis=-1)), np.minimum(6, (weights > -INF).sum(axis=-1))
    assert ((low <= number) & (number <= high)).all(), f"{number.tolist()} configurations"
    assert (there == (np.arange(values.shape[-1]) < number[..., None])).all(), f"gaps in {values}"
    at = np.where(there, ask.truth.index(states), -1 - np.arange(values.shape[-1]))
    sorted_at = np.sort(at, axis=-1)
    assert (sorted_at[..., 1:] > sorted_at[..., :-1]).all(), "configurations repeat"
    own = np.take_along_axis(weights, np.maximum(at, 0), -1)
    close(np.where(there, values, best), np.where(there, own, best), allowed, best)
    order = -np.sort(-weights, axis=-1)[..., : values.shape[-1]]
    there, values = there[..., : order.shape[-1]], values[..., : order.shape[-1]]
    close(np.where(there, values, best), np.where(there, order, best), allowed, best)
    first, mode = states[..., 0, :], np.asarray(ask.model.mode())
    assert np.array_equal(first, mode), f"mode_k begins with {first.tolist()}, mode is {mode.tolist()}"


def samples(ask: Asked, seed: int) -> None:
    with ask.report.answer("sample"):
        follows_law(lambda n, key: np.asarray(ask.model.sample(n, rng=key)), ask.truth, ask.report, seed)
        if seed % 16 == 0:
            again = ask.model.sample(7, rng=seed, sparse=True).to_dense()
            assert np.array_equal(again, ask.model.sample(7, rng=seed)), (
                "sparse samples differ from dense ones"
            )


def conditioned(ask: Asked, make: Any, truth: Truth) -> None:
    """The model given an event, whose truth has the shape of the batch; all of its rows are possible."""
    near = np.abs(truth.log_partition - np.asarray(ask.truth.log_partition)) < STANDS_FOR_INFINITY
    if not near.all():
        return  # an event that only a mask allows: both readings of a mask are right
    model = make()
    close_log_partition(model.log_partition, truth.log_partition)
    close_logits(model.posterior_logits, truth.posterior_logits, ask.single)
    close_log_probs(model.count_log_probs(), truth.score_log_probs(*ask.scores(None)), ask.single)


def impossible_event(make: Any) -> None:
    try:
        found = make().log_partition
    except tt.InfeasibleError:
        return
    raise AssertionError(f"no InfeasibleError for an impossible event, log_partition {found!r}")


def divergence(ask: Asked, other: Asked) -> None:
    with ask.report.answer("kl_divergence"):
        want = np.asarray(ask.truth.kl_divergence(other.truth))
        found = np.asarray(ask.model.kl_divergence(other.model))
        assert not np.isnan(found).any(), "NaN"
        mine = ~np.isneginf(ask.truth.logs.small)
        masked = (mine & (other.truth.logs.huge < other.truth.total.huge[..., None])).any(axis=-1)
        # a mask of the other excludes what this model allows, or one of this allows what the other excludes
        either = (masked & (found == INF)) | ((ask.truth.logs.unit > 0) & (want > STANDS_FOR_INFINITY))
        either |= ~other.truth.possible
        # Differences of logarithms, of which enumeration too loses something where weights are large.
        allowed = np.maximum(1e-9 * size_of(want), 1e-15) + EXACT * (ask.sum + other.sum)
        close(np.where(either, 0.0, found), np.where(either, 0.0, want), allowed)


def same_object(ask: Asked) -> None:
    with ask.report.answer("pickle"):
        again = pickle.loads(pickle.dumps(ask.model))
        assert again == ask.model, "a pickled model is another model"
        assert np.array_equal(again.log_partition, ask.model.log_partition), (
            "a pickled model has another log Z"
        )
