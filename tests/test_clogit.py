"""Exact conditional likelihoods against R's survival package and against enumeration."""

from __future__ import annotations

import itertools
import pickle
import warnings

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from oracle_states import all_states  # noqa: E402
from real_data import data_folder  # noqa: E402
from reproduction import data  # noqa: E402
from tallytree.errors import ParameterError  # noqa: E402
from tallytree.estimators import CollinearityWarning, ConditionalLogit, MissingGroupsWarning  # noqa: E402
from tallytree.learn import ConditionalLikelihood, fixed_counts, strata_of_groups  # noqa: E402


def r_name(term):
    """`gall[T.Yes]` to `gallYes`, as R writes it."""
    return (
        term.replace("C(", "")
        .replace(")", "")
        .replace("[T.", "")
        .replace("[", "")
        .replace("]", "")
        .replace("`", "")
    )


def expanded_logan(table):
    """One row per person and possible occupation."""
    levels = sorted(table["occupation"].unique())
    rows = [table.assign(id=np.arange(len(table)), tocc=level) for level in levels]
    long = pd.concat(rows, ignore_index=True)
    long["case"] = (long["occupation"] == long["tocc"]).astype(int)
    return long


FORMULAS = {
    "infert_1to2": ("infert", "case ~ spontaneous + induced + strata(stratum)"),
    "infert_pooled": ("infert", "case ~ spontaneous + induced + strata(`pooled.stratum`)"),
    "infert_education": ("infert", "case ~ spontaneous + induced + strata(education)"),
    "logan_multinomial": ("logan", "case ~ tocc + tocc:education + strata(id)"),
    "bdendo_gall": ("bdendo", "d ~ gall + strata(set)"),
    "bdendo_gall_est": ("bdendo", "d ~ gall + hyp + ob + est + non + strata(set)"),
    "bdendo_cest_dur": ("bdendo", "d ~ cest + dur + strata(set)"),
    "birthwt_age": ("birthwt", "low ~ lwt + smoke + ht + ui + ptl + strata(age)"),
    "birthwt_race": ("birthwt", "low ~ age + lwt + smoke + ht + ui + ptl + strata(race)"),
    "birthwt_onestratum": ("birthwt", "low ~ age + lwt + smoke + ht + ui + ptl"),
    "lung_month_exact": ("lung", "Surv(month, status == 2) ~ age + sex + `ph.ecog`"),
    "veteran_month_exact": ("veteran", "Surv(month, status) ~ trt + karno + age + prior + celltype"),
}


def table_for(name, folder):
    dtype = {"cest": "str", "dur": "str"} if name == "bdendo" else None
    table = data.load_csv(f"clogit/{name}.csv", folder, dtype=dtype)
    if "time" in table:
        table["month"] = np.ceil(table["time"] / 30.4375)
    if name == "veteran":
        levels = ["squamous", "smallcell", "adeno", "large"]
        table["celltype"] = pd.Categorical(table["celltype"], categories=levels)
    return expanded_logan(table) if name == "logan" else table


@pytest.mark.data
@pytest.mark.parametrize("model", FORMULAS)
def test_every_row_of_the_r_reference_is_reproduced(model):
    folder = data_folder()
    reference = data.load_csv("clogit/clogit_reference.csv", folder)
    reference = reference[reference["model"] == model]
    name, formula = FORMULAS[model]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = ConditionalLogit.from_formula(formula, table_for(name, folder))
    lonely = [MissingGroupsWarning] if model == "birthwt_onestratum" else []
    aliased = [CollinearityWarning] if reference["coef"].isna().any() else []  # as R warns
    assert [w.category for w in caught] == lonely + aliased
    names = [r_name(term) for term in fit.feature_names_in_]
    assert names == reference["term"].tolist()
    np.testing.assert_allclose(fit.coef_, reference["coef"], atol=1e-6, rtol=0)  # NaN where R says NA
    np.testing.assert_allclose(fit.standard_errors_, reference["se"], atol=1e-6, rtol=0)
    assert fit.log_likelihood_null_ == pytest.approx(reference["loglik_null"].iloc[0], abs=1e-8)
    assert fit.log_likelihood_ == pytest.approx(reference["loglik"].iloc[0], abs=1e-8)


