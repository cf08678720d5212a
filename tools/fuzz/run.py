"""Checking one case, named by (kind, seed, index of its first model), on one engine."""

from __future__ import annotations

import warnings
import zlib
from typing import Any, NamedTuple

import numpy as np

from tallytree import config

from .compare import Report
from .kinds import KINDS

ENGINES = ("native", "array")


class Violation(NamedTuple):
    kind: str
    engine: str
    seed: int
    index: int
    answer: str
    seen: str

    @property
    def command(self) -> str:
        return (
            f"python -m tools.fuzz --kind {self.kind} --seed {self.seed} --first {self.index} --models 1 "
            f"--engine {self.engine} --show"
        )


def first_of_case(kind: str, index: int) -> int:
    """Index of the first model of the case that a model belongs to."""
    return index - index % KINDS[kind].lot


def drawn(kind: str, seed: int, index: int) -> Any:
    """The case with this name."""
    name = [seed, first_of_case(kind, index), zlib.crc32(kind.encode())]
    return KINDS[kind].draw(np.random.default_rng(name))


def checked(case: Any, engine: str, seed: int, index: int) -> Report:
    """Everything asked of a case on one engine; warnings are errors."""
    report = Report()
    turn = zlib.crc32(f"{seed} {index}".encode())  # settings take turns, whatever the size of a lot
    rng = np.random.default_rng([seed, index, 1000])
    settings: dict[str, Any] = {"engine": engine, "threads": 1 + turn % 3}
    if engine == "native":
        levels = config._extension.levels()
        settings["level"] = levels[turn % len(levels)]
    with config.using(**settings), warnings.catch_warnings():
        warnings.simplefilter("error")
        with report.answer("model"):
            case.check(report, rng)
    return report


def violations(kind: str, engine: str, seed: int, index: int, report: Report) -> list[Violation]:
    return [Violation(kind, engine, seed, index, name, seen) for name, seen in report.wrong]
