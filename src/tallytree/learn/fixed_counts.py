"""Sets of variables of which exactly k are on: what learning asks about many of them at once.

Log-sums, marginals and products with the Hessian come from :class:`~tallytree.CountModel`, one batch for all sets.

Sets of different size share a batch: padding with -inf changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .. import checks
from ..arrays import Bools, Float64, Ints
from ..engine.tilt import tilt_to_mean
from ..errors import ParameterError
from ..models.count import CountModel


@dataclass(frozen=True, eq=False)
class FixedCounts:
    """What a batch of sets says.

    Attributes
    ----------
    model : CountModel
        "Exactly k_b of the variables with log-odds theta_b", batch shape (B,).
    log_sum : (B,)
        log e_k(exp theta).
    marginals : (B, n)
        P(y_i = 1).

    See Also
    --------
    tallytree.learn.fixed_counts

    Examples
    --------
    >>> tt.learn.fixed_counts(np.zeros((1, 4)), np.array([1])).marginals
    array([[0.25, 0.25, 0.25, 0.25]])
    """

    model: CountModel
    log_sum: Float64
    marginals: Float64

    def covariances(self, x: Float64) -> Float64:
        """Covariance of ``sum_i y_i x_i`` in every set, (B, p, p), for statistics x (B, n, p).

        Parameters
        ----------
        x : (B, n, p) array
            Statistics of the variables.

        Returns
        -------
        ndarray, (B, p, p)
            One matrix per set.

        Raises
        ------
        ParameterError
            If ``x`` has another shape, or entries that are not finite.

        See Also
        --------
        CountModel.hessian_vector_product

        Notes
        -----
        Equal to ``x' H x``, H the Hessian of the log-sum.

        Cost: p products of :meth:`~tallytree.CountModel.hessian_vector_product`.

        Examples
        --------
        >>> sets = tt.learn.fixed_counts(np.zeros((1, 2)), np.array([1]))
        >>> sets.covariances(np.array([[[1.0], [0.0]]]))
        array([[[0.25]]])
        """
        x = checks.array("x", x, (*self.marginals.shape, "p"))
        # The count is fixed, so statistics may be shifted; this shift leaves little to cancel.
        weight = self.marginals * (1.0 - self.marginals)
        total = weight.sum(1)
        middle = (weight[:, None, :] @ x) / np.where(total > 0, total, 1.0)[:, None, None]
        centred = np.where(weight[:, :, None] > 0, x - middle, 0.0)
        images = [
            self.model.hessian_vector_product(centred[:, :, j], counts=False).logits
            for j in range(x.shape[2])
        ]
        if not images:
            return np.zeros((len(x), 0, 0))
        product = np.stack(images, axis=1) @ centred
        return np.asarray(0.5 * (product + np.swapaxes(product, 1, 2)))


def fixed_counts(theta: Float64, k: Ints) -> FixedCounts:
    """Log-sums and marginals of sets, each with its number of variables that are on.

    Parameters
    ----------
    theta : (B, n) array
        Log-odds, finite, or -inf where a row is padded.
    k : (B,) int array
        Counts, at most the number of finite entries.

    Returns
    -------
    FixedCounts
        Log-sums, marginals and the batch of models.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    InfeasibleError
        When an answer is asked for and no configuration is possible.

    See Also
    --------
    tallytree.learn.FixedCounts
    tallytree.learn.ConditionalLikelihood
    tallytree.RaggedBatch

    Notes
    -----
    Cost and accuracy: one batched inference of :class:`~tallytree.CountModel`.

    Examples
    --------
    >>> found = tt.learn.fixed_counts(np.zeros((2, 3)), np.array([1, 2]))
    >>> found.log_sum.round(6), found.marginals[1].round(6)
    (array([1.098612, 1.098612]), array([0.666667, 0.666667, 0.666667]))
    """
    theta = checks.logits(theta)[0]
    k = checks.array("k", k, ("n",), checks.WHOLE)
    if theta.ndim != 2 or len(k) != len(theta) or k.max(initial=0) > theta.shape[1]:
        raise ParameterError(
            "`theta` must have one row of log-odds per entry of `k`, as many as the largest at least; "
            f"{checks.describe(theta)} and counts {checks.describe(k)} arrived. Pad rows with -inf."
        )
    tables = np.full((len(k), theta.shape[1] + 1), -math.inf)
    tables[np.arange(len(k)), k] = 0.0
    model = CountModel(theta, tables)
    return FixedCounts(model, np.asarray(model.log_partition), np.asarray(model.marginals))


def padded_batches(
    starts: Ints, sizes: Ints, chosen: Ints, room: Callable[[int], int]
) -> Iterator[tuple[Ints, Ints, Bools]]:
    """Sets of similar size together: their numbers (B,), places (B, width), and which of these are no padding.

    Set s has the places from ``starts[s]``, ``sizes[s]`` of them; one of size n is padded by ``room(n)`` at most.
    """
    chosen = chosen[np.argsort(sizes[chosen], kind="stable")]
    rising, first = sizes[chosen], 0
    while first < len(chosen):
        smallest = int(rising[first])
        last = int(np.searchsorted(rising, smallest + room(smallest), side="right"))
        members = chosen[first:last]
        column = np.arange(int(rising[last - 1]))
        there = column < sizes[members, None]
        yield members, np.where(there, starts[members, None] + column, 0), there
        first = last


def balancing_shift(theta: Float64, k: int) -> float:
    """The shift s with ``sum_i sigmoid(theta_i + s) = k``, for finite theta and 0 < k < n."""
    return float(tilt_to_mean(theta[None], np.array([float(k)]), near=1e-13)[0])
