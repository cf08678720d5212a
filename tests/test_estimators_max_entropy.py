"""Conditional Poisson designs against R's sampling package and against enumeration."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

from real_data import data_folder
from tallytree import data
from tallytree.errors import ParameterError
from tallytree.estimators import MaxEntropySampler

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


def test_errors_say_what_to_do():
    with pytest.raises(ParameterError, match="sum to an integer"):
        MaxEntropySampler().fit([0.5, 0.2])
    with pytest.raises(ParameterError, match="vector of probabilities"):
        MaxEntropySampler().fit([[0.5, 0.5]])
    with pytest.raises(ParameterError, match="'newton'"):
        MaxEntropySampler(method="guess").fit(EXAMPLE)
