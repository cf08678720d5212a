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


def images() -> np.ndarray:
    return (np.random.default_rng(1).random((50, 8)) < 0.4).astype(np.uint8)


PLOTS = {
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
    sizes, errors = plot.count_errors(rows, 0 * rows, tree)
    assert sizes.tolist() == [2, 8]
    found = np.bincount(rows[:, :2].sum(1), minlength=3) / len(rows)
    np.testing.assert_allclose(errors[0], np.sqrt(np.mean((found - [1, 0, 0]) ** 2)))


def test_bad_arguments_are_refused():
    with pytest.raises(tt.ParameterError, match="single model"):
        plot.marginals(tt.CountModel(np.zeros((2, 3)), tt.exactly(1)))
    with pytest.raises(tt.ParameterError, match="one entry per variable"):
        plot.marginals(model(), names=["a"])
    with pytest.raises(tt.ParameterError, match="matrix"):
        plot.assignment_heatmap(np.zeros(3))
