"""What notebooks show: well-formed, small, quick, and never an error."""

from __future__ import annotations

import re
import time
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import sparse

import tallytree as tt
from model_kinds import KINDS

INF = np.inf
ONE_EACH = {"rows": tt.exactly(1), "columns": tt.exactly(1)}


def overlapping(n=5):
    return tt.FactorGraph(
        np.zeros(n), [tt.Group([0, 1, 2], tt.exactly(1)), tt.Group([2, 3, 4], tt.at_most(1))]
    )


def chain(positions, labels, potential=None, **options):
    return tt.ChainModel(np.zeros((positions, labels)), np.zeros((labels, labels)), potential, **options)


def linear(n, **options):
    return tt.LinearModel(np.zeros(n), np.ones(n), lambda x: -np.abs(x - 1.0), step=1.0, **options)


def used(chunked):
    """After a pass."""
    chunked.log_partition if hasattr(chunked, "log_partition") else chunked.mean()
    return chunked


CASES = {
    "model": tt.CountModel([0.5, -1.0, 2.0], tt.exactly(1)),
    "edges": tt.CountModel(np.zeros(4), tt.exactly(2), edges=tt.Forest([(0, 1)], coupling=0.5)),
    "many edges": tt.CountModel(
        np.zeros(3000), edges=tt.Forest([(i, i + 1) for i in range(2999)], coupling=0.5)
    ),
    "batch": tt.CountModel(np.zeros((2, 3)), tt.exactly(1)),
    "batch of none": tt.CountModel(np.zeros((0, 3)), tt.exactly(1)),
    "batch with edges": tt.CountModel(np.zeros((2, 3)), edges=tt.Forest([(0, 1)], coupling=0.5)),
    "large batch": tt.CountModel(np.zeros((1000, 1000)), tt.exactly(1)),
    "batch of impossible models": tt.CountModel([[0.0, 0.0], [-INF, 0.0]], tt.exactly(2)),
    "empty": tt.CountModel([]),
    "one": tt.CountModel([0.3], tt.exactly(1)),
    "infinite": tt.CountModel([INF, -INF, 0.0], tt.exactly(2)),
    "large": tt.CountModel(np.zeros(10**6), tt.exactly(10)),
    "impossible": tt.CountModel([-INF, 0.0], tt.exactly(2)),
    "sum": tt.PoissonBinomial([0.1, 0.5, 0.9], weights=[2, 4, 6]),
    "given": tt.PoissonBinomial([0.1, 0.5, 0.9]).given(low=2),
    "sum of none": tt.PoissonBinomial([]),
    "wide": tt.PoissonBinomial(np.full(2000, 0.5)),
    "long": tt.PoissonBinomial(np.full(10**6, 0.5)),
    "huge weights": tt.PoissonBinomial([0.5, 0.5], weights=[10**8, 10**8 + 1]),
    "mixture": tt.PoissonBinomial([[0.1, 0.5], [0.3, 0.9]], weights=[2, 3]).mixture([0.5, 0.5]),
    "given large weights": tt.PoissonBinomial([0.5, 0.5], weights=[10**5, 10**5 + 1]).given(low=1),
    "sums": tt.PoissonBinomial(np.full((2, 3), 0.2)),
    "sums of no batch": tt.PoissonBinomial(np.zeros((0, 3))),
    "tree": tt.CountTree.from_groups([[0, 1], [0, 1, 2, 3], [4, 5]], 7),
    "tree without groups": tt.CountTree.from_groups([], 3),
    "tree of nothing": tt.CountTree.from_groups([], 0),
    "deep tree": tt.CountTree.balanced(4096),
    "chain": chain(5, 2, tt.exactly(2)),
    "chain of one": chain(1, 2),
    "chain of three labels": chain(5, 3),
    "chain of one label": chain(3, 1),
    "long chain": chain(100_000, 2, tt.exactly(5)),
    "chain of many labels": chain(50, 60, tt.exactly(5)),
    "chain of large scores": chain(30, 2, scores=[0, 10**6]),
    "chains": tt.ChainModel(np.zeros((2, 5, 2)), np.zeros((2, 2)), tt.exactly(2)),
    "impossible chain": chain(2, 2, tt.table([-INF] * 3)),
    "linear": linear(4),
    "linear of none": linear(0),
    "linear of one": linear(1),
    "infinite linear": tt.LinearModel([INF, -INF, 0.0], [1.0, -2.0, 0.5], lambda x: -x, step=0.5),
    "large linear": tt.LinearModel(np.zeros(4000), np.ones(4000), lambda x: -x, step=0.01),
    "thinned": tt.noisy_or_model([-1.0, 0.0, 1.0], [0.5, 0.2, 0.9], leak=0.1),
    "thinned of none": tt.ThinnedModel([], [], tt.exactly(0)),
    "infinite thinned": tt.ThinnedModel([INF, -INF], [1.0, 0.5], tt.at_least(1)),
    "large thinned": tt.noisy_or_model(np.zeros(10**5), np.full(10**5, 0.5)),
    "ragged": tt.RaggedBatch([[0.0, 0.0], [], [0.0, 1.0, -INF]], tt.at_most(1)),
    "ragged of none": tt.RaggedBatch([], tt.exactly(1)),
    "ragged of the empty": tt.RaggedBatch([[], []]),
    "impossible ragged": tt.RaggedBatch([[-INF], [0.0]], tt.exactly(1)),
    "large ragged": tt.RaggedBatch(np.zeros(10**5), tt.at_most(1), sizes=np.full(10**4, 10)),
    "graph": overlapping(),
    "graph of none": tt.FactorGraph([]),
    "graph of one": tt.FactorGraph([0.3], [tt.Group([0], tt.exactly(1)), tt.Group([0], [0.0, 1.0])]),
    "graph with edges": tt.FactorGraph(
        [0.0, INF, -INF], [tt.Group([0, 2], None)], edges=([(0, 1), (1, 2)], [[0.0, -INF], [1.0, 2.0]])
    ),
    "graph with a model": tt.FactorGraph(
        np.zeros(3), [tt.Group([0, 1], tt.CountModel([0.0, 0.0], tt.exactly(1)))]
    ),
    "impossible graph": tt.FactorGraph([INF, 0.0], [tt.Group([0, 1], tt.CountModel([-INF, 0.0]))]),
    "large graph": tt.FactorGraph(np.zeros(10**5), [tt.Group(range(10**5), tt.exactly(3))]),
    "assignment": tt.assignment(
        [[0.0, 1.0, -INF], [2.0, 0.0, 0.5]], rows=tt.exactly(1), columns=tt.at_most(1)
    ),
    "sparse assignment": tt.assignment(sparse.eye_array(300, format="csr"), rows=tt.at_most(1)),
    "assignment of one": tt.assignment([[0.0]], **ONE_EACH),
    "assignment without rows": tt.assignment(np.zeros((0, 3)), rows=tt.at_most(1)),
    "decided assignment": tt.assignment([[INF, -INF], [-INF, INF]], **ONE_EACH),
    "large assignment": tt.assignment(np.zeros((500, 700)), rows=tt.at_most(1), columns=tt.at_most(1)),
    "chunks": tt.ChunkedCountModel(np.zeros(1000), tt.exactly(3), chunk_size=10),
    "chunks read": used(tt.ChunkedCountModel(np.zeros(1000), tt.exactly(3), chunk_size=10)),
    "chunks of none": tt.ChunkedCountModel(np.zeros(0), tt.exactly(0)),
    "impossible chunks": tt.ChunkedCountModel(np.full(3, -INF), tt.exactly(3)),
    "chunked sum": tt.ChunkedPoissonBinomial([np.array([0.1, 0.5]), np.array([0.9])]),
    "chunked sum read": used(tt.ChunkedPoissonBinomial([np.array([0.1, 0.5]), np.array([0.9])])),
    "forest": tt.Forest([(0, 1), (1, 2), (1, 3)], coupling=[0.5, -0.5, 1e308]),
    "forest of none": tt.Forest(np.zeros((0, 2), int), coupling=0.5),
    "forest of many": tt.Forest([(i, i + 1) for i in range(10**4)], coupling=0.5),
    "batch of forests": tt.Forest([(0, 1)], np.zeros((3, 1, 2, 2))),
    "forbidding forest": tt.Forest([(0, 1)], [[0.0, -INF], [-INF, 0.0]]),
    "group": tt.Group([0, 1, 2], tt.at_least(1)),
    "group of all": tt.Group(None, tt.exactly(3)),
    "group of none": tt.Group([], None),
    "group by mask": tt.Group(np.array([True, False, True]), [0.0, 1.0, 2.0]),
    "group by slice": tt.Group(slice(0, 3), tt.at_most(1)),
    "large group": tt.Group(range(10**6), tt.at_most(1)),
    "group of a model": tt.Group([0, 1], tt.CountModel([0.0, 0.0])),
    "group that will be refused": tt.Group([[0], [1, 2]], tt.at_most(1)),
    "group of a table of another size": tt.Group([0, 1], [0.0, 1.0]),
}
POTENTIALS = {
    "at_least": tt.at_least(3),
    "exactly": tt.exactly(30),
    "too large for a picture": tt.exactly(1000),
    "product": tt.at_least(1) * tt.geometric(0.5),
    "contradiction": tt.exactly(1) * tt.exactly(2),
    "power": tt.gaussian(20.0, 3.0) ** 2.0,
    "table": tt.table([0.0, -1.0, -INF]),
    "long table": tt.table(np.zeros(5000)),
    "impossible table": tt.table([-INF, -INF]),
    "table of nothing": tt.table([0.5]),
    "batch": tt.exactly([1, 2, 3]),
    "batch of none": tt.exactly(np.zeros(0, int)),
    "function": tt.potentials.as_potential(lambda c: -0.1 * c),
    "function that fails": tt.potentials.as_potential(lambda c: 1 / 0),
}
CASES |= {f"potential: {name}": value for name, value in POTENTIALS.items()}
CASES |= {f"kind: {name}": kind.model() for name, kind in KINDS.items()}
CASES |= {f"impossible kind: {name}": kind.impossible() for name, kind in KINDS.items() if kind.impossible}


