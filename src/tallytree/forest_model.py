"""Count models with pairwise tables on the edges of a forest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from . import _validate, parameters
from .engine import forest_ladder, moments
from .engine.forest_pass import ForestAnswer, ForestProblem
from .engine.solution import Solution
from .errors import ParameterError
from .forest import Forest, check_members
from .maximization import Modes
from .model import CountModel, ExpectedStatistics, FloatArray, Float64, _structure
from .parameters import Parameters
from .structure.clusters import ClusterProgram
from .structure.contraction import contract, top_sets
from .structure.count_tree import CountTree

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ForestStatistics(ExpectedStatistics):
    """Gradient of ``log_partition`` of a model with edges: also ``edges`` (..., E, 2, 2), the edge marginals."""

    edges: FloatArray


class ForestCountModel(CountModel):
    """A count model with edges; made by ``CountModel(logits, groups, edges=forest)``.

    ``p(y) = exp(sum_d logits_d y_d) prod_(i,j) t_ij(y_i, y_j) prod_k f_k(sum_{d in group k} y_d) / Z``

    Parameters
    ----------
    logits, groups
        As for :class:`~tallytree.CountModel`. Groups must fit the edges: the edges that leave a group are covered by at
        most two vertices. All variables, subtrees, unions of subtrees with one parent and intervals of a chain do,
        nested as one likes.
    edges : Forest
        Pairs of variables and their log-tables.

    Notes
    -----
    Cost: O(D log^2 D) for any shape of the forest, plus the size of the tables; without groups that of ordinary belief
    propagation, O(D). Where rounding cannot be certified, O(D^2).

    Accuracy: as for :class:`~tallytree.CountModel`.

    Examples
    --------
    A chain whose neighbours agree more often than not; at least one of the first two on, four on in all:

    >>> chain = tt.Forest([(i, i + 1) for i in range(5)], 0.5)
    >>> groups = [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, tt.exactly(4))]
    >>> model = tt.CountModel(np.zeros(6), groups, edges=chain)
    >>> model
    CountModel(n_variables=6, n_groups=2, n_edges=5)
    >>> model.marginals.round(3)
    array([0.664, 0.703, 0.703, 0.703, 0.664, 0.564])
    """

    _forest: Forest
    _program: ClusterProgram

    def __init__(
        self, logits: ArrayLike, groups: Any = None, *, edges: Forest, method: str = "auto"
    ) -> None:
        values, dtype = _validate.logits(logits)
        n = values.shape[-1]
        forest = check_members(edges, n)
        if method != "auto":
            raise ParameterError(f'`method` must be "auto" for a model with edges; {method!r} arrived.')
        tree, potentials = _structure(groups, n)
        program = contract(n, forest.pairs, np.ones(n, np.int64), tree.family)
        params = parameters.collect(tree, _stretched(values, forest), dtype, potentials)
        self._equip(tree, params, forest, program)

    def _equip(
        self, tree: CountTree, params: Parameters, forest: Forest, program: ClusterProgram
    ) -> None:
        self._setup(tree, params, "auto")
        self._forest, self._program = forest, program

    def _derive(self, tree: CountTree, params: Parameters, forest: Forest | None = None) -> ForestCountModel:
        """A model on the same edges; the analysis is kept if the sets are the same."""
        model = ForestCountModel.__new__(ForestCountModel, None, edges=self._forest)
        family = tree.family
        same = family.n_sets == self._tree.family.n_sets  # singletons do not change the sets
        program = (
            self._program
            if same
            else contract(family.n_variables, self._forest.pairs, np.ones(family.n_variables, np.int64), family)
        )
        model._equip(tree, params, forest or self._forest, program)
        return model

    def _make(self, tree: CountTree, params: Parameters, method: str) -> CountModel:  # type: ignore[override]
        return self._derive(tree, params)

    @classmethod
    def from_tree(cls, tree: CountTree, logits: ArrayLike, tables: Any, *, method: str = "auto") -> CountModel:
        """A model without edges on an existing structure; see :meth:`CountModel.from_tree`."""
        return CountModel.from_tree(tree, logits, tables, method=method)

    # -- structure ---------------------------------------------------------------------------------------------

    @property
    def edges(self) -> Forest:
        """The forest."""
        return self._forest

    @property
    def width(self) -> int:
        """Largest number of boundary vertices that a group needs: 0, 1 or 2."""
        return self._program.width

    def boundary(self, group: int) -> tuple[int, ...]:
        """Vertices that cover the edges leaving a group: its table is summed up for every state of theirs."""
        index = self._group(group)
        s = int(self._tree.family.set_of_group[index])
        if s < 0:
            return (int(self._tree.family.variable_of_group[index]),)
        return self._program.set_boundary[s]

    def replace(
        self, *, logits: ArrayLike | None = None, tables: Any = None, edges: Any = None
    ) -> ForestCountModel:
        """The same structure with new parameters; nothing is analysed again.

        Parameters
        ----------
        logits, tables
            As in :meth:`CountModel.replace`.
        edges : Forest or array_like, optional
            A forest with the same pairs, or new log-tables or couplings for them.
        """
        forest = self._forest
        if edges is not None:
            forest = edges if isinstance(edges, Forest) else forest.replace(edges)
            if not np.array_equal(forest.pairs, self._forest.pairs):
                raise ParameterError("`edges` must keep the pairs of the model. For others make a new CountModel.")
        moved = self._derive(self._tree, self._params, forest)
        if logits is None and tables is None and moved._batch == self.batch_shape:
            return moved
        if logits is None:
            logits = np.asarray(self._params.logits)
        values, dtype = _validate.logits(logits)
        stretched = _stretched(values, forest).astype(dtype)
        found = CountModel.replace(moved, logits=stretched, tables=tables)
        assert isinstance(found, ForestCountModel)
        return found

    @property
    def _batch(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self._params.batch_shape, self._forest.batch_shape)

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def edge_marginals(self) -> FloatArray:
        """P(y_i, y_j) of every edge, (..., E, 2, 2), axes in the order of its pair."""
        return self._cached("edge_marginals", self._edge_marginals)

    def _edge_marginals(self) -> FloatArray:
        log_edges = self._answer.log_edges
        out = np.exp(log_edges).reshape(*self.batch_shape, *log_edges.shape[1:])
        out = out.astype(self._params.dtype, copy=False)
        out.flags.writeable = False
        return out

    def log_prob(self, y: ArrayLike) -> Any:
        """Log-probability of configurations, (..., D) of 0 and 1; leading axes broadcast against the batch."""
        states = parameters.states(y, self.n_variables)
        score = moments.log_weight(self._tree, self._params, states) + self._edge_weight(states)
        return self._result(score - np.asarray(self.log_partition, np.float64))

    def _edge_weight(self, states: NDArray[np.bool_]) -> Float64:
        pairs, tables = self._forest.pairs, self._forest.log_tables
        first, second = states[..., pairs[:, 0]], states[..., pairs[:, 1]]
        on = np.where(second, tables[..., 1, 1], tables[..., 1, 0])
        off = np.where(second, tables[..., 0, 1], tables[..., 0, 0])
        return np.asarray(np.where(first, on, off).sum(-1))

    def sample(self, size: int | tuple[int, ...] | None = None, rng: Any = None) -> NDArray[np.uint8]:
        """Exact joint samples, (*size, ..., D) of 0 and 1.

        Parameters
        ----------
        size : int or tuple of int, optional
            Number of samples per model; default one, without an axis of its own.
        rng : Generator, int or None
            A generator or a seed.

        Notes
        -----
        Cost: one inference, then O(D log D) per sample for a balanced spread of counts.

        Examples
        --------
        >>> chain = tt.Forest([(0, 1), (1, 2)], 2.0)
        >>> tt.CountModel(np.zeros(3), tt.exactly(1), edges=chain).sample(500, rng=0).sum(-1).max()
        np.uint8(1)
        """
        shape = () if size is None else (size,) if isinstance(size, (int, np.integer)) else tuple(size)
        if any(not isinstance(s, (int, np.integer)) or s < 0 for s in shape):
            raise ParameterError(f"`size` must be a non-negative integer, a tuple of them or None; {size!r} arrived.")
        generator = _validate.generator(rng)
        self._answer  # noqa: B018 - raises for an impossible model
        _, rungs, tilts = self._inferred
        found = forest_ladder.draw(self._problem, rungs, tilts, math.prod(shape), generator)
        return found.astype(np.uint8).reshape(*shape, *self.batch_shape, self.n_variables)

    @property
    def _problem(self) -> ForestProblem:
        return self._cached("problem", self._build)

    def _build(self) -> ForestProblem:
        params, tables = self._params, self._forest.log_tables
        nu = params.nu
        log_leaf = np.stack([np.where(nu == math.inf, -math.inf, 0.0), np.where(nu == math.inf, 0.0, nu)], axis=-1)
        edge_shape = (*self.batch_shape, *tables.shape[-3:])
        log_edge = (
            tables[None] if tables.ndim == 3 else np.broadcast_to(tables, edge_shape).reshape(-1, *tables.shape[-3:])
        )
        n = self.n_variables
        return ForestProblem(
            self._program, np.broadcast_to([0, 1], (n, 2)), log_leaf, log_edge, params.packed,
            self._tree.program.set_offset, top_sets(self._tree.family),
        )  # fmt: skip

    @property
    def _inferred(self) -> tuple[ForestAnswer, list[str], Float64]:
        return self._cached("inferred", lambda: forest_ladder.infer(self._problem))

    @property
    def _answer(self) -> ForestAnswer:
        found = self._inferred[0]
        if np.isneginf(found.log_z).any() or np.isneginf(self._params.constant).any():
            self._refuse_impossible(found.log_z)
        return found

    def _solve(self) -> Solution:
        found = self._answer
        on, off = found.messages[..., 1], found.messages[..., 0]
        same = on == off  # also where both are -inf
        messages = np.where(same, 0.0, on - np.where(same, 0.0, off))
        return Solution(found.log_z, found.bound, lambda: messages)

    def _log_partition(self) -> Any:
        return self._scalar(self._answer.log_z + self._params.constant)

    def _counts(self, group: int | None) -> Float64:
        self._answer  # noqa: B018 - raises for an impossible model
        group = self._whole() if group is None else group
        if group is None and self.n_variables == 0:
            return np.zeros((len(self._params.nu), 1))
        if group is None:
            return self._extended(self._with_total, [None])._counts(-1)
        family = self._tree.family
        index = range(family.n_groups)[group]
        s = int(family.set_of_group[index])
        if s < 0:
            odds = self._odds[:, int(family.variable_of_group[index])]
            return np.stack([-np.logaddexp(0.0, odds), -np.logaddexp(0.0, -odds)], axis=-1)
        offset = self._tree.program.set_offset
        tilts = self._inferred[2]
        packed = self._cached("beliefs", lambda: forest_ladder.relative_counts(self._problem, tilts))
        return np.asarray(packed[:, offset[s] : offset[s + 1]])

    def _expected_score(self, other: CountModel, first: int) -> Float64:
        score = super()._expected_score(other, first)
        if isinstance(other, ForestCountModel):
            probs, tables = np.asarray(self.edge_marginals, np.float64), other._forest.log_tables
            terms = np.where(probs > 0, probs * np.where(tables == -math.inf, 0.0, tables), 0.0)
            dead = ((probs > 0) & (tables == -math.inf)).any(axis=(-1, -2, -3))
            score = score + np.where(dead, -math.inf, terms.sum(axis=(-1, -2, -3)))
        return np.asarray(score)

    def _expected_statistics(self) -> ForestStatistics:
        found = super()._expected_statistics()
        return ForestStatistics(found.logits, found.tables, self.edge_marginals)

    def kl_divergence(self, other: CountModel) -> Any:
        """Kullback-Leibler divergence KL(self || other) in nats, (...,).

        ``other`` has the same edges or none; the groups of both must be nested and fit the edges.
        """
        if isinstance(other, ForestCountModel) and not np.array_equal(other.edges.pairs, self.edges.pairs):
            raise ParameterError("`other` must have the same edges as this model, or none.")
        return super().kl_divergence(other)

    # -- second order ------------------------------------------------------------------------------------------

    def pairwise(self, i: ArrayLike | None = None, j: ArrayLike | None = None) -> Any:
        """Joint probabilities P(y_i = y_j = 1), as :meth:`CountModel.pairwise`.

        Notes
        -----
        Cost: one inference per distinct i, batched.
        """
        if (i is None) != (j is None):
            raise ParameterError("`pairwise` needs both `i` and `j`, or neither for the full matrix.")
        n = self.n_variables
        if i is None:
            found = self._joint(np.arange(n))
            return self._block(0.5 * (found + np.swapaxes(found, -1, -2)))
        first, second = np.broadcast_arrays(parameters.variables(i, n, "i"), parameters.variables(j, n, "j"))
        rows, place = np.unique(first, return_inverse=True)
        picked = self._joint(rows)[:, place.reshape(first.shape), second]
        return self._result(picked.reshape((*self.batch_shape, *np.shape(first))))

    def covariance(self, rows: ArrayLike | None = None) -> FloatArray:
        """Covariance matrix of the variables, or selected rows of it, (..., R, D).

        Notes
        -----
        Cost: one inference per row, batched. Accuracy: 1e-12 absolute.
        """
        chosen = parameters.variables(rows, self.n_variables, "rows")
        means = expit(self._odds)
        found = self._joint(chosen) - means[:, chosen, None] * means[:, None, :]
        if rows is None:
            found = 0.5 * (found + np.swapaxes(found, -1, -2))
        return self._block(found)

    def count_covariance(self, first: int | None = None, second: int | None = None) -> Any:
        """Covariance of the counts of two groups (None: all variables), (...,).

        Notes
        -----
        Cost: one inference per variable of the first group, batched.
        """
        inside = [
            np.arange(self.n_variables) if g is None else self._tree.groups[self._group(g)] for g in (first, second)
        ]
        rows = np.asarray(self.covariance(inside[0]), np.float64)
        return self._result(rows[..., inside[1]].sum(axis=(-1, -2)))

    def _joint(self, rows: Ints) -> Float64:
        """P(y_i = 1, y_j = 1) for i in rows, (B, R, D): P(y_i = 1) times the marginals given y_i = 1."""
        problem, batch = self._problem, len(self._params.nu)
        odds = self._odds
        out = np.zeros((batch, len(rows), self.n_variables))
        room = max(1, (1 << 18) // max(1, self.n_variables))
        for b in range(batch):
            possible = np.flatnonzero(odds[b, rows] > -math.inf)
            for start in range(0, len(possible), room):
                part = possible[start : start + room]
                one = forest_ladder.take(problem, np.full(len(part), b))
                leaf = one.log_leaf.copy()
                leaf[np.arange(len(part)), rows[part], 0] = -math.inf
                found = forest_ladder.infer(replace(one, log_leaf=leaf))[0]
                belief = leaf + found.messages
                with np.errstate(invalid="ignore"):
                    given = expit(np.where(belief[..., 1] == belief[..., 0], 0.0, belief[..., 1] - belief[..., 0]))
                out[b, part] = expit(odds[b, rows[part]])[:, None] * given
        return out

    def hessian_vector_product(self, logits: ArrayLike | None = None, tables: Any = None) -> ExpectedStatistics:
        """Not available for models with edges."""
        raise ParameterError(
            "`hessian_vector_product` is not available for a model with edges. `covariance` gives rows of the Hessian."
        )

    # -- best configurations -----------------------------------------------------------------------------------

    def _maximize(self) -> tuple[NDArray[np.uint8], Any]:
        states, values = forest_ladder.best(self._problem)
        self._check_possible(values)
        out = states.astype(np.uint8).reshape(*self.batch_shape, self.n_variables)
        out.flags.writeable = False
        return out, self._scalar(values + self._params.constant)

    @property
    def _max_answer(self) -> ForestAnswer:
        return self._cached("max answer", lambda: forest_ladder.max_answer(self._problem))

    def _max_marginals(self) -> FloatArray:
        self._best  # noqa: B018 - raises for an impossible model
        found = self._max_answer
        belief = self._problem.log_leaf + found.messages
        values = belief - belief.max(axis=-1, keepdims=True) + found.log_z[:, None, None]
        values = values + np.reshape(self._params.constant, (-1, 1, 1))
        out = values.reshape(*self.batch_shape, *values.shape[1:]).astype(self._params.dtype, copy=False)
        out.flags.writeable = False
        return out

    def _max_counts(self, group: int | None) -> FloatArray:
        self._best  # noqa: B018 - raises for an impossible model
        group = self._whole() if group is None else group
        if group is None and self.n_variables == 0:
            return self._vector(np.zeros((len(self._params.nu), 1)) + np.reshape(self._params.constant, (-1, 1)))
        if group is None:
            whole = self._extended(self._with_total, [None])
            return whole._max_counts(whole._tree.family.n_groups - 1)
        family = self._tree.family
        s = int(family.set_of_group[group])
        if s < 0:
            return np.asarray(self.max_marginals[..., int(family.variable_of_group[group]), :])
        offset, found = self._tree.program.set_offset, self._max_answer
        belief = found.log_counts[:, offset[s] : offset[s + 1]]
        values = belief - belief.max(axis=1, keepdims=True) + found.log_z[:, None]
        return self._vector(values + np.reshape(self._params.constant, (-1, 1)))

    def mode_k(self, k: int) -> Modes:
        """Not available for models with edges."""
        raise ParameterError("`mode_k` is not available for a model with edges; `mode` gives the best configuration.")

    # -- as a Python object ------------------------------------------------------------------------------------

    def _extended(self, tree: CountTree, extra: Sequence[Any]) -> CountModel:
        params = self._params
        values = np.asarray(params.logits, np.float64)
        potentials = [*params.potentials, *extra]
        return self._derive(tree, parameters.collect(tree, values, params.dtype, potentials, params.constant))

    def _refuse_impossible(self, log_mean: Float64) -> NoReturn:
        try:
            super()._refuse_impossible(log_mean)
        except Exception as error:
            raise type(error)(str(error).replace("all potentials together", "all potentials and edges together")) from None

    def __repr__(self) -> str:
        parts = [f"n_variables={self.n_variables}", f"n_groups={self._n_groups}", f"n_edges={self._forest.n_edges}"]
        if self.batch_shape:
            parts.append(f"batch_shape={self.batch_shape}")
        return f"CountModel({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ForestCountModel):
            return False if isinstance(other, CountModel) else NotImplemented
        return self._forest == other._forest and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((super().__hash__(), self._forest))

    def __getstate__(self) -> dict[str, Any]:
        return {"tree": self._tree, "params": self._params, "forest": self._forest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tree, forest = state["tree"], state["forest"]
        n = tree.n_variables
        program = contract(n, forest.pairs, np.ones(n, np.int64), tree.family)
        self._equip(tree, state["params"], forest, program)

    def __reduce__(self) -> Any:
        return _restore, (self.__getstate__(),)


def _restore(state: Mapping[str, Any]) -> ForestCountModel:
    model = ForestCountModel.__new__(ForestCountModel, None, edges=state["forest"])
    model.__setstate__(dict(state))
    return model


def _stretched(values: Float64, forest: Forest) -> Float64:
    """Log-odds with the batch axes of the edges' tables too."""
    try:
        shape = np.broadcast_shapes(values.shape[:-1], forest.batch_shape)
    except ValueError:
        raise ParameterError(
            f"`edges` has batch shape {forest.batch_shape}, which does not broadcast against {values.shape[:-1]} of "
            "`logits`. Batch axes lead: logits (..., D), edge tables (..., E, 2, 2)."
        ) from None
    return np.broadcast_to(values, (*shape, values.shape[-1]))
