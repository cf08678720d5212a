"""A ragged batch is the same as its models one by one."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt


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
        (([[0.0], [[1.0]]], tt.uniform()), "model 1 has shape"),
        (([[0.0], [1.0]], [tt.uniform()]), "a list of 2"),
        (([[0.0], [1.0]], [np.zeros(2), np.zeros(5)]), "table of model 1 must have 2 entries"),
        ((np.zeros(3), tt.uniform(), [1, 1]), "add up to 2, but 3 logits arrived"),
        ((np.zeros(3), tt.uniform(), [1.5, 1.5]), "non-negative integers"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(tt.ParameterError, match=message):
        tt.RaggedBatch(*arguments)


def ragged_truth(logits, table, v, h):
    """Cov(y, s) and Cov(1[count], s) of one model by enumeration, s = v . y + h(count)."""
    n = len(logits)
    states = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
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
        ({"logits": [0.0, 1.0]}, "`logits` must hold one array for each of the 2 models"),
        ({"logits": [[0.0], [0.0]]}, "`logits` must hold one array for each of the 2 models"),
        ({"logits": "no"}, "logits"),
        ({"logits": [[np.inf, 0.0], [0.0]]}, "finite wherever the parameter is"),
        ({"tables": [[0.0, 0.0, 0.0]]}, "`tables` must be a list of 2"),
        ({"tables": 1.0}, "`tables` must be a list of 2"),
        ({"tables": [[0.0], None]}, "The direction of model 0"),
        ({"tables": [np.zeros((2, 3)), None]}, "The direction of model 0"),
        ({"counts": "yes"}, "`counts`"),
    ],
)
def test_wrong_directions_are_refused(arguments, message):
    with pytest.raises(tt.ParameterError, match=message):
        tt.RaggedBatch([[0.0, 0.0], [0.0]], tt.exactly(1)).hessian_vector_product(**arguments)
