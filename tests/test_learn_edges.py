"""Maximum likelihood of models with edges: gradients, recovery, Chow-Liu trees, ties."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree import learn
from tallytree.errors import ParameterError
from tallytree.learn.densities import chow_liu
from tallytree.learn.free import free_parameters
from tallytree.learn.objective import Objective

PAIRS = [(0, 1), (2, 1), (1, 3), (3, 4)]
GROUPS = [[0, 1, 2], None]
ALL = all_states((2,) * 6)


def random_model(seed, groups=GROUPS, d=6, pairs=PAIRS):
    rng = np.random.default_rng(seed)
    sized = [tt.Group(g, tt.table(rng.normal(size=(d if g is None else len(g)) + 1))) for g in groups]
    return tt.CountModel(
        rng.normal(size=d), sized, edges=tt.Forest(pairs, rng.normal(size=(len(pairs), 2, 2)))
    )


def blank(model):
    """The same structure with nothing in it."""
    tables = [np.zeros_like(t) for t in model.tables]
    zero = np.zeros_like(model.edges.log_tables)
    return model.replace(logits=np.zeros(model.n_variables), tables=tables, edges=zero)


def interactions(model):
    t = model.edges.log_tables
    return t[:, 1, 1] - t[:, 1, 0] - t[:, 0, 1] + t[:, 0, 0]


def draw(model, n, seed):
    p = np.exp(model.log_prob(ALL))
    return ALL[np.random.default_rng(seed).choice(len(ALL), size=n, p=p / p.sum())]


@pytest.mark.parametrize(
    ("logits", "tables", "edges"),
    [("free", "free", "free"), ("tied", "by-size", "tied"), ("fixed", "fixed", [0, 1, -1, 0])],
)
def test_gradient_matches_finite_differences_and_brute_force(logits, tables, edges):
    model, rows = random_model(0), draw(random_model(1), 200, 0)
    features = learn.CountFeatures(model.tree, model.edges.pairs)
    free = free_parameters(model, features, logits, tables, edges)
    penalties = {"penalties": (0.0, 0.1, 0.2, 0.4), "smoothness": 0.3}
    objective = Objective(model, features, free, features.mean(rows), **penalties)
    plain = Objective(model, features, free, features.mean(rows))
    at, h = np.random.default_rng(2).normal(size=free.n_free) * 0.3, 1e-5
    _, gradient = objective.value_and_gradient(at)
    for k in range(free.n_free):
        step = h * (np.arange(free.n_free) == k)
        up, down = (objective.value_and_gradient(at + s * step)[0] for s in (1, -1))
        assert (up - down) / (2 * h) == pytest.approx(gradient[k], rel=1e-6, abs=1e-8)
    value, _ = plain.value_and_gradient(at)
    assert value == pytest.approx(-float(np.mean(objective.model_at(at).log_prob(rows))), abs=1e-10)


@pytest.mark.parametrize("method", ["l-bfgs", "cg"])
@pytest.mark.parametrize("groups", [GROUPS, [], [[0, 1]]])
def test_exact_probabilities_are_recovered(method, groups):
    truth = random_model(3, groups)
    p = np.exp(truth.log_prob(ALL))
    found = learn.fit(blank(truth), ALL, weights=p, method=method, tol=1e-7, max_iter=3000)
    assert found.log_likelihood == pytest.approx(-float(truth.entropy), abs=1e-8)
    assert found.log_likelihood == pytest.approx(float(p @ found.model.log_prob(ALL)), abs=1e-10)
    np.testing.assert_allclose(found.model.edge_marginals, truth.edge_marginals, atol=1e-6)
    known = slice(1 if [0, 1] in groups else 0, None)  # a table of the edge's two ends says the same as it
    np.testing.assert_allclose(interactions(found.model)[known], interactions(truth)[known], atol=1e-3)
    assert (found.model.edges.log_tables.reshape(-1, 4)[:, :3] == 0).all()


def test_without_counts_the_fit_is_the_chow_liu_tree():
    rng = np.random.default_rng(4)
    rows = (rng.normal(size=(150, 5)).cumsum(1) > 0.2).astype(np.int64)
    rows ^= rng.random(rows.shape) < 0.1
    closed = chow_liu(rows, pseudo_count=0.0)
    child = np.flatnonzero(closed.parent >= 0)
    pairs = np.stack([closed.parent[child], child], axis=1)
    found = learn.fit(tt.CountModel(np.zeros(5), edges=tt.Forest(pairs, 0.0)), rows, tol=1e-8)
    np.testing.assert_allclose(found.log_likelihood, closed.log_prob(rows).mean(), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.model.log_prob(rows), closed.log_prob(rows), atol=1e-5)


def test_tied_and_fixed_edges():
    rows, start = draw(random_model(5), 300, 1), random_model(6)
    before = start.edges.log_tables
    fixed = learn.fit(start, rows, edges="fixed", l2=1e-4)
    np.testing.assert_array_equal(fixed.model.edges.log_tables, before)
    tied = learn.fit(start, rows, edges="tied", l2=1e-4)
    moved = interactions(tied.model) - interactions(start)
    np.testing.assert_allclose(moved, moved[0], atol=1e-12)
    some = learn.fit(start, rows, edges=[2, -1, 2, 0], l2=1e-4)
    moved = interactions(some.model) - interactions(start)
    assert moved[1] == 0
    assert moved[0] == pytest.approx(moved[2], abs=1e-12)
    assert abs(moved[3] - moved[0]) > 1e-3
    free = learn.fit(start, rows, l2=1e-4)
    assert fixed.history[-1] > tied.history[-1] > free.history[-1]
    frequencies = learn.CountFeatures(start.tree, start.edges.pairs).mean(rows).edges.reshape(-1, 2, 2)
    np.testing.assert_allclose(free.model.edge_marginals, frequencies, atol=2e-3)
    held = learn.fit(start, rows, l2=1e-4, l2_edges=1e4)
    np.testing.assert_allclose(interactions(held.model), interactions(start), atol=1e-3)


def test_batches_statistics_and_warm_start():
    truth = random_model(7)
    rows = draw(truth, 400, 2)
    whole = learn.fit(truth, rows, l2=0.01)
    parts = learn.fit(truth, (rows[i : i + 100] for i in range(0, 400, 100)), l2=0.01)
    np.testing.assert_allclose(whole.model.log_prob(ALL), parts.model.log_prob(ALL), atol=1e-8)
    features = learn.CountFeatures(truth.tree, truth.edges.pairs)
    ready = learn.fit(truth, features.mean(rows), l2=0.01)
    np.testing.assert_array_equal(whole.model.log_prob(ALL), ready.model.log_prob(ALL))
    # A start whose tables are gauged otherwise is the same distribution.
    free = free_parameters(blank(truth), features, "free", "free", "free")
    objective = Objective(blank(truth), features, free, features.mean(rows))
    begun = objective.model_at(free.values(truth))
    np.testing.assert_allclose(begun.log_prob(ALL), truth.log_prob(ALL), atol=1e-10)
    again = learn.fit(blank(truth), rows, start=learn.fit(truth, rows, tol=1e-6).model, tol=1e-5)
    assert again.n_iterations == 0


@pytest.mark.parametrize("cell", range(4))
def test_impossible_pairs_stay(cell):
    table = np.full(4, 0.5)
    table[cell] = -np.inf
    start = tt.CountModel(
        np.zeros(6), edges=tt.Forest([(0, 1), (1, 2)], [table.reshape(2, 2), np.zeros((2, 2))])
    )
    rows = ALL[2 * ALL[:, 0] + ALL[:, 1] != cell]
    rows = rows[np.random.default_rng(cell).integers(len(rows), size=200)]
    found = learn.fit(start, rows, tol=1e-7)
    kept = found.model.edges.log_tables[0].reshape(-1)[:3]
    np.testing.assert_array_equal(kept, table[:3])
    assert np.isneginf(found.model.edges.log_tables[0].reshape(-1)[cell])
    want = learn.CountFeatures(start.tree, start.edges.pairs).mean(rows).edges
    np.testing.assert_allclose(found.model.edge_marginals.reshape(-1), want, atol=1e-6)
    assert learn.fit(start, rows, start=found.model, tol=1e-6).n_iterations == 0
    with pytest.raises(ParameterError, match="probability zero"):
        learn.fit(start, ALL)


def test_newton_serves_where_edges_stay():
    truth = random_model(11)
    start = truth.replace(logits=np.zeros(6), tables=[np.zeros_like(t) for t in truth.tables])
    weights = np.exp(truth.log_prob(ALL))
    found = {
        method: learn.fit(start, ALL, weights=weights, edges="fixed", method=method, l2=1e-6)
        for method in ("newton-cg", "l-bfgs")
    }
    assert found["newton-cg"].n_products > 0
    assert found["newton-cg"].history[-1] == pytest.approx(found["l-bfgs"].history[-1], abs=1e-7)
    np.testing.assert_allclose(found["newton-cg"].model.log_prob(ALL), truth.log_prob(ALL), atol=1e-2)


def test_errors_say_what_serves():
    model = random_model(8)
    with pytest.raises(ParameterError, match=r"'l-bfgs' or 'cg' where edges are learned.*edges='fixed'"):
        learn.fit(model, ALL, method="newton-cg")
    with pytest.raises(ParameterError, match="`edges` must be one of 'free', 'tied', 'fixed'"):
        learn.fit(model, ALL, edges="loose")
    with pytest.raises(ParameterError, match=r"`edges` must be .*integer labels.*shape \(4,\)"):
        learn.fit(model, ALL, edges=[0, 1])
    with pytest.raises(ParameterError, match="`l2_edges`"):
        learn.fit(model, ALL, l2_edges=-1.0)
    with pytest.raises(ParameterError, match="statistics for the 4 edges"):
        learn.fit(model, learn.CountFeatures(model.tree).mean(ALL))
    with pytest.raises(ParameterError, match="structure of `model`"):
        learn.fit(model, ALL, start=random_model(8, pairs=[(0, 1), (1, 2), (1, 3), (3, 4)]))
