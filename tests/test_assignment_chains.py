"""Markov chains on assignments: their law, honest errors, masks and wrong arguments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

import tallytree as tt
from assignment_cases import exact
from helpers import few

INF = math.inf


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1), (2, 3), (3, 2)])
@pytest.mark.parametrize("rows", [tt.at_most(2), tt.at_least(1)])
def test_averages_have_the_right_law_whatever_the_shape(shape, rows):
    theta = np.random.default_rng(3).normal(size=shape)
    rows = rows if shape[1] > 1 else tt.at_most(1)
    problem = tt.assignment(theta, rows, tt.at_most(shape[0]))
    _, want, _ = exact(theta, rows, tt.at_most(shape[0]))
    found = problem.gibbs_marginals(100, rng=1, chains=24)
    assert (np.abs(found.marginals - want) < 5.0 * found.standard_error + 1e-3).all()


def test_a_single_row_with_an_exact_count_moves():
    theta = np.array([[0.0, 1.0, -1.0, 0.5]])
    problem = tt.assignment(theta, rows=tt.exactly(2))
    _, want, _ = exact(theta, tt.exactly(2), tt.at_most(1))
    found = problem.gibbs_marginals(200, rng=0)
    np.testing.assert_allclose(found.marginals, want, atol=0.03)


def test_the_error_of_what_never_moved_is_not_zero():
    # Of exact counts the chain averages states, and one cell is never visited.
    one = tt.exactly(1)
    unlikely = tt.assignment(np.array([[-60.0, 0.0], [0.0, -60.0]]), one, one).gibbs_marginals(20, rng=0)
    assert np.isinf(unlikely.standard_error).all()
    free = tt.assignment(np.zeros((2, 2)))
    assert np.isinf(free.gibbs_marginals(20, rng=0, chains=1).standard_error).all()
    decided = tt.assignment(np.zeros((1, 2)), columns=tt.exactly(1)).gibbs_marginals(5, rng=0)
    assert decided.marginals.tolist() == [[1.0, 1.0]]
    assert not decided.standard_error.any()


def test_conditional_marginals_that_do_not_depend_on_the_state_are_exact():
    theta = np.array([[-30.0, 0.0], [0.5, 1.0]])
    found = tt.assignment(theta, rows=tt.at_most(1)).gibbs_marginals(5, rng=0)
    _, want, _ = exact(theta, tt.at_most(1), tt.at_most(2))
    np.testing.assert_allclose(found.marginals, want, rtol=1e-9)
    assert found.standard_error.max() < 1e-12


@pytest.mark.parametrize("kind", ["marginals", "sample"])
@pytest.mark.parametrize("seed", few(range(3)))
def test_small_assignments_against_enumeration(kind, seed):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(3, 3)) * 1.5
    theta[rng.random((3, 3)) < 0.1] = -INF
    rows, columns = tt.at_most(2), tt.between(0, 2)
    _, want, _ = exact(np.where(theta == -INF, -700.0, theta), rows, columns)
    problem = tt.assignment(theta, rows, columns)
    if kind == "sample":
        drawn = problem.sample(3000, rng=0, chains=64)
        assert (drawn.sum(2) <= 2).all()
        assert (drawn.sum(1) <= 2).all()
        np.testing.assert_allclose(drawn.mean(0), want, atol=0.06)
        return
    found = problem.gibbs_marginals(100, rng=0)
    assert (np.abs(found.marginals - want) <= 5.0 * found.standard_error + 2e-3).all()


# -- masks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", few([-1e20, -1e300, float(np.finfo(np.float32).min)]))
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_finite_masks_forbid_cells_and_counts(mask):
    rng = np.random.default_rng(5)
    theta = rng.normal(size=(3, 4))
    forbidden = np.zeros((3, 4), bool)
    forbidden[[0, 1, 2], [1, 3, 0]] = True
    hidden = np.where(forbidden, mask, theta)
    counts = np.array([mask, 0.0, 0.5, mask, mask])
    right = tt.assignment(
        np.where(forbidden, -INF, theta), np.where(counts == mask, -INF, counts), tt.exactly(1)
    )
    for affinity in (hidden, sparse.csr_array(hidden)):
        problem = tt.assignment(affinity, counts, tt.exactly(1))
        dense = np.asarray if affinity is hidden else lambda m: m.toarray()
        np.testing.assert_array_equal(dense(problem.loopy_bp().marginals), right.loopy_bp().marginals)
        assert problem.mode().log_weight == right.mode().log_weight
        assert problem.bounds().upper == right.bounds().upper
        assert problem.bounds().lower == right.bounds().lower
        assert problem.dual_decomposition().log_weight == right.dual_decomposition().log_weight
        drawn = problem.sample(50, rng=0)
        for y in drawn if affinity is hidden else [m.toarray() for m in drawn]:
            assert not y[forbidden].any()
            assert set(y.sum(1).tolist()) <= {1, 2}
        assert problem.log_weight(forbidden.astype(int)) == -INF


# -- arguments ---------------------------------------------------------------------------------------------------------


def small() -> tt.assignment:
    return tt.assignment(np.zeros((2, 3)), rows=tt.exactly(1))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: small().sample(-1), "`size` must.*at least 0; -1"),
        (lambda: small().sample(2.5), "`size` must.*2.5"),
        (lambda: small().sample(burn_in=-1), "`burn_in` must.*at least 0"),
        (lambda: small().sample(burn_in=1.5), "`burn_in` must.*1.5"),
        (lambda: small().sample(burn_in=None), "`burn_in` must.*None"),
        (lambda: small().sample(thin=0), "`thin` must.*at least 1"),
        (lambda: small().sample(thin=1.5), "`thin` must.*1.5"),
        (lambda: small().log_weight([[1], [1, 2]]), "`y` must be an array of zeros and ones"),
        (lambda: tt.assignment(np.zeros((2, 3)), forbidden=[[True], [False, True]]), "`forbidden` must"),
        (lambda: tt.assignment(sparse.csr_array(np.ones((2, 2)) * 1j)), "complex"),
        (lambda: tt.assignment(sparse.coo_array(np.array([1.0, 2.0]))), "matrix, rows by columns"),
        (lambda: tt.assignment(np.zeros((2, 3)), rows="x"), "^`rows` must be an array of real numbers"),
        (lambda: tt.assignment(np.zeros((2, 3)), rows=1.5), "^`rows` must be an array of real numbers"),
        (
            lambda: tt.assignment(np.zeros((2, 3)), rows=[[0, 0], [0]]),
            "^`rows` must be an array of real numbers",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_a_reason(make, text):
    with pytest.raises(tt.ParameterError, match=text):
        make()


def test_a_function_per_row_serves_as_a_list_of_potentials():
    problem = tt.assignment(np.zeros((2, 3)), rows=[lambda c: 0.0 * c, lambda c: -1.0 * c])
    np.testing.assert_allclose(problem.loopy_bp().marginals[1], 1.0 / (1.0 + math.e))


def test_no_samples_and_no_rows():
    assert small().sample(0).shape == (0, 2, 3)
    empty = tt.assignment(np.zeros((0, 3)))
    assert empty.sample(2, rng=0).shape == (2, 0, 3)
    assert empty.gibbs_marginals(2, rng=0).marginals.shape == (0, 3)


# -- large problems ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [tt.exactly(2), tt.between(1, 3)])
def test_few_and_many_chains_have_the_same_law(columns):
    theta = np.random.default_rng(1).normal(size=(3, 24))
    problem = tt.assignment(theta, tt.between(8, 20), columns)
    one = problem.sample(400, rng=0, chains=1, thin=2)
    many = problem.sample(4000, rng=1, chains=64, thin=2)
    for drawn in (one, many):
        counts = drawn.sum(2)
        assert counts.min() >= 8
        assert counts.max() <= 20
        assert (np.isin(drawn.sum(1), np.flatnonzero(columns.log_table(3) > -INF))).all()
    assert np.abs(one.mean(0) - many.mean(0)).mean() < 0.04


def test_samples_show_how_far_they_are():
    seen: list[int] = []
    small().sample(3, rng=0, burn_in=4, thin=2, chains=1, progress=lambda stage: seen.append(stage.done))
    assert seen == list(range(1, 4 + 6 + 1))
