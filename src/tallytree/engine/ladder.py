"""Escalation: a quick method for all models of a batch, the next one for those it could not certify."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from ..arrays import Ints
from ..errors import SlowWarning, warn
from .answer import Answer

TOLERANCE = 1e-9  # what the accuracy contract grants to log-odds; bounds are far above the errors they bound


# Seconds per pair of counts, measured: one exponent per entry, logarithms with derivatives, walks over decisions,
# messages of samplers, and logarithms of weighted sums
WIDE, TANGENT, WALK, DRAWN, SUMMED = 1e-9, 1.5e-8, 2e-7, 1.2e-9, 2e-8
_LONG = 3.0  # seconds that are announced


def is_long(pairs: float, seconds_each: float) -> bool:
    """Whether work in quadratic time is announced."""
    return pairs * seconds_each > _LONG


def announce(
    pairs: float, seconds_each: float, what: str, why: str = "the quicker methods cannot certify their answer"
) -> None:
    """Warn before work in quadratic time that takes long."""
    if is_long(pairs, seconds_each):
        warn(
            f"{what} needs a pass over {pairs:.1e} pairs of counts, about {pairs * seconds_each:.0f} s, because {why}. "
            "Log-odds that stand for excluded or forced variables are quick as -inf or "
            "inf, and so are tables with -inf at counts that are meant to be impossible. Ctrl-C ends the work.",
            SlowWarning,
        )


class Batch(Protocol):
    """Models that are solved together, some of which can be taken out."""

    def __len__(self) -> int: ...
    def take(self, rows: Ints) -> Self: ...


class Certified(Protocol):
    """What was found for a batch: models whose ``bound`` does not do are found anew and put in their places."""

    @property
    def bound(self) -> Any: ...
    def patched(self, other: Self, rows: Ints) -> Self: ...


B = TypeVar("B", bound=Batch)
A = TypeVar("A", bound=Certified)
G = TypeVar("G")


def improve(run: Callable[[G], Answer], guess: G, better: Callable[[Answer], G], rounds: int) -> Answer:
    """The answer under better and better guesses, such as tilts, until all models are certified or nothing is gained.

    ``better(answer)`` is the guess that an answer which is not certified suggests.
    """
    best = run(guess)
    for _ in range(rounds - 1):
        if np.all(best.bound <= TOLERANCE):
            break
        found = run(better(best))
        if not np.max(found.bound) < np.max(best.bound):
            break
        best = found
    return best


def climb(rungs: Iterable[Callable[[B], A]], batch: B, *, tolerance: float = TOLERANCE) -> A:
    """The first answer for every model that is certified to `tolerance`; the last rung is trusted.

    A rung maps a batch to an answer whose ``bound`` says which models it certifies.
    """
    ladder = iter(rungs)
    found = next(ladder)(batch)
    bound = found.bound
    if len(bound) == 1 and bound[0] <= tolerance:
        return found  # the usual case, kept short
    failed = np.flatnonzero(~(bound <= tolerance))
    if not len(failed):
        return found
    further = list(ladder)
    if not further:
        return found
    if len(failed) == len(batch):
        return climb(further, batch, tolerance=tolerance)
    return found.patched(climb(further, batch.take(failed), tolerance=tolerance), failed)
