"""Pictures of answers: marginals, count distributions, assignments, convergence and densities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Float64
from ..checks import describe, flag, instance
from ..errors import ParameterError
from ..learn.statistics import CountFeatures
from ..models.frozen_distribution import FrozenDistribution
from ..models.linear import LinearModel
from ..structure.nested.count_tree import CountTree
from . import base


def marginals(model: Any, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Posterior probability of every variable beside its probability by itself.

    Parameters
    ----------
    model : CountModel, LinearModel, ThinnedModel, ChainModel of two states, PoissonBinomial, or LoopyResult
        A single one, not a batch; also a PoissonBinomial with something given, and a bound of ``tallytree.loopy``.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure.
    names : sequence of str, optional
        Labels of the variables.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on, ``ax`` if it was given.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.plot.count_distribution
    tallytree.CountModel

    Examples
    --------
    >>> ax = marginals(tt.CountModel([0.5, -1.0, 2.0], tt.exactly(1)))  # doctest: +SKIP
    """
    prior, posterior = base.probabilities(model)
    n = len(posterior)
    labels = base.variable_names(names, n)
    ax = base.axes_of(ax)
    place = np.arange(n)
    drawn = [] if prior is None else [(prior, base.GREY, "by itself")]
    drawn.append((posterior, base.BLUE, "given the counts"))
    base.side_by_side(ax, place, drawn, ls="", marker=".", ms=3)
    if labels is not None and n <= base.MOST_NAMES:
        ax.set_xticks(place, labels, rotation=45, ha="right")
    else:
        ax.set_xlabel("variable")
        base.whole_ticks(ax, 0, n - 1)
    ax.set_ylim(0, 1.15 if len(drawn) > 1 else 1)  # room for the legend
    ax.set_yticks(np.linspace(0, 1, 6))
    return base.finish(ax, y="P(variable is on)", legend=len(drawn) > 1, columns=2)


def count_distribution(model: Any, group: int | None = None, ax: Any = None) -> Any:
    """Distribution of a group's count, with the variables alone and with the shape of the potential.

    Parameters
    ----------
    model : CountModel, ChainModel, PoissonBinomial, LinearModel, ChunkedCountModel or LoopyResult
        A single one, not a batch; also a PoissonBinomial with something given. Sums of weighted variables are shown
        at their values.
    group : int, optional
        Number of the group; default all variables. A LoopyResult needs it.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on, ``ax`` if it was given.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.plot.marginals
    tallytree.CountModel

    Notes
    -----
    The potential is scaled so that its largest value is the height of the tallest probability.

    Examples
    --------
    >>> ax = count_distribution(tt.CountModel([0.5, -1.0, 2.0], tt.at_least(2)))  # doctest: +SKIP
    """
    counts, prior, posterior, potential = base.distributions(model, group)
    both = posterior if prior is None else np.maximum(prior, posterior)
    seen = np.flatnonzero(both > 1e-6)
    shown = slice(max(int(seen[0]) - 1, 0), min(int(seen[-1]) + 1, len(both) - 1) + 1)
    counts, height = counts[shown], both[shown].max()
    ax = base.axes_of(ax)
    step = float(counts[1] - counts[0]) if len(counts) > 1 else 1.0
    drawn = [] if prior is None else [(prior[shown], base.GREY, "variables alone")]
    drawn.append((posterior[shown], base.BLUE, "given the model"))
    base.side_by_side(ax, counts, drawn, step)
    if potential is not None:
        marker = "o" if len(counts) <= base.MOST_BARS else None
        scaled = base.relative(potential[shown]) * height
        style = {"color": base.ORANGE, "marker": marker, "ms": 3, "lw": 1.2}
        ax.plot(counts, scaled, label="potential (scaled)", **style)
    if counts.dtype.kind in "iu":
        base.whole_ticks(ax, int(counts[0]), int(counts[-1]))
    name = "sum" if isinstance(model, (FrozenDistribution, LinearModel)) else "count"
    what = name if group is None else f"count of group {group}"
    return base.finish(ax, what, "probability", legend=len(drawn) > 1 or potential is not None)


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

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on, ``ax`` if it was given.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.assignment

    Examples
    --------
    >>> problem = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1))
    >>> ax = assignment_heatmap(problem.loopy_bp())  # doctest: +SKIP
    """
    found = getattr(values, "marginals", values)
    if hasattr(values, "lp_marginals"):
        raise ParameterError(
            f"`values` must be an answer or a matrix; {describe(values)} arrived. Draw what its `loopy_bp()` returns."
        )
    matrix = base.numbers("values", found.toarray() if hasattr(found, "toarray") else found)
    if matrix.ndim != 2:
        raise ParameterError(
            f"`values` must be a matrix; shape {matrix.shape} arrived. `marginals` draws single variables."
        )
    bar = flag("bar", bar)
    ax = base.axes_of(ax)
    image = ax.imshow(matrix, cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if bar:
        ax.figure.colorbar(image, ax=ax, label="P(cell is on)")
    for side in (ax.xaxis, ax.yaxis):
        base.whole_numbers(side)
    ax.set(xlabel="column", ylabel="row")
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

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on, ``ax`` if it was given.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.loopy_bp

    Examples
    --------
    >>> problem = tt.assignment(np.zeros((2, 4)), rows=tt.exactly(2), columns=tt.exactly(1))
    >>> ax = loopy_trace(problem.loopy_bp())  # doctest: +SKIP
    """
    run = getattr(result, "result", result)
    trace = getattr(run, "trace", None)
    if trace is None or callable(trace):
        raise ParameterError(
            f"`result` must be what `loopy_bp` returns, with its `trace`; {describe(result)} arrived."
        )
    if label is not None:
        instance("label", label, str)
    return trace_line(base.numbers("result.trace", trace), ax, label=label)


