"""Formulas in the manner of R: parts with expressions, and predictions by what the fit has learned."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tallytree.errors import ParameterError
from tallytree.estimators import ConditionalLogit, MissingGroupsWarning


def table(seed=0, sets=60, size=5):
    rng = np.random.default_rng(seed)
    n = sets * size
    return pd.DataFrame(
        {
            "x": rng.normal(3.0, 2.0, n),
            "z": rng.uniform(1.0, 2.0, n),
            "kind": rng.choice(list("uvw"), n),
            "id": np.repeat(np.arange(sets), size),
            "case": rng.integers(0, 2, n),
            "time": rng.integers(1, 12, n),
        }
    )


def by_hand(frame, of):
    """Covariates scale(x), kind v, kind w, with the mean and deviation of another table."""
    scaled = (frame["x"] - of["x"].mean()) / of["x"].std(ddof=1)
    return np.column_stack([scaled, frame["kind"] == "v", frame["kind"] == "w"]).astype(float)


def test_predictions_use_the_means_and_levels_of_the_fit():
    frame = table()
    fit = ConditionalLogit.from_formula("case ~ scale(x) + kind + strata(id) + offset(scale(z))", frame)
    offset = (frame["z"] - frame["z"].mean()) / frame["z"].std(ddof=1)
    direct = ConditionalLogit().fit(by_hand(frame, frame), frame["case"], frame["id"], offset=offset)
    np.testing.assert_allclose(fit.coef_, direct.coef_, rtol=1e-9)
    new = frame.iloc[7:9].assign(kind="w")  # two rows, one level: their own means would be others
    known = (new["z"] - frame["z"].mean()) / frame["z"].std(ddof=1)
    want = by_hand(new, frame) @ fit.coef_ + known + fit.intercept_
    np.testing.assert_allclose(fit.decision_function(new), want, rtol=1e-9)
    again = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(again.decision_function(new), fit.decision_function(new))
    assert fit.log_likelihood(frame) == pytest.approx(fit.log_likelihood_, rel=1e-12)


@pytest.mark.parametrize("formula", ["case ~ x + kind + strata(id)", "Surv(time, case) ~ x + C(kind)"])
def test_a_level_that_the_fit_has_not_seen_is_refused(formula):
    frame = table(1)
    fit = ConditionalLogit.from_formula(formula, frame)
    with pytest.raises(ParameterError, match="'new' arrived"):
        fit.decision_function(frame.assign(kind=["new", *frame["kind"][1:]]))
    assert fit.decision_function(frame.assign(kind="u")).shape == (len(frame),)


def test_survival_strata_and_offset_go_together():
    frame = table(2)
    formula = "Surv(time, case) ~ x + strata(id) + offset(z)"
    fit = ConditionalLogit.from_formula(formula, frame)
    direct = ConditionalLogit().fit_survival(
        frame[["x"]].to_numpy(), frame["time"], frame["case"], frame["id"], offset=frame["z"]
    )
    np.testing.assert_array_equal(fit.coef_, direct.coef_)
    want = frame["x"] * fit.coef_[0] + frame["z"]
    np.testing.assert_allclose(fit.decision_function(frame), want, rtol=1e-12)


def test_delayed_entry():
    frame = table(3).assign(entry=lambda t: t["time"] - 1.5)
    fit = ConditionalLogit.from_formula("Surv(entry, time, case == 1) ~ x", frame)
    x = frame[["x"]].to_numpy()
    late = ConditionalLogit().fit_survival(x, frame["time"], frame["case"], entry=frame["entry"])
    assert fit.coef_ == late.coef_
    assert fit.coef_ != ConditionalLogit().fit_survival(x, frame["time"], frame["case"]).coef_


def test_parts_hold_expressions_and_columns_of_any_name():
    frame = table(4)
    plain = ConditionalLogit.from_formula("case ~ x + strata(id) + offset(log(z))", frame)
    known = np.log(frame["z"].to_numpy())
    direct = ConditionalLogit().fit(frame[["x"]].to_numpy(), frame["case"], frame["id"], offset=known)
    np.testing.assert_allclose(plain.coef_, direct.coef_, rtol=1e-12)
    renamed = frame.rename(columns={"id": "strata", "x": "the x", "case": "response"})
    renamed["offset"] = known
    same = ConditionalLogit.from_formula("response ~ `the x` + strata(strata) + offset(offset)", renamed)
    np.testing.assert_array_equal(same.coef_, plain.coef_)
    halves = frame.assign(first=frame["id"] // 8, rest=frame["id"] % 8, half=known / 2)
    split = "case == 1 ~ x + strata(first, rest) + offset(half) + offset(log(z) / 2)"
    np.testing.assert_allclose(ConditionalLogit.from_formula(split, halves).coef_, plain.coef_, rtol=1e-12)
    two = "case ~ x + strata(first) + strata(rest) + offset(log(z))"
    np.testing.assert_allclose(ConditionalLogit.from_formula(two, halves).coef_, plain.coef_, rtol=1e-12)


def test_arrow_tables_are_tables():
    frame = table(5)
    fit = ConditionalLogit.from_formula("case ~ x + kind + strata(id)", pa.Table.from_pandas(frame))
    want = ConditionalLogit.from_formula("case ~ x + kind + strata(id)", frame)
    np.testing.assert_array_equal(fit.coef_, want.coef_)
    np.testing.assert_array_equal(fit.predict(pa.Table.from_pandas(frame)), want.predict(frame))


@pytest.mark.parametrize("column", ["case", "x", "kind", "id", "z"])
def test_a_row_with_anything_missing_is_left_out(column):
    frame = table(6).astype({"case": float, "id": float})
    frame.loc[frame.index[11], column] = np.nan
    formula = "case ~ x + kind + strata(id) + offset(z)"
    fit = ConditionalLogit.from_formula(formula, frame)
    assert fit.n_rows_missing_ == 1
    np.testing.assert_array_equal(
        fit.coef_, ConditionalLogit.from_formula(formula, frame.drop(index=11)).coef_
    )


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("case ~ x:strata(id)", "term of its own"),
        ("case ~ x * strata(id)", "term of its own"),
        ("case ~ x + Surv(time, case)", "before '~'"),
        ("case ~ .", "must name its covariates"),
        ("case ~ x + offset(kind)", "must hold numbers"),
        ("case ~ x + strata(nowhere)", r"strata\(nowhere\)"),
        ("case ~ nowhere", "nowhere"),
        ("case ~ x +* z", "syntax"),
        ("~ x", "response"),
        ("Surv(time) ~ x", "1 arguments arrived"),
        ("Surv(time, kind) ~ x", "must hold numbers"),
        ("case ~ C(kind, levels=['u'])", "known levels only"),
    ],
)
def test_formulas_that_mean_nothing_are_refused(formula, words):
    with pytest.raises(ParameterError, match=words):
        ConditionalLogit.from_formula(formula, table(7))


def test_arguments_of_other_packages_are_answered_in_words():
    data = {"case": [1, 0, 1, 0], "x": [1.0, 0.0, 0.5, 1.0], "set": [0, 0, 1, 1]}
    with pytest.raises(ParameterError, match=r"`strata` arrived. Name the column of the strata in `groups`"):
        ConditionalLogit.from_formula("case ~ x", data, strata="set")
    with pytest.raises(ParameterError, match="`penalty` arrived"):
        ConditionalLogit.from_formula("case ~ x + strata(set)", data, penalty=1.0)
    with pytest.raises(ParameterError, match="Formulas are read by"):
        ConditionalLogit().fit("case ~ x + strata(set)", data)


def test_clusters_are_a_term_of_the_formula_too():
    frame = table(9).assign(clinic=lambda f: f["id"] // 7, year=lambda f: f["id"] % 2)
    fit = ConditionalLogit.from_formula("case ~ x + strata(id) + cluster(clinic, year)", frame)
    both = frame["clinic"].astype(str) + frame["year"].astype(str)
    direct = ConditionalLogit().fit(frame[["x"]], frame["case"], groups=frame["id"], cluster=both)
    np.testing.assert_allclose(fit.covariance_, direct.covariance_, rtol=1e-12)
    assert fit.predict(frame.drop(columns=["clinic", "year"])).shape == (len(frame),)
    with pytest.raises(ParameterError, match=r"Give the columns of `cluster\(\.\.\.\)` once"):
        ConditionalLogit.from_formula("case ~ x + strata(id) + cluster(clinic)", frame, cluster="clinic")
    with_times = ConditionalLogit.from_formula("Surv(time, case) ~ x + cluster(clinic)", frame)
    assert with_times.n_clusters_ == frame["clinic"].nunique()


def test_new_labels_of_the_response_are_refused():
    frame = table(8)
    fit = ConditionalLogit.from_formula("case ~ x + strata(id)", frame)
    with pytest.raises(ParameterError, match="labels of the fit"):
        fit.log_likelihood(frame.assign(case=3))


def test_a_formula_without_strata_says_what_is_missing():
    frame = table(10).assign(all=1)
    with pytest.warns(MissingGroupsWarning, match=r"'case ~ x' has no `strata\(\.\.\.\)`") as caught:
        fit = ConditionalLogit.from_formula("case ~ x", frame)
    assert caught[0].filename == __file__
    meant = ConditionalLogit.from_formula("case ~ x + strata(all)", frame)
    np.testing.assert_array_equal(fit.coef_, meant.coef_)
    ConditionalLogit.from_formula("Surv(time, case) ~ x", frame)  # risk sets are strata


def halved(values):
    return values / 2.0


def test_formulas_see_the_functions_of_the_caller():
    frame = table(11)
    power = 2

    def raised(values):
        return values**power

    fit = ConditionalLogit.from_formula("case ~ raised(x) + np.log(z) + strata(id)", frame)
    direct = ConditionalLogit().fit(
        np.column_stack([frame["x"] ** 2, np.log(frame["z"])]), frame["case"], groups=frame["id"]
    )
    np.testing.assert_allclose(fit.coef_, direct.coef_, rtol=1e-9)
    del raised
    want = direct.decision_function(np.column_stack([frame["x"] ** 2, np.log(frame["z"])]))
    np.testing.assert_allclose(fit.decision_function(frame), want, rtol=1e-9)
    fit = ConditionalLogit.from_formula("case ~ f(x) + strata(id)", frame, context={"f": halved})
    again = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(again.decision_function(frame), fit.decision_function(frame))
    with pytest.raises(ParameterError, match="halved"):
        ConditionalLogit.from_formula("case ~ halved(x) + strata(id)", frame, context={})


def test_a_table_without_a_complete_row_is_refused():
    with pytest.raises(ParameterError, match="no row"):
        ConditionalLogit.from_formula("case ~ x + strata(id)", table().assign(x=np.nan))
