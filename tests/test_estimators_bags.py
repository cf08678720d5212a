"""Bags: exact likelihoods against enumeration, gradients, learning, input forms."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse

from oracle_states import all_states

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from tallytree.errors import ParameterError
from tallytree.estimators import BagClassifier, LabelProportions
from tallytree.estimators._bag_model import (
    BagLikelihood,
    BagPotential,
    CountLikelihood,
    RateLikelihood,
    start_values,
)
from tallytree.estimators._bags import make_bags

SIZES = [1, 3, 2, 5, 3]
GROUPS = np.repeat(np.arange(5), SIZES)
POSITIVE = np.array([True, False, True, True, False])


def potential(kind):
    return BagPotential(kind, 0.7, 0.05, 0.6, 0.3, 4)


def enumerated_log_z(kind, theta, knots):
    """log Z of one bag for both labels, by brute force from the definitions."""
    n = len(theta)
    y = all_states((2,) * n)
    c = y.sum(1)
    if kind == "normal":
        f = [np.exp(-((c / n) ** 2) / 0.18), np.exp(-((0.6 - c / n) ** 2) / 0.18)]
    elif kind.startswith("noisy-or"):
        f = [0.95 * 0.3**c, 1 - 0.95 * 0.3**c]
    elif kind == "at-least-one":
        f = [c == 0, c > 0]
    else:
        f = [np.exp(np.interp(c / n, np.linspace(0, 1, 4), v)) for v in knots.reshape(2, 4)]
    weight = np.exp(y @ theta)
    return [np.log((weight * t).sum()) for t in f], [(weight * t) @ y / (weight * t).sum() for t in f]


def likelihood_of(kind):
    bags = make_bags(GROUPS, len(GROUPS), alone=True)
    if kind == "noisy-or as a product":
        return RateLikelihood(bags, 0.05, None, 0.7)
    return BagLikelihood(bags, potential(kind))


KINDS = ["at-least-one", "noisy-or", "noisy-or as a product", "normal", "free"]


@pytest.mark.parametrize("kind", KINDS)
def test_bag_probabilities_match_enumeration(kind):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=len(GROUPS))
    knots = rng.normal(size=8) if kind == "free" else np.zeros(0)
    likelihood = likelihood_of(kind)
    odds = likelihood.log_odds(theta, knots)
    share = np.array([0.3, 1.0, 0.0, 0.5, 0.9])
    active = likelihood.active(theta, knots, share)
    for b in range(5):
        log_z, means = enumerated_log_z(kind, theta[b == GROUPS], knots)
        assert odds[b] == pytest.approx(log_z[1] - log_z[0], abs=1e-10)
        np.testing.assert_allclose(
            active[b == GROUPS], share[b] * means[1] + (1 - share[b]) * means[0], atol=1e-10
        )


@pytest.mark.parametrize("kind", KINDS)
def test_bag_gradients_match_finite_differences(kind):
    rng = np.random.default_rng(1)
    theta = rng.normal(size=len(GROUPS))
    knots = start_values(potential(kind.split()[0])) + 0.1
    likelihood = likelihood_of(kind)
    _, by_theta, by_knots = likelihood.loss(theta, knots, POSITIVE, np.ones(len(POSITIVE)))
    h = 1e-6
    for j in range(len(theta)):
        e = h * np.eye(len(theta))[j]
        up, down = (
            likelihood.loss(theta + s * e, knots, POSITIVE, np.ones(len(POSITIVE)))[0] for s in (1, -1)
        )
        assert (up - down) / (2 * h) == pytest.approx(by_theta[j], abs=1e-7)
    for j in range(len(knots)):
        e = h * np.eye(len(knots))[j]
        up, down = (
            likelihood.loss(theta, knots + s * e, POSITIVE, np.ones(len(POSITIVE)))[0] for s in (1, -1)
        )
        assert (up - down) / (2 * h) == pytest.approx(by_knots[j], abs=1e-7)


def bags_with_a_signal(seed, n_bags=120):
    """Positive bags hold one or two instances far along the first axis."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 8, n_bags)
    groups = np.repeat(np.arange(n_bags), sizes)
    x = rng.normal(size=(len(groups), 5))
    y = rng.integers(0, 2, n_bags)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    active = np.zeros(len(groups), bool)
    active[starts[y == 1]] = True
    active[starts[y == 1] + 1] = rng.random((y == 1).sum()) < 0.5
    x[active, 0] += 4.0
    return x, y, groups, active


