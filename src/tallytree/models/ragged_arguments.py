"""What users pass to a ragged batch: log-odds of all models, and their potentials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..arrays import FloatArray
from ..checks.configurations import states
from ..errors import ParameterError
from ..potentials import Potential, as_potential


def potential_of_each(potentials: Any, sizes: NDArray[np.int64]) -> list[Any]:
    """One potential or log-table per model."""
    count = len(sizes)
    if isinstance(potentials, Potential) or potentials is None or callable(potentials):
        return _one_each(as_potential(potentials), count)
    wanted = f"`potentials` must be one potential for all models or a list of {count}, one per model"
    whole = isinstance(potentials, (int, np.integer))
    hint = f" For a fixed count use exactly({potentials})." if whole else ""
    given = checks.listed(potentials, count, wanted, hint)
    for i, (n, potential) in enumerate(zip(sizes.tolist(), given)):
        if not isinstance(potential, Potential) and potential is not None and not callable(potential):
            given[i] = checks.log_table(potential, n, name=f"The table of model {i}")
    return given


def _one_each(potential: Potential, count: int) -> list[Any]:
    """The potential of every model: the same object, or its own where there is one parameter per model."""
    if potential.batch_shape not in ((), (1,), (count,)):
        raise ParameterError(
            f"`potentials` must have one parameter for all models or one for each of the {count}; parameters of shape "
            f"{potential.batch_shape} arrived."
        )
    if not potential.batch_shape:
        return [potential] * count
    return [potential._member((i,)) for i in range(count)]


def flattened(logits: Any, sizes: ArrayLike | None) -> tuple[FloatArray, NDArray[np.int64], np.dtype[Any]]:
    """Log-odds of all models, where each begins, and the dtype of answers."""
    if sizes is None:
        if not isinstance(logits, Iterable) or (isinstance(logits, np.ndarray) and logits.ndim == 0):
            raise ParameterError(
                "`logits` must be a list with one 1-D array per model, or one array together with `sizes`; "
                f"{checks.describe(logits)} arrived."
            )
        parts = [checks.logits(part) for part in logits]
        bad = [i for i, (part, _) in enumerate(parts) if part.ndim != 1]
        if bad:
            raise ParameterError(
                f"`logits` must hold one 1-D array per model; model {bad[0]} has shape {parts[bad[0]][0].shape}."
            )
        lengths = np.array([len(part) for part, _ in parts], np.int64)
        single = bool(parts) and all(dtype == np.float32 for _, dtype in parts)
        dtype = np.dtype(np.float32 if single else np.float64)
        values = np.concatenate([np.empty(0), *[part for part, _ in parts]])
    else:
        values, dtype = checks.logits(logits)
        lengths = checks.rectangular("sizes", sizes, "a list of non-negative integers")
        if values.ndim != 1 or lengths.ndim != 1 or lengths.dtype.kind not in "iu" or np.any(lengths < 0):
            raise ParameterError(
                "`logits` must be one-dimensional and `sizes` a list of non-negative integers."
            )
        if int(lengths.sum()) != len(values):
            raise ParameterError(f"`sizes` add up to {int(lengths.sum())}, but {len(values)} logits arrived.")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return values.astype(dtype), offsets, dtype  # a copy: what users change later is not ours


def configuration_of_each(y: Any, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """A configuration of every model, one after the other."""
    total = int(sizes.sum())
    if isinstance(y, np.ndarray) and y.dtype != object and y.ndim == 1:
        return states(y, total)
    given = list(y) if isinstance(y, Iterable) else []
    if len(given) != len(sizes):
        raise ParameterError(
            f"`y` must hold one configuration for each of the {len(sizes)} models, or one array of {total} entries; "
            f"{checks.describe(y)} arrived."
        )
    rows = [states(row, n) for row, n in zip(given, sizes.tolist())]
    bad = [i for i, row in enumerate(rows) if row.ndim != 1]
    if bad:
        raise ParameterError(
            f"`y` must hold one configuration per model; that of model {bad[0]} has shape {rows[bad[0]].shape}."
        )
    return np.concatenate([np.empty(0, bool), *rows])


def logits_of_each(logits: Any, offsets: NDArray[np.int64]) -> FloatArray:
    """A direction in the log-odds of all models, given in one array or one per model."""
    count, total = len(offsets) - 1, int(offsets[-1])
    wanted = (
        f"`logits` must hold one array for each of the {count} models, of its size, or one number for each of the "
        f"{total} variables"
    )
    several = isinstance(logits, Iterable) and not isinstance(logits, (str, bytes))
    parts = list(logits) if several else []
    if not count or (parts and np.ndim(parts[0]) == 1):
        values, found, _ = flattened(parts if several else logits, None)
        if not np.array_equal(found, offsets):
            raise ParameterError(f"{wanted}; sizes {np.diff(found).tolist()[:8]} arrived.")
        return values
    values, _ = checks.logits(parts if several else logits)
    if values.shape != (total,):
        raise ParameterError(f"{wanted}; shape {values.shape} arrived.")
    return values


def tables_of_each(tables: Any, sizes: NDArray[np.int64]) -> list[Any]:
    """A direction in the table of every model, or None."""
    wanted = f"`tables` must be a list of {len(sizes)} arrays or None, one per model"
    entries = checks.listed(tables, len(sizes), wanted)
    return [
        None if entry is None else _table_of_one(entry, n, f"The direction of model {i}")
        for i, (entry, n) in enumerate(zip(entries, sizes.tolist()))
    ]


def _table_of_one(entry: Any, n: int, name: str) -> NDArray[np.float64]:
    array = checks.log_table(entry, n, name=name)
    if array.ndim != 1:
        raise ParameterError(f"{name} must have shape ({n + 1},); shape {array.shape} arrived.")
    return array
