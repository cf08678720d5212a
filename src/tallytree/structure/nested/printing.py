"""A nested family as an indented tree."""

from __future__ import annotations

import numpy as np

from ...arrays import Ints
from .family import NestedFamily

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
