"""Exact answers of overlapping counts, along a frontier of counts, against enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallytree as tt
from oracle_graphs import build, log_weights, random_case, solve
from tallytree import config
from tallytree.loopy.components import Frontier
from tallytree.loopy.exact import ExactResult
from tallytree.loopy.reduction import reduced


@pytest.fixture(params=["native", "array"])
def engine(request):
    if request.param == "native" and config.native() is None:
        pytest.skip("the compiled engine is not here")
    with config.using(engine=request.param):
        yield request.param


def cases(seed, count, **kind):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        case = random_case(rng, **kind)
        yield case, build(case)


@pytest.mark.parametrize("seed", range(4))
def test_log_z_marginals_and_mode_are_those_of_enumeration(engine, seed):
    possible = 0
    for case, graph in cases(seed, 40):
        truth = solve(case)
        if truth is None:
            with pytest.raises(tt.InfeasibleError):
                _ = ExactResult(graph).log_partition
            continue
        possible += 1
        log_z, marginals, top = truth
        exact = ExactResult(graph)
        assert exact.log_partition == pytest.approx(log_z, rel=1e-12, abs=1e-11)
        np.testing.assert_allclose(exact.marginals, marginals, rtol=1e-10, atol=1e-12)
        assert graph.log_weight(exact.mode()) == pytest.approx(top, rel=1e-12, abs=1e-11)
    assert possible > 10


def test_every_component_agrees_with_its_count_model_where_it_is_nested(engine):
    rng = np.random.default_rng(1)
    graph = tt.FactorGraph(
        rng.normal(size=9),
        [
            tt.Group(range(9), rng.normal(size=10)),
            tt.Group(range(4), tt.at_least(1)),
            tt.Group([5, 6], tt.parity()),
        ],
    )
    (component,) = reduced(graph).components
    exact, frontier = ExactResult(graph), Frontier(component)
    assert frontier.log_partition == pytest.approx(exact.log_partition - reduced(graph).constant, rel=1e-12)
    np.testing.assert_allclose(frontier.log_odds, exact.log_odds, rtol=1e-11, atol=1e-12)


def test_weights_that_no_number_holds_are_summed_as_logarithms(engine):
    """Log-odds of -900 that a constraint forces on: plain numbers lose them, logarithms do not."""
    logits = np.array([-900.0, -901.0, -900.5, 0.3, -0.2, -902.0])
    groups = [
        tt.Group([0, 1, 3], tt.exactly(2)),
        tt.Group([1, 2, 4], tt.exactly(2)),
        tt.Group([0, 2, 5], tt.exactly(2)),
    ]
    graph = tt.FactorGraph(logits, groups)
    y = np.array([[(s >> i) & 1 for i in range(6)] for s in range(64)])
    w = graph.log_weight(y)
    log_z = np.logaddexp.reduce(w)
    odds = [np.logaddexp.reduce(w[y[:, d] == 1]) - np.logaddexp.reduce(w[y[:, d] == 0]) for d in range(6)]
    exact = ExactResult(graph)
    assert exact.log_partition == pytest.approx(log_z, rel=1e-13)
    np.testing.assert_allclose(exact.log_odds, odds, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("seed", range(2))
def test_counts_of_groups_and_of_any_set_are_those_of_enumeration(engine, seed):
    for case, graph in cases(100 + seed, 25):
        if solve(case) is None:
            continue
        y, w = log_weights(case)
        p = np.exp(w - w.max())
        p /= p.sum()
        exact = ExactResult(graph)
        sets = [(k, graph.members(k)) for k in range(graph.n_groups)]
        chosen = np.random.default_rng(seed).permutation(case.n)[: max(1, case.n // 2)]
        for asked, members in [*sets, (chosen, chosen)]:
            law = np.bincount(y[:, members].sum(1), p, minlength=len(members) + 1)
            np.testing.assert_allclose(np.exp(exact.count_log_probs(asked)), law, rtol=1e-9, atol=1e-12)


def test_pairs_are_those_of_enumeration(engine):
    for case, graph in cases(7, 15):
        if solve(case) is None:
            continue
        y, w = log_weights(case)
        p = np.exp(w - w.max())
        both = (y * (p / p.sum())[:, None]).T @ y
        exact = ExactResult(graph)
        for i in range(case.n):
            np.testing.assert_allclose(exact.pairwise(i), both[i], rtol=1e-9, atol=1e-12)


def test_the_best_configurations_are_those_of_enumeration(engine):
    for case, graph in cases(11, 25):
        if solve(case) is None:
            continue
        _, w = log_weights(case)
        expected = np.sort(w[w > -math.inf])[::-1][:7]
        best = ExactResult(graph).mode_k(7)
        np.testing.assert_allclose(best.log_weights, expected, rtol=1e-11, atol=1e-10)
        np.testing.assert_allclose(
            graph.log_weight(best.configurations), best.log_weights, rtol=1e-11, atol=1e-10
        )
        assert len(np.unique(best.configurations, axis=0)) == len(best.configurations)


def test_draws_follow_the_law(engine):
    """Chi-square of 2,000 draws from every graph; the sum of all of them is within five standard deviations."""
    excess, variance = 0.0, 0.0
    for number, (case, graph) in enumerate(cases(13, 12)):
        if solve(case) is None:
            continue
        _, w = log_weights(case)
        p = np.exp(w - w.max())
        p /= p.sum()
        drawn = ExactResult(graph).sample(2000, rng=number)
        code = drawn @ (1 << np.arange(case.n)[::-1])
        seen = np.bincount(code.astype(int), minlength=len(p))
        assert not seen[p == 0.0].any()
        large = 2000 * p >= 5
        observed = np.append(seen[large], seen[~large].sum())
        expected = np.append(2000 * p[large], 2000 * p[~large].sum())
        keep = expected > 0
        excess += ((observed - expected)[keep] ** 2 / expected[keep]).sum() - (keep.sum() - 1)
        variance += 2 * (keep.sum() - 1) + 1
    assert abs(excess) < 5 * math.sqrt(variance)


def test_members_of_one_group_alone_cost_nothing(engine):
    """Two groups of 3,000 that share three variables: only what the three can change is in the frontier."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=5997)
    groups = [tt.Group(range(3000), tt.exactly(900)), tt.Group(range(2997, 5997), tt.exactly(1200))]
    exact = ExactResult(tt.FactorGraph(logits, groups))
    assert exact.width <= 16
    weights = []
    for s in range(8):
        bits = [(s >> i) & 1 for i in range(3)]
        left = tt.CountModel(logits[:2997], tt.exactly(900 - sum(bits))).log_partition
        right = tt.CountModel(logits[3000:], tt.exactly(1200 - sum(bits))).log_partition
        weights.append(left + right + np.dot(bits, logits[2997:3000]))
    assert exact.log_partition == pytest.approx(np.logaddexp.reduce(weights), rel=1e-12)
    assert exact.marginals.sum() == pytest.approx(2100 - exact.marginals[2997:3000].sum(), rel=1e-9)


