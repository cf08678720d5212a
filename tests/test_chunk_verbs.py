"""Reduce, solve and map on chunks: against independent answers, and against the models in memory."""

import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tallytree as tt
from oracle import log_poisson_binomial, log_space_tree, two_value_model
from tallytree import config
from tallytree.engine.count import chunks

compiled = pytest.mark.skipif(
    config.native() is None, reason="chunks of many variables need the compiled engine"
)


def cut(logits, seed=0):
    """Uneven chunks; some are empty, some have a single variable."""
    n = len(logits)
    places = np.sort(np.random.default_rng(seed).integers(0, n + 1, 4))
    return np.split(logits, [*sorted({0, 1, *places.tolist(), n}), n])


def solve(logits, potential, parts=None, few=0, rounds=None):
    log_f = potential.log_table(len(logits)) if isinstance(potential, tt.Potential) else np.asarray(potential)
    pieces = cut(logits) if parts is None else parts

    def reduce_all(asked):
        if rounds is not None:
            rounds.append(asked)
        return chunks.merge(pickle.loads(pickle.dumps(chunks.reduce(piece, asked))) for piece in pieces)

    return chunks.solve_chunks(reduce_all, chunks.solve(chunks.TableArray(log_f), few=few))


def answers(logits, solution, what="posterior_logits", parts=None):
    mapping = pickle.loads(pickle.dumps(solution.mapping))
    return np.concatenate([chunks.map_logits(p, mapping, what) for p in (parts or cut(logits, 1))])


def apart(got, want):
    """Largest distance, absolute or relative, as the contract has it; inf where infinities differ."""
    with np.errstate(invalid="ignore"):
        far = np.abs(got - want) / np.maximum(1.0, 0.1 * np.abs(want))
    return float(np.max(np.where(got == want, 0.0, np.where(np.isnan(far), math.inf, far)), initial=0.0))


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
def test_a_chunk_may_be_mapped_into_itself():
    logits = np.random.default_rng(3).normal(size=20_000)
    solution = solve(logits, tt.exactly(300))
    want = chunks.map_logits(logits, solution.mapping, "marginals")
    assert chunks.map_logits(logits, solution.mapping, "marginals", out=logits) is logits
    assert_array_equal(logits, want)


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


# -- counts --------------------------------------------------------------------------------------------------------


def windows_of(logits, potential, few=0):
    log_f = chunks.TableArray(potential.log_table(len(logits)))
    parts = cut(logits)
    solution = chunks.solve_chunks(parts, chunks.solve(log_f, few=few))
    return chunks.solve_chunks(parts, chunks.count_windows(solution))


@compiled
@pytest.mark.parametrize("few", [0, 4096])
@pytest.mark.parametrize(
    "potential",
    [
        tt.uniform(), tt.at_most(300), tt.at_least(900), tt.gaussian(1000.0, 20.0), tt.one_of([0, 300, 301, 900]),
        tt.between(0, 40), tt.parity("odd"), tt.quadratic(2.4 / 1500), tt.poisson(200.0), tt.exactly(7),
    ],
    ids=repr,
)  # fmt: skip
def test_windows_hold_the_posterior_of_the_count(potential, few):
    logits = np.random.default_rng(6).normal(size=1500) - 1
    logits[[3, 9]], logits[5] = math.inf, -math.inf
    n = len(logits)
    finite = np.isfinite(logits)
    want = np.full(n + 1, -math.inf)
    want[2:n] = log_poisson_binomial(logits[finite])
    want = want + potential.log_table(n)
    want -= np.logaddexp.reduce(want)
    left = np.exp(want)
    for window in windows_of(logits, potential, few):
        place = slice(window.first, window.first + len(window.log_probs))
        probable = want[place] > math.log(1e-200)
        np.testing.assert_allclose(window.log_probs[probable], want[place][probable], atol=1e-8)
        assert np.all(window.log_probs[want[place] == -math.inf] == -math.inf)
        left[place] = 0.0
    assert left.sum() < math.exp(-40)


@compiled
@pytest.mark.parametrize(
    "mixture", [tt.noisy_or(1e-3), tt.geometric(0.2), tt.parity(), tt.at_least(1)], ids=repr
)
def test_sums_of_powers_need_one_reduction(mixture):
    logits = np.random.default_rng(6).normal(size=150_000) - 3
    logits[[3, 9]], logits[5] = math.inf, -math.inf
    n, rounds = len(logits), []

    def reduce_all(asked):
        rounds.append(asked)
        return chunks.merge(chunks.reduce(part, asked) for part in cut(logits))

    table = chunks.TableArray(mixture.log_table(n))
    solution = chunks.solve_chunks(reduce_all, chunks.solve(table, mixture.mixture(n)))
    assert len(rounds) == 1
    model = tt.CountModel(logits, mixture)
    assert abs(solution.log_partition - model.log_partition) <= 1e-10 * (1 + abs(model.log_partition))
    assert apart(answers(logits, solution), model.posterior_logits) <= 1e-9
    assert chunks.solve_chunks(reduce_all, chunks.count_windows(solution))[0].first > 0


# -- draws ---------------------------------------------------------------------------------------------------------


@compiled
def test_laws_of_chunks_are_poisson_binomial():
    rng = np.random.default_rng(8)
    logits = 2 * rng.normal(size=700)
    logits[3], logits[5] = math.inf, -math.inf
    for chunk in (logits, logits[:40], logits[3:4], logits[:0], np.full(300, -9.0)):
        law = chunks.law_of(chunks.law_sums(chunk, 0.3), 0.3)
        finite = chunk[np.isfinite(chunk)]
        want = np.exp(np.asarray(log_poisson_binomial(finite + 0.3), float))
        got = np.zeros(len(finite) + 1)
        first = law.first - int((chunk == math.inf).sum())
        got[first : first + len(law.probs)] = law.probs
        np.testing.assert_allclose(got, want, atol=1e-14)


@compiled
@pytest.mark.parametrize("potential", [tt.exactly(4), tt.at_least(5), tt.one_of([0, 3, 7])], ids=repr)
def test_joint_draws_over_chunks_follow_the_law(potential):
    from scipy.stats import chisquare

    rng = np.random.default_rng(4)
    logits = rng.normal(size=7)
    parts = [logits[:3], logits[3:3], logits[3:4], logits[4:]]
    solution = solve(logits, potential, parts=parts, few=0)
    drawn = np.zeros(1 << 7, int)
    count = 4000
    for _ in range(count):
        total = chunks.draw_total(solution, rng)
        state, left, rest = [], total.on, parts
        while rest:
            head, rest = rest[0], rest[1:]
            here = left
            if rest:
                others = chunks.merge(chunks.law_sums(p, total.tilt) for p in rest)
                laws = (
                    chunks.law_of(chunks.law_sums(head, total.tilt), total.tilt),
                    chunks.law_of(others, total.tilt),
                )
                here = chunks.split(*laws, left, rng)
            state.append(chunks.draw_given_count(head, here, rng))
            left -= here
        drawn[int("".join(map(str, np.concatenate(state))), 2)] += 1
    states = (np.arange(1 << 7)[:, None] >> np.arange(6, -1, -1)) & 1
    weights = np.exp(states @ logits + potential.log_table(7)[states.sum(1)])
    expected = count * weights / weights.sum()
    assert not drawn[expected == 0].any()
    large = expected >= 10
    observed, wanted = (
        np.append(drawn[large], drawn[~large].sum()),
        np.append(expected[large], expected[~large].sum()),
    )
    keep = wanted > 0
    assert chisquare(observed[keep], wanted[keep]).pvalue > 1e-4
