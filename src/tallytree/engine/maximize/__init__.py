"""Maximisation: most probable configurations, max-marginals and k-best lists in the (max, +) semiring.

Every function takes a tree, log-odds ``nu`` (B, D) and packed log-tables (1 or B, T), as the sum-product executors do.
Values are logs of unnormalised weights, variables forced on by infinite log-odds entering with weight one. A bounded
number of message cells is worked on at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ...arrays import Float64, States
from ...structure.nested.count_tree import CountTree
from . import passes
from .passes import Plan, Upward, extended, plan_of, upward
from .ranked import k_best

_CELLS = 1 << 22


def mode(tree: CountTree, nu: Float64, tables: Float64) -> tuple[States, Float64]:
    """A best configuration of every model (B, D) and its value (B,); meaningless where the value is -inf."""
    states, values = np.zeros(nu.shape, np.uint8), np.empty(len(nu))
    for rows, plan, up, _ in _passes(tree, nu, tables):
        own = nu[rows]
        values[rows] = _total(plan, up, own)
        passes.decode(plan, up, own, states[rows])
        states[rows, plan.forest.free] = own[:, plan.forest.free] > 0.0
    return states, values


def max_value(tree: CountTree, nu: Float64, tables: Float64) -> Float64:
    """The largest value of every model, (B,)."""
    values = np.empty(len(nu))
    for rows, plan, up, _ in _passes(tree, nu, tables):
        values[rows] = _total(plan, up, nu[rows])
    return values


def max_marginals(tree: CountTree, nu: Float64, tables: Float64) -> Float64:
    """Largest value with each variable off and on, (B, D, 2)."""
    out = np.empty((*nu.shape, 2))
    for rows, plan, up, table in _passes(tree, nu, tables):
        own, found = nu[rows], out[rows]
        down = _outside(plan, up, own, table)
        passes.block_max_marginals(plan, up.messages, down, own, found)
        found[:, plan.forest.free] = _total(plan, up, own)[:, None, None] + passes.free_max_marginals(
            own[:, plan.forest.free]
        )
    return out


def max_count_values(tree: CountTree, nu: Float64, tables: Float64, set_id: int) -> Float64:
    """Largest value for every count of a set, (B, n + 1)."""
    plan = plan_of(tree)
    span = plan.span(int(plan.set_node[set_id]))
    out = np.empty((len(nu), span.stop - span.start))
    for rows, _, up, table in _passes(tree, nu, tables):
        down = _outside(plan, up, nu[rows], table)
        out[rows] = up.messages[:, span] + down[:, span]
    return out


def ranked(tree: CountTree, nu: Float64, tables: Float64, k: int) -> tuple[States, Float64]:
    """The k best configurations (B, k', D) of every model and their values (B, k').

    k' is the largest number found for any model; rows of models with fewer end in values -inf and zeros.
    """
    plan = plan_of(tree)
    table = extended(plan, tables)
    found = [k_best(plan, row, table[b % len(table)], k) for b, row in enumerate(nu)]
    most = max((len(values) for _, values in found), default=0)
    states = np.zeros((len(nu), most, nu.shape[1]), np.uint8)
    values = np.full((len(nu), most), -math.inf)
    for b, (y, value) in enumerate(found):
        states[b, : len(y)], values[b, : len(y)] = y, value
    return states, values


def _passes(tree: CountTree, nu: Float64, tables: Float64) -> Iterator[tuple[slice, Plan, Upward, Float64]]:
    """Upward passes over slices of the batch, with their extended tables."""
    plan = plan_of(tree)
    table = extended(plan, tables)
    step = max(1, _CELLS // (plan.n_cells + 1))
    for start in range(0, len(nu), step):
        rows = slice(start, start + step)
        own = table if len(table) == 1 else table[rows]
        yield rows, plan, upward(plan, nu[rows], own), own


def _total(plan: Plan, up: Upward, nu: Float64) -> Float64:
    found = [best.sum(-1) for best in passes.root_maxima(plan, up.messages)]
    return np.asarray(sum(found, passes.free_value(nu[:, plan.forest.free])))


def _outside(plan: Plan, up: Upward, nu: Float64, table: Float64) -> Float64:
    """Downward messages; each component starts from the best value of all others."""
    total = _total(plan, up, nu)[:, None]
    with np.errstate(invalid="ignore"):
        rest = [
            np.where(total > -math.inf, total - best, -math.inf)
            for best in passes.root_maxima(plan, up.messages)
        ]
    return passes.downward(plan, up.messages, table, rest)
