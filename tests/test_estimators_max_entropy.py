"""Conditional Poisson designs against R's sampling package and against enumeration."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy.special import expit

from real_data import data_folder
from reproduction import data
from tallytree.errors import ParameterError
from tallytree.estimators import HorvitzThompson, MaxEntropySampler

EXAMPLE = [0.07, 0.17, 0.41, 0.61, 0.83, 0.91]


@pytest.mark.data
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("MU284", "P75_n20"),
        ("MU284", "P75_n50"),
        ("belgianmunicipalities", "income_n50"),
        ("belgianmunicipalities", "tot04_n50"),
        ("belgianmunicipalities", "tot04_n200"),
    ],
)
def test_pikt_of_real_populations(table, column):
    frame = data.load_csv(f"survey/{table}.csv", data_folder())
    pik, pikt = frame[f"pik_{column}"].to_numpy(), frame[f"pikt_{column}"].to_numpy()
    sampler = MaxEntropySampler().fit(pik)
    np.testing.assert_allclose(sampler.pikt_, pikt, atol=1e-8, rtol=0)
    np.testing.assert_allclose(sampler.inclusion_probabilities_, pik, atol=1e-12, rtol=0)


@pytest.mark.data
@pytest.mark.parametrize("n", [20, 50])
def test_joint_inclusion_of_mu284(n):
    folder = data_folder()
    frame = data.load_csv("survey/MU284.csv", folder)
    stored = data.load_npz("survey/mu284_joint_inclusion.npz", folder)
    joint = MaxEntropySampler().fit(frame[f"pik_P75_n{n}"].to_numpy()).joint_inclusion_probabilities()
    inner = np.flatnonzero(frame[f"pik_P75_n{n}"].to_numpy() < 1)
    np.testing.assert_allclose(joint[np.ix_(inner, inner)], stored[f"pi2_n{n}"], atol=1e-11, rtol=0)


@pytest.mark.parametrize("method", ["newton", "fixed-point"])
def test_the_example_of_matei_and_tille(method):
    sampler = MaxEntropySampler(method=method, max_iter=500).fit(EXAMPLE)
    want = [0.102078, 0.223817, 0.441728, 0.579627, 0.779352, 0.873398]
    np.testing.assert_allclose(sampler.pikt_, want, atol=1e-6)
    joint = sampler.joint_inclusion_probabilities()
    assert joint[0, 1] == pytest.approx(0.004917, abs=1e-6)
    assert joint[4, 5] == pytest.approx(0.746068, abs=1e-6)
    np.testing.assert_allclose(joint.sum(1), 3 * np.array(EXAMPLE), atol=1e-12)


def test_samples_follow_the_design():
    from scipy import stats

    sampler = MaxEntropySampler(random_state=0).fit(EXAMPLE)
    drawn = sampler.sample(20_000)
    assert (drawn.sum(1) == 3).all()
    sets = [np.array(s) for s in itertools.combinations(range(6), 3)]
    weight = np.array([np.exp(sampler.logits_[s].sum()) for s in sets])
    seen = np.array([drawn[:, s].all(1).sum() for s in sets])
    expected = 20_000 * weight / weight.sum()
    big = expected >= 10
    assert stats.chisquare(seen[big], expected[big] * seen[big].sum() / expected[big].sum()).pvalue > 1e-3
    again = MaxEntropySampler(random_state=0).fit(EXAMPLE).sample(50)
    np.testing.assert_array_equal(again, MaxEntropySampler(random_state=0).fit(EXAMPLE).sample(50))


def test_horvitz_thompson_is_unbiased_with_an_unbiased_variance():
    sampler = MaxEntropySampler().fit(EXAMPLE)
    values = np.array([1.0, 5.0, 2.0, 8.0, 3.0, 9.0])
    sets = [np.array(s) for s in itertools.combinations(range(6), 3)]
    weight = np.array([np.exp(sampler.logits_[s].sum()) for s in sets])
    weight /= weight.sum()
    found = [sampler.horvitz_thompson(s, values) for s in sets]
    totals = np.array([f.total for f in found])
    assert weight @ totals == pytest.approx(values.sum(), rel=1e-12)
    variance = weight @ (totals - values.sum()) ** 2
    assert weight @ np.array([f.variance for f in found]) == pytest.approx(variance, rel=1e-10)


def test_tiny_probabilities_keep_their_size():
    pik = np.array([1e-300, 1e-30, 1 - 1e-15, 0.5, 0.5])
    np.testing.assert_allclose(MaxEntropySampler().fit(pik).inclusion_probabilities_, pik, rtol=1e-9)


def test_certain_and_excluded_units():
    sampler = pickle.loads(pickle.dumps(MaxEntropySampler(random_state=1).fit([1.0, 0.0, 0.5, 0.25, 0.25])))
    np.testing.assert_array_equal(np.isinf(sampler.logits_), [True, True, False, False, False])
    drawn = sampler.sample(100)
    assert drawn[:, 0].all()
    assert not drawn[:, 1].any()
    np.testing.assert_allclose(sampler.joint_inclusion_probabilities()[0], [1.0, 0.0, 0.5, 0.25, 0.25])


@pytest.mark.parametrize("seed", range(5))
def test_hard_probabilities_are_reached(seed):
    rng = np.random.default_rng(seed)
    pik = MaxEntropySampler.inclusion_probabilities(rng.lognormal(0, 2.5, size=200), 15)
    assert pik.sum() == pytest.approx(15)
    sampler = MaxEntropySampler().fit(pik)
    np.testing.assert_allclose(sampler.inclusion_probabilities_, pik, atol=1e-12)
    assert sampler.pikt_.sum() == pytest.approx(15, abs=1e-9)


def test_samples_go_on_with_a_seed_and_repeat_with_rng():
    sampler = MaxEntropySampler(random_state=0).fit(EXAMPLE)
    assert (sampler.sample(40) != sampler.sample(40)).any()
    np.testing.assert_array_equal(sampler.sample(40, rng=3), sampler.sample(40, rng=3))
    generator = np.random.default_rng(3)
    np.testing.assert_array_equal(sampler.sample(40, rng=generator), sampler.sample(40, rng=3))
    assert sampler.sample(0).shape == (0, 6)
    for size in (-1, 1.5):
        with pytest.raises(ParameterError, match="`size`"):
            sampler.sample(size)


@pytest.mark.parametrize(
    ("sample", "match"),
    [
        ([0, 0, 1], "distinct units"),
        ([0, 1, 6], "entry 2 is 6"),
        ([-1, 1, 2], "`sample`"),
        ([0.0, 1.0, 2.0], "`sample`"),
        ([True, True, True], "`sample`"),
        ([0, 1], "3 units"),
    ],
)
def test_samples_that_the_design_cannot_draw_are_refused(sample, match):
    with pytest.raises(ParameterError, match=match):
        MaxEntropySampler().fit(EXAMPLE).horvitz_thompson(sample, np.ones(6))


def test_units_that_are_never_drawn_and_values_that_are_missing_are_refused():
    sampler = MaxEntropySampler().fit([1.0, 0.0, 0.5, 0.25, 0.25])
    with pytest.raises(ParameterError, match="unit 1 has inclusion probability 0"):
        sampler.horvitz_thompson([0, 1], np.ones(5))
    with pytest.raises(ParameterError, match="finite"):
        sampler.horvitz_thompson([0, 2], [1.0, np.nan])


def test_values_follow_the_order_of_the_units_they_came_with():
    sampler = MaxEntropySampler().fit(EXAMPLE)
    values = np.array([1.0, 10.0, 100.0, 1e3, 1e4, 1e5])
    want = (values / EXAMPLE)[[0, 3, 5]].sum()
    for units in ([0, 3, 5], [5, 0, 3], np.array([3, 5, 0])):
        for given in (values, values[units]):
            found = sampler.horvitz_thompson(units, given)
            assert found.total == pytest.approx(want, rel=1e-10)
            assert found.variance == pytest.approx(sampler.horvitz_thompson([0, 3, 5], values).variance)


def test_what_was_drawn_can_be_handed_on():
    sampler = MaxEntropySampler(random_state=0).fit(EXAMPLE)
    values = np.arange(6.0)
    drawn = sampler.sample()
    assert sampler.horvitz_thompson(drawn, values) == sampler.horvitz_thompson(drawn[0], values)
    assert sampler.sample(None).shape == (6,)
    assert sampler.sample((2, 3)).sum(axis=-1).tolist() == [[3, 3, 3], [3, 3, 3]]
    with pytest.raises(ParameterError, match=r"an array of 4 arrived\. Call it for every row"):
        sampler.horvitz_thompson(sampler.sample(4), values)
    with pytest.raises(ParameterError, match=r"astype\(bool\)"):
        sampler.horvitz_thompson(drawn[0].astype(int), values)


def test_joint_probabilities_of_some_units_are_those_of_all():
    rng = np.random.default_rng(0)
    pik = MaxEntropySampler.inclusion_probabilities(rng.lognormal(0, 1.5, size=60), 12)
    sampler = MaxEntropySampler().fit(pik)
    joint = sampler.joint_inclusion_probabilities()
    chosen = np.array([3, 17, 40, 41, 59, int(np.argmax(pik))])
    some = sampler.joint_inclusion_probabilities(chosen)
    np.testing.assert_allclose(some, joint[np.ix_(chosen, chosen)], rtol=1e-9)
    np.testing.assert_allclose(joint.sum(1), 12 * pik, rtol=1e-10)  # sum_j pi_ij = n pi_i


def test_estimates_of_a_large_population_need_no_matrix_over_it():
    """With equal probabilities the design is simple random sampling, whose variance is known in closed form."""
    import tracemalloc

    size, n = 100_000, 200
    sampler = MaxEntropySampler().fit(np.full(size, n / size))
    rng = np.random.default_rng(0)
    drawn, values = rng.choice(size, n, replace=False), rng.normal(size=size)
    tracemalloc.start()
    found = sampler.horvitz_thompson(drawn, values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.total == pytest.approx(size * values[drawn].mean(), rel=1e-10)
    want = size**2 * (1 - n / size) * values[drawn].var(ddof=1) / n
    assert found.variance == pytest.approx(want, rel=1e-8)
    assert peak < 2e8


def test_large_populations_take_a_few_inferences():
    from tallytree.learn import logits_from_inclusion

    rng = np.random.default_rng(1)
    pik = MaxEntropySampler.inclusion_probabilities(rng.lognormal(0, 1, size=200_000), 2000)
    found = logits_from_inclusion(pik, 2000)
    assert found.converged
    assert found.n_inferences <= 6
    assert np.abs(found.marginals - pik).max() <= 1e-13


@pytest.mark.parametrize("size", [3, 5, 10, 40])
@pytest.mark.parametrize("least", [-20.0, -40.0, -60.0])
@pytest.mark.parametrize("top", [2.0, 8.0, 20.0])
def test_probabilities_far_apart_are_solved_though_the_covariance_is_singular(size, least, top):
    from tallytree.learn import logits_from_inclusion
    from tallytree.learn.fixed_counts import balancing_shift

    spread = np.append(np.linspace(least, -8.0, size - 2), [0.0, top])
    pi = expit(spread + balancing_shift(spread, 1))
    found = logits_from_inclusion(pi, 1)
    assert found.converged
    assert np.abs(found.marginals - pi).max() <= 1e-12


def test_errors_say_what_to_do():
    with pytest.raises(ParameterError, match="sum to an integer"):
        MaxEntropySampler().fit([0.5, 0.2])
    with pytest.raises(ParameterError, match="`pik` must be an array"):
        MaxEntropySampler().fit([[0.5, 0.5]])
    with pytest.raises(ParameterError, match=r"entry 1 is 1\.5"):
        MaxEntropySampler().fit([0.5, 1.5])
    with pytest.raises(ParameterError, match="`pik` must be an array"):
        MaxEntropySampler().fit(["a", "b"])
    with pytest.raises(ParameterError, match="`n` must be an integer"):
        MaxEntropySampler.inclusion_probabilities([1, 2, 3], 1.5)
    with pytest.raises(ParameterError, match="'newton'"):
        MaxEntropySampler(method="guess").fit(EXAMPLE)


def test_a_design_needs_units():
    with pytest.raises(ParameterError, match="at least one unit"):
        MaxEntropySampler().fit([])


@pytest.mark.parametrize(
    "pik", [[1e-300, 1.0], [1e-300, 1.0 - 1e-16], [1e-9, 1.0, 0.5, 0.5], [1.0 - 1e-9, 1e-9]]
)
def test_what_rounding_of_the_sum_leaves_makes_no_design_impossible(pik):
    design = MaxEntropySampler().fit(pik)
    np.testing.assert_allclose(design.inclusion_probabilities_, pik, atol=2e-9)
    assert (design.sample(20, rng=0).sum(1) == design.sample_size_).all()


def test_intervals_of_totals_cover_and_refuse_negative_variances():
    rng = np.random.default_rng(5)
    size = rng.lognormal(size=60)
    design = MaxEntropySampler(random_state=0).fit(MaxEntropySampler.inclusion_probabilities(size, 25))
    values = 3.0 * size + rng.normal(size=60)
    found = [design.horvitz_thompson(sample, values).conf_int(0.9) for sample in design.sample(200, rng=1)]
    covered = np.mean([low <= values.sum() <= high for low, high in found])
    assert 0.8 < covered < 0.97
    one = design.horvitz_thompson(design.sample(rng=2)[0], values)
    assert one.conf_int(0.9) == one.conf_int(alpha=1 - 0.9)
    low, high = one.conf_int()
    assert (low + high) / 2 == pytest.approx(one.total)
    assert (high - low) / 2 == pytest.approx(1.959963984540054 * one.standard_error)
    with pytest.raises(ParameterError, match="variance of at least 0"):
        HorvitzThompson(1.0, -2.0).conf_int()
    with pytest.raises(ParameterError, match="`level`"):
        one.conf_int(95)
