"""Pictures of answers (marginals, counts, assignments, convergence, densities), of nested groups and of potentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Float64
from ..checks import describe, flag, instance, integer
from ..errors import ParameterError
from ..learn.statistics import CountFeatures
from ..models.count import CountModel
from ..models.frozen_distribution import FrozenDistribution
from ..models.linear import LinearModel
from ..potentials import as_potential
from ..structure.nested.count_tree import CountTree
from ..structure.nested.drawing import layout
from . import base


def marginals(model: Any, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Draw the posterior probability of every variable beside its probability without potentials.

    Parameters
    ----------
    model : CountModel, LinearModel, ThinnedModel, ChainModel of two states, PoissonBinomial, or LoopyResult
        A single model, not a batch; a PoissonBinomial may be conditioned with ``given``. Bounds of ``tallytree.loopy``
        are accepted as well.
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
    >>> ax = tt.plot.marginals(tt.CountModel([0.5, -1.0, 2.0], tt.exactly(1)))  # doctest: +SKIP
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
    """Draw the distribution of the count of a group, with and without its potential.

    Parameters
    ----------
    model : CountModel, ChainModel, PoissonBinomial, LinearModel, ChunkedCountModel or LoopyResult
        A single model, not a batch; a PoissonBinomial may be conditioned with ``given``. Weighted sums are drawn at
        their values.
    group : int, optional
        Number of the group; default all variables. For a LoopyResult it is required.
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
    >>> ax = tt.plot.count_distribution(tt.CountModel([0.5, -1.0, 2.0], tt.at_least(2)))  # doctest: +SKIP
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
    """Draw the probabilities of the cells of an assignment as a heat map.

    Parameters
    ----------
    values : (I, J) array, sparse array, or an answer with ``marginals``
        An answer such as ``assignment(...).infer()`` returns, or a matrix.
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
    >>> ax = tt.plot.assignment_heatmap(problem.loopy_bp())  # doctest: +SKIP
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
    """Draw the largest change of a message in every sweep of loopy belief propagation.

    Parameters
    ----------
    result : LoopyResult or AssignmentBeliefs
        Result of a run.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure. Several runs can be drawn on the same axes.
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
    >>> ax = tt.plot.loopy_trace(problem.loopy_bp())  # doctest: +SKIP
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
    """Draw the error of the count distributions of groups against their size, for samples of several models.

    Parameters
    ----------
    data : (N, D) array of 0 and 1
        Rows of data to compare with.
    samples : mapping of name to (M, D) array
        Name of every model, and rows drawn from it.
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
    >>> ax = tt.plot.density_comparison(rows, {"itself": rows}, tt.CountTree.balanced(4))  # doctest: +SKIP
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


# -- structures ----------------------------------------------------------------------------------------------------

_MOST_COUNTS = 16  # variables up to which potentials fit into the tree


def group_tree(tree: Any, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Draw nested groups: the variables below, every group above its members, larger groups higher.

    Parameters
    ----------
    tree : CountTree, CountModel or ChainModel
        The structure, or a model that has one.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure.
    names : sequence of str, optional
        Labels of the variables, shown for up to 30 of them.

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
    tallytree.CountTree
    tallytree.plot.count_tree

    Examples
    --------
    >>> ax = tt.plot.group_tree(tt.CountTree.balanced(8))  # doctest: +SKIP
    """
    family = base.tree_of(tree).family
    labels = base.variable_names(names, family.n_variables)
    position = np.argsort(family.order).astype(float)
    ax = base.axes_of(ax)
    height = np.log2(np.maximum(family.set_size, 1))
    place, held = layout(family, position, height)
    for top, (below, feet) in zip(height, held):
        ax.vlines(below, feet, top, color="0.45", lw=0.8)
        ax.hlines(top, below.min(), below.max(), color="0.45", lw=0.8)
    few = family.n_variables <= base.MOST_BARS
    if family.n_sets:
        base.marks(ax, place, height, "o", base.BLUE, 5 if few else 2, "group")
    base.marks(ax, position, 0 * position, "s", base.ORANGE, 4 if few else 1.5, "variable")
    if family.n_variables <= base.MOST_NAMES:
        tilt, side = (0, "center") if labels is None else (45, "right")
        ax.set_xticks(position, labels or list(map(str, range(family.n_variables))), rotation=tilt, ha=side)
    else:
        ax.set_xticks([])
    largest = int(family.set_size.max()) if family.n_sets else 1
    ticks = 2 ** np.arange(0, int(np.ceil(np.log2(max(largest, 2)))) + 1)
    ax.set_yticks(np.log2(ticks), [str(t) for t in ticks])
    ax.set_ylim(-0.3, 1.25 * np.log2(max(largest, 2)) + 0.5)  # room for the legend
    return base.finish(ax, "variables", "size of the group")


