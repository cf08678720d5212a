"""`CountModel`: binary variables with log-odds, and potentials on how many are on in each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .. import _display, checks
from ..arrays import Float64, FloatArray
from ..engine.count import incremental, moments
from ..engine.count.derivatives import count_probabilities
from ..engine.solution import Solution
from ..errors import ParameterError, StructureError
from ..potentials import Potential
from ..structure.nested.count_tree import CountTree
from . import arguments, packed_parameters, parameters
from .information import Information
from .maximization import Maximization
from .sampling import Sampling
from .second_order import ExpectedStatistics, SecondOrder


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


class CountModel(Maximization, SecondOrder, Sampling, Information):
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
        Pairwise tables on the edges of a forest; see :class:`~tallytree.models.forest.ForestCountModel`.
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

    # The kind of model that `edges` asks for; the module that defines it builds on this one and fills it in.
    _edge_model: ClassVar[type[CountModel] | None] = None

    def __new__(cls, *args: Any, edges: Any = None, **options: Any) -> CountModel:
        return super().__new__(cls if edges is None or cls._edge_model is None else cls._edge_model)

    def __init__(
        self, logits: ArrayLike, groups: Any = None, *, edges: Any = None, method: str = "auto"
    ) -> None:
        values, dtype = parameters.logits_to_keep(logits)
        tree, potentials = _structure(groups, values.shape[-1])
        self._setup(tree, parameters.collect(tree, values, dtype, potentials), method)

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
            raise ParameterError(f"`tree` must be a CountTree; {checks.describe(tree)} arrived.")
        values, dtype = parameters.logits_to_keep(logits)
        if values.shape[-1] != tree.n_variables:
            raise ParameterError(
                f"`logits` must have {tree.n_variables} entries on the last axis, one per variable of the tree; "
                f"shape {values.shape} arrived."
            )
        return cls._make(tree, packed_parameters.from_user(tree, values, dtype, tables), method)

    def replace(self, *, logits: ArrayLike | None = None, tables: Any = None) -> CountModel:
        """The same structure with new parameters; nothing is analysed again.

        If this model has been solved and a single logit changes, ``log_partition`` of the result needs no inference;
        if only variables outside all groups change, none of its answers do.

        Parameters
        ----------
        logits : array_like, optional
            New log-odds.
        tables : sequence, packed array or mapping, optional
            As in :meth:`from_tree`, or ``{group: table}`` for those that change.
        """
        if isinstance(tables, Mapping):
            potentials = list(self._params.potentials)
            for group, value in tables.items():
                potentials[self._group(group)] = value
            tables = potentials
        values, dtype = (
            (np.asarray(self._params.logits, np.float64), self._params.dtype)
            if logits is None
            else parameters.logits_to_keep(logits)
        )
        if values.shape[-1] != self.n_variables:
            raise ParameterError(
                f"`logits` must keep {self.n_variables} entries on the last axis; shape {values.shape} arrived. "
                "For another number of variables make a new CountModel."
            )
        if tables is None:
            model = self._make(self._tree, parameters.with_logits(self._params, values, dtype), self._method)
            self._hand_over(model)
            return model
        params = packed_parameters.from_user(self._tree, values, dtype, tables, self._params.own_constant)
        return self._make(self._tree, params, self._method)

    def _hand_over(self, model: CountModel) -> None:
        """Give a model with the same tables what follows from the answers that this one has already."""
        solution, log_norm = self._cache.get("solution"), self._cache.get("log_norm")
        old, new = self._params, model._params
        if solution is None or old.nu.shape != new.nu.shape or old.dtype != new.dtype:
            return
        if np.isneginf(new.constant).any():  # a contradiction, which an inference of its own finds
            return
        changed = incremental.changed_variables(self._tree, old.nu, new.nu)
        if changed is None:
            return
        if incremental.only_free(self._tree, changed):
            model._cache["solution"] = Solution(solution.log_mean, solution.bound, solution.messages)
        elif len(changed) == 1 and log_norm is not None and self._tree.singleton_groups.size == 0:
            d = int(changed[0])
            step = incremental.log_partition_change(self._odds[:, d], old.nu[:, d], new.nu[:, d])
            if step is not None:
                model._cache["log_norm"] = log_norm + step

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
        states = arguments.states(y, self.n_variables)
        # What far numbers add to all configurations alike is in neither term.
        score = moments.log_weight(self._tree, self._params.near, states)
        return self._result(score - np.reshape(self._log_norm, self.batch_shape))

    # -- evidence ----------------------------------------------------------------------------------------------

    def condition(self, evidence: Mapping[int, int]) -> CountModel:
        """The model given the values of some variables.

        ``log_partition`` of the result is that of the joint event, so a difference of two is a log-probability.

        Examples
        --------
        >>> tt.CountModel(np.zeros(3), tt.exactly(1)).condition({0: 0}).marginals
        array([0. , 0.5, 0.5])
        """
        variables, tables = arguments.evidence(evidence, self.n_variables)
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
            c = checks.count("count", count, self.n_variables, "the number of variables")
            return self._extended(self._tree.with_groups([None]), [arguments.one_hot(c, self.n_variables)])
        index = self._whole() if group is None else self._group(group)
        assert index is not None
        n = self._tree.group_size(index)
        c = checks.count("count", count, n, "the number of variables in the group")
        return self.replace(tables={index: self._params.tables[index] + arguments.one_hot(c, n)})

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
        return ExpectedStatistics(self.marginals, self._count_probs())

    def _count_probs(self) -> tuple[FloatArray, ...]:
        """P(count) of every group, (..., n + 1) each, to 1e-12 absolute."""
        on = self.marginals  # raises for an impossible model
        packed = self._vector(count_probabilities(self._count_problem()))
        return self._params.group_counts(on, packed, total=1.0)

    # -- as a Python object ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        family = self._tree.family
        parts = [f"n_variables={family.n_variables}", f"n_groups={family.n_groups}"]
        if self.batch_shape:
            parts.append(f"batch_shape={self.batch_shape}")
        if self._method != "auto":
            parts.append(f"method={self._method!r}")
        return f"CountModel({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return _display.model_page(self)

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
    if isinstance(groups, (list, tuple)):
        _refuse_loose_entries(groups, n)
    if isinstance(groups, CountTree):
        raise ParameterError(
            "`groups` must be a potential or a list of Group; a CountTree arrived. "
            "Use `CountModel.from_tree(tree, logits, tables)`."
        )
    if isinstance(groups, (Mapping, set, frozenset)):
        raise ParameterError(
            "`groups` must be a potential or a list of Group, such as [Group([0, 1], exactly(1))]; "
            f"{checks.describe(groups)} arrived."
        )
    return CountTree.flat(n), [groups]


def _refuse_loose_entries(groups: Sequence[Any], n: int) -> None:
    """Refuse lists that hold anything but groups or the numbers of one log-table."""
    if groups and isinstance(groups[0], (int, float, np.number)):
        return  # a table, perhaps a long one; its numbers are checked where it is used
    for i, entry in enumerate(groups):
        if isinstance(entry, (Potential, str)) or entry is None or callable(entry):
            said = checks.describe(entry) if isinstance(entry, Potential) else "potential"
            raise ParameterError(
                f"Every entry of a list must be a Group, which says whom the potential is about; entry {i} of `groups` "
                f"is {checks.describe(entry)}. Write "
                f"Group(members, {said}), with members=None for all variables; a single potential over all variables "
                "needs no list."
            )
        pair = isinstance(entry, (list, tuple)) and any(isinstance(part, Potential) for part in entry)
        short = isinstance(entry, (list, tuple)) and len(entry) != n + 1
        if pair or short or isinstance(entry, (range, slice, set, frozenset, Mapping)):
            raise ParameterError(
                f"Every entry of a list must be a Group; entry {i} of `groups` is {checks.describe(entry)}. "
                "Write Group(members, potential), such as "
                "Group([0, 1], exactly(1)); rows of one log-table for a batch of models need "
                f"{n + 1} numbers each, log f(0), ..., log f({n})."
            )
    if any(isinstance(entry, Group) for entry in groups):
        raise ParameterError(
            "`groups` mixes Group objects with other values. Wrap every entry: Group(members, potential)."
        )
