"""Loopy belief propagation: kernels, exactness on trees, permanents, and how a run behaves."""

from __future__ import annotations

import itertools
import math
import pickle
import sys
import types

import numpy as np
import pytest

import tallytree as tt
from oracle_grids import enumerate_grid
from oracle_states import all_states
from tallytree.loopy import messages

INF = math.inf


def grid_graph(theta, rows, columns):
    index = np.arange(theta.size).reshape(theta.shape)
    groups = [tt.Group(m, rows) for m in index] + [tt.Group(m, columns) for m in index.T]
    return tt.FactorGraph(theta.ravel(), groups)


def enumerate_graph(graph):
    """Log Z, marginals, configurations and their log-weights."""
    y = all_states((2,) * graph.n_variables)
    w = np.asarray(graph.log_weight(y))
    p = np.exp(w - w.max())
    return w.max() + math.log(p.sum()), p @ y / p.sum(), y, w


# -- exactness on trees ------------------------------------------------------------------------------------------------


def random_tree(rng, zeros=False):
    """Factors that meet in single variables and close no cycle: counts, a nested model, pairs."""
    groups, edges, tables = [], [], []
    n = 1
    for kind in rng.permutation(["count", "count", "model", "pair", "pair"]):
        size = 1 if kind == "pair" else int(rng.integers(1, 4))
        members = [int(rng.integers(n)), *range(n, n + size)]
        n += size
        if kind == "pair":
            edges.append(members)
            tables.append(rng.normal(size=(2, 2)))
        elif kind == "count":
            table = rng.normal(size=size + 2)
            if zeros:
                table[rng.integers(size + 2)] = -INF
            groups.append(tt.Group(members, table))
        else:
            inner = [
                tt.Group(members_of, rng.normal(size=len(members_of) + 1))
                for members_of in ([0], range(size + 1))
            ]
            groups.append(tt.Group(members, tt.CountModel(rng.normal(size=size + 1), inner)))
    return tt.FactorGraph(rng.normal(size=n), groups, edges=(edges, tables))


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("seed", range(8))
def test_exact_on_trees(seed, schedule):
    graph = random_tree(np.random.default_rng(seed), zeros=seed % 2 == 1)
    log_z, marginals, y, w = enumerate_graph(graph)
    result = tt.loopy_bp(graph, damping=0.0, schedule=schedule, accelerate=False)
    assert result.converged
    np.testing.assert_allclose(result.marginals, marginals, atol=1e-10)
    assert result.bethe_log_partition == pytest.approx(log_z, abs=1e-9)
    p = np.exp(w - log_z)
    for g in range(graph.n_groups):
        counts = y[:, graph.members(g)].sum(1)
        want = np.bincount(counts, p, minlength=len(graph.members(g)) + 1)
        np.testing.assert_allclose(np.exp(result.count_log_probs(g)), want, atol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_max_product_is_exact_on_trees(seed):
    graph = random_tree(np.random.default_rng(50 + seed))
    _, _, y, w = enumerate_graph(graph)
    result = tt.loopy_bp(graph, damping=0.0, semiring="max")
    assert result.converged
    assert result.bethe_log_partition == pytest.approx(w.max(), abs=1e-9)
    np.testing.assert_array_equal(result.mode, y[np.argmax(w)] == 1)
    want = [w[y[:, d] == 1].max() - w[y[:, d] == 0].max() for d in range(graph.n_variables)]
    np.testing.assert_allclose(result.log_odds, want, atol=1e-9)


def test_one_row_with_unit_columns_is_a_tree():
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(1, 7))
    rows, columns = [rng.normal(size=8)], [rng.normal(size=2) for _ in range(7)]
    graph = tt.FactorGraph(
        theta[0], [tt.Group(None, rows[0])] + [tt.Group([j], columns[j]) for j in range(7)]
    )
    log_z, marginals, _ = enumerate_grid(theta, rows, columns)
    result = tt.loopy_bp(graph, damping=0.0)
    np.testing.assert_allclose(result.marginals, marginals[0], atol=1e-12)
    assert result.bethe_log_partition == pytest.approx(log_z, abs=1e-12)


