"""When the Bethe value is a lower bound of log Z.

Straszak and Vishnoi (2017): if the variables are shared by two sides, and on each side the product of the factors is a
real stable polynomial, then Z_Bethe <= Z. A count factor is the symmetric polynomial with coefficients f(c),
which is real stable iff ``sum_c f(c) C(n, c) x^c`` has only real roots (Grace, Walsh and Szego); a pairwise
factor is real stable iff ``f(0,0) f(1,1) <= f(0,1) f(1,0)``. Products of stable polynomials in different
variables are stable.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray
from scipy.special import gammaln

from ..arrays import Float64
from ..structure.forest.top_tree import components
from .factor_graph import FactorGraph
from .layout import distinct, layout

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
