"""`Group`: a set of variables with a potential; and the reading of what users pass as `groups`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ParameterError
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
        a function from counts to log-values, or None: no preference, but the count can be asked for.

    Examples
    --------
    >>> tt.Group(range(3), tt.at_least(1))
    Group(members=range(0, 3), potential=at_least(1))
    """

    members: Any
    potential: Any = None


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
    if isinstance(groups, (list, tuple)) and any(isinstance(g, Group) for g in groups):
        raise ParameterError(
            "`groups` mixes Group objects with other values. Wrap every entry: Group(members, potential)."
        )
    return CountTree.flat(n), [groups]
