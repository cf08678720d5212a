"""Why a model is impossible: groups that cannot be satisfied together, as few as it takes.

A set of groups is possible if some configuration has no zero in any of their tables, which max-plus inference with
zeros and -inf decides exactly. From the groups in their order, the shortest impossible prefix ends in a group that
every conflict within it needs; with that group kept, a shorter prefix does, and so on. Every group found takes
O(log n_groups) inferences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...structure.nested.count_tree import CountTree
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
        if self._possible(candidates, fixed):
            return None
        while self._possible(found, fixed):
            # The first `high` of them are impossible together with those found.
            low, high = 0, len(candidates)
            while high - low > 1:
                middle = (low + high) // 2
                if self._possible(found + candidates[:middle], fixed):
                    low = middle
                else:
                    high = middle
            found.append(candidates[high - 1])
            candidates = candidates[: high - 1]
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
        return bool(maximize.max_value(self._tree, nu, tables)[0] > -math.inf)
