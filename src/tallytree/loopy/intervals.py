"""Bounds of log Z from both sides, and intervals of marginals from the bounds of clamped models.

What hard constraints decide is taken out, and components are bounded one by one: narrow ones are exact. In a wide one
the sum over a block of variables, as large as exact inference allows, with all others as in a possible configuration,
is a lower bound whatever overlaps.
"""

from __future__ import annotations

import math

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
from .reduction import reduced, tables_of
from .stability import lower_bound_condition

NARROW = 2**14  # states of a frontier up to which sums are exact


def log_partition_bounds(graph: FactorGraph) -> tuple[float, float]:
    """Lower and upper bound of log Z. Raises InfeasibleError where a constraint shows that nothing is possible."""
    reduction = reduced(graph)
    low = high = reduction.constant
    for component in reduction.components:
        part = solved(component)
        if part.at_most(NARROW):
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
        if not all(part.at_most(NARROW) for part in parts):
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
        if part.at_most(NARROW):
            odds, error = part.log_odds, part.error_bound
            low[component.variables], high[component.variables] = expit(odds - error), expit(odds + error)
            continue
        alone = graph_of(component)
        for v in asked.tolist():
            low[component.variables[v]], high[component.variables[v]] = _interval(alone, v)
    return low[variables], high[variables]


def _interval(graph: FactorGraph, v: int) -> tuple[float, float]:
    on, off = _clamped(graph, v, math.inf), _clamped(graph, v, -math.inf)
    if on is None or off is None:
        if on is None and off is None:
            raise InfeasibleError("No configuration is possible.")
        return float(on is not None), float(on is not None)
    own = float(graph.logits[v])  # a forced variable has weight one: its own log-odds come back
    return float(expit(on[0] + own - off[1])), float(expit(on[1] + own - off[0]))


def _clamped(graph: FactorGraph, v: int, logit: float) -> tuple[float, float] | None:
    """Bounds of log Z with one variable decided; None if that is impossible."""
    logits = np.array(graph.logits)
    logits[v] = logit
    try:
        return log_partition_bounds(graph.replace(logits=logits))
    except InfeasibleError:
        return None
