"""Pictures of models and answers: every function draws into ``ax``, or into a new figure, and returns the axes.

matplotlib is imported when a picture is drawn: ``pip install tallytree[plot]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from .arrays import Float64
from .errors import ParameterError, TallyTreeError
from .learn.statistics import CountFeatures
from .models.count import CountModel
from .structure.nested.count_tree import CountTree

__all__ = [
    "assignment_heatmap",
    "count_distribution",
    "density_comparison",
    "group_tree",
    "loopy_trace",
    "marginals",
]


BLUE, ORANGE, GREEN, RED, GREY = "#3b6fb6", "#d9822b", "#4f9d5d", "#b5403a", "#b8b8b8"
PALETTE = (BLUE, ORANGE, GREEN, RED, "#7d5ba6", "#6b6b6b")
_MOST_BARS = 60  # beyond it, lines and dots
_MOST_NAMES = 30


def axes_of(ax: Any, size: tuple[float, float] = (6.0, 3.6)) -> Any:
    """The given axes, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise TallyTreeError(
            "Plots need matplotlib. Install it with `pip install tallytree[plot]`."
        ) from None
    return plt.subplots(figsize=size, layout="constrained")[1]


def marginals(model: CountModel, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Posterior probability of every variable beside its probability by itself.

    Parameters
    ----------
    model : CountModel
        A single model.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure.
    names : sequence of str, optional
        Labels of the variables.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = marginals(tt.CountModel([0.5, -1.0, 2.0], tt.exactly(1)))  # doctest: +SKIP
    """
    _single(model)
    prior = np.asarray(expit(np.asarray(model.logits, np.float64)))
    posterior = np.asarray(model.marginals, np.float64)
    if names is not None and len(names) != len(prior):
        raise ParameterError(f"`names` must have one entry per variable, {len(prior)}; {len(names)} arrived.")
    ax = axes_of(ax)
    place = np.arange(len(prior))
    if len(place) <= _MOST_BARS:
        ax.bar(place - 0.2, prior, 0.4, color=GREY, label="by itself")
        ax.bar(place + 0.2, posterior, 0.4, color=BLUE, label="given the counts")
    else:
        ax.plot(place, prior, ".", ms=3, color=GREY, label="by itself")
        ax.plot(place, posterior, ".", ms=3, color=BLUE, label="given the counts")
    if names is not None and len(names) <= _MOST_NAMES:
        ax.set_xticks(place, names, rotation=45, ha="right")
    else:
        ax.set_xlabel("variable")
    ax.set_ylabel("P(variable is on)")
    ax.set_ylim(0, 1)
    return _finish(ax)


def count_distribution(model: CountModel, group: int | None = None, ax: Any = None) -> Any:
    """Distribution of a group's count, with the variables alone and with the shape of the potential.

    Parameters
    ----------
    model : CountModel
        A single model.
    group : int, optional
        Number of the group; default all variables.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure.

    Notes
    -----
    The potential is scaled so that its largest value is the height of the tallest probability.

    Examples
    --------
    >>> ax = count_distribution(tt.CountModel([0.5, -1.0, 2.0], tt.at_least(2)))  # doctest: +SKIP
    """
    _single(model)
    posterior = np.exp(np.asarray(model.count_log_probs(group), np.float64))
    members, potential = _group_parts(model, group, len(posterior))
    alone = CountModel(np.asarray(model.logits, np.float64)[members])
    prior = np.exp(np.asarray(alone.count_log_probs(), np.float64))
    seen = np.flatnonzero(np.maximum(prior, posterior) > 1e-6)
    first, last = max(int(seen[0]) - 1, 0), min(int(seen[-1]) + 1, len(prior) - 1)
    counts, shown = np.arange(first, last + 1), slice(first, last + 1)
    ax = axes_of(ax)
    if len(counts) <= _MOST_BARS:
        ax.bar(counts - 0.2, prior[shown], 0.4, color=GREY, label="variables alone")
        ax.bar(counts + 0.2, posterior[shown], 0.4, color=BLUE, label="given the model")
    else:
        ax.plot(counts, prior[shown], color=GREY, label="variables alone")
        ax.plot(counts, posterior[shown], color=BLUE, label="given the model")
    if potential is not None:
        part = potential[shown]
        top = part.max()
        height = max(prior[shown].max(), posterior[shown].max())
        scaled = np.exp(part - top) * height if top > -np.inf else np.zeros(len(part))
        marker = "o" if len(counts) <= _MOST_BARS else None
        ax.plot(counts, scaled, color=ORANGE, marker=marker, ms=3, lw=1.2, label="potential (scaled)")
    ax.set_xlabel("count" if group is None else f"count of group {group}")
    ax.set_ylabel("probability")
    return _finish(ax)


def group_tree(tree: CountTree, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """The nested groups as a drawing: variables below, every group above its members at a height by its size.

    Parameters
    ----------
    tree : CountTree
        The structure.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure.
    names : sequence of str, optional
        Labels of the variables, shown for up to 30 of them.

    Examples
    --------
    >>> ax = group_tree(tt.CountTree.balanced(8))  # doctest: +SKIP
    """
    family = tree.family
    position = np.empty(family.n_variables)
    position[family.order] = np.arange(family.n_variables)
    ax = axes_of(ax)
    place = np.zeros(family.n_sets)
    height = np.log2(np.maximum(family.set_size, 1)) if family.n_sets else np.zeros(0)
    above = family.set_parent
    for s in range(family.n_sets):  # smaller sets first: children are placed before their parent
        loose = position[np.flatnonzero(family.variable_parent == s)]
        inner = np.flatnonzero(above == s)
        below = np.concatenate([loose, place[inner]])
        feet = np.concatenate([np.zeros(len(loose)), height[inner]])
        place[s] = below.mean()
        ax.vlines(below, feet, height[s], color="0.45", lw=0.8)
        ax.hlines(height[s], below.min(), below.max(), color="0.45", lw=0.8)
    few = family.n_variables <= _MOST_BARS
    if family.n_sets:
        ax.plot(place, height, "o", color=BLUE, ms=5 if few else 2, label="group", zorder=3)
    ax.plot(
        position, np.zeros(len(position)), "s", color=ORANGE, ms=4 if few else 1.5, label="variable", zorder=3
    )
    if family.n_variables <= _MOST_NAMES:
        labels = [str(i) if names is None else names[i] for i in range(family.n_variables)]
        ax.set_xticks(
            position, labels, rotation=0 if names is None else 45, ha="center" if names is None else "right"
        )
    else:
        ax.set_xticks([])
    ax.set_xlabel("variables")
    largest = int(family.set_size.max()) if family.n_sets else 1
    ticks = 2 ** np.arange(0, int(np.ceil(np.log2(max(largest, 2)))) + 1)
    ax.set_yticks(np.log2(ticks), [str(t) for t in ticks])
    ax.set_ylabel("size of the group")
    ax.set_ylim(-0.3, 1.25 * np.log2(max(largest, 2)) + 0.5)  # room for the legend
    return _finish(ax)


def assignment_heatmap(values: Any, ax: Any = None, *, title: str | None = None, bar: bool = True) -> Any:
    """Probabilities of the cells of an assignment as a heat map.

    Parameters
    ----------
    values : (I, J) array, sparse array, or an answer with ``marginals``
        What ``assignment(...).loopy_bp()`` and its relatives return, or a matrix.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure.
    title : str, optional
        Text above.
    bar : bool
        Whether to add a colour bar.

    Examples
    --------
    >>> problem = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1))
    >>> ax = assignment_heatmap(problem.loopy_bp())  # doctest: +SKIP
    """
    found = getattr(values, "marginals", values)
    matrix = np.asarray(found.toarray() if hasattr(found, "toarray") else found, np.float64)
    if matrix.ndim != 2:
        raise ParameterError(f"`values` must be a matrix; shape {matrix.shape} arrived.")
    ax = axes_of(ax)
    image = ax.imshow(matrix, cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if bar:
        ax.figure.colorbar(image, ax=ax, label="P(cell is on)")
    for side in (ax.xaxis, ax.yaxis):
        side.get_major_locator().set_params(integer=True)
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    if title is not None:
        ax.set_title(title, fontsize=10)
    return ax


def loopy_trace(result: Any, ax: Any = None, *, label: str | None = None) -> Any:
    """Largest change of a message in every sweep of loopy belief propagation.

    Parameters
    ----------
    result : LoopyResult or AssignmentBeliefs
        A run.
    ax : matplotlib Axes, optional
        Where to draw; several runs can share one.
    label : str, optional
        Name of the run in the legend.

    Examples
    --------
    >>> problem = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1))
    >>> ax = loopy_trace(problem.loopy_bp())  # doctest: +SKIP
    """
    run = getattr(result, "result", result)
    return trace_line(np.asarray(run.trace, np.float64), ax, label=label)


def trace_line(trace: Float64, ax: Any = None, *, label: str | None = None) -> Any:
    """A trace given as numbers; sweeps without any change are left out of the logarithmic axis."""
    ax = axes_of(ax)
    sweeps = np.arange(1, len(trace) + 1)
    ax.semilogy(sweeps, np.where(trace > 0, trace, np.nan), marker=".", lw=1.2, label=label)
    ax.set_xlabel("sweep")
    ax.set_ylabel("largest change of a message")
    return _finish(ax, legend=label is not None)


def density_comparison(
    data: ArrayLike, samples: Mapping[str, ArrayLike], tree: CountTree, ax: Any = None
) -> Any:
    """Error of the count distributions of a tree's groups against their size, for samples of several models.

    Parameters
    ----------
    data : (N, D) array of 0 and 1
        Rows to compare with.
    samples : mapping of name to (M, D) array
        Rows drawn from models.
    tree : CountTree
        Groups whose counts are compared.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure.

    Examples
    --------
    >>> rows = np.eye(4, dtype=int)
    >>> ax = density_comparison(rows, {"itself": rows}, tt.CountTree.balanced(4))  # doctest: +SKIP
    """
    rows = np.asarray(data)
    ax = axes_of(ax)
    for name, drawn in samples.items():
        sizes, errors = count_errors(rows, np.asarray(drawn), tree)
        error_line(ax, sizes, errors, name)
    return _finish(ax)


def error_line(ax: Any, sizes: NDArray[np.int64], errors: Float64, name: str, **style: Any) -> None:
    """Errors of groups as faint dots, and a line through their means in classes of size."""
    edges = np.unique(np.round(2.0 ** np.arange(1, np.log2(sizes.max()) + 1.01, 0.5)).astype(int))
    label = np.searchsorted(edges, sizes, side="right")
    middle = [float(np.exp(np.log(sizes[label == k]).mean())) for k in np.unique(label)]
    height = [float(errors[label == k].mean()) for k in np.unique(label)]
    (line,) = ax.plot(middle, height, marker="o", ms=3.5, lw=1.5, label=name, **style)
    ax.plot(sizes, errors, ".", ms=2, alpha=0.3, color=line.get_color(), zorder=1)
    ax.set_xscale("log", base=2)
    ax.set_xlabel("number of variables in the subset")
    ax.set_ylabel("RMSE of the count distribution")


def count_errors(
    rows: NDArray[Any], drawn: NDArray[Any], tree: CountTree
) -> tuple[NDArray[np.int64], Float64]:
    """Size of every group, and the root mean squared difference of its two empirical count distributions."""
    features = CountFeatures(tree)
    gap = features.mean(rows).tables - features.mean(drawn).tables
    sizes = np.diff(features.offset) - 1
    squares = np.add.reduceat(gap**2, features.offset[:-1]) / (sizes + 1)
    return np.asarray(sizes, np.int64), np.asarray(np.sqrt(squares))


def _single(model: CountModel) -> None:
    if model.batch_shape:
        raise ParameterError(f"`model` must be a single model; batch shape {model.batch_shape} arrived.")


def _group_parts(
    model: CountModel, group: int | None, width: int
) -> tuple[NDArray[np.int64], Float64 | None]:
    """Members of a group, and the sum of the log-tables of the groups with the same members."""
    groups = list(model.tree.groups)
    members = np.arange(model.n_variables) if group is None else np.asarray(groups[group])
    same = [
        np.asarray(table)
        for g, table in zip(groups, model.tables)
        if len(g) == len(members) and np.array_equal(g, members)
    ]
    return members, np.sum(same, axis=0) if same and len(same[0]) == width else None


def _finish(ax: Any, *, legend: bool = True) -> Any:
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        ax.legend(frameon=False, fontsize=9)
    return ax
