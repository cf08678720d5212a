"""Best configurations and max-marginals with edges under bounds, against enumeration and a quadratic recursion."""

from __future__ import annotations

import math

import numpy as np
import pytest

import oracle
import tallytree as tt
from forest_cases import FAMILIES, SHAPES, forest_case, parents_of
from tallytree import config
from tallytree.engine.forest import maxima
from tallytree.engine.forest.maxima import dual, solve

INF = math.inf


@pytest.fixture
def always_bounds(monkeypatch):
    """Bounds for models of every size."""
    monkeypatch.setattr(maxima, "LARGE", -1)


def check(model, truth):
    best = truth.log_weights.max()
    if best == -INF:
        with pytest.raises(tt.InfeasibleError):
            model.mode()
        with pytest.raises(tt.InfeasibleError):
            model.max_marginals  # noqa: B018
        return
    size = 1e-13 * max(1.0, abs(float(best)))
    assert float(model.max_log_weight) == pytest.approx(float(best), abs=10 * size + 1e-12)
    at = np.flatnonzero((truth.states == model.mode()).all(1))
    assert truth.log_weights[at[0]] == pytest.approx(float(best), abs=10 * size + 1e-12)
    np.testing.assert_allclose(
        model.max_marginals, np.asarray(truth.max_marginals, float), atol=100 * size + 1e-11, rtol=0
    )


def tables(kind, n, rng):
    k = np.arange(n + 1)
    match kind:
        case "concave":
            return -0.3 * (k - rng.uniform(0, n)) ** 2
        case "exactly":
            return np.where(k == rng.integers(0, n + 1), 0.0, -INF)
        case "interval":
            low, high = np.sort(rng.integers(0, n + 1, 2))
            return np.where((k >= low) & (k <= high), -0.1 * k**2, -INF)
        case "even":
            return np.where(k % 2 == 0, 0.0, -INF)
        case "ties":
            return rng.integers(-1, 2, n + 1).astype(float)
    return 5.0 * rng.normal(size=n + 1)


TABLES = ("concave", "exactly", "interval", "even", "ties", "any")
COUPLINGS = ("ties", "mixed", "parity", "repulsive", "attractive")


def edge_table(kind, rng):
    a = {"ties": float(rng.integers(-1, 2)), "mixed": 2 * rng.normal(), "parity": 80.0, "repulsive": -40.0}
    strength = a.get(kind, 3.0)
    return np.array([[strength, 0.0], [0.0, strength]])


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_one_potential_under_bounds_gives_what_enumeration_gives(always_bounds, shape, coupling):
    rng = np.random.default_rng([SHAPES.index(shape), COUPLINGS.index(coupling)])
    for kind in TABLES:
        for n in (1, 2, 3, 7):
            theta = rng.integers(-2, 3, n).astype(float) if coupling == "ties" else 2 * rng.normal(size=n)
            theta[rng.random(n) < 0.1] = rng.choice([INF, -INF])
            pairs = [(p, v) for v, p in enumerate(parents_of(shape, n, rng)) if p >= 0]
            edges = [(i, j, edge_table(coupling, rng)) for i, j in pairs]
            log_f = tables(kind, n, rng)
            truth = oracle.enumerate_model(theta, [(list(range(n)), log_f)], edges)
            forest = tt.Forest(pairs, np.array([t for *_, t in edges]).reshape(-1, 2, 2))
            check(tt.CountModel(theta, log_f, edges=forest), truth)


@pytest.mark.parametrize("family", FAMILIES)
def test_nested_sets_under_bounds_give_what_enumeration_gives(always_bounds, family):
    rng = np.random.default_rng(FAMILIES.index(family))
    for i in range(40):
        shape = "path" if family == "intervals" else SHAPES[i % len(SHAPES)]
        case = forest_case(shape, family, int(rng.integers(1, 9)), rng, zeros=0.2)
        groups = [tt.Group(members, table) for members, table in case.sets]
        model = tt.CountModel(case.theta, groups, edges=tt.Forest(case.pairs, case.tables))
        check(model, oracle.enumerate_model(case.theta, case.sets, case.edges))


def test_chains_of_several_labels_under_bounds_give_the_best_sequence(always_bounds):
    rng = np.random.default_rng(7)
    for _ in range(20):
        unary, moves = rng.normal(size=(6, 3)), rng.normal(size=(3, 3))
        scores = rng.integers(0, 3, 3)
        log_f = -0.5 * (np.arange(6 * scores.max() + 1) - rng.uniform(0, 9)) ** 2
        model = tt.ChainModel(unary, moves, log_f, scores=scores)
        states = np.array(np.meshgrid(*[np.arange(3)] * 6, indexing="ij")).reshape(6, -1).T
        weight = unary[np.arange(6), states].sum(1) + moves[states[:, :-1], states[:, 1:]].sum(1)
        weight = weight + log_f[scores[states].sum(1)]
        at = np.flatnonzero((states == model.mode()).all(1))[0]
        assert weight[at] == pytest.approx(weight.max(), abs=1e-12)


