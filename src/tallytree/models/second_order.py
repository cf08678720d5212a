"""Second order: covariances, joint probabilities of pairs, Hessian-vector products of log Z.

A product of the Hessian of log Z with a vector, Cov(statistics, v . statistics), is the derivative of the expectations
along a direction and costs a few inferences whatever the number of parameters. Rows of the covariance matrix are such
products. Joint probabilities of pairs are relatively accurate: P_ij = P_i P(y_j | y_i = 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from .. import checks
from ..arrays import Float64, FloatArray
from ..engine import auto
from ..engine.count.derivatives import derivatives
from ..engine.solution import posterior
from ..errors import ParameterError
from ..structure.nested.count_tree import CountTree
from . import arguments
from .base import ModelCore
from .parameters import Parameters

_CHUNK = 1 << 22  # entries of log-odds that go into one batched inference


@dataclass(frozen=True, eq=False)
class ExpectedStatistics:
    """Gradient of ``log_partition``: what learning compares with the data.

    ``logits`` (..., D) holds P(y_d = 1), ``tables[i]`` (..., n_i + 1) the probabilities of the counts of group i.
    """

    logits: FloatArray
    tables: tuple[FloatArray, ...]


class SecondOrder(ModelCore):
    """Covariances and derivatives of expectations; a base class of :class:`~tallytree.CountModel`."""

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
        Cost: two to three inferences per row, batched. Accuracy: 1e-12 absolute.

        Examples
        --------
        >>> tt.CountModel(np.zeros(2), tt.exactly(1)).covariance()
        array([[ 0.25, -0.25],
               [-0.25,  0.25]])
        """
        chosen = arguments.variables(rows, self.n_variables, "rows")
        if chosen.ndim != 1:
            raise ParameterError(
                f"`rows` must be a list of variables; shape {chosen.shape} arrived. For one row write [{int(chosen)}]."
                if chosen.ndim == 0
                else f"`rows` must be a list of variables, one-dimensional; shape {chosen.shape} arrived."
            )
        found = covariance_rows(self._count_problem(), self._odds, chosen)
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
            found = joint_probabilities(self._tree, self._params, self._odds, everything)
            return self._block(0.5 * (found + np.swapaxes(found, -1, -2)))
        first = arguments.variables(i, self.n_variables, "i")
        second = arguments.variables(j, self.n_variables, "j")
        first, second = np.broadcast_arrays(first, second)
        rows, place = np.unique(first, return_inverse=True)
        found = joint_probabilities(self._tree, self._params, self._odds, rows)
        picked = found[:, place.reshape(first.shape), second]
        return self._entries(picked.reshape((*self.batch_shape, *np.shape(first))))

    def hessian_vector_product(
        self, logits: ArrayLike | None = None, tables: Any = None, *, counts: bool = True
    ) -> ExpectedStatistics:
        """Derivative of ``expected_statistics`` along a direction: the Hessian of log Z times a vector.

        Equals the covariance of every statistic with the direction's combination of statistics.

        Parameters
        ----------
        logits : array_like, (..., D), optional
            Direction in the log-odds.
        tables : sequence or packed array, optional
            Direction in the log-tables, one entry (or None) per group.
        counts : bool
            Whether the derivatives of the count distributions are wanted; without them ``tables`` is empty.

        Notes
        -----
        Cost: two to three inferences, with or without counts. Accuracy: 1e-10 of the largest entry, or 1e-15 of the
        largest entry of the direction where that is more.

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(3), tt.exactly(1))
        >>> model.hessian_vector_product([1.0, 0.0, 0.0]).logits.round(6)
        array([ 0.222222, -0.111111, -0.111111])
        """
        counts = checks.flag("counts", counts)
        v, h = self._direction(logits, tables)
        pushed = None if tables is None else h[None]
        found = derivatives(self._count_problem(), v[None], pushed, counts=counts)
        moved = self._vector(found.marginals[0])
        if found.counts is None:
            return ExpectedStatistics(moved, ())
        return ExpectedStatistics(
            moved, self._params.group_counts(moved, self._vector(found.counts[0]), total=0.0)
        )

    def _direction(self, logits: ArrayLike | None, tables: Any) -> tuple[Float64, Float64]:
        """A checked direction, (B, D) and packed (B, T)."""
        self._solution  # noqa: B018 - raises for an impossible model
        params = self._params
        v, h = params.direction(logits, tables)
        for name, step, at in (
            ("logits", v, np.isfinite(params.nu)),
            ("tables", h, params.packed > -math.inf),
        ):
            if not np.isfinite(step).all() and np.any(at & ~np.isfinite(step)):
                raise ParameterError(
                    f"The direction `{name}` must be finite wherever the parameter is; an infinite entry arrived. "
                    "Leave out what does not move."
                )
        return v, h

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
        self._solution  # noqa: B018 - raises for an impossible model
        found = derivatives(self._count_problem(), direction[None], None, counts=False)
        return self._scalar(found.marginals[0][:, inside[1]].sum(-1))


