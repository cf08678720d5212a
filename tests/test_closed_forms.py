"""Sums of powers f(c) = sum_j a_j r_j^c in the compiled engine, against products in high precision."""

import mpmath
import numpy as np
import pytest

import tallytree as tt
from tallytree import config
from tallytree.engine import native, thresholds

_native = pytest.importorskip("tallytree._native")
LEVELS = _native.levels()


def high_precision(nu, coefficients, rates, digits=60):
    """log E f and all messages, from products over the variables."""
    with mpmath.workdps(digits):
        on = [
            mpmath.mpf(1) if x == np.inf else mpmath.exp(mpmath.mpf(x)) / (1 + mpmath.exp(mpmath.mpf(x)))
            for x in nu.tolist()
        ]
        factor = [[1 - p + p * mpmath.mpf(r) for p in on] for r in rates]
        product = [mpmath.fprod(row) for row in factor]
        total = mpmath.fsum(mpmath.mpf(a) * w for a, w in zip(coefficients, product))
        message = []
        for i in range(len(nu)):
            share = [mpmath.mpf(a) * w / row[i] for a, w, row in zip(coefficients, product, factor)]
            up = mpmath.fsum(s * mpmath.mpf(r) for s, r in zip(share, rates))
            message.append(float(mpmath.log(up / mpmath.fsum(share))))
        return float(mpmath.log(total)), np.array(message)


MIXTURES = {
    "geometric": ([1.0], [0.3]),
    "steep": ([1.0], [1e-4]),
    "rewarding": ([2.0], [40.0]),
    "noisy-or": ([1.0, -1.0], [1.0, 0.9]),
    "noisy-or with leak": ([1.0, -0.7], [1.0, 0.5]),
    "parity": ([0.5, 0.5], [1.0, -1.0]),
    "spike": ([3.0, 1.0], [0.0, 1.0]),
    "three positive": ([1.0, 0.3, 2.0], [0.99, 1.0, 1.01]),
    "signs": ([1.0, -0.2, 0.1, -0.05], [1.0, 0.8, 0.6, -0.4]),
    "one term far below": ([1.0, 1e-300], [1.0, 2.0]),
}


def logits(kind, n):
    rng = np.random.default_rng(3)
    if kind == "equal":
        return np.full(n, -0.7)
    if kind == "extreme":
        return np.where(rng.random(n) < 0.1, rng.normal(size=n) * 300, rng.normal(size=n))
    x = rng.normal(size=n)
    if kind == "infinite":
        x[:3], x[3:5] = -np.inf, np.inf
    return x


@pytest.mark.parametrize("kind", ["normal", "equal", "extreme", "infinite"])
@pytest.mark.parametrize("name", MIXTURES)
def test_certified_answers_are_right(name, kind):
    coefficients, rates = (np.array(part) for part in MIXTURES[name])
    nu = logits(kind, 600)
    found = _native.flat_solve_powers(nu[None], coefficients, rates)
    log_mean, softplus, bound = found.totals()[:, 0]
    if name == "rewarding" and kind == "extreme":
        assert bound <= 1e-9  # a positive form never fails
    if bound == np.inf:
        assert np.isnan(found.marginals()).all()
        return
    expected, message = high_precision(nu, coefficients, rates)
    assert bound <= 1e-9
    assert abs(log_mean - expected) <= bound + 8 * np.spacing(abs(expected) + softplus)
    got = found.messages()[0]
    assert np.max(np.abs(got - message)) <= bound + 4 * np.spacing(np.abs(message).max())
    with np.errstate(over="ignore"):
        marginal = 1 / (1 + np.exp(-(nu + np.where(np.isinf(nu), 0.0, message))))
    np.testing.assert_allclose(found.marginals()[0], marginal, rtol=1e-12, atol=1e-300)


def random_form(rng):
    terms, n = int(rng.integers(1, 9)), int(rng.integers(1, 200))
    rates = [
        rng.uniform(0, 1, terms), rng.uniform(-1, 1, terms), np.exp(rng.normal(size=terms)), rng.normal(1, 1e-3, terms),
    ][rng.integers(4)]  # fmt: skip
    rates[0] = 1.0 if rng.random() < 0.3 else rates[0]
    rates[-1] = 0.0 if rng.random() < 0.1 else rates[-1]
    coefficients = np.exp(rng.normal(0, rng.choice([0.5, 5.0, 100.0]), terms))
    if rng.random() < 0.6:
        coefficients *= rng.choice([-1, 1], terms)
    nu = rng.normal(rng.choice([-30, -3, 0, 3, 30]), rng.choice([0.1, 1, 10, 200]), n)
    if rng.random() < 0.2:
        nu[:] = nu[0]  # rounding errors that all point the same way
    if rng.random() < 0.2:
        nu[rng.random(n) < 0.2] = rng.choice([-np.inf, np.inf])
    return nu, coefficients, rates


def test_the_bound_covers_the_error_of_random_forms():
    certified = 0
    for seed in range(150):
        nu, coefficients, rates = random_form(np.random.default_rng([9, seed]))
        found = _native.flat_solve_powers(nu[None], coefficients, rates)
        log_mean, softplus, bound = found.totals()[:, 0]
        if bound == np.inf:
            continue
        certified += 1
        expected, message = high_precision(nu, coefficients, rates, digits=300)
        got = found.messages()[0]
        assert abs(log_mean - expected) <= bound + 8 * np.spacing(abs(expected) + softplus + 1), seed
        assert np.max(np.abs(got - message)) <= bound + 4 * np.spacing(np.abs(message).max()), seed
    assert certified > 60


