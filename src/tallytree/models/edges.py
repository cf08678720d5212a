"""`Forest`: pairwise tables on the edges of a forest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, display
from ..arrays import Float64, Ints, frozen
from ..checks.groups import all_members, group_list
from ..errors import StructureError
from ..memo import Caching, cached
from ..structure.forest import boundary
from ..structure.forest.boundary import MAX_WIDTH
from ..structure.forest.structure import ForestStructure, check_forest, follow_tree
from ..structure.nested.count_tree import CountTree
from .base import Value


class Forest(Caching, Value):
    """Edges between variables, without cycles, and a log-table on each.

    Adds ``sum_(i, j) log t_ij(y_i, y_j)`` to the log-weight of a configuration.

    Parameters
    ----------
    pairs : array_like of int, (E, 2)
        The two variables that each edge joins. Any graph without cycles is allowed: paths, stars, trees, several trees;
        variables need not have an edge.
    log_tables : array_like, (..., E, 2, 2) or (2, 2), optional
        ``log t(y_i, y_j)`` of every edge, or one table for all edges; ``-inf`` where a combination is impossible.
        Leading axes are a batch. A number, or an array (..., E), is taken for Ising couplings, see `coupling`.
    coupling : array_like, (..., E) or a number, optional
        Ising couplings J in place of tables: ``log t = J`` where the two variables agree and ``-J`` where they differ.
        Give either `log_tables` or `coupling`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    StructureError
        If the edges have a cycle.

    See Also
    --------
    tallytree.CountModel
    tallytree.ChainModel

    Notes
    -----
    Objects are frozen.

    The groups of a model with edges must fit them; :meth:`fits` tells. A single group always fits. Several fit if
    they are nested or disjoint and each is made of all variables, a subtree, subtrees with a common parent, or an
    interval of a chain. The general rule: groups are summed out one after the other, inner ones first. All edges
    between what is left of a group and the rest must touch at most two variables, the boundary of the group. If these
    two are not connected inside the group, they must not be connected outside it either: the group turns into an edge
    between them, and what is left must again have no cycle. Variables that no group counts may be taken to either
    side.

    Cost of inference: O(D log^2 D) for any shape of the forest, plus the size of the tables; without groups that of
    ordinary belief propagation, O(D). Where rounding cannot be certified, O(D^2). ``mode`` and ``max_marginals`` are
    near-linear for concave tables and take up to O(D^2) where their upper bound is not close; ``sample`` takes one
    inference and O(D log D) per sample. Accuracy: as for :class:`~tallytree.CountModel`.

    Examples
    --------
    A chain of four variables that prefer to agree, with exactly two on:

    >>> chain = tt.Forest([(0, 1), (1, 2), (2, 3)], 1.0)
    >>> chain
    Forest(n_edges=3)
    >>> model = tt.CountModel(np.zeros(4), tt.exactly(2), edges=chain)
    >>> model.marginals
    array([0.5, 0.5, 0.5, 0.5])
    >>> round(float(model.edge_marginals[0, 1, 1]), 6)
    0.433407

    At least one of the first two on, four on in all:

    >>> chain = tt.Forest([(i, i + 1) for i in range(5)], 0.5)
    >>> groups = [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, tt.exactly(4))]
    >>> model = tt.CountModel(np.zeros(6), groups, edges=chain)
    >>> model
    CountModel(n_variables=6, n_groups=2, n_edges=5)
    >>> model.marginals.round(3)
    array([0.775, 0.824, 0.692, 0.692, 0.533, 0.483])
    """

    def __init__(self, pairs: ArrayLike, log_tables: Any = None, *, coupling: Any = None) -> None:
        self._pairs = frozen(check_forest(pairs))
        self._tables = frozen(_tables(log_tables, coupling, len(self._pairs)))

    @classmethod
    def compatible_with(cls, tree: CountTree, log_tables: Any = None, *, coupling: Any = None) -> Forest:
        """A forest that fits all groups of a tree, with one boundary variable for every group.

        In every group the parts are joined by edges between one variable of each, and the first of these stands for the
        whole group one level up. A tree with a group of all variables gives a spanning tree.

        Parameters
        ----------
        tree : CountTree
            The groups.
        log_tables, coupling : array_like, optional
            As for :class:`Forest`; one of the two is needed.

        Returns
        -------
        Forest
            The edges, with these tables.

        Raises
        ------
        ParameterError
            If ``tree`` is not a CountTree, or the tables do not fit the number of edges.

        See Also
        --------
        descendants, fits

        Examples
        --------
        >>> tt.Forest.compatible_with(tt.CountTree.balanced(4), coupling=0.5).pairs.tolist()
        [[0, 1], [2, 3], [0, 2]]
        """
        checks.instance("tree", tree, CountTree)
        return cls(follow_tree(tree.program), log_tables, coupling=coupling)

    def compatible_sets(self, n_variables: int | None = None, *, width: int = 1) -> Iterator[tuple[int, ...]]:
        """All sets of variables that fit the forest, one after the other.

        At most `width` variables, the boundary of the set, may touch the edges that leave it. Width 1 is the class
        S(E) of Tarlow et al. (2012, section 5.4): whole components, and any of the branches at one vertex, with or
        without it.

        Parameters
        ----------
        n_variables : int, optional
            Number of variables of the model; default up to the largest that an edge names.
        width : {0, 1, 2}
            Largest size of the boundary; with 0 the sets are unions of components.

        Yields
        ------
        tuple of int
            The variables of a set, increasing; every set once, those with small boundaries first.

        Raises
        ------
        ParameterError
            If ``width`` is not 0, 1 or 2, or an edge names a variable that does not exist.

        See Also
        --------
        fits, boundary_width, descendants

        Notes
        -----
        A forest with a vertex of degree k has at least 2^k such sets, so this is an iterator: take as many as are
        needed. Each of them fits as the only group; for several groups ask :meth:`fits`.

        Examples
        --------
        >>> list(tt.Forest([(0, 1), (1, 2)], 0.0).compatible_sets())
        [(0, 1, 2), (0,), (1, 2), (1,), (2,), (0, 1), (0, 2)]
        """
        count = checks.integer("width", width, 0, MAX_WIDTH)
        return boundary.compatible_sets(self._size(n_variables), self._pairs, count)

    def boundary_width(self, members: ArrayLike) -> int:
        """Smallest number of variables that touch all edges leaving a set.

        It is at most 1 for the sets that Tarlow et al. (2012, section 5.4) allow.

        Parameters
        ----------
        members : iterable of int
            Variables of a group.

        Returns
        -------
        int
            Size of the boundary, 0 if no edge leaves the set.

        Raises
        ------
        ParameterError
            If ``members`` are not variables.

        See Also
        --------
        fits, compatible_sets

        Examples
        --------
        >>> path = tt.Forest([(0, 1), (1, 2), (2, 3), (3, 4)], 0.0)
        >>> path.boundary_width([0, 1, 2]), path.boundary_width([1, 2]), path.boundary_width([0, 2, 4])
        (1, 2, 2)
        """
        given = checks.rectangular("members", members, "a list of variables")
        n = max(self.largest, int(given.max(initial=-1)) if given.dtype.kind in "iu" else -1) + 1
        inside = np.zeros(n, bool)
        inside[checks.variables(members, n, "members")] = True
        return boundary.width(inside, self._pairs)

    def fits(self, groups: Any, n_variables: int | None = None) -> bool:
        """Whether a model with these edges can have these groups.

        Parameters
        ----------
        groups : CountTree or list of lists of variables
            The groups.
        n_variables : int, optional
            Number of variables of the model, for a list; default up to the largest that is named.

        Returns
        -------
        bool
            True if they fit. False also for groups that are not nested.

        Raises
        ------
        ParameterError
            If ``groups`` are not lists of variables, or an edge names a variable that does not exist.

        See Also
        --------
        compatible_sets, boundary_width

        Examples
        --------
        >>> path = tt.Forest([(0, 1), (1, 2), (2, 3)], 0.0)
        >>> path.fits([[0, 1], [0, 1, 2, 3]]), path.fits([[0, 2], [1, 3]]), path.fits([[0, 1], [1, 2]])
        (True, False, False)
        """
        if isinstance(groups, CountTree):
            tree, n = groups, groups.n_variables
        else:
            sets = group_list(groups)
            n = self._size(n_variables)
            if n_variables is None:
                n = max([n, *(_largest(group) + 1 for group in sets)])
            all_members(sets, n)
            try:
                tree = CountTree.from_groups(sets, n)
            except StructureError:
                return False
        check_members(self, n)
        try:
            ForestStructure(self._pairs, np.ones(n, np.int64), tree.family).program  # noqa: B018 - refuses misfits
        except StructureError:
            return False
        return True

    def descendants(self, n_variables: int | None = None, *, roots: ArrayLike = ()) -> CountTree:
        """A nested family that fits the forest: every vertex with all vertices below it.

        Parameters
        ----------
        n_variables : int, optional
            Number of variables of the model; default up to the largest that an edge names.
        roots : array_like of int
            Where components are rooted; by default at their first vertex.

        Returns
        -------
        CountTree
            The groups, without single variables.

        Raises
        ------
        ParameterError
            If ``roots`` are not variables.

        See Also
        --------
        compatible_with, compatible_sets

        Examples
        --------
        >>> [g.tolist() for g in tt.Forest([(0, 1), (1, 2), (1, 3)], 0.0).descendants().groups]
        [[0, 1, 2, 3], [1, 2, 3]]
        """
        n = self._size(n_variables)
        first = np.atleast_1d(checks.variables(roots, n, "roots")).reshape(-1)
        return CountTree.from_groups(boundary.descendant_sets(n, self._pairs, first), n)

    def _size(self, n_variables: int | None) -> int:
        if n_variables is None:
            return self.largest + 1
        return checks.integer("n_variables", n_variables, self.largest + 1)

    @property
    def pairs(self) -> Ints:
        """The edges, (E, 2), read-only."""
        return self._pairs

    @property
    def log_tables(self) -> Float64:
        """Log-table of every edge, (..., E, 2, 2), read-only."""
        return self._tables

    @property
    def n_edges(self) -> int:
        """Number of edges E."""
        return len(self._pairs)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of the tables."""
        return self._tables.shape[:-3]

    @cached
    def largest(self) -> int:
        """Largest number of a variable that has an edge, -1 without edges."""
        return int(self._pairs.max(initial=-1))

    def replace(self, log_tables: Any = None, *, coupling: Any = None) -> Forest:
        """Return a forest with the same edges and other tables.

        Parameters
        ----------
        log_tables : array_like, optional
            New tables, as in :class:`Forest`.
        coupling : array_like, optional
            New Ising couplings.

        Returns
        -------
        Forest
            A new forest; this one stays as it is.

        Raises
        ------
        ParameterError
            If both or none of the arguments are given, or they do not fit the number of edges.

        See Also
        --------
        log_tables, CountModel.replace

        Examples
        --------
        >>> tt.Forest([(0, 1), (1, 2)], coupling=1.0).replace(coupling=0.5).n_edges
        2
        """
        new = Forest.__new__(Forest)
        new._pairs = self._pairs
        new._tables = frozen(_tables(log_tables, coupling, len(self._pairs)))
        return new

    def __repr__(self) -> str:
        batch = f", batch_shape={self.batch_shape}" if self.batch_shape else ""
        return f"Forest(n_edges={self.n_edges}{batch})"

    _repr_html_ = display.forest_page

    def _parts(self) -> tuple[Any, ...]:
        return self._pairs, self._tables


