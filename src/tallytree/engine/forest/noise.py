"""What the noise of transforms may do to any state of any vertex, however rare.

A transform's errors are alike at all counts, about `u log n` of the mass of its cluster. Given a rare state of a far
vertex the count may lie where that is more than all there is. How much of it there is, the forest alone tells. Let T be
the table of the counts under the tilt, V(s, c) the weight of a cluster in state s of its boundary with count c, and
R_a(s, d) that of the rest of the forest with vertex v in state a and count d. An error e(s, c) of the cluster changes
the weight of that state, ``Z_a = sum V(s, c) R_a(s, d) T(c + d)``, by

    sum e(s, c) R_a(s, d) T(c + d)  <=  sum_s |e(s)|_2 |R_a(s)|_1 |T|_2,

and ``|e(s)|_2 <= noise |V(s)|_1``. Without tables the sum over s of ``|V(s)|_1 |R_a(s)|_1`` is M_a, the weight of the
state in the forest alone: the change is at most ``noise |T|_2 M_a``, for any cluster that the vertex is not in. Those
that it is in enter by their adjoints, to which the same applies with the roles of cluster and rest exchanged. So the
relative error of a state is large only where counts make it far less probable than the tilted forest does.

This needs all counts of transformed clusters, those below their noise as well: cut off, they would be missing where
they are all that a rare state has.
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64
from ..answer import Answer
from ..log_sums import anchor, log_sum
from ..problem import ForestProblem
from .arithmetic import Direct
from .passes import both_passes
from .plain import propagate


def noisy_bound(problem: ForestProblem, found: Answer) -> Float64:
    """The bound on log-odds found by a pass with transforms, (B,), such that it holds for all states."""
    with np.errstate(all="ignore"):  # messages of a failed pass may be any number
        if problem.program.set_top.all():
            bound = found.bound + _transform_error(problem, found)
        else:  # an error of Z may be one of the rarest state
            bound = found.bound + 2.0 * found.noise / _rarest(problem, found)
    return np.where(np.isnan(bound), math.inf, bound)


def _transform_error(problem: ForestProblem, found: Answer) -> Float64:
    alone = problem.alone()
    free = propagate(alone) or both_passes(alone, Direct)
    excess = _state_weights(problem, free) - _state_weights(problem, found)
    # A state that the forest alone excludes has no weight, and no error.
    largest = np.where(free.messages == -math.inf, -math.inf, excess).max(axis=(1, 2), initial=-math.inf)
    amplified = np.exp(np.minimum(largest + _log_norm(problem), 700.0))
    return np.asarray(2.0 * found.noise * amplified)


def _state_weights(problem: ForestProblem, found: Answer) -> Float64:
    """Logarithms of the weight of all configurations with a vertex in a state but for its own weight, (B, D, K)."""
    own = log_sum(problem.log_leaf + found.messages, keepdims=True)
    return np.asarray(found.messages - own + found.log_mean[:, None, None])


def _log_norm(problem: ForestProblem) -> Float64:
    """Logarithm of the largest Euclidean norm of a table, the others taken at their largest entry, (1 or B,)."""
    tops, widest = np.zeros(len(problem.tables)), np.zeros(len(problem.tables))
    for start, stop in zip(problem.offset[:-1].tolist(), problem.offset[1:].tolist()):
        own = problem.tables[:, start:stop]
        top = anchor(own)
        tops += top[:, 0]
        widest = np.maximum(widest, 0.5 * log_sum(2.0 * (own - top)))
    return np.asarray(tops + widest)


def _rarest(problem: ForestProblem, found: Answer) -> Float64:
    """The least probability of a possible state, (B,)."""
    belief = problem.log_leaf + found.messages
    log_prob = np.where(problem.log_leaf > -math.inf, belief - log_sum(belief, keepdims=True), 0.0)
    return np.asarray(np.exp(log_prob.min(axis=(1, 2), initial=0.0)))
