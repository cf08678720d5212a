"""Maximum likelihood: gradients, optimisers, ties, gauges, recovery."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree import learn
from tallytree.errors import ParameterError
from tallytree.learn.free import free_parameters
from tallytree.learn.objective import Objective
from tallytree.learn.statistics import CountFeatures

GROUPS = [[0, 1], [2, 3, 4], [0, 1, 2, 3, 4], [5]]
ALL = all_states((2,) * 6)


def random_model(seed, groups=GROUPS, d=6):
    rng = np.random.default_rng(seed)
    tree = tt.CountTree.from_groups(groups, d)
    tables = [rng.normal(size=len(g) + 1) for g in groups]
    return tt.CountModel.from_tree(tree, rng.normal(size=d), tables)


def draw(model, n, seed):
    """Exact draws of a small model by enumeration."""
    rng = np.random.default_rng(seed)
    p = np.exp(model.log_prob(ALL))
    return ALL[rng.choice(len(ALL), size=n, p=p / p.sum())]


def objective_of(model, rows, logits="free", tables="free", **penalties):
    features = CountFeatures(model.tree)
    free = free_parameters(model, features, logits, tables)
    return Objective(model, features, free, features.mean(rows), **penalties), free


@pytest.mark.parametrize("seed", range(4))
def test_features_give_the_model_its_log_probability(seed):
    model = random_model(seed)
    features = CountFeatures(model.tree)
    got = features.log_weight(ALL, model.logits, np.concatenate(model.tables)) - model.log_partition
    np.testing.assert_allclose(got, model.log_prob(ALL), atol=1e-12)


@pytest.mark.parametrize(("logits", "tables"), [("free", "free"), ("tied", "by-size"), ("free", "fixed")])
def test_gradients_and_hessian_products_match_finite_differences(logits, tables):
    model, rows = random_model(0), draw(random_model(1), 200, 0)
    objective, free = objective_of(
        model, rows, logits, tables, penalties=(0.0, 0.1, 0.2, 0.0), smoothness=0.3
    )
    rng = np.random.default_rng(2)
    at, v, h = rng.normal(size=free.n_free) * 0.3, rng.normal(size=free.n_free), 1e-5
    _, gradient = objective.value_and_gradient(at)
    up, down = objective.value_and_gradient(at + h * v), objective.value_and_gradient(at - h * v)
    assert (up[0] - down[0]) / (2 * h) == pytest.approx(gradient @ v, rel=1e-6, abs=1e-7)
    np.testing.assert_allclose((up[1] - down[1]) / (2 * h), objective.hessian_product(at, v), atol=1e-6)


@pytest.mark.parametrize("method", ["l-bfgs", "cg", "newton-cg"])
def test_optimisers_match_the_moments(method):
    rows = draw(random_model(3), 500, 1)
    start = tt.CountModel.from_tree(tt.CountTree.from_groups(GROUPS, 6), np.zeros(6), [None] * 4)
    # Along the directions that nothing but `l2` fixes, rounding decides how many hundred steps "cg" takes.
    tol, most = (1e-5, 2000) if method == "cg" else (1e-7, 500)
    found = learn.fit(start, rows, method=method, tol=tol, max_iter=most, l2=1e-9)
    assert found.converged
    want = CountFeatures(start.tree).mean(rows)
    got = found.model.expected_statistics
    np.testing.assert_allclose(got.logits, want.logits, atol=3e-5)
    np.testing.assert_allclose(np.concatenate(got.tables), want.tables, atol=3e-5)
    assert found.log_likelihood == pytest.approx(float(np.mean(found.model.log_prob(rows))), abs=1e-9)
    assert found.history[-1] <= found.history[0]


def test_parameters_are_recovered():
    truth = random_model(5)
    features = CountFeatures(truth.tree)
    free = free_parameters(truth, features, "free", "free")
    truth = learn.maximum_likelihood.fix_gauge(truth, features, free)
    start = truth.replace(logits=np.zeros(6), tables=[np.zeros_like(t) for t in truth.tables])
    # All the information there is: the exact probabilities as weights.
    found = learn.fit(start, ALL, weights=np.exp(truth.log_prob(ALL)), tol=1e-9, method="newton-cg")
    np.testing.assert_allclose(found.model.log_prob(ALL), truth.log_prob(ALL), atol=1e-6)
    np.testing.assert_allclose(found.model.logits, truth.logits, atol=1e-5)
    for got, want in zip(found.model.tables, truth.tables):
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_sampled_data_recover_the_truth_within_sampling_error():
    truth = random_model(6)
    found = learn.fit(truth, draw(truth, 20_000, 3))
    kl = truth.kl_divergence(found.model)
    assert 0 <= kl < 20 / 20_000  # about half the number of parameters over n


def test_gauge_leaves_the_distribution_alone():
    rows = draw(random_model(7), 300, 4)
    start = random_model(8)
    fixed, loose = learn.fit(start, rows, l2=0.01), learn.fit(start, rows, l2=0.01, gauge=None)
    np.testing.assert_allclose(fixed.model.log_prob(ALL), loose.model.log_prob(ALL), atol=1e-9)
    for table in fixed.model.tables:
        assert table[0] == 0
        assert abs(table[-1]) < 1e-12


def test_structural_zeros_and_fixed_parts_stay():
    tree = tt.CountTree.from_groups([[0, 1, 2], [3, 4, 5]], 6)
    start = tt.CountModel.from_tree(tree, np.zeros(6), [tt.at_least(1), np.zeros(4)])
    rows = ALL[ALL[:, :3].sum(1) >= 1]
    found = learn.fit(start, rows, tables=["free", "fixed"], logits=[0, 0, 0, -1, -1, -1])
    assert found.model.tables[0][0] == -np.inf
    np.testing.assert_array_equal(found.model.tables[1], np.zeros(4))
    np.testing.assert_array_equal(found.model.logits[3:], np.zeros(3))
    assert len(set(found.model.logits[:3].tolist())) == 1
    with pytest.raises(ParameterError, match="probability zero"):
        learn.fit(start, ALL)


def test_batches_weights_and_warm_start():
    truth = random_model(9)
    rows = draw(truth, 400, 5)
    whole = learn.fit(truth, rows, l2=0.01)
    parts = learn.fit(truth, (rows[i : i + 100] for i in range(0, 400, 100)), l2=0.01)
    np.testing.assert_allclose(whole.model.log_prob(ALL), parts.model.log_prob(ALL), atol=1e-6)
    values, counts = np.unique(rows, axis=0, return_counts=True)
    weighted = learn.fit(truth, values, weights=counts, l2=0.01)
    np.testing.assert_allclose(whole.model.log_prob(ALL), weighted.model.log_prob(ALL), atol=1e-6)
    steps = []
    again = learn.fit(whole.model, rows, l2=0.0, tol=1e-4, progress=steps.append)
    cold = learn.fit(random_model(11), rows, l2=0.0, tol=1e-4)
    assert again.n_iterations <= cold.n_iterations
    assert len(steps) == again.n_iterations


@pytest.mark.parametrize("shape", ["shared", "own"])
def test_conditional_models_are_recovered(shape):
    rng = np.random.default_rng(0)
    tree = tt.CountTree.flat(4)
    n = 3000
    x = rng.normal(size=(n, 4, 2)) if shape == "shared" else rng.normal(size=(n, 2))
    coef = rng.normal(size=2) if shape == "shared" else rng.normal(size=(2, 4))
    table = np.array([0.0, 1.0, -1.0, 0.5, 0.0])
    states = all_states((2,) * 4)
    model = tt.CountModel.from_tree(tree, x @ coef, table)
    p = np.exp(model.log_prob(states[:, None, :])).T
    y = states[(rng.random((n, 1)) < p.cumsum(1)).argmax(1)]
    found = learn.fit_conditional(tree, x, y, l2=1e-6, intercept="none", tol=1e-5)
    np.testing.assert_allclose(found.coef, coef, atol=0.25)
    got = found.tables[0] - found.tables[0][0]
    np.testing.assert_allclose(got, table, atol=0.6)
    assert found.log_likelihood >= float(np.mean(model.log_prob(y))) - 1e-6
    quick = learn.fit_conditional(
        tree, x, y, l2=1e-6, intercept="none", batch_size=500, max_iter=30, rng=0, warm_start=None
    )
    assert quick.log_likelihood > found.log_likelihood - 0.01
    warm = learn.fit_conditional(tree, x, y, l2=1e-6, intercept="none", tol=1e-5, warm_start=found)
    assert len(warm.history) <= len(found.history)


def test_conditional_gradients_match_finite_differences():
    from tallytree.learn.regression import ConditionalProblem

    rng = np.random.default_rng(1)
    tree = tt.CountTree.from_groups([[0, 1], [0, 1, 2]], 3)
    x, y = rng.normal(size=(20, 3, 2)), rng.integers(0, 2, (20, 3))
    moving = ("shared", "free", "free")
    problem = ConditionalProblem(tree, None, x, y, rng.integers(0, 2, 20), None, moving, (0.1, 0.2, 0.3))
    at = rng.normal(size=len(problem.start(None))) * 0.3
    _, gradient = problem.on_rows(at, np.arange(20))
    for j in range(len(at)):
        e = 1e-5 * np.eye(len(at))[j]
        up, down = (problem.on_rows(at + s * e, np.arange(20))[0] for s in (1, -1))
        assert (up - down) / 2e-5 == pytest.approx(gradient[j], abs=1e-7)


def test_errors_say_what_to_do():
    model = random_model(0)
    with pytest.raises(ParameterError, match="zeros and ones"):
        learn.fit(model, np.zeros((3, 5)))
    with pytest.raises(ParameterError, match="an array of zeros and ones"):
        learn.fit(model, np.full((3, 6), 0.5))
    with pytest.raises(ParameterError, match="'l-bfgs'"):
        learn.fit(model, ALL, method="bfgs")
    with pytest.raises(ParameterError, match="not a batch"):
        learn.fit(tt.CountModel(np.zeros((2, 6)), tt.exactly(1)), ALL)
    with pytest.raises(ParameterError, match="`tables`"):
        learn.fit(model, ALL, tables=["free"])
    with pytest.raises(ParameterError, match="finite sum"):
        learn.fit(model, ALL, weights=np.full(64, 1e308))
    with pytest.raises(ParameterError, match="at least one row"):
        learn.fit_conditional(tt.CountTree.flat(2), np.zeros((0, 1)), np.zeros((0, 2)))


@pytest.mark.parametrize("method", ["l-bfgs", "newton-cg"])
def test_infinite_logits_leave_the_likelihood_finite(method):
    rows = ALL[(ALL[:, 0] == 1) & (ALL[:, 5] == 0)]
    rows = np.concatenate([rows, rows[:3]])
    logits = np.array([np.inf, 0.0, 0.0, 0.0, 0.0, -np.inf])
    start = tt.CountModel.from_tree(tt.CountTree.from_groups(GROUPS, 6), logits, [None] * 4)
    found = learn.fit(start, rows, tables="fixed", method=method, tol=1e-9)
    # Independent variables: the maximum has the frequencies as probabilities.
    p = rows[:, 1:5].mean(0)
    want = (p * np.log(p) + (1 - p) * np.log1p(-p)).sum()
    assert found.log_likelihood == pytest.approx(want, abs=1e-9)
    assert found.log_likelihood == pytest.approx(float(np.mean(found.model.log_prob(rows))), abs=1e-9)
    np.testing.assert_array_equal(found.model.logits[[0, 5]], [np.inf, -np.inf])


@pytest.mark.parametrize("weight", [1.0, 1e-14])
def test_rows_that_contradict_an_infinite_logit_are_refused(weight):
    start = tt.CountModel(np.array([np.inf, 0.0, 0.0]), np.zeros(4))
    rows = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 0]])
    with pytest.raises(ParameterError, match="variable 0"):
        learn.fit(start, rows, weights=[0.3, 0.7, weight])
    with pytest.raises(ParameterError, match="variable 1"):
        learn.fit(tt.CountModel(np.array([0.0, -np.inf, 0.0]), np.zeros(4)), rows)


@pytest.mark.parametrize("seed", range(20))
def test_weights_whose_sums_round_do_not_contradict_a_forced_variable(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 2, (50, 3))
    rows[:, 0] = 1
    start = tt.CountModel(np.array([np.inf, 0.0, 0.0]), np.zeros(4))
    found = learn.fit(start, rows, weights=rng.random(50), tables="fixed")
    assert np.isfinite(found.log_likelihood)


def test_batches_with_bad_weights_are_refused():
    model = random_model(0)
    with pytest.raises(ParameterError, match="non-negative"):
        learn.fit(model, iter([(ALL, np.ones(64)), (ALL, -0.5 * np.ones(64))]))
    whole = learn.fit(model, ALL, l2=0.1)
    parts = learn.fit(model, iter([(ALL, np.ones(64)), (ALL, np.zeros(64))]), l2=0.1)
    np.testing.assert_allclose(whole.model.log_prob(ALL), parts.model.log_prob(ALL), atol=1e-9)


def test_conditional_fits_refuse_rows_that_their_tables_exclude():
    x = np.random.default_rng(0).normal(size=(4, 3, 1))
    rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]])
    table = np.array([-np.inf, 0.0, 0.0, 0.0])
    with pytest.raises(ParameterError, match="row 2"):
        learn.fit_conditional(tt.CountTree.flat(3), x, rows, start_tables=table)
    with pytest.raises(ParameterError, match=r"`X`.*finite"):
        learn.fit_conditional(tt.CountTree.flat(3), np.where(x > 1e9, x, np.nan), rows)
