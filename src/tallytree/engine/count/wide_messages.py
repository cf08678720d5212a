"""Messages from weights that are mantissas and powers of two: the last rung where there is no compiled engine.

A logarithm of size 1e5 is known to 1e-11, and where hundreds of them cancel the digits that are left may be too few.
Here exponents are integers and cancel exactly; only mantissas are rounded. O(n^2) at worst, as in `wide_sum`.
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64
from ...structure.nested.schedule import DownStep, Schedule
from .arithmetic import UNIT_ROUNDOFF
from .wide_sum import LN2_HIGH, LN2_LOW, Tree, Wide, nothing, put, settled, take, times, upward

_EXACT = 7e5  # e^x is split without rounding up to this x


def messages(schedule: Schedule, nu: Float64, tables: Float64) -> tuple[Float64, Float64]:
    """Messages (B, D) and a bound (B,) on their errors; models must be possible."""
    batch, n = nu.shape
    tree = upward(schedule, nu, tables)
    down = _downward(schedule, tree, batch)
    leaf = take(down, schedule.leaf_down.reshape(n, 2))
    off, on = (Wide(leaf.value[..., y], leaf.exponent[..., y]) for y in (0, 1))
    never, always = (on.value == 0.0), (off.value == 0.0)
    power = on.exponent - off.exponent
    ratio = np.log(np.where(never | always, 1.0, on.value) / np.where(never | always, 1.0, off.value))
    found = power * LN2_HIGH + (power * LN2_LOW + ratio)
    found = np.where(never, -math.inf, np.where(always, math.inf, found))
    found = np.where((never & always) | (schedule.leaf_down[:, 0] == 0), 0.0, found)
    return found, _bound(schedule, nu, tables, found)


def _bound(schedule: Schedule, nu: Float64, tables: Float64, found: Float64) -> Float64:
    """Roundings of mantissas gather along the tree; the answer and numbers too large to be split are rounded too."""
    sizes = np.concatenate([np.abs(nu), np.abs(tables)], axis=1)
    far = np.where(np.isfinite(sizes) & (sizes > _EXACT), sizes, 0.0).sum(axis=1)
    size = np.where(np.isfinite(found), np.abs(found), 0.0).max(axis=1, initial=0.0)
    gathered = schedule.rounding + 8.0 * schedule.levels + 2.0 * nu.shape[1]
    return np.asarray(UNIT_ROUNDOFF * (gathered + 4.0 * (1.0 + size) + 2.0 * far))


def _downward(schedule: Schedule, tree: Tree, batch: int) -> Wide:
    """Messages from above of all nodes, without their own tables."""
    down, weighted = nothing((batch, schedule.down_length)), nothing((batch, schedule.down_length))

    def settle(step: DownStep, message: Wide) -> None:
        cells = slice(step.start, step.start + len(step.nodes) * step.width)
        put(down, cells, message)
        put(weighted, cells, times(message, take(tree.tables, step.table)))

    roots = schedule.roots
    if len(roots.nodes):
        shape = (batch, len(roots.nodes), roots.width)
        settle(roots, Wide(np.ones(shape), np.zeros(shape)))
    for step in schedule.down:
        settle(
            step, _correlate(take(weighted, step.parent_cells), take(tree.up, step.sibling_cells), step.width)
        )
    return down


def _correlate(g: Wide, u: Wide, width: int) -> Wide:
    """``out[i] = sum_j g[i + j] u[j]``, every sum at the exponent of its largest term."""
    n, m = u.value.shape[-1], g.value.shape[-1]
    shape = (*g.value.shape[:-1], max(width + n - 1, m))
    room = nothing(shape)
    for store, values in zip(room, g):
        store[..., :m] = values
    places = [slice(j, j + width) for j in range(n)]
    top = np.full((*shape[:-1], width), -math.inf)
    for j, place in enumerate(places):
        np.maximum(top, room.exponent[..., place] + u.exponent[..., j : j + 1], out=top)
    total = np.zeros_like(top)
    for j, place in enumerate(places):
        power = np.exp2(np.maximum(room.exponent[..., place] + u.exponent[..., j : j + 1] - top, -1100.0))
        total += room.value[..., place] * u.value[..., j : j + 1] * power
    return settled(total, top)
