"""Pictures of structures: nested groups, the tree of counts with its potentials, single potentials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import checks
from ..errors import ParameterError
from ..models.count import CountModel
from ..potentials import as_potential
from ..structure.nested.drawing import layout
from . import base

_MOST_COUNTS = 16  # variables up to which potentials fit into the tree


def group_tree(tree: Any, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """The nested groups as a drawing: variables below, every group above its members at a height by its size.

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
    >>> ax = group_tree(tt.CountTree.balanced(8))  # doctest: +SKIP
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
    """The counts z of a model as a tree, each with a small picture of its potential (as in Figure 2 of the paper).

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
    >>> ax = count_tree(tt.CountModel([0.0] * 4, [tt.Group([0, 1], tt.exactly(1)), tt.at_least(2)]))  # doctest: +SKIP
    """
    if not isinstance(model, CountModel) or model.batch_shape:
        hint = " Make a model of one row of it." if isinstance(model, CountModel) else ""
        raise ParameterError(
            f"`model` must be one CountModel, not a batch; {checks.describe(model)} arrived.{hint}"
        )
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
    """A potential f on the count of n variables, relative to its largest value.

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
    >>> ax = potential(tt.noisy_or(0.3), 20)  # doctest: +SKIP
    """
    size = checks.integer("n", n, 0)
    log_f = np.asarray(as_potential(potential).log_table(size), np.float64)
    if log_f.shape != (size + 1,):
        raise ParameterError(
            f"`potential` must have {size + 1} values for {size} variables; shape {log_f.shape} arrived."
        )
    ax = base.axes_of(ax)
    ax.bar(np.arange(size + 1), base.relative(log_f), color=base.BLUE, width=0.75)
    base.whole_ticks(ax, 0, size)
    return base.finish(ax, "count", "potential / largest", legend=False)