@pytest.mark.parametrize("kind", ["at-least-one", "noisy-or", "normal", "free"])
def test_bags_and_their_instances_are_learned(kind):
    x, y, groups, _ = bags_with_a_signal(0)
    test_x, test_y, test_groups, test_active = bags_with_a_signal(1)
    model = BagClassifier(potential=kind, mu=0.4, l2=0.01).fit(x, y, groups)
    assert model.score(test_x, test_y, test_groups) > 0.85
    found = model.instance_probabilities(test_x, test_groups, test_y)
    assert found[test_active].mean() > 0.7
    assert found[~test_active].mean() < 0.25
    assert model.predict_proba(test_x, test_groups).shape == (120, 2)


def test_l1_gives_exact_zeros_and_forms_of_input_agree():
    x, y, groups, _ = bags_with_a_signal(2)
    sparse_fit = BagClassifier(l1=0.05, l2=0.0).fit(sparse.csr_array(x), y[groups], groups)
    dense = BagClassifier(l1=0.05, l2=0.0).fit(x, y, groups)
    np.testing.assert_allclose(sparse_fit.coef_, dense.coef_, atol=1e-6)
    assert (dense.coef_[1:] == 0).sum() >= 2
    assert dense.coef_[0] > 0.5
    names = np.array([f"bag {g:03d}" for g in groups])
    shuffled = np.random.default_rng(0).permutation(len(groups))
    again = BagClassifier(l1=0.05, l2=0.0).fit(x[shuffled], y[groups][shuffled], names[shuffled])
    np.testing.assert_allclose(again.coef_, dense.coef_, atol=1e-5)
    copy = pickle.loads(pickle.dumps(dense))
    np.testing.assert_array_equal(copy.predict(x, groups), dense.predict(x, groups))


def test_bags_of_one_are_logistic_regression():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 3))
    y = (rng.random(200) < 1 / (1 + np.exp(-x @ [1.0, -2.0, 0.5] - 0.3))).astype(int)
    want = LogisticRegression(C=1 / (200 * 0.01), tol=1e-10, max_iter=1000).fit(x, y)
    alone = np.arange(200)
    for kind in (BagClassifier, LabelProportions):
        model = kind(l2=0.01, tol=1e-8).fit(x, y, groups=alone)
        np.testing.assert_allclose(model.coef_, want.coef_[0], atol=1e-4)
        assert model.intercept_ == pytest.approx(want.intercept_[0], abs=1e-4)


