"""Blocks of a graph that can be solved exactly: checks of beliefs, and Gibbs sampling block by block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from .. import display
from ..arrays import Float64, Ints, States
from ..errors import InfeasibleError
from ..models.group import Group
from .components import Frontier, NestedComponent, solved
from .factor_graph import FactorGraph
from .layout import Layout, distinct, members_of_factors
from .reduction import Reduction, reduced

_WIDTH = 2**11  # states of the frontier of a block at most
_PIECES = 6  # of a graph that beliefs are checked on
_TRIES = 50  # starts of a chain

Parts = list[NestedComponent | Frontier]


def _affordable(reduction: Reduction) -> Parts | None:
    parts: Parts = []
    for component in reduction.components:
        part = solved(component)
        if part.width > _WIDTH:
            return None
        parts.append(part)
    return parts


# -- beliefs beside exact inference ----------------------------------------------------------------------------------


def deviation(graph: FactorGraph, structure: Layout, messages: Float64, log_odds: Float64) -> float:
    """Largest difference between beliefs and exact marginals on pieces of the graph.

    A piece is a set of factors that hang together, as large as exact inference allows; the factors around it say what
    they said in belief propagation. Pieces with cycles show what cycles do; a piece may be the whole graph.
    """
    if structure.is_forest:
        return 0.0
    rng = np.random.default_rng(0)
    members = members_of_factors(graph)
    factors = distinct(graph).factors
    of: list[list[int]] = [[] for _ in range(graph.n_variables)]
    for a in factors.tolist():
        for v in members[a]:
            of[v].append(a)
    speaker = np.concatenate(
        [
            np.repeat(b.factors, [len(members[a]) for a in b.factors])
            for p in structure.phases
            for b in p.batches
        ]
    )
    # Beliefs may run away to 0 or 1 where no constraint decides, so that it is not they who say what is decided.
    worst, undecided = 0.0, np.flatnonzero((reduced(graph).value < 0) & (structure.degree > 1))
    for v in rng.permutation(undecided)[:_PIECES]:
        reach = _reach(int(v), of, members)
        size, step = 1, 1
        found: tuple[Ints, Float64] | None = None
        # The step doubles until a piece is too wide, and halves from then on, down to a sixth of the size.
        growing = True
        while 6 * step >= size:
            trial = min(size + step, len(reach))
            exact = _piece_marginals(graph, reach[:trial], structure, messages, speaker)
            if exact is not None:
                size, found = trial, exact
                if size == len(reach):
                    break
            growing = growing and exact is not None
            step = 2 * step if growing else step // 2
        if found is not None:
            variables, marginals = found
            worst = max(worst, float(np.abs(marginals - expit(log_odds[variables])).max()))
        if size == len(reach) == len(factors):
            break  # it was the whole graph
    return worst


def _reach(start: int, of: list[list[int]], members: list[Ints], most: int = 256) -> list[int]:
    """Factors around a variable, always the one next that shares most with those before it: cycles close early."""
    shared: dict[int, int] = dict.fromkeys(of[start], 1)
    taken: dict[int, None] = {}
    seen = {start}
    while shared and len(taken) < most:
        a = max(shared, key=lambda k: shared[k] / len(members[k]))
        del shared[a]
        taken[a] = None
        for v in members[a].tolist():
            if v not in seen:
                seen.add(v)
                for b in of[v]:
                    if b not in taken:
                        shared[b] = shared.get(b, 0) + 1
    return list(taken)


def _piece_marginals(
    graph: FactorGraph, factors: list[int], structure: Layout, messages: Float64, speaker: Ints
) -> tuple[Ints, Float64] | None:
    known, members = distinct(graph), members_of_factors(graph)
    variables = np.unique(np.concatenate([members[a] for a in factors]))
    outside = ~np.isin(speaker, factors)
    told = np.bincount(structure.variable[outside], messages[outside], minlength=graph.n_variables)
    logits = (structure.theta + np.where(np.isfinite(structure.theta), told, 0.0))[variables]
    groups, pairs = [], []
    for a in factors:
        own = np.searchsorted(variables, members[a])
        if a >= graph.n_groups:
            pairs.append((own, known.pair_tables[a - graph.n_groups]))
            continue
        model = graph.models[a]
        silent = None if model is None else model.replace(logits=np.zeros(len(own)))
        groups.append(Group(own, known.tables[a] if silent is None else silent))
    edges = (np.array([p for p, _ in pairs]), np.array([t for _, t in pairs])) if pairs else None
    try:
        reduction = reduced(FactorGraph(logits, groups, edges=edges))
        parts = _affordable(reduction)
        if parts is None:
            return None
        marginals = np.where(reduction.value == 1, 1.0, 0.0)
        for component, part in zip(reduction.components, parts):
            marginals[component.variables] = expit(part.log_odds)
    except InfeasibleError:  # the messages around it leave it nothing
        return None
    return variables, marginals


# -- Gibbs sampling --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GraphSamples:
    """Draws from a factor graph, and how they were made.

    Attributes
    ----------
    draws : (..., D) array of uint8
    method : str
        "exact": independent draws along a frontier of counts. "gibbs": chains that draw block after block.
    chains : int
        Number of chains; 0 for independent draws.
    rhat : (D,) array
        Spread between and within the halves of the chains, of every variable; near 1 if they agree. 1 for exact draws.
    effective_size : (D,) array
        Number of independent draws that would say as much about the mean of every variable.

    See Also
    --------
    tallytree.FactorGraph.sample

    Examples
    --------
    >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))])
    >>> graph.sample(4, rng=0).draws.shape
    (4, 3)
    """

    draws: States
    method: str
    chains: int
    rhat: Float64
    effective_size: Float64

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> States:
        return np.array(self.draws, dtype=dtype, copy=copy)

    def _repr_html_(self) -> str:
        return display.marginals_page(self)

    @property
    def marginals(self) -> Float64:
        """Mean of the draws, (D,).

        See Also
        --------
        FactorGraph.exact

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], tt.exactly(2))])
        >>> graph.sample(4, rng=0).marginals
        array([1., 1.])
        """
        return np.asarray(self.draws.reshape(-1, self.draws.shape[-1]).mean(0))

    def __repr__(self) -> str:
        if self.method == "exact":
            return f"GraphSamples({self.draws.shape}, independent exact draws)"
        largest, least = self.rhat.max(initial=1.0), self.effective_size.min(initial=math.inf)
        doubt = "" if largest < 1.05 else "; the chains do not agree yet, draw more"
        return (
            f"GraphSamples({self.draws.shape}, {self.chains} Gibbs chains, largest R-hat {largest:.3f}, "
            f"least effective size {least:.0f}{doubt})"
        )


def gibbs_draws(
    graph: FactorGraph, number: int, chains: int, warm_up: int, rng: np.random.Generator
) -> GraphSamples:
    """Draws by chains that take block after block from its exact law given the others."""
    each = -(-number // chains)
    seen = np.empty((chains, each, graph.n_variables), np.uint8)
    for chain in range(chains):
        state = _start(graph, rng)
        blocks = _cover(graph, state, rng)
        for sweep in range(-warm_up, each):
            for block in rng.permutation(len(blocks)):
                _redraw(graph, state, blocks[block], rng)
            if sweep >= 0:
                seen[chain, sweep] = state
    rhat, size = convergence(seen)
    draws = seen.transpose(1, 0, 2).reshape(chains * each, -1)[:number]
    return GraphSamples(draws, "gibbs", chains, rhat, size)


def _given(state: Ints, block: Ints) -> Ints:
    out = state.copy()
    out[block] = -1
    return out


def _redraw(graph: FactorGraph, state: Ints, block: Ints, rng: np.random.Generator) -> None:
    reduction = reduced(graph, _given(state, block))
    state[block] = reduction.value[block]
    for component in reduction.components:
        state[component.variables] = solved(component).sample(1, rng)[0]


def _cover(graph: FactorGraph, state: Ints, rng: np.random.Generator) -> list[Ints]:
    """Blocks that hang together, as large as exact inference allows, until every variable is in one."""
    members = members_of_factors(graph)
    of: list[list[int]] = [[] for _ in range(graph.n_variables)]
    for a, own in enumerate(members):
        for v in own:
            of[v].append(a)
    left = set(range(graph.n_variables))
    blocks = []
    while left:
        start = int(rng.choice(sorted(left)))
        order = list(
            dict.fromkeys([start, *(int(v) for a in _reach(start, of, members) for v in members[a])])
        )
        size = 1
        while size < len(order):
            more = np.array(order[: 2 * size])
            if _affordable(reduced(graph, _given(state, more))) is None:
                break
            size = min(2 * size, len(order))
        blocks.append(np.array(order[:size]))
        left -= set(order[:size])
    return blocks


def _start(graph: FactorGraph, rng: np.random.Generator) -> Ints:
    """A configuration of positive weight: block after block given those before, tried again where that ends."""
    decided = reduced(graph).value
    for _ in range(_TRIES):
        state = decided.copy()
        try:
            for v in rng.permutation(np.flatnonzero(state < 0)):
                if state[v] < 0:
                    p = float(expit(graph.total_logits[v]))
                    for value in (1, 0) if rng.random() < 0.5 * (p + 0.5) else (0, 1):
                        trial = state.copy()
                        trial[v] = value
                        try:
                            state = np.where(trial >= 0, trial, reduced(graph, trial).value)
                            break
                        except InfeasibleError:
                            continue
                    else:
                        raise InfeasibleError("")
        except InfeasibleError:
            continue
        if graph.log_weight(state) > -math.inf:
            return state
    raise InfeasibleError(
        f"No configuration of positive weight was found in {_TRIES} tries. If there is one, ask for exact draws with a "
        "larger `limit`."
    )


def convergence(draws: States) -> tuple[Float64, Float64]:
    """R-hat of split chains and effective sizes of (chains, draws, D), by variable.

    Variables that are the same in all draws have R-hat 1 and count as often as they were drawn.
    """
    chains, number, _ = draws.shape
    half = number // 2
    if half < 2:
        return np.full(draws.shape[2], math.nan), np.full(draws.shape[2], math.nan)
    x = draws[:, : 2 * half].reshape(2 * chains, half, -1).astype(float)
    within, between = x.var(1, ddof=1).mean(0), half * x.mean(1).var(0, ddof=1)
    total = within * (half - 1) / half + between / half
    constant = total == 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = np.where(constant, 1.0, np.sqrt(total / within))
        centred = x - x.mean(1, keepdims=True)
        spectrum = np.fft.rfft(centred, 2 * half, axis=1)
        autocovariance = np.fft.irfft((np.abs(spectrum) ** 2).mean(0), 2 * half, axis=0)[:half] / half
        rho = 1.0 - (within - autocovariance * half / (half - 1)) / total
    # Geyer: sums of pairs of autocorrelations, until one is negative.
    pairs = rho[: half // 2 * 2].reshape(-1, 2, rho.shape[1]).sum(1)
    positive = np.cumprod(pairs > 0.0, axis=0)
    time = np.maximum(2.0 * (pairs * positive).sum(0) - 1.0, 1.0 / np.log10(2.0 * chains * half))
    return rhat, np.where(constant, float(chains * number), 2 * chains * half / time)
