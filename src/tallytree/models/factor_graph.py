"""`FactorGraph`: binary variables with any number of overlapping count factors, and pairwise factors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _display, checks
from ..arrays import Float64, Ints
from ..checks.configurations import states
from ..engine import far
from ..engine.count import moments
from ..errors import InfeasibleError, ParameterError
from ..memo import Remembers, answer
from . import graph_arguments
from .count import CountModel
from .group import Group
from .value import Value

Factor = tuple[Any, Float64 | None, CountModel | None]  # as given; its log-table, or the model that it is


class FactorGraph(Remembers, Value):
    """Binary variables with potentials on counts of groups that may overlap in any way.

    ``p(y) = exp(sum_d logits_d y_d) prod_a f_a(y_a) / Z``, where the factor ``f_a`` is a potential on the count of its
    group, a whole :class:`CountModel` over its group, or a table over a pair.

    Exact answers are out of reach in general (with "exactly one" in every row and column of a matrix, Z is a
    permanent); :func:`loopy_bp`, :func:`~tallytree.loopy.holder_bound` and
    :func:`~tallytree.loopy.dual_decomposition` approximate and bound them. If the groups are nested, use
    :class:`CountModel`, which is exact.

    Parameters
    ----------
    logits : array_like, (D,)
        Log-odds of the variables; ``-inf`` excludes a variable, ``inf`` forces it on with weight one.
    groups : sequence of Group
        The count factors. The potential of a :class:`Group` is whatever :class:`CountModel` accepts, or a
        :class:`CountModel` over as many variables as the group has members, in their order, with or without edges; the
        logits of such a model add to those of the variables.
    edges : (pairs, log_tables), optional
        Pairwise factors: ``pairs`` (m, 2) integers and ``log_tables`` (m, 2, 2) or (2, 2), where
        ``log_tables[e, a, b]`` belongs to ``y_i = a, y_j = b`` for ``pairs[e] = (i, j)``. An object with attributes
        ``pairs`` and ``log_tables`` serves too.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.loopy_bp
    tallytree.CountModel
    tallytree.assignment

    Notes
    -----
    Cost: linear in the total size of the groups. The graph is frozen and keeps copies of its parameters.

    Finite numbers that stand for ``-inf``, such as masks of -1e20, are taken for it: log-odds below -1e15, and table
    entries that far below the largest of their table.

    Examples
    --------
    Two overlapping groups of three variables, exactly one active in each:

    >>> graph = tt.FactorGraph(np.zeros(5), [tt.Group([0, 1, 2], tt.exactly(1)), tt.Group([2, 3, 4], tt.exactly(1))])
    >>> graph
    FactorGraph(n_variables=5, n_groups=2, n_edges=0)
    >>> tt.loopy_bp(graph).marginals.round(3)
    array([0.4, 0.4, 0.2, 0.4, 0.4])
    """

    def __init__(self, logits: ArrayLike, groups: Iterable[Group] = (), *, edges: Any = None) -> None:
        values, _ = checks.logits(logits)
        if values.ndim != 1:
            raise ParameterError(
                f"`logits` of a FactorGraph must be one-dimensional, one entry per variable; shape {values.shape} "
                "arrived. Make one graph per model, or ravel a matrix of variables."
            )
        listed = graph_arguments.groups_of(groups)
        members, offsets = checks.all_members([g.members for g in listed], len(values))
        n = len(values)
        cache: dict[Any, Float64] = {}
        factors = [
            graph_arguments.factor(group.potential, int(offsets[i + 1] - offsets[i]), i, cache)
            for i, group in enumerate(listed)
        ]
        pairs, pair_tables = graph_arguments.pairwise(edges, n)
        self._setup(values.copy(), members, offsets, tuple(factors), pairs, pair_tables)

    def _setup(
        self,
        logits: Float64,
        members: Ints,
        offsets: Ints,
        factors: tuple[Factor, ...],
        pairs: Ints,
        pair_tables: Float64,
    ) -> None:
        for array in (logits, members, offsets, pairs, pair_tables):
            array.flags.writeable = False
        self._logits, self._members, self._offsets = logits, members, offsets
        self._factors = factors
        self._pairs, self._pair_tables = pairs, pair_tables
        self._forget()

    @classmethod
    def _made(cls, *numbers: Any) -> FactorGraph:
        new = cls.__new__(cls)
        new._setup(*numbers)
        return new

    def _given(self) -> tuple[Any, ...]:
        """What `_setup` takes."""
        return self._logits, self._members, self._offsets, self._factors, self._pairs, self._pair_tables

    # -- what it is made of ------------------------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        """Number of variables D."""
        return len(self._logits)

    @property
    def n_groups(self) -> int:
        """Number of count factors; pairwise factors are numbered after them."""
        return len(self._factors)

    @property
    def n_edges(self) -> int:
        """Number of pairwise factors."""
        return len(self._pairs)

    @property
    def logits(self) -> Float64:
        """Log-odds as given, (D,), read-only."""
        return self._logits

    @property
    def groups(self) -> tuple[Group, ...]:
        """Members and potential of every count factor.

        See Also
        --------
        members, tables

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> len(graph.groups)
        2
        """
        return tuple(Group(self.members(i), given) for i, (given, _, _) in enumerate(self._factors))

    @property
    def tables(self) -> tuple[Float64 | None, ...]:
        """Log-table of every count factor, (n + 1,); None where the factor is a CountModel.

        See Also
        --------
        groups, models

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> graph.tables[0]
        array([  0.,   0., -inf])
        """
        return tuple(table for _, table, _ in self._factors)

    @property
    def models(self) -> tuple[CountModel | None, ...]:
        """Model of every count factor that is one, None for the others."""
        return tuple(model for _, _, model in self._factors)

    @property
    def pairs(self) -> Ints:
        """Variables of the pairwise factors, (m, 2)."""
        return self._pairs

    @property
    def pair_tables(self) -> Float64:
        """Log-tables of the pairwise factors, (m, 2, 2)."""
        return self._pair_tables

    def members(self, group: int) -> Ints:
        """Variables of one count factor.

        Parameters
        ----------
        group : int
            Number of the factor.

        Returns
        -------
        ndarray of int
            Variables, in the order in which they were given.

        Raises
        ------
        ParameterError
            If there is no factor of this number.

        See Also
        --------
        groups, n_groups

        Examples
        --------
        >>> tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))]).members(1)
        array([1, 2])
        """
        number = checks.integer("group", group)
        if not -self.n_groups <= number < self.n_groups:
            raise ParameterError(
                f"`group` must be the number of a group, 0 to {self.n_groups - 1}; {number} arrived."
                if self.n_groups
                else f"`group` must be the number of a group, but the graph has none; {number} arrived."
            )
        number %= self.n_groups
        return self._members[self._offsets[number] : self._offsets[number + 1]]

    @property
    def total_logits(self) -> Float64:
        """Log-odds with those of the factors that are models added, (D,): infinite ones decide by themselves.

        See Also
        --------
        logits

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> graph.total_logits
        array([0., 0., 0.])
        """
        return self._totals[0]

    @property
    def forced_log_weight(self) -> float:
        """Finite log-odds of variables that an infinite one forces on: part of the log-weight of every configuration.

        A forced variable has weight one where it is forced; what its other log-odds say is a constant.

        See Also
        --------
        log_weight, total_logits

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> graph.forced_log_weight
        0.0
        """
        return self._totals[1]

    @answer
    def _totals(self) -> tuple[Float64, float]:
        own, constant = far.near_logits(self._logits)
        finite = np.where(np.isfinite(own), own, 0.0)
        excluded, forced = own == -math.inf, own == math.inf
        for i, model in enumerate(self.models):
            if model is None:
                continue
            (logits, added), at = far.near_logits(np.asarray(model.logits, np.float64)), self.members(i)
            constant = constant + added
            finite[at] += np.where(np.isfinite(logits), logits, 0.0)
            excluded[at] |= logits == -math.inf
            forced[at] |= logits == math.inf
            clash = at[excluded[at] & forced[at]]
            if len(clash):
                raise InfeasibleError(
                    f"Variable {int(clash[0])} is forced on by one infinite logit and excluded by another (group {i}). "
                    "Remove one of them."
                )
        total, added = far.near_logits(np.where(excluded, -math.inf, np.where(forced, math.inf, finite)))
        total.flags.writeable = False
        return total, float(finite[forced].sum() + constant + added)

    def replace(self, *, logits: ArrayLike) -> FactorGraph:
        """The same factors with other log-odds.

        Parameters
        ----------
        logits : array_like, (D,)
            New log-odds.

        Returns
        -------
        FactorGraph
            A new graph; this one stays as it is.

        Raises
        ------
        ParameterError
            If ``logits`` does not have the shape of the old.

        See Also
        --------
        logits, loopy_bp

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], tt.exactly(1))])
        >>> tt.loopy_bp(graph.replace(logits=[0.0, np.log(3.0)])).marginals
        array([0.25, 0.75])
        """
        values, _ = checks.logits(logits)
        if values.shape != self._logits.shape:
            raise ParameterError(
                f"`logits` must have shape {self._logits.shape}; shape {values.shape} arrived. For another number of "
                "variables make a new FactorGraph."
            )
        return self._made(values.copy(), *self._given()[1:])

    def log_weight(self, y: ArrayLike) -> Any:
        """Logarithm of the unnormalised weight of configurations (..., D).

        Parameters
        ----------
        y : array_like, (..., D)
            Configurations of zeros and ones.

        Returns
        -------
        float or ndarray, (...)
            Log-weights; ``-inf`` for impossible configurations.

        Raises
        ------
        ParameterError
            If ``y`` does not consist of 0 and 1 with D of them on the last axis.

        See Also
        --------
        forced_log_weight, loopy_bp

        Examples
        --------
        >>> graph = tt.FactorGraph([1.0, 2.0, 4.0], [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> graph.log_weight([[1, 0, 1], [1, 1, 0]])
        array([  5., -inf])
        """
        on = states(y, self.n_variables)
        total = moments.weight_of_logits(graph_arguments.logits_without_masks(self._logits), on)
        for i, (_, table, model) in enumerate(self._factors):
            part = on[..., self.members(i)]
            if model is not None:
                total = total + _model_weight(model, part)
            elif table is not None:
                total = total + table[part.sum(-1)]
        if self.n_edges:
            a, b = on[..., self._pairs[:, 0]].astype(np.intp), on[..., self._pairs[:, 1]].astype(np.intp)
            total = total + self._pair_tables[np.arange(self.n_edges), a, b].sum(-1)
        return np.asarray(total)[()]

    # -- as a Python object ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return (
            f"FactorGraph(n_variables={self.n_variables}, n_groups={self.n_groups}, n_edges={self.n_edges})"
        )

    def _repr_html_(self) -> str:
        return _display.graph_page(self)

    def _parts(self) -> tuple[Any, ...]:
        return (
            self._logits, self._members, self._offsets, self.tables, self.models, self._pairs, self._pair_tables,
        )  # fmt: skip

    def __reduce__(self) -> Any:
        return self._made, self._given()


def _model_weight(model: CountModel, on: NDArray[np.bool_]) -> Float64:
    """Log of the unnormalised weight under a model, (...,); in double precision whatever the model answers in."""
    total = moments.log_weight(model._tree, model._params, on)
    return np.asarray(total + model._edge_weight(on))
