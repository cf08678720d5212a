"""Bounds of log Z from both sides, and intervals of marginals from the bounds of clamped models."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from ..arrays import Float64, Ints
from ..errors import InfeasibleError, StructureError
from .bounds import holder_bound
from .factor_graph import FactorGraph
from .mean_field import mean_field, tables_of
from .propagation import loopy_bp
from .stability import lower_bound_condition


def log_partition_bounds(graph: FactorGraph) -> tuple[float, float]:
    """Lower and upper bound of log Z. Raises InfeasibleError where a constraint shows that nothing is possible."""
    upper = holder_bound(graph).value
    if upper == -math.inf:
        raise InfeasibleError("No configuration is possible.")
    lower = _mean_field_value(graph)
    if not lower_bound_condition(graph).startswith("no:"):
        lower = max(lower, loopy_bp(graph).lower_bound)
    return min(lower, upper), upper


def _mean_field_value(graph: FactorGraph) -> float:
    """The bound of mean field that keeps every factor which forbids something; -inf where these overlap."""
    total = graph.n_groups + graph.n_edges
    hard = [a for a in range(total) if any(np.isneginf(table).any() for _, table in tables_of(graph, a))]
    try:
        return mean_field(graph, hard).value
    except StructureError:
        return -math.inf


def marginal_bounds(graph: FactorGraph, variables: Ints) -> tuple[Float64, Float64]:
    """Bounds of P(y_v = 1) = Z1 / (Z1 + Z0) from those of Z with v on, Z1, and with v off, Z0."""
    low, high = np.zeros(len(variables)), np.ones(len(variables))
    for place, v in enumerate(variables.tolist()):
        if math.isinf(graph.total_logits[v]):
            low[place] = high[place] = float(graph.total_logits[v] > 0)
            continue
        on, off = _clamped(graph, v, math.inf), _clamped(graph, v, -math.inf)
        if on is None and off is None:
            raise InfeasibleError("No configuration is possible.")
        # A forced variable has weight one: its own log-odds come back.
        own = float(graph.logits[v])
        low[place] = 0.0 if on is None else 1.0 if off is None else expit(on[0] + own - off[1])
        high[place] = 0.0 if on is None else 1.0 if off is None else expit(on[1] + own - off[0])
    return low, high


def _clamped(graph: FactorGraph, v: int, logit: float) -> tuple[float, float] | None:
    """Bounds of log Z with one variable decided; None if that is impossible."""
    logits = np.array(graph.logits)
    logits[v] = logit
    try:
        return log_partition_bounds(graph.replace(logits=logits))
    except InfeasibleError:
        return None
