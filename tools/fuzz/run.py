"""Checking one model, named by (kind, seed, index), on one engine."""

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


def drawn(kind: str, seed: int, index: int) -> Any:
    """The case with this name."""
    return KINDS[kind](np.random.default_rng([seed, index, zlib.crc32(kind.encode())]))


def checked(case: Any, engine: str, seed: int, index: int) -> Report:
    """Everything asked of a case on one engine; warnings are errors."""
    report = Report()
    rng = np.random.default_rng([seed, index, 1000])
    levels = config._extension.levels() if config._extension is not None else [""]
    settings: dict[str, Any] = {"engine": engine, "threads": 1 + index % 3}
    if engine == "native":
        settings["level"] = levels[index % len(levels)]
    with config.using(**settings), warnings.catch_warnings():
        warnings.simplefilter("error")
        with report.answer("model"):
            case.check(report, rng)
    return report


def violations(kind: str, engine: str, seed: int, index: int, report: Report) -> list[Violation]:
    return [Violation(kind, engine, seed, index, name, seen) for name, seen in report.wrong]