def results():
    model, graph = tt.CountModel([0.5, -1.0, 2.0], tt.exactly(1)), overlapping()
    problem = tt.assignment(
        np.random.default_rng(0).normal(size=(3, 4)), rows=tt.exactly(1), columns=tt.at_most(1)
    )
    rows = np.random.default_rng(1).integers(0, 2, (30, 4))
    X = np.random.default_rng(2).normal(size=(30, 2))
    alone = tt.FactorGraph([])
    return {
        "modes": model.mode_k(2),
        "modes of a batch": CASES["batch"].mode_k(2),
        "sparse samples": model.sample(5, rng=0, sparse=True),
        "no sparse samples": model.sample(0, rng=0, sparse=True),
        "statistics": model.expected_statistics,
        "statistics of a batch": CASES["batch"].expected_statistics,
        "statistics of none": CASES["empty"].expected_statistics,
        "exact answers": graph.exact(),
        "draws": graph.sample(5, rng=0),
        "beliefs": tt.loopy_bp(graph),
        "beliefs about nothing": tt.loopy_bp(alone),
        "max-product": tt.loopy_bp(graph, semiring="max"),
        "upper bound": tt.loopy.holder_bound(graph),
        "lower bound": tt.loopy.mean_field(overlapping_softly()),
        "dual": tt.loopy.dual_decomposition(graph),
        "cells": problem.loopy_bp(),
        "sparse cells": CASES["sparse assignment"].loopy_bp(),
        "cells without rows": CASES["assignment without rows"].loopy_bp(),
        "cells bounded": problem.bounds(),
        "cells chosen": problem.mode(),
        "cells averaged": problem.gibbs_marginals(sweeps=3, rng=0),
        "fit": tt.learn.fit(tt.CountModel(np.zeros(4)), rows),
        "conditional fit": tt.learn.fit_conditional(tt.CountTree.flat(4), X, rows, tables="fixed"),
    }


