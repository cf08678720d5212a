"""What solving from sums ends with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ....arrays import Float64
from .mapping import Mapping
from .sums import Sums
from .table import CountTable


class Part(NamedTuple):
    """Counts ``first .. last`` of the finite variables that were solved under one tilt, and their log share."""

    tilt: float
    log_share: float
    first: int
    last: int


@dataclass(frozen=True, eq=False, slots=True)
class Solution:
    """A certified answer; what a chunk needs of it is `mapping`.

    Attributes
    ----------
    log_partition : float
        Log Z, forced variables with weight one; -inf for an impossible model, which has no other answers.
    error_bound : float
        Certified bound on the error of every posterior log-odds, and of log Z beyond its rounding.
    mapping : Mapping
        For :func:`map_logits`.
    sums : Sums
        All that was reduced on the way.
    table : CountTable
        The potential.
    parts : tuple of Part
        The posterior as a mixture; shares of "all off" and "all on" are apart.
    log_all_off, log_all_on : float
        Log shares of the two; -inf where a part holds them.
    gathered : (size,) or None
        All log-odds in order, where they are so few that they were simply collected.
    """

    log_partition: float
    error_bound: float
    mapping: Mapping
    sums: Sums
    table: CountTable
    parts: tuple[Part, ...] = ()
    log_all_off: float = -math.inf
    log_all_on: float = -math.inf
    gathered: Float64 | None = None

    @property
    def impossible(self) -> bool:
        return self.log_partition == -math.inf
