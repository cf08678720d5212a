"""Steps side by side in processes of their own; what is finished is stored at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any

from numpy.typing import NDArray

from .store import Store

ArrayTask = tuple[str, Mapping[str, Any], Callable[..., Any], tuple[Any, ...]]
Task = tuple[str, Mapping[str, Any], tuple[Any, ...]]  # name, what the result depends on, arguments
Stored = Callable[
    [str, Mapping[str, Any], Callable[[], Any]], Any
]  # a result from the store, or made and stored


def each(store: Store, function: Callable[..., Any], tasks: Sequence[Task], jobs: int) -> list[Any]:
    """Results of ``function`` for all tasks, in order; stored ones are reused."""
    calls = [(name, inputs, function, arguments) for name, inputs, arguments in tasks]
    missing = [t for t in calls if store.known_numbers(t[0], t[1]) is None]
    return _each(calls, missing, jobs, store.numbers, Store(store.folder).numbers)


def each_arrays(store: Store, tasks: Sequence[ArrayTask], jobs: int) -> list[dict[str, NDArray[Any]]]:
    """Named arrays of all tasks, each with a function of its own, in order; stored ones are reused."""
    missing = [t for t in tasks if not store.has_arrays(t[0], t[1])]
    return _each(tasks, missing, jobs, store.arrays, Store(store.folder).arrays)


def _each(
    tasks: Sequence[ArrayTask], missing: list[ArrayTask], jobs: int, stored: Stored, quiet: Stored
) -> list[Any]:
    """The missing results in processes, each stored as soon as it is there; then all of them from the store."""
    fresh: set[str] = set()
    if jobs > 1 and missing:
        _in_processes(missing, jobs, stored)
        fresh = {t[0] for t in missing}  # were reported when they were stored
    return [
        (quiet if name in fresh else stored)(name, inputs, partial(function, *arguments))
        for name, inputs, function, arguments in tasks
    ]


def _in_processes(tasks: Sequence[ArrayTask], jobs: int, stored: Stored) -> None:
    context = multiprocessing.get_context("spawn")  # the engine's threads do not survive a fork
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=context) as pool:
        running = {
            pool.submit(function, *arguments): (name, inputs) for name, inputs, function, arguments in tasks
        }
        try:
            for future in as_completed(running):
                stored(*running[future], future.result)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
