"""One potential over a block of variables, without a tree.

As a mixture of exponentials: a potential f(c) = sum_j a_j r_j^c needs no convolution at all:

    E f(z) = sum_j a_j prod_d (1 - p_d + p_d r_j),

and what the rest of the model says to variable d is the same sum without its factor. Cost O(n r) for r terms. Terms may
be negative or complex (parity, modulo), so the certificate is the cancellation in the sums.

Stretch by stretch, where the possible counts are a few stretches far apart, such as "1 or n - 2": no tilt sees both
places. Each stretch alone is an easy model, and the whole is their mixture: weights add up, and so do the probabilities
that a variable is on and off.

By its core, where most variables are decided: the few that are not form a small model. Let the count be one of those
that matter. A variable whose log-odds lie far below those at which the count is reached is off, and one far above is
on, in all but a share of e^-50 of the weight, also when any other variable is left out
(:func:`~tallytree.engine.native.open_logits`). So it is for everyone else. Its own message compares two counts of the
others, and is the same for all variables on its side: one of each side stays in the small model and speaks for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Float64, Ints
from ...structure.nested.count_tree import CountTree
from .. import native
from ..answer import Answer
from ..arithmetic import UNIT_ROUNDOFF
from ..ladder import TOLERANCE
from ..log_sums import log_sum
from ..problem import Problem, Rows

# -- mixtures -------------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def by_mixture(nu: Float64, coefficients: NDArray[Any], rates: NDArray[Any]) -> Answer:
    """Models (B, n) that share one mixture."""
    batch, n = nu.shape
    off, on = expit(-nu), expit(nu)
    factors = [off + on * (rate.real if rate.imag == 0.0 else rate) for rate in map(complex, rates.tolist())]
    blanks = [factor == 0.0 for factor in factors]
    phases = [np.angle(factor) for factor in factors]
    logs = [np.log(np.where(blank, 1.0, np.abs(factor))) for blank, factor in zip(blanks, factors)]
    totals, turns, holes = ([part.sum(axis=1) for part in parts] for parts in (logs, phases, blanks))
    top = np.max(totals, axis=0)

    value, spread = np.zeros(batch), np.zeros(batch)
    up, down, up_spread, down_spread = (np.zeros((batch, n)) for _ in range(4))
    for j, (a, rate) in enumerate(zip(coefficients.tolist(), rates.tolist())):
        a, rate = complex(a), complex(rate)
        whole = np.where(holes[j] == 0, np.exp(totals[j] - top), 0.0)
        value += whole * _real_part(a, turns[j])
        spread += abs(a) * whole
        others = holes[j][:, None] - blanks[j]
        size = np.exp(np.clip(totals[j][:, None] - top[:, None] - logs[j], -745.0, 700.0))
        rest = np.where(others == 0, size, 0.0)
        turn = turns[j][:, None] - phases[j]
        down += rest * _real_part(a, turn)
        up += rest * _real_part(a * rate, turn)
        down_spread += abs(a) * rest
        up_spread += abs(a * rate) * rest

    sound = (value > 0.0) & ((up > 0.0) & (down > 0.0)).all(axis=1)
    amp = spread / np.where(value > 0.0, value, 1.0)
    for sums, sizes in ((up, up_spread), (down, down_spread)):
        amp = np.maximum(amp, (sizes / np.where(sums > 0.0, sums, 1.0)).max(axis=1, initial=0.0))
    length = np.abs([top, *totals]).max(axis=0)
    bound = UNIT_ROUNDOFF * amp * (16.0 + 4.0 * math.sqrt(n) + 4.0 * length)
    log_mean = np.log(np.where(value > 0.0, value, 1.0)) + top
    messages = np.log(np.where(up > 0.0, up, 1.0)) - np.log(np.where(down > 0.0, down, 1.0))
    return Answer(log_mean, messages, None, np.where(sound, bound, math.inf))


def _real_part(a: complex, angle: Float64) -> Float64:
    """Real part of ``a e^(i angle)``; imaginary parts cancel between conjugate terms."""
    return np.asarray(a.real * np.cos(angle) - a.imag * np.sin(angle))


# -- stretches ---------------------------------------------------------------------------------------------------------

_MOST_STRETCHES = 4  # stretches that are solved one by one
# Square roots of the number of variables between two stretches that no tilt serves at once
_FAR_STRETCHES = 4.0
_OUTWEIGHED = 64.0  # nats by which one stretch outweighs another for good


def stretches(table: Float64) -> list[tuple[int, int]]:
    """Where the stretches of possible counts of a table (D + 1,) start and stop; all is one where there are many."""
    whole = [(0, len(table))]
    if table.min() > -math.inf:  # said in a tenth of the time
        return whole
    possible = np.concatenate([[False], table > -math.inf, [False]])
    ends = np.flatnonzero(possible[1:] != possible[:-1]).reshape(-1, 2).tolist()
    return [(start, stop) for start, stop in ends] if 0 < len(ends) <= _MOST_STRETCHES else whole


def within(table: Float64, start: int, stop: int) -> Float64:
    """The table with these counts alone."""
    own = np.full(table.shape, -math.inf)
    own[start:stop] = table[start:stop]
    return own


def spread(nu: Float64) -> float:
    """How far the log-odds are from one another; where some of them are as near as usual, how far these are."""
    some = nu[..., :: max(1, nu.shape[-1] // 1024)]
    near = float(some.max()) - float(some.min())
    return near if near <= _APART else float(nu.max()) - float(nu.min())


def far_apart(spread: float, table: Float64) -> bool:
    """Whether a table (D + 1,) has stretches so far apart, under log-odds as far, that these are solved at once."""
    if not spread > _APART:
        return False
    ends = stretches(table)
    gaps = [after - stop for (_, stop), (after, _) in pairwise(ends)]
    return min(gaps, default=0) > _FAR_STRETCHES * math.sqrt(len(table))


def heaviest(answers: list[Answer]) -> list[int]:
    """Which stretches have a share of the weight, by their bounds and the rounding of numbers of their size."""
    weights = np.array([a.log_mean[0] for a in answers])
    bounds = np.array([a.bound[0] for a in answers])
    doubt = bounds + UNIT_ROUNDOFF * answers[0].messages.size * np.abs(weights)
    light = weights + doubt < (weights - doubt).max() - _OUTWEIGHED
    return np.flatnonzero(~light).tolist()


def certain(answers: list[Answer]) -> bool:
    """Whether their mixture is as right as they are: their shares are certified, or one outweighs all others."""
    bounds = np.array([a.bound[0] for a in answers])
    return bool((bounds <= TOLERANCE).all()) or (
        bool(np.isfinite(bounds).all()) and len(heaviest(answers)) == 1
    )


def joined_stretches(nu: Float64, answers: list[Answer]) -> Answer:
    """The mixture of the models of one row of log-odds (1, D), one for every stretch.

    The heaviest speaks for all, except to variables that it decides so firmly that the others may turn them.
    """
    log_mean = np.stack([a.log_mean for a in answers])  # (stretch, 1)
    best = int(np.argmax(log_mean[:, 0]))
    second = np.delete(log_mean[:, 0], best).max(initial=-math.inf)
    with np.errstate(invalid="ignore"):  # what is not a number has no certificate
        messages = np.array(answers[best].messages)
        firm = np.flatnonzero(~(np.abs(nu + messages)[0] < log_mean[best, 0] - second - _OUTWEIGHED))
        if len(firm):
            messages[:, firm] = _mixed(
                nu[:, firm], log_mean, np.stack([a.messages[:, firm] for a in answers])
            )
    sizes = (np.abs(np.where(np.isfinite(x), x, 0.0)) for x in (nu, log_mean.T))
    size = next(sizes).sum(1) + next(sizes).max(1)
    bound = 2.0 * np.max([a.bound for a in answers], axis=0) + 8.0 * UNIT_ROUNDOFF * size
    sound = ~np.isnan(messages).any(1)
    return Answer(log_sum(log_mean, 0), messages, None, np.where(sound, bound, math.inf))


def _mixed(nu: Float64, log_mean: Float64, sent: Float64) -> Float64:
    """Messages (1, d) of a mixture to some variables, from those of its models, (stretch, 1, d).

    P(y = 1) and P(y = 0) are sums of theirs. Where nu is infinite, a model of weight Z that sends m has Z of the weight
    where the variable is as nu says, and ``Z e^m`` or ``Z e^-m`` where it is not.
    """
    weight, odds, infinite = log_mean[..., None], nu + sent, np.isinf(nu)
    likelier = weight - np.log1p(np.exp(-np.abs(odds)))
    on, off = likelier + np.minimum(odds, 0.0), likelier - np.maximum(odds, 0.0)
    if infinite.any():
        forced = nu > 0.0
        on = np.where(infinite, np.where(forced, weight, weight + sent), on)
        off = np.where(infinite, np.where(forced, weight - sent, weight), off)
    return np.asarray(log_sum(on, 0) - log_sum(off, 0) - np.where(infinite, 0.0, nu))


# -- cores -------------------------------------------------------------------------------------------------------------

SHARE = math.exp(-45.0)  # of the weight that decided variables leave out, with room for their number
_LEAST = 64  # variables that are worth looking at
_APART = 2.0 * 64.0  # nats between the smallest and the largest log-odds, without which nothing is decided


@dataclass(frozen=True, eq=False)
class Core:
    """The variables of one model that are not decided, and one of each kind that is.

    Attributes
    ----------
    rows : Rows
        The model of the variables that are left, with the table shifted by the others that are on.
    kept : (m,)
        Which variables these are.
    speaker : (D,)
        Which of them speaks for every variable: itself, or the one that is decided like it.
    on : (D,)
        Whether a variable is decided and on.
    first : int
        How many variables are on besides those that are kept.
    log_weight : float
        Log of the probability that independent variables are as decided.
    """

    rows: Rows
    kept: Ints
    speaker: Ints
    on: NDArray[np.bool_]
    first: int
    log_weight: float

    def counts(self) -> slice:
        """Where the counts of the small model are among those of the whole one."""
        return slice(self.first, self.first + len(self.kept) + 1)


def core_of(nu: Float64, table: Float64) -> Core | None:
    """The core of one model with log-odds (D,) and a table (D + 1,); None if most variables are not decided."""
    n = len(nu)
    if n < _LEAST or not native.present():
        return None
    finite = nu[np.isfinite(nu)] if np.isinf(nu).any() else nu
    if not len(finite) or not float(finite.max()) - float(finite.min()) > _APART:
        return None
    low, high = native.open_logits(nu[None], table[None])[0]
    below, above = nu < low, nu > high
    off, on = np.flatnonzero(below), np.flatnonzero(above)
    if 2 * (len(off) + len(on)) < n:
        return None
    speakers = [
        side[np.argmin(np.abs(nu[side] - edge))] for side, edge in ((off, low), (on, high)) if len(side)
    ]
    held = ~(below | above)
    held[speakers] = True
    kept = np.flatnonzero(held)
    speaker = np.empty(n, np.int64)
    place = np.cumsum(held) - 1
    speaker[kept] = place[kept]
    for side in (off, on):
        if len(side):
            speaker[side] = place[speakers[0 if side is off else -1]]
    gone = ~held
    log_weight = -float(native.softplus_sums(np.where(above, -nu, nu)[None, gone])[0])
    first = int(np.count_nonzero(above & gone))
    rows = Rows(
        np.ascontiguousarray(nu[None, kept]), np.ascontiguousarray(table[None, first : first + len(kept) + 1])
    )
    return Core(rows, kept, speaker, above & gone, first, log_weight)


def without(problem: Problem, off: NDArray[np.bool_], on: NDArray[np.bool_]) -> Problem:
    """Models of the variables that are left of a single set when some (B, D) are off and some on.

    Excluded variables fill the rows of those that have fewer.
    """
    held = ~(off | on)
    number, first = held.sum(1)[:, None], on.sum(1)[:, None]
    width = max(2, int(number.max(initial=0)))
    if width >= held.shape[1]:
        return problem
    places, cells = np.arange(width), np.arange(width + 1)
    nu = np.full((len(held), width), -math.inf)
    nu[places < number] = problem.nu[held]
    tables = np.take_along_axis(problem.full_tables, np.minimum(first + cells, held.shape[1]), 1)
    return Problem(CountTree.flat(width), nu, np.where(cells <= number, tables, -math.inf))


# -- counts ------------------------------------------------------------------------------------------------------------


def count_law(nu: Float64, table: Float64) -> tuple[Float64, float]:
    """P(count) of one model, (n + 1,), from log-odds (n,) and a table (n + 1,), and a bound of its error."""
    nothing = np.zeros((0, 1, len(nu)))
    _, found, _, bound = native.flat_tangent(nu[None], np.ascontiguousarray(table[None]), nothing, None, True)
    # What lies below the rounding of the largest is no weight of its own: it may be negative.
    return np.where(found[0] > UNIT_ROUNDOFF * found[0].max(initial=0.0), found[0], 0.0), float(bound[0])
