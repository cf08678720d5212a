"""Models over one structure, with and without edges, asked as a batch; and ragged batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import Truth

from . import answers
from .binary import Binary, listed, truth_of
from .compare import Report, close_log_partition, close_log_probs, close_logits, close_marginals
from .numbers import Source, size_between
from .structures import filled, forest_structure, hidden_states, in_single, nested_family, tag_of

LARGEST = 7
SHAPES = [(24,), (4, 6), (2, 3, 4), (1, 24), (24, 1)]
LOT, RAGGED_LOT = 24, 8  # models in a batch


def batch_model(rows: Sequence[Binary], shape: tuple[int, ...], single: bool = False) -> tt.CountModel:
    """The models of one structure as one model; shape () is a model without a batch."""
    first = rows[0]

    def stacked(arrays: list[np.ndarray]) -> np.ndarray:
        return np.array(arrays).reshape(*shape, *np.shape(arrays[0]))

    groups = [
        tt.Group(list(m), stacked([r.groups[g][1] for r in rows])) for g, (m, _) in enumerate(first.groups)
    ]
    options: dict[str, Any] = {}
    if first.has_edges:
        options["edges"] = batch_forest(rows, shape)
    theta = stacked([r.theta for r in rows])
    return tt.CountModel(theta.astype(np.float32) if single else theta, groups, **options)


def batch_forest(rows: Sequence[Binary], shape: tuple[int, ...]) -> tt.Forest:
    tables = np.array([np.array([t for *_, t in r.edges]).reshape(-1, 2, 2) for r in rows])
    return tt.Forest(np.array(rows[0].pairs, int).reshape(-1, 2), tables.reshape(*shape, -1, 2, 2))


@dataclass(frozen=True, eq=False)
class BatchCase:
    """Models of one structure in a batch of some shape; ``others`` are as many more, for what compares two."""

    rows: tuple[Binary, ...]
    others: tuple[Binary, ...]
    shape: tuple[int, ...]
    single: bool = False  # float32

    @cached_property
    def truth(self) -> Truth:
        return truth_of(self.rows, self.shape)

    @cached_property
    def other_truth(self) -> Truth:
        return truth_of(self.others, self.shape)

    def check(self, report: Report, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**31))
        edges = " (edges)" * (self.rows[0].has_edges and bool(self.shape))
        report.tag = tag_of(self.numbers(), self.single) + edges
        model = batch_model(self.rows, self.shape, self.single)
        with report.answer("batch_shape"):
            assert model.batch_shape == self.shape, f"batch_shape is {model.batch_shape}"
        ask = answers.Asked(report, model, self.truth, self.rows, self.single)
        if not answers.first_order(ask):
            return
        answers.expectations(ask)
        answers.maxima(ask)
        answers.samples(ask, seed)
        answers.derivative(ask, rng)
        self._given(ask, rng)
        other = batch_model(self.others, self.shape, self.single), self.other_truth, self.others, self.single
        answers.divergence(ask, answers.Asked(report, *other))
        self._replaced(ask, rng)
        answers.same_object(ask)
        if self.shape and seed % 8 == 0:
            self._empty(report)

    # -- evidence ------------------------------------------------------------------------------------------------

    def _given(self, ask: answers.Asked, rng: np.random.Generator) -> None:
        """Evidence on variables and on a count."""
        n, states = ask.data.size, ask.truth.states
        if not n:
            return
        chosen = rng.permutation(n)[: int(rng.integers(1, min(n, 3) + 1))]
        evidence = {int(v): int(rng.integers(2)) for v in chosen}
        event = np.all([states[:, v] == y for v, y in evidence.items()], axis=0)
        self._event(ask, "condition", event, lambda m: m.condition(evidence))
        group = ask.groups[int(rng.integers(len(ask.groups)))]
        scores, size = ask.scores(group)
        count = int(rng.integers(size + 1))
        self._event(ask, "condition_count", scores == count, lambda m: m.condition_count(group, count))

    def _event(self, ask: answers.Asked, name: str, event: np.ndarray, given: Any) -> None:
        """Models for which the event is possible, as one batch, and one for which it is not."""
        part = ask.truth.restrict(event)
        possible = np.atleast_1d(part.possible & np.isfinite(part.log_partition)).ravel()
        with ask.report.answer(name):
            if not possible.all():
                row = int(np.argmin(possible))
                alone = ask.model if not self.shape else batch_model([self.rows[row]], (), self.single)
                answers.impossible_event(lambda: given(alone))
        if possible.all():
            with ask.report.answer(name):
                answers.conditioned(ask, lambda: given(ask.model), part)
        elif possible.any():
            at = np.nonzero(possible)[0]
            rows, cells = [self.rows[i] for i in at], tuple(np.array(list(np.ndindex(self.shape)))[at].T)
            model = batch_model(rows, (len(rows),), self.single)
            inner = answers.Asked(ask.report, model, self.truth[cells], rows, self.single)
            with ask.report.answer(name):
                answers.conditioned(inner, lambda: given(model), part[cells])

    # -- other parameters ----------------------------------------------------------------------------------------

    def _replaced(self, ask: answers.Asked, rng: np.random.Generator) -> None:
        """New parameters on the same structure, after the old ones have been solved: whole, and one logit alone."""
        dtype = np.float32 if self.single else np.float64
        options = {"edges": batch_forest(self.others, self.shape)} if self.others[0].has_edges else {}
        groups = range(len(self.others[0].groups))
        tables = [
            np.array([r.groups[g][1] for r in self.others]).reshape(
                *self.shape, len(self.others[0].groups[g][1])
            )
            for g in groups
        ]
        logits = np.array([r.theta for r in self.others]).reshape(*self.shape, -1)
        with ask.report.answer("replace"):
            found = ask.model.replace(logits=logits.astype(dtype), tables=tables, **options)
            self._whole(found, self.others, self.other_truth, "all")
        rows = list(self.rows)
        if ask.data.size:
            d = int(rng.integers(ask.data.size))
            for i, row in enumerate(rows):
                theta = row.theta.copy()
                theta[d] = self.others[i].theta[0]
                rows[i] = replace(row, theta=theta)
        truth = truth_of(rows, self.shape)
        sound = np.atleast_1d(truth.possible & truth.settled).ravel()
        if self.shape and not sound.all():  # these keep their own; a single model is asked to refuse
            rows = [r if ok else self.rows[i] for i, (r, ok) in enumerate(zip(rows, sound))]
            truth = truth_of(rows, self.shape)
        changed = np.array([r.theta for r in rows]).reshape(*self.shape, -1).astype(dtype)
        with ask.report.answer("replace"):
            if self.shape or sound.all() or not truth.possible:
                self._whole(ask.model.replace(logits=changed), rows, truth, "one logit")

    def _whole(self, model: tt.CountModel, rows: Sequence[Binary], truth: Truth, what: str) -> None:
        if not truth.settled.all() and truth.possible.all():
            return
        inner = Report()
        if truth.possible.all():
            answers.first_order(answers.Asked(inner, model, truth, rows, self.single))
        else:
            answers.refuses(inner, model)
        assert not inner.wrong, f"({what}) {inner.wrong[0][0]}: {inner.wrong[0][1]}"

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

    # -- as a case -----------------------------------------------------------------------------------------------

    def code(self) -> str:
        rows, others = ("\n    ".join(r.code() for r in part) for part in (self.rows, self.others))
        single = ", logits in float32" * self.single
        return f"  # a batch of shape {self.shape}{single}:\n    {rows}\n    others:\n    {others}"

    def simpler(self) -> list[BatchCase]:
        found = []
        if len(self.rows) > 1:
            found = [
                replace(self, rows=(r,), others=(o,), shape=(1,)) for r, o in zip(self.rows, self.others)
            ]
        elif self.shape:
            found = [replace(self, shape=())]
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
        if self.single:
            new = [in_single(r) for r in new]
        return replace(self, rows=tuple(new[: len(self.rows)]), others=tuple(new[len(self.rows) :]))


def draw_batch(rng: np.random.Generator) -> BatchCase:
    n = size_between(rng, 1, LARGEST)
    with_edges = bool(rng.random() < 0.4)
    family, pairs = forest_structure(rng, n) if with_edges else (nested_family(rng, n), None)
    shape = SHAPES[int(rng.choice(len(SHAPES)))]
    mask = None
    rows = []
    for _ in range(2 * LOT):
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

    @cached_property
    def truths(self) -> list[Truth]:
        return [row.truth() for row in self.rows]

    def check(self, report: Report, rng: np.random.Generator) -> None:
        report.tag = tag_of([a for r in self.rows for a in r.numbers()])
        logits, tables = [r.theta for r in self.rows], [r.groups[0][1] for r in self.rows]
        if self.flat:
            batch = tt.RaggedBatch(np.concatenate([np.empty(0), *logits]), tables, [len(t) for t in logits])
        else:
            batch = tt.RaggedBatch(logits, tables)
        with report.answer("len"):
            assert len(batch) == len(self.rows)
        item = int(rng.integers(len(self.rows)))
        for i, (row, truth) in enumerate(zip(self.rows, self.truths)):
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
                self._certified(report, batch, i)
            if i == item:
                with report.answer("item"):
                    close_log_partition(batch[i].log_partition, truth.log_partition)

    def _certified(self, report: Report, batch: Any, i: int) -> None:
        """The bound covers the error, up to the rounding of what was given and is returned."""
        truth, row = self.truths[i], self.rows[i]
        want, got = truth.posterior_logits, np.asarray(batch.posterior_logits[i])
        seen = np.abs(want) < 1e15
        assert np.isfinite(got[seen]).all(), "infinite log-odds where finite ones are right"
        given = np.abs(np.concatenate([*(np.ravel(a) for a in row.numbers()), want]))
        largest = given[given < 1e15].max(initial=0.0)
        error = np.abs(got[seen] - want[seen]).max(initial=0.0)
        report.dominated(error, float(batch.error_bound[i]), 4e-16 * largest + answers.EXACT, "log-odds")

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
    for _ in range(RAGGED_LOT):
        n = int(rng.integers(0, LARGEST + 1))
        rows.append(filled(Source(rng, hidden_states(rng, n)), [tuple(range(n))], None))
    return RaggedCase(tuple(rows), bool(rng.random() < 0.5))
