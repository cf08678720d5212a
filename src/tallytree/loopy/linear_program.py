"""The best configuration of overlapping counts by linear programming (HiGHS).

Cells of a matrix are flow from rows to columns. A potential that is log-concave on an interval of counts is a concave
gain in the flow through its row, so the vertices of the linear program are integral. Other potentials need one binary
variable per count.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array

from ..arrays import Bools, Float64, Ints
from ..errors import InfeasibleError, TallyTreeError


class FractionalError(TallyTreeError):
    """The relaxation of an integer program is not tight."""


def is_concave(log_f: Float64) -> bool:
    """Whether the allowed counts are an interval and log f is concave on it."""
    counts = np.flatnonzero(log_f > -math.inf)
    if len(counts) < 2:
        return True
    if len(counts) != counts[-1] - counts[0] + 1:
        return False
    slopes = np.diff(log_f[counts])
    return bool((np.diff(slopes) <= 1e-12 * (1.0 + np.abs(slopes[1:]))).all())


class _Columns(NamedTuple):
    """Variables of the program beyond the cells: one constraint has them in it, up to a bound."""

    constraint: int
    entries: Float64
    gains: Float64
    highest: float
    is_choice: bool  # one of them is 1, the others 0


def best_configuration(logits: Float64, factor: Ints, variable: Ints, tables: list[Float64]) -> Bools:
    """The configuration with the largest log-weight; variable[e] is a member of the count factor factor[e].

    Every variable is a member of at most two factors, on two sides, or some potential is not concave: otherwise the
    linear program may return fractions, which raise FractionalError.
    """
    right = np.zeros(len(tables))
    beyond: list[_Columns] = []
    for i, table in enumerate(tables):
        counts = np.flatnonzero(table > -math.inf)
        if len(counts) == 0:
            raise InfeasibleError(
                f"A potential allows no count at all for {len(table) - 1} free variables. Relax it."
            )
        if is_concave(table):
            # count = low + segments; falling gains fill the segments in order
            right[i] = counts[0]
            slopes = np.diff(table[counts])
            if len(slopes) and np.ptp(slopes) == 0.0:
                beyond.append(_Columns(i, -np.ones(1), slopes[:1], len(slopes), False))
            elif len(slopes):
                beyond.append(_Columns(i, -np.ones(len(slopes)), slopes, 1.0, False))
        else:
            # One count of each is chosen: what all have in common would only blur the comparison.
            gains = table[counts] - table[counts].max()
            beyond.append(_Columns(i, -counts.astype(float), gains, 1.0, True))
    return _solve(logits, factor, variable, right, beyond)


def _solve(logits: Float64, factor: Ints, variable: Ints, right: Float64, beyond: list[_Columns]) -> Bools:
    from scipy import optimize

    milp: Any = optimize.milp
    linprog: Any = optimize.linprog

    n = len(logits)
    owner = np.repeat(np.arange(len(beyond)), [len(each.gains) for each in beyond])
    constraint = np.array([each.constraint for each in beyond], np.int64)[owner]
    is_choice = np.array([each.is_choice for each in beyond], bool)
    whole = is_choice[owner]
    choice = len(right) + np.cumsum(is_choice)[owner] - 1  # the constraint that one of them is taken
    own = n + np.arange(len(owner))
    where = (np.concatenate([factor, constraint, choice[whole]]), np.concatenate([variable, own, own[whole]]))
    entries = [np.ones(len(factor)), *(each.entries for each in beyond), np.ones(whole.sum())]
    right = np.concatenate([right, np.ones(is_choice.sum())])
    shape = (len(right), n + len(owner))
    matrix = coo_array((np.concatenate(entries), where), shape=shape).tocsr()
    cost = -np.concatenate([logits, *(each.gains for each in beyond)])
    highest = np.concatenate([np.ones(n), np.array([each.highest for each in beyond])[owner]])
    if len(cost) == 0:
        return np.zeros(0, bool)
    if is_choice.any():
        found: Any = milp(
            cost,
            integrality=np.concatenate([np.ones(n, bool), whole]),
            bounds=optimize.Bounds(0.0, highest),
            constraints=optimize.LinearConstraint(matrix, right, right),
            options={"mip_rel_gap": 0.0},  # by default it stops within 1e-4 of the best
        )
    else:
        limits = np.stack([np.zeros(len(highest)), highest], axis=1)
        found = linprog(cost, A_eq=matrix, b_eq=right, bounds=limits, method="highs-ds")
    if found.x is None:
        raise InfeasibleError(
            "No configuration satisfies all potentials together. Relax a potential or allow more variables."
        )
    cells = np.asarray(found.x)[:n]
    chosen = cells > 0.5
    if np.abs(cells - chosen).max(initial=0.0) > 1e-6:
        raise FractionalError(
            "The linear program has a fractional optimum. Use dual_decomposition or loopy_bp."
        )
    return chosen
