"""Type aliases of the public API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.floating[Any]]
Float64Array: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
Members: TypeAlias = "Sequence[int] | range | slice | NDArray[np.integer[Any]] | NDArray[np.bool_] | None"
Rng: TypeAlias = "np.random.Generator | int | None"

__all__ = ["ArrayLike", "Float64Array", "FloatArray", "IntArray", "Mapping", "Members", "Rng"]
