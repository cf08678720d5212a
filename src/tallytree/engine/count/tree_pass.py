"""Sum-product on a scheduled binary forest, by any arithmetic of :mod:`~tallytree.engine.arithmetic`.

Upward messages include a node's table, downward messages exclude it, so every table is used once:

    up_p   = f_p . (up_l * up_r)                    (* convolution, . product by entries)
    down_l = correlate(f_p . down_p, up_r)
    belief = up . down / <up, down>

Messages are normalised, up to sum 1 and down to <up, down> = 1; scales are carried as logarithms. Messages of many
nodes lie side by side: storage has axes (cell, model), and a gathered bucket has the axes of the arithmetic, of which
the first three have length one and rows are nodes times models.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, log_expit

from ...arrays import Float64, Ints
from ...structure.nested.schedule import DownStep, Schedule
from ..answer import Answer
from ..arithmetic import UNIT_ROUNDOFF, Direct, Fourier
from ..forest.certificate import log_odds

_TINY = 1e-300  # anything smaller may have been lost to underflow
_FAINTEST = -690.0  # plain numbers have all their digits down to e^-708


def resized(values: Float64, width: int, zero: complex) -> Float64:
    """Messages (..., count, row) cut or padded to so many counts."""
    missing = width - values.shape[-2]
    if missing <= 0:
        return values[..., :width, :]
    padding = np.full((*values.shape[:-2], missing, values.shape[-1]), zero, values.dtype)
    return np.concatenate([values, padding], axis=-2)


class TreePass:
    """Both passes for a batch of log-odds (B, D) with packed log-tables (B, T)."""

    def __init__(self, schedule: Schedule, arithmetic: Direct, nu: Float64, tables: Float64) -> None:
        self.schedule, self.arithmetic, self.nu = schedule, arithmetic, nu
        self.batch, self.n = nu.shape
        self.underflows = arithmetic.keep > 0.0
        # The two constants that nodes without a table and padding refer to.
        constants = np.broadcast_to([0.0, -math.inf], (self.batch, 2))
        self.tables = np.concatenate([tables, constants], axis=1).T
        self.log_mean, self.faintest = np.zeros(self.batch), np.zeros(self.batch)
        self.size = np.ones(self.batch)  # largest logarithm met: it is known to so many units of round-off
        # Error of a node's merge relative to the mass it keeps, by up rank
        self.error = np.zeros((schedule.n_internal + 1, self.batch))

    def numbers(self, storage: Float64, cells: Ints) -> Float64:
        """Messages (1, 1, 1, count, row) of several nodes, those of all models side by side."""
        return storage[cells.T].reshape(1, 1, 1, cells.shape[1], -1)

    def _put(self, storage: Float64, start: int, values: Float64) -> None:
        width = values.shape[3]
        rows = values.reshape(width, -1, self.batch).swapaxes(0, 1)
        storage[start : start + rows.shape[0] * width] = rows.reshape(-1, self.batch)

    def _models(self, values: Float64) -> Float64:
        """Numbers of all rows by node and model."""
        return values.reshape(-1, self.batch)

    def _weighed(self, message: Float64, cells: Ints) -> tuple[Float64, Float64]:
        """Messages times the tables of their nodes relative to the largest entries, and these, by row."""
        log_f = self.numbers(self.tables, cells)
        top = log_f.max(axis=3)[0, 0, 0]
        safe = np.where(top == -math.inf, 0.0, top)
        if self.underflows:
            lowest = np.where(log_f > -math.inf, log_f, safe).min(axis=3)[0, 0, 0]
            self._see(np.where(top > -math.inf, lowest - safe, 0.0), message)
        return self.arithmetic.times(message, self.arithmetic.enter(log_f - safe)), safe

    def _see(self, log_factor: Float64 | float, *messages: Float64) -> None:
        """Note the logarithm of the smallest product of positive numbers that may have been made."""
        for x in messages if not isinstance(self.arithmetic, Fourier) else ():
            # Otherwise a bound covers what is lost relative to the largest entries.
            log_factor = log_factor + np.log(np.where(x > 0.0, x, 1.0).min(axis=3)[0, 0, 0])
        if np.ndim(log_factor):
            self.faintest = np.minimum(self.faintest, self._models(np.asarray(log_factor)).min(0))

    def _measure(self, message: Float64) -> None:
        if not self.underflows:
            logs = np.abs(self.arithmetic.log(message))
            largest = np.where(np.isfinite(logs), logs, 0.0).max(axis=3)
            self.size = np.maximum(self.size, 1.0 + self._models(largest).max(0))

    def upward(self) -> Float64:
        """Messages of all nodes; returns log E[product of potentials], (B,)."""
        ar, schedule = self.arithmetic, self.schedule
        if self.underflows:
            leaves = np.stack([expit(-self.nu.T), expit(self.nu.T)])  # (2, D, B)
        else:
            leaves = ar.enter(np.stack([log_expit(-self.nu.T), log_expit(self.nu.T)]))
        self.up = np.full((schedule.up_length, self.batch), ar.zero, leaves.dtype)
        self.up[1 : 1 + 2 * self.n] = leaves.swapaxes(0, 1).reshape(2 * self.n, self.batch)
        rank = 0
        for step in schedule.up:
            a, b = self.numbers(self.up, step.left), self.numbers(self.up, step.right)
            merged = resized(ar.product(a, b), step.width, ar.zero)
            if self.underflows:
                self._see(0.0, a, b)
            weighted, top = self._weighed(merged, step.table)
            log_mass = ar.log(ar.total(weighted, 3))[0, 0, 0]
            message = ar.scale(weighted, np.where(log_mass == -math.inf, 0.0, log_mass))
            self._put(self.up, step.start, message)
            if self.underflows:
                # The table's largest entry is 1, so an error in the merge keeps its size and the mass shrinks.
                lost = min(a.shape[3], b.shape[3]) * _TINY + ar.product_error(a, b)[0, 0]
                relative = np.exp(np.clip(-log_mass, -700.0, 700.0))
                self.error[rank : rank + len(step.nodes)] = self._models(lost * relative)
            self.log_mean = self.log_mean + self._models(log_mass + top).sum(0)
            self._measure(message)
            rank += len(step.nodes)
        return self.log_mean

    def downward(self) -> Float64:
        """Down messages; returns a bound on the error of any probability, (B,)."""
        ar, schedule, up = self.arithmetic, self.schedule, self.up
        self.down = np.full((schedule.down_length, self.batch), ar.zero, up.dtype)
        self.weighted = self.down.copy()
        self.path_error = np.zeros((schedule.n_placed, self.batch))
        self.squares = np.zeros(self.batch)
        roots = schedule.roots
        if len(roots.nodes):
            shape = (1, 1, 1, roots.width, len(roots.nodes) * self.batch)
            self._settle(roots, np.full(shape, ar.one, up.dtype), np.zeros(shape[4:]))
        for step in schedule.down:
            u = self.numbers(up, step.sibling_cells)
            width = step.width + u.shape[3] - 1
            g = resized(self.numbers(self.weighted, step.parent_cells), width, ar.zero)
            own = self.numbers(up, step.own_cells)
            fresh = np.zeros(g.shape[4])
            if self.underflows:
                self._see(0.0, g, u)
                fresh = min(g.shape[3], u.shape[3]) * _TINY + ar.adjoint_error(g, u, own)[0, 0, 0]
            self._settle(step, ar.adjoint(g, u, own), fresh)
        worst_path = self.path_error.max(axis=0, initial=0.0)
        # Errors of different merges are independent: four standard deviations of their sum.
        return np.asarray(4.0 * np.sqrt(self.squares) + worst_path)

    def _settle(self, step: DownStep, message: Float64, fresh: Float64) -> None:
        """Scale to <up, down> = 1, weigh by the table for the children, and add up the errors."""
        ar, count = self.arithmetic, len(step.nodes)
        together = ar.total(ar.times(self.numbers(self.up, step.own_cells), message), 3)[0, 0, 0]
        log_scale = ar.log(together)
        message = ar.scale(message, np.where(np.isfinite(log_scale), log_scale, 0.0))
        self._put(self.down, step.start, message)
        heavy, _ = self._weighed(message, step.table)
        self._put(self.weighted, step.start, heavy)
        if self.underflows:
            damage = self.error[step.up_rank] * self._models(heavy.sum(axis=3))
            self.squares = self.squares + (damage * damage).sum(0)
            fresh = fresh * np.exp(np.clip(-log_scale, -700.0, 700.0))
            inherited = self.path_error[step.parent_rank]
            self.path_error[step.down_rank : step.down_rank + count] = inherited + self._models(fresh)
        self._measure(message)


def sum_product(
    schedule: Schedule, arithmetic: Direct, nu: Float64, tables: Float64, *, beliefs: bool = False
) -> Answer:
    """Answers for a batch of log-odds (B, D) with packed log-tables (B, T); `beliefs` of the sets if wanted."""
    passes = TreePass(schedule, arithmetic, nu, tables)
    log_mean = passes.upward()
    error = passes.downward()
    impossible = log_mean == -math.inf

    log_leaf = arithmetic.log(passes.down[schedule.leaf_down])  # (D, 2, B)
    known = (schedule.leaf_down[:, 0] != 0)[:, None] & ~impossible
    messages = np.where(known, log_odds(np.moveaxis(log_leaf, 1, 2)), 0.0).T

    log_beliefs = None
    if beliefs:
        u, d = arithmetic.log(passes.up[schedule.set_up]), arithmetic.log(passes.down[schedule.set_down])
        log_beliefs = np.where((u == -math.inf) | (d == -math.inf), -math.inf, u + d).T

    # An error e in <up, down> = 1 moves a probability P by at most e, hence its odds by e / min(P, 1 - P).
    posterior = np.where(np.isfinite(nu), nu, 0.0) + messages
    worst = np.exp(np.clip(np.abs(posterior), 0.0, 700.0)).max(axis=1, initial=1.0)
    gathered = schedule.rounding if passes.underflows else 8.0 * schedule.levels
    bound = 2.0 * error * worst + UNIT_ROUNDOFF * (gathered * passes.size + 4.0 * (1.0 + passes.size))
    if passes.underflows:
        # A zero may be an impossible state or an underflow; only logarithms can tell.
        doubtful = (np.isfinite(nu) & ~np.isfinite(messages)).any(axis=1) | (passes.faintest < _FAINTEST)
        bound = np.where(doubtful, math.inf, bound)
    sound = np.isfinite(bound) & ~np.isnan(messages).any(axis=1)
    bound = np.where(impossible & (not passes.underflows), 0.0, np.where(sound, bound, math.inf))
    return Answer(log_mean, np.ascontiguousarray(messages), log_beliefs, bound)
