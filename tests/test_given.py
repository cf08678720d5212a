"""A weighted sum given its value or a range, and both tails of it, against high-precision arithmetic."""

from __future__ import annotations

import copy
import pickle
from itertools import product

import mpmath
import numpy as np
import pytest

import tallytree as tt
from helpers import few

DIGITS = 60


def exact_probability(logit):
    """P(y = 1) and P(y = 0) in high precision."""
    if np.isinf(logit):
        return mpmath.mpf(int(logit > 0)), mpmath.mpf(int(logit < 0))
    on = 1 / (1 + mpmath.exp(-mpmath.mpf(float(logit))))
    return on, 1 / (1 + mpmath.exp(mpmath.mpf(float(logit))))


def exact_pmf(logits, weights):
    """Probabilities of all sums, by adding one variable after the other."""
    pmf = {0: mpmath.mpf(1)}
    for logit, w in zip(logits, weights, strict=True):
        on, off = exact_probability(logit)
        grown: dict[int, mpmath.mpf] = {}
        for total, mass in pmf.items():
            for moved, factor in ((total, off), (total + int(w), on)):
                if factor:
                    grown[moved] = grown.get(moved, mpmath.mpf(0)) + mass * factor
        pmf = grown
    return pmf


def check_against_enumeration(logits, weights, low, high):
    """Posterior log-odds and the probability of the event, or that it is impossible."""
    likelihood = {(i, v): mpmath.mpf(0) for i in range(len(logits)) for v in (0, 1)}
    for y in product((0, 1), repeat=len(logits)):
        if low <= sum(w * v for w, v in zip(weights, y, strict=True)) <= high:
            mass = mpmath.mpf(1)
            for logit, v in zip(logits, y, strict=True):
                mass *= exact_probability(logit)[0 if v else 1]
            for i, v in enumerate(y):
                likelihood[i, v] += mass
    total = likelihood[0, 0] + likelihood[0, 1]
    x = tt.PoissonBinomial(logits=logits, weights=weights)
    if total == 0:
        with pytest.raises(tt.InfeasibleError, match="positive probability"):
            x.given(low=low, high=high)
        return
    found = x.given(low=low, high=high)
    assert found.event_log_prob == pytest.approx(float(mpmath.log(total)), rel=1e-12, abs=1e-12)
    for i, got in enumerate(found.posterior_logits):
        on, off = likelihood[i, 1], likelihood[i, 0]
        want = np.inf if not off else -np.inf if not on else float(mpmath.log(on / off))
        assert got == pytest.approx(want, rel=1e-11, abs=1e-11)
        assert found.marginals[i] == pytest.approx(float(on / total), rel=1e-11)


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0, 3000.0])
def test_inclusion_probabilities_match_enumeration(scale):
    rng = np.random.default_rng(int(scale))
    with mpmath.workdps(DIGITS):
        for _ in range(40):
            n = int(rng.integers(1, 7))
            logits = rng.normal(size=n) * scale
            if rng.random() < 0.3:
                logits[rng.integers(n)] = rng.choice([-np.inf, np.inf])
            low, high = sorted(rng.integers(-9, 10, size=2).tolist())
            weights = rng.integers(-4, 5, size=n)
            weights[0] += not weights.any()  # all 0 are refused
            check_against_enumeration(logits.tolist(), weights.tolist(), low, high)


def test_without_weights_it_is_the_count_model():
    logits = np.random.default_rng(1).normal(size=(2, 500))
    x = tt.PoissonBinomial(logits=logits)
    model = tt.CountModel(logits, tt.between(300, 310))
    found = x.given(low=300, high=310)
    np.testing.assert_allclose(found.posterior_logits, model.posterior_logits, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.count_log_probs, model.count_log_probs(), rtol=1e-8)
    np.testing.assert_allclose(x.given(7).marginals.sum(-1), 7, rtol=1e-10)
    doubled = tt.PoissonBinomial(logits=logits, weights=np.full(500, -2)).given(low=-620, high=-600)
    np.testing.assert_allclose(doubled.posterior_logits, model.posterior_logits, rtol=1e-9, atol=1e-9)


