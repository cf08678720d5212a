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


def each(store: Store, function: Callable[..., Any], tasks: Sequence[Task], jobs: int) -> list[Any]:
    """Results of ``function`` for all tasks, in order; stored ones are reused."""
    if jobs <= 1:
        return [
            store.numbers(name, inputs, partial(function, *arguments)) for name, inputs, arguments in tasks
        ]
    missing = [t for t in tasks if store.known_numbers(t[0], t[1]) is None]
    if missing:
        context = multiprocessing.get_context("spawn")  # the engine's threads do not survive a fork
        with ProcessPoolExecutor(min(jobs, len(missing)), mp_context=context) as pool:
            running = {pool.submit(function, *t[2]): t for t in missing}
            try:
                for future in as_completed(running):
                    name, inputs, _ = running[future]
                    store.keep_numbers(name, inputs, future.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    quiet = Store(store.folder)
    fresh = {t[0] for t in missing}
    return [
        (quiet if name in fresh else store).numbers(name, inputs, partial(function, *arguments))
        for name, inputs, arguments in tasks
    ]


def each_arrays(store: Store, tasks: Sequence[ArrayTask], jobs: int) -> list[dict[str, NDArray[Any]]]:
    """Named arrays of all tasks, each with a function of its own, in order; stored ones are reused."""
    if jobs <= 1:
        return [
            store.arrays(name, inputs, partial(function, *arguments))
            for name, inputs, function, arguments in tasks
        ]
    missing = [t for t in tasks if not store.has_arrays(t[0], t[1])]
    if missing:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(jobs, len(missing)), mp_context=context) as pool:
            running = {pool.submit(t[2], *t[3]): t for t in missing}
            try:
                for future in as_completed(running):
                    name, inputs, _, _ = running[future]
                    store.arrays(name, inputs, future.result)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    quiet = Store(store.folder)
    fresh = {t[0] for t in missing}
    return [
        (quiet if name in fresh else store).arrays(name, inputs, partial(function, *arguments))
        for name, inputs, function, arguments in tasks
    ]