@pytest.mark.data
def test_the_reference_covers_every_model():
    reference = data.load_csv("clogit/clogit_reference.csv", data_folder())
    assert set(reference["model"]) == set(FORMULAS)


def enumerated(theta, k, x):
    y = all_states((2,) * len(theta))
    y = y[y.sum(1) == k]
    score = y @ theta
    weight = np.exp(score - score.max())
    log_sum = score.max() + np.log(weight.sum())
    weight /= weight.sum()
    statistic = y @ x - weight @ (y @ x)
    return log_sum, weight @ y, (statistic * weight[:, None]).T @ statistic


@pytest.mark.parametrize("seed", range(40))
def test_sums_match_enumeration(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 10))
    k = int(rng.integers(1, n))
    theta = rng.normal(size=n) * rng.choice([0.1, 1.0, 5.0, 30.0])
    x = rng.normal(size=(n, 3)) + 10.0
    pad = int(rng.integers(0, 4))
    padded = np.concatenate([theta, np.full(pad, -np.inf)])[None]
    found = fixed_counts(padded, np.array([k]))
    spread = found.covariances(np.concatenate([x, np.zeros((pad, 3))])[None])
    log_sum, marginals, covariance = enumerated(theta, k, x)
    assert found.log_sum[0] == pytest.approx(log_sum, rel=1e-13, abs=1e-13)
    np.testing.assert_allclose(found.marginals[0, :n], marginals, atol=1e-14, rtol=0)
    np.testing.assert_allclose(spread[0], covariance, atol=1e-13 * (n + (x - x.mean(0)) ** 2).sum())


