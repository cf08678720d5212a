"""Sums over all configurations along the steps of an elimination, their derivatives, samples and maxima.

Weights are positive and only added and multiplied, so every sum keeps its digits. They are plain numbers, scaled by
the largest state at every step, unless some are too small for that: then they are logarithms.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays import Float64, Ints
from ...errors import InfeasibleError
from .. import native
from .plan import Step

_SMALLEST_GAIN = -230.0  # log-weights of transitions below this, and
_SMALLEST = (
    1e-200  # states below this fraction of the largest, are not told from zero by plain numbers for sure
)
_STORED = 2**26  # states that are kept; above, some are computed again


class TooSmall(ArithmeticError):
    """Plain numbers do not reach far enough."""


@dataclass(frozen=True, eq=False)
class Weights:
    """States of a frontier: numbers, of which `top` is the largest, times ``exp(log_scale)``; or logarithms."""

    values: Float64
    log_scale: float = 0.0
    top: float = 1.0

    @property
    def next_scale(self) -> float:
        """The scale of what is computed from these numbers divided by the largest."""
        return self.log_scale + math.log(self.top) if self.top > 0.0 else self.log_scale


class Tape:
    """The frontiers of an elimination, computed once and handed out from the last to the first.

    All are kept where there is room; else every k-th, and those between are computed again.
    """

    def __init__(self, steps: list[Step], *, logs: bool = False, maxima: bool = False) -> None:
        self.steps, self.logs, self.maxima = steps, logs or maxima, maxima
        if not self.logs and any((s.log_gain[s.log_gain > -math.inf] < _SMALLEST_GAIN).any() for s in steps):
            raise TooSmall
        stride = 1 if sum(s.size for s in steps) <= _STORED else math.isqrt(len(steps)) + 1
        self._stride = stride
        self._kept: dict[int, Weights] = {}
        now = self.one
        for t, step in enumerate(steps):
            if t % stride == 0:
                self._kept[t] = now
            now = self._forward(step, now)
        with np.errstate(divide="ignore"):
            # One state is left, or one for each count of a set that is followed to the end.
            self.final = np.ravel(now.values if self.logs else np.log(now.values)) + now.log_scale
        self.log_sum = float(np.logaddexp.reduce(self.final))
        if self.log_sum == -math.inf:
            raise InfeasibleError("No configuration has positive weight under all factors together.")

    def backwards(self) -> Iterator[tuple[Step, Weights]]:
        """Steps with the frontiers before them, from the last to the first."""
        stop = len(self.steps)
        for start in sorted(self._kept, reverse=True):
            part = [self._kept[start]]
            for step in self.steps[start : stop - 1]:
                part.append(self._forward(step, part[-1]))
            yield from zip(self.steps[start:stop][::-1], part[::-1])
            stop = start

    @property
    def one(self) -> Weights:
        """The frontier before the first step and after the last one."""
        return Weights(np.zeros(1) if self.logs else np.ones(1))

    def _forward(self, step: Step, now: Weights) -> Weights:
        if self.logs:
            return Weights(_forward_logs(step, now.values, np.maximum if self.maxima else np.logaddexp))
        weight = np.exp(step.log_gain) / now.top
        return _checked(
            now, *(native.frontier_forward if native.present() else _forward)(now.values, step, weight)
        )


def _checked(before: Weights, values: Float64, largest: float, smallest: float) -> Weights:
    if smallest < _SMALLEST * largest:
        raise TooSmall
    return Weights(values, before.next_scale, largest)


# -- steps in array code -------------------------------------------------------------------------------------------


def _cells(step: Step) -> Iterator[tuple[Any, Any]]:
    """Where each transition begins and ends, for all states of the rest."""
    ends = [(step.shape, step.source), (step.new_shape, step.target)]
    for begin, end in zip(*(zip(*step.local(shape, flat)) for shape, flat in ends)):
        yield _index(len(step.shape), step.touched, begin), _index(len(step.shape), step.touched, end)


def _index(axes: int, touched: tuple[int, ...], at: tuple[int, ...]) -> tuple[Any, ...]:
    index: list[Any] = [slice(None)] * axes
    for axis, i in zip(touched, at):
        index[axis] = i
    return tuple(index)


def _extremes(values: Float64) -> tuple[float, float]:
    positive = values[values > 0.0]
    return float(values.max(initial=0.0)), float(positive.min(initial=math.inf))


def _forward(before: Float64, step: Step, weight: Float64) -> tuple[Float64, float, float]:
    old, new = before.reshape(step.shape), np.zeros(step.new_shape)
    for (a, b), w in zip(_cells(step), weight):
        new[b] += w * old[a]
    return new.reshape(-1), *_extremes(new)


def _backward(
    up: Float64, after: Float64, step: Step, weight: Float64
) -> tuple[Float64, Float64, float, float]:
    old, ahead, before = up.reshape(step.shape), after.reshape(step.new_shape), np.zeros(step.shape)
    sums = np.empty(len(weight))
    for i, (a, b) in enumerate(_cells(step)):
        sums[i] = np.sum(old[a] * ahead[b])
        before[a] += weight[i] * ahead[b]
    return before.reshape(-1), sums, *_extremes(before)


def _forward_logs(step: Step, before: Float64, add: np.ufunc) -> Float64:
    old, new = before.reshape(step.shape), np.full(step.new_shape, -math.inf)
    for (a, b), g in zip(_cells(step), step.log_gain):
        new[b] = add(new[b], old[a] + g)
    return new.reshape(-1)


def _backward_logs(step: Step, up: Float64, after: Float64) -> tuple[Float64, Float64]:
    old, ahead, before = up.reshape(step.shape), after.reshape(step.new_shape), np.full(step.shape, -math.inf)
    sums = np.empty(len(step.source))
    for i, (a, b) in enumerate(_cells(step)):
        sums[i] = np.logaddexp.reduce(np.ravel(old[a] + ahead[b]))
        before[a] = np.logaddexp(before[a], ahead[b] + step.log_gain[i])
    return before.reshape(-1), sums


# -- answers -------------------------------------------------------------------------------------------------------


def transition_log_probs(tape: Tape) -> dict[int, Float64]:
    """Log-probability of every transition without its own log-weight, by place of the step, (t,).

    Add ``log_gain`` for the log-probability itself. This is the derivative of the sum in the weight of the transition.
    """
    found: dict[int, Float64] = {}
    down = tape.one
    for t, (step, up) in zip(range(len(tape.steps) - 1, -1, -1), tape.backwards()):
        if tape.logs:
            before, found[t] = _backward_logs(step, up.values, down.values)
            found[t] -= tape.log_sum
            down = Weights(before)
            continue
        weight = np.exp(step.log_gain) / down.top
        backward = native.frontier_backward if native.present() else _backward
        before, sums, *extremes = backward(up.values, down.values, step, weight)
        with np.errstate(divide="ignore"):
            found[t] = np.log(sums) + (up.log_scale + down.log_scale - tape.log_sum)
        down = _checked(down, before, *extremes)
    return found


def walks(tape: Tape, size: int, uniform: np.random.Generator | None) -> dict[int, Ints]:
    """Transitions taken by `size` configurations, by place of the step; without randomness the best ones."""
    taken: dict[int, Ints] = {}
    cell = np.zeros(size, np.int64)
    for t, (step, up) in zip(range(len(tape.steps) - 1, -1, -1), tape.backwards()):
        ways = _ways_into(step)
        choice, flat = _predecessors(step, cell, ways)
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


def _predecessors(step: Step, cell: Ints, ways: Ints) -> tuple[Ints, Ints]:
    """Transitions into states after a step, (size, ways), -1 for none, and the states before it where they begin."""
    index = np.unravel_index(cell, step.new_shape)
    inside = tuple(step.new_shape[i] for i in step.touched)
    choice = ways[np.ravel_multi_index(tuple(index[i] for i in step.touched), inside)]
    places = [np.broadcast_to(i[:, None], choice.shape) for i in index]
    for axis, at in zip(step.touched, step.local(step.shape, step.source)):
        places[axis] = at[choice]
    return choice, np.ravel_multi_index(tuple(places), step.shape)


def _ways_into(step: Step) -> Ints:
    """Transitions that end in each touched state, (states, ways); -1 for none."""
    states = math.prod(step.new_shape[i] for i in step.touched)
    order = np.argsort(step.target, kind="stable")
    counts = np.bincount(step.target, minlength=states)
    column = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    ways = np.full((states, int(counts.max())), -1)
    ways[step.target[order], column] = order
    return ways


def ranked_walks(tape: Tape) -> Iterator[tuple[float, Ints]]:
    """All configurations from the best on, as log-weights and transitions taken, (steps,).

    The frontiers of the maxima say what is the best way to every state, so a search from the end that always goes on
    from the most promising partial configuration finds the next one after as many steps as there are variables.
    """
    frontiers = [up.values for _, up in tape.backwards()][::-1]
    ways = [_ways_into(step) for step in tape.steps]
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
        options, before = _predecessors(step, np.array([cell]), ways[t - 1])
        for way, at in zip(options[0].tolist(), before[0].tolist()):
            gain = float(step.log_gain[way]) if way >= 0 else -math.inf
            total = float(frontiers[t - 1].reshape(-1)[at]) + gain + behind
            if total > -math.inf:
                heapq.heappush(heap, (-total, next(count), t - 1, at, behind + gain, (way, chosen)))
