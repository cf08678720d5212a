"""Gibbs sampling block by block, where blocks are as large as exact inference allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, fdtri, log_expit

from .. import display
from .._progress import Progress, Report
from ..arrays import Float64, Ints, States
from ..engine.frontier import automata, passes
from ..engine.frontier.order import Incidence, elimination_order, is_narrow
from ..engine.frontier.plan import Step, steps_of
from ..errors import InfeasibleError
from ..memo import cached, once
from .factor_graph import FactorGraph
from .layout import members_of_factors
from .reduction import reduced, simple_factors

_WIDTH = 2**11  # states of the frontier of a block at most
_ENUMERATED = 10  # variables of a block whose configurations are listed one by one
_TRIES = 50  # starts of a chain
_LEAST = 20  # sweeps of a chain that are compared with others

# -- Gibbs sampling --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GraphSamples:
    """Draws from a factor graph, and how they were made.

    Attributes
    ----------
    draws : (..., D) array of uint8
        The samples, zeros and ones.
    method : str
        "exact" for independent exact draws, "gibbs" for Markov chains that redraw one block of variables after another.
    chains : int
        Number of chains; 0 for exact draws.
    rhat : (D,) array
        Gelman-Rubin diagnostic of every variable, from the halves of the chains: near 1 if they agree. 1 for exact
        draws.
    effective_size : (D,) array
        Number of independent draws that would estimate the mean of every variable equally well.
    sweeps : int
        Number of sweeps of every chain that ``rhat`` and ``effective_size`` are based on, at least 20; 0 for exact
        draws.

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
    sweeps: int = 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> States:
        return np.array(self.draws, dtype=dtype, copy=copy)

    _repr_html_ = display.marginals_page

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

    @property
    def _agreement(self) -> float:
        """R-hat that chains in agreement stay below, all variables together, with probability 0.999."""
        halves, n = 2 * self.chains, max(self.sweeps // 2, 2)
        ratio = float(fdtri(halves - 1, halves * (n - 1), 1.0 - 1e-3 / max(len(self.rhat), 1)))
        return max(1.05, math.sqrt((n - 1 + ratio) / n))

    def __repr__(self) -> str:
        if self.method == "exact":
            return f"GraphSamples({self.draws.shape}, independent exact draws)"
        largest, least = self.rhat.max(initial=1.0), self.effective_size.min(initial=math.inf)
        doubt = "" if largest < self._agreement else "; the chains do not agree yet, draw more"
        return (
            f"GraphSamples({self.draws.shape}, {self.chains} Gibbs chains, largest R-hat {largest:.3f}, "
            f"least effective size {least:.0f}{doubt})"
        )


def gibbs_draws(
    graph: FactorGraph,
    number: int,
    chains: int,
    warm_up: int,
    rng: np.random.Generator,
    progress: bool | Report,
) -> GraphSamples:
    """Draws by chains that take block after block from its exact law given the others."""
    n, each = graph.n_variables, -(-number // chains)
    if not number:
        return GraphSamples(np.empty((0, n), np.uint8), "gibbs", chains, np.ones(n), np.zeros(n))
    state = np.stack([possible_state(graph, rng) for _ in range(chains)])
    blocks = _cover(graph, chains, rng)
    kept = max(each, _LEAST)  # what chains of a few draws say about one another is nothing
    seen = np.empty((chains, kept, n), np.uint8)
    with Progress("sample", warm_up + kept, progress, "sweeps") as shown:
        for sweep in range(-warm_up, kept):
            for block in rng.permutation(len(blocks)):
                blocks[block].redraw(state, rng)
            if sweep >= 0:
                seen[:, sweep] = state
            shown.advance()
    rhat, size = convergence(seen)
    draws = seen[:, kept - each :].transpose(1, 0, 2).reshape(chains * each, -1)[:number]
    return GraphSamples(draws, "gibbs", chains, rhat, size * number / (chains * kept), kept)


class Block:
    """Variables that chains draw together, given all others: few by enumeration, many along a frontier.

    The steps of their elimination are made once: what the others are decides which of its tables a factor closes with.
    """

    def __init__(self, graph: FactorGraph, variables: Ints, chains: int) -> None:
        self.variables, self._chains = variables, chains
        self._logits = graph.total_logits[variables]
        place = np.full(graph.n_variables, -1)
        place[variables] = np.arange(len(variables))
        # Of every factor: members in the block, members outside, and its tables by the number of those that are on.
        self._factors: list[tuple[Ints, Ints, Float64]] = []
        counts, pairs = simple_factors(graph)
        for members, table in counts:
            inside, outside = members[place[members] >= 0], members[place[members] < 0]
            if len(inside):
                every = np.lib.stride_tricks.sliding_window_view(table, len(inside) + 1)
                self._factors.append((place[inside], outside, every))
        for members, table in pairs:
            inside, outside = members[place[members] >= 0], members[place[members] < 0]
            if len(inside) == 1:
                self._factors.append((place[inside], outside, table.T if inside[0] == members[0] else table))
            elif len(inside) == 2:
                self._factors.append((place[inside], outside, table[None]))

    @cached
    def _machines(self) -> list[tuple[automata.Automaton, Float64]]:
        """Every factor as a machine, and the log-weights of its last states by the count outside, (c, s)."""
        return [
            automata.of_counts(tables) if tables.ndim == 2 else (automata.of_values(), tables.reshape(1, 4))
            for _, _, tables in self._factors
        ]

    @cached
    def _incidence(self) -> Incidence:
        sizes = [np.log([*machine.sizes[:-1], 1]) for machine, _ in self._machines]  # in the end it is closed
        read = [inside for inside, _, _ in self._factors]
        return Incidence(read, np.ones(len(self.variables), np.int64), sizes)

    @property
    def affordable(self) -> bool:
        """Whether it has few variables or a narrow frontier."""
        return len(self.variables) <= _ENUMERATED or is_narrow(self._incidence, _WIDTH)

    @cached
    def _steps(self) -> list[Step]:
        order = elimination_order(self._incidence)
        place = np.argsort(order)
        for k, (own, _, tables) in enumerate(self._factors):
            if tables.ndim == 3 and place[own[0]] > place[own[1]]:
                self._machines[k] = automata.of_values(), tables[0].T.reshape(1, 4)
        laws = list(np.stack([log_expit(-self._logits), log_expit(self._logits)], -1))
        begin = [np.zeros(1) for _ in self._factors]
        private = [False] * len(begin)
        read = [inside for inside, _, _ in self._factors]
        machines = [machine for machine, _ in self._machines]
        return steps_of(laws, read, machines, begin, order, private, self._chains)

    @cached
    def _listed(self) -> tuple[Ints, list[Any], Float64]:
        """All configurations, (2^n, n); the entry of each factor's table for each of them; their own log-weights."""
        places = np.arange(len(self.variables))
        every = np.arange(1 << len(places))[:, None] >> places & 1
        entries = [
            every[:, own].sum(1) if tables.ndim == 2 else every[:, own] @ np.array([2, 1])
            for own, _, tables in self._factors
        ]
        return every, entries, every @ self._logits

    def _redraw_listed(self, state: Ints, rng: np.random.Generator) -> None:
        every, entries, own = self._listed
        total = np.repeat(own[None], len(state), axis=0)
        for at, (_, outside, tables) in zip(entries, self._factors):
            total += tables.reshape(len(tables), -1)[state[:, outside].sum(1)][:, at]
        reached = np.cumsum(np.exp(total - total.max(1, keepdims=True)), axis=1)
        taken = (reached < (1.0 - rng.random((len(state), 1))) * reached[:, -1:]).sum(1)
        state[:, self.variables] = every[taken]

    def redraw(self, state: Ints, rng: np.random.Generator) -> None:
        """Draw the variables of all chains (C, D) anew, in place."""
        if len(self.variables) <= _ENUMERATED:
            self._redraw_listed(state, rng)
            return
        steps = [
            step if step.factor < 0 else step.weighted(self._gains(step.factor, state))
            for step in self._steps
        ]
        try:
            tape = passes.Tape(steps, side_by_side=self._chains)
        except passes.TooSmall:
            tape = passes.Tape(steps, side_by_side=self._chains, logs=True)
        for t, taken in passes.walks(tape, self._chains, rng).items():
            if steps[t].block >= 0:
                state[:, self.variables[steps[t].block]] = steps[t].on[taken]

    def _gains(self, factor: int, state: Ints) -> Float64:
        """Log-weights of the last states of a factor in every chain, (s, C) flat."""
        table = self._machines[factor][1][state[:, self._factors[factor][1]].sum(1)]
        return np.asarray((table - table.max(1, keepdims=True)).T.reshape(-1))


def _cover(graph: FactorGraph, chains: int, rng: np.random.Generator) -> list[Block]:
    """Blocks that hang together, as large as exact inference allows, until every free variable is in one."""
    free = reduced(graph).value < 0
    left = set(np.flatnonzero(free).tolist())
    blocks = []
    while left:
        start = int(rng.choice(sorted(left)))
        order = neighbourhood(graph, start)
        order = order[free[order]]
        size = min(max(_ENUMERATED, 1), len(order))
        best = Block(graph, order[:size], chains)
        while size < len(order):
            size = min(size + 1 + size // 2, len(order))
            more = Block(graph, order[:size], chains)
            if not more.affordable:
                break
            best = more
        blocks.append(best)
        left -= set(best.variables.tolist())
    return blocks


def neighbourhood(graph: FactorGraph, start: int, most: int = 256) -> Ints:
    """Variables around one, by factors: always that next which shares most with those before it, to close cycles."""
    members, of = once(graph._structure, "factors of variables", lambda: _factors_of(graph))
    shared: dict[int, int] = dict.fromkeys(of[start], 1)
    taken: set[int] = set()
    seen: dict[int, None] = {start: None}
    while shared and len(taken) < most:
        a = max(shared, key=lambda k: shared[k] / len(members[k]))
        del shared[a]
        taken.add(a)
        for v in members[a].tolist():
            if v not in seen:
                seen[v] = None
                for b in of[v]:
                    if b not in taken:
                        shared[b] = shared.get(b, 0) + 1
    return np.array(list(seen))


def _factors_of(graph: FactorGraph) -> tuple[list[Ints], list[list[int]]]:
    """Members of every factor, and the factors of every variable."""
    members = members_of_factors(graph)
    of: list[list[int]] = [[] for _ in range(graph.n_variables)]
    for a, own in enumerate(members):
        for v in own.tolist():
            of[v].append(a)
    return members, of


def possible_state(graph: FactorGraph, rng: np.random.Generator) -> Ints:
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
