"""The distribution of the count on a window, from sums under a few tilts.

The law of the count under a tilt is accurate relative to its peak. Tilts that move the peak by some standard deviations
make the tails as accurate as the middle; one more pass takes all of their sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Float64
from ..engine import native
from ..engine.count import chunks as verbs
from ..engine.count.chunks.table import Shifted
from ..engine.pmf.log_pmf import log_pmf
from .count_potential import CountPotential

_SHIFTS = (
    -24.0,
    -16.0,
    -8.0,
    0.0,
    8.0,
    16.0,
    24.0,
)  # standard deviations between the peaks of neighbouring tilts
_DIGITS = 1e-9  # relative error of a probability up to which a tilt is trusted
_SUMS = 48.0
_REACH = 300.0  # nats below the peak that are told


class CountWindow(NamedTuple):
    """Log-probabilities of the counts ``first``, ``first + 1``, ...; all others are negligible."""

    first: int
    log_probs: Float64


def count_window(
    solution: verbs.Solution,
    sums_of: Callable[[Sequence[verbs.Request]], verbs.Sums],
    potential: CountPotential,
) -> CountWindow:
    """The posterior of the count of all variables."""
    sums = solution.sums
    low, high = potential.support_within(sums.forced, sums.size - sums.excluded)
    if low == high:
        return CountWindow(low, np.zeros(1))
    if solution.gathered is not None:
        return _of_few(solution.gathered, potential)
    first, log_p = prior_window(sums_of, [part.tilt for part in solution.parts] or [0.0])
    seen = Shifted(potential, sums.forced, sums.excluded)
    last = first + len(log_p) - 1
    weights = log_p + seen.window(first, last)
    ends = {0: solution.log_all_off, seen.n: solution.log_all_on}
    weights = weights - _log_sum(weights)
    alone = {k: share for k, share in ends.items() if share > -math.inf and not first <= k <= last}
    return _joined(sums.forced, first, weights, alone)


def _joined(forced: int, first: int, weights: Float64, alone: dict[int, float]) -> CountWindow:
    """The window with the ends that lie outside it, if these matter."""
    kept = {k: share for k, share in alone.items() if share > -40.0}
    if kept:
        weights = weights + math.log1p(-min(1.0 - 1e-16, sum(map(math.exp, kept.values()))))
        start, stop = min(first, *kept), max(first + len(weights), *(k + 1 for k in kept))
        out = np.full(stop - start, -math.inf)
        out[first - start : first - start + len(weights)] = weights
        for k, share in kept.items():
            out[k - start] = share
        first, weights = start, out
    inside = np.flatnonzero(weights > weights.max() - _REACH)
    cut = weights[inside[0] : inside[-1] + 1]
    return CountWindow(forced + first + int(inside[0]), cut - _log_sum(cut))


def prior_window(
    sums_of: Callable[[Sequence[verbs.Request]], verbs.Sums], tilts: Sequence[float]
) -> tuple[int, Float64]:
    """First count and log-probabilities of the finite variables without a potential, around the means of tilts.

    Counts between the windows of tilts far apart, and those too improbable for any of them, are -inf.
    """
    wanted = [verbs.Request("deviations", (0.0, _SUMS))]
    wanted += [verbs.Request("deviations", (tilt, _SUMS)) for tilt in tilts if tilt]
    sums = sums_of(wanted)
    places = []
    for tilt in tilts:
        law = _law(sums_of, sums, tilt)
        sd = math.sqrt(law[5])
        places += [tilt + shift / sd if sd > 3.0 else tilt for shift in _SHIFTS]
    every = sorted(set(places))
    sums = sums_of([verbs.Request("deviations", (tilt, _SUMS)) for tilt in every])
    return _put_together([(tilt, _law(sums_of, sums, tilt)) for tilt in every])


def _law(sums_of: Callable[[Sequence[verbs.Request]], verbs.Sums], sums: verbs.Sums, tilt: float) -> Any:
    while True:
        missing, law = native.flat_count_law(sums.n, list(sums.parts.items()), tilt, True)
        if law is not None:
            return law
        sums = sums_of([verbs.Request(kind, tuple(numbers)) for kind, numbers in missing])


def _put_together(laws: list[tuple[float, Any]]) -> tuple[int, Float64]:
    """For every count the tilt that knows it best."""
    first = min(int(law[0]) for _, law in laws)
    last = max(int(law[0]) + len(law[1]) - 1 for _, law in laws)
    out, error = np.full(last - first + 1, -math.inf), np.full(last - first + 1, _DIGITS)
    for tilt, (low, probs, noise, _, _, _, likely_on, rest) in laws:
        k = int(low) + np.arange(len(probs))
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(probs > 0.0, noise / probs, math.inf)
            log_p = np.log(probs) + tilt * (likely_on - k) + rest
        at = slice(int(low) - first, int(low) - first + len(probs))
        better = relative < error[at]
        out[at][better], error[at][better] = log_p[better], relative[better]
    return first, out


def _of_few(logits: Float64, potential: CountPotential) -> CountWindow:
    weights = log_pmf(logits[None])[0] + potential.window(0, len(logits))
    return _joined(0, 0, weights - _log_sum(weights), {})


def _log_sum(values: Float64) -> float:
    top = float(values.max())
    return top + math.log(np.exp(values - top).sum())
