"""What a model answers about information: the part of `CountModel` with entropy and divergence.

The quick way adds expectations, ``-E[log q] = sum_d CE_d + log E_q[f] - sum_i E[log f_i]``. Where these are so much
larger than their sum that digits are lost, sums without negative terms take over; see
:mod:`~tallytree.engine.count.information` and :mod:`~tallytree.engine.divergence`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..arrays import Float64
from ..engine import divergence, maximize, thresholds
from ..engine.count import moments
from ..engine.problem import Problem
from ..errors import ParameterError
from ..memo import answer
from .binary import BinaryModel
from .edges import Forest
from .forest_divergence import divergence as divergence_on_edges
from .forest_divergence import shaped


class Information(BinaryModel):
    """Entropy and divergence; a base class of :class:`~tallytree.CountModel`, not used on its own."""

    @answer
    def entropy(self) -> Any:
        """Entropy in nats, (...,).

        Accuracy: 1e-10 (1 + H); never negative.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        kl_divergence, log_prob

        Examples
        --------
        >>> tt.CountModel(np.zeros(4), tt.exactly(1)).entropy.round(4)  # log(4)
        np.float64(1.3863)
        """
        return self._scalar(self._solved.entropy())

    def kl_divergence(self, other: Any) -> Any:
        """Kullback-Leibler divergence KL(self || other) in nats, (...,).

        The groups of both models together must be nested and fit the edges of this one, if it has any. ``inf`` where
        ``other`` excludes what this model allows, however improbable that is.

        Parameters
        ----------
        other : CountModel
            A model over as many variables.

        Returns
        -------
        float or ndarray
            One number per model of the batch.

        Raises
        ------
        ParameterError
            If ``other`` is no CountModel over as many variables.
        StructureError
            If the groups of both models together are not nested or do not fit the edges.

        See Also
        --------
        entropy

        Notes
        -----
        Accuracy: 1e-9 relative or 1e-15 absolute; never negative.

        Examples
        --------
        >>> p = tt.CountModel(np.zeros(2), tt.exactly(1))
        >>> round(float(p.kl_divergence(tt.CountModel(np.zeros(2)))), 6)
        0.693147
        """
        if not isinstance(other, Information) or other.n_variables != self.n_variables:
            raise ParameterError(
                f"`other` must be a CountModel over {self.n_variables} variables; {checks.describe(other)} arrived."
            )
        if self._forest is not None or other._forest is not None:
            return self._result(divergence_on_edges(_on_edges(self), _on_edges(other)))
        return self._result(self._divergence(other))

    def _divergence(self, other: Any) -> Float64:
        mine, theirs = self.n_groups, other.n_groups
        tree = self._tree.with_groups(list(other._tree.groups))
        joint = self._extended(tree, [None] * theirs)
        cross, error = self._cross_entropy(joint, other, mine)
        entropy, doubt = (np.reshape(x, self.batch_shape) for x in self._solved.bounded_entropy())
        quick = cross - entropy
        sure = error + doubt <= np.maximum(divergence.ENOUGH * quick, divergence.NOTHING)
        rows = np.flatnonzero((~sure & (cross < math.inf)).reshape(-1))
        if not len(rows):
            return np.maximum(quick, 0.0)
        same = other._moved(tree, [*[None] * mine, *other._params.potentials])
        p, q = (
            tuple(_rows(x, m.batch_shape, quick.shape)[rows] for x in (m._params.nu, m._params.packed))
            for m in (joint, same)
        )
        found = quick.reshape(-1).copy()
        better = divergence.count_divergence(*(Problem(tree, nu, tables) for nu, tables in (p, q)))
        # What the difference excludes has missed a change on the way from one model to the other.
        likely = np.abs(better - found[rows]) <= 100.0 * (error + doubt).reshape(-1)[rows]
        found[rows] = np.where(likely, better, np.maximum(found[rows], 0.0))
        return found.reshape(quick.shape)

    def _cross_entropy(self, joint: Any, other: Any, first: int) -> tuple[Float64, Float64]:
        """-E[log q] for the law q of `other`, and an estimate of its rounding error, in the shape of both batches.

        ``joint`` is this model with the groups of `other` as groups ``first, first + 1, ...``.
        """
        params, family = other._params, other._tree.family
        odds = self._odds.reshape(*self.batch_shape, self.n_variables)
        nu = params.nu.reshape(*other.batch_shape, self.n_variables)
        tables, counts = [], []
        for s in range(family.n_sets):
            group = int(np.flatnonzero(family.set_of_group == s)[0])
            packed = params.packed[:, family.set_offset[s] : family.set_offset[s + 1]]
            tables.append(shaped(packed, other.batch_shape))
            counts.append(shaped(joint._counts(first + group), self.batch_shape))
        log_mean = np.reshape(other._solved.sums.log_mean, other.batch_shape)
        mine, theirs = (np.reshape(m._solved.sums.bound, m.batch_shape) for m in (self, other))
        value, error = moments.cross_entropy(odds, nu, log_mean, tables, counts, mine + theirs)
        if joint is not self and joint._tree.program.n_leaves > thresholds.EXACT_TAILS:
            excluded = _outside_support(joint._params, joint._tree, tables, range(first, joint.n_groups))
            value = np.where(np.reshape(excluded, self.batch_shape), math.inf, value)
        return value, error


def _outside_support(params: Any, tree: Any, tables: list[Float64], groups: range) -> NDArray[np.bool_]:
    """Whether a count that the model allows, however improbable, is impossible by a table of another, (B,)."""
    free = np.where(np.isfinite(params.nu), 0.0, params.nu)
    allowed = np.where(params.packed > -math.inf, 0.0, -math.inf)
    found = np.zeros(len(free), bool)
    sets = tree.family.set_of_group[groups.start : groups.stop]
    for s, table in zip(dict.fromkeys(sets[sets >= 0].tolist()), tables):
        dead = (table == -math.inf).reshape(-1, table.shape[-1])
        if dead.any():
            possible = maximize.max_count_values(tree, free, allowed, s) > -math.inf
            found |= (possible & dead).any(-1)
    return found


def _rows(values: Float64, batch_shape: tuple[int, ...], shape: tuple[int, ...]) -> Float64:
    """(1 or B, m) for one batch shape to (B', m) for another that it broadcasts to."""
    width = values.shape[-1]
    wide = np.broadcast_to(shaped(values, batch_shape), (*shape, width))
    return np.ascontiguousarray(wide.reshape(math.prod(shape), width))


def _on_edges(model: Any) -> Any:
    """The same model; one without edges as one on a forest that has none."""
    if model._forest is not None:
        return model
    nothing = Forest(np.empty((0, 2), np.int64), np.zeros((0, 2, 2)))
    return model._make(model._tree, model._params, "auto", nothing)
