"""Group vectors: which rows form a bag or stratum, in the order of the sorted group labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, column_or_1d

from ..arrays import Ints
from ..errors import ParameterError


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags of rows.

    Attributes
    ----------
    labels : (n_bags,) array
        The distinct group labels, sorted; results per bag come in this order.
    codes : (n_rows,) int
        Bag number of every row.
    sizes : (n_bags,) int
        Rows per bag.
    """

    labels: NDArray[Any]
    codes: Ints
    sizes: Ints

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return len(self.labels)

    def padded(self) -> Ints:
        """Row numbers (n_bags, largest size); the number of rows where a bag is shorter."""
        order = np.argsort(self.codes, kind="stable")
        starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)
        width = int(self.sizes.max()) if self.n_bags else 0
        there = np.arange(width) < self.sizes[:, None]
        place = np.where(there, starts[:, None] + np.arange(width), 0)
        return np.where(there, order[place], len(self.codes))


def make_bags(groups: Any, n_rows: int, *, alone: bool) -> Bags:
    """Bags from a group vector; without one, every row alone or all rows together."""
    if groups is None:
        codes = np.arange(n_rows) if alone else np.zeros(n_rows, np.int64)
        count = n_rows if alone else 1
        return Bags(np.arange(count), codes, np.bincount(codes, minlength=count))
    array = np.asarray(groups)
    if array.ndim != 1 or len(array) != n_rows:
        raise ParameterError(
            f"`groups` must have one entry per row of `X`, {n_rows} in all; an array of shape "
            f"{array.shape} arrived."
        )
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ParameterError(
            "`groups` must not contain NaN. Drop those rows, or give them a group of their own."
        )
    labels, codes = np.unique(array, return_inverse=True)
    codes = codes.astype(np.int64)
    return Bags(labels, codes, np.bincount(codes, minlength=len(labels)))


def target_vector(y: Any) -> NDArray[Any]:
    """The target as a vector; a column is flattened with scikit-learn's warning."""
    if y is None:
        raise ParameterError("The estimator requires y to be passed, but the target y is None.")
    values = check_array(y, ensure_2d=False, dtype=None, input_name="y")
    return np.asarray(column_or_1d(values, warn=True))


def binary_labels(y: Any, name: str = "y") -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The two classes, sorted, and which entries belong to the second."""
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) > 2:
        raise ParameterError(
            f"Only binary classification is supported: `{name}` must hold two values; {len(classes)} "
            "arrived. "
            "Unknown label type for anything else: code the classes of interest as 0 and 1."
        )
    return classes, codes.astype(np.int64) == 1
