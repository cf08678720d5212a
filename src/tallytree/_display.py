"""Small pictures for notebooks: bars as inline SVG in colours that show on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from .arrays import Float64
from .errors import TallyTreeError

MOST_BARS = 64  # beyond it variables are not shown one by one, and values of a sum are put together
MOST_VARIABLES = 4096  # up to which a notebook computes answers to show them
_BLUE, _HEIGHT, _WIDTH = "#5b8fd6", 64, 320


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
            f'height="{tall:.1f}" fill="{_BLUE}"><title>{escape(str(label))}: {height:.4g}</title></rect>'
        )
    ends = "".join(
        f'<text x="{x:.1f}" y="{_HEIGHT + 14}" text-anchor="{anchor}" font-size="11" '
        f'fill="currentColor">{escape(str(label))}</text>'
        for x, anchor, label in _ends(labels, step)
    )
    return (
        f'<figure style="display:inline-block;margin:0 1.5em 0 0">'
        f'<figcaption style="font-size:smaller;margin-bottom:3px">'
        f'{escape(title)} (highest {top:.3g})</figcaption><svg width="{_WIDTH}" height="{_HEIGHT + 18}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}" '
        f'stroke="currentColor" stroke-opacity="0.5"/>{ends}</svg></figure>'
    )


def _ends(labels: Sequence[object], step: float) -> list[tuple[float, str, object]]:
    """Place, side and text of the labels below: short ones under their bars, long ones inside the picture."""
    if len(labels) < 2:
        return [(0.5 * step, "middle", label) for label in labels]
    if step >= 11 * max(len(str(labels[0])), len(str(labels[-1]))):
        return [(0.5 * step, "middle", labels[0]), (_WIDTH - 0.5 * step, "middle", labels[-1])]
    return [(0.0, "start", labels[0]), (float(_WIDTH), "end", labels[-1])]


def page(text: str, pictures: Sequence[str] = ()) -> str:
    """The text of an object, and pictures below it."""
    return f'<div><code>{escape(text)}</code><div style="margin-top:0.5em">{"".join(pictures)}</div></div>'


def model_page(model: Any) -> str:
    """A count model: small ones with their answers, the others as text."""
    if model.batch_shape or not 0 < model.n_variables <= MOST_VARIABLES:
        return page(repr(model))
    try:
        marginals = np.asarray(model.marginals, np.float64)
        counts = np.exp(np.asarray(model.count_log_probs(), np.float64))
    except TallyTreeError as error:
        return page(f"{model!r}: {error}")
    pictures = [distribution(counts, range(len(counts)), "P(count)")]
    if model.n_variables <= MOST_BARS:
        pictures.insert(0, bars(marginals, range(model.n_variables), "P(variable is on)"))
    return page(repr(model), pictures)


def chain_page(model: Any) -> str:
    """A chain of labels: its counts, and of two labels the probability of the second at every position."""
    if model.batch_shape or model.n_positions == 0:
        return page(repr(model))
    try:
        counts = np.exp(np.asarray(model.count_log_probs(), np.float64))
        pictures = []
        if model.n_labels == 2 and model.n_positions <= MOST_BARS:
            on = np.asarray(model.marginals, np.float64)[:, 1]
            pictures.append(bars(on, range(model.n_positions), "P(label 1)"))
    except TallyTreeError as error:
        return page(f"{model!r}: {error}")
    return page(repr(model), [*pictures, distribution(counts, range(len(counts)), "P(count)")])


def distribution(mass: Float64, values: Sequence[int], title: str) -> str:
    """Bars of a distribution where it can be seen; many values are put together, as many to every bar."""
    seen = np.flatnonzero(mass > 1e-3 * np.max(mass, initial=0.0))
    first, stop = int(seen[0]), int(seen[-1]) + 1
    width = -(-(stop - first) // MOST_BARS)
    if width == 1:
        return bars(mass[first:stop], values[first:stop], title)
    starts = np.arange(first, stop, width)
    labels = [f"{values[i]}..{values[min(i + width, stop) - 1]}" for i in starts.tolist()]
    return bars(np.add.reduceat(mass[:stop], starts), labels, f"{title}, {width} values to a bar")
