"""Factors over the same variables are passed messages as one: against enumeration."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import oracle_graphs
import tallytree as tt
from tallytree.loopy import dual_decomposition, holder_bound, trw_bound

INF = math.inf


def table(rng, n, spread=3.0, hard=0.2):
    found = spread * rng.normal(size=n + 1)
    found[rng.random(n + 1) < hard] = -INF
    found[int(rng.integers(n + 1))] = 0.0
    return found


def both(logits, groups, pairs=()):
    """The graph and the same as plain data for the oracle."""
    factors = [oracle_graphs.Factor(np.array(members), np.array(t, float)) for members, t in groups]
    case = oracle_graphs.Case(np.array(logits, float), factors, [(*p, np.array(t, float)) for p, t in pairs])
    edges = ([p for p, _ in pairs], np.array([t for _, t in pairs], float)) if pairs else None
    graph = tt.FactorGraph(logits, [tt.Group(members, t) for members, t in groups], edges=edges)
    return graph, case


def counts(case, members):
    """Log-probabilities of the counts of some variables."""
    y, w = oracle_graphs.log_weights(case)
    p = np.exp(w - w.max())
    found = np.bincount(y[:, members].sum(1), p / p.sum(), minlength=len(members) + 1)
    with np.errstate(divide="ignore"):
        return np.log(found)


def assert_exact(graph, case, schedule="sequential"):
    """Answers where the factors, equal ones taken as one, form a tree."""
    log_z, marginals, best = oracle_graphs.solve(case)
    found = tt.loopy_bp(graph, schedule=schedule)
    assert found.converged
    np.testing.assert_allclose(found.marginals, marginals, atol=1e-9)
    assert found.bethe_log_partition == pytest.approx(log_z, abs=1e-8)
    for g in range(graph.n_groups):
        want = counts(case, graph.members(g))
        got = found.count_log_probs(g)
        assert np.array_equal(np.isneginf(got), np.isneginf(want))
        np.testing.assert_allclose(np.exp(got), np.exp(want), atol=1e-9)
    largest = tt.loopy_bp(graph, schedule=schedule, semiring="max")
    assert largest.bethe_log_partition == pytest.approx(best, abs=1e-8)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("seed", range(12))
def test_groups_of_one_set_are_exact(seed, schedule):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    logits = 2.0 * rng.normal(size=n)
    if n > 2 and seed % 3 == 0:
        logits[:2] = INF, -INF
    same = [(rng.permutation(n), 3.0 * rng.normal(size=n + 1)) for _ in range(int(rng.integers(2, 5)))]
    same[0][1][rng.permutation(n + 1)[: n // 3]] = -INF
    graph, case = both(logits, same)
    if oracle_graphs.solve(case) is None:
        with pytest.raises(tt.InfeasibleError):
            tt.loopy_bp(graph)
        return
    assert_exact(graph, case, schedule)


@pytest.mark.parametrize("seed", range(12))
def test_trees_of_sets_that_groups_and_edges_share(seed):
    rng = np.random.default_rng(100 + seed)
    first, second = np.array([0, 1, 2, 3]), np.array([3, 4, 5])
    groups = [
        (first, table(rng, 4, hard=0.0)),
        (rng.permutation(second), table(rng, 3, hard=0.0)),
        (rng.permutation(first), table(rng, 4, hard=0.0)),
        ([6, 5], table(rng, 2, hard=0.0)),
        (rng.permutation(second), table(rng, 3, hard=0.0)),
        ([5, 6], table(rng, 2, hard=0.0)),
        ([7], table(rng, 1, hard=0.0)),
        ([7], table(rng, 1, hard=0.0)),
    ]
    pairs = [(pair, rng.normal(size=(2, 2))) for pair in ((5, 6), (6, 7), (6, 5), (7, 6))]
    graph, case = both(rng.normal(size=8), groups, pairs if seed % 2 else [])
    assert_exact(graph, case)
    assert_exact(graph, case, "parallel")


@pytest.mark.parametrize("seed", range(6))
def test_bounds_of_a_joined_tree_meet_log_z(seed):
    rng = np.random.default_rng(seed)
    members = np.arange(5)
    groups = [(members, 2.0 * rng.normal(size=6)), (members[::-1], 2.0 * rng.normal(size=6))]
    pairs = [((4, 5), rng.normal(size=(2, 2))), ((5, 4), rng.normal(size=(2, 2)))]
    graph, case = both(rng.normal(size=6), groups, pairs)
    log_z = oracle_graphs.solve(case)[0]
    assert trw_bound(graph).value == pytest.approx(log_z, abs=1e-8)
    assert holder_bound(graph).value >= log_z - 1e-9
    alone, case = both(rng.normal(size=5), groups)
    assert holder_bound(alone).value == pytest.approx(oracle_graphs.solve(case)[0], abs=1e-9)
    assert dual_decomposition(alone).upper_bound == pytest.approx(oracle_graphs.solve(case)[2], abs=1e-9)


def grid(rng, twice):
    """Rows and columns of a 3 x 4 grid; `twice` has every potential as two factors, else their product."""
    cells = np.arange(12).reshape(3, 4)
    sets = [*cells, *cells.T]
    halves = [(table(rng, len(s), 1.0, 0.0), table(rng, len(s), 1.0, 0.0)) for s in sets]
    if not twice:
        return [(s, a + b) for s, (a, b) in zip(sets, halves, strict=True)]
    first = [(s, a) for s, (a, _) in zip(sets, halves, strict=True)]
    return first + [(s[::-1], b) for s, (_, b) in zip(sets, halves, strict=True)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("semiring", ["sum", "max"])
def test_with_cycles_two_factors_are_their_product(seed, semiring):
    logits = np.random.default_rng(seed).normal(size=12)
    apart, _ = both(logits, grid(np.random.default_rng(seed), True))
    joined, _ = both(logits, grid(np.random.default_rng(seed), False))
    got, want = (tt.loopy_bp(graph, semiring=semiring) for graph in (apart, joined))
    assert got.converged == want.converged
    np.testing.assert_allclose(got.log_odds, want.log_odds, atol=1e-7)
    assert got.bethe_log_partition == pytest.approx(want.bethe_log_partition, abs=1e-7)
    assert got.lower_bound_condition == want.lower_bound_condition
    for g in range(7):
        np.testing.assert_allclose(got.cavity_log_odds(g), want.cavity_log_odds(g), atol=1e-7)
        np.testing.assert_allclose(got.cavity_log_odds(7 + g)[::-1], want.cavity_log_odds(g), atol=1e-7)
        if semiring == "sum":
            for number in (g, 7 + g):
                np.testing.assert_allclose(
                    got.count_log_probs(number), want.count_log_probs(g), rtol=1e-6, atol=1e-6
                )


def test_a_lower_bound_is_claimed_for_the_product_alone():
    bent = np.array([0.0, 0.3, 0.3, 0.0])
    graph, case = both(np.zeros(4), [([0, 1, 2], bent), ([2, 0, 1], -2.0 * bent), ([2, 3], [0.0, 0.0, -INF])])
    found = tt.loopy_bp(graph)
    product, _ = both(np.zeros(4), [([0, 1, 2], -bent), ([2, 3], [0.0, 0.0, -INF])])
    assert found.lower_bound_condition == tt.loopy_bp(product).lower_bound_condition
    assert found.lower_bound_condition.startswith("no: the polynomial")
    assert found.bethe_log_partition == pytest.approx(oracle_graphs.solve(case)[0], abs=1e-9)


def test_a_run_on_equal_groups_can_be_resumed_and_stored():
    rng = np.random.default_rng(5)
    graph, _ = both(rng.normal(size=12), grid(rng, True))
    begun = tt.loopy_bp(graph, max_iter=2)
    went_on = tt.loopy_bp(graph, start=pickle.loads(pickle.dumps(begun)))
    np.testing.assert_allclose(went_on.marginals, tt.loopy_bp(graph).marginals, atol=1e-7)


def test_groups_that_contradict_one_another_are_refused():
    graph = tt.FactorGraph(
        np.zeros(4), [tt.Group([0, 3], tt.exactly(1)), *(tt.Group([1, 2], tt.exactly(k)) for k in (0, 2))]
    )
    with pytest.raises(tt.InfeasibleError, match="Factor 1 of the graph"):
        tt.loopy_bp(graph)


def test_a_model_over_the_members_of_a_group_stays_a_factor_of_its_own():
    model = tt.CountModel([0.3, -0.2, 0.1], tt.at_most(2))
    graph = tt.FactorGraph(np.zeros(3), [tt.Group(range(3), model), tt.Group(range(3), [0.0, 0.1, 0.0, 0.2])])
    found = tt.loopy_bp(graph)
    assert found.converged
    assert len(found.messages) == 6
    assert np.isfinite(found.count_log_probs(1)).all()
