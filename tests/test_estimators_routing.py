"""Groups that do not arrive: estimators say so, and scikit-learn's routing brings them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

import sklearn
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tallytree.errors import ParameterError
from tallytree.estimators import (
    BagClassifier,
    ConditionalLogit,
    CountDensity,
    LabelProportions,
    MissingGroupsWarning,
)

GROUPS = np.repeat(np.arange(12), 4)


def matched_sets():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(48, 2))
    y = (np.arange(48) % 4 == 0).astype(int)
    x[y == 1, 0] += 1.0
    return x, y


def bags():
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(12) % 2, 4)
    x = rng.normal(size=(48, 2))
    x[(np.arange(48) % 4 == 0) & (y == 1), 0] += 5.0
    return x, y


CASES = [(BagClassifier, bags), (LabelProportions, matched_sets), (ConditionalLogit, matched_sets)]


@pytest.mark.parametrize(("kind", "data"), CASES)
def test_a_fit_without_groups_warns_and_says_how_to_route(kind, data):
    x, y = data()
    with pytest.warns(MissingGroupsWarning, match=r"set_fit_request\(groups=True\)"):
        kind().fit(x, y)
    with pytest.warns(MissingGroupsWarning):
        cross_val_score(kind(), x, y, groups=GROUPS, cv=GroupKFold(3))
    with pytest.warns(MissingGroupsWarning):
        GridSearchCV(kind(), {"l2": [0.1, 1.0]}, cv=GroupKFold(3)).fit(x, y, groups=GROUPS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind().fit(x, y, groups=GROUPS)


@pytest.mark.parametrize(("kind", "data"), CASES)
def test_routed_groups_arrive_in_cross_validation(kind, data):
    x, y = data()
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = kind(l2=0.1).set_fit_request(groups=True)
        if kind is BagClassifier:
            model.set_score_request(groups=True)
        found = cross_val_score(model, x, y, params={"groups": GROUPS}, cv=GroupKFold(3))
        want = []
        for train, test in GroupKFold(3).split(x, y, GROUPS):
            fitted = kind(l2=0.1).fit(x[train], y[train], groups=GROUPS[train])
            extra = {"groups": GROUPS[test]} if kind is BagClassifier else {}
            want.append(fitted.score(x[test], y[test], **extra))
        np.testing.assert_allclose(found, want)
        search = GridSearchCV(model, {"l2": [0.1, 1.0]}, cv=GroupKFold(3)).fit(x, y, groups=GROUPS)
        direct = kind(**search.best_params_).fit(x, y, groups=GROUPS)
        np.testing.assert_array_equal(search.best_estimator_.coef_, direct.coef_)


@pytest.mark.parametrize(("kind", "data"), CASES)
def test_routed_groups_arrive_through_a_pipeline(kind, data):
    x, y = data()
    with sklearn.config_context(enable_metadata_routing=True):
        model = kind(l2=0.1).set_fit_request(groups=True)
        if kind is BagClassifier:
            model.set_score_request(groups=True)
        pipeline = make_pipeline(StandardScaler(with_mean=False, with_std=False), model)
        found = cross_val_score(
            pipeline, x, y, params={"groups": GROUPS}, cv=GroupKFold(3), error_score="raise"
        )
        want = cross_val_score(model, x, y, params={"groups": GROUPS}, cv=GroupKFold(3))
    np.testing.assert_allclose(found, want)


def test_a_density_at_the_end_of_a_pipeline_has_a_score():
    x = np.random.default_rng(0).integers(0, 2, (40, 3))
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), CountDensity()).fit(x)
        assert pipeline.score(x) == pytest.approx(CountDensity().fit(x).score(x))


def test_scores_have_weights():
    x, y = bags()
    model = BagClassifier(l2=0.1).fit(x, y, groups=GROUPS)
    wrong = np.where(np.arange(12) == 3, 1 - y[::4], y[::4])
    weights = np.arange(12.0)
    by_hand = np.average(model.predict(x, groups=GROUPS) == wrong, weights=weights)
    assert by_hand < 1.0
    assert model.score(x, wrong, groups=GROUPS, sample_weight=weights) == pytest.approx(by_hand)
    assert model.score(x, wrong, groups=GROUPS, sample_weight=weights[GROUPS]) == pytest.approx(by_hand)
    with pytest.raises(ParameterError, match="`sample_weight` given per instance must be constant"):
        model.score(x, wrong, groups=GROUPS, sample_weight=np.arange(48.0))
    density = CountDensity(pseudo_count=0.0, kind="tree").fit([[0, 0], [1, 1], [1, 1]])
    logs = density.score_samples([[0, 0], [1, 1], [0, 1]])
    assert logs[2] == -np.inf
    found = density.score([[0, 0], [1, 1], [0, 1]], sample_weight=[1.0, 3.0, 0.0])
    assert found == pytest.approx((logs[0] + 3.0 * logs[1]) / 4.0)


def test_questions_without_groups_are_refused_after_a_fit_with_them():
    x, y = bags()
    model = BagClassifier().fit(x, y, groups=GROUPS)
    for method in ("predict", "predict_proba", "decision_function", "instance_probabilities"):
        with pytest.raises(ParameterError, match=rf"{method} needs `groups`.*set_score_request"):
            getattr(model, method)(x)
    with pytest.raises(ParameterError, match="score needs `groups`"):
        model.score(x, y)
    x, y = matched_sets()
    with pytest.raises(ParameterError, match="log_likelihood needs `groups`"):
        ConditionalLogit().fit(x, y, groups=GROUPS).log_likelihood(x, y)


@pytest.mark.parametrize(("kind", "data"), CASES)
@pytest.mark.parametrize("absent", [None, np.nan])
def test_missing_and_mixed_group_labels_are_refused(kind, data, absent):
    x, y = data()
    labels = np.array([f"set {g}" for g in GROUPS], object)
    labels[7] = absent
    with pytest.raises(ParameterError, match="`groups` must not contain missing labels, but row 7"):
        kind().fit(x, y, groups=labels)
    labels[7] = 3
    with pytest.raises(ParameterError, match="of one kind"):
        kind().fit(x, y, groups=labels)


@pytest.mark.parametrize(("kind", "data"), CASES)
def test_lists_are_as_good_as_arrays(kind, data):
    x, y = data()
    extra = {"groups": GROUPS.tolist()} if kind is BagClassifier else {}
    model = kind().fit(x.tolist(), y.tolist(), groups=GROUPS.tolist())
    array = {name: np.asarray(value) for name, value in extra.items()}
    assert model.score(x.tolist(), y.tolist(), **extra) == model.score(x, y, **array)


def test_scores_of_counts_per_bag_are_refused_with_advice():
    x, y = matched_sets()
    model = LabelProportions(target="counts").fit(x, np.bincount(GROUPS, y), groups=GROUPS)
    with pytest.raises(ParameterError, match="one label per instance"):
        model.score(x, np.bincount(GROUPS, y))
    with pytest.raises(ParameterError, match="one label per instance"):
        LabelProportions().fit(x, y, groups=GROUPS).instance_probabilities(x, y[:5], GROUPS)
