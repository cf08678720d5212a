"""Second order: covariances, joint probabilities of pairs, Hessian-vector products of log Z.

Row i of the covariance matrix comes from two conditional models, exactly and without cancellation of large numbers:

    Cov(y_i, y_j) = P_i (1 - P_i) (P(y_j | y_i = 1) - P(y_j | y_i = 0)),     P_ij = P_i P(y_j | y_i = 1).

A product of the Hessian of log Z with a vector, Cov(statistics, v . statistics), costs a few inferences whatever the
number of parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from .. import checks
from ..arrays import Float64, FloatArray
from ..checks import configurations
from ..errors import ParameterError
from .binary import BinaryModel
from .results import ExpectedStatistics


class SecondOrder(BinaryModel):
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
        Cost: two inferences per row, batched. Accuracy: 1e-12 absolute.

        Examples
        --------
        >>> tt.CountModel(np.zeros(2), tt.exactly(1)).covariance()
        array([[ 0.25, -0.25],
               [-0.25,  0.25]])
        """
        chosen = configurations.variables(rows, self.n_variables, "rows")
        if chosen.ndim != 1:
            raise ParameterError(
                f"`rows` must be a list of variables; shape {chosen.shape} arrived. For one row write [{int(chosen)}]."
                if chosen.ndim == 0
                else f"`rows` must be a list of variables, one-dimensional; shape {chosen.shape} arrived."
            )
        found = self._solved.covariance(chosen)
        if rows is None:
            found = 0.5 * (found + np.swapaxes(found, -1, -2))
        return self._vector(found)

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
            found = self._solved.joint(np.arange(self.n_variables))
            return self._vector(0.5 * (found + np.swapaxes(found, -1, -2)))
        first = configurations.variables(i, self.n_variables, "i")
        second = configurations.variables(j, self.n_variables, "j")
        first, second = np.broadcast_arrays(first, second)
        rows, place = np.unique(first, return_inverse=True)
        picked = self._solved.joint(rows)[:, place.reshape(first.shape), second]
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
        Cost: with ``counts=False`` and one potential, a few inferences, O(D); otherwise O(D^2) at worst.
        Accuracy: 1e-10 relative to the largest entry.

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(3), tt.exactly(1))
        >>> model.hessian_vector_product([1.0, 0.0, 0.0]).logits.round(6)
        array([ 0.222222, -0.111111, -0.111111])
        """
        counts = checks.flag("counts", counts)
        if "tangent" not in self._solver.can:
            raise ParameterError(
                "`hessian_vector_product` is not available for a model with edges. `covariance` gives rows of the "
                "Hessian."
            )
        nu_direction, packed = self._params.direction(logits, tables)
        moved, packed_change = self._moved_marginals(nu_direction, packed, counts)
        if not counts:
            return ExpectedStatistics(self._vector(moved), ())
        assert packed_change is not None
        log_probs = [self.count_log_probs(g) for g in range(self.n_groups)]
        groups = self._params.count_tangents(moved, packed_change, log_probs)
        return ExpectedStatistics(self._vector(moved), tuple(self._vector(g) for g in groups))

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
        if "tangent" not in self._solver.can:
            rows = self._solved.covariance(inside[0])
            return self._scalar(rows[..., inside[1]].sum(axis=(-1, -2)))
        direction = np.zeros_like(self._params.nu)
        direction[:, inside[0]] = 1.0
        nothing = np.zeros((len(direction), int(self._tree.family.set_offset[-1])))
        moved, _ = self._moved_marginals(direction, nothing, False)
        return self._scalar(moved[:, inside[1]].sum(-1))

    def _moved_marginals(
        self, nu_direction: Float64, table_direction: Float64, counts: bool
    ) -> tuple[Float64, Float64 | None]:
        """D P(y = 1) along a direction, (B, D), and with `counts` d log P(count) of the sets, (B, T)."""
        solver, odds = self._solved, self._odds
        change, packed = solver.tangent(nu_direction, table_direction, counts=counts)
        return expit(odds) * expit(-odds) * np.where(np.isfinite(odds), change, 0.0), packed
