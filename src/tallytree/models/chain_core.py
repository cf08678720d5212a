"""A chain of labels as a forest with counts: weights, tables and one lazy inference."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..arrays import Float64, FloatArray, Ints
from ..engine import masks
from ..engine.answer import Answer
from ..engine.forest.solver import ForestSolver
from ..engine.log_sums import anchor, log_sum
from ..engine.problem import ForestProblem
from ..errors import InfeasibleError, ParameterError
from ..memo import cached
from ..potentials import Potential, as_potential
from ..structure.forest.structure import ForestStructure
from ..structure.nested.count_tree import CountTree
from .base import Model, rows_of
from .group import Group
from .parameters import packed_sets
from .pose import folded_sizes


class ChainNumbers(NamedTuple):
    """What a chain is made of, checked."""

    tree: CountTree
    potentials: tuple[Any, ...]
    unary: Float64
    transitions: Float64
    scores: Ints
    lengths: Ints | None
    dtype: np.dtype[Any]


class ChainCore(Model):
    """Parameters and inference of a chain; the base of :class:`~tallytree.ChainModel`, not used on its own."""

    _units: ClassVar[str] = "positions"

    def _setup(self, given: ChainNumbers, structure: ForestStructure | None = None) -> None:
        self._given = given
        self._tree, self._potentials, unary, transitions, self._scores, lengths, self._dtype = given
        self._unary, self._transitions = unary, transitions
        n = unary.shape[-2]
        if structure is None:
            pairs = np.stack([np.arange(n - 1), np.arange(1, n)], axis=-1)
            structure = ForestStructure(pairs, self._scores.max(axis=1), self._tree.family)
            structure.program  # noqa: B018 - refuses groups that do not fit
        self._structure = structure
        shapes = [unary.shape[:-2], transitions.shape[:-3]]
        shapes += [] if lengths is None else [lengths.shape]
        shapes += [np.shape(p)[:-1] for p in self._potentials if isinstance(p, np.ndarray)]
        try:
            self._batch_shape = np.broadcast_shapes(*shapes)
        except ValueError:
            raise ParameterError(
                f"Batch axes must broadcast against each other; shapes {shapes} arrived."
            ) from None
        for array in (self._unary, self._transitions, self._scores):
            array.flags.writeable = False

    # -- parameters --------------------------------------------------------------------------------------------

    @property
    def n_positions(self) -> int:
        """Number of positions T."""
        return int(self._unary.shape[-2])

    @property
    def n_labels(self) -> int:
        """Number of labels K."""
        return int(self._unary.shape[-1])

    @property
    def scores(self) -> Ints:
        """What each label adds to the counts, (T, K), read-only."""
        return self._scores

    @property
    def lengths(self) -> Ints:
        """Length of every sequence, (...)."""
        given = self._given.lengths
        return np.broadcast_to(np.array(self.n_positions) if given is None else given, self._batch_shape)

    @cached
    def log_marginals(self) -> FloatArray:
        """Log P(y_t = k), (..., T, K), accurate where probabilities round to 0; ``-inf`` past the end of a sequence.

        Raises
        ------
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        marginals

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.log_marginals[:, 1].round(4)
        array([-1.0986, -1.0986, -1.0986])
        """
        belief = self._beliefs.copy()
        belief[~self._inside] = -math.inf
        return self._vector(belief)

    # -- how it is done ----------------------------------------------------------------------------------------

    @cached
    def _beliefs(self) -> Float64:
        """Log-marginals (B, T, K), also behind the end, where every position rests."""
        belief = self._problem.log_leaf + self._answer.messages
        return np.asarray(belief - log_sum(belief, keepdims=True))

    @cached
    def _resting(self) -> Ints:
        """The label that positions behind the end take: one with the smallest score."""
        return np.asarray(self._scores.argmin(axis=1))

    @cached
    def _inside(self) -> NDArray[np.bool_]:
        """(B, T): whether a position is in its sequence."""
        return np.arange(self.n_positions) < self.lengths.reshape(-1, 1)

    @property
    def _offset(self) -> Ints:
        return self._structure.offset

    @property
    def _problem(self) -> ForestProblem:
        return self._made[0]

    @property
    def _constant(self) -> Float64:
        """What far numbers add to all log-weights alike, (B,); see :mod:`~tallytree.engine.masks`."""
        return np.asarray(self._made[1].sum(axis=1))

    @cached
    def _made(self) -> tuple[ForestProblem, Float64]:
        leaf = rows_of(self._unary, self._batch_shape, 2)
        edge = rows_of(self._transitions, self._batch_shape if self._transitions.ndim > 3 else (), 3)
        if not self._inside.all():
            rest = np.where(np.arange(self.n_labels) == self._resting[:, None], 0.0, -math.inf)
            leaf = np.where(self._inside[..., None], leaf, rest)
            edge = np.where(self._inside[:, 1:, None, None], edge, 0.0)
        leaf, of_leaves = masks.resolve_tables(leaf, 1)
        # Of a position's labels: messages are added to what is left, and round at its size.
        common = anchor(leaf)
        leaf = leaf - common
        edge, of_edges = masks.resolve_tables(edge, 2)
        tables = [masks.resolve_tables(self._table(g), 1) for g in range(self.n_groups)]
        far = of_leaves.sum(1) + of_edges.sum(1) + sum(base for _, base in tables)
        constants = np.concatenate([common[:, :, 0], np.broadcast_to(far, len(leaf))[:, None]], axis=1)
        rows, family = [table for table, _ in tables], self._tree.family
        # Potentials of groups of one position belong to the weights there.
        for g in np.flatnonzero(family.variable_of_group >= 0).tolist():
            t = int(family.variable_of_group[g])
            leaf[:, t] += rows[g][:, self._scores[t]]
        sets = [len(row) for g, row in enumerate(rows) if family.set_of_group[g] >= 0]
        packed = packed_sets(family, self._offset, rows, max(sets, default=1))
        folded = folded_sizes(family, self._offset, leaf, packed)
        return ForestProblem(self._structure, self._scores, leaf, edge, packed, folded), constants

    def _skipped(self, group: int) -> Ints:
        """What the positions behind the end add to a group's count, (B,)."""
        members = self._tree.groups[group]
        least = self._scores.min(axis=1)[members]
        return np.asarray((~self._inside[:, members] * least).sum(1))

    def _table(self, group: int) -> Float64:
        """Log-table (1 or B, n + 1) of a group over the counts of T positions."""
        members, given = self._tree.groups[group], self._potentials[group]
        degree = self._scores.max(axis=1)[members]
        largest = int(degree.sum())
        reach = (self._inside[:, members] * degree).sum(1)
        skipped = self._skipped(group)
        name = f"The table of group {group}"
        if isinstance(given, np.ndarray):
            whole = checks.log_table(given, largest, name=name)
            flat = rows_of(whole, self._batch_shape)
            if whole.ndim == 1 and bool((reach == largest).all()):
                return whole[None]
        elif bool((reach == largest).all()):
            whole = checks.log_table(given.log_table(largest), largest, name=name)
            checks.broadcast(self._batch_shape, [(name, whole.shape[:-1])], grow=False)
            return rows_of(whole, self._batch_shape if whole.ndim > 1 else ())
        else:
            checks.broadcast(self._batch_shape, [(name, given.batch_shape)], grow=False)
        out = np.full((len(reach), largest + 1), -math.inf)
        for b, (n, shift) in enumerate(zip(reach.tolist(), skipped.tolist())):
            if isinstance(given, np.ndarray):
                entries = flat[b, : n + 1]
            else:
                entries = given._member(tuple(map(int, np.unravel_index(b, self._batch_shape)))).log_table(n)
            out[b, shift : shift + n + 1] = entries
        return out

    @cached
    def _solver(self) -> ForestSolver:
        """Who answers; nothing is computed before it is asked."""
        return ForestSolver(self._problem)

    @cached
    def _answer(self) -> Answer:
        found = self._solver.sums
        self._check_possible(found.log_mean)
        return found

    def _single_count(self, position: int) -> Float64:
        log_p, score = self._beliefs[:, position], self._scores[position]
        columns = [log_p[:, score == c] for c in range(int(score.max()) + 1)]
        found = [log_sum(c) for c in columns]
        out = np.stack(found, axis=-1)
        out[~self._inside[:, position]] = np.where(np.arange(out.shape[1]) == 0, 0.0, -math.inf)
        return out

    def _count_rows(self, group: int) -> Float64:
        """Log-probabilities of the count of a group, (B, n + 1)."""
        s = int(self._tree.family.set_of_group[group])
        if s < 0:
            return self._single_count(int(self._tree.family.variable_of_group[group]))
        return self._without_skipped(group, self._solver.counts(s), -math.inf)

    def _without_skipped(self, group: int, rows: Float64, empty: float) -> Float64:
        """Rows (B, n + 1) over the counts of T positions as rows over the counts of the sequences themselves."""
        out = np.full_like(rows, empty)
        for b, k in enumerate(self._skipped(group).tolist()):
            out[b, : rows.shape[1] - k] = rows[b, k:]
        return out

    def _impossible(self, where: str, index: int) -> InfeasibleError:
        given = self._unary, self._transitions, *map(self._table, range(self.n_groups))
        return InfeasibleError(
            f"The model{where} gives probability zero to every sequence: no labels satisfy all potentials together "
            f"with the weights of -inf{masks.remark(*given)}. Relax a potential or a weight."
        )


