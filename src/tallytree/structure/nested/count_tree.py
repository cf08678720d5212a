"""The public face of structure: which groups there are, built in several ways, printable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...arrays import Ints
from ...checks.groups import all_members, group_list, members
from ...errors import StructureError
from ...memo import Caching, cached, lru
from .family import (
    FlatFamily,
    NestedFamily,
    family_from_members,
    family_from_parents,
    family_of_equal_parts,
    parents_of_linkage,
)
from .tree import Components, TreeProgram, binarise, split


class CountTree(Caching):
    """Nested groups of binary variables: the structure of a model, without numbers.

    Make one with :meth:`from_groups`, :meth:`from_linkage`, :meth:`from_parents`, :meth:`balanced` or :meth:`flat`, and
    give it log-odds and potentials with :meth:`CountModel.from_tree`. A tree is analysed once and can be shared by any
    number of models.

    Parameters
    ----------
    family : nested family
        For internal use: the class methods named above make it.

    Raises
    ------
    StructureError
        If groups are not nested; the message names those that clash.

    See Also
    --------
    tallytree.CountModel
    tallytree.Group
    tallytree.plot.group_tree

    Notes
    -----
    Cost: near-linear in the total size of the groups; 10^6 variables in 10^5 nested groups take seconds.

    Examples
    --------
    >>> tree = tt.CountTree.from_groups([[0, 1], range(4), None], n_variables=6)
    >>> print(tree)
    CountTree: 6 variables, 3 groups
    └─ group 2: 6 variables
       ├─ group 1: 4 variables
       │  ├─ group 0: 2 variables
       │  │  └─ variables 0, 1
       │  └─ variables 2, 3
       └─ variables 4, 5
    """

    def __init__(self, family: NestedFamily) -> None:
        self._family = family

    # -- ways to build one ------------------------------------------------------------------------------------

    @classmethod
    def from_groups(cls, groups: Iterable[Any], n_variables: int) -> CountTree:
        """Tree of the given groups.

        Parameters
        ----------
        groups : iterable
            Each group is a list of indices, a range, a slice, a boolean mask, or None for all variables. Any two
            must be disjoint or nested. A group that occurs twice is kept twice, and its two potentials multiply.
        n_variables : int
            Number of variables; there may be some that are in no group.

        Returns
        -------
        CountTree
            The tree; ``groups`` keeps the order given.

        Raises
        ------
        StructureError
            For groups that overlap, are empty, repeat a variable or name one that does not exist.

        See Also
        --------
        from_parents, from_linkage, with_groups

        Examples
        --------
        >>> tt.CountTree.from_groups([[0, 1], range(4), None], 5)
        CountTree(n_variables=5, n_groups=3)
        """
        n = checks.integer("n_variables", n_variables, 0)
        members, offsets = all_members(groups, n)
        return cls(family_from_members(n, members, offsets))

    @classmethod
    def flat(cls, n_variables: int) -> CountTree:
        """One group of all variables: the standard cardinality model.

        Parameters
        ----------
        n_variables : int
            Number of variables.

        Returns
        -------
        CountTree
            The tree.

        Raises
        ------
        ParameterError
            If ``n_variables`` is not a count.

        See Also
        --------
        balanced, from_groups

        Examples
        --------
        >>> tt.CountTree.flat(3)
        CountTree(n_variables=3, n_groups=1)
        """
        return flat(checks.integer("n_variables", n_variables, 0))

    @classmethod
    def balanced(cls, n_variables: int, arity: int = 2, min_size: int = 2) -> CountTree:
        """All variables, split into ``arity`` contiguous parts of nearly equal size, and so on.

        Groups are listed level by level, the group of all variables first; parts with fewer than ``min_size``
        variables are not groups.

        Parameters
        ----------
        n_variables : int
            Number of variables.
        arity : int
            Number of parts into which a group is split, at least 2.
        min_size : int
            Smallest size of a group.

        Returns
        -------
        CountTree
            The tree.

        Raises
        ------
        ParameterError
            If an argument is not a whole number, or ``arity`` is below 2.

        See Also
        --------
        flat, from_groups

        Examples
        --------
        >>> [len(g) for g in tt.CountTree.balanced(6).groups]
        [6, 3, 3, 2, 2]
        """
        n = checks.integer("n_variables", n_variables, 0)
        arity = checks.integer("arity", arity, 2)
        min_size = checks.integer("min_size", min_size, 1)
        return cls(family_of_equal_parts(n, arity, min_size))

    @classmethod
    def from_linkage(cls, linkage: ArrayLike) -> CountTree:
        """One group per merge of a SciPy linkage matrix, in its order.

        Parameters
        ----------
        linkage : (D - 1, 4) array
            As returned by :func:`scipy.cluster.hierarchy.linkage`: row i merges two clusters into cluster D + i.

        Returns
        -------
        CountTree
            The tree.

        Raises
        ------
        StructureError
            If the matrix has another shape, or a row merges what does not exist or was merged before.

        See Also
        --------
        from_parents, from_groups

        Examples
        --------
        >>> tree = tt.CountTree.from_linkage([[0, 1, 0.1, 2], [2, 3, 0.5, 3]])
        >>> [g.tolist() for g in tree.groups]
        [[0, 1], [0, 1, 2]]
        """
        parents, n = parents_of_linkage(linkage)
        return cls.from_parents(parents, n)

    @classmethod
    def from_parents(cls, parents: ArrayLike, n_variables: int) -> CountTree:
        """Tree from an array of parents.

        Parameters
        ----------
        parents : (n_nodes,) int array
            Nodes 0, ..., ``n_variables - 1`` are the variables, every later node is a group. ``parents[i]`` is the
            group that node i belongs to directly, -1 at the top. Group g of the tree is node ``n_variables + g``.
        n_variables : int
            Number of variables.

        Returns
        -------
        CountTree
            The tree.

        Raises
        ------
        StructureError
            If ``parents`` is not an array of nodes, has a cycle, or a group without variables.

        See Also
        --------
        from_linkage, from_groups

        Examples
        --------
        >>> tree = tt.CountTree.from_parents([3, 3, 4, 4, -1], n_variables=3)
        >>> [g.tolist() for g in tree.groups]
        [[0, 1], [0, 1, 2]]
        """
        n = checks.integer("n_variables", n_variables, 0)
        return cls(family_from_parents(parents, n))

    # -- what it says ------------------------------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return self._family.n_variables

    @property
    def groups(self) -> GroupList:
        """The groups in the order given, each as an increasing array of variables.

        See Also
        --------
        group_size

        Examples
        --------
        >>> [group.tolist() for group in tt.CountTree.balanced(4).groups]
        [[0, 1, 2, 3], [0, 1], [2, 3]]
        """
        return GroupList(self._family)

    # Every call of a small model asks for it: without a frame of its own.
    family: NestedFamily = property(attrgetter("_family"), doc="The analysed nested family.")  # type: ignore[assignment]

    @cached
    def singleton_groups(self) -> Ints:
        """Numbers of the groups that hold a single variable.

        See Also
        --------
        with_singletons, groups

        Examples
        --------
        >>> tt.CountTree.from_groups([[0, 1], [1]], 2).singleton_groups
        array([1])
        """
        return np.flatnonzero(self._family.variable_of_group >= 0)

    @cached
    def program(self) -> TreeProgram:
        """The plan that inference follows; for internal use."""
        return binarise(self._family)

    @cached
    def components(self) -> Components:
        """Parts of the structure that have no group in common; for internal use."""
        return split(self._family, lambda: self.program)

    def group_size(self, group: int) -> int:
        """Number of variables in a group.

        Parameters
        ----------
        group : int
            Number of the group.

        Returns
        -------
        int
            Its size.

        Raises
        ------
        ParameterError
            If there is no group of this number.

        See Also
        --------
        groups

        Examples
        --------
        >>> tt.CountTree.balanced(6).group_size(1)
        3
        """
        return self._family.group_size(checks.group_number(group, self._family.n_groups))

    def with_singletons(self, variables: Ints) -> CountTree:
        """The same tree with groups of one variable each at the end of the list; quicker than :meth:`with_groups`.

        Parameters
        ----------
        variables : (m,) int array
            The variables.

        Returns
        -------
        CountTree
            A new tree; this one stays as it is.

        Raises
        ------
        StructureError
            If a variable does not exist.

        See Also
        --------
        with_groups, singleton_groups

        Examples
        --------
        >>> [g.tolist() for g in tt.CountTree.flat(3).with_singletons(np.array([2])).groups]
        [[0, 1, 2], [2]]
        """
        known = members(variables, self.n_variables, "`variables`")
        checks.array(
            "variables", known, ("m",), checks.integers(0, self.n_variables - 1), error=StructureError
        )
        tree = CountTree(self._family.with_singletons(known))
        for name in ("program", "components"):
            if name in self.__dict__:
                tree.__dict__[name] = self.__dict__[name]
        return tree

    def with_groups(self, extra: Iterable[Any]) -> CountTree:
        """The same tree with more groups at the end of the list.

        Parameters
        ----------
        extra : iterable of iterables of int
            Members of the groups to add.

        Returns
        -------
        CountTree
            A new tree; this one stays as it is.

        Raises
        ------
        StructureError
            If the groups together are not nested, or an added one is empty or names a variable that does not exist.

        See Also
        --------
        with_singletons, from_groups

        Examples
        --------
        >>> [g.tolist() for g in tt.CountTree.flat(4).with_groups([[0, 1]]).groups]
        [[0, 1, 2, 3], [0, 1]]
        """
        return CountTree.from_groups([*self.groups, *group_list(extra)], self.n_variables)

    def __repr__(self) -> str:
        return f"CountTree(n_variables={self.n_variables}, n_groups={self._family.n_groups})"

    def __str__(self) -> str:
        from .drawing import draw  # drawing is needed only here

        return draw(self._family)

    def _repr_html_(self) -> str:
        from .drawing import svg  # drawing is needed only here

        return svg(self._family, repr(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CountTree):
            return NotImplemented
        if self is other:
            return True
        a, b = self._family, other._family
        if a.n_variables != b.n_variables or not np.array_equal(a.group_offset, b.group_offset):
            return False  # groups of other sizes
        if a.same_arrays(b):
            return True
        return all(np.array_equal(x, y) for x, y in zip(self.groups, other.groups))

    def __hash__(self) -> int:
        f = self._family
        return hash((f.n_variables, f.n_groups, f.set_size.tobytes()))


class GroupList(Sequence[Ints]):
    """The groups of a tree; member lists are made one at a time, so a deep tree costs no memory."""

    def __init__(self, family: NestedFamily) -> None:
        self._family = family

    def __len__(self) -> int:
        return self._family.n_groups

    @overload
    def __getitem__(self, index: int) -> Ints: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ints]: ...
    def __getitem__(self, index: int | slice) -> Ints | list[Ints]:
        if isinstance(index, slice):
            return [self._family.members(i) for i in range(len(self))[index]]
        return self._family.members(range(len(self))[index])

    def __iter__(self) -> Iterator[Ints]:
        return (self._family.members(i) for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} groups>"


@lru(256)
def flat(n: int) -> CountTree:
    """One group of all variables; `n` is known to be good."""
    return CountTree(FlatFamily(n))
