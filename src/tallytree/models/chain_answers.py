"""Sequences of labels and second order of chains: samples, probabilities, the mode, and Hessian-vector products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Float64, Ints, Size
from ..engine.forest import maxima, walk
from ..engine.forest.tangent import Direction, directional_derivatives
from ..engine.log_sums import accurate_sum
from ..errors import ParameterError
from .base import rows_of
from .chain_core import ChainCore
from .parameters import packed_sets
from .results import ChainStatistics


class ChainAnswers(ChainCore):
    """Single sequences and derivatives; a base class of :class:`~tallytree.ChainModel`, not used on its own."""

    def log_prob(self, labels: ArrayLike) -> Any:
        """Log-probability of sequences of labels, (..., T); entries past the end of a sequence are ignored.

        Parameters
        ----------
        labels : array_like of int, (..., T)
            Sequences of labels.

        Returns
        -------
        float or ndarray, (...)
            Log-probabilities, of the batch of models and sequences together.

        Raises
        ------
        ParameterError
            If ``labels`` are not integers of this length, or not labels of the model.
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        mode, sample

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((2, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.log_prob([[0, 1], [1, 1]])
        array([-0.69314718,        -inf])
        """
        n = self.n_positions
        y = checks.array("labels", labels, (..., n), checks.INTEGERS)
        shape = checks.broadcast(self._batch_shape, [("`labels`", y.shape[:-1])])
        y = np.broadcast_to(y, (*shape, n))
        inside = np.broadcast_to(np.arange(n) < self.lengths[..., None], y.shape)
        wrong = y[inside & ((y < 0) | (y >= self.n_labels))]
        if wrong.size:
            raise ParameterError(f"`labels` must be between 0 and {self.n_labels - 1}; {wrong[0]} arrived.")
        y = np.where(inside, y, self._resting)
        self._answer  # noqa: B018 - raises for an impossible model
        # What far numbers add to all sequences alike is in neither term; what the labels of a position have in common
        # is in both if log Z is smaller with it.
        common = self._made[1][:, :-1]
        without, log_norm = self._solver.log_norm(), self._solver.log_norm(common)
        smaller = np.abs(log_norm) < np.abs(without)
        log_norm, common = np.where(smaller, log_norm, without), np.where(smaller[:, None], common, 0.0)
        rows = np.broadcast_to(np.arange(len(common)).reshape(self._batch_shape), shape)
        score = accurate_sum(*maxima.log_weights(self._problem, y, rows), common[rows])
        return np.asarray(score - log_norm.reshape(self._batch_shape))[()]

    def sample(self, size: Size = None, rng: Any = None) -> Ints:
        """Exact joint samples of label sequences, ``(*size, ..., T)``; -1 past the end of a sequence.

        Parameters
        ----------
        size : int or tuple of int, optional
            How many; default one, without an axis.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness.

        Returns
        -------
        ndarray of int, (size..., ..., T)
            Labels.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        mode, log_prob

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((4, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.sample(100, rng=0).sum(axis=1).max()
        np.int64(1)
        """
        shape = checks.shape("size", size)
        generator = checks.generator(rng)
        found = walk.draw(self._problem, self._answer, math.prod(shape), generator)
        found[:, ~self._inside] = -1
        return found.reshape(*shape, *self._batch_shape, self.n_positions)

    def mode(self) -> Ints:
        """A most probable sequence of labels, (..., T); -1 past the end of a sequence.

        Returns
        -------
        ndarray of int, (..., T)
            Labels.

        Raises
        ------
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        sample, log_prob

        Notes
        -----
        Cost: O(K^3 T^2): Viterbi over labels and counts, in (max, +).

        Examples
        --------
        >>> tt.ChainModel([[0.0, 1.0], [0.0, 2.0]], np.zeros((2, 2)), tt.exactly(1)).mode()
        array([0, 1])
        """
        states, values = maxima.best(self._problem)
        self._check_possible(values)
        states[~self._inside] = -1
        return states.reshape(*self._batch_shape, self.n_positions)

    # -- second order ------------------------------------------------------------------------------------------

    def hessian_vector_product(
        self,
        log_unary: ArrayLike | None = None,
        log_transitions: ArrayLike | None = None,
        tables: Any = None,
        *,
        counts: bool = True,
    ) -> ChainStatistics:
        """Derivative of ``expected_statistics`` along a direction: the Hessian of log Z times a vector.

        Equals the covariance of every statistic with the direction's combination of statistics.

        Parameters
        ----------
        log_unary : array_like, (..., T, K), optional
            Direction in the log-weights of labels.
        log_transitions : array_like, (K, K) or (..., T - 1, K, K), optional
            Direction in the log-weights of pairs; (K, K) moves all of them alike.
        tables : sequence, optional
            Direction in the log-tables, one array (..., n + 1), or None, per group.
        counts : bool
            Whether the derivatives of the count distributions are wanted; without them ``tables`` is empty.

        Returns
        -------
        ChainStatistics
            The derivatives, in the shapes of :attr:`ChainModel.expected_statistics`.

        Raises
        ------
        ParameterError
            If the direction does not have the shape of the parameters, or is not finite where they are.
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        ChainModel.expected_statistics, count_covariance, CountModel.hessian_vector_product

        Notes
        -----
        Cost: about three inferences. If `log_transitions` is given, or numbers would overflow, one pass in
        logarithms: O(K^3 T) without counts and O(K^3 T^2) with them. Accuracy: 1e-10 times the largest entry of the
        answer or of the direction, whichever is larger; the pass in logarithms is right to 1e-12 times the direction.

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.hessian_vector_product([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]).unary[:, 1].round(6)
        array([ 0.222222, -0.111111, -0.111111])
        """
        counts = checks.flag("counts", counts)
        unary = self._spread("log_unary", log_unary, self._unary, 2)
        pairs = self._spread("log_transitions", log_transitions, self._transitions, 3)
        direction, rows = Direction(unary, pairs, np.zeros((0, 0))), self._table_directions(tables)
        found = self._moved(direction, rows)
        unary, pairs = found.leaf.copy(), found.edge.copy()
        unary[~self._inside] = 0.0
        pairs[~self._inside[:, 1:]] = 0.0
        moved = tuple(
            self._vector(self._moved_counts(g, found)) for g in range(self.n_groups if counts else 0)
        )
        return ChainStatistics(self._vector(unary), self._vector(pairs), moved)

    def count_covariance(self, first: int | None = None, second: int | None = None) -> Any:
        """Covariance of the counts of two groups (None: the whole sequence), (...,).

        Parameters
        ----------
        first, second : int, optional
            Numbers of the groups; default the whole sequence.

        Returns
        -------
        float or ndarray
            One number per model of the batch.

        Raises
        ------
        ParameterError
            If there is no group of this number.
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        hessian_vector_product, ChainModel.count_log_probs

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((4, 2)), np.zeros((2, 2)))
        >>> float(chain.count_covariance())
        1.0
        """
        scores = []
        for group in (first, second):
            inside = np.zeros(self.n_positions, bool)
            inside[slice(None) if group is None else self._tree.groups[self._group(group)]] = True
            scores.append(np.where(inside[:, None], self._scores, 0).astype(np.float64))
        found = self.hessian_vector_product(scores[0], counts=False)
        return self._scalar(
            (found.unary.astype(np.float64).reshape(-1, *scores[1].shape) * scores[1]).sum((1, 2))
        )

    # -- how it is done ----------------------------------------------------------------------------------------

    def _moved(self, direction: Direction, rows: list[Float64 | None]) -> Direction:
        """The derivatives that the engine finds; groups of one position move the weights there."""
        answer, problem, family = self._answer, self._problem, self._tree.family
        for t, row in zip(family.variable_of_group.tolist(), rows):
            if t >= 0 and row is not None:
                direction.leaf[:, t] += row[:, self._scores[t]]
        packed = packed_sets(family, self._offset, rows, len(problem))
        return directional_derivatives(problem, answer, direction._replace(tables=packed))

    def _moved_counts(self, group: int, found: Direction) -> Float64:
        """Derivatives of P(count) of a group, (B, n + 1), from those of the sets and of the positions."""
        s = int(self._tree.family.set_of_group[group])
        if s >= 0:
            moved = found.tables[:, self._offset[s] : self._offset[s + 1]]
            return self._without_skipped(group, moved, 0.0)
        t = int(self._tree.family.variable_of_group[group])
        out = np.zeros((len(found.leaf), int(self._scores[t].max()) + 1))
        np.add.at(out.T, self._scores[t], found.leaf[:, t].T)
        out[~self._inside[:, t]] = 0.0
        return out

    # -- the direction, checked --------------------------------------------------------------------------------

    def _spread(self, name: str, value: ArrayLike | None, parameter: Float64, axes: int) -> Float64:
        """A direction as (B, ...), 0 where the parameter is -inf or behind the end; it may be the same everywhere."""
        given = np.zeros(parameter.shape[-2:]) if value is None else value
        array = checks.array(name, given, (..., *parameter.shape[-2:]), checks.NUMBERS)
        shape = (*self._batch_shape, *parameter.shape[parameter.ndim - axes :])
        wide = checks.spread(name, array, shape)
        moves = np.broadcast_to(parameter, shape) > -math.inf
        found = rows_of(_finite(f"`{name}`", wide, moves), self._batch_shape, axes)
        inside = self._inside[:, self.n_positions - found.shape[1] :]
        return np.where(np.expand_dims(inside, tuple(range(2, found.ndim))), found, 0.0)

    def _table_directions(self, tables: Any) -> list[Float64 | None]:
        """One direction (B, n + 1) per group, in the places of the table's entries, or None."""
        if tables is None:
            return [None] * self.n_groups
        wanted = f"`tables` must be a list of {self.n_groups} arrays or None, one per group"
        entries = checks.listed(tables, self.n_groups, wanted)
        return [None if entry is None else self._table_direction(g, entry) for g, entry in enumerate(entries)]

    def _table_direction(self, group: int, entry: Any) -> Float64:
        name = f"The direction of group {group}"
        table = self._table(group)
        size = table.shape[1] - 1
        array = checks.log_table(entry, size, name=name)
        checks.broadcast(self._batch_shape, [(name, array.shape[:-1])], grow=False)
        rows = rows_of(array, self._batch_shape)
        out = np.zeros(rows.shape)
        for b, k in enumerate(self._skipped(group).tolist()):
            out[b, k:] = rows[b, : size + 1 - k]
        return _finite(name, out, np.broadcast_to(table, out.shape) > -math.inf)


def _finite(name: str, direction: Float64, moves: Any) -> Float64:
    """The direction, 0 where the parameter does not move."""
    if np.any(moves & ~np.isfinite(direction)):
        raise ParameterError(
            f"{name} must be finite wherever the parameter is; an infinite entry arrived. Leave out what does not move."
        )
    return np.where(moves, direction, 0.0)
