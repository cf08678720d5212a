"""Sums over variables and tables: log-weights of configurations and their expectations."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Float64, Ints
from ...structure.nested.count_tree import CountTree
from .. import native
from ..log_sums import accurate_sum
from .arithmetic import UNIT_ROUNDOFF


def softplus_sum(nu: Float64) -> Float64:
    """``sum_d log(1 + e^nu_d)``, (B,); excluded and forced variables contribute nothing."""
    if native.present():
        return native.softplus_sums(nu)
    finite = np.isfinite(nu)
    return np.asarray(np.where(finite, np.logaddexp(0.0, np.where(finite, nu, 0.0)), 0.0).sum(-1))


class ExpectationSums(NamedTuple):
    """What an entropy is made of, (B,) each.

    Tables enter relative to their own expectations m: the size of their entries only shows in the rounding of m.
    """

    energy: Float64  # sum over the finite log-odds of nu P(y = 1)
    size: Float64  # and of |nu|
    mean: Float64  # sum over the sets of m
    mean_size: Float64  # and of |m|
    terms: Float64  # sum over the possible counts of P(count) (m - log f)
    terms_size: Float64  # of the sizes of these
    away: Float64  # of |m - log f| where P(count) is not 0
    farthest: Float64  # the largest |m - log f|


def expectation_sums(
    nu: Float64, on: Float64, probs: Float64, tables: Float64, offset: Ints
) -> ExpectationSums:
    """From log-odds and marginals (B, D), P(count) (B, T) and log-tables (1 or B, T)."""
    if native.present():
        return ExpectationSums(*native.expectation_sums(nu, on, probs, tables, offset).T)
    finite = np.where(np.isfinite(nu), nu, 0.0)
    dead = tables == -math.inf
    safe = np.where(dead, 0.0, tables)
    mean = np.zeros((len(nu), 0)) if len(offset) < 2 else np.add.reduceat(probs * safe, offset[:-1], axis=1)
    gap = np.where(dead, 0.0, np.repeat(mean, np.diff(offset), axis=1) - safe)
    terms, away = probs * gap, np.abs(gap)
    return ExpectationSums(
        (finite * on).sum(-1),
        np.abs(finite).sum(-1),
        mean.sum(-1),
        np.abs(mean).sum(-1),
        terms.sum(-1),
        np.abs(terms).sum(-1),
        (away * (probs != 0.0)).sum(-1),
        away.max(-1, initial=0.0),
    )


def weight_of_logits(logits: Float64, states: NDArray[np.bool_]) -> Float64:
    """What log-odds alone say of configurations (..., D); forced variables enter with weight one."""
    forced = logits == math.inf
    if not forced.any():
        return accurate_sum(np.where(states, logits, 0.0))
    on = accurate_sum(np.where(states, np.where(forced, 0.0, logits), 0.0))
    return np.where((~states & forced).any(-1), -math.inf, on)


def log_weight(tree: CountTree, params: Any, states: NDArray[np.bool_]) -> Float64:
    """Log of the unnormalised weight of configurations; forced variables enter with weight one."""
    total = weight_of_logits(np.asarray(params.logits, np.float64), states)
    for g, members in enumerate(tree.groups):
        count = np.count_nonzero(states if len(members) == states.shape[-1] else states[..., members], -1)
        table = params.tables[g]
        if table.ndim == 1:
            total = total + table[count]
            continue
        shape = np.broadcast_shapes(table.shape[:-1], count.shape)
        picked = np.take_along_axis(
            np.broadcast_to(table, (*shape, table.shape[-1])), np.broadcast_to(count, shape)[..., None], -1
        )
        total = total + picked[..., 0]
    return np.asarray(total + params.batch_constant)


def cross_entropy(
    odds: Float64, nu: Float64, log_mean: Float64, tables: Any, counts: Any, bound: Float64
) -> tuple[Float64, Float64]:
    """-E[log q(y)] of a model q under another law, (...,), and what rounding may have done to it.

    ``-log q(y) = sum_d -log q_d(y_d) + log E_q[f] - sum_i log f_i(c_i)``, where q_d are the variables of q by
    themselves. Tables enter relative to their value at the most probable count.

    Parameters
    ----------
    odds : (..., D)
        Posterior log-odds of the law, right to `bound`.
    nu, log_mean, tables
        Log-odds (..., D), log E_q[f] (...,) right to `bound`, and log-tables (..., n + 1) of q.
    counts : list of (..., n + 1)
        Log-probabilities of the counts of these tables under the law.
    """
    on, off = expit(odds), expit(-odds)
    finite = np.isfinite(nu)
    size = np.where(finite, nu, 0.0)
    away = np.abs(size)
    each = np.where(finite, np.log1p(np.exp(-away)) + away * np.where(size > 0.0, off, on), 0.0)
    excluded = (np.isneginf(nu) & (odds > -math.inf)) | (np.isposinf(nu) & (odds < math.inf))
    rounding = each.sum(-1) + np.abs(log_mean)
    total, references = each.sum(-1), np.asarray(log_mean)
    for table, log_probs in zip(tables, counts):
        probs = np.exp(log_probs)
        mode = np.argmax(log_probs, -1)[..., None]
        shape = np.broadcast_shapes(table.shape, log_probs.shape)
        reference = np.take_along_axis(
            np.broadcast_to(table, shape), np.broadcast_to(mode, (*shape[:-1], 1)), -1
        )[..., 0]
        dead = table == -math.inf
        safe = np.where(np.isneginf(reference), 0.0, reference)
        gap = np.where((probs > 0) & ~dead, safe[..., None] - np.where(dead, 0.0, table), 0.0)
        total = total + (probs * gap).sum(-1)
        references = references - safe
        rounding = rounding + np.abs(safe) + 8.0 * (probs * np.abs(gap)).sum(-1)
        impossible = ((log_probs > -math.inf) & dead).any(-1)
        total = np.where(impossible, math.inf, total)
    total = np.where(excluded.any(-1), math.inf, total + references)
    spread = (away * on * off).sum(-1)
    return np.asarray(total), np.asarray(4.0 * UNIT_ROUNDOFF * rounding + bound * (1.0 + spread))
