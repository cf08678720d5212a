"""A factor that reads its members one after the other: the smallest automaton that still knows its value.

After some of its members a count factor need not remember its count, only what the count means for the members that
are left: counts with equal futures, up to a constant, are one state. "At least one" has two states, a noisy pooled
test two, parity two, "exactly k" at most k + 1, a geometric table one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints

# Log-weights that differ by less than this fraction of the largest one are equal: rounding of tables such as c log r.
_EQUAL = 2.0**-46


@dataclass(frozen=True, eq=False)
class Automaton:
    """States between the members, transitions of each member, and the states with which it begins.

    Weights are pushed towards the front: the weight of a state holds that of its best future, so that at the end one
    state is left and nothing is to be multiplied.

    Attributes
    ----------
    following : for each member (m, 2) the next state of every state if the member is off or on; -1 is impossible
    gains : for each member (m, 2) the log-weights of these transitions; at most 0
    start : (j,) state in which a factor begins whose private members count 0, 1, ...; -1 is impossible
    start_gains : (j,) log-weights of these
    sizes : number of states before the first member, after it, and so on
    error : how far the log-weight of a configuration may be off because states that are almost equal are one
    """

    following: tuple[Ints, ...]
    gains: tuple[Float64, ...]
    start: Ints
    start_gains: Float64
    sizes: Ints
    error: float

    def after(self, read: int, members: int, on: int) -> tuple[Ints, Float64]:
        """Next state of every state, and log-weight, when `on` of the next `members` are on; -1 is impossible."""
        state = np.arange(self.sizes[read])
        gain = np.zeros(len(state))
        for place in range(read, read + members):
            value = int(place < read + on)
            gain = np.where(state >= 0, gain + self.gains[place][state, value], -math.inf)
            state = np.where(state >= 0, self.following[place][state, value], -1)
        return state, gain


def of_count(log_f: Float64, n_private: int = 0, *, keep_counts: bool = False) -> Automaton:
    """The automaton of a count factor with table `log_f`, (n + 1,), whose first `n_private` members come together.

    With `keep_counts` no counts are merged and the last state is the count.
    """
    counts = [np.arange(c + 1) for c in range(n_private, len(log_f) - 1)]
    return _minimised(
        log_f, [np.stack([c, c + 1], -1) for c in counts], np.arange(len(log_f)) if keep_counts else None
    )


def of_counts(log_f: Float64) -> tuple[Automaton, Float64]:
    """One automaton for several tables (c, n + 1) of the count, and the log-weights (c, s) of its last states."""
    alive = np.asarray((log_f > -math.inf).any(0))
    columns, which = np.unique(log_f[:, alive], axis=1, return_inverse=True)
    number = np.zeros(len(alive), np.int64)
    number[alive] = which.reshape(-1)
    layers = [np.stack([np.arange(c + 1), np.arange(1, c + 2)], -1) for c in range(log_f.shape[1] - 1)]
    return _minimised(np.where(alive, 0.0, -math.inf), layers, number), columns


def of_values() -> Automaton:
    """The automaton that knows the values of both variables of a pair, the first one as twos."""
    return _minimised(np.zeros(4), [np.array([[0, 1]]), np.array([[0, 1], [2, 3]])], np.arange(4))


def of_pair(log_t: Float64) -> Automaton:
    """The automaton of a factor with table `log_t`, (2, 2), that reads the variable of the rows first."""
    return _minimised(log_t.reshape(4), [np.array([[0, 1]]), np.array([[0, 1], [2, 3]])])


def _minimised(log_weights: Float64, layers: list[Ints], number: Ints | None = None) -> Automaton:
    """Merge states with equal futures, from the last layer to the first.

    `layers` gives, for every member, where each state (m, 2) goes; `log_weights` belong to the states at the end, which
    are one unless their `number` differs.
    """
    scale = float(np.abs(log_weights[np.isfinite(log_weights)]).max(initial=1.0))
    best, state = log_weights, np.where(log_weights > -math.inf, 0 if number is None else number, -1)
    last = int(state.max()) + 1
    following: list[Ints] = []
    gains: list[Float64] = []
    error = 0.0
    for goes in reversed(layers):
        ahead, then = best[goes], state[goes]
        best = ahead.max(-1)
        possible = best > -math.inf
        gain = np.where(then >= 0, ahead - np.where(possible, best, 0.0)[:, None], -math.inf)
        state, first = _distinct(then, gain, possible, _EQUAL * scale)
        with np.errstate(invalid="ignore"):  # both -inf
            merged = gain[possible] - gain[first][state[possible]]
        error += float(np.abs(merged[np.isfinite(merged)]).max(initial=0.0))
        following.append(then[first])
        gains.append(gain[first])
    sizes = np.array([*(len(then) for then in following[::-1]), last])
    return Automaton(tuple(following[::-1]), tuple(gains[::-1]), state, best, sizes, error)


def _distinct(then: Ints, gain: Float64, possible: NDArray[np.bool_], quantum: float) -> tuple[Ints, Ints]:
    """Numbers of the states (m,) with equal ones together, and the first of each."""
    steps = np.where(then >= 0, np.round(np.where(then >= 0, gain, 0.0) / quantum), 1.0)
    rows = np.concatenate([then, steps], -1)[possible]
    state = np.full(len(then), -1)
    if not len(rows):
        return state, np.empty(0, np.int64)
    _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))  # states are numbered in the order of their counts
    state[possible] = order[number.reshape(-1)]
    return state, np.flatnonzero(possible)[np.sort(first)]
