"""The Bethe approximation of log Z from messages.

    log Z_Bethe = sum_a log Z_a(nu^a) + sum_i (1 - d_i) log(1 + exp(l_i))

for variables of degree d_i with beliefs l_i; factor a sees its members with log-odds nu^a.

Where belief propagation runs away to a single configuration, its messages grow without end, and the terms of the sum
would cancel down to nothing but rounding: such messages are taken for the infinite ones that they approach.
"""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Float64
from .layout import Layout
from .messages import Solver

ENDLESS = 1e9  # messages beyond this are on their way to infinity


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
        nu = phase.incoming(messages)
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
