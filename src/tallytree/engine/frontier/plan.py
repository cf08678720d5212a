"""Steps of an elimination: which states of the frontier lead to which when variables are read.

The frontier is an array with one axis per open factor, the factor that was opened last in front. A step touches the
axes of a few factors and leaves the others alone, so its transitions are a short list that holds for every state of
the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Float64, Ints
from ...memo import Caching, cached, once
from .automata import Automaton


@dataclass(frozen=True, eq=False)
class Step(Caching):
    """A block of variables is read, or a factor with private members is opened.

    Attributes
    ----------
    block, factor : which; -1 for the other one
    axes : numbers of the open factors
    sizes, new_sizes : of the axes before and after
    places : those among the axes that the step touches
    source, target : (t,) where transitions begin and end, as flat indices of the touched axes
    on : (t,) how many variables of the block are on, or the state in which a factor begins
    log_gain : (t,)
    """

    block: int
    factor: int
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    new_sizes: tuple[int, ...]
    places: tuple[int, ...]
    source: Ints
    target: Ints
    on: Ints
    log_gain: Float64
    like: Step | None = None  # a step that differs in log-weights alone

    def weighted(self, log_gain: Float64) -> Step:
        """The same step with other log-weights."""
        return replace(self, log_gain=log_gain, like=self)

    @cached
    def size(self) -> int:
        """Number of states before it."""
        return math.prod(self.sizes)

    @cached
    def new_size(self) -> int:
        """Number of states after it."""
        return math.prod(self.new_sizes)

    @cached
    def log_top(self) -> float:
        """The largest log-weight of a transition."""
        return float(self.log_gain.max())

    @property
    def weight(self) -> Float64:
        """Weights of the transitions relative to the largest."""
        return np.exp(self.log_gain - self.log_top)

    @cached
    def spread(self) -> float:
        """How far below it the others are."""
        return self.log_top - float(self.log_gain[self.log_gain > -math.inf].min(initial=self.log_top))

    @cached
    def layout(self) -> tuple[list[int], list[int], Ints]:
        """Strides of `new_shape` and of `shape`, and where each transition begins, as an offset."""
        if self.like is not None:
            return self.like.layout
        new, old = (_strides(tuple(range(len(s))), s) for s in (self.new_shape, self.shape))
        at = self.local(self.shape, self.source)
        source = sum((old[i] * x for i, x in zip(self.touched, at)), np.zeros(len(self.source), np.int64))
        return list(new.values()), list(old.values()), source

    @cached
    def ways(self) -> Ints:
        """Transitions that end in each touched state, (states, ways); -1 for none."""
        if self.like is not None:
            return self.like.ways
        states = math.prod(self.new_sizes[i] for i in self.places)
        order = np.argsort(self.target, kind="stable")
        counts = np.bincount(self.target, minlength=states)
        column = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        ways = np.full((states, int(counts.max())), -1)
        ways[self.target[order], column] = order
        return ways

    @cached
    def kind(self) -> Ints:
        """Number of the (source, target) of every transition, (t,): several may differ in what is on alone."""
        touched = math.prod(self.new_sizes[i] for i in self.places)
        return np.asarray(np.unique(self.source * touched + self.target, return_inverse=True)[1])

    @property
    def touched(self) -> tuple[int, ...]:
        """Places of the touched axes in `shape` and `new_shape`."""
        return tuple(range(1, 2 * len(self.places), 2))

    @cached
    def shape(self) -> tuple[int, ...]:
        """Sizes of the touched axes before the step, and of all between them as one."""
        return self._merged(self.sizes)

    @cached
    def new_shape(self) -> tuple[int, ...]:
        """Sizes of the touched axes after the step, and of all between them as one."""
        return self._merged(self.new_sizes)

    def _merged(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        ends = zip([-1, *self.places], [*self.places, len(sizes)])
        runs = [math.prod(sizes[a + 1 : b]) for a, b in ends]
        return (runs[0], *(n for i, run in zip(self.places, runs[1:]) for n in (sizes[i], run)))

    def local(self, shape: tuple[int, ...], flat: Ints) -> tuple[Ints, ...]:
        """Indices along the touched axes of an array of this shape."""
        return np.unravel_index(flat, tuple(shape[i] for i in self.touched)) if self.places else ()


class Fused:
    """Consecutive steps that the compiled engine does together, on pieces of the frontier that stay in the cache.

    The states of the axes that any of them touches are the local ones; moves between them hold for all the rest.

    Attributes
    ----------
    layout : runs of axes that stay as they are, (r, 3): size, strides before and after; places of the local states
        before and after, one after the other; numbers of local states and of moves of each step, (2, s + 1);
        beginnings, ends and kinds of all moves, (6, t), in the order of ends, and back in the order of beginnings
    kinds : for every step the number of the kind of each transition
    """

    def __init__(self, steps: list[Step]) -> None:
        first, last = steps[0], steps[-1]
        self.new_size = last.new_size
        local = list(dict.fromkeys(step.axes[i] for step in steps for i in step.places))
        before, after = _strides(first.axes, first.sizes), _strides(last.axes, last.new_sizes)
        runs = [(n, before[k], after[k]) for k, n in zip(first.axes, first.sizes) if k not in local and n > 1]
        sizes = [dict(zip(step.axes, step.sizes)) for step in steps] + [dict(zip(last.axes, last.new_sizes))]
        shapes = [tuple(now.get(k, 1) for k in local) for now in sizes]
        places = [
            _offsets(shape, [strides.get(k, 0) for k in local])
            for shape, strides in ((shapes[0], before), (shapes[-1], after))
        ]
        moves: list[Ints] = []
        self.kinds: list[Ints] = []
        kinds = 0
        for step, old, new in zip(steps, shapes, shapes[1:]):
            self.kinds.append(kinds + step.kind)
            moves.append(_moves(step, local, old, new, kinds))
            kinds += int(step.kind.max()) + 1
        numbers = np.array([[math.prod(shape) for shape in shapes], [*(m.shape[1] for m in moves), 0]])
        self.layout = (
            np.array(_joined(runs) or [(1, 1, 1)], np.int64),
            np.concatenate(places).astype(np.int64),
            numbers.astype(np.int64),
            np.ascontiguousarray(np.concatenate(moves, 1), np.int64),
        )

    @classmethod
    def of(cls, steps: list[Step]) -> Fused:
        """One for all steps that differ in log-weights alone."""
        return once(steps[0].like or steps[0], len(steps), lambda: cls(steps))

    def weight(self, steps: list[Step]) -> Float64:
        """Weights of the kinds, relative to the largest transition of each step."""
        each = np.concatenate([step.weight for step in steps])
        return np.bincount(np.concatenate(self.kinds), each).astype(np.float64)

    def best_gain(self, steps: list[Step]) -> Float64:
        """Log-weight of the best transition of each kind."""
        out = np.full(int(self.kinds[-1].max()) + 1, -math.inf)
        np.maximum.at(out, np.concatenate(self.kinds), np.concatenate([step.log_gain for step in steps]))
        return out


def fused(steps: list[Step], most: int, spread: float) -> Iterator[list[Step]]:
    """Runs of steps with at most so many local states, whose log-weights together spread so far at most."""
    run: list[Step] = []
    sizes: dict[int, int] = {}
    for step in steps:
        touched = [step.axes[i] for i in step.places]
        trial = sizes | {
            k: max(sizes.get(k, 1), step.sizes[i], step.new_sizes[i]) for k, i in zip(touched, step.places)
        }
        if run and (math.prod(trial.values()) > most or sum(s.spread for s in (*run, step)) > spread):
            yield run
            run, trial = [], {k: trial[k] for k in touched}
        run, sizes = [*run, step], trial
    if run:
        yield run


def _strides(axes: tuple[int, ...], sizes: tuple[int, ...]) -> dict[int, int]:
    return dict(zip(axes, np.cumprod([1, *sizes[:0:-1]])[::-1].tolist()))


def _offsets(shape: tuple[int, ...], strides: list[int]) -> Ints:
    """Places of all cells of an array of this shape, in order."""
    out = np.zeros(1, np.int64)
    for n, stride in zip(shape, strides):
        out = (out[:, None] + stride * np.arange(n)).reshape(-1)
    return out


def _joined(runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Runs of which neighbours that lie behind one another, before and after, are one."""
    out: list[tuple[int, int, int]] = []
    for n, before, after in runs:
        if out and out[-1][1:] == (n * before, n * after):
            n *= out.pop()[0]
        out.append((n, before, after))
    return out