def marginals_given_on(tree: CountTree, params: Parameters, rows: NDArray[np.int64]) -> Float64:
    """P(y_j = 1 | y_i = 1) for every i in `rows`, (B, R, D); the events must be possible."""
    batch, n = params.nu.shape
    out = np.empty((batch, len(rows), n))
    step = max(1, _CHUNK // max(1, batch * n))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        nu = np.repeat(params.nu[:, None, :], len(part), axis=1)
        nu[:, np.arange(len(part)), part] = math.inf
        nu = nu.reshape(batch * len(part), n)
        packed = params.packed
        if packed.shape[0] > 1:
            packed = np.repeat(packed, len(part), axis=0)
        found = auto.infer(auto.Problem(tree, nu, packed, {}), cavities=False)
        out[:, start : start + step] = expit(posterior(nu, found.messages())).reshape(batch, len(part), n)
    return out


def covariance_rows(problem: auto.Problem, odds: Float64, rows: NDArray[np.int64]) -> Float64:
    """Rows of Cov(y), (B, R, D): derivatives along one log-odds each; `odds` are the posterior log-odds (B, D)."""
    batch, n = odds.shape
    out = np.empty((batch, len(rows), n))
    step = max(1, _CHUNK // max(1, batch * n))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        v = np.zeros((len(part), batch, n))
        v[np.arange(len(part)), :, part] = 1.0
        out[:, start : start + step] = np.moveaxis(
            derivatives(problem, v, None, counts=False).marginals, 0, 1
        )
    out[:, np.arange(len(rows)), rows] = expit(odds[:, rows]) * expit(-odds[:, rows])
    return out


def joint_probabilities(
    tree: CountTree, params: Parameters, odds: Float64, rows: NDArray[np.int64]
) -> Float64:
    """P(y_i = y_j = 1) for i in `rows` and all j, (B, R, D)."""
    own = odds[:, rows]
    out = np.zeros((*own.shape, odds.shape[1]))
    for b, alive in _possible(own):
        given = marginals_given_on(tree, _model(params, b), rows[alive])[0]
        out[b, alive] = expit(own[b, alive])[:, None] * given
    out[:, np.arange(len(rows)), rows] = expit(own)
    return out


def _possible(own: Float64) -> list[tuple[int, NDArray[np.int64]]]:
    """For every model, the rows whose variables can be on."""
    alive = own > -math.inf
    return [(b, np.flatnonzero(alive[b])) for b in range(len(own)) if alive[b].any()]


def _model(params: Parameters, b: int) -> Any:
    """One model of the batch, in the form that `marginals_given_on` reads."""

    class Single:
        nu = params.nu[b : b + 1]
        packed = params.packed if params.packed.shape[0] == 1 else params.packed[b : b + 1]

    return Single()
