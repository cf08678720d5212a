"""A nested family as inline SVG for notebooks: variables below, every group above its members."""

from __future__ import annotations

import numpy as np

from ..._display.page import BLUE, ORANGE, figure, page
from .family import NestedFamily
from .printing import group_title

MOST_DRAWN = 200  # variables; larger families are shown as text
_WIDTH, _HEIGHT, _EDGE = 480.0, 130.0, 8.0


def svg(family: NestedFamily, text: str) -> str:
    """The text of a tree, and a drawing below it where it is small enough to be seen."""
    small = 0 < family.n_variables <= MOST_DRAWN and family.n_sets
    return page(text, [_picture(family)] if small else [])


def _picture(family: NestedFamily) -> str:
    n = family.n_variables
    place = np.empty(n)
    place[family.order] = _EDGE + (np.arange(n) + 0.5) * (_WIDTH - 2 * _EDGE) / n
    top = max(np.log2(float(family.set_size.max())), 1.0)
    height = _HEIGHT - _EDGE - (_HEIGHT - 3 * _EDGE) * np.log2(np.maximum(family.set_size, 1)) / top
    centre, lines, dots = np.zeros(family.n_sets), [], []
    foot = _HEIGHT - _EDGE
    for s in range(family.n_sets):  # smaller sets first: members are placed before what contains them
        loose = place[np.flatnonzero(family.variable_parent == s)]
        inner = np.flatnonzero(family.set_parent == s)
        below = np.concatenate([loose, centre[inner]])
        feet = np.concatenate([np.full(len(loose), foot), height[inner]])
        centre[s] = below.mean()
        lines += [f"M{x:.1f} {y:.1f}V{height[s]:.1f}" for x, y in zip(below.tolist(), feet.tolist())]
        lines.append(f"M{below.min():.1f} {height[s]:.1f}H{below.max():.1f}")
    for s in range(family.n_sets):
        title = group_title(family, s)
        dots.append(
            f'<circle cx="{centre[s]:.1f}" cy="{height[s]:.1f}" r="4" fill="{BLUE}"><title>{title}</title></circle>'
        )
    leaves = "".join(
        f'<rect x="{x - 2:.1f}" y="{foot - 2:.1f}" width="4" height="4" fill="{ORANGE}">'
        f"<title>variable {v}</title></rect>"
        for v, x in enumerate(place.tolist())
    )
    path = f'<path d="{"".join(lines)}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'
    return figure(path + "".join(dots) + leaves, int(_WIDTH), int(_HEIGHT), "nested groups")
