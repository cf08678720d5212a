"""A nested family as an indented tree."""

from __future__ import annotations

from ...arrays import Ints
from .family import NestedFamily

_LIMIT = 60  # lines; larger trees are cut with a note
_LISTED = 6  # variables named on one line


def draw(family: NestedFamily) -> str:
    """Indented tree of the groups, at most `_LIMIT` lines."""
    lines = [f"CountTree: {family.n_variables} variables, {family.n_groups} groups"]
    names, alone = numbers_by(family.set_of_group), numbers_by(family.variable_of_group)
    children, loose = numbers_by(family.set_parent), numbers_by(family.variable_parent)

    # An explicit stack: nests can be deeper than Python's recursion limit.
    pending: list[tuple[str, int, str, bool]] = []

    def schedule(owner: int, indent: str) -> None:
        entries: list[tuple[str, int]] = [("set", c) for c in children.get(owner, ())]
        if loose.get(owner):
            entries.append(("loose", owner))
        for i, (kind, item) in reversed(list(enumerate(entries))):
            pending.append((kind, item, indent, i == len(entries) - 1))

    schedule(-1, "")
    while pending:
        kind, item, indent, last = pending.pop()
        if len(lines) >= _LIMIT:
            lines.append("   ...")
            break
        branch = "└─ " if last else "├─ "
        if kind == "loose":
            lines.append(f"{indent}{branch}{_variables(loose[item], alone, free=item < 0)}")
            continue
        label = ", ".join(map(str, names[item]))
        lines.append(f"{indent}{branch}group {label}: {int(family.set_size[item])} variables")
        schedule(item, indent + ("   " if last else "│  "))
    return "\n".join(lines)


def numbers_by(owner: Ints) -> dict[int, list[int]]:
    """For every owner the numbers, in rising order, that it owns."""
    found: dict[int, list[int]] = {}
    for number, of in enumerate(owner.tolist()):
        found.setdefault(of, []).append(number)
    return found


def _variables(listed: list[int], alone: dict[int, list[int]], *, free: bool) -> str:
    parts = [
        f"{v} (group {', '.join(map(str, alone[v]))})" if v in alone else str(v) for v in listed[:_LISTED]
    ]
    more = f", ... ({len(listed)} in all)" if len(listed) > _LISTED else ""
    noun = "variable" if len(listed) == 1 else "variables"
    return f"{'free ' if free else ''}{noun} {', '.join(parts)}{more}"
