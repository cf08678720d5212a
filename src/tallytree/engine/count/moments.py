"""Sums over variables and tables: log-weights of configurations and their expectations, tables of single variables.

What a solved model says about one whose log-odds differ a little needs no other pass. Changing one log-odds by delta
multiplies Z by ``1 - P + P e^delta``; with posterior log-odds o,

    log Z' = log Z + log(1 + e^(o + delta)) - log(1 + e^o),

for any groups. Variables in no group change nothing but themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Float64, Ints
from ...structure.nested.count_tree import CountTree
from .. import native
from ..arithmetic import UNIT_ROUNDOFF
from ..log_sums import accurate_sum, add_exactly, softplus


def softplus_sum(nu: Float64) -> Float64:
    """``sum_d log(1 + e^nu_d)``, (B,); excluded and forced variables contribute nothing."""
    if native.present():
        return native.softplus_sums(nu)
    return np.asarray(softplus(np.where(np.isfinite(nu), nu, -math.inf)).sum(-1))


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
    """What log-odds alone say of configurations (..., D)."""
    return accurate_sum(_terms_of_logits(logits, states))


def _terms_of_logits(logits: Float64, states: NDArray[np.bool_]) -> Float64:
    """What every variable adds to a log-weight; forced variables enter with weight one."""
    forced = logits == math.inf
    if not forced.any():
        return np.where(states, logits, 0.0)
    return np.where(states, np.where(forced, 0.0, logits), np.where(forced, -math.inf, 0.0))


def log_weight(
    tree: CountTree, params: Any, states: NDArray[np.bool_], edges: Float64 | None = None
) -> Float64:
    """Log of the unnormalised weight of configurations, with what edges (..., E) add; large numbers may cancel."""
    own = _terms_of_logits(np.asarray(params.logits, np.float64), states)
    parts = [own] if edges is None else [own, edges]
    for g, members in enumerate(tree.groups):
        count = np.count_nonzero(states if len(members) == states.shape[-1] else states[..., members], -1)
        table = params.tables[g]
        if table.ndim == 1:
            parts.append(table[count[..., None]])
            continue
        shape = np.broadcast_shapes(table.shape[:-1], count.shape)
        picked = np.take_along_axis(
            np.broadcast_to(table, (*shape, table.shape[-1])), np.broadcast_to(count, shape)[..., None], -1
        )
        parts.append(picked)
    parts.append(np.asarray(params.batch_constant)[..., None])
    return accurate_sum(*parts)


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


# -- tables of single variables ------------------------------------------------------------------------------------


class Folded(NamedTuple):
    """Log-odds (B, D), what joins the constant of log Z, (B,), and the log of the product of ``u(0) + u(1)``, (B,).

    The last is the constant plus the sum of ``log(1 + e^nu)``, without the large numbers that may cancel in it; None
    if no variable has a table.
    """

    nu: Float64
    constant: Any
    log_norm: Any


def fold_singletons(nu: Float64, variables: Sequence[int], tables: Sequence[Float64]) -> Folded:
    """Log-odds (B, D) with tables (1 or B, 2) of single variables in them.

    A leaf with weights u(0) = f(0), u(1) = f(1) e^theta has log-odds log u(1)/u(0). If only one of the two values is
    possible the log-odds are infinite, and its weight belongs to the constant because forced leaves count with
    weight one.
    """
    touched, place = np.unique(np.asarray(variables, np.int64), return_inverse=True)
    own = nu[:, touched]
    a, b = np.where(own == math.inf, -math.inf, 0.0), np.where(own == math.inf, 0.0, own)
    lost = np.zeros_like(a)  # what rounding has taken from b - a so far
    for at, table in zip(place.tolist(), tables):
        a[:, at], rounded_a = add_exactly(a[:, at], table[:, 0])
        b[:, at], rounded_b = add_exactly(b[:, at], table[:, 1])
        lost[:, at] += rounded_b - rounded_a
    both = (a > -math.inf) & (b > -math.inf)
    difference, rounded = add_exactly(b, -a)
    odds = np.where(both, difference + (lost + rounded), np.where(b > -math.inf, math.inf, -math.inf))
    folded = nu.copy()
    folded[:, touched] = odds
    larger = np.maximum(a, b)  # -inf if neither value is possible
    weight = larger + np.where(both, np.log1p(np.exp(-np.abs(np.where(both, odds, 0.0)))), 0.0)
    rest = softplus(np.where(np.isfinite(folded), folded, -math.inf))
    rest[:, touched] = 0.0
    return Folded(folded, np.where(both, a, larger).sum(1), rest.sum(1) + weight.sum(1))


# -- log-odds that differ a little ---------------------------------------------------------------------------------

_STRETCH = 1024
_CANCELLED = 16.0  # how much larger than the answer the terms that make it may be


def changed_variables(tree: CountTree, old: Float64, new: Float64) -> NDArray[np.int64] | None:
    """Variables whose log-odds differ in some model of the batch; arrays of equal shape (B, D).

    None if several of them are in groups, which is known before all are compared when everything has changed.
    """
    for stop in (_STRETCH, old.shape[1]):
        changed = np.flatnonzero((old[:, :stop] != new[:, :stop]).any(0))
        if len(changed) > 1 and np.count_nonzero(tree.family.variable_parent[changed] >= 0) > 1:
            return None
    return changed


def only_free(tree: CountTree, variables: NDArray[np.int64]) -> bool:
    """Whether none of the variables is in a group of two or more."""
    return bool((tree.family.variable_parent[variables] < 0).all())


def changed_log_norm(log_norm: Float64, odds: Float64, old: Float64, new: Float64) -> Float64 | None:
    """The new log Z, (B,), when the log-odds of one variable move; None where that is not as good as an inference.

    It is not where log-odds are or become infinite, and where large numbers would cancel.
    """
    if not (np.isfinite(old).all() and np.isfinite(new).all() and np.isfinite(odds).all()):
        return None
    change = new - old
    found = log_norm + (np.logaddexp(0.0, odds + change) - np.logaddexp(0.0, odds))
    terms = np.abs(log_norm) + np.abs(odds) + np.abs(change)
    return found if bool((terms <= _CANCELLED * (1.0 + np.abs(found))).all()) else None
