"""Every plot returns the axes it drew into, draws what it says, and needs no screen."""

from __future__ import annotations

import io

import numpy as np
import pytest

import tallytree as tt

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from tallytree import plot  # noqa: E402
from tallytree.plot.pictures import trace_line  # noqa: E402

LOGITS = np.linspace(-2.0, 1.5, 8)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def model() -> tt.CountModel:
    return tt.CountModel(LOGITS, [tt.Group(range(4), tt.at_least(1)), tt.Group(None, tt.exactly(3))])


def problem():
    theta = np.random.default_rng(0).normal(size=(4, 6))
    return tt.assignment(theta, rows=tt.between(1, 3), columns=tt.between(1, 2))


def at_once():
    flat = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1))
    return flat.loopy_bp()


def images() -> np.ndarray:
    return (np.random.default_rng(1).random((50, 8)) < 0.4).astype(np.uint8)


def weighted() -> tt.PoissonBinomial:
    return tt.PoissonBinomial([0.1, 0.5, 0.9], weights=[2, 4, 6])


def with_edges() -> tt.CountModel:
    return tt.CountModel(LOGITS, tt.exactly(3), edges=tt.Forest([(0, 1), (1, 2)], coupling=0.5))


def chain() -> tt.ChainModel:
    return tt.ChainModel(np.zeros((6, 2)), np.eye(2), tt.exactly(2))


def linear() -> tt.LinearModel:
    weights = [0.5, 1.0, -1.5, 0.25]
    return tt.LinearModel(LOGITS[:4], weights, lambda x: -((x - 1.0) ** 2), step=0.25)


def graph() -> tt.FactorGraph:
    return tt.FactorGraph(
        LOGITS[:5], [tt.Group([0, 1, 2], tt.exactly(1)), tt.Group([2, 3, 4], tt.at_most(2))]
    )


def chunked() -> tt.ChunkedCountModel:
    return tt.ChunkedCountModel(np.linspace(-2.0, 1.0, 40), tt.between(3, 6), chunk_size=10)


PLOTS = {
    "marginals of a linear model": lambda ax: plot.marginals(linear(), ax),
    "marginals of causes": lambda ax: plot.marginals(tt.noisy_or_model(LOGITS, np.full(8, 0.3)), ax),
    "beliefs": lambda ax: plot.marginals(tt.loopy_bp(graph()), ax),
    "marginals of a bound": lambda ax: plot.marginals(tt.loopy.holder_bound(graph()), ax),
    "sums of a linear model": lambda ax: plot.count_distribution(linear(), ax=ax),
    "counts of chunks": lambda ax: plot.count_distribution(chunked(), ax=ax),
    "counts of beliefs": lambda ax: plot.count_distribution(tt.loopy_bp(graph()), 1, ax),
    "tree of a chain": lambda ax: plot.group_tree(chain(), ax),
    "a function": lambda ax: plot.potential(lambda c: -0.5 * c, 6, ax),
    "marginals of a sum": lambda ax: plot.marginals(weighted(), ax),
    "marginals given a sum": lambda ax: plot.marginals(weighted().given(low=4), ax, names=["x", "y", "z"]),
    "marginals with edges": lambda ax: plot.marginals(with_edges(), ax),
    "marginals of a chain": lambda ax: plot.marginals(chain(), ax),
    "counts of a sum": lambda ax: plot.count_distribution(weighted(), ax=ax),
    "counts given a sum": lambda ax: plot.count_distribution(weighted().given(low=4), ax=ax),
    "counts with edges": lambda ax: plot.count_distribution(with_edges(), ax=ax),
    "counts of a chain": lambda ax: plot.count_distribution(chain(), ax=ax),
    "counts of one variable": lambda ax: plot.count_distribution(tt.CountModel([0.3], tt.exactly(1)), ax=ax),
    "tree of a model": lambda ax: plot.group_tree(model(), ax),
    "trace without a change": lambda ax: plot.loopy_trace(at_once(), ax, label="run"),
    "marginals": lambda ax: plot.marginals(model(), ax, names=list("abcdefgh")),
    "marginals of many": lambda ax: plot.marginals(tt.CountModel(np.zeros(100), tt.exactly(9)), ax),
    "counts": lambda ax: plot.count_distribution(model(), ax=ax),
    "counts of a group": lambda ax: plot.count_distribution(model(), 0, ax),
    "counts of many": lambda ax: plot.count_distribution(
        tt.CountModel(np.zeros(900), tt.gaussian(450, 9)), ax=ax
    ),
    "tree": lambda ax: plot.group_tree(model().tree, ax),
    "tree with names": lambda ax: plot.group_tree(tt.CountTree.balanced(8), ax, names=list("abcdefgh")),
    "large tree": lambda ax: plot.group_tree(tt.CountTree.balanced(100), ax),
    "tree of one group": lambda ax: plot.group_tree(tt.CountTree.flat(3), ax),
    "heat map": lambda ax: plot.assignment_heatmap(problem().loopy_bp(), ax, title="beliefs"),
    "heat map of a matrix": lambda ax: plot.assignment_heatmap(np.eye(3), ax, bar=False),
    "trace": lambda ax: plot.loopy_trace(problem().loopy_bp(), ax, label="run"),
    "densities": lambda ax: plot.density_comparison(
        images(), {"same": images(), "off": 0 * images()}, tt.CountTree.balanced(8), ax
    ),
}


