"""What notebooks show: well-formed, small, and never an error."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import tallytree as tt

CASES = {
    "model": tt.CountModel([0.5, -1.0, 2.0], tt.exactly(1)),
    "edges": tt.CountModel(np.zeros(4), tt.exactly(2), edges=tt.Forest([(0, 1)], coupling=0.5)),
    "batch": tt.CountModel(np.zeros((2, 3))),
    "empty": tt.CountModel([]),
    "large": tt.CountModel(np.zeros(10**6), tt.exactly(10)),
    "impossible": tt.CountModel([-np.inf, 0.0], tt.exactly(2)),
    "sum": tt.PoissonBinomial([0.1, 0.5, 0.9], weights=[2, 4, 6]),
    "given": tt.PoissonBinomial([0.1, 0.5, 0.9]).given(low=2),
    "wide": tt.PoissonBinomial(np.full(2000, 0.5)),
    "long": tt.PoissonBinomial(np.full(10**6, 0.5)),
    "sums": tt.PoissonBinomial(np.zeros((2, 3))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_html_is_well_formed_and_small(name):
    page = CASES[name]._repr_html_()
    root = ElementTree.fromstring(page)
    assert repr(CASES[name]).split("(")[0] in "".join(root.itertext())
    assert len(page) < 40_000


def test_bars_have_the_heights_of_the_probabilities():
    root = ElementTree.fromstring(CASES["sum"]._repr_html_())
    heights = np.array([float(bar.get("height")) for bar in root.iter("rect")])
    want = CASES["sum"].pmf(CASES["sum"].values)
    np.testing.assert_allclose(heights / heights.max(), want / want.max(), atol=2e-3)


def test_an_impossible_model_says_why_instead_of_failing():
    assert "no count satisfies the potential" in CASES["impossible"]._repr_html_()