def unary_weights(value: Any) -> tuple[Float64, np.dtype[Any]]:
    """Log-weights (..., T, K), and the dtype in which vectors are returned."""
    _, dtype = checks.real_array("log_unary", value, "labels")
    return log_values("log_unary", value), dtype


def log_values(name: str, value: Any) -> Float64:
    return checks.array(name, value, (..., "T", "K"), checks.LOGS, copy=True)


def transition_tables(value: Any, n: int, k: int) -> Float64:
    array = checks.array("log_transitions", value, (..., k, k), checks.LOGS, copy=True)
    if array.ndim == 2:
        return np.array(np.broadcast_to(array, (n - 1, k, k)))
    return checks.array("log_transitions", array, (..., n - 1, k, k), checks.LOGS)


def score_table(counted: Any, scores: Any, n: int, k: int) -> Ints:
    if scores is not None:
        if counted is not None:
            raise ParameterError("Give `counted` or `scores`, not both.")
        added = checks.array("scores", scores, (..., k), checks.WHOLE)
    else:
        labels = min(1, k - 1) if counted is None else counted
        added = np.zeros(k, np.int64)
        added[checks.array("counted", labels, (...,), checks.integers(0, k - 1, "labels"))] = 1
    return np.array(checks.spread("scores", added, (n, k)))


