"""Factor graphs: tables, models with groups and edges as factors, pairs; bounds always, belief propagation on trees."""

from __future__ import annotations

import math
import pickle
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import Truth, all_states, truth_of_terms
from tallytree.loopy import dual_decomposition, holder_bound, mean_field, trw_bound

from .binary import Binary, leaf_table, listed
from .compare import STANDS_FOR_INFINITY, Report, close
from .law import follows_law
from .numbers import Source
from .structures import filled, forest_structure, hidden_states, nested_family, tag_of

INF = math.inf
LARGEST = 7
# Shares of the graphs of which the procedures are asked; "upper" is one of three bounds.
TURNS = {"propagation": 0.35, "maxima": 0.1, "dual": 0.15, "upper": 0.25, "mean_field": 0.15}
EARLY, LATE = 2, 15  # sweeps of bounds, which hold however early one stops; the second for every tenth graph
COOLING, SLOWLY = (
    (1.0, 0.1, 0.01),
    (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001),
)  # temperatures that go with them


@dataclass(frozen=True, eq=False)
class GraphCase:
    """``factors`` of (members, log-table or Binary), ``edges`` of (i, j, 2 x 2 log-table)."""

    theta: np.ndarray
    factors: tuple[tuple[tuple[int, ...], Any], ...]
    edges: tuple[tuple[int, int, np.ndarray], ...]

    def graph(self) -> tt.FactorGraph:
        groups = [
            tt.Group(list(m), f.model() if isinstance(f, Binary) else np.asarray(f)) for m, f in self.factors
        ]
        edges = None
        if self.edges:
            edges = ([(i, j) for i, j, _ in self.edges], np.array([t for *_, t in self.edges]))
        return tt.FactorGraph(self.theta, groups, edges=edges)

    @cached_property
    def truth(self) -> Truth:
        states = all_states((2,) * len(self.theta))
        terms = [t[states[:, i], states[:, j]] for i, j, t in self.edges]
        for members, factor in self.factors:
            inside = states[:, list(members)]
            if not isinstance(factor, Binary):
                terms.append(np.asarray(factor)[inside.sum(1)])
                continue
            own = leaf_table(factor.theta)
            terms += [own[d, inside[:, d]] for d in range(len(members))]
            terms += [np.asarray(t)[inside[:, list(m)].sum(1)] for m, t in factor.groups]
            terms += [np.asarray(t)[inside[:, i], inside[:, j]] for i, j, t in factor.edges]
        return truth_of_terms(states, leaf_table(self.theta), terms)

    @property
    def is_tree(self) -> bool:
        """Whether no cycle runs through factors and variables."""
        root = list(range(len(self.theta)))

        def find(v: int) -> int:
            while root[v] != v:
                v = root[v]
            return v

        for members in [m for m, _ in self.factors] + [(i, j) for i, j, _ in self.edges]:
            tops = [find(v) for v in members]
            if len(set(tops)) < len(tops):
                return False
            for top in tops[1:]:
                root[find(top)] = find(tops[0])
        return True

    def check(self, report: Report, rng: np.random.Generator) -> None:
        has_edges = any(isinstance(f, Binary) and f.has_edges for _, f in self.factors)
        has_models = any(isinstance(f, Binary) for _, f in self.factors)
        report.tag = tag_of(self.numbers()) + (
            " (edges in a factor)" if has_edges else " (models)" * has_models
        )
        truth = self.truth
        graph = self.graph()
        if not truth.possible:
            impossible(report, graph, truth, self.is_tree)
            return
        sizes = np.concatenate([np.ravel(a) for a in self.numbers()])
        sizes = np.abs(sizes[np.isfinite(sizes) & (np.abs(sizes) < STANDS_FOR_INFINITY)]).sum()
        slack = 1e-9 * (1 + abs(truth.log_partition) + sizes)
        weights(report, graph, truth)
        exact(report, graph, truth, self, sizes, rng)
        self._procedure(report, graph, slack, rng)
        with report.answer("pickle"):
            assert pickle.loads(pickle.dumps(graph)) == graph

    def _procedure(self, report: Report, graph: Any, slack: float, rng: np.random.Generator) -> None:
        """One of those that take longest, as often as `TURNS` says."""
        truth, sweeps = self.truth, LATE if rng.random() < 0.1 else EARLY
        turn = str(rng.choice(list(TURNS), p=list(TURNS.values())))
        if turn == "propagation":
            propagation(report, graph, truth, self, slack)
        elif turn == "maxima":
            maxima(report, graph, truth, self, slack)
        elif turn == "dual":
            best(report, graph, truth, slack, sweeps)
        elif turn == "mean_field":
            lower(report, graph, truth, slack)
        else:
            upper(report, graph, truth, slack, int(rng.integers(3)), sweeps)

    def code(self) -> str:
        groups = ", ".join(
            f"tt.Group({list(m)}, {f.code() if isinstance(f, Binary) else listed(f)})"
            for m, f in self.factors
        )
        edges = f", edges=({[(i, j) for i, j, _ in self.edges]}, {[t.tolist() for *_, t in self.edges]})"
        return f"tt.FactorGraph({listed(self.theta)}, [{groups}]{edges.replace('inf', 'np.inf') if self.edges else ''})"

    def simpler(self) -> list[GraphCase]:
        f, e = self.factors, self.edges
        found = [replace(self, factors=f[:i] + f[i + 1 :]) for i in range(len(f))]
        found += [replace(self, edges=e[:i] + e[i + 1 :]) for i in range(len(e))]
        for i, (m, inner) in enumerate(f):
            if isinstance(inner, Binary):
                parts = [b for b in inner.simpler() if b.size == inner.size]
                found += [replace(self, factors=(*f[:i], (m, b), *f[i + 1 :])) for b in parts]
        return found

    def numbers(self) -> list[np.ndarray]:
        inner = [
            a for _, f in self.factors for a in (f.numbers() if isinstance(f, Binary) else [np.asarray(f)])
        ]
        return [self.theta, *inner, *(t for *_, t in self.edges)]

    def with_numbers(self, numbers: list[np.ndarray]) -> GraphCase:
        rest = list(numbers[1:])
        factors = []
        for m, f in self.factors:
            size = len(f.numbers()) if isinstance(f, Binary) else 1
            part, rest = rest[:size], rest[size:]
            factors.append((m, f.with_numbers(part) if isinstance(f, Binary) else part[0]))
        edges = tuple((i, j, t) for (i, j, _), t in zip(self.edges, rest))
        return replace(self, theta=numbers[0], factors=tuple(factors), edges=edges)


