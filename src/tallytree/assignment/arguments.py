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
from ..potentials import Potential, as_potential
from .reduction import Cells


def dense(matrix: Any) -> NDArray[Any]:
    """A matrix as a dense array."""
    found: Any = matrix
    return np.asarray(found.toarray() if _is_sparse(matrix) else found)


def _is_sparse(matrix: Any) -> bool:
    return bool(sparse.issparse(matrix))


def cells(affinity: Any, forbidden: Any) -> Cells:
    """The allowed cells and their log-odds."""
    if _is_sparse(affinity):
        matrix: Any = sparse.csr_array(affinity).astype(np.float64)
        matrix.sum_duplicates()
        row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)).astype(np.int64)
        column, values, shape = matrix.indices.astype(np.int64), matrix.data, matrix.shape
    else:
        full, _ = checks.real_array("affinity", affinity, axis="columns")
        if full.ndim != 2:
            raise ParameterError(f"`affinity` must be a matrix, rows by columns; shape {full.shape} arrived.")
        row, column = (index.ravel() for index in np.indices(full.shape))
        values, shape = full.ravel(), full.shape
    if np.isnan(values).any():
        at = int(np.argmax(np.isnan(values)))
        raise ParameterError(
            f"`affinity` must not contain NaN, but entry ({int(row[at])}, {int(column[at])}) is NaN. Use "
            f"`forbidden` for "
            "cells that must stay empty."
        )
    allowed = values > -math.inf
    if forbidden is not None:
        allowed &= ~_mask(forbidden, shape)[row, column]
    return Cells((int(shape[0]), int(shape[1])), row[allowed], column[allowed], values[allowed].copy())


def _mask(forbidden: Any, shape: tuple[int, ...]) -> Bools:
    mask = dense(forbidden)
    if mask.shape != tuple(shape) or not (mask.dtype == bool or np.isin(mask, (0, 1)).all()):
        raise ParameterError(
            f"`forbidden` must be a boolean matrix of the shape of `affinity`, {tuple(shape)}; "
            f"{checks.describe(mask)} arrived."
        )
    return mask.astype(bool)


def tables(value: Any, count: int, size: int, name: str) -> Float64:
    """Log-tables (1 or count, size + 1) from one potential for all, or one per row."""
    listed = isinstance(value, Sequence) and any(v is None or isinstance(v, Potential) for v in value)
    if listed:
        if len(value) != count:
            raise ParameterError(
                f"`{name}` must be one potential for all {name}, or a list of {count}, one for each; "
                f"{len(value)} arrived."
            )
        return (
            np.stack([as_potential(v).log_table(size) for v in value]) if count else np.zeros((1, size + 1))
        )
    if value is None or isinstance(value, Potential) or callable(value):
        return as_potential(value).log_table(size)[None]
    if isinstance(value, (bool, int, np.integer)):
        raise ParameterError(
            f"`{name}` must be a potential; the number {value} arrived. Did you mean exactly({value})?"
        )
    table = checks.log_table(value, size, name=f"`{name}`")
    if table.ndim > 2 or (table.ndim == 2 and table.shape[0] not in (1, count)):
        raise ParameterError(
            f"`{name}` must be a log-table of {size + 1} values, or {count} of them; shape {table.shape} arrived."
        )
    return np.atleast_2d(table).copy()
