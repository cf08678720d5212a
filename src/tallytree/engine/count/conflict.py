"""Why a model is impossible: groups that cannot be satisfied together, as few as it takes.

A set of groups is possible if some configuration has no zero in any of their tables: intervals of counts decide that
where no table has holes, and max-plus inference with zeros and -inf elsewhere. From the groups in their order, the
shortest impossible prefix ends in a group that every conflict within it needs; with that group kept, a shorter prefix
does, and so on. Every group found takes O(log n_groups) such questions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays import Float64
from ...structure.nested.count_tree import CountTree
from ...structure.nested.family import NestedFamily
from .. import masks, maximize

_NAMED = 8  # groups that a message lists


def explain(tree: CountTree, params: Any, index: int) -> tuple[str, tuple[int, ...]]:
    """A clause about model `index` of the batch, and the numbers of the groups that it names."""
    model = _Supports(tree, params, index)
    groups = model.conflict(range(tree.family.n_groups), fixed=True)
    if groups is None:
        return "no configuration satisfies all potentials together", ()
    needed = model.conflict(groups, fixed=False) is None
    fixed = " with the variables that infinite logits or evidence fix" if needed else ""
    fixed += masks.remark(params.logits, *params.tables) * needed
    named = tuple(groups)
    if tree.family.n_groups <= 1:
        return f"no count satisfies the potential{fixed}", named
    if len(groups) == 1:
        return f"group {groups[0]} cannot be satisfied{' together' if needed else ''}{fixed}", named
    names = [f"{g}{model.single_value(g)}" for g in groups]
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    return f"groups {', '.join(names[:-1])} and {names[-1]} cannot be satisfied together{fixed}", named


class _Supports:
    """Which configurations a model allows, for any selection of its groups."""

    def __init__(self, tree: CountTree, params: Any, index: int) -> None:
        near = params.unmasked
        batch = near.batch_shape
        logits = np.broadcast_to(np.asarray(near.logits, np.float64), (*batch, tree.n_variables))
        self._tree = tree
        self._logits = logits.reshape(math.prod(batch), tree.n_variables)[index]
        self._tables = [near.rows(g)[index % len(near.rows(g))] for g in range(tree.family.n_groups)]

    def single_value(self, group: int) -> str:
        """What a group of one variable that leaves it one value says, as evidence does; nothing for all others."""
        variable = int(self._tree.family.variable_of_group[group])
        possible = np.flatnonzero(self._tables[group] > -math.inf)
        return f" (variable {variable} = {possible[0]})" if variable >= 0 and len(possible) == 1 else ""

    def conflict(self, groups: Sequence[int], fixed: bool) -> list[int] | None:
        """A smallest selection of these groups that is impossible, or None; `fixed`: infinite logits count too."""
        found: list[int] = []
        candidates = list(groups)

        def contradict(number: int) -> bool:
            return not self._possible(found + candidates[:number], fixed)

        if self._possible(candidates, fixed):
            return None
        while self._possible(found, fixed):
            # The first `number` of them are impossible together with those found.
            number = 1 + bisect_left(range(1, len(candidates)), True, key=contradict)
            found.append(candidates[number - 1])
            candidates = candidates[: number - 1]
        return sorted(found)

    def _possible(self, groups: Sequence[int], fixed: bool) -> bool:
        family = self._tree.family
        nu = np.where(np.isinf(self._logits) & fixed, self._logits, 0.0)[None]
        tables = np.zeros((1, int(family.set_offset[-1])))
        for g in groups:
            support = np.where(self._tables[g] > -math.inf, 0.0, -math.inf)
            s = int(family.set_of_group[g])
            if s >= 0:
                tables[0, family.set_offset[s] : family.set_offset[s + 1]] += support
                continue
            variable = int(family.variable_of_group[g])
            off, on = support[0] > -math.inf, support[1] > -math.inf
            off, on = off and nu[0, variable] < math.inf, on and nu[0, variable] > -math.inf
            if not (off or on):
                return False
            nu[0, variable] = 0.0 if off and on else math.inf if on else -math.inf
        known = _by_intervals(family, nu[0], tables[0])
        return bool(maximize.max_value(self._tree, nu, tables)[0] > -math.inf) if known is None else known


def _by_intervals(family: NestedFamily, nu: Float64, table: Float64) -> bool | None:
    """Whether a model is possible, or None: the counts of a set without holes in its supports are an interval."""
    order, start, stop = family.order, family.start, family.stop
    bounds = (np.append(0, np.cumsum(mask[order])) for mask in (nu == math.inf, nu > -math.inf))
    least, most = ((upto[stop] - upto[start]).tolist() for upto in bounds)
    low, high = list(least), list(most)
    for s in np.argsort(stop - start, kind="stable").tolist():
        possible = np.flatnonzero(table[family.set_offset[s] : family.set_offset[s + 1]] > -math.inf)
        if len(possible) and possible[-1] - possible[0] >= len(possible):
            return None
        first = max(low[s], int(possible[0])) if len(possible) else 1
        last = min(high[s], int(possible[-1])) if len(possible) else 0
        if first > last:
            return False
        parent = int(family.set_parent[s])
        if parent >= 0:
            low[parent] += first - least[s]
            high[parent] += last - most[s]
    return True
