"""Bars, and distributions as bars."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ..arrays import Float64
from .page import BLUE, figure

MOST_BARS = 64  # beyond it variables are not shown one by one, and values of a sum are put together
_HEIGHT, _WIDTH = 64, 320


def bars(heights: Float64, labels: Sequence[object], title: str) -> str:
    """Bars with the first and the last label below them; text takes the colour of the page."""
    n = len(heights)
    top = max(float(np.max(heights, initial=0.0)), 1e-300)
    step = _WIDTH / max(n, 1)
    parts = []
    for i, (height, label) in enumerate(zip(heights.tolist(), labels)):
        tall = _HEIGHT * height / top
        parts.append(
            f'<rect x="{i * step + 0.1 * step:.1f}" y="{_HEIGHT - tall:.1f}" width="{0.8 * step:.1f}" '
            f'height="{tall:.1f}" fill="{BLUE}"><title>{escape(str(label))}: {height:.4g}</title></rect>'
        )
    ends = "".join(
        f'<text x="{x:.1f}" y="{_HEIGHT + 14}" text-anchor="{anchor}" font-size="11" '
        f'fill="currentColor">{escape(str(label))}</text>'
        for x, anchor, label in _ends(labels, step)
    )
    foot = f'<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}" stroke="currentColor" stroke-opacity="0.5"/>'
    highest = f" (highest {top:.3g})" if n else ""
    return figure("".join(parts) + foot + ends, _WIDTH, _HEIGHT + 18, title, highest)


def _ends(labels: Sequence[object], step: float) -> list[tuple[float, str, object]]:
    """Place, side and text of the labels below: short ones under their bars, long ones inside the picture."""
    if len(labels) < 2:
        return [(0.5 * step, "middle", label) for label in labels]
    if step >= 11 * max(len(str(labels[0])), len(str(labels[-1]))):
        return [(0.5 * step, "middle", labels[0]), (_WIDTH - 0.5 * step, "middle", labels[-1])]
    return [(0.0, "start", labels[0]), (float(_WIDTH), "end", labels[-1])]


def of_variables(probabilities: Any, title: str) -> list[str]:
    """Bars of the probabilities (D,) of a few variables; nothing of none and of many."""
    values = np.asarray(probabilities, np.float64)
    return [bars(values, range(len(values)), title)] if 0 < len(values) <= MOST_BARS else []


def distribution(mass: Float64, values: Sequence[object], title: str) -> str:
    """Bars of a distribution where it can be seen; many values are put together, as many to every bar."""
    seen = np.flatnonzero(mass > 1e-3 * np.max(mass, initial=0.0))
    if not len(seen):
        return ""
    first, stop = int(seen[0]), int(seen[-1]) + 1
    return gathered(mass[first:stop], values[first:stop], title, "values")


def gathered(heights: Float64, labels: Sequence[object], title: str, what: str) -> str:
    """Bars that add: those beyond the most that can be shown are put together, as many to every bar."""
    width = -(-len(heights) // MOST_BARS)
    if width <= 1:
        return bars(heights, labels, title)
    starts = np.arange(0, len(heights), width)
    ends = np.minimum(starts + width, len(heights)) - 1
    together = [f"{labels[i]}..{labels[j]}" for i, j in zip(starts.tolist(), ends.tolist())]
    return bars(np.add.reduceat(heights, starts), together, f"{title}, {width} {what} to a bar")
