"""Named potentials as functions of unbounded coordinates, with the rules of their derivatives, for learning.

Values are those of :mod:`~tallytree.potentials.formulas`.

A number that must be positive has its logarithm as coordinate, a probability its log-odds; others are their own. In
coordinates every table is smooth, and no step of an optimiser leaves the range. Fixed numbers may lie on the edge of
it: their coordinates are infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_expit, logit

from tallytree.arrays import Float64
from tallytree.potentials import formulas

Slopes = dict[str, Float64]


@dataclass(frozen=True)
class Domain:
    """Values that a number may take, and the coordinate that covers their inside."""

    name: str
    to_coordinate: Callable[[float], float]
    to_value: Callable[[float], float]
    low: float
    high: float


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else -math.inf


def _exp(coordinate: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(coordinate))


REAL = Domain("a real number", float, float, -math.inf, math.inf)
POSITIVE = Domain("a positive number", _log, _exp, 0.0, math.inf)
PROBABILITY = Domain(
    "a number between 0 and 1", lambda p: float(logit(p)), lambda x: float(expit(x)), 0.0, 1.0
)


@dataclass(frozen=True)
class Family:
    """A named potential whose numbers can be learned.

    Attributes
    ----------
    domains
        Domain of every number with a derivative; the others are settings.
    table
        ``table(n, **coordinates and settings)`` is ``log f``, (n + 1,), with its derivative in every coordinate; 0
        where ``log f`` is ``-inf``.
    """

    domains: dict[str, Domain]
    table: Callable[..., tuple[Float64, Slopes]]


@np.errstate(all="ignore")
def _noisy_or(n: int, rate: float, leak: float, t: int) -> tuple[Float64, Slopes]:
    c = formulas.counts(n)
    absent = formulas.log_absent(np, c, log_expit(-rate), log_expit(-leak))
    slopes = {"rate": -expit(rate) * c, "leak": np.full(n + 1, -expit(leak))}
    if t == 0:
        return absent, slopes
    possible = absent < 0.0
    # d log(1 - e^a) / d a = -1 / (e^-a - 1)
    factor = np.where(possible, -1.0 / np.expm1(np.where(possible, -absent, 1.0)), 0.0)
    return formulas.outcome(np, t, absent), {name: factor * slope for name, slope in slopes.items()}


def _noisy_and(n: int, rate: float, leak: float, t: int) -> tuple[Float64, Slopes]:
    table, slopes = _noisy_or(n, rate, leak, 1 - t)
    return table[::-1].copy(), {name: slope[::-1].copy() for name, slope in slopes.items()}


def _gaussian(n: int, mean: float, sd: float, fraction: bool) -> tuple[Float64, Slopes]:
    c, width = formulas.counts(n), _exp(sd)
    away = ((c / n if fraction and n > 0 else c) - mean) / width
    table = formulas.gaussian(np, c, n, mean, width, fraction)
    return table, {"mean": away / width, "sd": away**2}


@np.errstate(all="ignore")
def _poisson(n: int, mean: float) -> tuple[Float64, Slopes]:
    c, value = formulas.counts(n), _exp(mean)
    return formulas.poisson(np, c, n, value, mean), {"mean": c - value}


def _quadratic(n: int, curvature: float, center: float | None) -> tuple[Float64, Slopes]:
    c = formulas.counts(n)
    away = c - (0.5 * n if center is None else center)
    table = formulas.quadratic(np, c, n, curvature, center)
    return table, {"curvature": 0.5 * away**2, "center": -curvature * away}


def _all_or_none(n: int, strength: float, truncation: float | None) -> tuple[Float64, Slopes]:
    table = formulas.all_or_none(np, formulas.counts(n), n, _exp(strength), truncation)
    return table, {"strength": np.where(table > -math.inf, table, 0.0)}


def _geometric(n: int, ratio: float) -> tuple[Float64, Slopes]:
    c = formulas.counts(n)
    return formulas.multiples(np, c, ratio), {"ratio": c}


def _spike_and_slab(n: int, spike: float, slab: float) -> tuple[Float64, Slopes]:
    c = formulas.counts(n)
    share = float(expit(spike - slab)) if spike != slab else 0.5
    slopes = {"spike": np.where(c == 0.0, share, 0.0), "slab": np.where(c == 0.0, 1.0 - share, 1.0)}
    return formulas.log_spike_and_slab(np, c, spike, slab), slopes


FAMILIES: dict[str, Family] = {
    "noisy_or": Family({"rate": PROBABILITY, "leak": PROBABILITY}, _noisy_or),
    "noisy_and": Family({"rate": PROBABILITY, "leak": PROBABILITY}, _noisy_and),
    "gaussian": Family({"mean": REAL, "sd": POSITIVE}, _gaussian),
    "poisson": Family({"mean": POSITIVE}, _poisson),
    "quadratic": Family({"curvature": REAL, "center": REAL}, _quadratic),
    "all_or_none": Family({"strength": POSITIVE}, _all_or_none),
    "geometric": Family({"ratio": POSITIVE}, _geometric),
    "spike_and_slab": Family({"spike": POSITIVE, "slab": POSITIVE}, _spike_and_slab),
}