def test_members_of_a_potential_that_needs_no_count_are_answered_too(engine):
    """A table that is linear in the count has one state, whatever its members are."""
    groups = [
        tt.Group([0, 1, 2], tt.geometric(0.2)),
        tt.Group([2, 3], tt.at_least(1)),
        tt.Group([3, 4, 2], tt.parity()),
    ]
    graph = tt.FactorGraph([0.3, -0.4, 0.1, 0.8, -0.2], groups)
    y = (np.arange(32)[:, None] >> np.arange(5)) & 1
    weight = np.exp(graph.log_weight(y))
    exact = ExactResult(graph)
    np.testing.assert_allclose(exact.marginals, weight @ y / weight.sum(), rtol=1e-12)
    drawn = exact.sample(2000, rng=0)
    assert drawn.max() == 1
    assert np.abs(drawn.mean(0) - exact.marginals).max() < 0.06
    assert graph.log_weight(exact.mode()) == pytest.approx(np.log(weight.max()))
    best = np.sort(np.log(weight[weight > 0.0]))[::-1]
    np.testing.assert_allclose(exact.mode_k(4).log_weights, best[:4], rtol=1e-12, atol=1e-12)


def test_a_price_beyond_the_limit_is_named_before_any_work():
    rng = np.random.default_rng(0)
    groups = [tt.Group(rng.choice(200, 40, replace=False), tt.exactly(20)) for _ in range(40)]
    with pytest.raises(tt.StructureError, match=r"frontier of .* states"):
        ExactResult(tt.FactorGraph(np.zeros(200), groups))


