"""One sample of every model of a batch, drawn side by side: the law against enumeration, certainty, streams.

Seeds are fixed, so a test that passes once passes always.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import tallytree as tt
from helpers import model_of
from oracle_enumeration import enumerate_model
from strategies import random_case
from tallytree import config
from tallytree.engine import native, thresholds
from test_draws import LEVELS, chi_square, states_seen, use

INF = math.inf
pytestmark = pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")


@pytest.fixture(params=LEVELS)
def level(request, monkeypatch):
    use(monkeypatch, request.param)
    return request.param


def many(case, copies):
    """A batch of equal models."""
    model = model_of(case)
    return model.replace(logits=np.broadcast_to(case.theta, (copies, len(case.theta))))


def shares(model):
    problem = model._solver.problem
    return native.draw_small(
        problem.tree.program, problem.nu, problem.tables, np.arange(4, dtype=np.uint32), None
    )


def p_values(models, copies, seed):
    found, certain = [], 0
    for i in range(models):
        tame = {"theta_scale": 1.0, "table_scale": 0.5} if i % 2 else {}
        case = random_case(seed + i, max_variables=8, **tame)
        batch = many(case, copies)
        certain += bool(np.all(shares(batch) <= thresholds.NEVER_DRAWN))
        oracle = enumerate_model(case.theta, case.sets)
        counts = states_seen(batch.sample(rng=seed + i))
        assert counts[np.isneginf(oracle.log_probs)].sum() == 0
        found.append(chi_square(counts, copies * np.exp(oracle.log_probs)))
    return [p for p in found if p is not None], certain


def test_one_sample_of_every_model_has_the_law_of_the_model(level):
    found, certain = p_values(150, 3001, seed=9000)
    assert len(found) > 70
    assert certain > 100  # the lanes were at work
    assert stats.kstest(found, "uniform").pvalue > 0.01
    assert min(found) > 1e-5


def test_several_samples_of_every_model_are_independent(level):
    case = random_case(3, 5, shape="balanced", theta_scale=1.0, table_scale=0.5, zeros=False, infinite=False)
    y = many(case, 500).sample(8, rng=0)
    assert y.shape == (8, 500, 5)
    expected = np.exp(enumerate_model(case.theta, case.sets).log_probs)
    assert chi_square(states_seen(y.reshape(-1, 5)), 4000 * expected) > 0.01
    pairs = np.concatenate([y[:4], y[4:]], axis=-1).reshape(-1, 10)
    assert chi_square(states_seen(pairs), 2000 * np.outer(expected, expected).reshape(-1)) > 0.01


def wild_batch(n=200, models=40):
    """Every third model is tame; the others have far logits, wild tables, infinite logits, or a far tail."""
    rng = np.random.default_rng(2)
    scale = np.array([1.0, 50.0, 400.0])[np.arange(models) % 3]
    logits = rng.normal(size=(models, n)) * scale[:, None]
    logits[1::4, :7] = INF
    logits[2::4, 7:20] = -INF
    tables = (
        rng.normal(size=(models, n + 1)) * np.array([0.5, 200.0, 1e4, 0.0])[np.arange(models) % 4][:, None]
    )
    tables[3::4] = np.where(np.arange(n + 1) == 180, 0.0, -INF)
    return tt.CountModel(logits, tables)


def test_models_beyond_the_range_of_plain_numbers_are_drawn_otherwise(level):
    model = wild_batch()
    lost = shares(model)
    assert np.any(lost <= thresholds.NEVER_DRAWN)
    assert np.any(lost > thresholds.NEVER_DRAWN)
    y = model.sample(5, rng=1)
    assert np.isfinite(model.log_prob(y)).all()
    # Marginals of a few draws of every model: none is further off than chance allows.
    p = np.clip(np.asarray(model.marginals), 1e-12, 1 - 1e-12)
    z = (model.sample(8, rng=3).sum(0) - 8 * p).sum(-1) / np.sqrt((8 * p * (1 - p)).sum(-1))
    assert np.all(np.abs(z) < 6.0)


def test_a_model_is_drawn_alike_whatever_shares_its_register(level):
    rng = np.random.default_rng(0)
    logits, table = rng.normal(size=(37, 60)), rng.normal(size=(37, 61))
    whole = tt.CountModel(logits, table).sample(3, rng=5)
    for rows in (slice(0, 5), slice(0, 36)):
        assert np.array_equal(tt.CountModel(logits[rows], table[rows]).sample(3, rng=5), whole[:, rows])


def test_the_same_seed_gives_the_same_samples_whatever_the_threads_and_the_level(monkeypatch):
    rng = np.random.default_rng(1)
    groups = [tt.Group(range(25 * i, 25 * i + 25), rng.normal(size=26)) for i in range(4)]
    nested = tt.CountModel(rng.normal(size=(90, 103)), [*groups, tt.Group(range(101), tt.exactly(40))])
    for model in (nested, wild_batch()):
        seen = set()
        for name in LEVELS:
            use(monkeypatch, name)
            for threads in ("1", "2", "3"):
                monkeypatch.setenv("TALLYTREE_NUM_THREADS", threads)
                monkeypatch.setattr(config, "_current", None)
                seen.add(model.replace().sample(rng=7).tobytes())
        assert len(seen) == 1


@pytest.mark.parametrize("size", [0, 1, 2, 512, 513])
@pytest.mark.parametrize("batch", [0, 1, 4, 9])
def test_every_shape(level, size, batch):
    for k in {0, size // 2, size}:
        y = tt.CountModel(np.linspace(-2.0, 2.0, batch * size).reshape(batch, size), tt.exactly(k)).sample(
            rng=0
        )
        assert y.shape == (batch, size)
        assert np.all(y.sum(-1, dtype=np.int64) == k)


def test_impossible_models_are_named(level):
    logits = np.zeros((9, 4))
    logits[6, :3] = INF
    with pytest.raises(tt.InfeasibleError, match=r"batch index \(6,\)"):
        tt.CountModel(logits, tt.exactly(2)).sample()


def test_few_samples_equal_sparse_ones(level):
    model = tt.CountModel(np.random.default_rng(0).normal(size=(12, 90)), tt.exactly(7))
    assert np.array_equal(model.sample(3, rng=9, sparse=True).to_dense(), model.sample(3, rng=9))


def test_calls_that_do_not_fit_are_refused():
    program = tt.CountModel(np.zeros((4, 5)), tt.exactly(2)).tree.program
    key, table = np.zeros(4, np.uint32), np.zeros((1, 6))
    for nu, out in (
        (np.zeros((4, 6)), None),
        (np.zeros((4, 5)), np.zeros((1, 3, 5), np.uint8)),
        (np.zeros((4, 5)), np.zeros((1, 4, 4), np.uint8)),
    ):
        with pytest.raises(ValueError, match="must have"):
            native.draw_small(program, nu, table, key, out)
