"""Best configurations and max-marginals against enumeration, a plain dynamic programme, and themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallytree as tt
from case import Case
from oracle import enumerate_model
from strategies import batched_nested_models, impossible_models, nested_models, random_case

INF = math.inf


def model_of(case):
    return tt.CountModel(case.theta, [tt.Group(list(members), table) for members, table in case.sets])


def scale_of(case):
    """Sum of what enters a log weight, to which rounding is relative."""
    parts = [case.theta, *(table for _, table in case.sets)]
    finite = [np.abs(p[np.isfinite(p)]) for p in parts]
    return 1 + finite[0].sum() + sum(p.max(initial=0.0) for p in finite[1:])


def assert_same(got, want, scale):
    assert np.shape(got) == np.shape(want)
    got, want = np.array(got, float, ndmin=1), np.array(want, float, ndmin=1)
    assert not np.isnan(got).any()
    same = got == want
    finite = np.isfinite(got) & np.isfinite(want)
    same[finite] = np.abs(got[finite] - want[finite]) <= 1e-12 * scale
    assert same.all(), f"got {got[~same][:5]}, want {want[~same][:5]}"


def weight(listed, y):
    return float(listed.log_weights[int("".join(str(int(v)) for v in y), 2)])


def log_odds(case):
    """Logits with the tables of single variables, by the convention for infinite ones."""
    log_on, log_off = np.where(case.theta == INF, 0.0, case.theta), np.where(case.theta == INF, -INF, 0.0)
    for members, table in case.sets:
        if len(members) == 1:
            log_off[members[0]] += table[0]
            log_on[members[0]] += table[1]
    return np.where(
        log_off == -INF, INF, np.where(log_on == -INF, -INF, log_on - np.where(log_off == -INF, 0, log_off))
    )


# -------------------------------------------------------------------------------------------- enumeration


@settings(max_examples=300, deadline=None)
@given(nested_models(max_variables=10))
def test_mode_is_possible_and_nothing_is_better(case):
    model, listed = model_of(case), enumerate_model(case.theta, case.sets)
    y = model.mode()
    assert y.dtype == np.uint8
    best = float(listed.log_weights.max())
    assert_same(weight(listed, y), best, scale_of(case))
    assert_same(model.max_log_weight, best, scale_of(case))


@settings(max_examples=300, deadline=None)
@given(nested_models(max_variables=9, integers=True, theta_scales=(1.0, 0.4), table_scales=(0.5, 1.0, 5.0)))
def test_ties_go_to_few_variables_then_large_logits_then_low_indices(case):
    listed, y = enumerate_model(case.theta, case.sets), model_of(case).mode()
    modes = np.array(sorted(listed.modes(0.0)))
    assert y.tolist() in modes.tolist()
    assert y.sum() == modes.sum(1).min()
    groups = [frozenset(s) for s, _ in case.sets if len(s) > 1]
    for group in groups:
        if not any(group < other for other in groups):
            assert y[list(group)].sum() == modes[:, list(group)].sum(1).min()
    nu = log_odds(case)
    signature = [frozenset(g for g in groups if d in g) for d in range(case.size)]
    for i in range(case.size):
        for j in range(i + 1, case.size):
            if signature[i] == signature[j]:
                assert y[i] >= y[j] if nu[i] >= nu[j] else y[j] >= y[i]


@settings(max_examples=300, deadline=None)
@given(nested_models(max_variables=9))
def test_max_marginals_agree_with_enumeration(case):
    listed = enumerate_model(case.theta, case.sets)
    assert_same(model_of(case).max_marginals, listed.max_marginals, scale_of(case))


@settings(max_examples=300, deadline=None)
@given(nested_models(max_variables=9))
def test_best_weight_of_every_count_agrees_with_enumeration(case):
    model, listed = model_of(case), enumerate_model(case.theta, case.sets)
    members = [list(range(case.size)), *(list(s) for s, _ in case.sets)]
    for group, inside in zip([None, *range(len(case.sets))], members):
        count = listed.states[:, inside].sum(1)
        want = [float(listed.log_weights[count == c].max()) for c in range(len(inside) + 1)]
        assert_same(model.max_count_values(group), want, scale_of(case))


@settings(max_examples=100, deadline=None)
@given(batched_nested_models(max_variables=7))
def test_a_batch_gives_the_answers_of_its_models(batched):
    groups = [tt.Group(list(s), table) for s, table in batched.sets]
    model = tt.CountModel(batched.theta, groups)
    assert model.mode().shape == batched.theta.shape
    for index, case in batched.items():
        alone = model_of(case)
        np.testing.assert_array_equal(model.mode()[index], alone.mode())
        assert_same(np.asarray(model.max_log_weight)[index], alone.max_log_weight, scale_of(case))
        assert_same(model.max_marginals[index], alone.max_marginals, scale_of(case))
        for g in (None, *range(len(groups))):
            assert_same(model.max_count_values(g)[index], alone.max_count_values(g), scale_of(case))


@settings(max_examples=60, deadline=None)
@given(impossible_models(max_variables=8))
def test_impossible_models_are_refused(case):
    model = model_of(case)
    for ask in (
        model.mode,
        lambda: model.max_log_weight,
        lambda: model.max_marginals,
        model.max_count_values,
        lambda: model.mode_k(3),
    ):
        with pytest.raises(tt.InfeasibleError, match="probability zero"):
            ask()


def test_impossible_models_name_the_batch_index():
    model = tt.CountModel([[0.0, 0.0], [INF, INF]], tt.at_most(1))
    with pytest.raises(tt.InfeasibleError, match=r"batch index \(1,\)"):
        model.mode()


# -------------------------------------------------------------------------- larger models, plain dynamic programme


def best_by_count(theta, sets):
    """Best weight of every total count: for each set from small to large, merge what it holds, by definition."""
    leaves = [np.array([-INF, 0.0]) if t == INF else np.array([0.0, t]) for t in theta]
    tops = dict(enumerate(leaves))
    everything = (tuple(range(len(theta))), np.zeros(len(theta) + 1))
    for members, table in sorted([*sets, everything], key=lambda s: len(s[0])):
        message = np.zeros(1)
        for part in {id(tops[d]): tops[d] for d in members}.values():
            out = np.full(len(message) + len(part) - 1, -INF)
            for i, value in enumerate(part):
                out[i : i + len(message)] = np.maximum(out[i : i + len(message)], value + message)
            message = out
        tops.update(dict.fromkeys(members, message + table))
    return tops[0]


def concave_tables(case, rng):
    """The same sets with tables concave in the count, some with a spike at one count or a forbidden end."""
    sets = []
    for members, _ in case.sets:
        n = len(members)
        c = np.arange(n + 1)
        table = -rng.uniform(0.0, 4.0) / n * (c - rng.uniform(0, n)) ** 2
        kind = rng.integers(4)
        if kind == 1:
            table[rng.integers(n + 1)] += rng.uniform(0, 10)
        if kind == 2:
            table[c > n - n // 4] = -INF
        sets.append((members, table))
    return Case(case.theta, tuple(sets), case.name + ", concave")


@pytest.mark.parametrize("shape", ["flat", "balanced", "random", "forest", "caterpillar", "none"])
@pytest.mark.parametrize("concave", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_some_hundred_variables_agree_with_a_plain_dynamic_programme(shape, concave, seed):
    rng = np.random.default_rng(100 + seed)
    case = random_case(
        rng, 120 if shape == "caterpillar" else 400, shape=shape, table_scale=5.0, theta_scale=1.0
    )
    if concave:
        case = concave_tables(case, rng)
    want = best_by_count(case.theta, case.sets)
    model, scale = model_of(case), scale_of(case)
    if want.max() == -INF:
        with pytest.raises(tt.InfeasibleError):
            model.mode()
        return
    assert_same(model.max_count_values(), want, scale)
    assert_same(model.max_log_weight, want.max(), scale)
    for d in rng.choice(case.size, 3, replace=False):
        for v in (0, 1):
            fixed = (*case.sets, ((int(d),), np.where(np.arange(2) == v, 0.0, -INF)))
            assert_same(model.max_marginals[d, v], best_by_count(case.theta, fixed).max(), scale)
    assert_consistent(model, scale)


def assert_consistent(model, scale):
    """What the answers say about one another."""
    y, best = model.mode(), np.asarray(model.max_log_weight)
    marginals = np.asarray(model.max_marginals)
    picked = np.take_along_axis(marginals, y[..., None].astype(int), -1)[..., 0]
    assert_same(picked, np.broadcast_to(best[..., None], picked.shape), scale)
    assert_same(marginals.max(-1), np.broadcast_to(best[..., None], picked.shape), scale)
    for g in (None, *range(min(model.tree.family.n_groups, 5))):
        assert_same(model.max_count_values(g).max(-1), best, scale)
        members = slice(None) if g is None else model.tree.groups[g]
        at = y[..., members].sum(-1, dtype=int)[..., None]
        assert_same(np.take_along_axis(np.asarray(model.max_count_values(g)), at, -1)[..., 0], best, scale)
    assert_same(direct_log_weight(model, y), best, scale)


def direct_log_weight(model, y):
    logits = np.asarray(model.logits, float)
    total = np.where(y == 1, np.where(logits == INF, 0.0, logits), 0.0).sum(-1)
    for g, table in enumerate(model.tables):
        total = total + table[..., y[..., model.tree.groups[g]].sum(-1, dtype=int)]
    return total


@pytest.mark.parametrize("kind", ["arbitrary", "concave", "spiked"])
def test_large_models_are_consistent(kind):
    rng = np.random.default_rng(3)
    size = 3000
    tree = tt.CountTree.balanced(size, min_size=20)

    def table(n):
        if kind == "arbitrary":
            return rng.normal(size=n + 1)
        values = -rng.uniform(0.1, 2) / n * (np.arange(n + 1) - rng.uniform(0, n)) ** 2
        if kind == "spiked":
            values[0] += 0.2 * n
        return values

    tables = [table(len(g)) for g in tree.groups]
    model = tt.CountModel.from_tree(tree, rng.normal(size=size), tables)
    assert_consistent(model, 1e4)


def test_one_potential_over_a_million_variables():
    rng = np.random.default_rng(4)
    theta = rng.normal(size=10**6)
    count = np.arange(len(theta) + 1)
    model = tt.CountModel(theta, -0.5 * ((count - 3e5) / 1e3) ** 2)
    y = model.mode()
    on = int(y.sum())
    assert theta[y == 1].min() > theta[y == 0].max()
    g = np.concatenate([[0], np.cumsum(np.sort(theta)[::-1])]) + model.tables[0]
    assert on == np.argmax(g)
    assert_same(model.max_log_weight, g.max(), 1e6)
    assert_same(model.max_marginals.max(-1), np.full(len(theta), g.max()), 1e6)


# ------------------------------------------------------------------------------------------------ extremes


def test_no_variables_have_one_configuration():
    model = tt.CountModel(np.zeros(0), [1.5])
    assert model.mode().shape == (0,)
    assert model.max_log_weight == 1.5
    assert model.max_marginals.shape == (0, 2)
    np.testing.assert_array_equal(model.max_count_values(), [1.5])
    assert model.mode_k(4).configurations.shape == (1, 0)


@pytest.mark.parametrize("batch", [(0,), (2, 0)])
def test_an_empty_batch_has_empty_answers(batch):
    model = tt.CountModel(
        np.zeros((*batch, 4)), [tt.Group([0, 1], tt.exactly(1)), tt.Group(None, tt.at_least(1))]
    )
    assert model.mode().shape == (*batch, 4)
    assert np.shape(model.max_log_weight) == batch
    assert model.max_marginals.shape == (*batch, 4, 2)
    assert model.max_count_values().shape == (*batch, 5)
    assert model.max_count_values(0).shape == (*batch, 3)
    assert model.mode_k(3).log_weights.shape[:-1] == batch


def test_infinite_logits_force_and_exclude():
    model = tt.CountModel([INF, -INF, 1.0, 2.0, INF], tt.exactly(3))
    np.testing.assert_array_equal(model.mode(), [1, 0, 0, 1, 1])
    assert model.max_log_weight == 2.0
    want = [[-INF, 2.0], [2.0, -INF], [2.0, 1.0], [1.0, 2.0], [-INF, 2.0]]
    np.testing.assert_array_equal(model.max_marginals, want)


def test_free_variables_are_on_for_positive_logits_only():
    model = tt.CountModel([0.5, 0.0, -0.5, INF, -INF])
    np.testing.assert_array_equal(model.mode(), [1, 0, 0, 1, 0])
    want = [[0.0, 0.5], [0.5, 0.5], [0.5, 0.0], [-INF, 0.5], [0.5, -INF]]
    np.testing.assert_array_equal(model.max_marginals, want)


@given(st.integers(1, 30), st.integers(0, 30))
def test_equal_logits_switch_the_first_variables_on(size, k):
    k = min(k, size)
    model = tt.CountModel(np.full(size, 0.25), tt.exactly(k))
    np.testing.assert_array_equal(model.mode(), np.arange(size) < k)


def test_complement_reverses_every_answer():
    rng = np.random.default_rng(5)
    theta, table = rng.normal(size=200), 5 * rng.normal(size=201)
    model, other = tt.CountModel(theta, table), tt.CountModel(-theta, table[::-1].copy())
    np.testing.assert_array_equal(model.mode(), 1 - other.mode())
    assert_same(model.max_marginals, other.max_marginals[:, ::-1] + theta.sum(), 1e3)


def test_huge_tables_decide():
    case = random_case(
        8, 9, shape="balanced", theta_scale=300.0, table_scale=1000.0, zeros=True, infinite=True
    )
    case = Case(case.theta, tuple((s, 100 * table) for s, table in case.sets))
    listed = enumerate_model(case.theta, case.sets)
    assert_same(model_of(case).max_marginals, listed.max_marginals, scale_of(case))


def test_float32_in_gives_float32_out_and_answers_are_read_only():
    model = tt.CountModel(np.zeros(3, np.float32), tt.exactly(1))
    for answer in (model.max_marginals, model.max_count_values()):
        assert answer.dtype == np.float32
        assert not answer.flags.writeable
    assert np.asarray(model.max_log_weight).dtype == np.float64
    assert model.mode().dtype == np.uint8
    assert not model.mode().flags.writeable
    assert model.mode_k(2).log_weights.dtype == np.float64


def test_log_prob_of_the_mode_is_the_largest_probability():
    case = random_case(11, 8, shape="random", theta_scale=1.0, table_scale=0.5)
    model, listed = model_of(case), enumerate_model(case.theta, case.sets)
    assert model.log_prob(model.mode()) == pytest.approx(listed.log_probs.max(), rel=1e-10)
    assert model.max_log_weight - model.log_partition == pytest.approx(listed.log_probs.max(), rel=1e-10)