def test_hard_constraints_decide_variables_for_good():
    # "All on" decides 0..2; that leaves at most one of 2, 3, 4, so 3 and 4 are off; logits at infinity as well.
    groups = [
        tt.Group([0, 1, 2], tt.exactly(3)),
        tt.Group([2, 3, 4], tt.at_most(1)),
        tt.Group([4, 5, 6], tt.at_least(1)),
    ]
    graph = tt.FactorGraph([0.5, -0.25, 1.0, 3.0, 2.0, 0.7, INF], groups)
    log_z, marginals, _, _ = enumerate_graph(graph)
    for schedule in ("sequential", "parallel"):
        result = tt.loopy_bp(graph, schedule=schedule)
        assert result.converged
        np.testing.assert_allclose(result.marginals, marginals, atol=1e-12)
        assert result.log_odds[:5].tolist() == [INF, INF, INF, -INF, -INF]
        assert result.bethe_log_partition == pytest.approx(log_z, abs=1e-10)


def test_contradictions_are_refused():
    graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(2)), tt.Group([1, 2], tt.exactly(0))])
    with pytest.raises(tt.InfeasibleError, match="Factor 1"):
        tt.loopy_bp(graph)
    with pytest.raises(tt.InfeasibleError, match="Factor 0"):
        tt.loopy_bp(tt.FactorGraph([-INF, 0.0], [tt.Group([0, 1], tt.exactly(2))]), semiring="max")


def test_a_graph_without_factors_is_independent():
    result = tt.loopy_bp(tt.FactorGraph([0.0, 1.0]))
    np.testing.assert_allclose(result.log_odds, [0.0, 1.0])
    assert result.bethe_log_partition == pytest.approx(math.log(2.0) + math.log1p(math.e))
    assert tt.loopy_bp(tt.FactorGraph([])).marginals.shape == (0,)


# -- permanents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 5, 8, 40])
def test_bethe_permanent_of_ones_has_a_closed_form(n):
    result = tt.loopy_bp(grid_graph(np.zeros((n, n)), tt.exactly(1), tt.exactly(1)))
    want = n * math.log(n) + n * (n - 1) * math.log((n - 1) / n)
    assert result.bethe_log_partition == pytest.approx(want, abs=1e-8 * n)
    assert result.lower_bound == result.bethe_log_partition <= math.lgamma(n + 1)


@pytest.mark.parametrize("seed", range(10))
def test_bethe_permanents_bound_permanents(seed):
    n = 5
    theta = np.random.default_rng(seed).normal(size=(n, n)) * 2.0
    log_p = np.logaddexp.reduce(
        [sum(theta[i, s[i]] for i in range(n)) for s in itertools.permutations(range(n))]
    )
    result = tt.loopy_bp(grid_graph(theta, tt.exactly(1), tt.exactly(1)))
    assert result.converged
    assert (
        result.bethe_log_partition - 1e-8
        <= log_p
        <= result.bethe_log_partition + n / 2 * math.log(2.0) + 1e-8
    )


# -- how a run behaves -------------------------------------------------------------------------------------------------


def example(seed=0, shape=(6, 8)):
    return grid_graph(np.random.default_rng(seed).normal(size=shape), tt.between(2, 3), tt.between(1, 2))


def test_schedules_and_acceleration_have_the_same_fixed_point():
    graph = example()
    want = tt.loopy_bp(graph, accelerate=False, max_iter=5000, tol=1e-11)
    assert want.converged
    for options in ({}, {"schedule": "parallel", "damping": 0.5}, {"damping": 0.0}, {"damping": 0.6}):
        got = tt.loopy_bp(graph, tol=1e-11, max_iter=5000, **options)
        assert got.converged
        np.testing.assert_allclose(got.marginals, want.marginals, atol=1e-9)
        assert got.bethe_log_partition == pytest.approx(want.bethe_log_partition, abs=1e-9)
    assert tt.loopy_bp(graph, tol=1e-11).iterations < want.iterations


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("gap", [0.5, 0.06, -1e-3, 1e-5, -1e-7])
def test_messages_that_run_away_slowly_are_carried_to_their_limit(gap, schedule):
    # Around the cycle of a permanent of order two the log-odds grow by a share of the gap in every sweep, without end:
    # the Bethe value is the larger of both terms.
    problem = tt.assignment([[gap + 0.3, 0.2], [0.1, 0.0]], rows=tt.exactly(1), columns=tt.exactly(1))
    found = problem.loopy_bp(schedule=schedule)
    assert found.converged
    assert found.iterations < 200
    assert np.array_equal(found.marginals.round(9), np.eye(2) if gap > 0 else 1.0 - np.eye(2))
    assert np.isclose(found.bethe_log_partition, 0.3 + max(gap, 0.0), rtol=0.0, atol=1e-8)
    assert found.lower_bound <= np.log(np.exp(gap + 0.3) + np.exp(0.3))


