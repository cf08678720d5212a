"""Connected components, solved exactly: nested ones as count models, the others along a frontier of counts."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from itertools import islice

import numpy as np
from scipy.special import log_expit

from ..arrays import Bools, Float64, Ints, States
from ..engine.frontier import automata, passes
from ..engine.frontier.order import Incidence, elimination_order, is_narrow
from ..engine.frontier.plan import Step, steps_of
from ..errors import StructureError
from ..memo import Caching, cached
from ..models.count import CountModel
from ..models.edges import Forest
from .factor_graph import FactorGraph
from .reduction import Component

_RANKED = 2**29  # states of all frontiers that a search for the k best configurations may hold
_ROUNDING = 4 * np.finfo(float).eps  # of a step, relative


def solved(component: Component) -> NestedComponent | Frontier:
    """The component as a count model if its sets are nested and its pairs fit them, else along a frontier."""
    try:
        return NestedComponent(component)
    except StructureError:
        return Frontier(component)


def graph_of(component: Component) -> FactorGraph:
    """The component as a factor graph."""
    return FactorGraph(component.logits, component.groups, edges=component.edges)


class NestedComponent:
    """A component whose sets are nested and whose pairs form a forest that fits them: a count model."""

    width = 1
    price = 0.0

    def at_most(self, states: int) -> bool:
        """Whether the frontier has no more states."""
        return True

    def __init__(self, component: Component) -> None:
        self.component, edges = component, component.edges
        self.model = CountModel(component.logits, component.groups, edges=edges and Forest(*edges))

    def fresh(self) -> NestedComponent:
        """The component itself: count models are small."""
        return self

    @property
    def log_partition(self) -> float:
        """Log of the sum over all configurations of the component."""
        return float(self.model.log_partition)

    @property
    def log_odds(self) -> Float64:
        """Posterior log-odds of all variables of the component."""
        return np.asarray(self.model.posterior_logits)

    @property
    def error_bound(self) -> float:
        """What the engine certifies."""
        return float(self.model.error_bound)

    def sample(self, size: int, rng: np.random.Generator) -> States:
        """Exact joint draws, (size, n)."""
        return self.model.sample(size, rng=rng)

    def mode(self) -> States:
        """A configuration of largest weight, (n,)."""
        return self.model.mode()

    def best(self, k: int) -> list[tuple[float, States]]:
        """The k best configurations and their log-weights."""
        if self.model.edges is not None:
            return Frontier(self.component, private=False).best(k)
        return list(zip(*self.model.mode_k(k)[::-1]))


class Frontier(Caching):
    """A component by elimination of the variables that several factors share; members of one factor come as a block.

    Parameters
    ----------
    component : Component
    tracked : a set of variables whose count is followed to the end
    private : whether variables of the same factors are read together; those of a single one when it is opened
    """

    def __init__(
        self, component: Component, tracked: tuple[int, ...] | None = None, *, private: bool = True
    ) -> None:
        self.component = component
        self.logits = component.logits
        counts = dict(component.counts)
        if tracked is not None and tracked not in counts:
            counts[tracked] = np.zeros(len(tracked) + 1)
        self._pairs = list(component.pairs.values())
        sets = [np.array(s) for s in (*counts, *component.pairs)]
        alone = self._alone(sets, list(component.pairs)) & private
        self.private = [s[alone[s]] for s in sets]
        self.blocks, self._number = self._twins(sets, alone, private)
        self._read = [np.unique(self._number[s[~alone[s]]]) for s in sets]
        self._ends = sets[len(counts) :]
        self._automata = [
            automata.of_count(table, len(own), keep_counts=s == tracked)
            for (s, table), own in zip(counts.items(), self.private)
        ] + [automata.of_pair(table) for table in self._pairs]
        lengths = np.array([len(block) for block in self.blocks])
        self._incidence = Incidence(self._read, lengths, [np.log(a.sizes) for a in self._automata])

    def _alone(self, sets: list[Ints], pairs: list[tuple[int, ...]]) -> Bools:
        """Which variables belong to a single count; something must be left that opens every factor."""
        degree = np.bincount(np.concatenate(sets), minlength=len(self.logits))
        degree[[v for s in pairs for v in s]] = 2
        alone: Bools = degree == 1
        alone[[int(s[0]) for s in sets if alone[s].all()]] = False
        return alone

    def _twins(self, sets: list[Ints], alone: Bools, together: bool) -> tuple[list[Ints], Ints]:
        """Blocks of variables of the same counts, and the number of the block of every variable."""
        keys: list[tuple[int, ...]] = [() for _ in self.logits]
        for k, s in enumerate(sets):
            for v in s:
                keys[v] += (k,)
        apart = {v for s in sets[len(sets) - len(self._pairs) :] for v in s}
        found: dict[tuple[int, ...], list[int]] = {}
        for v in np.flatnonzero(~alone).tolist():
            found.setdefault(keys[v] if together and v not in apart else (*keys[v], -1 - v), []).append(v)
        number = np.full(len(self.logits), -1)
        for i, own in enumerate(found.values()):
            number[own] = i
        return [np.array(own) for own in found.values()], number

    def fresh(self) -> Frontier:
        """The same elimination without its frontiers, which may be large."""
        new = copy.copy(self)
        new.__dict__["order"] = self.order
        return new

    @cached
    def order(self) -> Ints:
        """The order in which the blocks are read."""
        return elimination_order(self._incidence)

    @cached
    def width(self) -> int:
        """States of the widest frontier."""
        return round(math.exp(np.max(self._incidence.widths(self.order), initial=0.0)))

    def at_most(self, states: int) -> bool:
        """Whether the frontier has no more states, by an order that is found quickly."""
        return is_narrow(self._incidence, states)

    @property
    def price(self) -> float:
        """Log of the states of all frontiers."""
        return self._incidence.price(self.order)

    def steps(self, *, maxima: bool = False) -> list[Step]:
        """The elimination; with `maxima` blocks of variables are worth their best configuration."""
        place = np.empty(len(self.blocks), np.int64)
        place[self.order] = np.arange(len(self.blocks))
        machines = list(self._automata)
        for k, table in enumerate(self._pairs, len(machines) - len(self._pairs)):
            first, second = place[self._number[self._ends[k - len(machines)]]]
            machines[k] = automata.of_pair(table if first < second else table.T)
        laws = [self._log_law(block, maxima) for block in self.blocks]
        begin = [self._beginning(k, machines[k], maxima) for k in range(len(machines))]
        private = [len(own) > 0 for own in self.private]
        return steps_of(laws, self._read, machines, begin, self.order, private)

    def _log_law(self, variables: Ints, maxima: bool) -> Float64:
        """Log-weights of the number of variables that are on, or of the best configuration of each number."""
        own = self.logits[variables]
        if maxima:
            best = np.concatenate([[0.0], np.cumsum(np.sort(own)[::-1])])
            return np.asarray(best + log_expit(-own).sum())
        if len(own) == 1:
            return np.array([log_expit(-own[0]), log_expit(own[0])])
        return np.asarray(CountModel(own).count_log_probs())

    def _beginning(self, factor: int, machine: automata.Automaton, maxima: bool) -> Float64:
        """Log-weights of the states in which a factor begins, from the law of the count of its private members."""
        out = np.full(int(machine.sizes[0]), -math.inf)
        add = np.maximum if maxima else np.logaddexp
        usable = machine.start >= 0
        log_law = self._log_law(self.private[factor], maxima)
        add.at(out, machine.start[usable], (log_law + machine.start_gains)[usable])
        return out

    @cached
    def tape(self) -> passes.Tape:
        """The frontiers of the sum over all configurations."""
        steps = self.steps()
        try:
            return passes.Tape(steps)
        except passes.TooSmall:
            return passes.Tape(steps, logs=True)

    @property
    def log_partition(self) -> float:
        """Log of the sum over all configurations of the component."""
        return self.tape.log_sum + float(np.logaddexp(0.0, self.logits).sum())

    @cached
    def log_odds(self) -> Float64:
        """Posterior log-odds of all variables of the component."""
        try:
            found = passes.transition_log_probs(self.tape)
        except passes.TooSmall:
            found = passes.transition_log_probs(passes.Tape(self.tape.steps, logs=True))
        out = np.empty(len(self.logits))
        for t, step in enumerate(self.tape.steps):
            own, table = self._told(step, found[t])
            if len(own):
                out[own] = CountModel(self.logits[own], table).posterior_logits
        return out

    def _told(self, step: Step, log_probs: Float64) -> tuple[Ints, Float64]:
        """The variables that a step reads, and what the rest of the graph says about how many of them are on."""
        if step.block < 0:
            machine = self._automata[step.factor]
            table = np.where(machine.start < 0, -math.inf, log_probs[machine.start] + machine.start_gains)
            return self.private[step.factor], table
        own = self.blocks[step.block]
        # The law of the block is in the log-weights of the transitions; it is not what others say.
        told = -self._log_law(own, False)
        for on in range(len(told)):
            told[on] += np.logaddexp.reduce((log_probs + step.log_gain)[step.on == on], initial=-math.inf)
        return own, told

    @property
    def error_bound(self) -> float:
        """Error of log-odds and log Z: rounding of all steps, and of counts that are taken for equal."""
        steps = sum(len(step.touched) + 2 for step in self.tape.steps)
        return 2.0 * (_ROUNDING * steps + sum(a.error for a in self._automata))

    def count_law(self) -> Float64:
        """Log-probabilities of the count that is followed to the end."""
        return self.tape.final - self.tape.log_sum

    def best(self, k: int) -> list[tuple[float, States]]:
        """The k best configurations and their log-weights."""
        every = self if len(self.blocks) == len(self.logits) else Frontier(self.component, private=False)
        return list(islice(every._ranked(), k))

    def _ranked(self) -> Iterator[tuple[float, States]]:
        steps = self.steps(maxima=True)
        states = sum(step.size for step in steps)
        if states > _RANKED:
            raise StructureError(
                f"The k best configurations need all frontiers at once, {8e-9 * states:.2g} GB of memory. "
                "Ask for `mode`, which needs a few of them, or for `sample`."
            )
        tape = passes.Tape(steps, maxima=True)
        blocks = [(t, self.blocks[step.block]) for t, step in enumerate(tape.steps) if step.block >= 0]
        base = float(np.logaddexp(0.0, self.logits).sum())
        for value, taken in passes.ranked_walks(tape):
            y = np.empty(len(self.logits), np.uint8)
            for t, own in blocks:  # of one variable each
                y[own] = tape.steps[t].on[taken[t]]
            yield value + base, y

    def sample(self, size: int, rng: np.random.Generator) -> States:
        """Exact joint draws, (size, n)."""
        return self._configurations(self.tape, size, rng)

    def mode(self) -> States:
        """A configuration of largest weight, (n,)."""
        best: States = self._configurations(passes.Tape(self.steps(maxima=True), maxima=True), 1, None)[0]
        return best

    def _configurations(self, tape: passes.Tape, size: int, rng: np.random.Generator | None) -> States:
        out = np.empty((size, len(self.logits)), np.uint8)
        for t, taken in passes.walks(tape, size, rng).items():
            step = tape.steps[t]
            chosen = step.on[taken]
            if step.block >= 0:
                own = self.blocks[step.block]
                tables = np.where(np.eye(len(own) + 1) > 0, 0.0, -math.inf)
            else:
                own, machine = self.private[step.factor], self._automata[step.factor]
                states = np.arange(machine.sizes[0])[:, None]
                tables = np.where(machine.start == states, machine.start_gains, -math.inf)
            if len(own) == 1 and step.block >= 0:
                out[:, own[0]] = chosen
                continue
            for state in np.unique(chosen) if len(own) else ():
                block, rows = CountModel(self.logits[own], tables[state]), np.flatnonzero(chosen == state)
                out[np.ix_(rows, own)] = block.mode() if rng is None else block.sample(len(rows), rng=rng)
        return out
