"""The oracles against each other: no test here touches the package."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings

from accuracy_cases import CASES, FLAT_CASES, accuracy_case, ward_tree_case
from case import Case
from contract import assert_contract, assert_count_log_probs, assert_log_partition
from oracle import (
    Answer,
    Enumerated,
    binomial_model,
    enumerate_exactly,
    enumerate_model,
    exact_integer_counts,
    finite_difference,
    log_fraction,
    log_poisson_binomial,
    log_space_tree,
    mixture_model,
    noisy_or_log_table,
    noisy_or_model,
    two_value_model,
)
from strategies import (
    SHAPES,
    BatchedCase,
    batched_nested_models,
    impossible_models,
    nested_models,
    random_case,
)

INF = math.inf
EXTENDED = np.finfo(np.longdouble).eps < 1e-18
TIGHT = 1e-14 if EXTENDED else 1e-11  # of the larger of 1 and the numbers that go in


def assert_same(got, want, rtol=TIGHT, scale=1.0):
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * scale)


def scale_of(case: Case) -> float:
    numbers = [case.theta, *(table for _, table in case.sets)]
    return max(1.0, *(np.abs(x[np.isfinite(x)]).max(initial=0.0) for x in numbers))


def assert_same_answers(got: Answer, want: Answer | Enumerated, sets: int, scale: float) -> None:
    assert_same(got.log_partition, want.log_partition, scale=scale)
    assert_same(got.posterior_logits, want.posterior_logits, scale=scale)
    for which in [None, *range(sets)]:
        assert_same(got.count_log_probs(which), want.count_log_probs(which), scale=scale)


# ------------------------------------------------------------------------- enumeration, tree and rationals


@settings(max_examples=500, deadline=None)
@given(nested_models(max_variables=10))
def test_tree_agrees_with_enumeration(case):
    tree = log_space_tree(case.theta, case.sets)
    small = enumerate_model(case.theta, case.sets)
    assert np.isfinite(small.log_partition)
    assert_same_answers(tree, small, len(case.sets), scale_of(case))
    np.testing.assert_allclose(tree.marginals, small.marginals, rtol=1e-11, atol=1e-300)


@settings(max_examples=60, deadline=None)
@given(nested_models(max_variables=8, zeros=True, infinite=True, allow_impossible=True))
def test_tree_and_enumeration_agree_on_which_models_are_possible(case):
    tree, small = log_space_tree(case.theta, case.sets), enumerate_model(case.theta, case.sets)
    assert np.isneginf(tree.log_partition) == np.isneginf(small.log_partition)


@settings(max_examples=60, deadline=None)
@given(impossible_models(max_variables=8))
def test_impossible_models_are_impossible(case):
    assert log_space_tree(case.theta, case.sets).log_partition == -INF
    assert enumerate_model(case.theta, case.sets).log_partition == -INF
    assert not enumerate_model(case.theta, case.sets).modes()


@settings(max_examples=30, deadline=None)
@given(batched_nested_models(max_variables=6))
def test_every_model_of_a_batch_is_possible(batch: BatchedCase):
    for index, case in batch.items():
        assert len(index) == len(batch.batch_shape)
        assert np.isfinite(enumerate_model(case.theta, case.sets).log_partition)


@pytest.mark.parametrize("seed", range(12))
def test_both_agree_with_exact_rationals(seed):
    """Weights from 10^-150 to 10^150 and tables with zeros, all rational."""
    rng = np.random.default_rng(seed)
    base = random_case(rng, int(rng.integers(2, 8)), infinite=False)

    def rational() -> Fraction:
        return Fraction(int(rng.integers(1, 1000)), int(rng.integers(1, 1000))) * Fraction(10) ** int(
            rng.integers(-150, 150)
        )

    weights = [rational() for _ in base.theta]
    sets = [(s, [rational() if np.isfinite(v) else Fraction(0) for v in table]) for s, table in base.sets]
    exact = enumerate_exactly(weights, sets)

    theta = [log_fraction(w) for w in weights]
    log_sets = [(s, [log_fraction(f) for f in table]) for s, table in sets]
    # The logs that go in are rounded: to 3e-14 each at this size.
    for got in (enumerate_model(theta, log_sets), log_space_tree(theta, log_sets)):
        assert_same(got.log_partition, log_fraction(exact.partition), rtol=1e-12)
        odds = [log_fraction(on) - log_fraction(exact.partition - on) for on in exact.on]
        assert_same(got.posterior_logits, odds, rtol=1e-12)
        for which, row in enumerate(exact.counts):
            want = [log_fraction(c / exact.partition) for c in row]
            assert_same(got.count_log_probs(which), want, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_accuracy_cases_agree_between_oracles(name):
    for D in (2, 3, 11):
        case = accuracy_case(name, D)
        tree, small = log_space_tree(case.theta, case.sets), enumerate_model(case.theta, case.sets)
        assert_log_partition(tree.log_partition, small.log_partition)
        assert_contract(tree.posterior_logits, small.posterior_logits)
        assert_same_answers(tree, small, len(case.sets), scale_of(case))


@pytest.mark.parametrize("name", FLAT_CASES)
def test_flat_cases_agree_with_the_poisson_binomial(name):
    """A table over everything reweights the distribution of the free count."""
    case = accuracy_case(name, 150)
    ((_, log_f),) = case.sets
    joint = log_poisson_binomial(case.theta).astype(np.longdouble) + log_f
    joint -= np.logaddexp.reduce(joint)
    got = log_space_tree(case.theta, case.sets)
    assert_count_log_probs(got.count_log_probs(), joint)
    assert_same(got.count_log_probs(0), np.asarray(joint, float), rtol=1e-12, scale=scale_of(case))


def test_tree_against_many_digits_on_a_rough_nest():
    """Sums over a chain of prefixes in 60 digits, tables of sd 1000, logits of +-1000."""
    rng = np.random.default_rng(5)
    D = 40
    theta = rng.choice([-1000.0, 1000.0], D) + rng.standard_normal(D)
    sets = [(range(n), 1000 * rng.standard_normal(n + 1)) for n in range(2, D + 1)]
    with mpmath.workdps(60):

        def log_sum(clamp=()):
            row = [mpmath.mpf(1)]
            for d in range(D):
                off, on = (clamp[1] != 1, clamp[1] != 0) if clamp and clamp[0] == d else (True, True)
                w = mpmath.exp(mpmath.mpf(theta[d])) * on
                row = [a * off + b * w for a, b in zip([*row, 0], [0, *row])]
                if d:
                    row = [r * mpmath.exp(mpmath.mpf(f)) for r, f in zip(row, sets[d - 1][1])]
            return mpmath.log(mpmath.fsum(row))

        log_z = float(log_sum())
        logits = [float(log_sum((d, 1)) - log_sum((d, 0))) for d in range(0, D, 9)]
    got = log_space_tree(theta, sets)
    assert_same(got.log_partition, log_z, rtol=1e-15 if EXTENDED else 1e-12)
    assert_same(got.posterior_logits[::9], logits, rtol=1e-14 if EXTENDED else 1e-12)


# ------------------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("logit", [-800.0, -20.0, -1.0, 0.3, 40.0, INF, -INF])
def test_equal_logits(logit):
    rng = np.random.default_rng(1)
    for D, sd in [(1, 1), (7, 5), (200, 1), (200, 50)]:
        log_f = sd * rng.standard_normal(D + 1)
        tree = log_space_tree([logit] * D, [(range(D), log_f)])
        assert_same_answers(tree, binomial_model(D, logit, log_f), 0, scale=max(D, sd))


@pytest.mark.parametrize("logits", [(-2.0, 3.0), (-800.0, 800.0), (-0.5, INF), (-INF, 10.0)])
def test_two_values_of_the_logit(logits):
    rng = np.random.default_rng(2)
    for n1, n2 in [(1, 1), (3, 60), (100, 80)]:
        log_f = 20 * rng.standard_normal(n1 + n2 + 1)
        theta = [logits[0]] * n1 + [logits[1]] * n2
        tree = log_space_tree(theta, [(range(n1 + n2), log_f)])
        closed = two_value_model(n1, logits[0], n2, logits[1], log_f)
        assert_same_answers(tree, closed, 0, scale=n1 + n2)


@pytest.mark.parametrize(
    ("shift", "rate", "leak"),
    [(0, 0.2, 0.01), (-30, 1e-6, 1e-12), (-1000, 0.3, 0.0), (5, 0.5, 0.0), (-300, 1.0, 0.1)],
)
def test_noisy_or(shift, rate, leak):
    theta = np.random.default_rng(3).standard_normal(300) + shift
    theta[[5, 17]] = -INF
    closed = noisy_or_model(theta, rate, leak)
    tree = log_space_tree(theta, [(range(300), noisy_or_log_table(300, rate, leak))])
    assert_same(tree.log_partition, closed.log_partition, rtol=1e-13)
    assert_same(tree.posterior_logits, closed.posterior_logits, rtol=1e-13)


def test_noisy_or_with_forced_and_decided_variables():
    table = noisy_or_log_table(3, 0.4, 0.0)
    for theta in ([INF, 0.3, -2.0], [-INF, 0.3, -INF], [-INF, INF, 1.0]):
        closed, small = noisy_or_model(theta, 0.4, 0.0), enumerate_model(theta, [(range(3), table)])
        assert_same(closed.log_partition, small.log_partition)
        assert_same(closed.posterior_logits, small.posterior_logits)


def test_mixtures_with_negative_terms():
    """Even parity is (1 + (-1)^c) / 2; one logit of zero makes a factor vanish."""
    theta = np.append(np.random.default_rng(4).standard_normal(50), 0.0)
    parity = np.where(np.arange(52) % 2 == 0, 0.0, -INF)
    closed, tree = mixture_model(theta, [0.5, 0.5], [1, -1]), log_space_tree(theta, [(range(51), parity)])
    assert_same(closed.log_partition, tree.log_partition)
    assert_same(closed.posterior_logits, tree.posterior_logits, scale=10)


def test_big_integers():
    rng = np.random.default_rng(6)
    weights = [int(w) for w in rng.integers(1, 10**9, 120)]
    exact = exact_integer_counts(weights)
    assert sum(exact.probabilities) == 1
    theta = np.array([math.log(w) for w in weights])
    assert_same(log_poisson_binomial(theta), exact.log_probs, rtol=1e-13, scale=20)
    assert_same(log_space_tree(theta, []).count_log_probs(), exact.log_probs, rtol=1e-13, scale=20)

    table = [int(f) for f in rng.integers(0, 10**6, 121)]
    log_f = [math.log(f) if f else -INF for f in table]
    tree = log_space_tree(theta, [(range(120), log_f)])
    assert_same(tree.log_partition, log_fraction(exact.partition(table)), rtol=1e-13)
    odds = [log_fraction(on / off) for on, off in exact.odds(table)]
    assert_same(tree.posterior_logits, odds, rtol=1e-13, scale=20)


def test_poisson_binomial_with_infinite_logits():
    small = enumerate_model([INF, -INF, 0.5, INF, -700.0], [])
    assert_same(log_poisson_binomial([INF, -INF, 0.5, INF, -700.0]), small.count_log_probs())


# --------------------------------------------------------------------------------------- laws at large D


@pytest.mark.parametrize("sd", [1, 50, 1000])
def test_complement_and_tilt_leave_a_large_tree_unchanged(sd):
    case = ward_tree_case(500, sd)
    direct = log_space_tree(case.theta, case.sets)
    flipped = log_space_tree(-case.theta, [(s, table[::-1]) for s, table in case.sets])
    assert_same(flipped.posterior_logits, -direct.posterior_logits, scale=sd)
    assert_same(flipped.log_partition + case.theta.sum(), direct.log_partition, rtol=1e-13)

    slope = 0.5  # moved between logits and the last table, which covers everything
    members, table = case.sets[-1]
    assert len(members) == case.size
    tilted = [*case.sets[:-1], (members, table - slope * np.arange(501))]
    moved = log_space_tree(case.theta + slope, tilted)
    assert_same(moved.posterior_logits, direct.posterior_logits, rtol=1e-12, scale=sd)
    for which in (0, 250, 498):
        assert_same(moved.count_log_probs(which), direct.count_log_probs(which), rtol=1e-12, scale=sd)


def test_marginals_are_the_gradient_of_the_log_partition():
    case = random_case(3, 9, shape="random", theta_scale=1.0, table_scale=0.5, zeros=True, infinite=False)
    small = enumerate_model(case.theta, case.sets)
    gradient = finite_difference(lambda x: log_space_tree(x, case.sets).log_partition, case.theta)
    np.testing.assert_allclose(gradient, small.marginals, atol=1e-7)
    jacobian = finite_difference(lambda x: log_space_tree(x, case.sets).marginals, case.theta)
    assert jacobian.shape == (9, 9)
    np.testing.assert_allclose(jacobian, small.covariance, atol=1e-7)


def test_expected_counts_add_up():
    case = accuracy_case("ward_6", 300)
    got = log_space_tree(case.theta, case.sets)
    for which, (members, _) in enumerate(case.sets):
        mean = np.exp(got.count_log_probs(which)) @ np.arange(len(members) + 1)
        np.testing.assert_allclose(mean, got.marginals[list(members)].sum(), rtol=1e-12)


# ------------------------------------------------------------------------------------------ small answers


def test_enumeration_answers_by_hand():
    """Exactly one of two variables with odds 2 : 3."""
    theta = np.log([2.0, 3.0])
    small = enumerate_model(theta, [((0, 1), [-INF, 0.0, -INF])])
    assert_same(small.log_partition, math.log(5))
    assert_same(small.marginals, [0.4, 0.6])
    assert_same(small.posterior_logits, [math.log(2 / 3), math.log(3 / 2)])
    assert_same(small.pairwise, [[0.4, 0.0], [0.0, 0.6]])
    assert_same(small.pair_table(0, 1), [[0.0, 0.6], [0.4, 0.0]])
    assert_same(small.covariance, [[0.24, -0.24], [-0.24, 0.24]])
    assert_same(small.entropy, -0.4 * math.log(0.4) - 0.6 * math.log(0.6))
    assert_same(small.count_log_probs(0), [-INF, 0.0, -INF])
    assert_same(small.count_log_probs([1]), np.log([0.4, 0.6]))
    assert_same(small.log_prob([0, 1]), math.log(0.6))
    assert small.log_prob([1, 1]) == -INF
    assert small.modes() == {(0, 1)}
    assert [y for _, y in small.ranked()] == [(0, 1), (1, 0)]
    assert_same(small.max_marginals, np.log([[3.0, 2.0], [2.0, 3.0]]))


def test_enumeration_with_edges_and_ties():
    agree = np.array([[0.0, -INF], [-INF, 0.0]])
    small = enumerate_model([0.0, 0.0, 0.0], [((2,), [0.0, 1.0])], edges=[(0, 1, agree)])
    assert small.modes() == {(0, 0, 1), (1, 1, 1)}
    assert_same(small.pair_table(0, 1), [[0.5, 0.0], [0.0, 0.5]])
    assert_same(small.log_partition, math.log(2 + 2 * math.e))


def test_empty_sets_only_scale():
    case = random_case(0, 5, zeros=False, infinite=False)
    plain, scaled = (log_space_tree(case.theta, s) for s in (case.sets, [*case.sets, ((), [2.5])]))
    assert_same(scaled.log_partition, plain.log_partition + 2.5)
    assert_same(scaled.posterior_logits, plain.posterior_logits)
    assert scaled.count_log_probs(len(case.sets)).tolist() == [0.0]


@pytest.mark.parametrize("members", [((0, 1), (1, 2)), ((0, 1, 2), (2, 3)), ((0, 1, 2), (1, 2, 3), (0, 1))])
def test_crossing_sets_are_refused(members):
    with pytest.raises(ValueError, match="nested"):
        log_space_tree(np.zeros(4), [(s, np.zeros(len(s) + 1)) for s in members])


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_reaches_large_sizes(shape):
    case = random_case(7, 100, shape=shape, zeros=True, infinite=True)
    got = log_space_tree(case.theta, case.sets)
    assert np.isfinite(got.log_partition)
    assert not np.isnan(got.posterior_logits).any()
    assert "D=100" in repr(case)


def test_small_cases_print_what_rebuilds_them():
    case = random_case(11, 4, shape="balanced", zeros=True, infinite=True)
    again = eval(repr(case), {"Case": Case, "inf": INF})
    assert again.theta == case.theta.tolist()
    assert [list(s) for s, _ in again.sets] == [list(s) for s, _ in case.sets]


# ------------------------------------------------------------------------------------------ the contract


def test_contract_accepts_what_it_promises_and_no_more():
    want = np.array([0.0, 1.0, -500.0, INF, -INF])
    assert_contract(want + np.array([9e-10, -9e-10, 4e-8, 0, 0]), want)
    for at, value in [(0, 2e-9), (2, -500.0 - 6e-8), (3, 1e300), (4, INF), (1, np.nan)]:
        got = want.copy()
        got[at] = value
        with pytest.raises(AssertionError, match="posterior_logits"):
            assert_contract(got, want)
    with pytest.raises(AssertionError, match="shape"):
        assert_contract(want[:3], want)

    assert_log_partition(1e6 + 9e-5, 1e6)
    with pytest.raises(AssertionError, match="log_partition"):
        assert_log_partition(1e-9, 0.0)

    want = np.array([-0.1, -400.0, -1000.0, -INF])
    assert_count_log_probs(want + 9e-9, want)
    assert_count_log_probs([-0.1, -400.0, -INF, -700.0], want)
    for got in ([-0.1, -400.1, -1000.0, -INF], [-0.1, -400.0, -5.0, -INF], [-0.1, -400.0, np.nan, -INF]):
        with pytest.raises(AssertionError, match=r"count"):
            assert_count_log_probs(got, want)