def impossible(report: Report, graph: Any, truth: Truth, tree: bool) -> None:
    """Of an impossible graph nothing finite may be claimed and nothing is NaN; on a tree it must be noticed."""
    with report.answer("impossible: log_weight"):
        assert np.isneginf(graph.log_weight(truth.states)).all(), "a configuration has a log-weight"
    with report.answer("impossible: exact"), suppress(tt.InfeasibleError):
        raise AssertionError(f"log Z = {graph.exact().log_partition!r} of an impossible graph")
    with report.answer("impossible: dual_decomposition"), suppress(tt.InfeasibleError):
        found = dual_decomposition(graph, max_iter=EARLY)
        assert found.log_weight == -INF, f"a configuration of log-weight {found.log_weight!r}"
        assert not math.isnan(found.upper_bound), "the upper bound is NaN"
    for bound in (holder_bound, trw_bound):
        with report.answer(f"impossible: {bound.__name__}"), suppress(tt.InfeasibleError):
            above = bound(graph, max_iter=EARLY)
            assert not math.isnan(above.value), "the bound is NaN"
            assert not np.isnan(above.marginals).any(), "marginals are NaN"
    with report.answer("impossible: mean_field"), suppress(tt.InfeasibleError, tt.StructureError):
        low = mean_field(graph, max_iter=EARLY)
        assert low.value == -INF, f"a lower bound {low.value!r} of log Z = -inf"
    for semiring in ("sum", "max"):
        with report.answer(f"impossible: loopy_bp({semiring})"), suppress(tt.InfeasibleError):
            beliefs = tt.loopy_bp(graph, damping=0.0 if tree else 0.2, semiring=semiring, max_iter=60)
            assert not np.isnan(beliefs.log_odds).any(), "log-odds are NaN"
            value = beliefs.bethe_log_partition
            assert not tree, f"{value!r} as an answer for an impossible tree"
            assert not math.isnan(value), "the Bethe value is NaN"


def weights(report: Report, graph: Any, truth: Truth) -> None:
    want, top = truth.logs.values, truth.max_log_weight
    sizes = np.where(np.isfinite(want) & (np.abs(want) < STANDS_FOR_INFINITY), np.abs(want), 0.0)
    allowed = 1e-10 * (1 + sizes.max(initial=0.0))
    with report.answer("log_weight"):
        close(graph.log_weight(truth.states), want, allowed, top)
    with report.answer("replace"):
        close(graph.replace(logits=graph.logits).log_weight(truth.states), want, allowed, top)


