"""What a model answers about information: the part of `CountModel` with entropy and divergence.

The quick way adds expectations, ``-E[log q] = sum_d CE_d + log E_q[f] - sum_i E[log f_i]``. Where these are so much
larger than their sum that digits are lost, sums without negative terms take over; see
:mod:`~tallytree.engine.count.information` and :mod:`~tallytree.engine.divergence`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..arrays import Float64, Ints
from ..engine import divergence, maximize, thresholds
from ..engine.count import moments
from ..engine.forest import maxima
from ..engine.pmf.events import log_outcomes
from ..engine.problem import ForestProblem, Problem
from ..errors import ParameterError
from ..memo import answer
from .base import rows_of
from .binary import BinaryModel
from .edges import Forest

_ROUNDING = 2.0**-48  # of the numbers that a divergence is a difference of
_CERTAIN = 1e-9  # a difference of probabilities above this is not rounding


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
            If ``other`` is not a CountModel over as many variables.
        StructureError
            If the groups of both models together are not nested or do not fit the edges.
        InfeasibleError
            If this model gives probability zero to every configuration.

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
        if self == other:  # and possible
            return self._result(np.zeros(len(self._solved.sums.log_mean)).reshape(self.batch_shape))
        if self._forest is not None or other._forest is not None:
            found = _divergence_on_edges(_on_edges(self), _on_edges(other))
        else:
            found = self._divergence(other)
        rounded = (found > 0.0) & (found < divergence.ENOUGH)
        if rounded.any():  # where the other has a single configuration, this has the same
            found = np.where(rounded & np.isinf(other.posterior_logits).all(-1), 0.0, found)
        return self._result(found)

    def _divergence(self, other: Any) -> Float64:
        joint, same, mine = self, other, 0
        if self._tree != other._tree:
            mine, theirs = self.n_groups, other.n_groups
            tree = self._tree.with_groups(list(other._tree.groups))
            joint = self._extended(tree, [None] * theirs)
            same = other._moved(tree, [*[None] * mine, *other._params.potentials])
        cross, error = self._cross_entropy(joint, other, mine)
        entropy, doubt = (np.reshape(x, self.batch_shape) for x in self._solved.bounded_entropy())
        quick = np.maximum(cross - entropy, 0.0)
        sure = error + doubt <= np.maximum(divergence.ENOUGH * quick, divergence.NOTHING)
        rows = np.flatnonzero((~sure & (cross < math.inf)).reshape(-1))
        if not len(rows):
            return quick
        problems, odds = [], []
        for m, solved in ((joint, self), (same, other)):
            numbers = (m._params.nu, m._params.packed, solved._odds)
            nu, tables, own = (_rows(x, m.batch_shape, quick.shape)[rows] for x in numbers)
            problems.append(Problem(joint._tree, nu, tables))
            odds.append(own)
        better = divergence.count_divergence(problems[0], problems[1], odds[0], odds[1])
        return _improved(quick, rows, better, error + doubt)

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
            tables.append(_shaped(packed, other.batch_shape))
            counts.append(_shaped(joint._counts(first + group), self.batch_shape))
        log_mean = np.reshape(other._solved.sums.log_mean, other.batch_shape)
        mine, theirs = (np.reshape(m._solved.sums.bound, m.batch_shape) for m in (self, other))
        value, error = moments.cross_entropy(odds, nu, log_mean, tables, counts, mine + theirs)
        if self.n_variables > thresholds.SHORT_PASS:
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
        own = allowed[:, slice(*tree.family.set_offset[s : s + 2].tolist())] > -math.inf
        dead = (table == -math.inf).reshape(-1, table.shape[-1]) & own
        if dead.any():
            possible = maximize.max_count_values(tree, free, allowed, s) > -math.inf
            found |= (possible & dead).any(-1)
    return found


def _rows(values: Float64, batch_shape: tuple[int, ...], shape: tuple[int, ...]) -> Float64:
    """(1 or B, m) for one batch shape to (B', m) for another that it broadcasts to."""
    return np.ascontiguousarray(rows_of(_shaped(values, batch_shape), shape))


def _on_edges(model: Any) -> Any:
    """Turn a model without edges into one on a forest that has none; others stay."""
    if model._forest is not None:
        return model
    nothing = Forest(np.empty((0, 2), np.int64), np.zeros((0, 2, 2)))
    return model._make(model._tree, model._params, "auto", nothing)


def _divergence_on_edges(law: Any, other: Any) -> Float64:
    """KL(law || other) over the same variables, (...), from what their log-weights differ by.

    What both have in common cancels before anything is rounded, and errors of probabilities are multiplied by
    differences alone.
    """
    parts = [_expected_leaves(law, other), *_expected_tables(law, other)]
    if len(law._forest.pairs) or len(other._forest.pairs):
        parts.append(_expected_edges(law, other))
    step, spread, size = (sum(x) for x in zip(*parts))
    norms = [np.reshape(m._solved.log_norm(), m.batch_shape) for m in (law, other)]
    mine, theirs = (np.reshape(m._solved.error_bound(), m.batch_shape) for m in (law, other))
    quick = np.asarray(np.maximum(norms[1] - norms[0] - step, 0.0))  # rounding alone could make it negative
    with np.errstate(invalid="ignore"):
        rounding = _ROUNDING * (1.0 + sum(np.abs(x) for x in norms) + size)
        doubt = mine * (1.0 + 2.0 * spread) + theirs + rounding
        lost = doubt > np.maximum(divergence.ENOUGH * quick, divergence.NOTHING)
    rows = np.flatnonzero(lost & np.isfinite(quick))
    common = _on_one_structure(law, other, quick.shape) if len(rows) else None
    if common is None:
        return quick
    better = divergence.forest_divergence(*(problem.take(rows) for problem in common))
    return _improved(quick, rows, better, doubt)


def _improved(quick: Float64, rows: Ints, better: Float64, doubt: Float64) -> Float64:
    """Divergences with better ones in some rows, but for those that the quick ones, right to `doubt`, exclude.

    The integral may have missed a change on the way from one model to the other.
    """
    found = quick.reshape(-1).copy()
    likely = np.abs(better - found[rows]) <= 100.0 * doubt.reshape(-1)[rows]
    found[rows] = np.where(likely, better, found[rows])
    return found.reshape(quick.shape)


def _on_one_structure(law: Any, other: Any, shape: tuple[int, ...]) -> list[ForestProblem] | None:
    """The problems of both with the groups of both, one row for each of the batch; None if edges differ."""
    if not np.array_equal(law._forest.pairs, other._forest.pairs):
        return None
    tree = law._tree.with_groups(list(other._tree.groups))
    mine, theirs = [None] * law._tree.family.n_groups, [None] * other._tree.family.n_groups
    joint = [
        law._extended(tree, theirs)._solver.problem,
        other._moved(tree, [*mine, *other._params.potentials])._solver.problem,
    ]
    parts = []
    for problem, model in zip(joint, (law, other)):
        rows = np.broadcast_to(np.arange(len(problem)).reshape(model.batch_shape), shape).reshape(-1)
        parts.append(problem.take(rows))
    return parts


def _shaped(rows: Float64, batch_shape: tuple[int, ...]) -> Float64:
    """(1 or B, ...) with the batch axes in front, or with none if all models share it."""
    return rows[0] if len(rows) == 1 else rows.reshape(*batch_shape, *rows.shape[1:])


def _log_beliefs(law: Any) -> Float64:
    """Log P(y_d), (..., D, 2)."""
    return log_outcomes(law._odds.reshape(*law.batch_shape, law.n_variables))


_Expected = tuple[Any, Any, Any]  # E[step], E|step - E[step]| and E|step|, summed over all parts of a kind


def _expected(probs: Any, before: Any, after: Any, support: Any) -> _Expected:
    """Of ``step = after - before`` over the last axis, by (..., m, n) log-weights of m parts with n outcomes each.

    The first is -inf where something in the support has weight zero afterwards.
    """
    dead = after == -math.inf
    still = dead | (before == -math.inf)
    probs, step = np.broadcast_arrays(probs, np.where(still, 0.0, after) - np.where(still, 0.0, before))
    # Probabilities add up to 1 only up to their errors: what is large must not be multiplied by them.
    likeliest = np.take_along_axis(step, probs.argmax(-1)[..., None], -1)
    mean = likeliest[..., 0] + (probs * (step - likeliest)).sum(axis=-1)
    spread = (probs * np.abs(step - mean[..., None])).sum(axis=(-2, -1))
    size = (probs * np.abs(step)).sum(axis=(-2, -1))
    return np.where((support & dead).any(axis=(-2, -1)), -math.inf, mean.sum(axis=-1)), spread, size


def _expected_leaves(law: Any, other: Any) -> _Expected:
    beliefs = _log_beliefs(law)
    before, after = (_shaped(m._solver.problem.log_leaf, m.batch_shape) for m in (law, other))
    return _expected(np.exp(beliefs), before, after, beliefs > -math.inf)


def _expected_edges(law: Any, other: Any) -> _Expected:
    """What one of both has no edge for is 0 there."""
    missing = _places(law._forest.pairs, other._forest.pairs)[0] < 0
    pairs = np.concatenate([law._forest.pairs, other._forest.pairs[missing]])
    before, after = (
        _shaped(_on_pairs(m._solver.problem.log_edge, m._forest.pairs, pairs), m.batch_shape)
        for m in (law, other)
    )
    joint = _pair_probabilities(law, pairs)
    support = joint > _CERTAIN
    doubtful = (~support & (after == -math.inf)).reshape(-1, len(pairs), 2, 2).any(axis=0)
    for e, a, b in np.argwhere(doubtful).tolist():
        possible = _allows(law._solver.problem, {int(pairs[e, 0]): a, int(pairs[e, 1]): b})
        support[..., e, a, b] = possible.reshape(law.batch_shape)
    return _expected(*(x.reshape(*x.shape[:-2], 4) for x in (joint, before, after, support)))


def _expected_tables(law: Any, other: Any) -> list[_Expected]:
    """Of the sets of both, set by set."""
    mine, groups = law._tree.family.n_groups, list(other._tree.groups)
    joint = law._extended(law._tree.with_groups(groups), [None] * len(groups)) if groups else law
    family, theirs = joint._tree.family, other._tree.family
    cells = {int(family.set_of_group[mine + g]): int(s) for g, s in enumerate(theirs.set_of_group)}
    parts = []
    for s in range(family.n_sets):
        group = int(np.flatnonzero(family.set_of_group == s)[0])
        before = joint._params.packed[:, family.set_offset[s] : family.set_offset[s + 1]]
        after = np.zeros_like(before[:1])
        if s in cells:
            after = other._params.packed[:, theirs.set_offset[cells[s]] : theirs.set_offset[cells[s] + 1]]
        if np.array_equal(before, after):
            continue
        before, after = _shaped(before, law.batch_shape), _shaped(after, other.batch_shape)
        probs = np.exp(_shaped(joint._counts(group), law.batch_shape))
        support = probs > 0.0
        if (~support & (after == -math.inf)).any():
            support = _shaped(joint._max_counts(group), law.batch_shape) > -math.inf
        parts.append(_expected(*(x[..., None, :] for x in (probs, before, after, support))))
    return parts


def _places(own: Ints, pairs: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Where every pair stands among `own`, -1 if nowhere, and whether it does the other way round, (E,) each."""
    index = {pair: e for e, pair in enumerate(map(tuple, own.tolist()))}
    there = np.array([index.get((i, j), -1) for i, j in pairs.tolist()], int)
    back = np.array([index.get((j, i), -1) for i, j in pairs.tolist()], int)
    return np.maximum(there, back), back > there


def _on_pairs(values: Float64, own: Ints, pairs: Ints) -> Float64:
    """(B, E', 2, 2) for the pairs `own` to (B, E, 2, 2) for any others, 0 for those that are not among them."""
    place, turned = _places(own, pairs)
    out = np.zeros((len(values), len(pairs), 2, 2))
    out[:, place >= 0] = values[:, place[place >= 0]]
    out[:, turned] = out[:, turned].swapaxes(2, 3)
    return out


def _pair_probabilities(law: Any, pairs: Ints) -> Float64:
    """P(y_i, y_j) of any pairs, (..., E, 2, 2): edges are known, for others one inference per first variable."""
    own, batch = law._forest.pairs, len(law._odds)
    out = _on_pairs(np.exp(law._solved.edge_log_probs()), own, pairs)
    others = np.flatnonzero(_places(own, pairs)[0] < 0)
    if len(others):
        marginals = np.exp(_log_beliefs(law)).reshape(batch, law._odds.shape[1], 2)
        first, second = pairs[others, 0], pairs[others, 1]
        rows, place = np.unique(first, return_inverse=True)
        both = law._solved.joint(rows)[:, place, second]
        out[:, others, 1, 1] = both
        out[:, others, 1, 0] = np.maximum(marginals[:, first, 1] - both, 0.0)
        out[:, others, 0, 1] = np.maximum(marginals[:, second, 1] - both, 0.0)
        out[:, others, 0, 0] = np.maximum(marginals[:, first, 0] - out[:, others, 0, 1], 0.0)
    return out.reshape(*law.batch_shape, len(pairs), 2, 2)


def _allows(problem: ForestProblem, evidence: dict[int, int]) -> NDArray[np.bool_]:
    """Whether some configuration with these values is possible, (B,)."""
    leaf = problem.log_leaf.copy()
    for v, value in evidence.items():
        leaf[:, v, 1 - value] = -math.inf
    return np.asarray(maxima.best(replace(problem, log_leaf=leaf))[1] > -math.inf)
