"""Binary variables under counts, with or without edges: parameters, the solver, first-order answers, and edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from .. import checks
from ..arrays import Bools, Float64, FloatArray
from ..engine import masks
from ..engine.count import conflict
from ..engine.count.infer import METHODS
from ..engine.count.solver import CountSolver
from ..engine.forest.solver import ForestSolver
from ..engine.pmf.events import log_outcomes
from ..errors import InfeasibleError, ParameterError, StructureError
from ..memo import answer, cached, once
from ..structure.forest.structure import ForestStructure
from ..structure.nested.count_tree import CountTree
from . import parameters, pose
from .base import Model
from .edges import Forest
from .parameters import Parameters


class BinaryModel(Model):
    """Parameters and first-order answers; the base of :class:`~tallytree.CountModel`, not used on its own."""

    _params: Parameters
    _method: str
    _forest: Forest | None
    _structure: ForestStructure | None

    def _setup(
        self,
        tree: CountTree,
        params: Parameters,
        method: str,
        forest: Forest | None = None,
        structure: ForestStructure | None = None,
    ) -> None:
        if type(method) is not str or method != "auto":
            checks.one_of("method", method, METHODS)
            if forest is not None:
                raise ParameterError(f'`method` must be "auto" for a model with edges; {method!r} arrived.')
        self._tree = tree
        self._params = params
        self._dtype = params.dtype
        self._batch_shape = params.batch_shape
        self._method = method
        self._forest = forest
        # The analysis is shared by models on the same edges and sets.
        known = structure is not None and structure.fits(tree.family)
        self._structure = structure if known or forest is None else pose.structure(tree, forest)

    @classmethod
    def _make(cls, *arguments: Any) -> Self:
        model = cls.__new__(cls)
        model._setup(*arguments)
        return model

    def _moved(self, tree: CountTree, potentials: Sequence[Any]) -> Self:
        """The same log-odds and edges with the potentials of another tree."""
        params = self._params
        values = np.asarray(params.logits, np.float64)
        new = parameters.collect(tree, values, params.dtype, potentials, params.own_constant)
        return self._make(tree, new, self._method, self._forest, self._structure)

    def _extended(self, tree: CountTree, extra: Sequence[Any]) -> Self:
        """The same model on a tree with more groups at the end of its list."""
        return self._moved(tree, [*self._params.potentials, *extra])

    # -- parameters --------------------------------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        """Number of variables D."""
        return self._tree.n_variables

    @property
    def method(self) -> str:
        """The ``method`` that the model was made with."""
        return self._method

    @property
    def logits(self) -> FloatArray:
        """Log-odds as given, (..., D), read-only."""
        return self._params.logits

    @property
    def tables(self) -> tuple[Float64, ...]:
        """Log-table of every group, (..., n + 1), read-only.

        See Also
        --------
        Potential.log_table

        Examples
        --------
        >>> model = tt.CountModel([0.0, np.log(3.0)], tt.exactly(1))
        >>> model.tables
        (array([-inf,   0., -inf]),)
        """
        return self._params.tables

    # -- answers -----------------------------------------------------------------------------------------------

    @answer
    def log_partition(self) -> Any:
        """Log Z, (...,): log of the sum of ``exp(sum_d logits_d y_d) prod_i f_i`` over all y.

        A variable forced on by an infinite logit enters with weight one, so log Z stays finite.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_prob, expected_statistics

        Examples
        --------
        >>> model = tt.CountModel([0.0, np.log(3.0)], tt.exactly(1))
        >>> np.exp(model.log_partition).round(6)  # 1 + 3
        np.float64(4.0)
        """
        return self._scalar(self._log_norm + self._masked_constant)

    @answer
    def marginals(self) -> FloatArray:
        """P(y_d = 1), (..., D).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        posterior_logits, pairwise, count_log_probs

        Examples
        --------
        >>> model = tt.CountModel([0.0, np.log(3.0)], tt.exactly(1))
        >>> model.marginals
        array([0.25, 0.75])
        """
        return self._vector(self._solved.marginals())

    @answer
    def posterior_logits(self) -> FloatArray:
        """Log-odds of the marginals, (..., D), accurate where the marginals themselves round to 0 or 1.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals, cavity_logits

        Examples
        --------
        >>> model = tt.CountModel([0.0, np.log(3.0)], tt.exactly(1))
        >>> model.posterior_logits.round(4)
        array([-1.0986,  1.0986])
        """
        return self._vector(self._odds)

    @answer
    def cavity_logits(self) -> FloatArray:
        """Posterior log-odds of each variable without its own logit, (..., D).

        This is the message that the rest of the model sends to the variable in belief propagation. Where logits are
        infinite it is still right, while ``posterior_logits - logits`` is not.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        posterior_logits

        Examples
        --------
        >>> model = tt.CountModel([0.0, np.log(3.0)], tt.exactly(1))
        >>> model.cavity_logits.round(4) + 0.0
        array([-1.0986,  0.    ])
        """
        return self._vector(self._params.singleton_logits + self._solved.cavities())

    @answer
    def error_bound(self) -> Any:
        """Certified bound on the absolute error of every posterior log-odds and of log Z up to its rounding, (...,).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        posterior_logits, log_partition

        Examples
        --------
        >>> model = tt.CountModel([0.0, np.log(3.0)], tt.exactly(1))
        >>> bool(model.error_bound < 1e-10)
        True
        """
        return self._scalar(self._solved.error_bound())

    def count_log_probs(self, group: int | None = None) -> FloatArray:
        """Log-probabilities of the counts 0..n of a group, (..., n + 1).

        Parameters
        ----------
        group : int, optional
            Number of the group in the order given; default the count of all variables.

        Returns
        -------
        ndarray, (..., n + 1)
            Logarithms; ``-inf`` for impossible counts. Read-only.

        Raises
        ------
        ParameterError
            If there is no group of this number.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals, condition_count, max_count_values

        Notes
        -----
        Accuracy: 1e-8 wherever the probability exceeds 1e-200.

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(3), tt.at_least(1))
        >>> np.exp(model.count_log_probs()) * 7
        array([0., 3., 3., 1.])
        """
        index = None if group is None else self._group(group)
        return once(self, ("counts", index), lambda: self._vector(self._counts(index)))

    # -- edges -------------------------------------------------------------------------------------------------

    @property
    def edges(self) -> Forest | None:
        """The forest, or None.

        See Also
        --------
        Forest

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(2), edges=tt.Forest([(0, 1)], coupling=np.log(2.0)))
        >>> model.edges.pairs
        array([[0, 1]])
        """
        return self._forest

    @answer
    def edge_marginals(self) -> FloatArray:
        """P(y_i, y_j) of every edge, (..., E, 2, 2), axes in the order of its pair.

        Raises
        ------
        ParameterError
            If the model has no edges.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals, Forest

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(2), edges=tt.Forest([(0, 1)], coupling=np.log(2.0)))
        >>> model.edge_marginals[0].round(4)
        array([[0.4, 0.1],
               [0.1, 0.4]])
        """
        self._with_edges("edge_marginals")
        return self._vector(np.exp(self._solved.edge_log_probs()))

    @property
    def width(self) -> int:
        """Largest size of the boundary of a group: 0, 1 or 2, see :meth:`boundary`.

        Raises
        ------
        ParameterError
            If the model has no edges.

        See Also
        --------
        boundary, Forest.boundary_width

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(2), tt.exactly(1), edges=tt.Forest([(0, 1)], coupling=1.0))
        >>> model.width
        0
        """
        self._with_edges("width")
        assert self._structure is not None
        return self._structure.program.width

    def boundary(self, group: int) -> tuple[int, ...]:
        """Variables through which a group is connected to the rest: at most two that touch all edges leaving it.

        The cost of a group grows with the number of states of its boundary; see :class:`~tallytree.Forest`.

        Parameters
        ----------
        group : int
            Number of the group.

        Returns
        -------
        tuple of int
            The variables; empty if no edge leaves the group.

        Raises
        ------
        ParameterError
            If there is no group of this number, or the model has no edges.

        See Also
        --------
        width, Forest.boundary_width

        Examples
        --------
        >>> path = tt.Forest([(0, 1), (1, 2)], coupling=1.0)
        >>> tt.CountModel(np.zeros(3), [tt.Group([0, 1], tt.exactly(1))], edges=path).boundary(0)
        (1,)
        """
        self._with_edges("boundary")
        assert self._structure is not None
        index = self._group(group)
        s = int(self._tree.family.set_of_group[index])
        if s < 0:
            return (int(self._tree.family.variable_of_group[index]),)
        return self._structure.program.set_boundary[s]

    # -- how it is done ----------------------------------------------------------------------------------------

    @cached
    def _solver(self) -> Any:
        """Who answers; nothing is computed before it is asked."""
        if self._forest is None:
            return CountSolver(pose.count_problem(self._params, self._method), self._method)
        assert self._structure is not None
        return ForestSolver(pose.forest_problem(self._params, self._structure, self._unmasked_edges))

    @cached
    def _solved(self) -> Any:
        """The solver of a model that is known to be possible."""
        solver = self._solver
        self._check_weights(solver.sums.log_mean)
        return solver

    def _check_weights(self, log_weights: Float64) -> None:
        constant = self._params.leaves.constant if self._forest is None else self._params.own_constant
        if len(log_weights) != 1 or type(constant) is not float or not log_weights[0] + constant > -math.inf:
            self._check_possible(log_weights + constant)

    def _impossible(self, where: str, index: int) -> InfeasibleError:
        params = self._params
        groups: tuple[int, ...] = ()
        if self._forest is None:
            reason, groups = conflict.explain(self._tree, params, index)
        else:
            reason = "no counts satisfy all potentials and edges together with the variables that infinite logits or "
            reason += "evidence fix" + masks.remark(params.logits, *params.tables, self._forest.log_tables)
        return InfeasibleError(
            f"The model{where} gives probability zero to every configuration: {reason}. Relax a potential or an "
            "infinite logit.",
            groups=groups,
        )

    @cached
    def _unmasked_edges(self) -> pose.UnmaskedEdges:
        assert self._forest is not None
        return pose.unmasked_edges(self._forest)

    @property
    def _masked_constant(self) -> Any:
        """What masks add to all log-weights alike, () or (B,); see :mod:`~tallytree.engine.masks`."""
        if self._forest is None:
            return self._params.masked_constant
        edges = np.broadcast_to(self._unmasked_edges.constant, self.batch_shape).reshape(-1)
        return self._params.masked_constant + edges

    @property
    def _constant(self) -> Any:
        """What has to be added to the log-weights of the problem, () or (B,)."""
        near = self._params.leaves.constant if self._forest is None else self._params.own_constant
        return near + self._masked_constant

    @cached
    def _log_norm(self) -> Float64:
        """Log Z, (B,), without what masks add to the log-weights of all configurations alike."""
        found: Float64 = self._solved.log_norm()
        return np.asarray(found if self._forest is None else found + self._params.own_constant)

    @property
    def _odds(self) -> Float64:
        """Posterior log-odds (B, D) in double precision."""
        found: Float64 = self._solved.odds()
        return found

    def _counts(self, group: int | None) -> Float64:
        """Log-probabilities of the count of a group, (B, n + 1)."""
        solver = self._solved
        group = self._whole() if group is None else group
        if group is None and self.n_variables == 0:
            return np.zeros((len(self._params.nu), 1))
        if group is None:
            total: Float64 = self._with_total._counts(-1)
            return total
        family = self._tree.family
        index = range(family.n_groups)[group]
        s = int(family.set_of_group[index])
        if s >= 0:
            return np.asarray(solver.counts(s))
        odds = self._odds[:, int(family.variable_of_group[index])]
        return log_outcomes(odds)

    @cached
    def _with_total(self) -> Self:
        """The same model with a group of all variables at the end."""
        tree = self._tree.with_groups([None])
        try:
            return self._extended(tree, [None])
        except StructureError:
            raise StructureError(
                "The count of all variables does not fit the edges together with the groups of this model: a group of "
                "all variables would not be allowed beside them. Ask for the count of a group."
            ) from None

    def _with_edges(self, what: str) -> Forest:
        if self._forest is None:
            raise ParameterError(
                f"`{what}` is for models with edges, and this one has none. "
                "Make it with CountModel(logits, groups, edges=Forest(pairs, log_tables))."
            )
        return self._forest

    def _new_edges(self, edges: Any) -> Forest:
        own = self._with_edges("replace(edges=...)")
        forest = edges if isinstance(edges, Forest) else own.replace(edges)
        if not np.array_equal(forest.pairs, own.pairs):
            raise ParameterError(
                "`edges` must keep the pairs of the model. For others make a new CountModel."
            )
        return forest

    def _edge_weights(self, states: Bools) -> Float64 | None:
        """Log-weights (..., E) that the edges give to configurations, masks apart; None without edges."""
        if self._forest is None:
            return None
        pairs, tables = self._forest.pairs, self._unmasked_edges.tables
        first, second = states[..., pairs[:, 0]], states[..., pairs[:, 1]]
        on = np.where(second, tables[..., 1, 1], tables[..., 1, 0])
        off = np.where(second, tables[..., 0, 1], tables[..., 0, 0])
        return np.where(first, on, off)
