"""Exact answers of assignments, along a frontier of counts, against enumeration and dynamic programming."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy import sparse, stats

import tallytree as tt
from oracle_grids import enumerate_grid, log_weights, states, thin_grid

POTENTIALS = [
    tt.exactly(1),
    tt.exactly(2),
    tt.at_most(1),
    tt.at_least(1),
    tt.between(1, 2),
    tt.one_of([0, 3]),
    tt.parity(),
    tt.poisson(1.3),
    None,
]


def random_case(rng, shape):
    """Affinities, some cells forbidden or forced, potentials that differ between rows, and their tables."""
    theta = 1.5 * rng.normal(size=shape)
    theta[rng.random(shape) < rng.choice([0.0, 0.15, 0.4])] = -math.inf
    sides, tables = [], []
    for count, size in (shape, shape[::-1]):
        chosen = [
            POTENTIALS[k] if size >= 3 else tt.at_most(1) for k in rng.integers(len(POTENTIALS), size=count)
        ]
        sides.append(chosen)
        tables.append([np.zeros(size + 1) if f is None else f.log_table(size) for f in chosen])
    return theta, sides, tables


@pytest.mark.parametrize("shape", [(1, 5), (2, 7), (3, 4), (4, 4), (5, 3), (3, 5)])
def test_small_matrices_are_those_of_enumeration(shape):
    rng = np.random.default_rng(sum(shape))
    possible = impossible = 0
    for _ in range(40):
        theta, sides, tables = random_case(rng, shape)
        with np.errstate(invalid="ignore"):
            log_z, marginals, top = enumerate_grid(theta, *tables)
        if top == -math.inf:
            impossible += 1
            with pytest.raises(tt.InfeasibleError):
                tt.assignment(theta, *sides).exact()
            continue
        possible += 1
        exact = tt.assignment(theta, *sides).exact()
        assert exact.method == "exact"
        assert exact.log_partition == pytest.approx(log_z, rel=1e-12, abs=1e-11)
        np.testing.assert_allclose(exact.marginals, marginals, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(exact.row_counts, marginals.sum(1), rtol=1e-10, atol=1e-12)
        best = exact.mode()
        assert best.log_weight == pytest.approx(top, rel=1e-12, abs=1e-11)
        assert log_weights(theta, *tables, best.cells[None].astype(np.int8))[0] == pytest.approx(
            top, abs=1e-11
        )
    assert possible > 5
    assert possible + impossible == 40


@pytest.mark.parametrize("columns", [tt.exactly(1), tt.at_most(1), tt.one_of([0, 3])])
def test_draws_are_independent_and_follow_the_law(columns):
    """Also of forbidden cells with exact counts and of disjoint counts, where chains may be trapped."""
    theta = np.random.default_rng(4).normal(size=(3, 4))
    theta[0, 1] = theta[2, 2] = -math.inf
    rows = tt.one_of([0, 2])
    tables = [rows.log_table(4)] * 3, [columns.log_table(3)] * 4
    every = states(3, 4)
    w = log_weights(theta, *tables, every)
    p = np.exp(w - w.max())
    p /= p.sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = tt.assignment(theta, rows, columns).exact().sample(5000, rng=1)
    seen = np.bincount(drawn.reshape(5000, -1) @ (1 << np.arange(12)), minlength=len(p))
    assert not seen[p == 0].any()
    large = 5000 * p >= 5
    observed, expected = (np.append(v[large], v[~large].sum()) for v in (seen, 5000 * p))
    keep = expected > 0
    assert keep.sum() == 1 or stats.chisquare(observed[keep], expected[keep]).pvalue > 1e-3


def test_a_narrow_matrix_of_any_length_is_exact():
    """Six rows of two among 300 columns: the frontier holds the counts of the rows, and whether a column is taken."""
    affinity = np.random.default_rng(0).normal(size=(6, 300))
    problem = tt.assignment(affinity, rows=tt.exactly(2), columns=tt.at_most(1))
    assert problem.width == 2 * 3**6
    exact = problem.infer()
    assert exact.method == "exact"
    assert f"width={problem.width}" in repr(exact)
    np.testing.assert_allclose(exact.row_counts, 2.0, rtol=1e-11)
    assert (exact.column_counts <= 1.0 + 1e-12).all()
    assert exact.mode().log_weight == pytest.approx(problem.mode().log_weight, rel=1e-12)
    drawn = exact.sample(500, rng=0)
    assert (drawn.sum(2) == 2).all()
    assert (drawn.sum(1) <= 1).all()
    p = exact.marginals
    error = np.abs(drawn.mean(0) - p) / np.sqrt(p * (1 - p) / 500 + 1e-5)
    assert error.max() < 6.0
    # More of one cell moves log Z by its marginal.
    affinity[2, 17] += 1e-5
    more = tt.assignment(affinity, rows=tt.exactly(2), columns=tt.at_most(1)).exact().log_partition
    assert (more - exact.log_partition) / 1e-5 == pytest.approx(p[2, 17], rel=1e-3)


@pytest.mark.parametrize(
    ("rows", "columns", "width"),
    [
        ([tt.exactly(k) for k in (1, 2, 3, 4)], tt.at_most(1), 2 * 2 * 3 * 4 * 5),
        (tt.exactly(4), tt.at_most(2), 3 * 5**4),
        (tt.at_least(1), tt.parity(), 2 * 2**4),
        (tt.one_of([0, 3]), tt.at_most(1), 2 * 4**4),
    ],
)
def test_the_frontier_follows_the_columns(rows, columns, width):
    """Its width is the product of the states of the rows, times those of a column that is half read."""
    affinity = np.random.default_rng(1).normal(size=(4, 40))
    assert tt.assignment(affinity, rows, columns).width <= width
    assert tt.assignment(affinity.T, columns, rows).width <= width


def test_a_thin_matrix_is_that_of_dynamic_programming():
    rng = np.random.default_rng(5)
    theta, rows, columns = rng.normal(size=(3, 30)), tt.between(2, 4), tt.at_most(2)
    log_z, marginals = thin_grid(theta, [rows.log_table(30)] * 3, [columns.log_table(3)] * 30)
    exact = tt.assignment(theta, rows, columns).exact()
    assert exact.log_partition == pytest.approx(log_z, rel=1e-12)
    np.testing.assert_allclose(exact.marginals, marginals, rtol=1e-10, atol=1e-13)


def test_decided_and_sparse_cells_have_their_places():
    affinity = np.array([[0.0, 1.0, -math.inf], [0.5, -math.inf, 2.0], [-math.inf, math.inf, 0.3]])
    full = tt.assignment(affinity, rows=tt.exactly(1), columns=tt.exactly(1)).exact()
    np.testing.assert_array_equal(full.marginals, [[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    assert full.sample(2, rng=0).shape == (2, 3, 3)
    assert full.width == 1
    rng = np.random.default_rng(2)
    dense = np.where(rng.random((4, 9)) < 0.4, -math.inf, rng.normal(size=(4, 9)))
    place = np.nonzero(dense > -math.inf)
    thin = sparse.csr_array((dense[place], place), shape=dense.shape)
    one, other = (tt.assignment(a, rows=tt.at_least(1), columns=tt.at_most(2)).exact() for a in (dense, thin))
    np.testing.assert_allclose(other.marginals.toarray(), one.marginals, rtol=1e-12)
    assert one.log_partition == pytest.approx(other.log_partition)
    drawn = other.sample(3, rng=0)
    assert [sparse.issparse(m) and m.shape for m in drawn] == [(4, 9)] * 3
    np.testing.assert_array_equal([m.toarray() for m in drawn], one.sample(3, rng=0))
    with pytest.raises(tt.ParameterError, match="size"):
        other.sample((2, 3))
    assert tt.assignment(np.zeros((0, 3))).exact().sample(2, rng=0).shape == (2, 0, 3)


def test_a_wide_matrix_names_its_price_and_is_answered_by_belief_propagation():
    problem = tt.assignment(
        np.random.default_rng(3).normal(size=(30, 30)), rows=tt.exactly(2), columns=tt.exactly(2)
    )
    with pytest.raises(tt.StructureError, match=r"frontier of .* states"):
        problem.exact()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = problem.infer()
    assert result.method == "belief propagation"
    assert "belief propagation" in repr(result)
    np.testing.assert_allclose(result.marginals, problem.loopy_bp().marginals)
    with pytest.raises(tt.ParameterError, match="limit"):
        problem.exact(limit="much")
