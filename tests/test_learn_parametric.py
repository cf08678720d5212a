"""Potentials with few parameters: tables and derivatives against differences, fits against enumeration, errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

import tallytree as tt
from oracle_states import all_states
from tallytree import learn
from tallytree.errors import ParameterError
from tallytree.learn import Parameter, parametric
from tallytree.learn.free import free_parameters
from tallytree.learn.objective import Objective

D = 6
ALL = all_states((2,) * D)

CASES = [
    (tt.noisy_or, {"rate": 0.3, "leak": 0.02}, {}),
    (tt.noisy_or, {"rate": 1e-9, "leak": 1e-12}, {}),
    (tt.noisy_or, {"rate": 0.999, "leak": 0.4}, {"t": 0}),
    (tt.noisy_or, {"rate": 0.3}, {"leak": 0.0}),
    (tt.noisy_and, {"rate": 0.2, "leak": 0.1}, {}),
    (tt.noisy_and, {"rate": 0.2}, {"leak": 0.0, "t": 0}),
    (tt.gaussian, {"mean": 2.5, "sd": 1.7}, {}),
    (tt.gaussian, {"mean": 0.4, "sd": 0.2}, {"fraction": True}),
    (tt.poisson, {"mean": 1.3}, {}),
    (tt.quadratic, {"curvature": -0.4, "center": 1.5}, {}),
    (tt.quadratic, {"curvature": 0.4}, {}),
    (tt.all_or_none, {"strength": 0.9}, {}),
    (tt.all_or_none, {"strength": 0.9}, {"truncation": 2.0}),
    (tt.geometric, {"ratio": 0.6}, {}),
    (tt.spike_and_slab, {"spike": 2.0, "slab": 0.5}, {}),
]
NAMES = [f"{factory.__name__}-{i}" for i, (factory, _, _) in enumerate(CASES)]


def made(factory, learned, settings):
    return parametric(factory, **{k: Parameter(f"my {k}", v) for k, v in learned.items()}, **settings)


def coordinates(potential):
    return {p.name: d.to_coordinate(p.start) for p, d in potential.ranges()}


@pytest.mark.parametrize(("factory", "learned", "settings"), CASES, ids=NAMES)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_tables_are_those_of_the_named_potential(factory, learned, settings, n):
    potential = made(factory, learned, settings)
    table, _ = potential.table(n, coordinates(potential))
    want = factory(**learned, **settings).log_table(n)
    np.testing.assert_allclose(table, want, rtol=1e-12, atol=1e-13)
    named = {f"my {name}": value for name, value in learned.items()}
    np.testing.assert_array_equal(potential.at(named).log_table(n), want)


@pytest.mark.parametrize(("factory", "learned", "settings"), CASES, ids=NAMES)
@pytest.mark.parametrize("n", [0, 1, 7])
def test_derivatives_match_differences(factory, learned, settings, n):
    if n == 0 and settings.get("leak") == 0.0:
        pytest.skip("an empty group has no cause")
    potential = made(factory, learned, settings)
    here = coordinates(potential)
    table, slopes = potential.table(n, here)
    assert set(slopes) == set(here)
    for name, slope in slopes.items():
        h = 1e-5
        up, down = (potential.table(n, here | {name: here[name] + s * h})[0] for s in (1, -1))
        possible = table > -np.inf
        difference = (up[possible] - down[possible]) / (2 * h)
        np.testing.assert_allclose(slope[possible], difference, rtol=2e-6, atol=1e-9)
        assert not slope[~possible].any()


def structure():
    groups = [tt.Group([0, 1, 2]), tt.Group([3, 4, 5]), tt.Group(None)]
    return tt.CountModel(np.linspace(-0.5, 0.7, D), groups)


def tied():
    """One strength for two groups of three, and a bell over all."""
    agree = parametric(tt.all_or_none, Parameter("strength", 0.5))
    bell = parametric(tt.gaussian, mean=Parameter("mean", 2.0), sd=Parameter("sd", 2.0))
    return [agree, agree, bell]


def enumerated(strength, mean, sd, logits):
    """Log-probabilities of all rows, by the formulas."""
    total = ALL @ logits
    for part in (ALL[:, :3].sum(1), ALL[:, 3:].sum(1)):
        total = total - strength * ((part > 0) & (part < 3))
    total = total - (ALL.sum(1) - mean) ** 2 / (2 * sd**2)
    return total - np.log(np.exp(total - total.max()).sum()) - total.max()


@pytest.mark.parametrize("logits", ["free", "fixed", "tied"])
def test_gradients_match_differences_of_the_enumerated_likelihood(logits):
    model, rng = structure(), np.random.default_rng(0)
    features = learn.CountFeatures(model.tree)
    free = free_parameters(model, features, logits, tied())
    weights = rng.random(len(ALL))
    objective = Objective(model, features, free, features.mean(ALL, weights))
    at = free.start + 0.2 * rng.normal(size=free.n_free)

    def by_hand(values):
        moved = np.asarray(model.logits) + (values[free.labels[:D]] if logits != "fixed" else 0.0)
        strength, mean, log_sd = values[free.n_linear :]
        law = enumerated(np.exp(strength), mean, np.exp(log_sd), moved)
        return -float(weights @ law) / weights.sum()

    value, gradient = objective.value_and_gradient(at)
    assert free.parametric.names == ["strength", "mean", "sd"]
    # tables are known up to a constant here: both sides are normalised
    assert value == pytest.approx(by_hand(at), abs=1e-12)
    np.testing.assert_allclose(gradient, optimize.approx_fprime(at, by_hand, 1e-7), atol=2e-6)


@pytest.mark.parametrize("method", ["auto", "newton-cg", "l-bfgs"])
def test_exact_probabilities_are_recovered(method):
    model, logits = structure(), np.linspace(-0.5, 0.7, D)
    weights = np.exp(enumerated(1.3, 3.1, 1.4, logits))
    found = learn.fit(model, ALL, weights=weights, logits="fixed", tables=tied(), method=method, tol=1e-9)
    assert found.converged
    assert found.parameters == pytest.approx({"strength": 1.3, "mean": 3.1, "sd": 1.4}, rel=1e-5)
    np.testing.assert_allclose(found.model.log_prob(ALL), np.log(weights), atol=1e-6)


def test_a_far_start_does_not_end_where_nothing_depends_on_the_parameter():
    rng = np.random.default_rng(0)
    truth = tt.CountModel(rng.normal(size=200), tt.gaussian(60, 8.0))
    rows = truth.sample(2000, rng=1)
    for mean, sd in ((100.0, 20.0), (10.0, 1.0), (60.0, 300.0)):
        bell = parametric(tt.gaussian, Parameter("mean", mean), Parameter("sd", sd))
        found = learn.fit(truth, rows, logits="fixed", tables=bell)
        assert found.log_likelihood >= float(np.mean(truth.log_prob(rows)))
        assert found.parameters["mean"] == pytest.approx(60.0, abs=4.0)


def test_a_noisy_or_rate_is_learned_with_excluded_counts_kept():
    logits = np.linspace(-1.0, 0.5, D)
    c = ALL.sum(1)
    with np.errstate(divide="ignore"):
        log_weight = ALL @ logits + np.where(c <= 4, np.log(1.0 - 0.75**c), -np.inf)
    weights = np.exp(log_weight)
    model = tt.CountModel(logits, np.array([0.0] * 5 + [-np.inf] * 2))
    rate = parametric(tt.noisy_or, Parameter("rate", 0.9))
    found = learn.fit(model, ALL, weights=weights, logits="fixed", tables=rate, tol=1e-10)
    assert found.parameters["rate"] == pytest.approx(0.25, rel=1e-4)
    np.testing.assert_array_equal(np.isneginf(found.model.tables[0]), [True] + [False] * 4 + [True] * 2)


def test_a_function_of_ones_own():
    def rising(n, slope, power):
        c = np.arange(n + 1.0)
        return slope * c**power, {"slope": c**power}

    own = parametric(rising, slope=Parameter("s", 0.1), power=2)
    logits = np.linspace(-1.0, 0.5, D)
    weights = np.exp(ALL @ logits - 0.3 * ALL.sum(1) ** 2)
    found = learn.fit(
        tt.CountModel(logits, np.zeros(D + 1)), ALL, weights=weights, logits="fixed", tables=own
    )
    assert found.parameters == pytest.approx({"s": -0.3}, abs=1e-5)
    with pytest.raises(ParameterError, match="`at` is for named potentials"):
        own.at(found.parameters)


def test_errors_say_what_to_do():
    model = structure()

    def wrong_shape(n, a):
        return np.zeros(n), {"a": np.zeros(n + 1)}

    def moving_zeros(n, a):
        table = a * np.arange(n + 1.0)
        table[0] = 0.0 if a > 0.5 else -np.inf
        return table, {"a": np.arange(n + 1.0)}

    p = Parameter("a", 0.4)
    for call, text in (
        (lambda: Parameter("", 1.0), "`name`"),
        (lambda: Parameter("a", np.nan), "`start` of parameter `a`"),
        (lambda: parametric(tt.exactly, p), "exactly arrived, which has no derivatives"),
        (lambda: parametric(tt.noisy_or, 0.5), "at least one Parameter"),
        (lambda: parametric(tt.noisy_or, Parameter("r", 1.0)), "between 0 and 1, ends excluded; 1.0 arrived"),
        (lambda: parametric(tt.noisy_or, p, 2.0), "`leak` of `noisy_or`"),
        (lambda: parametric(tt.noisy_or, p, t=Parameter("t", 1.0)), "`t` of `noisy_or` cannot be learned"),
        (lambda: parametric(tt.noisy_or, p, speed=1), "arguments of its factory"),
        (lambda: parametric(3, p), "`factory` must"),
        (
            lambda: learn.fit(model, ALL, tables=parametric(wrong_shape, p)),
            r"shape \(4,\); an array of shape \(3,\)",
        ),
        (lambda: learn.fit(model, ALL, tables=["free", p, "free"]), "`tables` must be"),
    ):
        with pytest.raises(ParameterError, match=text):
            call()
    starts = [parametric(tt.poisson, Parameter("a", x)) for x in (1.0, 2.0)]
    ranges = [parametric(tt.poisson, p), parametric(tt.noisy_or, p)]
    for pair in (starts, ranges):
        with pytest.raises(ParameterError, match="two names"):
            learn.fit(model, ALL, tables=[*pair, "fixed"])
    tables = ["fixed", "fixed", parametric(moving_zeros, p)]
    with pytest.raises(ParameterError, match="same counts"):
        learn.fit(model, ALL, weights=ALL.sum(1) ** 3.0, tables=tables, logits="fixed")
    with pytest.raises(ParameterError, match="probability zero"):
        learn.fit(model, ALL, tables=["fixed", "fixed", parametric(tt.noisy_or, p)])