def test_what_nobody_hears_may_grow_without_end():
    # Column 0 has one allowed cell and an even count, so that cell is off for good; its row goes on to argue with it.
    forbidden = [[True, False, False], [False, False, False]]
    affinity = [[1.0, 1.5, -0.6], [0.8, -1.2, -0.3]]
    problem = tt.assignment(affinity, rows=tt.parity("even"), columns=tt.parity("even"), forbidden=forbidden)
    for accelerate in (True, False):
        found = problem.loopy_bp(accelerate=accelerate)
        assert found.converged
        assert found.iterations < 300
        assert np.array_equal(
            found.marginals.round(9), np.zeros((2, 3))
        )  # all four others on weigh exp(-0.6)


def test_marginals_meet_the_counts_in_expectation():
    result = tt.loopy_bp(
        grid_graph(np.random.default_rng(2).normal(size=(8, 9)), tt.exactly(3), tt.between(2, 4))
    )
    m = result.marginals.reshape(8, 9)
    np.testing.assert_allclose(m.sum(1), 3.0, atol=1e-7)
    for j in range(9):
        p = np.exp(result.count_log_probs(8 + j))
        assert p @ np.arange(9) == pytest.approx(m[:, j].sum(), abs=1e-7)
        assert p[:2].sum() == p[5:].sum() == 0.0


def test_interrupted_runs_keep_their_state_and_resume():
    graph = example()

    def stop(stage):
        if stage.done == 4:
            raise KeyboardInterrupt

    first = tt.loopy_bp(graph, accelerate=False, progress=stop)
    assert first.interrupted
    assert not first.converged
    assert first.iterations == len(first.trace) == 4
    assert "interrupted after 4" in repr(first)
    rest = tt.loopy_bp(graph, accelerate=False, start=pickle.loads(pickle.dumps(first)))
    whole = tt.loopy_bp(graph, accelerate=False)
    assert rest.converged
    assert rest.iterations == whole.iterations
    np.testing.assert_array_equal(rest.trace, whole.trace)
    np.testing.assert_array_equal(rest.log_odds, whole.log_odds)
    done = tt.loopy_bp(graph, start=whole)
    assert done.iterations == whole.iterations + 1


def test_a_run_resumes_with_other_logits():
    graph = example()
    first = tt.loopy_bp(graph)
    near = graph.replace(logits=graph.logits + 0.01)
    again = tt.loopy_bp(near, start=first)
    np.testing.assert_allclose(again.marginals, tt.loopy_bp(near).marginals, atol=1e-8)


