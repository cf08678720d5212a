"""Sums of weighted events: windows, tilts and FFT merges against exact arithmetic, and what risk analysts ask."""

from __future__ import annotations

import math
import pickle
import warnings
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy import stats

import tallytree as tt
from tallytree.engine.pmf import sums, tree
from tallytree.engine.pmf.events import (
    Events,
    Weight,
    log_outcomes,
    shared_between_cells,
    tilt_to,
    to_lattice,
    weight_of_table,
)
from tallytree.engine.pmf.sums import SumLaw, expectation, log_table


@pytest.fixture
def windows(monkeypatch):
    """Short sums take the way of long ones."""
    monkeypatch.setattr(sums, "SHORT", 1)
    monkeypatch.setattr(sums, "FEW", 1)
    monkeypatch.setattr(tree, "DIRECT", 3)


def rational_events(probs, values):
    """Laws of events as {value: Fraction}; the probabilities are floats, taken as they are."""
    return [
        {int(v): sum((Fraction(float(q)) for q, u in zip(p, row) if u == v), Fraction(0)) for v in set(row)}
        for p, row in zip(probs, values)
    ]


def rational_law(events):
    law = {0: Fraction(1)}
    for event in events:
        grown: dict[int, Fraction] = {}
        for total, mass in law.items():
            for value, p in event.items():
                if p:
                    grown[total + value] = grown.get(total + value, Fraction(0)) + mass * p
        law = grown
    return law


def log_fraction(x):
    with mpmath.workdps(40):
        return float(mpmath.log(mpmath.mpf(x.numerator) / x.denominator)) if x else -math.inf


def binary(p, weights):
    """Events whose probabilities are floats p and 1 - p, the latter exactly."""
    nu = np.log(p) - np.log1p(-p)
    values, _ = to_lattice(np.stack([0 * weights, weights], 1))
    return Events(log_outcomes(nu)[None], values)


def dyadic(rng, n, small=1.0):
    """Probabilities with few bits, so that 1 - p is exact."""
    return rng.integers(1, 1 << 10, size=n) / float(1 << 10) * small


