"""Truth by enumeration: every state of a small model with its log-weight, and what follows from the two.

Log-weights are kept exactly enough for any input: ``huge * unit + small`` with an integer ``huge`` and an extended
``small``. Ordinary numbers go to ``small``; entries that stand for infinity (masks such as -1e20) are multiples of one
``unit`` and go to ``huge``, so that what stands beside them is not lost. States whose ``huge`` is below the largest
have no influence on any probability, but their log-odds are right.

All arrays may have batch axes in front: models over the same states are enumerated together.

Nothing here is imported from the package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

REAL = np.longdouble
INF = math.inf
HUGE = 1e17  # entries beyond this stand for infinity
NEVER = -(2**40)  # `huge` of what is impossible
NARROW = 11000.0  # nats that fit between the largest and the smallest extended number
LEVEL = 40  # bits between the binary exponents of one `huge` and the next
# ln 2 in two parts: the first has 33 bits, so that an integer times it is exact.
LN2_HIGH = REAL(float.fromhex("0x1.62e42feep-1"))
LN2_LOW = REAL(float.fromhex("0x1.a39ef35793c76p-33"))


@dataclass(frozen=True, eq=False)
class Logs:
    """An array of log-weights ``huge * unit + small``; impossible ones have ``small = -inf``."""

    huge: np.ndarray
    small: np.ndarray
    unit: float = 0.0

    @classmethod
    def of(cls, values: np.ndarray, unit: float) -> Logs:
        values = np.asarray(values, REAL)
        huge = np.zeros(values.shape, np.int64)
        if not unit:
            return cls(huge, values, unit)
        masked = np.isfinite(values) & (np.abs(values) >= HUGE)
        huge[masked] = np.rint(values[masked] / unit).astype(np.int64)
        return cls(huge, np.where(masked, REAL(0), values), unit)

    def __add__(self, other: Logs) -> Logs:
        return Logs(self.huge + other.huge, self.small + other.small, self.unit or other.unit)

    def __getitem__(self, index: object) -> Logs:
        return Logs(self.huge[index], self.small[index], self.unit)

    def minus(self, other: Logs) -> np.ndarray:
        """Differences as doubles, with the right infinities; both impossible gives NaN."""
        dead, gone = np.isneginf(self.small), np.isneginf(other.small)
        with np.errstate(invalid="ignore", over="ignore"):
            found = np.where(dead, 0, self.small) - np.where(gone, 0, other.small)
            unit = self.unit or other.unit
            if unit:
                found = (self.huge - other.huge).astype(REAL) * REAL(unit) + found
            found = np.asarray(found, float)
        found = np.where(dead, -INF, np.where(gone, INF, found))
        return np.where(dead & gone, math.nan, found)

    @property
    def values(self) -> np.ndarray:
        return self.minus(Logs(np.zeros((), np.int64), np.zeros((), REAL), self.unit))

    @cached_property
    def top(self) -> Logs:
        """The largest along the last axis."""
        alive = self.small > -INF
        huge = np.where(alive, self.huge, NEVER).max(axis=-1, initial=NEVER)
        small = np.where(alive & (self.huge == huge[..., None]), self.small, -INF).max(axis=-1, initial=-INF)
        return Logs(np.where(np.isneginf(small), 0, huge), small, self.unit)

    @cached_property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """(..., S) in units of the largest weight, and where (...) all of them can be had as numbers."""
        alive, top = self.small > -INF, self.top
        shift = np.where(np.isneginf(top.small), 0, top.small)[..., None]
        narrow = (~alive | ((self.huge == top.huge[..., None]) & (self.small - shift > -NARROW))).all(-1)
        return np.exp(np.where(narrow[..., None], self.small - shift, -INF)), narrow

    def wide(self) -> tuple[np.ndarray, np.ndarray]:
        """Mantissas and binary exponents in units of the largest weight; ``huge`` is in the high bits of these."""
        alive, top = self.small > -INF, self.top
        shift = np.where(np.isneginf(top.small), 0, top.small)[..., None]
        x = np.where(alive, self.small - shift, 0)
        k = np.rint(x / (LN2_HIGH + LN2_LOW))
        mantissa = np.exp((x - k * LN2_HIGH) - k * LN2_LOW)
        exponent = k.astype(np.int64) + ((self.huge - top.huge[..., None]) << LEVEL)
        return np.where(alive, mantissa, REAL(0)), exponent


def unit_of(*arrays: np.ndarray) -> float:
    """The one size of the entries that stand for infinity, 0 without any."""
    sizes: set[float] = set()
    for a in arrays:
        size = np.abs(np.ravel(a))
        sizes.update(np.unique(size[(size >= HUGE) & (size < INF)]).astype(float).tolist())
    assert len(sizes) <= 1, f"a model has masks of one size, not {sorted(sizes)}"
    return sizes.pop() if sizes else 0.0


def log_sum(logs: Logs, chosen: np.ndarray) -> Logs:
    """Log of the sums (..., m) of the weights that each row of a boolean matrix (..., m, S) selects."""
    weights, narrow = logs.weights
    top = logs.top
    picked = np.swapaxes(chosen, -1, -2).astype(REAL)
    sums = weights @ picked if chosen.ndim == 2 else (weights[..., None, :] @ picked)[..., 0, :]
    shift = np.where(np.isneginf(top.small), 0, top.small)
    with np.errstate(divide="ignore"):
        small = np.asarray(np.log(sums) + shift[..., None], REAL)
    huge = np.where(np.isneginf(small), 0, top.huge[..., None])
    if not narrow.all():
        far = ~narrow
        rows = logs[far] if narrow.ndim else logs[None]
        part = chosen if chosen.ndim == 2 else chosen[far]
        found = _far_sum(rows, part)
        if not narrow.ndim:
            return found[0]
        huge[far], small[far] = found.huge, found.small
    return Logs(huge, small, logs.unit)


def _far_sum(logs: Logs, chosen: np.ndarray) -> Logs:
    """`log_sum` for weights of unlimited range, (R, S): every sum is taken at the exponent of its largest term."""
    mantissa, exponent = logs.wide()
    alive = chosen & (mantissa > 0)[:, None, :]
    top = np.where(alive, exponent[:, None, :], -(2**62)).max(axis=-1, initial=-(2**62))
    none = top == -(2**62)
    top = np.where(none, 0, top)
    down = np.maximum(np.where(alive, exponent[:, None, :] - top[..., None], 0), -16000)
    sums = np.where(alive, np.ldexp(np.broadcast_to(mantissa[:, None, :], down.shape), down), 0).sum(axis=-1)
    level = (top + (1 << LEVEL - 1)) >> LEVEL
    k = (top - (level << LEVEL)).astype(REAL)
    with np.errstate(divide="ignore"):
        small = k * LN2_HIGH + (k * LN2_LOW + np.log(sums)) + np.where(none, 0, logs.top.small[:, None])
    huge = np.where(none, 0, level + logs.top.huge[:, None])
    return Logs(huge, np.where(none, -INF, small), logs.unit)


def largest(logs: Logs, chosen: np.ndarray) -> np.ndarray:
    """The largest log-weight that each row of a boolean matrix (..., m, S) selects, as doubles."""
    small = np.where(chosen, logs.small[..., None, :], -INF)
    return Logs(np.broadcast_to(logs.huge[..., None, :], small.shape), small, logs.unit).top.values


@lru_cache(maxsize=64)
def all_states(sizes: tuple[int, ...]) -> np.ndarray:
    """Every combination of labels, (prod sizes, D), the last variable running fastest."""
    grid = np.indices(sizes).reshape(len(sizes), -1).T if sizes else np.zeros((1, 0), np.int64)
    found = np.ascontiguousarray(grid)
    found.flags.writeable = False
    return found


@dataclass(frozen=True, eq=False)
class Truth:
    """All states of a model (S, D), their log-weights (..., S), and the variables' own terms ``leaves`` (..., D, K)."""

    states: np.ndarray
    logs: Logs
    n_labels: int = 2
    leaves: Logs | None = None
    others: Logs | None = None  # the log-weights without the leaves

    def __getitem__(self, row: object) -> Truth:
        """Some models of a batch."""
        leaves = None if self.leaves is None else self.leaves[row]
        others = None if self.others is None else self.others[row]
        return replace(self, logs=self.logs[row], leaves=leaves, others=others)

    # -- sums ----------------------------------------------------------------------------------------------------

    @cached_property
    def total(self) -> Logs:
        return log_sum(self.logs, np.ones((1, len(self.states)), bool))[..., 0]

    @property
    def possible(self) -> np.ndarray:
        """Whether anything is, (...)."""
        return np.asarray(self.total.small > -INF)

    @property
    def settled(self) -> np.ndarray:
        """Whether it does not matter if masks are taken as large numbers or as infinities, (...).

        They agree if some state goes against no mask: then the others have no weight in either reading.
        """
        if not self.logs.unit:
            return np.ones(np.shape(self.total.huge), bool)
        forced = 0
        if self.leaves is not None:
            forced = self.leaves.huge.max(axis=-1, initial=0).sum(-1)
        return np.asarray(self.possible & (self.total.huge == forced))

    @cached_property
    def log_partition(self) -> np.ndarray:
        return np.asarray(self.total.values)[()]

    @cached_property
    def log_probs(self) -> np.ndarray:
        """(..., S) log-probability of every state."""
        return self.logs.minus(self.total[..., None])

    @cached_property
    def probs(self) -> np.ndarray:
        """(..., S) in extended precision."""
        near = (self.logs.huge == self.total.huge[..., None]) & ~np.isneginf(self.logs.small)
        difference = np.where(near, self.logs.small, 0) - np.where(near, self.total.small[..., None], 0)
        return np.where(near, np.exp(difference), REAL(0))

    def log_probability(self, chosen: np.ndarray) -> np.ndarray:
        """Log-probability of the events that the rows of a boolean matrix select."""
        return log_sum(self.logs, chosen).minus(self.total[..., None])

    @cached_property
    def _on(self) -> np.ndarray:
        """(D * K, S): where each variable has each label."""
        labels = np.arange(self.n_labels)[None, :, None]
        return (self.states.T[:, None, :] == labels).reshape(-1, len(self.states))

    @cached_property
    def _masses(self) -> Logs:
        """(..., D * K): of every label of every variable."""
        return log_sum(self.logs, self._on)

    @cached_property
    def log_marginals(self) -> np.ndarray:
        """(..., D, K)."""
        found = self._masses.minus(self.total[..., None])
        return found.reshape(*found.shape[:-1], -1, self.n_labels)

    @cached_property
    def posterior_logits(self) -> np.ndarray:
        """Log-odds of binary variables, (..., D)."""
        return self._masses[..., 1::2].minus(self._masses[..., 0::2])

    @cached_property
    def cavity_logits(self) -> np.ndarray:
        """Log-odds of every variable in the model without its own leaf, (..., D)."""
        assert self.leaves is not None
        assert self.others is not None
        shape = self.leaves.small.shape
        masses = Logs(self._masses.huge.reshape(shape), self._masses.small.reshape(shape), self.logs.unit)
        closed = np.isneginf(self.leaves.small)
        small = np.where(closed, 0, masses.small) - np.where(closed, 0, self.leaves.small)
        huge = np.where(np.isneginf(masses.small), 0, masses.huge - self.leaves.huge)
        for d in np.nonzero(closed.any(axis=tuple(i for i in range(closed.ndim) if i != closed.ndim - 2)))[0]:
            # the leaf itself excludes a label: sum once more without it
            leaf = Logs(self.leaves.huge.copy(), self.leaves.small.copy(), self.logs.unit)
            leaf.huge[..., d, :], leaf.small[..., d, :] = 0, 0
            again = log_sum(self.others + _own(leaf, self.states), self._on[2 * d : 2 * d + 2])
            small[..., d, :] = np.where(closed[..., d, :], again.small, small[..., d, :])
            huge[..., d, :] = np.where(closed[..., d, :], again.huge, huge[..., d, :])
        found = Logs(huge, small, self.logs.unit)
        return found[..., 1].minus(found[..., 0])

    def score_log_probs(self, scores: np.ndarray, highest: int) -> np.ndarray:
        """Log-probabilities of a count, given its value in every state (..., S)."""
        return self.log_probability(scores[..., None, :] == np.arange(highest + 1)[:, None])

    def pair_tables(self, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        """Log P(y_i = a, y_j = b) of pairs, (..., m, K, K)."""
        k = self.n_labels
        on = self._on.reshape(-1, k, len(self.states))
        at = np.array(pairs, int).reshape(-1, 2)
        masks = on[at[:, 0], :, None] & on[at[:, 1], None, :]
        found = self.log_probability(masks.reshape(-1, len(self.states)))
        return found.reshape(*found.shape[:-1], len(pairs), k, k)

    # -- expectations ----------------------------------------------------------------------------------------------

    @cached_property
    def entropy(self) -> np.ndarray:
        p = self.probs
        return np.asarray(-(p * np.log(np.where(p > 0, p, 1))).sum(-1), float)[()]

    def kl_divergence(self, other: Truth) -> np.ndarray:
        """KL(self || other): the supports decide whether it is infinite."""
        mine, theirs = ~np.isneginf(self.logs.small), ~np.isneginf(other.logs.small)
        seen = (self.probs > 0) & theirs
        ratio = np.log(np.where(seen, self.probs, 1)) - np.where(seen, other.log_probs, 0).astype(REAL)
        found = np.asarray(np.where(seen, self.probs * ratio, 0).sum(-1), float)
        return np.where((mine & ~theirs).any(-1), INF, found)[()]

    def covariance_of(self, first: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
        """Covariance (..., a, b) of statistics given by their values in every state, (S, a) and (S, b)."""
        second = first if second is None else second
        a = first - (self.probs @ first.astype(REAL))[..., None, :]
        b = second - (self.probs @ second.astype(REAL))[..., None, :]
        return np.asarray(np.swapaxes(self.probs[..., None] * a, -1, -2) @ b, float)

    # -- maxima ----------------------------------------------------------------------------------------------------

    @cached_property
    def max_log_weight(self) -> np.ndarray:
        return np.asarray(self.logs.top.values)[()]

    @cached_property
    def max_marginals(self) -> np.ndarray:
        """(..., D, K)."""
        found = largest(self.logs, self._on)
        return found.reshape(*found.shape[:-1], -1, self.n_labels)

    def max_count_values(self, scores: np.ndarray, highest: int) -> np.ndarray:
        return largest(self.logs, scores[..., None, :] == np.arange(highest + 1)[:, None])

    # -- other models on the same states -----------------------------------------------------------------------------

    def restrict(self, chosen: np.ndarray) -> Truth:
        """The model given an event (..., S)."""

        def cut(logs: Logs) -> Logs:
            return Logs(logs.huge, np.where(chosen, logs.small, -INF), logs.unit)

        others = None if self.others is None else cut(self.others)
        return replace(self, logs=cut(self.logs), others=others)

    def index(self, states: np.ndarray) -> np.ndarray:
        """Row numbers of states (..., D); -1 for what is no state."""
        k = self.n_labels
        inside = ((states >= 0) & (states < k)).all(-1)
        place = states.astype(np.int64) @ (k ** np.arange(self.states.shape[1])[::-1])
        return np.where(inside, place, -1)


def _own(leaves: Logs, states: np.ndarray) -> Logs:
    """The sum (..., S) of the variables' own terms in every state."""
    at = np.arange(states.shape[1])
    huge = leaves.huge[..., at, states].sum(-1) if leaves.unit else np.zeros(1, np.int64)
    small = leaves.small[..., at, states].sum(-1)
    return Logs(np.broadcast_to(huge, small.shape), small, leaves.unit)


def truth_of_terms(
    states: np.ndarray, leaves: np.ndarray, terms: Sequence[np.ndarray], n_labels: int = 2
) -> Truth:
    """From the variables' own log-weights of every label (..., D, K) and any number of other terms (..., S)."""
    unit = unit_of(leaves, *terms)
    own = Logs.of(leaves, unit)
    shape = (*own.small.shape[:-2], len(states))
    others = Logs(np.zeros(shape, np.int64), np.zeros(shape, REAL), unit)
    for term in terms:
        others = others + Logs.of(term, unit)
    return Truth(states, others + _own(own, states), n_labels, own, others)
