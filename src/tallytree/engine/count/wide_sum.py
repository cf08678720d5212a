"""Log Z as a sum of plain weights, each a mantissa and a power of two: for models in which large numbers cancel.

The engines find the mean of the potentials under independent variables. Where every likely configuration is improbable
under these, ``log Z = log_mean + sum log(1 + e^nu)`` is a small difference of large numbers. Weights that are not
normalised need no such difference: ``e^x = 2^n e^(x - n log 2)`` is split exactly, exponents add as integers, mantissas
multiply, and the logarithm of the total is right to its last digits. O(n^2) at worst.

Messages from weights that are mantissas and powers of two: the last rung where there is no compiled engine.

A logarithm of size 1e5 is known to 1e-11, and where hundreds of them cancel the digits that are left may be too few.
Here exponents are integers and cancel exactly; only mantissas are rounded. O(n^2) at worst, as in `wide_sum`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64
from ...structure.nested.schedule import DownStep, Schedule
from ...structure.nested.tree import TreeProgram
from .arithmetic import UNIT_ROUNDOFF

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


LN2_HIGH, LN2_LOW = (
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
)  # n times the first is exact to n = 2^20
ZERO = -1e15  # the exponent of zero
_SPLIT = 2.0**20


class Wide(NamedTuple):
    """``value * 2^exponent``, value in [1, 2) or 0, exponent an integer held in a double."""

    value: Float64
    exponent: Float64


class Tree(NamedTuple):
    """Tables (B, T + 2), a one and a zero behind them, and the upward messages of all nodes."""

    tables: Wide
    up: Wide


def log_sum(program: TreeProgram, schedule: Schedule, nu: Float64, tables: Float64) -> Float64:
    """Log of the sum of ``prod e^(nu_d y_d) prod f`` over all y, (B,); forced variables have weight one."""
    up = upward(schedule, nu, tables).up
    free = nu[:, program.parent[: nu.shape[1]] < 0]
    finite = np.isfinite(free)
    total = np.where(finite, np.logaddexp(0.0, np.where(finite, free, 0.0)), 0.0).sum(-1)
    if len(schedule.roots.nodes):
        root = take(up, schedule.roots.own_cells)
        top = root.exponent.max(-1)
        mass = (root.value * np.exp2(np.maximum(root.exponent - top[..., None], -1100.0))).sum(-1)
        exponent = top.sum(-1)  # of all roots together: what cancels between them does so exactly
        total = total + np.log(mass).sum(-1) + exponent * LN2_LOW + exponent * LN2_HIGH
    return np.asarray(total)


def upward(schedule: Schedule, nu: Float64, tables: Float64) -> Tree:
    batch, n = nu.shape
    packed = _exp(np.concatenate([tables, np.zeros((batch, 1)), np.full((batch, 1), -math.inf)], axis=1))
    up = nothing((batch, schedule.up_length))
    forced = nu == math.inf
    leaves = _exp(np.stack([np.where(forced, -math.inf, 0.0), np.where(forced, 0.0, nu)], axis=-1))
    put(up, slice(1, 1 + 2 * n), leaves)
    for step in schedule.up:
        merged = _merge(take(up, step.left), take(up, step.right), step.width)
        put(
            up,
            slice(step.start, step.start + step.left.shape[0] * step.width),
            times(merged, take(packed, step.table)),
        )
    return Tree(packed, up)


def nothing(shape: tuple[int, ...]) -> Wide:
    return Wide(np.zeros(shape), np.full(shape, ZERO))


def put(store: Wide, cells: slice, values: Wide) -> None:
    for kept, part in zip(store, values):
        kept[:, cells] = part.reshape(len(part), -1)


def times(a: Wide, b: Wide) -> Wide:
    return settled(a.value * b.value, a.exponent + b.exponent)


def take(store: Wide, cells: NDArray[np.int64]) -> Wide:
    return Wide(store.value[:, cells], store.exponent[:, cells])


def _exp(x: Float64) -> Wide:
    finite = x > -math.inf
    safe = np.where(finite, x, 0.0)
    n = np.rint(safe / math.log(2.0))
    rough = np.rint(n / _SPLIT) * _SPLIT  # both parts of n LN2_HIGH and both differences are exact
    rest = ((safe - rough * LN2_HIGH) - (n - rough) * LN2_HIGH) - n * LN2_LOW
    return settled(np.where(finite, np.exp(rest), 0.0), n)


def settled(value: Float64, exponent: Float64) -> Wide:
    mantissa, shift = np.frexp(value)
    dead = (value <= 0.0) | (exponent < 0.5 * ZERO)
    return Wide(np.where(dead, 0.0, 2.0 * mantissa), np.where(dead, ZERO, exponent + (shift - 1.0)))


def _merge(a: Wide, b: Wide, width: int) -> Wide:
    if a.value.shape[-1] > b.value.shape[-1]:
        a, b = b, a
    n, m = a.value.shape[-1], b.value.shape[-1]
    shape = (*b.value.shape[:-1], n - 1 + max(width, m))
    room = Wide(np.zeros(shape), np.full(shape, ZERO))
    for store, values in zip(room, b):
        store[..., n - 1 : n - 1 + m] = values
    places = [slice(n - 1 - i, n - 1 - i + width) for i in range(n)]
    top = np.full((*shape[:-1], width), 2.0 * ZERO)
    for i, place in enumerate(places):
        np.maximum(top, a.exponent[..., i : i + 1] + room.exponent[..., place], out=top)
    total = np.zeros_like(top)
    for i, place in enumerate(places):
        power = np.exp2(np.maximum(a.exponent[..., i : i + 1] + room.exponent[..., place] - top, -1100.0))
        total += a.value[..., i : i + 1] * room.value[..., place] * power
    return settled(total, top)
