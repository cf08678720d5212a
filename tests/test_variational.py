"""Mean field and tree-reweighted bounds: both sides of log Z by enumeration, exact where they must be."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallytree as tt
from oracle_graphs import Case, Factor, build, is_tree, log_weights, random_case, solve
from oracle_states import all_states
from tallytree.loopy import holder_bound, mean_field, trw_bound

INF = math.inf


def soft_case(seed: int) -> Case:
    """A case without anything forbidden, and of moderate size."""
    rng = np.random.default_rng([7, seed])
    while True:
        case = random_case(rng)
        tables = [f.table for f in case.factors if f.table is not None]
        tables += [t for f in case.factors for _, t in f.groups]
        tables += [t for f in case.factors for _, _, t in f.edges] + [t for _, _, t in case.pairs]
        logits = [case.logits, *(f.logits for f in case.factors if f.logits is not None)]
        if all(np.isfinite(t).all() for t in tables) and all(np.isfinite(x).all() for x in logits):
            return case


@pytest.mark.parametrize("seed", range(25))
def test_mean_field_is_a_lower_bound(seed):
    case = soft_case(seed)
    log_z, _, _ = solve(case)
    graph = build(case)
    found = mean_field(graph, max_iter=60)
    assert found.value <= log_z + 1e-9 * (1.0 + abs(log_z))
    assert not np.isnan(found.marginals).any()
    # what is reported is the bound of the distribution that is reported
    y, w = log_weights(case)
    log_q = np.where(y == 1, -np.logaddexp(0.0, -found.log_odds), -np.logaddexp(0.0, found.log_odds)).sum(1)
    q = np.exp(log_q)
    value = float((q * (w - log_q))[q > 0.0].sum())
    assert found.value == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_the_tree_reweighted_bound_is_an_upper_bound_and_exact_on_trees(seed):
    rng = np.random.default_rng([8, seed])
    case = random_case(rng, tree=seed % 3 == 0)
    exact = solve(case)
    try:
        found = trw_bound(build(case), max_iter=25)
    except tt.InfeasibleError:
        assert exact is None
        return
    assert not math.isnan(found.value)
    if exact is not None:
        assert found.value >= exact[0] - 1e-9 * (1.0 + abs(exact[0]))
        if is_tree(case):
            assert found.value == pytest.approx(exact[0], rel=1e-9, abs=1e-9)
            np.testing.assert_allclose(found.marginals, exact[1], atol=1e-8)


def grid(seed: int, rows, columns, shape=(3, 3)):
    theta = np.random.default_rng(seed).normal(size=shape)
    index = np.arange(theta.size).reshape(shape)
    factors = [Factor(m, table=rows) for m in index] + [Factor(m, table=columns) for m in index.T]
    return Case(theta.ravel(), factors, [])


@pytest.mark.parametrize("seed", range(4))
def test_structured_mean_field_keeps_hard_rows_and_beats_naive(seed):
    soft = np.array([0.0, 0.5, -0.5, -2.0])
    hard = np.array([-INF, 0.0, -INF, -INF])
    case = grid(seed, hard, soft)
    log_z, _, _ = solve(case)
    found = mean_field(build(case), keep=[0, 1, 2])
    assert found.converged
    assert log_z - 1.0 <= found.value <= log_z
    np.testing.assert_allclose(found.marginals.reshape(3, 3).sum(1), 1.0, rtol=1e-9)
    both = grid(seed, soft, soft)
    exact = solve(both)[0]
    naive, structured = mean_field(build(both)).value, mean_field(build(both), keep=[0, 1, 2]).value
    assert naive <= structured + 1e-9 <= exact + 2e-9


def test_mean_field_is_exact_where_everything_is_kept_or_independent():
    chain = tt.CountModel(np.zeros(3), tt.at_most(2), edges=tt.Forest([(0, 1), (1, 2)], [1.0, -2.0]))
    graph = tt.FactorGraph([0.3, -1.0, 0.5, 2.0], [tt.Group([0, 1, 2], chain)])
    assert mean_field(graph, keep=[0]).value == pytest.approx(
        tt.loopy_bp(graph).bethe_log_partition, rel=1e-12
    )
    loose = tt.FactorGraph([INF, -INF, 0.5], [tt.Group([0, 1], tt.CountModel([2.0, 1.0]))])
    assert mean_field(loose).value == pytest.approx(2.0 + np.logaddexp(0.0, 0.5), rel=1e-12)


def test_tree_reweighting_is_tighter_than_classes_on_rings():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        pairs = [(i, (i + 1) % 5) for i in range(5)]
        graph = tt.FactorGraph(rng.normal(size=5), edges=(pairs, rng.normal(size=(5, 2, 2)) * 2.0))
        y = all_states((2,) * 5)
        log_z = np.logaddexp.reduce(graph.log_weight(y))
        assert log_z - 1e-9 <= trw_bound(graph).value <= holder_bound(graph).value + 1e-6


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda g: mean_field(g), "forbids what independent variables reach"),
        (lambda g: mean_field(g, keep=[0, 1]), "without common variables"),
        (lambda g: mean_field(g, keep=[0]), "two variables in common"),
        (lambda g: mean_field(g, keep=[5]), "`keep` must"),
        (lambda g: mean_field(g, keep=0.5), "`keep` must"),
        (lambda g: mean_field(g, tol=-1.0), "`tol` must"),
        (lambda g: mean_field(3), "FactorGraph"),
        (lambda g: trw_bound(g, start=3), "`start` must"),
        (lambda g: trw_bound(g, max_iter=0.5), "`max_iter` must"),
        (lambda g: trw_bound("x"), "FactorGraph"),
    ],
)
def test_wrong_arguments_are_refused_with_a_reason(make, text):
    graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1, 2], tt.at_most(2)), tt.Group([0, 1], tt.exactly(1))])
    with pytest.raises((tt.ParameterError, tt.StructureError), match=text):
        make(graph)


def test_interrupted_runs_return_what_they_have():
    def stop(*_):
        raise KeyboardInterrupt

    case = grid(0, np.array([0.0, 0.5, -0.5, -2.0]), np.array([0.0, 1.0, 0.5, -2.0]))
    log_z = solve(case)[0]
    low, high = mean_field(build(case), progress=stop), trw_bound(build(case), progress=stop)
    assert low.interrupted
    assert high.interrupted
    assert low.value <= log_z <= high.value
