"""Conditional models with edges and with potentials of few parameters, against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

import tallytree as tt
from oracle_states import all_states
from tallytree import learn
from tallytree.errors import ParameterError
from tallytree.learn import Parameter, parametric
from tallytree.learn.regression import ConditionalProblem

D = 4
STATES = all_states((2,) * D)
PAIRS = [(0, 1), (1, 2), (1, 3)]
TREE = tt.CountTree.from_groups([[0, 1], range(D)], D)


def log_laws(logits, pair_table, total_table, interactions):
    """Log-probabilities of all states for rows of logits (N, D), by summing over them."""
    score = logits @ STATES.T
    score = score + pair_table[STATES[:, :2].sum(1)] + total_table[STATES.sum(1)]
    for (i, j), w in zip(PAIRS, interactions):
        score = score + w * STATES[:, i] * STATES[:, j]
    top = score.max(1, keepdims=True)
    return score - top - np.log(np.exp(score - top).sum(1, keepdims=True))


def draw(log_law, seed):
    u = np.random.default_rng(seed).random((len(log_law), 1))
    return STATES[(u < np.exp(log_law).cumsum(1)).argmax(1)]


def number_of(y):
    return y @ (1 << np.arange(D)[::-1])


def problem_of(x, y, tables, interactions, edges, classes=None, intercept="own"):
    moving = (intercept, tables, interactions)
    return ConditionalProblem(TREE, edges, x, y, classes, None, moving, (0.1, 0.2, 0.3))


FOREST = tt.Forest(PAIRS, np.zeros((3, 2, 2)))
NOISY = [
    ["free", parametric(tt.noisy_or, Parameter("rate", 0.4), Parameter("leak", 0.1), t=t)] for t in (0, 1)
]
BELL = parametric(tt.gaussian, Parameter("mean", 1.5), Parameter("sd", 1.2))


@pytest.mark.parametrize("shape", ["shared", "own"])
@pytest.mark.parametrize(
    ("tables", "interactions", "edges"),
    [
        ("free", "free", FOREST),
        (NOISY, "tied", FOREST),
        (["fixed", BELL], [0, -1, 0], FOREST),
        (NOISY, "free", None),
        (BELL, "fixed", FOREST),
    ],
)
def test_objective_and_gradient_match_enumeration(shape, tables, interactions, edges):
    rng = np.random.default_rng(0)
    n = 12
    x = rng.normal(size=(n, D, 2) if shape == "shared" else (n, 2))
    y, classes = rng.integers(0, 2, (n, D)), np.arange(n) % 2
    problem = problem_of(x, y, tables, interactions, edges, classes)
    start = problem.numbers(problem.start(None))
    at = problem.start(None) + 0.3 * rng.normal(size=len(problem.start(None)))

    def by_hand(values):
        numbers = problem.numbers(values)
        logits = x @ numbers.coef + numbers.intercept
        weights = numbers.edges[:, 1, 1] if edges is not None else np.zeros(3)
        total = 0.0
        for k in (0, 1):
            law = log_laws(logits[classes == k], numbers.tables[k][:3], numbers.tables[k][3:], weights)
            total -= law[np.arange(len(law)), number_of(y[classes == k])].sum()
        moved = numbers.tables - start.tables
        moved = moved if tables == "free" else moved[:, :3] if tables is NOISY else np.zeros(1)
        apart = (numbers.edges - start.edges)[:, 1, 1]
        apart = apart if interactions == "free" else apart[:1]  # those that move together are one number
        return total / n + 0.05 * (numbers.coef**2).sum() + 0.1 * (moved**2).sum() + 0.15 * (apart**2).sum()

    value, gradient = problem.value_and_gradient(at)
    assert value == pytest.approx(by_hand(at), abs=1e-12)
    np.testing.assert_allclose(gradient, optimize.approx_fprime(at, by_hand, 1e-7), atol=2e-6)


@pytest.mark.parametrize(("intercept", "edges"), [("own", None), ("shared", FOREST), ("none", None)])
def test_hessian_products_match_differences_of_gradients(intercept, edges):
    rng = np.random.default_rng(1)
    x, y, classes = rng.normal(size=(15, D, 2)), rng.integers(0, 2, (15, D)), np.arange(15) % 2
    problem = problem_of(x, y, "free", "fixed", edges, classes, intercept)
    at, v = 0.3 * rng.normal(size=(2, len(problem.start(None))))
    up, down = (problem.value_and_gradient(at + s * 1e-5 * v)[1] for s in (1, -1))
    np.testing.assert_allclose(problem.hessian_product(at, v), (up - down) / 2e-5, atol=1e-8)
    assert (problem.scale(at) > 0).all()


def test_edges_and_weights_are_recovered():
    rng = np.random.default_rng(2)
    n = 6000
    x, coef = rng.normal(size=(n, D, 2)), np.array([0.8, -0.5])
    interactions, total = np.array([1.0, -0.8, 0.6]), np.array([0.0, 0.5, -0.5, 0.4, 0.0])
    law = log_laws(x @ coef, np.zeros(3), total, interactions)
    y = draw(law, 3)
    tree = tt.CountTree.flat(D)
    found = learn.fit_conditional(tree, x, y, edges=FOREST, intercept="none", l2=1e-6)
    assert found.converged
    np.testing.assert_allclose(found.coef, coef, atol=0.1)
    np.testing.assert_allclose(found.edges.log_tables[:, 1, 1], interactions, atol=0.3)
    assert found.log_likelihood >= law[np.arange(n), number_of(y)].mean() - 1e-6
    assert found.log_likelihood == pytest.approx(float(np.mean(found.model(x).log_prob(y))), abs=1e-9)
    blind = learn.fit_conditional(tree, x, y, intercept="none", l2=1e-6)
    assert found.log_likelihood > blind.log_likelihood + 0.01
    again = learn.fit_conditional(tree, x, y, edges=FOREST, intercept="none", l2=1e-6, warm_start=found)
    assert len(again.history) <= 3


def test_a_rate_shared_by_classes_is_recovered():
    rng = np.random.default_rng(4)
    n, rate = 8000, 0.35
    x, t = rng.normal(size=(n, D, 1)), rng.integers(0, 2, n)
    c = np.arange(D + 1)
    with np.errstate(divide="ignore"):
        tables = np.stack([c * np.log(1 - rate), np.log(1 - (1 - rate) ** c)])
    y = np.empty((n, D), int)
    for k in (0, 1):
        law = log_laws(x[t == k] @ [1.2] - 0.4, np.zeros(3), tables[k], np.zeros(3))
        y[t == k] = draw(law, 5 + k)
    effect = [[parametric(tt.noisy_or, Parameter("rate", 0.8), t=k)] for k in (0, 1)]
    tree = tt.CountTree.flat(D)
    found = {
        method: learn.fit_conditional(
            tree, x, y, classes=t, tables=effect, intercept="shared", l2=1e-7, method=method
        )
        for method in ("newton-cg", "l-bfgs")
    }
    for fit in found.values():
        assert fit.converged
        assert fit.parameters["rate"] == pytest.approx(rate, abs=0.05)
        assert fit.coef[0] == pytest.approx(1.2, abs=0.1)
    assert len(found["newton-cg"].history) < len(found["l-bfgs"].history)
    quick = learn.fit_conditional(
        tree, x, y, classes=t, tables=effect, intercept="shared", batch_size=1000, max_iter=30, rng=0
    )
    assert quick.parameters["rate"] == pytest.approx(rate, abs=0.1)


@pytest.mark.parametrize(("seed", "rate"), [(0, 0.4), (3, 0.8)])
def test_a_rate_is_not_thrown_to_the_end_of_its_range(seed, rate):
    x = np.random.default_rng(seed).normal(size=(300, 10, 3))
    y = tt.CountModel(x @ np.array([1.0, -0.5, 0.2]) - 1.0, tt.noisy_or(rate)).sample(rng=seed + 1)
    effect = parametric(tt.noisy_or, Parameter("rate", 0.5))
    found = learn.fit_conditional(tt.CountTree.flat(10), x, y, intercept="shared", tables=effect)
    assert found.converged
    assert found.parameters["rate"] == pytest.approx(rate, abs=0.1)


def test_errors_say_what_to_do():
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(8, D, 1)), np.ones((8, D), int)
    closed = np.zeros((3, 2, 2))
    closed[0, 1, 1] = -np.inf
    for options, text in (
        ({"edges": tt.Forest(PAIRS, closed)}, "pair of states whose entry in `edges`"),
        ({"edges": PAIRS}, "`edges` must be a single Forest"),
        ({"edges": tt.Forest(PAIRS, np.zeros((2, 3, 2, 2)))}, "`edges` must be a single Forest"),
        ({"edges": FOREST, "method": "newton-cg"}, "interactions='fixed'"),
        ({"edges": FOREST, "interactions": "loose"}, "`interactions` must be"),
        ({"tables": ["free"]}, "each of the 2 groups"),
        ({"tables": [["free", "free"]] * 2}, "1 lists"),
        ({"tables": ["free", None]}, "None. arrived"),
        ({"start_tables": np.zeros(3)}, "`start_tables` must be packed, 8 entries"),
        ({"method": "cg"}, "`method`"),
        ({"intercept": "some"}, "`intercept`"),
    ):
        with pytest.raises(ParameterError, match=text):
            learn.fit_conditional(TREE, x, y, **options)
