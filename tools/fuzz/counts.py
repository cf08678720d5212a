"""Count models with one potential or nested groups, and with edges: up to nine variables, by enumeration.

A case is a lot of models over one structure. All that are possible are asked together, as a batch, one of them again on
its own, and every impossible one is asked on its own to say so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from . import answers
from .batches import BatchCase, batch_model
from .binary import Binary, truth_of
from .compare import Report
from .numbers import Source, size_between
from .structures import filled, forest_structure, hidden_states, in_single, nested_family, tag_of

LARGEST = 9
LOT = 80  # models over one structure


@dataclass(frozen=True, eq=False)
class CountLot:
    """Models over one structure, and as many more for what compares two."""

    rows: tuple[Binary, ...]
    others: tuple[Binary, ...]
    single: bool = False  # float32

    @cached_property
    def possible(self) -> np.ndarray:
        return truth_of(self.rows, (len(self.rows),)).possible

    @cached_property
    def together(self) -> BatchCase | None:
        at = np.nonzero(self.possible)[0]
        if not len(at):
            return None
        rows, others = tuple(self.rows[i] for i in at), tuple(self.others[i] for i in at)
        return BatchCase(rows, others, (len(at),), self.single)

    @cached_property
    def alone(self) -> BatchCase | None:
        """One of them without a batch."""
        if self.together is None:
            return None
        at = len(self.together.rows) // 2
        return replace(
            self.together, rows=(self.together.rows[at],), others=(self.together.others[at],), shape=()
        )

    def check(self, report: Report, rng: np.random.Generator) -> None:
        report.tag = tag_of(self.numbers(), self.single)
        for row, possible in zip(self.rows, self.possible):
            if not possible:
                answers.refuses(report, batch_model([row], (), self.single))
        for case in (self.together, self.alone):
            if case is not None:
                case.check(report, rng)

    def code(self) -> str:
        single = "  # logits in float32" * self.single
        pairs = [f"{r.code()}{single}\n    other: {o.code()}" for r, o in zip(self.rows, self.others)]
        return "\n    ".join(pairs)

    def simpler(self) -> list[CountLot]:
        if len(self.rows) > 1:
            return [replace(self, rows=(r,), others=(o,)) for r, o in zip(self.rows, self.others)]
        pairs = zip(self.rows[0].simpler(), self.others[0].simpler())
        return [replace(self, rows=(a,), others=(b,)) for a, b in pairs]

    def numbers(self) -> list[np.ndarray]:
        return [a for r in (*self.rows, *self.others) for a in r.numbers()]

    def with_numbers(self, numbers: list[np.ndarray]) -> CountLot:
        step = len(self.rows[0].numbers())
        parts = [numbers[i : i + step] for i in range(0, len(numbers), step)]
        new = [r.with_numbers(p) for r, p in zip((*self.rows, *self.others), parts)]
        if self.single:
            new = [in_single(r) for r in new]
        return replace(self, rows=tuple(new[: len(self.rows)]), others=tuple(new[len(self.rows) :]))


def draw_counts(rng: np.random.Generator) -> CountLot:
    n = size_between(rng, 1, LARGEST) if rng.random() > 0.01 else 0
    return _lot(rng, LOT, n, nested_family(rng, n), None)


def draw_forest(rng: np.random.Generator) -> CountLot:
    n = size_between(rng, 1, LARGEST)
    family, pairs = forest_structure(rng, n)
    return _lot(rng, LOT, n, family, pairs)


def _lot(
    rng: np.random.Generator,
    number: int,
    n: int,
    family: list[tuple[int, ...]],
    pairs: list[tuple[int, int]] | None,
) -> CountLot:
    mask = Source(rng, hidden_states(rng, n)).mask  # one size of masks in what is compared
    rows, others = [], []
    for _ in range(number):
        source = Source(rng, hidden_states(rng, n), bool(rng.random() < 0.1))
        second = Source(rng, hidden_states(rng, n))
        source.mask = 0.0 if source.contradictions else mask
        second.mask = source.mask
        rows.append(filled(source, family, pairs))
        others.append(filled(second, family, pairs))
    if not mask and rng.random() < 0.08:
        return CountLot(tuple(map(in_single, rows)), tuple(map(in_single, others)), True)
    return CountLot(tuple(rows), tuple(others))
