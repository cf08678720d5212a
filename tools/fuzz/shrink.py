"""A smaller case that fails in the same answer: fewer parts, then rounder numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from .run import checked

SECONDS = 20.0  # spent on one case at most


def shrunk(case: Any, engine: str, seed: int, index: int, answer: str) -> Any:
    """Greedy: take the first simpler case that still fails, until none does."""
    if not hasattr(case, "with_numbers"):
        return case
    stop = time.monotonic() + SECONDS
    while True:
        for candidate in _candidates(case):
            if time.monotonic() > stop:
                return case
            if _fails(candidate, engine, seed, index, answer):
                case = candidate
                break
        else:
            return case


def _fails(case: Any, engine: str, seed: int, index: int, answer: str) -> bool:
    try:
        wrong = checked(case, engine, seed, index).wrong
    except Exception:  # a simpler case need not be a case at all
        return False
    return any(name == answer and "oracle" not in seen for name, seen in wrong)


def _candidates(case: Any) -> Iterator[Any]:
    if hasattr(case, "simpler"):
        yield from case.simpler()
    numbers = [np.asarray(a, float) for a in case.numbers()]
    for k, values in enumerate(numbers):
        if values.size > 1 and np.count_nonzero(values) > 1:
            yield case.with_numbers([*numbers[:k], np.zeros_like(values), *numbers[k + 1 :]])
        for at in np.ndindex(values.shape):
            for simple in _rounder(float(values[at])):
                changed = values.copy()
                changed[at] = simple
                yield case.with_numbers([*numbers[:k], changed, *numbers[k + 1 :]])


def _rounder(value: float) -> list[float]:
    """Simpler numbers, simplest first; each one has fewer digits, so that shrinking ends."""
    if value == 0.0 or not math.isfinite(value):
        return []
    found = [0.0]
    for digits in (1, 2, 3):
        rounded = float(f"{value:.{digits - 1}e}")
        if rounded == value:
            break
        found.append(rounded)
    return found
