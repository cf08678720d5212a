"""Answers about assignments, shaped like the affinities: dense arrays, or sparse ones with the allowed cells."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..arrays import Float64
from ..loopy import LoopyResult


@dataclass(frozen=True, eq=False)
class AssignmentBeliefs:
    """Approximate marginals of an assignment by loopy belief propagation.

    Attributes
    ----------
    marginals : (I, J)
        Approximate P(y_ij = 1).
    log_odds : (I, J)
        Their log-odds; ``-inf`` for cells that no feasible assignment uses, ``inf`` for those that all use.
    row_counts, column_counts : (I,), (J,)
        Expected counts.
    bethe_log_partition : float
        Bethe approximation of log Z.
    lower_bound : float
        The same if it is a lower bound, else ``-inf``; ``result.lower_bound_condition`` says why.
    result : LoopyResult
        The run on the free cells; pass it as ``start`` to resume.
    """

    marginals: Any
    log_odds: Any = field(repr=False)
    row_counts: Float64 = field(repr=False)
    column_counts: Float64 = field(repr=False)
    bethe_log_partition: float = field(repr=True)
    lower_bound: float
    result: LoopyResult

    @property
    def converged(self) -> bool:
        return self.result.converged

    @property
    def iterations(self) -> int:
        return self.result.iterations

    def __repr__(self) -> str:
        return f"AssignmentBeliefs(bethe_log_partition={self.bethe_log_partition:.6g}, {self.result!r})"


@dataclass(frozen=True, eq=False)
class AssignmentMode:
    """An assignment: its cells, the sum of their affinities, and its log-weight, which adds the potentials."""

    cells: Any
    affinity: float
    log_weight: float
    upper_bound: float = math.inf

    @property
    def gap(self) -> float:
        """Distance of the log-weight to an upper bound of the best one; 0 for the linear program."""
        return self.upper_bound - self.log_weight

    def __repr__(self) -> str:
        return f"AssignmentMode(affinity={self.affinity:.6f}, log_weight={self.log_weight:.6f}, gap={self.gap:.2g})"


@dataclass(frozen=True, eq=False)
class AssignmentBounds:
    """Bounds of log Z.

    ``lower`` is ``-inf`` where none is known; ``marginals`` are those of the upper bound.
    """

    lower: float
    upper: float
    marginals: Any = field(repr=False)
    why_lower: str = field(repr=False)

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    def __repr__(self) -> str:
        return f"AssignmentBounds(lower={self.lower:.6g}, upper={self.upper:.6g}, gap={self.gap:.3g})"


@dataclass(frozen=True, eq=False)
class GibbsMarginals:
    """Averages over Markov chains.

    Attributes
    ----------
    marginals : (I, J)
    standard_error : (I, J)
        From the spread between chains, which must be long enough to be independent of their common start. ``inf`` where
        the chains say nothing about it: a cell that the constraints leave free but that never changed, or one chain.
    chains, sweeps : int
    interrupted : bool
    """

    marginals: Any = field(repr=False)
    standard_error: Any = field(repr=False)
    chains: int
    sweeps: int
    interrupted: bool = False
