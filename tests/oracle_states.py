"""Truth by enumeration: every state of a small model with its log-weight, and what follows from the two.

Log-weights are kept exactly enough for any input: ``huge * unit + small`` with an integer ``huge`` and an extended
``small``. Ordinary numbers go to ``small``; entries that stand for infinity (masks such as -1e20) are multiples of one
``unit`` and go to ``huge``, so that what stands beside them is not lost. States whose ``huge`` is below the largest
have no influence on any probability, but their log-odds are right.

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


@dataclass(frozen=True, eq=False)
class Logs:
    """An array of log-weights ``huge * unit + small``; impossible ones have ``small = -inf``."""

    huge: np.ndarray
    small: np.ndarray
    unit: float = 0.0

    @classmethod
    def of(cls, values: np.ndarray, unit: float) -> Logs:
        values = np.asarray(values, REAL)
        masked = np.isfinite(values) & (np.abs(values) >= HUGE)
        huge = np.zeros(values.shape, np.int64)
        if masked.any():
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
            small = np.where(dead, 0, self.small) - np.where(gone, 0, other.small)
            whole = (self.huge - other.huge).astype(REAL) * REAL(self.unit or other.unit) + small
            found = np.asarray(whole, float)
        found = np.where(dead, -INF, np.where(gone, INF, found))
        return np.where(dead & gone, math.nan, found)

    @property
    def values(self) -> np.ndarray:
        return self.minus(Logs(np.zeros((), np.int64), np.zeros((), REAL), self.unit))


def unit_of(*arrays: np.ndarray) -> float:
    """The one size of the entries that stand for infinity, 0 without any."""
    sizes = {float(v) for a in arrays for v in np.abs(np.ravel(a)) if math.isfinite(v) and v >= HUGE}
    assert len(sizes) <= 1, f"a model has masks of one size, not {sorted(sizes)}"
    return sizes.pop() if sizes else 0.0


def log_sum(logs: Logs, chosen: np.ndarray) -> Logs:
    """Log of the sum of the weights that each row of a boolean matrix (m, S) selects."""
    alive = chosen & ~np.isneginf(logs.small)
    top_huge = np.where(alive, logs.huge, NEVER).max(axis=-1, initial=NEVER)
    small = np.where(alive & (logs.huge == top_huge[..., None]), logs.small, -INF)
    top = small.max(axis=-1, initial=-INF)
    shift = np.where(np.isneginf(top), 0, top)
    with np.errstate(divide="ignore"):
        summed = np.log(np.exp(small - shift[..., None]).sum(axis=-1)) + shift
    return Logs(np.where(np.isneginf(top), 0, top_huge), summed, logs.unit)


def largest(logs: Logs, chosen: np.ndarray) -> np.ndarray:
    """The largest log-weight that each row of a boolean matrix selects, as doubles."""
    alive = chosen & ~np.isneginf(logs.small)
    top_huge = np.where(alive, logs.huge, NEVER).max(axis=-1, initial=NEVER)
    top = np.where(alive & (logs.huge == top_huge[..., None]), logs.small, -INF).max(axis=-1, initial=-INF)
    return Logs(np.where(np.isneginf(top), 0, top_huge), top, logs.unit).values


@lru_cache(maxsize=64)
def all_states(sizes: tuple[int, ...]) -> np.ndarray:
    """Every combination of labels, (prod sizes, D), the last variable running fastest."""
    grid = np.indices(sizes).reshape(len(sizes), -1).T if sizes else np.zeros((1, 0), np.int64)
    found = np.ascontiguousarray(grid)
    found.flags.writeable = False
    return found


@dataclass(frozen=True, eq=False)
class Truth:
    """All states of a model (S, D) and their log-weights; ``leaves`` (S, D) are the variables' own terms among them."""

    states: np.ndarray
    logs: Logs
    n_labels: int = 2
    leaves: Logs | None = None
    others: Logs | None = None  # the log-weights without the leaves

    # -- sums ----------------------------------------------------------------------------------------------------

    @cached_property
    def total(self) -> Logs:
        return log_sum(self.logs, np.ones((1, len(self.states)), bool))[0]

    @property
    def possible(self) -> bool:
        return bool(self.total.small > -INF)

    @property
    def settled(self) -> bool:
        """Whether it does not matter if masks are taken as large numbers or as infinities.

        They agree if some state goes against no mask: then the others have no weight in either reading.
        """
        forced = 0 if self.leaves is None else int(self.leaves.huge.max(axis=0, initial=0).sum())
        return not self.logs.unit or (self.possible and int(self.total.huge) == forced)

    @property
    def log_partition(self) -> float:
        return float(self.total.values)

    @cached_property
    def log_probs(self) -> np.ndarray:
        """(S,) log-probability of every state."""
        return self.logs.minus(self.total)

    @cached_property
    def probs(self) -> np.ndarray:
        """(S,) in extended precision."""
        near = (self.logs.huge == self.total.huge) & ~np.isneginf(self.logs.small)
        return np.where(near, np.exp(np.where(near, self.logs.small - self.total.small, 0)), REAL(0))

    def log_probability(self, chosen: np.ndarray) -> np.ndarray:
        """Log-probability of the events that the rows of a boolean matrix select."""
        return log_sum(self.logs, chosen).minus(self.total)

    @cached_property
    def _on(self) -> np.ndarray:
        """(D * K, S): where each variable has each label."""
        labels = np.arange(self.n_labels)[None, :, None]
        return (self.states.T[:, None, :] == labels).reshape(-1, len(self.states))

    @cached_property
    def log_marginals(self) -> np.ndarray:
        """(D, K)."""
        return self.log_probability(self._on).reshape(-1, self.n_labels)

    @cached_property
    def posterior_logits(self) -> np.ndarray:
        """Log-odds of binary variables, (D,)."""
        masses = log_sum(self.logs, self._on)
        return masses[1::2].minus(masses[0::2])

    @cached_property
    def cavity_logits(self) -> np.ndarray:
        """Log-odds of every variable in the model without its own leaf, (D,)."""
        assert self.leaves is not None
        assert self.others is not None
        found = []
        for d in range(self.states.shape[1]):
            rest = np.delete(np.arange(self.states.shape[1]), d)
            logs = Logs(
                self.others.huge + self.leaves.huge[:, rest].sum(1),
                self.others.small + self.leaves.small[:, rest].sum(1),
                self.logs.unit,
            )
            masses = log_sum(logs, self._on[2 * d : 2 * d + 2])
            found.append(masses[1].minus(masses[0]))
        return np.array(found, float)

    def score_log_probs(self, scores: np.ndarray, highest: int) -> np.ndarray:
        """Log-probabilities of a count, given its value in every state."""
        return self.log_probability(scores[None] == np.arange(highest + 1)[:, None])

    def pair_tables(self, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        """Log P(y_i = a, y_j = b) of pairs, (m, K, K)."""
        k = self.n_labels
        on = self._on.reshape(-1, k, len(self.states))
        chosen = [on[i, a] & on[j, b] for i, j in pairs for a in range(k) for b in range(k)]
        masks = np.array(chosen, bool).reshape(-1, len(self.states))
        return self.log_probability(masks).reshape(len(pairs), k, k)

    # -- expectations ----------------------------------------------------------------------------------------------

    @cached_property
    def entropy(self) -> float:
        p = self.probs[self.probs > 0]
        return float(-(p * np.log(p)).sum())

    def kl_divergence(self, other: Truth) -> float:
        """KL(self || other): the supports decide whether it is infinite."""
        mine, theirs = ~np.isneginf(self.logs.small), ~np.isneginf(other.logs.small)
        if (mine & ~theirs).any():
            return INF
        seen = self.probs > 0
        ratio = np.asarray(other.log_probs[seen], REAL)
        return float((self.probs[seen] * (np.log(self.probs[seen]) - ratio)).sum())

    def covariance_of(self, first: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
        """Covariance of statistics given by their values in every state, (S, a) and (S, b)."""
        second = first if second is None else second
        a = first - self.probs @ first.astype(REAL)
        b = second - self.probs @ second.astype(REAL)
        return np.asarray((self.probs[:, None] * a).T @ b, float)

    # -- maxima ----------------------------------------------------------------------------------------------------

    @property
    def max_log_weight(self) -> float:
        return float(largest(self.logs, np.ones((1, len(self.states)), bool))[0])

    @cached_property
    def max_marginals(self) -> np.ndarray:
        return largest(self.logs, self._on).reshape(-1, self.n_labels)

    def max_count_values(self, scores: np.ndarray, highest: int) -> np.ndarray:
        return largest(self.logs, scores[None] == np.arange(highest + 1)[:, None])

    # -- other models on the same states -----------------------------------------------------------------------------

    def restrict(self, chosen: np.ndarray) -> Truth:
        """The model given an event."""

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


def truth_of_terms(
    states: np.ndarray, leaves: np.ndarray, terms: Sequence[np.ndarray], n_labels: int = 2
) -> Truth:
    """From the variables' own log-weights in every state (S, D) and any number of other terms (S,)."""
    unit = unit_of(leaves, *terms)
    own = Logs.of(leaves, unit)
    others = Logs(np.zeros(len(states), np.int64), np.zeros(len(states), REAL), unit)
    for term in terms:
        others = others + Logs.of(term, unit)
    logs = Logs(others.huge + own.huge.sum(1), others.small + own.small.sum(1), unit)
    return Truth(states, logs, n_labels, own, others)