@pytest.mark.parametrize("name", ["geometric", "noisy-or", "parity", "spike", "three positive"])
def test_usual_logits_are_certified(name):
    coefficients, rates = (np.array(part) for part in MIXTURES[name])
    found = _native.flat_solve_powers(logits("normal", 5000)[None], coefficients, rates)
    assert found.totals()[2, 0] < 1e-11


def test_what_may_cancel_is_left_to_the_solver():
    nu = np.full((1, 600), -30.0)
    found = _native.flat_solve_powers(nu, np.array([1.0, -1.0]), np.array([1.0, 0.9]))
    assert found.totals()[2, 0] == np.inf
    model = tt.CountModel(nu[0], tt.noisy_or(0.1))
    # One variable is on, and each is as likely: 600 e^-30 0.1 / (1 + e^-30)^600 and smaller terms.
    np.testing.assert_allclose(model.marginals, np.full(600, 1 / 600), rtol=1e-9)
    hole = np.append(np.zeros(1), np.ones(599))
    assert (
        _native.flat_solve_powers(hole[None], np.array([0.5, 0.5]), np.array([1.0, -1.0])).totals()[2, 0]
        == np.inf
    )
    even = tt.CountModel(hole, tt.parity("even"))
    np.testing.assert_allclose(even.posterior_logits, hole, atol=1e-9)


def test_rows_of_a_batch_fall_back_one_by_one():
    rng = np.random.default_rng(5)
    nu = rng.normal(size=(5, 700))
    nu[2] = -30.0
    nu[4, 0] = np.inf
    batch = tt.CountModel(nu, tt.noisy_or(0.1))
    for row in range(5):
        alone = tt.CountModel(nu[row], tt.noisy_or(0.1).log_table(700))
        np.testing.assert_allclose(batch.posterior_logits[row], alone.posterior_logits, rtol=1e-10, atol=1e-9)
        assert batch.log_partition[row] == pytest.approx(alone.log_partition, rel=1e-12)


def test_threads_and_levels():
    nu = np.random.default_rng(6).normal(size=(3, 100_000))
    coefficients, rates = np.array([1.0, -0.7]), np.array([1.0, 0.99])
    first = _native.flat_solve_powers(nu, coefficients, rates, threads=1)
    again = _native.flat_solve_powers(nu, coefficients, rates, threads=3)
    np.testing.assert_array_equal(first.totals(), again.totals())
    np.testing.assert_array_equal(first.marginals(), again.marginals())
    for level in LEVELS:
        other = _native.flat_solve_powers(nu, coefficients, rates, level=level)
        np.testing.assert_allclose(other.totals()[:2], first.totals()[:2], rtol=1e-14)
        np.testing.assert_allclose(other.messages(), first.messages(), atol=1e-14)


@pytest.mark.parametrize(
    "potential",
    [tt.geometric(0.3), tt.noisy_or(0.1), tt.noisy_or(0.3, leak=0.2, t=0), tt.parity("odd"), tt.spike_and_slab(5.0),
     tt.exponential_mixture([1.0, 0.5], [0.9, 1.1]), tt.modulo(3, 1), tt.uniform()],
    ids=repr,
)  # fmt: skip
def test_auto_takes_the_closed_form_and_agrees_with_the_table(potential):
    nu = np.random.default_rng(7).normal(size=900)
    model, by_table = tt.CountModel(nu, potential), tt.CountModel(nu, potential.log_table(900))
    np.testing.assert_allclose(model.posterior_logits, by_table.posterior_logits, rtol=1e-10, atol=1e-9)
    assert model.log_partition == pytest.approx(by_table.log_partition, rel=1e-12)
    np.testing.assert_allclose(model.marginals, by_table.marginals, rtol=1e-9)


def test_auto_uses_it_where_it_exists(monkeypatch):
    if config.native() is None:
        pytest.skip("the array engine is in use")
    calls = []
    original = native.closed_form
    monkeypatch.setattr(native, "closed_form", lambda *a: calls.append(1) or original(*a))
    _ = tt.CountModel(np.zeros(1000), tt.geometric(0.5)).marginals
    assert calls == [1]
    _ = tt.CountModel(np.zeros(1000), tt.modulo(3)).marginals  # complex terms: the solver
    _ = tt.CountModel(np.zeros(50), tt.geometric(0.5)).marginals  # small: a direct tree
    assert calls == [1]
    assert not thresholds.uses_mixtures("tree", 1000)


def test_refuses_what_it_cannot_serve():
    with pytest.raises(ValueError, match="same length"):
        _native.flat_solve_powers(np.zeros((1, 3)), np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="1 to 8"):
        _native.flat_solve_powers(np.zeros((1, 3)), np.ones(9), np.ones(9))
    assert not native.has_closed_form(np.ones(1), np.array([-2.0]))
    assert not native.has_closed_form(np.ones(1), np.array([1j]))
    assert _native.flat_solve_powers(np.zeros((1, 0)), np.ones(1), np.ones(1)).totals()[2, 0] == np.inf


def test_long_steep_tables_are_certified_by_the_solver():
    # Cutting the counts into segments cannot undo the rounding of a table of 10^5 nats; it must not be tried for ever.
    n = 1 << 19
    nu = np.random.default_rng(0).normal(size=(1, n))
    found = _native.flat_solve(nu, tt.geometric(0.3).log_table(n)[None])
    assert found.totals()[2, 0] < 1e-9
    message = found.messages()
    np.testing.assert_allclose(message, np.log(0.3), atol=1e-9)
