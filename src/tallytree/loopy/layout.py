"""How a factor graph is laid out for message passing: phases of factors, batches of one size, and who hears whom.

A phase is a set of factors that are updated together; a batch holds the factors of a phase that go through the
engine in one call. Messages live in one vector with an entry per (factor, member), ordered by phase, batch and
factor, so that a batch is a contiguous (F, n) block of it.

Factors over the same variables are one factor. Apart, they would tell one another what they know of single variables
and nothing of their count: messages go round in the shortest of cycles, may never settle, and what they settle at is
approximate. The product of two potentials of one count is a potential of that count, and so it is for pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..arrays import Float64, Ints
from ..memo import once
from ..models.count import CountModel
from ..models.group import Group
from ..structure.forest.top_tree import components
from .factor_graph import FactorGraph

_FEW_SIZES = 4  # up to this many sizes in a phase are not worth padding
_HUB = 256  # factors of a variable beyond which who hears whom is not written down
_PADDING = 0.8  # factors at least this fraction of the largest size share its batch


@dataclass(frozen=True, eq=False)
class Batch:
    """Factors of one kind and size, side by side.

    Attributes
    ----------
    kind : "count", "model" or "pair"
    factors : numbers in the graph; groups first, then edges
    start, stop : their messages
    width : members per factor, padding included
    cells : place of every message in the flattened (F, width) block, or None where the block has no padding
    tables : (1 or F, width + 1) for counts, (F, 2, 2) for pairs
    model : the batch of models, all with the same groups and the same edges
    """

    kind: str
    factors: Ints
    start: int
    stop: int
    width: int
    cells: Ints | None
    tables: Float64
    model: CountModel | None = None

    def __len__(self) -> int:
        return len(self.factors)

    def block(self, nu: Float64) -> Float64:
        """Log-odds of the members as (F, width); padding is excluded."""
        if self.cells is None:
            return nu.reshape(len(self.factors), self.width)
        out = np.full(len(self.factors) * self.width, -math.inf)
        out[self.cells] = nu
        return out.reshape(len(self.factors), self.width)

    def unblock(self, values: NDArray[Any]) -> NDArray[Any]:
        """The entries of (F, width) that belong to members, flat."""
        flat = values.reshape(-1)
        return flat if self.cells is None else flat[self.cells]

    def tempered(self, power: float) -> Batch:
        """The factors raised to a power."""
        if power == 1.0:
            return self
        return replace(self, tables=self.tables * power, model=_tempered_model(self.model, power))


def part_of(
    graph: FactorGraph, factors: list[int], powers: Float64 | None = None, known: Distinct | None = None
) -> FactorGraph:
    """A graph of some of the factors, raised to their powers if there are any; with `known`, those stand for others."""
    power = np.ones(graph.n_groups + graph.n_edges) if powers is None else powers
    tables, pair_tables = (
        (graph.tables, graph.pair_tables) if known is None else (known.tables, known.pair_tables)
    )
    groups = []
    for a in (a for a in factors if a < graph.n_groups):
        table, model = tables[a], _tempered_model(graph.models[a], power[a])
        groups.append(Group(graph.members(a), model if table is None else table * power[a]))
    edges = np.array([a for a in factors if a >= graph.n_groups], np.int64)
    at = edges - graph.n_groups
    pairs = (graph.pairs[at], pair_tables[at] * power[edges, None, None])
    return FactorGraph(graph.logits, groups, edges=pairs if len(at) else None)


def _tempered_model(model: CountModel | None, power: float) -> CountModel | None:
    """A model with its tables, those of edges too, raised to a power."""
    if model is None:
        return None
    edges = None if model.edges is None else model.edges.log_tables * power
    return model.replace(tables=[t * power for t in model.tables], edges=edges)


@dataclass(frozen=True, eq=False)
class Phase:
    """Factors that are updated together, and the other messages that their members hear: a one for each of them.

    For variables of very many factors these would be too many; `hubs` has all messages to such a variable, which of
    them belong to the phase, and where there.
    """

    start: int
    stop: int
    batches: tuple[Batch, ...]
    others: Any  # (messages of this phase, all messages), sparse
    hubs: tuple[tuple[Ints, Ints, Ints], ...]


@dataclass(frozen=True, eq=False)
class Layout:
    """All phases, and the variable of every message."""

    theta: Float64
    constant: float  # part of every log-weight that no factor sees
    phases: tuple[Phase, ...]
    variable: Ints
    degree: Ints
    is_forest: bool  # variables and factors form a graph without cycles

    def incoming(self, phase: Phase, messages: Float64) -> Float64:
        """What members say to the factors of a phase: own log-odds and the messages of all other factors."""
        with np.errstate(invalid="ignore"):
            out = np.asarray(self.theta[self.variable[phase.start : phase.stop]] + phase.others @ messages)
            for heard, own, place in phase.hubs:
                # What comes before a message and what comes after it: a difference would lose digits, or be NaN.
                told = messages[heard]
                before, after = np.cumsum(told), np.cumsum(told[::-1])[::-1]
                out[place] += np.append(0.0, before[:-1])[own] + np.append(after[1:], 0.0)[own]
        return out

    def beliefs(self, messages: Float64) -> Float64:
        """Log-odds of the variables, (D,)."""
        with np.errstate(invalid="ignore"):
            total = self.theta + np.bincount(self.variable, messages, minlength=len(self.theta))
        return np.where(np.isinf(self.theta), self.theta, total)


def layout(graph: FactorGraph, phases: int | None = None) -> Layout:
    """Layout of a graph with at most so many phases; None is one for each class of disjoint factors."""
    built: Layout = once(graph._structure, ("layout", phases), lambda: _build(graph, phases))
    return replace(built, theta=graph.total_logits, constant=graph.forced_log_weight)


def colours(members: list[Ints], n_variables: int) -> Ints:
    """First-fit colouring: no two factors of a colour share a variable."""
    taken = [0] * n_variables  # colours of the factors of each variable, as bits
    out = np.empty(len(members), np.int64)
    for a, at in enumerate(members):
        used = 0
        for v in at.tolist():
            used |= taken[v]
        first = ~used & (used + 1)  # the lowest bit that is not set
        for v in at.tolist():
            taken[v] |= first
        out[a] = first.bit_length() - 1
    return out


def _build(graph: FactorGraph, phases: int | None) -> Layout:
    known = distinct(graph)
    members, factors = known.members, known.factors
    listed = [members[a] for a in factors]
    colour = colours(listed, graph.n_variables)
    if phases is not None:  # where a variable has more factors than that, some of them speak at once
        colour %= phases
    planned = [_plan(graph, factors[colour == c], members) for c in range(int(colour.max(initial=-1)) + 1)]
    variable = np.concatenate(
        [
            np.empty(0, np.int64),
            *(members[a] for batches in planned for kind, group, _ in batches for a in group),
        ]
    )
    degree = np.bincount(variable, minlength=graph.n_variables)
    n = len(variable)
    few = degree[variable] <= _HUB
    member = csr_array((few.astype(float), variable.copy(), np.arange(n + 1)), shape=(n, graph.n_variables))
    member.eliminate_zeros()
    others = csr_array(member @ member.T)
    others.setdiag(0.0)
    others.eliminate_zeros()  # nothing is said by 0 times an infinite message
    heard = [np.flatnonzero(variable == v) for v in np.flatnonzero(degree > _HUB)]
    made, at = [], 0
    for batches in planned:
        start, built = at, []
        for kind, group, width in batches:
            stop = at + sum(len(members[a]) for a in group)
            built.append(_batch(graph, known, kind, np.array(group), at, stop, width))
            at = stop
        inside = [(all_of, np.flatnonzero((all_of >= start) & (all_of < at))) for all_of in heard]
        hubs = tuple((all_of, own, all_of[own] - start) for all_of, own in inside if len(own))
        made.append(Phase(start, at, tuple(built), others[start:at], hubs))
    forest = _is_forest(listed, graph.n_variables)
    return Layout(graph.total_logits, graph.forced_log_weight, tuple(made), variable, degree, forest)


def _is_forest(members: list[Ints], n_variables: int) -> bool:
    """A graph has no cycle iff it has as many edges as vertices less components."""
    sizes = [len(m) for m in members]
    factor = n_variables + np.repeat(np.arange(len(members)), sizes)
    variable = np.concatenate([np.empty(0, np.int64), *members])
    n = n_variables + len(members)
    apart = int(components(n, np.stack([variable, factor], axis=1)).max(initial=-1)) + 1
    return len(factor) == n - apart


def _plan(graph: FactorGraph, factors: Ints, members: list[Ints]) -> list[tuple[str, list[int], int]]:
    """(kind, factors, width) of every batch of a phase."""
    counts: dict[int, list[int]] = {}
    models: dict[Any, list[int]] = {}
    pairs: list[int] = []
    known = graph.models
    for a in factors.tolist():
        if a >= graph.n_groups:
            pairs.append(a)
        elif (model := known[a]) is not None:
            models.setdefault(_structure(model), []).append(a)
        else:
            counts.setdefault(len(members[a]), []).append(a)
    batches = [("count", group, width) for width, group in _padded(counts)]
    batches += [("model", group, len(members[group[0]])) for group in models.values()]
    return batches + ([("pair", pairs, 2)] if pairs else [])


def _structure(model: CountModel) -> tuple[Any, bytes | None]:
    """What models must share to go through the engine together: groups, and edges."""
    return model.tree, None if model.edges is None else model.edges.pairs.tobytes()


def _stacked(models: list[CountModel]) -> CountModel:
    """Models of one structure as a batch; their log-odds belong to the variables of the graph."""
    first = models[0]
    nothing = np.zeros((len(models), first.n_variables))
    tables = [np.stack(each) for each in zip(*(m.tables for m in models))]
    edges = [m.edges.log_tables for m in models if m.edges is not None]
    return first.replace(logits=nothing, tables=tables, edges=np.stack(edges) if edges else None)


def _padded(counts: dict[int, list[int]]) -> list[tuple[int, list[int]]]:
    """Factors by size; where there are many sizes, similar ones share a batch."""
    sizes = sorted(counts, reverse=True)
    if len(sizes) <= _FEW_SIZES:
        return [(size, counts[size]) for size in sizes]
    shared: list[tuple[int, list[int]]] = []
    for size in sizes:
        if not shared or size < _PADDING * shared[-1][0]:
            shared.append((size, []))
        shared[-1][1].extend(counts[size])
    return shared


def _batch(
    graph: FactorGraph, known: Distinct, kind: str, factors: Ints, start: int, stop: int, width: int
) -> Batch:
    nothing = np.empty((0, 0))
    if kind == "pair":
        return Batch(kind, factors, start, stop, 2, None, known.pair_tables[factors - graph.n_groups])
    if kind == "model":
        models = graph.models
        model = _stacked([m for m in (models[a] for a in factors) if m is not None])
        return Batch(kind, factors, start, stop, width, None, nothing, model)
    found = [known.tables[a] for a in factors]
    sizes = np.array([len(known.members[a]) for a in factors])
    if all(t is found[0] for t in found):
        tables = np.array(found[:1], np.float64)
    else:
        tables = np.full((len(found), width + 1), -math.inf)
        for row, table in enumerate(found):
            assert table is not None
            tables[row, : len(table)] = table
        if (tables == tables[0]).all():
            tables = tables[:1]
    cells = None
    if (sizes != width).any():
        before = np.repeat(np.cumsum(sizes) - sizes, sizes)
        cells = np.repeat(np.arange(len(sizes)) * width, sizes) + np.arange(len(before)) - before
    return Batch(kind, factors, start, stop, width, cells, tables)


# -- factors of equal members ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Distinct:
    """Factors of which no two have the same members.

    Factors that are a CountModel stay as they are.

    Attributes
    ----------
    members : variables of every factor of the graph, groups first, then edges
    stands : for every factor of the graph the number of the one that stands for it: the first, but a pairwise one for
        groups of two that have one
    tables : log-table of every group, that of all over the same members; None for a CountModel
    pair_tables : (m, 2, 2), likewise
    """

    members: list[Ints]
    stands: Ints
    tables: list[Float64 | None]
    pair_tables: Float64

    @property
    def factors(self) -> Ints:
        """Numbers of the factors that stand for themselves, and maybe for others."""
        return np.flatnonzero(self.stands == np.arange(len(self.stands)))

    def in_order_of(self, factor: int) -> Ints:
        """Places of the members of a factor among those of the one that stands for it."""
        own, there = self.members[factor], self.members[self.stands[factor]]
        order = np.argsort(there)
        return np.asarray(order[np.searchsorted(there, own, sorter=order)])


def members_of_factors(graph: FactorGraph) -> list[Ints]:
    """Variables of every factor, groups first, then edges."""
    return [graph.members(i) for i in range(graph.n_groups)] + list(graph.pairs)


def distinct(graph: FactorGraph) -> Distinct:
    """The factors of a graph, those of equal members joined."""
    found: Distinct = once(graph._structure, "distinct factors", lambda: _joined(graph))
    return found


def _joined(graph: FactorGraph) -> Distinct:
    n = graph.n_groups
    members = members_of_factors(graph)
    tables, pair_tables = list(graph.tables), graph.pair_tables
    stands = np.arange(len(members))
    first: dict[bytes, int] = {}
    # Pairs come first: their tables can hold those of groups of two.
    for a in (*range(n, len(members)), *range(n)):
        if a < n and tables[a] is None:
            continue
        stands[a] = first.setdefault(np.sort(members[a]).tobytes(), a)
    if np.array_equal(stands, np.arange(len(members))):
        return Distinct(members, stands, tables, pair_tables)
    pair_tables = pair_tables.copy()
    for a in np.flatnonzero(stands != np.arange(len(members))).tolist():
        b = int(stands[a])
        own = tables[a] if a < n else None
        if b < n:
            tables[b] = tables[b] + own  # type: ignore[operator]
        elif own is not None:
            pair_tables[b - n] += own[np.add.outer([0, 1], [0, 1])]
        else:
            same = graph.pairs[a - n, 0] == graph.pairs[b - n, 0]
            pair_tables[b - n] += graph.pair_tables[a - n] if same else graph.pair_tables[a - n].T
    for a in range(n):
        if stands[a] < n:
            tables[a] = tables[stands[a]]
    return Distinct(members, stands, tables, pair_tables)