def test_expected_weights_add_up_to_the_mean():
    rng = np.random.default_rng(2)
    weights = rng.integers(1, 60, size=51)
    given = tt.PoissonBinomial(rng.random(51), weights=weights).given(low=int(weights.sum()) // 2)
    assert given.marginals @ weights == pytest.approx(given.mean(), rel=1e-12)
    assert given.cdf(given.support()[0] - 1) == 0.0
    assert given.sf(weights.sum()) == 0.0
    assert given.expect(lambda k: np.ones(len(k))) == pytest.approx(1.0, rel=1e-12)
    drawn = given.rvs(4000, random_state=0)
    assert drawn.min() >= given.support()[0]
    assert drawn.mean() == pytest.approx(given.mean(), abs=5 * given.std() / 63)


def test_batches_have_events_of_their_own():
    p, weights = np.random.default_rng(4).random((3, 5)), [1, 2, 3, 4, 5]
    x = tt.PoissonBinomial(p, weights=weights)
    found = x.given([3, 7, 11])
    for i, value in enumerate((3, 7, 11)):
        one = tt.PoissonBinomial(p[i], weights=weights).given(value)
        np.testing.assert_allclose(found.posterior_logits[i], one.posterior_logits, rtol=1e-13)
        assert found.event_log_prob[i] == pytest.approx(one.event_log_prob, rel=1e-13)
        assert found.mean()[i] == value
    assert tt.PoissonBinomial(np.zeros((0, 2)), weights=[1, 2]).given(1).marginals.shape == (0, 2)
    assert tt.PoissonBinomial([]).given(0).marginals.shape == (0,)
    assert x.given(low=2).marginals.shape == (3, 5)


def test_given_is_frozen_picklable_comparable():
    x = tt.PoissonBinomial([0.1, 0.5], weights=[1, 3]).given(low=1, high=3)
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert again == x
        assert hash(again) == hash(x)
        assert np.array_equal(again.marginals, x.marginals)
    assert x != tt.PoissonBinomial([0.1, 0.5], weights=[1, 3]).given(low=1)
    assert repr(x) == "ConditionalPoissonBinomial(n=2, 1 <= X <= 3)"
    with pytest.raises(AttributeError, match="frozen"):
        x.n = 3


def test_evidence_about_variables_makes_another_sum():
    x = tt.PoissonBinomial([0.1, 0.5, 0.9], weights=[2, -3, 4])
    given = x.condition({0: 1, 1: 0})
    assert given.support() == (2, 6)
    assert given.pmf([2, 6]) == pytest.approx([0.1, 0.9], rel=1e-14)
    with pytest.raises(tt.ParameterError, match="between 0 and 1, the value of a variable; 2"):
        x.condition({0: 2})
    with pytest.raises(tt.ParameterError, match="between 0 and 2"):
        x.condition({7: 1})
    with pytest.raises(tt.ParameterError, match=r"Mapping from 0 \.\.\. \d+ to 0 \.\.\. 1"):
        x.condition([1, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.given(), r"given\(low=3, high=7\)"),
        (lambda x: x.given(1, low=0), "both arrived"),
        (lambda x: x.given(1.5), "`value` must be an array of integers"),
        (lambda x: x.given("a"), "`value` must be an array of integers"),
        (lambda x: x.given(low=3, high=2), "`low` must not exceed `high`"),
        (lambda x: x.given([1, 2]), "does not broadcast"),
        (lambda x: x.given(np.nan), "NaN"),
    ],
)
def test_wrong_events_say_what_to_do(call, message):
    with pytest.raises(tt.ParameterError, match=message):
        call(tt.PoissonBinomial([0.1, 0.5], weights=[1, 3]))


def test_an_impossible_sum_is_infeasible_and_says_what_is_possible():
    x = tt.PoissonBinomial([0.5, 0.5], weights=[2, 4])
    with pytest.raises(
        tt.InfeasibleError, match="X = 3 has none: the sum lies between 0 and 6, in steps of 2"
    ):
        x.given(3)
    with pytest.raises(tt.InfeasibleError, match=r"7 <= X has none at batch index \(1,\)"):
        tt.PoissonBinomial(np.array([[0.5] * 7, [0.5] * 6 + [0.0]])).given(low=7)


# -- tails ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", few([0.5, 5.0, 60.0], keep=2))
@pytest.mark.parametrize("kind", ["plain", "weighted", "signed"])
def test_both_tails_have_relative_accuracy(scale, kind):
    rng = np.random.default_rng(5)
    n = 60
    logits = rng.normal(size=n) * scale
    weights = {
        "plain": np.ones(n, np.int64),
        "weighted": rng.integers(1, 30, size=n),
        "signed": rng.integers(-9, 10, size=n),
    }[kind]
    x = tt.PoissonBinomial(logits=logits, weights=None if kind == "plain" else weights)
    with mpmath.workdps(DIGITS + int(30 * scale)):
        pmf = exact_pmf(logits, weights)
        order = sorted(pmf)
        below, above = mpmath.mpf(0), mpmath.mpf(0)
        logs = {"logpmf": {}, "logcdf": {}, "logsf": {}}
        for k in order:
            below += pmf[k]
            logs["logpmf"][k], logs["logcdf"][k] = mpmath.log(pmf[k]), mpmath.log(below)
        for k in reversed(order):
            logs["logsf"][k] = mpmath.log(above) if above else -mpmath.inf
            above += pmf[k]
        for name, wanted in logs.items():
            # the sums next to certainty have logarithms of almost 0: relative accuracy there too
            want = np.array([float(wanted[k]) for k in order])
            if name == "logcdf":
                want[-1] = 0.0
            np.testing.assert_allclose(getattr(x, name)(order), want, rtol=1e-11, atol=0.0)
            direct = {"logpmf": x.pmf, "logcdf": x.cdf, "logsf": x.sf}[name](order)
            np.testing.assert_allclose(direct, np.exp(want), rtol=3e-11 + 1e-15 * 700, atol=1e-307)