def exact(
    report: Report, graph: Any, truth: Truth, case: GraphCase, sizes: float, rng: np.random.Generator
) -> None:
    """Exact answers along a frontier, to 1e-12 and the rounding of the numbers that are given."""
    allowed, log_z = 1e-12 + 1e-15 * sizes, truth.log_partition
    marginals = np.exp(truth.log_marginals[:, 1])
    with report.answer("exact"):
        found = graph.exact()
        close(found.log_partition, log_z, allowed * (1 + abs(log_z)))
        close(found.marginals, marginals, allowed)
        chosen = np.flatnonzero(rng.random(len(case.theta)) < 0.5)
        sets = [(g, list(members)) for g, (members, _) in enumerate(case.factors)]
        for group, members in [*sets[:1], *([(chosen, chosen.tolist())] if len(chosen) else [])]:
            want = np.exp(truth.score_log_probs(truth.states[:, members].sum(1), len(members)))
            close(np.exp(found.count_log_probs(group)), want, 10 * allowed)
    with report.answer("exact modes"):
        top = np.sort(truth.logs.values[truth.log_probs > -STANDS_FOR_INFINITY / 2])[::-1]
        loose = 1e-10 * (1 + np.abs(top[: int(rng.integers(1, 9))]))
        close(graph.log_weight(found.mode()), top[0], loose[0])
        best = found.mode_k(len(loose))
        close(best.log_weights, top[: len(loose)], loose)
        assert len(np.unique(best.configurations, axis=0)) == len(loose), "a configuration comes twice"
    with report.answer("exact sample"):
        follows_law(lambda n, key: found.sample(n, rng=key), truth, report, int(rng.integers(2**31)))
    if rng.random() < 0.1:
        with report.answer("intervals"):
            beliefs = tt.loopy_bp(graph, max_iter=20)
            low, high = beliefs.log_partition_bounds()
            slack = 1e-9 * (1 + abs(log_z) + sizes)
            assert low - slack <= log_z <= high + slack, f"bounds {low!r}, {high!r} of log Z = {log_z!r}"
            low, high = beliefs.marginal_bounds()
            assert (low - 1e-9 <= marginals).all(), "a lower end is above the marginal"
            assert (marginals <= high + 1e-9).all(), "an upper end is below the marginal"


def upper(report: Report, graph: Any, truth: Truth, slack: float, which: int, sweeps: int) -> None:
    name, ask = [
        ("holder_bound()", lambda: holder_bound(graph, max_iter=sweeps)),
        ("holder_bound(optimal)", lambda: holder_bound(graph, weights="optimal", max_iter=sweeps)),
        ("trw_bound", lambda: trw_bound(graph, max_iter=sweeps)),
    ][which]
    log_z = truth.log_partition
    with report.answer(name):
        found = ask()
        assert found.value >= log_z - slack, f"upper bound {found.value!r} of log Z = {log_z!r}"
        assert not np.isnan(found.marginals).any(), "marginals are NaN"
        assert ((found.marginals >= 0) & (found.marginals <= 1 + 1e-12)).all(), "marginals outside [0, 1]"
        if len(found.weights) == 1:  # one class is the whole graph
            close(found.value, log_z, slack)


def lower(report: Report, graph: Any, truth: Truth, slack: float) -> None:
    # A factor that forbids something must be kept whole.
    with report.answer("mean_field"), suppress(tt.StructureError):
        found = mean_field(graph, max_iter=50)
        log_z = truth.log_partition
        assert found.value <= log_z + slack, f"lower bound {found.value!r} of log Z = {log_z!r}"
        assert not np.isnan(found.marginals).any(), "marginals are NaN"


def best(report: Report, graph: Any, truth: Truth, slack: float, sweeps: int) -> None:
    with report.answer("dual_decomposition"):
        ladder = COOLING if sweeps == EARLY else SLOWLY
        found = dual_decomposition(graph, max_iter=sweeps, temperatures=ladder)
        top = truth.max_log_weight
        assert found.upper_bound >= top - slack, f"upper bound {found.upper_bound!r} of the best, {top!r}"
        assert found.log_weight <= found.upper_bound + slack, f"log-weight above its bound: {found!r}"
        weight = float(truth.logs.values[int(truth.index(np.asarray(found.mode, int)))])
        if found.log_weight > -INF:
            close(found.log_weight, weight, slack)
        if found.gap <= 1e-6:
            assert found.log_weight >= top - 1e-6 - slack, f"proved {found.log_weight!r}, the best is {top!r}"


