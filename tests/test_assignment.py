"""Assignment problems: feasibility, best assignments, sparse and dense problems, wrong arguments."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from scipy import sparse

import tallytree as tt
from assignment_cases import exact
from oracle_grids import enumerate_grid, log_weights, states, thin_grid

INF = math.inf
ROWS, COLUMNS = tt.between(2, 3), tt.between(1, 2)  # the paper's figure 4


# -- the oracles against each other ------------------------------------------------------------------------------------


def test_the_two_oracles_agree():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(3, 5))
    rows = [tt.between(1, 3).log_table(5), rng.normal(size=6), tt.one_of([0, 3]).log_table(5)]
    columns = [tt.at_most(2).log_table(3)] * 4 + [rng.normal(size=4)]
    want_z, want, _ = enumerate_grid(theta, rows, columns)
    got_z, got = thin_grid(theta, rows, columns)
    assert got_z == pytest.approx(want_z, abs=1e-12)
    np.testing.assert_allclose(got, want, atol=1e-12)


# -- feasibility -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_what_is_decided_agrees_with_enumeration(seed):
    rng = np.random.default_rng(seed)
    shape = (3, 4)
    forbidden = rng.random(shape) < 0.35
    low_r, low_c = rng.integers(0, 3, size=3), rng.integers(0, 2, size=4)
    rows = [tt.between(int(a), int(min(a + rng.integers(0, 2), 4))) for a in low_r]
    columns = [tt.between(int(a), int(min(a + rng.integers(0, 3), 3))) for a in low_c]
    theta = np.where(forbidden, -INF, 0.0)
    y = states(*shape)
    w = log_weights(theta, [p.log_table(4) for p in rows], [p.log_table(3) for p in columns], y)
    feasible = y[w > -INF]
    if len(feasible) == 0:
        with pytest.raises(tt.InfeasibleError, match=r"need at least \d+ together|needs at least"):
            tt.assignment(np.zeros(shape), rows, columns, forbidden)
        return
    problem = tt.assignment(np.zeros(shape), rows, columns, forbidden)
    always, never = feasible.all(0), ~feasible.any(0)
    np.testing.assert_array_equal(problem.decided, np.where(always, 1, np.where(never, 0, -1)))
    beliefs = problem.loopy_bp(max_iter=3000)
    assert beliefs.marginals[always].tolist() == [1.0] * int(always.sum())
    assert beliefs.marginals[never].tolist() == [0.0] * int(never.sum())
    counts = feasible.sum(2)
    expected = beliefs.row_counts
    assert (expected > counts.min(0) - 1e-6).all()
    assert (expected < counts.max(0) + 1e-6).all()


def test_clashes_are_named():
    free = np.zeros((4, 5))
    blocked = np.zeros((4, 5), bool)
    blocked[:2, 2:] = True  # rows 0 and 1 may use columns 0 and 1 only
    text = r"^Rows 0, 1 need at least 4 together, but can have at most 2: columns 0, 1 can take at most 2\."
    with pytest.raises(tt.InfeasibleError, match=text):
        tt.assignment(
            free, rows=tt.exactly(2), columns=[tt.at_most(1)] * 2 + [tt.at_most(4)] * 3, forbidden=blocked
        )
    text = r"^Columns [0-9, ]+ need at least 1[25] together, but can have at most 8: rows 0, 1, 2, 3 can take at most 8"
    with pytest.raises(tt.InfeasibleError, match=text):
        tt.assignment(free, rows=tt.at_most(2), columns=tt.at_least(3))
    blocked[:] = False
    blocked[:, 3] = True
    with pytest.raises(
        tt.InfeasibleError,
        match=r"^Column 3 needs at least 1, but can have at most 0: rows offer 0 allowed cells",
    ):
        tt.assignment(free, columns=tt.at_least(1), forbidden=blocked)
    forced = free.copy()
    forced[1, :3] = INF
    with pytest.raises(tt.InfeasibleError, match="Row 1"):
        tt.assignment(forced, rows=tt.at_most(2))
    with pytest.raises(tt.InfeasibleError, match="Row 0 allows no count"):
        tt.assignment(free, rows=tt.exactly(1) * tt.exactly(2))
    forced = np.array([[INF, 0.0, -INF, -INF]])  # one or two cells, where 0 or 3 are allowed
    with pytest.raises(
        tt.InfeasibleError, match=r"Row 0 can have none of the counts it allows.*leave 1 to 2"
    ):
        tt.assignment(forced, rows=tt.one_of([0, 3]))
    # The columns leave 2 for row 1, in the gap of "1 or 3": found when the best assignment is sought.
    gap = tt.assignment(np.zeros((2, 4)), rows=[tt.exactly(2), tt.one_of([1, 3])], columns=tt.exactly(1))
    with pytest.raises(tt.InfeasibleError, match="No configuration satisfies"):
        gap.mode()


def test_constraints_met_with_equality_are_taken_out():
    # 4 x 4, rows 2-3, columns 1-2: only 2 everywhere; plain propagation would drift for ever.
    theta = np.random.default_rng(0).normal(size=(4, 4))
    problem = tt.assignment(theta, rows=ROWS, columns=COLUMNS)
    beliefs = problem.loopy_bp()
    assert beliefs.converged
    assert beliefs.iterations < 60
    log_z, marginals, _ = exact(theta, ROWS, COLUMNS)
    assert np.abs(beliefs.marginals - marginals).max() < 0.1
    assert beliefs.lower_bound <= log_z
    slow = tt.assignment(theta, rows=[ROWS] * 4, columns=COLUMNS, forbidden=np.zeros((4, 4), bool))
    np.testing.assert_allclose(slow.loopy_bp().marginals, beliefs.marginals, atol=1e-8)


def test_decided_cells_enter_the_log_weights():
    theta = np.array([[0.3, INF, -1.0], [0.2, 0.5, 0.7]])
    forbidden = np.array([[False, False, True], [False, False, False]])
    problem = tt.assignment(theta, rows=tt.exactly(1), columns=tt.at_most(1), forbidden=forbidden)
    assert problem.decided.tolist() == [[0, 1, 0], [-1, 0, -1]]
    beliefs = problem.loopy_bp()
    assert beliefs.bethe_log_partition == pytest.approx(math.log(math.exp(0.2) + math.exp(0.7)), abs=1e-9)
    assert problem.mode().log_weight == pytest.approx(0.7)
    assert problem.log_weight([[0, 1, 0], [0, 0, 1]]) == pytest.approx(0.7)
    assert problem.log_weight([[0, 1, 1], [0, 0, 1]]) == -INF
    assert problem.log_weight([[1, 0, 0], [0, 0, 1]]) == -INF


def test_a_problem_without_freedom():
    problem = tt.assignment([[1.0, 2.0], [3.0, 4.0]], rows=tt.exactly(2), columns=tt.exactly(2))
    assert problem.n_free == 0
    beliefs = problem.loopy_bp()
    assert beliefs.marginals.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert beliefs.bethe_log_partition == problem.mode().log_weight == 10.0
    assert problem.bounds().gap == pytest.approx(0.0, abs=1e-12)
    assert problem.sample(2, rng=0).all()


# -- the best assignment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_the_best_assignment_is_the_best(seed):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(3, 4)) * 2.0
    kinds = [
        tt.between(1, 2),
        tt.one_of([0, 2, 3]),
        tt.quadratic(-0.7, 0.2),
        tt.geometric(0.5),
        tt.parity("even"),
    ]
    rows = [kinds[k] for k in rng.integers(0, 3 if seed < 4 else 5, size=3)]
    columns = [kinds[k] for k in rng.choice([0, 2, 3] if seed < 8 else range(5), size=4)]
    want = enumerate_grid(theta, [p.log_table(4) for p in rows], [p.log_table(3) for p in columns])[2]
    if want == -INF:
        with pytest.raises(tt.InfeasibleError):
            tt.assignment(theta, rows, columns).mode()
        return
    found = tt.assignment(theta, rows, columns).mode()
    assert found.log_weight == pytest.approx(want, abs=1e-9)
    assert found.gap == 0.0
    assert found.affinity == pytest.approx(theta[found.cells].sum())


def test_dual_decomposition_reaches_the_linear_program():
    theta = np.random.default_rng(3).normal(size=(8, 12))
    problem = tt.assignment(theta, rows=tt.between(2, 3), columns=tt.between(1, 2))
    want = problem.mode()
    found = problem.dual_decomposition()
    assert found.upper_bound >= want.log_weight - 1e-9
    assert found.upper_bound == pytest.approx(want.log_weight, abs=0.02)
    assert found.log_weight == pytest.approx(want.log_weight, abs=1e-9)


# -- forms of input ----------------------------------------------------------------------------------------------------


def test_sparse_and_dense_problems_agree():
    rng = np.random.default_rng(5)
    theta = rng.normal(size=(6, 9))
    allowed = rng.random((6, 9)) < 0.75
    dense = tt.assignment(theta, rows=tt.between(2, 4), columns=tt.between(1, 3), forbidden=~allowed)
    at = np.nonzero(allowed)
    matrix = sparse.coo_array((theta[at], at), shape=(6, 9))
    thin = tt.assignment(matrix, rows=tt.between(2, 4), columns=tt.between(1, 3))
    assert "sparse" in repr(thin)
    a, b = dense.loopy_bp(), thin.loopy_bp()
    assert sparse.issparse(b.marginals)
    np.testing.assert_allclose(b.marginals.toarray(), a.marginals, atol=1e-12)
    assert a.bethe_log_partition == pytest.approx(b.bethe_log_partition)
    np.testing.assert_array_equal(thin.mode().cells.toarray(), dense.mode().cells)
    assert thin.log_weight(thin.mode().cells) == pytest.approx(dense.mode().log_weight)
    assert [m.shape for m in thin.sample(3, rng=0, burn_in=2)] == [(6, 9)] * 3
    zero = tt.assignment(sparse.csr_array((np.zeros(2), ([0, 1], [1, 0])), shape=(2, 2)), rows=tt.exactly(1))
    assert zero.n_cells == 2  # stored zeros are cells


def test_tables_may_differ_between_rows():
    rng = np.random.default_rng(6)
    theta, rows, columns = rng.normal(size=(3, 4)), rng.normal(size=(3, 5)), rng.normal(size=4)
    problem = tt.assignment(theta, rows=rows, columns=columns)
    listed = tt.assignment(theta, rows=[tt.table(t) for t in rows], columns=[tt.table(columns)] * 4)
    assert problem.loopy_bp().bethe_log_partition == pytest.approx(listed.loopy_bp().bethe_log_partition)
    y = problem.mode().cells
    want = (
        theta[y].sum()
        + sum(rows[i, y[i].sum()] for i in range(3))
        + sum(columns[y[:, j].sum()] for j in range(4))
    )
    assert problem.log_weight(y) == pytest.approx(want)


def test_problems_are_values():
    theta = np.random.default_rng(7).normal(size=(3, 6))
    a, b = (tt.assignment(theta, rows=ROWS, columns=COLUMNS) for _ in range(2))
    assert a == b
    assert hash(a) == hash(b)
    assert pickle.loads(pickle.dumps(a)) == a
    assert a != tt.assignment(theta, rows=ROWS, columns=tt.between(1, 3))
    assert a != 3
    assert repr(a) == "Assignment(shape=(3, 6), n_cells=18, n_free=18)"
    beliefs = a.loopy_bp()
    with pytest.raises(ValueError, match="read-only"):
        beliefs.marginals[0, 0] = 1.0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: tt.assignment(np.zeros(3)), "matrix"),
        (lambda: tt.assignment([[np.nan]]), r"\(0, 0\) is NaN"),
        (lambda: tt.assignment(np.zeros((2, 2)), forbidden=np.zeros((3, 2), bool)), "forbidden"),
        (lambda: tt.assignment(np.zeros((2, 2)), rows=3), r"exactly\(3\)"),
        (lambda: tt.assignment(np.zeros((2, 2)), rows=[tt.exactly(1)]), "list of 2"),
        (lambda: tt.assignment(np.zeros((2, 2)), rows=np.zeros((3, 3))), "shape"),
        (lambda: tt.assignment(np.zeros((2, 2)), columns=np.zeros(2)), "3 entries"),
        (lambda: tt.assignment(np.zeros((2, 2))).log_weight(np.zeros(4)), "shape"),
        (lambda: tt.assignment(np.zeros((2, 2))).gibbs_marginals(sweeps=0), "sweeps"),
        (lambda: tt.assignment(np.zeros((2, 2))).sample(-1), "size"),
    ],
)
def test_bad_input_is_refused_with_a_reason(make, text):
    with pytest.raises(tt.ParameterError, match=text):
        make()


# -- masks and large numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [-1e20, float(np.finfo(np.float32).min), -1e300])
def test_masked_cells_count_as_forbidden_ones(mask):
    """A cell that a mask excludes is decided as one that is forbidden; what is left has the same answers."""
    affinity = np.array([[0.3, -0.2, 0.1], [0.5, 0.4, -0.6], [0.2, 0.9, 0.7]])
    barred = np.zeros((3, 3), bool)
    barred[1, 0] = barred[2, 2] = True
    masked = tt.assignment(np.where(barred, mask, affinity), tt.exactly(1), tt.exactly(1))
    free = tt.assignment(affinity, tt.exactly(1), tt.exactly(1), barred)
    np.testing.assert_array_equal(masked.decided, free.decided)
    assert masked.decided[1, 0] == masked.decided[2, 2] == 0
    assert masked.mode().log_weight == free.mode().log_weight
    assert masked.log_weight(masked.mode().cells) == free.mode().log_weight
    assert masked.log_weight(np.eye(3)) <= mask / 2  # the number itself, or -inf
    np.testing.assert_allclose(masked.loopy_bp().marginals, free.loopy_bp().marginals, atol=1e-12)


def test_a_masked_cell_is_out_whatever_stands_beside_it():
    """An affinity as large as the mask does not make up for it: the mask behaves as -inf does."""
    affinity = np.array([[0.0, 0.0], [-1e300, 1e300]])
    problem = tt.assignment(affinity)
    assert problem.decided[1, 0] == 0
    assert problem.mode().cells[1].tolist() == [False, True]
    assert problem.log_weight(np.array([[0, 0], [1, 1]])) == -np.inf


def test_the_best_assignment_is_best_beside_large_numbers():
    # Both on in row 1 is worth 32, none 30: 2 of 100,032 are less than a mixed-integer code's usual tolerance.
    rows = [[0.0, 0.0, 0.0], [30.0, 0.0, 30.0], [0.0, 0.0, 0.0], [1e5, 0.0, -0.5]]
    problem = tt.assignment(
        [[0.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 0.0]], rows=rows, columns=[[0.0] * 5] * 2
    )
    best = problem.mode()
    assert best.log_weight == 100032.0
    assert np.asarray(best.cells)[1].all()


def test_a_row_without_a_possible_count_is_named():
    with pytest.raises(
        tt.InfeasibleError, match="Row 0 has 2 cells more forced on than its potential allows"
    ):
        tt.assignment([[np.inf, np.inf, 0.0], [0.0, 0.0, 0.0]], rows=tt.exactly(0))
    with pytest.raises(tt.InfeasibleError, match="allowed cells leave exactly 1\\. Relax"):
        tt.assignment(np.zeros((1, 2)), rows=tt.one_of([0, 2]), columns=[tt.exactly(1), tt.exactly(0)])


def test_counts_in_place_of_potentials_are_refused_with_advice():
    for cells, counts in (
        (np.zeros((3, 4)), [1, 1, 1]),
        (np.zeros((3, 2)), [1, 1, 1]),
        (np.zeros((6, 2)), np.arange(6)),
    ):
        with pytest.raises(tt.ParameterError, match=r"exactly\(\[[01], 1, "):
            tt.assignment(cells, rows=counts)
        with pytest.raises(tt.ParameterError, match=r"at_most\(\[[01], 1, "):
            tt.assignment(cells.T, columns=counts)
    assert tt.assignment(np.zeros((3, 4)), rows=tt.exactly([1, 2, 1])).mode().cells.sum(axis=1).tolist() == [
        1,
        2,
        1,
    ]
    tt.assignment(np.zeros((3, 2)), rows=[0.0, 1.0, 1.0])  # a log-table for all rows
    tt.assignment(np.zeros((2, 2)), rows=[0, 1, 1])


@pytest.mark.parametrize(("size", "lead"), [(None, ()), (2, (2,)), ((2, 3), (2, 3)), ((), ()), (0, (0,))])
def test_samples_have_the_axes_of_their_size(size, lead):
    drawn = tt.assignment(np.zeros((2, 3)), rows=tt.exactly(1)).sample(size, rng=0)
    assert drawn.shape == (*lead, 2, 3)
    assert (drawn.sum(axis=-1) == 1).all()


def test_samples_of_a_sparse_problem_are_matrices():
    problem = tt.assignment(sparse.csr_array(np.ones((2, 3))), rows=tt.exactly(1))
    assert [matrix.shape for matrix in problem.sample(2, rng=0)] == [(2, 3), (2, 3)]
    assert problem.sample(None, rng=0).shape == (2, 3)
    with pytest.raises(tt.ParameterError, match="a number or None for a sparse problem"):
        problem.sample((2, 3))


def test_forbidden_must_be_truth_values():
    with pytest.raises(tt.ParameterError, match=r"array of zeros and ones.*entry \(0, 0\) is 0.5"):
        tt.assignment(np.zeros((2, 2)), forbidden=[[0.5, 0.0], [0.0, 0.0]])