def pools(n, tests, size, noise, seed):
    """People in `tests` rounds of pools of `size`; a pool is positive if somebody in it is, but for the noise."""
    rng = np.random.default_rng(seed)
    sets = [np.sort(part) for _ in range(tests) for part in np.split(rng.permutation(n), n // size)]
    ill = rng.random(n) < 0.03
    groups = []
    for own in sets:
        positive, some = ill[own].any(), np.arange(size + 1) > 0
        with np.errstate(divide="ignore"):
            groups.append(tt.Group(own, np.log(np.where(some == positive, 1.0 - noise, noise))))
    return tt.FactorGraph(np.full(n, np.log(0.03 / 0.97)) + 0.5 * rng.normal(size=n), groups)


@pytest.mark.parametrize(
    ("n", "tests", "size", "noise", "width"),
    [(96, 2, 8, 0.04, 2**12), (144, 2, 12, 0.04, 2**14), (200, 3, 10, 0.0, 2**10)],
)
def test_pooled_tests_are_exact(n, tests, size, noise, width):
    graph = pools(n, tests, size, noise, 0)
    exact = graph.exact()
    assert exact.width == graph.width <= width
    drawn = exact.sample(4000, rng=0)
    p = exact.marginals
    assert np.abs(drawn.mean(0) - p).max() < 6 * np.sqrt((p * (1 - p)).max() / 4000) + 1e-9
    law = np.exp(exact.count_log_probs(0))
    assert law.sum() == pytest.approx(1.0)
    assert law @ np.arange(len(law)) == pytest.approx(p[graph.members(0)].sum(), abs=1e-10)


def test_infer_says_which_method_it_used():
    graph = pools(96, 2, 8, 0.04, 0)
    assert graph.infer().method == "exact"
    with pytest.warns(UserWarning, match="cycles"):
        rough = graph.infer(limit=10)
    assert rough.method == "belief propagation"
    assert not rough.reliable
    assert "UNRELIABLE" in repr(rough)
    assert np.abs(rough.marginals - graph.exact().marginals).max() > 0.05


@pytest.mark.parametrize("seed", range(3))
def test_bounds_of_log_z_and_intervals_of_marginals_contain_the_truth(seed, monkeypatch):
    """With exact sums of no component, of small blocks, and of all."""
    finite = informative = 0
    for number, (case, graph) in enumerate(cases(200 + seed, 24)):
        monkeypatch.setattr("tallytree.loopy.reliability.SUMMED", (0.5, 4, 2**14)[number % 3])
        truth = solve(case)
        if truth is None:
            continue
        log_z, marginals, _ = truth
        beliefs = tt.loopy_bp(graph)
        lower, upper = beliefs.log_partition_bounds()
        rounding = 1e-9 * (1.0 + abs(log_z))
        assert lower - rounding <= log_z <= upper + rounding
        low, high = beliefs.marginal_bounds()
        assert (low - 1e-9 <= marginals).all()
        assert (marginals <= high + 1e-9).all()
        finite += lower > -math.inf
        informative += (high - low).max() < 1.0
    assert finite > 10
    assert informative > 8


def test_intervals_are_narrow_where_groups_hardly_overlap_and_decided_by_constraints():
    groups = [tt.Group([0, 1, 2], tt.gaussian(1, 2)), tt.Group([2, 3, 4], tt.gaussian(1, 2))]
    graph = tt.FactorGraph([0.3, -0.2, 0.1, 0.5, -1.0], groups)
    low, high = tt.loopy_bp(graph).marginal_bounds([1, 3])
    assert ((low <= graph.exact().marginals[[1, 3]]) & (graph.exact().marginals[[1, 3]] <= high)).all()
    assert (high - low).max() < 0.1
    groups = [tt.Group([0, 1], tt.exactly(2)), tt.Group([1, 2], tt.exactly(1))]
    low, high = tt.loopy_bp(tt.FactorGraph([-3.0, -3.0, -np.inf], groups)).marginal_bounds()
    np.testing.assert_array_equal(low, [1.0, 1.0, 0.0])
    np.testing.assert_array_equal(high, [1.0, 1.0, 0.0])
    with pytest.raises(tt.InfeasibleError):
        tt.loopy_bp(
            tt.FactorGraph(np.zeros(2), [groups[0], tt.Group([0, 1], tt.exactly(1))])
        ).marginal_bounds()


def test_notebooks_show_the_caution_of_unreliable_beliefs():
    beliefs = tt.loopy_bp(pools(96, 2, 8, 0.04, 0))
    assert "not to be relied on" in beliefs.caution
    assert "not to be relied on" in beliefs._repr_html_()
    assert "relied on" not in tt.loopy_bp(beliefs.graph, semiring="max")._repr_html_()


def test_displays_do_not_check_the_beliefs_of_large_graphs(monkeypatch):
    rng = np.random.default_rng(0)
    sets = [own for _ in range(3) for own in np.split(rng.permutation(6000), 600)]
    beliefs = tt.loopy_bp(
        tt.FactorGraph(rng.normal(size=6000) - 2.0, [tt.Group(s, tt.at_least(1)) for s in sets])
    )

    def refuse(*_):
        raise AssertionError("long work for a display")

    monkeypatch.setattr("tallytree.loopy.reliability.deviation", refuse)
    assert "cycles not checked" in repr(beliefs)
    assert "not checked" in beliefs._repr_html_()
    chain = tt.FactorGraph(np.zeros(20_001), [tt.Group([i, i + 1], tt.exactly(1)) for i in range(20_000)])
    assert "cycles" not in repr(tt.loopy_bp(chain, max_iter=3, tol=np.inf))


@pytest.mark.parametrize("narrow", [2**11, 8])
def test_beliefs_that_run_away_where_no_constraint_decides_are_flagged(monkeypatch, narrow):
    """Crossed exact quotas, on which messages grow without end and say 0 or 1; by clamping alone, too."""
    monkeypatch.setattr("tallytree.loopy.reliability.NARROW", narrow)
    rng, bad = np.random.default_rng(1), 0
    for _ in range(18):
        shape = rng.integers(4, 8, 2)
        index, on = np.arange(shape.prod()).reshape(shape), rng.random(shape) < rng.choice([0.2, 0.4])
        lines = [*zip(index, on.sum(1)), *zip(index.T, on.sum(0))]
        logits = rng.normal(size=index.size) * rng.choice([0.5, 1.0, 2.0])
        graph = tt.FactorGraph(logits, [tt.Group(own, tt.exactly(int(k))) for own, k in lines])
        beliefs = tt.loopy_bp(graph)
        if np.abs(beliefs.marginals - graph.exact().marginals).max() > 0.1:
            bad += 1
            assert not beliefs.reliable
    assert bad > 3


def test_draws_by_chains_agree_with_the_exact_marginals():
    graph = pools(48, 2, 8, 0.04, 1)
    samples = graph.sample(800, rng=0, limit=4, chains=4, warm_up=5)
    assert samples.method == "gibbs"
    assert samples.rhat.max() < 1.1
    error = np.abs(samples.draws.mean(0) - graph.exact().marginals)
    assert (error < 5 * np.sqrt(0.25 / np.maximum(samples.effective_size, 1)) + 0.01).all()
    assert graph.sample(3, rng=0).method == "exact"


@pytest.mark.parametrize(("width", "listed"), [(1, 0), (2**11, 0), (1, 4), (1, 10)])
def test_chains_of_small_blocks_have_the_law_of_enumeration(engine, width, listed, monkeypatch):
    """Soft random factors of every kind, a model and edges among them; blocks of one variable and of all."""
    monkeypatch.setattr("tallytree.loopy.blocks._WIDTH", width)
    monkeypatch.setattr("tallytree.loopy.blocks._ENUMERATED", listed)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        groups = [tt.Group(rng.permutation(7)[:k], rng.normal(size=k + 1)) for k in (2, 3, 4, 5)]
        nested = tt.CountModel(
            rng.normal(size=3), [tt.Group([0, 1], rng.normal(size=3)), tt.Group(None, tt.parity())]
        )
        groups.append(
            tt.Group(
                [6, 2, 4], nested if seed % 2 else nested.replace(tables=[rng.normal(size=3), np.zeros(4)])
            )
        )
        edges = ([[0, 5], [3, 1], [4, 0]], rng.normal(size=(3, 2, 2)))
        graph = tt.FactorGraph(rng.normal(size=7), groups, edges=edges)
        if width == 1 and listed < 10 and seed % 2:
            continue  # single variables cannot change a parity
        samples = graph.sample(800, rng=seed, limit=0, chains=8, warm_up=10)
        y = (np.arange(128)[:, None] >> np.arange(7)) & 1
        weight = np.exp(graph.log_weight(y))
        p = weight @ y / weight.sum()
        error = np.sqrt(p * (1 - p) / np.minimum(samples.effective_size, 800))
        assert samples.method == "gibbs"
        assert (np.abs(samples.marginals - p) < 5.0 * error).all()


def test_chains_move_between_crossed_quotas_and_say_how_well():
    rng = np.random.default_rng(3)
    index, on = np.arange(42).reshape(6, 7), rng.random((6, 7)) < 0.4
    lines = [*zip(index, on.sum(1)), *zip(index.T, on.sum(0))]
    graph = tt.FactorGraph(rng.normal(size=42), [tt.Group(own, tt.exactly(int(k))) for own, k in lines])
    samples = graph.sample(400, rng=0, limit=0, warm_up=10)
    assert samples.rhat.max() < 1.1
    assert samples.effective_size.min() > 100
    assert np.abs(samples.marginals - graph.exact().marginals).max() < 0.1
    assert all((samples.draws[:, own].sum(1) == k).all() for own, k in lines)
    for few in (1, 5):
        short = graph.sample(few, rng=0, limit=0, warm_up=5)
        assert short.draws.shape == (few, 42)
        assert np.isfinite(short.rhat).all()
        assert (short.effective_size <= 2.0 * few).all()
        assert "do not agree" not in repr(short)
    assert graph.sample(0, rng=0, limit=0).draws.shape == (0, 42)


def test_variables_that_hold_many_groups_together_are_taken_at_both_values(engine):
    """Thirty groups of four that two variables share with each other: given those, every group is by itself."""
    rng = np.random.default_rng(3)
    groups = [tt.Group([0, 1, 2 + 2 * g, 3 + 2 * g], rng.normal(size=5)) for g in range(30)]
    graph = tt.FactorGraph(rng.normal(size=62), groups)
    exact = ExactResult(graph)
    assert len(exact._branches) == 4
    log_z = []
    for hub in ((0, 0), (0, 1), (1, 0), (1, 1)):
        total = float(np.dot(hub, graph.logits[:2]))
        for g, group in enumerate(groups):
            a, b = graph.logits[2 + 2 * g], graph.logits[3 + 2 * g]
            table = np.asarray(group.potential)[sum(hub) :]
            total += np.logaddexp.reduce([table[0], a + table[1], b + table[1], a + b + table[2]])
        log_z.append(total)
    assert exact.log_partition == pytest.approx(np.logaddexp.reduce(log_z), rel=1e-12)
    p = np.exp(np.array(log_z) - exact.log_partition)
    np.testing.assert_allclose(exact.marginals[:2], [p[2] + p[3], p[1] + p[3]], rtol=1e-11)
    assert exact.sample(0).shape == (0, 62)
    drawn = exact.sample(4000, rng=0)
    assert np.abs(drawn.mean(0) - exact.marginals).max() < 6 * np.sqrt(0.25 / 4000)
    assert graph.log_weight(exact.mode()) == pytest.approx(exact.mode_k(1).log_weights[0], rel=1e-12)
    assert exact.count_log_probs([0, 1, 5]).shape == (4,)


def test_engines_and_numbers_of_threads_agree_where_steps_are_done_together():
    rng = np.random.default_rng(5)
    sets = [own for _ in range(2) for own in np.split(rng.permutation(54), 9)]
    graph = tt.FactorGraph(rng.normal(size=54), [tt.Group(own, rng.normal(size=7) + 500.0) for own in sets])
    answers = {}
    for engine, threads in (("native", 1), ("native", 2), ("array", 1)):
        if engine == "native" and config.native() is None:
            pytest.skip("the compiled engine is not here")
        with config.using(engine=engine, threads=threads):
            exact = ExactResult(graph)
            answers[engine, threads] = (
                exact.log_odds,
                exact.log_partition,
                exact.mode(),
                exact.mode_k(3).log_weights,
            )
    assert graph.width > 10_000
    for one, two, other in zip(*answers.values()):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_states_that_are_rare_on_both_sides_keep_their_odds(engine):
    """Sums up to a state and from it on may be 1e-190 each: their product is below all numbers."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    for strength in (100.0, 150.0, 190.0):
        tables = np.full((len(edges), 2, 2), -strength) * (1.0 - np.eye(2))
        logits = np.array([-strength, -strength, -strength, -strength])
        graph = tt.FactorGraph(logits, edges=(edges, tables))
        y = (np.arange(16)[:, None] >> np.arange(4)) & 1
        weights = np.array([graph.log_weight(row) for row in y])
        truth = [
            np.logaddexp.reduce(weights[y[:, v] == 1]) - np.logaddexp.reduce(weights[y[:, v] == 0])
            for v in range(4)
        ]
        np.testing.assert_allclose(ExactResult(graph).log_odds, truth, rtol=1e-12)


def test_the_best_configurations_are_refused_where_memory_would_not_do(monkeypatch):
    graph = pools(48, 2, 8, 0.04, 1)
    assert len(graph.exact().mode_k(3).log_weights) == 3
    monkeypatch.setattr("tallytree.loopy.components._RANKED", 100)
    with pytest.raises(tt.StructureError, match=r"GB of memory\. Ask for `mode`"):
        graph.exact().mode_k(3)


def test_a_wide_graph_of_which_both_values_of_a_hub_are_impossible_says_so():
    """Every pair of twenty variables has a table: too many states, so that a hub is given both values."""
    rng, pairs = np.random.default_rng(0), [(i, j) for i in range(20) for j in range(i + 1, 20)]
    tables = dict(zip(pairs, rng.normal(size=(len(pairs), 2, 2))))
    for i, j, off in (
        (0, 1, (0, 0)),
        (1, 2, (1, 0)),
        (0, 2, (0, 1)),
        (0, 3, (1, 0)),
        (3, 4, (1, 0)),
        (0, 4, (1, 1)),
    ):
        tables[i, j][off] = -np.inf
    graph = tt.FactorGraph(np.zeros(20), edges=(pairs, np.array(list(tables.values()))))
    with pytest.raises(tt.InfeasibleError, match="No configuration"):
        _ = graph.width
