"""Exact joint draws from a batch of models with one potential each: sequential conditionals from the suffix sums.

P(y_i = 1 | y_1, ..., y_{i-1}) = w_i suffix_{i+1}(c + 1) / suffix_i(c),      c = y_1 + ... + y_{i-1}
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_expit

from .. import config
from ..arrays import Bools, Float64
from ..engine.problem import Problem
from ..engine.sample.sampler import Sampler
from ..loopy import capped
from ..structure.nested.count_tree import CountTree

_PER_VARIABLE = 8  # steps along the variables that cost as much as one draw by the compiled engine
_TINY = 1e-200  # suffix sums below this times the total belong to events that are never drawn


def draw(nu: Float64, log_f: Float64, rng: np.random.Generator) -> Bools:
    """One configuration (B, n) per model with log-odds (B, n) and tables (1 or B, n + 1); models must be possible."""
    n = nu.shape[1]
    if config.native() is not None and _PER_VARIABLE * len(nu) < n:
        problem = Problem(CountTree.flat(n), np.ascontiguousarray(nu), log_f, {})
        return np.asarray(Sampler(problem).draw(1, rng)[0], bool)
    lowest, highest = capped.support(log_f)
    if n - lowest < highest:
        return ~_draw(-nu, log_f[:, ::-1], n - lowest, rng)
    return _draw(nu, log_f, highest, rng)


def _draw(nu: Float64, log_f: Float64, k: int, rng: np.random.Generator) -> Bools:
    table = log_f[:, : k + 1]
    uniforms = rng.random((nu.shape[1], nu.shape[0]))
    if k > capped.LARGEST:
        return _logarithmic(nu, table, uniforms)
    weights, tilt, forced = capped.odds(nu, k)
    last, _ = capped.scaled_table(table, tilt)
    last = np.broadcast_to(last, (k + 1, nu.shape[0]))
    suffix = capped.suffixes(weights, forced, last)
    y = _walk(weights, suffix, uniforms)
    lost = np.flatnonzero(~(suffix[0, 0] > _TINY) | ~np.isfinite(suffix[0, 0]))
    if len(lost):
        picked = table if table.shape[0] == 1 else table[lost]
        y[lost] = _logarithmic(nu[lost], picked, uniforms[:, lost])
    return y


def _walk(weights: Float64, suffix: Float64, uniforms: Float64) -> Bools:
    n, batch = weights.shape
    y = np.empty((n, batch), bool)
    each = np.arange(batch)
    count = np.zeros(batch, np.intp)
    top = suffix.shape[1] - 1
    for i in range(n):
        later = suffix[i + 1]
        on = np.where(count < top, weights[i] * later[np.minimum(count + 1, top), each], 0.0)
        y[i] = uniforms[i] * suffix[i, count, each] < on
        count += y[i]
    return np.ascontiguousarray(y.T)


def _logarithmic(nu: Float64, log_f: Float64, uniforms: Float64) -> Bools:
    """The same with logarithms, for models whose numbers leave the range of floating point."""
    batch, n = nu.shape
    k = log_f.shape[1] - 1
    log_on, log_off = np.asarray(log_expit(nu)).T, np.asarray(log_expit(-nu)).T
    suffix = np.full((n + 1, k + 2, batch), -math.inf)
    suffix[n, : k + 1] = np.broadcast_to(log_f.T, (k + 1, batch))
    for i in range(n - 1, -1, -1):
        suffix[i, :-1] = np.logaddexp(log_off[i] + suffix[i + 1, :-1], log_on[i] + suffix[i + 1, 1:])
    y = np.empty((n, batch), bool)
    each = np.arange(batch)
    count = np.zeros(batch, np.intp)
    for i in range(n):
        on = log_on[i] + suffix[i + 1, count + 1, each]
        with np.errstate(invalid="ignore"):
            y[i] = uniforms[i] < np.exp(on - suffix[i, count, each])
        count += y[i]
    return np.ascontiguousarray(y.T)
