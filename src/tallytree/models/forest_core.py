"""How a count model with edges finds its answers: sums, conditional models, maxima."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from ..arrays import Float64, FloatArray, Ints
from ..engine import far
from ..engine.count.derivatives import Derivatives
from ..engine.forest import entropy, ladder, plain, tangent
from ..engine.forest.conditional import conditional_derivatives
from ..engine.forest.problem import ForestAnswer, ForestProblem, folded_size
from ..engine.solution import Solution
from ..errors import InfeasibleError, ParameterError, StructureError
from ..structure.forest.clusters import ClusterProgram
from ..structure.forest.contraction import contract, top_sets
from ..structure.nested.count_tree import CountTree
from . import arguments
from .count import CountModel
from .edges import Forest
from .maximization import Modes
from .second_order import ExpectedStatistics


def analyse(tree: CountTree, forest: Forest) -> ClusterProgram:
    """How to sum up the groups of a tree over a forest; refuses groups that do not fit."""
    n = tree.n_variables
    return contract(n, forest.pairs, np.ones(n, np.int64), tree.family)


class ForestCore(CountModel):
    """Inference in a count model with edges; the base of :class:`ForestCountModel`, not used on its own."""

    _has_edges: ClassVar[bool] = True
    _forest: Forest
    _contracted: ClusterProgram | None

    @property
    def _program(self) -> ClusterProgram:
        """The analysed structure; without sets it is made only if it is needed."""
        if self._contracted is None:
            self._contracted = analyse(self._tree, self._forest)
        return self._contracted

    @property
    def _problem(self) -> ForestProblem:
        return self._cached("problem", self._build)

    def _build(self) -> ForestProblem:
        log_leaf, log_edge = self._weights()
        score = np.broadcast_to([0, 1], (self.n_variables, 2))
        family, offset, packed = self._tree.family, self._tree.program.set_offset, self._params.packed
        folded = self._folded(log_leaf)
        shared = np.bincount(family.set_of_group[family.set_of_group >= 0], minlength=family.n_sets) > 1
        for s in np.flatnonzero(shared).tolist():
            folded += folded_size(packed[:, offset[s] : offset[s + 1]])
        return ForestProblem(
            self._program, score, log_leaf, log_edge, packed, offset, top_sets(family), folded
        )

    def _folded(self, log_leaf: Float64) -> float:
        """Where tables of single variables were added to the weights: the magnitudes at which they were rounded."""
        alone = self._tree.family.variable_of_group
        return sum((folded_size(log_leaf[:, v]) for v in np.unique(alone[alone >= 0]).tolist()), 0.0)

    def _weights(self) -> tuple[Float64, Float64]:
        """Log-weights of the states of the variables (B, D, 2) and of the pairs (1 or B, E, 2, 2)."""
        params, tables = self._params.near, self._near_edges[0]
        logits = np.asarray(params.logits, np.float64)
        batch, n = math.prod(self.batch_shape), self.n_variables
        logits = np.broadcast_to(logits, (*self.batch_shape, n)).reshape(batch, n)
        forced = logits == math.inf
        log_leaf = np.stack([np.where(forced, -math.inf, 0.0), np.where(forced, 0.0, logits)], axis=-1)
        # Both entries of the table of a single variable: their difference alone would not carry their size.
        for g in self._tree.singleton_groups.tolist():
            log_leaf[:, int(self._tree.family.variable_of_group[g])] += params.rows(g)
        if tables.ndim == 3:
            return log_leaf, tables[None]
        shape = tables.shape[-3:]
        return log_leaf, np.broadcast_to(tables, (*self.batch_shape, *shape)).reshape(batch, *shape)

    @property
    def _inferred(self) -> tuple[ForestAnswer, list[str], Float64]:
        return self._cached("inferred", self._infer)

    def _infer(self) -> tuple[ForestAnswer, list[str], Float64]:
        if self._tree.family.n_sets == 0:
            rooted = self._cached("rooting", lambda: plain.rooting(self.n_variables, self._forest.pairs))
            log_leaf, log_edge = self._weights()
            found = plain.propagate(rooted, log_leaf, log_edge, self._folded(log_leaf))
            if found is not None:
                return found, ["direct"] * len(found.log_z), np.zeros((len(found.log_z), 0))
        return ladder.infer(self._problem)

    @property
    def _answer(self) -> ForestAnswer:
        found = self._inferred[0]
        if np.isneginf(found.log_z).any() or np.isneginf(self._params.own_constant).any():
            self._refuse_impossible(found.log_z)
        return found

    def _solve(self) -> Solution:
        found = self._answer
        on, off = found.messages[..., 1], found.messages[..., 0]
        same = on == off  # also where both are -inf
        messages = np.where(same, 0.0, on - np.where(same, 0.0, off))
        return Solution(found.log_z, found.bound, lambda: messages)

    def _cavities(self) -> Float64:
        # No message holds its receiver's own log-odds, so that they are right for infinite ones too.
        return self._solution.messages()

    @property
    def _near_edges(self) -> tuple[Float64, Float64]:
        """Edge tables (..., E, 2, 2) with far entries -inf, and what they add to all log-weights, (...)."""
        tables = self._forest.log_tables
        return self._cached("near edges", lambda: _summed(*far.near_tables(tables, 2)))

    def _log_partition(self) -> Any:
        return self._scalar(self._answer.log_z + self._constant)

    def _find_log_norm(self) -> Float64:
        return np.asarray(self._answer.log_z + self._params.own_constant)

    @property
    def _constant(self) -> Any:
        """Part of all log-weights that no variable can change, (B,)."""
        edges = np.broadcast_to(self._near_edges[1], self.batch_shape).reshape(-1)
        return self._params.own_constant + self._params.far_constant + edges

    def _entropy(self) -> Float64:
        answer, (_, _, tilts) = self._answer, self._inferred
        packed = np.zeros((len(answer.log_z), 0))
        if self._tree.family.n_sets:
            packed = self._cached("beliefs", lambda: ladder.relative_counts(self._problem, tilts))
        return entropy.entropy(self._problem, answer, packed).reshape(self.batch_shape)

    def _counts(self, group: int | None) -> Float64:
        self._answer  # noqa: B018 - raises for an impossible model
        group = self._whole() if group is None else group
        if group is None and self.n_variables == 0:
            return np.zeros((len(self._params.nu), 1))
        if group is None:
            return self._totalled()._counts(-1)
        family = self._tree.family
        index = range(family.n_groups)[group]
        s = int(family.set_of_group[index])
        if s < 0:
            odds = self._odds[:, int(family.variable_of_group[index])]
            return np.stack([-np.logaddexp(0.0, odds), -np.logaddexp(0.0, -odds)], axis=-1)
        offset = self._tree.program.set_offset
        tilts = self._inferred[2]
        packed = self._cached("beliefs", lambda: ladder.relative_counts(self._problem, tilts))
        return np.asarray(packed[:, offset[s] : offset[s + 1]])

    def _totalled(self) -> Self:
        """The same model with a group of all variables."""
        try:
            return self._extended(self._with_total, [None])
        except StructureError:
            raise StructureError(
                "The count of all variables does not fit the edges together with the groups of this model: a group of "
                "all variables would not be allowed beside them. Ask for the count of a group."
            ) from None

    def _refuse_impossible(self, log_mean: Float64) -> NoReturn:
        try:
            super()._refuse_impossible(log_mean)
        except InfeasibleError as error:
            text = str(error).replace("all potentials together", "all potentials and edges together")
            raise InfeasibleError(text) from None

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
        first, second = np.broadcast_arrays(arguments.variables(i, n, "i"), arguments.variables(j, n, "j"))
        rows, place = np.unique(first, return_inverse=True)
        picked = self._joint(rows)[:, place.reshape(first.shape), second]
        return self._entries(picked.reshape((*self.batch_shape, *np.shape(first))))

    def covariance(self, rows: ArrayLike | None = None) -> FloatArray:
        """Covariance matrix of the variables, or selected rows of it, (..., R, D).

        Notes
        -----
        Cost: one inference per row, batched. Accuracy: 1e-12 absolute.
        """
        chosen = arguments.variables(rows, self.n_variables, "rows")
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
            np.arange(self.n_variables) if g is None else self._tree.groups[self._group(g)]
            for g in (first, second)
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
                one = ladder.take(problem, np.full(len(part), b))
                leaf = one.log_leaf.copy()
                leaf[np.arange(len(part)), rows[part], 0] = -math.inf
                found = ladder.infer(replace(one, log_leaf=leaf))[0]
                belief = leaf + found.messages
                with np.errstate(invalid="ignore"):
                    given = expit(
                        np.where(belief[..., 1] == belief[..., 0], 0.0, belief[..., 1] - belief[..., 0])
                    )
                out[b, part] = expit(odds[b, rows[part]])[:, None] * given
        return out

    def hessian_vector_product(
        self, logits: ArrayLike | None = None, tables: Any = None, *, counts: bool = True
    ) -> ExpectedStatistics:
        """Derivative of the expected statistics along a direction, as :meth:`CountModel.hessian_vector_product`.

        Notes
        -----
        Cost: about one inference with at most one group of several variables, otherwise one per variable; tables of
        several such groups cannot move.
        """
        problem, (answer, _, tilts) = self._problem, self._inferred
        v, h = self._direction(logits, tables)
        if len(problem.offset) > 2 and h.any():
            raise ParameterError(
                "`tables` must be left out for a model with edges and several groups: `hessian_vector_product` moves "
                "the logits there, and the table of a single group."
            )
        found, left = Derivatives(np.empty((1, *v.shape)), np.empty((1, *h.shape))), np.arange(len(v))
        if tangent.serves(problem):
            found, left = tangent.forest_derivatives(problem, answer, tilts, v[None], h[None])
        assert found.counts is not None
        if len(left):
            again = conditional_derivatives(
                ladder.take(problem, left),
                ladder.take_answer(answer, left),
                v[None, left],
                h[None, left],
            )
            found.marginals[:, left], found.counts[:, left] = again.marginals, again.counts
        moved = self._vector(found.marginals[0])
        if not counts:
            return ExpectedStatistics(moved, ())
        packed = self._vector(found.counts[0])
        return ExpectedStatistics(moved, self._params.group_counts(moved, packed, total=0.0))

    # -- best configurations -----------------------------------------------------------------------------------

    def _maximize(self) -> tuple[NDArray[np.uint8], Any]:
        states, values = ladder.best(self._problem)
        self._check_possible(values)
        out = states.astype(np.uint8).reshape(*self.batch_shape, self.n_variables)
        out.flags.writeable = False
        return out, self._scalar(values + self._constant)

    @property
    def _max_answer(self) -> ForestAnswer:
        return self._cached("max answer", lambda: ladder.max_answer(self._problem))

    def _max_marginals(self) -> FloatArray:
        self._best  # noqa: B018 - raises for an impossible model
        found = self._max_answer
        belief = self._problem.log_leaf + found.messages
        values = belief - belief.max(axis=-1, keepdims=True) + found.log_z[:, None, None]
        values = values + np.reshape(self._constant, (-1, 1, 1))
        out = np.asarray(values, self._params.dtype).reshape(*self.batch_shape, *values.shape[1:])
        out.flags.writeable = False
        return out

    def _max_counts(self, group: int | None) -> FloatArray:
        self._best  # noqa: B018 - raises for an impossible model
        group = self._whole() if group is None else group
        if group is None and self.n_variables == 0:
            return self._vector(np.zeros((len(self._params.nu), 1)) + np.reshape(self._constant, (-1, 1)))
        if group is None:
            whole = self._totalled()
            return np.asarray(whole._max_counts(whole._tree.family.n_groups - 1))
        family = self._tree.family
        s = int(family.set_of_group[group])
        if s < 0:
            return np.asarray(self.max_marginals[..., int(family.variable_of_group[group]), :])
        offset, found = self._tree.program.set_offset, self._max_answer
        belief = found.log_counts[:, offset[s] : offset[s + 1]]
        values = belief - belief.max(axis=1, keepdims=True) + found.log_z[:, None]
        return self._vector(values + np.reshape(self._constant, (-1, 1)))

    def mode_k(self, k: int) -> Modes:
        """Not available for models with edges."""
        raise ParameterError(
            "`mode_k` is not available for a model with edges; `mode` gives the best configuration."
        )


def _summed(tables: Float64, constants: Float64) -> tuple[Float64, Float64]:
    return tables, np.asarray(constants.sum(axis=-1))
