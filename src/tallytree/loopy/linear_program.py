"""The best configuration of overlapping counts by linear programming (HiGHS).

Cells of a matrix are flow from rows to columns. A potential that is log-concave on an interval of counts is a concave
gain in the flow through its row, so the vertices of the linear program are integral. Other potentials need one binary
variable per count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

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


@dataclass(eq=False)
class _Program:
    """Columns of the program beyond the cells: entries, gains, upper bounds, and which must be integers."""

    rows: list[Ints]
    columns: list[Ints]
    entries: list[Float64]
    gains: list[Float64]
    highest: list[Float64]
    integral: list[Bools]
    right: Float64
    size: int

    def add(self, constraint: int, entries: Any, gains: Any, highest: float, integral: bool) -> Ints:
        entries, gains = np.atleast_1d(np.asarray(entries, float)), np.atleast_1d(np.asarray(gains, float))
        at = self.size + np.arange(len(entries))
        self.rows.append(np.full(len(entries), constraint))
        self.columns.append(at)
        self.entries.append(entries)
        self.gains.append(gains)
        self.highest.append(np.full(len(entries), float(highest)))
        self.integral.append(np.full(len(entries), integral))
        self.size += len(entries)
        return at


def best_configuration(logits: Float64, factor: Ints, variable: Ints, tables: list[Float64]) -> Bools:
    """The configuration with the largest log-weight; variable[e] is a member of the count factor factor[e].

    Every variable is a member of at most two factors, on two sides, or some potential is not concave: otherwise the
    linear program may return fractions, which raise FractionalError.
    """
    n = len(logits)
    program = _Program(
        [factor], [variable], [np.ones(len(factor))], [logits], [np.ones(n)], [np.zeros(n, bool)],
        np.zeros(len(tables)), n,
    )  # fmt: skip
    choices: list[Ints] = []
    for i, table in enumerate(tables):
        counts = np.flatnonzero(table > -math.inf)
        if len(counts) == 0:
            raise InfeasibleError(
                f"A potential allows no count at all for {len(table) - 1} free variables. Relax it."
            )
        if is_concave(table):
            # count = low + segments; falling gains fill the segments in order
            program.right[i] = counts[0]
            slopes = np.diff(table[counts])
            if len(slopes) and np.ptp(slopes) == 0.0:
                program.add(i, -1.0, slopes[0], len(slopes), False)
            elif len(slopes):
                program.add(i, -np.ones(len(slopes)), slopes, 1.0, False)
        else:
            # One count of each is chosen: what all have in common would only blur the comparison.
            gains = table[counts] - table[counts].max()
            choices.append(program.add(i, -counts.astype(float), gains, 1.0, True))
    return _solve(program, choices, n)


def _solve(program: _Program, choices: list[Ints], n: int) -> Bools:
    from scipy import optimize

    milp: Any = optimize.milp
    linprog: Any = optimize.linprog

    right = np.concatenate([program.right, np.ones(len(choices))])
    rows, columns, entries = program.rows, program.columns, program.entries
    for k, at in enumerate(choices):
        rows.append(np.full(len(at), len(program.right) + k))
        columns.append(at)
        entries.append(np.ones(len(at)))
    where = (np.concatenate(rows), np.concatenate(columns))
    matrix = coo_array((np.concatenate(entries), where), shape=(len(right), program.size)).tocsr()
    cost = -np.concatenate(program.gains)
    highest = np.concatenate(program.highest)
    if n == 0 and program.size == 0:
        return np.zeros(0, bool)
    if choices:
        found: Any = milp(
            cost,
            integrality=np.concatenate(program.integral) | (np.arange(program.size) < n),
            bounds=optimize.Bounds(0.0, highest),
            constraints=optimize.LinearConstraint(matrix, right, right),
            options={"mip_rel_gap": 0.0},  # by default it stops within 1e-4 of the best
        )
    else:
        limits = np.stack([np.zeros(program.size), highest], axis=1)
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
