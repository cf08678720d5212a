"""Steps of an elimination: which states of the frontier lead to which when variables are read.

The frontier is an array with one axis per open factor, the factor that was opened last in front. A step touches the
axes of a few factors and leaves the others alone, so its transitions are a short list that holds for every state of
the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...arrays import Float64, Ints
from ...memo import Caching, cached
from .automata import Automaton


@dataclass(frozen=True, eq=False)
class Step(Caching):
    """A block of variables is read, or a factor with private members is opened.

    Attributes
    ----------
    block, factor : which; -1 for the other one
    shape, new_shape : sizes of the axes before and after, those that the step leaves alone as runs between the others
    touched : places of the axes in both that the step touches
    source, target : (t,) where transitions begin and end, as flat indices of the touched axes
    on : (t,) how many variables of the block are on, or the state in which a factor begins
    log_gain : (t,)
    """

    block: int
    factor: int
    shape: tuple[int, ...]
    new_shape: tuple[int, ...]
    touched: tuple[int, ...]
    source: Ints
    target: Ints
    on: Ints
    log_gain: Float64

    @property
    def size(self) -> int:
        """Number of states before it."""
        return math.prod(self.shape)

    @property
    def new_size(self) -> int:
        """Number of states after it."""
        return math.prod(self.new_shape)

    @cached
    def kind(self) -> Ints:
        """Number of the (source, target) of every transition, (t,): several may differ in what is on alone."""
        touched = math.prod(self.new_shape[i] for i in self.touched)
        return np.asarray(np.unique(self.source * touched + self.target, return_inverse=True)[1])

    @cached
    def layout(self) -> tuple[Ints, Ints]:
        """Runs of axes that stay as they are, (r, 3), and kinds of transitions, (4, k), for the compiled engine.

        Sizes and strides before and after; offsets before and after, and the kinds in the order of either one.
        """
        before, after = _strides(self.shape), _strides(self.new_shape)
        rest = [i for i in range(len(self.shape)) if i not in self.touched]
        runs = np.array([(self.shape[i], before[i], after[i]) for i in rest], np.int64)
        touched, (_, first) = list(self.touched), np.unique(self.kind, return_index=True)
        source = before[touched] @ np.array(self.local(self.shape, self.source[first])).reshape(
            len(touched), -1
        )
        target = after[touched] @ np.array(self.local(self.new_shape, self.target[first])).reshape(
            len(touched), -1
        )
        order = [np.argsort(target, kind="stable"), np.argsort(source, kind="stable")]
        return runs, np.array([source, target, *order], np.int64)

    def local(self, shape: tuple[int, ...], flat: Ints) -> tuple[Ints, ...]:
        """Indices along the touched axes of an array of this shape."""
        return np.unravel_index(flat, tuple(shape[i] for i in self.touched)) if self.touched else ()


def steps_of(
    laws: list[Float64],
    blocks: list[Ints],
    automata: list[Automaton],
    beginnings: list[Float64],
    order: Ints,
) -> list[Step]:
    """Steps in which all blocks are read in `order`.

    `laws` are the log-weights of the number of variables that are on in each block, `blocks` those that each factor
    reads; `beginnings` the log-weights of its states before the first of them.
    """
    reading: list[list[int]] = [[] for _ in laws]
    for k, own in enumerate(blocks):
        for v in own:
            reading[v].append(k)
    read = [0] * len(blocks)
    axes: list[int] = []
    sizes: list[int] = []
    steps: list[Step] = []
    for v in order.tolist():
        log_law = laws[v]
        for k in reading[v]:
            if read[k] == 0:
                if len(beginnings[k]) > 1:
                    steps.append(_opening(k, beginnings[k], sizes))
                else:
                    log_law = log_law + beginnings[k]
                axes.insert(0, k)
                sizes.insert(0, len(beginnings[k]))
        places = sorted(axes.index(k) for k in reading[v])
        factors = [axes[i] for i in places]
        steps.append(_reading(v, log_law, [(automata[k], read[k]) for k in factors], places, sizes))
        for k, i in zip(factors, places):
            read[k] += len(log_law) - 1
            sizes[i] = int(automata[k].sizes[read[k]])
        closed = [i for i, k in enumerate(axes) if read[k] == len(automata[k].following) and sizes[i] == 1]
        axes = [k for i, k in enumerate(axes) if i not in closed]
        sizes = [n for i, n in enumerate(sizes) if i not in closed]
    return steps


def _opening(factor: int, log_weights: Float64, sizes: list[int]) -> Step:
    rest, n = math.prod(sizes), len(log_weights)
    every = np.arange(n)
    return Step(
        -1, factor, (1, 1, rest), (1, n, rest), (1,), np.zeros(n, np.int64), every, every, log_weights
    )


def _reading(
    block: int, log_law: Float64, read: list[tuple[Automaton, int]], places: list[int], sizes: list[int]
) -> Step:
    runs = [math.prod(sizes[a + 1 : b]) for a, b in zip([-1, *places], [*places, len(sizes)])]
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
    return Step(
        block, -1, _between(runs, old), _between(runs, new), tuple(range(1, 2 * len(places), 2)),
        source, target, which, gain,
    )  # fmt: skip


def _strides(shape: tuple[int, ...]) -> Ints:
    return np.cumprod([1, *shape[:0:-1]])[::-1]


def _between(runs: list[int], touched: list[int]) -> tuple[int, ...]:
    return (runs[0], *(n for pair in zip(touched, runs[1:]) for n in pair))
