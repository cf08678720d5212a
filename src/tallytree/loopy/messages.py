"""Messages of a batch of factors, sum-product and max-product, and the Bethe approximation of log Z from them.

    log Z_Bethe = sum_a log Z_a(nu^a) + sum_i (1 - d_i) log(1 + exp(l_i))

for variables of degree d_i with beliefs l_i; factor a sees its members with log-odds nu^a. One call serves all factors
of one size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ..arrays import Float64
from ..engine import masks
from ..engine.count import infer, moments
from ..engine.maximize import passes
from ..engine.problem import Problem
from ..errors import InfeasibleError
from ..models.count import CountModel
from ..structure.nested.count_tree import CountTree
from .layout import Batch, Layout

_Answer = tuple[Float64, Float64]  # values of factors, messages to their members
Solver = Callable[[Batch, Float64], _Answer]


def sum_product(batch: Batch, nu: Float64) -> tuple[Float64, Float64]:
    """The log Z of every factor with the log-odds ``nu`` of its members, (F,), and the messages to them, flat.

    Forced members have weight one.
    """
    return _answered(batch, nu, np.logaddexp, _model_sums, count_sums)


def max_product(batch: Batch, nu: Float64) -> tuple[Float64, Float64]:
    """Largest log-weight of every factor, (F,), and max-product messages to its members, flat."""
    return _answered(batch, nu, np.maximum, _model_maxima, _count_maxima)


def _answered(
    batch: Batch,
    nu: Float64,
    add: np.ufunc,
    of_models: Callable[..., _Answer],
    of_counts: Callable[..., _Answer],
) -> _Answer:
    """What factors answer by their kind, with the messages flat; one that allows nothing is refused."""
    if batch.kind == "count":
        value, messages = of_counts(batch.block(nu), batch.tables)
    else:
        value, messages = _pairs(batch, nu, add) if batch.kind == "pair" else _models(batch, nu, of_models)
    if np.isneginf(value).any() or np.isnan(nu).any():
        dead = np.isneginf(value) | np.isnan(batch.block(nu)).any(1)
        raise InfeasibleError(
            f"Factor {int(batch.factors[np.argmax(dead)])} of the graph cannot be satisfied: the other factors and the "
            "infinite logits of its members leave no count that it allows. Relax one of them."
        )
    return value, batch.unblock(messages)


def count_sums(nu: Float64, tables: Float64) -> tuple[Float64, Float64]:
    """Values log Z (B,) and messages (B, n) of count factors with log-odds (B, n) and tables (1 or B, n + 1)."""
    if nu.shape[1] == 1:
        return _single(nu, tables)
    # Messages may grow without end where a marginal is 0 or 1; logarithms hold numbers of any size.
    method = "auto" if masks.absent(nu) else "log-tree"
    tables, constant = masks.resolve_tables(tables, 1)
    found = infer.infer(Problem(CountTree.flat(nu.shape[1]), np.ascontiguousarray(nu), tables), method)
    return found.log_mean + moments.softplus_sum(nu) + constant, found.messages


def best_counts(nu: Float64, tables: Float64) -> tuple[Float64, Float64]:
    """Log-odds (B, n) in decreasing order, and the largest log-weight of every count, (B, n + 1)."""
    ranked = passes.sorted_down(nu)
    return ranked, passes.prefix_sums(ranked) + tables


def _count_maxima(nu: Float64, tables: Float64) -> _Answer:
    weights = best_counts(nu, tables)[1]
    return weights.max(1), _without_own(passes.block_values(nu, weights), nu)


def _without_own(both: Float64, nu: Float64) -> Float64:
    """Messages from the largest log-weights with a member off and on, (..., 2): these do not saturate.

    Members with infinite log-odds are decided already: messages to them are 0.
    """
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(nu), both[..., 1] - both[..., 0] - nu, 0.0)


def _single(nu: Float64, tables: Float64) -> tuple[Float64, Float64]:
    """Potentials of one variable."""
    weights = np.broadcast_to(tables, (len(nu), 2)) + _states(nu[:, 0])
    same = tables[:, 1] == tables[:, 0]  # also where both are -inf, which log Z reports
    with np.errstate(invalid="ignore"):
        change = np.where(same, 0.0, tables[:, 1] - tables[:, 0])
    return np.logaddexp(weights[:, 0], weights[:, 1]), np.broadcast_to(change[:, None], nu.shape).copy()


def _models(batch: Batch, nu: Float64, ask: Callable[[CountModel], _Answer]) -> _Answer:
    """What every model answers in units in which it is possible; -inf if it is in none."""
    assert batch.model is not None
    if not np.isnan(nu).any():
        for odds, unit in _units(batch.block(nu)):
            try:
                value, messages = ask(batch.model.replace(logits=odds))
            except InfeasibleError:
                continue
            return value * unit[:, 0], messages * unit
    return np.full(len(batch), -math.inf), batch.block(nu)


def _model_sums(model: CountModel) -> _Answer:
    return np.asarray(model.log_partition), np.asarray(model.cavity_logits)


def _model_maxima(model: CountModel) -> _Answer:
    messages = _without_own(np.asarray(model.max_marginals), np.asarray(model.logits))
    return np.asarray(model.max_log_weight), messages


def _units(nu: Float64) -> Iterator[tuple[Float64, Float64]]:
    """Log-odds (F, n) of factors that are models, first as they are, and the units (F, 1) they are in.

    Models take far numbers for infinite ones. Messages that run away are finite, and those of several factors may
    contradict one another: then they are given in units in which they are near. Beside numbers of such a size tables
    are nothing, and log Z is homogeneous.
    """
    yield nu, np.ones((len(nu), 1))
    if not masks.absent(nu):
        finite = np.where(np.isfinite(nu), np.abs(nu), 0.0)
        unit = np.maximum(finite.max(axis=1, keepdims=True, initial=0.0) / (0.25 * masks.MASK), 1.0)
        yield nu / unit, unit


def _states(nu: Float64) -> Float64:
    """Log-weights of off and on, (..., 2); forced variables have weight one."""
    off = np.where(nu == math.inf, -math.inf, 0.0)
    return np.stack([off, np.where(nu == math.inf, 0.0, nu)], axis=-1)


def joint_of_pairs(batch: Batch, nu: Float64) -> Float64:
    """Log-weights of the four states of every pair, (F, 2, 2)."""
    weights = _states(batch.block(nu))
    return np.asarray(batch.tables + weights[:, 0, :, None] + weights[:, 1, None, :])


def _pairs(batch: Batch, nu: Float64, add: np.ufunc) -> tuple[Float64, Float64]:
    weights = _states(batch.block(nu))  # (F, 2 members, 2 states)
    to_first = add.reduce(batch.tables + weights[:, 1, None, :], axis=2)
    to_second = add.reduce(batch.tables + weights[:, 0, :, None], axis=1)
    value = add.reduce(to_first + weights[:, 0], axis=1)
    both = np.stack([to_first, to_second], axis=1)
    same = both[..., 1] == both[..., 0]  # also where both are -inf, which `value` reports
    with np.errstate(invalid="ignore"):
        return value, np.where(same, 0.0, both[..., 1] - both[..., 0])


# -- the Bethe value

# Where belief propagation runs away to a single configuration, its messages grow without end, and the terms of the sum
# would cancel down to nothing but rounding: messages beyond this number are taken for the infinite ones they approach.
ENDLESS = 1e9


def bethe_value(structure: Layout, messages: Float64, solver: Solver, *, maximum: bool = False) -> float:
    """The value log Z_Bethe of messages, or its (max, +) counterpart."""
    limit = limit_of(structure, messages)
    if limit is not None:
        found = _value(structure, limit, solver, maximum)
        if math.isfinite(found):
            return found
    return _value(structure, messages, solver, maximum)


def _value(structure: Layout, messages: Float64, solver: Solver, maximum: bool) -> float:
    beliefs = structure.beliefs(messages)
    free = np.isfinite(beliefs)
    on = np.where(free, beliefs, 0.0)
    terms = np.maximum(on, 0.0) if maximum else np.logaddexp(0.0, on)
    total = structure.constant + float(np.sum((1 - structure.degree) * np.where(free, terms, 0.0)))
    # A variable that messages force on enters every factor with weight one; its own log-odds count once. A factor that
    # does the forcing itself sees finite log-odds nu, and its log Z holds that nu, which has to go.
    forced = (beliefs == math.inf) & np.isfinite(structure.theta)
    total += float(structure.theta[forced].sum())
    for phase in structure.phases:
        nu = structure.incoming(phase, messages)
        for batch in phase.batches:
            value, _ = solver(batch, nu[batch.start - phase.start : batch.stop - phase.start])
            total += float(value.sum())
        inside = forced[structure.variable[phase.start : phase.stop]] & np.isfinite(nu)
        total -= float(nu[inside].sum())
    return total


def limit_of(structure: Layout, messages: Float64) -> Float64 | None:
    """Messages with those to runaway variables replaced by the infinite ones that they approach; None without any."""
    beliefs = structure.beliefs(messages)
    endless = np.isfinite(beliefs) & (np.abs(beliefs) > ENDLESS)
    if not endless.any():
        return None
    return np.where(endless, np.copysign(math.inf, beliefs), 0.0)[structure.variable] + np.where(
        endless[structure.variable], 0.0, messages
    )