def sequence_lengths(value: Any, n: int) -> Ints | None:
    """Lengths of the sequences of a batch, at most the number of positions of `log_unary`."""
    return None if value is None else checks.array("lengths", value, (...,), checks.integers(1, n), copy=True)


def count_potential(value: Any) -> Any:
    if (
        isinstance(value, (Potential, str, int))
        or value is None
        or callable(value)
        or getattr(value, "ndim", 1) == 0
    ):
        return as_potential(value)  # which refuses text and numbers with advice
    if isinstance(value, (list, tuple)) and any(isinstance(v, (Group, Potential)) for v in value):
        raise ParameterError(
            "`counts` must be one potential, or a list of which every entry is a Group, such as "
            f"[Group(range(3), exactly(1))]; {checks.describe(value)} arrived. Wrap each potential in a Group."
        )
    array, _ = checks.real_array("counts", value, "counts")
    return np.array(array)


def count_groups(counts: Any, n: int) -> tuple[CountTree, list[Any]]:
    if counts is None or (isinstance(counts, (list, tuple)) and not counts):
        return CountTree.from_groups([], n), []
    groups = [counts] if isinstance(counts, Group) else counts
    if isinstance(groups, (list, tuple)) and groups and all(isinstance(g, Group) for g in groups):
        tree = CountTree.from_groups([g.members for g in groups], n)
        return tree, [count_potential(g.potential) for g in groups]
    if n == 1:
        return CountTree.from_groups([[0]], 1), [count_potential(counts)]
    return CountTree.flat(n), [count_potential(counts)]
