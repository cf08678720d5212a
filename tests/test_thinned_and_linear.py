"""Noisy-OR with unequal rates and functions of a real-valued linear combination, against enumeration."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import tallytree as tt
from oracle_states import all_states
from tallytree.errors import InfeasibleError, ParameterError

D = 5
STATES = all_states((2,) * D)


def answers(score):
    """Log Z and marginals of all states with these log-weights."""
    top = score.max()
    p = np.exp(score - top)
    return top + math.log(p.sum()), (p @ STATES) / p.sum()


@pytest.mark.parametrize("t", [0, 1])
@pytest.mark.parametrize("leak", [0.0, 1e-9, 0.3])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_noisy_or_with_unequal_rates_matches_enumeration(t, leak, scale):
    rng = np.random.default_rng(0)
    logits, rates = scale * rng.normal(size=D), np.array([0.9, 1e-8, 0.5, 0.0, 1.0])
    model = tt.noisy_or_model(logits, rates, leak=leak, t=t)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(STATES == 1, np.log1p(-rates), 0.0).sum(1) + math.log1p(-leak)
        effect = each if t == 0 else np.log(-np.expm1(each))
    score = STATES @ logits + effect
    log_z, marginals = answers(score)
    assert float(model.log_partition) == pytest.approx(log_z, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(model.marginals, marginals, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(model.log_prob(STATES), score - log_z, rtol=1e-9, atol=1e-9)


def test_equal_rates_are_the_potential_on_the_count():
    logits = np.linspace(-3.0, 2.0, 40)
    for t in (0, 1):
        want = tt.CountModel(logits, tt.noisy_or(0.2, 0.05, t=t))
        got = tt.noisy_or_model(logits, np.full(40, 0.2), leak=0.05, t=t)
        np.testing.assert_allclose(got.posterior_logits, want.posterior_logits, rtol=1e-9, atol=1e-9)
        assert float(got.log_partition) == pytest.approx(float(want.log_partition), rel=1e-12)


def test_tiny_rates_do_not_cancel():
    # 1 - prod (1 - r) to first order: the posterior is the prior tilted by each state's sum of rates.
    logits, rates = np.array([0.3, -0.2, 1.0, 0.0, -1.0]), 1e-30 * np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    score = STATES @ logits + np.log(np.maximum(STATES @ rates, 1e-320))
    log_z, marginals = answers(score)
    model = tt.noisy_or_model(logits, rates)
    np.testing.assert_allclose(model.marginals, marginals, rtol=1e-10)
    assert float(model.log_partition) == pytest.approx(log_z, rel=1e-12)


def test_infinite_logits_weigh_one():
    logits, rates = np.array([np.inf, -np.inf, 0.5, np.inf, -0.5]), np.array([0.3, 0.6, 0.2, 1.0, 0.1])
    finite = np.array([2, 4])
    possible = STATES[(STATES[:, 0] == 1) & (STATES[:, 1] == 0) & (STATES[:, 3] == 1)]
    for t, f in ((1, lambda c: c >= 1), (0, None)):
        if t == 0:
            with pytest.raises(InfeasibleError):
                tt.noisy_or_model(logits, rates, t=0).log_partition  # noqa: B018
            continue
        model = tt.noisy_or_model(logits, rates, t=t)
        score = possible[:, finite] @ logits[finite]  # the fourth variable always acts
        p = np.exp(score)
        assert float(model.log_partition) == pytest.approx(math.log(p.sum()), abs=1e-12)
        np.testing.assert_allclose(model.marginals, p @ possible / p.sum(), atol=1e-12)
        assert f(1)


def test_any_potential_on_the_number_that_acts():
    rng = np.random.default_rng(1)
    logits, rates, table = rng.normal(size=D), rng.random(D), rng.normal(size=D + 1)
    hidden = STATES
    score = np.full(len(STATES), -np.inf)
    for s, y in enumerate(STATES):
        inside = hidden[(hidden <= y).all(1)]
        weight = np.where(y == 1, np.where(inside == 1, rates, 1.0 - rates), 1.0).prod(1)
        score[s] = y @ logits + math.log(float(weight @ np.exp(table[inside.sum(1)])))
    log_z, marginals = answers(score)
    model = tt.ThinnedModel(logits, rates, table)
    assert float(model.log_partition) == pytest.approx(log_z, abs=1e-11)
    np.testing.assert_allclose(model.marginals, marginals, atol=1e-12)
    np.testing.assert_allclose(model.log_prob(STATES), score - log_z, atol=1e-10)
    drawn = model.sample(20000, rng=0)
    np.testing.assert_allclose(drawn.mean(0), marginals, atol=0.015)
    batch = tt.ThinnedModel(np.stack([logits, -logits]), rates, table)
    np.testing.assert_allclose(batch.marginals[0], marginals, atol=1e-12)
    assert batch.sample(3, rng=0).shape == (3, 2, D)


@pytest.mark.parametrize("seed", range(4))
def test_linear_combinations_on_a_grid_match_enumeration(seed):
    rng = np.random.default_rng(seed)
    logits, weights = rng.normal(size=D), rng.normal(size=D)
    weights[rng.integers(D)] = 0.0

    def log_f(x):
        return -np.abs(x - 0.3) * 2.0 + np.sin(3 * x)

    model = tt.LinearModel(logits, weights, log_f, step=0.05)
    rounded = 0.05 * np.rint(weights / 0.05)
    value = STATES @ rounded
    score = STATES @ logits + log_f(value)
    log_z, marginals = answers(score)
    assert float(model.log_partition) == pytest.approx(log_z, abs=1e-10)
    np.testing.assert_allclose(model.marginals, marginals, atol=1e-9)
    np.testing.assert_allclose(model.log_prob(STATES), score - log_z, atol=1e-9)
    law = np.exp(model.sum_log_probs)
    for v, p in zip(model.values, law):
        want = np.exp(score - log_z)[np.abs(value - v) < 0.01].sum()
        assert p == pytest.approx(want, abs=1e-12)
    exact = STATES @ weights
    assert np.abs(exact - value).max() <= model.grid_error + 1e-12


def test_a_finer_grid_comes_nearer_to_the_real_weights():
    rng = np.random.default_rng(7)
    logits, weights = rng.normal(size=D), rng.normal(size=D)
    want = answers(STATES @ logits - (STATES @ weights) ** 2)[1]
    errors = []
    with pytest.warns(UserWarning, match="weights of 1 of 5 variables to 0"):
        tt.LinearModel(logits, weights, lambda x: -(x**2), step=0.5)
    for step in (0.1, 0.02, 0.004):
        model = tt.LinearModel(logits, weights, lambda x: -(x**2), step=step)
        errors.append(np.abs(model.marginals - want).max())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3


def test_equal_weights_are_a_count():
    logits = np.linspace(-2.0, 1.0, 30)
    table = -0.1 * (np.arange(31) - 9.0) ** 2
    want = tt.CountModel(logits, table)
    got = tt.LinearModel(logits, np.full(30, 2.5), table, step=2.5)
    np.testing.assert_allclose(got.posterior_logits, want.posterior_logits, atol=1e-8)
    np.testing.assert_allclose(got.sum_log_probs, want.count_log_probs(), atol=1e-8)
    wild = np.array([0.0, 2000.0, -300.0, -np.inf, 900.0, 0.0])
    spread = tt.LinearModel(np.array([0.5, -np.inf, 3.0, np.inf, -40.0]), np.ones(5), wild, step=1.0)
    exact = tt.CountModel(np.array([0.5, -np.inf, 3.0, np.inf, -40.0]), wild)
    np.testing.assert_allclose(spread.posterior_logits, exact.posterior_logits, rtol=1e-10, atol=1e-9)
    assert float(spread.log_partition) == pytest.approx(float(exact.log_partition), rel=1e-10)


def test_batches_and_no_variables():
    logits = np.random.default_rng(3).normal(size=(2, 3, D))
    weights = np.array([0.5, -1.0, 1.5, 0.0, 2.0])
    batch = tt.LinearModel(logits, weights, lambda x: -x, step=0.5)
    assert batch.marginals.shape == (2, 3, D)
    one = tt.LinearModel(logits[1, 2], weights, lambda x: -x, step=0.5)
    np.testing.assert_allclose(batch.marginals[1, 2], one.marginals)
    empty = tt.LinearModel(np.zeros(0), np.zeros(0), lambda x: x + 1.5, step=1.0)
    assert float(empty.log_partition) == 1.5
    assert empty.marginals.shape == (0,)


def test_errors_say_what_to_do():
    for call, text in (
        (
            lambda: tt.LinearModel(np.zeros(2), [1.0], lambda x: x, step=1.0),
            "finite real numbers, shape \\(2,\\); .*one per variable",
        ),
        (lambda: tt.LinearModel(np.zeros(2), [1.0, np.nan], lambda x: x, step=1.0), "`weights`"),
        (lambda: tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda x: x, step=0.0), "`step`"),
        (lambda: tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda x: x, step=1e-9), "`step` must leave a grid"),
        (
            lambda: tt.LinearModel(np.zeros(2), [1.0, 2.0], [0.0, 1.0], step=1.0),
            r"shape \(..., 4\); .*gets the array `values`",
        ),
        (
            lambda: tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda x: x * np.nan, step=1.0),
            "below .*entry 0 is NaN",
        ),
        (lambda: tt.noisy_or_model(np.zeros(2), [0.5, 1.5]), "`rates` must be an array of probabilities"),
        (lambda: tt.noisy_or_model(np.zeros(3), [0.5, 0.5]), r"`rates` must broadcast to shape \(3,\)"),
        (lambda: tt.noisy_or_model(np.zeros(2), [0.5, 0.5], leak=-0.1), "`leak`"),
        (lambda: tt.noisy_or_model(np.zeros(2), [0.5, 0.5], t=2), "`t` must be 0 or 1"),
    ):
        with pytest.raises(ParameterError, match=text):
            call()
    with pytest.raises(InfeasibleError, match="probability zero"):
        tt.LinearModel(np.zeros(2), [1.0, 2.0], np.full(4, -np.inf), step=1.0).log_partition  # noqa: B018


@pytest.mark.parametrize("seed", range(6))
def test_samples_mode_and_entropy_of_a_linear_combination_are_those_of_enumeration(seed):
    rng = np.random.default_rng(seed)
    logits, weights = 2.0 * rng.normal(size=D), 0.5 * rng.integers(-3, 4, D)
    if seed % 2:
        logits[0], logits[1] = np.inf, -np.inf
    model = tt.LinearModel(
        logits, weights, lambda x: np.where(np.abs(x) < 4.0, np.sin(5 * x) - x, -np.inf), step=0.5
    )
    allowed = np.where(np.isinf(logits), (logits > 0) == STATES, True).all(1)
    value = STATES @ weights
    score = STATES @ np.where(np.isinf(logits), 0.0, logits) + np.sin(5 * value) - value
    score = np.where(allowed & (np.abs(value) < 4.0), score, -np.inf)
    prob = np.exp(score - np.logaddexp.reduce(score))
    assert float(model.entropy) == pytest.approx(-(prob[prob > 0] * np.log(prob[prob > 0])).sum(), abs=1e-10)
    at = np.flatnonzero((model.mode() == STATES).all(1))[0]
    assert score[at] == pytest.approx(score.max(), abs=1e-12)
    drawn = model.sample(40_000, rng=seed)
    seen = np.bincount(drawn @ 2 ** np.arange(D), minlength=2**D)
    expected = np.zeros(2**D)
    expected[STATES.astype(int) @ 2 ** np.arange(D)] = 40_000 * prob
    assert not seen[expected == 0].any()
    big = expected > 8
    if big.sum() > 1:
        a, b = seen[big], expected[big] * seen[big].sum() / expected[big].sum()
        assert stats.chisquare(a, b).pvalue > 1e-4


def test_long_grids_are_walked_in_blocks():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=60)
    want = tt.CountModel(logits, tt.exactly(20))
    model = tt.LinearModel(logits, np.full(60, -1.0), np.where(np.arange(61) == 40, 0.0, -np.inf), step=1.0)
    assert np.array_equal(model.mode(), want.mode())
    drawn = model.sample(4000, rng=0)
    assert (drawn.sum(1) == 20).all()
    np.testing.assert_allclose(drawn.mean(0), want.marginals, atol=0.05)
    assert float(model.entropy) == pytest.approx(float(want.entropy), abs=1e-9)


def test_given_values_are_those_of_enumeration_and_impossible_evidence_is_refused():
    rng = np.random.default_rng(4)
    logits, weights = rng.normal(size=D), np.arange(1.0, D + 1)
    model = tt.LinearModel(logits, weights, lambda x: -0.1 * x**2, step=1.0)
    score = STATES @ logits - 0.1 * (STATES @ weights) ** 2
    given = (STATES[:, 1] == 1) & (STATES[:, 3] == 0)
    np.testing.assert_allclose(
        model.condition({1: 1, 3: 0}).marginals, answers(np.where(given, score, -np.inf))[1], atol=1e-12
    )
    with pytest.raises(InfeasibleError, match="probability zero"):
        model.replace(logits=np.full(D, -np.inf)).condition({0: 1})
    with pytest.raises(ParameterError, match="`replace` takes"):
        model.replace(colour=1)


def test_a_thinned_model_without_variables_is_its_potential_at_zero():
    model = tt.ThinnedModel(np.zeros(0), np.zeros(0), [1.5])
    assert float(model.log_partition) == 1.5
    assert float(model.log_prob(np.zeros(0, int))) == 0.0
    assert model == tt.ThinnedModel(np.zeros(0), np.zeros(0), [1.5])
    assert model != tt.ThinnedModel(np.zeros(0), np.zeros(0), [2.5])
    assert model.sample(3, rng=0).shape == (3, 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore:`step`")
def test_bounds_contain_the_truth_of_the_real_weights(seed):
    rng = np.random.default_rng(seed)
    for trial in range(40):
        logits, weights = rng.normal(size=D), rng.normal(size=D) * rng.integers(0, 2, D).clip(0, 1)
        weights[0] = 1.0
        step = float(rng.choice([0.02, 0.1, 0.5]))
        model = tt.LinearModel(logits, weights, lambda x: 0.0 * x, step=step)
        table = rng.normal(size=len(model.values)) * rng.choice([0.1, 3.0])
        if trial % 3 == 0:
            table[: rng.integers(len(table))] = -np.inf
            table[-1] = 0.0
        model = model.replace(log_f=table)
        value = STATES @ weights
        typed = [Fraction(repr(float(w))) for w in weights]
        exact = [sum((w for w, y in zip(typed, state) if y), Fraction()) for state in STATES]
        # f between two points of the grid is one of its values there
        place = np.clip(np.round((value - model.values[0]) / step, 9), 0, len(table) - 1)
        which = np.unique(np.round(value, 9), return_inverse=True)[1]
        at = np.where(rng.random(len(place))[which] < 0.5, np.floor(place), np.ceil(place)).astype(int)
        score = STATES @ logits + table[at]
        if score.max() == -np.inf:
            continue
        log_z, marginals = answers(score)
        mass = np.exp(score - log_z)
        low, high = model.bracket("log_partition")
        assert low - 1e-10 <= log_z <= high + 1e-10
        low, high = model.bracket("marginals")
        assert np.all(low - 1e-10 <= marginals)
        assert np.all(marginals <= high + 1e-10)
        order, q = np.argsort(value), float(rng.random())
        for x in rng.choice(value, 3) + rng.choice([0.0, 1e-10, -1e-10, step / 3]):
            above = np.array([v > Fraction(repr(float(x))) for v in exact])
            for name, truth in (("sf", mass[above].sum()), ("cdf", mass[~above].sum())):
                low, high = model.total.bracket(name, x)
                assert low - 1e-10 <= truth <= high + 1e-10
        truth = value[order][np.searchsorted(np.cumsum(mass[order]), q)]
        low, high = model.total.bracket("value_at_risk", q)
        assert low - 1e-12 <= truth <= high + 1e-12
        low, high = model.bracket("mean")
        assert low - 1e-9 <= mass @ value <= high + 1e-9
        tail, worst = 1.0 - q, 0.0
        for i in order[::-1]:
            part = min(mass[i], tail)
            worst, tail = worst + part * value[i], tail - part
        low, high = model.total.bracket("expected_shortfall", q)
        assert low - 1e-8 <= worst / (1.0 - q) <= high + 1e-8


def test_bounds_meet_where_all_weights_are_on_the_grid():
    model = tt.LinearModel(np.zeros(3), [0.3, 0.7, -0.2], lambda x: -(x**2), step=0.1)
    assert model.grid_error == 0.0
    for question in ("log_partition", "log_expectation", "marginals"):
        low, high = model.bracket(question)
        np.testing.assert_allclose(low, getattr(model, question), rtol=1e-13)
        np.testing.assert_array_equal(low, high)
    assert model.bracket("sf", 0.3) == model.total.bracket("sf", 0.3)
    for question, *at in (("sf", 0.3), ("ppf", 0.5), ("mean",), ("expected_shortfall", 0.4)):
        low, high = model.total.bracket(question, *at)
        assert low == high == pytest.approx(getattr(model.total, question)(*at), rel=1e-12)


def test_the_sum_of_a_linear_model_has_a_shortfall_and_contributions():
    rng = np.random.default_rng(3)
    logits, weights = rng.normal(size=D), np.array([1.5, -0.5, 2.0, 0.5, 1.0])
    batch = np.stack([logits, -logits])
    model = tt.LinearModel(batch, weights, lambda x: np.sin(3 * x), step=0.5)
    plain = tt.PoissonBinomial(logits=batch, weights=weights, step=0.5)
    free = model.replace(log_f=np.zeros(len(model.values)))
    np.testing.assert_allclose(free.total.contributions(0.7), plain.contributions(0.7), atol=1e-12)
    for row, total, mean in zip(batch, model.total.contributions(0.7), model.total.expected_shortfall(0.7)):
        value = STATES @ weights
        score = STATES @ row + np.sin(3 * value)
        mass = np.exp(score - answers(score)[0])
        tail, shares = 0.3, np.zeros(D)
        for v in np.unique(value)[::-1]:
            here = value == v
            part = min(1.0, tail / mass[here].sum())
            shares, tail = (
                shares + part * (mass[here] @ (STATES[here] * weights)),
                tail - part * mass[here].sum(),
            )
        np.testing.assert_allclose(total, shares / 0.3, atol=1e-10)
        assert mean == pytest.approx(total.sum(), rel=1e-12)


def test_sums_of_wild_log_odds_announce_what_takes_quadratic_time(monkeypatch):
    from tallytree.engine import ladder

    monkeypatch.setattr(ladder, "_LONG", 0.1)
    n = 1000  # the undecided half moves in steps of ten, the other half at a price of millions
    far = np.arange(n) % 2 == 0
    logits = np.where(far, 1e6, 1.0) * np.random.default_rng(n).normal(size=n)
    weights = np.where(far, 1.0 + 2.0 * (np.arange(n) % 5), 10.0)
    model = tt.LinearModel(logits, weights, tt.exactly(2001).log_table(int(weights.sum())), step=1.0)
    with pytest.warns(tt.SlowWarning, match="A weighted sum needs a pass over"):
        assert np.isfinite(model.marginals).all()