def overlapping_softly():
    return tt.FactorGraph(
        np.zeros(3), [tt.Group([0, 1], tt.gaussian(1, 1)), tt.Group([1, 2], tt.gaussian(1, 1))]
    )


CASES |= {f"result: {name}": value for name, value in results().items()}


@pytest.mark.parametrize("name", CASES)
def test_the_html_is_well_formed_and_small(name):
    page = CASES[name]._repr_html_()
    root = ElementTree.fromstring(f"<body>{page}</body>")
    assert repr(CASES[name]).split("(")[0] in "".join(root.itertext())
    assert len(page) < 40_000
    assert "nan" not in page.replace("nance", "")
    for picture in root.iter("svg"):
        assert picture.get("viewBox") == f"0 0 {picture.get('width')} {picture.get('height')}"


def test_every_public_class_of_models_and_results_has_a_display():
    from tallytree import assignment, estimators, learn, loopy  # noqa: F401

    shown = {type(value) for value in CASES.values()}
    public = [getattr(tt, name) for name in tt.__all__] + [
        getattr(tt.loopy, name) for name in tt.loopy.__all__
    ]
    for kind in public:
        if isinstance(kind, type) and not issubclass(kind, Exception):
            assert hasattr(kind, "_repr_html_"), kind
            assert any(issubclass(one, kind) for one in shown), kind


