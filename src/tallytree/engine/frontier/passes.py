"""Sums over all configurations along the steps of an elimination, their derivatives, samples and maxima.

Weights are positive and only added and multiplied, so every sum keeps its digits. They are plain numbers, scaled by
the largest state at every step, unless some are too small for that: then they are logarithms.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Float64, Ints
from ...errors import InfeasibleError
from .. import native
from .plan import Fused, Step, fused

# Plain numbers serve where the weights of a step spread over fewer nats than this, and no state is below this fraction
# of the largest. Steps that are done together spread no further either, so that within them numbers stay above 1e-300.
_SPREAD = 200.0
_SMALLEST = 1e-200
_HEADROOM = 480  # binary digits by which both factors of a product are raised: 1e-600 would vanish
_STORED = 2**26  # states that are kept; above, some are computed again
_LOG_2 = math.log(2.0)
_TILE = 128  # local states of steps that are done together


class TooSmall(ArithmeticError):
    """Plain numbers do not reach far enough."""


@dataclass(frozen=True, eq=False)
class Weights:
    """States of a frontier: numbers, of which `top` is the largest, times ``exp(log_scale)``; or logarithms."""

    values: Float64
    log_scale: float = 0.0
    top: float = 1.0

    def exponent(self, headroom: int = 0) -> int:
        """The power of two by which the largest number is brought near one, or so much above it."""
        return headroom - math.frexp(self.top)[1]


class Tape:
    """The frontiers of an elimination, computed once and handed out from the last to the first.

    Those between steps that are done together are not kept, and where there is no room for the others neither are most
    of them: they are computed again.
    """

    def __init__(
        self, steps: list[Step], *, logs: bool = False, maxima: bool = False, side_by_side: int = 1
    ) -> None:
        self.side_by_side = side_by_side
        self.steps, self.logs, self.maxima = steps, logs or maxima, maxima
        if not self.logs and any(s.spread > _SPREAD for s in steps):
            raise TooSmall
        self._compiled = native.present() and (maxima or not logs)
        spread = math.inf if maxima else _SPREAD
        self.runs = list(fused(steps, _TILE, spread)) if self._compiled else [[step] for step in steps]
        room = sum(run[0].size for run in self.runs) <= _STORED
        self._stride = 1 if room else math.isqrt(len(self.runs)) + 1
        self._kept: dict[int, Weights] = {}
        now = self.one
        for r, run in enumerate(self.runs):
            if r % self._stride == 0:
                self._kept[r] = now
            now = self._forward(run, now)
        with np.errstate(divide="ignore"):
            # One state is left, or one for each count of a set that is followed to the end.
            self.final = np.ravel(now.values if self.logs else np.log(now.values)) + now.log_scale
        self.log_sum = float(np.logaddexp.reduce(self.final))
        if self.log_sum == -math.inf:
            raise InfeasibleError("No configuration has positive weight under all factors together.")

    def runs_backwards(self) -> Iterator[tuple[list[Step], Weights]]:
        """Runs of steps that are done together with the frontiers before them, from the last to the first."""
        stop = len(self.runs)
        for start in sorted(self._kept, reverse=True):
            part = [self._kept[start]]
            for run in self.runs[start : stop - 1]:
                part.append(self._forward(run, part[-1]))
            yield from zip(self.runs[start:stop][::-1], part[::-1])
            stop = start

    def backwards(self) -> Iterator[tuple[Step, Weights]]:
        """Steps with the frontiers before them, from the last to the first."""
        for run, up in self.runs_backwards():
            part = [up]
            for step in run[:-1]:
                part.append(self._forward([step], part[-1]))
            yield from zip(run[::-1], part[::-1])

    @property
    def one(self) -> Weights:
        """The frontier before the first step and after the last one."""
        return Weights(np.zeros(self.side_by_side) if self.logs else np.ones(self.side_by_side))

    def _forward(self, run: list[Step], now: Weights) -> Weights:
        if self.logs:
            if self._compiled:
                steps = Fused.of(run)
                return Weights(
                    native.frontier_forward(now.values, 0, steps, steps.best_gain(run), maxima=True)[0]
                )
            numbers = _MAXIMA if self.maxima else _LOGS
            return Weights(_forward(numbers, run[0], now.values, run[0].log_gain))
        power = now.exponent()
        if self._compiled:
            steps = Fused.of(run)
            found = native.frontier_forward(now.values, power, steps, steps.weight(run))
        else:
            new = _forward(_PLAIN, run[0], now.values * 2.0**power, run[0].weight)
            found = new, *_extremes(new)
        return _checked(now.log_scale - power * _LOG_2 + _log_top(run), *found)

    def backward(self, run: list[Step], up: Weights, down: Weights) -> tuple[Weights, list[Float64]]:
        """Derivatives before a run, and log-probabilities of the transitions of its steps without their own weights."""
        if self.logs:
            before, sums = _backward(_LOGS, run[0], up.values, down.values, run[0].log_gain)
            return Weights(before), [sums - self.log_sum]
        powers = up.exponent(_HEADROOM), down.exponent(_HEADROOM)
        if self._compiled:
            steps = Fused.of(run)
            before, found, *extremes = native.frontier_backward(
                up.values, powers[0], down.values, powers[1], steps, steps.weight(run)
            )
            each = [found[kind] for kind in steps.kinds]
        else:
            raised = up.values * 2.0 ** powers[0], down.values * 2.0 ** powers[1]
            before, sums = _backward(_PLAIN, run[0], *raised, run[0].weight)
            each, extremes = [sums], [*_extremes(before)]
        top, scale = _log_top(run), down.log_scale - powers[1] * _LOG_2
        constant = up.log_scale - powers[0] * _LOG_2 + scale + top - self.log_sum
        with np.errstate(divide="ignore"):
            logs = [np.log(sums) + (constant - step.log_top) for step, sums in zip(run, each)]
        return _checked(scale + top, before, *extremes), logs


def _checked(log_scale: float, values: Float64, largest: float, smallest: float) -> Weights:
    if smallest < _SMALLEST * largest:
        raise TooSmall
    return Weights(values, log_scale, largest)


def _log_top(run: list[Step]) -> float:
    return math.fsum(step.log_top for step in run)


# -- steps in array code -------------------------------------------------------------------------------------------


def _cells(step: Step) -> Iterator[tuple[Any, Any]]:
    """Where each transition begins and ends, for all states of the rest."""
    both = step.local(step.shape, step.source), step.local(step.new_shape, step.target)
    for begin, end in zip(
        *(np.reshape(at, (len(at), -1)).T.tolist() if at else [()] * len(step.on) for at in both)
    ):
        yield _index(len(step.shape), step.touched, begin), _index(len(step.shape), step.touched, end)


def _index(axes: int, touched: tuple[int, ...], at: Sequence[int]) -> tuple[Any, ...]:
    index: list[Any] = [slice(None)] * axes
    for axis, i in zip(touched, at):
        index[axis] = i
    return tuple(index)


class _Numbers(NamedTuple):
    """How weights multiply and add up."""

    times: np.ufunc
    add: np.ufunc
    zero: float


_PLAIN = _Numbers(np.multiply, np.add, 0.0)
_LOGS, _MAXIMA = _Numbers(np.add, np.logaddexp, -math.inf), _Numbers(np.add, np.maximum, -math.inf)


def _forward(ar: _Numbers, step: Step, before: Float64, weight: Float64) -> Float64:
    old, new = before.reshape(step.shape), np.full(step.new_shape, ar.zero)
    for (a, b), w in zip(_cells(step), weight):
        ar.add(new[b], ar.times(old[a], w), out=new[b])
    return new.reshape(-1)


def _backward(
    ar: _Numbers, step: Step, up: Float64, after: Float64, weight: Float64
) -> tuple[Float64, Float64]:
    old, ahead = up.reshape(step.shape), after.reshape(step.new_shape)
    before, sums = np.full(step.shape, ar.zero), np.empty(len(weight))
    for i, (a, b) in enumerate(_cells(step)):
        sums[i] = ar.add.reduce(np.ravel(ar.times(old[a], ahead[b])))
        ar.add(before[a], ar.times(ahead[b], weight[i]), out=before[a])
    return before.reshape(-1), sums


def _extremes(values: Float64) -> tuple[float, float]:
    return float(values.max(initial=0.0)), float(values[values > 0.0].min(initial=math.inf))


# -- answers -------------------------------------------------------------------------------------------------------


def transition_log_probs(tape: Tape) -> dict[int, Float64]:
    """Log-probability of every transition without its own log-weight, by place of the step, (t,).

    Add ``log_gain`` for the log-probability itself. This is the derivative of the sum in the weight of the transition.
    """
    found: dict[int, Float64] = {}
    down, t = tape.one, len(tape.steps)
    for run, up in tape.runs_backwards():
        t -= len(run)
        down, logs = tape.backward(run, up, down)
        found.update(enumerate(logs, t))
    return found


def walks(tape: Tape, size: int, uniform: np.random.Generator | None) -> dict[int, Ints]:
    """Transitions taken by `size` configurations, by place of the step; without randomness the best ones.

    They take turns with eliminations that are side by side.
    """
    taken: dict[int, Ints] = {}
    cell = np.arange(size) % tape.side_by_side
    for t, (step, up) in zip(range(len(tape.steps) - 1, -1, -1), tape.backwards()):
        choice, flat = _predecessors(step, cell)
        before = up.values.reshape(-1)[flat]
        with np.errstate(divide="ignore"):
            logs = (before if tape.logs else np.log(before)) + np.where(
                choice < 0, -math.inf, step.log_gain[choice]
            )
        pick = _picked(logs, uniform)
        taken[t] = np.take_along_axis(choice, pick[:, None], 1)[:, 0]
        cell = np.take_along_axis(flat, pick[:, None], 1)[:, 0]
    return taken


def _picked(logs: Float64, uniform: np.random.Generator | None) -> Ints:
    if uniform is None:
        return np.asarray(np.argmax(logs, -1))
    weights = np.cumsum(np.exp(logs - logs.max(-1, keepdims=True)), -1)
    chosen = (uniform.random(len(logs)) * weights[:, -1])[:, None] < weights
    return np.asarray(np.argmax(chosen, -1))


def _predecessors(step: Step, cell: Ints) -> tuple[Ints, Ints]:
    """Transitions into states after a step, (size, ways), -1 for none, and the states before it where they begin."""
    new_strides, strides, source = step.layout
    local, flat = np.zeros(len(cell), np.int64), np.zeros(len(cell), np.int64)
    rest = cell
    for axis, (n, new, old) in enumerate(zip(step.new_shape, new_strides, strides)):
        index, rest = np.divmod(rest, new)
        if axis % 2:
            local = local * n + index
        else:
            flat += index * old
    choice = step.ways[local]
    return choice, flat[:, None] + source[choice]


def ranked_walks(tape: Tape) -> Iterator[tuple[float, Ints]]:
    """All configurations from the best on, as log-weights and transitions taken, (steps,).

    The frontiers of the maxima say what is the best way to every state, so a search from the end that always goes on
    from the most promising partial configuration finds the next one after as many steps as there are variables.
    """
    frontiers = [up.values for _, up in tape.backwards()][::-1]
    count = itertools.count()  # ties are broken by age
    heap: list[Any] = [(-tape.log_sum, next(count), len(tape.steps), 0, 0.0, None)]
    while heap:
        value, _, t, cell, behind, chosen = heapq.heappop(heap)
        if t == 0:
            taken = []
            while chosen is not None:
                way, chosen = chosen
                taken.append(way)
            yield -value, np.array(taken, np.int64)
            continue
        step = tape.steps[t - 1]
        options, before = _predecessors(step, np.array([cell]))
        for way, at in zip(options[0].tolist(), before[0].tolist()):
            gain = float(step.log_gain[way]) if way >= 0 else -math.inf
            total = float(frontiers[t - 1].reshape(-1)[at]) + gain + behind
            if total > -math.inf:
                heapq.heappush(heap, (-total, next(count), t - 1, at, behind + gain, (way, chosen)))