@pytest.mark.parametrize("name", PLOTS)
def test_plots_draw_into_new_or_given_axes(name):
    new = PLOTS[name](None)
    assert isinstance(new, matplotlib.axes.Axes)
    given = plt.subplots()[1]
    assert PLOTS[name](given) is given
    for ax in (new, given):
        assert ax.has_data()
        assert ax.get_xlabel() or ax.get_xticklabels()
        assert ax.get_ylabel()
        buffer = io.BytesIO()
        ax.figure.savefig(buffer, format="png")
        assert buffer.getbuffer().nbytes > 1000


def test_bars_have_the_heights_of_the_marginals():
    ax = plot.marginals(model())
    heights = [bar.get_height() for bar in ax.containers[1]]
    np.testing.assert_allclose(heights, model().marginals)


def test_counts_show_the_posterior_and_the_potential():
    ax = plot.count_distribution(model(), 0)
    shown = {bar.get_x() + 0.2: bar.get_height() for bar in ax.containers[1]}
    expected = np.exp(model().count_log_probs(0))
    np.testing.assert_allclose([shown[k] for k in sorted(shown)], expected[: len(shown)], atol=1e-12)
    (potential,) = ax.lines
    assert potential.get_ydata()[0] == 0  # at least one
    assert len(set(potential.get_ydata()[1:])) == 1


def test_count_errors_are_the_differences_of_the_distributions():
    rows, tree = images(), tt.CountTree.from_groups([[0, 1], None], 8)
    sizes, errors = plot.pictures.count_errors(rows, 0 * rows, tree)
    assert sizes.tolist() == [2, 8]
    found = np.bincount(rows[:, :2].sum(1), minlength=3) / len(rows)
    np.testing.assert_allclose(errors[0], np.sqrt(np.mean((found - [1, 0, 0]) ** 2)))


def test_small_models_have_whole_numbers_at_their_ticks():
    small = tt.CountModel([0.5, -1.0], tt.at_least(1))
    for ax in (plot.marginals(small), plot.count_distribution(small), plot.loopy_trace(at_once())):
        ticks = ax.get_xticks()
        assert np.array_equal(ticks, np.round(ticks))
        assert len(ticks) == len(set(ticks.tolist()))
    assert plot.marginals(small).get_xticks().tolist() == [0, 1]
    assert plot.count_distribution(small).get_xticks().tolist() == [0, 1, 2]


def test_a_trace_that_converged_at_once_says_so():
    with np.errstate(all="raise"):
        ax = plot.loopy_trace(at_once())
    assert [text.get_text() for text in ax.texts] == ["no change from the first sweep on"]
    ax = plot.pictures.trace_line(np.array([0.3, 0.1, 0.0]))
    assert [text.get_text() for text in ax.texts] == ["no change in sweep 3"]
    assert ax.get_yscale() == "log"


def test_weighted_sums_stand_at_their_values():
    ax = plot.count_distribution(weighted())
    (bars,) = ax.containers
    places = [bar.get_x() + bar.get_width() / 2 for bar in bars]
    np.testing.assert_allclose(places, [0, 2, 4, 6, 8, 10, 12])
    np.testing.assert_allclose([bar.get_height() for bar in bars], weighted().pmf(range(0, 13, 2)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot.marginals(None), "`model` must be"),
        (lambda: plot.marginals(problem()), "assignment_heatmap"),
        (lambda: plot.marginals(model(), names=3), "`names` must be a list"),
        (lambda: plot.marginals(model(), names="abcdefgh"), "`names` must be a list"),
        (lambda: plot.marginals(model(), names=np.array("a")), "`names` must be a list"),
        (lambda: plot.marginals(model(), ax=3), "`ax` must be matplotlib Axes"),
        (lambda: plot.marginals(tt.ChainModel(np.zeros((4, 3)), np.eye(3), tt.exactly(1))), "3 states"),
        (lambda: plot.count_distribution(weighted(), 0), "`group` must be None"),
        (lambda: plot.count_distribution(model(), 9), "`group` must be"),
        (lambda: plot.group_tree(model().tree, names=["a"]), "one entry per variable, 8; 1 arrived"),
        (lambda: plot.group_tree(3), "`tree` must be"),
        (lambda: plot.assignment_heatmap("abc"), "`values` must hold real numbers"),
        (lambda: plot.assignment_heatmap(np.eye(2), bar=np.eye(2)), "`bar` must be True or False"),
        (lambda: plot.loopy_trace(None), "what `loopy_bp` returns"),
        (lambda: plot.loopy_trace(np.eye(2)), "what `loopy_bp` returns"),
        (lambda: plot.loopy_trace(at_once(), label=[1]), "`label` must be a str"),
        (
            lambda: plot.density_comparison(None, {"a": np.eye(4)}, tt.CountTree.flat(4)),
            "`data` must be rows",
        ),
        (
            lambda: plot.density_comparison(np.eye(4), {"a": np.eye(3)}, tt.CountTree.flat(4)),
            r"samples\['a'\]",
        ),
        (lambda: plot.density_comparison(np.eye(4), None, tt.CountTree.flat(4)), "`samples` must map"),
        (lambda: plot.density_comparison(np.eye(4), {"a": np.eye(4)}, None), "`tree` must be"),
    ],
)
def test_wrong_arguments_say_what_to_do(call, message):
    with pytest.raises(tt.ParameterError, match=message):
        call()


