"""Covariances, pairs and Hessian-vector products against enumeration, finite differences and published values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import tallytree as tt
from helpers import model_of
from oracle import enumerate_model, finite_difference
from real_data import data_file
from strategies import batched_nested_models, nested_models

TAME = {"theta_scales": (1.0, 10.0), "table_scales": (0.5, 5.0)}


@settings(max_examples=150, deadline=None)
@given(nested_models(max_variables=10))
def test_covariance_and_pairs_agree_with_enumeration(case):
    model, truth = model_of(case), enumerate_model(case.theta, case.sets)
    np.testing.assert_allclose(model.covariance(), truth.covariance, atol=1e-11)
    np.testing.assert_allclose(model.pairwise(), truth.pairwise, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.covariance([0]), truth.covariance[:1], atol=1e-11)
    last = case.size - 1
    np.testing.assert_allclose(model.pairwise(0, last), truth.pairwise[0, last], rtol=1e-9, atol=1e-12)


@settings(max_examples=150, deadline=None)
@given(nested_models(max_variables=10, **TAME))
def test_hessian_times_vector_is_the_covariance_times_it(case):
    model, truth = model_of(case), enumerate_model(case.theta, case.sets)
    direction = np.random.default_rng(0).normal(size=case.size)
    found = model.hessian_vector_product(direction)
    np.testing.assert_allclose(found.logits, truth.covariance @ direction, atol=1e-9)
    for i, (members, _) in enumerate(case.sets):
        counts = truth.states[:, list(members)].sum(1)
        probs = np.exp(truth.log_probs)
        score = truth.states @ direction
        centred = probs * (score - probs @ score)
        want = np.bincount(counts, centred, len(members) + 1)
        np.testing.assert_allclose(found.tables[i], want, atol=1e-9)


def test_hessian_along_tables_is_a_finite_difference():
    rng = np.random.default_rng(1)
    logits, inner, outer = rng.normal(size=6), rng.normal(size=4), rng.normal(size=7)
    d_inner, d_outer, d_alone = rng.normal(size=4), rng.normal(size=7), rng.normal(size=2)

    def statistics(step):
        groups = [
            tt.Group(range(3), inner + step[0] * d_inner),
            tt.Group(None, outer + step[0] * d_outer),
            tt.Group([5], step[0] * d_alone),
        ]
        found = tt.CountModel(logits, groups).expected_statistics
        return np.concatenate([found.logits, *found.tables])

    want = finite_difference(statistics, np.zeros(1))[:, 0]
    groups = [tt.Group(range(3), inner), tt.Group(None, outer), tt.Group([5], None)]
    found = tt.CountModel(logits, groups).hessian_vector_product(tables=[d_inner, d_outer, d_alone])
    np.testing.assert_allclose(np.concatenate([found.logits, *found.tables]), want, atol=1e-8)


@pytest.mark.parametrize("potential", [tt.exactly(150), tt.gaussian(400.0, 10.0), tt.noisy_or(rate=0.1)])
def test_long_blocks_agree_with_conditioning(potential):
    n = 900
    rng = np.random.default_rng(2)
    model = tt.CountModel(rng.normal(size=n), potential)
    rows = [0, 17, 450]
    direction = np.zeros(n)
    direction[rows] = [1.0, -2.0, 0.5]
    covariance = model.covariance(rows)
    want = direction[rows] @ covariance
    moved = np.array([model.count_covariance(None, None)])
    found = model.hessian_vector_product(direction, counts=False)
    assert found.tables == ()
    np.testing.assert_allclose(found.logits, want, atol=1e-12)
    np.testing.assert_allclose(model.hessian_vector_product(direction).logits, want, atol=1e-12)
    counts = np.exp(model.count_log_probs())
    z = np.arange(n + 1.0)
    np.testing.assert_allclose(moved[0], counts @ z**2 - (counts @ z) ** 2, rtol=1e-6, atol=1e-8)


@settings(max_examples=50, deadline=None)
@given(nested_models(max_variables=8, **TAME))
def test_covariances_of_counts_agree_with_enumeration(case):
    model, truth = model_of(case), enumerate_model(case.theta, case.sets)
    for i in range(min(3, len(case.sets))):
        for j in range(min(3, len(case.sets))):
            want = truth.covariance[np.ix_(list(case.sets[i][0]), list(case.sets[j][0]))].sum()
            np.testing.assert_allclose(model.count_covariance(i, j), want, atol=1e-9)
    np.testing.assert_allclose(model.count_covariance(), truth.covariance.sum(), atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(batched_nested_models(max_variables=6))
def test_batches_agree_with_single_models(case):
    model = tt.CountModel(case.theta, [tt.Group(m, t) for m, t in case.sets])
    covariance = model.covariance()
    assert covariance.shape == (*case.batch_shape, model.n_variables, model.n_variables)
    for index, single in case.items():
        truth = enumerate_model(single.theta, single.sets)
        np.testing.assert_allclose(covariance[index], truth.covariance, atol=1e-11)
        np.testing.assert_allclose(model.pairwise()[index], truth.pairwise, rtol=1e-9, atol=1e-12)


def test_equal_logits_are_no_special_case():
    n, k = 200, 60
    model = tt.CountModel(np.full(n, 0.3), tt.exactly(k))
    joint = k * (k - 1) / (n * (n - 1))
    np.testing.assert_allclose(model.pairwise(3, [4, 5, 199]), joint, rtol=1e-12)
    np.testing.assert_allclose(model.covariance([0])[0, 1], joint - (k / n) ** 2, rtol=1e-9)


def test_bad_arguments_are_refused():
    model = tt.CountModel(np.zeros(3), tt.exactly(1))
    for call, message in [
        (lambda: model.covariance([3]), "numbers of variables from 0 to 2.*entry 0 is 3"),
        (lambda: model.covariance([0.5]), "numbers of variables"),
        (lambda: model.pairwise(0), "both"),
        (lambda: model.pairwise(0, -1), "numbers of variables from 0.* -1"),
        (lambda: model.hessian_vector_product(np.zeros(5)), "must broadcast"),
        (lambda: model.hessian_vector_product(tables=[np.zeros(9)]), "4 entries"),
        (lambda: model.count_covariance(2), "0 to 0"),
    ]:
        with pytest.raises(tt.ParameterError, match=message):
            call()


@pytest.mark.data
def test_the_example_of_maximum_entropy_sampling_is_reproduced():
    table = np.genfromtxt(data_file("survey/maxent_example6.csv"), delimiter=",", names=True)
    model = tt.CountModel(np.log(table["pikt"]) - np.log1p(-table["pikt"]), tt.exactly(3))
    joint = np.column_stack([table[f"pi2_{i}"] for i in range(1, 7)])
    np.testing.assert_allclose(model.marginals, table["pik"], rtol=1e-10)
    np.testing.assert_allclose(model.pairwise(), joint, rtol=1e-10)


@pytest.mark.data
@pytest.mark.parametrize("n", [20, 50])
def test_joint_inclusion_probabilities_of_mu284_are_reproduced(n):
    table = np.genfromtxt(data_file("survey/MU284.csv"), delimiter=",", names=True)
    reference = np.load(data_file("survey/mu284_joint_inclusion.npz"))
    index = reference[f"index_n{n}"]
    odds = table[f"pikt_P75_n{n}"][index]
    certain = len(table) - len(index)
    model = tt.CountModel(np.log(odds) - np.log1p(-odds), tt.exactly(n - certain))
    np.testing.assert_allclose(model.pairwise(), reference[f"pi2_n{n}"], rtol=1e-10)


@pytest.mark.parametrize("tables", [[], [None, None], [np.zeros(4), np.zeros(4)]])
def test_a_direction_has_one_table_per_group(tables):
    model = tt.CountModel(np.zeros(3), tt.exactly(1))
    with pytest.raises(tt.ParameterError, match="one entry per group of the tree, 1 in all"):
        model.hessian_vector_product(tables=tables)
