"""Array types that signatures share, and arrays that nobody may change."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Float64: TypeAlias = NDArray[np.float64]
FloatArray: TypeAlias = NDArray[np.floating[Any]]  # float32 or float64, as the user's numbers
Ints: TypeAlias = NDArray[np.int64]
States: TypeAlias = NDArray[np.uint8]  # configurations of 0 and 1
Bools: TypeAlias = NDArray[np.bool_]
Size: TypeAlias = int | tuple[int, ...] | None  # leading axes of samples

A = TypeVar("A", bound=NDArray[Any])


def frozen(array: A, *others: NDArray[Any]) -> A:
    """The first array; all are read-only from here on, because answers and parameters are kept."""
    arrays: tuple[NDArray[Any], ...] = (array, *others)
    for each in arrays:
        each.flags.writeable = False
    return array


def is_frozen(array: NDArray[Any]) -> bool:
    """Whether nobody can change the numbers through this array or the ones that it is a view of."""
    view: Any = array
    while isinstance(view, np.ndarray):
        if view.flags.writeable:
            return False
        view = view.base
    return True
