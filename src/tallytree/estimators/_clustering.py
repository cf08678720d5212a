"""Nested groups of variables from data: hierarchical clustering of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from .. import checks
from ..arrays import Float64
from ..errors import ParameterError
from ..structure.nested.count_tree import CountTree

LINKAGES = ("single", "complete", "average", "weighted", "centroid", "median", "ward")  # of SciPy


def disagreement(rows: NDArray[Any], weights: Float64 | None = None) -> Float64:
    """How often two columns differ, (D, D)."""
    y = rows.astype(np.float64)
    w = np.ones(len(y)) if weights is None else weights
    both = y.T @ (y * w[:, None])
    single = np.diag(both)
    apart = (single[:, None] + single[None, :] - 2.0 * both) / w.sum()
    np.fill_diagonal(apart, 0.0)
    return np.asarray(np.maximum(apart, 0.0))


def cluster(
    rows: NDArray[Any],
    structure: Any,
    method: Any,
    rng: np.random.RandomState,
    weights: Float64 | None = None,
) -> CountTree:
    """A count tree over the columns.

    Parameters
    ----------
    structure : {"adaptive", "anti", "random", "flat"}, CountTree or linkage matrix
        "adaptive" joins columns that agree often, "anti" negates the distances first, "random" joins at
        random, "flat" is one group of all variables.
    method : str
        Linkage method of SciPy.
    """
    d = rows.shape[1]
    checks.one_of("linkage", method, LINKAGES)
    if isinstance(structure, CountTree):
        if structure.n_variables != d:
            raise ParameterError(
                f"`structure` must be a tree over {d} variables; one over {structure.n_variables} arrived."
            )
        return structure
    if isinstance(structure, str):
        if d == 1 or structure == "flat":
            return CountTree.flat(d)
        if structure in ("adaptive", "anti"):
            distance = disagreement(rows, weights)
            if structure == "anti":
                distance = distance.max() - distance
                np.fill_diagonal(distance, 0.0)
            return CountTree.from_linkage(linkage(squareform(distance, checks=False), method))
        if structure == "random":
            return CountTree.from_linkage(linkage(rng.random_sample(d * (d - 1) // 2), method))
        raise ParameterError(
            "`structure` must be 'adaptive', 'anti', 'random', 'flat', a CountTree or a linkage matrix; "
            f"{structure!r} arrived."
        )
    tree = CountTree.from_linkage(structure)
    if tree.n_variables != d:
        raise ParameterError(
            f"`structure` must be a linkage of {d} variables; one of {tree.n_variables} arrived."
        )
    return tree
