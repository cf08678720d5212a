"""What a benchmark row is, and the contenders that many rows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import tallytree as tt
from peers import Skip
from tallytree import config

TALLYTREE = "tallytree"
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