def test_large_sets_match_log_space_recursion():
    rng = np.random.default_rng(3)
    theta, k = 4.0 * rng.normal(size=700), 180
    log_e = np.full(k + 1, -np.inf)
    log_e[0] = 0.0
    for t in theta:
        log_e[1:] = np.logaddexp(log_e[1:], log_e[:-1] + t)
    assert fixed_counts(theta[None], np.array([k])).log_sum[0] == pytest.approx(log_e[k], rel=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_many_large_sets_match_log_space_recursion(seed):
    """A search for the tilt that met its aim exactly used to be thrown away: log-sums off by hundreds of nats."""
    rng = np.random.default_rng(seed)
    theta, k = rng.normal(size=(60, 300)), rng.integers(1, 300, size=60)
    log_e = np.full((60, 301), -np.inf)
    log_e[:, 0] = 0.0
    for t in theta.T:
        log_e[:, 1:] = np.logaddexp(log_e[:, 1:], log_e[:, :-1] + t[:, None])
    rows = np.arange(60)
    sets = strata_of_groups(np.repeat(rows, 300), (np.arange(300) < k[:, None]).reshape(-1))
    beta = np.ones(1)
    eta_of_cases = theta[np.arange(300) < k[:, None]].sum()
    value = ConditionalLikelihood(theta.reshape(-1, 1), sets).derivatives(beta)[0]
    assert value == pytest.approx(eta_of_cases - log_e[rows, k].sum(), rel=1e-12)


def test_derivatives_match_finite_differences():
    rng = np.random.default_rng(1)
    x, codes = rng.normal(size=(300, 3)), rng.integers(0, 12, 300)
    likelihood = ConditionalLikelihood(x, strata_of_groups(codes, rng.random(300) < 0.3))
    beta, h = rng.normal(size=3), 1e-5
    _, gradient, information = likelihood.derivatives(beta)
    for j in range(3):
        e = h * np.eye(3)[j]
        up, down = likelihood.derivatives(beta + e), likelihood.derivatives(beta - e)
        assert (up[0] - down[0]) / (2 * h) == pytest.approx(gradient[j], abs=1e-6)
        np.testing.assert_allclose((down[1] - up[1]) / (2 * h), information[j], atol=1e-6)


@pytest.mark.parametrize("far", [1e6, 1e10, 1e13])
def test_covariates_that_share_a_large_number_keep_the_digits_of_their_differences(far):
    """Times in seconds since 1970, say: what all rows of a stratum share is no part of the likelihood."""
    groups, cases = np.repeat([0, 1, 2], 4), np.array([1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0], bool)
    x = far + np.round(np.random.default_rng(5).normal(size=(12, 1)), 2)
    sets = strata_of_groups(groups, cases)
    found, near = (
        ConditionalLikelihood(z, sets).first_order([1.3]) for z in (x, x - far)
    )  # the step is exact
    np.testing.assert_allclose(found[0], near[0], rtol=1e-13)
    np.testing.assert_allclose(found[1], near[1], rtol=1e-12)


def test_strata_have_no_negative_weights():
    sets = strata_of_groups([0, 0], [True, False])
    with pytest.raises(ParameterError, match="`weights` must be an array of finite numbers of at least 0"):
        ConditionalLikelihood([[1.0], [0.0]], sets, weights=[-1.0])


def test_coefficients_are_recovered_from_large_strata():
    rng = np.random.default_rng(0)
    beta = np.array([0.5, -1.0, 0.25])
    x = rng.normal(size=(20_000, 3))
    groups = np.repeat(np.arange(20), 1000)
    y = rng.random(20_000) < 1.0 / (1.0 + np.exp(-(x @ beta + rng.normal(size=20)[groups])))
    fit = ConditionalLogit().fit(x, y, groups=groups)
    assert np.all(np.abs(fit.coef_ - beta) < 4.0 * fit.standard_errors_)
    assert np.all(fit.standard_errors_ < 0.05)


def test_predictions_within_strata_count_the_cases():
    rng = np.random.default_rng(2)
    x, y, groups = rng.normal(size=(60, 2)), rng.integers(0, 2, 60), np.repeat(np.arange(6), 10)
    fit = ConditionalLogit().fit(x, y, groups)
    k = np.array([0, 1, 3, 5, 9, 10])
    positive = fit.predict_proba(x, groups=groups, n_cases=k)[:, 1]
    np.testing.assert_allclose(np.bincount(groups, positive), k, atol=1e-12)
    assert fit.log_likelihood(x, y, groups) == pytest.approx(fit.log_likelihood_, rel=1e-12)


def test_survival_without_ties_is_the_ordinary_partial_likelihood():
    rng = np.random.default_rng(4)
    x, time, event = (
        rng.normal(size=(40, 1)),
        rng.permutation(40.0 * np.ones(40).cumsum()),
        rng.random(40) < 0.7,
    )
    fit = ConditionalLogit().fit_survival(x, time, event)

    def log_likelihood(b):
        eta = b * x[:, 0]
        return sum(eta[i] - np.log(np.exp(eta[time >= time[i]]).sum()) for i in np.flatnonzero(event))

    assert fit.log_likelihood_ == pytest.approx(log_likelihood(fit.coef_[0]), rel=1e-12)
    assert log_likelihood(fit.coef_[0]) >= max(log_likelihood(fit.coef_[0] + d) for d in (-1e-3, 1e-3))


def test_summary_reads_and_pickles():
    rng = np.random.default_rng(5)
    x, y, groups = rng.normal(size=(80, 2)), rng.integers(0, 2, 80), np.repeat(np.arange(8), 10)
    fit = pickle.loads(
        pickle.dumps(ConditionalLogit().fit(pd.DataFrame(x, columns=["dose", "age"]), y, groups))
    )
    text = str(fit.summary())
    assert "dose" in text
    assert "likelihood-ratio test" in text
    frame = fit.summary().to_frame()
    np.testing.assert_allclose(frame["z"], fit.coef_ / fit.standard_errors_)
    assert fit.conf_int().shape == (2, 2)


def test_errors_say_what_to_do():
    x = np.arange(8.0).reshape(4, 2)
    with pytest.raises(ParameterError, match="No stratum holds both classes"):
        ConditionalLogit().fit(x, [0, 0, 1, 1], groups=[0, 0, 1, 1])
    with pytest.raises(ParameterError, match="one entry per row"):
        ConditionalLogit().fit(x, [0, 1, 0, 1], groups=[0, 1])
    with pytest.raises(ParameterError, match="strata"):
        ConditionalLogit.from_formula("y ~ a + strata(nowhere)", {"y": [0, 1], "a": [1.0, 2.0]})
    with pytest.raises(ParameterError, match="status == 2"):
        ConditionalLogit.from_formula("Surv(t, s) ~ a", {"t": [1, 2], "s": [1, 2], "a": [1.0, 2.0]})


@pytest.mark.parametrize("max_iter", [10, 50])
def test_separated_data_warn(max_iter):
    from sklearn.exceptions import ConvergenceWarning

    with pytest.warns(ConvergenceWarning, match="infinite"):
        ConditionalLogit(max_iter=max_iter).fit(
            [[0.0], [1.0], [0.0], [1.0]], [0, 1, 0, 1], groups=[0, 0, 1, 1]
        )


def matched(seed=0, sets=15, size=5, p=2):
    rng = np.random.default_rng(seed)
    x, groups = rng.normal(size=(sets * size, p)), np.repeat(np.arange(sets), size)
    y = np.zeros((sets, size), int)
    for row in y:
        row[rng.choice(size, rng.integers(1, 3), replace=False)] = 1
    return x, y.reshape(-1), groups


def enumerated_log_likelihood(eta, y, groups, weights=None):
    """Sum over sets of the log-probability of its cases among all choices of as many."""
    total = 0.0
    for g in np.unique(groups):
        e, c = eta[groups == g], y[groups == g]
        all_sums = [e[list(s)].sum() for s in itertools.combinations(range(len(e)), int(c.sum()))]
        term = e[c == 1].sum() - np.logaddexp.reduce(all_sums)
        total += term if weights is None else weights[groups == g][0] * term
    return total


def test_the_case_is_said_or_refused_but_never_the_alphabets():
    x, y, groups = matched()
    number = ConditionalLogit().fit(x, y, groups)
    words = np.array(["control", "case"])[y]
    with pytest.raises(ParameterError, match=r"ambiguous.*case='case'"):
        ConditionalLogit().fit(x, words, groups)
    said = ConditionalLogit(case="case").fit(x, words, groups)
    np.testing.assert_array_equal(said.coef_, number.coef_)
    assert said.classes_.tolist() == ["control", "case"]
    np.testing.assert_array_equal(said.predict(x) == "case", number.predict(x) == 1)
    np.testing.assert_array_equal(said.predict_proba(x), number.predict_proba(x))
    assert said.log_likelihood(x, words, groups) == pytest.approx(number.log_likelihood_, rel=1e-12)
    for clear in (["no", "yes"], ["healthy", "sick"]):
        np.testing.assert_array_equal(
            ConditionalLogit().fit(x, np.array(clear)[y], groups).coef_, number.coef_
        )
    with pytest.warns(UserWarning, match="'two', the second in alphabetical order"):
        ConditionalLogit().fit(x, np.array(["one", "two"])[y], groups)
    flipped = ConditionalLogit(case=0).fit(x, y, groups)
    np.testing.assert_allclose(flipped.coef_, -number.coef_, atol=1e-8)
    with pytest.raises(ParameterError, match="`case` must be one of the labels"):
        ConditionalLogit(case="cases").fit(x, words, groups)


def test_rows_and_strata_used_and_dropped_are_reported():
    x, y, groups = matched(1, sets=6)
    y[:5], y[5:10] = 0, 1  # a set without a case and one without a control
    fit = ConditionalLogit().fit(x, y, groups)
    assert (fit.n_strata_, fit.n_strata_dropped_) == (4, 2)
    assert (fit.n_rows_used_, fit.n_rows_dropped_, fit.n_rows_missing_) == (20, 10, 0)
    frame = pd.DataFrame({"a": x[:, 0], "y": y, "set": groups})
    frame.loc[[12, 20], "a"] = np.nan
    fit = ConditionalLogit.from_formula("y ~ a + strata(set)", frame)
    assert (fit.n_rows_used_, fit.n_rows_dropped_, fit.n_rows_missing_) == (18, 10, 2)
    text = str(fit.summary())
    assert "4 used, 2 without a case or a control dropped" in text
    assert "18 used, 10 dropped with their strata, 2 with missing values" in text


def test_tiny_p_values_are_printed_as_they_are():
    from tallytree.estimators._conditional_report import CoefficientTable

    z = np.array([1.0, 20.0, 37.0, 45.0])
    table = CoefficientTable("t", tuple("abcd"), z, np.ones(4), 0.95, ())
    text = str(table)
    # 2 (1 - Phi(z)) to three digits, from tables in high precision.
    for p in ("0.317", "5.51e-89", "1.15e-299", "<1e-300"):
        assert p in text
    assert "p = 0 " not in text
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(4000, 1)), np.repeat(np.arange(1000), 4)
    y = np.zeros((1000, 4), int)
    y[np.arange(1000), (x.reshape(1000, 4) + 0.05 * rng.normal(size=(1000, 4))).argmax(1)] = 1
    fit = ConditionalLogit().fit(x, y.reshape(-1), groups)
    assert "p < 1e-300" in str(fit.summary())


