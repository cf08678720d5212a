"""Exact conditional likelihoods against R's survival package and against enumeration."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from real_data import data_folder  # noqa: E402
from tallytree import data  # noqa: E402
from tallytree.errors import ParameterError  # noqa: E402
from tallytree.estimators import ConditionalLogit  # noqa: E402
from tallytree.learn.conditional import ConditionalLikelihood, strata_of_groups  # noqa: E402
from tallytree.learn.fixed_counts import covariances, fixed_counts  # noqa: E402


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
    fit = ConditionalLogit.from_formula(formula, table_for(name, folder))
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
    y = np.array([row for row in itertools.product([0, 1], repeat=len(theta)) if sum(row) == k])
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
    spread = covariances(
        padded, np.array([k]), found.marginals, np.concatenate([x, np.zeros((pad, 3))])[None]
    )
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
