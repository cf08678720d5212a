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
    "tree": tt.CountTree.from_groups([[0, 1], [0, 1, 2, 3], [4, 5]], 7),
    "tree without groups": tt.CountTree.from_groups([], 3),
    "deep tree": tt.CountTree.balanced(4096),
    "chain": tt.ChainModel(np.zeros((5, 2)), np.zeros((2, 2)), tt.exactly(2)),
    "chain of three labels": tt.ChainModel(np.zeros((5, 3)), np.zeros((3, 3))),
    "impossible chain": tt.ChainModel(np.zeros((2, 2)), np.zeros((2, 2)), tt.table([-np.inf] * 3)),
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


@pytest.mark.parametrize(
    "shown", [CASES["wide"], tt.PoissonBinomial([0.5, 0.6, 0.9], weights=[29, 20, 55])], ids=["wide", "gaps"]
)
def test_many_values_are_put_together_and_none_is_lost(shown):
    rects = list(ElementTree.fromstring(shown._repr_html_()).iter("rect"))
    assert 30 < len(rects) <= 64
    texts = [rect.find("title").text for rect in rects]
    heights = np.array([float(text.rpartition(": ")[2]) for text in texts])
    ends = [[int(end) for end in text.partition(":")[0].split("..")] for text in texts]
    sums = [shown.cdf(last) - shown.cdf(first - 1) for first, last in ends]
    np.testing.assert_allclose(heights, sums, rtol=1e-3, atol=1e-12)
    assert heights.sum() > 0.99


def test_a_model_of_many_variables_shows_its_count():
    page = tt.CountModel(np.zeros(300), tt.gaussian(100, 5.0))._repr_html_()
    assert "P(count)" in page
    assert "P(variable is on)" not in page


def test_an_impossible_model_says_why_instead_of_failing():
    assert "no count satisfies the potential" in CASES["impossible"]._repr_html_()


def test_a_tree_is_drawn_with_every_group_and_variable():
    root = ElementTree.fromstring(CASES["tree"]._repr_html_())
    assert len(list(root.iter("circle"))) == 3
    assert len(list(root.iter("rect"))) == 7
    titles = {title.text for title in root.iter("title")}
    assert "group 1: 4 variables" in titles


def fitted_estimators():
    estimators = pytest.importorskip("tallytree.estimators")
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(60, 2)), np.repeat(np.arange(12), 5)
    y = (x[:, 0] + rng.logistic(size=60) > 0).astype(int)
    counts = np.bincount(groups, y)
    return {
        "exp(coef)": estimators.ConditionalLogit().fit(x, y, groups=groups),
        ">coefficient<": estimators.BagClassifier().fit(x, (counts > 2).astype(int), groups=groups),
        ">x1<": estimators.LabelProportions(target="counts").fit(x, counts, groups=groups),
        "P(variable is on)": estimators.CountDensity(l2=1.0).fit(rng.integers(0, 2, (40, 5))),
        "samples of 2 out of 4 units": estimators.MaxEntropySampler().fit([0.5, 0.5, 0.5, 0.5]),
    }


def test_fitted_estimators_show_their_answers_and_others_do_not():
    for words, estimator in fitted_estimators().items():
        assert words in estimator._repr_html_()
        assert words not in type(estimator)()._repr_html_()
