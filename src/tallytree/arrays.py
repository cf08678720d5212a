"""Array types that signatures share."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Float64: TypeAlias = NDArray[np.float64]
FloatArray: TypeAlias = NDArray[np.floating[Any]]  # float32 or float64, as the user's numbers
Ints: TypeAlias = NDArray[np.int64]
States: TypeAlias = NDArray[np.uint8]  # configurations of 0 and 1
Bools: TypeAlias = NDArray[np.bool_]
Size: TypeAlias = int | tuple[int, ...] | None  # leading axes of samples
