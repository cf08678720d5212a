"""Arrays that a model keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import config

Float64 = NDArray[np.float64]
_WORTH_A_BLOCK = 1 << 17  # numbers: from here on first touches of pages cost more than the copying


def frozen_copies(arrays: Sequence[Float64]) -> list[Float64]:
    """Read-only copies."""
    native = config.native()
    total = 0
    for a in arrays:
        total += a.size
    if native is None or total < _WORTH_A_BLOCK:
        copies = [a.copy() for a in arrays]
    else:
        copies = native.copies([np.ascontiguousarray(a) for a in arrays], config.threads())
    for copy in copies:
        copy.setflags(write=False)
    return copies


def is_frozen(array: NDArray[Any]) -> bool:
    """Whether nobody can change the numbers through this array or the ones that it is a view of."""
    view: Any = array
    while isinstance(view, np.ndarray):
        if view.flags.writeable:
            return False
        view = view.base
    return True
