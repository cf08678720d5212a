"""Directional derivatives of both passes: one Hessian-vector product of log Z, whatever the number of parameters.

Every message u carries, next to its values, the ratio t = u' / u of its derivative along a direction, entry by entry. A
merge turns ratios into weighted means,

    t_c(k) = sum_i a(i) b(k - i) (t_a(i) + t_b(k - i)) / c(k),

a table adds the direction's entry to t, and scales are constants. Ratios never overflow where values do. At the leaves
``t = (-p v, (1 - p) v)``, the derivative of a normalised Bernoulli law, so ratios stay centred. A number and its ratio
are the parts ``log u + i t`` of a complex number, and the passes are those of :mod:`.tree_pass`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import Float64, Ints
from ...structure.nested.schedule import Schedule
from ..arithmetic import Carried
from .tree_pass import TreePass


class _TangentPass(TreePass):
    """Both passes along a direction of the log-odds, (B, D), and of the tables, (B, T)."""

    def __init__(
        self,
        schedule: Schedule,
        nu: Float64,
        tables: Float64,
        nu_direction: Float64,
        table_direction: Float64,
    ) -> None:
        super().__init__(schedule, Carried(), nu, tables)
        self.direction = np.where(np.isfinite(nu), nu_direction, 0.0).T
        # The constants behind the tables do not move.
        self.pushed = np.concatenate([table_direction, np.zeros((self.batch, 2))], axis=1).T

    def leaves(self) -> Any:
        log_p = super().leaves()
        p = np.exp(log_p.real)
        return log_p + 1j * np.stack([-p[1] * self.direction, p[0] * self.direction])

    def _table_values(self, log_values: Float64, cells: Ints) -> Any:
        return log_values + 1j * self.numbers(self.pushed, cells)

    def _scaled(self, message: Any, log_scale: Float64, together: Any) -> Any:
        """Ratios too: the mean of those of ``up down`` becomes 0."""
        return super()._scaled(message, log_scale, together) - 1j * together.imag


def tangent_pass(
    schedule: Schedule, nu: Float64, tables: Float64, nu_direction: Float64, table_direction: Float64
) -> tuple[Float64, Float64]:
    """D posterior log-odds (B, D), with the direction's own entry, and d log P(count) of every set, packed (B, T).

    The latter is 0 where the count is impossible.
    """
    passes = _TangentPass(schedule, nu, tables, nu_direction, table_direction)
    passes.upward()
    passes.downward()
    slopes = passes.down[schedule.leaf_down].imag
    u, d = passes.beliefs()
    moved = np.where((u.real > -np.inf) & (d.real > -np.inf), u.imag + d.imag, 0.0)
    return nu_direction + (slopes[:, 1] - slopes[:, 0]).T, moved.T