def propagation(report: Report, graph: Any, truth: Truth, case: GraphCase, slack: float) -> None:
    with report.answer("loopy_bp"):
        found = tt.loopy_bp(graph, max_iter=100 if case.is_tree else 30)
        assert not np.isnan(found.log_odds).any(), "log-odds are NaN"
    if report.wrong and report.wrong[-1][0].startswith("loopy_bp"):
        return
    with report.answer("lower_bound"):
        assert found.lower_bound <= truth.log_partition + 1e-6 * (1 + abs(truth.log_partition)) + slack, (
            f"lower bound {found.lower_bound!r} of log Z = {truth.log_partition!r} ({found.lower_bound_condition})"
        )
    if not (case.is_tree and found.converged):
        return
    loose = 1e-6 * (1 + np.where(np.isfinite(truth.posterior_logits), np.abs(truth.posterior_logits), 0.0))
    with report.answer("loopy_bp on a tree"):
        seen = np.abs(truth.posterior_logits) < 30  # beyond, messages stop short of what does not matter
        close(found.log_odds[seen], truth.posterior_logits[seen], loose[seen])
        close(found.marginals, np.exp(truth.log_marginals[:, 1]), 1e-6)
    with report.answer("bethe_log_partition on a tree"):
        close(found.bethe_log_partition, truth.log_partition, 1e-6 * (1 + abs(truth.log_partition)) + slack)
    with report.answer("undamped loopy_bp on a tree"):
        exact = tt.loopy_bp(graph, damping=0.0, max_iter=60, accelerate=False)
        if exact.converged:
            close(exact.bethe_log_partition, truth.log_partition, slack)
            close(exact.marginals, np.exp(truth.log_marginals[:, 1]), 1e-8 + 1e-3 * slack)
    with report.answer("count_log_probs on a tree"):
        for g, (members, _) in enumerate(case.factors):
            want = np.exp(truth.score_log_probs(truth.states[:, list(members)].sum(1), len(members)))
            close(np.exp(found.count_log_probs(g)), want, 1e-5)


def maxima(report: Report, graph: Any, truth: Truth, case: GraphCase, slack: float) -> None:
    with report.answer("max-product"):
        found = tt.loopy_bp(graph, max_iter=100, semiring="max")
        assert not np.isnan(found.log_odds).any(), "log-odds are NaN"
        if case.is_tree and found.converged:
            want = truth.max_log_weight
            close(found.bethe_log_partition, want, 1e-6 * (1 + abs(want)) + slack)


# ------------------------------------------------------------------------------------------------------ drawing


def draw_graph(rng: np.random.Generator) -> GraphCase:
    n = int(rng.integers(1, LARGEST + 1))
    hidden = hidden_states(rng, n)
    contradictions = bool(rng.random() < 0.05)
    source = Source(rng, hidden, contradictions)
    source.calm = source.calm or bool(rng.random() < 0.4)
    tree = rng.random() < 0.5
    members = _tree_of_factors(rng, n) if tree else _any_factors(rng, n)
    factors = tuple((m, _factor(rng, source, m)) for m in members)
    edges = []
    if not tree and n > 1:
        for _ in range(int(rng.integers(0, 3))):
            i, j = (int(v) for v in rng.choice(n, 2, replace=False))
            edges.append((i, j, source.weights((2, 2), (hidden[i], hidden[j]))))
    return GraphCase(source.logits(), factors, tuple(edges))


def _factor(rng: np.random.Generator, source: Source, members: tuple[int, ...]) -> Any:
    hidden, n = source.hidden[list(members)], len(members)
    if rng.random() < 0.6:
        return source.table(n, int(hidden.sum()))
    inner = Source(rng, hidden, source.contradictions)
    inner.calm, inner.mask = source.calm, source.mask
    with_edges = rng.random() < 0.4
    family, pairs = forest_structure(rng, n) if with_edges else (nested_family(rng, n), None)
    return filled(inner, family, pairs)


def _any_factors(rng: np.random.Generator, n: int) -> list[tuple[int, ...]]:
    sizes = rng.integers(1, n + 1, int(rng.integers(1, 4)))
    return [tuple(int(v) for v in rng.choice(n, s, replace=False)) for s in sizes]


def _tree_of_factors(rng: np.random.Generator, n: int) -> list[tuple[int, ...]]:
    """Every factor shares at most one variable with those before it."""
    order = rng.permutation(n).tolist()
    found, used = [], [order.pop()]
    while order:
        size = int(rng.integers(1, len(order) + 1))
        new, order = order[:size], order[size:]
        found.append((int(rng.choice(used)), *new) if rng.random() < 0.8 else tuple(new))
        used += new
    return found or [tuple(used)]
