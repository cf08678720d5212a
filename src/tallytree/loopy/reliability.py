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

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray
from scipy.special import expit, gammaln

from ..arrays import Float64, Ints
from ..errors import InfeasibleError, StructureError
from ..structure.forest.top_tree import components
from .blocks import neighbourhood, possible_state
from .bounds import holder_bound
from .components import graph_of, solved
from .factor_graph import FactorGraph
from .layout import distinct, layout
from .mean_field import mean_field
from .propagation import loopy_bp
from .reduction import Component, reduced, tables_of

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
        for value in (0, 1):
            try:
                log_z[value], given[value], more = beliefs(graph._decided(int(v), value))
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
    off, on = (_bounds_with(graph, v, value) for value in (0, 1))
    if on is None or off is None:
        if on is None and off is None:
            raise InfeasibleError("No configuration is possible.")
        return float(on is not None), float(on is not None)
    own = float(graph.logits[v])  # a forced variable has weight one: its own log-odds come back
    return float(expit(on[0] + own - off[1])), float(expit(on[1] + own - off[0]))


def _bounds_with(graph: FactorGraph, v: int, value: int) -> tuple[float, float] | None:
    """Bounds of log Z with one variable decided; None if that is impossible."""
    try:
        return log_partition_bounds(graph._decided(v, value))
    except InfeasibleError:
        return None


# -- when the Bethe value is a lower bound of log Z -------------------------------------------------------------------

# Straszak and Vishnoi (2017): if the variables are shared by two sides, and on each side the product of the factors is
# a real stable polynomial, then Z_Bethe <= Z. A count factor is the symmetric polynomial with coefficients f(c), which
# is real stable iff ``sum_c f(c) C(n, c) x^c`` has only real roots (Grace, Walsh and Szego); a pairwise factor is real
# stable iff ``f(0,0) f(1,1) <= f(0,1) f(1,0)``. Products of stable polynomials in different variables are stable.

_LARGEST_STURM = 48  # degree up to which roots are counted in exact arithmetic


def lower_bound_condition(graph: FactorGraph) -> str:
    """Why the Bethe value is a lower bound, or "no: " and the first condition that could not be established."""
    structure = layout(graph)
    if len(structure.phases) > 2 and not _two_sided(graph):
        return "no: the factors cannot be put on two sides such that those of one side share no variable"
    tested: dict[tuple[int, bytes], bool | None] = {}
    known = distinct(graph)
    for i in known.factors[known.factors < graph.n_groups].tolist():
        table = known.tables[i]
        if table is None:
            return f"no: group {i} is a CountModel, whose stability is not tested"
        key = (len(table), table.tobytes())
        if key not in tested:
            tested[key] = real_rooted(table)
        if tested[key] is None:
            return f"no: whether the polynomial of group {i} has only real roots was not settled"
        if not tested[key]:
            return f"no: the polynomial sum_c f(c) C(n, c) x^c of group {i} has complex roots"
    edges = known.factors[known.factors >= graph.n_groups] - graph.n_groups
    t = known.pair_tables[edges]
    attractive = np.flatnonzero(t[:, 0, 0] + t[:, 1, 1] > t[:, 0, 1] + t[:, 1, 0])
    if len(attractive):
        return f"no: edge {int(edges[attractive[0]])} favours equal values"
    return "every variable is shared by at most two factors on two sides, and every factor is real stable"


def _two_sided(graph: FactorGraph) -> bool:
    """Whether factors can be split into two sides of disjoint factors; first-fit colours may miss that."""
    known = distinct(graph)
    members = [known.members[a] for a in known.factors]
    factor = np.repeat(np.arange(len(members)), [len(m) for m in members])
    variable = np.concatenate([np.empty(0, np.int64), *members])
    if np.bincount(variable, minlength=1).max() > 2:
        return False
    order = np.argsort(variable, kind="stable")
    twice = np.flatnonzero(variable[order][1:] == variable[order][:-1])
    a, b = factor[order][twice], factor[order][twice + 1]
    # Every factor once on each side, joined to those on the other side with which it shares a variable: a cycle of odd
    # length leads from a factor to itself on the other side.
    n = len(members)
    label = components(2 * n, np.stack([np.r_[a, b], n + np.r_[b, a]], axis=1))
    return bool((label[:n] != label[n:]).all())


def real_rooted(log_f: Float64) -> bool | None:
    """Whether ``sum_c f(c) C(n, c) x^c`` has only real roots; None if that was not settled.

    Newton's inequalities are necessary, Kurtz's condition is sufficient; between the two, roots are counted
    with a Sturm sequence in exact arithmetic, for the table as rounded to floating point.
    """
    n = len(log_f) - 1
    counts = np.flatnonzero(log_f > -math.inf)
    if len(counts) == 0:
        return True
    lowest, highest = int(counts[0]), int(counts[-1])
    if len(counts) != highest - lowest + 1:
        return False  # a polynomial with coefficients >= 0 and real roots only has no gap
    if highest - lowest <= 1:
        return True
    c = np.arange(lowest, highest + 1)
    slopes = np.diff(log_f[lowest : highest + 1])
    if lowest == 0 and highest == n and np.ptp(slopes) <= 1e-13 * (1.0 + abs(slopes[0])):
        return True  # (1 + r x)^n, up to the rounding of its logarithms
    log_a = log_f[c] + gammaln(n + 1) - gammaln(c + 1) - gammaln(n - c + 1)
    m = highest - lowest
    k = np.arange(1, m)
    excess = 2.0 * log_a[1:-1] - log_a[:-2] - log_a[2:]
    newton = np.log1p(1.0 / k) + np.log1p(1.0 / (m - k))
    rounding = 1e-10
    if (excess < newton - rounding).any():
        return False
    if (excess > math.log(4.0) + rounding).all():
        return True
    if m > _LARGEST_STURM:
        return None
    top = log_f[c].max()
    exact = [Fraction(math.exp(v - top)) * math.comb(n, int(j)) for v, j in zip(log_f[c].tolist(), c)]
    if any(a == 0 for a in exact):
        return None
    return _all_roots_real(exact)


def _all_roots_real(p: list[Fraction]) -> bool:
    """Sturm: the number of distinct real roots equals the degree of the square-free part."""
    chain = [_primitive(p), _primitive(polynomial.polyder(np.array(p)).tolist())]
    while len(chain[-1]) > 1:
        rest = polynomial.polydiv(*chain[-2:])[1]
        if not rest.any():
            break
        chain.append(_primitive((-rest).tolist()))
    distinct = (len(p) - 1) - (len(chain[-1]) - 1)
    at_plus = [_sign(q[-1]) for q in chain]
    at_minus = [_sign(q[-1]) * (-1) ** (len(q) - 1) for q in chain]
    return _changes(at_minus) - _changes(at_plus) == distinct


def _primitive(p: list[Fraction]) -> NDArray[np.object_]:
    """Divided by the positive content, so that numbers stay small."""
    denominator = math.lcm(*(a.denominator for a in p))
    whole = [int(a * denominator) for a in p]
    content = math.gcd(*whole) or 1
    return np.array([Fraction(a, content) for a in whole])


def _sign(a: Fraction) -> int:
    return (a > 0) - (a < 0)


def _changes(signs: list[int]) -> int:
    kept = [s for s in signs if s]
    return sum(a != b for a, b in itertools.pairwise(kept))