def count_tree(model: Any, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Draw the counts z of nested groups as a tree, each with a small picture of its potential.

    Parameters
    ----------
    model : CountModel
        A model of at most 16 variables, not a batch.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure.
    names : sequence of str, optional
        Labels of the variables; default y0, y1, ...

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
    tallytree.CountTree
    tallytree.plot.group_tree

    Examples
    --------
    >>> model = tt.CountModel([0.0] * 4, [tt.Group([0, 1], tt.exactly(1)), tt.Group(None, tt.at_least(2))])
    >>> ax = tt.plot.count_tree(model)  # doctest: +SKIP
    """
    if not isinstance(model, CountModel) or model.batch_shape:
        hint = " Make a model of one row of it." if isinstance(model, CountModel) else ""
        raise ParameterError(f"`model` must be one CountModel, not a batch; {describe(model)} arrived.{hint}")
    family = model.tree.family
    if family.n_variables > _MOST_COUNTS:
        raise ParameterError(
            f"`model` must have at most {_MOST_COUNTS} variables for this picture; {family.n_variables} arrived. "
            "`group_tree` draws larger ones."
        )
    default = [f"$y_{{{i}}}$" for i in range(family.n_variables)]
    labels = base.variable_names(names, family.n_variables) or default
    ax = base.axes_of(ax, (8.0, 4.0))
    position = np.argsort(family.order).astype(float)
    level = np.ones(family.n_sets)
    for s in range(family.n_sets):  # smaller sets first
        level[s] += level[family.set_parent == s].max(initial=0.0)
    place, held = layout(family, position, level)
    for s, (below, feet) in enumerate(held):
        for x, y in zip(below, feet):
            ax.plot([x, place[s]], [y, level[s]], color="0.6", lw=1.0, zorder=1)
    for x, label in zip(position, labels):
        _node(ax, x, 0.0, "s", 15, base.ORANGE, label)
    for s in range(family.n_sets):
        _node(ax, place[s], level[s], "o", 17, base.BLUE, f"$z_{{{s}}}$")
        shares = [model.tables[g] for g in np.flatnonzero(family.set_of_group == s)]
        above = int(family.set_parent[s])
        leftwards = above >= 0 and place[above] > place[s]  # away from the line to the count above
        _inset(ax, place[s] + (-0.77 if leftwards else 0.22), level[s], np.sum(shares, axis=0))
    ax.set(xlim=(-0.8, family.n_variables - 0.2), ylim=(-0.6, level.max(initial=0.0) + 0.7))
    ax.set_axis_off()
    return ax


def _node(ax: Any, x: float, y: float, shape: str, size: float, colour: str, label: str) -> None:
    """A white mark with its name inside."""
    ax.plot(x, y, shape, ms=size, color="white", mec=colour, mew=1.4, zorder=3)
    ax.annotate(label, (x, y), ha="center", va="center", fontsize=9, zorder=4)


def _inset(ax: Any, x: float, y: float, log_f: Any) -> None:
    """A potential as bars from x on, beside its count, relative to its largest value."""
    inset = ax.inset_axes([x, y - 0.12, 0.55, 0.5], transform=ax.transData)
    inset.bar(np.arange(len(log_f)), base.relative(log_f), color=base.BLUE, width=0.8)
    inset.set(xticks=[], yticks=[], ylim=(0, 1.15), zorder=2)
    inset.spines[["top", "right", "left"]].set_visible(False)


def potential(potential: Any, n: int, ax: Any = None) -> Any:
    """Draw a potential f on the count of n variables, relative to its largest value.

    Parameters
    ----------
    potential : Potential, array of n + 1 log-values, or function of counts
        What to draw.
    n : int
        Number of variables.
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
    tallytree.Potential

    Examples
    --------
    >>> ax = tt.plot.potential(tt.noisy_or(0.3), 20)  # doctest: +SKIP
    """
    size = integer("n", n, 0)
    log_f = np.asarray(as_potential(potential).log_table(size), np.float64)
    if log_f.shape != (size + 1,):
        raise ParameterError(
            f"`potential` must have {size + 1} values for {size} variables; shape {log_f.shape} arrived."
        )
    ax = base.axes_of(ax)
    ax.bar(np.arange(size + 1), base.relative(log_f), color=base.BLUE, width=0.75)
    base.whole_ticks(ax, 0, size)
    return base.finish(ax, "count", "potential / largest", legend=False)
