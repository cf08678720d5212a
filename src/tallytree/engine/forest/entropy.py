"""Entropy of a forest with counts from its answers: log Z less the expected log-weight.

Every table is first taken relative to its entry at the most probable outcome. That changes no probability, and where
one configuration has nearly all of it, all terms are small and none cancels another. Where the terms are so large that
the errors of their probabilities show, states that are as good as impossible are excluded: their far log-odds, and what
rounding these costs, say nothing about the others. What still shows is summed by parts instead.

Entropies of clusters: an upward pass in which every weight carries the entropy of what it is the sum of.

A number is ``log w + i H``: the logarithm of a weight, and the entropy of the configurations inside the cluster given
that they have this weight's state. Independent parts multiply, and their entropies add up. A sum over alternatives of
weights w_j has ``H = sum_j p_j (H_j - log p_j)``, ``p_j = w_j / sum w``. Every term is non-negative: nothing cancels,
whatever the size of the log-weights.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays import Float64
from ..answer import Answer
from ..arithmetic import UNIT_ROUNDOFF, Carried
from ..ladder import announce
from ..log_sums import log_sum
from ..problem import ForestProblem
from .ladder import LOGS, infer, pairs_of_counts, relative_counts
from .tilts import tilted
from .values import ForestValues


class Entropic(Carried):
    """(log-weight, entropy): the entropy of an alternative joins the surprise that it was this one."""

    def moment(self, weight: Float64, below: Float64, carried: Float64) -> Float64:
        alive = weight > 0.0  # 0 where the weight is, also times infinity
        return np.where(alive, weight * np.where(alive, carried - below, 0.0), 0.0)

    def number(self, top: Float64, total: Float64, moment: Float64) -> Any:
        out = super().number(top, total, moment)
        out.imag += np.log(np.where(total > 0.0, total, 1.0))
        return out


def entropy_by_parts(problem: ForestProblem) -> Float64:
    """In nats, (B,), relatively accurate up to the rounding of the log-weights. Cost: one upward pass in logarithms."""
    with np.errstate(all="ignore"):
        values = ForestValues(problem, Entropic())
        values.upward()
    return np.asarray(values.up.buffer[values.root_cells].imag.sum(axis=1))


_ACCEPTED = 1e-9  # error of 1 + the entropy
_IMPOSSIBLE = -60.0  # log-probability of a state without which no entropy changes by more than rounding


def entropy(problem: ForestProblem, answer: Answer, log_counts: Float64) -> Float64:
    """In nats, (B,); `log_counts` (B, T) are the log-probabilities of the counts of the sets."""
    found, error = _from_expectations(problem, answer, log_counts)
    doubtful = np.flatnonzero(error > _ACCEPTED * (1.0 + found))
    if len(doubtful):
        part = _without_impossible(problem.take(doubtful), answer.take(doubtful))
        if part is not None:
            again = infer(part)
            found[doubtful], error[doubtful] = _from_expectations(part, again, relative_counts(part, again))
            doubtful = np.flatnonzero(error > _ACCEPTED * (1.0 + found))
    if len(doubtful):
        announce(pairs_of_counts(problem) * len(doubtful) / len(problem), LOGS, "An entropy")
        found[doubtful] = entropy_by_parts(problem.take(doubtful))
    return found


def _without_impossible(problem: ForestProblem, answer: Answer) -> ForestProblem | None:
    """The problem with states that are as good as impossible excluded; None if that changes nothing."""
    belief = _log_beliefs(problem, answer)
    certain = (answer.bound < 1.0)[:, None, None]
    out = certain & (belief < _IMPOSSIBLE) & (problem.log_leaf > -math.inf)
    if not out.any():
        return None
    # A batch of its own: what is found for it has as many rows as it has models.
    return replace(problem, log_leaf=np.where(out, -math.inf, problem.log_leaf), origin=None)


def _log_beliefs(problem: ForestProblem, answer: Answer) -> Float64:
    """Log-probabilities of the states of every vertex, (B, D, K)."""
    with np.errstate(invalid="ignore"):
        belief: Float64 = problem.log_leaf + answer.messages
        belief = belief - belief.max(
            axis=2, keepdims=True
        )  # what is large cancels before it is rounded again
        return belief - log_sum(belief, keepdims=True)


def _from_expectations(
    problem: ForestProblem, answer: Answer, log_counts: Float64
) -> tuple[Float64, Float64]:
    """``log Z - E[log weight]`` and what errors of probabilities, and of log Z, may do to it, (B,) each."""
    batch = len(problem.log_leaf)
    belief = _log_beliefs(problem, answer)
    # Under the tilt that certified the answer the weights and the table rarely pull against one another.
    problem, _ = tilted(problem, answer.tilts)
    answer = replace(answer, tilts=np.zeros_like(answer.tilts))
    leaf, leaf_mean, leaf_square = _relative(problem.log_leaf, belief)
    pairs = problem.log_edge.shape[2] * problem.log_edge.shape[3]
    flat = (batch, problem.log_edge.shape[1], pairs)
    wide = np.broadcast_to(problem.log_edge, (batch, *problem.log_edge.shape[1:]))
    edge, edge_mean, edge_square = _relative(wide.reshape(flat), answer.log_edges.reshape(flat))
    tables = problem.full_tables.copy()
    mean = leaf_mean.sum(1) + edge_mean.sum(1)
    size = np.abs(leaf_mean).sum(1) + np.abs(edge_mean).sum(1)
    square = leaf_square.sum(1) + edge_square.sum(1)
    for start, stop in zip(problem.offset[:-1].tolist(), problem.offset[1:].tolist()):
        tables[:, start:stop], part, more = _relative(tables[:, start:stop], log_counts[:, start:stop])
        mean, size, square = mean + part, size + np.abs(part), square + more
    # Log Z of the relative tables is found anew: a difference would have lost its digits.
    shifted = replace(problem, log_leaf=leaf, log_edge=edge.reshape(wide.shape), tables=tables)
    found = np.asarray(np.maximum(infer(shifted, answer).log_mean - mean, 0.0))
    # Messages are certified; a probability also has the rounding of the weights that it was summed from.
    return found, answer.bound * (1.0 + size) + 8 * UNIT_ROUNDOFF * (1.0 + size + square)


def _relative(log_weights: Float64, log_probs: Float64) -> tuple[Float64, Float64, Float64]:
    """Tables (..., n) relative to their most probable entry, the means (...) of these, and of their squares."""
    if log_weights.shape[-1] == 0:
        return log_weights, *2 * (np.zeros(log_weights.shape[:-1]),)
    place = log_probs.argmax(axis=-1)[..., None]
    out = log_weights - np.take_along_axis(log_weights, place, -1)
    probs = np.exp(log_probs)
    finite = np.where(out == -math.inf, 0.0, out)
    terms = probs * finite
    return out, terms.sum(axis=-1), (terms * finite).sum(axis=-1)
