"""Variables in a row, groups above them and edges below them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ..arrays import Float64, Ints
from .bars import MOST_BARS
from .page import BLUE, ORANGE, figure

MOST_LINES = 1024
_WIDTH, _ABOVE, _BELOW, _EDGE = 480, 70.0, 46.0, 8.0


def links(n: int, groups: Sequence[tuple[Ints, str]], pairs: Ints, notes: Sequence[str], title: str) -> str:
    """A picture of members and pairs; nothing where it would be too dense to be read."""
    lines = sum(len(members) for members, _ in groups) + len(pairs)
    if not 0 < n <= MOST_BARS or len(groups) > MOST_BARS or lines > MOST_LINES or lines == 0:
        return ""
    place = _EDGE + (np.arange(n) + 0.5) * (_WIDTH - 2 * _EDGE) / n
    foot = _ABOVE if groups else _EDGE
    inside = _memberships(groups, place, foot) + _arcs(pairs, notes, place, foot)
    inside += "".join(
        f'<rect x="{x - 3:.1f}" y="{foot - 3:.1f}" width="6" height="6" fill="{ORANGE}">'
        f"<title>variable {v}</title></rect>"
        for v, x in enumerate(place.tolist())
    )
    return figure(inside, _WIDTH, int(foot + (_BELOW if len(pairs) else _EDGE)), title)


def _memberships(groups: Sequence[tuple[Ints, str]], place: Float64, foot: float) -> str:
    """Groups as dots in the order of their middles, evenly spaced, with a line to every member."""
    middle = [float(place[members].mean()) if len(members) else 0.0 for members, _ in groups]
    order = np.argsort(middle, kind="stable").tolist()
    lines, dots = [], []
    for slot, g in enumerate(order):
        members, note = groups[g]
        x = _EDGE + (slot + 0.5) * (_WIDTH - 2 * _EDGE) / len(groups)
        lines += [f"M{x:.1f} {_EDGE:g}L{end:.1f} {foot:g}" for end in place[members].tolist()]
        title = f"group {g}: {len(members)} variable{'s' * (len(members) != 1)}, {note}"
        dots.append(
            f'<circle cx="{x:.1f}" cy="{_EDGE:g}" r="4" fill="{BLUE}"><title>{escape(title)}</title></circle>'
        )
    path = f'<path d="{"".join(lines)}" fill="none" stroke="currentColor" stroke-opacity="0.35"/>'
    return (path if lines else "") + "".join(dots)


def _arcs(pairs: Ints, notes: Sequence[str], place: Float64, foot: float) -> str:
    parts = []
    for (i, j), note in zip(pairs.tolist(), notes):
        a, b = sorted((float(place[i]), float(place[j])))
        deep = foot + 10.0 + 2.0 * (_BELOW - 14.0) * (b - a) / _WIDTH
        parts.append(
            f'<path d="M{a:.1f} {foot:g}Q{(a + b) / 2:.1f} {deep:.1f} {b:.1f} {foot:g}" fill="none" '
            f'stroke="currentColor" stroke-opacity="0.6"><title>{escape(f"edge {i} - {j}{note}")}</title></path>'
        )
    return "".join(parts)


def log_odds_ratios(tables: Any) -> list[str]:
    """What tables (E, 2, 2) say in one number each, as text; nothing where an entry is infinite."""
    values = np.asarray(tables, np.float64)
    if values.ndim != 3:
        return [""] * int(values.shape[-3])
    finite = np.asarray(np.isfinite(values).all(axis=(1, 2)))
    plain = np.where(finite[:, None, None], values, 0.0)
    with np.errstate(over="ignore"):
        ratio = (plain[:, 1, 1] - plain[:, 0, 1]) + (plain[:, 0, 0] - plain[:, 1, 0])
    known = finite & np.isfinite(ratio)
    return [f": log-odds ratio {r:.4g}" if ok else "" for ok, r in zip(known.tolist(), ratio.tolist())]
