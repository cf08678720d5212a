"""Directional derivatives of both passes: one Hessian-vector product of log Z, whatever the number of parameters.

Every message u carries, next to its values, the ratio t = u' / u of its derivative along a direction, entry by entry. A
merge turns ratios into weighted means,

    t_c(k) = sum_i a(i) b(k - i) (t_a(i) + t_b(k - i)) / c(k),

a table adds the direction's entry to t, and scales are constants. Ratios never overflow where values do. At the leaves
``t = (-p v, (1 - p) v)``, the derivative of a normalised Bernoulli law, so ratios stay centred. A number and its ratio
are the parts ``log u + i t`` of a complex number, and the passes are those of :mod:`.tree_pass`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...structure.nested.schedule import Schedule
from .arithmetic import LogSpace
from .tree_pass import downward, extend_tables, gather, upward


@dataclass(frozen=True, eq=False)
class Tangent:
    """Derivatives along a direction v, per model of the batch.

    Attributes
    ----------
    logits : (B, D)
        d posterior log-odds, the direction's own entry included.
    tables : (B, T)
        d log P(count) of every set, packed; 0 where the count is impossible.
    """

    logits: Any
    tables: Any


class Moving(LogSpace):
    """(logarithm, ratio of the derivative) as the parts of a complex number; `direction` (B, D) moves the leaves."""

    zero = complex(-math.inf, 0.0)

    def __init__(self, xp: Any, direction: Any) -> None:
        super().__init__(xp)
        self.direction = direction

    def leaves(self, nu: Any) -> Any:
        xp = self.xp
        log_p = super().leaves(nu)
        p, moving = xp.exp(log_p), xp.where(xp.isfinite(nu), self.direction, 0.0)
        return log_p + 1j * xp.stack([-p[..., 1] * moving, p[..., 0] * moving], axis=-1)

    def total(self, values: Any) -> Any:
        logs = self.xp.real(values)
        top = self.xp.max(logs, axis=-1)
        anchor = self.xp.where(top == -math.inf, 0.0, top)
        weights = self.xp.exp(logs - anchor[..., None])
        moment = self.xp.sum(weights * self.xp.imag(values), axis=-1)
        return self._number(anchor, self.xp.sum(weights, axis=-1), moment)

    def gathered(self, term: Any, count: int) -> Any:
        xp = self.xp
        top = xp.real(term(0))
        for i in range(1, count):
            top = xp.maximum(top, xp.real(term(i)))
        anchor = xp.where(top == -math.inf, 0.0, top)
        total, moment = xp.zeros_like(anchor), xp.zeros_like(anchor)
        for i in range(count):
            part = term(i)
            weight = xp.exp(xp.real(part) - anchor)
            total = total + weight
            moment = moment + weight * xp.imag(part)
        return self._number(anchor, total, moment)

    def _number(self, anchor: Any, total: Any, moment: Any) -> Any:
        """From sums in units of e^anchor: of weights, and of weights times their ratios."""
        return (anchor + self.xp.log(total)) + 1j * (moment / self.xp.where(total > 0.0, total, 1.0))

    def normalise(self, values: Any) -> tuple[Any, Any]:
        total = self.xp.real(self.total(values))
        return values - self.xp.where(total == -math.inf, 0.0, total)[..., None], total

    def against(self, u: Any, d: Any) -> tuple[Any, Any]:
        """Ratios too: the mean of those of ``u d`` becomes 0."""
        scale = self.total(u + d)
        return d - self.xp.where(self.xp.isfinite(scale), scale, 0.0)[..., None], self.xp.real(scale)

    def none(self, values: Any) -> Any:
        return super().none(self.xp.real(values))

    def magnitude(self, values: Any) -> Any:
        return super().magnitude(self.xp.real(values))


def tangent_pass(
    xp: Any, schedule: Schedule, nu: Any, tables: Any, nu_direction: Any, table_direction: Any
) -> Tangent:
    """Both passes in log-space with ratios; `nu_direction` (B, D), `table_direction` (B, T)."""
    batch, n = nu.shape
    moving = Moving(xp, nu_direction)
    # The constants behind the tables do not move.
    still = xp.zeros((batch, 2), dtype=nu.dtype, device=nu.device)
    extended = extend_tables(xp, tables) + 1j * xp.concat([table_direction, still], axis=-1)
    up = upward(xp, schedule, moving, nu, extended)
    down = downward(xp, schedule, moving, up, extended)[0]
    slopes = xp.imag(xp.reshape(gather(xp, down, schedule.leaf_down), (batch, n, 2)))
    u, d = gather(xp, up.storage, schedule.set_up), gather(xp, down, schedule.set_down)
    possible = (xp.real(u) > -math.inf) & (xp.real(d) > -math.inf)
    return Tangent(
        nu_direction + slopes[..., 1] - slopes[..., 0], xp.where(possible, xp.imag(u) + xp.imag(d), 0.0)
    )