def trace_line(trace: Float64, ax: Any = None, *, label: str | None = None) -> Any:
    """A trace given as numbers; a sweep that changed nothing stands at the foot of the logarithmic axis."""
    ax = base.axes_of(ax)
    sweeps = np.arange(1, len(trace) + 1)
    moving = trace > 0
    (line,) = ax.plot(sweeps, np.where(moving, trace, np.nan), marker=".", lw=1.2, label=label)
    if moving.any():
        ax.set_yscale("log")
    still = sweeps[~moving]
    if len(still):
        # In axes coordinates: zero has no place on a logarithmic axis.
        foot = {"clip_on": False, "transform": ax.get_xaxis_transform()}
        ax.plot(still, 0.0 * still, "v", color=line.get_color(), zorder=3, **foot)
        where = "from the first sweep on" if still[0] == 1 else f"in sweep {int(still[0])}"
        side = "right" if still[0] == len(trace) > 1 else "center"
        style = {"textcoords": "offset points", "fontsize": 9, "ha": side}
        ax.annotate(f"no change {where}", (still[0], 0.0), (0, 10), foot["transform"], **style)
    if not moving.any():
        ax.set_yticks([])
    base.whole_ticks(ax, 1, max(len(trace), 1))
    return base.finish(ax, "sweep", "largest change of a message", legend=label is not None)


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

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on, ``ax`` if it was given.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.estimators.CountDensity

    Examples
    --------
    >>> rows = np.eye(4, dtype=int)
    >>> ax = density_comparison(rows, {"itself": rows}, tt.CountTree.balanced(4))  # doctest: +SKIP
    """
    tree = base.tree_of(tree)
    if not isinstance(samples, Mapping) or not samples:
        raise ParameterError(
            f"`samples` must map names of models to their rows, such as {{'model': rows}}; {describe(samples)} arrived."
        )
    rows = _binary_rows("data", data, tree.n_variables)
    others = {name: _binary_rows(f"samples[{name!r}]", y, tree.n_variables) for name, y in samples.items()}
    ax = base.axes_of(ax)
    for name, drawn in others.items():
        sizes, errors = count_errors(rows, drawn, tree)
        error_line(ax, sizes, errors, name)
    return base.finish(ax)


def _binary_rows(name: str, value: Any, n: int) -> NDArray[Any]:
    array = base.numbers(name, value)
    if array.ndim != 2 or array.shape[1] != n or len(array) == 0 or not np.isin(array, (0, 1)).all():
        raise ParameterError(
            f"`{name}` must be rows of 0 and 1 with {n} columns, one per variable of the tree; "
            f"{describe(array)} arrived."
        )
    return array.astype(np.uint8)


def error_line(ax: Any, sizes: NDArray[np.int64], errors: Float64, name: str, **style: Any) -> None:
    """Errors of groups as faint dots, and a line through their means in classes of size."""
    edges = np.unique(np.round(2.0 ** np.arange(1, np.log2(sizes.max()) + 1.01, 0.5)).astype(int))
    label = np.searchsorted(edges, sizes, side="right")
    middle = [float(np.exp(np.log(sizes[label == k]).mean())) for k in np.unique(label)]
    height = [float(errors[label == k].mean()) for k in np.unique(label)]
    (line,) = ax.plot(middle, height, marker="o", ms=3.5, lw=1.5, label=name, **style)
    ax.plot(sizes, errors, ".", ms=2, alpha=0.3, color=line.get_color(), zorder=1)
    ax.set_xscale("log", base=2)
    ax.set(xlabel="number of variables in the subset", ylabel="RMSE of the count distribution")


def count_errors(
    rows: NDArray[Any], drawn: NDArray[Any], tree: CountTree
) -> tuple[NDArray[np.int64], Float64]:
    """Size of every group, and the root mean squared difference of its two empirical count distributions."""
    features = CountFeatures(tree)
    gap = features.mean(rows).tables - features.mean(drawn).tables
    sizes = np.diff(features.offset) - 1
    squares = np.add.reduceat(gap**2, features.offset[:-1]) / (sizes + 1)
    return np.asarray(sizes, np.int64), np.asarray(np.sqrt(squares))
