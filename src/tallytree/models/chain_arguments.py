"""What users pass to a chain of labels, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..potentials import Potential, as_potential
from ..structure.nested.count_tree import CountTree
from .group import Group


def unary_weights(value: Any) -> tuple[Float64, np.dtype[Any]]:
    """Log-weights (..., T, K), and the dtype in which vectors are returned."""
    _, dtype = checks.real_array("log_unary", value, axis="labels")
    return log_values("log_unary", value, 2), dtype


def log_values(name: str, value: Any, axes: int) -> Float64:
    array, _ = checks.real_array(name, value, axis="labels")
    if array.ndim < axes:
        raise ParameterError(f"`{name}` must have at least {axes} axes; shape {array.shape} arrived.")
    checks.below_infinity(name, array, "what is impossible")
    return np.array(array)


def transition_tables(value: Any, n: int, k: int) -> Float64:
    array = log_values("log_transitions", value, 2)
    if array.shape[-2:] != (k, k) or (array.ndim > 2 and array.shape[-3] != n - 1):
        raise ParameterError(
            f"`log_transitions` must have shape ({k}, {k}) or (..., {n - 1}, {k}, {k}); shape {array.shape} arrived."
        )
    return np.array(np.broadcast_to(array, (n - 1, k, k))) if array.ndim == 2 else array


def score_table(counted: Any, scores: Any, n: int, k: int) -> Ints:
    if scores is None:
        labels: list[Any] = [1 if k > 1 else 0]
        if counted is not None:
            labels = np.atleast_1d(
                checks.rectangular("counted", counted, "one label or a list of labels")
            ).tolist()
        marks = np.zeros(k, np.int64)
        for label in labels:
            marks[checks.count("counted", label, k - 1, "the last label")] = 1
        return np.array(np.broadcast_to(marks, (n, k)))
    if counted is not None:
        raise ParameterError("Give `counted` or `scores`, not both.")
    array = checks.rectangular("scores", scores, f"integers of shape ({k},) or ({n}, {k})")
    if array.dtype.kind not in "iu" or array.shape not in ((k,), (n, k)) or array.min(initial=0) < 0:
        raise ParameterError(
            f"`scores` must hold non-negative integers, shape ({k},) or ({n}, {k}); "
            f"{checks.describe(array)} arrived."
        )
    return np.array(np.broadcast_to(array.astype(np.int64), (n, k)))


def sequence_lengths(value: Any, n: int) -> Ints | None:
    if value is None:
        return None
    array = checks.rectangular("lengths", value, f"integers from 1 to {n}, one per model of the batch")
    if array.dtype.kind not in "iu" or array.min(initial=1) < 1 or array.max(initial=n) > n:
        whole = array.dtype.kind in "iu"
        what = str(array[(array < 1) | (array > n)][0]) if whole else checks.describe(array)
        raise ParameterError(
            f"`lengths` must hold integers from 1 to {n}, the positions of `log_unary`; {what} arrived."
        )
    return np.array(array, np.int64)


def count_potential(value: Any) -> Any:
    if (
        isinstance(value, (Potential, str, int))
        or value is None
        or callable(value)
        or getattr(value, "ndim", 1) == 0
    ):
        return as_potential(value)  # which refuses text and numbers with advice
    if isinstance(value, (list, tuple)) and any(isinstance(v, (Group, Potential)) for v in value):
        raise ParameterError(
            "`counts` must be one potential, or a list of which every entry is a Group, such as "
            f"[Group(range(3), exactly(1))]; {checks.describe(value)} arrived. Wrap each potential in a Group."
        )
    array, _ = checks.real_array("counts", value, axis="counts")
    return np.array(array)


def count_groups(counts: Any, n: int) -> tuple[CountTree, list[Any]]:
    if counts is None or (isinstance(counts, (list, tuple)) and not counts):
        return CountTree.from_groups([], n), []
    groups = [counts] if isinstance(counts, Group) else counts
    if isinstance(groups, (list, tuple)) and groups and all(isinstance(g, Group) for g in groups):
        tree = CountTree.from_groups([g.members for g in groups], n)
        return tree, [count_potential(g.potential) for g in groups]
    if n == 1:
        return CountTree.from_groups([[0]], 1), [count_potential(counts)]
    return CountTree.flat(n), [count_potential(counts)]
