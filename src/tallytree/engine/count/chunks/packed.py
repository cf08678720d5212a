"""The numbers that the compiled engine makes of a solution, as far as Python reads them."""

from __future__ import annotations

import math
from typing import NamedTuple

from ....arrays import Float64
from .solution import Part

_KINDS = ("impossible", "ends", "series", "direct", "powers")
_LISTS = 5  # of every part: its series, and its waves where the variance is small


class Packed(NamedTuple):
    """A solution of the compiled engine."""

    kind: str
    log_mean: float
    softplus: float
    bound: float
    sum_logits: float
    log_all_off: float  # log shares of the posterior
    log_all_on: float
    parts: tuple[Part, ...]


def unpacked(numbers: Float64) -> Packed:
    """In the order of ``visit_solution`` in cpp/flat/packed.cpp."""
    kind, log_mean, softplus, bound, all_off, all_on, sum_logits, _, _, count = numbers[:10].tolist()
    at, parts = 10, []
    for _ in range(int(count)):
        tilt, log_weight, *_, first, length = numbers[at : at + 10].tolist()
        parts.append(Part(tilt, log_weight - log_mean, int(first), int(first + length) - 1))
        at += 10
        for _ in range(_LISTS):
            at += 1 + int(numbers[at])
    name = _KINDS[int(kind)]
    if name == "series" and not parts:
        bound = math.inf
    apart = name in ("ends", "series") and log_mean > -math.inf
    off, on = (all_off - log_mean, all_on - log_mean) if apart else (-math.inf, -math.inf)
    return Packed(name, log_mean, softplus, bound, sum_logits, off, on, tuple(parts))
