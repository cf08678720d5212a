"""Chains of labels with counts: any scores, sequences of different lengths, batches; by enumeration.

A case is a lot of sequences over one structure. All that are possible are asked together, as a batch, one of them again
on its own, and every impossible one is asked on its own to say so.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import Truth, all_states, truth_of_terms

from .binary import listed
from .compare import (
    STANDS_FOR_INFINITY,
    Report,
    close,
    close_log_partition,
    close_log_probs,
    close_logits,
    size_of,
)
from .law import follows_law
from .numbers import Source
from .structures import tag_of

INF = math.inf
STATES = 800  # at most this many sequences
LOT = 80  # models over one structure


@dataclass(frozen=True, eq=False)
class Row:
    """One sequence: ``unary`` (T, K), ``transitions`` (T - 1, K, K), a table per group, a length."""

    unary: np.ndarray
    transitions: np.ndarray
    tables: tuple[np.ndarray, ...]
    length: int

    def numbers(self) -> list[np.ndarray]:
        return [self.unary, self.transitions, *self.tables]


@dataclass(frozen=True, eq=False)
class ChainCase:
    """Sequences over one structure; a single one without a batch axis unless ``batch``."""

    rows: tuple[Row, ...]
    groups: tuple[tuple[int, ...], ...]
    scores: np.ndarray
    plain: bool  # scores are those of label 1 alone, and not passed
    batch: bool
    ragged: bool  # lengths are passed

    # -- the truth: positions behind the end have label 0 and add nothing ------------------------------------------

    @property
    def positions(self) -> int:
        return int(self.rows[0].unary.shape[0])

    @cached_property
    def states(self) -> np.ndarray:
        return all_states((self.rows[0].unary.shape[1],) * self.positions)

    @cached_property
    def inside(self) -> np.ndarray:
        """(B, T): positions before the end; (T,) without a batch."""
        return self._stacked([np.arange(self.positions) < r.length for r in self.rows])

    def _stacked(self, arrays: list[np.ndarray]) -> np.ndarray:
        return np.stack(arrays) if self.batch else arrays[0]

    @cached_property
    def truth(self) -> Truth:
        k, states = self.rows[0].unary.shape[1], self.states
        behind = np.array([0.0, *[-INF] * (k - 1)])
        unary = np.where(self.inside[..., None], self._stacked([r.unary for r in self.rows]), behind)
        steps = self._stacked([r.transitions for r in self.rows])
        steps = np.where(self.inside[..., 1:, None, None], steps, 0.0)
        terms = [steps[..., t, states[:, t], states[:, t + 1]] for t in range(self.positions - 1)]
        for g in range(len(self.groups)):
            tables = self._stacked([r.tables[g] for r in self.rows])
            counts = np.broadcast_to(self.counts(g), (*tables.shape[:-1], len(states)))
            terms.append(np.take_along_axis(tables, counts, -1))
        return truth_of_terms(states, unary, terms, k)

    def members(self, group: int | None) -> list[int]:
        return list(range(self.positions)) if group is None else list(self.groups[group])

    def counts(self, group: int | None) -> np.ndarray:
        """The count of a group in every state, (S,), or (B, S) where lengths differ."""
        members = self.members(group)
        added = self.scores[members, self.states[:, members]]  # (S, members)
        if self.ragged:
            added = added * self.inside[..., None, members]
        return added.sum(-1)

    def reach(self, group: int | None) -> int:
        return int(self.scores.max(axis=1)[self.members(group)].sum())

    # -- the model ---------------------------------------------------------------------------------------------------

    def model(self) -> tt.ChainModel:
        groups = [
            tt.Group(list(m), self._stacked([r.tables[g] for r in self.rows]))
            for g, m in enumerate(self.groups)
        ]
        options: dict[str, Any] = {} if self.plain else {"scores": self.scores}
        if self.ragged:
            lengths = np.array([r.length for r in self.rows])
            options["lengths"] = lengths if self.batch else int(lengths[0])
        unary = self._stacked([r.unary for r in self.rows])
        transitions = self._stacked([r.transitions for r in self.rows])
        return tt.ChainModel(unary, transitions, groups or None, **options)

    def check(self, report: Report, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**31))
        report.tag = tag_of(self.numbers()) + " (lengths)" * self.ragged
        model = self.model()
        if not first_order(self, report, model):
            return
        more(self, report, model, seed)
        given(self, report, model, rng)
        with report.answer("replace"):
            again = model.replace(log_unary=model._unary, log_transitions=model._transitions)
            close(again.log_partition, model.log_partition, 0.0)
            assert pickle.loads(pickle.dumps(model)) == model, "a pickled model is another model"

    def part(self, chosen: np.ndarray) -> ChainCase:
        """Some of the sequences."""
        return replace(self, rows=tuple(r for r, c in zip(self.rows, chosen) if c))

    def numbers(self) -> list[np.ndarray]:
        return [a for r in self.rows for a in r.numbers()]

    def code(self) -> str:
        lines = []
        for row in self.rows:
            groups = ", ".join(f"tt.Group({list(m)}, {listed(t)})" for m, t in zip(self.groups, row.tables))
            parts = [
                listed(row.unary),
                f"np.reshape({listed(row.transitions)}, {row.transitions.shape})",
                f"[{groups}]",
            ]
            parts += [] if self.plain else [f"scores={self.scores.tolist()}"]
            parts += [f"lengths={row.length}"] if self.ragged else []
            lines.append(f"tt.ChainModel({', '.join(parts)})")
        return "\n    ".join(lines)


@dataclass(frozen=True, eq=False)
class ChainLot:
    """Sequences over one structure, as a batch."""

    data: ChainCase

    @cached_property
    def possible(self) -> np.ndarray:
        return self.data.truth.possible

    @cached_property
    def cases(self) -> list[ChainCase]:
        """All possible ones together, and one on its own."""
        if not self.possible.any():
            return []
        together = self.data if self.possible.all() else self.data.part(self.possible)
        return [together, replace(together, rows=together.rows[:1], batch=False)]

    def check(self, report: Report, rng: np.random.Generator) -> None:
        for row, possible in zip(self.data.rows, self.possible):
            if not possible:
                refuses(report, replace(self.data, rows=(row,), batch=False).model())
        for case in self.cases:
            case.check(report, rng)

    def code(self) -> str:
        return self.data.code()

    def simpler(self) -> list[ChainLot]:
        data = self.data
        if len(data.rows) > 1:
            return [ChainLot(replace(data, rows=(r,))) for r in data.rows]
        found = []
        for g in range(len(data.groups)):
            rows = tuple(replace(r, tables=r.tables[:g] + r.tables[g + 1 :]) for r in data.rows)
            found.append(ChainLot(replace(data, rows=rows, groups=data.groups[:g] + data.groups[g + 1 :])))
        return found

    def numbers(self) -> list[np.ndarray]:
        return self.data.numbers()

    def with_numbers(self, numbers: list[np.ndarray]) -> ChainLot:
        step = 2 + len(self.data.groups)
        rows = []
        for b, row in enumerate(self.data.rows):
            unary, transitions, *tables = numbers[b * step : (b + 1) * step]
            rows.append(Row(unary, transitions, tuple(tables), row.length))
        return ChainLot(replace(self.data, rows=tuple(rows)))


def refuses(report: Report, model: Any) -> None:
    asked = {
        "log_partition": lambda: model.log_partition,
        "marginals": lambda: model.marginals,
        "entropy": lambda: model.entropy,
        "mode": model.mode,
        "sample": lambda: model.sample(3, rng=0),
        "count_log_probs": model.count_log_probs,
    }
    for name, call in asked.items():
        with report.answer(f"impossible: {name}"):
            try:
                found = call()
            except tt.InfeasibleError:
                continue
            raise AssertionError(f"no InfeasibleError for an impossible model, but {found!r}"[:200])


def first_order(case: ChainCase, report: Report, model: Any) -> bool:
    """False where not even log Z could be asked for."""
    truth, inside = case.truth, case.inside
    steps = inside[..., 1:]
    with report.answer("log_partition"):
        close_log_partition(model.log_partition, truth.log_partition)
    if report.raised:
        return False
    with report.answer("log_marginals"):
        want = np.where(inside[..., None], truth.log_marginals, -INF)
        close_logits(model.log_marginals, want)
    with report.answer("marginals"):
        found = np.asarray(model.marginals)
        close(found, np.where(inside[..., None], np.exp(truth.log_marginals), 0.0), 1e-9)
        assert (found[~inside] == 0).all(), "something behind the end"
    with report.answer("edge_marginals"):
        found = np.asarray(model.edge_marginals)
        want = np.exp(truth.pair_tables([(t, t + 1) for t in range(case.positions - 1)]))
        close(found, np.where(steps[..., None, None], want, 0.0), 1e-9)
        assert (found[~steps] == 0).all(), "something behind the end"
    with report.answer("error_bound"):
        certified(case, report, model)
    for g in [None, *range(len(case.groups))]:
        with report.answer("count_log_probs"):
            close_log_probs(model.count_log_probs(g), truth.score_log_probs(case.counts(g), case.reach(g)))
    return True


def sizes_of(case: ChainCase) -> np.ndarray:
    """(B, numbers) sizes of all numbers of every sequence, 0 for those that stand for infinity."""
    given = np.abs(np.array([np.concatenate([np.ravel(a) for a in r.numbers()]) for r in case.rows]))
    found = np.where(given < STANDS_FOR_INFINITY, given, 0.0)
    return found if case.batch else found[0]


def certified(case: ChainCase, report: Report, model: Any) -> None:
    """The bound covers the error of differences of log-marginals, and that of log Z up to rounding."""
    bound, got, want = (
        np.asarray(model.error_bound),
        np.asarray(model.log_marginals),
        case.truth.log_marginals,
    )
    seen = (np.abs(want) < STANDS_FOR_INFINITY) & case.inside[..., None]
    assert np.isfinite(got[seen]).all(), "a log-marginal is -inf where it is finite"
    sizes = sizes_of(case)
    largest = np.maximum(
        sizes.max(axis=-1), np.where(seen, np.abs(want), 0.0).max(axis=(-1, -2), initial=0.0)
    )
    error = np.where(seen, got, 0.0) - np.where(seen, want, 0.0)
    worst = (error.max(axis=-1, initial=0.0) - error.min(axis=-1, initial=0.0)).max(axis=-1, initial=0.0)
    report.dominated(worst, bound, 1e-15 * largest, "log-marginals")
    log_z = np.asarray(case.truth.log_partition)
    off = np.where(np.abs(log_z) < STANDS_FOR_INFINITY, np.abs(np.asarray(model.log_partition) - log_z), 0.0)
    report.dominated(off, bound, 1e-14 * (1 + np.abs(log_z) + sizes.sum(axis=-1)), "log Z")


def more(case: ChainCase, report: Report, model: Any, seed: int) -> None:
    truth, inside, states = case.truth, case.inside, case.states
    with report.answer("log_prob"):
        asked = np.where(inside, states.reshape(len(states), *(1,) * (inside.ndim - 1), -1), 0)
        found = np.moveaxis(np.asarray(model.log_prob(asked)), 0, -1)
        at = np.moveaxis(truth.index(asked), 0, -1)
        sizes = size_of(truth.logs.values) + np.abs(truth.log_partition)[..., None]
        want, sizes = (np.take_along_axis(a, at, -1) for a in (truth.log_probs, sizes))
        close_log_partition(found, want, sizes)
    with report.answer("entropy"):
        found = np.asarray(model.entropy)
        close(found, truth.entropy, 1e-10 * (1 + truth.entropy))
        assert (found >= 0).all(), f"entropy is {found.min()!r}"
    with report.answer("expected_statistics"):
        stats = model.expected_statistics
        close(stats.unary, np.where(inside[..., None], np.exp(truth.log_marginals), 0.0), 1e-9)
        for g in range(len(case.groups)):
            close(stats.tables[g], np.exp(truth.score_log_probs(case.counts(g), case.reach(g))), 1e-9)
    with report.answer("mode"):
        found = np.asarray(model.mode())
        assert (found[~inside] == -1).all(), "labels behind the end"
        at = truth.index(np.where(inside, found, 0))
        weight = np.take_along_axis(truth.logs.values, at[..., None], -1)[..., 0]
        best, allowed = np.asarray(truth.max_log_weight), 1e-12 * sizes_of(case).sum(axis=-1)
        allowed = allowed + np.where(np.abs(best) > STANDS_FOR_INFINITY, 1e-12 * np.abs(best), 0.0)
        bad = ~(weight >= best - allowed)
        assert not bad.any(), f"mode has log-weight {weight[bad][0]!r}, the best {best[bad][0]!r}"
    with report.answer("sample"):

        def draw(number: int, key: int) -> np.ndarray:
            drawn = np.asarray(model.sample(number, rng=key))
            assert (drawn[:, ~inside] == -1).all(), "labels behind the end"
            return np.where(inside, drawn, 0)

        follows_law(draw, truth, report, seed)


def given(case: ChainCase, report: Report, model: Any, rng: np.random.Generator) -> None:
    """Evidence on labels and counts."""
    shortest = min(r.length for r in case.rows)
    t, k = int(rng.integers(shortest)), int(rng.integers(case.truth.n_labels))
    _event(case, report, model, "condition", case.states[:, t] == k, lambda m: m.condition({t: k}))
    groups = [None, *range(len(case.groups))]
    group = groups[int(rng.integers(len(groups)))]
    c = int(rng.integers(case.reach(group) + 1))
    _event(
        case, report, model, "condition_count", case.counts(group) == c, lambda m: m.condition_count(group, c)
    )


def _event(case: ChainCase, report: Report, model: Any, name: str, event: np.ndarray, make: Any) -> None:
    """The sequences for which the event is possible, as one batch, and one for which it is not."""
    part = case.truth.restrict(event)
    possible = np.atleast_1d(part.possible)
    if not possible.all():
        alone = replace(case, rows=(case.rows[int(np.argmin(possible))],), batch=False).model()
        with report.answer(name):
            try:
                found = make(alone).log_partition
            except tt.TallyTreeError:
                pass  # also a potential that a shorter sequence cannot have
            else:
                raise AssertionError(f"no InfeasibleError for an impossible event, log_partition {found!r}")
    if not possible.any():
        return
    if not possible.all():
        part, case = part[possible], case.part(possible)
        model = case.model()
    if (np.abs(part.log_partition) > STANDS_FOR_INFINITY).any():
        return
    with report.answer(name):
        found = make(model)
        close_log_partition(found.log_partition, part.log_partition)
        close_logits(found.log_marginals, np.where(case.inside[..., None], part.log_marginals, -INF))


# ------------------------------------------------------------------------------------------------------ drawing


def intervals(rng: np.random.Generator, low: int, high: int) -> list[tuple[int, ...]]:
    """Nested and disjoint intervals of positions."""
    own = [tuple(range(low, high))] if rng.random() < 0.6 else []
    if high - low < 2 or rng.random() < 0.2:
        return own
    cut = int(rng.integers(low + 1, high))
    return own + intervals(rng, low, cut) + intervals(rng, cut, high)


def draw_chain(rng: np.random.Generator) -> ChainLot:
    k = int(rng.choice([1, 2, 2, 2, 3, 3, 4]))
    longest = int(math.log(STATES) / math.log(k)) if k > 1 else 9
    n = int(rng.integers(1, min(longest, 9) + 1))
    plain = bool(rng.random() < 0.5)
    scores = np.zeros((n, k), int)
    scores[:, 1 if k > 1 else 0] = 1
    if not plain:
        scores = (
            rng.integers(0, 3, (n, k))
            if rng.random() < 0.7
            else np.broadcast_to(rng.integers(0, 3, k), (n, k))
        )
    groups = (
        tuple(intervals(rng, 0, n))
        if rng.random() < 0.7
        else (tuple(range(n)),)
        if rng.random() < 0.6
        else ()
    )
    ragged = bool(rng.random() < 0.3)
    mask = Source(rng, rng.integers(0, k, n)).mask
    rows = []
    for _ in range(LOT):
        source = Source(rng, rng.integers(0, k, n), bool(rng.random() < 0.07))
        source.mask = 0.0 if source.contradictions else mask
        length = int(rng.integers(1, n + 1)) if ragged else n
        rows.append(_row(source, groups, scores, length, k))
    return ChainLot(ChainCase(tuple(rows), groups, np.asarray(scores), plain, True, ragged))


def _row(source: Source, groups: tuple[tuple[int, ...], ...], scores: np.ndarray, length: int, k: int) -> Row:
    h, n = source.hidden, len(source.hidden)
    unary = np.array([source.weights((k,), (h[t],)) for t in range(n)])
    transitions = np.array([source.weights((k, k), (h[t], h[t + 1])) for t in range(n - 1)]).reshape(
        n - 1, k, k
    )
    tables = []
    for members in groups:
        inside = [t for t in members if t < length]
        tables.append(
            source.table(int(scores.max(1)[list(members)].sum()), int(scores[inside, h[inside]].sum()))
        )
    return Row(unary, transitions, tuple(tables), length)