def _moves(step: Step, local: list[int], old: tuple[int, ...], new: tuple[int, ...], first_kind: int) -> Ints:
    """Beginnings, ends and kinds of the moves of a step between local states, in both orders, (6, t)."""
    _, first = np.unique(step.kind, return_index=True)
    touched = {step.axes[i] for i in step.places}
    ends = []
    for shape, sizes, flat in ((old, step.sizes, step.source), (new, step.new_sizes, step.target)):
        strides = _strides(tuple(local), shape)
        others = _offsets(
            tuple(1 if k in touched else n for k, n in zip(local, shape)), [strides[k] for k in local]
        )
        at = np.unravel_index(flat[first], tuple(sizes[i] for i in step.places)) if step.places else ()
        own = sum(
            (strides[step.axes[i]] * x for i, x in zip(step.places, at)), np.zeros(len(first), np.int64)
        )
        ends.append((others[:, None] + own).reshape(-1))
    begin, end = ends
    kind = np.tile(first_kind + np.arange(len(first)), len(begin) // len(first))
    by_end, by_begin = np.argsort(end, kind="stable"), np.argsort(begin, kind="stable")
    return np.concatenate(
        [np.array([begin, end, kind])[:, by_end], np.array([end, begin, kind])[:, by_begin]]
    )


def steps_of(
    laws: list[Float64],
    blocks: list[Ints],
    automata: list[Automaton],
    beginnings: list[Float64],
    order: Ints,
    private: list[bool],
    side_by_side: int = 0,
) -> list[Step]:
    """Steps in which all blocks are read in `order`.

    `laws` are the log-weights of the number of variables that are on in each block, `blocks` those that each factor
    reads; `beginnings` the log-weights of its states before the first of them, and `private` whether it has members of
    its own by then, which a step of their own stands for.

    So many eliminations `side_by_side` share an axis behind all others and differ in the log-weights of the last states
    of factors: a step of its own takes those in.
    """
    reading: list[list[int]] = [[] for _ in laws]
    for k, own in enumerate(blocks):
        for v in own:
            reading[v].append(k)
    read = [0] * len(blocks)
    axes = [-1] if side_by_side else []
    sizes = [side_by_side] if side_by_side else []
    steps: list[Step] = []
    for v in order.tolist():
        log_law = laws[v]
        for k in reading[v]:
            if read[k] == 0:
                if private[k] or len(beginnings[k]) > 1:
                    steps.append(_opening(k, beginnings[k], axes, sizes))
                else:
                    log_law = log_law + beginnings[k]
                axes.insert(0, k)
                sizes.insert(0, len(beginnings[k]))
        places = sorted(axes.index(k) for k in reading[v])
        factors = [axes[i] for i in places]
        steps.append(_reading(v, log_law, [(automata[k], read[k]) for k in factors], places, axes, sizes))
        for k, i in zip(factors, places):
            read[k] += len(log_law) - 1
            sizes[i] = int(automata[k].sizes[read[k]])
        for k in factors if side_by_side else ():
            if read[k] == len(automata[k].following):
                place = axes.index(k)
                steps.append(_closing(k, place, axes, sizes))
                sizes[place] = 1
        closed = [
            i
            for i, k in enumerate(axes)
            if k >= 0 and read[k] == len(automata[k].following) and sizes[i] == 1
        ]
        axes = [k for i, k in enumerate(axes) if i not in closed]
        sizes = [n for i, n in enumerate(sizes) if i not in closed]
    return steps


def _opening(factor: int, log_weights: Float64, axes: list[int], sizes: list[int]) -> Step:
    n, every = len(log_weights), np.arange(len(log_weights))
    return Step(
        -1,
        factor,
        (factor, *axes),
        (1, *sizes),
        (n, *sizes),
        (0,),
        np.zeros(n, np.int64),
        every,
        every,
        log_weights,
    )


def _closing(factor: int, place: int, axes: list[int], sizes: list[int]) -> Step:
    """The last states of a factor become one, with log-weights that are yet to come."""
    states, side_by_side = sizes[place], sizes[-1]
    every = np.arange(states * side_by_side)
    new_sizes = [*sizes[:place], 1, *sizes[place + 1 :]]
    shapes = tuple(axes), tuple(sizes), tuple(new_sizes), (place, len(axes) - 1)
    return Step(-1, factor, *shapes, every, every % side_by_side, every // side_by_side, np.zeros(len(every)))


def _reading(
    block: int,
    log_law: Float64,
    read: list[tuple[Automaton, int]],
    places: list[int],
    axes: list[int],
    sizes: list[int],
) -> Step:
    members = len(log_law) - 1
    old = [sizes[i] for i in places]
    new = [int(automaton.sizes[at + members]) for automaton, at in read]
    parts = []
    for on, log_weight in enumerate(log_law):
        target, gain = np.zeros(1, np.int64), np.full(1, log_weight)
        for (automaton, at), n in zip(read, new):
            then, more = automaton.after(at, members, on)
            target = np.where((target[:, None] < 0) | (then < 0), -1, target[:, None] * n + then).reshape(-1)
            gain = (gain[:, None] + more).reshape(-1)
        source = np.flatnonzero((target >= 0) & (gain > -math.inf))
        parts.append((source, target[source], np.full(len(source), on), gain[source]))
    source, target, which, gain = (np.concatenate(part) for part in zip(*parts))
    # Every state has a transition, if one of weight zero: the engine writes each state once.
    nowhere = np.setdiff1d(np.arange(math.prod(old)), source)
    never = np.setdiff1d(np.arange(math.prod(new)), target)
    none = np.zeros(len(nowhere) + len(never), np.int64)
    source = np.concatenate([source, nowhere, np.zeros_like(never)])
    target = np.concatenate([target, np.zeros_like(nowhere), never])
    which, gain = np.concatenate([which, none]), np.concatenate([gain, np.full(len(none), -math.inf)])
    sizes_after = list(sizes)
    for i, n in zip(places, new):
        sizes_after[i] = n
    shapes = tuple(axes), tuple(sizes), tuple(sizes_after), tuple(places)
    return Step(block, -1, *shapes, source, target, which, gain)
