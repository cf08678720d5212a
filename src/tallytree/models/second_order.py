"""Second order: covariances, joint probabilities of pairs, Hessian-vector products of log Z.

A product of the Hessian of log Z with a vector, Cov(statistics, v . statistics), is the derivative of the expectations
along a direction and costs a few inferences whatever the number of parameters. Rows of the covariance matrix are such
products. Joint probabilities of pairs are relatively accurate: P_ij = P_i P(y_j | y_i = 1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Float64, FloatArray
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
        ndarray, (..., R, D)
            One row for each of ``rows``.

        Raises
        ------
        ParameterError
            If ``rows`` is not a list of variables.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        pairwise, count_covariance, hessian_vector_product

        Notes
        -----
        Cost: two to four inferences per row, batched. Accuracy: 1e-12 absolute.

        Examples
        --------
        >>> tt.CountModel(np.zeros(2), tt.exactly(1)).covariance()
        array([[ 0.25, -0.25],
               [-0.25,  0.25]])
        """
        chosen = checks.variables(rows, self.n_variables, "rows", ("m",))
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

        Returns
        -------
        float or ndarray, (..., shape of i and j)
            Probabilities.

        Raises
        ------
        ParameterError
            If only one of ``i`` and ``j`` is given, or they are no variables.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        covariance, marginals

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
        first = checks.variables(i, self.n_variables, "i")
        second = checks.variables(j, self.n_variables, "j")
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
            Direction in the log-tables, one array (..., n + 1) (or None) per group.
        counts : bool
            Whether the derivatives of the count distributions are wanted; if not, ``tables`` of the result is empty.

        Returns
        -------
        ExpectedStatistics
            The derivatives, in the shapes of :attr:`expected_statistics`.

        Raises
        ------
        ParameterError
            If the direction does not have the shape of the parameters.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        expected_statistics, covariance

        Notes
        -----
        Cost: two to four inferences, with or without counts; with edges and several groups one pass in logarithms, some
        tens of inferences for a thousand variables. Accuracy: 1e-10 of the largest entry of the direction times the
        standard deviation of the variable, or 1e-9 of the answer; with edges 1e-12 of the direction.

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(3), tt.exactly(1))
        >>> model.hessian_vector_product([1.0, 0.0, 0.0]).logits.round(6)
        array([ 0.222222, -0.111111, -0.111111])
        """
        counts = checks.flag("counts", counts)
        v, h = self._direction(logits, tables)
        found = self._solved.tangent(v[None], None if tables is None else h[None], counts=counts)
        moved = self._vector(found.marginals[0])
        if found.counts is None:
            return ExpectedStatistics(moved, ())
        packed = self._vector(found.counts[0])
        return ExpectedStatistics(moved, self._params.group_counts(moved, packed, total=0.0))

    def _direction(self, logits: ArrayLike | None, tables: Any) -> tuple[Float64, Float64]:
        """A checked direction, (B, D) and packed (B, T)."""
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

        Parameters
        ----------
        first, second : int, optional
            Numbers of the groups; default all variables.

        Returns
        -------
        float or ndarray
            One number per model of the batch.

        Raises
        ------
        ParameterError
            If there is no group of this number.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        covariance, count_log_probs

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
        direction = np.zeros((1, *self._params.nu.shape))
        direction[:, :, inside[0]] = 1.0
        found = self._solved.tangent(direction, None, counts=False)
        return self._scalar(found.marginals[0][:, inside[1]].sum(-1)).copy()
