"""`CountModel`: binary variables with log-odds, and potentials on how many are on in each group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, display
from ..engine.answer import Answer
from ..engine.count import moments
from ..errors import StructureError
from ..memo import answer
from ..structure.nested.count_tree import CountTree
from . import parameters, pose
from .configurations import Configurations
from .edges import Forest, check_members
from .group import read_groups
from .information import Information
from .results import ExpectedStatistics
from .second_order import SecondOrder

_ROUNDED = 2.0**-52  # of a number: what a difference may lose
_LOST = 1e-13  # share of 1 + |log P| from which on log-probabilities are found in another way


class CountModel(Configurations, SecondOrder, Information):
    """Distribution over binary vectors y with potentials on counts.

    ``p(y) = exp(sum_d logits_d y_d) prod_i f_i(sum_{d in group i} y_d) / Z``

    Parameters
    ----------
    logits : array_like, (..., D)
        Log-odds of the variables without any potential. ``-inf`` excludes a variable, ``inf`` forces it on. Leading
        axes are a batch of models.
    groups : potential or sequence of Group, optional
        One potential on the count of all variables (a :class:`~tallytree.Potential`, an array of D + 1 log-values, or
        a function from counts to log-values), or a list of :class:`Group`, any two disjoint or nested. Default none:
        the variables are independent.
    edges : Forest, optional
        Pairwise tables on the edges of a forest, which multiply the weight of a configuration by
        ``prod_(i,j) t_ij(y_i, y_j)``. Groups must then fit the edges; see :class:`~tallytree.Forest`.
    method : str
        ``"auto"`` chooses by size and structure and always meets the accuracy below. The other methods are for study
        and comparison: ``"chain"``, ``"characteristic"`` and ``"mixture"`` for one potential; ``"tree"``,
        ``"fft-tree"``, ``"tiled"`` and ``"log-tree"`` for any groups.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    StructureError
        If groups are not nested or do not fit the edges; the message names those that clash.
    InfeasibleError
        When an answer is asked for and no configuration is possible.

    See Also
    --------
    tallytree.Group
    tallytree.Forest
    tallytree.PoissonBinomial
    tallytree.RaggedBatch
    tallytree.ChainModel
    tallytree.FactorGraph

    Notes
    -----
    Cost: nothing is computed before an answer is asked for. Answers then take near-linear time in D plus the size of
    the tables, and are kept, so that nothing is computed twice. The models of a batch share their structure.

    Accuracy: ``posterior_logits`` to 1e-9 absolute or 1e-10 relative, ``log_partition`` to 1e-10 (1 + abs(log Z)),
    ``count_log_probs`` to 1e-8 where the probability exceeds 1e-200, for tables with entries in [-inf, 1e5].
    float32 logits give float32 vectors, computed in float64; single numbers (log Z, entropy, log-probabilities) are
    float64 always. Finite numbers beyond 1e12, which often stand for infinite ones, count as infinite.

    A model is frozen: it keeps copies of its parameters, and changing one makes a new model. It can be shared between
    threads.

    Examples
    --------
    Exactly one of four equally likely variables:

    >>> tt.CountModel([0.0, 0.0, 0.0, 0.0], tt.exactly(1)).marginals
    array([0.25, 0.25, 0.25, 0.25])

    At least one in a pair, and an even number among five:

    >>> model = tt.CountModel(np.zeros(5), [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, tt.parity("even"))])
    >>> model
    CountModel(n_variables=5, n_groups=2)
    >>> np.exp(model.count_log_probs()).round(3)
    array([0.   , 0.   , 0.583, 0.   , 0.417, 0.   ])
    """

    def __init__(
        self, logits: ArrayLike, groups: Any = None, *, edges: Forest | None = None, method: str = "auto"
    ) -> None:
        small = None if edges is not None else parameters.of_small_model(logits, groups)
        if small is not None:
            return self._setup(small.tree, small, method)
        values, dtype = parameters.logits_to_keep(logits)
        tree, potentials = read_groups(groups, values.shape[-1])
        if edges is not None:
            values = pose.stretched(values, check_members(edges, values.shape[-1]))
        self._setup(tree, parameters.collect(tree, values, dtype, potentials), method, edges)

    @classmethod
    def from_tree(
        cls, tree: CountTree, logits: ArrayLike, tables: Any, *, method: str = "auto"
    ) -> CountModel:
        """Model on an existing structure.

        Parameters
        ----------
        tree : CountTree
            The structure; it is not analysed again.
        logits : array_like, (..., D)
            Log-odds.
        tables : sequence or array
            One potential, log-table or None per entry of ``tree.groups``, or all log-tables packed one after the
            other in one array (..., sum of n_i + 1).
        method : str
            As in :class:`CountModel`.

        Returns
        -------
        CountModel
            The model.

        Raises
        ------
        ParameterError
            If ``logits`` or ``tables`` do not fit the tree.

        See Also
        --------
        replace, CountTree

        Examples
        --------
        >>> tree = tt.CountTree.from_groups([[0, 1], None], n_variables=4)
        >>> tt.CountModel.from_tree(tree, np.zeros(4), [tt.at_least(1), tt.exactly(1)]).marginals
        array([0.5, 0.5, 0. , 0. ])
        """
        checks.instance("tree", tree, CountTree)
        values, dtype = parameters.logits_to_keep(logits, tree.n_variables)
        return cls._make(tree, parameters.from_user(tree, values, dtype, tables), method)

    def replace(
        self, *, logits: ArrayLike | None = None, tables: Any = None, edges: Any = None
    ) -> CountModel:
        """Return a model of the same structure with new parameters; nothing is analysed again.

        If this model has been solved and a single logit changes, ``log_partition`` of the result needs no inference;
        if only variables outside all groups change, none of its answers do (models without edges).

        Parameters
        ----------
        logits : array_like, (..., D), optional
            New log-odds.
        tables : sequence, packed array or mapping, optional
            New potentials: as in :meth:`from_tree`, or ``{group: potential}`` for those that change.
        edges : Forest or array_like, optional
            A forest with the same pairs, or new log-tables or couplings for them.

        Returns
        -------
        CountModel
            A new model; this one stays as it is.

        Raises
        ------
        ParameterError
            If the new parameters do not fit the structure.

        See Also
        --------
        from_tree, condition

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(2), tt.exactly(1))
        >>> model.replace(logits=[0.0, np.log(3.0)]).marginals
        array([0.25, 0.75])
        """
        forest = self._forest if edges is None else self._new_edges(edges)
        if isinstance(tables, Mapping):
            potentials = list(self._params.potentials)
            for group, value in tables.items():
                potentials[self._group(group)] = value
            tables = potentials
        values, dtype = (
            (np.asarray(self._params.logits, np.float64), self._params.dtype)
            if logits is None
            else parameters.logits_to_keep(logits, self.n_variables)
        )
        if forest is not None:
            values = pose.stretched(values, forest)
        if tables is None:
            params = parameters.with_logits(self._params, values, dtype)
        else:
            params = parameters.from_user(self._tree, values, dtype, tables, self._params.own_constant)
        model = self._make(self._tree, params, self._method, forest, self._structure)
        if tables is None and forest is None:
            self._hand_over(model)
        return model

    def _hand_over(self, model: CountModel) -> None:
        """Give a model with the same tables what follows from the answers that this one has already."""
        solved, log_norm = self.__dict__.get("_solved"), self.__dict__.get("_log_norm")
        old, new = self._params, model._params
        if solved is None or old.nu.shape != new.nu.shape or old.dtype != new.dtype:
            return
        if np.isneginf(new.constant).any():  # a contradiction, which an inference of its own finds
            return
        changed = moments.changed_variables(self._tree, old.nu, new.nu)
        if changed is None:
            return
        if moments.only_free(self._tree, changed):
            found = solved.sums
            model._solver.__dict__["sums"] = Answer(found.log_mean, lambda: found.messages, None, found.bound)
        elif len(changed) == 1 and log_norm is not None and self._tree.singleton_groups.size == 0:
            d = int(changed[0])
            changed_norm = moments.changed_log_norm(log_norm, self._odds[:, d], old.nu[:, d], new.nu[:, d])
            if changed_norm is not None:
                model.__dict__["_log_norm"] = changed_norm

    # -- expectations ------------------------------------------------------------------------------------------

    @answer
    def expected_statistics(self) -> ExpectedStatistics:
        """Gradient of ``log_partition``: the marginals and the probabilities of all counts, which learning needs.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals, count_log_probs, hessian_vector_product

        Examples
        --------
        >>> model = tt.CountModel([0.0, np.log(3.0)], tt.exactly(1))
        >>> model.expected_statistics.tables
        (array([0., 1., 0.]),)
        """
        on = self.marginals  # raises for an impossible model
        counts = self._params.group_counts(on, self._vector(self._solved.expected_counts()), total=1.0)
        return ExpectedStatistics(on, counts, None if self._forest is None else self.edge_marginals)

    def log_prob(self, y: ArrayLike) -> Any:
        """Log-probability of configurations.

        Parameters
        ----------
        y : array_like of 0 and 1, (..., D)
            Leading axes broadcast against the batch of models.

        Returns
        -------
        float or ndarray, (...)
            Logarithms; ``-inf`` for impossible configurations.

        Raises
        ------
        ParameterError
            If ``y`` does not consist of 0 and 1 with D of them on the last axis.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_partition, mode, sample

        Examples
        --------
        >>> tt.CountModel([0.0, 0.0], tt.exactly(1)).log_prob([[0, 1], [1, 1]])
        array([-0.69314718,        -inf])
        """
        states = checks.states(y, self.n_variables, self.batch_shape)
        # What masks add to all configurations alike is in neither term.
        score = moments.log_weight(self._tree, self._params.unmasked, states, self._edge_weights(states))
        log_norm = np.reshape(self._log_norm, self.batch_shape)
        found = np.asarray(score - log_norm)
        size = np.abs(score) + np.abs(log_norm)
        if (size if found.ndim == 0 else size.max(initial=0.0)) <= _LOST / _ROUNDED:
            return self._result(np.minimum(found, 0.0))  # rounding alone can lift it above 0
        lost = (_ROUNDED * size > _LOST * (1.0 + np.abs(found))) & np.isfinite(found)
        if lost.any():
            again, least = self._log_prob_of_large(states)
            found = np.where(lost & (least < size), again, found)
        return self._result(np.minimum(found, 0.0))

    def _log_prob_of_large(self, states: Any) -> Any:
        """Log-probabilities where log-weights and log Z are so large that their difference loses digits."""
        shape = np.broadcast_shapes(states.shape[:-1], self.batch_shape)
        wide = np.broadcast_to(states, (*shape, self.n_variables)).reshape(
            -1, math.prod(self.batch_shape), self.n_variables
        )
        return (x.reshape(shape) for x in self._solved.log_prob(wide.astype(np.int64)))

    # -- evidence ----------------------------------------------------------------------------------------------

    def condition(self, evidence: Mapping[int, int]) -> CountModel:
        """The model given the values of some variables.

        ``log_partition`` of the result is that of the joint event, so a difference of two is a log-probability.

        Parameters
        ----------
        evidence : mapping of int to int
            Variables and their values, 0 or 1.

        Returns
        -------
        CountModel
            The model with these values required.

        Raises
        ------
        ParameterError
            If ``evidence`` is not a mapping, or names a variable or value that does not exist.

        See Also
        --------
        condition_count, log_prob

        Examples
        --------
        >>> tt.CountModel(np.zeros(3), tt.exactly(1)).condition({0: 0}).marginals
        array([0. , 0.5, 0.5])
        """
        variables, tables = checks.evidence(evidence, self.n_variables)
        tree = self._tree.with_singletons(variables)
        return self._extended(tree, tables)

    def condition_count(self, group: int | None, count: int) -> CountModel:
        """The model given how many variables of a group (None: of all variables) are on.

        Parameters
        ----------
        group : int or None
            Number of the group; None: all variables.
        count : int
            How many are on.

        Returns
        -------
        CountModel
            The model with this count required.

        Raises
        ------
        ParameterError
            If there is no such group, or it has fewer variables.
        StructureError
            If the model has no variables to be counted.

        See Also
        --------
        condition, count_log_probs

        Examples
        --------
        >>> tt.CountModel([0.0, 0.0, -np.inf]).condition_count(None, 1).marginals
        array([0.5, 0.5, 0. ])
        """
        if group is None and self._whole() is None:
            if self.n_variables == 0:
                raise StructureError("`condition_count` needs a group, but the model has no variables.")
            c = checks.integer("count", count, 0, self.n_variables, "the number of variables")
            return self._extended(self._tree.with_groups([None]), [checks.one_hot(c, self.n_variables)])
        index = self._whole() if group is None else self._group(group)
        assert index is not None
        n = self._tree.group_size(index)
        c = checks.integer("count", count, 0, n, "the number of variables in the group")
        return self.replace(tables={index: self._params.tables[index] + checks.one_hot(c, n)})

    # -- as a Python object ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        parts = [f"n_variables={self.n_variables}", f"n_groups={self.n_groups}"]
        if self._forest is not None:
            parts.append(f"n_edges={self._forest.n_edges}")
        if self.batch_shape:
            parts.append(f"batch_shape={self.batch_shape}")
        if self._method != "auto":
            parts.append(f"method={self._method!r}")
        return f"CountModel({', '.join(parts)})"

    _repr_html_ = display.model_page

    def _parts(self) -> tuple[Any, ...]:
        params = self._params
        numbers = params.batch_shape, params.logits, params.tables, np.asarray(params.own_constant)
        return self._tree, self._method, self._forest, *numbers

    def __getstate__(self) -> dict[str, Any]:
        return {"tree": self._tree, "params": self._params, "method": self._method, "forest": self._forest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._setup(state["tree"], state["params"], state["method"], state["forest"])
