"""Samples of assignments: exact draws of rows, and chains with the right limit."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy import stats

import tallytree as tt
from assignment_cases import exact, tables
from oracle_grids import log_weights, states
from tallytree.assignment import ErgodicityWarning
from tallytree.assignment.gibbs import _draw, _draw_in_order

INF = math.inf
ROWS, COLUMNS = tt.between(2, 3), tt.between(1, 2)  # the paper's figure 4


@pytest.mark.parametrize("draw", [_draw, _draw_in_order])
def test_draws_are_exact(draw):
    rng = np.random.default_rng(8)
    nu = np.array([0.5, -1.0, INF, 2.0, -INF, 0.3])
    log_f = rng.normal(size=7)
    log_f[3] = -INF
    size = 40_000
    y = draw(np.repeat(nu[None], size, axis=0), log_f[None], rng)
    every = states(1, 6)[:, 0]
    w = (
        np.where(every == 1, np.where(nu == INF, 0.0, nu), np.where(nu == INF, -INF, 0.0)).sum(1)
        + log_f[every.sum(1)]
    )
    p = np.exp(w - w.max())
    p /= p.sum()
    seen = np.bincount(y @ (1 << np.arange(6)), minlength=64)
    assert seen[p == 0].sum() == 0
    big = p * size >= 10
    got, want = np.append(seen[big], seen[~big].sum()), np.append(p[big], p[~big].sum()) * size
    keep = want > 0
    assert stats.chisquare(got[keep], want[keep]).pvalue > 1e-3


def test_draws_of_one_variable_heed_its_potential():
    log_f = np.array([[0.0, -INF], [-INF, 0.0], [0.0, 700.0]])
    drawn = _draw(np.array([[5.0], [-5.0], [0.0]]), log_f, np.random.default_rng(0))
    assert drawn.tolist() == [[False], [True], [True]]


def test_draws_survive_extreme_log_odds():
    rng = np.random.default_rng(9)
    nu = np.tile([-800.0, 700.0, -900.0, -800.0], (2000, 1))
    y = _draw(nu, tt.exactly(2).log_table(4)[None], rng)
    assert (y.sum(1) == 2).all()
    assert y[:, 1].all()
    assert not y[:, 2].any()
    assert abs(y[:, 0].mean() - 0.5) < 0.05


@pytest.mark.parametrize("kind", ["marginals", "sample"])
def test_chains_have_the_right_limit(kind):
    rng = np.random.default_rng(10)
    theta = rng.normal(size=(3, 4))
    rows, columns = tt.between(1, 3), tt.between(1, 2)
    _, want, _ = exact(theta, rows, columns)
    problem = tt.assignment(theta, rows=rows, columns=columns)
    if kind == "sample":
        y = problem.sample(3000, rng=0, burn_in=20, thin=3, chains=300)
        assert y.shape == (3000, 3, 4)
        assert np.isin(y.sum(2), (1, 2, 3)).all()
        assert np.isin(y.sum(1), (1, 2)).all()
        got = y.mean(0)
    else:
        found = problem.gibbs_marginals(sweeps=60, rng=0, burn_in=10, chains=200)
        assert found.standard_error.max() < 0.02
        got = found.marginals
    assert np.abs(got - want).max() < 0.025
    assert np.abs(got - want).mean() < 0.01


def test_samples_follow_the_distribution():
    theta = np.random.default_rng(11).normal(size=(2, 3))
    rows, columns = tt.exactly(2), tt.between(1, 2)
    y = tt.assignment(theta, rows=rows, columns=columns).sample(6000, rng=1, burn_in=20, thin=4, chains=600)
    every = states(2, 3)
    w = log_weights(theta, tables(rows, 2, 3), tables(columns, 3, 2), every)
    p = np.exp(w - w.max())
    p /= p.sum()
    seen = np.bincount(y.reshape(-1, 6) @ (1 << np.arange(6)), minlength=64)
    assert seen[p == 0].sum() == 0
    keep = p > 0
    assert stats.chisquare(seen[keep], p[keep] * len(y)).pvalue > 1e-3


def test_exact_counts_mix_by_trades():
    theta = np.random.default_rng(12).normal(size=(4, 4))
    one = tt.exactly(1)
    problem = tt.assignment(theta, rows=one, columns=one)
    _, want, _ = exact(theta, one, one)
    got = problem.gibbs_marginals(sweeps=100, rng=0, chains=200)
    # rows are decided by the rest, so states carry all the information
    assert np.abs(got.marginals - want).max() < 0.03


def test_chains_that_cannot_reach_everything_warn():
    theta = np.zeros((3, 6))
    gap = tt.assignment(theta, rows=tt.one_of([0, 3]), columns=tt.at_most(2))
    both = tt.assignment(np.zeros((6, 6)), rows=tt.one_of([0, 3]), columns=tt.one_of([0, 3]))
    with pytest.warns(ErgodicityWarning, match="both disjoint"):
        both.sample(1, rng=0, burn_in=0, chains=2)
    blocked = tt.assignment(
        np.zeros((4, 4)), rows=tt.exactly(1), columns=tt.exactly(1), forbidden=np.eye(4, dtype=bool)
    )
    for call in (
        lambda: blocked.gibbs_marginals(sweeps=1, rng=0),
        lambda: blocked.sample(1, rng=0, chains=2),
    ):
        with pytest.warns(ErgodicityWarning, match="forbidden cells"):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gap.sample(1, rng=0, burn_in=0, chains=2)  # whole rows pass from 0 to 3


@pytest.mark.filterwarnings("ignore::tallytree.assignment.ErgodicityWarning")
@pytest.mark.parametrize("columns", [tt.at_most(2), tt.one_of([0, 3])])
def test_a_start_between_gaps_needs_no_integers(columns, monkeypatch):
    """Deciding cells one by one runs into a dead end here, and integers took 42 s for 300 rows."""
    from scipy import optimize

    whole = []
    solver = optimize.milp

    def watched(*arguments, integrality, **options):
        whole.append(np.any(integrality))
        return solver(*arguments, integrality=integrality, **options)

    monkeypatch.setattr(optimize, "milp", watched)
    theta = np.random.default_rng(0).normal(size=(60, 60))
    drawn = tt.assignment(theta, rows=tt.one_of([0, 3]), columns=columns).sample(1, rng=0, burn_in=2)[0]
    assert np.isin(drawn.sum(1), (0, 3)).all()
    assert np.isin(drawn.sum(0), (0, 1, 2) if columns == tt.at_most(2) else (0, 3)).all()
    assert whole
    assert not any(whole)


def test_masks_beside_ordinary_affinities_are_drawn():
    """The largest float32 stands for certainty: compiled sums of its weight have no place for the others."""
    theta = np.array([[750.0, 0.0], [float(np.finfo(np.float32).max), 0.0], [750.0, -750.0]])
    problem = tt.assignment(theta, rows=tt.at_least(1), columns=[tt.at_most(2), tt.at_most(1)])
    drawn = problem.sample(40, rng=0, chains=40)
    assert drawn[:, 1, 0].all()
    assert (drawn.sum(2) >= 1).all()
    assert (drawn.sum(1) <= [2, 1]).all()


def test_narrow_matrices_are_drawn_exactly_and_say_so():
    """Both counts have gaps, so that no chain connects all assignments; draws meet every one of them."""
    problem = tt.assignment(np.zeros((6, 6)), rows=tt.one_of([0, 3]), columns=tt.one_of([0, 3]))
    assert problem.sampling == "exact"
    draws = problem.sample(4000, rng=0)
    assert draws.dtype == bool
    assert draws.shape == (4000, 6, 6)
    p = problem.exact().marginals
    assert np.abs(draws.mean(0) - p).max() < 6 * np.sqrt((p * (1 - p)).max() / 4000)
    wide = tt.assignment(np.zeros((40, 40)), rows=tt.exactly(2), columns=tt.exactly(2))
    assert wide.sampling == "gibbs"
    assert (wide.sample(2, rng=0, burn_in=1).sum(2) == 2).all()


def test_disjoint_counts_do_not_trap_rows():
    theta = np.full((2, 6), 0.1)
    problem = tt.assignment(theta, rows=tt.one_of([0, 4]), columns=tt.uniform())
    _, want, _ = exact(theta, tt.one_of([0, 4]), tt.uniform())
    free = problem.gibbs_marginals(sweeps=50, rng=0, chains=50)
    np.testing.assert_allclose(free.marginals, want, atol=0.01)


def test_chains_are_reproducible_and_interruptible():
    problem = tt.assignment(np.random.default_rng(13).normal(size=(4, 6)), rows=ROWS, columns=COLUMNS)
    a, b = (problem.sample(5, rng=3, burn_in=2) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert problem.sample(0).shape == (0, 4, 6)

    def stop(stage):
        if stage.done == 20 + 3:  # after those that are thrown away
            raise KeyboardInterrupt

    found = problem.gibbs_marginals(sweeps=100, rng=0, progress=stop)
    assert found.interrupted
    assert found.sweeps == 3