def _largest(group: Any) -> int:
    """Largest variable that a list names, -1 where it is no list of variables."""
    named = [] if group is None or isinstance(group, slice) else group
    given = checks.rectangular("groups", named, "lists of variables")
    return int(given.max(initial=-1)) if given.dtype.kind in "iu" else -1


def _tables(log_tables: Any, coupling: Any, n_edges: int) -> Float64:
    """Log-tables (..., E, 2, 2), a copy."""
    name, value = checks.one_given(log_tables=log_tables, coupling=coupling)
    hint = " Give one number, one per edge, or tables of shape (..., E, 2, 2) with -inf for impossible pairs."
    given = checks.array(name, value, (...,), checks.LOGS, hint=hint)
    values = np.atleast_1d(given)
    if coupling is None and values.ndim >= 2 and values.shape[-2:] == (2, 2):
        return np.array(checks.spread(name, values, (*values.shape[:-3], n_edges, 2, 2)))
    finite = checks.array(name, values, (...,), checks.REALS, hint=hint)
    each = checks.spread(name, finite, (*values.shape[:-1], n_edges))
    signs = np.array([[1.0, -1.0], [-1.0, 1.0]])
    return np.asarray(each[..., None, None] * signs)


def check_members(forest: Any, n: int) -> Forest:
    """A forest over n variables."""
    found: Forest = checks.instance("edges", forest, Forest, ", such as Forest(pairs, log_tables)")
    if found.largest >= n:
        raise StructureError(
            f"`edges` names variable {found.largest}, but variables are numbered 0 to {n - 1}."
        )
    return found
