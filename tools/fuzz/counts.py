"""Count models with one potential or nested groups, and with edges: up to nine variables, by enumeration."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import tallytree as tt
from forest_cases import FAMILIES, fitting_sets, parents_of
from forest_cases import SHAPES as FORESTS
from strategies import SHAPES, random_family

from . import answers
from .binary import Binary
from .compare import Report
from .numbers import Source, size_between

LARGEST = 9


@dataclass(frozen=True, eq=False)
class CountCase:
    """A model and another one on the same structure, for what compares two."""

    data: Binary
    other: Binary
    single: bool = False  # float32

    def check(self, report: Report, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**31))
        report.tag = tag_of(self.numbers(), self.single)
        model, truth = self._model(self.data), self.data.truth()
        if not truth.possible:
            answers.refuses(report, model)
            return
        ask = answers.Asked(report, model, truth, self.data, single=self.single)
        if not answers.first_order(ask):
            return
        answers.expectations(ask)
        answers.maxima(ask)
        answers.samples(ask, seed)
        answers.derivative(ask, rng)
        answers.given(ask, rng)
        answers.divergence(ask, self._model(self.other), self.other.truth())
        self._replaced(ask, rng)
        answers.same_object(ask)

    def _model(self, data: Binary) -> tt.CountModel:
        return replace(data, theta=data.theta.astype(np.float32)).model() if self.single else data.model()

    def _replaced(self, ask: answers.Asked, rng: np.random.Generator) -> None:
        """New parameters on the same structure, after the old ones have been solved: whole, and one logit alone."""
        report, data, other = ask.report, self.data, self.other
        options = {"edges": other.forest()} if other.has_edges else {}
        dtype = np.float32 if self.single else np.float64
        logits, tables = other.theta.astype(dtype), [t for _, t in other.groups]
        with report.answer("replace"):
            self._whole(ask.model.replace(logits=logits, tables=tables, **options), other, "all")
        changed = data.theta.copy()
        if data.size:
            changed[int(rng.integers(data.size))] = other.theta[0] if data.size else 0.0
        with report.answer("replace"):
            found = ask.model.replace(logits=changed.astype(dtype))
            self._whole(found, replace(data, theta=changed), "one logit")

    def _whole(self, model: tt.CountModel, data: Binary, what: str) -> None:
        truth, inner = data.truth(), Report()
        if not truth.settled:
            return
        if truth.possible:
            answers.first_order(answers.Asked(inner, model, truth, data, single=self.single))
            assert not inner.wrong, f"({what}) {inner.wrong[0][0]}: {inner.wrong[0][1]}"
            return
        answers.refuses(inner, model)
        assert not inner.wrong, f"({what}) {inner.wrong[0][0]}: {inner.wrong[0][1]}"

    def code(self) -> str:
        single = "  # logits in float32" if self.single else ""
        return f"{self.data.code()}{single}\n    other: {self.other.code()}"

    def simpler(self) -> list[CountCase]:
        pairs = zip(self.data.simpler(), self.other.simpler())
        return [replace(self, data=a, other=b) for a, b in pairs]

    def numbers(self) -> list[np.ndarray]:
        return self.data.numbers() + self.other.numbers()

    def with_numbers(self, numbers: list[np.ndarray]) -> CountCase:
        n = len(self.data.numbers())
        data, other = self.data.with_numbers(numbers[:n]), self.other.with_numbers(numbers[n:])
        return (
            replace(self, data=in_single(data), other=in_single(other))
            if self.single
            else replace(self, data=data, other=other)
        )


def in_single(data: Binary) -> Binary:
    """The log-odds rounded to float32."""
    with np.errstate(over="ignore"):
        return replace(data, theta=data.theta.astype(np.float32).astype(float))


def tag_of(numbers: list[np.ndarray], single: bool = False) -> str:
    masked = any((np.isfinite(a) & (np.abs(a) >= 1e17)).any() for a in numbers)
    return " (float32)" * single + " (masks)" * masked


def filled(source: Source, family: list[tuple[int, ...]], pairs: list[tuple[int, int]] | None) -> Binary:
    """Numbers in a structure."""
    hidden = source.hidden
    groups = tuple((tuple(m), source.table(len(m), int(hidden[list(m)].sum()))) for m in family)
    edges = tuple((i, j, source.weights((2, 2), (hidden[i], hidden[j]))) for i, j in pairs or [])
    return Binary(source.logits(), groups, edges, pairs is not None)


def hidden_states(rng: np.random.Generator, n: int) -> np.ndarray:
    return (rng.random(n) < rng.choice([0.1, 0.5, 0.9])).astype(int)


def nested_family(rng: np.random.Generator, n: int) -> list[tuple[int, ...]]:
    """One potential over everything more often than any other family."""
    if rng.random() < 0.35 or n == 0:
        return [tuple(range(n))] if n else []
    return random_family(rng, n, str(rng.choice(list(SHAPES))))


def draw_counts(rng: np.random.Generator) -> CountCase:
    n = size_between(rng, 1, LARGEST) if rng.random() > 0.01 else 0
    return _case(rng, n, nested_family(rng, n), None)


def draw_forest(rng: np.random.Generator) -> CountCase:
    n = size_between(rng, 1, LARGEST)
    family, pairs = forest_structure(rng, n)
    return _case(rng, n, family, pairs)


def forest_structure(rng: np.random.Generator, n: int) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """Edges of a forest and groups that fit it, over shuffled variables."""
    parents = parents_of(str(rng.choice(FORESTS)), n, rng)
    is_path = all(p == v - 1 for v, p in enumerate(parents))
    families = [f for f in FAMILIES if f != "intervals" or is_path]
    sets = fitting_sets(str(rng.choice(families)), parents, rng)
    label = rng.permutation(n)
    pairs = [(int(label[v]), int(label[p])) for v, p in enumerate(parents) if p >= 0]
    pairs = [pair if rng.random() < 0.5 else pair[::-1] for pair in pairs]
    return [tuple(int(label[v]) for v in s) for s in sets], pairs


def _case(
    rng: np.random.Generator, n: int, family: list[tuple[int, ...]], pairs: list[tuple[int, int]] | None
) -> CountCase:
    contradictions = bool(rng.random() < 0.1)
    source = Source(rng, hidden_states(rng, n), contradictions)
    second = Source(rng, hidden_states(rng, n))
    second.mask = source.mask if source.mask else 0.0  # one size of masks in what is compared
    data, other = filled(source, family, pairs), filled(second, family, pairs)
    if rng.random() < 0.08 and not source.mask:
        return CountCase(in_single(data), in_single(other), True)
    return CountCase(data, other)
