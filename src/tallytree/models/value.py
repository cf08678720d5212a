"""What makes an object a value: it is its own copy, and equal to those of its class with equal parts."""

from __future__ import annotations

from typing import Any, Self

import numpy as np


class Value:
    """The base of everything here that never changes, not used on its own."""

    def _parts(self) -> tuple[Any, ...]:
        """What tells it apart from others of its class."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return _equal(self._parts(), other._parts())

    def __hash__(self) -> int:
        # Arrays tell enough; `0.0 +` because -0.0 is equal to 0.0, with other bytes.
        return hash(tuple((0.0 + x).tobytes() for x in self._parts() if isinstance(x, np.ndarray)))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray) and bool(a == b)
