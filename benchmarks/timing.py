"""Interleaved timing: every contender in turn, round after round, so that a busy moment hits them all."""

from __future__ import annotations

import gc
import statistics
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from machine import stopwatch
from peers import Skip

SHORTEST = 5e-3  # calls quicker than this are timed in loops that take as long


@dataclass
class Timing:
    """Seconds per call, or why there are none."""

    times: list[float] = field(default_factory=list)
    reason: str = ""
    value: Any = None  # what the first call returned
    number: int = 1
    first: float | None = None  # the first call, which also builds what later ones find cached

    @property
    def median(self) -> float:
        return statistics.median(self.times) if self.times else float("nan")

    @property
    def least(self) -> float:
        return min(self.times, default=float("nan"))


def measure(prepare: Mapping[str, Callable[[], Any]], repeats: int, cap: float) -> dict[str, Timing]:
    """Time all contenders. One that takes longer than ``cap`` seconds is called no more."""
    found = {label: Timing() for label in prepare}
    calls: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, ready in prepare.items():
            _first(label, ready, found[label], calls, cap)
        enabled = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            for turn in range(repeats):
                labels = list(calls)
                for label in labels[turn % max(1, len(labels)) :] + labels[: turn % max(1, len(labels))]:
                    timing = found[label]
                    if sum(timing.times) <= 3 * cap:
                        timing.times.append(stopwatch(calls[label], timing.number))
        finally:
            if enabled:
                gc.enable()
    return found


def _first(label: str, ready: Callable[[], Any], timing: Timing, calls: dict[str, Any], cap: float) -> None:
    """Prepare and warm up one contender; any failure becomes its reason."""
    try:
        call = ready()
        answer: list[Any] = []
        taken = stopwatch(lambda: answer.append(call()), 1)
        timing.value, timing.first = answer[0], taken
        if taken <= 3 * cap:
            taken = stopwatch(call, 1)
        if taken > cap:
            timing.times.append(taken)
            return
    except Skip as error:
        timing.reason = str(error)
    except Exception as error:  # a peer may fail in any way it likes
        text = str(error).split("\n")[0]
        timing.reason = f"{type(error).__name__}: {text[:100]}"
    else:
        if taken < SHORTEST:  # the second call may still have been a slow one
            taken = min(taken, *(stopwatch(call, 1) for _ in range(5)))
        timing.number = max(1, min(10_000, int(SHORTEST / max(taken, 1e-9))))
        calls[label] = call
