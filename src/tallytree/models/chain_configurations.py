"""What a chain answers about single sequences: their probabilities, samples and the best one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Float64, Ints
from ..engine.forest import configurations
from ..errors import ParameterError
from .chain_core import ChainCore
from .sampling import Size


class ChainConfigurations(ChainCore):
    """Sequences of labels; a base class of :class:`~tallytree.ChainModel`, not used on its own."""

    def log_prob(self, labels: ArrayLike) -> Any:
        """Log-probability of sequences of labels, (..., T); what stands behind the end is ignored.

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
            If ``labels`` are not integers of this length, or no labels of the model.
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
        y = checks.rectangular("labels", labels, f"integers (..., {n})")
        if y.ndim == 0 or y.shape[-1] != n or y.dtype.kind not in "iu":
            raise ParameterError(f"`labels` must be integers (..., {n}); {checks.describe(y)} arrived.")
        shape = checks.broadcast(self._batch_shape, [("`labels`", y.shape[:-1])])
        y = np.broadcast_to(y, (*shape, n))
        inside = np.broadcast_to(np.arange(n) < self.lengths[..., None], y.shape)
        wrong = y[inside & ((y < 0) | (y >= self.n_labels))]
        if wrong.size:
            raise ParameterError(f"`labels` must be between 0 and {self.n_labels - 1}; {wrong[0]} arrived.")
        y = np.where(inside, y, self._resting)
        # What far numbers add to all sequences alike is in neither term.
        return np.asarray(self._log_weight(y) - self._answer.log_mean.reshape(self._batch_shape))[()]

    def sample(self, size: Size = None, rng: Any = None) -> Ints:
        """Exact joint samples of label sequences, ``(*size, ..., T)``; -1 behind the end.

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
        found = configurations.draw(self._problem, self._answer, math.prod(shape), generator)
        found[:, ~self._inside] = -1
        return found.reshape(*shape, *self._batch_shape, self.n_positions)

    def mode(self) -> Ints:
        """A most probable sequence of labels, (..., T); -1 behind the end.

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
        states, values = configurations.best(self._problem)
        self._check_possible(values)
        states[~self._inside] = -1
        return states.reshape(*self._batch_shape, self.n_positions)

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
