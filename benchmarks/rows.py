"""What a benchmark row is, the contenders that many rows share, and interleaved timing.

Every contender is called in turn, round after round, so that a busy moment hits them all.
"""

from __future__ import annotations

import gc
import statistics
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import tallytree as tt
from machine import stopwatch
from peers import Skip
from tallytree import config

TALLYTREE = "tallytree"
SHORTEST = 5e-3  # calls quicker than this are timed in loops that take as long
Call = Callable[[], Any]


@dataclass(frozen=True)
class Contender:
    """Something that is timed. ``prepare`` returns the call, or raises `Skip` with the reason.

    ``kind``: "tallytree", "paper" (its methods by name), "peer", "machine" (a bound) or "base" (the same engine on
    work that the row is compared with). Calls return marginals where they have them.
    """

    label: str
    kind: str
    prepare: Callable[[], Call]


class Truth(NamedTuple):
    """Right answers, and where they come from."""

    name: str
    log_partition: Any
    posterior_logits: np.ndarray


@dataclass(frozen=True)
class Row:
    """One line of the table.

    ``target`` is in seconds; ``ratio`` holds the label of a base contender and the largest allowed ratio to it;
    ``model`` makes the model whose answers are compared with ``truth()``, to within ``tolerance``.
    """

    title: str
    contenders: tuple[Contender, ...]
    target: float | None = None
    ratio: tuple[str, float] | None = None
    model: Callable[[], tt.CountModel] | None = None
    truth: Callable[[], Truth] | None = None
    tolerance: float = 1e-10
    size: int = 0


def answers(model: tt.CountModel) -> np.ndarray:
    """What every timed call of tallytree computes."""
    model.log_partition  # noqa: B018
    return model.marginals


def ours(make: Callable[[], tt.CountModel], label: str = TALLYTREE, kind: str = "tallytree", **settings: Any):
    """Tallytree through its objects: a new model, its marginals and log Z in every call."""

    def prepare() -> Call:
        if not settings:
            return lambda: answers(make())

        def run() -> np.ndarray:
            with config.using(**settings):
                return answers(make())

        return run

    return Contender(label, kind, prepare)


def engines(make: Callable[[], tt.CountModel], array: bool = True) -> tuple[Contender, ...]:
    """Tallytree as it comes, on one thread, and without its compiled engine."""
    found = [ours(make)]
    if config.native() is not None:
        found.append(ours(make, "tallytree, 1 thread", threads=1))
        if array:
            found.append(ours(make, "tallytree, array engine", engine="array"))
    return tuple(found)


def paper(make: Callable[[str], tt.CountModel], size: int, nested: bool = False) -> tuple[Contender, ...]:
    """The paper's methods by name, in this package."""

    def prepare(method: str, most: int) -> Callable[[], Call]:
        def ready() -> Call:
            if size > most:
                raise Skip(f"not run above D = {most}")
            return lambda: answers(make(method))

        return ready

    chain = () if nested else (Contender("method='chain'", "paper", prepare("chain", 4096)),)
    return (
        *chain,
        Contender("method='tree'", "paper", prepare("tree", 2**15)),
        Contender("method='fft-tree'", "paper", prepare("fft-tree", 2**20)),
    )


def peer(label: str, prepare: Callable[..., Call], *arguments: Any) -> Contender:
    return Contender(label, "peer", lambda: prepare(*arguments))


def machine(label: str, call: Callable[[], Call]) -> Contender:
    return Contender(label, "machine", call)


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
