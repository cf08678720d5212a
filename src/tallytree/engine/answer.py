"""What inference returns, whatever the model, the method and the executor."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Float64, Ints


@dataclass(slots=True, eq=False)
class Answer:
    """What was found for a batch of B models; arrays of the executor's own kind.

    Attributes
    ----------
    log_mean : (B,)
        ``log E[prod_k f_k(z_k)]`` under independent variables; with edges log Z. -inf for an impossible model.
    bound : (B,)
        Bound on the absolute error of every message, and of ``log_mean`` beyond the rounding of a number of its size;
        inf where nothing is certified.
    doubt : (B,) or None
        Bound on the absolute error of every P(y = 1), where the executor knows a better one than that of the messages
        implies. :attr:`probability_bound` is always there.
    messages : (B, D), with edges (B, D, K)
        ``log d(1)/d(0)`` of every leaf: posterior log-odds minus ``nu``, right also where ``nu`` is infinite. With
        edges what the rest of the model says about each state, up to a constant.
    log_beliefs : (B, T) or None
        Log of the posterior count distribution of every set, packed like the tables.
    log_edges : (B, E, K, K) or None
        Log of the edge marginals.
    marginals : function or None
        Makes P(y = 1), (B, D), where the executor has a short way to it.
    counts : function or None
        Makes P(count), (B, T), and the bound of its error, (B,), inf for models without; or None if all are.
    softplus : (B,) or None
        Sum of log(1 + e^nu), where the executor knows it.
    vanished : (B,) or None
        With edges: what may be missing from Z, or from any part of it, by underflow; relative to Z.
    noise : (B,) or None
        Of one pass with edges: what transforms did to clusters and adjoints, relative to their sums; with sets inside
        others, to states of their boundaries.
    tilts : (B, n_sets) or None
        With edges: the tilts under which the answer was found.
    arithmetic : (B,) of int or None
        With edges: by which arithmetic, in the order of :data:`~tallytree.engine.arithmetic.ARITHMETICS`.
    """

    log_mean: Any
    given_messages: Any  # an array, or a function that makes it: large answers are made when asked for
    log_beliefs: Any
    bound: Any
    _: KW_ONLY
    doubt: Any = None
    log_edges: Any = None
    marginals: Any = None
    counts: Any = None
    softplus: Any = None
    vanished: Any = None
    noise: Any = None
    tilts: Any = None
    arithmetic: Any = None

    @classmethod
    def none(cls, shape: tuple[int, int]) -> Answer:
        """No answer for B models of D variables: the bounds are infinite."""
        return cls(np.zeros(shape[0]), lambda: np.zeros(shape), None, np.full(shape[0], np.inf))

    @property
    def probability_bound(self) -> Any:
        """Bound on the absolute error of every P(y = 1), (B,); log-odds move it by at most a quarter of their error."""
        return 0.25 * self.bound if self.doubt is None else self.doubt

    @property
    def messages(self) -> Any:
        found = self.given_messages
        return found() if callable(found) else found

    def patched(self, other: Answer, rows: Ints) -> Answer:
        """Replace the answers of some models by those of `other`."""

        def merged(first: Any, second: Any) -> Any:
            if first is None or second is None:
                return None
            out = first.copy()
            out[rows] = second
            return out

        kept = {name: merged(getattr(self, name), getattr(other, name)) for name in _BY_MODEL}
        kept["doubt"] = merged(self.probability_bound, other.probability_bound)
        return Answer(given_messages=lambda: merged(self.messages, other.messages), **kept)

    def take(self, rows: Any) -> Answer:
        """The answers for some models."""

        def picked(values: Any) -> Any:
            return None if values is None else values[rows]

        kept = {name: picked(getattr(self, name)) for name in _BY_MODEL}
        return Answer(given_messages=lambda: picked(self.messages), **kept)


_BY_MODEL = ("log_mean", "log_beliefs", "bound", "doubt", "log_edges", "vanished", "tilts", "arithmetic")


def stacked(answers: list[Answer]) -> Answer:
    """The answers for batches one after the other, those with edges."""
    if len(answers) == 1:
        return answers[0]

    def all_of(name: str) -> Any:
        return np.concatenate([getattr(answer, name) for answer in answers])

    kept = {name: all_of(name) for name in _BY_MODEL if name != "doubt"}
    return Answer(given_messages=all_of("messages"), **kept)


class Derivatives(NamedTuple):
    """Along R directions, for B models with D variables and packed tables of length T.

    ``marginals`` (R, B, D) holds d P(y_d = 1), ``counts`` (R, B, T) d P(count) of every set, None if not asked for.
    """

    marginals: Float64
    counts: Float64 | None


def posterior(nu: Float64, messages: Float64) -> Float64:
    """``nu + messages``; infinite log-odds decide by themselves."""
    with np.errstate(invalid="ignore"):
        total = nu + messages
    if np.isfinite(nu).all():
        return np.asarray(total)
    return np.where(np.isinf(nu), nu, total)