@pytest.mark.parametrize(
    "name", ["long", "huge weights", "given large weights", "long chain", "chain of large scores", "large linear",
             "large", "large batch", "large graph", "large assignment", "many edges", "chain of many labels"]
)  # fmt: skip
def test_no_display_starts_work_that_can_be_felt(name):
    started = time.process_time()
    CASES[name]._repr_html_()
    assert time.process_time() - started < 0.5


def test_nothing_is_read_for_the_display_of_chunks(monkeypatch):
    model = tt.ChunkedCountModel(np.zeros(100), tt.exactly(3), chunk_size=10)
    monkeypatch.setattr(type(model._source), "walk", lambda *arguments: pytest.fail("read"))
    page = model._repr_html_()
    assert "log_partition" not in page
    assert len(list(ElementTree.fromstring(page).iter("rect"))) == 10
    assert "log_partition" in CASES["chunks read"]._repr_html_()
    assert "mean=1.5" in CASES["chunked sum read"]._repr_html_()
    assert "mean" not in CASES["chunked sum"]._repr_html_()


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


def painted(page, number=0):
    """How often a cell of a heat map has each opacity."""
    picture = list(ElementTree.fromstring(page).iter("svg"))[number]
    widths = {
        path.get("fill-opacity"): re.findall(r"h(\d+)v", path.get("d")) for path in picture.iter("path")
    }
    return {opacity: sum(map(int, found)) for opacity, found in widths.items()}


def test_a_heat_map_paints_every_cell_by_its_size():
    mode = tt.assignment(np.eye(3), **ONE_EACH).mode()
    assert painted(mode._repr_html_()) == {"1.00": 3}
    model = tt.CountModel(np.log([[1.0, 3.0], [3.0, 1.0]]), tt.exactly(1))
    assert painted(model._repr_html_()) == {"0.38": 2, "1.00": 2}  # a third of the largest, in sixteen steps
    assert "strongest 0.75" in model._repr_html_()


def test_a_large_matrix_is_averaged_and_forbidden_cells_stay_blank():
    page = CASES["large assignment"]._repr_html_()
    assert "averaged over blocks" in page
    assert painted(page) == {"1.00": 32 * 64}
    assert painted(CASES["decided assignment"]._repr_html_()) == {"1.00": 2}


def test_a_factor_graph_shows_every_membership_and_edge():
    root = ElementTree.fromstring(CASES["graph"]._repr_html_())
    assert len(list(root.iter("circle"))) == 2
    assert len(list(root.iter("rect"))) == 5
    assert next(root.iter("path")).get("d").count("L") == 6
    titles = {
        title.text for title in ElementTree.fromstring(CASES["graph with edges"]._repr_html_()).iter("title")
    }
    assert {"edge 0 - 1", "group 0: 2 variables, uniform()"} <= titles
    titles = {title.text for title in ElementTree.fromstring(CASES["forest"]._repr_html_()).iter("title")}
    assert {"edge 0 - 1: log-odds ratio 2", "edge 1 - 2: log-odds ratio -2", "edge 1 - 3"} <= titles


def test_a_potential_is_shown_where_its_peak_is_seen():
    assert "8 variables" in POTENTIALS["at_least"]._repr_html_()
    assert "32 variables" in POTENTIALS["exactly"]._repr_html_()
    assert "2 variables" in POTENTIALS["table"]._repr_html_()
    assert "svg" not in POTENTIALS["too large for a picture"]._repr_html_()


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
