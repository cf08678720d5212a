"""Model comparison, tests, residuals, robust errors and names of `ConditionalLogit`, against definitions."""

import io
import itertools
import pydoc
import re

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import stats

from real_data import data_folder
from reproduction import data
from tallytree.errors import ParameterError
from tallytree.estimators import ConditionalLogit


def matched(seed=0, sets=40, size=5):
    """Sets with one to three cases; age has missing values, clinics hold whole sets."""
    rng = np.random.default_rng(seed)
    n = sets * size
    frame = pd.DataFrame(
        {
            "smoke": rng.integers(0, 2, n).astype(float),
            "age": rng.normal(50.0, 10.0, n),
            "race": rng.choice(["black", "other", "white"], n),
            "set": np.repeat(np.arange(sets), size),
        }
    )
    frame["clinic"] = frame["set"] % 7
    score = 0.8 * frame["smoke"] + 0.02 * frame["age"] + rng.logistic(size=n)
    rank = score.groupby(frame["set"]).rank(ascending=False)
    frame["case"] = (rank <= 1 + frame["set"] % 3).astype(int)
    return frame


def survival(seed=0, n=40, times=1000):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    frame["time"] = rng.permutation(times)[:n] + 1.0 if times >= n else rng.integers(1, times + 1, n) * 1.0
    frame["event"] = (rng.random(n) < 0.8).astype(int)
    frame["person"] = rng.integers(0, n // 3, n)
    return frame


# -- comparison of models ------------------------------------------------------------------------------------------


def test_a_smaller_model_is_compared_by_the_likelihood_ratio():
    frame = matched()
    whole = ConditionalLogit.from_formula("case ~ smoke + age + factor(race) + strata(set)", frame)
    part = ConditionalLogit.from_formula("case ~ smoke + strata(set)", frame)
    test = whole.likelihood_ratio_test(part)
    assert test.statistic == pytest.approx(2 * (whole.log_likelihood_ - part.log_likelihood_), rel=1e-12)
    assert test.df == 3
    assert test.p_value == pytest.approx(stats.chi2.sf(test.statistic, 3), rel=1e-12)
    assert whole.aic_ == pytest.approx(-2 * whole.log_likelihood_ + 8, rel=1e-12)
    assert whole.bic_ == pytest.approx(
        -2 * whole.log_likelihood_ + 4 * np.log(frame["case"].sum()), rel=1e-12
    )


def test_comparisons_that_mean_nothing_are_refused():
    frame = matched(1)
    holes = frame.assign(age=frame["age"].where(frame.index % 11 > 0))
    formula = "case ~ smoke + age + strata(set)"
    whole, part = (ConditionalLogit.from_formula(f, holes) for f in (formula, "case ~ smoke + strata(set)"))
    with pytest.raises(ParameterError, match=r"same rows.*missing values"):
        whole.likelihood_ratio_test(part)
    complete = ConditionalLogit.from_formula("case ~ smoke + strata(set)", holes.dropna())
    again = ConditionalLogit.from_formula(formula, holes.dropna())
    assert again.likelihood_ratio_test(complete).df == 1
    with pytest.raises(ParameterError, match="Swap the two"):
        complete.likelihood_ratio_test(again)
    with pytest.raises(ParameterError, match="Swap the two"):
        complete.likelihood_ratio_test(
            ConditionalLogit.from_formula("case ~ age + strata(set)", holes.dropna())
        )
    with pytest.raises(ParameterError, match="`reduced` must be"):
        whole.likelihood_ratio_test("smoke")
    robust = ConditionalLogit.from_formula(formula, holes, robust=True)
    with pytest.raises(ParameterError, match="`wald_test`"):
        robust.likelihood_ratio_test(whole)
    shuffled = ConditionalLogit.from_formula(
        "case ~ smoke + strata(set)",
        frame.assign(set=frame["set"].sample(frac=1.0, random_state=0).to_numpy()),
    )
    with pytest.raises(ParameterError, match="same rows"):
        ConditionalLogit.from_formula(formula, frame).likelihood_ratio_test(shuffled)
    with pytest.raises(ParameterError, match=r"l2 = 0\.5"):
        _ = ConditionalLogit.from_formula(formula, frame, l2=0.5).aic_


def test_terms_are_tested_together():
    frame = matched(2)
    fit = ConditionalLogit.from_formula(
        "case ~ smoke * age + relevel(race, ref='white') + strata(set)", frame
    )
    names = fit.feature_names_in_.tolist()
    assert names[2:4] == ["relevel(race, ref='white')[T.black]", "relevel(race, ref='white')[T.other]"]
    b, v = fit.coef_[2:4], fit.covariance_[2:4, 2:4]
    for asked in ("race", "relevel(race, ref='white')", names[2:4]):
        test = fit.wald_test(asked)
        assert (test.statistic, test.df) == (pytest.approx(b @ np.linalg.solve(v, b), rel=1e-9), 2)
    assert fit.wald_test("smoke").statistic == pytest.approx(fit.z_[0] ** 2, rel=1e-9)
    assert fit.wald_test("smoke").p_value == pytest.approx(fit.p_values_[0], rel=1e-9)
    difference = fit.wald_test([[0, 0, 1, -1, 0]])
    spread = v[0, 0] + v[1, 1] - 2 * v[0, 1]
    assert difference.statistic == pytest.approx((b[0] - b[1]) ** 2 / spread, rel=1e-9)
    with pytest.raises(ParameterError, match="Did you mean 'smoke'"):
        fit.wald_test("smok")
    with pytest.raises(ParameterError, match="`terms`"):
        fit.wald_test([[1.0, 0.0]])


def test_levels_of_factors_are_compared_with_the_reference():
    frame = matched(3)
    by_hand = pd.DataFrame({level: (frame["race"] == level) * 1.0 for level in ("black", "other")})
    direct = ConditionalLogit().fit(by_hand, frame["case"], groups=frame["set"])
    for term in ("relevel(race, ref='white')", "factor(race, ref='white')", "C(race, Treatment('white'))"):
        fit = ConditionalLogit.from_formula(f"case ~ {term} + strata(set)", frame)
        np.testing.assert_allclose(fit.coef_, direct.coef_, rtol=1e-9)
    np.testing.assert_allclose(fit.decision_function(frame.iloc[:3]), fit.decision_function(frame)[:3])
    numbers = frame.assign(race=frame["race"].map({"black": 1, "other": 2, "white": 3}))
    fit = ConditionalLogit.from_formula("case ~ factor(race, ref=3) + strata(set)", numbers)
    np.testing.assert_allclose(fit.coef_, direct.coef_, rtol=1e-9)
    with pytest.raises(ParameterError, match=r"`ref` must be one of the levels.*'green' arrived"):
        ConditionalLogit.from_formula("case ~ relevel(race, ref='green') + strata(set)", frame)


# -- residuals and robust errors -----------------------------------------------------------------------------------


def chosen(eta, k, x):
    """P(case) of every row and the expected sum of x, when k rows are cases: by summing over all choices."""
    weight, on, total = 0.0, np.zeros(len(eta)), np.zeros(x.shape[1])
    for cases in itertools.combinations(range(len(eta)), k):
        w = np.exp(eta[list(cases)].sum())
        weight, on[list(cases)], total = weight + w, on[list(cases)] + w, total + w * x[list(cases)].sum(0)
    return on / weight, total / weight


def shares(frame, beta):
    """Martingale residuals, score of every row and Schoenfeld residuals, time by time."""
    x, excess = frame[["a", "b"]].to_numpy(), np.zeros(len(frame))
    score, steps = np.zeros(x.shape), []
    for t in np.unique(frame["time"][frame["event"] == 1]):
        rows = np.flatnonzero(frame["time"] >= t)
        case = ((frame["time"] == t) & (frame["event"] == 1)).to_numpy()[rows]
        k = int(case.sum())
        if k == len(rows):
            continue
        p, total = chosen(x[rows] @ beta, k, x[rows])
        middle = total - chosen(x[rows] @ beta, k - 1, x[rows])[1]
        excess[rows] += case - p
        score[rows] += (case - p)[:, None] * (x[rows] - middle)
        steps.append(x[rows][case].sum(0) - total)
    return excess, score, np.array(steps)


@pytest.mark.parametrize(("n", "times"), [(30, 1000), (12, 5)])
def test_survival_residuals_and_robust_errors_follow_their_definitions(n, times):
    frame = survival(4, n, times)
    fit = ConditionalLogit.from_formula("Surv(time, event) ~ a + b", frame, robust=True)
    excess, score, steps = shares(frame, fit.coef_)
    np.testing.assert_allclose(fit.residuals(), excess, atol=1e-9)
    np.testing.assert_allclose(fit.residuals("schoenfeld"), steps, atol=1e-9)
    np.testing.assert_allclose(fit.residuals("dfbeta"), score @ fit.naive_covariance_, atol=1e-9)
    want = fit.naive_covariance_ @ score.T @ score @ fit.naive_covariance_
    np.testing.assert_allclose(fit.covariance_, want, rtol=1e-8)
    by_person = ConditionalLogit.from_formula("Surv(time, event) ~ a + b + cluster(person)", frame)
    sums = np.stack([np.bincount(frame["person"], s) for s in score.T])
    np.testing.assert_allclose(
        by_person.covariance_, fit.naive_covariance_ @ sums @ sums.T @ fit.naive_covariance_, rtol=1e-8
    )
    assert by_person.n_clusters_ == frame["person"].nunique()
    again = ConditionalLogit().fit_survival(frame, "time", "event", cluster="person")
    np.testing.assert_allclose(again.covariance_, by_person.covariance_, rtol=1e-12)


def test_robust_errors_of_matched_sets_are_those_of_clusters_of_single_sets():
    frame = matched(5)
    fit = ConditionalLogit.from_formula("case ~ smoke + age + strata(set)", frame, robust=True)
    by_set = ConditionalLogit.from_formula("case ~ smoke + age", frame, groups="set", cluster="set")
    np.testing.assert_allclose(fit.covariance_, by_set.covariance_, rtol=1e-12)
    influence = fit.residuals("dfbeta")
    np.testing.assert_allclose(influence.T @ influence, fit.covariance_, rtol=1e-9)
    assert "robust, 40 clusters" in str(fit.summary())
    assert "as if strata were independent" in str(fit.summary())


def test_residuals_know_rows_with_missing_values():
    frame = matched(6)
    holes = frame.assign(age=frame["age"].where(frame.index % 13 > 0))
    fit = ConditionalLogit.from_formula("case ~ age + strata(set)", holes)
    residuals = fit.residuals()
    assert residuals.shape == (len(frame),)
    np.testing.assert_array_equal(np.isnan(residuals), holes["age"].isna())
    inside = holes.dropna().groupby("set").filter(lambda s: 0 < s["case"].sum() < len(s)).index
    p = fit.predict_proba(
        holes.loc[inside], groups="set", n_cases=holes.loc[inside].groupby("set")["case"].sum()
    )[:, 1]
    np.testing.assert_allclose(residuals[inside], frame["case"][inside] - p, atol=1e-9)
    with pytest.raises(ParameterError, match="`kind`"):
        fit.residuals("pearsonal")


# -- names ---------------------------------------------------------------------------------------------------------


def test_columns_can_be_named():
    frame = matched(7)
    direct = ConditionalLogit().fit(frame[["smoke", "age"]], frame["case"], groups=frame["set"])
    named = ConditionalLogit().fit(frame[["smoke", "age", "case", "set"]], "case", groups="set")
    np.testing.assert_array_equal(named.coef_, direct.coef_)
    assert named.feature_names_in_.tolist() == ["smoke", "age"]
    two = ConditionalLogit.from_formula("case ~ smoke", frame, groups=["set", "clinic"])
    assert two.n_strata_ == 40
    with pytest.raises(
        ParameterError, match=r"`groups` must have one entry per row, or name a column.*'sets'"
    ):
        ConditionalLogit().fit(frame[["smoke", "set"]], frame["case"], groups="sets")
    with pytest.raises(ParameterError, match=r"`groups` .*name a column of the table"):
        ConditionalLogit().fit(frame[["smoke"]].to_numpy(), frame["case"], groups="set")
    with pytest.raises(ParameterError, match="'nowhere'"):
        ConditionalLogit.from_formula("case ~ smoke", frame, groups="nowhere")
    with pytest.raises(ParameterError, match=r"`strata\(...\)` once"):
        ConditionalLogit.from_formula("case ~ smoke + strata(set)", frame, groups="set")


def test_survival_has_no_classes():
    frame = survival(8)
    fit = ConditionalLogit.from_formula("Surv(time, event) ~ a + b", frame)
    for ask in (fit.predict, fit.predict_proba, fit.log_likelihood):
        with pytest.raises(ParameterError, match=r"hazard_ratio\(X\)"):
            ask(frame)
    assert not hasattr(fit, "classes_")
    assert not hasattr(fit, "intercept_")
    x = frame[["a", "b"]].to_numpy()
    np.testing.assert_allclose(fit.hazard_ratio(frame), np.exp(x @ fit.coef_), rtol=1e-12)
    np.testing.assert_allclose(
        fit.hazard_ratio(frame, frame.iloc[[3]]), np.exp((x - x[3]) @ fit.coef_), rtol=1e-12
    )
    with pytest.raises(ParameterError, match="`reference` must be one row"):
        fit.hazard_ratio(frame, frame.iloc[:2])
    text = str(fit.summary())
    assert "Cox regression, exact partial likelihood" in text
    assert "risk sets: " in text
    assert "events: " in text
    fit.fit(frame[["a", "b"]], frame["event"], groups=frame["person"])
    assert fit.predict(frame[["a", "b"]]).shape == (40,)
    with pytest.raises(ParameterError, match="fitted to matched sets"):
        fit.hazard_ratio(frame[["a", "b"]])
    fit.fit_survival(frame[["a", "b"]], frame["time"], frame["event"])
    assert not hasattr(fit, "classes_")


def test_the_names_of_statsmodels_work():
    fit = ConditionalLogit.from_formula("case ~ smoke + age + strata(set)", matched(9))
    for theirs, ours in [
        ("params", "coef_"),
        ("bse", "standard_errors_"),
        ("tvalues", "z_"),
        ("pvalues", "p_values_"),
    ]:
        np.testing.assert_array_equal(getattr(fit, theirs), getattr(fit, ours))
    assert (fit.llf, fit.llnull, fit.aic, fit.bic) == (
        fit.log_likelihood_,
        fit.log_likelihood_null_,
        fit.aic_,
        fit.bic_,
    )
    np.testing.assert_array_equal(fit.cov_params(), fit.covariance_)
    np.testing.assert_allclose(fit.conf_int(alpha=0.1), fit.conf_int(0.9))
    with pytest.raises(ParameterError, match="both arrived"):
        fit.conf_int(0.9, alpha=0.1)
    with pytest.raises(AttributeError, match="not fitted"):
        _ = ConditionalLogit().params
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = fit.nothing


def test_help_shows_the_methods_of_the_model():
    page = io.StringIO()
    pydoc.Helper(output=page)(ConditionalLogit)
    text = page.getvalue()
    assert not re.search(r"set_\w*_request", text)
    assert "likelihood_ratio_test" in text
    with sklearn.config_context(enable_metadata_routing=True):
        asked = ConditionalLogit().set_fit_request(sample_weight=True)
    assert asked.get_metadata_routing().fit.requests["sample_weight"] is True


# -- a study from start to end, beside the output of R and statsmodels ---------------------------------------------


@pytest.mark.data
def test_a_matched_study_reads_as_in_r():
    """Ten lines of a user: ties, categories, an interaction, missing values, robust errors, models compared."""
    table = data.load_csv("clogit/infert.csv", data_folder())
    whole = ConditionalLogit.from_formula("case ~ spontaneous + induced + strata(stratum)", table)
    # R: coef 1.985876 1.409012, se 0.352444 0.360712, log-likelihoods -90.779355 and -64.202237.
    np.testing.assert_allclose(whole.coef_, [1.985876, 1.409012], atol=1e-6)
    np.testing.assert_allclose(whole.standard_errors_, [0.352444, 0.360712], atol=1e-6)
    assert whole.likelihood_ratio_test().statistic == pytest.approx(2 * (90.779355 - 64.202237), abs=2e-6)
    assert whole.aic_ == pytest.approx(2 * 64.202237 + 4, abs=2e-6)
    pooled = "case ~ {} + strata(`pooled.stratum`)"
    large = ConditionalLogit.from_formula(pooled.format("factor(spontaneous) * induced"), table)
    small = ConditionalLogit.from_formula(pooled.format("spontaneous + induced"), table)
    assert small.log_likelihood_ == pytest.approx(-74.155494, abs=1e-6)
    assert large.likelihood_ratio_test(small).df == 3
    assert large.wald_test("factor(spontaneous):induced").df == 2
    holes = table.assign(induced=table["induced"].where(table.index % 7 > 0))
    robust = ConditionalLogit.from_formula(pooled.format("spontaneous + induced"), holes, robust=True)
    assert robust.n_rows_missing_ == len(table[::7])
    assert robust.wald_test(["spontaneous", "induced"]).p_value < 1e-2


@pytest.mark.frameworks
def test_untied_times_agree_with_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    frame = survival(11, 400, 100_000)
    x, clusters = frame[["a", "b"]].to_numpy(), np.arange(400) // 3
    fit = ConditionalLogit().fit_survival(x, frame["time"], frame["event"], cluster=clusters)
    theirs = sm.PHReg(frame["time"].to_numpy(), x, status=frame["event"].to_numpy())
    plain, robust = theirs.fit(), theirs.fit(groups=clusters)
    np.testing.assert_allclose(fit.params, plain.params, atol=1e-8)
    assert fit.llf == pytest.approx(plain.llf, rel=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(fit.naive_covariance_)), plain.bse, rtol=1e-7)
    np.testing.assert_allclose(fit.bse, robust.bse, rtol=1e-6)
