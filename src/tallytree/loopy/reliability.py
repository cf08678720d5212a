"""How far beliefs are off: bounds of log Z and of marginals, and better marginals at a bounded price.

What hard constraints decide is taken out, and components are treated one by one: narrow ones are exact.

In a wide component, the sum over a block of variables, as large as exact inference allows, with all others as in a
possible configuration, is a lower bound of log Z whatever overlaps; intervals of marginals come from the bounds of
clamped models. For better marginals a variable is given both values in turn: with the Bethe values ``Z1`` and ``Z0`` of
the two clamped graphs,

    P(y_u = 1) = Z1 / (Z1 + Z0) P(y_u = 1 | y_v = 1) + Z0 / (Z1 + Z0) P(y_u = 1 | y_v = 0)

would hold for all beliefs if they were right. Clamping cuts the cycles through v, so that the right side knows more.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import expit

from ..arrays import Float64, Ints
from ..errors import InfeasibleError, StructureError
from .blocks import neighbourhood, possible_state
from .bounds import holder_bound
from .components import graph_of, solved
from .factor_graph import FactorGraph
from .mean_field import mean_field
from .propagation import loopy_bp
from .reduction import Component, reduced, tables_of
from .stability import lower_bound_condition

SUMMED = 2**14  # states of a frontier up to which the bounds of a component are its exact sum
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


def log_partition_bounds(graph: FactorGraph) -> tuple[float, float]:
    """Lower and upper bound of log Z. Raises InfeasibleError where a constraint shows that nothing is possible."""
    reduction = reduced(graph)
    low = high = reduction.constant
    for component in reduction.components:
        part = solved(component)
        if part.at_most(SUMMED):
            exact, error = part.log_partition, part.error_bound
            below, above = exact - error, exact + error
        else:
            below, above = _bounds(graph_of(component))
        low, high = low + below, high + above
    return low, high


def _bounds(graph: FactorGraph) -> tuple[float, float]:
    upper = holder_bound(graph).value
    if upper == -math.inf:
        raise InfeasibleError("No configuration is possible.")
    lower = max(_mean_field_value(graph), _partial_sum(graph))
    if not lower_bound_condition(graph).startswith("no:"):
        lower = max(lower, loopy_bp(graph).lower_bound)
    return min(lower, upper), upper


def _partial_sum(graph: FactorGraph) -> float:
    """Sum over a block with all other variables as in a possible configuration; -inf if none is found."""
    rng = np.random.default_rng(0)
    try:
        state = possible_state(graph, rng)
    except InfeasibleError:
        return -math.inf
    order, best, size = neighbourhood(graph, int(rng.integers(graph.n_variables))), -math.inf, 1
    while True:
        given = state.copy()
        given[order[:size]] = -1
        reduction = reduced(graph, given)
        parts = [solved(component) for component in reduction.components]
        if not all(part.at_most(SUMMED) for part in parts):
            return best
        best = reduction.constant + math.fsum(part.log_partition - part.error_bound for part in parts)
        if size >= len(order):
            return best
        size *= 2


def _mean_field_value(graph: FactorGraph) -> float:
    """The bound of mean field that keeps every factor which forbids something; -inf where these overlap."""
    total = graph.n_groups + graph.n_edges
    hard = [a for a in range(total) if any(np.isneginf(table).any() for _, table in tables_of(graph, a))]
    try:
        return mean_field(graph, hard).value
    except StructureError:
        return -math.inf


def marginal_bounds(graph: FactorGraph, variables: Ints) -> tuple[Float64, Float64]:
    """Bounds of P(y_v = 1) = Z1 / (Z1 + Z0) from those of Z with v on, Z1, and with v off, Z0, in its component."""
    reduction = reduced(graph)
    low = (reduction.value == 1).astype(np.float64)
    high = low.copy()
    for component in reduction.components:
        asked = np.flatnonzero(np.isin(component.variables, variables))
        part = solved(component)
        if part.at_most(SUMMED):
            odds, error = part.log_odds, part.error_bound
            low[component.variables], high[component.variables] = expit(odds - error), expit(odds + error)
            continue
        alone = graph_of(component)
        for v in asked.tolist():
            low[component.variables[v]], high[component.variables[v]] = _interval(alone, v)
    return low[variables], high[variables]


def _interval(graph: FactorGraph, v: int) -> tuple[float, float]:
    on, off = _bounds_with(graph, v, math.inf), _bounds_with(graph, v, -math.inf)
    if on is None or off is None:
        if on is None and off is None:
            raise InfeasibleError("No configuration is possible.")
        return float(on is not None), float(on is not None)
    own = float(graph.logits[v])  # a forced variable has weight one: its own log-odds come back
    return float(expit(on[0] + own - off[1])), float(expit(on[1] + own - off[0]))


def _bounds_with(graph: FactorGraph, v: int, logit: float) -> tuple[float, float] | None:
    """Bounds of log Z with one variable decided; None if that is impossible."""
    logits = np.array(graph.logits)
    logits[v] = logit
    try:
        return log_partition_bounds(graph.replace(logits=logits))
    except InfeasibleError:
        return None