def test_formulas_predict_from_tables():
    x, y, groups = matched(2)
    frame = pd.DataFrame({"a": x[:, 0], "kind": np.where(x[:, 1] > 0, "u", "v"), "y": y, "set": groups})
    fit = ConditionalLogit.from_formula("y ~ a + kind + strata(set)", frame)
    design = pd.DataFrame({fit.feature_names_in_[0]: x[:, 0], fit.feature_names_in_[1]: (x[:, 1] <= 0) * 1.0})
    eta = design.to_numpy() @ fit.coef_ + fit.intercept_
    np.testing.assert_allclose(fit.decision_function(frame), eta, atol=1e-12)
    np.testing.assert_array_equal(fit.predict(frame.drop(columns=["y", "set"])), (eta > 0).astype(int))
    np.testing.assert_array_equal(fit.predict(design), fit.predict(frame))
    new = pd.DataFrame({"a": [0.5, 1.0], "kind": ["v", "v"]}, index=[7, 9])  # one level, another index
    np.testing.assert_allclose(fit.decision_function(new), [[0.5, 1], [1, 1]] @ fit.coef_ + fit.intercept_)
    assert fit.log_likelihood(frame) == pytest.approx(fit.log_likelihood_, rel=1e-12)
    positive = fit.predict_proba(frame, n_cases=2)[:, 1]
    np.testing.assert_allclose(np.bincount(groups, positive), 2.0, atol=1e-12)
    again = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(again.predict(frame), fit.predict(frame))
    with pytest.raises(ParameterError, match="row 1"):
        fit.predict(new.assign(a=[0.5, np.nan]))
    with pytest.raises(ParameterError, match="columns of the formula"):
        fit.predict(new.drop(columns="a"))


