"""Values that are computed once: the only caches of the package.

`cached` is a property, `answer` one that users see, `once` a value under any other key, `lru` a function of its
arguments. Nothing here holds a lock that a forked process could inherit in a locked state.
"""

from __future__ import annotations

import functools
import os
from _thread import RLock
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_under_way: dict[tuple[int, Hashable], Any] = {}  # a lock for every value that some thread is computing

if hasattr(os, "register_at_fork"):  # the threads that compute them do not exist in a forked process
    os.register_at_fork(after_in_child=_under_way.clear)


def once(owner: object, key: Hashable, compute: Callable[[], T]) -> T:
    """The value that ``compute()`` had when the owner was first asked for this key.

    It lives as long as the owner. Of several threads that ask, one computes and the others wait.
    """
    store = owner.__dict__.setdefault("_once", {})
    return store[key] if key in store else _once(store, key, compute)


def _once(store: dict[Any, Any], key: Hashable, compute: Callable[..., T], *arguments: Any) -> T:
    mark = (id(store), key)
    with _under_way.setdefault(mark, RLock()):
        try:
            value: T = store[key] if key in store else store.setdefault(key, compute(*arguments))
        finally:
            _under_way.pop(mark, None)
    return value


class cached(Generic[T]):
    """A property that is computed on first access and is a plain attribute from then on.

    Threads do not wait for one another: two that ask at once both compute it, and both get the first that is ready.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> cached[T] | T:
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value


class answer(cached[T]):
    """A property that is computed once, by one thread while others wait, and cannot be set."""

    @overload
    def __get__(self, instance: None, owner: type) -> answer[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> answer[T] | T:
        if instance is None:
            return self
        store = instance.__dict__
        if self._name in store:
            value: T = store[self._name]
            return value
        return _once(store, self._name, self._compute, instance)

    def __set__(self, instance: object, value: object) -> None:
        raise AttributeError(f"`{self._name}` cannot be set: objects are frozen. Make a new one.")


class Caching:
    """The base of objects with cached values; their pickles hold what was given, not what follows from it."""

    def __getstate__(self) -> dict[str, Any]:
        kind = type(self)
        return {
            name: value
            for name, value in self.__dict__.items()
            if name != "_once" and not isinstance(getattr(kind, name, None), cached)
        }


def lru(size: int) -> Callable[[F], F]:
    """Decorate a function of hashable arguments to keep the values of the last `size` different calls."""
    return functools.lru_cache(maxsize=size)  # type: ignore[return-value]  # no lock is held while it computes
