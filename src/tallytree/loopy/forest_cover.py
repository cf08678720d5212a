"""Sets of factors without cycles: components of variables, joined by one factor after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..arrays import Ints


def cover_by_forests(members: list[Any], n_variables: int) -> list[list[int]]:
    """Sets of factors without cycles that together hold them all; each takes what others left out first."""
    left = list(range(len(members)))
    found: list[list[int]] = []
    while left or not found:
        late = [a for a in range(len(members)) if a not in set(left)]
        parent = np.arange(n_variables)
        taken = [a for a in [*left, *late] if _join(parent, members[a])]
        left = [a for a in left if a not in set(taken)]
        found.append(sorted(taken))
    return found


def _join(parent: Ints, members: Iterable[int]) -> bool:
    """Join the components of the members unless two of them are in one already."""
    roots = [find_root(parent, int(v)) for v in members]
    if len(set(roots)) < len(roots):
        return False
    parent[roots] = roots[0]
    return True


def find_root(parent: Ints, v: int) -> int:
    """The representative of a variable's component."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = int(parent[v])
    return v
