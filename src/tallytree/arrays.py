"""Array types that signatures share, and a property that is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Float64: TypeAlias = NDArray[np.float64]
FloatArray: TypeAlias = NDArray[np.floating[Any]]  # float32 or float64, as the user's numbers
Ints: TypeAlias = NDArray[np.int64]
States: TypeAlias = NDArray[np.uint8]  # configurations of 0 and 1
Bools: TypeAlias = NDArray[np.bool_]

T = TypeVar("T")


class lazy(Generic[T]):
    """Computed on first access, then a plain attribute.

    Without the lock of functools: the value may be computed twice, and then both are the same.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> lazy[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
