"""Products of the Hessian with directions: the compiled engine against the array engine, which share no arithmetic.

Models of one potential or nested groups of up to 40 variables, and forests of up to nine, a lot of them over one
structure in a batch. The compiled engine carries plain numbers with a certificate, the array engine logarithms and
ratios. On the array engine itself products are compared with each other: <a, H b> = <b, H a>.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import tallytree as tt
from tallytree import config

from .batches import batch_model
from .binary import Binary
from .compare import Report, close
from .numbers import Source, size_between
from .structures import filled, forest_structure, hidden_states, nested_family, tag_of

LOT = 64  # models over one structure
LARGEST, LARGEST_FOREST = 40, 9
SHARE = 1e-10  # error as a share of the largest entry of a product ...
NOISE = 4e-15  # ... or of the direction, whichever is more

Product = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class TangentLot:
    """Models over one structure and, drawn from `seed`, two directions."""

    rows: tuple[Binary, ...]
    seed: int

    def directions(self) -> list[tuple[np.ndarray, list[np.ndarray]]]:
        rng, first = np.random.default_rng(self.seed), self.rows[0]
        lengths = [len(table) for _, table in first.groups]

        def drawn(length: int) -> np.ndarray:
            return rng.standard_normal((len(self.rows), length))

        return [(drawn(first.size), [drawn(length) for length in lengths]) for _ in range(2)]

    def products(self) -> list[Product]:
        """Of the engine in force, along both directions."""
        model = batch_model(self.rows, (len(self.rows),))
        found = [model.hessian_vector_product(v, h) for v, h in self.directions()]
        return [(np.asarray(p.logits), *(np.asarray(t) for t in p.tables)) for p in found]

    @cached_property
    def reference(self) -> list[Product]:
        with config.using(engine="array"):
            return self.products()

    def check(self, report: Report, rng: np.random.Generator) -> None:
        report.tag = tag_of(self.numbers()) + " (edges)" * self.rows[0].has_edges
        with report.answer("tangent"):
            try:
                self._compared()
            except tt.ParameterError as error:
                if "not available" not in str(error):
                    raise

    def _compared(self) -> None:
        if config.native() is None:
            self._symmetric()
            return
        for found, right, (v, h) in zip(self.products(), self.reference, self.directions()):
            largest = np.max([np.abs(p).max(axis=1, initial=0.0) for p in right], axis=0)
            given = np.max([np.abs(p).max(axis=1, initial=0.0) for p in (v, *h)], axis=0)
            allowed = np.maximum(SHARE * largest, NOISE * given)[:, None]
            for got, want in zip(found, right):
                close(got, want, allowed)

    def _symmetric(self) -> None:
        (a, b), images = self.directions(), self.reference

        def inner(direction: Any, image: Product) -> np.ndarray:
            v, h = direction
            parts = [np.where(np.isfinite(x), x, 0.0) * y for x, y in zip((v, *h), image)]
            return np.asarray(np.sum([p.sum(axis=1) for p in parts], axis=0))

        sizes = np.sum([np.abs(p).sum(axis=1) for image in images for p in image], axis=0)
        close(inner(a, images[1]), inner(b, images[0]), 1e-9 * sizes + 1e-12)

    def code(self) -> str:
        return "\n    ".join(row.code() for row in self.rows)

    def simpler(self) -> list[TangentLot]:
        if len(self.rows) > 1:
            return [replace(self, rows=(row,)) for row in self.rows]
        return [replace(self, rows=(row,)) for row in self.rows[0].simpler()]

    def numbers(self) -> list[np.ndarray]:
        return [a for row in self.rows for a in row.numbers()]

    def with_numbers(self, numbers: list[np.ndarray]) -> TangentLot:
        step = len(self.rows[0].numbers())
        parts = [numbers[i : i + step] for i in range(0, len(numbers), step)]
        return replace(self, rows=tuple(r.with_numbers(p) for r, p in zip(self.rows, parts)))


def draw_tangents(rng: np.random.Generator) -> TangentLot:
    """One in eight with edges."""
    pairs = None
    if rng.random() < 0.125:
        n = size_between(rng, 1, LARGEST_FOREST)
        family, pairs = forest_structure(rng, n)
    else:
        n = size_between(rng, 1, LARGEST)
        family = nested_family(rng, n)
    mask = Source(rng, hidden_states(rng, n)).mask
    rows = []
    for _ in range(LOT):
        source = Source(rng, hidden_states(rng, n))
        source.mask = mask  # one size of masks in what is compared
        rows.append(filled(source, family, pairs))
    return TangentLot(tuple(rows), int(rng.integers(2**31)))