def test_offsets_shift_the_linear_predictor():
    x, y, groups = matched(3)
    offset = np.random.default_rng(3).normal(size=len(y))
    fit = ConditionalLogit().fit(x, y, groups, offset=offset)
    value = enumerated_log_likelihood(x @ fit.coef_ + offset, y, groups)
    assert fit.log_likelihood_ == pytest.approx(value, rel=1e-12)
    assert fit.log_likelihood_null_ == pytest.approx(enumerated_log_likelihood(offset, y, groups), rel=1e-12)
    for j in range(2):
        for h in (-1e-3, 1e-3):
            there = x @ (fit.coef_ + h * np.eye(2)[j]) + offset
            assert enumerated_log_likelihood(there, y, groups) < value
    assert fit.log_likelihood(x, y, groups, offset=offset) == pytest.approx(value, rel=1e-12)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "set": groups, "off": offset})
    by_formula = ConditionalLogit.from_formula("y ~ a + b + offset(off) + strata(set)", frame)
    np.testing.assert_allclose(by_formula.coef_, fit.coef_, rtol=1e-12)
    want = fit.decision_function(x, offset=offset)
    np.testing.assert_allclose(by_formula.decision_function(frame), want, atol=1e-12)
    # A covariate with a known coefficient is an offset.
    known = ConditionalLogit().fit(x[:, :1], y, groups, offset=x[:, 1] * fit.coef_[1] + offset)
    assert known.coef_[0] == pytest.approx(fit.coef_[0], abs=1e-8)
    with pytest.raises(ParameterError, match="`offset`"):
        ConditionalLogit().fit(x, y, groups, offset=offset[:3])


