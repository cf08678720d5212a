"""Conditional logistic regression over chunks against the estimator in memory."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt
from tallytree.chunked import fit_conditional_logit
from tallytree.learn import ConditionalLikelihood, newton, strata_of_groups

RNG = np.random.default_rng(8)


def data(n, strata, p=3):
    x = RNG.normal(size=(n, p))
    groups = np.sort(RNG.integers(0, strata, n))
    level = RNG.normal(size=strata)[groups] - 1.0
    y = (RNG.random(n) < 1 / (1 + np.exp(-(x @ [0.8, -0.5, 0.2][:p] + level)))).astype(np.int8)
    return x, y, groups


def in_memory(x, y, groups):
    likelihood = ConditionalLikelihood(x, strata_of_groups(groups, y.astype(bool)))
    return newton(likelihood, np.zeros(x.shape[1]))


@pytest.mark.parametrize("strata", [400, 7, 1])
def test_estimates_are_those_of_the_model_in_memory(strata, tmp_path):
    """With steps of 300 rows there are strata inside bundles, and strata longer than a bundle."""
    x, y, groups = data(6_000, strata)
    exact = in_memory(x, y, groups)
    np.save(tmp_path / "x.npy", x)
    for given, step in (
        (x, 1 << 18),
        (tmp_path / "x.npy", 300),
        (np.load(tmp_path / "x.npy", mmap_mode="r"), 1_000),
    ):
        found = fit_conditional_logit(given, y, None if strata == 1 else groups, step=step)
        assert found.converged
        assert np.allclose(found.coef, exact.beta, atol=1e-7)
        assert found.log_likelihood == pytest.approx(exact.value, rel=1e-10)
        assert np.allclose(
            found.standard_errors, np.sqrt(np.diag(np.linalg.inv(exact.information))), rtol=1e-5
        )


def test_columns_of_a_parquet_file(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    x, y, groups = data(2_000, 50, p=2)
    columns = {"age": x[:, 0], "dose": x[:, 1], "case": y, "set": groups}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet", row_group_size=333)
    path = tmp_path / "x.parquet"
    found = fit_conditional_logit(
        path, path, path, columns=["age", "dose"], y_column="case", groups_column="set", step=200
    )
    assert np.allclose(found.coef, in_memory(x, y, groups).beta, atol=1e-7)


def test_what_cannot_be_used_is_named():
    x, y, groups = data(100, 5)
    with pytest.raises(tt.ParameterError, match="one after the other"):
        fit_conditional_logit(x, y, RNG.permutation(groups))
    with pytest.raises(tt.ParameterError, match="`y` must have one entry per row"):
        fit_conditional_logit(x, y[:-1], groups)
    with pytest.raises(tt.ParameterError, match="`X` must be a matrix"):
        fit_conditional_logit(x[:, 0], y, groups)
    x[71, 2] = np.nan
    with pytest.raises(tt.SourceError, match=r"row 71\), column 2"):
        fit_conditional_logit(x, y, groups)
