"""A nested family as an indented tree."""

from __future__ import annotations

from .family import NestedFamily

_LIMIT = 60  # lines; larger trees are cut with a note
_LISTED = 6  # variables named on one line


def draw(family: NestedFamily) -> str:
    """Indented tree of the groups, at most `_LIMIT` lines."""
    lines = [f"CountTree: {family.n_variables} variables, {family.n_groups} groups"]
    names: dict[int, list[str]] = {}
    for g, s in enumerate(family.set_of_group.tolist()):
        if s >= 0:
            names.setdefault(s, []).append(str(g))
    alone: dict[int, list[str]] = {}
    for g, v in enumerate(family.variable_of_group.tolist()):
        if v >= 0:
            alone.setdefault(v, []).append(str(g))
    children: dict[int, list[int]] = {}
    for s, p in enumerate(family.set_parent.tolist()):
        children.setdefault(p, []).append(s)
    loose: dict[int, list[int]] = {}
    for v in family.order.tolist():
        loose.setdefault(int(family.variable_parent[v]), []).append(v)

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
        label = ", ".join(names[item])
        lines.append(f"{indent}{branch}group {label}: {int(family.set_size[item])} variables")
        schedule(item, indent + ("   " if last else "│  "))
    return "\n".join(lines)


def _variables(variables: list[int], alone: dict[int, list[str]], *, free: bool) -> str:
    listed = sorted(variables)
    parts = [f"{v} (group {', '.join(alone[v])})" if v in alone else str(v) for v in listed[:_LISTED]]
    more = f", ... ({len(listed)} in all)" if len(listed) > _LISTED else ""
    noun = "variable" if len(listed) == 1 else "variables"
    return f"{'free ' if free else ''}{noun} {', '.join(parts)}{more}"
