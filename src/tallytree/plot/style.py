"""Colours, axes and finishing touches that all pictures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import describe
from ..errors import ParameterError, TallyTreeError

BLUE, ORANGE, GREEN, RED, GREY = "#3b6fb6", "#d9822b", "#4f9d5d", "#b5403a", "#b8b8b8"
PALETTE = (BLUE, ORANGE, GREEN, RED, "#7d5ba6", "#6b6b6b")
MOST_BARS = 60  # beyond it, lines and dots
MOST_NAMES = 30


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
