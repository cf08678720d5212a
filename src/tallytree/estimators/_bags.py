"""Group vectors: which rows form a bag or stratum, in the order of the sorted group labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, column_or_1d

from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..learn.fixed_counts import padded_batches
from ..learn.statistics import row_weights


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

    def batches(self, chosen: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Bags of similar size together: bag numbers (B,), and rows (B, width), the number of rows where padded.

        A bag is padded by half of its size or 8 rows at most, so one large bag costs the small ones nothing.
        """
        order = np.argsort(self.codes, kind="stable")
        starts = np.cumsum(self.sizes) - self.sizes
        for members, place, there in padded_batches(starts, self.sizes, chosen, lambda n: max(8, n // 2)):
            yield members, np.where(there, order[place], len(self.codes))


def make_bags(groups: Any, n_rows: int, *, alone: bool, name: str = "groups") -> Bags:
    """Bags from a group vector; without one, every row alone or all rows together."""
    if groups is None:
        codes = np.arange(n_rows) if alone else np.zeros(n_rows, np.int64)
        count = n_rows if alone else 1
        return Bags(np.arange(count), codes, np.bincount(codes, minlength=count))
    try:
        array = np.asarray(groups)
    except ValueError:
        raise ParameterError(f"`{name}` must be a vector of labels; a ragged list arrived.") from None
    if array.ndim != 1 or len(array) != n_rows:
        raise ParameterError(
            f"`{name}` must have one entry per row of `X`, {n_rows} in all; an array of shape "
            f"{array.shape} arrived."
        )
    missing = np.flatnonzero(_missing(array))
    if len(missing):
        raise ParameterError(
            f"`{name}` must not contain missing labels, but row {missing[0]} has {array[missing[0]]!s}. Drop those "
            "rows, or give each a group of its own."
        )
    try:
        labels, codes = np.unique(array, return_inverse=True)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in array.tolist()})
        raise ParameterError(
            f"`{name}` must hold labels of one kind, all numbers or all text; {' and '.join(kinds)} arrived. "
            f"Convert them, as in np.asarray({name}).astype(str)."
        ) from None
    codes = codes.astype(np.int64)
    return Bags(labels, codes, np.bincount(codes, minlength=len(labels)))


def _missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels are NaN, None, NaT or pandas' NA: those that are not equal to themselves, and None."""
    if labels.dtype.kind in "fcmM":
        return np.asarray(labels != labels)
    if labels.dtype.kind != "O":
        return np.zeros(len(labels), bool)

    def absent(label: Any) -> bool:
        same = label == label
        return label is None or not isinstance(same, (bool, np.bool_)) or not same

    return np.array([absent(label) for label in labels], bool)


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


def bag_answers(y: ArrayLike, bags: Bags, name: str = "y") -> NDArray[Any]:
    """One answer per bag from answers per bag or per instance."""
    answers = target_vector(y)
    if answers.shape == (bags.n_bags,):
        return np.asarray(answers)
    if answers.shape != (len(bags.codes),):
        raise ParameterError(
            f"`{name}` must have one entry per bag ({bags.n_bags}) or per instance ({len(bags.codes)}); an "
            f"array of shape {answers.shape} arrived."
        )
    first = np.zeros(bags.n_bags, np.int64)
    first[bags.codes[::-1]] = np.arange(len(bags.codes))[::-1]
    found = np.asarray(answers[first])
    if (found[bags.codes] != answers).any():
        where = int(np.flatnonzero(found[bags.codes] != answers)[0])
        label = bags.labels[bags.codes[where]]
        raise ParameterError(
            f"`{name}` given per instance must be constant within each bag, but bag {str(label)!r} has several values. "
            "Pass one value per bag, in the order of the sorted labels of `groups`."
        )
    return found


def bag_weights(sample_weight: ArrayLike | None, bags: Bags) -> Float64:
    """Weights of the bags, 1 without any; one per instance is taken if it is the same within every bag."""
    given = None if sample_weight is None else bag_answers(sample_weight, bags, "sample_weight")
    weights = row_weights(given, bags.n_bags, name="sample_weight")
    return np.ones(bags.n_bags) if weights is None else weights
