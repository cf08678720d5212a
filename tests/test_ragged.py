"""A ragged batch is the same as its models one by one."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states


def test_answers_are_those_of_the_single_models():
    rng = np.random.default_rng(0)
    logits = [rng.normal(size=n) for n in rng.integers(1, 40, size=100)]
    tables = [rng.normal(size=len(x) + 1) for x in logits]
    batch = tt.RaggedBatch(logits, tables)
    assert len(batch) == 100
    answers = zip(
        logits, tables, batch.log_partition, batch.marginals, batch.posterior_logits, batch.count_log_probs
    )
    for x, t, log_partition, marginals, odds, counts in answers:
        single = tt.CountModel(x, t)
        np.testing.assert_allclose(log_partition, single.log_partition, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(marginals, single.marginals, rtol=1e-11)
        np.testing.assert_allclose(odds, single.posterior_logits, rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(counts, single.count_log_probs(), rtol=1e-10, atol=1e-10)
    assert np.all(batch.error_bound < 1e-9)
    assert batch[3] == tt.CountModel(logits[3], tables[3])


def test_one_array_without_sizes_is_told_that_they_are_missing():
    with pytest.raises(tt.ParameterError, match="sizes=, the number of variables of every model"):
        tt.RaggedBatch(np.zeros(3), tt.exactly(1))


def test_one_potential_serves_all_and_sizes_may_be_given():
    flat = np.arange(6.0)
    a = tt.RaggedBatch(flat, tt.at_least(1), sizes=[1, 2, 3])
    b = tt.RaggedBatch([flat[:1], flat[1:3], flat[3:]], tt.at_least(1))
    np.testing.assert_array_equal(a.log_partition, b.log_partition)
    assert [len(m) for m in a.marginals] == [1, 2, 3]
    assert repr(a) == "RaggedBatch(3 models, 6 variables)"
    single = tt.RaggedBatch([np.zeros(2, np.float32), np.zeros(3, np.float32)], tt.exactly(1))
    assert single.marginals[1].dtype == np.float32


def test_empty_batches_and_empty_models_are_answered():
    assert tt.RaggedBatch([], tt.uniform()).log_partition.shape == (0,)
    mixed = tt.RaggedBatch([[], [0.0]], tt.uniform())
    np.testing.assert_allclose(mixed.log_partition, [0.0, np.log(2.0)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0], [[1.0]]], tt.uniform()), "The log-odds of model 1 must be an array"),
        (([[0.0], [1.0]], [tt.uniform()]), "a list of 2"),
        (([[0.0], [1.0]], [np.zeros(2), np.zeros(5)]), "table of model 1 must have 2 entries"),
        ((np.zeros(3), tt.uniform(), [1, 1]), r"shape \(2,\); an array of shape \(3,\)"),
        ((np.zeros(3), tt.uniform(), [1.5, 1.5]), "whole numbers of at least 0"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(tt.ParameterError, match=message):
        tt.RaggedBatch(*arguments)


def some_bags(seed=0):
    rng = np.random.default_rng(seed)
    logits = [rng.normal(size=n) for n in (3, 1, 4, 3, 2, 4, 3)]
    odd, free = tt.parity("odd"), None
    table = [0.0, 1.0, -1.0, 2.0]
    most = tt.at_most(2)
    return tt.RaggedBatch(logits, [tt.at_least(1), free, tt.exactly(2), table, odd, most, most])


def test_draws_modes_and_probabilities_are_those_of_enumeration():
    bags = some_bags()
    drawn = bags.sample(4000, rng=1)
    best = bags.mode()
    for i, model in enumerate(bags):
        n = model.n_variables
        states = all_states((2,) * n).astype(np.uint8)
        log_f = np.asarray(model.tables[0]) if model.n_groups else np.zeros(n + 1)
        weights = states @ np.asarray(model.logits) + log_f[states.sum(axis=1)]
        probs = np.exp(weights - np.logaddexp.reduce(weights))
        assert np.isclose(probs[(states == best[i]).all(axis=1)][0], probs.max())
        seen = np.array([(drawn[i] == state).all(axis=1).mean() for state in states])
        assert np.abs(seen - probs).max() < 5.0 * np.sqrt(0.25 / 4000)
        positive = probs[probs > 0.0]
        assert np.isclose(bags.entropy[i], -(positive * np.log(positive)).sum())
        for state, p in zip(states, probs):
            y = [state if j == i else best[j] for j in range(len(bags))]
            with np.errstate(divide="ignore"):
                assert np.isclose(bags.log_prob(y)[i], np.log(p))
    together = np.concatenate(best)
    assert np.array_equal(bags.log_prob(together), bags.log_prob(best))
    assert [row.shape for row in bags.sample((2, 3), rng=0)] == [(2, 3, n) for n in bags.sizes]
    assert [row.shape for row in bags.sample(rng=0)] == [(n,) for n in bags.sizes]


def test_batches_are_frozen_equal_and_pickled():
    bags = some_bags()
    assert bags == some_bags()
    assert hash(bags) == hash(some_bags())
    assert bags != some_bags(1)
    assert bags != tt.RaggedBatch([np.asarray(m.logits) for m in bags], tt.at_most(1))
    for twin in (pickle.loads(pickle.dumps(bags)), copy.copy(bags), copy.deepcopy(bags)):
        assert twin == bags
        assert np.array_equal(twin.log_partition, bags.log_partition)
    for array in (bags.log_partition, bags.entropy, bags.error_bound, bags.marginals[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0
    flat = np.zeros(4)
    batch = tt.RaggedBatch(flat, tt.exactly(1), sizes=[2, 2])
    flat[0] = 5.0
    assert batch.marginals[0].tolist() == [0.5, 0.5]


def test_errors_name_the_model_by_its_place_in_the_batch():
    logits = [[0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0], [-np.inf, 0.0]]
    impossible = tt.RaggedBatch(logits, [tt.exactly(1), tt.exactly(1), tt.exactly(2), tt.exactly(2)])
    for ask in (
        lambda b: b.log_partition,
        lambda b: b.marginals,
        lambda b: b.mode(),
        lambda b: b.sample(rng=0),
    ):
        with pytest.raises(tt.InfeasibleError, match=r"^Model 3 gives probability zero"):
            ask(impossible)
    with pytest.raises(tt.ParameterError, match=r"^Model 0: `exactly\(3\)` needs a group of at least 3"):
        _ = tt.RaggedBatch(logits, tt.exactly(3)).log_partition
    bags = some_bags()
    with pytest.raises(tt.ParameterError, match="for each of the 7 models, or one array of 20 entries"):
        bags.log_prob([[0, 1]])
    with pytest.raises(tt.ParameterError, match="`y`"):
        bags.log_prob(np.zeros(19))
    with pytest.raises(tt.ParameterError, match=r"use exactly\(2\)"):
        tt.RaggedBatch(logits, 2)


def ragged_truth(logits, table, v, h):
    """Cov(y, s) and Cov(1[count], s) of one model by enumeration, s = v . y + h(count)."""
    n = len(logits)
    states = all_states((2,) * n)
    count = states.sum(1)
    weight = states @ logits + table[count]
    prob = np.exp(weight - weight.max())
    prob /= prob.sum()
    s = states @ v + np.where(table[count] > -np.inf, h[count], 0.0)
    s = s - prob @ s
    return (prob * s) @ states, np.bincount(count, prob * s, minlength=n + 1)


def ragged_models():
    rng = np.random.default_rng(5)
    sizes = [3, 1, 4, 3, 0, 4, 6]
    logits = [rng.normal(size=n) for n in sizes]
    tables = [rng.normal(size=n + 1) for n in sizes]
    tables[3][1] = -np.inf
    return logits, tables, [rng.normal(size=n) for n in sizes], [rng.normal(size=n + 1) for n in sizes]


def test_products_of_models_of_different_sizes():
    logits, tables, v, h = ragged_models()
    batch = tt.RaggedBatch(logits, tables)
    for found in (batch.hessian_vector_product(v, h), batch.hessian_vector_product(np.concatenate(v), h)):
        for i, got in enumerate(found):
            change, counts = ragged_truth(logits[i], tables[i], v[i], h[i])
            np.testing.assert_allclose(got.logits, change, atol=1e-13)
            np.testing.assert_allclose(got.tables[0], counts, atol=1e-13)
    alone = batch.hessian_vector_product(tables=[None, None, h[2], *[None] * 4], counts=False)
    np.testing.assert_allclose(
        alone[2].logits, ragged_truth(logits[2], tables[2], 0 * v[2], h[2])[0], atol=1e-13
    )
    assert not alone[0].logits.any()
    assert alone[0].tables == ()
    assert tt.RaggedBatch([], tt.exactly(1)).hessian_vector_product([]) == []


def test_covariances_of_models_of_different_sizes():
    logits, tables, _, _ = ragged_models()
    found = tt.RaggedBatch(logits, tables).covariance()
    for i, matrix in enumerate(found):
        n = len(logits[i])
        want = [ragged_truth(logits[i], tables[i], row, np.zeros(n + 1))[0] for row in np.eye(n)]
        np.testing.assert_allclose(matrix, np.reshape(want, (n, n)), atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logits": [0.0, 1.0]}, r"`logits` must be an array of real numbers, shape \(3,\)"),
        ({"logits": [[0.0], [0.0]]}, r"Model 0: `logits` must be an array of real numbers, shape \(2,\)"),
        ({"logits": "no"}, "logits"),
        ({"logits": [[np.inf, 0.0], [0.0]]}, "finite wherever the parameter is"),
        ({"tables": [[0.0, 0.0, 0.0]]}, "`tables` must be a list of 2"),
        ({"tables": 1.0}, "`tables` must be a list of 2"),
        ({"tables": [[0.0], None]}, "Model 0: `tables` must"),
        ({"tables": [np.zeros((2, 3)), None]}, "Model 0: `tables` must"),
        ({"counts": "yes"}, "`counts`"),
    ],
)
def test_wrong_directions_are_refused(arguments, message):
    with pytest.raises(tt.ParameterError, match=message):
        tt.RaggedBatch([[0.0, 0.0], [0.0]], tt.exactly(1)).hessian_vector_product(**arguments)