def test_progress_is_shown_when_asked(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # as if it were not installed
    tt.loopy_bp(example(), progress=True)
    assert "loopy_bp" in capsys.readouterr().err
    tt.loopy_bp(example())
    assert capsys.readouterr().err == ""
    seen = []
    result = tt.loopy_bp(example(), progress=seen.append)
    assert [stage.done for stage in seen] == list(range(1, result.iterations + 1))
    assert [stage.numbers["change"] for stage in seen] == result.trace.tolist()


def test_progress_uses_tqdm_where_somebody_looks(monkeypatch):
    calls = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    class Bar:
        def __init__(self, **options):
            calls.append(options["desc"])

        def set_postfix_str(self, text, refresh):
            calls.append(text)

        def update(self, steps):
            calls.append(steps)

        def close(self):
            calls.append("closed")

    module = types.ModuleType("tqdm.auto")
    module.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    result = tt.loopy_bp(example(), progress=True)
    assert calls[0] == "loopy_bp"
    assert calls[-1] == "closed"
    assert calls.count(1) == result.iterations


def test_factors_of_one_size_share_one_call(monkeypatch):
    calls = []
    real = messages.count_sums

    def counted(nu, tables):
        calls.append(nu.shape)
        return real(nu, tables)

    monkeypatch.setattr(messages, "count_sums", counted)
    rng = np.random.default_rng(0)
    index = np.arange(30).reshape(5, 6)
    groups = [tt.Group(m, rng.normal(size=7)) for m in index] + [
        tt.Group(m, rng.normal(size=6)) for m in index.T
    ]
    tt.loopy_bp(tt.FactorGraph(rng.normal(size=30), groups), max_iter=1)
    assert calls == [(5, 6), (6, 5)]
    calls.clear()
    square = np.arange(36).reshape(6, 6)
    groups = [tt.Group(m, None) for m in square] + [tt.Group(m, None) for m in square.T]
    tt.loopy_bp(tt.FactorGraph(rng.normal(size=36), groups), schedule="parallel", max_iter=1)
    assert calls == [(12, 6)]


def test_many_sizes_are_padded_and_give_the_same():
    rng = np.random.default_rng(4)
    n = 40
    groups = [
        tt.Group(rng.permutation(n)[:size], tt.between(1, 3)) for size in (5, 6, 7, 8, 9, 10, 11, 12, 13, 30)
    ]
    graph = tt.FactorGraph(rng.normal(size=n) - 1.0, groups)
    result = tt.loopy_bp(graph, damping=0.3)
    assert result.converged
    widths = {b.width for p in tt.loopy.layout.layout(graph, 1).phases for b in p.batches}
    assert len(widths) < 10
    for g, group in enumerate(groups):
        model = tt.CountModel(result.cavity_log_odds(g), group.potential)
        np.testing.assert_allclose(model.posterior_logits, result.log_odds[group.members], atol=1e-7)


def test_results_are_frozen():
    result = tt.loopy_bp(example())
    with pytest.raises(AttributeError):
        result.converged = False
    for array in (result.log_odds, result.messages, result.trace):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
    copied = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(copied.marginals, result.marginals)
    assert copied.bethe_log_partition == result.bethe_log_partition


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"damping": 1.0}, "damping"),
        ({"schedule": "random"}, "schedule"),
        ({"tol": -1.0}, "tol"),
        ({"max_iter": -1}, "max_iter"),
        ({"semiring": "min"}, "semiring"),
        ({"progress": 3}, "progress"),
        ({"start": 3}, "start"),
    ],
)
def test_bad_options_are_refused(options, text):
    with pytest.raises(tt.ParameterError, match=text):
        tt.loopy_bp(example(), **options)


def test_other_misuse_is_refused():
    with pytest.raises(tt.ParameterError, match="FactorGraph"):
        tt.loopy_bp(tt.CountModel([0.0]))
    result = tt.loopy_bp(example())
    with pytest.raises(tt.ParameterError, match="0 to 13"):
        result.count_log_probs(14)
    with pytest.raises(tt.ParameterError, match="Start afresh"):
        tt.loopy_bp(example(shape=(6, 7)), start=result)
    with pytest.raises(tt.ParameterError, match="max-product"):
        tt.loopy_bp(example(), semiring="max").count_log_probs(0)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_a_variable_of_very_many_factors_costs_what_others_cost_and_is_exact(schedule):
    """Three hundred factors around one variable are a tree; hard ones among them decide it."""
    n = 300
    sets = [[0, 2 * i + 1, 2 * i + 2] for i in range(n)]
    rng = np.random.default_rng(0)
    graph = tt.FactorGraph(
        0.1 * rng.normal(size=2 * n + 1) - 0.2, [tt.Group(s, [0.0, 0.4, 0.1, 0.0]) for s in sets]
    )
    beliefs = tt.loopy_bp(graph, schedule=schedule, tol=1e-13)
    assert beliefs.converged
    assert len(beliefs._layout.phases) <= 16
    np.testing.assert_allclose(beliefs.log_odds, graph.exact().log_odds, rtol=1e-9, atol=1e-9)
    hard = tt.FactorGraph(graph.logits, [*graph.groups, tt.Group([0, 1, 2], tt.exactly(3))])
    decided = tt.loopy_bp(hard, schedule=schedule)
    np.testing.assert_array_equal(decided.marginals[:3], 1.0)
    np.testing.assert_allclose(decided.marginals, hard.exact().marginals, atol=1e-9)


def test_graphs_that_differ_in_log_odds_share_what_follows_from_their_factors():
    graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))])
    other = graph.replace(logits=[1.0, -math.inf, 0.0])
    np.testing.assert_allclose(tt.loopy_bp(graph).marginals, 0.5)
    np.testing.assert_array_equal(tt.loopy_bp(other).marginals, [1.0, 0.0, 1.0])
    assert other._structure is graph._structure
    assert pickle.loads(pickle.dumps(other)) == other
