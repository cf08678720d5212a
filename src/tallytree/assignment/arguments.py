"""What users pass to `assignment`, checked and turned into arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .. import checks
from ..arrays import Bools, Float64
from ..errors import ParameterError
from ..models.factor_graph import logits_without_masks, without_masks
from ..potentials import Potential, as_potential
from .reduction import Cells


def dense(matrix: Any, name: str) -> NDArray[Any]:
    """A matrix as a dense array."""
    found: Any = matrix
    try:
        return np.asarray(found.toarray() if _is_sparse(matrix) else found)
    except ValueError:
        raise ParameterError(
            f"`{name}` must be a matrix, but the rows that arrived have different lengths. Pad them."
        ) from None


def _is_sparse(matrix: Any) -> bool:
    return bool(sparse.issparse(matrix))


def cells(affinity: Any, forbidden: Any) -> Cells:
    """The allowed cells and their log-odds."""
    if _is_sparse(affinity):
        _refuse_shape(affinity.shape)
        checks.real_array("affinity", np.empty(1, affinity.dtype), axis="columns")  # refuses by type
        matrix: Any = sparse.csr_array(affinity).astype(np.float64)
        matrix.sum_duplicates()
        row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)).astype(np.int64)
        column, values, shape = matrix.indices.astype(np.int64), matrix.data, matrix.shape
    else:
        full, _ = checks.real_array("affinity", affinity, axis="columns")
        _refuse_shape(full.shape)
        row, column = (index.ravel() for index in np.indices(full.shape))
        values, shape = full.ravel(), full.shape
    if np.isnan(values).any():
        at = int(np.argmax(np.isnan(values)))
        raise ParameterError(
            f"`affinity` must not contain NaN, but entry ({int(row[at])}, {int(column[at])}) is NaN. Use "
            f"`forbidden` for "
            "cells that must stay empty."
        )
    values = logits_without_masks(values)
    allowed = values > -math.inf
    if forbidden is not None:
        allowed &= ~_mask(forbidden, shape)[row, column]
    return Cells((int(shape[0]), int(shape[1])), row[allowed], column[allowed], values[allowed].copy())


def _refuse_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise ParameterError(
            f"`affinity` must be a matrix, rows by columns; shape {shape} arrived. For one row pass [[...]]."
        )


def _mask(forbidden: Any, shape: tuple[int, ...]) -> Bools:
    mask = dense(forbidden, "forbidden")
    if mask.shape != tuple(shape) or not (mask.dtype == bool or np.isin(mask, (0, 1)).all()):
        raise ParameterError(
            f"`forbidden` must be a boolean matrix of the shape of `affinity`, {tuple(shape)}; "
            f"{checks.describe(mask)} arrived."
        )
    return mask.astype(bool)


def tables(value: Any, count: int, size: int, name: str) -> Float64:
    """Log-tables (1 or count, size + 1) from one potential for all, or one per row."""
    if isinstance(value, Sequence) and any(
        v is None or isinstance(v, Potential) or callable(v) for v in value
    ):
        if len(value) != count:
            raise ParameterError(
                f"`{name}` must be one potential for all {name}, or a list of {count}, one for each; "
                f"{len(value)} arrived."
            )
        return np.stack([_checked(as_potential(v).log_table(size), size, name) for v in value])
    if value is None or isinstance(value, Potential) or callable(value):
        potential = as_potential(value)
        if potential.batch_shape not in ((), (1,), (count,)):
            raise ParameterError(
                f"`{name}` must have one parameter for all {name}, or {count}, one for each; parameters of shape "
                f"{potential.batch_shape} arrived."
            )
        return np.atleast_2d(_checked(potential.log_table(size), size, name))
    if isinstance(value, (bool, int, np.integer)):
        raise ParameterError(
            f"`{name}` must be a potential; the number {value} arrived. Did you mean exactly({value})?"
        )
    given, _ = checks.real_array(name, value, axis="counts")
    if given.shape == (count,) and np.asarray(value).dtype.kind in "iu":
        listed = np.asarray(value).tolist()
        shown = listed if count <= 4 else f"[{', '.join(map(str, listed[:3]))}, ...]"
        raise ParameterError(
            f"`{name}` must be potentials; {count} whole numbers arrived, one for each of the {name}. For the counts "
            f"themselves write exactly({shown}), for the most that are allowed at_most({shown}); a log-table is "
            "table([0.0, ...])."
        )
    if given.ndim > 2 or (given.ndim == 2 and given.shape[0] not in (1, count)):
        raise ParameterError(
            f"`{name}` must be a log-table of {size + 1} values, or {count} of them; shape {given.shape} arrived."
        )
    found = [_checked(row, size, name) for row in np.atleast_2d(given)]
    return np.stack(found) if found else np.zeros((1, size + 1))


def _checked(table: Any, size: int, name: str) -> Float64:
    """One log-table; finite numbers that stand for -inf are taken for it."""
    return without_masks(checks.log_table(table, size, name=f"`{name}`"))
