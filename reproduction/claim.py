"""A statement of the paper, what was measured, and a verdict that is computed from the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

REPRODUCED, DIFFERS, NOT_REPRODUCED, UNDECIDED = "reproduced", "differs", "not reproduced", "not decided"
VERDICTS = (REPRODUCED, DIFFERS, NOT_REPRODUCED, UNDECIDED)


@dataclass(frozen=True)
class Claim:
    """One statement and how it fares here.

    Attributes
    ----------
    paper, found : str
        What the paper states, and what was measured.
    verdict : str
        One of `VERDICTS`.
    why : str
        How it was judged.
    variant : bool
        Whether this is the statement under another setting of our own, which does not count among the paper's.
    """

    part: str
    paper: str
    found: str
    verdict: str
    why: str = ""
    variant: bool = False


def verdict(holds: bool, otherwise: str = NOT_REPRODUCED) -> str:
    """The word for a claim that was decided."""
    return REPRODUCED if holds else otherwise


def tally(claims: Sequence[Claim]) -> str:
    """How many of the paper's own statements have which verdict, in words."""
    own = [c for c in claims if not c.variant]
    counts = [(sum(c.verdict == v for c in own), v) for v in VERDICTS]
    return f"{len(own)} statements of the paper: " + ", ".join(f"{n} {v}" for n, v in counts if n)


def seconds(t: float | None) -> str:
    if t is None or math.isnan(t):
        return "not measured"
    return f"{t * 1e6:.0f} us" if t < 1e-3 else f"{t * 1e3:.3g} ms" if t < 1 else f"{t:.3g} s"


def power_of_two(d: int) -> str:
    return f"2^{d.bit_length() - 1}" if d and d & (d - 1) == 0 else str(d)


def standard_error(values: Any) -> float:
    """Of the mean of independent values; 0 for a single one."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
