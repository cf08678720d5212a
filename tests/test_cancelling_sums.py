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
