"""`ChainModel`: sequences of labels with potentials on how often labels occur."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _validate
from .engine import forest_ladder
from .engine.forest_pass import ForestAnswer, ForestProblem
from .errors import InfeasibleError, ParameterError
from .model import Group
from .potentials import Potential, as_potential
from .structure.clusters import ClusterProgram
from .structure.contraction import contract, top_sets
from .structure.count_tree import CountTree

Float64 = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ChainStatistics:
    """Gradient of ``log_partition``: ``unary`` (..., T, K), ``transitions`` (..., T - 1, K, K), ``tables`` by group."""

    unary: Float64
    transitions: Float64
    tables: tuple[Float64, ...]


class ChainModel:
    """A chain of labels, as in a hidden Markov model or a chain CRF, with potentials on counts.

    ``p(y) = prod_t exp(unary_t(y_t)) prod_t exp(transitions_t(y_t, y_t+1)) prod_i f_i(sum_{t in group i} score_t(y_t)) / Z``

    Parameters
    ----------
    log_unary : array_like, (..., T, K)
        Log-weight of every label at every position, ``-inf`` where it is impossible. Leading axes are a batch.
    log_transitions : array_like, (K, K), (T - 1, K, K) or (..., T - 1, K, K)
        Log-weight of every pair of neighbouring labels ``[from, to]``; it may change with the position.
    counts : potential or sequence of Group, optional
        One potential on the count of the whole sequence, or :class:`~tallytree.Group` objects whose members are positions:
        intervals, nested or disjoint.
    counted : int or sequence of int, optional
        The label, or the labels, that are counted; default 1.
    scores : array_like of int, (K,) or (T, K), optional
        Instead: what each label adds to the counts, not negative.
    lengths : array_like of int, (...), optional
        Length of every sequence; entries behind its end are ignored. Default T.

    Notes
    -----
    Cost: O(K^3 T log^2 T); tables that no count concerns, O(K^3 T). ``mode`` takes O(K^3 T^2).

    Accuracy: log-marginals to 1e-9 absolute or 1e-10 relative, ``log_partition`` to 1e-10 (1 + abs(log Z)).

    Behind the end of a sequence marginals are 0 and labels are -1. A potential sees the counts that the sequence can
    reach: of an array of log-values the first ones.

    Examples
    --------
    Three positions, two labels that rather stay; exactly one position has label 1:

    >>> stay = np.log([[0.9, 0.1], [0.1, 0.9]])
    >>> model = tt.ChainModel(np.zeros((3, 2)), stay, tt.exactly(1))
    >>> model
    ChainModel(n_positions=3, n_labels=2, n_groups=1)
    >>> model.marginals[:, 1].round(3)
    array([0.474, 0.053, 0.474])
    """

    def __init__(
        self, log_unary: ArrayLike, log_transitions: ArrayLike, counts: Any = None, *,
        counted: Any = None, scores: ArrayLike | None = None, lengths: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        unary = _log_values("log_unary", log_unary, 2)
        n, k = unary.shape[-2:]
        if n == 0 or k == 0:
            raise ParameterError(f"`log_unary` needs at least one position and one label; shape {unary.shape} arrived.")
        transitions = _transitions(log_transitions, n, k)
        self._scores = _scores(counted, scores, n, k)
        tree, potentials = _groups(counts, n)
        self._setup(tree, potentials, unary, transitions, _lengths(lengths, n), None)

    def _setup(
        self, tree: CountTree, potentials: Sequence[Any], unary: Float64, transitions: Float64, lengths: Ints | None,
        program: ClusterProgram | None,
    ) -> None:  # fmt: skip
        self._tree, self._potentials = tree, tuple(potentials)
        self._unary, self._transitions, self._lengths = unary, transitions, lengths
        n = unary.shape[-2]
        degree = self._scores.max(axis=1)
        pairs = np.stack([np.arange(n - 1), np.arange(1, n)], axis=-1)
        self._program = contract(n, pairs, degree, tree.family) if program is None else program
        shapes = [unary.shape[:-2], transitions.shape[:-3]]
        shapes += [] if lengths is None else [lengths.shape]
        shapes += [np.shape(p)[:-1] for p in potentials if isinstance(p, np.ndarray)]
        try:
            self._batch_shape = np.broadcast_shapes(*shapes)
        except ValueError:
            raise ParameterError(f"Batch axes must broadcast against each other; shapes {shapes} arrived.") from None
        for array in (self._unary, self._transitions, self._scores):
            array.flags.writeable = False
        self._lock = threading.RLock()

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
    def n_groups(self) -> int:
        """Number of groups with a potential."""
        return self._tree.family.n_groups

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of every answer."""
        return self._batch_shape

    @property
    def scores(self) -> Ints:
        """What each label adds to the counts, (T, K), read-only."""
        return self._scores

    @property
    def lengths(self) -> Ints:
        """Length of every sequence, (...)."""
        full = np.array(self.n_positions) if self._lengths is None else self._lengths
        return np.broadcast_to(full, self._batch_shape)

    def replace(
        self, *, log_unary: ArrayLike | None = None, log_transitions: ArrayLike | None = None, tables: Any = None
    ) -> ChainModel:
        """The same structure with new numbers; ``tables`` has one potential per group."""
        unary = self._unary if log_unary is None else _log_values("log_unary", log_unary, 2)
        n, k = self.n_positions, self.n_labels
        if unary.shape[-2:] != (n, k):
            raise ParameterError(f"`log_unary` must keep shape (..., {n}, {k}); shape {unary.shape} arrived.")
        transitions = self._transitions if log_transitions is None else _transitions(log_transitions, n, k)
        potentials = self._potentials
        if tables is not None:
            potentials = tuple(_potential(p) for p in tables)
            if len(potentials) != self.n_groups:
                raise ParameterError(f"`tables` must have {self.n_groups} entries; {len(potentials)} arrived.")
        return self._with(self._tree, potentials, unary, transitions, self._program)

    def _with(
        self, tree: CountTree, potentials: Sequence[Any], unary: Float64, transitions: Float64,
        program: ClusterProgram | None,
    ) -> ChainModel:  # fmt: skip
        new = ChainModel.__new__(ChainModel)
        new._scores = self._scores
        new._setup(tree, potentials, unary, transitions, self._lengths, program)
        return new

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def log_partition(self) -> Any:
        """Log Z, (...,)."""
        return self._shaped(self._answer.log_z)

    @cached_property
    def log_marginals(self) -> Float64:
        """Log P(y_t = k), (..., T, K), accurate where probabilities round to 0; ``-inf`` behind the end."""
        belief = self._problem.log_leaf + self._answer.messages
        belief = belief - forest_ladder.log_sum(belief)[..., None]
        belief[~self._inside] = -math.inf
        return self._frozen(belief)

    @cached_property
    def marginals(self) -> Float64:
        """P(y_t = k), (..., T, K)."""
        found = np.exp(self.log_marginals)
        found.flags.writeable = False
        return found

    @cached_property
    def edge_marginals(self) -> Float64:
        """P(y_t = j, y_t+1 = k), (..., T - 1, K, K)."""
        pairs = np.exp(self._answer.log_edges)
        pairs[~self._inside[:, 1:]] = 0.0
        return self._frozen(pairs)

    @property
    def error_bound(self) -> Any:
        """Certified bound on the absolute error of differences of log-marginals, (...,)."""
        return self._shaped(self._answer.bound)

    def count_log_probs(self, group: int | None = None) -> Float64:
        """Log-probabilities of the count of a group, (..., n + 1); default the count of the whole sequence.

        n is the largest count that T positions can reach.
        """
        index = self._whole() if group is None else self._group(group)
        if index is None:
            tree = self._tree.with_groups([None])
            more = self._with(tree, [*self._potentials, _potential(None)], self._unary, self._transitions, None)
            return more.count_log_probs(more.n_groups - 1)
        self._answer  # noqa: B018 - raises for an impossible model
        s = int(self._tree.family.set_of_group[index])
        if s < 0:
            return self._single_count(int(self._tree.family.variable_of_group[index]))
        found = self._counts[:, self._offset[s] : self._offset[s + 1]]
        shift = self._skipped(index)
        out = np.full_like(found, -math.inf)
        for b, k in enumerate(shift.tolist()):
            out[b, : found.shape[1] - k] = found[b, k:]
        return self._frozen(out)

    @cached_property
    def expected_statistics(self) -> ChainStatistics:
        """The gradient of ``log_partition``."""
        counts = tuple(np.exp(self.count_log_probs(g)) for g in range(self.n_groups))
        return ChainStatistics(self.marginals, self.edge_marginals, counts)

    def log_prob(self, labels: ArrayLike) -> Any:
        """Log-probability of sequences of labels, (..., T); what stands behind the end is ignored."""
        y = np.asarray(labels)
        n = self.n_positions
        if y.ndim == 0 or y.shape[-1] != n or y.dtype.kind not in "iu":
            raise ParameterError(f"`labels` must be integers (..., {n}); {_validate.describe(y)} arrived.")
        shape = np.broadcast_shapes(y.shape[:-1], self._batch_shape)
        y = np.broadcast_to(y, (*shape, n))
        inside = np.broadcast_to(np.arange(n) < self.lengths[..., None], y.shape)
        if (inside & ((y < 0) | (y >= self.n_labels))).any():
            raise ParameterError(f"`labels` must be between 0 and {self.n_labels - 1}.")
        y = np.where(inside, y, self._resting)
        return np.asarray(self._log_weight(y) - self.log_partition)[()]

    def _log_weight(self, y: Ints) -> Float64:
        problem, n = self._problem, self.n_positions
        shape = y.shape[:-1]
        rows = np.broadcast_to(np.arange(len(problem.log_leaf)).reshape(self._batch_shape), shape)[..., None]
        total = problem.log_leaf[rows, np.arange(n), y].sum(-1)
        edge_rows = rows if len(problem.log_edge) > 1 else np.zeros_like(rows)
        total = total + problem.log_edge[edge_rows, np.arange(n - 1), y[..., :-1], y[..., 1:]].sum(-1)
        score = self._scores[np.arange(n), y]
        table_rows = rows[..., 0] if len(problem.tables) > 1 else np.zeros(shape, np.int64)
        family = self._tree.family
        for s in range(family.n_sets):
            members = family.order[family.start[s] : family.stop[s]]
            total = total + problem.tables[table_rows, self._offset[s] + score[..., members].sum(-1)]
        return np.asarray(total)

    def sample(self, size: int | tuple[int, ...] | None = None, rng: Any = None) -> Ints:
        """Exact joint samples of label sequences, (*size, ..., T); -1 behind the end."""
        shape = () if size is None else (size,) if isinstance(size, (int, np.integer)) else tuple(size)
        generator = _validate.generator(rng)
        self._answer  # noqa: B018 - raises for an impossible model
        _, rungs, tilts = self._inferred
        found = forest_ladder.draw(self._problem, rungs, tilts, math.prod(shape), generator)
        found[:, ~self._inside] = -1
        return found.reshape(*shape, *self._batch_shape, self.n_positions)

    def mode(self) -> Ints:
        """A most probable sequence of labels, (..., T); -1 behind the end.

        Notes
        -----
        Cost: O(K^3 T^2): Viterbi over labels and counts, in (max, +).
        """
        states, values = forest_ladder.best(self._problem)
        self._check_possible(values)
        states[~self._inside] = -1
        return states.reshape(*self._batch_shape, self.n_positions)

    @property
    def entropy(self) -> Any:
        """Entropy in nats, (...,)."""
        problem, answer = self._problem, self._answer
        expected = _expectation(np.exp(self._flat(self.log_marginals, 2)), problem.log_leaf)
        expected = expected + _expectation(self._flat(self.edge_marginals, 3), problem.log_edge)
        if problem.tables.shape[1]:
            expected = expected + _expectation(np.exp(self._counts), problem.tables)
        return self._shaped(answer.log_z - expected)

    def condition(self, evidence: Mapping[int, int]) -> ChainModel:
        """The model given the labels at some positions, ``{position: label}``."""
        unary = np.array(self._unary)
        for position, label in evidence.items():
            t = _validate.count("evidence", position, self.n_positions - 1, "the last position")
            k = _validate.count("evidence", label, self.n_labels - 1, "the last label")
            others = np.arange(self.n_labels) != k
            unary[..., t, others] = -math.inf
        return self._with(self._tree, self._potentials, unary, self._transitions, self._program)

    def condition_count(self, group: int | None, count: int) -> ChainModel:
        """The model given the count of a group (None: of the whole sequence)."""
        from .potentials import exactly

        members = None if group is None else self._tree.groups[self._group(group)]
        degree = self._scores.max(axis=1)
        largest = int(degree.sum() if members is None else degree[members].sum())
        c = _validate.count("count", count, largest, "the largest count that the group can reach")
        tree = self._tree.with_groups([members])
        return self._with(tree, [*self._potentials, exactly(c)], self._unary, self._transitions, None)

    # -- how it is done ----------------------------------------------------------------------------------------

    @cached_property
    def _resting(self) -> Ints:
        """The label that positions behind the end take: one with the smallest score."""
        return np.asarray(self._scores.argmin(axis=1))

    @cached_property
    def _inside(self) -> NDArray[np.bool_]:
        """(B, T): whether a position is in its sequence."""
        return np.arange(self.n_positions) < self.lengths.reshape(-1, 1)

    @cached_property
    def _offset(self) -> Ints:
        family, degree = self._tree.family, self._scores.max(axis=1)
        before = np.concatenate([[0], np.cumsum(degree[family.order])])
        sizes = before[family.stop] - before[family.start] + 1
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @cached_property
    def _problem(self) -> ForestProblem:
        batch, n, k = math.prod(self._batch_shape), self.n_positions, self.n_labels
        leaf = np.broadcast_to(self._unary, (*self._batch_shape, n, k)).reshape(batch, n, k)
        edge = self._transitions
        edge = edge[None] if edge.ndim == 3 else np.broadcast_to(edge, (*self._batch_shape, n - 1, k, k)).reshape(-1, n - 1, k, k)
        if not self._inside.all():
            leaf, edge = leaf.copy(), np.broadcast_to(edge, (batch, n - 1, k, k)).copy()
            rest = np.where(np.arange(k) == self._resting[:, None], 0.0, -math.inf)
            leaf = np.where(self._inside[..., None], leaf, rest)
            edge[~self._inside[:, 1:]] = 0.0
        leaf = self._with_single_positions(leaf)
        return ForestProblem(
            self._program, self._scores, leaf, edge, self._packed(), self._offset, top_sets(self._tree.family)
        )

    def _with_single_positions(self, leaf: Float64) -> Float64:
        """Potentials of groups of one position belong to the weights there."""
        family = self._tree.family
        alone = np.flatnonzero(family.variable_of_group >= 0).tolist()
        if alone:
            leaf = leaf.copy()
        for g in alone:
            t = int(family.variable_of_group[g])
            leaf[:, t] += self._table(g)[:, self._scores[t]]
        return leaf

    def _packed(self) -> Float64:
        family = self._tree.family
        inside = np.flatnonzero(family.set_of_group >= 0).tolist()
        rows = [(int(family.set_of_group[g]), self._table(g)) for g in inside]
        batch = max((len(t) for _, t in rows), default=1)
        packed = np.zeros((batch, int(self._offset[-1])))
        for s, table in rows:
            packed[:, self._offset[s] : self._offset[s + 1]] += table
        return packed

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
            whole = _validate.log_table(given, largest, name=name)
            flat = np.broadcast_to(whole, (*self._batch_shape, largest + 1)).reshape(-1, largest + 1)
            if whole.ndim == 1 and bool((reach == largest).all()):
                return whole[None]
        elif bool((reach == largest).all()):
            return _validate.log_table(given.log_table(largest), largest, name=name)[None]
        out = np.full((len(reach), largest + 1), -math.inf)
        for b, (n, shift) in enumerate(zip(reach.tolist(), skipped.tolist())):
            entries = flat[b, : n + 1] if isinstance(given, np.ndarray) else given.log_table(n)
            out[b, shift : shift + n + 1] = entries
        return out

    @cached_property
    def _inferred(self) -> tuple[ForestAnswer, list[str], Float64]:
        with self._lock:
            return forest_ladder.infer(self._problem)

    @property
    def _answer(self) -> ForestAnswer:
        found = self._inferred[0]
        self._check_possible(found.log_z)
        return found

    @cached_property
    def _counts(self) -> Float64:
        return forest_ladder.relative_counts(self._problem, self._inferred[2])

    def _single_count(self, position: int) -> Float64:
        log_p, score = self._flat(self.log_marginals, 2)[:, position], self._scores[position]
        columns = [log_p[:, score == c] for c in range(int(score.max()) + 1)]
        found = [
            forest_ladder.log_sum(c) if c.shape[1] else np.full(len(log_p), -math.inf) for c in columns
        ]
        return self._frozen(np.stack(found, axis=-1))

    def _whole(self) -> int | None:
        for g, members in enumerate(self._tree.groups):
            if len(members) == self.n_positions:
                return g
        return None

    def _group(self, group: Any) -> int:
        return _validate.count("group", group, self.n_groups - 1, "the last group")

    def _check_possible(self, values: Float64) -> None:
        dead = np.isneginf(values)
        if dead.any():
            where = ""
            if self._batch_shape:
                index = np.unravel_index(int(np.argmax(dead)), self._batch_shape)
                where = f" at batch index {tuple(int(i) for i in index)}"
            raise InfeasibleError(
                f"The model{where} gives probability zero to every sequence: no labels satisfy all potentials together with "
                "the weights of -inf. Relax a potential or a weight."
            )

    def _flat(self, values: Float64, axes: int) -> Float64:
        return values.reshape(math.prod(self._batch_shape), *values.shape[values.ndim - axes :])

    def _shaped(self, values: Float64) -> Any:
        return values.reshape(self._batch_shape)[()]

    def _frozen(self, values: Float64) -> Float64:
        """(B, ...) with the batch axes of the model, read-only."""
        out = values.reshape(*self._batch_shape, *values.shape[1:])
        out.flags.writeable = False
        return out

    # -- as a Python object ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        batch = f", batch_shape={self._batch_shape}" if self._batch_shape else ""
        return (
            f"ChainModel(n_positions={self.n_positions}, n_labels={self.n_labels}, n_groups={self.n_groups}{batch})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChainModel):
            return NotImplemented
        mine, theirs = self._problem, other._problem
        return (
            self._tree == other._tree
            and self._batch_shape == other._batch_shape
            and np.array_equal(self._scores, other._scores)
            and np.array_equal(self.lengths, other.lengths)
            and np.array_equal(mine.log_leaf, theirs.log_leaf)
            and np.array_equal(mine.log_edge, theirs.log_edge)
            and np.array_equal(mine.tables, theirs.tables)
        )

    def __hash__(self) -> int:
        return hash((self._tree, self._unary.tobytes()))

    def __getstate__(self) -> dict[str, Any]:
        names = ("_tree", "_potentials", "_unary", "_transitions", "_scores", "_lengths")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._scores = state["_scores"]
        self._setup(
            state["_tree"], state["_potentials"], state["_unary"], state["_transitions"], state["_lengths"], None
        )


def _expectation(probs: Float64, log_weights: Float64) -> Float64:
    terms = np.where(probs > 0, probs * np.where(log_weights == -math.inf, 0.0, log_weights), 0.0)
    return np.asarray(terms.sum(axis=tuple(range(1, terms.ndim))))


def _log_values(name: str, value: Any, axes: int) -> Float64:
    array, _ = _validate.real_array(name, value, axis="labels")
    if array.ndim < axes:
        raise ParameterError(f"`{name}` must have at least {axes} axes; shape {array.shape} arrived.")
    if np.isnan(array).any() or np.isposinf(array).any():
        raise ParameterError(f"`{name}` must hold logarithms below +inf, without NaN. Use -inf for what is impossible.")
    return np.array(array)


def _transitions(value: Any, n: int, k: int) -> Float64:
    array = _log_values("log_transitions", value, 2)
    if array.shape[-2:] != (k, k) or (array.ndim > 2 and array.shape[-3] != n - 1):
        raise ParameterError(
            f"`log_transitions` must have shape ({k}, {k}) or (..., {n - 1}, {k}, {k}); shape {array.shape} arrived."
        )
    return np.array(np.broadcast_to(array, (n - 1, k, k))) if array.ndim == 2 else array


def _scores(counted: Any, scores: Any, n: int, k: int) -> Ints:
    if scores is None:
        labels = [1 if k > 1 else 0] if counted is None else np.atleast_1d(counted).tolist()
        marks = np.zeros(k, np.int64)
        for label in labels:
            marks[_validate.count("counted", label, k - 1, "the last label")] = 1
        return np.array(np.broadcast_to(marks, (n, k)))
    if counted is not None:
        raise ParameterError("Give `counted` or `scores`, not both.")
    array = np.asarray(scores)
    if array.dtype.kind not in "iu" or array.shape not in ((k,), (n, k)) or array.min(initial=0) < 0:
        raise ParameterError(
            f"`scores` must hold non-negative integers, shape ({k},) or ({n}, {k}); {_validate.describe(array)} arrived."
        )
    return np.array(np.broadcast_to(array.astype(np.int64), (n, k)))


def _lengths(value: Any, n: int) -> Ints | None:
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.size == 0 or array.min() < 1 or array.max() > n:
        raise ParameterError(f"`lengths` must hold integers from 1 to {n}; {_validate.describe(array)} arrived.")
    return np.array(array, np.int64)


def _potential(value: Any) -> Any:
    if isinstance(value, Potential) or value is None or callable(value):
        return as_potential(value)
    array, _ = _validate.real_array("counts", value, axis="counts")
    return np.array(array)


def _groups(counts: Any, n: int) -> tuple[CountTree, list[Any]]:
    if counts is None:
        return CountTree.from_groups([], n), []
    groups = [counts] if isinstance(counts, Group) else counts
    if isinstance(groups, (list, tuple)) and groups and all(isinstance(g, Group) for g in groups):
        tree = CountTree.from_groups([g.members for g in groups], n)
        return tree, [_potential(g.potential) for g in groups]
    if n == 1:
        return CountTree.from_groups([[0]], 1), [_potential(counts)]
    return CountTree.flat(n), [_potential(counts)]
