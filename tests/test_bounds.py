"""Bounds of log Z and of the best log-weight, and when they may be claimed."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import tallytree as tt
from oracle_grids import enumerate_grid
from oracle_states import all_states
from tallytree.loopy import dual_decomposition, holder_bound, trw_bound
from tallytree.loopy.bounds import split
from tallytree.loopy.reliability import real_rooted

INF = math.inf


def random_grid(rng, shape, tables):
    """A grid graph with a random choice of tables, and its exact answers."""
    theta = rng.normal(size=shape) * rng.choice([0.5, 1.0, 2.0])
    rows = [tables(rng, shape[1]) for _ in range(shape[0])]
    columns = [tables(rng, shape[0]) for _ in range(shape[1])]
    index = np.arange(theta.size).reshape(shape)
    groups = [tt.Group(m, t) for m, t in zip(index, rows)] + [
        tt.Group(m, t) for m, t in zip(index.T, columns)
    ]
    log_z, marginals, best = enumerate_grid(theta, rows, columns)
    return tt.FactorGraph(theta.ravel(), groups), log_z, marginals, best


def stable_table(rng, n):
    """Exactly k, or two adjacent counts with any weights, or (1 + r x)^n."""
    kind = rng.integers(3)
    k = int(rng.integers(0, n))
    table = np.full(n + 1, -INF)
    if kind == 0:
        table[k : k + 2] = rng.normal(size=2)
    elif kind == 1:
        table[max(k, 1)] = 0.0
    else:
        table = rng.normal() * np.arange(n + 1)
    return table


def any_table(rng, n):
    return rng.normal(size=n + 1) * 2.0


def concave_table(rng, n):
    slopes = np.sort(rng.normal(size=n))[::-1]
    table = np.concatenate([[0.0], np.cumsum(slopes)])
    if rng.random() < 0.5:
        table[n:] = -INF
    return table


# -- real roots --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "n", "answer"),
    [
        (tt.exactly(3), 7, True),
        (tt.between(2, 3), 6, True),
        (tt.between(2, 4), 6, False),
        (tt.between(0, 2), 2, True),  # all counts of two variables: (1 + x)^2
        (tt.uniform(), 60, True),
        (tt.geometric(0.3), 200, True),
        (tt.parity("even"), 4, False),
        (tt.one_of([1, 3]), 5, False),
        (tt.at_most(4), 118, False),
        (tt.quadratic(-2.0, 3.0), 6, True),
    ],
)
def test_real_rootedness_of_named_potentials(table, n, answer):
    assert real_rooted(table.log_table(n)) is answer


def test_real_rootedness_agrees_with_the_roots():
    rng = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(300):
        n = int(rng.integers(2, 7))
        if rng.random() < 0.5:  # from real roots
            p = np.poly1d(-rng.exponential(size=n), r=True).coef[::-1]
            assert real_rooted(np.log(p) - np.log([math.comb(n, c) for c in range(n + 1)])) is True
        log_f = rng.normal(size=n + 1) * 0.7 - 0.5 * np.arange(n + 1) ** 2 * rng.random()
        coefficients = np.exp(log_f) * [math.comb(n, c) for c in range(n + 1)]
        roots = np.roots(coefficients[::-1])
        gap = np.abs(roots.imag / np.abs(roots)).max()
        if gap == 0.0 or gap > 1e-4:
            answer = real_rooted(log_f)
            assert answer is bool(gap == 0.0)
            seen[answer] += 1
    assert min(seen.values()) > 20


def test_what_is_not_settled_is_not_claimed():
    n = 80
    log_f = np.array([-0.02 * c * c for c in range(n + 1)])  # wide, between the two simple criteria
    assert real_rooted(log_f) is None
    graph = tt.FactorGraph(np.zeros(n), [tt.Group(None, log_f)])
    assert "not settled" in tt.loopy_bp(graph).lower_bound_condition


# -- lower bound -------------------------------------------------------------------------------------------------------


def test_bethe_is_a_lower_bound_for_real_rooted_tables():
    rng = np.random.default_rng(1)
    checked = 0
    while checked < 40:
        try:
            graph, log_z, _, _ = random_grid(rng, (3, 4), stable_table)
        except ValueError:  # no configuration at all
            continue
        if not np.isfinite(log_z):
            continue
        try:
            result = tt.loopy_bp(graph, max_iter=3000)
        except tt.InfeasibleError:
            pytest.fail("the model is possible")
        if not result.converged:
            continue
        assert not result.lower_bound_condition.startswith("no:")
        assert result.lower_bound <= log_z + 1e-7
        checked += 1


def test_other_tables_violate_it_and_are_not_called_bounds():
    rng = np.random.default_rng(2)
    above = 0
    for _ in range(30):
        graph, log_z, _, _ = random_grid(rng, (3, 3), any_table)
        result = tt.loopy_bp(graph, damping=0.4, max_iter=2000)
        assert result.lower_bound == -INF
        above += bool(result.bethe_log_partition > log_z + 1e-6)
    assert above > 3


def test_the_condition_names_what_fails():
    def condition(graph):
        return tt.loopy_bp(graph, max_iter=2000).lower_bound_condition

    theta = np.zeros(3)
    two = [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))]
    assert condition(tt.FactorGraph(theta, two)).startswith("every variable")
    triangle = [*two, tt.Group([0, 2], tt.at_most(1))]
    assert "two sides" in condition(tt.FactorGraph(theta, triangle))
    wide = tt.FactorGraph(np.zeros(6), [tt.Group(None, tt.between(2, 4))])
    assert "complex roots" in condition(wide)
    model = tt.FactorGraph(theta, [tt.Group(None, tt.CountModel(np.zeros(3), tt.exactly(1)))])
    assert "CountModel" in condition(model)
    pairs = tt.FactorGraph(theta, edges=([[0, 1]], [[1.0, 0.0], [0.0, 1.0]]))
    assert "favours equal" in condition(pairs)
    apart = tt.FactorGraph(theta, edges=([[0, 1]], [[0.0, 1.0], [1.0, 0.0]]))
    assert condition(apart).startswith("every variable")
    stopped = tt.loopy_bp(tt.FactorGraph([1.0, 0.5, 0.0], two), max_iter=1, tol=0.0)
    assert "not converged" in stopped.lower_bound_condition
    assert stopped.lower_bound == -INF
    assert "max-product" in tt.loopy_bp(tt.FactorGraph(theta, two), semiring="max").lower_bound_condition


def test_two_sides_are_found_whatever_the_order_of_factors():
    # A path of factors a-b-c-d listed as a, d, b, c: first-fit colouring needs three colours.
    groups = [[0, 1], [5, 6], [1, 2, 3], [3, 4, 5]]
    graph = tt.FactorGraph(np.zeros(7), [tt.Group(g, tt.exactly(1)) for g in groups])
    assert tt.loopy_bp(graph).lower_bound_condition.startswith("every variable")


# -- upper bound -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_upper_bound_holds_converged_or_not(seed):
    rng = np.random.default_rng(seed)
    graph, log_z, marginals, _ = random_grid(rng, (3, 4), any_table)
    found = holder_bound(graph)
    assert found.converged
    assert found.value >= log_z - 1e-9
    assert found.gap(log_z) == found.value - log_z
    assert np.abs(found.marginals - marginals.ravel()).mean() < 0.25
    assert (
        holder_bound(graph, max_iter=0).value >= holder_bound(graph, max_iter=2).value >= found.value - 1e-9
    )
    better = holder_bound(graph, weights="optimal")
    assert log_z - 1e-9 <= better.value <= found.value + 1e-7
    assert better.weights.sum() == pytest.approx(1.0)
    again = holder_bound(graph, start=pickle.loads(pickle.dumps(found)))
    assert again.value == pytest.approx(found.value, abs=1e-7)
    assert again.iterations <= found.iterations


def test_gradients_of_the_split_are_differences_of_marginals():
    rng = np.random.default_rng(3)
    inner = tt.CountModel(
        np.zeros(3), [tt.Group([0, 1], rng.normal(size=3)), tt.Group(None, rng.normal(size=4))]
    )
    groups = [
        tt.Group([0, 1, 2], rng.normal(size=4)),
        tt.Group([2, 3, 4], inner),
        tt.Group([0, 4], rng.normal(size=3)),
    ]
    graph = tt.FactorGraph(rng.normal(size=5), groups, edges=([[1, 3]], rng.normal(size=(2, 2))))
    parts = split(graph)
    w = np.array([0.5, 0.3, 0.2])[: parts.n_classes]
    w = w / w.sum()
    x = parts.spread(w).ravel() + rng.normal(size=(parts.n_classes - 1) * 5)
    _, gradient, *_ = parts.value(x, w)
    for i in range(len(x)):
        step = np.zeros_like(x)
        step[i] = 1e-5
        slope = (parts.value(x + step, w)[0] - parts.value(x - step, w)[0]) / 2e-5
        assert gradient.ravel()[i] == pytest.approx(slope, abs=1e-8)
    shares = parts.shares(x)
    for k in range(parts.n_classes):

        def of_weight(v, k=k):
            return v * parts.solve(k, shares[k] / v, 1.0 / v)[0]

        slope = (of_weight(w[k] + 1e-5) - of_weight(w[k] - 1e-5)) / 2e-5
        at = shares[k] / w[k], 1.0 / w[k]
        assert parts.entropy(k, *at, *parts.solve(k, *at)) == pytest.approx(slope, abs=1e-7)


def test_one_class_is_exact():
    rng = np.random.default_rng(5)
    table = rng.normal(size=5)
    graph = tt.FactorGraph(rng.normal(size=6), [tt.Group([0, 1, 2, 3], table)])
    model = tt.CountModel(graph.logits, [tt.Group([0, 1, 2, 3], table)])
    found = holder_bound(graph)
    assert found.value == pytest.approx(model.log_partition, abs=1e-10)
    np.testing.assert_allclose(found.marginals, model.marginals, atol=1e-12)
    best = dual_decomposition(graph)
    assert best.gap == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_array_equal(best.mode, model.mode())


def test_on_the_papers_small_grids_the_bounds_enclose_log_z():
    rng = np.random.default_rng(7)
    below, above, error = [], [], []
    for _ in range(4):
        theta = rng.normal(size=(3, 6))
        rows, columns = [tt.between(2, 3).log_table(6)] * 3, [tt.between(1, 2).log_table(3)] * 6
        log_z, marginals, _ = enumerate_grid(theta, rows, columns)
        problem = tt.assignment(theta, rows=tt.between(2, 3), columns=tt.between(1, 2))
        bounds = problem.bounds()
        assert bounds.lower <= log_z <= bounds.upper
        assert bounds.gap == bounds.upper - bounds.lower
        below.append(log_z - bounds.lower)
        above.append(bounds.upper - log_z)
        error.append(np.abs(bounds.marginals - marginals).mean())
    assert np.mean(below) < 0.25
    assert np.mean(above) < 2.0
    assert np.mean(error) < 0.06


def test_interrupted_bounds_are_bounds():
    rng = np.random.default_rng(8)
    graph, log_z, _, best = random_grid(rng, (3, 4), any_table)

    def stop(_):
        raise KeyboardInterrupt

    found = holder_bound(graph, progress=stop)
    assert found.interrupted
    assert found.value >= log_z
    dual = dual_decomposition(graph, progress=stop)
    assert dual.interrupted
    assert dual.upper_bound >= best - 1e-9


@pytest.mark.parametrize("weights", [[0.5, 0.6], [1.0], "best", [-1.0, 2.0]])
def test_bad_weights_are_refused(weights):
    graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], None), tt.Group([1, 2], None)])
    with pytest.raises(tt.ParameterError, match="weights"):
        holder_bound(graph, weights=weights)


# -- dual decomposition ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_dual_decomposition_is_tight_for_concave_tables(seed):
    graph, _, _, best = random_grid(np.random.default_rng(seed), (3, 4), concave_table)
    found = dual_decomposition(graph)
    assert found.upper_bound >= best - 1e-9
    assert found.log_weight == pytest.approx(best, abs=1e-9)
    assert found.gap < 1e-3
    assert graph.log_weight(found.mode) == found.log_weight


def test_dual_decomposition_bounds_what_is_hard():
    rng = np.random.default_rng(1)
    gaps = []
    for _ in range(3):
        graph, _, _, best = random_grid(rng, (3, 4), any_table)
        found = dual_decomposition(graph)
        assert found.upper_bound >= best - 1e-9
        assert found.log_weight <= best + 1e-9
        gaps.append(found.gap)
    assert max(gaps) > 1e-3  # honest: not every gap closes


def test_dual_decomposition_completes_what_is_sure():
    # Exact counts on both sides defeat deciding cells one by one; the sure ones leave a small program.
    theta = np.random.default_rng(6).normal(size=(12, 12))
    index = np.arange(144).reshape(12, 12)
    groups = [tt.Group(m, tt.exactly(3)) for m in [*index, *index.T]]
    found = dual_decomposition(tt.FactorGraph(theta.ravel(), groups))
    assert found.log_weight == pytest.approx(
        tt.assignment(theta, tt.exactly(3), tt.exactly(3)).mode().log_weight
    )
    assert found.gap < 0.05


def test_dual_decomposition_serves_models_and_pairs():
    rng = np.random.default_rng(4)
    inner = tt.CountModel(
        rng.normal(size=3), [tt.Group([0, 1], rng.normal(size=3)), tt.Group(None, rng.normal(size=4))]
    )
    groups = [tt.Group([0, 1, 2], rng.normal(size=4)), tt.Group([2, 3, 4], inner)]
    graph = tt.FactorGraph(rng.normal(size=5), groups, edges=([[1, 3]], rng.normal(size=(2, 2))))
    y = all_states((2,) * 5)
    best = np.max(graph.log_weight(y))
    found = dual_decomposition(graph)
    assert found.upper_bound >= best - 1e-9
    assert found.log_weight <= best + 1e-9


def test_bad_arguments_are_refused():
    graph = tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], None)])
    for call in (holder_bound, dual_decomposition):
        with pytest.raises(tt.ParameterError, match="FactorGraph"):
            call(3)
    with pytest.raises(tt.ParameterError, match="temperatures"):
        dual_decomposition(graph, temperatures=[0.0])


def test_messages_that_run_away_leave_a_lower_bound_below_log_z():
    """Two by two assignments have no inner fixed point: messages grow until only their rounding would be left."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        affinity = rng.normal(size=(2, 2)) * rng.choice([0.1, 1.0, 5.0])
        problem = tt.assignment(affinity, rows=tt.exactly(1), columns=tt.exactly(1))
        both = [affinity[0, 0] + affinity[1, 1], affinity[0, 1] + affinity[1, 0]]
        log_z = np.logaddexp(*both)
        assert problem.bounds().lower <= log_z + 1e-9
        assert problem.bounds().upper >= log_z - 1e-9
        beliefs = problem.loopy_bp()
        if beliefs.result.converged:  # at the configuration to which they run
            assert min(abs(beliefs.lower_bound - value) for value in both) < 1e-6
    tables = [[0.0, 0.0, 0.0], [-INF, 0.0, 0.0]]
    affinity = [[0.2, -0.9], [0.1, -0.04], [-2.3, -2.0], [0.1, 0.75]]
    problem = tt.assignment(affinity, np.array([tables[0], tables[1]] * 2), tt.exactly(1))
    assert problem.bounds().lower == pytest.approx(0.85, abs=1e-6)


@pytest.mark.parametrize("bound", [holder_bound, trw_bound])
def test_upper_bounds_allow_for_the_rounding_of_shares_that_cancel(bound):
    """The bound falls with slope 1 until shares of about 30: a line search tries 6e10, where it rounds 3e-6 below."""
    below = tt.CountModel([-30.0, -30.0, 0.0], edges=tt.Forest([], np.zeros((0, 2, 2))))
    both = [[[-INF, -INF], [-INF, 0.0]]]
    graph = tt.FactorGraph(np.zeros(4), [tt.Group([1, 2, 0], below)], edges=([(1, 2)], both))
    log_z = -60.0 + 2.0 * math.log(2.0)
    found = bound(graph, max_iter=3)
    assert log_z - 1e-12 <= found.value <= log_z + 1e-6
    best = dual_decomposition(graph, max_iter=3)
    assert best.log_weight == -60.0
    assert -60.0 <= best.upper_bound <= -60.0 + 1e-6
