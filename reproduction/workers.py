"""Steps side by side in processes of their own; what is finished is stored at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any

from .store import NUMBERS, Format, Store

# Name, what the result depends on, function, arguments
Task = tuple[str, Mapping[str, Any], Callable[..., Any], tuple[Any, ...]]


def each(store: Store, tasks: Sequence[Task], jobs: int, kind: Format = NUMBERS) -> list[Any]:
    """Results of all tasks, in order; stored ones are reused.

    What is missing is made in processes and stored as soon as it is there; then all is taken from the store.
    """
    quiet: dict[str, Store] = {}
    if jobs > 1:
        missing = [t for t in tasks if store.known(kind, t[0], t[1]) is None]
        _in_processes(missing, jobs, partial(store.result, kind))
        quiet = {t[0]: Store(store.folder) for t in missing}  # were reported when they were stored
    return [
        quiet.get(name, store).result(kind, name, inputs, partial(function, *arguments))
        for name, inputs, function, arguments in tasks
    ]


def _in_processes(tasks: Sequence[Task], jobs: int, stored: Callable[..., Any]) -> None:
    if not tasks:
        return
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
