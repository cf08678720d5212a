"""Models with edges against enumeration, ordinary belief propagation, the nested engine and each other."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import oracle
import tallytree as tt
from contract import assert_contract, assert_count_log_probs, assert_log_partition
from forest_cases import FAMILIES, SHAPES, forest_case
from forest_models import cases, fits, model_of

INF = math.inf


def truth_of(case):
    return oracle.enumerate_model(case.theta, case.sets, case.edges)


def check(case):
    model, truth = model_of(case), truth_of(case)
    assert_log_partition(model.log_partition, truth.log_partition)
    assert_contract(model.posterior_logits, truth.posterior_logits)
    np.testing.assert_allclose(model.marginals, truth.marginals, rtol=1e-10, atol=1e-12)
    for e, (i, j, _) in enumerate(case.edges):
        np.testing.assert_allclose(model.edge_marginals[e], truth.pair_table(i, j), rtol=1e-9, atol=1e-12)
    for g in range(len(case.sets)):
        assert_count_log_probs(model.count_log_probs(g), truth.count_log_probs(g))
    assert model.entropy == pytest.approx(truth.entropy, abs=1e-9)
    return model, truth


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_shape_and_family_agrees_with_enumeration(shape, family):
    if not fits(shape, family):
        pytest.skip("intervals are those of a path")
    for case in cases(8, abs(hash((SHAPES.index(shape), FAMILIES.index(family)))), [shape], [family]):
        check(case)


def test_zeros_in_tables_and_infinite_logits_agree_with_enumeration():
    for case in cases(120, 1, zeros=0.3, infinite=0.15):
        check(case)


@pytest.mark.parametrize("scale", [30.0, 1000.0])
def test_wild_parameters_agree_with_enumeration(scale):
    for case in cases(60, 2, scale=scale, zeros=0.1, infinite=0.1, sizes=(2, 9)):
        model, truth = model_of(case), truth_of(case)
        assert_log_partition(model.log_partition, truth.log_partition)
        assert_contract(model.posterior_logits, truth.posterior_logits)


def test_the_count_of_all_variables_is_known_where_no_group_asks_for_it():
    for case in cases(20, 3, families=["none", "subtrees"]):
        assert_count_log_probs(model_of(case).count_log_probs(), truth_of(case).count_log_probs())


def test_log_prob_is_that_of_enumeration():
    for case in cases(20, 4, zeros=0.2, infinite=0.1, sizes=(1, 7)):
        model, truth = model_of(case), truth_of(case)
        got = model.log_prob(truth.states)
        np.testing.assert_allclose(got, truth.log_probs, atol=1e-9)


def test_best_configurations_and_max_marginals_are_those_of_enumeration():
    for case in cases(60, 5, zeros=0.2, infinite=0.1, sizes=(1, 9)):
        model, truth = model_of(case), truth_of(case)
        best = truth.log_weights.max()
        assert float(model.max_log_weight) == pytest.approx(float(best), abs=1e-9)
        assert tuple(model.mode().tolist()) in truth.modes()
        np.testing.assert_allclose(model.max_marginals, truth.max_marginals, atol=1e-9)
        for g, (members, _) in enumerate(case.sets):
            counts = truth.states[:, members].sum(1)
            want = [truth.log_weights[counts == c].max() for c in range(len(members) + 1)]
            np.testing.assert_allclose(model.max_count_values(g), np.array(want, float), atol=1e-9)


def test_conditioning_is_that_of_enumeration():
    rng = np.random.default_rng(6)
    for case in cases(30, 6, sizes=(3, 9)):
        model, truth = model_of(case), truth_of(case)
        v = int(rng.integers(len(case.theta)))
        chosen = truth.states[:, v] == 1
        given = model.condition({v: 1})
        assert_log_partition(given.log_partition, float(truth.log_mass(chosen)))
        want = np.exp(
            [float(truth.log_mass(chosen & on) - truth.log_mass(chosen)) for on in truth.states.T == 1]
        )
        np.testing.assert_allclose(given.marginals, want, atol=1e-12)
        count = int(rng.integers(len(case.theta) + 1))
        chosen = truth.states.sum(1) == count
        assert_log_partition(model.condition_count(None, count).log_partition, float(truth.log_mass(chosen)))


def test_pairs_and_covariances_are_those_of_enumeration():
    for case in cases(12, 7, zeros=0.1, infinite=0.1, sizes=(2, 7)):
        model, truth = model_of(case), truth_of(case)
        np.testing.assert_allclose(model.pairwise(), truth.pairwise, atol=1e-11)
        np.testing.assert_allclose(model.covariance(), truth.covariance, atol=1e-11)
        total = truth.covariance.sum()
        np.testing.assert_allclose(model.count_covariance(), total, atol=1e-10)


def differences(model, values, change):
    return oracle.finite_difference(lambda x: model.replace(**change(x)).log_partition, values)


def test_expected_statistics_are_the_gradient_of_log_partition():
    for case in cases(12, 8, sizes=(2, 7)):
        model = model_of(case)
        found = model.expected_statistics
        want = differences(model, case.theta, lambda x: {"logits": x})
        np.testing.assert_allclose(found.logits, want, atol=1e-6)
        if case.edges:
            want = differences(model, case.tables, lambda x: {"edges": x})
            np.testing.assert_allclose(found.edges, want, atol=1e-6)
        for g, (_, table) in enumerate(case.sets):
            want = differences(model, table, lambda x, g=g: {"tables": {g: x}})
            np.testing.assert_allclose(found.tables[g], want, atol=1e-6)


def test_samples_follow_the_joint_distribution():
    values = []
    for i, case in enumerate(cases(40, 9, zeros=0.15, infinite=0.1, sizes=(3, 7))):
        model, truth = model_of(case), truth_of(case)
        drawn = model.sample(2000, rng=i)
        code = drawn @ (1 << np.arange(len(case.theta))[::-1])
        seen = np.bincount(code, minlength=len(truth.states))
        expected = 2000 * np.exp(truth.log_probs)
        assert not seen[expected == 0].any()
        big = expected >= 10
        pooled = [np.append(x[big], x[~big].sum()) for x in (seen, expected)]
        keep = pooled[1] > 1e-9
        if keep.sum() > 1:
            values.append(
                stats.chisquare(pooled[0][keep], pooled[1][keep] * 2000 / pooled[1][keep].sum()).pvalue
            )
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_the_same_seed_gives_the_same_samples_in_any_shape():
    case = forest_case("random", "all", 8, np.random.default_rng(10))
    model = model_of(case)
    assert np.array_equal(model.sample(6, rng=3), model.sample((2, 3), rng=3).reshape(6, 8))
    assert model.sample(rng=1).shape == (8,)
    assert model.sample(0, rng=1).shape == (0, 8)


def test_without_edges_it_is_the_nested_engine():
    for case in cases(25, 11, shapes=["empty"], families=["intervals", "all"], sizes=(2, 40)):
        groups = [tt.Group(members, table) for members, table in case.sets]
        with_edges = tt.CountModel(case.theta, groups, edges=tt.Forest([], np.zeros((0, 2, 2))))
        nested = tt.CountModel(case.theta, groups)
        assert_log_partition(with_edges.log_partition, nested.log_partition)
        assert_contract(with_edges.posterior_logits, nested.posterior_logits)


def belief_propagation(theta, pairs, tables):
    """Log Z and marginals of a pairwise forest by two sweeps, vertex by vertex."""
    n = len(theta)
    neighbours = [[] for _ in range(n)]
    for (i, j), t in zip(pairs, tables):
        neighbours[i].append((j, t))
        neighbours[j].append((i, t.T))
    own = np.stack([np.zeros(n), theta], -1)
    parent, order = [None] * n, []
    for root in range(n):
        if parent[root] is None:
            parent[root], stack = (-1, None), [root]
            while stack:
                v = stack.pop()
                order.append(v)
                for w, t in neighbours[v]:
                    if parent[w] is None:
                        parent[w] = (v, t)
                        stack.append(w)
    up, log_z, sent = own.copy(), 0.0, np.zeros((n, 2))
    for v in reversed(order):
        p, t = parent[v]
        if p < 0:
            log_z += logsumexp(up[v])
        else:
            sent[v] = np.logaddexp(t[:, 0] + up[v, 0], t[:, 1] + up[v, 1])
            up[p] += sent[v]
    belief = up.copy()
    for v in order:
        p, t = parent[v]
        if p >= 0:
            rest = belief[p] - sent[v]
            belief[v] = up[v] + np.logaddexp(t[0] + rest[0], t[1] + rest[1])
    return log_z, belief[:, 1] - belief[:, 0]


@pytest.mark.parametrize("shape", ["path", "star", "random", "forest"])
def test_without_groups_it_is_ordinary_belief_propagation(shape):
    case = forest_case(shape, "none", 3000, np.random.default_rng(12))
    model = model_of(case)
    log_z, odds = belief_propagation(case.theta, case.pairs, case.tables)
    assert_log_partition(model.log_partition, log_z)
    assert_contract(model.posterior_logits, odds)


def noisy_or_answer(theta, pairs, tables, rate, leak):
    """f(c) = 1 - (1 - leak) (1 - rate)^c: one ordinary belief propagation per exponential."""
    z1, odds1 = belief_propagation(theta, pairs, tables)
    z2, odds2 = belief_propagation(theta + math.log1p(-rate), pairs, tables)
    ratio = math.log1p(-leak) + z2 - z1
    log_z = z1 + math.log1p(-math.exp(ratio))
    on1, on2 = -np.logaddexp(0, -odds1), -np.logaddexp(0, -odds2)
    off1, off2 = -np.logaddexp(0, odds1), -np.logaddexp(0, odds2)
    odds = (on1 + np.log1p(-np.exp(ratio + on2 - on1))) - (off1 + np.log1p(-np.exp(ratio + off2 - off1)))
    return log_z, odds


@pytest.mark.parametrize("shape", ["path", "star", "caterpillar", "random"])
def test_a_noisy_or_over_a_large_forest_is_a_difference_of_two_belief_propagations(shape):
    n = 16384 if shape in ("path", "star") else 4096  # the hub of a star has log-odds in the hundreds
    rate, leak = 40.0 / n, 0.01
    case = forest_case(shape, "none", n, np.random.default_rng(13))
    theta = case.theta - 3.0
    log_z, odds = noisy_or_answer(theta, case.pairs, case.tables, rate, leak)
    model = tt.CountModel(theta, tt.noisy_or(rate=rate, leak=leak), edges=tt.Forest(case.pairs, case.tables))
    assert model.log_partition == pytest.approx(log_z, rel=1e-12)
    np.testing.assert_allclose(model.posterior_logits, odds, atol=1e-10, rtol=1e-12)
    np.testing.assert_allclose(model.marginals, 1 / (1 + np.exp(-odds)), rtol=1e-10, atol=1e-10)


def chain_in_logarithms(theta, tables, log_f):
    """Posterior log-odds of a path with a count, by the textbook recursion over (state, count) in logarithms."""
    n = len(theta)
    forward = np.full((n, 2, n + 1), -INF)
    forward[0, 0, 0], forward[0, 1, 1] = 0.0, theta[0]
    for d in range(1, n):
        carried = logsumexp(forward[d - 1][:, None, :] + tables[d - 1][:, :, None], axis=0)
        forward[d, 0] = carried[0]
        forward[d, 1, 1:] = carried[1, :-1] + theta[d]
    backward = np.full((n, 2, n + 1), -INF)  # weight of what follows, by the count so far
    backward[n - 1] = log_f
    for d in range(n - 2, -1, -1):
        after = np.full((2, n + 1), -INF)
        after[0], after[1, :-1] = backward[d + 1, 0], backward[d + 1, 1, 1:] + theta[d + 1]
        backward[d] = logsumexp(tables[d][:, :, None] + after[None], axis=1)
    belief = logsumexp(forward + backward, axis=2)
    return logsumexp(forward[-1] + backward[-1]), belief[:, 1] - belief[:, 0]


def hard_tables(n, rng):
    z = np.arange(n + 1)
    yield "far out", np.where(z == int(0.93 * n), 0.0, -INF)
    yield "two spikes", np.where((z == n // 10) | (z == 9 * n // 10), 0.0, -INF)
    yield "wild", 50.0 * rng.normal(size=n + 1)
    yield "gaussian", -0.5 * ((z - 0.7 * n) / 5.0) ** 2
    yield "none or all", np.where((z == 0) | (z == n), 0.0, -INF)
    yield "curved", 1.2 * z * (z - n) / n * -1.0


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_hard_counts_on_a_chain_are_right_or_climb_until_they_are(scale):
    rng = np.random.default_rng(14)
    n = 500
    pairs = [(i, i + 1) for i in range(n - 1)]
    for name, log_f in hard_tables(n, rng):
        theta, tables = scale * rng.normal(size=n) - 2.0, scale * rng.normal(size=(n - 1, 2, 2))
        with np.errstate(invalid="ignore"):
            log_z, odds = chain_in_logarithms(theta, tables, log_f)
        model = tt.CountModel(theta, log_f, edges=tt.Forest(pairs, tables))
        assert_log_partition(model.log_partition, log_z), name
        assert_contract(model.posterior_logits, odds)


def test_an_impossible_model_raises():
    never = np.array([[-INF, 0.0], [0.0, -INF]])
    edges = tt.Forest([(0, 1), (1, 2)], never)  # neighbours differ: one or two of three are on
    with pytest.raises(tt.InfeasibleError, match="edges"):
        tt.CountModel(np.zeros(3), tt.exactly(3), edges=edges).log_partition  # noqa: B018
    with pytest.raises(tt.InfeasibleError):
        tt.CountModel([INF, INF, 0.0], edges=edges).marginals  # noqa: B018
    with pytest.raises(tt.InfeasibleError):
        tt.CountModel(np.zeros(3), tt.exactly(3), edges=edges).mode()
    with pytest.raises(tt.InfeasibleError, match="batch index"):
        tt.CountModel(np.zeros((2, 3)), tt.exactly(3), edges=edges).sample(2)


@pytest.mark.filterwarnings("error")
def test_the_maxima_of_an_impossible_model_are_refused_without_a_warning():
    both_on = tt.Forest([(1, 0)], [[[-INF, -INF], [-INF, 0.0]]])
    for groups in (None, [0.0, 0.0, 0.0]):
        model = tt.CountModel([0.0, 0.0], groups, edges=both_on).replace(logits=[-INF, 0.0])
        with pytest.raises(tt.InfeasibleError):
            model.max_marginals  # noqa: B018
        with pytest.raises(tt.InfeasibleError):
            model.max_count_values()


def test_batches_are_the_models_one_by_one():
    rng = np.random.default_rng(15)
    pairs = [(0, 1), (1, 2), (1, 3)]
    theta, tables = rng.normal(size=(3, 1, 5)), rng.normal(size=(2, 3, 2, 2))
    f = rng.normal(size=(3, 2, 6))
    both = tt.CountModel(theta, f, edges=tt.Forest(pairs, tables))
    assert both.batch_shape == (3, 2)
    assert both.marginals.shape == (3, 2, 5)
    assert both.edge_marginals.shape == (3, 2, 3, 2, 2)
    assert both.sample(4, rng=0).shape == (4, 3, 2, 5)
    assert both.mode().shape == (3, 2, 5)
    for i, j in np.ndindex(3, 2):
        one = tt.CountModel(theta[i, 0], f[i, j], edges=tt.Forest(pairs, tables[j]))
        assert both.log_partition[i, j] == pytest.approx(one.log_partition, abs=1e-12)
        np.testing.assert_allclose(both.marginals[i, j], one.marginals, atol=1e-13)
        np.testing.assert_allclose(both.edge_marginals[i, j], one.edge_marginals, atol=1e-13)
        np.testing.assert_array_equal(both.mode()[i, j], one.mode())


def test_a_batch_of_edge_tables_alone_makes_a_batch():
    model = tt.CountModel(np.zeros(3), tt.exactly(1), edges=tt.Forest([(0, 1)], coupling=[[0.0], [1.0]]))
    assert model.batch_shape == (2,)
    assert model.marginals.shape == (2, 3)
    again = model.replace(tables=[tt.exactly(2)])
    assert again.batch_shape == (2,)


def test_it_is_a_frozen_comparable_picklable_count_model():
    case = forest_case("random", "subtrees", 7, np.random.default_rng(16))
    model, twin = model_of(case), model_of(case)
    assert isinstance(model, tt.CountModel)
    assert model == twin
    assert hash(model) == hash(twin)
    assert pickle.loads(pickle.dumps(model)) == model
    assert pickle.loads(pickle.dumps(model)).log_partition == model.log_partition
    assert copy.deepcopy(model) is model
    assert model != tt.CountModel(case.theta)
    assert model != model.replace(edges=np.zeros(len(case.edges)))
    assert not model.marginals.flags.writeable
    assert "n_edges=6" in repr(model)


def test_float32_comes_back_as_float32():
    model = tt.CountModel(np.zeros(3, np.float32), tt.exactly(1), edges=tt.Forest([(0, 1)], 1.0))
    assert model.marginals.dtype == model.edge_marginals.dtype == np.float32


def test_divergences_between_models_on_the_same_edges_are_those_of_enumeration():
    for case in cases(10, 17, families=["all"], sizes=(2, 7)):
        p = model_of(case)
        q = p.replace(logits=case.theta + 0.5, edges=case.tables * 0.5)
        other = oracle.enumerate_model(
            case.theta + 0.5, case.sets, [(i, j, 0.5 * t) for i, j, t in case.edges]
        )
        truth = truth_of(case)
        want = (np.exp(truth.log_probs) * (truth.log_probs - other.log_probs)).sum()
        assert p.kl_divergence(q) == pytest.approx(want, abs=1e-10)
