"""Counts and draws of a model that comes in chunks."""

import math

import numpy as np
import pytest

import tallytree as tt
from chunk_cases import TableArray, answers, apart, cut, solve
from helpers import few
from oracle import log_poisson_binomial
from oracle_states import all_states
from tallytree import config
from tallytree.engine.count import chunks

compiled = pytest.mark.skipif(
    config.native() is None, reason="chunks of many variables need the compiled engine"
)


def windows_of(logits, potential, few=0):
    log_f = TableArray(potential.log_table(len(logits)))
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

    table = TableArray(mixture.log_table(n))
    solution = chunks.solve_chunks(reduce_all, chunks.solve(table, mixture.mixture(n)))
    assert len(rounds) == 1
    model = tt.CountModel(logits, mixture)
    assert abs(solution.log_partition - model.log_partition) <= 1e-10 * (1 + abs(model.log_partition))
    assert apart(answers(logits, solution), model.posterior_logits) <= 1e-9
    assert chunks.solve_chunks(reduce_all, chunks.count_windows(solution))[0].first > 0


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
        got[first : first + len(law.log_weights)] = np.exp(law.log_weights)
        np.testing.assert_allclose(got, want, atol=1e-14)


@compiled
@pytest.mark.parametrize("potential", few([tt.exactly(4), tt.at_least(5), tt.one_of([0, 3, 7])]), ids=repr)
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
                here = laws[0].draw_part(laws[1], left, rng)
            state.append(chunks.draw_given_count(head, here, rng))
            left -= here
        drawn[int("".join(map(str, np.concatenate(state))), 2)] += 1
    states = all_states((2,) * 7)
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