@pytest.mark.parametrize("seed", range(12))
def test_windows_are_certified_and_right_against_fractions(seed, windows):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 40))
    weights = rng.integers(1, [3, 9, 60][seed % 3], size=n)
    p = dyadic(rng, n, [1.0, 2.0**-5][seed % 2])
    law = rational_law(rational_events(np.stack([1 - p, p], 1), np.stack([0 * weights, weights], 1)))
    events = binary(p, weights)
    unit = int(np.gcd.reduce(weights))
    cells = np.unique(rng.choice(np.array(sorted(law)) // unit, 30))
    found = SumLaw(events)
    want = np.array([log_fraction(law[k * unit]) for k in cells.tolist()])
    np.testing.assert_allclose(found.ask("at", cells), want, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(log_table(events)[0, cells], want, rtol=1e-10, atol=1e-10)
    above = [log_fraction(sum(m for k, m in law.items() if k >= c * unit)) for c in cells.tolist()]
    np.testing.assert_allclose(found.ask("above", cells), above, rtol=1e-10, atol=1e-10)
    below = [log_fraction(sum(m for k, m in law.items() if k <= c * unit)) for c in cells.tolist()]
    np.testing.assert_allclose(found.ask("below", cells), below, rtol=1e-10, atol=1e-10)


def enumerated(p, weights, log_f):
    """Log E[f] and log-probabilities of every event given f, with 60 digits."""
    n = len(p)
    total, on = mpmath.mpf(0), [mpmath.mpf(0)] * n
    with mpmath.workdps(60):
        for y in product((0, 1), repeat=n):
            value = log_f(sum(int(w) for w, v in zip(weights, y) if v))
            if value == -math.inf:
                continue
            mass = mpmath.exp(value)
            for q, v in zip(p, y):
                mass *= mpmath.mpf(q) if v else 1 - mpmath.mpf(q)
            total += mass
            on = [a + mass if v else a for a, v in zip(on, y)]
        odds = [
            math.inf if a == total else -math.inf if not a else float(mpmath.log(a) - mpmath.log(total - a))
            for a in on
        ]
        return (float(mpmath.log(total)) if total else -math.inf), odds


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["above", "below", "at", "rough"])
def test_leave_one_out_sums_are_right_against_enumeration(seed, kind, windows):
    rng = np.random.default_rng(seed)
    n = 9
    weights = rng.integers(1, 30, size=n)
    p = dyadic(rng, n, [1.0, 2.0**-8][seed % 2])
    events, most = binary(p, weights), int(weights.sum())
    unit = int(np.gcd.reduce(weights))
    low, high = 0, most
    table = None
    if kind == "above":
        low = int(0.8 * most)
    elif kind == "below":
        high = int(weights.min() * 2)
    elif kind == "at":
        low = high = int(rng.permutation(weights)[:4].sum())
    else:
        table = rng.normal(size=(1, most // unit + 1)) * 20.0
    weight = (
        Weight(np.array([-(-low // unit)]), np.array([high // unit]))
        if table is None
        else weight_of_table(table)
    )

    def log_f(k):
        return float(table[0, k // unit]) if table is not None else 0.0 if low <= k <= high else -math.inf

    want, odds = enumerated(p.tolist(), weights, log_f)
    found = expectation(events, weight, outcomes=True)
    assert found.log_mean[0] == pytest.approx(want, rel=1e-10, abs=1e-10)
    got = found.log_outcomes[0, :, 1] - found.log_outcomes[0, :, 0]
    np.testing.assert_allclose(got, odds, rtol=1e-10, atol=1e-9)


def test_a_heavy_event_leaves_the_others_their_tails():
    # one weight of 100,000 beside 1,500 of weight one: the tail of the ones below it is no tilt's mean
    n = 1500
    p = np.append(np.full(n, 0.25), 2.0**-70)
    weights = np.append(np.ones(n, np.int64), 100_000)
    x = tt.PoissonBinomial(p, weights=weights)
    ones = tt.PoissonBinomial(np.full(n, 0.25))
    k = np.array([0, 300, 375, 600, 900, 1500])
    np.testing.assert_allclose(x.logpmf(k), ones.logpmf(k), rtol=1e-10, atol=1e-10)
    assert x.logpmf([1501, 50_000, 99_999]).tolist() == [-math.inf] * 3
    np.testing.assert_allclose(
        x.logpmf(100_000 + k), ones.logpmf(k) - 70 * math.log(2.0), rtol=1e-10, atol=1e-10
    )
    # P(X >= 700) comes from the ones at 1e-80 and from the heavy event at 1e-21
    assert x.logsf(699) == pytest.approx(-70 * math.log(2.0), abs=1e-9)
    only = x.given(low=700, high=99_999)
    assert only.event_log_prob == pytest.approx(float(ones.logsf(699)), rel=1e-10)
    assert only.marginals[-1] == 0.0
    np.testing.assert_allclose(only.marginals[:n], ones.given(low=700).marginals, rtol=1e-9)


def pareto_portfolio(n, seed=0):
    rng = np.random.default_rng(seed)
    exposure = rng.pareto(1.8, n) + 0.1
    return np.exp(rng.normal(np.log(0.012), 0.7, n)), exposure


def independent_tree(laws):
    """A plain tree of NumPy FFTs on full supports."""
    laws = sorted(laws, key=len)
    while len(laws) > 1:
        merged = []
        for a, b in zip(laws[::2], laws[1::2]):
            size = len(a) + len(b) - 1
            merged.append(np.fft.irfft(np.fft.rfft(a, size + 1) * np.fft.rfft(b, size + 1), size + 1)[:size])
        laws = merged + laws[2 * len(merged) :]
    return laws[0]


def mean_preserving(p, weight, step):
    """The law of one event on the grid, written down from the definition."""
    place = weight / step
    down = math.floor(place)
    law = np.zeros(down + 2)
    law[0] += 1 - p
    law[down] += p * (1 - (place - down))
    law[down + 1] += p * (place - down)
    return law


def test_a_large_portfolio_agrees_with_an_independent_tree_and_simulation():
    p, exposure = pareto_portfolio(4000)
    step = float(exposure.sum() / 40_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = tt.PoissonBinomial(p, weights=exposure, step=step)
    law = independent_tree([mean_preserving(*each, step) for each in zip(p, exposure)])
    near = np.flatnonzero(law > 1e-12)
    np.testing.assert_allclose(x.pmf(near * step), law[near], rtol=0, atol=1e-14)
    upto = np.cumsum(law)
    for q in (0.001, 0.5, 0.9, 0.999, 0.99999):
        assert x.ppf(q) == pytest.approx(np.searchsorted(upto, q) * step, rel=1e-12)
    cell = int(np.searchsorted(upto, 0.999))
    tail = np.arange(cell + 1, len(law))
    part = (upto[cell] - 0.999) * cell + law[tail] @ tail
    assert x.expected_shortfall(0.999) == pytest.approx(part / 0.001 * step, rel=1e-8)
    shares = x.contributions(0.999)
    assert shares.sum() == pytest.approx(float(x.expected_shortfall(0.999)), rel=1e-12)
    # leaving one loan out, by the same tree: P(y = 1 | X > v)
    for i in (0, int(exposure.argmax())):
        others = independent_tree(
            [mean_preserving(*each, step) for j, each in enumerate(zip(p, exposure)) if j != i]
        )
        own = mean_preserving(1.0, exposure[i], step)
        joint = sum(q * others[max(cell + 1 - v, 0) :].sum() for v, q in enumerate(own)) * p[i]
        found = x.given(low=(cell + 1) * step)
        assert found.marginals[i] == pytest.approx(joint / law[cell + 1 :].sum(), rel=1e-8)
    rng = np.random.default_rng(1)
    draws = np.concatenate([(rng.random((500, 4000)) < p) @ exposure for _ in range(40)])
    v = float(x.ppf(0.98))
    assert (draws > v).mean() == pytest.approx(float(x.sf(v)), abs=5 * math.sqrt(0.02 / len(draws)))


def test_tails_keep_their_digits_to_1e_50_and_beyond():
    rng = np.random.default_rng(3)
    n = 160
    weights = rng.integers(1, 150, size=n)
    p = dyadic(rng, n, 2.0**-4)
    x = tt.PoissonBinomial(p, weights=weights)
    assert x.values.size > 8192  # beyond whole tables
    # integers of unlimited length: probabilities are multiples of 2^-14
    odds = np.rint(p * 2**14).astype(int).tolist()
    total = int(weights.sum())
    size = 14 * n + 64
    number = 1
    for a, w in zip(odds, weights.tolist()):  # the law as one long integer, `size` bits per cell
        number = number * (2**14 - a) + ((number * a) << (size * w))
    digits = number.to_bytes((total + 1) * size // 8, "little")
    law = [int.from_bytes(digits[k * size // 8 : (k + 1) * size // 8], "little") for k in range(total + 1)]
    scale = 14 * n
    with mpmath.workdps(30):
        above, logs = 0, {}
        for k in range(total, -1, -1):
            logs[k] = float(mpmath.log(above) - scale * mpmath.log(2)) if above else -math.inf
            above += law[k]
    mean, sd = float(x.mean()), float(x.std())
    for k in (int(mean + j * sd) for j in (1, 4, 8, 12, 20, 40)):
        assert x.logsf(k) == pytest.approx(logs[k], rel=1e-10)
    levels = [int(mean + j * sd) for j in (8, 12, 20)]
    for k in levels:
        q = math.exp(logs[k])
        assert q < 1e-8
        assert x.isf(q * 1.0000001) <= k <= x.isf(q * 0.9999999)
    assert min(logs[k] for k in levels) < math.log(1e-30)


@pytest.mark.parametrize("seed", range(4))
def test_the_bracket_contains_the_truth(seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        n = int(rng.integers(1, 9))
        p, weights = rng.random(n), rng.normal(size=n) * 3.0
        step = float(np.abs(weights).max() * rng.choice([0.01, 0.1, 0.5, 1.0]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = tt.PoissonBinomial(p, weights=weights, step=step)
        states = np.array(list(product((0, 1), repeat=n)))
        mass, value = np.where(states == 1, p, 1 - p).prod(1), states @ weights
        for at in rng.choice(value, 3) + rng.normal() * step:
            low, high = x.bracket("sf", at)
            assert low - 1e-12 <= mass[value > at].sum() <= high + 1e-12
        order = np.argsort(value)
        q = float(rng.random())
        truth = value[order][np.searchsorted(np.cumsum(mass[order]), q)]
        low, high = x.bracket("ppf", q)
        assert low - 1e-9 <= truth <= high + 1e-9
        tail, worst = 1.0 - q, 0.0
        for i in order[::-1]:
            part = min(mass[i], tail)
            worst, tail = worst + part * value[i], tail - part
        low, high = x.bracket("expected_shortfall", q)
        assert low - 1e-8 <= worst / (1.0 - q) <= high + 1e-8
        assert worst / (1.0 - q) <= x.expected_shortfall(q) + 1e-8  # the grid adds spread
        assert x.mean() == pytest.approx(float(p @ weights), abs=1e-10)
        assert x.grid_error <= step * n + 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_the_bracket_holds_at_attained_values_for_weights_on_and_beside_the_grid(seed):
    rng = np.random.default_rng(seed)

    def read(x):
        return Fraction(repr(float(x)))

    for trial in range(40):
        n, step = int(rng.integers(1, 8)), float(rng.choice([0.1, 0.3, 0.7, 1e-7, 2.5]))
        p, cells = rng.random(n), rng.integers(1, 40, size=n) * rng.choice([-1, 1], size=n)
        weights = np.array([float(read(step) * c) for c in cells.tolist()])  # as typed: 0.3
        if trial % 2:  # beside the grid by rounding, or by what 1e-9 takes to be on it
            weights = weights * (1.0 + rng.choice([0.0, 2.0**-52, -(2.0**-52), 3e-11, -3e-11], size=n))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = tt.PoissonBinomial(p, weights=weights, step=step)
        states = list(product((0, 1), repeat=n))
        sums = [sum((read(w) for w, y in zip(weights, s) if y), Fraction(0)) for s in states]
        mass = np.where(np.array(states) == 1, p, 1 - p).prod(1)
        order = sorted(range(len(sums)), key=lambda k: sums[k])
        for k in rng.choice(len(sums), 6):
            for at in (float(sums[k]), np.nextafter(float(sums[k]), -np.inf), float(sums[k]) + step / 3):
                above = mass[[s > read(at) for s in sums]].sum()
                low, high = x.bracket("sf", at)
                assert low - 1e-12 <= above <= high + 1e-12
                low, high = x.bracket("cdf", at)
                assert low - 1e-12 <= 1 - above <= high + 1e-12
            q = float(rng.random())
            truth = sums[order[int(np.searchsorted(np.cumsum(mass[order]), q))]]
            low, high = x.bracket("value_at_risk", q)
            assert read(low) <= truth <= read(high)
            if trial % 2 == 0:
                assert low == high == float(truth)


@pytest.mark.filterwarnings("error")
def test_the_bracket_sees_rounding_below_steps_of_seventeen_digits():
    step, unit = 0.30000000000000004, Fraction("0.30000000000000004")
    weights = np.array([c * step for c in (4001, 5003, 7001)])
    assert any(Fraction(repr(float(w))) != c * unit for w, c in zip(weights, (4001, 5003, 7001)))
    x = tt.PoissonBinomial([0.5, 0.5, 0.5], weights=weights, step=step)
    low, high = x.bracket("ppf", 1.0)
    total = sum(Fraction(repr(float(w))) for w in weights)
    assert Fraction(repr(float(low))) <= total <= Fraction(repr(float(high)))
    assert x.grid_error > 0.0


def test_losses_given_default_on_a_few_values():
    rng = np.random.default_rng(5)
    n, k = 6, 3
    probs, values = rng.dirichlet(np.ones(k + 1), n)[:, 1:], rng.integers(-4, 9, size=(n, k))
    x = tt.PoissonBinomial(probs, weights=values)
    full = np.concatenate([1 - probs.sum(1, keepdims=True), probs], 1)
    adds = np.concatenate([np.zeros((n, 1), int), values], 1)
    law, joint = {}, {}
    for o in product(range(k + 1), repeat=n):
        mass, total = (
            math.prod(full[i, c] for i, c in enumerate(o)),
            sum(int(adds[i, c]) for i, c in enumerate(o)),
        )
        law[total] = law.get(total, 0.0) + mass
        if total >= 10:
            for i, c in enumerate(o):
                joint[i, c] = joint.get((i, c), 0.0) + mass
    np.testing.assert_allclose(x.pmf(sorted(law)), [law[t] for t in sorted(law)], rtol=1e-12)
    assert x.mean() == pytest.approx(sum(t * m for t, m in law.items()), rel=1e-12)
    event = sum(m for t, m in law.items() if t >= 10)
    given = x.given(low=10)
    want = [[joint.get((i, c + 1), 0.0) / event for c in range(k)] for i in range(n)]
    np.testing.assert_allclose(given.marginals, want, rtol=1e-10, atol=1e-15)
    drawn = given.sample_events(4000, rng=0)
    assert (adds[np.arange(n), drawn].sum(1) >= 10).all()
    np.testing.assert_allclose((drawn == 1).mean(0), np.array(want)[:, 0], atol=0.05)
    assert x.condition({0: 2}).mean() == pytest.approx(x.mean() - full[0] @ adds[0] + adds[0, 2])
    again = pickle.loads(pickle.dumps(x))
    assert again == x
    assert np.array_equal(again.given(low=10).marginals, given.marginals)
    by_odds = tt.PoissonBinomial(logits=np.log(probs) - np.log(full[:, :1]), weights=values)
    np.testing.assert_allclose(by_odds.pmf(sorted(law)), [law[t] for t in sorted(law)], rtol=1e-12)


@pytest.mark.parametrize("scale", [1, 301])  # a short table, and windows
def test_a_mixture_is_the_average_of_its_scenarios(scale):
    rng = np.random.default_rng(6)
    n, scenarios = 14, 5
    p, weights = (
        rng.random((scenarios, n)) * [[0.1], [0.3], [0.5], [0.7], [0.9]],
        rng.integers(1, 9, size=n) * scale,
    )
    weights[0] += scale > 1  # coprime: the lattice stays long
    share = rng.dirichlet(np.ones(scenarios))
    batch = tt.PoissonBinomial(p, weights=weights)
    x = batch.mixture(share * 7.0)
    states = np.array(list(product((0, 1), repeat=n)))
    value = states @ weights
    mass = share @ np.where(states == 1, p[:, None], 1 - p[:, None]).prod(2)
    middle = int(weights.sum() * 0.45)
    assert x.sf(middle) == pytest.approx(mass[value > middle].sum(), rel=1e-10)
    assert x.cdf(middle) == pytest.approx(mass[value <= middle].sum(), rel=1e-10)
    assert x.mean() == pytest.approx(mass @ value, rel=1e-12)
    assert x.var() == pytest.approx(mass @ (value - mass @ value) ** 2, rel=1e-10)
    assert x.kurtosis() == pytest.approx(
        mass @ (value - mass @ value) ** 4 / (mass @ (value - mass @ value) ** 2) ** 2 - 3, rel=1e-9
    )
    order = np.argsort(value, kind="stable")
    upto = np.cumsum(mass[order])
    for q in (0.01, 0.3, 0.77, 0.99, 1 - 1e-6):
        assert x.value_at_risk(q) == value[order][np.searchsorted(upto, q)]
    given = x.given(low=middle)
    inside = value >= middle
    np.testing.assert_allclose(given.marginals, mass[inside] @ states[inside] / mass[inside].sum(), rtol=1e-9)
    assert math.exp(given.event_log_prob) == pytest.approx(mass[inside].sum(), rel=1e-10)
    q = 0.95
    v = value[order][np.searchsorted(upto, q)]
    share_of_edge = (mass[value <= v].sum() - q) / mass[value == v].sum()
    weight = mass * np.where(value > v, 1.0, np.where(value == v, share_of_edge, 0.0)) / (1 - q)
    np.testing.assert_allclose(x.contributions(q), weight @ (states * weights), rtol=1e-8)
    assert x.expected_shortfall(q) == pytest.approx(weight @ value, rel=1e-8)
    drawn = x.sample(4000, rng=0)
    assert drawn.mean() == pytest.approx(float(x.mean()), abs=6 * float(x.std()) / 63)
    again = pickle.loads(pickle.dumps(given))
    assert again == given
    assert again.event_log_prob == given.event_log_prob
    narrower = given.given(high=int(middle * 1.2))
    inside &= value <= int(middle * 1.2)
    np.testing.assert_allclose(
        narrower.marginals, mass[inside] @ states[inside] / mass[inside].sum(), rtol=1e-9
    )
    assert math.exp(narrower.event_log_prob) == pytest.approx(mass[inside].sum(), rel=1e-9)
    seen = (states[:, 3] == 1) & (states[:, 8] == 0)
    for known, inside in (
        (x.condition({3: 1, 8: 0}), seen),
        (given.condition({3: 1, 8: 0}), seen & (value >= middle)),
        (x.condition({3: 1, 8: 0}).given(low=middle), seen & (value >= middle)),
    ):
        assert math.exp(known.event_log_prob) == pytest.approx(mass[inside].sum(), rel=1e-10)
        want = mass[inside] @ states[inside] / mass[inside].sum()
        np.testing.assert_allclose(known.marginals, want, rtol=1e-9)
        assert known.mean() == pytest.approx(mass[inside] @ value[inside] / mass[inside].sum(), rel=1e-10)
        drawn = known.sample_events(4000, rng=1)
        assert set(drawn @ weights) <= set(value[inside])
        np.testing.assert_allclose(drawn.mean(0), want, atol=6 * 0.5 / 63)
    np.testing.assert_allclose(batch.sample_events(4000, rng=2).mean(0), p, atol=6 * 0.5 / 63)


def test_evidence_that_no_scenario_allows_is_refused():
    x = tt.PoissonBinomial([[0.0, 0.5], [0.0, 0.2]], weights=[2, 3]).mixture([0.5, 0.5])
    with pytest.raises(tt.InfeasibleError, match="`evidence` has probability zero"):
        x.condition({0: 1})
    calm_is_impossible = tt.PoissonBinomial([[0.0, 0.5], [0.1, 0.2]], weights=[2, 3]).mixture([0.5, 0.5])
    known = calm_is_impossible.given(low=2).condition({0: 1})
    assert known.scenario_probs.tolist() == [1.0]
    assert math.exp(known.event_log_prob) == pytest.approx(0.05, rel=1e-12)


def test_no_evidence_changes_no_mixture():
    x = tt.PoissonBinomial([[0.1, 0.1], [0.6, 0.9]], weights=[3, 5]).mixture([0.75, 0.25])
    assert x.condition({}).scenario_probs == pytest.approx([0.75, 0.25], rel=1e-15)
    assert x.condition({}).cdf(4) == pytest.approx(x.cdf(4), rel=1e-15)


def test_draws_given_a_range_follow_the_conditional_law(windows):
    rng = np.random.default_rng(7)
    n = 12
    p, weights = rng.random(n) * 0.5, rng.integers(1, 20, size=n)
    x = tt.PoissonBinomial(p, weights=weights)
    low = int(weights.sum() * 0.6)
    states = np.array(list(product((0, 1), repeat=n)))
    mass = np.where(states == 1, p, 1 - p).prod(1) * (states @ weights >= low)
    mass /= mass.sum()
    drawn = x.given(low=low).sample_events(20_000, rng=1)
    assert (drawn @ weights >= low).all()
    np.testing.assert_allclose(drawn.mean(0), mass @ states, atol=0.02)
    pairs = (drawn[:, :, None] * drawn[:, None, :]).mean(0)
    np.testing.assert_allclose(pairs, np.einsum("s,si,sj->ij", mass, states, states), atol=0.025)


@pytest.mark.parametrize("scale", [1, 900])
def test_shortfalls_given_a_range_are_enumerated_ones(scale):
    """Of plain sums in batches, of weighted ones, short and long, and of the mixture of one scenario."""
    rng = np.random.default_rng(5)
    p, weights = rng.random((2, 9)), rng.integers(1, 6, 9) * scale + rng.integers(0, 2, 9)
    states, q, low = np.array(list(product((0, 1), repeat=9))), 0.8, 11 * scale
    for given in (
        tt.PoissonBinomial(p, weights=weights).given(low=low),
        tt.PoissonBinomial(p).given(low=5),
        tt.PoissonBinomial(p, weights=weights / 4, step=0.25).given(low=low / 4),
    ):
        found, sums = given.contributions(q), states @ given.weights
        assert found.shape == p.shape
        for row in range(2):
            mass = np.where(states == 1, p[row], 1 - p[row]).prod(1) * (sums >= np.ravel(given._low)[0])
            mass /= mass.sum()
            value = np.sort(sums)[np.searchsorted(np.cumsum(mass[np.argsort(sums)]), q)]
            assert given.value_at_risk(q)[row] == value
            tail = np.where(sums > value, mass, 0.0)
            at = np.where(sums == value, mass, 0.0)
            tail += at / at.sum() * (1 - q - tail.sum())
            np.testing.assert_allclose(found[row], tail @ states * given.weights / (1 - q), rtol=1e-9)
        np.testing.assert_allclose(given.expected_shortfall(q), found.sum(1), rtol=1e-12)
    alone = tt.PoissonBinomial(p[:1], weights=weights)
    np.testing.assert_allclose(
        alone.given(low=low).contributions(q)[0],
        alone.mixture([1.0]).given(low=low).contributions(q),
        rtol=1e-9,
    )


def test_draws_given_a_range_that_no_tilt_brings_together_follow_the_conditional_law():
    """Many small events or a heavy rare one reach the range: between them lie sums that are as good as impossible."""
    p, weights = np.append(np.full(2000, 0.05), 1e-13), np.append(np.ones(2000, int), 100_000)
    given = tt.PoissonBinomial(p, weights=weights).given(low=185)
    light = 1.0 - given.marginals[-1]
    assert light == pytest.approx(stats.binom(2000, 0.05).sf(184) / np.exp(given.event_log_prob), rel=1e-9)
    drawn = given.sample_events(4000, rng=1)
    assert ((drawn @ weights) >= 185).all()
    assert stats.binomtest(int((drawn[:, -1] == 0).sum()), 4000, light).pvalue > 1e-4
    few = tt.PoissonBinomial([1e-20, 1e-24, 0.3, 0.2], weights=[7000, 6500, 9001, 3])
    assert (few.given(low=6000, high=7500).sample_events(20, rng=0) @ few.weights <= 7500).all()
    far = tt.PoissonBinomial(np.full(14, 1e-30), weights=np.arange(2000, 2014)).given(low=4000, high=4010)
    assert (far.sample_events(20, rng=0).sum(axis=1) == 2).all()


def test_a_step_that_hides_events_is_counted_and_their_mean_stays():
    p, weights = np.full(100, 0.1), np.repeat([0.3, 5.0], 50)
    with pytest.warns(UserWarning, match=r"weights of 50 of 100 events, with 5\.7% of the expected"):
        x = tt.PoissonBinomial(p, weights=weights, step=1.0)
    assert x.mean() == pytest.approx(26.5)
    low, high = x.bracket("mean")
    assert (low, high) == pytest.approx((25.0, 30.0), rel=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine = tt.PoissonBinomial(p, weights=weights)
        pickle.loads(pickle.dumps(x))
    assert fine.grid_error == 0.0  # the default step divides these weights
    assert fine.var() == pytest.approx(0.09 * float((weights**2).sum()))


def test_default_steps_add_little_variance():
    p, exposure = pareto_portfolio(3000, seed=1)
    x = tt.PoissonBinomial(p, weights=exposure)
    true = float((p * (1 - p) * exposure**2).sum())
    assert 0.0 <= x.var() / true - 1.0 <= 1e-4
    assert x.mean() == pytest.approx(float(p @ exposure), rel=1e-12)
    low, high = x.bracket("value_at_risk", 0.999)
    assert low <= x.value_at_risk(0.999) <= high


def test_short_positions_mirror_long_ones():
    rng = np.random.default_rng(8)
    p, weights = rng.random(400), rng.integers(1, 90, size=400)
    x, y = tt.PoissonBinomial(p, weights=weights), tt.PoissonBinomial(p, weights=-weights)
    k = int(x.mean() + 6 * x.std())
    assert y.logcdf(-k - 1) == pytest.approx(float(x.logsf(k)), rel=1e-12)
    np.testing.assert_allclose(y.given(high=-k).marginals, x.given(low=k).marginals, rtol=1e-9)
    net = np.where(np.arange(400) % 2, weights, -weights)
    z = tt.PoissonBinomial(p, weights=net)
    assert z.mean() == pytest.approx(float(p @ net))
    shares = z.contributions(0.99)
    assert shares.sum() == pytest.approx(float(z.expected_shortfall(0.99)), rel=1e-10)


def test_tilts_reach_their_means_and_grids_keep_theirs():
    rng = np.random.default_rng(9)
    events = binary(dyadic(rng, 50), rng.integers(1, 1000, size=50))
    for share in (0.01, 0.4, 0.999):
        wanted = np.array([share * events.most])
        mean, variance = events.tilted(tilt_to(events, wanted))[0].moments()
        assert abs(mean[0] - wanted[0]) <= 0.1 * math.sqrt(variance[0])
    weights = rng.normal(size=30)
    log_p, cells, owner = shared_between_cells(
        np.log(np.full((30, 2), 0.5)), np.stack([0 * weights, weights], 1), 0.07
    )
    assert owner.tolist() == [0, 1, 1]
    np.testing.assert_allclose((np.exp(log_p) * cells).sum(1) * 0.07, 0.5 * weights, rtol=1e-12)


def test_quantiles_at_attained_levels_are_those_of_scipy():
    n = 60  # a rare event of weight one makes the lattice long and changes no level by more than 1e-12
    x = tt.PoissonBinomial(np.append(np.full(n, 0.5), 2.0**-40), weights=np.append(np.full(n, 1000), 1))
    law = stats.binom(n, 0.5)
    for k in range(5, 56, 3):
        for level in (law.cdf(k), law.cdf(k) * (1 - 1e-9), min(law.cdf(k) * (1 + 1e-9), 1 - 1e-16)):
            assert int(x.ppf(level)) // 1000 == int(law.ppf(level))
        assert int(x.isf(law.sf(k))) // 1000 == int(law.isf(law.sf(k)))


@pytest.mark.parametrize("p", [1e-6, 1e-10, 1e-16, 1e-22])
@pytest.mark.parametrize("weights", [None, np.arange(1, 601) * 100 + 1])
def test_rare_events_keep_the_probability_that_any_happens(p, weights):
    # zero lies below the mean, and "none" has almost all probability: its complement has no digits of "any"
    n = 600 if weights is None else 10
    weights = None if weights is None else weights[::60]
    any_of = math.log(-math.expm1(n * math.log1p(-p)))
    x = tt.PoissonBinomial(np.full(n, p), weights=weights)
    assert x.logsf(0) == pytest.approx(any_of, rel=1e-11)
    assert x.sf(0) == pytest.approx(math.exp(any_of), rel=1e-10)
    mixed = tt.PoissonBinomial(np.full((2, n), p), weights=weights).mixture([0.3, 0.7])
    assert mixed.logsf(0) == pytest.approx(any_of, rel=1e-11)
    mirrored = tt.PoissonBinomial(logits=np.full(n, math.log1p(-p) - math.log(p)), weights=weights)
    most = int(mirrored.support()[1])
    assert mirrored.logcdf(most - 1) == pytest.approx(any_of, rel=1e-11)


@pytest.mark.parametrize("expected", [1e-3, 1e-6, 1e-10, 1e-16])
@pytest.mark.parametrize("certain", [False, True])  # or nearly all of them happen
def test_sums_of_rare_events_need_no_exact_tree(expected, certain, monkeypatch):
    """Against the exact tree; among the sums are those that take two events."""
    rng = np.random.default_rng(0)
    n = 400
    p, weights = expected / n * (rng.random(n) + 0.5), rng.integers(1, 20, n)
    nu = (np.log(p) - np.log1p(-p)) * (-1 if certain else 1)
    events = tt.PoissonBinomial(logits=nu, weights=weights)._events
    most, cells = events.most, np.arange(1, 37)
    low = most - cells if certain else cells
    whole = SumLaw(events)._table()

    def refused(*_):
        raise AssertionError("the exact tree was asked")

    want = [sums._exact(events, Weight(np.array([k]), np.array([k])), True) for k in low[[4, 18]]]
    monkeypatch.setattr(sums, "_exact", refused)
    found = SumLaw(events)
    np.testing.assert_allclose(found.ask("at", low), whole[low], atol=1e-10, rtol=1e-10)
    tails = np.logaddexp.accumulate(whole) if certain else np.logaddexp.accumulate(whole[::-1])[::-1]
    np.testing.assert_allclose(
        found.ask("below" if certain else "above", low), tails[low], atol=1e-10, rtol=1e-10
    )
    for k, exact in zip(low[[4, 18]], want):
        answer = expectation(events, Weight(np.array([k]), np.array([k])), outcomes=True)
        np.testing.assert_allclose(answer.log_mean, exact.log_mean, atol=1e-10, rtol=1e-10)
        np.testing.assert_allclose(answer.log_outcomes, exact.log_outcomes, atol=2e-10, rtol=1e-10)


def test_weights_that_no_grid_can_hold_are_refused():
    for weights, step, text in (
        ([0.0, 0.0], 0.1, "must not all be 0"),
        ([0, 0], None, "must not all be 0"),
        ([np.nan, 1.0], None, "entry 0 is NaN"),
        ([1.0, np.inf], 0.1, "entry 1 is inf"),
        ([5e-324, 1.5e-323], None, "between 1e-150 and 1e150"),
        ([1e300, 1.5], None, "between 1e-150 and 1e150"),
        ([1.0, 2.5], 3.0, "must not exceed the largest weight, 2.5"),
    ):
        with pytest.raises(tt.ParameterError, match=text):
            tt.PoissonBinomial([0.1, 0.2], weights=weights, step=step)
        if step is not None:
            with pytest.raises(tt.ParameterError, match=text):
                tt.LinearModel(np.zeros(2), weights, lambda s: -s, step=step)
