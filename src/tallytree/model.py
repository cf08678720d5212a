"""`CountModel`: binary variables with log-odds, and potentials on how many are on in each group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scipy.special import expit

from . import _validate, parameters, second_order
from .engine import auto, moments
from .engine.counts import group_log_probs
from .engine.solution import Solution, posterior
from .errors import InfeasibleError, ParameterError, StructureError
from .maximization import Maximization
from .parameters import Parameters
from .structure.count_tree import CountTree

Float64 = NDArray[np.float64]
FloatArray = NDArray[np.floating[Any]]
_T = TypeVar("_T")


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


@dataclass(frozen=True, eq=False)
class ExpectedStatistics:
    """Gradient of ``log_partition``: what learning compares with the data.

    ``logits`` (..., D) holds P(y_d = 1), ``tables[i]`` (..., n_i + 1) the probabilities of the counts of group i.
    """

    logits: FloatArray
    tables: tuple[FloatArray, ...]


class CountModel(Maximization):
    """Distribution over binary vectors y with potentials on counts.

    ``p(y) = exp(sum_d logits_d y_d) prod_i f_i(sum_{d in group i} y_d) / Z``

    Parameters
    ----------
    logits : array_like, (..., D)
        Log-odds of the variables without any potential. ``-inf`` excludes a variable, ``inf`` forces it on. Leading
        axes are a batch of models.
    groups : potential or sequence of Group, optional
        One potential over all variables (a :class:`~tallytree.potentials.Potential`, an array of D + 1 log-values, a
        callable), or a list of :class:`Group`, any two disjoint or nested. Without it the variables are independent.
    edges : Forest, optional
        Pairwise tables on the edges of a forest; see :class:`~tallytree.forest_model.ForestCountModel`.
    method : str
        ``"auto"`` picks by size and structure and always meets the accuracy below. For study: ``"chain"``,
        ``"characteristic"``, ``"mixture"``, ``"potetz-lee"`` (one potential), ``"tree"``, ``"fft-tree"``, ``"tiled"``,
        ``"log-tree"`` (any groups).

    Notes
    -----
    Cost: nothing until a number is asked for; then near-linear in D plus the size of the tables, and nothing is
    computed twice. Batches share the structure.

    Accuracy: ``posterior_logits`` to 1e-9 absolute or 1e-10 relative, ``log_partition`` to 1e-10 (1 + abs(log Z)),
    ``count_log_probs`` to 1e-8 where the probability exceeds 1e-200, for tables with entries in [-inf, 1e5].
    float32 in gives float32 out, computed in float64.

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

    def __new__(cls, *args: Any, edges: Any = None, **options: Any) -> CountModel:
        if edges is None:
            return super().__new__(cls)
        from .forest_model import ForestCountModel  # builds on this module

        return super().__new__(ForestCountModel)

    def __init__(
        self, logits: ArrayLike, groups: Any = None, *, edges: Any = None, method: str = "auto"
    ) -> None:
        values, dtype = _validate.logits(logits)
        tree, potentials = _structure(groups, values.shape[-1])
        self._setup(tree, parameters.collect(tree, values, dtype, potentials), method)

    def _setup(self, tree: CountTree, params: Parameters, method: str) -> None:
        if method != "auto":
            _validate.one_of("method", method, auto.METHODS)
        self._tree = tree
        self._params = params
        self._method = method
        self._cache: dict[Any, Any] = {}
        self._lock = threading.RLock()

    @classmethod
    def _make(cls, tree: CountTree, params: Parameters, method: str) -> CountModel:
        model = cls.__new__(cls)
        model._setup(tree, params, method)
        return model

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

        Examples
        --------
        >>> tree = tt.CountTree.balanced(4)
        >>> tt.CountModel.from_tree(tree, np.zeros(4), [tt.exactly(2), None, tt.exactly(1)]).marginals
        array([0.5, 0.5, 0.5, 0.5])
        """
        if not isinstance(tree, CountTree):
            raise ParameterError(f"`tree` must be a CountTree; {_validate.describe(tree)} arrived.")
        values, dtype = _validate.logits(logits)
        if values.shape[-1] != tree.n_variables:
            raise ParameterError(
                f"`logits` must have {tree.n_variables} entries on the last axis, one per variable of the tree; "
                f"shape {values.shape} arrived."
            )
        potentials = parameters.unpack(tree, tables)
        return cls._make(tree, parameters.collect(tree, values, dtype, potentials), method)

    # -- parameters --------------------------------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        """Number of variables D."""
        return self._tree.n_variables

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of every answer."""
        return self._params.batch_shape

    @property
    def tree(self) -> CountTree:
        """The structure."""
        return self._tree

    @property
    def method(self) -> str:
        """The method asked for."""
        return self._method

    @property
    def logits(self) -> FloatArray:
        """Log-odds as given, (..., D), read-only."""
        return self._params.logits

    @property
    def tables(self) -> tuple[Float64, ...]:
        """Log-table of every group, (..., n + 1), read-only."""
        return self._params.tables

    def replace(self, *, logits: ArrayLike | None = None, tables: Any = None) -> CountModel:
        """The same structure with new parameters; nothing is analysed again.

        Parameters
        ----------
        logits : array_like, optional
            New log-odds.
        tables : sequence, packed array or mapping, optional
            As in :meth:`from_tree`, or ``{group: table}`` for those that change.
        """
        old: Sequence[Any] = self._params.potentials
        if isinstance(tables, Mapping):
            potentials = list(old)
            for group, value in tables.items():
                potentials[self._group(group)] = value
        else:
            potentials = list(old) if tables is None else parameters.unpack(self._tree, tables)
        values, dtype = (
            (np.asarray(self._params.logits, np.float64), self._params.dtype)
            if logits is None
            else _validate.logits(logits)
        )
        if values.shape[-1] != self.n_variables:
            raise ParameterError(
                f"`logits` must keep {self.n_variables} entries on the last axis; shape {values.shape} arrived. "
                "For another number of variables make a new CountModel."
            )
        return self._make(self._tree, parameters.collect(self._tree, values, dtype, potentials), self._method)

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def log_partition(self) -> Any:
        """Log Z, (...,): log of the sum of ``exp(logits . y) prod f`` over all y.

        A variable forced on by an infinite logit enters with weight one, so log Z stays finite.
        """
        return self._cached("log_partition", self._log_partition)

    @property
    def marginals(self) -> FloatArray:
        """P(y_d = 1), (..., D)."""
        return self._cached("marginals", lambda: self._vector(self._solution.marginals(self._params.nu)))

    @property
    def posterior_logits(self) -> FloatArray:
        """Log-odds of the marginals, (..., D), accurate where the marginals themselves round to 0 or 1."""
        return self._cached("posterior_logits", lambda: self._vector(self._odds))

    @property
    def cavity_logits(self) -> FloatArray:
        """What the potentials alone say about each variable, (..., D): posterior log-odds without the own logit.

        This is the message from the model to the variable in belief propagation; it is right also where logits are
        infinite, where ``posterior_logits - logits`` is not.
        """
        return self._cached(
            "cavity_logits", lambda: self._vector(self._params.singleton_logits + self._solution.messages())
        )

    @property
    def error_bound(self) -> Any:
        """Certified bound on the absolute error of every posterior log-odds and of log Z up to its rounding, (...,)."""
        return self._cached("error_bound", lambda: self._scalar(self._solution.bound))

    def count_log_probs(self, group: int | None = None) -> FloatArray:
        """Log-probabilities of the counts 0..n of a group, (..., n + 1).

        Parameters
        ----------
        group : int, optional
            Number of the group in the order given; default the count of all variables.

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
        return self._cached(("counts", index), lambda: self._vector(self._counts(index)))

    @property
    def expected_statistics(self) -> ExpectedStatistics:
        """Expected y and expected indicators of every count: the gradient of ``log_partition``."""
        return self._cached("expected_statistics", self._expected_statistics)

    def log_prob(self, y: ArrayLike) -> Any:
        """Log-probability of configurations.

        Parameters
        ----------
        y : array_like of 0 and 1, (..., D)
            Leading axes broadcast against the batch of models.

        Examples
        --------
        >>> tt.CountModel([0.0, 0.0], tt.exactly(1)).log_prob([[0, 1], [1, 1]])
        array([-0.69314718,        -inf])
        """
        states = parameters.states(y, self.n_variables)
        score = moments.log_weight(self._tree, self._params, states)
        return self._result(score - np.asarray(self.log_partition, np.float64))

    @property
    def entropy(self) -> Any:
        """Entropy in nats, (...,)."""
        # H = log Z - E[log weight]
        return self._cached(
            "entropy",
            lambda: self._result(np.asarray(self.log_partition, np.float64) - self._expected_score(self, 0)),
        )

    def kl_divergence(self, other: CountModel) -> Any:
        """Kullback-Leibler divergence KL(self || other) in nats, (...,).

        The groups of both models together must be nested. ``inf`` where ``other`` excludes what this model allows.

        Examples
        --------
        >>> p = tt.CountModel(np.zeros(2), tt.exactly(1))
        >>> round(float(p.kl_divergence(tt.CountModel(np.zeros(2)))), 6)
        0.693147
        """
        if not isinstance(other, CountModel) or other.n_variables != self.n_variables:
            raise ParameterError(
                f"`other` must be a CountModel over {self.n_variables} variables; {_validate.describe(other)} arrived."
            )
        # KL = E[log p] - E[log q~] + log Z_q, where E needs the counts of q's groups under p.
        family = other._tree.family
        joint = self._extended(self._tree.with_groups(list(other._tree.groups)), [None] * family.n_groups)
        score = joint._expected_score(other, self._tree.family.n_groups)
        divergence = (
            np.asarray(other.log_partition, np.float64) - score - np.asarray(self.entropy, np.float64)
        )
        return self._result(np.maximum(divergence, 0.0))  # rounding alone could make it negative

    # -- second order ------------------------------------------------------------------------------------------

    def covariance(self, rows: ArrayLike | None = None) -> FloatArray:
        """Covariance matrix of the variables, or selected rows of it.

        Parameters
        ----------
        rows : array_like of int, optional
            Variables whose rows are wanted; default all of them, (..., D, D).

        Returns
        -------
        array, (..., R, D)

        Notes
        -----
        Cost: two inferences per row, batched. Accuracy: 1e-12 absolute.

        Examples
        --------
        >>> tt.CountModel(np.zeros(2), tt.exactly(1)).covariance()
        array([[ 0.25, -0.25],
               [-0.25,  0.25]])
        """
        chosen = parameters.variables(rows, self.n_variables, "rows")
        odds = self._odds
        found = second_order.covariance_rows(self._tree, self._params, odds, chosen)
        if rows is None:
            found = 0.5 * (found + np.swapaxes(found, -1, -2))
        return self._block(found)

    def pairwise(self, i: ArrayLike | None = None, j: ArrayLike | None = None) -> Any:
        """Joint probabilities P(y_i = y_j = 1).

        Parameters
        ----------
        i, j : int or array_like of int, optional
            Variables, broadcast against each other; without them the full matrix (..., D, D) is returned.

        Notes
        -----
        Cost: one inference per distinct i, batched. Accuracy: 1e-10 relative.

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(4), tt.exactly(2))
        >>> round(float(model.pairwise(0, 1)), 6)
        0.166667
        """
        if (i is None) != (j is None):
            raise ParameterError("`pairwise` needs both `i` and `j`, or neither for the full matrix.")
        if i is None:
            everything = np.arange(self.n_variables)
            found = second_order.joint_probabilities(self._tree, self._params, self._odds, everything)
            return self._block(0.5 * (found + np.swapaxes(found, -1, -2)))
        first = parameters.variables(i, self.n_variables, "i")
        second = parameters.variables(j, self.n_variables, "j")
        first, second = np.broadcast_arrays(first, second)
        rows, place = np.unique(first, return_inverse=True)
        found = second_order.joint_probabilities(self._tree, self._params, self._odds, rows)
        picked = found[:, place.reshape(first.shape), second]
        return self._result(picked.reshape((*self.batch_shape, *np.shape(first))))

    def hessian_vector_product(
        self, logits: ArrayLike | None = None, tables: Any = None
    ) -> ExpectedStatistics:
        """Derivative of ``expected_statistics`` along a direction: the Hessian of log Z times a vector.

        Equals the covariance of every statistic with the direction's combination of statistics.

        Parameters
        ----------
        logits : array_like, (..., D), optional
            Direction in the log-odds.
        tables : sequence or packed array, optional
            Direction in the log-tables, one entry (or None) per group.

        Notes
        -----
        Cost: a few inferences, whatever the direction. Accuracy: 1e-10 relative to the largest entry.

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(3), tt.exactly(1))
        >>> model.hessian_vector_product([1.0, 0.0, 0.0]).logits.round(6)
        array([ 0.222222, -0.111111, -0.111111])
        """
        nu_direction, packed = self._params.direction(logits, tables)
        odds = self._odds
        change, counts = second_order.tangent(self._tree, self._params, nu_direction, packed, counts=True)
        assert counts is not None
        moved = expit(odds) * expit(-odds) * np.where(np.isfinite(odds), change, 0.0)
        groups = self._params.count_tangents(
            moved, counts, [self.count_log_probs(g) for g in range(self._n_groups)]
        )
        return ExpectedStatistics(self._vector(moved), tuple(self._vector(g) for g in groups))

    def count_covariance(self, first: int | None = None, second: int | None = None) -> Any:
        """Covariance of the counts of two groups (None: all variables), (...,).

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(4), [tt.Group([0, 1]), tt.Group([2, 3]), tt.Group(None, tt.exactly(2))])
        >>> round(float(model.count_covariance(0, 1)), 6)
        -0.333333
        """
        inside = [
            np.arange(self.n_variables) if g is None else self._tree.groups[self._group(g)]
            for g in (first, second)
        ]
        direction = np.zeros_like(self._params.nu)
        direction[:, inside[0]] = 1.0
        odds = self._odds
        nothing = np.zeros((len(direction), self._tree.program.table_total))
        change, _ = second_order.tangent(self._tree, self._params, direction, nothing, counts=False)
        moved = expit(odds) * expit(-odds) * np.where(np.isfinite(odds), change, 0.0)
        return self._scalar(moved[:, inside[1]].sum(-1))

    @property
    def _odds(self) -> Float64:
        """Posterior log-odds (B, D) in double precision."""
        return self._cached("odds", lambda: posterior(self._params.nu, self._solution.messages()))

    @property
    def _n_groups(self) -> int:
        return self._tree.family.n_groups

    def _block(self, values: Float64) -> FloatArray:
        """(B, R, m) to (..., R, m), in the dtype of the logits."""
        return values.reshape(*self.batch_shape, *values.shape[1:]).astype(self._params.dtype, copy=False)

    # -- evidence ----------------------------------------------------------------------------------------------

    def condition(self, evidence: Mapping[int, int]) -> CountModel:
        """The model given the values of some variables.

        ``log_partition`` of the result is that of the joint event, so a difference of two is a log-probability.

        Examples
        --------
        >>> tt.CountModel(np.zeros(3), tt.exactly(1)).condition({0: 0}).marginals
        array([0. , 0.5, 0.5])
        """
        if not isinstance(evidence, Mapping):
            raise ParameterError(
                "`evidence` must be a mapping {variable: 0 or 1}, such as {3: 1}; "
                f"{_validate.describe(evidence)} arrived."
            )
        variables, tables = parameters.evidence(evidence, self.n_variables)
        tree = self._tree.with_singletons(variables)
        return self._extended(tree, tables)

    def condition_count(self, group: int | None, count: int) -> CountModel:
        """The model given how many variables of a group (None: of all variables) are on.

        Examples
        --------
        >>> tt.CountModel([0.0, 0.0, -np.inf]).condition_count(None, 1).marginals
        array([0.5, 0.5, 0. ])
        """
        if group is None and self._whole() is None:
            if self.n_variables == 0:
                raise StructureError("`condition_count` needs a group, but the model has no variables.")
            c = _validate.count("count", count, self.n_variables, "the number of variables")
            return self._extended(self._tree.with_groups([None]), [parameters.one_hot(c, self.n_variables)])
        index = self._whole() if group is None else self._group(group)
        assert index is not None
        n = self._tree.group_size(index)
        c = _validate.count("count", count, n, "the number of variables in the group")
        return self.replace(tables={index: self._params.tables[index] + parameters.one_hot(c, n)})

    def _extended(self, tree: CountTree, extra: Sequence[Any]) -> CountModel:
        """The same model on a tree with more groups at the end of its list."""
        params = self._params
        potentials = [*params.potentials, *extra]
        values = np.asarray(params.logits, np.float64)
        return self._make(
            tree, parameters.collect(tree, values, params.dtype, potentials, params.constant), self._method
        )

    # -- how it is done ----------------------------------------------------------------------------------------

    @property
    def _solution(self) -> Solution:
        return self._cached("solution", self._solve)

    def _solve(self) -> Solution:
        params = self._params
        found = auto.infer(auto.Problem(self._tree, params.nu, params.packed, params.mixtures), self._method)
        if np.isneginf(found.log_mean).any() or np.isneginf(params.constant).any():
            self._refuse_impossible(found.log_mean)
        return found

    def _refuse_impossible(self, log_mean: Float64) -> NoReturn:
        dead = np.isneginf(log_mean) | np.isneginf(np.broadcast_to(self._params.constant, log_mean.shape))
        where = ""
        if self.batch_shape:
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(dead)), self.batch_shape))
            where = f" at batch index {index}"
        raise InfeasibleError(
            f"The model{where} gives probability zero to every configuration: no counts satisfy all potentials together "
            "with the variables that infinite logits or evidence fix. Relax a potential or an infinite logit."
        )

    def _log_partition(self) -> Any:
        found = self._solution
        return self._scalar(found.log_mean + moments.softplus_sum(self._params.nu) + self._params.constant)

    def _counts(self, group: int | None) -> Float64:
        if group is None:
            group = self._whole()
        self._solution  # noqa: B018 - raises for an impossible model
        if group is None and self.n_variables == 0:
            return np.zeros((len(self._params.nu), 1))
        if group is None:
            return self._extended(self._with_total, [None])._counts(-1)
        found = group_log_probs(
            self._tree, self._params, range(self._tree.family.n_groups)[group], self._cached
        )
        return found

    @property
    def _with_total(self) -> CountTree:
        return self._cached("tree with total", lambda: self._tree.with_groups([None]))

    def _whole(self) -> int | None:
        """A group that holds all variables."""
        family = self._tree.family
        if family.n_variables == 1:
            groups = np.flatnonzero(family.variable_of_group == 0)
        else:
            full = np.flatnonzero(family.set_size == family.n_variables)
            groups = np.flatnonzero(family.set_of_group == full[0]) if len(full) else full
        return int(groups[0]) if len(groups) else None

    def _expected_score(self, other: CountModel, first: int) -> Float64:
        """E[log weight under `other`], whose groups are groups ``first, first + 1, ...`` of this model."""
        counts = [
            np.asarray(self.count_log_probs(first + g), np.float64)
            for g in range(other._tree.family.n_groups)
        ]
        logits, marginals = np.asarray(other.logits, np.float64), np.asarray(self.marginals, np.float64)
        score = moments.expected_score(logits, marginals, other.tables, counts)
        return np.asarray(score + other._params.batch_constant)

    def _expected_statistics(self) -> ExpectedStatistics:
        counts = [np.exp(self.count_log_probs(i)) for i in range(self._tree.family.n_groups)]
        return ExpectedStatistics(self.marginals, tuple(counts))

    def _group(self, group: Any) -> int:
        number = _validate.integer("group", group)
        total = self._tree.family.n_groups
        if not -total <= number < total:
            raise ParameterError(
                f"`group` must be the number of a group, 0 to {total - 1}, or None for all variables; {number} arrived."
                if total
                else f"`group` must be None, because the model has no groups; {number} arrived."
            )
        return number % total

    def _cached(self, key: Any, compute: Callable[[], _T]) -> _T:
        found: _T | None = self._cache.get(key)
        if found is None:
            with self._lock:
                found = self._cache.get(key)
                if found is None:
                    found = self._cache[key] = compute()
        return found

    def _vector(self, values: Float64) -> FloatArray:
        """(B, m) to (..., m), in the dtype of the logits, read-only."""
        out = values.reshape(*self.batch_shape, values.shape[-1]).astype(self._params.dtype, copy=False)
        out.flags.writeable = False
        return out

    def _scalar(self, values: Float64) -> Any:
        return self._result(values.reshape(self.batch_shape))

    def _result(self, values: Any) -> Any:
        out = np.asarray(values).astype(self._params.dtype, copy=False)
        return out[()] if out.ndim == 0 else out

    # -- as a Python object ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        family = self._tree.family
        parts = [f"n_variables={family.n_variables}", f"n_groups={family.n_groups}"]
        if self.batch_shape:
            parts.append(f"batch_shape={self.batch_shape}")
        if self._method != "auto":
            parts.append(f"method={self._method!r}")
        return f"CountModel({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CountModel):
            return NotImplemented
        return (
            self._tree == other._tree and self._params.equal(other._params) and self._method == other._method
        )

    def __hash__(self) -> int:
        return hash((self._tree, self._params.logits.tobytes()))

    def __getstate__(self) -> dict[str, Any]:
        return {"tree": self._tree, "params": self._params, "method": self._method}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._setup(state["tree"], state["params"], state["method"])

    def __copy__(self) -> CountModel:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CountModel:
        return self  # frozen


def _structure(groups: Any, n: int) -> tuple[CountTree, Sequence[Any]]:
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
