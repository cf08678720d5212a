"""How far the marginals of belief propagation are off, as far as that can be told at a bounded price.

What hard constraints decide is taken out. A component of the rest whose frontier is narrow has exact marginals. In a
wide one a variable is given both values in turn: with the Bethe values ``Z1`` and ``Z0`` of the two clamped graphs,

    P(y_u = 1) = Z1 / (Z1 + Z0) P(y_u = 1 | y_v = 1) + Z0 / (Z1 + Z0) P(y_u = 1 | y_v = 0)

would hold for all beliefs if they were right. Clamping cuts the cycles through v, so that the right side knows more.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import expit

from ..arrays import Float64, Ints
from ..errors import InfeasibleError
from .components import graph_of, solved
from .factor_graph import FactorGraph
from .reduction import Component, reduced

NARROW = 2**18  # states of a frontier up to which a component is solved exactly, which is sure and quick
_STATES = 2**24  # and of all its frontiers together
_CLAMPED = 8  # variables of a wide component that are given both values
_WORK = 2**22  # messages that may be computed for that, over all sweeps

# Log Z and marginals by belief propagation, and messages computed; raises InfeasibleError.
Beliefs = Callable[[FactorGraph], tuple[float, Float64, int]]


def deviation(graph: FactorGraph, marginals: Float64, beliefs: Beliefs) -> float:
    """Largest difference between marginals (D,) and better ones; 0 if no configuration is possible."""
    worst = 0.0
    try:
        reduction = reduced(graph)
        worst = float(np.abs(marginals - reduction.value)[reduction.value >= 0].max(initial=0.0))
        for component in reduction.components:
            own, part = marginals[component.variables], solved(component)
            narrow = part.at_most(min(NARROW, _STATES // len(own)))
            better = [np.asarray(expit(part.log_odds))] if narrow else _clamped(component, own, beliefs)
            worst = max(worst, *(float(np.abs(p - own).max()) for p in better))
    except InfeasibleError:
        pass
    return worst


def _clamped(component: Component, marginals: Float64, beliefs: Beliefs) -> list[Float64]:
    """Marginals of a component that follow from those given both values of a variable, for some variables."""
    graph, found, work = graph_of(component), [marginals], 0
    for v in _chosen(component, marginals):
        if work > _WORK:
            break
        log_z, given = np.full(2, -math.inf), np.zeros((2, len(marginals)))
        for value, logit in enumerate((-math.inf, math.inf)):
            logits = np.array(graph.logits)
            logits[v] = logit
            try:
                log_z[value], given[value], more = beliefs(graph.replace(logits=logits))
            except InfeasibleError:
                continue
            work += more
        log_z[1] += graph.logits[v]  # a forced variable has weight one
        if log_z.max() > -math.inf and not np.isnan(log_z).any():
            p = float(expit(log_z[1] - log_z[0]))
            found.append(p * given[1] + (1.0 - p) * given[0])
    return found


def _chosen(component: Component, marginals: Float64) -> Ints:
    """The most uncertain variables that several factors share."""
    degree = np.bincount(np.concatenate([*component.counts, *component.pairs]), minlength=len(marginals))
    doubt = np.where(degree > 1, marginals * (1.0 - marginals), -1.0)
    order = np.argsort(-doubt, kind="stable")[:_CLAMPED]
    return np.asarray(order[degree[order] > 1])
