"""Count distributions of batches of small models: lanes against recursions of unlimited range; when they decline."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallytree as tt
from case import Case
from helpers import few
from oracle_nested import log_space_tree
from strategies import random_case
from tallytree import config
from tallytree.engine import native
from tallytree.engine.pmf.log_pmf import log_pmf
from test_draws import LEVELS, use
from test_log_pmf import assert_log_close, exact_log_pmf

INF = math.inf
pytestmark = pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")


@pytest.fixture(params=LEVELS)
def level(request, monkeypatch):
    use(monkeypatch, request.param)
    return request.param


def certain_rows(model, group):
    problem = model._solver.problem
    program, family = problem.tree.program, problem.tree.family
    node = int(program.set_node[family.set_of_group[group]])
    return native.root_counts(program, problem.nu, problem.tables, node)[1]


def batch_of(case, seed, models=5):
    """Models on the sets of a case with other numbers; the first is the case itself."""
    rng = np.random.default_rng(seed)
    logits = case.theta + rng.normal(size=(models, case.size)) * (np.arange(models) > 0)[:, None]
    tables = [
        table + rng.normal(size=(models, len(table))) * (np.arange(models) > 0)[:, None]
        for _, table in case.sets
    ]
    sets = [tt.Group(members, table) for (members, _), table in zip(case.sets, tables)]
    cases = [
        Case(logits[b], tuple((members, t[b]) for (members, _), t in zip(case.sets, tables)))
        for b in range(models)
    ]
    return tt.CountModel(logits, sets), cases


def test_counts_of_every_group_of_nested_batches(level):
    seen = 0
    for seed in range(40):
        model, cases = batch_of(random_case(seed, max_variables=30), seed)
        truth = [log_space_tree(c.theta, c.sets) for c in cases]
        for group, (members, _) in enumerate(cases[0].sets):
            if len(members) < 2:
                continue
            got = model.count_log_probs(group)
            for b, row in enumerate(got):
                assert_log_close(row, truth[b].count_log_probs(group), 1e-9)
            node = model.tree.program.set_node[model.tree.family.set_of_group[group]]
            seen += model.tree.program.parent[node] < 0 and certain_rows(model, group).any()
    assert seen > 15


def test_totals_with_holes_ends_and_infinite_logits(level):
    logits = np.random.default_rng(0).normal(size=(6, 12))
    logits[1, :4] = INF
    logits[2, 4:9] = -INF
    logits[3] = INF
    logits[4] = -INF
    for table in (tt.parity("odd"), tt.at_least(3), tt.at_most(9), np.arange(13.0) * 60.0):
        model = tt.CountModel(logits, [tt.Group(range(5), tt.at_most(5)), tt.Group(None, table)])
        possible = np.isfinite([[model.tables[1].reshape(-1, 13)[0][k] for k in (12, 0)]])[0]
        if not possible.all():
            keep = [0, 1, 2] + [b for b, ok in zip((3, 4), possible) if ok] + [5]
            model = model.replace(logits=logits[keep])
        got = model.count_log_probs()
        for b, row in enumerate(got):
            sets = [(tuple(range(5)), model.tables[0]), (tuple(range(12)), model.tables[1])]
            want = log_space_tree(np.asarray(model.logits)[b], sets).count_log_probs(1)
            assert_log_close(row, want, 1e-10)


def test_root_tables_of_any_range_do_not_need_another_way(level):
    rng = np.random.default_rng(3)
    model = tt.CountModel(rng.normal(size=(9, 100)), rng.normal(size=(9, 101)) * 1e4)
    assert certain_rows(model, 0).all()
    for b, row in enumerate(model.count_log_probs()[:2]):
        want = log_space_tree(model.logits[b], [(tuple(range(100)), model.tables[0][b])]).count_log_probs(0)
        assert_log_close(row, want)


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0, 60.0, 2000.0])
@pytest.mark.parametrize("size", few([2, 3, 64, 200], keep=3))
def test_pmf_of_rows_side_by_side(level, scale, size):
    rng = np.random.default_rng(size)
    nu = rng.normal(size=(7, size)) * scale
    nu[3, : size // 3] = INF
    nu[4, size // 2 :] = -INF
    got = log_pmf(nu)
    for row, have in zip(nu, got):
        assert_log_close(have, exact_log_pmf(row))


def test_what_may_underflow_goes_another_way(level):
    nu = np.concatenate([np.zeros((4, 400)), np.full((4, 400), -9.0)])
    model = tt.CountModel(nu, tt.at_most(400))
    assert np.array_equal(certain_rows(model, 0), np.arange(8) < 4)
    assert_log_close(log_pmf(nu)[5], exact_log_pmf(nu[5]))


@pytest.mark.parametrize("batch", [0, 1, 3, 4, 17])
@pytest.mark.parametrize("size", [0, 1, 2, 9])
def test_every_shape(level, batch, size):
    got = tt.CountModel(np.zeros((batch, size)), np.zeros(size + 1)).count_log_probs()
    want = [math.log(math.comb(size, k)) - size * math.log(2.0) for k in range(size + 1)]
    np.testing.assert_allclose(got, np.broadcast_to(want, (batch, size + 1)), atol=1e-13)


def test_calls_that_do_not_fit_are_refused():
    program = tt.CountTree.from_groups([[0, 1], [0, 1, 2, 3]], 4).program
    nu, tables = np.zeros((4, 4)), np.zeros((1, program.table_total))
    for node in (-1, 3, int(program.set_node[0]), program.n_nodes):
        with pytest.raises(ValueError, match="without a parent"):
            native.root_counts(program, nu, tables, node)
