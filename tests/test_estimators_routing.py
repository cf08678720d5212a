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
    with pytest.warns(MissingGroupsWarning, match="enable_metadata_routing=True"):
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
        model = kind(l2=0.1)  # requests `groups` by itself
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
        model = kind(l2=0.1)  # requests `groups` by itself
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
    with pytest.raises(ParameterError, match="`sample_weight` must be constant"):
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
        with pytest.raises(ParameterError, match=rf"{method} needs `groups`.*enable_metadata_routing"):
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


@pytest.mark.parametrize("target", ["counts", "proportions"])
def test_targets_of_bags_may_be_repeated_per_row_so_that_a_search_can_split_them(target):
    x, y = matched_sets()
    groups = np.concatenate([GROUPS, [12, 12, 13]])  # bags of several sizes
    x, y = np.concatenate([x, x[:3]]), np.concatenate([y, [1, 1, 0]])
    sizes = np.bincount(groups)
    of_bag = np.bincount(groups, y) / (sizes if target == "proportions" else 1)
    model = LabelProportions(target=target).fit(x, of_bag[groups], groups=groups)
    np.testing.assert_array_equal(model.coef_, LabelProportions(target=target).fit(x, of_bag, groups).coef_)
    given = [model.instance_probabilities(x, v, groups) for v in (of_bag, of_bag[groups])]
    np.testing.assert_array_equal(*given)
    p = model.predict_proba(x)[:, 1]
    logs = []
    for bag in range(14):
        law = np.ones(1)
        for q in p[groups == bag]:
            law = np.convolve(law, [1.0 - q, q])
        logs.append(np.log(law[int(np.bincount(groups, y)[bag])]))
    weights = np.arange(14.0)
    for v in (of_bag, of_bag[groups]):
        assert model.score(x, v, groups=groups) == pytest.approx(np.mean(logs), rel=1e-10)
        weighted = model.score(x, v, groups=groups, sample_weight=weights)
        assert weighted == pytest.approx(np.average(logs, weights=weights), rel=1e-10)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            LabelProportions(target=target), {"l2": [1e-3, 1.0]}, cv=GroupKFold(3), error_score="raise"
        )
        search.fit(x, of_bag[groups], groups=groups)
    want = []
    for train, test in GroupKFold(3).split(x, y, groups):
        fitted = LabelProportions(target=target, l2=1.0).fit(x[train], of_bag[groups][train], groups[train])
        want.append(fitted.score(x[test], of_bag[groups][test], groups=groups[test]))
    assert search.cv_results_["mean_test_score"][1] == pytest.approx(np.mean(want), rel=1e-12)


def test_what_is_no_label_has_no_accuracy():
    x, y = matched_sets()
    model = LabelProportions(target="proportions").fit(x, np.bincount(GROUPS, y) / 4, groups=GROUPS)
    assert model.score(x, y) == np.mean(model.predict(x) == y)
    with pytest.raises(ParameterError, match="pass `groups`"):
        model.score(x, np.full(48, 0.25))  # proportions per row, compared with labels, would be 0
    with pytest.raises(ParameterError, match="one label per instance"):
        model.score(x, np.bincount(GROUPS, y))
    with pytest.raises(ParameterError, match="constant within every group"):
        LabelProportions(target="counts").fit(x, np.arange(48) % 3, groups=GROUPS)
    with pytest.raises(ParameterError, match="`y`"):
        LabelProportions(target="counts").fit(x, ["a"] * 12, groups=GROUPS)
    with pytest.raises(ParameterError, match="one label per instance"):
        LabelProportions().fit(x, y, groups=GROUPS).instance_probabilities(x, y[:5], GROUPS)
