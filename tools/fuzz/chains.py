"""Chains of labels with counts: any scores, sequences of different lengths, batches; by enumeration."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace
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
    dominated,
)
from .counts import tag_of
from .law import follows_law
from .numbers import Source

INF = math.inf
STATES = 800  # at most this many sequences


@dataclass(frozen=True, eq=False)
class Row:
    """One sequence: ``unary`` (T, K), ``transitions`` (T - 1, K, K), a table per group, a length."""

    unary: np.ndarray
    transitions: np.ndarray
    tables: tuple[np.ndarray, ...]
    length: int

    def numbers(self) -> list[np.ndarray]:
        return [self.unary, self.transitions, *self.tables]

    def truth(self, groups: tuple[tuple[int, ...], ...], scores: np.ndarray) -> Truth:
        n, k = self.length, self.unary.shape[1]
        states = all_states((k,) * n)
        at = np.arange(n)
        terms = [self.transitions[t][states[:, t], states[:, t + 1]] for t in range(n - 1)]
        terms += [table[count(states, m, scores)] for m, table in zip(groups, self.tables)]
        return truth_of_terms(states, self.unary[at, states], terms, k)


def count(states: np.ndarray, members: Any, scores: np.ndarray) -> np.ndarray:
    """The count of a group in every state; positions behind the end add nothing."""
    inside = [t for t in members if t < states.shape[1]]
    return scores[inside, states[:, inside]].sum(1) if inside else np.zeros(len(states), int)


@dataclass(frozen=True, eq=False)
class ChainCase:
    """Sequences over one structure; a single one without a batch axis unless ``batch``."""

    rows: tuple[Row, ...]
    groups: tuple[tuple[int, ...], ...]
    scores: np.ndarray
    plain: bool  # scores are those of label 1 alone, and not passed
    batch: bool
    ragged: bool  # lengths are passed

    @property
    def positions(self) -> int:
        return int(self.rows[0].unary.shape[0])

    def model(self) -> tt.ChainModel:
        def stacked(arrays: list[np.ndarray]) -> np.ndarray:
            return np.stack(arrays) if self.batch else arrays[0]

        groups = [
            tt.Group(list(m), stacked([r.tables[g] for r in self.rows])) for g, m in enumerate(self.groups)
        ]
        options: dict[str, Any] = {} if self.plain else {"scores": self.scores}
        if self.ragged:
            lengths = np.array([r.length for r in self.rows])
            options["lengths"] = lengths if self.batch else int(lengths[0])
        unary, transitions = (
            stacked([r.unary for r in self.rows]),
            stacked([r.transitions for r in self.rows]),
        )
        return tt.ChainModel(unary, transitions, groups or None, **options)

    def check(self, report: Report, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**31))
        report.tag = tag_of([a for r in self.rows for a in r.numbers()]) + " (lengths)" * self.ragged
        model = self.model()
        truths = [row.truth(self.groups, self.scores) for row in self.rows]
        if not all(t.possible for t in truths):
            refuses(report, model)
            return
        for b, (row, truth) in enumerate(zip(self.rows, truths)):
            ask = Asked(report, model, truth, row, self, (b,) if self.batch else ())
            if not first_order(ask):
                return
            more(ask, seed)
        given(Asked(report, model, truths[0], self.rows[0], self, (0,) if self.batch else ()), truths, rng)
        with report.answer("replace"):
            again = model.replace(log_unary=model._unary, log_transitions=model._transitions)
            close(again.log_partition, model.log_partition, 0.0)
            assert pickle.loads(pickle.dumps(model)) == model, "a pickled model is another model"

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
        return ("  # a batch of\n    " if self.batch else "") + "\n    ".join(lines)

    def simpler(self) -> list[ChainCase]:
        found = [replace(self, rows=(r,)) for r in self.rows] if len(self.rows) > 1 else []
        if self.batch and len(self.rows) == 1:
            found.append(replace(self, batch=False))
        for g in range(len(self.groups)):
            rows = tuple(replace(r, tables=r.tables[:g] + r.tables[g + 1 :]) for r in self.rows)
            found.append(replace(self, rows=rows, groups=self.groups[:g] + self.groups[g + 1 :]))
        return found

    def numbers(self) -> list[np.ndarray]:
        return [a for r in self.rows for a in r.numbers()]

    def with_numbers(self, numbers: list[np.ndarray]) -> ChainCase:
        step = 2 + len(self.groups)
        rows = []
        for b, row in enumerate(self.rows):
            unary, transitions, *tables = numbers[b * step : (b + 1) * step]
            rows.append(Row(unary, transitions, tuple(tables), row.length))
        return replace(self, rows=tuple(rows))


@dataclass(frozen=True, eq=False)
class Asked:
    report: Report
    model: Any
    truth: Truth
    row: Row
    case: ChainCase
    at: tuple[int, ...]

    def pick(self, values: Any) -> np.ndarray:
        return np.asarray(values)[self.at]

    def reach(self, group: int | None) -> int:
        members = range(self.case.positions) if group is None else self.case.groups[group]
        return int(self.case.scores.max(axis=1)[list(members)].sum())

    def counts(self, group: int | None) -> np.ndarray:
        members = range(self.case.positions) if group is None else self.case.groups[group]
        return count(self.truth.states, members, self.case.scores)

    @property
    def groups(self) -> list[int | None]:
        return [None, *range(len(self.case.groups))]


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


def first_order(ask: Asked) -> bool:
    """False where not even log Z could be asked for."""
    report, model, truth, pick, n = ask.report, ask.model, ask.truth, ask.pick, ask.row.length
    with report.answer("log_partition"):
        close_log_partition(pick(model.log_partition), truth.log_partition)
    if report.raised:
        return False
    with report.answer("log_marginals"):
        found = pick(model.log_marginals)
        close_logits(found[:n], truth.log_marginals)
        assert np.isneginf(found[n:]).all(), "something behind the end"
    with report.answer("marginals"):
        found = pick(model.marginals)
        close(found[:n], np.exp(truth.log_marginals), 1e-9)
        assert (found[n:] == 0).all(), "something behind the end"
    with report.answer("edge_marginals"):
        found = pick(model.edge_marginals)
        close(found[: n - 1], np.exp(truth.pair_tables([(t, t + 1) for t in range(n - 1)])), 1e-9)
        assert (found[n - 1 :] == 0).all(), "something behind the end"
    with report.answer("error_bound"):
        certified(ask)
    for g in ask.groups:
        with report.answer("count_log_probs"):
            close_log_probs(
                pick(model.count_log_probs(g)), truth.score_log_probs(ask.counts(g), ask.reach(g))
            )
    return True


def certified(ask: Asked) -> None:
    """The bound covers the error of differences of log-marginals, and that of log Z up to rounding."""
    n, bound = ask.row.length, float(ask.pick(ask.model.error_bound))
    got, want = ask.pick(ask.model.log_marginals)[:n], ask.truth.log_marginals
    seen = np.isfinite(want) & (np.abs(want) < STANDS_FOR_INFINITY)
    assert np.isfinite(got[seen]).all(), "a log-marginal is -inf where it is finite"
    sizes = np.concatenate([np.ravel(a) for a in (*ask.row.numbers(), want)])
    sizes = np.abs(sizes[np.isfinite(sizes) & (np.abs(sizes) < STANDS_FOR_INFINITY)])
    error = np.where(seen, np.where(seen, got, 0.0) - np.where(seen, want, 0.0), 0.0)
    worst = (error.max(axis=1, initial=0.0) - error.min(axis=1, initial=0.0)).max(initial=0.0)
    dominated(worst, bound, 1e-15 * sizes.max(initial=0.0), "log-marginals")
    if abs(ask.truth.log_partition) < STANDS_FOR_INFINITY:
        error = abs(float(ask.pick(ask.model.log_partition)) - ask.truth.log_partition)
        dominated(error, bound, 1e-14 * (1 + abs(ask.truth.log_partition) + sizes.sum()), "log Z")


def more(ask: Asked, seed: int) -> None:
    report, model, truth, pick, n = ask.report, ask.model, ask.truth, ask.pick, ask.row.length
    padded = np.zeros((len(truth.states), ask.case.positions), int)
    padded[:, :n] = truth.states
    with report.answer("log_prob"):
        found = np.asarray(model.log_prob(padded.reshape(len(padded), *(1,) * len(ask.at), -1)))
        weights = np.where(np.isfinite(truth.logs.values), np.abs(truth.logs.values), 0.0)
        close_log_partition(
            pick(np.moveaxis(found, 0, -1)), truth.log_probs, weights + abs(truth.log_partition)
        )
    with report.answer("entropy"):
        found = pick(model.entropy)
        close(found, truth.entropy, 1e-8 * (1 + truth.entropy))
        assert found >= 0, f"entropy is {found!r}"
    with report.answer("expected_statistics"):
        stats = model.expected_statistics
        close(pick(stats.unary)[:n], np.exp(truth.log_marginals), 1e-9)
        for g in range(len(ask.case.groups)):
            close(pick(stats.tables[g]), np.exp(truth.score_log_probs(ask.counts(g), ask.reach(g))), 1e-9)
    with report.answer("mode"):
        found = pick(model.mode())
        assert (found[n:] == -1).all(), "labels behind the end"
        sizes = np.concatenate([np.ravel(a) for a in ask.row.numbers()])
        allowed = 1e-12 * np.abs(sizes[np.isfinite(sizes)]).sum()
        weight = truth.logs.values[int(truth.index(found[:n]))]
        best = truth.max_log_weight
        assert weight >= best - allowed, f"mode has log-weight {weight!r}, the best {best!r}"
    with report.answer("sample"):

        def draw(number: int, key: int) -> np.ndarray:
            drawn = np.asarray(model.sample(number, rng=key))[(slice(None), *ask.at)]
            assert (drawn[:, n:] == -1).all(), "labels behind the end"
            return drawn[:, :n]

        follows_law(draw, truth, report, seed)


def given(ask: Asked, truths: list[Truth], rng: np.random.Generator) -> None:
    """Evidence on labels and counts, of all rows at once: compared in the first."""
    shortest = min(r.length for r in ask.case.rows)
    t, k = int(rng.integers(shortest)), int(rng.integers(ask.truth.n_labels))
    with ask.report.answer("condition"):
        parts = [truth.restrict(truth.states[:, t] == k) for truth in truths]
        conditioned(ask, lambda: ask.model.condition({t: k}), parts)
    group = ask.groups[int(rng.integers(len(ask.groups)))]
    c = int(rng.integers(ask.reach(group) + 1))
    with ask.report.answer("condition_count"):
        members = range(ask.case.positions) if group is None else ask.case.groups[group]
        parts = [truth.restrict(count(truth.states, members, ask.case.scores) == c) for truth in truths]
        conditioned(ask, lambda: ask.model.condition_count(group, c), parts)


def conditioned(ask: Asked, make: Any, parts: list[Truth]) -> None:
    if any(not p.possible for p in parts):
        try:
            found = make().log_partition
        except tt.TallyTreeError:
            return  # also a potential that a shorter sequence cannot have
        raise AssertionError(f"no InfeasibleError for an impossible event, log_partition {found!r}")
    if any(abs(p.log_partition) > STANDS_FOR_INFINITY for p in parts):
        return
    model = make()
    close_log_partition(ask.pick(model.log_partition), parts[0].log_partition)
    close_logits(ask.pick(model.log_marginals)[: ask.row.length], parts[0].log_marginals)


# ------------------------------------------------------------------------------------------------------ drawing


def intervals(rng: np.random.Generator, low: int, high: int) -> list[tuple[int, ...]]:
    """Nested and disjoint intervals of positions."""
    own = [tuple(range(low, high))] if rng.random() < 0.6 else []
    if high - low < 2 or rng.random() < 0.2:
        return own
    cut = int(rng.integers(low + 1, high))
    return own + intervals(rng, low, cut) + intervals(rng, cut, high)


def draw_chain(rng: np.random.Generator) -> ChainCase:
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
    batch = bool(rng.random() < 0.3)
    ragged = bool(rng.random() < 0.3)
    contradictions = not batch and bool(rng.random() < 0.1)
    mask, rows = None, []
    for _ in range(int(rng.integers(1, 4)) if batch else 1):
        source = Source(rng, rng.integers(0, k, n), contradictions)
        mask = source.mask if mask is None else mask
        source.mask = mask
        length = int(rng.integers(1, n + 1)) if ragged else n
        rows.append(_row(source, groups, scores, length, k))
    return ChainCase(tuple(rows), groups, np.asarray(scores), plain, batch, ragged)


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
