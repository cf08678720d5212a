"""Log-odds that cancel in log Z: the bound counts them, and log-probabilities keep their digits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import tallytree as tt
from tallytree import config


def _cancelling(n, scale, seed=0):
    x = np.random.default_rng(seed).normal(size=n) * scale
    x[-1] = -math.fsum(x[:-1])
    return x


def _models(x):
    """Models in which all variables must be on, as one group, nested, with tables of single variables, with edges."""
    n = len(x)
    everything, half = tt.Group(None, tt.exactly(n)), tt.Group(range(n // 2), tt.exactly(n // 2))
    yield tt.CountModel(x, tt.exactly(n))
    yield tt.CountModel(x, [half, everything])
    yield tt.CountModel(x, [tt.Group([0], [-3.0, 0.0]), tt.Group([1], [-np.inf, 0.0]), everything])
    yield tt.CountModel(
        x, tt.exactly(n), edges=tt.Forest([(i, i + 1) for i in range(n - 1)], np.zeros((n - 1, 2, 2)))
    )


@pytest.mark.parametrize("n", [2, 30, 300])
@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4, 1e6])
def test_the_bound_counts_what_cancels(n, scale):
    x = _cancelling(n, scale)
    truth = sum(map(Fraction, x.tolist()))
    for model in _models(x):
        error = abs(float(Fraction(float(model.log_partition)) - truth))
        assert error <= model.error_bound
        assert error <= 1e-10 * (1.0 + abs(float(truth)))
        assert -2 * model.error_bound <= model.log_prob(np.ones(n)) <= 0.0
    batch = tt.CountModel(np.stack([x, -x] * 3), tt.exactly(n))
    assert (np.abs(batch.log_partition - [float(truth), -float(truth)] * 3) <= batch.error_bound).all()


@pytest.mark.parametrize("engine", ["native", "array"])
def test_log_partition_keeps_its_digits_where_log_odds_cancel_along_edges(engine):
    n = 1000
    x = _cancelling(n, 1e6)
    truth = sum(map(Fraction, x.tolist()))
    path = tt.Forest([(i, i + 1) for i in range(n - 1)], np.zeros((n - 1, 2, 2)))
    unary = np.stack([np.zeros(n), x], axis=-1)
    with config.using(engine=engine):
        for model in (
            tt.CountModel(x, tt.exactly(n), edges=path),
            tt.CountModel(np.stack([x, x[::-1]]), tt.exactly(n), edges=path),
            tt.ChainModel(unary, np.zeros((2, 2)), tt.exactly(n)),
        ):
            for found in np.ravel(model.log_partition):
                assert abs(float(Fraction(float(found)) - truth)) <= 1e-10 * (1.0 + abs(float(truth)))


@pytest.mark.parametrize("engine", ["native", "array"])
def test_log_prob_keeps_its_digits_where_tables_undo_log_odds(engine):
    n = 300
    rng = np.random.default_rng(2)
    x = rng.normal(size=n) * 1e6
    tables = rng.normal(size=(n - 1, 2, 2))
    tables[:, 1, :] -= x[:-1, None]
    small = tables.copy()
    small[:, 1, :] += x[:-1, None]  # exact
    x[-1] = small[-1, 1, 1]
    path = [(i, i + 1) for i in range(n - 1)]
    unary = np.stack([np.zeros(n), x], axis=-1)
    without = np.where(np.arange(n) < n - 1, 0.0, x)
    states = rng.integers(0, 2, (20, n))
    with config.using(engine=engine):
        exact = tt.CountModel(without, edges=tt.Forest(path, small)).log_prob(states)
        found = tt.CountModel(x, edges=tt.Forest(path, tables)).log_prob(states)
        np.testing.assert_allclose(found, exact, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(
            tt.ChainModel(unary, tables).log_prob(states), exact, rtol=1e-13, atol=1e-13
        )


@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_log_prob_keeps_its_digits_where_a_table_undoes_the_sum_of_log_odds(scale):
    x = np.random.default_rng(3).normal(size=300) * scale
    total = sum(map(Fraction, x.tolist()))
    left = float(total + Fraction(-float(total)))
    table = np.where(np.arange(301) == 0, 0.0, -np.inf)
    table[-1] = -float(total)
    model = tt.CountModel(
        x,
        [
            tt.Group(None, table),
            tt.Group(range(5), np.arange(6.0) * scale),
            tt.Group(range(5), np.arange(6.0) * -scale),
        ],
    )
    exact = -np.log1p(np.exp([-left, left]))
    np.testing.assert_allclose(model.log_prob([np.ones(300), np.zeros(300)]), exact, rtol=1e-13)


def test_the_mode_of_large_log_odds_has_the_probability_of_its_variables():
    x = np.random.default_rng(1).normal(size=2000) * 1e6
    truth = -np.log1p(np.exp(-np.abs(x))).sum()
    pairs = [(i, i + 1) for i in range(len(x) - 1)]
    for model in (
        tt.CountModel(x),
        tt.CountModel(x, tt.at_least(500)),
        tt.CountModel(x, edges=tt.Forest(pairs, np.zeros((len(pairs), 2, 2)))),
    ):
        found = model.log_prob(model.mode())
        assert found <= 0.0
        assert found == pytest.approx(truth, abs=1e-12)
    assert tt.CountModel(np.full(30_000, 1e6)).log_prob(np.ones(30_000)) == 0.0


def test_the_mode_of_no_models_with_edges_is_empty():
    model = tt.CountModel(np.zeros((0, 2)), edges=tt.Forest([(0, 1)], np.zeros((0, 1, 2, 2))))
    assert model.mode().shape == (0, 2)


def test_what_forced_variables_add_cancels_exactly_too():
    """Both groups force all of their variables; one part of the sum is a constant, and was rounded by itself."""
    theta = np.array([-1105491.5386564387, 342069.6577166504, 763421.8809397884])
    model = tt.CountModel(theta, [tt.Group(range(1), tt.exactly(1)), tt.Group(None, tt.between(2, 3))])
    assert math.fsum(theta) != 0.0
    assert model.log_partition == pytest.approx(math.fsum(theta), abs=1e-15)


def _far_counts(n):
    yield [0]
    yield [n]
    yield [0, n]
    yield [0, 1, n]
    yield [1, n - 1, n]


@pytest.mark.parametrize("draw", ["normal", "cauchy", "forced", "excluded"])
def test_log_partition_keeps_its_digits_where_few_configurations_are_possible(draw):
    """Against sums of the variables themselves: e_1 and e_{n-1} leave one of them on, or off."""
    n = 20_000 if config.native() else 2_000  # array code adds logarithms here, in quadratic time
    rng = np.random.default_rng(5)
    x = rng.standard_cauchy(n) if draw == "cauchy" else rng.normal(size=n)
    x[0] -= math.fsum(x) - 0.3
    x[7] = {"forced": math.inf, "excluded": -math.inf}.get(draw, x[7])
    free, forced, excluded = x[np.isfinite(x)], draw == "forced", draw == "excluded"
    everything = math.fsum(free)
    weights = {
        0: -math.inf if forced else 0.0,
        1: 0.0 if forced else float(np.logaddexp.reduce(free)),
        n - 1: everything if excluded else everything + float(np.logaddexp.reduce(-free)),
        n: -math.inf if excluded else everything,
    }
    for counts in _far_counts(n):
        exact = float(np.logaddexp.reduce([weights[c] for c in counts]))
        if exact == -math.inf:
            continue
        table = np.full(n + 1, -math.inf)
        table[counts] = 0.0
        model = tt.CountModel(x, table)
        assert abs(model.log_partition - exact) <= 5e-13 * (1.0 + abs(exact)), counts
        assert abs(model.log_partition - exact) <= model.error_bound
        batch = tt.CountModel(np.stack([x, x[::-1]]), table)
        np.testing.assert_allclose(batch.log_partition, exact, rtol=5e-13, atol=5e-13)


@pytest.mark.skipif(config.native() is None, reason="array code certifies less here, and says so")
def test_shares_of_two_counts_keep_their_digits_where_large_log_odds_cancel():
    """One of k variables on, or two of k + 1 off: both weigh about the same, after sums of 50 million."""
    k, rest = 487, 414
    z = np.random.default_rng(2).normal(size=rest)
    z -= z.mean() + 5.5 / rest
    x = np.concatenate([np.full(k, 1e5), z, np.full(k + 1, -1e5)])
    n = len(x)
    two_off = math.exp(math.fsum([*x, 1e5])) * math.comb(k + 1, 2)  # in units of one on
    table = np.full(n + 1, -np.inf)
    table[[1, n - 2]] = 0.0
    model = tt.CountModel(x, table)
    assert 0.1 < two_off / k < 10.0
    np.testing.assert_allclose(model.posterior_logits[:k], math.log((1 + two_off) / (k - 1)), atol=1e-10)
    assert 1e-9 < model.error_bound < 1e-7