def test_weights_of_strata_stand_for_repeated_strata():
    x, y, groups = matched(4)
    times = np.random.default_rng(4).integers(0, 4, 15)
    weights = times[groups]
    fit = ConditionalLogit().fit(x, y, groups, sample_weight=weights)
    copies = [np.flatnonzero(groups == g) for g in range(15) for _ in range(times[g])]
    rows = np.concatenate(copies)
    labels = np.repeat(np.arange(len(copies)), 5)
    repeated = ConditionalLogit().fit(x[rows], y[rows], labels)
    np.testing.assert_allclose(fit.coef_, repeated.coef_, atol=1e-9)
    np.testing.assert_allclose(fit.standard_errors_, repeated.standard_errors_, atol=1e-9)
    assert fit.n_strata_dropped_ == (times == 0).sum()
    half = ConditionalLogit().fit(x, y, groups, sample_weight=0.5 * weights)
    np.testing.assert_allclose(half.coef_, fit.coef_, atol=1e-7)
    value = enumerated_log_likelihood(x @ half.coef_, y, groups, 0.5 * weights)
    assert half.log_likelihood_ == pytest.approx(value, rel=1e-12)
    with pytest.raises(ParameterError, match="constant within every group"):
        ConditionalLogit().fit(x, y, groups, sample_weight=np.arange(len(y)))
    with pytest.raises(ParameterError, match=r"entry 0 is -1"):
        ConditionalLogit().fit(x, y, groups, sample_weight=-np.ones(len(y)))


def test_weights_of_people_stand_for_repeated_people():
    rng = np.random.default_rng(5)
    x, time, event = rng.normal(size=(30, 1)), rng.integers(1, 8, 30), rng.random(30) < 0.7
    times = rng.integers(0, 3, 30)
    fit = ConditionalLogit().fit_survival(x, time, event, sample_weight=times)
    rows = np.repeat(np.arange(30), times)
    np.testing.assert_allclose(
        fit.coef_, ConditionalLogit().fit_survival(x[rows], time[rows], event[rows]).coef_, atol=1e-9
    )
    with pytest.raises(ParameterError, match="whole numbers"):
        ConditionalLogit().fit_survival(x, time, event, sample_weight=np.full(30, 0.5))


@pytest.mark.parametrize("weighted", [False, True])
def test_cluster_robust_errors_match_scores_by_finite_differences(weighted):
    x, y, groups = matched(6)
    clinic = np.array(["north", "south", "east", "west"])[groups % 4]
    weights = (1.0 + groups % 3) if weighted else None
    fit = ConditionalLogit().fit(x, y, groups, sample_weight=weights, cluster=clinic)
    plain = ConditionalLogit().fit(x, y, groups, sample_weight=weights)
    np.testing.assert_array_equal(fit.coef_, plain.coef_)
    np.testing.assert_array_equal(fit.naive_covariance_, plain.covariance_)

    def log_likelihood(beta, inside):
        chosen = None if weights is None else weights[inside]
        return enumerated_log_likelihood(x[inside] @ beta, y[inside], groups[inside], chosen)

    def gradient(beta, inside, h=1e-5):
        steps = h * np.eye(2)
        return np.array(
            [log_likelihood(beta + s, inside) - log_likelihood(beta - s, inside) for s in steps]
        ) / (2 * h)

    everything = np.ones(len(y), bool)
    h = 1e-4
    hessian = np.array(
        [
            (gradient(fit.coef_ + s, everything) - gradient(fit.coef_ - s, everything)) / (2 * h)
            for s in h * np.eye(2)
        ]
    )
    scores = np.array([gradient(fit.coef_, clinic == c) for c in np.unique(clinic)])
    bread = np.linalg.inv(-hessian)
    np.testing.assert_allclose(fit.covariance_, bread @ scores.T @ scores @ bread, rtol=1e-4)
    np.testing.assert_allclose(fit.standard_errors_, np.sqrt(np.diag(fit.covariance_)))
    assert fit.n_clusters_ == 4
    assert "robust, 4 clusters" in str(fit.summary())
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "set": groups, "clinic": clinic})
    if not weighted:
        again = ConditionalLogit.from_formula("y ~ a + b + strata(set)", frame, cluster="clinic")
        np.testing.assert_allclose(again.covariance_, fit.covariance_, rtol=1e-12)
    with pytest.raises(ParameterError, match="`cluster` must be constant within"):
        ConditionalLogit().fit(x, y, groups, cluster=np.arange(len(y)))