# -- more of what is known ---------------------------------------------------------------------------------------


def enumerated(logits, weights, low, high, evidence):
    """Probabilities of the sums and of the variables given a range and some values, and that of the range."""
    likely = np.ones(len(logits))
    masses, values = [], []
    for y in product((0, 1), repeat=len(logits)):
        total = sum(int(w) * v for w, v in zip(weights, y, strict=True))
        if any(y[i] != v for i, v in evidence.items()):
            continue
        mass = mpmath.mpf(1)
        for i, (logit, v) in enumerate(zip(logits, y, strict=True)):
            if i not in evidence:
                mass *= exact_probability(logit)[0 if v else 1]
        masses.append((total, mass if low <= total <= high else mpmath.mpf(0)))
        values.append(y)
    event = mpmath.fsum(mass for _, mass in masses)
    pmf: dict[int, mpmath.mpf] = {}
    for total, mass in masses:
        pmf[total] = pmf.get(total, mpmath.mpf(0)) + mass / event
    for i in range(len(logits)):
        likely[i] = float(mpmath.fsum(m for (_, m), y in zip(masses, values, strict=True) if y[i]) / event)
    return {k: float(p) for k, p in pmf.items()}, likely, float(mpmath.log(event))


@pytest.mark.parametrize("weights", [[1, 1, 1, 1, 1], [2, -1, 3, 1, 0]])
@pytest.mark.parametrize("logits", [[0.3, -1.0, 2.0, 0.0, -40.0], [60.0, -55.0, 0.2, np.inf, 1.0]])
def test_ranges_and_values_add_up_in_any_order(logits, weights):
    x = tt.PoissonBinomial(logits=logits, weights=weights)
    evidence = {2: 0}
    pmf, likely, event = enumerated(logits, weights, 1, 3, evidence)
    ways = (
        x.given(low=1).given(high=3).condition(evidence),
        x.given(high=3).condition(evidence).given(low=1),
        x.condition(evidence).given(low=1, high=3).given(low=-5),
        x.given(low=1, high=3).condition(evidence).given(high=100),
    )
    for known in ways:
        assert known == ways[0]
        assert known.event_log_prob == pytest.approx(event, rel=1e-10, abs=1e-12)
        np.testing.assert_allclose(known.marginals, likely, rtol=1e-9, atol=1e-300)
        for total, probability in pmf.items():
            assert known.pmf(total) == pytest.approx(probability, rel=1e-9, abs=1e-300)
        assert known.before == x.condition(evidence)
    with mpmath.workdps(DIGITS):
        both, first = x.given(low=1).given(high=3).event_log_prob, x.given(low=1).event_log_prob
        assert both == pytest.approx(first + float(np.log(x.given(low=1).cdf(3))), rel=1e-10, abs=1e-12)


def test_a_batch_is_narrowed_member_by_member():
    x = tt.PoissonBinomial(np.random.default_rng(0).random((3, 6)))
    known = x.given(low=[1, 2, 0]).given(high=[4, 3, 5])
    for b in range(3):
        alone = tt.PoissonBinomial(x.probs[b]).given(low=[1, 2, 0][b], high=[4, 3, 5][b])
        np.testing.assert_allclose(known.marginals[b], alone.marginals, rtol=1e-12)
    assert x.given(low=1).given([2, 3, 4]) == x.given([2, 3, 4]).given(high=[6, 6, 6])


def test_what_contradicts_the_range_is_refused():
    known = tt.PoissonBinomial([0.5, 0.5, 0.5]).given(low=2)
    with pytest.raises(tt.InfeasibleError, match="positive probability"):
        known.given(1)
    with pytest.raises(tt.InfeasibleError, match="positive probability"):
        known.condition({0: 0, 1: 0})
    with pytest.raises(tt.ParameterError, match="needs to know what is given"):
        known.given()
    with pytest.raises(tt.ParameterError, match="integers"):
        known.given(2.5)
    with pytest.raises(tt.ParameterError):
        known.condition({7: 1})