def test_random_starts_are_reproducible():
    x, y, groups, _ = bags_with_a_signal(4, 40)
    fits = [BagClassifier("normal", n_init=3, random_state=0).fit(x, y, groups) for _ in range(2)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert fits[0].loss_ <= BagClassifier("normal").fit(x, y, groups).loss_ + 1e-12


def test_count_likelihood_matches_enumeration():
    rng = np.random.default_rng(5)
    theta = rng.normal(size=len(GROUPS))
    k = np.array([1, 0, 1, 3, 3])
    likelihood = CountLikelihood(make_bags(GROUPS, len(GROUPS), alone=True), k)
    total, gradient = likelihood.loss(theta, np.ones(len(k)))
    want = 0.0
    for b in range(5):
        t = theta[b == GROUPS]
        y = all_states((2,) * len(t))
        p = np.exp(y @ t) / np.prod(1 + np.exp(t))
        want -= np.log(p[y.sum(1) == k[b]].sum())
    assert total == pytest.approx(want, rel=1e-12)
    h = 1e-6
    for j in range(len(theta)):
        e = h * np.eye(len(theta))[j]
        assert (
            likelihood.loss(theta + e, np.ones(len(k)))[0] - likelihood.loss(theta - e, np.ones(len(k)))[0]
        ) / (2 * h) == pytest.approx(gradient[j], abs=1e-7)


@pytest.mark.parametrize("target", ["labels", "counts", "proportions"])
def test_instances_are_learned_from_proportions(target):
    rng = np.random.default_rng(6)
    groups = np.repeat(np.arange(300), 20)
    x = rng.normal(size=(6000, 3)) + rng.normal(size=(300, 3))[groups]
    coef = np.array([1.0, -1.0, 0.0])
    y = (rng.random(6000) < 1 / (1 + np.exp(-(x @ coef)))).astype(int)
    counts = np.bincount(groups, y)
    given = {"labels": y, "counts": counts, "proportions": counts / 20}[target]
    model = LabelProportions(target=target, l2=1e-4).fit(x, given, groups)
    np.testing.assert_allclose(model.coef_, coef, atol=0.2)
    posterior = model.instance_probabilities(x, given, groups)
    np.testing.assert_allclose(np.bincount(groups, posterior), counts, atol=1e-9)


def test_errors_say_what_to_do():
    x = np.zeros((4, 2))
    with pytest.raises(ParameterError, match="constant within every group"):
        BagClassifier().fit(x, [0, 1, 0, 0], groups=[0, 0, 1, 1])
    with pytest.raises(ParameterError, match="one entry per bag"):
        BagClassifier().fit(x, [0, 1, 0], groups=[0, 0, 1, 1])
    with pytest.raises(ParameterError, match="`potential`"):
        BagClassifier(potential="poisson").fit(x, [0, 1], groups=[0, 0, 1, 1])
    with pytest.raises(ParameterError, match="`sigma`"):
        BagClassifier(potential="normal", sigma=0).fit(x, [0, 1], groups=[0, 0, 1, 1])
    with pytest.raises(ParameterError, match="between 0 and the size of each group"):
        LabelProportions(target="counts").fit(x, [3, 1], groups=[0, 0, 1, 1])
    with pytest.raises(ParameterError, match="target='counts'"):
        LabelProportions(target="proportions").fit(x, [2, 1], groups=[0, 0, 1, 1])


def test_one_large_bag_costs_the_small_ones_nothing():
    sizes = np.concatenate([np.full(20_000, 2), [20_000]])
    bags = make_bags(np.repeat(np.arange(len(sizes)), sizes), int(sizes.sum()), alone=True)
    parts = list(bags.batches(np.arange(bags.n_bags)))
    assert sum(index.size for _, index in parts) < 4 * sizes.sum()
    seen = np.concatenate([index[index < len(bags.codes)] for _, index in parts])
    np.testing.assert_array_equal(np.sort(seen), np.arange(len(bags.codes)))
    for members, index in parts:
        inside = index < len(bags.codes)
        np.testing.assert_array_equal(inside.sum(1), bags.sizes[members])
        assert (bags.codes[index[inside]] == np.repeat(members, bags.sizes[members])).all()


@pytest.mark.parametrize(
    "model", [BagClassifier(l2=0.1, tol=1e-10), LabelProportions("counts", l2=0.1, tol=1e-10)]
)
def test_the_weight_of_a_bag_is_how_often_it_was_observed(model):
    x, y, groups, _ = bags_with_a_signal(3, n_bags=20)
    sizes = np.bincount(groups)
    y = y if isinstance(model, BagClassifier) else np.minimum(y * 2, sizes)
    times = np.arange(20) % 3
    rows = [np.flatnonzero(groups == bag) for bag in np.repeat(np.arange(20), times)]
    copies = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    again = clone(model).fit(x[np.concatenate(rows)], np.repeat(y, times), groups=copies)
    model.fit(x, y, groups=groups, sample_weight=times)
    np.testing.assert_allclose(model.coef_, again.coef_, atol=1e-7)
    assert model.loss_ == pytest.approx(again.loss_, abs=1e-12)
    per_row = clone(model).fit(x, y, groups=groups, sample_weight=times[groups])
    np.testing.assert_array_equal(per_row.coef_, model.coef_)
    for wrong in (-times, np.zeros(20), np.arange(len(x)), np.ones(3)):
        with pytest.raises(ParameterError, match="sample_weight"):
            clone(model).fit(x, y, groups=groups, sample_weight=wrong)


@pytest.mark.parametrize("kind", [BagClassifier, LabelProportions])
def test_weights_have_no_unit_and_leave_bags_out(kind):
    rng = np.random.default_rng(4)
    x, groups = rng.normal(size=(48, 2)), np.repeat(np.arange(12), 4)
    y = np.repeat(np.arange(12) % 2, 4)
    fit = kind().fit(x, y, groups=groups)
    for unit in (1e-300, 1e300):
        weighted = kind().fit(x, y, groups=groups, sample_weight=np.full(12, unit))
        np.testing.assert_allclose(weighted.coef_, fit.coef_, rtol=1e-9)
    with pytest.raises(ParameterError, match="two classes"):
        kind().fit(x, y, groups=groups, sample_weight=y)  # as if the bags of weight 0 were not there


@pytest.mark.parametrize(("kind", "y"), [(BagClassifier, [0, 1, 0, 1]), (LabelProportions, [0, 1, 0, 1])])
def test_separated_bags_without_a_penalty_warn(kind, y):
    x = np.array([[0.0], [1.0], [-0.5], [2.0]])
    with pytest.warns(ConvergenceWarning, match="separate"):
        kind(l2=0.0).fit(x, y, groups=np.arange(4))
    kind().fit(x, y, groups=np.arange(4))