def test_numbers_of_cases_are_checked():
    x, y, groups = matched(7)
    fit = ConditionalLogit().fit(x, y, groups)
    for wrong in (1.5, [1, 2], -1, 6):
        with pytest.raises(ParameterError, match="`n_cases`"):
            fit.predict_proba(x, groups=groups, n_cases=wrong)


def test_an_offset_that_decides_everything_warns():
    from sklearn.exceptions import ConvergenceWarning

    x, y, groups = matched(8)
    with pytest.warns(ConvergenceWarning, match="offset"):
        ConditionalLogit().fit(x, y, groups, offset=1e5 * y)


def test_mappings_of_columns_are_tables_too():
    x, y, groups = matched(9)
    columns = {"a": x[:, 0], "y": y, "set": groups}
    fit = ConditionalLogit.from_formula("y ~ a + strata(set)", columns)
    np.testing.assert_allclose(fit.decision_function({"a": [1.0, 2.0]}), [1, 2] * fit.coef_ + fit.intercept_)


def collinear():
    x, y, groups = matched()
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "both": x[:, 0] - x[:, 1], "set level": groups / 3.0})
    return frame, y, groups


def test_collinear_columns_are_left_out_with_a_warning_that_names_them():
    frame, y, groups = collinear()
    rest = ConditionalLogit().fit(frame[["a", "b"]], y, groups=groups)
    with pytest.warns(CollinearityWarning, match="'both', 'set level'") as caught:
        fit = ConditionalLogit().fit(frame, y, groups=groups)
    assert caught[0].filename == __file__
    np.testing.assert_allclose(fit.coef_, [*rest.coef_, np.nan, np.nan], rtol=1e-9)
    np.testing.assert_allclose(fit.standard_errors_, [*rest.standard_errors_, 0.0, 0.0], rtol=1e-9)
    np.testing.assert_allclose(fit.predict_proba(frame), rest.predict_proba(frame[["a", "b"]]), rtol=1e-9)
    with pytest.warns(CollinearityWarning, match="'x2', 'x3'"):
        ConditionalLogit().fit(frame.to_numpy(), y, groups=groups)
    with pytest.warns(CollinearityWarning, match="'x1'") as caught:
        ConditionalLogit().fit_survival(frame[["a", "a"]].to_numpy(), np.arange(len(y)) % 7, y)
    assert caught[0].filename == __file__
    data = frame.assign(y=y, set=groups)
    with pytest.warns(CollinearityWarning, match=r"'I\(a \+ b\)'") as caught:
        ConditionalLogit.from_formula("y ~ a + b + I(a + b) + strata(set)", data)
    assert caught[0].filename == __file__


def test_a_penalty_settles_collinear_columns():
    frame, y, groups = collinear()
    frame = frame.assign(twice=frame["a"])
    fit = ConditionalLogit(l2=0.7).fit(frame, y, groups=groups)
    assert np.isfinite(fit.coef_).all()
    assert (fit.standard_errors_ > 0).all()
    assert fit.coef_[4] == pytest.approx(fit.coef_[0], rel=1e-9)
    assert fit.coef_[3] == pytest.approx(0.0, abs=1e-12)  # constant within sets

    def penalised(beta):
        return enumerated_log_likelihood(frame.to_numpy() @ beta, y, groups) - 0.35 * beta @ beta

    slope = [(penalised(fit.coef_ + h) - penalised(fit.coef_ - h)) / 2e-5 for h in 1e-5 * np.eye(5)]
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)


def test_neither_the_origin_of_a_column_nor_the_unit_of_the_weights_matters():
    x, y, groups = matched()
    fit = ConditionalLogit().fit(x, y, groups=groups)
    far = ConditionalLogit().fit(x + 1e8, y, groups=groups)  # as dates and identifiers are
    np.testing.assert_allclose(far.coef_, fit.coef_, rtol=1e-6)
    np.testing.assert_allclose(far.standard_errors_, fit.standard_errors_, rtol=1e-6)
    for unit in (1e-12, 1e200):
        weighted = ConditionalLogit().fit(x, y, groups=groups, sample_weight=np.full(len(y), unit))
        np.testing.assert_allclose(weighted.coef_, fit.coef_, rtol=1e-9)
        np.testing.assert_allclose(weighted.standard_errors_ * np.sqrt(unit), fit.standard_errors_, rtol=1e-9)