def test_bad_arguments_are_refused():
    with pytest.raises(tt.ParameterError, match="single model"):
        plot.marginals(tt.CountModel(np.zeros((2, 3)), tt.exactly(1)))
    with pytest.raises(tt.ParameterError, match="one entry per variable"):
        plot.marginals(model(), names=["a"])
    with pytest.raises(tt.ParameterError, match="matrix"):
        plot.assignment_heatmap(np.zeros(3))


def test_a_longer_picture_may_follow_a_short_one_on_the_same_axes():
    axes = trace_line(np.ones(5))
    trace_line(np.ones(40), axes)
    plt.gcf().canvas.draw()
    assert all(float(t).is_integer() for t in axes.get_xticks())
    heat = plt.subplots()[1]
    heat.set_xticks([0, 1])
    plot.assignment_heatmap(np.zeros((3, 30)), heat)


def drawn(ax, label):
    """Bars of one label: their places and heights."""
    for container in ax.containers:
        if container.get_label() == label:
            return {round(bar.get_x() + bar.get_width() / 2, 6): bar.get_height() for bar in container}
    raise AssertionError(label)


def enumerated(logits, weights, log_f):
    """Law of w . y with and without f, by all configurations."""
    states = np.array(list(np.ndindex(*(2,) * len(logits))))
    sums, score = states @ weights, states @ logits
    values = np.unique(sums)
    laws = []
    for extra in (0.0, log_f(sums)):
        p = np.exp(score + extra)
        laws.append([p[sums == v].sum() / p.sum() for v in values])
    return values, *map(np.array, laws)


def test_sums_of_a_linear_model_stand_at_their_values():
    model = linear()
    values, prior, posterior = enumerated(LOGITS[:4], model.weights, lambda x: -((x - 1.0) ** 2))
    ax = plot.count_distribution(model)
    width = 0.8 * 0.25 / 2
    for label, side, want in (("variables alone", -1, prior), ("given the model", 1, posterior)):
        found = drawn(ax, label)
        heights = [found[round(v + side * width / 2, 6)] for v in values]
        np.testing.assert_allclose(heights, want, rtol=1e-9)
    assert ax.get_xlabel() == "sum"


def test_counts_of_chunks_are_those_of_the_model_in_memory():
    whole = tt.CountModel(np.linspace(-2.0, 1.0, 40), tt.between(3, 6))
    heights = drawn(plot.count_distribution(chunked()), "given the model")
    want = np.exp(whole.count_log_probs())
    assert all(abs(height - want[int(count)]) < 1e-9 for count, height in heights.items())
    assert sum(heights.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("draw", "model", "words"),
    [
        (plot.marginals, graph, r"draw what `loopy_bp\(graph\)` returns"),
        (plot.marginals, problem, "Use `assignment_heatmap` with what its"),
        (plot.marginals, lambda: problem().loopy_bp(), "Use `assignment_heatmap` for it"),
        (plot.marginals, lambda: tt.RaggedBatch([[0.0], [0.0, 1.0]]), r"such as batch\[0\]"),
        (plot.marginals, chunked, "come in chunks; `count_distribution` draws its count"),
        (plot.marginals, lambda: tt.ChunkedPoissonBinomial([0.5, 0.5]), "Ask its `pmf`"),
        (
            plot.marginals,
            lambda: tt.LinearModel(np.zeros((2, 1)), [1.0], lambda x: x, step=1.0),
            "single model",
        ),
        (plot.count_distribution, lambda: tt.noisy_or_model([0.0], [0.5]), "Draw `model.acting`"),
        (plot.count_distribution, lambda: tt.ChunkedPoissonBinomial([0.5]), "Ask its `pmf`"),
        (plot.count_distribution, lambda: tt.loopy_bp(graph()), "Take 0 for the first"),
        (plot.count_tree, lambda: tt.CountModel(np.zeros((2, 3))), "Make a model of one row"),
        (plot.group_tree, graph, "there is no tree"),
        (plot.assignment_heatmap, problem, r"Draw what its `loopy_bp\(\)` returns"),
        (plot.assignment_heatmap, model, "`marginals` draws single variables"),
    ],
)
def test_what_cannot_be_drawn_says_what_can(draw, model, words):
    with pytest.raises(tt.ParameterError, match=words):
        draw(model())
