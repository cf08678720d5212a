"""Derivatives along directions: against high precision on adversarial models, both engines against each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import tallytree as tt
from helpers import few
from oracle_tangents import flat_tangent, nested_tangent
from tallytree import config
from tallytree.engine.count import derivatives as count_derivatives
from tallytree.engine.count.derivatives import count_probabilities, derivatives

INF = np.inf
ENGINES = ["native", "array"] if config.native() is not None else ["array"]


LARGE = ("far tail", "two modes", "wild table", "infinite log-odds", "nothing or a few")


def only(n, *counts):
    table = np.full(n + 1, -INF)
    table[list(counts)] = 0.0
    return table


def flat_cases(n, kind, rng):
    """Names, log-odds and tables that defeat careless arithmetic; variables of one kind are alike."""
    nu, noise, k = rng.normal(size=n)[kind], rng.normal(size=n + 1), np.arange(n + 1)
    some = np.where(kind % 5 == 1, -INF, np.where(kind % 5 == 2, INF, nu))
    bent = np.where(rng.random(n + 1) < 0.3, -INF, noise)
    bent[n // 2] = 0.0
    yield "plain", nu, noise
    yield "far tail", nu - 20.0, only(n, n // 2)
    yield "one variable on", nu - 8.0, only(n, 1)
    yield "two modes", 30.0 * np.sign(nu) + nu, only(n, n // 3, n - n // 3)
    yield "two balanced modes", 0.1 * nu, 3.0 * (k - n / 2) ** 2 / n
    yield "wild table", 3.0 * nu, 100.0 * noise
    yield "holes", 5.0 * nu, bent
    yield "infinite log-odds", some, np.where(noise > 2.5, -INF, noise)
    yield "all or nothing", nu, only(n, 0, n)
    yield "nothing or a few", nu - 5.0, only(n, 0, min(n, 3))
    yield "extreme log-odds", 400.0 * nu, 50.0 * noise
    yield "steep table", nu, -15.0 * k


def close(found, right, size):
    """To 1e-10 of the largest entry; the directions here have entries of about 1, of which 1e-15 is noise."""
    return np.abs(np.asarray(found) - right).max(initial=0.0) <= 1e-10 * size + 2e-15


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", few([1, 2, 3, 9, 33, 330, 450], keep=5))
def test_flat_products_agree_with_differences_in_high_precision(n, engine):
    rng = np.random.default_rng(n)
    kind = np.arange(n) % (3 if n > 100 else n)
    for name, nu, log_f in flat_cases(n, kind, rng):
        if n > 100 and (engine == "array" or name not in LARGE):
            continue  # multiplying out takes a second
        v, h = rng.normal(size=n)[kind], rng.normal(size=n + 1)
        with config.using(engine=engine):
            found = tt.CountModel(nu, log_f).hessian_vector_product(v, [h])
        marginals, counts = flat_tangent(nu, log_f, v, h)
        size = max(np.abs(marginals).max(), np.abs(counts).max())
        assert close(found.logits, marginals, size), name
        assert close(found.tables[0], counts, size), name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [1, 9, 33])
def test_batched_products_agree_with_differences_in_high_precision(n, engine):
    """All adversarial models in one batch, each with a table and a direction of its own."""
    rng = np.random.default_rng(100 + n)
    names, nu, log_f = zip(*flat_cases(n, np.arange(n), rng))
    v, h = rng.normal(size=(len(names), n)), rng.normal(size=(len(names), n + 1))
    with config.using(engine=engine):
        found = tt.CountModel(np.array(nu), np.array(log_f)).hessian_vector_product(v, [h])
    for b, name in enumerate(names):
        marginals, counts = flat_tangent(nu[b], log_f[b], v[b], h[b])
        size = max(np.abs(marginals).max(), np.abs(counts).max())
        assert close(found.logits[b], marginals, size), name
        assert close(found.tables[0][b], counts, size), name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_nested_products_agree_with_enumeration_in_high_precision(engine, scale):
    rng = np.random.default_rng(int(scale))
    members = [[0], [1, 2], [1, 2, 3, 4], [5, 6, 7], list(range(8))]
    for round_ in range(4):
        nu = scale * rng.normal(size=9)
        if round_ == 2:
            nu[[2, 6]] = INF, -INF
        tables = [scale * rng.normal(size=len(m) + 1) for m in members]
        if round_ == 3:
            tables[4][:4] = -INF
        v, h = rng.normal(size=9), [rng.normal(size=len(m) + 1) for m in members]
        with config.using(engine=engine):
            model = tt.CountModel(nu, [tt.Group(m, t) for m, t in zip(members, tables)])
            found = model.hessian_vector_product(v, h)
        marginals, counts = nested_tangent(nu, list(zip(members, tables)), v, h)
        size = max(np.abs(marginals).max(), *(np.abs(c).max() for c in counts))
        assert close(found.logits, marginals, size)
        for own, right in zip(found.tables, counts):
            assert close(own, right, size)


def tree_problem(tree, batch, rng, spread):
    tables = spread * rng.normal(size=(batch, tree.program.table_total))
    return tt.CountModel.from_tree(tree, rng.normal(size=(batch, tree.n_variables)), tables)._solver.problem


@pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")
@pytest.mark.parametrize(
    ("n", "batch", "spread"), [(8, 11, 1.0), (40, 5, 20.0), (300, 1, 1.0), (700, 1, 1.0), (700, 1, 8.0)]
)
def test_trees_agree_between_the_engines(n, batch, spread):
    rng = np.random.default_rng(n + batch)
    problem = tree_problem(tt.CountTree.balanced(n), batch, rng, spread)
    v, h = rng.normal(size=(3, *problem.nu.shape)), rng.normal(size=(3, batch, problem.tables.shape[1]))
    native = derivatives(problem, v, h, counts=True)
    probs = count_probabilities(problem)[0]
    with config.using(engine="array"):
        array = derivatives(problem, v, h, counts=True)
        right = count_probabilities(problem)[0]
    np.testing.assert_allclose(probs, right, atol=1e-12)
    for r in range(3):
        size = max(np.abs(array.marginals[r]).max(), np.abs(array.counts[r]).max())
        np.testing.assert_allclose(native.marginals[r], array.marginals[r], atol=1e-10 * size)
        np.testing.assert_allclose(native.counts[r], array.counts[r], atol=1e-10 * size)


@pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")
def test_random_flat_models_agree_between_the_engines():
    rng = np.random.default_rng(5)
    for _ in range(150):
        n, batch = int(rng.integers(1, 40)), int(rng.integers(1, 12))
        nu = rng.choice([0.3, 3.0, 30.0]) * rng.normal(size=(batch, n)) + rng.choice([0.0, -4.0, 9.0])
        nu[rng.random(nu.shape) < 0.05] = INF
        log_f = rng.choice([0.1, 1.0, 50.0]) * rng.normal(size=(batch, n + 1))
        v, h = rng.normal(size=(2, batch, n)), rng.normal(size=(2, batch, n + 1))
        problem = tt.CountModel(nu, log_f)._solver.problem
        native = derivatives(problem, v, h, counts=True)
        with config.using(engine="array"):
            array = derivatives(problem, v, h, counts=True)
        for a, b in zip(native, array):
            size = np.abs(b).max(axis=(0, 2), keepdims=True, initial=0.0)
            assert np.all(np.abs(a - b) <= 1e-10 * np.maximum(size, 1e-4))


@pytest.mark.parametrize("engine", ENGINES)
def test_large_flat_products_agree_with_the_conditional_models(engine):
    """Along one log-odds the product is a row of the covariance matrix: P_i (P(y_j | y_i = 1) - P_j)."""
    rng = np.random.default_rng(2)
    n = 20_000 if engine == "native" else 2_000
    for table in (tt.exactly(n // 7), 1e-6 * (np.arange(n + 1) - 0.55 * n) ** 2, tt.at_most(9)):
        with config.using(engine=engine):
            model = tt.CountModel(rng.normal(size=n) - 3.0, table)
            given = model.condition({0: 1}).marginals
            found = model.hessian_vector_product(np.eye(1, n)[0], counts=False).logits
            own = model.marginals
        right = own[0] * (given - own)
        right[0] = own[0] * (1.0 - own[0])
        np.testing.assert_allclose(found, right, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_products_are_symmetric_and_kill_what_the_table_fixes(engine):
    rng = np.random.default_rng(3)
    n = 1200
    with config.using(engine=engine):
        model = tt.CountModel(rng.normal(size=n), rng.normal(size=n + 1))
        a, b = rng.normal(size=(2, n))
        ab = model.hessian_vector_product(a, counts=False).logits @ b
        ba = model.hessian_vector_product(b, counts=False).logits @ a
        np.testing.assert_allclose(ab, ba, rtol=1e-10)
        fixed = tt.CountModel(rng.normal(size=n), tt.exactly(300))
        assert np.abs(fixed.hessian_vector_product(np.ones(n), counts=False).logits).max() < 1e-12


@pytest.mark.parametrize("engine", ENGINES)
def test_expected_counts_are_right_to_1e_12(engine):
    rng = np.random.default_rng(4)
    for n in (1, 50, 700):
        with config.using(engine=engine):
            model = tt.CountModel(rng.normal(size=(2, n)), rng.normal(size=(2, n + 1)))
            found = model.expected_statistics
            np.testing.assert_allclose(found.tables[0], np.exp(model.count_log_probs(0)), atol=1e-12)
        np.testing.assert_allclose(found.tables[0].sum(-1), 1.0, atol=1e-12)
        np.testing.assert_allclose(found.tables[0] @ np.arange(n + 1), found.logits.sum(-1), rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_empty_batches_models_and_directions(engine):
    with config.using(engine=engine):
        empty = tt.CountModel(
            np.zeros((0, 3)), [tt.Group([0, 1], tt.exactly(1)), tt.Group(None, tt.at_least(1))]
        )
        found = empty.hessian_vector_product(np.ones(3))
        assert found.logits.shape == (0, 3)
        assert [t.shape for t in found.tables] == [(0, 3), (0, 4)]
        assert [t.shape for t in empty.expected_statistics.tables] == [(0, 3), (0, 4)]
        free = tt.CountModel(np.array([0.0, INF, 2.0]))
        np.testing.assert_allclose(free.hessian_vector_product(np.ones(3)).logits[:2], [0.25, 0.0])
        none = tt.CountModel(np.zeros(0), [0.5])
        assert none.hessian_vector_product(np.zeros(0)).logits.shape == (0,)
        problem = tt.CountModel(np.zeros((2, 4)), tt.exactly(2))._solver.problem
        nothing = derivatives(problem, np.zeros((0, 2, 4)), None, counts=True)
        assert nothing.marginals.shape == (0, 2, 4)
        assert nothing.counts.shape == (0, 2, 5)


def test_a_direction_must_be_finite_where_the_parameter_is():
    model = tt.CountModel(np.array([0.0, INF]), np.array([0.0, 0.0, -INF]))
    np.testing.assert_array_equal(model.hessian_vector_product([0.0, INF], [[0.0, 0.0, -INF]]).logits, 0.0)
    with pytest.raises(tt.ParameterError, match="finite"):
        model.hessian_vector_product([INF, 0.0])
    with pytest.raises(tt.ParameterError, match="finite"):
        model.hessian_vector_product(None, [[-INF, 0.0, 0.0]])


def _total(n, kind):
    c = np.arange(n + 1.0)
    return {
        "exactly": tt.exactly(n // 3),
        "between": tt.between(n // 4, n // 3),
        "convex": 1e-2 * (c - n / 3) ** 2,
        "spike": np.where(c == n - 3, 2.0 * n, 0.0),
        "far below": tt.poisson(n / 20),
    }[kind]


@pytest.mark.parametrize("kind", ["exactly", "between", "convex", "spike", "far below"])
@pytest.mark.parametrize("along", ["ones", "random", "zero"])
def test_products_of_blocks_and_a_total_agree_with_logarithms(kind, along):
    # Counts that no configuration reaches are left out, and what all variables have in common moves into the table.
    rng, n = np.random.default_rng(11), 1200
    groups = [tt.Group(range(i, i + 100), tt.between(20, 100)) for i in range(0, n, 100)]
    model = tt.CountModel(rng.normal(size=n), [*groups, tt.Group(None, _total(n, kind))])
    v = {"ones": np.ones(n), "random": rng.normal(size=n), "zero": np.zeros(n)}[along]
    found = model.hessian_vector_product(v, counts=False).logits
    with config.using(engine="array"):
        want = model.replace(logits=model.logits + 0.0).hessian_vector_product(v, counts=False).logits
    p = model.marginals
    allowed = np.maximum(1e-10 * np.abs(v).max() * np.sqrt(p * (1.0 - p)), 1e-9 * np.abs(want))
    assert (np.abs(found - want) <= allowed + 1e-13).all()


_PARTS = {
    "spike": lambda n: np.where(np.arange(n + 1) == n - 3, 0.5 * n, 0.0),
    "two far places": lambda n: tt.one_of([1, n - 2]).log_table(n),
    "far below": lambda n: tt.poisson(n / 20).log_table(n),
    "rough": lambda n: 1e4 * np.random.default_rng(n).normal(size=n + 1),
    "wide": lambda n: tt.exactly(n // 3).log_table(n),
    "decided": lambda n: tt.exactly(n // 3).log_table(n),
}


@pytest.mark.skipif(config.native() is None, reason="the compiled engine's rungs")
@pytest.mark.parametrize("n", [300, 700])
@pytest.mark.parametrize("kind", _PARTS)
def test_counts_that_do_not_matter_cost_no_rung(kind, n):
    rng, table = np.random.default_rng(n), _PARTS[kind]
    logits = {"wide": np.linspace(-700.0, 700.0, n), "decided": 1e6 * rng.normal(size=n)}.get(
        kind, rng.normal(size=n)
    )
    groups = [tt.Group(range(n // 2), table(n // 2)), tt.Group(None, table(n))]
    problem = tt.CountModel(logits, groups)._solver.problem
    program, tables = problem.tree.program, problem.full_tables
    v, h = rng.normal(size=(2, 1, n)), rng.normal(size=(2, *tables.shape))
    batch = count_derivatives._Batch(problem.nu, tables, v, h, True)
    found = count_derivatives._cut_rung(program, batch)
    right = count_derivatives._array_nested(program, batch)
    assert found.bound[0] < 1e-10
    p = expit(count_derivatives._odds(program, problem.nu, tables))
    allowed = np.maximum(1e-10 * np.abs(v).max() * np.sqrt(p * (1.0 - p)), 1e-9 * np.abs(right.marginals))
    assert (np.abs(found.marginals - right.marginals) <= allowed + 1e-13).all()
    assert (np.abs(found.counts - right.counts) <= np.maximum(1e-9 * np.abs(right.counts), 1e-11 * n)).all()


@pytest.mark.skipif(config.native() is None, reason="the compiled engine's rungs")
@pytest.mark.parametrize("n", [5_000, 10_000, 30_000])
@pytest.mark.parametrize("height", [0.0, 1e5])
def test_steep_and_high_tables_are_certified_by_characteristic_functions(n, height):
    # A table is rounded at the size of its differences from where the posterior lies.
    rng = np.random.default_rng(3)
    table = 1e-3 * (np.arange(n + 1.0) - n / 3) ** 2 + height
    problem = tt.CountModel(rng.standard_cauchy(n), table)._solver.problem
    batch = count_derivatives._Batch(problem.nu, problem.tables, np.ones((1, 1, n)), None, False)
    program = tt.CountTree.flat(n).program
    found, right = count_derivatives._flat_rung(batch), count_derivatives._cut_rung(program, batch)
    assert found.bound[0] <= 1e-10
    odds = count_derivatives._odds(program, problem.nu, problem.tables)
    allowed = np.maximum(1e-10 * np.sqrt(expit(odds) * expit(-odds)), 1e-9 * np.abs(right.marginals))
    assert (np.abs(found.marginals - right.marginals) <= allowed + 1e-15).all()
