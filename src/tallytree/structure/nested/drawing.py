"""A nested family as inline SVG for notebooks, every group above its members, and as an indented tree of text."""

from __future__ import annotations

import numpy as np

from ...arrays import Float64, Ints
from ...display import LINKS_EDGE, LINKS_WIDTH, dot, figure, page, places, squares
from .family import NestedFamily

MOST_DRAWN = 200  # variables; larger families are shown as text
_HEIGHT = 130.0


def layout(
    family: NestedFamily, place: Float64, height: Float64, foot: float = 0.0
) -> tuple[Float64, list[tuple[Float64, Float64]]]:
    """Where sets of given heights stand, in the middle of what they hold, and the places and heights of that."""
    centre, held = np.zeros(family.n_sets), []
    for s in range(family.n_sets):  # smaller sets first: members are placed before what contains them
        loose = place[np.flatnonzero(family.variable_parent == s)]
        inner = np.flatnonzero(family.set_parent == s)
        below = np.concatenate([loose, centre[inner]])
        held.append((below, np.concatenate([np.full(len(loose), foot), height[inner]])))
        centre[s] = below.mean()
    return centre, held


def svg(family: NestedFamily, text: str) -> str:
    """The text of a tree, and a drawing below it where it is small enough to be seen."""
    small = 0 < family.n_variables <= MOST_DRAWN and family.n_sets
    return page(text, [_picture(family)] if small else [])


def _picture(family: NestedFamily) -> str:
    place = np.empty(family.n_variables)
    place[family.order] = places(family.n_variables)
    foot, top = _HEIGHT - LINKS_EDGE, max(np.log2(float(family.set_size.max())), 1.0)
    height = foot - (_HEIGHT - 3 * LINKS_EDGE) * np.log2(np.maximum(family.set_size, 1)) / top
    centre, held = layout(family, place, height, foot)
    lines, dots = "", ""
    for s, (below, feet) in enumerate(held):
        lines += "".join(f"M{x:.1f} {y:.1f}V{height[s]:.1f}" for x, y in zip(below.tolist(), feet.tolist()))
        lines += f"M{below.min():.1f} {height[s]:.1f}H{below.max():.1f}"
        dots += dot(centre[s], height[s], group_title(family, s))
    path = f'<path d="{lines}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'
    return figure(path + dots + squares(place, foot, 4), LINKS_WIDTH, int(_HEIGHT), "nested groups")


_LIMIT = 60  # lines; larger trees are cut with a note
_LISTED = 6  # variables or groups named on one line


def draw(family: NestedFamily) -> str:
    """Indented tree of the groups, at most `_LIMIT` lines: a few looks at the arrays for each, however many groups."""
    lines = [f"CountTree: {family.n_variables} variables, {family.n_groups} groups"]
    # An explicit stack: nests can be deeper than Python's recursion limit.
    pending: list[tuple[str, int, str, bool]] = []

    def schedule(owner: int, indent: str) -> None:
        children = np.flatnonzero(family.set_parent == owner)
        loose = bool((family.variable_parent == owner).any())
        entries = [("set", c) for c in children[:_LIMIT].tolist()]
        if loose:
            entries.append(("loose", owner))
        count = len(children) + loose
        for i, (kind, item) in reversed(list(enumerate(entries))):
            pending.append((kind, item, indent, i == count - 1))

    schedule(-1, "")
    while pending:
        kind, item, indent, last = pending.pop()
        if len(lines) >= _LIMIT:
            lines.append("   ...")
            break
        branch = "└─ " if last else "├─ "
        if kind == "loose":
            lines.append(f"{indent}{branch}{_variables(family, item)}")
            continue
        lines.append(f"{indent}{branch}{group_title(family, item)}")
        schedule(item, indent + ("   " if last else "│  "))
    return "\n".join(lines)


def group_title(family: NestedFamily, number: int) -> str:
    """The groups that a set stands for, and its size."""
    label = _few(np.flatnonzero(family.set_of_group == number))
    return f"group {label}: {int(family.set_size[number])} variables"


def _few(numbers: Ints) -> str:
    return ", ".join(map(str, numbers[:_LISTED].tolist())) + _more(numbers)


def _more(numbers: Ints) -> str:
    return f", ... ({len(numbers)} in all)" if len(numbers) > _LISTED else ""


def _variables(family: NestedFamily, owner: int) -> str:
    """The variables of a set, or the free ones, that are in no smaller set, with the groups of their own."""
    listed = np.flatnonzero(family.variable_parent == owner)
    groups = np.flatnonzero(np.isin(family.variable_of_group, listed[:_LISTED]))
    parts = []
    for v in listed[:_LISTED].tolist():
        alone = groups[family.variable_of_group[groups] == v]
        parts.append(f"{v} (group {_few(alone)})" if len(alone) else str(v))
    noun = "variable" if len(listed) == 1 else "variables"
    return f"{'free ' if owner < 0 else ''}{noun} {', '.join(parts)}{_more(listed)}"
