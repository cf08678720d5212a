"""`Group`: a set of variables with a potential; and the reading of what users pass as `groups`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks, display
from ..errors import ParameterError, TallyTreeError
from ..potentials import Potential, as_potential
from ..structure.nested.count_tree import CountTree


@dataclass(frozen=True)
class Group:
    """A set of variables with a potential on how many of them are on.

    Parameters
    ----------
    members : list of int, range, slice, boolean mask or None
        The variables; None means all of them.
    potential : Potential, array, callable or None
        A potential, its log-table ``log f(0), ..., log f(n)`` (with leading batch axes if it differs between models),
        or a function from counts to log-values. None expresses no preference, but the model can be asked for the
        count.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.CountModel
    tallytree.FactorGraph
    tallytree.Potential

    Examples
    --------
    >>> tt.Group(range(3), tt.at_least(1))
    Group(members=range(0, 3), potential=at_least(1))
    """

    members: Any
    potential: Any = None

    def _repr_html_(self) -> str:
        try:
            potential = as_potential(self.potential)
        except TallyTreeError:  # a factor of a FactorGraph, or one table per model
            return display.page(repr(self))
        return display.group_page(self, potential)


def read_groups(groups: Any, n: int) -> tuple[CountTree, Sequence[Any]]:
    """Tree and potentials from what the user passed as `groups`."""
    if groups is None:
        return CountTree.from_groups([], n), []
    if isinstance(groups, Group):
        groups = [groups]
    if isinstance(groups, (list, tuple)) and all(isinstance(g, Group) for g in groups):
        if len(groups) == 1 and groups[0].members is None:
            return CountTree.flat(n), [groups[0].potential]
        return CountTree.from_groups([g.members for g in groups], n), [g.potential for g in groups]
    if isinstance(groups, (list, tuple)):
        _refuse_loose_entries(groups, n)
    if isinstance(groups, (CountTree, Mapping, set, frozenset)):
        raise ParameterError(
            "`groups` must be a potential or a list of Group, such as [Group([0, 1], exactly(1))]; "
            f"{checks.describe(groups)} arrived. A CountTree goes to `CountModel.from_tree(tree, logits, tables)`."
        )
    return CountTree.flat(n), [groups]


def _refuse_loose_entries(groups: Sequence[Any], n: int) -> None:
    """Refuse lists that hold anything but groups or the numbers of one log-table."""
    if groups and isinstance(groups[0], (int, float, np.number)):
        return  # a table, perhaps a long one; its numbers are checked where it is used
    mixed = any(isinstance(entry, Group) for entry in groups)
    for i, entry in enumerate(groups):
        row = isinstance(entry, (list, tuple)) and len(entry) == n + 1
        row = row and not any(isinstance(part, Potential) for part in entry)
        if isinstance(entry, Group) or (not mixed and (row or hasattr(entry, "dtype"))):
            continue
        said = checks.describe(entry) if isinstance(entry, Potential) else "potential"
        raise ParameterError(
            f"Every entry of a list must be a Group; entry {i} of `groups` is {checks.describe(entry)}. Write "
            f"Group(members, {said}), with members=None for all variables; rows of one log-table for a batch of models "
            f"need {n + 1} numbers each, log f(0), ..., log f({n})."
        )
