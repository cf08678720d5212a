"""Arrays that a model keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64
from . import native

WORTH_A_BLOCK = 1 << 15  # numbers: from here on one pass that copies and looks is quicker than several


def frozen_copies(arrays: Sequence[Float64]) -> tuple[list[Float64], list[tuple[float, float]] | None]:
    """Read-only copies, and the smallest and largest number of each where the copying could tell; NaN if it met one."""
    total = 0
    for a in arrays:
        total += a.size
    extremes = None
    if total < WORTH_A_BLOCK or not native.present():
        copies = [a.copy() for a in arrays]
    else:
        copies, extremes = native.copies(arrays)
    for copy in copies:
        copy.setflags(write=False)
    return copies, extremes


def is_frozen(array: NDArray[Any]) -> bool:
    """Whether nobody can change the numbers through this array or the ones that it is a view of."""
    view: Any = array
    while isinstance(view, np.ndarray):
        if view.flags.writeable:
            return False
        view = view.base
    return True