def test_no_variables_and_batches(always_bounds):
    rng = np.random.default_rng(3)
    nothing = tt.CountModel(np.zeros(0), [1.5], edges=tt.Forest(np.zeros((0, 2), int), np.zeros((0, 2, 2))))
    assert nothing.mode().shape == (0,)
    assert float(nothing.max_log_weight) == 1.5
    assert nothing.max_marginals.shape == (0, 2)
    theta, log_f = rng.normal(size=(3, 4, 7)), rng.normal(size=(4, 8))
    pairs, edge_tables = [(0, 1), (1, 2), (4, 5)], rng.normal(size=(3, 4, 3, 2, 2))
    both = tt.CountModel(theta, log_f, edges=tt.Forest(pairs, edge_tables))
    for i in range(3):
        for j in range(4):
            one = tt.CountModel(theta[i, j], log_f[j], edges=tt.Forest(pairs, edge_tables[i, j]))
            assert np.array_equal(both.mode()[i, j], one.mode())
            assert np.array_equal(both.max_marginals[i, j], one.max_marginals)
    empty = tt.CountModel(np.zeros((0, 7)), np.zeros(8), edges=tt.Forest([(0, 1)], np.zeros((1, 2, 2))))
    assert empty.mode().shape == (0, 7)
    assert empty.max_marginals.shape == (0, 7, 2)


def max_convolve(a, b):
    out = np.full(len(a) + len(b) - 1, -INF)
    a, b = (a, b) if len(a) <= len(b) else (b, a)
    for i, x in enumerate(a):
        out[i : i + len(b)] = np.maximum(out[i : i + len(b)], x + b)
    return out


def best_by_recursion(theta, parents, couplings, log_f):
    """Best weight, by subtree, state and count, children merged one by one: O(n^2)."""
    below = [[np.array([0.0, -INF]), np.array([-INF, t])] for t in theta]
    whole = np.array([0.0])
    for v in range(len(theta) - 1, -1, -1):
        off, on = below[v]
        if parents[v] < 0:
            whole = max_convolve(whole, np.maximum(off, on))
            continue
        c, up = couplings[v], below[parents[v]]
        up[0] = max_convolve(up[0], np.maximum(off + c, on))
        up[1] = max_convolve(up[1], np.maximum(off, on + c))
    return float((whole + log_f).max())


def large_model(shape, n, kind, strength, rng):
    parents = parents_of(shape, n, rng)
    pairs = np.array([(p, v) for v, p in enumerate(parents) if p >= 0]).reshape(-1, 2)
    couplings = strength * (1.0 + rng.random(n))
    tables_ = np.zeros((len(pairs), 2, 2))
    if len(pairs):
        tables_[:, 0, 0] = tables_[:, 1, 1] = couplings[pairs[:, 1]]
    theta = rng.integers(-2, 3, n).astype(float) if kind == "ties" else rng.normal(size=n)
    log_f = {
        "exactly": np.where(np.arange(n + 1) == n // 3, 0.0, -INF),
        "concave": -((np.arange(n + 1) - 0.4 * n) ** 2) / n,
        "ties": -np.abs(np.arange(n + 1) - n // 2).astype(float),
    }[kind]
    model = tt.CountModel(theta, log_f, edges=tt.Forest(pairs, tables_))
    return model, (theta, parents, couplings, log_f)


@pytest.mark.parametrize("strength", [0.5, -1.0, 20.0])
@pytest.mark.parametrize("kind", ["exactly", "concave", "ties"])
@pytest.mark.parametrize("shape", ["path", "star", "random", "forest"])
def test_large_counts_under_bounds_give_what_a_recursion_gives(always_bounds, shape, kind, strength):
    rng = np.random.default_rng(11)
    model, arguments = large_model(shape, 200, kind, strength, rng)
    best = best_by_recursion(*arguments)
    assert float(model.max_log_weight) == pytest.approx(best, rel=1e-13, abs=1e-10)
    assert float(model.log_prob(model.mode())) == pytest.approx(best - float(model.log_partition), abs=1e-8)
    found = model.max_marginals
    np.testing.assert_allclose(found.max(-1), best, rtol=1e-13, atol=1e-10)
    theta, parents, couplings, log_f = arguments
    for v in rng.integers(0, 200, 3):
        for state in (0, 1):
            moved = theta.copy()
            moved[v] = 1e6 if state else -1e6
            want = best_by_recursion(moved, parents, couplings, log_f) - (1e6 - theta[v] if state else 0.0)
            assert found[v, state] == pytest.approx(want, rel=1e-12, abs=1e-8)


@pytest.mark.skipif(config.settings().native is None, reason="the array engine has no bounds")
@pytest.mark.parametrize("kind", ["exactly", "concave"])
@pytest.mark.parametrize("shape", ["path", "random", "forest"])
def test_bounds_are_enough_for_concave_tables(shape, kind):
    model, _ = large_model(shape, 20_000, kind, 0.5, np.random.default_rng(5))
    problem = model._solver.problem
    bounds = dual(problem)
    tilted, slack = maxima.under(problem, bounds), np.array([bounds.slack])
    assert solve(tilted, states=True, slack=slack).known.all()
    assert solve(tilted, slack=slack).known.all()


@pytest.mark.skipif(config.settings().native is None, reason="the array engine has no bounds")
def test_ties_are_broken_without_the_quadratic_pass(monkeypatch):
    n = 20_000
    pairs = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    forest = tt.Forest(pairs, np.tile(np.array([[1.0, 0.0], [0.0, 1.0]]), (n - 1, 1, 1)))
    theta = np.random.default_rng(1).integers(-2, 3, n).astype(float)
    model = tt.CountModel(theta, tt.exactly(n // 3), edges=forest)
    calls = []

    def counted(*arguments, slack=None, **options):
        calls.append(slack)
        return solve(*arguments, slack=slack, **options)

    monkeypatch.setattr(maxima, "solve", counted)
    y = model.mode()
    assert y.sum() == n // 3
    assert None not in calls
