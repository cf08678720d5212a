"""What is computed once: properties, answers of an object, and what others derive from a structure."""

from __future__ import annotations

from _thread import RLock as _Lock
from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar, overload

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


class Remembers:
    """An object that keeps its answers; several threads may ask, one computes. Copies start without them."""

    _cache: dict[Any, Any]
    _lock: Any

    def _forget(self) -> None:
        self._cache = {}
        self._lock = _Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_cache", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _cached(self, key: Any, compute: Callable[[], T]) -> T:
        found: T | None = self._cache.get(key)
        if found is None:
            with self._lock:
                found = self._cache.get(key)
                if found is None:
                    found = self._cache[key] = compute()
        return found


class answer(cached_property[T]):
    """A property of something that remembers: computed once, under its lock, kept, and not to be set."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> answer[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        cache, name = instance._cache, self.attrname
        if name not in cache:
            with instance._lock:
                if name not in cache:
                    cache[name] = self.func(instance)
        return cache[name]

    def __set__(self, instance: object, value: object) -> None:
        raise AttributeError(f"`{self.attrname}` cannot be set: objects are frozen. Make a new one.")


class Keeper:
    """A structure that keeps, for those who solve it, what they derive from it: it lives as long as the structure."""

    def kept(self, key: str, make: Callable[[], T]) -> T:
        """What ``make()`` gave the first time it was asked for under this name."""
        memo: dict[str, Any] | None = self.__dict__.get("_kept")
        if memo is None:
            memo = self.__dict__.setdefault("_kept", {})
        if key not in memo:
            memo[key] = make()
        found: T = memo[key]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_kept"}
