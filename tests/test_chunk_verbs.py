"""Reduce, solve and map on chunks: against independent answers, and against the models in memory."""

import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tallytree as tt
from chunk_cases import TableArray, answers, apart, solve
from oracle import log_space_tree, two_value_model
from tallytree import config
from tallytree.engine import native
from tallytree.engine.count import chunks

compiled = pytest.mark.skipif(
    config.native() is None, reason="chunks of many variables need the compiled engine"
)


def check(logits, potential, tolerance=1e-9, **options):
    """The same as the model in memory, to the contract."""
    model = tt.CountModel(logits, potential)
    solution = solve(logits, potential, **options)
    assert abs(solution.log_partition - model.log_partition) <= 1e-10 * (1 + abs(model.log_partition))
    assert solution.error_bound <= 1e-9
    assert apart(answers(logits, solution), model.posterior_logits) <= tolerance
    np.testing.assert_allclose(answers(logits, solution, "marginals"), model.marginals, rtol=1e-9, atol=1e-15)
    return solution


# -- independent answers -------------------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize("few", [0, 4096])
@pytest.mark.parametrize(
    "log_f",
    [
        lambda n, rng: np.where(np.arange(n + 1) == n // 7, 0.0, -np.inf),
        lambda n, rng: np.where(np.arange(n + 1) == n - 2, 0.0, -np.inf),
        lambda n, rng: np.where(np.isin(np.arange(n + 1), [n // 10, n - 9]), 0.0, -np.inf),
        lambda n, rng: np.where(np.arange(n + 1) <= n // 9, 0.0, -np.inf),
        lambda n, rng: rng.normal(size=n + 1),
        lambda n, rng: -0.5 * ((np.arange(n + 1) - 0.8 * n) / 4) ** 2,
        lambda n, rng: 1.3 / n * (np.arange(n + 1) - 0.5 * n) ** 2,
        lambda n, rng: np.where(np.isin(np.arange(n + 1), [0, n]), 0.0, -np.inf),
    ],
    ids=["exactly", "nearly all", "two spikes", "at most", "noise", "bell", "convex", "ends"],
)
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_answers_are_those_of_a_recursion_that_cannot_underflow(few, log_f, scale):
    rng = np.random.default_rng(5)
    n = 330
    logits = scale * rng.normal(size=n) - 0.5
    logits[[3, 4, 200]] = np.inf
    logits[[7, 100]] = -np.inf
    table = log_f(n, rng)
    want = log_space_tree(logits, [(range(n), table)])
    if want.log_partition == -math.inf:
        assert solve(logits, table, few=few).impossible
        return
    solution = solve(logits, table, few=few)
    assert abs(solution.log_partition - want.log_partition) <= 1e-10 * (1 + abs(want.log_partition))
    assert apart(answers(logits, solution), want.posterior_logits) <= max(1e-9, solution.error_bound)
    assert apart(answers(logits, solution), want.posterior_logits) <= 1e-9


@compiled
@pytest.mark.parametrize("k", [1, 60_000, 119_999])
def test_equal_log_odds_have_a_binomial_count(k):
    n = 120_000
    logits = np.full(n, -2.5)
    solution = solve(logits, tt.exactly(k))
    want = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - 2.5 * k
    assert abs(solution.log_partition - want) <= 1e-10 * (1 + abs(want))
    assert apart(answers(logits, solution), np.full(n, math.log(k / (n - k)))) <= 1e-9


@compiled
def test_two_values_have_a_closed_form():
    rng = np.random.default_rng(2)
    n1, n2 = 900, 1100
    log_f = 0.01 * np.cumsum(rng.normal(size=n1 + n2 + 1))
    logits = np.repeat([-1.0, 0.7], [n1, n2])
    rng.shuffle(logits)
    want = two_value_model(n1, -1.0, n2, 0.7, log_f)
    solution = solve(logits, log_f)
    assert abs(solution.log_partition - want.log_partition) <= 1e-10 * (1 + abs(want.log_partition))
    low, high = want.posterior_logits[[0, -1]]
    assert apart(answers(logits, solution), np.where(logits < 0, low, high)) <= 1e-9


@compiled
@pytest.mark.parametrize("k", [0, 3, 1 << 21])
def test_log_z_keeps_its_digits_where_its_two_parts_cancel(k):
    half = 1 << 17
    large = 123_456.789_012
    chunk = np.repeat([large, 0.9 * large], half)
    n = 32 * len(chunk)
    log_f = np.full(n + 1, -math.inf)
    log_f[k] = 0.0
    solution = chunks.solve_chunks([chunk] * 32, chunks.solve(TableArray(log_f)))
    m = n // 2  # so many have the larger log-odds, and k of these are on
    want = math.lgamma(m + 1) - math.lgamma(k + 1) - math.lgamma(m - k + 1) + large * k
    assert abs(solution.log_partition - want) <= 1e-12 * (1 + abs(want))


# -- models in memory ----------------------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize(
    "potential",
    [
        tt.exactly(3), tt.exactly(20_000), tt.exactly(99_998), tt.at_most(20_000), tt.at_least(70_000),
        tt.one_of([10_000, 90_000]), tt.gaussian(60_000, 632.0), tt.quadratic(2.4e-5), tt.poisson(12_345.0),
        tt.uniform(), tt.parity("odd"), tt.noisy_or(1e-4), tt.all_or_none(50_000.0, 10_000.0), tt.exactly(0),
    ],
    ids=repr,
)  # fmt: skip
def test_chunks_answer_like_the_model_in_memory(potential):
    check(np.random.default_rng(0).normal(size=100_000), potential)


@compiled
@pytest.mark.parametrize("seed", range(12))
def test_random_models_answer_alike_in_chunks_and_in_memory(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2_000, 60_000))
    logits = rng.choice([0.3, 1.0, 6.0]) * rng.normal(size=n) + rng.choice([-6.0, 0.0, 3.0])
    if seed % 3 == 0:
        logits[rng.integers(0, n, 50)] = rng.choice([-math.inf, math.inf, 200.0, -3e4], 50)
    knots = np.cumsum(rng.normal(size=12))
    smooth = np.interp(np.linspace(0, 11, n + 1), np.arange(12), knots) * rng.choice([1.0, 30.0])
    check(logits, smooth)


@compiled
@pytest.mark.parametrize("k", [0, 1, 30_000, 89_999, 90_000])
def test_infinite_log_odds_are_left_out_and_keep_their_values(k):
    logits = np.random.default_rng(1).normal(size=100_000)
    logits[5:4_000] = math.inf
    logits[50_000:56_005] = -math.inf
    check(logits, tt.exactly(3_995 + k))


@compiled
@pytest.mark.parametrize("scale", [1e-9, 1e2, 1e5])
def test_log_odds_of_any_size_are_solved(scale):
    logits = scale * np.random.default_rng(1).normal(size=5_000)
    check(logits, tt.exactly(1_234))
    check(logits, tt.at_most(17))


@compiled
def test_float32_chunks_are_computed_in_double_precision_and_answered_in_single():
    logits = np.random.default_rng(3).normal(size=50_000).astype(np.float32)
    logits[7], logits[9] = np.inf, -np.inf
    solution = solve(logits, tt.exactly(5_000))
    wide = solve(logits.astype(np.float64), tt.exactly(5_000))
    assert solution.log_partition == wide.log_partition
    got, want = answers(logits, solution), answers(logits.astype(np.float64), wide)
    assert got.dtype == np.float32
    assert_array_equal(got, want.astype(np.float32))


# -- the manner of it ----------------------------------------------------------------------------------------------


@compiled
def test_the_same_chunks_give_the_same_bits_whatever_the_threads():
    logits = np.random.default_rng(3).normal(size=400_000)
    found = []
    for threads in (1, 2):
        with config.limit_threads(threads):
            solution = solve(logits, tt.at_least(250_000))
            found.append((solution.log_partition, answers(logits, solution).tobytes()))
    assert found[0] == found[1]


@compiled
@pytest.mark.parametrize(
    ("potential", "most"),
    [(tt.uniform(), 1), (tt.gaussian(6e5, 3e4), 2), (tt.exactly(100), 2), (tt.exactly(10**5), 2),
     (tt.one_of([10**5, 9 * 10**5]), 2), (tt.at_most(1000), 2)],
    ids=repr,
)  # fmt: skip
def test_one_reduction_serves_near_the_prior_and_two_serve_elsewhere(potential, most):
    rounds = []
    solve(np.random.default_rng(3).normal(size=1 << 20), potential, rounds=rounds)
    assert len(rounds) <= most


@compiled
def test_a_solution_is_small_and_travels():
    solution = solve(np.random.default_rng(3).normal(size=300_000), tt.one_of([100, 200_000]))
    assert len(pickle.dumps(solution.mapping)) < 20_000
    assert len(pickle.dumps(solution.sums)) < 300_000


@compiled
def test_a_place_for_answers_that_would_need_a_copy_is_refused():
    logits = np.random.default_rng(3).normal(size=5_000)
    solution = solve(logits, tt.exactly(300))
    for out in (np.empty(10_000)[::2], np.empty(5_000, np.float32), np.empty(4_999)):
        with pytest.raises((TypeError, ValueError)):
            native.flat_map(solution.mapping.series, logits, out, False)


def test_no_variables_and_one_variable_are_models_too():
    empty = solve(np.empty(0), np.array([0.25]), parts=[np.empty(0), np.empty(0)])
    assert empty.log_partition == 0.25
    assert len(chunks.map_logits(np.empty(0), empty.mapping)) == 0
    for few in (0, 4096):
        one = solve(np.array([0.5]), np.array([1.0, -1.0]), parts=[np.empty(0), np.array([0.5])], few=few)
        assert one.log_partition == pytest.approx(np.logaddexp(1.0, -0.5), abs=1e-14)
        assert chunks.map_logits(np.array([0.5]), one.mapping)[0] == pytest.approx(-1.5, abs=1e-14)


def test_impossible_models_say_so():
    for few in (0, 4096):
        assert solve(np.full(500, -math.inf), tt.exactly(3), few=few).impossible
        assert solve(np.r_[np.zeros(500), math.inf], tt.exactly(0), few=few).impossible


def test_numbers_that_are_none_are_counted():
    assert chunks.reduce(np.array([0.0, math.nan, math.inf, -math.inf, 1.0]), []).invalid == 1


@compiled
def test_what_no_series_certifies_is_refused_where_it_cannot_be_collected():
    rng = np.random.default_rng(0)
    n = 3 << 19
    logits = rng.normal(size=n)
    log_f = 40.0 * rng.normal(size=n + 1) + tt.quadratic(8.0 / n).log_table(n)
    with pytest.raises(tt.PrecisionError, match="no series certifies"):
        solve(logits, log_f)
