"""The Bethe approximation of log Z from messages.

    log Z_Bethe = sum_a log Z_a(nu^a) + sum_i (1 - d_i) log(1 + exp(l_i))

for variables of degree d_i with beliefs l_i; factor a sees its members with log-odds nu^a.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .layout import Layout
from .messages import Solver

Float64 = NDArray[np.float64]


def bethe_value(structure: Layout, messages: Float64, solver: Solver, *, maximum: bool = False) -> float:
    """The value log Z_Bethe of messages, or its (max, +) counterpart."""
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
