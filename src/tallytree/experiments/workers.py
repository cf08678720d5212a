"""Steps side by side in processes of their own; what is finished is stored at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any

from .store import Store

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
