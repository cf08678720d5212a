"""What all pictures share: what they are given, read into numbers; colours, axes and finishing touches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..arrays import Float64
from ..checks import describe, listed
from ..errors import ParameterError, TallyTreeError
from ..loopy import LoopyResult, LowerBound, UpperBound
from ..loopy.factor_graph import FactorGraph
from ..models.chain import ChainModel
from ..models.conditional_sum import ConditionalPoissonBinomial
from ..models.count import CountModel
from ..models.frozen_distribution import FrozenDistribution
from ..models.linear import LinearModel
from ..models.thinned import ThinnedModel
from ..structure.nested.count_tree import CountTree

BLUE, ORANGE, GREY = "#3b6fb6", "#d9822b", "#b8b8b8"
MOST_BARS = 60  # beyond it, lines and dots
MOST_NAMES = 30

_MODELS = (CountModel, ChainModel, FrozenDistribution, LinearModel)
_BOUNDS = (UpperBound, LowerBound)
_HINTS = {
    "Assignment": " Use `assignment_heatmap` with what its `loopy_bp()` returns.",
    "AssignmentBeliefs": " Use `assignment_heatmap` for it.",
    "AssignmentExact": " Use `assignment_heatmap` for it.",
    "FactorGraph": " Its answers are approximate: draw what `loopy_bp(graph)` returns.",
    "RaggedBatch": " Take one of its models, such as batch[0].",
    "ChunkedCountModel": " Its `marginals` come in chunks; `count_distribution` draws its count.",
    "ChunkedPoissonBinomial": " Ask its `pmf` for the counts to be drawn.",
    "ThinnedModel": " Draw `model.acting`, whose count has the potential.",
}


# -- what is drawn


def _single(model: Any, *kinds: type) -> None:
    """Refuse what cannot be drawn, and say what can."""
    if not isinstance(model, kinds):
        raise ParameterError(
            "`model` must be a model of binary variables, a ChainModel, a PoissonBinomial or what `loopy_bp` returns; "
            f"{describe(model)} arrived.{_HINTS.get(type(model).__name__, '')}"
        )
    if batch := getattr(model, "batch_shape", ()):
        raise ParameterError(
            f"`model` must be a single model; batch shape {batch} arrived. Make a model of one row of it."
        )


def tree_of(value: Any) -> CountTree:
    """A tree, or that of a model."""
    found = value.tree if isinstance(value, (CountModel, ChainModel)) else value
    if not isinstance(found, CountTree):
        overlap = " Its groups may overlap: there is no tree." if isinstance(value, FactorGraph) else ""
        raise ParameterError(
            f"`tree` must be a CountTree, a CountModel or a ChainModel; {describe(value)} arrived.{overlap}"
        )
    return found


def variable_names(names: Any, n: int) -> list[str] | None:
    """One text per variable, or None."""
    if names is None:
        return None
    return [str(name) for name in listed(names, n, f"`names` must be a list of one entry per variable, {n}")]


def numbers(name: str, value: Any) -> Float64:
    """Real numbers of any shape."""
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"`{name}` must hold real numbers; {describe(value)} arrived.") from None


def probabilities(model: Any) -> tuple[Float64 | None, Float64]:
    """Probabilities of the variables by themselves, where there are such, and given everything."""
    _single(model, *_MODELS, ThinnedModel, LoopyResult, *_BOUNDS)
    if isinstance(model, _BOUNDS):
        return None, model.marginals
    if isinstance(model, ConditionalPoissonBinomial):
        return model.prior, model.marginals
    if isinstance(model, FrozenDistribution):
        return None, np.asarray(model.probs)  # type: ignore[attr-defined]
    posterior = np.asarray(model.marginals, np.float64)
    if not isinstance(model, ChainModel):
        logits = model.graph.logits if isinstance(model, LoopyResult) else model.logits
        return np.asarray(expit(np.asarray(logits, np.float64))), posterior
    if posterior.shape[-1] != 2:
        raise ParameterError(
            f"`model` has {posterior.shape[-1]} states; bars show chains of two. Use `assignment_heatmap` with its "
            "`marginals`, one row per position."
        )
    return None, posterior[:, 1]


def distributions(
    model: Any, group: int | None
) -> tuple[NDArray[Any], Float64 | None, Float64, Float64 | None]:
    """Counts, their probabilities for the variables alone and given everything, and the log-potential."""
    chunked = hasattr(model, "count_windows")
    if not chunked:
        _single(model, *_MODELS, LoopyResult)
    if group is not None and (chunked or isinstance(model, (LinearModel, FrozenDistribution))):
        raise ParameterError(
            f"`group` must be None for {type(model).__name__}, which has one count; {describe(group)} arrived."
        )
    if chunked:
        window = model.count_log_probs()
        return window.first + np.arange(len(window.log_probs)), None, np.exp(window.log_probs), None
    if isinstance(model, LinearModel):
        return model.values, np.exp(model._prior_log_probs), np.exp(model.sum_log_probs), model.log_f
    if isinstance(model, FrozenDistribution):
        before = model.before if isinstance(model, ConditionalPoissonBinomial) else None
        prior = None if before is None else np.exp(before.count_log_probs)
        return model.values, prior, np.exp(model.count_log_probs), None
    if isinstance(model, LoopyResult) and group is None:
        raise ParameterError(
            "`group` must be the number of a group for beliefs; None arrived. Take 0 for the first."
        )
    posterior = np.exp(np.asarray(model.count_log_probs(group), np.float64))
    counts = np.arange(len(posterior))
    if not isinstance(model, CountModel):
        return counts, None, posterior, None
    groups = list(model.tree.groups)
    members = np.arange(model.n_variables) if group is None else np.asarray(groups[group])
    alone = CountModel(np.asarray(model.logits, np.float64)[members])
    same = [np.asarray(t) for g, t in zip(groups, model.tables) if np.array_equal(g, members)]
    return counts, np.exp(alone.count_log_probs()), posterior, np.sum(same, axis=0) if same else None


def relative(log_f: Any) -> Float64:
    """A potential divided by its largest value; zero if it is zero everywhere."""
    values = np.asarray(log_f, np.float64)
    top = values.max()
    return np.exp(values - (top if np.isfinite(top) else 0.0))


# -- how it looks


def axes_of(ax: Any, size: tuple[float, float] = (6.0, 3.6)) -> Any:
    """The given axes, or those of a new figure."""
    if ax is not None:
        if not hasattr(ax, "plot") or not hasattr(ax, "spines"):
            raise ParameterError(
                "`ax` must be matplotlib Axes, such as plt.subplots()[1], or None for a new figure; "
                f"{describe(ax)} arrived."
            )
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise TallyTreeError(
            "Plots need matplotlib. Install it with `pip install tallytree[plot]`."
        ) from None
    return plt.subplots(figsize=size, layout="constrained")[1]


def side_by_side(
    ax: Any, place: Any, drawn: Sequence[tuple[Any, str, str]], step: float = 1.0, **line: Any
) -> None:
    """Values, colour and label of one or two kinds: bars beside one another where they are few, else lines."""
    width = 0.8 * step / len(drawn)
    for i, (values, colour, label) in enumerate(drawn):
        if len(place) <= MOST_BARS:
            shift = (i - (len(drawn) - 1) / 2) * width
            ax.bar(place + shift, values, width, color=colour, label=label)
        else:
            ax.plot(place, values, color=colour, label=label, **line)


def marks(ax: Any, x: Any, y: Any, shape: str, colour: str, size: float, label: str) -> None:
    """Marks without a line, above everything else."""
    ax.plot(x, y, shape, color=colour, ms=size, label=label, zorder=3)


def whole_ticks(ax: Any, low: int, high: int) -> None:
    """Ticks at whole numbers: all of them where they are few."""
    if high - low < 12:
        ax.set_xticks(np.arange(low, high + 1))
    else:
        whole_numbers(ax.xaxis)


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers, whatever ticks the axis had before."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 2.5, 5, 10]))


def finish(
    ax: Any, x: str = "", y: str = "", *, legend: bool = True, columns: int = 1, size: float = 9
) -> Any:
    """Names of the axes, where they have none yet; no frame at the top and right, and a legend without one."""
    ax.set(xlabel=x or ax.get_xlabel(), ylabel=y or ax.get_ylabel())
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        ax.legend(frameon=False, fontsize=size, ncols=columns)
    return ax
