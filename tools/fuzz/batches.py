"""Batches over one structure, with and without edges, and ragged batches: every row against its own truth."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tallytree as tt

from . import answers
from .binary import Binary, listed
from .compare import Report, close_log_partition, close_log_probs, close_logits, close_marginals, dominated
from .counts import filled, forest_structure, hidden_states, nested_family, tag_of
from .numbers import Source, size_between

LARGEST = 7


@dataclass(frozen=True, eq=False)
class BatchCase:
    """Models of one structure in a batch of some shape; ``others`` are as many more, for what compares two."""

    rows: tuple[Binary, ...]
    others: tuple[Binary, ...]
    shape: tuple[int, ...]

    def model(self, rows: tuple[Binary, ...]) -> tt.CountModel:
        first = rows[0]

        def stacked(arrays: list[np.ndarray]) -> np.ndarray:
            return np.array(arrays).reshape(*self.shape, *np.shape(arrays[0]))

        groups = [
            tt.Group(list(m), stacked([r.groups[g][1] for r in rows]))
            for g, (m, _) in enumerate(first.groups)
        ]
        options: dict[str, Any] = {}
        if first.has_edges:
            tables = [np.array([t for *_, t in r.edges]).reshape(-1, 2, 2) for r in rows]
            options["edges"] = tt.Forest(np.array(first.pairs, int).reshape(-1, 2), stacked(tables))
        return tt.CountModel(stacked([r.theta for r in rows]), groups, **options)

    def check(self, report: Report, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**31))
        report.tag = tag_of([a for r in self.rows for a in r.numbers()]) + " (edges)" * self.rows[0].has_edges
        model = self.model(self.rows)
        with report.answer("batch_shape"):
            assert model.batch_shape == self.shape, (
                f"batch_shape is {model.batch_shape}, expected {self.shape}"
            )
        self._empty(report)
        second = self.model(self.others)
        for b, at in enumerate(np.ndindex(self.shape)):
            ask = answers.Asked(report, model, self.rows[b].truth(), self.rows[b], at)
            if not answers.first_order(ask):
                return
            answers.expectations(ask)
            answers.maxima(ask)
            answers.samples(ask, seed)
            answers.divergence(ask, second, self.others[b].truth())

    def _empty(self, report: Report) -> None:
        """A batch of no models has answers of no models."""
        with report.answer("empty batch"):
            first = self.rows[0]
            options: dict[str, Any] = {"edges": first.forest()} if first.has_edges else {}
            groups = [tt.Group(list(m), t) for m, t in first.groups]
            model = tt.CountModel(np.empty((0, first.size)), groups, **options)
            shapes = [
                np.shape(model.log_partition),
                np.shape(model.marginals),
                np.shape(model.sample(3, rng=0)),
            ]
            assert shapes == [(0,), (0, first.size), (3, 0, first.size)], f"shapes {shapes}"
            assert np.shape(model.entropy) == (0,), f"entropy of shape {np.shape(model.entropy)}"
            assert np.shape(model.mode()) == (0, first.size), f"mode of shape {np.shape(model.mode())}"

    def code(self) -> str:
        rows, others = ("\n    ".join(r.code() for r in part) for part in (self.rows, self.others))
        return f"  # a batch of shape {self.shape}:\n    {rows}\n    others:\n    {others}"

    def simpler(self) -> list[BatchCase]:
        found = []
        if len(self.rows) > 1:
            found = [BatchCase((r,), (o,), (1,)) for r, o in zip(self.rows, self.others)]
        parts = list(zip(*(r.simpler() for r in self.rows))), list(zip(*(r.simpler() for r in self.others)))
        return found + [replace(self, rows=a, others=b) for a, b in zip(*parts)]

    def numbers(self) -> list[np.ndarray]:
        return [a for r in (*self.rows, *self.others) for a in r.numbers()]

    def with_numbers(self, numbers: list[np.ndarray]) -> BatchCase:
        step = len(self.rows[0].numbers())
        new = [
            r.with_numbers(numbers[b * step : (b + 1) * step])
            for b, r in enumerate((*self.rows, *self.others))
        ]
        return replace(self, rows=tuple(new[: len(self.rows)]), others=tuple(new[len(self.rows) :]))


def draw_batch(rng: np.random.Generator) -> BatchCase:
    n = size_between(rng, 1, LARGEST)
    with_edges = bool(rng.random() < 0.4)
    family, pairs = forest_structure(rng, n) if with_edges else (nested_family(rng, n), None)
    shapes = [(1,), (2,), (5,), (2, 2), (9,)]
    shape = shapes[int(rng.choice(len(shapes), p=[0.2, 0.3, 0.3, 0.15, 0.05]))]
    mask = None
    rows = []
    for _ in range(2 * math.prod(shape)):
        source = Source(rng, hidden_states(rng, n))
        mask = source.mask if mask is None else mask
        source.mask = mask
        rows.append(filled(source, family, pairs))
    half = len(rows) // 2
    return BatchCase(tuple(rows[:half]), tuple(rows[half:]), shape)


@dataclass(frozen=True, eq=False)
class RaggedCase:
    """Models of different sizes, one table each."""

    rows: tuple[Binary, ...]
    flat: bool  # logits one after the other, with sizes

    def check(self, report: Report, rng: np.random.Generator) -> None:
        report.tag = tag_of([a for r in self.rows for a in r.numbers()])
        logits, tables = [r.theta for r in self.rows], [r.groups[0][1] for r in self.rows]
        if self.flat:
            batch = tt.RaggedBatch(np.concatenate([np.empty(0), *logits]), tables, [len(t) for t in logits])
        else:
            batch = tt.RaggedBatch(logits, tables)
        with report.answer("len"):
            assert len(batch) == len(self.rows)
        for i, row in enumerate(self.rows):
            truth = row.truth()
            with report.answer("log_partition"):
                close_log_partition(batch.log_partition[i], truth.log_partition)
            with report.answer("posterior_logits"):
                close_logits(batch.posterior_logits[i], truth.posterior_logits)
            with report.answer("marginals"):
                close_marginals(batch.marginals[i], truth.posterior_logits)
            with report.answer("count_log_probs"):
                scores = truth.states.sum(1)
                close_log_probs(batch.count_log_probs[i], truth.score_log_probs(scores, row.size))
            with report.answer("error_bound"):
                dominated(0.0, float(batch.error_bound[i]), 0.0, "nothing")
            with report.answer("item"):
                close_log_partition(batch[i].log_partition, truth.log_partition)

    def code(self) -> str:
        logits = ", ".join(listed(r.theta) for r in self.rows)
        tables = ", ".join(listed(r.groups[0][1]) for r in self.rows)
        return f"tt.RaggedBatch([{logits}], [{tables}])"

    def simpler(self) -> list[RaggedCase]:
        rows = self.rows
        return (
            [replace(self, rows=rows[:i] + rows[i + 1 :]) for i in range(len(rows))] if len(rows) > 1 else []
        )

    def numbers(self) -> list[np.ndarray]:
        return [a for r in self.rows for a in r.numbers()]

    def with_numbers(self, numbers: list[np.ndarray]) -> RaggedCase:
        return replace(
            self, rows=tuple(r.with_numbers(numbers[2 * i : 2 * i + 2]) for i, r in enumerate(self.rows))
        )


def draw_ragged(rng: np.random.Generator) -> RaggedCase:
    rows = []
    for _ in range(int(rng.integers(1, 9))):
        n = int(rng.integers(0, LARGEST + 1))
        rows.append(filled(Source(rng, hidden_states(rng, n)), [tuple(range(n))], None))
    return RaggedCase(tuple(rows), bool(rng.random() < 0.5))
